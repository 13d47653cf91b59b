"""One call of an operator as a model with one node, and back."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from onnx import ModelProto, TensorProto, ValueInfoProto, helper, numpy_helper

from .. import __version__, registry
from ..calls.binding import Bound, asking, bind
from ..calls.signature import SCALES, Arguments, Operator, reader_of
from ..errors import GraphError, shorten
from ..guard import guarded
from ..memory import Array, max_bytes
from ..spec import Call, Kind, OpSpec, snake_case
from . import payload
from .graph import attributes_of, place
from .model.files import Source, opened
from .model.tensor_data import array_of
from .schema.schemas import attribute_proto

IR_VERSION, OPSET = 10, 22
"""What the models state; onnx's own defaults are newer than most runtimes read."""



class NodeCall(NamedTuple):
    """The call of a node: ``operator(*inputs, **attributes)`` repeats it."""

    operator: Operator
    inputs: tuple[Any, ...]
    attributes: dict[str, Any]


@guarded("convreg::onnx")
def node_model(
    operator: Operator | str, *args: Any, as_inputs: bool | Collection[str] = False, **kwargs: Any
) -> ModelProto:
    """Return a model with one node that makes the same call.

    Parameters
    ----------
    operator : Operator or str
        An operator or its name.
    *args, **kwargs
        The arguments of the operator's function, except `out` and `threads`. A shape given as a list becomes an
        attribute if the operator has one; a shape given as an array stays a tensor.
    as_inputs : bool or collection of str
        Which tensors are inputs of the graph, by port name; True means all. The others are initializers with their
        values.

    Returns
    -------
    onnx.ModelProto
        Tensors are named as the operator's ports; outputs that the call does not compute are left blank.

    Raises
    ------
    OpError, OpTypeError
        What the call itself would raise.
    GraphError
        If `out` or `threads` is given, or `as_inputs` names no tensor of the call.
    """
    spec = registry.resolve(operator).spec
    given = reader_of(spec)(args, dict(kwargs))
    for name, value in (("out", given.out), ("threads", given.threads)):
        if value is not None:
            raise GraphError(f"{spec.qualified_name}: a model cannot hold {name}=")
    bound = bind(spec, given.tensors, given.attributes, conformance=given.conformance)
    tensors, attributes = _written(spec, given, bound)
    made = {port.name: output for port, output in zip(spec.outputs, bound.plan.outputs, strict=True)
            if output is not None}
    if not isinstance(as_inputs, bool) and (isinstance(as_inputs, str) or not isinstance(as_inputs, Collection)
                                            or not all(isinstance(name, str) for name in as_inputs)):
        raise GraphError(f"as_inputs={shorten(as_inputs)} is refused; allowed: a bool or a collection of names")
    free = set(tensors if as_inputs is True else () if as_inputs is False else as_inputs)
    if not free <= tensors.keys():
        raise GraphError(f"as_inputs names {sorted(free - tensors.keys())}; the call has {sorted(tensors)}")
    held = {name: array for name, array in tensors.items() if name not in free}
    _check_copies(bound.call, held)
    node = helper.make_node(
        spec.name, _names(spec.inputs, tensors), _names(spec.outputs, made), name=spec.function_name,
        domain=spec.onnx_domain, doc_string=spec.doc)
    node.attribute.extend(attribute_proto(name, value, _kind(spec, name)) for name, value in attributes.items())
    types = [payload.carried_format(tensors.get(port.name)) or "" for port in spec.vendor_inputs]
    if any(types):
        node.attribute.append(attribute_proto(payload.ATTRIBUTE, types, "strings"))
    graph = helper.make_graph(
        [node], spec.function_name,
        [_value_info(name, helper.np_dtype_to_tensor_dtype(payload.written(array).dtype), array.shape,
                     payload.carried_format(array)) for name, array in tensors.items() if name in free],
        [_value_info(name, payload.element_of(output.format), output.extents, output.format)
         for name, output in made.items()],
        [_initializer(name, array) for name, array in held.items()])
    imports = [helper.make_opsetid("", OPSET), helper.make_opsetid(spec.onnx_domain, spec.since_version)]
    return helper.make_model(graph, ir_version=IR_VERSION, opset_imports=imports, producer_name="convreg",
                             producer_version=__version__)


def _check_copies(call: Call, tensors: Mapping[str, Array]) -> None:
    """Refuse to copy tensors of more than `max_bytes` into a model, as large views of few numbers are."""
    limit, taken = max_bytes(call), 0
    for name, array in tensors.items():
        taken += array.nbytes
        if taken > limit:
            raise call.refuse(name, list(array.shape), f"values of at most {limit} bytes in all, {taken - limit} fewer "
                              "than these (CONVREG_MAX_BYTES sets the limit), or the tensor named in as_inputs",
                              "max_bytes")


