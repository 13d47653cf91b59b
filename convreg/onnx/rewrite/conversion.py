"""Quantize and Dequantize in standard ONNX: Cast, with a Div before or a Mul after it if there is a scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from onnx import NodeProto, helper

from ... import registry
from ...binding import asking, make_call
from ...errors import GraphError
from ...formats import FORMATS, format_of
from ...spec import Call, OpSpec, Port, TensorType
from .. import payload
from ..graph import Declared, attribute_value, place
from .builder import Builder

CASTS = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
"""Number formats that Cast converts."""


@dataclass(frozen=True)
class Conversion:
    """A node that converts between float32 and another format.

    `source` and `target` are the two formats; `value`, `scale` (blank where there is none) and `made` are names.
    """

    node: NodeProto
    call: Call
    source: str
    target: str
    value: str
    scale: str
    made: str

    @property
    def spec(self) -> OpSpec:
        """The operator."""
        return self.call.spec

    @property
    def divides(self) -> bool:
        """Whether the scale divides what is read, and does not multiply what is returned."""
        return "divisor" in self.spec.roles

    def chosen(self, name: str) -> Any:
        """Return the value of an attribute, None where the operator has none of that name."""
        return self.call[name] if self.call.declares(name) else None

    def renamed(self, inputs: Sequence[str], outputs: Sequence[str]) -> Conversion:
        """Return the same conversion of values under other names."""
        return replace(self, value=inputs[0], scale=inputs[1] if self.scale else "", made=outputs[0])

    def error(self, reason: str) -> GraphError:
        """Return the exception for a node that cannot be written."""
        return GraphError(f"{place(self.node)}: {reason}")


def conversion_of(node: NodeProto, scope: Mapping[str, Declared], version: int | None) -> Conversion | None:
    """Return what a node that converts numbers does, None for any other node. Inference has checked it."""
    operator = registry.find_node(node.domain, node.op_type, version)
    if operator is None or "number" not in operator.spec.roles:
        return None
    spec = operator.spec
    attributes = {proto.name: attribute_value(proto) for proto in node.attribute}
    conformance = attributes.pop("conformance", spec.conformances[0]) if len(spec.conformances) > 1 else (
        spec.conformances[0])
    named = attributes.pop(payload.ATTRIBUTE, None) if payload.may_carry(spec) else None
    stated = payload.stated_types(asking(spec, conformance), named)
    names = [*node.input, *[""] * (len(spec.inputs) - len(node.input))]
    tensors = tuple(TensorType(None, format or _held(node, port, name, scope)) if name else None
                    for port, name, format in zip(spec.inputs, names, stated, strict=True))
    call = make_call(spec, conformance, tensors, {}, attributes)
    (made,) = spec.infer(call)
    assert made is not None
    by_role = {port.role: name for port, name in zip(spec.inputs, names, strict=True)}
    scale = by_role.get("divisor", "") or by_role.get("factor", "")
    source = call.tensor(spec.roles["number"]).format
    return Conversion(node, call, source, made.format, by_role["number"], scale, node.output[0])


def _held(node: NodeProto, port: Port, name: str, scope: Mapping[str, Declared]) -> str:
    """The format that an input's element type stands for."""
    declared = scope.get(name)
    held = format_of(declared.dtype) if declared is not None and declared.dtype is not None else None
    if held is None:
        raise GraphError(f"{place(node)}: the element type of {port.name} ({name!r}) is not known")
    return held.name


def write_conversion(conversion: Conversion, builder: Builder) -> bool:
    """Write a conversion in standard ONNX.

    Raises
    ------
    GraphError
        For HiFloat8, and for roundings other than to the nearest even: Cast has neither.
    """
    for name in (conversion.source, conversion.target):
        if name not in CASTS:
            raise conversion.error(f"{name} has no element type in ONNX, so no standard operator converts it; "
                                   f"allowed: {', '.join(CASTS)}")
    rounding = conversion.chosen("rounding")
    if rounding not in (None, "nearest_even"):
        raise conversion.error(f"rounding={rounding!r} is refused, because Cast lacks it; allowed: "
                               "'nearest_even', the default")
    if conversion.divides:
        value = builder.add("Div", conversion.value, conversion.scale) if conversion.scale else conversion.value
        value = _narrowed(builder, value, conversion.target, saturate=bool(conversion.chosen("saturate")))
    else:
        value = builder.cast(conversion.value, conversion.source, "float32")
        value = builder.add("Mul", value, conversion.scale) if conversion.scale else value
    builder.finish(value, conversion.made)
    return True


def write_unrounded(conversion: Conversion, builder: Builder) -> bool:
    """Write a conversion without rounding: only its scale remains."""
    value = conversion.value
    if conversion.scale:
        value = builder.add("Div" if conversion.divides else "Mul", value, conversion.scale)
    builder.finish(value, conversion.made)
    return True


def _narrowed(builder: Builder, value: str, format: str, *, saturate: bool) -> str:
    if not saturate:
        return builder.cast(value, "float32", format)
    if format.startswith("float8"):
        return builder.add("Cast", value, to=helper.np_dtype_to_tensor_dtype(FORMATS[format].dtype), saturate=1)
    largest = FORMATS[format].largest  # Cast clamps to float8 alone
    return builder.cast(builder.beyond(value, "float32", largest, largest), "float32", format)
