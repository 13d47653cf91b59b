"""Arrays in NumPy's files, one in an .npy file, several by name in an .npz file; arrays as bytes, and their hashes."""

from __future__ import annotations

import hashlib
import io
import re
import sys
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import BinaryIO
from zipfile import ZipFile, ZipInfo

import numpy as np

from .errors import GraphError, shorten
from .files import PathLike, Write, read_bytes, reading, reason, size_of
from .formats import FORMATS, HIFLOAT8_IN_FILES, format_of, hifloat8
from .memory import Array
from .paths import path_of

INFLATED_BYTES = 2**28
"""Bytes that the entries of any archive may have when they are inflated."""

INFLATED_FACTOR = 100
"""Entries of an archive that have more bytes than this many times the file are taken for an attack, unless small."""

ARCHIVE = (b"PK\x03\x04", b"PK\x05\x06")
"""How an archive begins, and one without entries."""

LONGEST_ENTRY = 65_000
"""Bytes of the longest name that an archive's entry has."""


def load_one(path: PathLike) -> Array:
    """Return the array of an .npy file; formats that NumPy files cannot name (bfloat16, float8) come as raw bits.

    HiFloat8 comes as such from files that convreg wrote.

    Raises
    ------
    GraphError
        If it is no such file.
    """
    raw = read_bytes(path)
    if raw.startswith(ARCHIVE):
        raise GraphError(f"{path}: an archive, which may hold several arrays; allowed: one .npy file")
    if not raw.startswith(np.lib.format.MAGIC_PREFIX):  # which numpy.load takes for pickled objects
        raise GraphError(f"{path}: not a NumPy array file: it does not begin as an .npy file does")
    content = io.BytesIO(raw)
    try:
        array: Array = np.lib.format.read_array(content, allow_pickle=False)
    except Exception as error:  # damaged headers raise whatever the header's parser does
        raise GraphError(f"{path}: not a NumPy array file: {reason(error)}") from None
    if rest := len(raw) - content.tell():
        raise GraphError(f"{path}: {rest} bytes after the array; needed: one array and nothing else")
    return _named(array)


def load_together(path: PathLike, names: Collection[str] | None) -> dict[str, Array]:
    """Return the arrays of an .npz file by name.

    Parameters
    ----------
    path : path-like
    names : collection of str or None
        What the entries may be called, None for any names; nothing is inflated before all names are known.

    Raises
    ------
    GraphError
        If it is no such file, if it has an entry of another name, or if an entry is far larger than the file.
    """
    with reading(path) as file:
        try:
            with ZipFile(file) as archive:
                entries = [(entry.filename.removesuffix(".npy"), entry.file_size) for entry in archive.infolist()]
            _check_entries(path, size_of(file), entries, names)
            file.seek(0)
            with np.load(file, allow_pickle=False) as arrays:
                return {name: _named(array) for name, array in arrays.items()}
        except (GraphError, OSError):
            raise
        except Exception as error:  # damaged archives raise whatever the reader does
            raise GraphError(f"{path}: not an archive of NumPy arrays: {reason(error)}") from None


def _check_entries(path: PathLike, held: int, entries: Collection[tuple[str, int]], names: Collection[str] | None
                   ) -> None:
    for name, _ in entries:
        if names is not None and name not in names:
            raise GraphError(f"{path}: the entry {name!r} is none of {', '.join(names) or 'no names'}")
    total = sum(size for _, size in entries)  # two entries may have one name
    allowed = max(INFLATED_BYTES, INFLATED_FACTOR * held)
    if total > allowed:
        raise GraphError(f"{path}: the entries have {total} bytes when they are inflated; allowed: {allowed}")


def archive_of(results: Mapping[str, Array]) -> Write:
    """Return what writes all arrays as one .npz file, whatever their names: `numpy.savez` takes some for its own.

    Raises
    ------
    GraphError
        If an archive has no place for a name.
    """
    for name in results:
        if "\0" in name or len(name.encode()) > LONGEST_ENTRY:
            raise GraphError(f"an archive has no place for the name {shorten(name)}; allowed: {LONGEST_ENTRY} bytes "
                             "or fewer and no NUL")

    def write(file: BinaryIO) -> None:
        with ZipFile(file, "w") as archive:
            for name, array in results.items():
                # an entry without a time of its own, so that equal arrays make equal files
                with archive.open(ZipInfo(f"{name}.npy"), "w", force_zip64=True) as entry:
                    np.lib.format.write_array(entry, _plain(array), allow_pickle=False)

    return write


def _plain(array: Array) -> Array:
    """An array without objects: strings as text; HiFloat8 as a dtype that files name."""
    if array.dtype == hifloat8:
        return array.view(HIFLOAT8_IN_FILES)
    return array.astype(np.str_) if array.dtype == object else array


def _named(array: Array) -> Array:
    """An array from a file, with HiFloat8 as the dtype that it has in memory."""
    return array.view(hifloat8) if format_of(array.dtype) is FORMATS["hifloat8"] else array


def apart(results: Mapping[str, Array], folder: PathLike) -> list[tuple[Path, Write]]:
    """Return what writes every array as ``NAME.npy`` into a folder; odd characters become underscores."""
    target = path_of(folder)
    files: dict[str, Array] = {}
    for name, array in results.items():
        stem = re.sub(r"[^\w.+-]", "_", name).lstrip(".") or "output"
        if f"{stem}.npy" in files:
            raise GraphError(f"output {name!r} and another one would both be written to {stem}.npy")
        files[f"{stem}.npy"] = array
    return [(target / file_name, partial(np.save, arr=_plain(array), allow_pickle=False))
            for file_name, array in files.items()]


def stored(array: Array) -> Array:
    """Return an array as any NumPy reads it: codes of a format that NumPy lacks as unsigned integers."""
    whole = np.ascontiguousarray(array).reshape(array.shape)  # which makes one axis of none
    return whole if array.dtype.isbuiltin == 1 else whole.view(f"u{array.dtype.itemsize}")


def content_of(array: Array) -> memoryview:
    """Return the bytes of an array in C order, little endian; an array that is stored so is not copied."""
    codes = stored(array)
    if sys.byteorder == "big":
        codes = codes.astype(codes.dtype.newbyteorder("<"))
    return codes.reshape(-1).view(np.uint8).data


def digest(array: Array) -> str:
    """Return the SHA-256 of an array's bytes, in hexadecimal."""
    return hashlib.sha256(content_of(array)).hexdigest()