def _written(spec: OpSpec, given: Arguments, bound: Bound) -> tuple[dict[str, Array], dict[str, Any]]:
    """Return the tensors and attributes of the node by name."""
    tensors: dict[str, Array] = {}
    attributes = {name: value for name, value in given.attributes.items()
                  if value is not None and bound.call.declares(name)}
    for port, value, array in zip(spec.inputs, given.tensors, bound.inputs, strict=True):
        if array is not None:
            tensors[port.name] = array
        elif value is not None and port.attribute and not hasattr(value, "__array__"):
            attributes[port.name] = value
        elif value is not None:
            tensors[port.name] = np.asarray(value)
    if given.conformance is not None and len(spec.conformances) > 1:
        attributes["conformance"] = given.conformance
    return tensors, attributes


def _names(ports: tuple[Any, ...], present: Collection[str]) -> list[str]:
    """Names for a node's inputs or outputs: blank where absent, none at the end."""
    names = [port.name if port.name in present else "" for port in ports]
    while len(names) > 1 and not names[-1]:
        names.pop()
    return names


def _kind(spec: OpSpec, name: str) -> Kind:
    if name == "conformance":
        return "string"
    return next((attribute.kind for attribute in spec.attributes if attribute.name == name), "ints")


def _value_info(name: str, element: int, extents: Sequence[int], format: str | None) -> ValueInfoProto:
    value = helper.make_tensor_value_info(name, element, extents)
    payload.set_mirror(value, format)
    return value


def _initializer(name: str, array: Array) -> TensorProto:
    tensor = numpy_helper.from_array(payload.written(array), name)
    payload.set_mirror(tensor, payload.carried_format(array))
    return tensor


@guarded("convreg::onnx")
def call_of(source: Source, inputs: Mapping[str, Any] | None = None) -> NodeCall:
    """Return the call of a model's only node, the inverse of `node_model`.

    Parameters
    ----------
    source : onnx.ModelProto or path
        A graph with one node, an operator of convreg.
    inputs : mapping
        Values of the graph's inputs by name.

    Returns
    -------
    NodeCall
        Operator, inputs in port order (None = absent), and the attributes that the node states, as Python spells them.

    Raises
    ------
    GraphError
        If the graph has other nodes or a value is missing.
    """
    model = opened(source)
    if len(model.graph.node) != 1:
        raise GraphError(f"the graph has {len(model.graph.node)} nodes; a call has exactly 1")
    node = model.graph.node[0]
    version = next((entry.version for entry in model.opset_import if entry.domain == node.domain), None)
    operator = registry.find_node(node.domain, node.op_type, version)
    if operator is None:
        raise GraphError(f"{node.domain}::{node.op_type} is not an operator; known: {', '.join(registry.names())}")
    spec = operator.spec
    values = {tensor.name: array_of(tensor) for tensor in model.graph.initializer}
    values.update(given_values(inputs))
    stated = attributes_of(node)
    tensors: list[Any] = [stated.pop(port.name, None) for port in spec.inputs]
    if len(node.input) > len(spec.inputs):
        raise GraphError(f"{place(node)} has {len(node.input)} inputs; allowed: at most {len(spec.inputs)}")
    for index, name in enumerate(node.input):
        if name and name not in values:
            raise GraphError(f"the model does not hold {name!r}; pass its value in inputs=")
        if name:
            tensors[index] = values[name]
    if payload.may_carry(spec):
        tensors = payload.read(asking(spec, spec.conformances[0]), stated.pop(payload.ATTRIBUTE, None), tensors)
    attributes = {snake_case(name): _python(_kind(spec, name), value) for name, value in stated.items()}
    return node_call(operator, tensors, attributes)


def given_values(inputs: Any) -> Mapping[str, Any]:
    """Return what a caller gave as a model's inputs; None for none."""
    if inputs is not None and not isinstance(inputs, Mapping):
        raise GraphError(f"inputs are a mapping from name to array, not {type(inputs).__name__}")
    return inputs or {}


def node_call(operator: Operator, tensors: Sequence[Any], attributes: dict[str, Any]) -> NodeCall:
    """Return a call of tensors in port order, scales among the other arguments as Python has them."""
    count = len(operator.spec.vendor_inputs)
    if any(scale is not None for scale in tensors[count:]):
        attributes = {**attributes, SCALES: tuple(tensors[count:])}
    return NodeCall(operator, tuple(tensors[:count]), attributes)


def _python(kind: Kind, value: Any) -> Any:
    """A node's 0 and 1 as truth values; what is neither is left for the operator to refuse."""
    if kind == "bool" and value in (0, 1):
        return bool(value)
    if kind == "bools" and isinstance(value, list):
        return [bool(entry) if entry in (0, 1) else entry for entry in value]
    return value
