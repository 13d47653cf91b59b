"""Nodes of ONNX models as cases: nodes of convreg's operators, and the gradients of Conv and ConvTranspose.

So a forward model gives the gradients of its layers with respect to data and weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...calls.binding import asking, make_call, plan_of
from ...calls.signature import SCALES
from ...errors import GraphError, OpError
from ...formats import FORMATS, format_of
from ...layers import Layer
from ...memory import Array
from ...spec import OpSpec, TensorType, snake_case
from ..record import Case, Operand

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

RUN = "inputs= (--input in a shell) for a run of the model"
"""What tells operands that the model alone does not state."""


class _Node(NamedTuple):
    """A node that is a case or two: its operands in port order, attributes by the vendor's names."""

    node: NodeProto
    spec: OpSpec
    operands: Sequence[Operand | None]
    attributes: dict[str, Any]
    wanted: tuple[bool, ...]


def of_model(model: ModelProto | str, file: str, inputs: Mapping[str, Any] | None = None) -> Iterator[Case]:
    """Yield the cases of a model in the order of its nodes.

    Parameters
    ----------
    model : onnx.ModelProto or path
    file : str
        What errors call it.
    inputs : mapping, optional
        Input name -> array. The model is run on them, and the cases hold the operands that occur. Otherwise shapes are
        inferred, and the cases hold the values of constants alone. Nodes of subgraphs are found only by a run.
    """
    from ...onnx.graph import place

    nodes = _inferred(model, file) if inputs is None else _observed(model, inputs)
    found = False
    for entry in nodes:
        found = True
        try:
            yield from _cases(entry)
        except OpError as error:
            raise GraphError(f"{file}, {place(entry.node)}: {error}") from None
    if not found:
        raise GraphError(f"{file} has no node that is a convolution, a gradient or another operator here; needed: such "
                         "a node")


def _observed(model: ModelProto | str, inputs: Mapping[str, Any]) -> Iterator[_Node]:
    """Run a model and yield its nodes with the arrays of the first time that each runs."""
    from ...onnx.execution.evaluator import ObservedCall
    from ...onnx.execution.session import Session

    calls: dict[str, ObservedCall] = {}

    def observe(call: ObservedCall) -> None:
        calls.setdefault(_name(call.node), call)

    Session(model, observer=observe).run(inputs)
    for call in calls.values():
        attributes = dict(call.attributes)
        if call.conformance is not None:
            attributes["conformance"] = call.conformance
        yield _Node(call.node, call.spec, [None if array is None else _given(array) for array in call.inputs],
                    attributes, call.wanted)


def _inferred(model: ModelProto | str, file: str) -> Iterator[_Node]:
    """Yield the nodes of a model's main graph with inferred shapes; local functions are inlined."""
    from ... import registry
    from ...onnx import infer_shapes
    from ...onnx.graph import attributes_of, flattened, place, scope_of
    from ...onnx.model.tensor_data import array_of
    from ...onnx.standard import STANDARD

    whole = infer_shapes(flattened(_opened(model)))
    scope = scope_of(whole.graph)
    constants = {tensor.name: array_of(tensor) for tensor in whole.graph.initializer}
    versions = {opset.domain: opset.version for opset in whole.opset_import}
    for node in whole.graph.node:
        if (node.domain, node.op_type) == ("", "Constant"):
            constants |= _constant(node)
            continue
        spec = STANDARD.get((node.domain, node.op_type))
        if spec is None:
            operator = registry.find_node(node.domain, node.op_type, versions.get(node.domain))
            if operator is None:
                continue
            spec = operator.spec
        operands: list[Operand | None] = []
        for place_of_input, name in enumerate(node.input):
            known = scope.get(name)
            if name in constants:
                operands.append(_given(constants[name]))
            elif not name:
                operands.append(None)
            elif place_of_input < len(spec.inputs) and spec.inputs[place_of_input].shape:
                raise GraphError(f"{file}, {place(node)}: the model computes the value of {name!r}; needed: a "
                                 f"constant, or {RUN}")
            elif known is None or known.shape is None or known.dtype is None or not all(
                    isinstance(extent, int) for extent in known.shape):
                raise GraphError(f"{file}, {place(node)}: the shape of {name!r} is not known ({known}); needed: a "
                                 f"model with fixed shapes, or {RUN}")
            else:
                operands.append(Operand(tuple(map(int, known.shape)), _format(known.dtype)))
        yield _Node(node, spec, operands, attributes_of(node),
                    tuple(index < len(node.output) and bool(node.output[index]) for index in range(len(spec.outputs))))


