"""Arrays as bytes: what files hold, hashes cover and other programs read. C order, little endian, codes of formats."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ..archives import content_of
from ..errors import GraphError
from ..files import reading, size_of
from ..formats import FORMATS, format_of
from ..memory import Array

INTEGERS = {name: np.dtype(name) for name in ("int32", "int64")}
"""The dtypes of inputs that state a shape."""

BLOCK = 2**24
"""Bytes that are written or hashed at a time."""


def format_name(array: Array) -> str:
    """Return the name of an array's number format, or of its integer dtype."""
    known = format_of(array.dtype)
    return known.name if known else array.dtype.name


def dtype_of(format: str) -> np.dtype[Any]:
    """Return the dtype of arrays in a format, or the integer dtype of that name.

    Raises
    ------
    GraphError
        If there is no such format.
    """
    if format in FORMATS:
        return FORMATS[format].dtype
    if format in INTEGERS:
        return INTEGERS[format]
    raise GraphError(f"{format!r} is no number format; allowed: {', '.join([*FORMATS, *INTEGERS])}")


def named(array: Array, format: str) -> Array:
    """Return codes as an array of the format that they are in; the bytes stay the same.

    Raises
    ------
    GraphError
        If the dtype is neither the format's nor one of raw codes of its width.
    """
    wanted = dtype_of(format)
    if format_name(array) == format:
        return array
    if array.dtype.itemsize == wanted.itemsize and array.dtype.kind in "uV" and wanted.isbuiltin != 1:
        return array.view(wanted)
    raise GraphError(f"dtype {format_name(array)}; needed: {format}")


def write_content(array: Array, file: BinaryIO) -> None:
    """Write the bytes of an array block by block."""
    content = content_of(array)
    for start in range(0, len(content), BLOCK):
        file.write(content[start:start + BLOCK])


def digest_of_file(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    found = hashlib.sha256()
    with reading(path) as file:
        while block := file.read(BLOCK):
            found.update(block)
    return found.hexdigest()


def read_content(path: Path, format: str, shape: Sequence[int]) -> Array:
    """Return the array that a file of raw bytes holds.

    Raises
    ------
    GraphError
        If it cannot be read, or has another size than such an array.
    """
    dtype = dtype_of(format)
    with reading(path) as file:
        held, needed = size_of(file), prod(shape) * dtype.itemsize
        if held != needed:
            raise GraphError(f"{path}: {held} bytes; needed: {needed}, {format} of shape {list(shape)}")
        storage = dtype if dtype.isbuiltin == 1 else np.dtype(f"u{dtype.itemsize}")
        codes = np.fromfile(file, storage.newbyteorder("<"), prod(shape))
    return codes.astype(storage, copy=False).reshape(tuple(shape)).view(dtype)
