"""onednn::ConvolutionBackwardWeights: the gradient of Convolution with respect to its weights."""

from __future__ import annotations

from convreg.registry import register
from convreg.spec import OpSpec, Port

from . import _onednn
from ._emulation import emulated

gradient = _onednn.WeightsGradient(large="src", small="diff_dst")

convolution_backward_weights = register(emulated(OpSpec(
    vendor="onednn",
    name="ConvolutionBackwardWeights",
    since_version=1,
    doc="Gradient of a convolution with respect to its weights: diff_W[oc,ic,t] = SUM src[n,ic,x] * diff_dst[n,oc,y] "
        "over n, y with x = y*stride - pads_begin + t*dilation.",
    source="oneDNN Graph operation page ConvolutionBackwardWeights (3.14 development, August 2026); op_def.hpp and "
           "shape_infer.cpp of 3.13. The page gives no SAME split, so the library's holds for both conformances.",
    inputs=(
        Port("src", "Input of the convolution, (N, IC, X...) or (N, X..., IC).", role="data"),
        Port("diff_dst", "Gradient of the convolution's output, (N, OC, Y...) or (N, Y..., OC).", role="grad_output"),
        _onednn.shape_port("weights_shape", "diff_weights", "weight_shape"),
    ),
    outputs=(Port("diff_weights", "Gradient, (OC, IC/groups, K...) for OIX, (K..., IC/groups, OC) for XIO.",
                  role="grad_weight"),),
    attributes=_onednn.common(("XIO", "OIX")),
    types=_onednn.TYPES,
    convolution=_onednn.arranged(),
    conformances=_onednn.CONFORMANCES,
    rules=_onednn.RULES,
    plan=gradient.plan,
    run=gradient.run,
    infer=gradient.infer,
)))
