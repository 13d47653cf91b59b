"""The gradient calls of a model, with their arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import registry
from ..errors import GraphError
from ..guard import guarded
from ..spec import OpSpec, snake_case
from .execution.evaluator import ObservedCall
from .execution.session import Session
from .export import NodeCall, node_call
from .model.files import Source


@guarded("convreg::onnx")
def gradient_calls(source: Source, inputs: Mapping[str, Any] | None = None) -> dict[str, NodeCall]:
    """Run a model once and return the call of every gradient node.

    Parameters
    ----------
    source : onnx.ModelProto or path
    inputs : mapping
        Input name -> array, as for `Session.run`.

    Returns
    -------
    dict
        Name of the node, or of its first output -> `NodeCall`, in the order of execution. For a node that runs several
        times it is the first call. Arguments that choose output formats and roundings are left out. An output mask
        selects only the outputs that the node names.

    Raises
    ------
    GraphError
        If the model does not run on the inputs, or has no gradient node.
    """
    calls: dict[str, NodeCall] = {}

    def observe(call: ObservedCall) -> None:
        name = call.node.name or next(filter(None, call.node.output))
        if call.spec.convolves and not call.spec.convolution.forward and name not in calls:
            calls[name] = _call(call)

    Session(source, observer=observe).run(inputs)
    if not calls:
        raise GraphError("the model has no node that computes a gradient of a convolution")
    return calls


def _call(call: ObservedCall) -> NodeCall:
    spec = call.spec
    stated = {name: value for name, value in call.attributes.items() if not _chooses_formats(spec, name)}
    inputs = tuple(stated.pop(port.name, None) if value is None else value
                   for port, value in zip(spec.inputs, call.inputs, strict=True))
    attributes = {snake_case(name): value for name, value in stated.items()}
    if spec.convolution.mask:
        name = snake_case(spec.convolution.mask)
        mask = attributes.get(name, (True,) * len(call.wanted))
        attributes[name] = [bool(asked) and named for asked, named in zip(mask, call.wanted, strict=False)]
    if call.conformance is not None:
        attributes["conformance"] = call.conformance
    operator = registry.get(spec.qualified_name, spec.since_version)
    return node_call(operator, inputs, attributes)


def _chooses_formats(spec: OpSpec, name: str) -> bool:
    """Whether it is an attribute of emulation only."""
    return any(attribute.name == name and attribute.only == ("emulation",) for attribute in spec.attributes)
