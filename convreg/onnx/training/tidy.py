"""A graph put in order: dead nodes and constants out, nodes sorted, equal constants one."""

from __future__ import annotations

from typing import Any

from onnx import GraphProto, ModelProto, NodeProto

from ... import registry
from ...errors import GraphError
from ..graph import nodes_of, place, used_names


def tidy(model: ModelProto) -> None:
    """Drop what no output needs, sort the nodes, and import the domains that are used, in place."""
    without_dead_nodes(model.graph)
    sort_nodes(model.graph)
    _import_domains(model)


def without_dead_nodes(graph: GraphProto) -> None:
    """Drop nodes, initializers and declarations that no output needs, in place."""
    needed = {value.name for value in graph.output}
    makers = {name: node for node in graph.node for name in node.output if name}
    waiting, seen = list(needed), set[int]()
    while waiting:
        node = makers.get(waiting.pop())
        if node is not None and id(node) not in seen:
            seen.add(id(node))
            names = used_names(node)
            needed.update(names)
            waiting.extend(names)
    kept = [node for node in graph.node if id(node) in seen]
    _keep(graph.node, kept)
    needed.update(value.name for value in graph.input)
    _keep(graph.initializer, [tensor for tensor in graph.initializer if tensor.name in needed])
    _keep(graph.sparse_initializer, [tensor for tensor in graph.sparse_initializer if tensor.values.name in needed])
    inner = {name for node in kept for name in node.output} - {value.name for value in graph.output}
    _keep(graph.value_info, [value for value in graph.value_info if value.name in inner])


def _keep(field: Any, entries: list[Any]) -> None:
    """Reduce a repeated field to some of its entries."""
    if len(field) != len(entries):
        copies = [type(entry)() for entry in entries]
        for copy, entry in zip(copies, entries, strict=True):
            copy.CopyFrom(entry)
        del field[:]
        field.extend(copies)


def sort_nodes(graph: GraphProto) -> None:
    """Put every node after those that make what it reads; the order stays where it can."""
    makers = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
    order: list[int] = []
    state = [0] * len(graph.node)
    for first in range(len(graph.node)):
        waiting = [first]
        while waiting:
            index = waiting[-1]
            if state[index] == 2:
                waiting.pop()
                continue
            before = [makers[name] for name in used_names(graph.node[index]) if name in makers]
            open_ = [other for other in before if state[other] != 2]
            if not open_:
                state[index] = 2
                order.append(index)
                waiting.pop()
                continue
            if state[index] == 1 and any(state[other] == 1 for other in open_):
                raise GraphError(f"{place(graph.node[index])} is part of a circle")
            state[index] = 1
            waiting.extend(reversed(open_))
    if order != sorted(order):
        _reorder(graph, order)


def _reorder(graph: GraphProto, order: list[int]) -> None:
    nodes = []
    for index in order:
        node = NodeProto()
        node.CopyFrom(graph.node[index])
        nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)


def _import_domains(model: ModelProto) -> None:
    """Import every domain of ours that is used, and none that is not."""
    used = {node.domain for node in nodes_of(model)}
    ours = {spec.onnx_domain: spec.since_version for spec in registry.specs()}
    imports = [entry for entry in model.opset_import if entry.domain not in ours or entry.domain in used]
    known = {entry.domain for entry in imports}
    copies = [(entry.domain, entry.version) for entry in imports]
    copies += [(domain, ours[domain]) for domain in sorted(used & ours.keys() - known)]
    del model.opset_import[:]
    for domain, version in copies:
        model.opset_import.add(domain=domain, version=version)
