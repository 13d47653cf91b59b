"""Write training_step.onnx: one step of SGD with momentum on a small convolutional network, gradients included.

The forward pass, the loss and the update are standard ONNX. The gradients of the convolutions are convreg nodes: for
conv2 oneDNN's ConvolutionBackwardData and ConvolutionBackwardWeights, for conv1 Ascend's ConvolutionBackward, which
gives the bias gradient too and whose first output is left blank because nobody needs the gradient of the images.

Parameters and velocities enter by name (``conv1.weight``, ``conv1.weight.velocity``)
and leave with ``.next`` appended.

``build("hifloat8")`` and the like make the same step with every gradient in that format: activations, weights and
incoming gradients are rounded to it by convreg's Quantize, Ascend's ConvolutionBackward takes them in ``"emulation"``
and makes gradients of that format, and Dequantize hands these to an update in float32. The dense layer's products are
standard nodes on rounded numbers. The loss's gradient is multiplied by the input ``loss_scale``, which Dequantize
divides out.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

MODEL = Path(__file__).with_name("training_step.onnx")
OPSET, IR_VERSION = 22, 10  # old enough for every runtime in use
DOMAINS = {"": OPSET, "convreg.onednn": 1, "convreg.ascend": 1}
NARROW_DOMAINS = {"": OPSET, "convreg": 1, "convreg.ascend": 1}

SUMMARY = "One step of SGD with momentum on handwritten digits; the gradients of the convolutions are convreg nodes."

PARAMETERS = {
    "conv1.weight": (16, 1, 3, 3),
    "conv1.bias": (16,),
    "conv2.weight": (32, 16, 3, 3),
    "conv2.bias": (32,),
    "dense.weight": (512, 10),
    "dense.bias": (10,),
}


class Graph:
    """Nodes in order of execution, each named after its first output; `format` None leaves all numbers in float32."""

    def __init__(self, format: str | None = None) -> None:
        self.format = format
        self.made: set[str] = set()
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []

    def add(self, op_type: str, inputs: list[str], *outputs: str, domain: str = "", **attributes: Any) -> None:
        name = next(filter(None, outputs))
        self.nodes.append(helper.make_node(op_type, inputs, outputs, name=name, domain=domain, **attributes))

    def narrow(self, name: str) -> str:
        """Return the name of a value rounded to the format, as codes."""
        if name not in self.made:
            self.made.add(name)
            self.add("Quantize", [name], f"{name}.narrow", domain="convreg", format=self.format, saturate=1)
        return f"{name}.narrow"

    def rounded(self, name: str) -> str:
        """Return the name of a value rounded to the format, as float32."""
        if f"{name}.rounded" not in self.made:
            self.made.add(f"{name}.rounded")
            self.widen(self.narrow(name), f"{name}.rounded")
        return f"{name}.rounded"

    def widen(self, codes: str, output: str, *scale: str) -> None:
        """Turn codes into float32, times a scale where one is named."""
        self.add("Dequantize", [codes, *scale], output, domain="convreg", **self.operand_types(1))

    def operand_types(self, count: int) -> dict[str, list[str]]:
        """The attribute that names the format of codes that ONNX carries as bytes."""
        return {"operand_types": [self.format] * count} if self.format == "hifloat8" else {}

    def constant(self, name: str, value: Any, dtype: type) -> str:
        self.initializers.append(numpy_helper.from_array(np.array(value, dtype), name))
        return name


def forward(graph: Graph, in_format: bool = False) -> None:
    """images -> logits; `in_format` rounds the operands of every layer."""
    def operands(*names: str) -> list[str]:
        return [graph.rounded(name) for name in names] if in_format else list(names)

    graph.add("Cast", ["images"], "images.float", to=TensorProto.FLOAT)
    graph.add("Div", ["images.float", graph.constant("white", 16, np.float32)], "images.scaled")
    graph.add("Unsqueeze", ["images.scaled", graph.constant("channel_axis", [1], np.int64)], "pixels")
    graph.add("Conv", [*operands("pixels", "conv1.weight"), "conv1.bias"], "conv1",
              kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    graph.add("Relu", ["conv1"], "relu1")
    graph.add("Conv", [*operands("relu1", "conv2.weight"), "conv2.bias"], "conv2",
              kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2])
    graph.add("Relu", ["conv2"], "relu2")
    graph.add("Flatten", ["relu2"], "features", axis=1)
    graph.add("Gemm", [*operands("features", "dense.weight"), "dense.bias"], "logits")


def loss(graph: Graph) -> None:
    """logits, labels -> loss (mean cross-entropy), correct (a count), logits.gradient = (softmax - one-hot) / batch."""
    graph.add("SoftmaxCrossEntropyLoss", ["logits", "labels"], "loss", "log_probabilities", reduction="mean")
    graph.add("ArgMax", ["logits"], "predictions", axis=1, keepdims=0)
    graph.add("Equal", ["predictions", "labels"], "hits")
    graph.add("Cast", ["hits"], "hits.integer", to=TensorProto.INT64)
    graph.add("ReduceSum", ["hits.integer"], "correct", keepdims=0)

    graph.add("Exp", ["log_probabilities"], "probabilities")
    classes, off_on = graph.constant("classes", 10, np.int64), graph.constant("off_on", [0, 1], np.float32)
    graph.add("OneHot", ["labels", classes, off_on], "targets")
    graph.add("Sub", ["probabilities", "targets"], "errors")
    graph.add("Shape", ["labels"], "batch.shape")
    graph.add("Cast", ["batch.shape"], "batch", to=TensorProto.FLOAT)
    graph.add("Div", ["errors", "batch"], "logits.gradient")


def backward(graph: Graph) -> None:
    """logits.gradient -> the gradient of every parameter."""
    graph.add("Gemm", ["features", "logits.gradient"], "dense.weight.gradient", transA=1)
    graph.add("ReduceSum", ["logits.gradient", graph.constant("rows", [0], np.int64)], "dense.bias.gradient",
              keepdims=0)
    graph.add("Gemm", ["logits.gradient", "dense.weight"], "features.gradient", transB=1)
    graph.add("Shape", ["relu2"], "relu2.shape")
    graph.add("Reshape", ["features.gradient", "relu2.shape"], "relu2.gradient")
    relu_backward(graph, "relu2", "conv2")

    conv2: dict[str, Any] = {"strides": [2, 2], "pads_begin": [1, 1], "pads_end": [1, 1], "dilations": [1, 1],
                             "data_format": "NCX", "weights_format": "OIX", "domain": "convreg.onednn"}
    graph.add("ConvolutionBackwardWeights", ["relu1", "conv2.gradient"], "conv2.weight.gradient",
              weights_shape=PARAMETERS["conv2.weight"], **conv2)
    graph.add("ReduceSum", ["conv2.gradient", graph.constant("all_but_channels", [0, 2, 3], np.int64)],
              "conv2.bias.gradient", keepdims=0)
    graph.add("Shape", ["relu1"], "relu1.shape")
    graph.add("Cast", ["relu1.shape"], "relu1.shape.int32", to=TensorProto.INT32)
    graph.add("ConvolutionBackwardData", ["conv2.gradient", "conv2.weight", "relu1.shape.int32"],
              "relu1.gradient", **conv2)
    relu_backward(graph, "relu1", "conv1")

    graph.add("ConvolutionBackward", ["conv1.gradient", "pixels", "conv1.weight"],
              "", "conv1.weight.gradient", "conv1.bias.gradient", domain="convreg.ascend",
              stride=[1, 1], padding=[1, 1], dilation=[1, 1], outputMask=[0, 1, 1])


def backward_in_format(graph: Graph) -> None:
    """The same with every operand and every result in the graph's format; the loss's gradient is scaled up before."""
    graph.add("Mul", ["logits.gradient", "loss_scale"], "logits.gradient.scaled")
    graph.add("Reciprocal", ["loss_scale"], "unscale")
    gradient = graph.rounded("logits.gradient.scaled")
    graph.add("Gemm", [graph.rounded("features"), gradient], "dense.weight.sum", transA=1)
    graph.add("ReduceSum", [gradient, graph.constant("rows", [0], np.int64)], "dense.bias.sum", keepdims=0)
    for parameter in ("dense.weight", "dense.bias"):
        graph.widen(graph.narrow(f"{parameter}.sum"), f"{parameter}.gradient", "unscale")
    graph.add("Gemm", [gradient, graph.rounded("dense.weight")], "features.gradient", transB=1)
    graph.add("Shape", ["relu2"], "relu2.shape")
    graph.add("Reshape", ["features.gradient", "relu2.shape"], "relu2.gradient")
    relu_backward(graph, "relu2", "conv2")
    convolution_backward(graph, "conv2", "relu1", 2, "relu1.gradient")
    relu_backward(graph, "relu1", "conv1")
    convolution_backward(graph, "conv1", "pixels", 1)


def convolution_backward(graph: Graph, layer: str, data: str, stride: int, data_gradient: str = "") -> None:
    """Gradients of a layer's weight and bias, and of its data where that has a name; the latter stays scaled."""
    made = [data_gradient, f"{layer}.weight.gradient", f"{layer}.bias.gradient"]
    graph.add("ConvolutionBackward", [graph.narrow(name) for name in (f"{layer}.gradient", data, f"{layer}.weight")],
              *(name and f"{name}.codes" for name in made), domain="convreg.ascend", conformance="emulation",
              stride=[stride] * 2, padding=[1, 1], dilation=[1, 1], outputMask=[int(name != "") for name in made],
              saturate=1, **graph.operand_types(3))
    for name in filter(None, made):
        graph.widen(f"{name}.codes", name, *([] if name == data_gradient else ["unscale"]))


