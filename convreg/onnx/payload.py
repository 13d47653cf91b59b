"""Formats that ONNX has no element type for. Their codes are stored as uint8, and nodes name the format.

The node's attribute ``operand_types`` is the authority: format names in the order of the inputs, empty where the
element type says it all; what comes out follows from the operator's rules. Metadata ``convreg.dtype`` of graph inputs,
outputs, initializers and value_info mirrors it for readers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from onnx import TensorProto, ValueInfoProto, helper

from ..calls.text import formats_of
from ..formats import FORMATS, format_of
from ..memory import Array
from ..spec import Call, OpSpec, TensorType

ATTRIBUTE = "operand_types"
MIRROR = "convreg.dtype"
CARRIER = np.dtype(np.uint8)


@lru_cache
def element_of(format: str) -> int:
    """Return ONNX's number for a format; codes of a format that ONNX lacks are uint8."""
    try:
        return helper.np_dtype_to_tensor_dtype(FORMATS[format].dtype)
    except ValueError:
        assert FORMATS[format].storage == CARRIER, format
        return TensorProto.UINT8


def is_carried(format: str) -> bool:
    """Whether a format, known or not, has no element type of its own."""
    return format in FORMATS and element_of(format) == TensorProto.UINT8


def may_carry(spec: OpSpec) -> bool:
    """Whether an operator takes such a format at some input."""
    return any(is_carried(format) for port in spec.inputs if not port.shape for format in formats_of(spec, port.type))


def stated_types(call: Call, value: Any) -> tuple[str, ...]:
    """Return one format name per input from an attribute's value or None; an empty name means the element type."""
    entries = () if value is None else tuple(value) if isinstance(value, list | tuple) else (value,)
    inputs = call.spec.inputs
    most = len(call.spec.vendor_inputs)  # scales have one format
    if len(entries) > most:
        raise call.refuse(ATTRIBUTE, list(entries), f"at most {most} names, one per input", "arguments")
    for entry in entries:
        if entry != "" and entry not in FORMATS:
            raise call.refuse(ATTRIBUTE, list(entries), f"names of formats, or empty: {', '.join(FORMATS)}",
                              "arguments", wrong_type=True)
    return entries + ("",) * (len(inputs) - len(entries))


def typed(call: Call, port: str, tensor: TensorType, stated: str) -> TensorType:
    """Return a tensor in the format that its node states; its element type must be the one that stores the format."""
    if stated in ("", tensor.format):
        return tensor
    if is_carried(stated) and tensor.format == CARRIER.name:
        return tensor._replace(format=stated)
    element = CARRIER.name if is_carried(stated) else stated
    raise call.refuse(ATTRIBUTE, stated, f"{port} as a tensor of {element}, not {tensor.format}", "arguments",
                      wrong_type=True)


def read(call: Call, value: Any, inputs: Sequence[Any]) -> list[Any]:
    """Return the inputs of a node as arrays of the formats that its attribute states."""
    arrays = []
    for port, array, stated in zip(call.spec.inputs, inputs, stated_types(call, value), strict=True):
        if array is not None and stated:
            known = format_of(array.dtype)
            held = TensorType(array.shape, known.name if known else str(array.dtype))
            if typed(call, port.name, held, stated) != held:
                array = array.view(FORMATS[stated].dtype)
        arrays.append(array)
    return arrays


def written(array: Any) -> Any:
    """Return an array as graphs hold it: codes of a format that ONNX lacks as bytes."""
    held = carried_format(array)
    return array if held is None else array.view(CARRIER)


def carried_format(array: Any) -> str | None:
    """Return the format of an array that ONNX has no element type for, None for all others."""
    known = format_of(array.dtype) if isinstance(array, np.ndarray) else None
    return known.name if known is not None and is_carried(known.name) else None


def mirror(value: ValueInfoProto | TensorProto) -> str:
    """Return the format that a value's metadata names, or an empty string."""
    return next((entry.value for entry in value.metadata_props if entry.key == MIRROR), "")


def set_mirror(value: ValueInfoProto | TensorProto, format: str | None) -> None:
    """Write the format of a value's bytes to its metadata; formats that ONNX has are left out."""
    if format is not None and is_carried(format):
        value.metadata_props.add(key=MIRROR, value=format)


def revealed(array: Array, format: str) -> Array:
    """Return bytes as an array of the format that a mirror names."""
    return array.view(FORMATS[format].dtype) if is_carried(format) and array.dtype == CARRIER else array


def mirrors(values: Iterable[ValueInfoProto | TensorProto]) -> dict[str, str]:
    """Return the mirrors of those values that have one."""
    return {value.name: said for value in values if (said := mirror(value))}
