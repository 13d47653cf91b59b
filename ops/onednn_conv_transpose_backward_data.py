"""onednn::ConvTransposeBackwardData: a forward convolution of diff_dst, with the weights as they are."""

from __future__ import annotations

from dataclasses import replace

from convreg.geometry import onednn, onednn_inference
from convreg.registry import register
from convreg.spec import Call, OpSpec, Plan, Port, TensorType

from . import _onednn, _views
from ._emulation import emulated


def plan(call: Call) -> Plan:
    """Resolve pads, the order of grouped weights and the shape of diff_src."""
    geometry, shape, page_order = onednn.forward(call, "diff_dst", "diff_src")
    return _onednn.planned(call, geometry, shape, divided_small=page_order)


def infer(call: Call) -> tuple[TensorType | None, ...]:
    """Every extent that follows from what is known."""
    return _onednn.typed(call, onednn_inference.forward(call, "diff_dst", "diff_src"))


conv_transpose_backward_data = register(emulated(OpSpec(
    vendor="onednn",
    name="ConvTransposeBackwardData",
    since_version=1,
    doc="Gradient of a transposed convolution with respect to its input: diff_src[n,ic,y] = SUM diff_dst[n,oc,x] * "
        "W[ic,oc,t] over oc of the group and t with x = y*stride - pads_begin + t*dilation.",
    source="oneDNN Graph operation page ConvTransposeBackwardData (3.14 development, August 2026), and "
           "op_def.hpp and shape_infer.cpp of 3.13. Grouped weights are in the page's order (IC/groups, OC) or the "
           "library's (IC, OC/groups), which the shape tells apart. The page gives no SAME split, so the library's "
           "holds for both conformances.",
    inputs=(
        Port("diff_dst", "Gradient of the transposed convolution's output, (N, OC, X...) or (N, X..., OC).",
             role="grad_output"),
        Port("weights", "Weights, (IC, OC/groups, K...) for IOX, (K..., OC/groups, IC) for XOI. Under 'document' also "
             "the page's grouped order, (IC/groups, OC, K...) or (K..., OC, IC/groups).", role="weight"),
    ),
    outputs=(Port("diff_src", "Gradient of the transposed convolution's input, (N, IC, Y...) or (N, Y..., IC).",
                  rule="R20", role="grad_data"),),
    attributes=(*_onednn.common(("XOI", "IOX")), replace(_onednn.OUTPUT_PADDING, only=("document",))),
    types={"T": _onednn.FORMATS},
    convolution=_onednn.arranged(transposed=True),
    conformances=_onednn.CONFORMANCES,
    rules=_onednn.RULES,
    plan=plan,
    run=_views.convolved(_views.forward),
    infer=infer,
)))
