"""Names of nodes: onnx's checker does not look at them, and onnxruntime refuses a graph that uses one twice."""

from __future__ import annotations

from collections.abc import Iterable

from onnx import ModelProto, NodeProto

from ...errors import GraphError
from ..graph import graphs_of, place


def check_node_names(model: ModelProto) -> None:
    """Refuse two nodes of one name in one graph, in one subgraph, or in the body of a function that is called.

    Nodes without a name are allowed. A graph, its subgraphs and the functions may use the same names.

    Parameters
    ----------
    model : onnx.ModelProto

    Raises
    ------
    GraphError
        The message names both nodes.
    """
    functions = {(function.domain, function.name, function.overload): function for function in model.functions}
    waiting: list[tuple[str, Iterable[NodeProto]]] = [("the graph", model.graph.node)]
    while waiting:
        where, nodes = waiting.pop()
        _check_graph(nodes, where)
        for node in nodes:
            waiting += [(f"a subgraph of {place(node)}", graph.node) for graph in graphs_of(node)]
            function = functions.pop((node.domain, node.op_type, node.overload), None)
            if function is not None:
                waiting.append((f"function {function.domain}::{function.name}", function.node))


def _check_graph(nodes: Iterable[NodeProto], where: str) -> None:
    first: dict[str, NodeProto] = {}
    for node in nodes:
        if node.name and node.name in first:
            raise GraphError(f"{where} has two nodes named {node.name!r}: {_maker(first[node.name])} and "
                             f"{_maker(node)}; allowed: different names, or none")
        first[node.name] = node


def _maker(node: NodeProto) -> str:
    return f"the {node.op_type} that makes {next(filter(None, node.output), 'nothing')!r}"
