"""Nodes on which onnx's own inference would end the process or never return: refused before or while it runs.

Its Slice clamps to a range that is empty where an extent is negative, or 0 under a negative step; its Split reads as
many parts as there are outputs; its Einsum never returns from an equation that breaks the grammar. onnxruntime has the
same inference. Poolings that round up are inferred by `pool_inference`, because onnx's shapes are wrong for them.
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
from .pool_inference import POOLS, VERSION, infer_pool

GUARDS = "convreg.guard"
"""The domain of nodes during inference: of those that stand before each Slice, read its operands and raise in its
place, and of poolings that are inferred here."""

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
    """Return the model with a guard before every Slice and with the poolings that are inferred here; itself where there
    is neither."""
    if not any(_is_standard(node, "Slice") or _rounds_up(node) for node in nodes_of(model)):
        return model
    _know_guards()
    copy = ModelProto()
    copy.CopyFrom(model)
    for root in (copy, *copy.functions):
        imports = {entry.domain: entry.version for entry in root.opset_import}
        for holder in _holders(root.graph if isinstance(root, ModelProto) else root):
            _guard(holder, right=imports.get("", imports.get("ai.onnx", 0)) >= VERSION)
        root.opset_import.add(domain=GUARDS, version=1)
    return copy


def _guard(holder: GraphProto | FunctionProto, *, right: bool) -> None:
    """Guard the nodes of one graph or function; `right`: whether onnx's version of poolings is."""
    nodes: list[NodeProto] = []
    for node in holder.node:
        if _is_standard(node, "Slice"):
            operands = [name for name in (*node.input[:1], *node.input[STEPS:STEPS + 1]) if name]
            nodes.append(helper.make_node("Guard", operands, [], name=place(node), domain=GUARDS))
        elif _rounds_up(node) and not right:
            node.domain = GUARDS
        nodes.append(node)
    _replace(holder, nodes)


def unguarded(model: ModelProto) -> ModelProto:
    """Take the guards out again, in place."""
    for root in (model, *model.functions):
        for holder in _holders(root.graph if isinstance(root, ModelProto) else root):
            if any(node.domain == GUARDS for node in holder.node):
                _replace(holder, [node for node in holder.node if node.op_type != "Guard" or node.domain != GUARDS])
            for node in holder.node:
                if node.domain == GUARDS:
                    node.ClearField("domain")
        kept = [entry for entry in root.opset_import if entry.domain != GUARDS]
        del root.opset_import[:]
        root.opset_import.extend(kept)
    return model


def _rounds_up(node: NodeProto) -> bool:
    """Whether a node is a pooling that may count its windows rounded up."""
    return node.op_type in POOLS and node.domain == "" and any(
        attribute.name == "ceil_mode" and (attribute.i or attribute.ref_attr_name) for attribute in node.attribute)


def _is_standard(node: NodeProto, op_type: str) -> bool:
    return node.op_type == op_type and node.domain in ("", "ai.onnx")


def _holders(root: GraphProto | FunctionProto) -> Iterator[GraphProto | FunctionProto]:
    """Yield a graph or function and all graphs in it, inner ones before those around them."""
    waiting: list[GraphProto | FunctionProto] = [root]
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
    """Register the schemas of guards and poolings, and take them out again while Python still runs."""
    types = [f"tensor({name.lower()})" for name, _ in TensorProto.DataType.items() if name != "UNDEFINED"]
    operands = defs.OpSchema.FormalParameter(
        "operands", "T", param_option=defs.OpSchema.FormalParameterOption.Variadic, is_homogeneous=False)
    guard = defs.OpSchema("Guard", GUARDS, 1, "Refuses what crashes Slice.", inputs=[operands], outputs=[],
                          type_constraints=[("T", types, "")])
    guard.set_type_and_shape_inference_function(_infer_guard)
    schemas = [guard]
    for name in POOLS:
        x, y = (defs.OpSchema.FormalParameter(port, "T") for port in "XY")
        indices = defs.OpSchema.FormalParameter(
            "Indices", "tensor(int64)", param_option=defs.OpSchema.FormalParameterOption.Optional)
        schemas.append(defs.OpSchema(name, GUARDS, 1, "Is inferred as it runs.", inputs=[x], outputs=[y, indices],
                                     type_constraints=[("T", types, "")]))
        schemas[-1].set_type_and_shape_inference_function(infer_pool)
    for schema in schemas:
        defs.register_schema(schema)
        atexit.register(defs.deregister_schema, schema.name, 1, GUARDS)


def _infer_guard(context: InferenceContext) -> None:
    kind = context.get_input_type(0)
    if kind is None or not kind.HasField("tensor_type"):
        return
    steps = context.get_input_data(1) if context.get_num_inputs() > 1 else None
    check_slice(dims_of(kind.tensor_type.shape), steps, context.get_display_name())
