"""Shapes of poolings that round up: before version 22, onnx also counts windows that start in the padding at the end.

No runtime computes those windows, so the shapes would contradict what a run makes.
"""

from __future__ import annotations

from onnx import TensorProto, helper
from onnx.shape_inference import InferenceContext

from ...errors import GraphError
from ..graph import attribute_value, dims_of
from ..pool_windows import placed

POOLS = ("AveragePool", "LpPool", "MaxPool")

VERSION = 22
"""The first version of standard ONNX whose own inference of these operators is right."""

ATTRIBUTES = ("kernel_shape", "strides", "dilations", "pads", "auto_pad", "ceil_mode")


def infer_pool(context: InferenceContext) -> None:
    """Set the types of a pooling's outputs."""
    kind = context.get_input_type(0)
    if kind is None or not kind.tensor_type.elem_type:
        return
    shape = dims_of(kind.tensor_type.shape) if kind.tensor_type.HasField("shape") else None
    made: list[int | str | None] | None = None
    if shape is not None:
        attributes = {name: attribute_value(proto) for name in ATTRIBUTES
                      if (proto := context.get_attribute(name)) is not None and not proto.ref_attr_name}
        try:
            made = [*shape[:2], *(axis and axis.windows for axis in placed(shape[2:], attributes))]
        except GraphError as error:
            raise GraphError(f"{context.get_display_name()}: {error}") from error
    for index, element in enumerate((kind.tensor_type.elem_type, TensorProto.INT64)[: context.get_num_outputs()]):
        if context.has_output(index):
            context.set_output_type(index, helper.make_tensor_type_proto(element, made))
