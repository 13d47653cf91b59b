"""ONNX's own Conv and ConvTranspose on convreg's kernels, for execution only: onnx has their schemas.

onnx's bundled implementations are slow, and its ConvTranspose fails with groups and with several forms of auto_pad.
"""

from __future__ import annotations

from types import ModuleType

from ..geometry import standard as rules
from ..ops import _views
from ..ops.microsoft_conv_grad import conv_grad
from ..spec import Attribute, Call, OpSpec, Plan, Port, TensorType

BIAS = Port("B", "(M,), added to every position before the one rounding.", optional=True)
SHARED = conv_grad.spec.attributes
"""ConvGrad copies Conv's attributes, and ConvTranspose has the same and two more."""


def plan_conv(call: Call) -> Plan:
    """Resolve pads and the shape of Y."""
    geometry, shape = rules.conv(call)
    return Plan((TensorType(shape, call.tensor("X").format),), geometry=geometry)


def run_conv(plan: Plan, inputs: tuple, outputs: tuple, kernels: ModuleType, threads: int) -> None:
    """Large side X, small side Y."""
    groups = plan.integers.groups
    _views.forward(kernels, plan.integers, _views.data(inputs[0], groups), _views.weights(inputs[1], groups),
                   _views.data(outputs[0], groups), threads, bias=inputs[2])


def plan_conv_transpose(call: Call) -> Plan:
    """Resolve pads and the shape of Y."""
    geometry, shape = rules.conv_transpose(call)
    return Plan((TensorType(shape, call.tensor("X").format),), geometry=geometry)


def run_conv_transpose(plan: Plan, inputs: tuple, outputs: tuple, kernels: ModuleType, threads: int) -> None:
    """Small side X, large side Y."""
    groups = plan.integers.groups
    _views.backward_data(kernels, plan.integers, _views.data(inputs[0], groups), _views.weights(inputs[1], groups),
                         _views.data(outputs[0], groups), threads, bias=inputs[2])


def infer(call: Call) -> tuple[TensorType | None, ...]:
    """Nothing: onnx infers its own operators."""
    return (None,)


CONV = OpSpec(
    vendor="onnx",
    name="Conv",
    since_version=1,
    doc="Convolution as ONNX defines it.",
    source="ONNX operator specification, Conv; ONNX Runtime where the specification is silent.",
    inputs=(Port("X", "(N, C, X...)."), Port("W", "(M, C/group, K...)."), BIAS),
    outputs=(Port("Y", "(N, M, Y...)."),),
    attributes=SHARED,
    types=conv_grad.spec.types,
    conformances=("onnx",),
    plan=plan_conv,
    run=run_conv,
    infer=infer,
)

CONV_TRANSPOSE = OpSpec(
    vendor="onnx",
    name="ConvTranspose",
    since_version=1,
    doc="Transposed convolution as ONNX defines it.",
    source="ONNX operator specification, ConvTranspose; ONNX Runtime where the specification is silent.",
    inputs=(Port("X", "(N, C, Y...)."), Port("W", "(C, M/group, K...)."), BIAS),
    outputs=(Port("Y", "(N, M, X...)."),),
    attributes=(
        *SHARED,
        Attribute("output_padding", "ints", "Extra elements at the end, one per spatial axis.", None, minimum=0),
        Attribute("output_shape", "ints", "Spatial extents of Y; pads then follow from them.", None, minimum=1),
    ),
    types=conv_grad.spec.types,
    conformances=("onnx",),
    plan=plan_conv_transpose,
    run=run_conv_transpose,
    infer=infer,
)

STANDARD = {("", spec.name): spec for spec in (CONV, CONV_TRANSPOSE)}
"""The two by domain and type of a node."""

OURS = "convreg.convolutions"
"""Entry of a model's metadata: they run on convreg's kernels in onnxruntime too, as in the graph that this is a part
of."""
