"""Vendor attributes to integers. This package has all differences between vendors' rules about pads, sizes and groups.

Per spatial axis there are a *large* side of extent X, a *small* side of extent Y and a kernel of K taps:

    x = y*stride - begin + t*dilation        0 <= x < X,  0 <= y < Y,  0 <= t < K

A `Geometry` has those integers for all axes, plus batch, groups and channels per group. The modules of this package
turn a call into one: `onednn`, `openvino`, `aten` (which Ascend and ConvGrad share) and `standard` (ONNX's own Conv).
No arrays, no floats.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

from ..errors import Refusing
from ..once import once

LIMIT = 2**62
"""Positions stay below this, so that kernels never overflow 64-bit arithmetic."""


class Axis(NamedTuple):
    """One spatial axis: extents of the large side, the small side and the kernel, and their relation."""

    large: int
    small: int
    taps: int
    stride: int
    dilation: int
    begin: int

    @property
    def reach(self) -> int:
        """Extent that all windows together cover, counted from the first element of the padding."""
        return reach(self.small, effective(self.taps, self.dilation), self.stride)

    @property
    def end(self) -> int:
        """Padding behind the large side up to the end of the last window; negative if elements lie behind it."""
        return self.reach - self.begin - self.large


Triple = tuple[int, int, int]
Formats = tuple[str, str, str]


@dataclass(frozen=True)
class Window:
    """What a kernel is told besides its arrays: the relation of positions along its three axes, and number formats.

    `formats` names the format of each of the kernel's three arrays, in its order.
    """

    stride: Triple
    dilation: Triple
    begin: Triple
    formats: Formats

    @once
    def keywords(self) -> dict[str, Any]:
        """The arguments of a compiled kernel that say the same. Nobody changes the dictionary."""
        return {"stride": self.stride, "dilation": self.dilation, "begin": self.begin, "formats": self.formats}


class Windows(dict[Formats, Window]):
    """The windows of one geometry by formats, each made when it is asked for."""

    def __init__(self, stride: Triple, dilation: Triple, begin: Triple) -> None:
        super().__init__()
        self.stride, self.dilation, self.begin = stride, dilation, begin

    def __missing__(self, formats: Formats) -> Window:
        """Make the window for these formats."""
        window = self[formats] = Window(self.stride, self.dilation, self.begin, formats)
        return window


def lifted(values: list[int], neutral: int) -> Triple:
    """Prefix missing axes with `neutral`: kernels always have three."""
    first, second, third = [neutral] * (3 - len(values)) + values
    return first, second, third


@dataclass(frozen=True)
class Geometry:
    """The integers that decide a convolution and its gradients; channels are counted per group."""

    batch: int
    groups: int
    large_channels: int
    small_channels: int
    axes: tuple[Axis, ...]

    @once
    def windows(self) -> Windows:
        """The window, by the formats of a kernel's three arrays."""
        return Windows(lifted([axis.stride for axis in self.axes], 1), lifted([axis.dilation for axis in self.axes], 1),
                       lifted([axis.begin for axis in self.axes], 0))

    @property
    def pads_end(self) -> list[int]:
        """The least padding behind the large side with which every window fits, per axis."""
        return [max(axis.end, 0) for axis in self.axes]

    @property
    def output_padding(self) -> list[int]:
        """Elements of the large side that lie behind the last window, per axis."""
        return [max(-axis.end, 0) for axis in self.axes]

    @property
    def explicit(self) -> dict[str, list[int]]:
        """The attributes of oneDNN and OpenVINO that state the windows with explicit pads."""
        return {"strides": [axis.stride for axis in self.axes], "pads_begin": [axis.begin for axis in self.axes],
                "pads_end": self.pads_end, "dilations": [axis.dilation for axis in self.axes]}

    def checked(self, call: Refusing) -> Geometry:
        """Return self, or refuse the call when windows have no step or a size or position leaves 64-bit arithmetic."""
        for axis in self.axes:
            for what in ("stride", "dilation"):
                if getattr(axis, what) < 1:
                    raise call.refuse(what, getattr(axis, what), "integers from 1 on for every axis")
        channels = self.groups * self.large_channels, self.groups * self.small_channels
        large = self.batch * channels[0] * prod(axis.large for axis in self.axes)
        small = self.batch * channels[1] * prod(axis.small for axis in self.axes)
        furthest = max((
            abs(axis.begin) + axis.stride * max(axis.small, 1) + axis.dilation * axis.taps + axis.large
            for axis in self.axes
        ), default=0)
        for what, size in (("elements of the large side", large), ("elements of the small side", small),
                           ("the furthest position", furthest)):
            if size >= LIMIT:
                raise call.refuse(what, size, f"numbers below 2**62, so that no index overflows (got {size})")
        return self


def effective(taps: int, dilation: int) -> int:
    """Extent that a kernel covers on the large side."""
    return (taps - 1) * dilation + 1


def reach(small: int, kernel: int, stride: int) -> int:
    """Extent that all windows together cover; `kernel` is an effective extent."""
    return stride * (small - 1) + kernel


def halves(total: int, *, odd_at_begin: bool) -> tuple[int, int]:
    """Split a total padding into (begin, end), with the odd element on the requested side."""
    small = total // 2
    return (total - small, small) if odd_at_begin else (small, total - small)


def known(*extents: Any) -> bool:
    """Whether all of the extents are numbers: shape inference also has unknown ones and symbols."""
    return not any(extent is None or isinstance(extent, str) for extent in extents)


def ints(value: tuple[int, ...] | None, count: int, neutral: int) -> tuple[int, ...]:
    """Return `value`, or `count` times `neutral` where it was not given."""
    return value if value is not None else (neutral,) * count
