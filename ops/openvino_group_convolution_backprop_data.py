"""openvino::GroupConvolutionBackpropData: the grouped operation, groups being the filter's first axis."""

from __future__ import annotations

from convreg.registry import register
from convreg.roles import Convolution
from convreg.spec import OpSpec, Port

from . import _openvino
from ._emulation import emulated

group_convolution_backprop_data = register(emulated(OpSpec(
    vendor="openvino",
    name="GroupConvolutionBackpropData",
    since_version=1,
    doc="Grouped transposed convolution, a window of the full result: output[n,g*I+i,p] = SUM data[n,g*O+o,y] * "
        "filter[g,o,i,t] over o and y, t with begin + p = y*stride + t*dilation.",
    source="OpenVINO IR operation GroupConvolutionBackpropData-1 as the 2026.4.1 CPU runtime computes it.",
    inputs=(
        Port("data", "Input, (N, groups*O, Y...).", role="grad_output"),
        Port("filter", "Weights, (groups, O, I, K...).", role="weight"),
        _openvino.shape_port("Spatial extents of the result.", attribute=False),
    ),
    outputs=(Port("output", "Result, (N, groups*I, X...).", rule="15", role="grad_data"),),
    attributes=_openvino.attributes(),
    types=_openvino.TYPES,
    convolution=Convolution(weight_layout="GOIX"),
    conformances=("openvino",),
    rules=_openvino.RULES,
    plan=_openvino.plan,
    run=_openvino.run,
    infer=_openvino.infer,
)))
