"""Layouts are strides: arrays in a vendor's axis order become the 6-D bit views that kernels read, without copies.

Data becomes (N, G, channels per group, three spatial axes), weights (G, small channels, large channels, three taps).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from convreg.conversion import dequantize
from convreg.formats import format_of
from convreg.geometry import Geometry
from convreg.memory import Array
from convreg.spec import Plan

View = tuple[Array, str]
"""A tensor in kernel axis order: bit patterns, and the format they are in."""


class Way(NamedTuple):
    """How an array becomes a view: as codes, its axes in another order, then in other extents."""

    storage: np.dtype[Any] | None
    format: str
    order: tuple[int, ...] | None
    extents: tuple[int, ...]


def _codes(dtype: np.dtype[Any]) -> tuple[np.dtype[Any] | None, str]:
    known = format_of(dtype)
    assert known is not None, dtype
    return None if dtype == known.storage else known.storage, known.name


_MISSING = {rank: (1,) * (5 - rank) for rank in (3, 4, 5)}
"""Extents of the spatial axes that a tensor of some rank lacks."""
_CHANNEL_FIRST = {rank: (0, rank - 1, *range(1, rank - 1)) for rank in (3, 4, 5)}
"""Order of axes that turns NXC into NCX."""
_SMALL_FIRST = {rank: (rank - 1, rank - 2, *range(rank - 2)) for rank in (3, 4, 5)}
"""Order of axes that turns XIO into OIX."""


def _ordered(shape: tuple[int, ...], order: tuple[int, ...] | None) -> tuple[int, ...]:
    return shape if order is None else tuple(shape[axis] for axis in order)


@lru_cache(maxsize=4096)
def _data_way(shape: tuple[int, ...], dtype: np.dtype[Any], groups: int, layout: str) -> Way:
    order = _CHANNEL_FIRST[len(shape)] if layout == "NXC" else None
    batch, channels, *spatial = _ordered(shape, order)
    return Way(*_codes(dtype), order, (batch, groups, channels // groups, *_MISSING[len(shape)], *spatial))


@lru_cache(maxsize=4096)
def _weights_way(shape: tuple[int, ...], dtype: np.dtype[Any], groups: int, layout: str, divided_small: bool) -> Way:
    order = _SMALL_FIRST[len(shape)] if layout in ("XIO", "XOI") else None
    small, large, *taps = _ordered(shape, order)
    channels = (small, groups, large // groups) if divided_small else (groups, small // groups, large)
    return Way(*_codes(dtype), order, (*channels, *_MISSING[len(shape)], *taps))


def data(array: Array, groups: int, layout: str = "NCX") -> View:
    """View of NCX or NXC data."""
    storage, format, order, extents = _data_way(array.shape, array.dtype, groups, layout)
    if storage is not None:
        array = array.view(storage)
    if order is not None:
        array = array.transpose(order)
    return array.reshape(extents), format


def weights(array: Array, groups: int, layout: str = "OIX", *, divided_small: bool = False) -> View:
    """View of weights whose first letter in OIX/IOX, last in XIO/XOI, is the channel of the small side.

    The small-side channel carries all groups, unless `divided_small` says that the large-side one does.
    """
    storage, format, order, extents = _weights_way(array.shape, array.dtype, groups, layout, divided_small)
    if storage is not None:
        array = array.view(storage)
    if order is not None:
        array = array.transpose(order)
    array = array.reshape(extents)
    return array.swapaxes(0, 1) if divided_small else array, format


def grouped_weights(array: Array) -> View:
    """View of weights that carry the groups as their first axis."""
    groups, small, large, *taps = array.shape
    bits, format = vector(array)
    return bits.reshape((groups, small, large, *_MISSING[array.ndim - 1], *taps)), format


def vector(array: Array) -> View:
    """View of a bias."""
    storage, format = _codes(array.dtype)
    return array if storage is None else array.view(storage), format


def accumulator(bias: Array) -> Array:
    """Bias values as kernels add them: float32, or float64 beside float64 operands."""
    return np.ascontiguousarray(bias if bias.dtype in (np.float32, np.float64) else dequantize(bias))


def forward(
    kernels: ModuleType, geometry: Geometry, large: View, taps: View, small: View, threads: int,
    bias: Array | None = None,
) -> None:
    """Fill `small`."""
    kernels.forward(large[0], taps[0], small[0], geometry.windows[large[1], taps[1], small[1]],
                    bias=None if bias is None or not small[0].size else accumulator(bias), threads=threads)


def backward_data(
    kernels: ModuleType, geometry: Geometry, small: View, taps: View, large: View, threads: int,
    bias: Array | None = None,
) -> None:
    """Fill `large`."""
    kernels.backward_data(small[0], taps[0], large[0], geometry.windows[small[1], taps[1], large[1]],
                          bias=None if bias is None or not large[0].size else accumulator(bias), threads=threads)


def backward_weights(
    kernels: ModuleType, geometry: Geometry, large: View, small: View, taps: View, threads: int
) -> None:
    """Fill `taps`."""
    kernels.backward_weights(large[0], small[0], taps[0], geometry.windows[large[1], small[1], taps[1]],
                             threads=threads)


def bias_sum(kernels: ModuleType, small: View, bias: View, threads: int) -> None:
    """Fill `bias` with the sums of `small` over batch and space."""
    kernels.bias_sum(small[0], bias[0], formats=(small[1], bias[1]), threads=threads)


def convolved(compute: Callable[..., None], *, biased: bool = False) -> Callable[..., None]:
    """Return the function `run` of an operator whose result is the other side of its first input, by the weights.

    Parameters
    ----------
    compute : callable
        `forward` or `backward_data`.
    biased : bool
        Whether the third input is a bias.
    """
    def run(
        plan: Plan, inputs: tuple[Any, ...], outputs: tuple[Any, ...], kernels: ModuleType, threads: int
    ) -> None:
        geometry, (layout, weights_layout) = plan.integers, plan.work or ("NCX", "OIX")
        groups = geometry.groups
        compute(kernels, geometry, data(inputs[0], groups, layout),
                weights(inputs[1], groups, weights_layout, divided_small=plan.divided_small),
                data(outputs[0], groups, layout), threads, bias=inputs[2] if biased else None)

    return run
