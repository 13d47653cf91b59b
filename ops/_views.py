"""Layouts are strides: arrays in a vendor's axis order as the 6-D bit views that kernels read, never copies.

Data becomes (N, G, channels per group, three spatial axes), weights (G, small channels, large channels, three taps).
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from convreg.conversion import dequantize
from convreg.formats import format_of
from convreg.geometry import Geometry

Array = np.ndarray[Any, np.dtype[Any]]


class View(NamedTuple):
    """A tensor in kernel axis order: bit patterns and the format they are in."""

    bits: Array
    format: str


def _bits(array: Array) -> View:
    known = format_of(array.dtype)
    assert known is not None, array.dtype
    return View(array if array.dtype == known.storage else array.view(known.storage), known.name)


_MISSING = {rank: (1,) * (5 - rank) for rank in (3, 4, 5)}
"""Extents of the spatial axes that a tensor of some rank lacks."""
_CHANNEL_FIRST = {rank: (0, rank - 1, *range(1, rank - 1)) for rank in (3, 4, 5)}
"""Order of axes that turns NXC into NCX."""
_SMALL_FIRST = {rank: (rank - 1, rank - 2, *range(rank - 2)) for rank in (3, 4, 5)}
"""Order of axes that turns XIO into OIX."""


def data(array: Array, groups: int, layout: str = "NCX") -> View:
    """View of NCX or NXC data."""
    bits, format = _bits(array)
    if layout == "NXC":
        bits = bits.transpose(_CHANNEL_FIRST[bits.ndim])
    batch, channels, *spatial = bits.shape
    return View(bits.reshape(batch, groups, channels // groups, *_MISSING[bits.ndim], *spatial), format)


def weights(array: Array, groups: int, layout: str = "OIX", *, divided_small: bool = False) -> View:
    """View of weights whose first letter in OIX/IOX, last in XIO/XOI, is the channel of the small side.

    The small-side channel carries all groups, unless `divided_small` says that the large-side one does.
    """
    bits, format = _bits(array)
    if layout in ("XIO", "XOI"):
        bits = bits.transpose(_SMALL_FIRST[bits.ndim])
    missing = _MISSING[bits.ndim]
    small, large, *taps = bits.shape
    if divided_small:
        return View(bits.reshape(small, groups, large // groups, *missing, *taps).swapaxes(0, 1), format)
    return View(bits.reshape(groups, small // groups, large, *missing, *taps), format)


def grouped_weights(array: Array) -> View:
    """View of weights that carry the groups as their first axis."""
    bits, format = _bits(array)
    groups, small, large, *taps = bits.shape
    return View(bits.reshape(groups, small, large, *_MISSING[bits.ndim - 1], *taps), format)


def vector(array: Array) -> View:
    """View of a bias."""
    return _bits(array)


def accumulator(bias: Array | None) -> Array | None:
    """Bias values as kernels add them: float32, or float64 beside float64 operands."""
    if bias is None or bias.dtype in (np.float32, np.float64):
        return None if bias is None else np.ascontiguousarray(bias)
    return np.ascontiguousarray(dequantize(bias))


def forward(
    kernels: ModuleType, geometry: Geometry, large: View, taps: View, small: View, threads: int,
    bias: Array | None = None,
) -> None:
    """Fill `small`."""
    kernels.forward(large.bits, taps.bits, small.bits, stride=geometry.stride, dilation=geometry.dilation,
                    begin=geometry.begin, formats=(large.format, taps.format, small.format),
                    bias=accumulator(bias), threads=threads)


def backward_data(
    kernels: ModuleType, geometry: Geometry, small: View, taps: View, large: View, threads: int,
    bias: Array | None = None,
) -> None:
    """Fill `large`."""
    kernels.backward_data(small.bits, taps.bits, large.bits, stride=geometry.stride, dilation=geometry.dilation,
                          begin=geometry.begin, formats=(small.format, taps.format, large.format),
                          bias=accumulator(bias), threads=threads)


def backward_weights(
    kernels: ModuleType, geometry: Geometry, large: View, small: View, taps: View, threads: int
) -> None:
    """Fill `taps`."""
    kernels.backward_weights(large.bits, small.bits, taps.bits, stride=geometry.stride, dilation=geometry.dilation,
                             begin=geometry.begin, formats=(large.format, small.format, taps.format), threads=threads)


def bias_sum(kernels: ModuleType, small: View, bias: View, threads: int) -> None:
    """Fill `bias` with the sums of `small` over batch and space."""
    kernels.bias_sum(small.bits, bias.bits, formats=(small.format, bias.format), threads=threads)
