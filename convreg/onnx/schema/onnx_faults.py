"""Nodes on which onnx's own inference would end the process or never return: refused before or while it runs.

Its Slice clamps to a range that is empty where an extent is negative, or 0 under a negative step; its Split reads as
many parts as there are outputs; its Einsum never returns from an equation that breaks the grammar. onnxruntime has the
same inference.
"""

from __future__ import annotations

import atexit
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, defs, helper, numpy_helper
from onnx.shape_inference import InferenceContext

from ...errors import GraphError, shorten
from ..graph import dims_of, graphs_of, nodes_of, place

GUARDS = "convreg.guard"
"""The domain of nodes that stand before each Slice during inference, read its operands and raise in its place."""

STEPS = 4
"""Which input of Slice holds the steps."""


_TERM = r"[A-Za-z]*(\.\.\.)?[A-Za-z]*"
_EQUATION = re.compile(rf"{_TERM}(,{_TERM})*(->{_TERM})?")


def check_node(node: NodeProto) -> None:
    """Refuse a node that shows by itself what inference does not survive.

    Raises
    ------
    GraphError
        It names the node.
    """
    _check_split(node)
    _check_einsum(node)


def _check_einsum(node: NodeProto) -> None:
    """Refuse an equation that breaks the grammar, and one that a call of a function would state."""
    for attribute in node.attribute if _is_standard(node, "Einsum") else ():
        equation = attribute.s.decode("utf-8", "replace")
        if attribute.name == "equation" and (
                attribute.ref_attr_name or not _EQUATION.fullmatch(equation.replace(" ", ""))):
            raise GraphError(f"{place(node)}: equation={shorten(attribute.ref_attr_name or equation)} is refused; "
                             "allowed: terms of letters and at most one ellipsis, with commas between them, then -> "
                             "and a term")


def _check_split(node: NodeProto) -> None:
    """Refuse a Split whose parts are not its outputs."""
    for attribute in node.attribute if _is_standard(node, "Split") else ():
        parts = {"num_outputs": attribute.i, "split": len(attribute.ints)}.get(attribute.name, len(node.output))
        if attribute.ref_attr_name or parts != len(node.output):
            raise GraphError(f"{place(node)}: {attribute.name} states {attribute.ref_attr_name or parts} parts; "
                             f"allowed: {len(node.output)}, one for each output")


def check_slice(extents: Iterable[int | str | None], steps: TensorProto | None, where: str) -> None:
    """Refuse extents that a Slice cannot be inferred for.

    Parameters
    ----------
    extents : iterable
        Of what is sliced: numbers, or anything else where unknown.
    steps : onnx.TensorProto, optional
        Its steps, if they are constant.
    where : str
        Words that find the node.

    Raises
    ------
    GraphError
        If an extent is negative, or 0 while a step is negative.
    """
    backwards = steps is not None and bool((numpy_helper.to_array(steps) < 0).any())
    for extent in extents:
        if isinstance(extent, int) and extent < int(backwards):
            raise GraphError(f"{where}: Slice of an extent of {extent}; allowed: {int(backwards)} or more"
                             + (" with a negative step" if backwards else ""))


def guarded(model: ModelProto) -> ModelProto:
    """Return the model with a guard before every Slice; itself where there is none."""
    if not any(_is_standard(node, "Slice") for node in nodes_of(model)):
        return model
    _know_guards()
    copy = ModelProto()
    copy.CopyFrom(model)
    for imports in (copy.opset_import, *(function.opset_import for function in copy.functions)):
        imports.add(domain=GUARDS, version=1)
    for holder in _holders(copy):
        nodes: list[NodeProto] = []
        for node in holder.node:
            if _is_standard(node, "Slice"):
                operands = [name for name in (*node.input[:1], *node.input[STEPS:STEPS + 1]) if name]
                nodes.append(helper.make_node("Guard", operands, [], name=place(node), domain=GUARDS))
            nodes.append(node)
        _replace(holder, nodes)
    return copy


def unguarded(model: ModelProto) -> ModelProto:
    """Take the guards out again, in place."""
    for holder in _holders(model):
        if any(node.domain == GUARDS for node in holder.node):
            _replace(holder, [node for node in holder.node if node.domain != GUARDS])
    for holder in (model, *model.functions):
        kept = [entry for entry in holder.opset_import if entry.domain != GUARDS]
        del holder.opset_import[:]
        holder.opset_import.extend(kept)
    return model


def _is_standard(node: NodeProto, op_type: str) -> bool:
    return node.op_type == op_type and node.domain in ("", "ai.onnx")


def _holders(model: ModelProto) -> Iterator[GraphProto | FunctionProto]:
    """Yield all that holds nodes, inner graphs before the ones around them."""
    waiting: list[GraphProto | FunctionProto] = [model.graph, *model.functions]
    found = []
    while waiting:
        holder = waiting.pop()
        found.append(holder)
        waiting.extend(graph for node in holder.node for graph in graphs_of(node))
    return reversed(found)


def _replace(holder: GraphProto | FunctionProto, nodes: list[NodeProto]) -> None:
    del holder.node[:]
    holder.node.extend(nodes)


@lru_cache(maxsize=1)
def _know_guards() -> None:
    """Register the schema of guards, and take it out again while Python still runs."""
    types = [f"tensor({name.lower()})" for name, _ in TensorProto.DataType.items() if name != "UNDEFINED"]
    operands = defs.OpSchema.FormalParameter(
        "operands", "T", param_option=defs.OpSchema.FormalParameterOption.Variadic, is_homogeneous=False)
    schema = defs.OpSchema("Guard", GUARDS, 1, "Refuses what crashes Slice.", inputs=[operands], outputs=[],
                           type_constraints=[("T", types, "")])
    schema.set_type_and_shape_inference_function(_infer_guard)
    defs.register_schema(schema)
    atexit.register(defs.deregister_schema, "Guard", 1, GUARDS)


def _infer_guard(context: InferenceContext) -> None:
    kind = context.get_input_type(0)
    if kind is None or not kind.HasField("tensor_type"):
        return
    steps = context.get_input_data(1) if context.get_num_inputs() > 1 else None
    check_slice(dims_of(kind.tensor_type.shape), steps, context.get_display_name())
