"""Resize and Pad: linear maps of single axes, whose matrices the node itself makes out of unit vectors."""

from __future__ import annotations

from math import prod

import numpy as np

from ..rule_registry import gradient_of
from ..step import Step
from ..value import Value
from ._linear import transposed_maps

LAST = 2**62
"""An end that Slice takes for the end of every axis."""


@gradient_of("Resize", inputs=(0,))
def resize(step: Step) -> Value:
    """The transposed matrix of every axis that is resized, whatever the mode; whole factors of nearest are sums."""
    if step.attribute("coordinate_transformation_mode") == "tf_crop_and_resize":
        raise step.error("coordinate_transformation_mode='tf_crop_and_resize' has no gradient here; allowed: other "
                         "values")
    if step.attribute("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise step.error(f"keep_aspect_ratio_policy={step.attribute('keep_aspect_ratio_policy')!r} has no gradient "
                         "here; allowed: 'stretch'")
    scales = _stated(step, 2)
    axes = [axis for axis, scale in scales.items() if scale != 1] if scales else [
        axis for axis in _resized_axes(step) if step.x.shape is None or step.y.shape is None
        or step.x.shape[axis] != step.y.shape[axis] or step.x.shape[axis] is None]
    factors = [_repeats(step, axis, scales.get(axis)) for axis in axes]
    if all(factors) and all(axis >= 2 for axis in axes) and axes:
        return _sums(step, dict(zip(axes, factors, strict=True)))
    return transposed_maps(step, {axis: _matrix(step, axis, scales.get(axis)) for axis in axes})


def _resized_axes(step: Step) -> list[int]:
    rank = step.rank(step.x)
    return [axis % rank for axis in step.attribute("axes") or range(rank)]


def _stated(step: Step, index: int) -> dict[int, float]:
    """The scales by axis; none where the node states sizes."""
    if not step.has(index):
        return {}
    scales = step.constant(index)
    if scales is None:
        raise step.error("the scales are computed by the graph; allowed: scales that are constant")
    return dict(zip(_resized_axes(step), map(float, scales), strict=True)) if scales.size else {}


def _repeats(step: Step, axis: int, scale: float | None) -> int:
    """How often nearest repeats every element along an axis, 0 where it does something else."""
    mapping = step.attribute("coordinate_transformation_mode", "half_pixel")
    rounding = step.attribute("nearest_mode", "round_prefer_floor")
    plain = (mapping == "asymmetric" and rounding == "floor") or (
        mapping in ("half_pixel", "pytorch_half_pixel") and rounding.startswith("round_prefer"))
    if step.attribute("mode", "nearest") != "nearest" or not plain:
        return 0
    if scale is not None and scale >= 2 and scale == int(scale):  # whatever the extents are
        return int(scale)
    own, made = step.extents(step.x, [axis])[0], step.extents(step.y, [axis])[0]
    if not own or made % own or made == own:
        return 0
    return made // own if scale in (None, made / own) else 0


def _sums(step: Step, factors: dict[int, int]) -> Value:
    """Sums of blocks, as a pool makes them."""
    kernel = [factors.get(axis, 1) for axis in range(2, step.rank(step.x))]
    pooled = step.g.apply("AveragePool", kernel_shape=kernel, strides=kernel)
    return pooled * float(prod(kernel))


def _matrix(step: Step, axis: int, scale: float | None) -> Value:
    """What the node makes of unit vectors along one axis, (own extent, result's extent)."""
    own, made = step.extents(step.x, [axis])[0], step.extents(step.y, [axis])[0]
    writer, kind = step.writer, step.x.dtype
    units = writer.constant(np.eye(own, dtype=kind).reshape(1, 1, own, own))
    kept = {name: step.attribute(name) for name in (
        "antialias", "coordinate_transformation_mode", "cubic_coeff_a", "exclude_outside", "extrapolation_value",
        "mode", "nearest_mode") if step.attribute(name) is not None}
    if scale is not None:
        sides = [writer.constant(np.asarray([1, 1, 1, scale], np.float32)), None]
    else:
        sides = [None, writer.integers([1, 1, own, made])]
    return writer.add("Resize", units, None, *sides, **kept).reshape([own, made])


@gradient_of("Pad", inputs=(0,))
def pad(step: Step) -> Value:
    """What lies within; elements that reflect, edge and wrap copy add up."""
    mode, pads = step.attribute("mode", "constant"), step.constant(1)
    if pads is None:
        return _cut_at_run(step, mode)
    rank = step.rank(step.x)
    axes = step.constant(3)
    if step.has(3) and axes is None:
        raise step.error("the axes are computed by the graph; allowed: axes that are constant")
    along = [int(axis) % rank for axis in axes] if axes is not None else list(range(rank))
    begin, end = (dict(zip(along, map(int, part), strict=True)) for part in np.split(pads, 2))
    if mode == "constant":
        return _cut(step, begin, end)
    return transposed_maps(step, {axis: _padded_units(step, axis, begin[axis], end[axis], mode)
                                  for axis in along if begin[axis] or end[axis]})


def _padded_units(step: Step, axis: int, begin: int, end: int, mode: str) -> Value:
    [own] = step.extents(step.x, [axis])
    units = step.writer.constant(np.eye(own, dtype=step.x.dtype))
    return units.apply("Pad", step.writer.integers([0, begin, 0, end]), mode=mode)


def _cut(step: Step, begin: dict[int, int], end: dict[int, int]) -> Value:
    """Drop what was added and put zeros where negative pads cropped."""
    g, writer = step.g, step.writer
    axes = [axis for axis in begin if begin[axis] > 0 or end[axis] > 0]
    if axes:
        starts = [max(begin[axis], 0) for axis in axes]
        ends = [-end[axis] if end[axis] > 0 else LAST for axis in axes]
        g = g.apply("Slice", *map(writer.integers, (starts, ends, axes)))
    cropped = [max(-begin.get(axis, 0), 0) for axis in range(step.rank(step.x))]
    cropped += [max(-end.get(axis, 0), 0) for axis in range(step.rank(step.x))]
    return g.apply("Pad", writer.integers(cropped)) if any(cropped) else g


def _cut_at_run(step: Step, mode: str) -> Value:
    """Read the pads when the graph runs."""
    if mode != "constant" or step.has(3):
        raise step.error(f"the pads are computed by the graph, which mode={mode!r} or axes do not allow; allowed: "
                         "pads that are constant")
    starts = step.input(1).apply("Slice", step.writer.integers([0]), step.writer.add("Shape", step.writer.add(
        "Shape", step.x)))
    return step.g.apply("Slice", starts, starts + step.x.extents())


