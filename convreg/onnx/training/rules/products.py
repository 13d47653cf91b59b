"""Matrix products. Both operands and the gradient can be rounded to a number format first."""

from __future__ import annotations

from ..rounding import rounded
from ..rule_registry import Gradients, gradient_of
from ..step import Step
from ..value import Value


def _product(step: Step, a: Value, b: Value, *, left: bool, right: bool, alpha: float) -> Value:
    """A Gemm of two operands of which each may be transposed."""
    flags = {name: 1 for name, set_ in (("transA", left), ("transB", right)) if set_}
    scale = {} if alpha == 1 else {"alpha": float(alpha)}
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
    a, b = step.input(0), step.input(1)
    ranks = step.rank(a), step.rank(b)
    g = rounded(step, step.g)
    if ranks[0] == 1:
        g = g.unsqueeze([-2 if ranks[1] > 1 else 0])
    if ranks[1] == 1:
        g = g.unsqueeze([-1])
    return [_of_left(step, g, ranks) if step.wants(0) else None, _of_right(step, g, ranks) if step.wants(1) else None]


def _flipped(value: Value, rank: int) -> Value:
    return value.transpose([*range(rank - 2), rank - 1, rank - 2])


def _of_left(step: Step, g: Value, ranks: tuple[int, int]) -> Value:
    b = rounded(step, step.input(1))
    if ranks[1] == 1:  # (..., M, 1) times (1, K)
        made = g.apply("Mul", b) if ranks[0] > 1 else (g * b).reshape([-1])
        return made if ranks[0] <= 2 else step.summed(made, 0) if made.shape else made
    if ranks == (2, 2):
        return step.writer.add("Gemm", g, b, transB=1)
    made = g.apply("MatMul", _flipped(b, ranks[1]))
    if ranks[0] == 1:
        return made.sum(range(ranks[1] - 1), keepdims=False) if ranks[1] > 2 else made.reshape([-1])
    return _unstacked(step, made, 0, max(ranks))


def _of_right(step: Step, g: Value, ranks: tuple[int, int]) -> Value:
    a, b = rounded(step, step.x), step.input(1)
    if ranks[0] == 1:
        a = a.unsqueeze([0])
        return (_flipped(a, 2).apply("MatMul", g) if ranks[1] > 1 else (a * g).reshape([-1]))
    if ranks[1] <= 2:  # one matrix for all: the batch axes are rows
        if ranks[0] > 2:
            a, g = (_rows(entry, like) for entry, like in ((a, step.x), (g, step.y if ranks[1] == 2 else None)))
        made = step.writer.add("Gemm", a, g, transA=1)
        return made if ranks[1] == 2 else made.reshape([-1])
    made = _flipped(a, ranks[0]).apply("MatMul", g)
    return _unstacked(step, made, 1, max(ranks))


def _rows(value: Value, like: Value | None) -> Value:
    """Join all axes but the last."""
    if like is None:
        return value.reshape([-1, 1])
    assert like.shape is not None
    last = like.shape[-1]
    if isinstance(last, int) and last:
        return value.reshape([-1, last])
    return value.reshape(like.writer.concat([like.writer.integers([-1]), like.extent(len(like.shape) - 1)]))


def _unstacked(step: Step, made: Value, index: int, rank: int) -> Value:
    """Sum over the batch axes that an operand of rank 2 or more has not, or has with extent 1."""
    own, whole = step.input(index), step.y
    if own.shape is None or whole.shape is None:
        raise step.error("the ranks of both operands must be known")
    own_batch, batch = own.shape[:-2], whole.shape[:rank - 2]
    lead = len(batch) - len(own_batch)
    axes = list(range(lead))
    for axis, (extent, result) in enumerate(zip(own_batch, batch[lead:], strict=True), lead):
        if extent == 1 and result != 1:
            axes.append(axis)
        elif not isinstance(extent, int) and extent != result:
            raise step.error(f"whether axis {axis - lead} of {own.name!r} is broadcast must be known; inference finds "
                             f"the extent {extent!r} and {result!r} in the result")
    if not axes:
        return made
    return made.sum(axes).reshaped_like(own) if lead else made.sum(axes)
