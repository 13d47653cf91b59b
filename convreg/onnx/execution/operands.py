"""How many inputs and outputs a standard node has: onnx's evaluator fails in words of Python where one is missing."""

from __future__ import annotations

from onnx import NodeProto, defs

from ...errors import GraphError
from ..graph import place

Option = defs.OpSchema.FormalParameterOption


def check_operands(node: NodeProto, version: int) -> None:
    """Refuse a node that lacks an input which its operator needs, or has more inputs or outputs than it knows.

    Parameters
    ----------
    node : onnx.NodeProto
    version : int
        The version that the model imports of the node's domain. Operators without a schema there pass.

    Raises
    ------
    GraphError
        It names the node and the input.
    """
    if not defs.has(node.op_type, max_inclusive_version=min(version, 2**31 - 1), domain=node.domain):
        return
    schema = defs.get_schema(node.op_type, max_inclusive_version=min(version, 2**31 - 1), domain=node.domain)
    for index, port in enumerate(schema.inputs):
        blank = index >= len(node.input) or not node.input[index]
        if port.option == Option.Single and blank:
            raise GraphError(f"{place(node)}: input {index} ({port.name}) is missing; {node.op_type} needs it")
        if port.option == Option.Variadic and port.is_homogeneous and not all(node.input[index:]):
            raise GraphError(f"{place(node)}: one of the inputs from {index} on ({port.name}) is blank; {node.op_type} "
                             "needs all of them")
    for kind, names, least, most in (("inputs", node.input, schema.min_input, schema.max_input),
                                     ("outputs", node.output, schema.min_output, schema.max_output)):
        if not least <= len(names) <= most:
            allowed = f"{least}" if least == most else f"{least} or more" if most > 2**30 else f"{least} to {most}"
            raise GraphError(f"{place(node)}: {len(names)} {kind}; allowed: {allowed}")
