"""Matrix products. Both operands and the gradient can be rounded to a number format first."""

from __future__ import annotations

from typing import Any

from ..rounding import rounded
from ..rule_registry import Gradients, gradient_of
from ..step import Step
from ..value import Value


def _product(step: Step, a: Value, b: Value, *, left: bool, right: bool, alpha: float) -> Value:
    """A Gemm of two operands of which each may be transposed."""
    flags: dict[str, Any] = {name: 1 for name, set_ in (("transA", left), ("transB", right)) if set_}
    scale: dict[str, Any] = {} if alpha == 1 else {"alpha": float(alpha)}
    return step.writer.add("Gemm", a, b, **flags, **scale)


@gradient_of("Gemm")
def gemm(step: Step) -> Gradients:
    """``alpha g B^T``, ``alpha A^T g`` and ``beta g`` summed to C's shape."""
    left, right = bool(step.attribute("transA", 0)), bool(step.attribute("transB", 0))
    alpha, beta = step.attribute("alpha", 1.0), step.attribute("beta", 1.0)
    made: list[Value | None] = [None, None, None]
    if step.wants(0) or step.wants(1):
        g = rounded(step, step.g)
        if step.wants(0):
            b = rounded(step, step.input(1))
            made[0] = (_product(step, b, g, left=right, right=True, alpha=alpha) if left
                       else _product(step, g, b, left=False, right=not right, alpha=alpha))
        if step.wants(1):
            a = rounded(step, step.x)
            made[1] = (_product(step, g, a, left=True, right=left, alpha=alpha) if right
                       else _product(step, a, g, left=not left, right=False, alpha=alpha))
    if step.wants(2):
        made[2] = step.summed(step.g, 2) * float(beta)
    return made


@gradient_of("MatMul")
def matmul(step: Step) -> Gradients:
    """``g B^T`` and ``A^T g`` over the last two axes, summed over batch axes that were broadcast."""
    ranks = step.rank(step.x), step.rank(step.input(1))
    g = rounded(step, step.g)
    missing = [axis for axis, rank in ((-2, ranks[0]), (-1, ranks[1])) if rank == 1]
    if len(missing) == 2:
        g = g.reshape([1, 1])
    elif missing:
        g = g.unsqueeze(missing)
    return [_of_left(step, g, ranks) if step.wants(0) else None, _of_right(step, g, ranks) if step.wants(1) else None]


def _matrix(step: Step, index: int, rank: int) -> Value:
    """Return a rounded operand; a vector is a row on the left and a column on the right."""
    value = rounded(step, step.input(index))
    return value if rank > 1 else value.unsqueeze([index])


def _flipped(value: Value, rank: int) -> Value:
    rank = max(rank, 2)
    return value.transpose([*range(rank - 2), rank - 1, rank - 2])


def _of_left(step: Step, g: Value, ranks: tuple[int, int]) -> Value:
    b = _matrix(step, 1, ranks[1])
    made = step.writer.add("Gemm", g, b, transB=1) if max(ranks) <= 2 else g.apply("MatMul", _flipped(b, ranks[1]))
    if ranks[1] > 2:
        made = _unstacked(step, made, 0, ranks[1])
    return made.reshaped_like(step.x) if ranks[0] == 1 else made


def _of_right(step: Step, g: Value, ranks: tuple[int, int]) -> Value:
    a, b = _matrix(step, 0, ranks[0]), step.input(1)
    if ranks[1] <= 2:  # one matrix for all: the batch axes are rows
        if ranks[0] > 2:
            a, g = _rows(a, step.x), _rows(g, step.y) if ranks[1] == 2 else g.reshape([-1, 1])
        made = step.writer.add("Gemm", a, g, transA=1)
        return made if ranks[1] == 2 else made.reshaped_like(b)
    return _unstacked(step, _flipped(a, ranks[0]).apply("MatMul", g), 1, ranks[0])


def _rows(value: Value, like: Value) -> Value:
    """Join all axes but the last, whose extent `like` shares."""
    shape = like.shape
    assert shape is not None
    last = shape[-1]
    if isinstance(last, int) and last:
        return value.reshape([-1, last])
    return value.reshape(like.writer.concat([like.writer.integers([-1]), like.extent(len(shape) - 1)]))


def _unstacked(step: Step, made: Value, index: int, other: int) -> Value:
    """Sum over the batch axes that an operand has not, or has with extent 1; `other` is the other operand's rank."""
    own, whole = step.input(index), step.y
    if own.shape is None or whole.shape is None:
        raise step.error("the ranks of both operands must be known")
    own_batch = own.shape[:-2]
    count = max(len(own_batch), other - 2)
    batch = whole.shape[:count]
    lead = count - len(own_batch)
    axes = list(range(lead))
    for axis, (extent, result) in enumerate(zip(own_batch, batch[lead:], strict=True), lead):
        if extent == 1 and result != 1:
            axes.append(axis)
        elif not isinstance(extent, int) and (extent != result or extent is None):
            return step.summed_at_run(made, own, made)
    if not axes:
        return made
    return made.sum(axes[:lead], keepdims=False).sum([axis - lead for axis in axes[lead:]])
