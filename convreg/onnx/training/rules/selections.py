"""Operators that choose elements: slices, gathers, dropout and others."""

from __future__ import annotations

import numpy as np

from ..rule_registry import Gradients, gradient_of
from ..step import Array, Step
from ..value import Value

LARGEST_PLACE = 2**62


@gradient_of("Slice", inputs=(0,))
def slice_(step: Step) -> Value:
    """``g`` where it was taken from, zeros elsewhere."""
    bounds = [step.constant(index) for index in (1, 2, 3, 4)]
    if any(step.has(index) and bound is None for index, bound in enumerate(bounds, 1)):
        return _scattered_at_run(step)
    starts, ends = bounds[0], bounds[1]
    if starts is None or ends is None:
        raise step.error("starts and ends are missing")
    rank = step.rank(step.x)
    axes = [int(axis) % rank for axis in bounds[2]] if bounds[2] is not None else list(range(len(starts)))
    steps = [int(by) for by in bounds[3]] if bounds[3] is not None else [1] * len(starts)
    if not all(_is_whole(*taken) or isinstance((step.x.shape or ())[axis], int)
               for axis, *taken in zip(axes, starts, ends, steps, strict=True)):
        return _scattered_at_run(step)
    g, pads = step.g, np.zeros((2, rank), np.int64)
    for axis, start, end, by in zip(axes, starts, ends, steps, strict=True):
        if _is_whole(start, end, by):
            continue
        [extent] = step.extents(step.x, [axis])
        taken = _taken(extent, int(start), int(end), by)
        if by == 1 and taken.size:
            pads[:, axis] = taken[0], extent - 1 - taken[-1]
        else:
            g = _spread(step, g, axis, taken, extent)
    return g.apply("Pad", step.writer.integers(pads.ravel())) if pads.any() else g


def _is_whole(start: int, end: int, by: int) -> bool:
    """Whether a slice takes all of an axis, whatever its extent is."""
    return by == 1 and start == 0 and end >= LARGEST_PLACE


def _taken(extent: int, start: int, end: int, by: int) -> Array:
    """The places that a slice takes along an axis."""
    start, end = (bound + extent if bound < 0 else bound for bound in (start, end))
    if by > 0:
        return np.arange(min(max(start, 0), extent), min(max(end, 0), extent), by)
    return np.arange(min(max(start, 0), extent - 1), min(max(end, -1), extent - 1), by)


def _spread(step: Step, g: Value, axis: int, taken: Array, extent: int) -> Value:
    """Put elements in their places along an axis, zeros between them."""
    inverse = np.full(extent, taken.size, np.int64)
    inverse[taken] = np.arange(taken.size)
    return _with_zero(step, g, axis).apply("Gather", step.writer.integers(inverse), axis=axis)


def _with_zero(step: Step, g: Value, axis: int) -> Value:
    """Append one zero along an axis."""
    pads = np.zeros((2, step.rank(step.x)), np.int64)
    pads[1, axis] = 1
    return g.apply("Pad", step.writer.integers(pads.ravel()))


def _scattered_at_run(step: Step) -> Value:
    """Read the bounds when the graph runs: the places along every axis are a slice of its numbers."""
    axes = step.constant(3)
    writer, rank = step.writer, step.rank(step.x)
    if axes is None and step.has(3):
        raise step.error("the axes are computed by the graph; allowed: axes that are constant")
    starts = step.input(1)
    [starts_count] = step.extents(starts) if axes is None else [0]
    along = [int(axis) % rank for axis in axes] if axes is not None else list(range(starts_count))
    g = step.g
    zero, one = (writer.constant(np.asarray(number, np.int64)) for number in (0, 1))
    for place, axis in enumerate(along):
        own = step.x.extent(axis)
        numbers = writer.add("Range", zero, own.reshape([]), one)
        parts = [None if not step.has(index) else
                 step.input(index).cast(np.int64).apply("Gather", writer.integers([place]))
                 for index in (1, 2)]
        by = step.input(4).cast(np.int64).apply("Gather", writer.integers([place])) if step.has(4) else None
        taken = writer.add("Slice", numbers, *parts, writer.integers([0]), by)
        count = writer.add("Shape", taken)
        inverse = count.expand(own).apply("ScatterElements", taken, writer.add("Range", zero, count.reshape([]), one),
                                          axis=0)
        g = _with_zero(step, g, axis).apply("Gather", inverse, axis=axis)
    return g


def _zeros(step: Step) -> Value:
    return step.writer.scalar(0, step.x.dtype).expand(step.x.extents())


@gradient_of("Gather", inputs=(0,))
def gather(step: Step) -> Value:
    """``g`` added at the indices."""
    x, indices = step.x, step.input(1)
    rank, count = step.rank(x), step.rank(indices)
    axis = step.attribute("axis", 0) % rank
    g = step.g
    if count != 1:  # one axis of indices in place of none or several
        lead = [x.extent(place) for place in range(axis)]
        tail = [x.extent(place) for place in range(axis + 1, rank)]
        g = g.reshape(step.writer.concat([*lead, step.writer.integers([-1]), *tail]))
        indices = indices.reshape([-1])
    places = indices.reshape([-1, *[1] * (rank - 1 - axis)]).expand(step.writer.add("Shape", g))
    return _zeros(step).apply("ScatterElements", places, g, axis=axis, reduction="add")


