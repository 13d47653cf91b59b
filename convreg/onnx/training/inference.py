"""Inference and checks of models with large parameters, of which only the types matter: their data is left out."""

from __future__ import annotations

from collections.abc import Iterable

from onnx import GraphProto, ModelProto, TensorProto, ValueInfoProto, helper

from ..graph import dtype_of
from ..model.checks import check_opened, types_of

SMALL = 4096
"""Bytes of a tensor that inference may read, such as a shape or scales."""


def typed(model: ModelProto) -> ModelProto:
    """Return a copy of an opened model, or of one made of it, with the types and shapes that inference finds.

    Raises
    ------
    GraphError
        As `convreg.onnx.infer_shapes`.
    """
    bare, hidden = _bare(model)
    _show_shapes(bare.graph)
    known = types_of(bare).graph
    whole = ModelProto()
    whole.CopyFrom(model)
    for field, values in ((whole.graph.value_info, known.value_info), (whole.graph.output, known.output)):
        del field[:]
        field.extend(value for value in values if value.name not in hidden)
    return whole


def check_typed(model: ModelProto) -> None:
    """Check an opened model in full.

    Raises
    ------
    GraphError
        As `convreg.onnx.check`.
    """
    check_opened(_bare(model)[0])


def _show_shapes(graph: GraphProto) -> None:
    """Let inference find the shape of GroupNormalization, which onnx leaves open: it sees an Identity of x."""
    for node in graph.node:
        if node.op_type == "GroupNormalization" and node.domain == "" and len(node.input) == 3:
            node.op_type = "Identity"
            del node.input[1:]
            del node.attribute[:]


def _bare(model: ModelProto) -> tuple[ModelProto, set[str]]:
    """The model with large floating-point initializers as inputs, and their names."""
    bare = ModelProto()
    bare.CopyFrom(model)
    del bare.graph.initializer[:]
    inputs = {value.name for value in model.graph.input}
    outputs = {value.name for value in model.graph.output}
    hidden = []
    for tensor in model.graph.initializer:
        kind = dtype_of(tensor.data_type)
        large = len(tensor.raw_data) > SMALL or len(tensor.float_data) > SMALL or len(tensor.double_data) > SMALL
        if large and kind is not None and kind.kind not in "iub" and tensor.name not in inputs | outputs:
            hidden.append(tensor)
        else:
            bare.graph.initializer.append(tensor)
    bare.graph.input.extend(_inputs(hidden))
    return bare, {tensor.name for tensor in hidden}


def _inputs(tensors: Iterable[TensorProto]) -> list[ValueInfoProto]:
    return [helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)) for tensor in tensors]
