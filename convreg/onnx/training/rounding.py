"""Operands of products rounded to a number format: Quantize and Dequantize around them, float32 between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from onnx import ModelProto, NodeProto

from ... import registry
from ...errors import GraphError, shorten
from ...formats import FORMATS
from .. import payload
from ..graph import scope_of
from ..rewrite.builder import Names
from .value import Value, Writer

if TYPE_CHECKING:
    from .step import Step

DOMAIN = "convreg"
PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
"""The operators whose first two operands are rounded."""


def check_format(name: str, format: str | None) -> str | None:
    """Return a format to which operands are rounded, None for float32.

    Raises
    ------
    GraphError
        If convreg's Quantize has no such format.
    """
    known = registry.get("nodes::Quantize").spec.types["T3"]
    if format is None:
        return None
    if not isinstance(format, str) or format not in ("float32", *known):
        raise GraphError(f"{name}={shorten(format)} is refused; allowed: {', '.join(['float32', *known])}")
    return None if format == "float32" else format


def rounded(step: Step, value: Value) -> Value:
    """Return a value rounded to the format of the gradients' operands; without one it stays as it is."""
    return value if step.format is None else rounded_to(step.writer, value, step.format)


def rounded_to(writer: Writer, value: Value, format: str) -> Value:
    """Append Quantize and Dequantize; what is too large becomes the format's largest number."""
    if value.dtype != np.float32:
        raise GraphError(f"{value.name!r} is {value.dtype}; operands that are rounded to {format} are float32")
    codes = writer.add("Quantize", value, domain=DOMAIN, dtype=_stored(format), format=format, saturate=1)
    return writer.add("Dequantize", codes, domain=DOMAIN, dtype=np.float32, **_operand_types(format))


def _stored(format: str) -> np.dtype[np.generic]:
    return payload.CARRIER if payload.is_carried(format) else FORMATS[format].dtype


def _operand_types(format: str) -> dict[str, list[str]]:
    return {payload.ATTRIBUTE: [format]} if payload.is_carried(format) else {}


def _put(model: ModelProto, nodes: Sequence[NodeProto]) -> None:
    """Replace the nodes of a graph and import convreg's domain."""
    copies = []
    for node in nodes:
        copy = NodeProto()
        copy.CopyFrom(node)
        copies.append(copy)
    del model.graph.node[:]
    model.graph.node.extend(copies)
    if DOMAIN not in {entry.domain for entry in model.opset_import}:
        model.opset_import.add(domain=DOMAIN, version=1)


def round_products(model: ModelProto, format: str) -> None:
    """Round the operands of every Conv, ConvTranspose, Gemm and MatMul of a graph, in place."""
    writer = Writer(Names.of(model), dict(scope_of(model.graph)))
    nodes = []
    for node in model.graph.node:
        if node.op_type in PRODUCTS and node.domain == "":
            writer.prefix = node.name or node.output[0]
            for place in (0, 1):
                node.input[place] = rounded_to(writer, writer.value(node.input[place]), format).name
        nodes += [*writer.taken(), node]
    _put(model, nodes)
