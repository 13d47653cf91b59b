"""Pooling over windows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....geometry import effective
from ....geometry.standard import conv_pads
from ..rule_registry import gradient_of
from ..step import Array, Step
from ..value import Value
from ._linear import transposed_maps


@gradient_of("MaxPool")
def max_pool(step: Step) -> Value:
    """``g`` added at the element that the window took: the first of those that tie."""
    if step.attribute("storage_order", 0):
        raise step.error("storage_order=1 is refused; allowed: 0, so that indices count in the order of the elements")
    x, indices = step.x, step.output(1, np.int64, step.y.shape)
    flat = step.writer.integers([-1])
    total = x.shape
    if total is not None and all(isinstance(extent, int) for extent in total):
        size = step.writer.integers([int(np.prod(np.asarray(total, np.int64)))])
    else:
        size = step.writer.add("Size", x).reshape([1])
    zeros = step.writer.scalar(0, x.dtype).expand(size)
    made = zeros.apply("ScatterElements", indices.reshape(flat), step.g.reshape(flat), axis=0, reduction="add")
    return made.reshaped_like(x)


@gradient_of("AveragePool")
def average_pool(step: Step) -> Value:
    """``g / count`` added to every element of the window; the count is that of the node, axis by axis."""
    taps = step.attribute("kernel_shape")
    axes = range(2, 2 + len(taps))
    ones = [1] * len(taps)
    strides, dilations = step.attribute("strides") or ones, step.attribute("dilations") or ones
    if _is_apart(step, taps, strides, dilations) and not _are_known(step, axes):
        return _spread(step, taps)
    large, small = step.extents(step.x, axes), step.extents(step.y, axes)
    reach = tuple(effective(count, dilation) for count, dilation in zip(taps, dilations, strict=True))
    pads = conv_pads(step.attribute("auto_pad", "NOTSET"), tuple(large), reach, tuple(strides), step.attribute("pads"))
    include = bool(step.attribute("count_include_pad", 0))
    maps = {}
    for place, axis in enumerate(axes):
        window = _window(small[place], taps[place], strides[place], dilations[place], pads[place][0])
        maps[axis] = step.writer.constant(_means(window, large[place], pads[place], include).astype(step.x.dtype))
    return transposed_maps(step, maps)


def _is_apart(step: Step, taps: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> bool:
    """Whether windows neither meet, nor leave anything between them, nor leave the data."""
    return (list(strides) == list(taps) and set(dilations) == {1} and not step.attribute("ceil_mode", 0)
            and not any(step.attribute("pads") or ()) and step.attribute("auto_pad", "NOTSET") in ("NOTSET", "VALID"))


def _are_known(step: Step, axes: Sequence[int]) -> bool:
    shape = step.x.shape
    return shape is not None and all(isinstance(shape[axis], int) for axis in axes)


def _spread(step: Step, taps: Sequence[int]) -> Value:
    """Repeat ``g / count`` over every window, and put zeros behind the last one; a run tells the extents."""
    count, writer = len(taps), step.writer
    apart = (step.g / float(np.prod(taps))).unsqueeze(range(3, 3 + 2 * count, 2))
    apart = apart.expand([1, 1, *(extent for tap in taps for extent in (1, tap))])
    covered = writer.add("Shape", step.g) * writer.integers([1, 1, *taps])
    behind = step.x.extents() - covered
    return apart.reshape(covered).apply("Pad", writer.concat([writer.integers([0] * (2 + count)), behind]))


def _window(small: int, taps: int, stride: int, dilation: int, begin: int) -> Array:
    """The places along an axis that every window reads, (windows, taps)."""
    return (np.arange(small) * stride - begin)[:, None] + np.arange(taps) * dilation


def _means(window: Array, extent: int, pads: Sequence[int], include: bool) -> Array:
    """The matrix (extent, windows) that makes means along an axis. A window that leaves the padded axis counts only
    what lies within it."""
    inside = (window >= 0) & (window < extent)
    counted = (window >= -pads[0]) & (window < extent + pads[1]) if include else inside
    matrix = np.zeros((extent, len(window)))
    for column, (places, hits) in enumerate(zip(window, inside, strict=True)):
        matrix[places[hits], column] = 1 / counted[column].sum()
    return matrix
