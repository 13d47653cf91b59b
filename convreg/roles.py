"""Roles: what lets an operator be lowered, translated and explained without its name being known.

Every operator over a convolution is ATen's ``convolution_backward`` with some operands and results left out. If the
convolution is not transposed, grad_output is the small side and data is the large side; otherwise the sides are
exchanged. A forward operator has the same roles, because a convolution is the data gradient of a transposed one and
vice versa. Operators that convert between number formats have roles of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

Role = Literal[
    "grad_output", "data", "weight", "bias", "grad_data", "grad_weight", "grad_bias",
    "data_shape", "data_extents", "weight_shape", "number", "divisor", "factor", "converted"]
OPERANDS: tuple[Role, ...] = ("grad_output", "data", "weight", "bias")
RESULTS: tuple[Role, ...] = ("grad_data", "grad_weight", "grad_bias")
SHAPES: tuple[Role, ...] = ("data_shape", "data_extents", "weight_shape")
"""Of inputs that state a shape: that of data, that of its spatial axes alone, that of weight."""
NUMBERS: tuple[Role, ...] = ("number", "divisor", "factor")
"""What a conversion reads: numbers, and what divides them before or multiplies them after."""
CONVERTED: Role = "converted"
"""What a conversion returns."""

DATA_LAYOUTS = ("NCX", "NXC")
WEIGHT_LAYOUTS = {"OIX": "OIX", "IOX": "OIX", "XIO": "XIO", "XOI": "XIO", "GOIX": "GOIX"}
"""Layouts of weights, each with its reading: OIX is (small side, large side per group, taps) and XIO its reverse;
GOIX has the groups as an axis of their own."""


class Stated(Protocol):
    """The attributes of a call by name: a `Call`, or a mapping."""

    def __getitem__(self, name: str, /) -> Any:
        """Return a value."""


@dataclass(frozen=True, slots=True)
class Convolution:
    """How an operator whose ports have roles arranges its convolution.

    Parameters
    ----------
    transposed : bool or str
        Whether grad_output is the large side, or the name of the attribute that says so.
    forward : bool
        Whether it is a forward operator: grad_output is its input, grad_data its result, and bias is added to that.
    data_layout : str
        Layout of grad_output, data and grad_data, or the name of the attribute that states it.
    weight_layout : str
        Layout of weight and grad_weight, or the name of the attribute that states it.
    mask : str
        Name of the attribute that selects the results, if there is one.
    """

    transposed: bool | str = False
    forward: bool = False
    data_layout: str = "NCX"
    weight_layout: str = "OIX"
    mask: str = ""

    @property
    def has_group_axis(self) -> bool:
        """Whether weights have the groups as an axis of their own."""
        return self.weight_layout == "GOIX"

    def is_transposed(self, call: Stated) -> bool:
        """Whether grad_output is the large side in a call."""
        stated: bool = call[self.transposed] if isinstance(self.transposed, str) else self.transposed
        return stated

    def data_layout_of(self, call: Stated) -> str:
        """Return the layout of data in a call: NCX or NXC."""
        layout: str = self.data_layout if self.data_layout in DATA_LAYOUTS else call[self.data_layout]
        return layout

    def weight_layout_of(self, call: Stated, divided_small: bool = False) -> str:
        """Return the layout of weights in a call: OIX, XIO or GOIX; with "page" before it if groups divide the small
        side and not the large one, as on oneDNN's page."""
        own = self.weight_layout
        layout = WEIGHT_LAYOUTS[own if own in WEIGHT_LAYOUTS else call[own]]
        return f"page {layout}" if divided_small else layout


class Precision(NamedTuple):
    """Roundings of a call besides the last one of each result.

    `operands` is the format that the operands of products are rounded to first, None where they stay as they are; a
    bias gradient has no products and sums what it is given. `dropped` is the number of mantissa bits that "hf32" drops
    from float32. `stages` has, by output, the format in which it leaves its kernel; without them all leave it in that
    of the sums. `cause` names the attribute that chose `operands`, and `allowed` says what else it could be.
    """

    operands: str | None = None
    stages: tuple[str, ...] = ()
    cause: str = ""
    allowed: str = ""
    dropped: int = 12
