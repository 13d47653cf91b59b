"""Quantize and Dequantize in standard ONNX: Cast, with a Div before or a Mul after it if there is a scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from onnx import NodeProto, helper

from ... import registry
from ...errors import GraphError
from ...formats import FORMATS, format_of
from ...spec import OpSpec
from .. import payload
from ..graph import Declared, attribute_value, place
from .builder import Builder

CASTS = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
"""Number formats that Cast converts."""

CONVERSIONS = ("nodes::Quantize", "nodes::Dequantize")


@dataclass(frozen=True)
class Conversion:
    """A node that converts between float32 and another format.

    `source` and `target` are the two formats; `value`, `scale` (blank where there is none) and `made` are names.
    """

    node: NodeProto
    spec: OpSpec
    attributes: Mapping[str, Any]
    source: str
    target: str
    value: str
    scale: str
    made: str

    @property
    def narrows(self) -> bool:
        """Whether the node is Quantize."""
        return self.spec.name == "Quantize"

    def renamed(self, inputs: Sequence[str], outputs: Sequence[str]) -> Conversion:
        """Return the same conversion of values under other names."""
        return replace(self, value=inputs[0], scale=inputs[1] if self.scale else "", made=outputs[0])

    def error(self, reason: str) -> GraphError:
        """Return the exception for a node that cannot be written."""
        return GraphError(f"{place(self.node)}: {reason}")


def conversion_of(node: NodeProto, scope: Mapping[str, Declared], version: int | None) -> Conversion | None:
    """Return the conversion of a Quantize or Dequantize node, None for any other node. Inference has checked it."""
    operator = registry.find_node(node.domain, node.op_type, version)
    if operator is None or operator.spec.qualified_name not in CONVERSIONS:
        return None
    spec = operator.spec
    stated = {proto.name: attribute_value(proto) for proto in node.attribute}
    attributes = {entry.name: stated.get(entry.name, entry.default) for entry in spec.attributes}
    narrow = attributes["format"] if spec.name == "Quantize" else _format_read(node, stated, scope)
    source, target = ("float32", narrow) if spec.name == "Quantize" else (narrow, "float32")
    return Conversion(node, spec, attributes, source, target, node.input[0], "".join(node.input[1:]), node.output[0])


def _format_read(node: NodeProto, stated: Mapping[str, Any], scope: Mapping[str, Declared]) -> str:
    """The format of what Dequantize reads: named by the node, or by the element type."""
    named: str = next(iter(stated.get(payload.ATTRIBUTE) or ()), "")
    declared = scope.get(node.input[0])
    held = format_of(declared.dtype) if declared is not None and declared.dtype is not None else None
    if not named and held is None:
        raise GraphError(f"{place(node)}: the element type of x ({node.input[0]!r}) is not known")
    return named or str(held.name if held else "")


def write_conversion(conversion: Conversion, builder: Builder) -> bool:
    """Write a conversion in standard ONNX.

    Raises
    ------
    GraphError
        For HiFloat8, and for roundings other than to the nearest even: Cast has neither.
    """
    attributes = conversion.attributes
    for name in (conversion.source, conversion.target):
        if name not in CASTS:
            raise conversion.error(f"{name} has no element type in ONNX, so no standard operator converts it; "
                                   f"allowed: {', '.join(CASTS)}")
    if attributes.get("rounding") not in (None, "nearest_even"):
        raise conversion.error(f"rounding={attributes['rounding']!r} is refused, because Cast lacks it; allowed: "
                               "'nearest_even', the default")
    if conversion.narrows:
        value = builder.add("Div", conversion.value, conversion.scale) if conversion.scale else conversion.value
        value = _narrowed(builder, value, conversion.target, saturate=bool(attributes["saturate"]))
    else:
        value = builder.cast(conversion.value, conversion.source, "float32")
        value = builder.add("Mul", value, conversion.scale) if conversion.scale else value
    builder.finish(value, conversion.made)
    return True


def write_unrounded(conversion: Conversion, builder: Builder) -> bool:
    """Write a conversion without rounding: only its scale remains."""
    value = conversion.value
    if conversion.scale:
        value = builder.add("Div" if conversion.narrows else "Mul", value, conversion.scale)
    builder.finish(value, conversion.made)
    return True


def _narrowed(builder: Builder, value: str, format: str, *, saturate: bool) -> str:
    if not saturate:
        return builder.cast(value, "float32", format)
    if format.startswith("float8"):
        return builder.add("Cast", value, to=helper.np_dtype_to_tensor_dtype(FORMATS[format].dtype), saturate=1)
    largest = FORMATS[format].largest  # Cast clamps to float8 alone
    return builder.cast(builder.beyond(value, "float32", largest, largest), "float32", format)
