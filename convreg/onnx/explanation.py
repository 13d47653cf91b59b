"""The result of every conformance for the nodes of a model."""

from __future__ import annotations

from contextlib import suppress

from .. import registry
from ..calls.signature import SCALES
from ..errors import GraphError, shorten
from ..explain import Explanation, explain
from ..guard import guarded
from ..spec import snake_case
from .graph import place, scope_of
from .model.checks import infer_shapes
from .model.files import Source, opened
from .rewrite.problem import Reader


@guarded("convreg::onnx")
def explain_nodes(source: Source, name: str | None = None) -> dict[str, Explanation]:
    """Explain the convreg nodes in a model's main graph.

    Parameters
    ----------
    source : onnx.ModelProto or path
    name : str, optional
        The name of one node or of one of its outputs; by default all nodes are explained.

    Returns
    -------
    dict
        Description of a node -> the result of `convreg.explain`.

    Raises
    ------
    GraphError
        If there is no such node, or a shape is not known before the graph runs (a batch counts as 1).
    """
    if name is not None and not isinstance(name, str):
        raise GraphError(f"name={shorten(name)} is refused; allowed: the name of a node or of an output, or None")
    model = opened(source)
    with suppress(GraphError):  # a node that is refused has no results; what the model declares may do
        model = infer_shapes(model)
    scope = scope_of(model.graph)
    versions = {entry.domain: entry.version for entry in model.opset_import}
    found = {}
    for node in model.graph.node:
        operator = registry.find_node(node.domain, node.op_type, versions.get(node.domain))
        if operator is None or (name is not None and name != node.name and name not in node.output):
            continue
        spec = operator.spec
        if not spec.convolves:
            continue
        reader = Reader(node, spec, scope)
        tensors = {port.name: reader.tensor(port) for port in spec.vendor_inputs if not port.shape}
        arguments = {snake_case(key): value for key, value in reader.attributes.items()}
        arguments |= {port.name: stated for port in spec.shape_ports if (stated := reader.stated(port))}
        arguments |= {snake_case(port): tensor.extents for port, tensor in tensors.items() if tensor is not None}
        scales = [reader.tensor(port) for port in spec.scale_ports]
        if any(scales):
            arguments[SCALES] = [scale and scale.extents for scale in scales]
        formats = {port: tensor.format for port, tensor in tensors.items() if tensor is not None}
        found[place(node)] = explain(spec.qualified_name, dtypes=formats, **arguments)
    if not found:
        called = f" called {shorten(name)}" if name is not None else ""
        raise GraphError(f"the main graph has no convreg node{called}")
    return found
