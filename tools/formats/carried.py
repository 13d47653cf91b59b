"""The values of a model that are bytes of HiFloat8, a format without an element type in ONNX."""

from __future__ import annotations

from collections.abc import Callable

from onnx import ModelProto, TensorProto

from convreg import registry
from convreg.onnx.graph import attributes_of, nodes_of
from convreg.onnx.payload import ATTRIBUTE as OPERAND_TYPES
from convreg.onnx.payload import is_carried, may_carry, mirrors

MOVES: dict[str, Callable[[list[str]], list[str]]] = {
    **dict.fromkeys(("Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Transpose",
                     "Unsqueeze"), lambda inputs: inputs[:1]),
    "Concat": lambda inputs: inputs,
    "Pad": lambda inputs: [inputs[0], *inputs[2:3]],
}
"""Standard operators that move elements, and the inputs from which they take them."""


def code_names(model: ModelProto) -> set[str]:
    """Return the names of the values that are bytes of HiFloat8.

    Such values are read or made by convreg's nodes as HiFloat8, or come from other such values by operators that only
    move elements.
    """
    graph, imports = model.graph, {entry.domain: entry.version for entry in model.opset_import}
    found = set(mirrors([*graph.input, *graph.output, *graph.initializer, *graph.value_info]))
    moving = []
    for node in nodes_of(model):
        operator = registry.find_node(node.domain, node.op_type, imports.get(node.domain))
        if operator is not None and may_carry(operator.spec):
            stated = attributes_of(node).get(OPERAND_TYPES)
            found |= {name for name, format in zip(node.input, stated if isinstance(stated, list) else (), strict=False)
                      if is_carried(format)}
        if operator is not None:
            found |= {value.name for value in graph.output
                      if value.name in node.output and value.type.tensor_type.elem_type == TensorProto.UINT8}
        elif node.op_type in MOVES:
            moving.append({*MOVES[node.op_type](list(node.input)), *node.output} - {""})
    while touched := [names for names in moving if names & found and not names <= found]:
        found = found.union(*touched)
    return found
