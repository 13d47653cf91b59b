"""Linear maps of single axes: their transposes as products with matrices."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from ..step import Step
from ..value import Value


def transposed_maps(step: Step, maps: Mapping[int, Value]) -> Value:
    """Return the gradient of a node that maps some axes linearly, one after the other.

    `maps` holds the matrix (own extent, result's extent) of every such axis: what the node makes of unit vectors. All
    extents of the input but one of the other axes must be known.
    """
    g, rank = step.g, step.rank(step.x)
    last = rank - 1
    for axis in sorted(maps):
        matrix = maps[axis]
        if axis == last:
            g = g.apply("MatMul", matrix.transpose([1, 0]))
        elif axis == last - 1:
            g = matrix.apply("MatMul", g)
        else:
            g = _along(step, g, axis, matrix, [other for other in maps if other > axis])
    return g


def _along(step: Step, g: Value, axis: int, matrix: Value, left: list[int]) -> Value:
    """Apply a matrix along an axis that has at least two behind it; `left` are axes that are still mapped."""
    rank = step.rank(step.x)
    behind = [step.extents(step.y if other in left else step.x, [other])[0] for other in range(axis + 1, rank)]
    [extent] = step.extents(step.y, [axis])
    made = matrix.apply("MatMul", g.reshape([-1, extent, prod(behind)]))
    before = list((step.x.shape or ())[:axis])
    if sum(not isinstance(entry, int) for entry in before) > 1:
        step.extents(step.x, range(axis))
    return made.reshape([*(entry if isinstance(entry, int) else -1 for entry in before),
                         *step.extents(step.x, [axis]), *behind])
