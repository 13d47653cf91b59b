"""Write training_step.onnx: one step of SGD on a residual block, whose gradients are convreg nodes of four dialects.

The block halves an image, adds a grouped convolution of it to a strided shortcut, and a transposed convolution brings
it back to size; the loss is the mean squared distance from a target. Forward pass, loss and update are standard ONNX.

============  ============================================  ==================================================
convolution   what it is                                    its gradients are nodes of
============  ============================================  ==================================================
``down``      3x3, stride 2                                 oneDNN (data), Ascend (weight and bias)
``grouped``   3x3 in four groups                            ATen (data, weight and bias in one node)
``shortcut``  1x1, stride 2                                 OpenVINO (data), oneDNN (weight)
``up``        transposed, 4x4, stride 2                     oneDNN (data, weight)
============  ============================================  ==================================================

Parameters enter by name and leave with ``.next`` appended; ``x.gradient`` is for whatever lies before the block.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

MODEL = Path(__file__).with_name("training_step.onnx")
OPSET, IR_VERSION = 21, 10  # old enough for every runtime in use
DOMAINS = {"": OPSET, "convreg.ascend": 1, "convreg.aten": 1, "convreg.onednn": 1, "convreg.openvino": 1}
IMAGE = ("batch", 8, 16, 16)

PARAMETERS = {
    "down.weight": (16, 8, 3, 3),
    "down.bias": (16,),
    "grouped.weight": (16, 4, 3, 3),
    "grouped.bias": (16,),
    "shortcut.weight": (16, 8, 1, 1),
    "up.weight": (16, 8, 4, 4),
}

GRIDS: dict[str, dict[str, Any]] = {
    "down": {"strides": [2, 2], "pads": [1, 1, 1, 1]},
    "grouped": {"pads": [1, 1, 1, 1], "group": 4},
    "shortcut": {"strides": [2, 2]},
    "up": {"strides": [2, 2], "pads": [1, 1, 1, 1]},
}
"""The convolutions' attributes in standard ONNX."""


def node(op_type: str, inputs: list[str], outputs: list[str], domain: str = "", **attributes: Any) -> onnx.NodeProto:
    """Return a node named after its first output."""
    return helper.make_node(op_type, inputs, outputs, next(filter(None, outputs)), domain=domain, **attributes)


def forward() -> list[onnx.NodeProto]:
    """x, target -> y, loss, and the loss's gradient with respect to y: 2 (y - target) / elements."""
    return [
        node("Conv", ["x", "down.weight", "down.bias"], ["down"], kernel_shape=[3, 3], **GRIDS["down"]),
        node("Relu", ["down"], ["relu1"]),
        node("Conv", ["relu1", "grouped.weight", "grouped.bias"], ["grouped"], kernel_shape=[3, 3], **GRIDS["grouped"]),
        node("Conv", ["x", "shortcut.weight"], ["shortcut"], kernel_shape=[1, 1], **GRIDS["shortcut"]),
        node("Add", ["grouped", "shortcut"], ["sum"]),
        node("Relu", ["sum"], ["relu2"]),
        node("ConvTranspose", ["relu2", "up.weight"], ["y"], kernel_shape=[4, 4], **GRIDS["up"]),
        node("Sub", ["y", "target"], ["distance"]),
        node("Mul", ["distance", "distance"], ["squares"]),
        node("ReduceMean", ["squares"], ["loss"], keepdims=0),
        node("Size", ["distance"], ["elements"]),
        node("Cast", ["elements"], ["elements.float"], to=TensorProto.FLOAT),
        node("Div", ["two", "elements.float"], ["scale"]),
        node("Mul", ["distance", "scale"], ["y.gradient"]),
    ]


def relu_backward(output: str, gradient: str, result: str) -> list[onnx.NodeProto]:
    """Pass the gradient where the activation was positive."""
    return [node("Sign", [output], [f"{output}.sign"]), node("Mul", [gradient, f"{output}.sign"], [result])]


