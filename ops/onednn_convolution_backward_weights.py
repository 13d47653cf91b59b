"""onednn::ConvolutionBackwardWeights: the gradient of Convolution with respect to its weights."""

from __future__ import annotations

from types import ModuleType

from convreg.geometry import onednn
from convreg.registry import register
from convreg.spec import Call, OpSpec, Plan, Port, TensorType

from . import _onednn, _views


def plan(call: Call) -> Plan:
    """Resolve pads and the shape of diff_weights."""
    geometry, shape = onednn.backward_weights(call, "src", "diff_dst", "diff_weights")
    return Plan((TensorType(shape, call.tensor("src").format),),
                (geometry, call["data_format"], call["weights_format"]))


def infer(call: Call) -> tuple[TensorType | None, ...]:
    """diff_weights has the stated shape, or the rank of src."""
    src = call.tensor("src")
    return (TensorType(call["weights_shape"] or _onednn.rank_only(src), src.format),)


def run(plan: Plan, inputs: tuple, outputs: tuple, kernels: ModuleType, threads: int) -> None:
    """Large side src, small side diff_dst."""
    geometry, layout, weights_layout = plan.work
    groups = geometry.groups
    _views.backward_weights(kernels, geometry, _views.data(inputs[0], groups, layout),
                            _views.data(inputs[1], groups, layout),
                            _views.weights(outputs[0], groups, weights_layout), threads)


convolution_backward_weights = register(OpSpec(
    vendor="onednn",
    name="ConvolutionBackwardWeights",
    since_version=1,
    doc="Gradient of a convolution with respect to its weights: diff_W[oc,ic,t] = SUM src[n,ic,x] * diff_dst[n,oc,y] "
        "over n, y with x = y*stride - pads_begin + t*dilation.",
    source="oneDNN Graph operation page ConvolutionBackwardWeights (3.14 development, August 2026); op_def.hpp and "
           "shape_infer.cpp of 3.13, whose SAME split holds for both conformances since the page gives none.",
    inputs=(
        Port("src", "Input of the convolution, (N, IC, X...) or (N, X..., IC)."),
        Port("diff_dst", "Gradient of the convolution's output, (N, OC, Y...) or (N, Y..., OC)."),
        _onednn.shape_port("weights_shape", "diff_weights"),
    ),
    outputs=(Port("diff_weights", "(OC, IC/groups, K...) for OIX, (K..., IC/groups, OC) for XIO."),),
    attributes=_onednn.common(("XIO", "OIX")),
    types=_onednn.TYPES,
    conformances=_onednn.CONFORMANCES,
    rules=_onednn.RULES,
    plan=plan,
    run=run,
    infer=infer,
))
