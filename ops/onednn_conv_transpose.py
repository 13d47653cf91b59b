"""onednn::ConvTranspose: the forward transposed convolution, which is the data gradient of a convolution."""

from __future__ import annotations

from convreg.geometry import onednn, onednn_inference
from convreg.registry import register
from convreg.spec import Call, OpSpec, Plan, Port, TensorType

from . import _onednn, _views
from ._emulation import emulated


def plan(call: Call) -> Plan:
    """Resolve pads and the shape of dst."""
    geometry, shape = onednn.transposed_forward(call)
    onednn.check_bias(call, geometry.groups * geometry.large_channels)
    return _onednn.planned(call, geometry, shape)


def infer(call: Call) -> tuple[TensorType | None, ...]:
    """Every extent that follows from what is known."""
    shape = onednn_inference.transposed(call)
    onednn.check_bias(call, onednn.channels_of(call, shape))
    return _onednn.typed(call, shape)


conv_transpose = register(emulated(OpSpec(
    vendor="onednn",
    name="ConvTranspose",
    since_version=1,
    doc="Transposed convolution: dst[n,oc,x] = bias[oc] + SUM src[n,ic,y] * W[ic,oc,t] over ic of the group and y, t "
        "with x = y*stride - pads_begin + t*dilation.",
    source="oneDNN Graph 3.13: op_def.hpp and shape_infer.cpp; grouped weights are (IC, OC/groups), as in the library "
           "and not as on the page.",
    inputs=(
        Port("src", "Input, (N, IC, Y...) or (N, Y..., IC).", role="grad_output"),
        Port("weights", "Weights, (IC, OC/groups, K...) for IOX, (K..., OC/groups, IC) for XOI.", role="weight"),
        _onednn.BIAS,
    ),
    outputs=(Port("dst", "Result, (N, OC, X...) or (N, X..., OC), X = stride*(Y-1) + (K-1)*dilation + 1 - pads + "
                  "output_padding.", rule="R20", role="grad_data"),),
    attributes=(*_onednn.common(("XOI", "IOX")), _onednn.OUTPUT_PADDING),
    types={"T": _onednn.FORMATS},
    convolution=_onednn.arranged(forward=True),
    conformances=("library",),
    rules=_onednn.RULES,
    plan=plan,
    run=_views.convolved(_views.backward_data, biased=True),
    infer=infer,
)))