def _opened(model: ModelProto | str) -> ModelProto:
    from ...onnx.model.files import opened

    return opened(model)


def _constant(node: NodeProto) -> dict[str, Array]:
    """Return the value of a Constant node, where an operand can be it."""
    from onnx import numpy_helper

    (name,) = node.output
    values = [numpy_helper.to_array(proto.t) if proto.name == "value" else np.array(proto.ints)
              for proto in node.attribute if proto.name in ("value", "value_ints")]
    return dict.fromkeys([name], *values) if values else {}


def _name(node: NodeProto) -> str:
    return node.name or next(filter(None, node.output))


def _format(dtype: np.dtype[Any]) -> str:
    known = format_of(dtype)
    return known.name if known else str(dtype)


def _given(array: Any) -> Operand:
    array = np.asarray(array)
    return Operand(array.shape, _format(array.dtype), values=array)


def _cases(entry: _Node) -> Iterator[Case]:
    if entry.spec.vendor == "onnx":
        yield from _gradients(entry)
        return
    from ...onnx import payload

    spec, attributes = entry.spec, dict(entry.attributes)
    conformance = attributes.pop("conformance", None) if len(spec.conformances) > 1 else None
    operands = [*entry.operands, *[None] * (len(spec.inputs) - len(entry.operands))]
    if payload.may_carry(spec):
        call = asking(spec, spec.conformances[0])
        stated = payload.stated_types(call, attributes.pop(payload.ATTRIBUTE, None))
        operands = [_carried(operand, format) for operand, format in zip(operands, stated, strict=True)]
    if spec.convolution.mask:
        name = spec.convolution.mask
        mask = attributes.get(name, (True,) * len(entry.wanted))
        attributes[name] = [bool(asked) and named for asked, named in zip(mask, entry.wanted, strict=False)]
    count = len(spec.vendor_inputs)
    ports = zip((snake_case(port.name) for port in spec.vendor_inputs), operands[:count], strict=True)
    arguments = {snake_case(name): _python(spec, name, value) for name, value in attributes.items()}
    scales = operands[count:]
    if any(scale is not None for scale in scales):
        arguments[SCALES] = tuple(None if scale is None else _known(scale, entry.node) for scale in scales)
    yield Case(_name(entry.node), spec.qualified_name,
               {name: operand for name, operand in ports if operand is not None}, arguments, conformance,
               {"node": _name(entry.node)})


def _known(scale: Operand, node: NodeProto) -> Array:
    """Return the values of a scale, which belong to the call and are not drawn."""
    if scale.values is None:
        raise GraphError(f"node {_name(node)!r}: the model computes a scale; needed: a constant, or {RUN}")
    return scale.values


def _python(spec: OpSpec, name: str, value: Any) -> Any:
    """Return an attribute as Python has it: graphs have 0 and 1 for truth values."""
    kind = next((attribute.kind for attribute in spec.attributes if attribute.name == name), "")
    if kind == "bool":
        return bool(value)
    return [bool(entry) for entry in value] if kind == "bools" else value


def _carried(operand: Operand | None, format: str) -> Operand | None:
    """Return an operand in the format that its node states, whose codes the model may hold as bytes."""
    if operand is None or not format or operand.format == format:
        return operand
    values = operand.values
    return Operand(operand.shape, format, values=None if values is None else values.view(FORMATS[format].dtype))


def _gradients(entry: _Node) -> Iterator[Case]:
    """Yield the gradients of a standard convolution with respect to data and weights."""
    data, weights = [*entry.operands, None, None][:2]
    if data is None or weights is None:
        raise GraphError(f"{entry.spec.name} node {_name(entry.node)!r} lacks data or weights; needed: both")
    tensors = tuple(None if operand is None else TensorType(operand.shape, operand.format)
                    for operand in entry.operands)
    plan = plan_of(make_call(entry.spec, entry.spec.conformances[0], tensors, {}, entry.attributes))
    transposed = entry.spec.name == "ConvTranspose"
    layer = Layer(_name(entry.node), plan.integers, transposed)
    shapes = layer.shapes._asdict()
    known = {"taps": weights, "small" if transposed else "large": data}
    for direction, names in (("data", ("diff_dst", "weights")), ("weights", ("src", "diff_dst"))):
        operator, sides, attributes = layer.call(direction, "ncx")
        inputs = {name: known.get(side) or Operand(shapes[side], data.format)
                  for name, side in zip(names, sides, strict=True)}
        yield Case(f"{layer.name}-{direction}", f"onednn::{operator}", inputs, attributes, None,
                   {"node": layer.name, "op_type": entry.spec.name, "gradient": direction})