def relu_backward(graph: Graph, output: str, before: str) -> None:
    """Pass the gradient where the activation was positive."""
    graph.add("Sign", [output], f"{output}.sign")
    graph.add("Mul", [f"{output}.gradient", f"{output}.sign"], f"{before}.gradient")


def update(graph: Graph, parameter: str) -> None:
    """velocity' = momentum * velocity + gradient; parameter' = parameter - learning_rate * velocity'."""
    velocity = f"{parameter}.velocity"
    graph.add("Mul", ["momentum", velocity], f"{velocity}.kept")
    graph.add("Add", [f"{velocity}.kept", f"{parameter}.gradient"], f"{velocity}.next")
    graph.add("Mul", ["learning_rate", f"{velocity}.next"], f"{parameter}.step")
    graph.add("Sub", [parameter, f"{parameter}.step"], f"{parameter}.next")


def build(format: str = "float32", *, forward_in_format: bool = False) -> onnx.ModelProto:
    """Return the model.

    Parameters
    ----------
    format : str
        Of the gradients: "float32" for the model that is saved, or one that convreg's Quantize knows.
    forward_in_format : bool
        Whether the forward pass rounds the operands of its layers too.
    """
    wide = format == "float32"
    graph = Graph(None if wide else format)
    forward(graph, forward_in_format and not wide)
    loss(graph)
    (backward if wide else backward_in_format)(graph)
    for parameter in PARAMETERS:
        update(graph, parameter)

    def tensor(name: str, shape: tuple[Any, ...] = (), type: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, type, shape)

    state = {name + suffix: shape for name, shape in PARAMETERS.items() for suffix in ("", ".velocity")}
    inputs = [
        tensor("images", ("batch", 8, 8), TensorProto.UINT8),
        tensor("labels", ("batch",), TensorProto.INT64),
        tensor("learning_rate"),
        tensor("momentum"),
        *([] if wide else [tensor("loss_scale")]),
        *(tensor(name, shape) for name, shape in state.items()),
    ]
    outputs = [
        tensor("loss"),
        tensor("correct", (), TensorProto.INT64),
        *(tensor(f"{name}.next", shape) for name, shape in state.items()),
    ]
    domains = DOMAINS if wide else NARROW_DOMAINS
    return helper.make_model(
        helper.make_graph(graph.nodes, "digits_training_step", inputs, outputs, graph.initializers, SUMMARY),
        opset_imports=[helper.make_opsetid(domain, version) for domain, version in domains.items()],
        ir_version=IR_VERSION,
        producer_name="convreg",
    )


if __name__ == "__main__":
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else MODEL
    onnx.save(build(), path)
    print(f"{path}: {path.stat().st_size} bytes")
