"""com.microsoft ConvGrad: the gradient node of ONNX Runtime's training graphs, with checks that the runtime omits."""

from __future__ import annotations

from types import ModuleType

from convreg.geometry import aten, standard
from convreg.registry import register
from convreg.spec import Attribute, Call, OpSpec, Plan, Port, TensorType, spellings

from . import _gradients


def plan(call: Call) -> Plan:
    """Check shapes and resolve auto_pad; only named outputs are computed."""
    geometry = standard.conv_grad(call)
    return Plan(tuple(made if wanted else None for made, wanted in zip(_results(call), call.wanted, strict=True)),
                geometry=geometry)


def infer(call: Call) -> tuple[TensorType | None, ...]:
    """Each gradient has the shape of its tensor; what is known must fit."""
    standard.conv_grad(call)
    return _results(call)


def _results(call: Call) -> tuple[TensorType | None, ...]:
    dy = call.tensor("dY")
    return call.tensor("X"), call.tensor("W"), TensorType(aten.channel_vector(dy.shape), dy.format)


def run(plan: Plan, inputs: tuple, outputs: tuple, kernels: ModuleType, threads: int) -> None:
    """Fill the requested gradients."""
    grad_output, data, weight = inputs
    _gradients.run(plan.integers, False, grad_output, data, weight, _gradients.Gradients(*outputs), kernels, threads)


conv_grad = register(OpSpec(
    vendor="microsoft",
    name="ConvGrad",
    domain="com.microsoft",
    since_version=1,
    doc="Gradients of an ONNX Conv with respect to X, W and B.",
    source="onnxruntime-training 1.19.2, ConvGrad. convreg resolves auto_pad as Conv does and checks dY's shape; that "
           "runtime does neither.",
    inputs=(
        Port("dY", "Gradient of Conv's output, (N, M, Y...).", role="grad_output"),
        Port("X", "Conv's input, (N, C, X...).", role="data"),
        Port("W", "Conv's weight, (M, C/group, K...).", role="weight"),
    ),
    outputs=(
        Port("dX", "Gradient of X.", optional=True, role="grad_data"),
        Port("dW", "Gradient of W.", optional=True, role="grad_weight"),
        Port("dB", "Gradient of the bias, (M,).", optional=True, role="grad_bias"),
    ),
    attributes=(
        Attribute("auto_pad", "string", "Padding mode, as in Conv.", "NOTSET",
                  choices=spellings("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")),
        Attribute("dilations", "ints", "Distance between kernel taps, one per spatial axis; None means ones.", None,
                  minimum=1),
        Attribute("group", "int", "Number of groups that the channels are divided into.", 1, minimum=1),
        Attribute("kernel_shape", "ints", "Spatial extents of W, checked if given.", None, minimum=1),
        Attribute("pads", "ints", "Padding before all axes, then after all axes; None means zeros.", None, minimum=0),
        Attribute("strides", "ints", "Step of the kernel, one per spatial axis; None means ones.", None, minimum=1),
    ),
    types={"T": _gradients.FORMATS},
    conformances=("onnxruntime",),
    plan=plan,
    run=run,
    infer=infer,
))
