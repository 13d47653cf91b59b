"""The axes of an output as words: which one counts the batch, channels, rows or taps."""

from __future__ import annotations

from typing import NamedTuple

from ..roles import WEIGHT_LAYOUTS
from ..spec import Call, Plan

SPACE = {1: ("position",), 2: ("row", "column"), 3: ("plane", "row", "column")}
LETTERS = {"O": "output channel", "I": "input channel", "G": "group"}
UNNAMED = " position"
"""The end of the name of an axis of which only the number is known."""


class Axis(NamedTuple):
    """One axis.

    `kind` is "batch", "channel", "space", "tap", "group" or "" where nothing is known. `groups` is the number of groups
    that divide a channel axis.
    """

    name: str
    kind: str
    groups: int = 1

    @property
    def plural(self) -> str:
        """The name for several."""
        return f"{self.name}s"


def axes_of(call: Call, plan: Plan, place: int) -> tuple[Axis, ...]:
    """Return the axes of an output of a planned call, in the order of its array."""
    made, port = plan.outputs[place], call.spec.outputs[place]
    assert made is not None
    rank = len(made.extents)
    named: tuple[Axis, ...] = ()
    groups = 1 if plan.geometry is None else plan.geometry.groups
    if port.role == "grad_data":
        named = _data(call, rank, groups)
    elif port.role == "grad_weight":
        named = weight_axes(call, plan, rank)
    elif port.role == "grad_bias":
        named = (Axis("channel", "channel", groups),)
    if len(named) != rank:
        return tuple(Axis(f"axis {axis}{UNNAMED}", "") for axis in range(rank))
    return named


def _data(call: Call, rank: int, groups: int) -> tuple[Axis, ...]:
    space = tuple(Axis(name, "space") for name in SPACE.get(rank - 2, ()))
    batch, channel = Axis("batch item", "batch"), Axis("channel", "channel", groups)
    last = call.spec.convolution.data_layout_of(call) == "NXC"
    return (batch, *space, channel) if last else (batch, channel, *space)


def weight_axes(call: Call, plan: Plan, rank: int) -> tuple[Axis, ...]:
    """Return the axes of the weights of a planned call."""
    groups = 1 if plan.geometry is None else plan.geometry.groups
    small_groups, large_groups = (1, groups) if plan.divided_small else (groups, 1)
    convolution = call.spec.convolution
    layout = convolution.weight_layout
    layout = layout if layout in WEIGHT_LAYOUTS else call[layout]
    small, turned = _small_letter(layout), isinstance(convolution.transposed, str) and convolution.is_transposed(call)
    count = rank - len(layout) + 1
    taps = tuple(Axis("tap" if count == 1 else f"tap {name}", "tap") for name in SPACE.get(count, ()))
    found: list[Axis] = []
    for letter in layout:
        if letter == "X":
            found += taps
            continue
        shown = {"O": "I", "I": "O"}.get(letter, letter) if turned else letter
        grouped = {"G": 1, small: 1 if "G" in layout else small_groups}.get(letter, large_groups)
        found.append(Axis(LETTERS[shown], "group" if letter == "G" else "channel", grouped))
    return tuple(found)


def _small_letter(layout: str) -> str:
    """Return the letter of the small side: the first in OIX and IOX, the last in XIO and XOI."""
    letters = layout.replace("G", "")
    return letters[0] if letters.endswith("X") else letters[-1]
