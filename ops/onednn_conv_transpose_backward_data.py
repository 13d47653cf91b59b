"""onednn::ConvTransposeBackwardData: a forward convolution of diff_dst, with the weights as they are."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType

from convreg.geometry import onednn
from convreg.registry import register
from convreg.spec import Call, OpSpec, Plan, Port, TensorType

from . import _onednn, _views
from ._emulation import emulated


def plan(call: Call) -> Plan:
    """Resolve pads, the order of grouped weights and the shape of diff_src."""
    geometry, shape, page_order = onednn.forward(call, "diff_dst", "diff_src")
    return Plan((TensorType(shape, call.tensor("diff_dst").format),),
                (call["data_format"], call["weights_format"]), geometry=geometry, divided_small=page_order)


def infer(call: Call) -> tuple[TensorType | None, ...]:
    """Every extent that follows from what is known."""
    return (TensorType(onednn.infer_forward(call, "diff_dst", "diff_src"), call.tensor("diff_dst").format),)


def run(plan: Plan, inputs: tuple, outputs: tuple, kernels: ModuleType, threads: int) -> None:
    """Large side diff_dst, small side diff_src."""
    geometry, (layout, weights_layout) = plan.integers, plan.work
    groups = geometry.groups
    _views.forward(kernels, geometry, _views.data(inputs[0], groups, layout),
                   _views.weights(inputs[1], groups, weights_layout, divided_small=plan.divided_small),
                   _views.data(outputs[0], groups, layout), threads)


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
    run=run,
    infer=infer,
)))
