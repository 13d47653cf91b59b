"""Checks of standard Conv and ConvTranspose that onnx's checker lacks, by the rules that run them."""

from __future__ import annotations

from onnx import GraphProto, NodeProto

from ...calls.binding import make_call, plan_of
from ...errors import GraphError, OpError
from ...formats import format_of
from ...spec import TensorType
from ..graph import Scope, attributes_of, graphs_of, place, scope_of
from ..standard import STANDARD


def check_convolutions(graph: GraphProto, outer: Scope | None = None) -> None:
    """Refuse convolutions whose operands, as far as inference knows them, do not fit.

    Parameters
    ----------
    graph : onnx.GraphProto
        With everything that inference found.
    outer : mapping, optional
        What is known of the values around the graph.

    Raises
    ------
    GraphError
        If a node would be refused when it is run.
    """
    scope = scope_of(graph, outer)
    for node in graph.node:
        for inner in graphs_of(node):
            check_convolutions(inner, scope)
        if node.domain in ("", "ai.onnx") and ("", node.op_type) in STANDARD:
            _check(node, scope)


def _check(node: NodeProto, scope: Scope) -> None:
    known = [scope.get(name) if name else None for name in (*node.input, "")[:3]]
    if any(name and (value is None or value.shape is None or value.dtype is None)
           for name, value in zip(node.input, known, strict=False)):
        return
    attributes = attributes_of(node)
    shapes = [None if value is None else value.shape for value in known]
    data, weight = shapes[0] or (), shapes[1] or ()
    if len(data) == len(weight) > 2:
        expected = weight[0] if node.op_type == "ConvTranspose" else weight[1]
        groups = 1 if node.op_type == "ConvTranspose" else attributes.get("group", 1)
        if isinstance(data[1], int) and isinstance(expected, int) and data[1] != expected * groups:
            raise GraphError(f"{place(node)}: X has {data[1]} channels and W requires {expected * groups}")
    shapes[0] = (1, *data[1:])  # whatever the batch, it decides nothing
    if not all(isinstance(extent, int) for shape in shapes for extent in shape or ()):
        return
    tensors = []
    for value, shape in zip(known, shapes, strict=True):
        format = None if value is None or value.dtype is None else format_of(value.dtype)
        if value is not None and format is None:
            return
        tensors.append(None if format is None else TensorType(shape, format.name))
    try:
        plan_of(make_call(STANDARD["", node.op_type], "onnx", tuple(tensors), {}, attributes))
    except OpError as error:
        raise GraphError(f"{place(node)}: {error}") from error
