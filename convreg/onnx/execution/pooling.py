"""MaxPool, AveragePool and LpPool as ONNX defines them, on NumPy arrays with any number of spatial axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..pool_windows import placed

Array = np.ndarray[Any, np.dtype[Any]]


class Axis(NamedTuple):
    """Windows along one axis: positions of the taps without padding, and extents of input and padding."""

    positions: Array  # (output, kernel): index into the input, outside of it in padding
    extent: int
    padded: int  # one past the last position that `count_include_pad` counts


def windows(shape: Sequence[int], attributes: Mapping[str, Any]) -> list[Axis]:
    """Return the windows of each spatial axis.

    Raises
    ------
    GraphError
        If an attribute has another number of entries than the axes need, or no window fits.
    """
    found = []
    for extent, axis in zip(shape, placed(shape, attributes), strict=True):
        assert axis is not None
        starts = np.arange(axis.windows) * axis.stride - axis.begin
        found.append(Axis(starts[:, None] + np.arange(axis.taps) * axis.dilation, extent, extent + axis.end))
    return found


def gathered(x: Array, axes: Sequence[Axis], fill: Any) -> Array:
    """Return the windows' elements, ``(N, C, outputs..., taps)``, with `fill` in padding."""
    rank = len(axes)
    picked = x
    inside = np.ones((), bool)
    for number, axis in enumerate(axes):  # the axes already done stand as pairs (output, tap)
        within = (axis.positions >= 0) & (axis.positions < axis.extent)
        clipped = np.clip(axis.positions, 0, max(axis.extent - 1, 0))
        place = 2 + 2 * number
        picked = np.take(picked, clipped, place)
        shape = [1] * (2 * rank)
        shape[2 * number: 2 * number + 2] = within.shape
        inside = inside & within.reshape(shape)
    picked = np.where(inside, picked, np.asarray(fill, x.dtype))
    order = [0, 1, *range(2, 2 + 2 * rank, 2), *range(3, 2 + 2 * rank, 2)]
    picked = picked.transpose(order)
    return picked.reshape(*picked.shape[: 2 + rank], -1)


def max_pool(attributes: Mapping[str, Any], outputs: int, x: Array) -> tuple[Any, ...]:
    """Return the maxima and, if asked for, their places in the flat input."""
    axes = windows(x.shape[2:], attributes)
    least = -np.inf if x.dtype.kind not in "iu" else np.iinfo(x.dtype).min
    taps = gathered(x, axes, least)
    best = taps.argmax(-1)
    values = np.take_along_axis(taps, best[..., None], -1)[..., 0]
    if outputs == 1:
        return (values,)
    spatial = x.shape[2:]
    strides = np.cumprod([1, *(spatial[:-1] if attributes.get("storage_order") else spatial[:0:-1])])
    strides = strides if attributes.get("storage_order") else strides[::-1]
    grid = np.zeros([1] * (2 * len(axes)), np.int64)
    for number, (axis, step) in enumerate(zip(axes, strides, strict=True)):
        shape = [1] * (2 * len(axes))
        shape[number], shape[len(axes) + number] = axis.positions.shape
        grid = grid + (axis.positions * step).reshape(shape)
    flat = grid.reshape(*grid.shape[: len(axes)], -1)
    places = np.take_along_axis(np.broadcast_to(flat, taps.shape), best[..., None], -1)[..., 0]
    images = np.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], *[1] * len(axes)) * int(np.prod(spatial))
    return values, places + images


def average_pool(attributes: Mapping[str, Any], outputs: int, x: Array) -> tuple[Any, ...]:
    """Return the means over the elements, or over elements and padding."""
    axes = windows(x.shape[2:], attributes)
    counts = np.ones((), np.int64)
    for axis in axes:
        inside = axis.positions < axis.padded
        if not attributes.get("count_include_pad"):
            inside = (axis.positions >= 0) & (axis.positions < axis.extent)
        counts = counts[..., None] * inside.sum(1)
    wide = np.float64 if x.dtype == np.float64 else np.float32
    total = gathered(x, axes, 0).sum(-1, dtype=wide)
    return ((total / np.maximum(counts, 1)).astype(x.dtype),)


def lp_pool(attributes: Mapping[str, Any], outputs: int, x: Array) -> tuple[Any, ...]:
    """Return the p-norms of the windows."""
    p = attributes.get("p", 2)
    wide = np.float64 if x.dtype == np.float64 else np.float32
    taps = np.abs(gathered(x, windows(x.shape[2:], attributes), 0).astype(wide))
    return (((taps ** p).sum(-1) ** (1 / p)).astype(x.dtype),)
