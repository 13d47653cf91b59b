"""Small ONNX models for the tests: versions every runtime reads, all of convreg's domains imported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import FunctionProto, ModelProto, NodeProto, ValueInfoProto, helper, numpy_helper

import convreg.onnx

OPSETS = [helper.make_opsetid("", 22), *(
    helper.make_opsetid(domain, 1) for domain in
    ("convreg.onednn", "convreg.openvino", "convreg.aten", "convreg.ascend", "com.microsoft", "local", "convreg"))]
SAME_3X3 = {"strides": [1, 1], "pads_begin": [1, 1], "pads_end": [1, 1], "dilations": [1, 1], "data_format": "NCX",
            "weights_format": "OIX"}


def value(name: str, shape: Sequence[int | str | None] | None = None, dtype: Any = np.float32) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)


def model(
    nodes: Sequence[NodeProto], inputs: Sequence[ValueInfoProto], outputs: Sequence[ValueInfoProto],
    constants: Mapping[str, Any] | None = None, functions: Sequence[FunctionProto] = (),
) -> ModelProto:
    held = [numpy_helper.from_array(np.asarray(array), name) for name, array in (constants or {}).items()]
    graph = helper.make_graph(list(nodes), "graph", list(inputs), list(outputs), held)
    return helper.make_model(graph, ir_version=10, opset_imports=OPSETS, functions=list(functions))


def checked_shapes(whole: ModelProto) -> dict[str, list[int | str]]:
    """The shapes that strict inference finds in a model which passes every check."""
    convreg.onnx.check(whole)
    onnx.checker.check_model(whole, full_check=True)
    inferred = onnx.shape_inference.infer_shapes(whole, check_type=True, strict_mode=True, data_prop=True)
    return {found.name: [dim.dim_param or dim.dim_value for dim in found.type.tensor_type.shape.dim]
            for found in inferred.graph.value_info}


def data_gradient(inputs: Sequence[str], output: str = "dx", name: str = "gradient", **attributes: Any) -> NodeProto:
    """A 3x3 ConvolutionBackwardData node."""
    return helper.make_node("ConvolutionBackwardData", list(inputs), [output], name=name, domain="convreg.onednn",
                            **{**SAME_3X3, **attributes})
