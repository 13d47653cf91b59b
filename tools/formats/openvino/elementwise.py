"""Nodes of standard ONNX that compute element by element, as OpenVINO layers that give the same numbers at their ends.

Measured with OpenVINO 2026.4.1: its processor plug-in saturates arithmetic in 8 bits, computes Clamp in f32, and makes
NaN or infinity of what is beyond the range of an 8-bit float.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from onnx import TensorProto, helper

from convreg import GraphError

from ..view import check_bounds
from .elements import FLOAT8, INTEGER8, element_name
from .ir import Port
from .writing import Build, Writing


def same(kind: str, opset: str = "opset1") -> Build:
    """A layer that takes the first input alone."""
    return lambda step: step.layer(kind, step.port(0), opset=opset)


def binary(kind: str, *, truth: bool = False, **data: Any) -> Build:
    """A layer of two inputs whose shapes are broadcast; `truth` states that the results are truth values."""
    return lambda step: step.layer(kind, step.port(0), step.port(1), auto_broadcast="numpy", **data,
                                   element=TensorProto.BOOL if truth else None)


def wrapping(kind: str, **data: Any) -> Build:
    """Arithmetic of which the low 8 bits are kept where the node has 8-bit integers, and the layer would saturate."""
    def build(step: Writing) -> Port:
        if step.element not in INTEGER8:
            return step.layer(kind, *step.ports, **data)
        wide = TensorProto.INT32
        operands = [step.layer("Convert", port, element=wide, destination_type="i32") for port in step.ports]
        made = step.layer(kind, *operands, element=wide, **data)
        return step.layer("Convert", made, destination_type=element_name(step.element))

    return build


def variadic(kind: str) -> Build:
    """A chain of layers of two inputs."""
    def build(step: Writing) -> Port:
        first, *others = step.ports
        for other in others:
            first = step.layer(kind, first, other, auto_broadcast="numpy")
        return first

    return build


def power(step: Writing) -> Port:
    """Base and exponent have one type in OpenVINO, the base's."""
    exponent, name = step.port(1), step.name(1)
    if step.view.element(name) != step.element:
        held = step.view.array(name)
        if _is_integral(step.element) and not _is_integral(step.view.element(name)) and (
                held is None or np.any(held != np.trunc(held))):
            raise GraphError("a fractional or computed exponent of integers; allowed: an integer, or a constant whole "
                             "number")
        exponent = step.layer("Convert", exponent, destination_type=element_name(step.element))
    return step.layer("Power", step.port(0), exponent, auto_broadcast="numpy")


def cast(step: Writing) -> Port:
    """Saturation to an 8-bit float is a Clamp before the conversion."""
    source, target = step.port(0), step.attributes["to"]
    if target in FLOAT8 and step.attributes.get("saturate", 1):
        largest = float(ml_dtypes.finfo(helper.tensor_dtype_to_np_dtype(target)).max)
        kind = step.element
        if kind in FLOAT8:
            kind = TensorProto.FLOAT
            source = step.layer("Convert", source, element=kind, destination_type=element_name(kind))
        if _reaches(kind) > largest:
            source = step.layer("Clamp", source, element=kind, min=-largest, max=largest)
    return step.layer("Convert", source, element=target, destination_type=element_name(target))


def clip(step: Writing) -> Port:
    """A Clamp where both bounds are known numbers of a type that f32 holds."""
    bounds = [step.view.array(step.name(index)) if step.has(index) else None for index in (1, 2)]
    check_bounds(bounds)
    narrow = not _is_integral(step.element) or step.view.dtype(step.name(0)).itemsize < 4
    if narrow and all(bound is not None and np.isfinite(bound.astype(np.float64)).all() for bound in bounds):
        low, high = (float(bound) for bound in bounds)  # type: ignore[arg-type]
        if low <= high:
            return step.layer("Clamp", step.port(0), min=low, max=high)
    value = step.port(0)
    for index, kind in ((1, "Maximum"), (2, "Minimum")):
        if step.has(index):
            value = step.layer(kind, value, step.port(index), auto_broadcast="numpy")
    return value


def slopes(step: Writing) -> Port:
    """Slopes with an axis for each axis of the data: a list of several ones would mean the channels."""
    rank, held = step.view.rank(step.name(0)), step.view.shape(step.name(1))
    if held == (1,) or (held is not None and len(held) == rank):
        return step.layer("PReLU", step.port(0), step.port(1))
    shape = step.view.static(step.name(1))
    return step.layer("PReLU", step.port(0), step.reshaped(1, [1] * (rank - len(shape)) + list(shape)))


def leaky(step: Writing) -> Port:
    """One slope."""
    return step.layer("PReLU", step.port(0), step.constant([step.attributes.get("alpha", 0.01)], step.element))


def _is_integral(element: int) -> bool:
    return helper.tensor_dtype_to_np_dtype(element).kind in "iu"


def _reaches(element: int) -> float:
    """The largest magnitude of an element type."""
    dtype = helper.tensor_dtype_to_np_dtype(element)
    if dtype.kind == "b":
        return 1
    return float(-int(np.iinfo(dtype).min) or np.iinfo(dtype).max) if dtype.kind in "iu" else float("inf")
