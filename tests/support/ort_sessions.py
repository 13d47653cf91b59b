"""Calls of every operator as models, and sessions of onnxruntime with the operator library in them."""

from __future__ import annotations

import numpy as np
from drawn import dyadic, normal
from graphs import SAME_3X3, data_gradient, value
from graphs import model as newest_model
from onnx import ModelProto, helper

import convreg
import convreg.onnx
from convreg.onnx import ort_library

RNG = np.random.default_rng(0)
X, W, DY = (1, 4, 6, 5), (6, 2, 3, 3), (1, 6, 3, 3)  # two groups, stride 2, pads 1
NCX = {"data_format": "NCX", "weights_format": "OIX"}
STEP = {"strides": [2, 2], "pads_begin": [1, 1], "pads_end": [1, 1], "dilations": [1, 1]}
PYTORCH = {"stride": [2, 2], "padding": [1, 1], "dilation": [1, 1], "groups": 2}
ONEDNN = {**STEP, **NCX, "groups": 2}
TRANSPOSED = {**STEP, "data_format": "NCX", "groups": 2}

CALLS = {
    "ascend::ConvolutionBackward": ((DY, X, W), PYTORCH),
    "aten::convolution_backward": ((DY, X, W), {
        **PYTORCH, "bias_sizes": [6], "transposed": False, "output_padding": [0, 0], "output_mask": [True] * 3}),
    "microsoft::ConvGrad": ((DY, X, W), {"strides": [2, 2], "pads": [1, 1, 1, 1], "group": 2}),
    "onednn::Convolution": ((X, W, (6,)), ONEDNN),
    "onednn::ConvolutionBackwardData": ((DY, W), {**ONEDNN, "dst_shape": X}),
    "onednn::ConvolutionBackwardWeights": ((X, DY), {**ONEDNN, "weights_shape": W}),
    "onednn::ConvTranspose": ((DY, W, (4,)), {**TRANSPOSED, "weights_format": "IOX", "output_padding": [1, 0]}),
    "onednn::ConvTransposeBackwardData": ((X, W), {**TRANSPOSED, "weights_format": "IOX"}),
    "onednn::ConvTransposeBackwardWeights": ((DY, X), {
        **TRANSPOSED, "weights_format": "IOX", "weights_shape": W}),
    "openvino::ConvolutionBackpropData": (((1, 6, 3, 3), (6, 4, 3, 3)), {
        **STEP, "data_format": "NCX", "filter_format": "OIX", "output_shape": X}),
    "openvino::GroupConvolutionBackpropData": ((DY, (2, 3, 2, 3, 3)), {**STEP, "output_shape": X[2:]}),
}
"""Shapes of the tensors and attributes of one call of every operator."""


def older(made: ModelProto) -> ModelProto:
    """In the standard operators that the oldest onnxruntime has; the nodes here are the same in both."""
    made.opset_import[0].version = 21
    return made


def model(*parts, **kwargs) -> ModelProto:
    return older(newest_model(*parts, **kwargs))


def options():
    import onnxruntime

    made = onnxruntime.SessionOptions()
    made.register_custom_ops_library(ort_library())
    made.log_severity_level = 4
    return made


def session(made: ModelProto):
    """A session of onnxruntime itself; ConvGrad moves to where the library has it."""
    copy = ModelProto()
    copy.CopyFrom(older(made))
    for node in copy.graph.node:
        if node.domain == "com.microsoft":
            node.domain = "convreg.microsoft"
    copy.opset_import.append(helper.make_opsetid("convreg.microsoft", 1))
    import onnxruntime

    return onnxruntime.InferenceSession(copy.SerializeToString(), options(), providers=["CPUExecutionProvider"])


def same(results, expected) -> None:
    """Equal to the bit, absent ones left out."""
    expected = [array for array in (expected if isinstance(expected, tuple) else (expected,)) if array is not None]
    assert len(results) == len(expected)
    for result, array in zip(results, expected, strict=True):
        assert result.dtype == array.dtype
        assert result.shape == array.shape
        assert result.tobytes() == array.tobytes()


def sample(name: str, dtype: np.dtype):
    """A call of an operator as a model, what to feed it, and its results."""
    operator = convreg.get(name)
    shapes, attributes = CALLS[name]
    tensors = [dyadic(RNG, shape, dtype) if dtype.itemsize < 4 else normal(RNG, shape, dtype) for shape in shapes]
    made = older(convreg.onnx.node_model(operator, *tensors, **attributes, as_inputs=True))
    feeds = {entry.name: np.asarray(attributes[entry.name]) if entry.name in attributes else tensor for entry, tensor in
             zip(made.graph.input, [*tensors, None], strict=False)}
    return made, feeds, operator(*tensors, **attributes)


DY_3X3, W_3X3 = normal(RNG, (1, 4, 8, 8)), normal(RNG, (4, 3, 3, 3))
FREE = {"dy": value("dy", ["N", 4, "H", "W"]), "w": value("w", ["O", 3, 3, 3]), "s": value("s", [None], np.int64)}


def shaped() -> ModelProto:
    return model([data_gradient(["dy", "w", "s"])], [*FREE.values()], [value("dx", [None] * 4)])


def feeds_of(batch: int, extent: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(100 * batch + extent)
    return {"dy": normal(rng, (batch, 4, extent, extent)), "w": W_3X3, "s": np.array([batch, 3, extent, extent])}


def expected_of(feeds: dict[str, np.ndarray]) -> np.ndarray:
    return convreg.onednn.convolution_backward_data(feeds["dy"], feeds["w"], feeds["s"], **SAME_3X3)
