"""The role of every operator's ports. Each operator is a gradient of a convolution in a vendor's notation.

All of them are ATen's ``convolution_backward`` with some operands and results left out. If the convolution is not
transposed, grad_output is the small side and data is the large side; otherwise the sides are exchanged. The two forward
operators have roles too, because a convolution is the data gradient of a transposed one and vice versa. They are marked
`forward` and may have a bias.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .geometry import Geometry
from .spec import Call, OpSpec, Plan

Role = Literal["grad_output", "data", "weight", "bias", "grad_data", "grad_weight", "grad_bias"]
OPERANDS: tuple[Role, ...] = ("grad_output", "data", "weight", "bias")
RESULTS: tuple[Role, ...] = ("grad_data", "grad_weight", "grad_bias")


@dataclass(frozen=True)
class Roles:
    """Port names by role, blank if an operator has no such port. `transposed` is None if an attribute decides it."""

    grad_output: str
    data: str = ""
    weight: str = ""
    bias: str = ""
    grad_data: str = ""
    grad_weight: str = ""
    grad_bias: str = ""
    transposed: bool | None = False
    forward: bool = False

    def port(self, role: Role) -> str:
        """Return the name of the port with a role, or a blank."""
        name: str = getattr(self, role)
        return name


ROLES = {
    "onednn::Convolution": Roles("src", weight="weights", bias="bias", grad_data="dst", transposed=True, forward=True),
    "onednn::ConvolutionBackwardData": Roles("diff_dst", weight="weights", grad_data="diff_src"),
    "onednn::ConvolutionBackwardWeights": Roles("diff_dst", "src", grad_weight="diff_weights"),
    "onednn::ConvTranspose": Roles("src", weight="weights", bias="bias", grad_data="dst", forward=True),
    "onednn::ConvTransposeBackwardData": Roles("diff_dst", weight="weights", grad_data="diff_src", transposed=True),
    "onednn::ConvTransposeBackwardWeights": Roles("diff_dst", "src", grad_weight="diff_weights", transposed=True),
    "openvino::ConvolutionBackpropData": Roles("output_delta", weight="filter", grad_data="input_delta"),
    "openvino::GroupConvolutionBackpropData": Roles("data", weight="filter", grad_data="output"),
    "aten::convolution_backward": Roles(
        "grad_output", "input", "weight", "", "grad_input", "grad_weight", "grad_bias", transposed=None),
    "ascend::ConvolutionBackward": Roles(
        "gradOutput", "input", "weight", "", "gradInput", "gradWeight", "gradBias", transposed=None),
    "microsoft::ConvGrad": Roles("dY", "X", "W", "", "dX", "dW", "dB"),
}


def roles_of(spec: OpSpec) -> Roles | None:
    """Return the roles of an operator's ports, None for an operator of another package."""
    return ROLES.get(spec.qualified_name)


def is_transposed(call: Call, roles: Roles) -> bool:
    """Whether grad_output is the large side."""
    return call["transposed"] if roles.transposed is None else roles.transposed


def data_layout(call: Call) -> str:
    """Layout of grad_output, data and grad_data: NCX or NXC."""
    return call["data_format"] if call.declares("data_format") else "NCX"


def weight_layout(call: Call, plan: Plan) -> str:
    """Layout of weight and grad_weight.

    OIX is (small side, large side per group, taps) and XIO its reverse; GOIX has the groups as an axis of their own;
    in "page OIX" and "page XIO" the groups divide the small side.
    """
    name = next((name for name in ("weights_format", "filter_format") if call.declares(name)), None)
    if name is None:
        return "GOIX" if call.spec.name.startswith("Group") else "OIX"
    layout = {"IOX": "OIX", "XOI": "XIO"}.get(call[name], call[name])
    page_order = call.spec.name == "ConvTransposeBackwardData" and plan.work[3]
    return f"page {layout}" if page_order else layout


def geometry_of(plan: Plan) -> Geometry | None:
    """Return the geometry behind a plan; None where an empty tensor leaves nothing but zeros."""
    work = plan.work
    geometry: Geometry | None = work if isinstance(work, Geometry) else work[0]
    return geometry
