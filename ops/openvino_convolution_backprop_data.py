"""openvino::ConvolutionBackpropData: a window of the full scatter, by the older page or by OpenVINO's runtime."""

from __future__ import annotations

from convreg.registry import register
from convreg.roles import Convolution
from convreg.spec import Attribute, OpSpec, Port, spellings

from . import _onednn, _openvino
from ._emulation import emulated

convolution_backprop_data = register(emulated(OpSpec(
    vendor="openvino",
    name="ConvolutionBackpropData",
    since_version=1,
    doc="Gradient of a convolution with respect to its input, a window of the full result: input_delta[n,i,p] = "
        "SUM output_delta[n,o,y] * filter[o,i,t] over o of the group and y, t with begin + p = y*stride + t*dilation.",
    source="oneDNN Graph specification, ConvolutionBackpropData-1 (revision of 2022), whose pads formula "
           "defines conformance 'document'; OpenVINO 2026.4.1 CPU runtime for 'openvino'.",
    inputs=(
        Port("output_delta", "Gradient of the convolution's output (OpenVINO: data), (N, O, Y...) or (N, Y..., O).",
             role="grad_output"),
        Port("filter", "Weights, (O, I/groups, K...) for OIX, (K..., I/groups, O) for XIO.", role="weight"),
        _openvino.shape_port("Spatial extents of the result; under 'document' also its full shape.", attribute=True),
    ),
    outputs=(Port("input_delta", "Gradient of the convolution's input, (N, I, X...) or (N, X..., I).", rule="R20",
                  role="grad_data"),),
    attributes=(
        *_openvino.attributes(),
        Attribute("groups", "int", "Number of groups that the channels are divided into.", 1, minimum=1, rule="R31"),
        Attribute("data_format", "string", "Axis order of the data.", "NXC",
                  choices=spellings("NXC", "NCX"), rule="R5"),
        Attribute("filter_format", "string", "Axis order of the filter.", "XIO",
                  choices=spellings("XIO", "OIX"), rule="R6"),
    ),
    types=_openvino.TYPES,
    convolution=Convolution(data_layout="data_format", weight_layout="filter_format"),
    conformances=("document", "openvino"),
    rules={"document": _onednn.RULES, "openvino": _openvino.RULES},
    plan=_openvino.plan,
    run=_openvino.run,
    infer=_openvino.infer,
)))
