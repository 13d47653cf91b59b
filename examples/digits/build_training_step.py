"""Write training_step.onnx: one step of SGD with momentum on a small convolutional network for handwritten digits.

Only the forward pass is written here. `convreg.onnx.training_step` adds the loss, the gradients and the update. The
gradients of the convolutions are nodes of oneDNN's operators.

``build("hifloat8")`` and the like make the same step with the operands of every gradient rounded to that format by
convreg's Quantize. The gradients of the convolutions are then nodes of Ascend's operator. The loss is multiplied by the
input ``loss_scale`` before the gradients, and the gradients are divided by it before the update.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
from onnx import numpy_helper

import convreg.onnx

MODEL = Path(__file__).with_name("training_step.onnx")
MOMENTUM = 0.9

FORWARD = """
<ir_version: 10, opset_import: ["": 22], producer_name: "convreg">
digits (uint8[batch, 8, 8] images) => (float[batch, 10] logits)
<float white = {16}, int64[1] channel_axis = {1}>
{
    "images.float" = Cast <to = 1> (images)
    "images.scaled" = Div ("images.float", white)
    pixels = Unsqueeze ("images.scaled", channel_axis)
    conv1 = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (pixels, "conv1.weight", "conv1.bias")
    relu1 = Relu (conv1)
    conv2 = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [2, 2]> (relu1, "conv2.weight", "conv2.bias")
    relu2 = Relu (conv2)
    features = Flatten <axis = 1> (relu2)
    logits = Gemm (features, "dense.weight", "dense.bias")
}
"""
"""The network. The pixels have values from 0 to 16."""

PARAMETERS = {
    "conv1.weight": (16, 1, 3, 3),
    "conv1.bias": (16,),
    "conv2.weight": (32, 16, 3, 3),
    "conv2.bias": (32,),
    "dense.weight": (512, 10),
    "dense.bias": (10,),
}


def initial(name: str, rng: np.random.Generator) -> np.ndarray:
    """Return He-initialised weights, or biases of zero."""
    shape = PARAMETERS[name]
    if name.endswith(".bias"):
        return np.zeros(shape, np.float32)
    fan_in = shape[0] if len(shape) == 2 else math.prod(shape[1:])
    return (rng.standard_normal(shape) * math.sqrt(2 / fan_in)).astype(np.float32)


def forward(seed: int = 0) -> onnx.ModelProto:
    """Return the network with random weights."""
    model = onnx.parser.parse_model(FORWARD)
    rng = np.random.default_rng(seed)
    model.graph.initializer.extend(numpy_helper.from_array(initial(name, rng), name) for name in PARAMETERS)
    for node in model.graph.node:
        node.name = node.output[0]
    return model


def build(format: str = "float32", *, forward_in_format: bool = False) -> onnx.ModelProto:
    """Return the step.

    Parameters
    ----------
    format : str
        Of the gradients' operands: "float32" for the model that is saved, or one that convreg's Quantize knows.
    forward_in_format : bool
        Whether the operands of the forward pass are rounded too.
    """
    wide = format == "float32"
    return convreg.onnx.training_step(
        forward(), optimizer="momentum", momentum=MOMENTUM, learning_rate=0.05, dialect="onednn" if wide else "ascend",
        format=format, forward_format=format if forward_in_format else None, loss_scale=None if wide else 1.0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", type=Path, nargs="?", default=MODEL, help="the file to write (default: %(default)s)")
    path = parser.parse_args().path
    onnx.save(build(), path)
    print(f"{path}: {path.stat().st_size} bytes")
