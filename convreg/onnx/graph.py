"""What all work on graphs needs: the messages and nodes inside a model, words that find them, and declared values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    TensorShapeProto,
    ValueInfoProto,
    helper,
    inliner,
)

from .. import registry
from ..errors import GraphError
from ..formats import FORMATS, format_of
from ..spec import OpSpec, Port, Shape
from .limits import NESTING
from .standard import STANDARD

Message = Any
"""Any message of protobuf, whose own base class has no types."""


def messages_of(root: Message) -> Iterator[Message]:
    """Yield a message and all messages inside it, at any depth.

    The fields come from the messages themselves, so that no place is forgotten: attributes of every kind, defaults of
    functions, sparse tensors, subgraphs and training graphs are all found.

    Raises
    ------
    GraphError
        If messages are nested deeper than files can hold: protobuf would exhaust the stack when it copies them.
    """
    waiting: list[tuple[Message, int]] = [(root, 0)]
    while waiting:
        message, depth = waiting.pop()
        if depth > NESTING:
            raise GraphError(f"messages are nested more than {NESTING} levels deep")
        yield message
        for field, value in message.ListFields():
            if field.type == field.TYPE_MESSAGE:
                inner = [value] if hasattr(value, "ListFields") else value
                waiting.extend((entry, depth + 1) for entry in inner)


def tensors_of(root: Message) -> Iterator[TensorProto]:
    """Yield every tensor inside a message."""
    return (message for message in messages_of(root) if isinstance(message, TensorProto))


def has_broken_text(message: Message) -> bool:
    """Whether a string of the message itself is not UTF-8: protobuf then hands out bytes, which nobody expects."""
    for field, value in message.ListFields():
        if field.type == field.TYPE_STRING:
            values: Any = [value] if isinstance(value, str | bytes) else value
            if any(isinstance(entry, bytes) for entry in values):
                return True
    return False


def nodes_of(model: ModelProto) -> Iterator[NodeProto]:
    """Yield every node of a model, those of subgraphs and local functions included."""
    for holder in (model.graph, *model.functions):
        yield from nodes_in(holder)


def nodes_in(holder: GraphProto | FunctionProto) -> Iterator[NodeProto]:
    """Yield every node of a graph or a function, those of subgraphs included."""
    waiting = [*holder.node]
    while waiting:
        node = waiting.pop()
        yield node
        for graph in graphs_of(node):
            waiting.extend(graph.node)


def graphs_of(node: NodeProto) -> Iterator[GraphProto]:
    """Yield the subgraphs that a node holds directly."""
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == AttributeProto.GRAPHS:
            yield from attribute.graphs


def used_names(node: NodeProto) -> list[str]:
    """Return the names a node reads, those that its subgraphs may take from around it included."""
    names = list(node.input)
    for graph in graphs_of(node):
        names += [name for inner in graph.node for name in used_names(inner)]
        names += [output.name for output in graph.output]
    return names


def place(node: NodeProto) -> str:
    """Return words that find a node: operator, and its name or what it makes."""
    kind = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
    made = next((name for name in node.output if name), "nothing")
    return f"{kind} node {node.name!r}" if node.name else f"the {kind} node that makes {made!r}"


def sentence(error: Exception, limit: int = 400) -> str:
    """Return what onnx's exception says as one line of bounded length: it likes to print whole graphs."""
    reason = error if isinstance(error, GraphError) else error.__cause__ or error
    text = " ".join(str(reason).split()) or type(reason).__name__
    return text if len(text) <= limit else text[: limit - 3] + "..."


def attribute_value(proto: AttributeProto) -> Any:
    """Return the value of a node's attribute, strings decoded."""
    if proto.ref_attr_name:
        raise GraphError(f"attribute {proto.name!r} takes its value from {proto.ref_attr_name!r} of a function, and "
                         "the node is outside of functions")
    try:
        value = helper.get_attribute_value(proto)
    except ValueError as error:
        raise GraphError(f"attribute {proto.name!r} is of kind {proto.type}, which onnx does not know") from error
    if proto.type == AttributeProto.STRINGS:
        return [entry.decode("utf-8", "replace") for entry in value]
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def attributes_of(node: NodeProto) -> dict[str, Any]:
    """Return the values of the attributes that a node states, by name."""
    return {proto.name: attribute_value(proto) for proto in node.attribute}


def dtype_of(element: int) -> np.dtype[Any] | None:
    """Return the NumPy dtype of an ONNX element type, None for a number that onnx does not know."""
    try:
        return helper.tensor_dtype_to_np_dtype(element)
    except KeyError:
        return None


