"""Layers of networks: the geometry of a convolution, and the call of oneDNN Graph's operator per direction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

from .errors import GraphError
from .geometry import Axis, Geometry

DIRECTIONS = ("data", "weights", "forward")
LAYOUTS = ("ncx", "nxc")
"""Channels before space and weights in OIX, or channels last and weights in XIO; the transposed ones in IOX and XOI."""
OPERANDS = {"forward": ("large", "taps"), "backward_data": ("small", "taps"), "backward_weights": ("large", "small")}
RESULT = {"forward": "small", "backward_data": "large", "backward_weights": "taps"}
"""The tensors of each kernel by the names of `Shapes`."""


class Shapes(NamedTuple):
    """Shapes of the three tensors with channels before space: (N, C, X), (N, M, Y) and (M, C/groups, K)."""

    large: tuple[int, ...]
    small: tuple[int, ...]
    taps: tuple[int, ...]


class LayerCall(NamedTuple):
    """A oneDNN operator's name without the vendor, its operands in order by the names of `Shapes`, its attributes."""

    operator: str
    operands: tuple[str, ...]
    attributes: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Layer:
    """A convolution from the large to the small side, or, `transposed`, from the small to the large one."""

    name: str
    geometry: Geometry
    transposed: bool = False

    @property
    def shapes(self) -> Shapes:
        """Shapes of the large side, the small side and the weights."""
        g = self.geometry
        large, small = g.groups * g.large_channels, g.groups * g.small_channels
        return Shapes((g.batch, large, *(axis.large for axis in g.axes)),
                      (g.batch, small, *(axis.small for axis in g.axes)),
                      (small, g.large_channels, *(axis.taps for axis in g.axes)))

    @property
    def gflop(self) -> float:
        """Floating-point operations of one direction as networks count them, taps in the padding included."""
        return self._gflop([axis.small * axis.taps for axis in self.geometry.axes])

    @property
    def gflop_inside(self) -> float:
        """The same without the taps that fall into the padding: what has to be computed."""
        return self._gflop([sum(len(inside(axis, tap)) for tap in range(axis.taps)) for axis in self.geometry.axes])

    def _gflop(self, pairs: Sequence[int]) -> float:
        g = self.geometry
        return 2e-9 * g.batch * g.groups * g.large_channels * g.small_channels * prod(pairs)

    def kernel(self, direction: str) -> str:
        """Name of the kernel that a direction of this layer is."""
        if direction == "weights":
            return "backward_weights"
        return "forward" if (direction == "forward") != self.transposed else "backward_data"

    def call(self, direction: str, layout: str) -> LayerCall:
        """Return the call of oneDNN Graph's operator for a direction, with explicit pads."""
        weights = ("IOX", "XOI") if self.transposed else ("OIX", "XIO")
        attributes: dict[str, Any] = {
            **self.geometry.explicit, "groups": self.geometry.groups, "data_format": layout.upper(),
            "weights_format": weights[LAYOUTS.index(layout)],
        }
        kernel = self.kernel(direction)
        operands, result = OPERANDS[kernel], RESULT[kernel]
        names = ("ConvTranspose", "ConvTransposeBackwardData", "ConvTransposeBackwardWeights")
        if self.transposed and direction == "weights":
            operands = operands[::-1]  # the layer's input is its small side
        if not self.transposed:
            names = ("Convolution", "ConvolutionBackwardData", "ConvolutionBackwardWeights")
        if result == "taps":
            attributes["weights_shape"] = in_layout(self.shapes.taps, result, layout)
        elif result == "large" and self.transposed:
            attributes["output_padding"] = self.geometry.output_padding
        elif result == "large":
            attributes["dst_shape"] = in_layout(self.shapes.large, result, layout)
        return LayerCall(names[("forward", "data", "weights").index(direction)], operands, attributes)

    def __str__(self) -> str:
        """The layer in a few words."""
        large, small, taps = self.shapes
        axes = self.geometry.axes
        first, second = (small, large) if self.transposed else (large, small)
        words = ["x".join(map(str, first)), "to", "x".join(map(str, second[1:])), "by", "x".join(map(str, taps[2:]))]
        for label, values, neutral in (("stride", [axis.stride for axis in axes], 1),
                                       ("dilation", [axis.dilation for axis in axes], 1),
                                       ("groups", [self.geometry.groups], 1)):
            if any(value != neutral for value in values):
                words.append(f"{label} {'x'.join(map(str, dict.fromkeys(values)))}")
        return " ".join(words)


def in_layout(shape: tuple[int, ...], name: str, layout: str) -> tuple[int, ...]:
    """Return a shape of `Shapes` in a layout's order of axes."""
    if layout == "ncx":
        return shape
    return (*shape[2:], shape[1], shape[0]) if name == "taps" else (shape[0], *shape[2:], shape[1])


def inside(axis: Axis, tap: int) -> range:
    """Positions of the small side whose window has this tap inside the large side."""
    shift = axis.begin - tap * axis.dilation
    first = max(0, -(-shift // axis.stride))
    return range(first, max(first, min(axis.small, (axis.large - 1 + shift) // axis.stride + 1)))


def divided(batch: int, channels_in: int, channels_out: int, groups: int, axes: tuple[Axis, ...], transposed: bool,
            where: str) -> Geometry:
    """Return the geometry of a layer whose channels are counted over all groups.

    Raises
    ------
    GraphError
        If the groups do not divide the channels.
    """
    if channels_in % groups or channels_out % groups:
        raise GraphError(f"{where}: {groups} groups do not divide {channels_in} and {channels_out} channels")
    large, small = (channels_out, channels_in) if transposed else (channels_in, channels_out)
    return Geometry(batch, groups, large // groups, small // groups, axes)
