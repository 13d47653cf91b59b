"""onnx's shape inference of a whole model, with the values of shapes followed symbolically only where they are short.

With ``data_prop=True`` onnx makes a record for every element of every one-dimensional value that some operators read.
So that a model of a few bytes cannot take all memory, such a node is hidden from that pass unless its operands are
known to be short; its results keep the types that plain inference finds.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator
from itertools import chain

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, defs, shape_inference

from ..graph import flattened, graphs_of, nodes_of
from ..limits import PROPAGATED
from .onnx_faults import guarded, unguarded

FOLLOWED = {"Add", "Cast", "Concat", "Gather", "Mul", "Shape", "Size", "Slice", "Squeeze", "Sub", "Unsqueeze"}
"""Standard operators through which onnx follows values."""

SHAPES = {"Shape", "Size"}
"""Those that read no values, only shapes."""

HIDDEN = "convreg.hidden"
"""The domain of a node while it is hidden: nothing has a schema there, and declared types are taken as they are."""

ROUNDS = 8
"""How often hidden nodes are looked at again: each time more shapes may be known."""

Scope = ChainMap[str, bool]
"""Whether the values that a graph's nodes may read are known to be short."""


def inferred(model: ModelProto, *, strict: bool = True) -> ModelProto:
    """Return a model with the types and shapes of all values, symbolic shape arithmetic included.

    Parameters
    ----------
    model : onnx.ModelProto
    strict : bool
        Whether a node that cannot be inferred, or contradicts what is declared, raises onnx's exception.
    """
    known = _pass(model, strict, follow=False)
    if not any(_is_followed(node) for node in nodes_of(model)):
        return known
    if not any(_is_entered(model, function.domain, function.name) for function in model.functions):
        return _followed(model, known, strict)
    flat = flattened(model)  # what happens inside functions shows where they are inlined
    if any(_is_entered(flat, function.domain, function.name) for function in flat.functions):
        return known
    found = _followed(flat, _pass(flat, strict, follow=False), strict)
    return _pass(_with_types(known, found), strict, follow=False)


def _pass(model: ModelProto, strict: bool, *, follow: bool) -> ModelProto:
    return unguarded(shape_inference.infer_shapes(
        guarded(model), check_type=strict, strict_mode=strict, data_prop=follow))


def _is_entered(model: ModelProto, domain: str, name: str) -> bool:
    """Whether inference looks into a local function: only where no schema says what its calls make."""
    versions = {entry.domain: entry.version for entry in model.opset_import}
    return not defs.has(name, max_inclusive_version=min(versions.get(domain, 0), 2**31 - 1), domain=domain)


def _followed(model: ModelProto, known: ModelProto, strict: bool) -> ModelProto:
    """Return a model of which `known` is what plain inference finds, with short values followed."""
    hidden: list[bool] = []
    for _ in range(ROUNDS):
        now = [_is_followed(node) and node.op_type not in SHAPES and not all(scope.get(name, False) for name in
               node.input if name) for node, scope in _nodes(known.graph, ChainMap())]
        if not any(now):
            return _pass(model, strict, follow=True)
        if now == hidden:
            break
        hidden = now
        known = _pass(_with_hidden(known, hidden, strict), strict, follow=False)
    return known


def _with_hidden(known: ModelProto, hidden: list[bool], strict: bool) -> ModelProto:
    """Return a model with what inference finds by following values through all nodes but the hidden ones."""
    model = ModelProto()
    model.CopyFrom(known)
    domains = []
    for (node, _), hide in zip(_nodes(model.graph, ChainMap()), hidden, strict=True):
        domains.append(node.domain)
        if hide:
            node.domain = HIDDEN
    model.opset_import.add(domain=HIDDEN, version=1)
    model = _pass(model, strict, follow=True)
    for (node, _), domain in zip(_nodes(model.graph, ChainMap()), domains, strict=True):
        node.domain = domain
    del model.opset_import[:]
    model.opset_import.extend(known.opset_import)
    return model


def _with_types(known: ModelProto, found: ModelProto) -> ModelProto:
    """Return a model that states of its own values what another one states of those of the same names."""
    model = ModelProto()
    model.CopyFrom(known)
    own = {name for node in model.graph.node for name in node.output} - {value.name for value in model.graph.output}
    del model.graph.value_info[:]
    model.graph.value_info.extend(value for value in found.graph.value_info if value.name in own)
    return model


def _is_followed(node: NodeProto) -> bool:
    return node.op_type in FOLLOWED and node.domain in ("", "ai.onnx")


def _nodes(graph: GraphProto, outer: Scope) -> Iterator[tuple[NodeProto, Scope]]:
    """Yield every node of a graph and its subgraphs, always in one order, with the values that it may read."""
    own: dict[str, bool] = {}
    scope = ChainMap(own, *outer.maps)
    given = {value.name for value in graph.input}
    for value in chain(graph.value_info, graph.output, graph.input):
        own[value.name] = _is_short(value.type, is_given=value.name in given and not outer.maps[0])
    for tensor in graph.initializer:
        own[tensor.name] = len(tensor.dims) != 1 or tensor.dims[0] <= PROPAGATED or (
            tensor.data_type not in (TensorProto.INT32, TensorProto.INT64) and tensor.name not in given)
    for node in graph.node:
        yield node, scope
        for inner in graphs_of(node):
            yield from _nodes(inner, scope)


def _is_short(kind: TypeProto, *, is_given: bool) -> bool:
    """Whether onnx makes few records or none for a value; `is_given`: what is declared of it is all that holds."""
    if not kind.HasField("tensor_type"):
        return kind.WhichOneof("value") is not None
    if not kind.tensor_type.HasField("shape"):
        return is_given
    dims = kind.tensor_type.shape.dim
    if len(dims) != 1:
        return True
    return dims[0].dim_value <= PROPAGATED if dims[0].HasField("dim_value") else is_given