def dims_of(shape: TensorShapeProto) -> Shape:
    """Return the extents of a declared shape: numbers, symbols, None where unknown."""
    return tuple(dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None for dim in shape.dim)


class Declared(NamedTuple):
    """A value as its model declares it; dtype None = no tensor, shape None = any rank."""

    name: str
    dtype: np.dtype[Any] | None
    shape: Shape | None

    @classmethod
    def of(cls, value: ValueInfoProto) -> Declared:
        """Read a graph's declaration."""
        tensor = value.type.tensor_type
        if not value.type.HasField("tensor_type") or not tensor.elem_type:
            return cls(value.name, None, None)
        dtype = dtype_of(tensor.elem_type)
        if dtype is None:
            raise GraphError(f"input {value.name!r} has element type {tensor.elem_type}, which onnx does not know")
        return cls(value.name, dtype, dims_of(tensor.shape) if tensor.HasField("shape") else None)

    def __str__(self) -> str:
        """Such as ``x: float32 of shape [N, 3]``."""
        extents = ["?" if extent is None else str(extent) for extent in self.shape or ()]
        shape = "" if self.shape is None else f" of shape [{', '.join(extents)}]"
        return f"{self.name}: {self.dtype or 'a value'}{shape}"


Scope = Mapping[str, Declared]
"""What is known of the values that a graph's nodes may read."""


def scope_of(graph: GraphProto, outer: Scope | None = None) -> Scope:
    """Return what an inferred graph states of its values, on top of those around it."""
    known = dict(outer or {})
    for tensor in graph.initializer:
        known[tensor.name] = Declared(tensor.name, dtype_of(tensor.data_type), tuple(tensor.dims))
    for value in (*graph.input, *graph.value_info, *graph.output):
        known[value.name] = Declared.of(value)
    return known


def empty(spec: OpSpec, port: Port, inputs: Iterable[Any]) -> Any:
    """Stand in for an output that is named although the node's attributes mask it off: no elements."""
    for other, value in zip(spec.inputs, inputs, strict=True):
        alike = other.type == port.type or other.name == port.like
        if alike and value is not None and format_of(value.dtype) is not None:
            return np.empty(0, value.dtype)
    return np.empty(0, FORMATS["float32"].dtype)


def flattened(model: ModelProto) -> ModelProto:
    """Inline local functions: the evaluator wants them in order and with every input, attribute and import of its own.

    A function that we execute ourselves stays a node, and defaults of attributes, which the inliner forgets, are
    written into the calls first. The model imports what the nodes of inlined functions need.
    """
    if not model.functions:
        return model
    whole = ModelProto()
    whole.CopyFrom(model)
    functions = {(function.domain, function.name, function.overload): function for function in whole.functions}
    for node in nodes_of(whole):
        function = functions.get((node.domain, node.op_type, node.overload))
        stated = {attribute.name for attribute in node.attribute}
        for default in function.attribute_proto if function is not None else ():
            if default.name not in stated:
                node.attribute.append(default)
    ours = {*STANDARD, *((spec.onnx_domain, spec.name) for spec in registry.specs())}
    try:
        flat = inliner.inline_selected_functions(whole, [key[:2] for key in functions if key[:2] not in ours])
    except RuntimeError:  # a function imports another version of a domain: it keeps an evaluator of its own
        return whole
    _import_for_inlined(flat, whole.functions)
    return flat


def contradiction(model: ModelProto) -> str:
    """Return words for the first two versions of one domain that a model and its functions import; empty for none."""
    known = {entry.domain: (entry.version, "the model") for entry in model.opset_import}
    for function in model.functions:
        where = f"function {function.domain}::{function.name}"
        for entry in function.opset_import:
            version, other = known.setdefault(entry.domain, (entry.version, where))
            if version != entry.version:
                return (f"{where} imports version {entry.version} of domain {entry.domain!r}, and {other} imports "
                        f"version {version}")
    return ""


def _import_for_inlined(flat: ModelProto, functions: Iterable[FunctionProto]) -> None:
    """Import the domains of nodes from inlined functions: the inliner leaves out what the model itself did not import.

    The inliner has refused functions that import different versions of one domain.
    """
    missing = {node.domain for node in nodes_in(flat.graph)} - {entry.domain for entry in flat.opset_import}
    versions = {entry.domain: entry.version for function in functions for entry in function.opset_import}
    for domain in sorted(missing & versions.keys()):
        flat.opset_import.add(domain=domain, version=versions[domain])
