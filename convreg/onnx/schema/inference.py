"""Type and shape inference of our nodes: a fully known call is planned by the rule that runs it, others are inferred.

The value of an input that states a shape comes from a constant, else symbolically (``data_prop=True``), else from the
attribute of the same name; without any of them only what the operator's `infer` knows is set.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import AttributeProto, TypeProto, helper, numpy_helper
from onnx.shape_inference import InferenceContext

from ...calls.arguments import shape_value
from ...calls.binding import asking, check_declared, check_results, judged, make_call, plan_of
from ...errors import OpError, add_note
from ...formats import format_of
from ...spec import OpSpec, Port, Shape, TensorType
from .. import payload
from ..graph import attribute_value, dims_of, dtype_of


class _Unknown(Exception):
    """Something that the rules need is not known before the graph runs."""


def inference_of(spec: OpSpec) -> Callable[[InferenceContext], None]:
    """Return the inference function of an operator's schema.

    It raises `OpError` with the node's name as a note; onnx lets the exception through to the caller.
    """

    def infer(context: InferenceContext) -> None:
        try:
            outputs = judged(spec, _conformance(spec, context), lambda chosen: _infer(spec, context, chosen))
        except _Unknown:
            return
        except OpError as error:
            add_note(error, f"in {context.get_display_name()}")
            raise
        for index, output in enumerate(outputs[: context.get_num_outputs()]):
            if output is not None and context.has_output(index):
                context.set_output_type(index, _type_proto(output))

    return infer


def _infer(spec: OpSpec, context: InferenceContext, conformance: str) -> tuple[TensorType | None, ...]:
    tensors: list[TensorType | None] = []
    stated: dict[str, Shape | None] = {}
    complete = True
    before = asking(spec, conformance)
    types = context.get_attribute(payload.ATTRIBUTE) if payload.may_carry(spec) else None
    formats = payload.stated_types(before, None if types is None else _value(types))
    for index, port in enumerate(spec.inputs):
        present = index < context.get_num_inputs() and context.has_input(index)
        tensors.append(payload.typed(before, port.name, _tensor_type(context.get_input_type(index)), formats[index])
                       if present and not port.shape else None)
        if port.shape:
            stated[port.name] = _stated(spec, conformance, port, context, index) if present else None
            if present and stated[port.name] is None:
                complete = False
                if context.get_attribute(port.name) is None:
                    stated[port.name] = _unread(context, index)
        elif not present and not port.optional:
            rule = spec.rules_under(conformance).missing_input
            raise before.refuse(port.name, None, "a tensor", rule, wrong_type=True)
    attributes = {name: _value(proto) for name in _names(spec) if (proto := context.get_attribute(name)) is not None}
    named = range(context.get_num_outputs())
    wanted = tuple(index in named and context.has_output(index) for index in range(len(spec.outputs)))
    call = make_call(spec, conformance, tuple(tensors), stated, attributes, wanted=wanted)
    shapes = [tensor.shape for tensor in tensors if tensor is not None]
    shapes += [call[port.name] for port in spec.shape_ports if call[port.name] is not None]
    if complete and all(shape is not None and all(isinstance(extent, int) for extent in shape) for shape in shapes):
        return plan_of(call).outputs
    check_declared(call)
    inferred = spec.infer(call)
    check_results(call, "infer", inferred)
    return inferred


def _conformance(spec: OpSpec, context: InferenceContext) -> str | None:
    proto = context.get_attribute("conformance") if len(spec.conformances) > 1 else None
    return None if proto is None else _value(proto)


def _names(spec: OpSpec) -> list[str]:
    return [*(attribute.name for attribute in spec.attributes),
            *(port.name for port in spec.shape_ports if port.attribute)]


def _value(proto: AttributeProto) -> Any:
    if proto.ref_attr_name:
        raise _Unknown  # inside a function whose caller is not known
    return attribute_value(proto)


def _stated(
    spec: OpSpec, conformance: str, port: Port, context: InferenceContext, index: int
) -> Shape | None:
    """Extents that a shape input states, as far as they are known before the graph runs."""
    before, rules = asking(spec, conformance), spec.rules_under(conformance)
    constant = context.get_input_data(index)
    if constant is not None:
        return shape_value(before, rules, port, numpy_helper.to_array(constant))
    element = context.get_input_type(index).tensor_type.elem_type
    if element:
        shape_value(before, rules, port, np.zeros(0, dtype_of(element) or np.void))
    symbolic = context.get_symbolic_input(index)
    return None if symbolic is None else dims_of(symbolic)


def _unread(context: InferenceContext, index: int) -> Shape:
    """Unknown extents for a stated shape that only the run will tell: it is no absent one, which has a meaning."""
    for proto, counts in ((context.get_input_type(index), False), (context.get_input_type(0), True)):
        if proto is not None and proto.tensor_type.HasField("shape"):
            dims = dims_of(proto.tensor_type.shape)
            if counts or (len(dims) == 1 and isinstance(dims[0], int)):
                return (None,) * (len(dims) if counts else dims[0])
    raise _Unknown


def _tensor_type(proto: TypeProto | None) -> TensorType:
    if proto is None or not proto.tensor_type.elem_type:
        raise _Unknown
    dtype = dtype_of(proto.tensor_type.elem_type)
    known = None if dtype is None else format_of(dtype)
    shape = dims_of(proto.tensor_type.shape) if proto.tensor_type.HasField("shape") else None
    return TensorType(shape, known.name if known else str(dtype))


def _type_proto(tensor: TensorType) -> TypeProto:
    element = payload.element_of(tensor.format)
    if tensor.shape is None:
        return helper.make_tensor_type_proto(element, None)
    # an impossible extent beside unknown ones is refused once all are known
    return helper.make_tensor_type_proto(element, [
        None if isinstance(extent, int) and extent < 0 else extent for extent in tensor.shape])
