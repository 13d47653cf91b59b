"""Standard operators without a rule, written as the simpler operators by which onnx defines them."""

from __future__ import annotations

from typing import Any

from onnx import AttributeProto, ModelProto, NodeProto, defs, helper, inliner

from ..graph import Scope, graphs_of, scope_of
from . import rule_registry
from .folding import RANDOM
from .reverse_pass import FLAT, is_float
from .versions import standard_version


def written_out(model: ModelProto) -> ModelProto:
    """Return a model with every node written out that has no rule of a gradient but a definition by other operators.

    Parameters
    ----------
    model : onnx.ModelProto
        Flat, with the types of its values.

    Returns
    -------
    onnx.ModelProto
        The model itself if there is no such node, or if onnx cannot write it out.
    """
    version = standard_version(model) or 0
    scope = scope_of(model.graph)
    found = sorted({node.op_type for node in model.graph.node if _is_defined(node, version, scope)})
    if not found:
        return model
    stated = {value.name for value in (*model.graph.value_info, *model.graph.input)}
    whole = ModelProto()
    whole.CopyFrom(model)
    whole.graph.value_info.extend(  # the inliner asks nothing else for types
        helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        for tensor in model.graph.initializer if tensor.name not in stated)
    for node in whole.graph.node:
        if node.domain == "" and node.op_type in found:
            _state_defaults(node, version)
    try:
        return inliner.inline_selected_functions(
            whole, [("", op_type) for op_type in found], inline_schema_functions=True)
    except RuntimeError:  # the reverse pass names the node that has no rule
        return model


def _is_defined(node: NodeProto, version: int, scope: Scope) -> bool:
    """Whether a node makes floating-point numbers of such, has no rule, and onnx defines it by other operators."""
    if node.domain != "" or node.op_type in FLAT | RANDOM or any(True for _ in graphs_of(node)):
        return False
    if rule_registry.find("", node.op_type) is not None:
        return False
    if not all(any(is_float(name, scope) for name in names) for names in (node.input, node.output)):
        return False
    try:
        schema: Any = defs.get_schema(node.op_type, version)  # onnx's stubs leave out what is asked
    except defs.SchemaError:
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)


def _state_defaults(node: NodeProto, version: int) -> None:
    """Write the attributes that a node leaves out, which the inliner forgets."""
    stated = {proto.name for proto in node.attribute}
    node.attribute.extend(
        attribute.default_value for name, attribute in sorted(defs.get_schema(node.op_type, version).attributes.items())
        if name not in stated and attribute.default_value.type != AttributeProto.UNDEFINED)
