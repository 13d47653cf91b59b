"""onednn::ConvTransposeBackwardWeights: the weights gradient with its two data operands exchanged."""

from __future__ import annotations

from types import ModuleType

from convreg.geometry import onednn
from convreg.registry import register
from convreg.spec import Call, OpSpec, Plan, Port, TensorType

from . import _onednn, _views


def plan(call: Call) -> Plan:
    """Resolve pads, from the extent of diff_dst, and the shape of diff_weights."""
    geometry, shape = onednn.backward_weights(call, "diff_dst", "src", "diff_weights")
    return Plan((TensorType(shape, call.tensor("src").format),),
                (geometry, call["data_format"], call["weights_format"]))


def infer(call: Call) -> tuple[TensorType | None, ...]:
    """diff_weights has the stated shape, or the rank of src."""
    src = call.tensor("src")
    return (TensorType(call["weights_shape"] or _onednn.rank_only(src), src.format),)


def run(plan: Plan, inputs: tuple, outputs: tuple, kernels: ModuleType, threads: int) -> None:
    """Large side diff_dst, small side src."""
    geometry, layout, weights_layout = plan.work
    groups = geometry.groups
    _views.backward_weights(kernels, geometry, _views.data(inputs[1], groups, layout),
                            _views.data(inputs[0], groups, layout),
                            _views.weights(outputs[0], groups, weights_layout), threads)


convtranspose_backward_weights = register(OpSpec(
    vendor="onednn",
    name="ConvTransposeBackwardWeights",
    since_version=1,
    doc="Gradient of a transposed convolution with respect to its weights: diff_W[ic,oc,t] = SUM src[n,ic,y] * "
        "diff_dst[n,oc,x] over n, y with x = y*stride - pads_begin + t*dilation.",
    source="oneDNN Graph 3.13: op_def.hpp and shape_infer.cpp; SAME pads come from the extent of diff_dst.",
    inputs=(
        Port("src", "Input of the transposed convolution, (N, IC, Y...) or (N, Y..., IC)."),
        Port("diff_dst", "Gradient of its output, (N, OC, X...) or (N, X..., OC)."),
        _onednn.shape_port("weights_shape", "diff_weights"),
    ),
    outputs=(Port("diff_weights", "(IC, OC/groups, K...) for IOX, (K..., OC/groups, IC) for XOI."),),
    attributes=_onednn.common(("XOI", "IOX")),
    types=_onednn.TYPES,
    conformances=("library",),
    rules=_onednn.RULES,
    plan=plan,
    run=run,
    infer=infer,
))
