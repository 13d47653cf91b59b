"""onednn::Convolution: the forward operation whose gradients the others are."""

from __future__ import annotations

from convreg.geometry import onednn, onednn_inference
from convreg.registry import register
from convreg.spec import Call, OpSpec, Plan, Port, TensorType

from . import _onednn, _views
from ._emulation import emulated


def plan(call: Call) -> Plan:
    """Resolve pads and the shape of dst."""
    geometry, shape, _ = onednn.forward(call, "src", "dst")
    onednn.check_bias(call, geometry.groups * geometry.small_channels)
    return _onednn.planned(call, geometry, shape)


def infer(call: Call) -> tuple[TensorType | None, ...]:
    """Every extent that follows from what is known."""
    shape = onednn_inference.forward(call, "src", "dst")
    onednn.check_bias(call, onednn.channels_of(call, shape))
    return _onednn.typed(call, shape)


convolution = register(emulated(OpSpec(
    vendor="onednn",
    name="Convolution",
    since_version=1,
    doc="Convolution: dst[n,oc,y] = bias[oc] + SUM src[n,ic,x] * W[oc,ic,t] over ic of the group and t with "
        "x = y*stride - pads_begin + t*dilation.",
    source="oneDNN Graph 3.13: op_def.hpp and shape_infer.cpp (infer_auto_pad).",
    inputs=(
        Port("src", "Input, (N, IC, X...) or (N, X..., IC).", role="grad_output"),
        Port("weights", "Weights, (OC, IC/groups, K...) for OIX, (K..., IC/groups, OC) for XIO.", role="weight"),
        _onednn.BIAS,
    ),
    outputs=(Port("dst", "Result, (N, OC, Y...) or (N, Y..., OC).", rule="R20", role="grad_data"),),
    attributes=_onednn.common(("XIO", "OIX")),
    types={"T": _onednn.FORMATS},
    convolution=_onednn.arranged(transposed=True, forward=True),
    conformances=("library",),
    rules=_onednn.RULES,
    plan=plan,
    run=_views.convolved(_views.forward, biased=True),
    infer=infer,
)))
