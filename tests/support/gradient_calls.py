"""The same convolution as a call of every operator: name, tensors in port order and arguments."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import onnx
from drawn import Drawn, to_layout

import convreg
import convreg.onnx


class GradientCall(NamedTuple):
    """A call of one operator."""

    name: str
    tensors: tuple[np.ndarray, ...]
    arguments: dict[str, Any]

    def __str__(self) -> str:
        """The call without the numbers: comparisons take their message before they know whether they fail."""
        return f"{self.name} of {[f'{array.dtype} {array.shape}' for array in self.tensors]} with {self.arguments}"

    @property
    def model(self) -> onnx.ModelProto:
        """One node, its tensors inputs of the graph."""
        return convreg.onnx.node_model(self.name, *self.tensors, **self.arguments, as_inputs=True)

    @property
    def feeds(self) -> dict[str, np.ndarray]:
        """Values of the graph's inputs."""
        spec = convreg.get(self.name).spec
        return {port.name: array for port, array in zip(spec.inputs, self.tensors, strict=False)}


def slack(case: Drawn) -> tuple[int, ...]:
    """Elements of the large side beyond the last position, per axis: the output_padding of a transposed convolution."""
    axes = zip(case.large[2:], case.small[2:], case.weights[2:], case.stride, case.dilation, case.begin, case.end,
               strict=True)
    return tuple(x - (s * (y - 1) + (k - 1) * d + 1 - pb - pe) for x, y, k, s, d, pb, pe in axes)


def single(case: Drawn, make, layouts: tuple[str, str] = ("NCX", "OIX")) -> list[GradientCall]:
    """Calls of the operators that make one gradient, in any layout; `make` fills a shape."""
    x, w, dy = (make(shape) for shape in (case.large, case.weights, case.small))
    data_format, weights_format = layouts
    turned = {"OIX": "IOX", "XIO": "XOI"}[weights_format]
    x_, dy_, w_ = to_layout(x, data_format), to_layout(dy, data_format), to_layout(w, weights_format)
    common = {**case.attributes, "groups": case.groups, "data_format": data_format}
    direct, transposed = {**common, "weights_format": weights_format}, {**common, "weights_format": turned}
    return [
        GradientCall("onednn::ConvolutionBackwardData", (dy_, w_), {**direct, "dst_shape": list(x_.shape)}),
        GradientCall("onednn::ConvolutionBackwardWeights", (x_, dy_), {**direct, "weights_shape": list(w_.shape)}),
        GradientCall("onednn::ConvTransposeBackwardData", (x_, w_), transposed),
        GradientCall("onednn::ConvTransposeBackwardWeights", (dy_, x_), {
            **transposed, "weights_shape": list(w_.shape)}),
        GradientCall("openvino::ConvolutionBackpropData", (dy_, w_), {
            **common, "filter_format": weights_format, "output_shape": list(case.large[2:]),
            "conformance": "openvino"}),
    ]


def forward(case: Drawn, make) -> list[GradientCall]:
    """Calls of the forward operators, with a bias."""
    common = {**case.attributes, "groups": case.groups, "data_format": "NCX"}
    return [
        GradientCall("onednn::Convolution", (make(case.large), make(case.weights), make(case.small[1:2])),
                     {**common, "weights_format": "OIX"}),
        GradientCall("onednn::ConvTranspose", (make(case.small), make(case.weights), make(case.large[1:2])),
                     {**common, "weights_format": "IOX", "output_padding": slack(case)}),
    ]


def together(case: Drawn, make, mask: tuple[bool, bool, bool], transposed: bool) -> list[GradientCall]:
    """Calls of the operators that make all gradients, for equal pads on both sides; ConvGrad makes all three."""
    x, w, dy = (make(shape) for shape in (case.large, case.weights, case.small))
    data, grad = (dy, x) if transposed else (x, dy)
    arguments = {"bias_sizes": [grad.shape[1]], "stride": case.stride, "padding": case.begin, "dilation": case.dilation,
                 "transposed": transposed, "output_padding": slack(case) if transposed else (0,) * len(case.stride),
                 "groups": case.groups, "output_mask": mask}
    grouped = w.reshape(case.groups, -1, *w.shape[1:])
    return [
        GradientCall("aten::convolution_backward", (grad, data, w), arguments),
        GradientCall("ascend::ConvolutionBackward", (grad, data, w), arguments),
        GradientCall("microsoft::ConvGrad", (dy, x, w), {
            "strides": case.stride, "dilations": case.dilation, "pads": [*case.begin, *case.end],
            "group": case.groups}),
        GradientCall("openvino::GroupConvolutionBackpropData", (dy, grouped), {
            **case.attributes, "output_padding": slack(case)}),
    ]
