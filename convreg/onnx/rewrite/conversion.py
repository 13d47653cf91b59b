"""Quantize and Dequantize in standard ONNX: Cast, with a Div before or a Mul after it if there is a scale."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from onnx import NodeProto, helper

from ... import registry
from ...calls.binding import asking, judged, make_call
from ...errors import GraphError, OpError
from ...formats import FORMATS, format_of
from ...spec import Call, OpSpec, Port, TensorType
from .. import payload
from ..graph import Declared, attributes_of, place
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

    def of_ports(self) -> Conversion:
        """Return the same conversion of values that have the names of the operator's ports."""
        roles = self.spec.roles
        scale = roles.get("divisor") or roles.get("factor", "") if self.scale else ""
        return replace(self, value=roles["number"], scale=scale, made=roles["converted"])

    def error(self, reason: str) -> GraphError:
        """Return the exception for a node that cannot be written."""
        return GraphError(f"{place(self.node)}: {reason}")


def conversion_of(node: NodeProto, scope: Mapping[str, Declared], version: int | None) -> Conversion | None:
    """Return what a node that converts numbers does, None for any other node. Inference has checked it."""
    operator = registry.find_node(node.domain, node.op_type, version)
    if operator is None or "number" not in operator.spec.roles:
        return None
    spec = operator.spec
    attributes = attributes_of(node)
    conformance = attributes.pop("conformance", None) if len(spec.conformances) > 1 else None
    named = attributes.pop(payload.ATTRIBUTE, None) if payload.may_carry(spec) else None
    names = [*node.input, *[""] * (len(spec.inputs) - len(node.input))]

    def stated(chosen: str) -> Call:
        formats = payload.stated_types(asking(spec, chosen), named)
        tensors = tuple(None if port.shape else _tensor(node, port, name, format, scope)
                        for port, name, format in zip(spec.inputs, names, formats, strict=True))
        return make_call(spec, chosen, tensors, {port.name: None for port in spec.shape_ports}, attributes)

    try:
        call = judged(spec, conformance, stated)
        (made,) = spec.infer(call)
    except OpError as error:
        raise GraphError(f"{place(node)}: {error}") from error
    if made is None:
        raise GraphError(f"{place(node)}: the format of {spec.roles['converted']} is not known")
    values = {port.role: name for port, name in zip(spec.inputs, names, strict=True)}
    source = call.tensor(spec.roles["number"]).format
    return Conversion(node, call, source, made.format, values["number"],
                      values.get("divisor") or values.get("factor", ""), node.output[0])


def _tensor(
    node: NodeProto, port: Port, name: str, format: str, scope: Mapping[str, Declared]
) -> TensorType | None:
    """An input in the format that the node states, or else in the one that its element type stands for."""
    declared = scope.get(name) if name else None
    held = format_of(declared.dtype) if declared is not None and declared.dtype is not None else None
    if not format and held is None:
        if port.role != "number":
            return None
        raise GraphError(f"{place(node)}: the element type of {port.name} ({name!r}) is not known")
    return TensorType(None, format or str(held.name if held else ""))


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


def _narrowed(builder: Builder, value: str, format: str, *, saturate: bool) -> str:
    if not saturate:
        return builder.cast(value, "float32", format)
    if format.startswith("float8"):
        return builder.add("Cast", value, to=helper.np_dtype_to_tensor_dtype(FORMATS[format].dtype), saturate=1)
    largest = FORMATS[format].largest  # Cast clamps to float8 alone
    return builder.cast(builder.beyond(value, "float32", largest, largest), "float32", format)
