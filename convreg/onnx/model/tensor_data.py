"""Data of tensors in untrusted models: read from files beside the model, and compared with the dims."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from onnx import SparseTensorProto, TensorProto, helper, numpy_helper

from ...errors import GraphError, shorten
from ...memory import physical_memory
from ..graph import dtype_of, sentence
from ..limits import Shared

PACKED = {"INT4": 4, "UINT4": 4, "FLOAT4E2M1": 4, "INT2": 2, "UINT2": 2}
"""Bits of the element types that share bytes in a file, though not in an array."""


def array_of(tensor: TensorProto) -> np.ndarray[Any, np.dtype[Any]]:
    """Return a tensor's values."""
    try:
        return numpy_helper.to_array(tensor)
    except Exception as error:  # whatever NumPy and onnx say of data and dims that disagree
        raise GraphError(f"tensor {tensor.name!r}: {sentence(error)}") from error


class ExternalData:
    """Moves external data of a model into its tensors; files are taken from one folder and nowhere else."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        self._shared = Shared(physical_memory())

    def read(self, tensor: TensorProto) -> None:
        """Read the data of one tensor.

        Raises
        ------
        GraphError
            If the data lies outside the folder, is missing, is not as long as the tensor, or if all tensors so far
            hold far more than the files.
        """
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = entries.get("location", "")
        where = f"tensor {tensor.name!r}: external data {shorten(location)}"
        file = self._file(where, location)
        offset, length = (_count(where, entries, key) for key in ("offset", "length"))
        expected = _bytes_of(where, tensor)
        size = file.stat().st_size
        if length not in (None, expected):
            raise GraphError(f"{where} claims {length} bytes; a tensor of {_dims(tensor)} has {expected}")
        if (offset or 0) + expected > size:
            raise GraphError(f"{where} has {size} bytes; the tensor ends at {(offset or 0) + expected}")
        self._shared.take(str(file), size, expected, where)
        try:
            with file.open("rb") as stream:
                stream.seek(offset or 0)
                tensor.raw_data = stream.read(expected)
        except (OSError, MemoryError) as error:
            raise GraphError(f"{where} cannot be read ({sentence(error)})") from error
        del tensor.external_data[:]
        tensor.data_location = TensorProto.DEFAULT

    def _file(self, where: str, location: str) -> Path:
        """The file that a location names; refused unless it is a regular file inside the folder."""
        if (not location or "\0" in location or "\\" in location or Path(location).is_absolute()
                or ".." in Path(location).parts):
            raise GraphError(f"{where} is refused; allowed: a relative path inside the model's folder")
        try:
            file = (self._folder / location).resolve()
            if not file.is_relative_to(self._folder):
                raise GraphError(f"{where} is refused; it leads out of the model's folder")
            if not file.exists():
                raise GraphError(f"{where} is missing")
            if not file.is_file():
                raise GraphError(f"{where} is not a regular file")
        except (OSError, RuntimeError) as error:  # links that form a circle, names that are too long
            raise GraphError(f"{where} is refused ({sentence(error)})") from error
        return file


def check_tensor(tensor: TensorProto) -> None:
    """Refuse a tensor whose data is elsewhere, or not what its dims and element type say.

    Raises
    ------
    GraphError
        It names the tensor.
    """
    where = f"tensor {tensor.name!r}"
    if tensor.data_location == TensorProto.EXTERNAL:
        raise GraphError(f"{where} has external data that is not loaded; convreg.onnx.load(path) reads a model with it")
    if tensor.HasField("segment"):
        raise GraphError(f"{where} is a segment of a tensor; allowed: whole tensors")
    count, bits = _elements(where, tensor), _bits(where, tensor)
    if tensor.HasField("raw_data"):
        expected, held = _bytes_of(where, tensor), len(tensor.raw_data)
        unit = "bytes"
    else:
        name = helper.tensor_dtype_to_field(tensor.data_type)
        held, unit = len(getattr(tensor, name)), f"entries of {name}"
        complex = tensor.data_type in (TensorProto.COMPLEX64, TensorProto.COMPLEX128)
        expected = 2 * count if complex else -(-count * bits // 8) if bits < 8 else count
    if held != expected:
        raise GraphError(f"{where} of dims {_dims(tensor)} holds {held} {unit}; allowed: {expected}")


def dense_bytes(sparse: SparseTensorProto) -> int:
    """Return the bytes that a sparse tensor has when it is written out."""
    where = f"sparse tensor {sparse.values.name!r}"
    return _count_of(where, sparse.dims) * max(_bits(where, sparse.values) // 8, 1)


def _count(where: str, entries: dict[str, str], key: str) -> int | None:
    text = entries.get(key)
    if text is not None and not (text.isascii() and text.isdecimal() and len(text) <= 40):
        raise GraphError(f"{where} has {key}={shorten(text)}; allowed: a number of bytes")
    return None if text is None else int(text)


def _bytes_of(where: str, tensor: TensorProto) -> int:
    """Return the bytes of a tensor's data as one piece."""
    if tensor.data_type == TensorProto.STRING:
        raise GraphError(f"{where} holds strings, which are not stored as one piece of bytes")
    return -(-_elements(where, tensor) * _bits(where, tensor) // 8)


def _elements(where: str, tensor: TensorProto) -> int:
    return _count_of(where, tensor.dims)


def _count_of(where: str, dims: Any) -> int:
    if any(extent < 0 for extent in dims):
        raise GraphError(f"{where} has dims {shorten(list(dims))}; allowed: no negative extent")
    return prod(dims)


def _dims(tensor: TensorProto) -> str:
    return shorten(list(tensor.dims))


def _bits(where: str, tensor: TensorProto) -> int:
    """Return the bits of one element in a file."""
    dtype = dtype_of(tensor.data_type)
    if dtype is None:
        raise GraphError(f"{where} has element type {tensor.data_type}, which onnx does not know")
    return PACKED.get(TensorProto.DataType.Name(tensor.data_type), 8 * dtype.itemsize)
