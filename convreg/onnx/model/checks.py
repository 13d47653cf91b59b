"""Checks of whole models: those of onnx together with our declarations."""

from __future__ import annotations

import onnx
from onnx import GraphProto, ModelProto

from ... import registry
from ...errors import GraphError, OpError, UnknownOp, shorten
from ...guard import guarded
from ..graph import nodes_of, place, sentence
from ..schema.schemas import know_nodes
from ..schema.whole_inference import inferred
from .files import Source, opened
from .node_names import check_node_names
from .standard_check import check_convolutions


@guarded("convreg::onnx")
def check(source: Source) -> None:
    """Check a model with all checks of onnx and with the rules of convreg's operators.

    Standard Conv and ConvTranspose are also checked by the rules that run them, because onnx's checker has none.
    Nodes of one graph must have different names, because onnxruntime refuses equal ones.

    Parameters
    ----------
    source : onnx.ModelProto or path

    Raises
    ------
    GraphError
        If the structure, a name, a type, an attribute or a declared shape is wrong. The message is convreg's or onnx's.
    """
    model = opened(source)
    check_node_names(model)
    check_opened(model)


def check_opened(model: ModelProto) -> None:
    """Check an opened model as `check` does, except for equal names of nodes: other formats do not store them."""
    _check_operators(model)
    _check_declared(model.graph)
    try:
        onnx.checker.check_model(model)
        whole = inferred(model)  # what the full check does, and more
    except Exception as error:
        raise _refusal(error) from error
    check_convolutions(whole.graph)


@guarded("convreg::onnx")
def infer_shapes(source: Source) -> ModelProto:
    """Return the model with the inferred types and shapes of all values, symbolic shape arithmetic included.

    Parameters
    ----------
    source : onnx.ModelProto or path

    Returns
    -------
    onnx.ModelProto

    Raises
    ------
    GraphError
        If a node refuses its inputs, or a declared type or shape contradicts the inferred one.
    """
    return types_of(opened(source))


def types_of(model: ModelProto) -> ModelProto:
    """Return what `infer_shapes` returns for an opened model, or for one that was made of opened ones.

    Raises
    ------
    GraphError
        As `infer_shapes`.
    """
    know_nodes(model)
    try:
        return inferred(model)
    except Exception as error:
        raise _refusal(error) from error


def _check_operators(model: ModelProto) -> None:
    """Refuse nodes in a domain of ours that name no operator: onnx lets them pass."""
    ours = {spec.onnx_domain for spec in registry.specs() if spec.onnx_domain.split(".")[0] == "convreg"}
    functions = {(function.domain, function.name) for function in model.functions}
    for node in nodes_of(model):
        if node.domain in ours and (node.domain, node.op_type) not in functions and registry.find_node(
                node.domain, node.op_type) is None:
            known = [spec.name for spec in registry.specs() if spec.onnx_domain == node.domain]
            raise GraphError(str(UnknownOp(node.op_type, known, what=f"operator of {node.domain}")))


def _check_declared(graph: GraphProto) -> None:
    """Refuse inputs and outputs without a type or a shape, as onnx's checker does without their names."""
    for kind, values in (("input", graph.input), ("output", graph.output)):
        for value in values:
            if not value.HasField("type"):
                raise GraphError(f"{kind} {shorten(value.name)} has no type; allowed: values with a type")
            tensor = value.type.tensor_type
            if value.type.HasField("tensor_type") and not tensor.HasField("shape"):
                raise GraphError(f"{kind} {shorten(value.name)} has no shape; allowed: tensors with a shape, "
                                 "whose extents may be unknown")


def check_made_once(graph: GraphProto) -> None:
    """Refuse a value that two nodes make, as onnx's checker does: executors differ in which one they take."""
    made: set[str] = set()
    for node in graph.node:
        for name in filter(None, node.output):
            if name in made:
                raise GraphError(f"{place(node)} makes {shorten(name)}, which an earlier node makes too")
            made.add(name)


def _refusal(error: Exception) -> GraphError:
    """Return one sentence for what onnx or an inference function of ours raised."""
    if isinstance(error, GraphError):
        return error
    if isinstance(error, OpError):
        return GraphError(" ".join([str(error), *getattr(error, "__notes__", [])]))
    return GraphError(sentence(error))
