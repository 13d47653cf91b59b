"""ONNX's own Conv and ConvTranspose on convreg's kernels, for execution only: onnx has their schemas.

onnx's bundled implementations are slow, and its ConvTranspose fails with groups and with several forms of auto_pad.
"""

from __future__ import annotations

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


def plan_conv_transpose(call: Call) -> Plan:
    """Resolve pads and the shape of Y."""
    geometry, shape = rules.conv_transpose(call)
    return Plan((TensorType(shape, call.tensor("X").format),), geometry=geometry)


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
    run=_views.convolved(_views.forward, biased=True),
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
    run=_views.convolved(_views.backward_data, biased=True),
    infer=infer,
)

STANDARD = {("", spec.name): spec for spec in (CONV, CONV_TRANSPOSE)}
"""The two by domain and type of a node."""

OURS = "convreg.convolutions"
"""Entry of a model's metadata: they run on convreg's kernels in onnxruntime too, as in the graph that this is a part
of."""