@gradient_of("GatherElements", inputs=(0,))
def gather_elements(step: Step) -> Value:
    """``g`` added at the indices."""
    return _zeros(step).apply("ScatterElements", step.input(1), step.g, axis=step.attribute("axis", 0),
                              reduction="add")


@gradient_of("GatherND", inputs=(0,))
def gather_nd(step: Step) -> Value:
    """``g`` added at the indices."""
    if step.attribute("batch_dims", 0):
        raise step.error(f"batch_dims={step.attribute('batch_dims')} has no gradient here; allowed: 0")
    return _zeros(step).apply("ScatterND", step.input(1), step.g, reduction="add")


def _scattered(step: Step, gather: str, scatter: str, **along: int) -> Gradients:
    """Of what is scattered ``g`` at its places; of the data ``g``, without those places if they were overwritten."""
    reduction, places = step.attribute("reduction", "none"), step.input(1)
    if reduction not in ("none", "add"):
        raise step.error(f"reduction={reduction!r} has no gradient here; allowed: 'none', 'add'")
    data = step.g
    if reduction == "none" and step.wants(0):
        zeros = step.writer.scalar(0, step.x.dtype).expand(step.input(2).extents())
        data = data.apply(scatter, places, zeros, **along)
    return [data if step.wants(0) else None, None,
            step.g.apply(gather, places, **along) if step.wants(2) else None]


@gradient_of("ScatterElements", inputs=(0, 2))
def scatter_elements(step: Step) -> Gradients:
    """``g`` where nothing was put in its place; for the updates ``g`` at the indices."""
    return _scattered(step, "GatherElements", "ScatterElements", axis=step.attribute("axis", 0))


@gradient_of("ScatterND", inputs=(0, 2))
def scatter_nd(step: Step) -> Gradients:
    """``g`` where nothing was put in its place; for the updates ``g`` at the indices."""
    return _scattered(step, "GatherND", "ScatterND")


@gradient_of("ReverseSequence", inputs=(0,))
def reverse_sequence(step: Step) -> Value:
    """``g`` reversed in the same way."""
    return step.g.apply("ReverseSequence", step.input(1), batch_axis=step.attribute("batch_axis", 1),
                        time_axis=step.attribute("time_axis", 0))


@gradient_of("TopK", inputs=(0,))
def top_k(step: Step) -> Value:
    """``g`` at the elements that were taken."""
    return _zeros(step).apply("ScatterElements", step.output(1), step.g, axis=step.attribute("axis", -1))


@gradient_of("Dropout", inputs=(0,), constants=(1,))
def dropout(step: Step) -> Value:
    """``g / (1 - ratio)`` where the node's own mask kept an element; ``g`` where it keeps all."""
    training = step.constant(2)
    if not step.has(2) or (training is not None and not training):
        return step.g
    mask = step.output(1, np.bool_, step.y.shape)
    ratio = step.constant(1)
    scale: Value | float
    if not step.has(1) or ratio is not None:
        share = 0.5 if ratio is None else float(ratio)
        scale = 1 / (1 - share) if share < 1 else 0.0
    else:
        scale = 1 / (1 - step.input(1).cast(step.x.dtype))
    if training is None:
        factor = scale if isinstance(scale, Value) else step.writer.scalar(scale, step.x.dtype)
        scale = step.input(2).where(factor, 1)
    return (step.g * scale).only(mask)


@gradient_of("Tile", inputs=(0,))
def tile(step: Step) -> Value:
    """``g`` summed over the copies."""
    repeats = step.constant(1)
    if repeats is None:
        raise step.error("the repeats are computed by the graph; allowed: repeats that are constant")
    shape = step.x.shape
    if shape is None or sum(not isinstance(extent, int) for extent in shape) > 1:
        step.extents(step.x)
    apart = [int(entry) for pair in zip(repeats, (extent if isinstance(extent, int) else -1 for extent in shape or ()),
                                        strict=True) for entry in pair]
    return step.g.reshape(apart).sum(range(0, len(apart), 2), keepdims=False)


@gradient_of("Trilu", inputs=(0,))
def triangle(step: Step) -> Value:
    """The same triangle of ``g``."""
    diagonal = [step.input(1)] if step.has(1) else []
    return step.g.apply("Trilu", *diagonal, upper=step.attribute("upper", 1))


@gradient_of("DepthToSpace")
def depth_to_space(step: Step) -> Gradients:
    """The blocks of ``g`` put back into channels."""
    size = step.attribute("blocksize")
    if step.attribute("mode", "DCR") == "DCR":
        return [step.g.apply("SpaceToDepth", blocksize=size)]
    channels, height, width = step.extents(step.x, [1, 2, 3])
    apart = step.g.reshape([-1, channels // size**2, height, size, width, size])
    return [apart.transpose([0, 1, 3, 5, 2, 4]).reshape([-1, channels, height, width])]


@gradient_of("SpaceToDepth")
def space_to_depth(step: Step) -> Value:
    """The channels of ``g`` put back into blocks."""
    return step.g.apply("DepthToSpace", blocksize=step.attribute("blocksize"))
