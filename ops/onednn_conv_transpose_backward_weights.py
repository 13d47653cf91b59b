"""onednn::ConvTransposeBackwardWeights: the weights gradient with its two data operands exchanged."""

from __future__ import annotations

from convreg.registry import register
from convreg.spec import OpSpec, Port

from . import _onednn
from ._emulation import emulated

gradient = _onednn.WeightsGradient(large="diff_dst", small="src")

conv_transpose_backward_weights = register(emulated(OpSpec(
    vendor="onednn",
    name="ConvTransposeBackwardWeights",
    since_version=1,
    doc="Gradient of a transposed convolution with respect to its weights: diff_W[ic,oc,t] = SUM src[n,ic,y] * "
        "diff_dst[n,oc,x] over n, y with x = y*stride - pads_begin + t*dilation.",
    source="oneDNN Graph 3.13: op_def.hpp and shape_infer.cpp; SAME pads come from the extent of diff_dst.",
    inputs=(
        Port("src", "Input of the transposed convolution, (N, IC, Y...) or (N, Y..., IC).", role="data"),
        Port("diff_dst", "Gradient of its output, (N, OC, X...) or (N, X..., OC).", role="grad_output"),
        _onednn.shape_port("weights_shape", "diff_weights", "weight_shape"),
    ),
    outputs=(Port("diff_weights", "Gradient, (IC, OC/groups, K...) for IOX, (K..., OC/groups, IC) for XOI.",
                  role="grad_weight"),),
    attributes=_onednn.common(("XOI", "IOX")),
    types=_onednn.TYPES,
    convolution=_onednn.arranged(transposed=True),
    conformances=("library",),
    rules=_onednn.RULES,
    plan=gradient.plan,
    run=gradient.run,
    infer=gradient.infer,
)))
