"""Arrays on the command line: inputs from files or random ones, outputs to files, and a line on each."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from onnx import ModelProto, TypeProto

from convreg import GraphError, dequantize, quantize
from convreg.archives import load_one, load_together
from convreg.errors import printable
from convreg.files import PathLike
from convreg.formats import FORMATS, format_of
from convreg.memory import Array, physical_memory
from convreg.onnx.graph import dtype_of

from .formats.carried import code_names

RANDOM_BYTES = 16
"""What drawing a random value takes at most, roundings included."""


class Wanted(NamedTuple):
    """An input that a run has to be given: its type, and the format of its bytes where ONNX has no type for it."""

    type: TypeProto
    format: str

    @property
    def dtype(self) -> np.dtype[Any]:
        """What NumPy holds it in."""
        dtype = FORMATS[self.format].dtype if self.format else dtype_of(self.type.tensor_type.elem_type)
        if dtype is None or not self.type.HasField("tensor_type"):
            raise GraphError("an input that is no tensor of a known element type cannot be given here")
        return dtype


def needed(model: ModelProto) -> dict[str, Wanted]:
    """Return the inputs that a run of a model has to be given, by name."""
    held, codes = {tensor.name for tensor in model.graph.initializer}, code_names(model)
    return {value.name: Wanted(value.type, "hifloat8" if value.name in codes else "")
            for value in model.graph.input if value.name not in held}


def feeds(inputs: Mapping[str, Wanted], given: Sequence[str], *, fill: bool, seed: int) -> dict[str, Array]:
    """Return an array for every input named in `given` (``name=file.npy``, ``name=random``, ``name=random:2,3``).

    Parameters
    ----------
    inputs : mapping
        What the model wants.
    given : sequence of str
    fill : bool
        Whether the other inputs get random values too.
    seed : int

    Raises
    ------
    GraphError
        If a name is unknown or given twice, or a file is no such array.
    """
    values: dict[str, str] = {}
    for entry in given:
        name, equals, value = entry.partition("=")
        if not equals or not value:
            raise GraphError(f"input {entry!r} is not of the form NAME=FILE.npy or NAME=random")
        if name not in inputs:
            raise GraphError(f"the model has no input {name!r}; it has {', '.join(inputs) or 'none'}")
        if name in values:
            raise GraphError(f"input {name!r} is given twice")
        values[name] = value
    if fill:
        values = {name: values.get(name, "random") for name in inputs}
    if seed < 0:
        raise GraphError(f"seed {seed} is negative; allowed: 0 and above")
    generator = np.random.default_rng(seed)
    return {name: _random(name, inputs[name], values[name], generator)
            if values[name].partition(":")[0] == "random" else _declared(load_one(values[name]), inputs[name])
            for name in inputs if name in values}


def _random(name: str, wanted: Wanted, text: str, generator: np.random.Generator) -> Array:
    """Normal numbers, rounded to the input's format, for floating types, 0 to 9 for integers, and truth values."""
    extents, dtype = _extents(name, wanted.type, text.partition(":")[2]), wanted.dtype
    if prod(extents) > min(2**32, physical_memory() // RANDOM_BYTES):
        raise GraphError(f"input {name!r} of shape {extents} is too large for random values")
    if dtype.kind == "b":
        return generator.integers(0, 2, extents).astype(bool)
    if dtype.kind in "iu":
        return generator.integers(0, 10, extents).astype(dtype)
    numbers, known = generator.standard_normal(extents, np.float32), format_of(dtype)
    return quantize(numbers, known.name) if known else numbers.astype(dtype)


def _extents(name: str, kind: TypeProto, chosen: str) -> list[int]:
    dims = kind.tensor_type.shape.dim
    if chosen:
        if not re.fullmatch(r"\d{1,18}(,\d{1,18})*", chosen, re.ASCII):
            raise GraphError(f"extents {chosen!r} for input {name!r} are not of the form 2,3,4")
        extents = [int(part) for part in chosen.split(",")]
        if kind.tensor_type.HasField("shape") and (len(dims) != len(extents) or any(
                dim.HasField("dim_value") and dim.dim_value != extent
                for dim, extent in zip(dims, extents, strict=False))):
            raise GraphError(f"extents {chosen} for input {name!r} differ from those that the model declares: "
                             f"{[dim.dim_value if dim.HasField('dim_value') else dim.dim_param for dim in dims]}")
        return extents
    if not kind.tensor_type.HasField("shape") or not all(dim.HasField("dim_value") for dim in dims):
        raise GraphError(f"input {name!r} has unknown extents; choose them as {name}=random:2,3,4")
    return [dim.dim_value for dim in dims]


def _declared(array: Array, wanted: Wanted) -> Array:
    """Raw bits as the formats that they stand for: NumPy files cannot name bfloat16 and float8."""
    dtype = wanted.dtype
    if (dtype.isbuiltin != 1 and array.dtype.itemsize == dtype.itemsize and array.dtype.kind in "Vu"
            and format_of(array.dtype) in (None, format_of(dtype))):
        return array.view(dtype)
    return array


def archived(inputs: Mapping[str, Wanted], path: PathLike) -> dict[str, Array]:
    """Return the arrays of an .npz file as a model's inputs.

    Raises
    ------
    GraphError
        If it is no such file, or has an entry that is no input.
    """
    return {name: _declared(array, inputs[name]) for name, array in load_together(path, inputs).items()}


def describe(name: str, array: Array) -> str:
    """Return one line: name, shape, element type, and the range and mean of the values."""
    known = format_of(array.dtype)
    text = f"{printable(name)} {list(array.shape)} {known.name if known else array.dtype}"
    if not array.size or (array.dtype.kind not in "biuf" and known is None):
        return text
    wide = dequantize(array, dtype=np.float64) if known else array.astype(np.float64)
    return f"{text} min {wide.min():.6g} max {wide.max():.6g} mean {wide.mean():.6g}"
