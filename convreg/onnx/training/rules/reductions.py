"""Sums, means and extrema over axes."""

from __future__ import annotations

import numpy as np

from ..rule_registry import gradient_of
from ..step import Step
from ..value import Value


def _is_whole(step: Step) -> bool | None:
    """Whether all axes are reduced; None where none is."""
    axes = step.constant(1)
    if not step.has(1) or (axes is not None and axes.size == 0):
        return None if step.attribute("noop_with_empty_axes", 0) else True
    return False


def _axes(step: Step) -> list[int]:
    """The axes that are reduced, counted from the front.

    Raises
    ------
    GraphError
        If they are computed by the graph.
    """
    rank = step.rank(step.x)
    if not step.has(1) or _is_whole(step):
        return list(range(rank))
    axes = step.constant(1)
    if axes is None:
        raise step.error("the axes are computed by the graph; allowed: axes that are constant")
    return sorted(int(axis) % rank for axis in axes.ravel())


def _kept(step: Step, value: Value) -> Value:
    """Insert the reduced axes with extent 1, where the node dropped them."""
    if step.attribute("keepdims", 1):
        return value
    if _is_whole(step):  # a scalar meets every shape
        return value
    return value.unsqueeze(_axes(step))


def _spread(step: Step, value: Value) -> Value:
    """Repeat along the reduced axes."""
    return _kept(step, value).expand(step.x.extents())


@gradient_of("ReduceSum", inputs=(0,))
def reduce_sum(step: Step) -> Value:
    """``g`` repeated."""
    return step.g if _is_whole(step) is None else _spread(step, step.g)


@gradient_of("ReduceMean", inputs=(0,))
def reduce_mean(step: Step) -> Value:
    """``g / count`` repeated."""
    if _is_whole(step) is None:
        return step.g
    return _spread(step, step.g / _count(step))


def _count(step: Step) -> Value | float:
    if _is_whole(step) and step.x.shape is None:
        return step.writer.add("Size", step.x).cast(step.x.dtype)
    return step.count(step.x, _axes(step)) if _axes(step) else 1.0


@gradient_of("GlobalAveragePool")
def global_average_pool(step: Step) -> Value:
    """``g / count`` repeated."""
    return (step.g / step.count(step.x, range(2, step.rank(step.x)))).expand(step.x.extents())


def _shared(step: Step) -> Value:
    """Elements that equal the result share ``g``, as in ``torch.amax``."""
    if _is_whole(step) is None:
        return step.g
    hits = step.x.equal(_kept(step, step.y)).cast(step.x.dtype)
    ties = hits.sum(None if _is_whole(step) else _axes(step))
    return hits * (_kept(step, step.g) / ties)


@gradient_of("ReduceMax", inputs=(0,))
def reduce_max(step: Step) -> Value:
    """``g`` shared equally among the largest elements."""
    return _shared(step)


@gradient_of("ReduceMin", inputs=(0,))
def reduce_min(step: Step) -> Value:
    """``g`` shared equally among the smallest elements."""
    return _shared(step)


@gradient_of("ReduceL1", inputs=(0,))
def reduce_l1(step: Step) -> Value:
    """``g sign(x)``."""
    return _kept(step, step.g) * step.x.apply("Sign")


@gradient_of("ReduceL2", inputs=(0,))
def reduce_l2(step: Step) -> Value:
    """``g x / y``, 0 where y is 0."""
    y = _kept(step, step.y)
    return step.x * (y > 0).where(_kept(step, step.g) / y, 0)


@gradient_of("ReduceSumSquare", inputs=(0,))
def reduce_sum_square(step: Step) -> Value:
    """``2 g x``."""
    return step.x * (_kept(step, step.g) * 2)


@gradient_of("ReduceLogSumExp", inputs=(0,))
def reduce_log_sum_exp(step: Step) -> Value:
    """``g exp(x - y)``."""
    return _kept(step, step.g) * (step.x - _kept(step, step.y)).apply("Exp")


@gradient_of("ReduceLogSum", inputs=(0,))
def reduce_log_sum(step: Step) -> Value:
    """``g / exp(y)`` repeated."""
    return _spread(step, step.g / step.y.apply("Exp")) if _is_whole(step) is not None else step.g / step.x


@gradient_of("ReduceProd", inputs=(0,))
def reduce_product(step: Step) -> Value:
    """``g`` times the product of the other elements, also where elements are 0."""
    if _is_whole(step) is None:
        return step.g
    x, axes = step.x, None if _is_whole(step) else _axes(step)
    is_zero = x.equal(0)
    zeros = is_zero.cast(x.dtype)
    filled = is_zero.where(1, x)
    along = () if axes is None else (step.writer.integers(axes),)
    rest = filled.apply("ReduceProd", *along, keepdims=1) / filled
    return (_kept(step, step.g) * rest).only((zeros.sum(axes) - zeros).equal(0))


@gradient_of("CumSum", inputs=(0,))
def cumulative_sum(step: Step) -> Value:
    """``g`` summed from the other end."""
    return step.writer.add("CumSum", step.g, step.input(1), exclusive=step.attribute("exclusive", 0),
                           reverse=1 - step.attribute("reverse", 0))


@gradient_of("GlobalMaxPool")
def global_max_pool(step: Step) -> Value:
    """``g`` at the first largest element."""
    x = step.x
    rows = x.reshape([0, 0, -1])
    best = rows.apply("ArgMax", axis=2, dtype=np.int64)
    zeros = step.writer.scalar(0, x.dtype).expand(rows.extents())
    made = zeros.apply("ScatterElements", best, step.g.reshape([0, 0, 1]), axis=2)
    return made.reshaped_like(x)
