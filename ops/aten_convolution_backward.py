"""aten::convolution_backward: PyTorch's operator, argument for argument."""

from __future__ import annotations

from types import ModuleType

from convreg.geometry import Geometry, aten
from convreg.registry import register
from convreg.roles import Convolution
from convreg.spec import Attribute, Call, OpSpec, Plan, Port, TensorType

from . import _gradients
from ._emulation import emulated


def plan(call: Call) -> Plan:
    """Check shapes as PyTorch does; only the gradients that output_mask selects are computed."""
    outputs, geometry = _judged(call)
    return Plan(outputs, call["transposed"], geometry=geometry)


def infer(call: Call) -> tuple[TensorType | None, ...]:
    """Each requested gradient has the shape of its tensor; what is known must fit."""
    return _judged(call)[0]


def _judged(call: Call) -> tuple[tuple[TensorType | None, ...], Geometry | None]:
    """Types of the results, and the geometry where all shapes are known."""
    mask = call["output_mask"]
    if len(mask) != 3:
        raise call.refuse("output_mask", list(mask), "three booleans: grad_input, grad_weight, grad_bias")
    grad_output, data, weight = (call.tensor(name) for name in ("grad_output", "input", "weight"))
    made = data, weight, TensorType(aten.channel_vector(grad_output.shape), grad_output.format)
    shapes = aten.shapes_of(call, ("grad_output", "input", "weight"), call["transposed"])
    geometry = None if shapes is None else aten.backward(call, shapes)
    return tuple(tensor if asked and named else None
                 for tensor, asked, named in zip(made, mask, call.wanted, strict=True)), geometry


def run(plan: Plan, inputs: tuple, outputs: tuple, kernels: ModuleType, threads: int) -> None:
    """Fill the requested gradients."""
    grad_output, data, weight = inputs
    _gradients.run(plan.integers, plan.work, grad_output, data, weight, _gradients.Gradients(*outputs), kernels,
                   threads)


convolution_backward = register(emulated(OpSpec(
    vendor="aten",
    name="convolution_backward",
    since_version=1,
    doc="Gradients of PyTorch's convolution with respect to input, weight and bias.",
    source="PyTorch 2.13, aten.convolution_backward.",
    inputs=(
        Port("grad_output", "Gradient of the output, (N, Cout, Y...).", role="grad_output"),
        Port("input", "Input of the forward convolution, (N, Cin, X...).", role="data"),
        Port("weight", "Weights, (Cout, Cin/groups, K...); if transposed, (Cin, Cout/groups, K...).",
             role="weight"),
    ),
    outputs=(
        Port("grad_input", "Gradient of the input.", optional=True, role="grad_data"),
        Port("grad_weight", "Gradient of the weight.", optional=True, role="grad_weight"),
        Port("grad_bias", "Gradient of the bias, (Cout,).", optional=True, role="grad_bias"),
    ),
    attributes=(
        Attribute("bias_sizes", "ints", "Shape of the bias or None; checked if its gradient is requested.", None),
        Attribute("stride", "ints", "Step of the kernel; one entry per spatial axis, or one for all.", minimum=1),
        Attribute("padding", "ints", "Padding on both sides; one entry per spatial axis, or one for all.", minimum=0),
        Attribute("dilation", "ints", "Distance between kernel taps; one entry per spatial axis, or one for all.",
                  minimum=1),
        Attribute("transposed", "bool", "Whether the forward operation was a transposed convolution."),
        Attribute("output_padding", "ints", "Extra extent of a transposed output, zeros otherwise; one entry per "
                  "spatial axis, or one for all.", minimum=0),
        Attribute("groups", "int", "Number of groups that the channels are divided into.", minimum=1),
        Attribute("output_mask", "bools", "Which of the three gradients to compute."),
    ),
    types={"T": _gradients.FORMATS},
    convolution=Convolution("transposed", mask="output_mask"),
    conformances=("pytorch",),
    positional_attributes=True,
    plan=plan,
    run=run,
    infer=infer,
)))
