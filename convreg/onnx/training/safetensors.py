"""The safetensors format: arrays by name with a header in JSON, read without trust and written without a dependency.

A file is eight bytes with the length of the header (little-endian), the header, and the arrays' bytes (little-endian,
row-major) without gaps. The header is a JSON object: name -> ``{"dtype", "shape", "data_offsets"}``, and under
``__metadata__`` an object of strings. Source: the format's description in the safetensors repository.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import prod
from typing import Any, BinaryIO

import ml_dtypes
import numpy as np

from ...errors import GraphError, shorten
from ...files import PathLike, Write, json_of, reading, size_of
from ...memory import Array

METADATA = "__metadata__"
LONGEST_HEADER = 100_000_000
"""Bytes; the limit of the format's own library."""

DTYPES: dict[str, np.dtype[Any]] = {name: np.dtype(kind) for name, kind in (
    ("F64", np.float64), ("F32", np.float32), ("F16", np.float16), ("BF16", ml_dtypes.bfloat16), ("I64", np.int64),
    ("I32", np.int32), ("I16", np.int16), ("I8", np.int8), ("U64", np.uint64), ("U32", np.uint32), ("U16", np.uint16),
    ("U8", np.uint8), ("BOOL", np.bool_), ("F8_E4M3", ml_dtypes.float8_e4m3fn), ("F8_E5M2", ml_dtypes.float8_e5m2))}
NAMES = {kind: name for name, kind in DTYPES.items()}


def written(arrays: Mapping[str, Array], metadata: Mapping[str, str]) -> Write:
    """Return what writes arrays and strings as one file.

    Raises
    ------
    GraphError
        If an array has an element type that the format lacks, or a name is the one of the metadata.
    """
    header: dict[str, Any] = {METADATA: dict(metadata)} if metadata else {}
    begin = 0
    for name, array in arrays.items():
        if name == METADATA:
            raise GraphError(f"an array has the name {METADATA!r}, which safetensors files use themselves")
        if array.dtype not in NAMES:
            raise GraphError(f"the array {name!r} is {array.dtype}; safetensors files hold "
                             f"{', '.join(map(str, NAMES))}")
        header[name] = {"dtype": NAMES[array.dtype], "shape": list(array.shape),
                        "data_offsets": [begin, begin + array.nbytes]}
        begin += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # so that arrays begin at multiples of 8
    if len(text) > LONGEST_HEADER:
        raise GraphError(f"the header has {len(text)} bytes; allowed: {LONGEST_HEADER}")

    def write(file: BinaryIO) -> None:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for array in arrays.values():
            file.write(array.tobytes())

    return write


def read(path: PathLike) -> tuple[dict[str, Array], dict[str, str]]:
    """Return the arrays and the metadata of a file.

    Raises
    ------
    GraphError
        If it is no such file: the header is longer than the file or 100 MB, is not JSON, or has a key twice; an entry
        has an unknown type, or offsets that do not fit its shape; arrays overlap, leave gaps, or end elsewhere than
        the file.
    """
    with reading(path) as file:
        return _read(file)


def _read(file: BinaryIO) -> tuple[dict[str, Array], dict[str, str]]:
    size = size_of(file)
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > min(size - 8, LONGEST_HEADER):
        raise ValueError(f"not a safetensors file: a header of {length} bytes in a file of {size}")
    try:
        header = json_of(file.read(length))
    except GraphError as error:  # which names no file
        raise ValueError(str(error)) from None
    if not isinstance(header, dict):
        raise ValueError("not a safetensors file: the header is no JSON object")
    metadata = header.pop(METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise ValueError(f"{METADATA} is no object of strings")
    entries = sorted((_entry(name, stated) for name, stated in header.items()), key=lambda entry: entry[3:])
    end = 0
    for name, _, _, begin, following in entries:
        if begin != end:
            raise ValueError(f"the array {shorten(name)} begins at {begin}; the one before it ends at {end}")
        end = following
    if end != size - 8 - length:
        raise ValueError(f"the arrays have {end} bytes; the file holds {size - 8 - length}")
    arrays = {}
    for name, dtype, shape, begin, following in entries:
        content = file.read(following - begin)
        if len(content) != following - begin:
            raise ValueError(f"the file ends inside the array {shorten(name)}")
        array: Array = np.frombuffer(bytearray(content), dtype) if content else np.empty(0, dtype)
        arrays[name] = array.reshape(shape)
    return arrays, metadata


def _entry(name: str, stated: Any) -> tuple[str, np.dtype[Any], tuple[int, ...], int, int]:
    """Check one entry of the header."""
    def refused(what: str) -> ValueError:
        return ValueError(f"the array {shorten(name)} has {what}")

    if not isinstance(stated, dict) or stated.keys() != {"dtype", "shape", "data_offsets"}:
        raise refused(f"the entry {shorten(stated)}; needed: dtype, shape and data_offsets")
    if not isinstance(stated["dtype"], str) or stated["dtype"] not in DTYPES:
        raise refused(f"the dtype {shorten(stated['dtype'])}; allowed: {', '.join(DTYPES)}")
    shape, offsets = stated["shape"], stated["data_offsets"]
    for what, numbers in (("shape", shape), ("data_offsets", offsets)):
        if not isinstance(numbers, list) or len(numbers) > 32 or not all(
                type(entry) is int and 0 <= entry < 2**62 for entry in numbers):
            raise refused(f"the {what} {shorten(numbers)}; allowed: a list of integers, none negative")
    dtype = DTYPES[stated["dtype"]]
    if len(offsets) != 2 or offsets[1] - offsets[0] != prod(shape) * dtype.itemsize:
        raise refused(f"the data_offsets {shorten(offsets)}; its shape {shorten(shape)} needs "
                      f"{prod(shape) * dtype.itemsize} bytes")
    return name, dtype, tuple(shape), offsets[0], offsets[1]
