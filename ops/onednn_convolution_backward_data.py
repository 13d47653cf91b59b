"""onednn::ConvolutionBackwardData: the gradient of Convolution with respect to its input."""

from __future__ import annotations

from convreg.geometry import onednn, onednn_inference
from convreg.registry import register
from convreg.spec import Call, OpSpec, Plan, Port, TensorType

from . import _onednn, _views
from ._emulation import emulated


def plan(call: Call) -> Plan:
    """Resolve pads and the shape of diff_src."""
    return _onednn.planned(call, *onednn.backward_data(call))


def infer(call: Call) -> tuple[TensorType | None, ...]:
    """diff_src has the stated shape, or the rank of the tensors, which must fit as far as they are known."""
    return _onednn.typed(call, onednn_inference.data(call))


convolution_backward_data = register(emulated(OpSpec(
    vendor="onednn",
    name="ConvolutionBackwardData",
    since_version=1,
    doc="Gradient of a convolution with respect to its input: diff_src[n,ic,x] = SUM diff_dst[n,oc,y] * W[oc,ic,t] "
        "over oc of the group and y, t with x = y*stride - pads_begin + t*dilation.",
    source="oneDNN Graph operation page ConvolutionBackwardData (3.14 development, August 2026); op_def.hpp and "
           "shape_infer.cpp of 3.13 for conformance 'library'.",
    inputs=(
        Port("diff_dst", "Gradient of the convolution's output, (N, OC, Y...) or (N, Y..., OC).", role="grad_output"),
        Port("weights", "Weights, (OC, IC/groups, K...) for OIX, (K..., IC/groups, OC) for XIO.", role="weight"),
        _onednn.shape_port("dst_shape", "diff_src", "data_shape"),
    ),
    outputs=(Port("diff_src", "Gradient of the convolution's input, (N, IC, X...) or (N, X..., IC).",
                  role="grad_data"),),
    attributes=(*_onednn.common(("XIO", "OIX")), _onednn.OUTPUT_PADDING),
    types=_onednn.TYPES,
    convolution=_onednn.arranged(),
    conformances=_onednn.CONFORMANCES,
    rules=_onednn.RULES,
    plan=plan,
    run=_views.convolved(_views.backward_data),
    infer=infer,
)))
