"""What a model becomes once its functions are inlined, counted before anything is inlined, inferred or run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from onnx import FunctionProto, ModelProto, NodeProto, SparseTensorProto

from ...errors import GraphError
from ..graph import messages_of
from ..limits import ADDED_BYTES, ADDED_NODES, CALL_DEPTH
from .tensor_data import dense_bytes

Key = tuple[str, str, str]
"""Domain, name and overload of a function."""


class Size(NamedTuple):
    """What a call becomes: nodes, bytes, and how many functions are open at once on the way."""

    nodes: int
    bytes: int
    depth: int


def check_expansion(model: ModelProto) -> None:
    """Refuse functions that call themselves, and calls that become too much once they are inlined.

    Raises
    ------
    GraphError
        If two functions have one name, a function calls itself, directly or through others, or the nodes, the bytes
        or the depth of all calls exceed the limits of `limits`.
    """
    if not model.functions:
        return
    bodies: dict[Key, FunctionProto] = {}
    for function in model.functions:
        key = _key(function.domain, function.name, function.overload)
        if key in bodies:
            raise GraphError(f"the model defines function {_shown(key)} twice")
        bodies[key] = function
    calls = {key: _calls(function.node, bodies) for key, function in bodies.items()}
    _refuse_recursion(calls)
    stated = {key: _stated(function) for key, function in bodies.items()}
    most = Size(ADDED_NODES + sum(size.nodes for size in stated.values()),
                ADDED_BYTES + sum(function.ByteSize() for function in model.functions), CALL_DEPTH)
    sizes: dict[Key, Size] = {}
    for key in _callees_first(calls):
        sizes[key] = _sum(stated[key], (sizes[callee] for callee in calls[key]))
        _check(sizes[key], most, f"function {_shown(key)}")
    called = [sizes[callee] for callee in _calls(model.graph.node, bodies)]
    _check(_sum(Size(0, 0, 0), called), most, "the graph")


def _stated(function: FunctionProto) -> Size:
    """Return the size of one call: sparse tensors are written out when a function is inlined."""
    nodes, written_out = 0, 0
    for message in messages_of(function):
        nodes += isinstance(message, NodeProto)
        written_out += dense_bytes(message) if isinstance(message, SparseTensorProto) else 0
    return Size(nodes, function.ByteSize() + written_out, 1)


def _key(domain: str, name: str, overload: str) -> Key:
    return "" if domain == "ai.onnx" else domain, name, overload


def _shown(key: Key) -> str:
    return "::".join(part for part in key[:2] if part) + (f" (overload {key[2]!r})" if key[2] else "")


def _calls(nodes: Iterable[NodeProto], bodies: dict[Key, FunctionProto]) -> list[Key]:
    """Return the functions that nodes call, subgraphs included; as often as they are called."""
    found = []
    for outer in nodes:
        for node in messages_of(outer):
            if isinstance(node, NodeProto):
                key = _key(node.domain, node.op_type, node.overload)
                if key in bodies:
                    found.append(key)
    return found


def _refuse_recursion(calls: dict[Key, list[Key]]) -> None:
    """Overloads count as one function: not every runtime tells them apart."""
    by_name: dict[Key, list[Key]] = {}
    for key, callees in calls.items():
        by_name.setdefault((*key[:2], ""), []).extend((*callee[:2], "") for callee in callees)
    _callees_first(by_name)


def _callees_first(calls: dict[Key, list[Key]]) -> list[Key]:
    """Return all functions, each after those that it calls; refuse a circle."""
    done: dict[Key, None] = {}
    for start in calls:
        if start in done:
            continue
        path: dict[Key, None] = {start: None}
        rest = [iter(calls[start])]
        while rest:
            callee = next(rest[-1], None)
            if callee is None:
                rest.pop()
                done[path.popitem()[0]] = None
            elif callee in path:
                through = [*list(path)[list(path).index(callee):], callee]
                raise GraphError("function " + ", which calls ".join(map(_shown, through[:8])) + ", calls itself")
            elif callee not in done:
                path[callee] = None
                rest.append(iter(calls[callee]))
    return list(done)


def _sum(own: Size, callees: Iterable[Size]) -> Size:
    nodes, size, depth = own.nodes, own.bytes, 0
    for callee in callees:
        nodes, size, depth = nodes + callee.nodes, size + callee.bytes, max(depth, callee.depth)
    return Size(nodes, size, own.depth + depth)


def _check(size: Size, most: Size, where: str) -> None:
    for what, count, allowed in zip(("nodes", "bytes", "calls inside calls"), size, most, strict=True):
        if count > allowed:
            raise GraphError(f"{where} would grow to {count} {what} when the functions it calls are inlined; allowed: "
                             f"{allowed}")