def backward() -> list[onnx.NodeProto]:
    """y.gradient -> the gradients of x and of every parameter."""
    plain: dict[str, Any] = {"dilations": [1, 1], "data_format": "NCX"}
    strided: dict[str, Any] = {"strides": [2, 2], "pads_begin": [1, 1], "pads_end": [1, 1], **plain}
    corners: dict[str, Any] = {"strides": [2, 2], "pads_begin": [0, 0], "pads_end": [0, 0], **plain}
    onednn, openvino = "convreg.onednn", "convreg.openvino"
    return [
        node("ConvTransposeBackwardData", ["y.gradient", "up.weight"], ["relu2.gradient"], onednn,
             **strided, weights_format="IOX"),
        node("ConvTransposeBackwardWeights", ["relu2", "y.gradient"], ["up.weight.gradient"], onednn,
             weights_shape=PARAMETERS["up.weight"], **strided, weights_format="IOX"),
        *relu_backward("relu2", "relu2.gradient", "sum.gradient"),
        node("convolution_backward", ["sum.gradient", "relu1", "grouped.weight"],
             ["relu1.gradient", "grouped.weight.gradient", "grouped.bias.gradient"], "convreg.aten",
             bias_sizes=[16], stride=[1, 1], padding=[1, 1], dilation=[1, 1], transposed=0, output_padding=[0, 0],
             groups=4, output_mask=[1, 1, 1]),
        node("ConvolutionBackwardWeights", ["x", "sum.gradient"], ["shortcut.weight.gradient"], onednn,
             weights_shape=PARAMETERS["shortcut.weight"], **corners, weights_format="OIX"),
        node("ConvolutionBackpropData", ["sum.gradient", "shortcut.weight"], ["x.gradient.shortcut"], openvino,
             output_shape=IMAGE[2:], conformance="openvino", **corners, filter_format="OIX"),
        *relu_backward("relu1", "relu1.gradient", "down.gradient"),
        node("ConvolutionBackward", ["down.gradient", "x", "down.weight"],
             ["", "down.weight.gradient", "down.bias.gradient"], "convreg.ascend",
             stride=[2, 2], padding=[1, 1], dilation=[1, 1], outputMask=[0, 1, 1]),
        node("Shape", ["x"], ["x.shape"]),
        node("Cast", ["x.shape"], ["x.shape.int32"], to=TensorProto.INT32),
        node("ConvolutionBackwardData", ["down.gradient", "down.weight", "x.shape.int32"], ["x.gradient.down"], onednn,
             **strided, weights_format="OIX"),
        node("Add", ["x.gradient.down", "x.gradient.shortcut"], ["x.gradient"]),
    ]


def update(parameter: str) -> list[onnx.NodeProto]:
    """parameter' = parameter - learning_rate * gradient."""
    return [
        node("Mul", ["learning_rate", f"{parameter}.gradient"], [f"{parameter}.step"]),
        node("Sub", [parameter, f"{parameter}.step"], [f"{parameter}.next"]),
    ]


def build() -> onnx.ModelProto:
    """Return the model."""
    def tensor(name: str, shape: tuple[Any, ...] = ()) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    nodes = [*forward(), *backward(), *(made for parameter in PARAMETERS for made in update(parameter))]
    inputs = [tensor("x", IMAGE), tensor("target", IMAGE), tensor("learning_rate")]
    inputs += [tensor(name, shape) for name, shape in PARAMETERS.items()]
    outputs = [tensor("loss"), tensor("y", IMAGE), tensor("x.gradient", IMAGE)]
    outputs += [tensor(f"{name}.next", shape) for name, shape in PARAMETERS.items()]
    constants = [numpy_helper.from_array(np.array(2, np.float32), "two")]
    summary = "One step of SGD on a residual block; the gradients of its convolutions are convreg nodes."
    return helper.make_model(
        helper.make_graph(nodes, "residual_training_step", inputs, outputs, constants, summary),
        opset_imports=[helper.make_opsetid(domain, version) for domain, version in DOMAINS.items()],
        ir_version=IR_VERSION,
        producer_name="convreg",
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", type=Path, nargs="?", default=MODEL, help="the file to write (default: %(default)s)")
    path = parser.parse_args().path
    onnx.save(build(), path)
    print(f"{path}: {path.stat().st_size} bytes")
