"""Weights and bias gradients from parts of a batch: `partial` sums some pieces, `join` adds them in the tree's order.

The sums over a batch are cut into pieces that a fixed tree adds. Shape alone decides the cut (ops/kernels/README.md,
"Definition of the bits"), so any division of the pieces has the bits of one call.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from ..calls.binding import Bound
from ..calls.pieces import Delivered, Sum, joined
from ..calls.signature import Arguments, Operator
from ..errors import Asking, shorten
from ..guard import guarded, thread_count
from ..memory import Array
from ..ops import kernels
from ..partial_calls import Named, Parts, Reduction, bound_to, run_for

REDUCTIONS = "convreg::distributed::reductions"
PARTIAL = "convreg::distributed::partial"
JOIN = "convreg::distributed::join"


@dataclass(frozen=True, eq=False)
class Partial:
    """The sums of some pieces of one result; it pickles.

    Attributes
    ----------
    operator : str
        Qualified name and version, or the function itself if it is not registered.
    output : str
        The result that it is a part of.
    batch : int
        Samples of the whole batch.
    pieces : range
        The pieces that are summed.
    total : int
        The number of pieces of the whole sum.
    sums : tuple
        One entry per subtree: its first piece, its end, and the float32 (float64 between float64 operands) sums.
    """

    operator: Operator
    output: str
    batch: int
    pieces: range
    total: int
    sums: tuple[Sum, ...]
    _sample: Arguments = field(repr=False)

    @property
    def nbytes(self) -> int:
        """The bytes of the sums."""
        return sum(one.values.nbytes for one in self.sums)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the operator by its name where the registry has it."""
        return _restored, (Named.of(self.operator), self.output, self.batch, self.pieces, self.total, self.sums,
                           self._sample)


def _restored(named: Named, *rest: Any) -> Partial:
    return Partial(named.found(), *rest)


@guarded(REDUCTIONS)
def reductions(op: str | Operator, *inputs: Any, batch: int | None = None, **attributes: Any) -> dict[str, Reduction]:
    """Return how the results of a call that are sums over the batch are cut into pieces.

    Parameters
    ----------
    op : str or function
        As for `convreg.get`, or the function itself.
    *inputs, **attributes
        The arguments of the call. Only shapes and formats of the tensors matter.
    batch : int, optional
        The samples of the whole batch, if the tensors have only some of them.

    Returns
    -------
    dict
        The vendor's name of a result -> `Reduction`: the weights and the bias gradient, as far as the call computes
        them.

    Raises
    ------
    OpError
        As the call would; or if the operator has no such result.
    """
    parts = Parts.of(Asking(REDUCTIONS), op, inputs, attributes, batch)
    return {name: parts.reduction(name) for name in parts.computed()}


@guarded(PARTIAL)
def partial(
    op: str | Operator, *inputs: Any, pieces: range, of: str | None = None, batch: int | None = None,
    start: int | None = None, **attributes: Any,
) -> Partial:
    """Sum some pieces of a weights or bias gradient.

    Parameters
    ----------
    op : str or function
        As for `convreg.get`, or the function itself.
    *inputs, **attributes
        The arguments of the call, `threads` included. Tensors with a batch may have a part of it only.
    pieces : range
        Pieces that follow one another, out of ``range(reductions(...)[of].pieces)``.
    of : str, optional
        The vendor's name of the result; it may be left out if the call has only one that is a sum over the batch.
    batch : int, optional
        The samples of the whole batch. By default the tensors have them all.
    start : int, optional
        The sample of the batch that the tensors begin with. By default the first one that the pieces need, or 0 if the
        tensors have the whole batch.

    Returns
    -------
    Partial

    Raises
    ------
    OpError
        As the call would; if the pieces are none of the sum, or the tensors lack samples that they need.

    Examples
    --------
    >>> import numpy as np, convreg
    >>> from convreg.distributed import join, partial, reductions
    >>> x, dy = np.ones((3, 16, 50, 50), np.float32), np.ones((3, 16, 50, 50), np.float32)
    >>> call = dict(weights_shape=(16, 16, 1, 1), strides=(1, 1), pads_begin=(0, 0), pads_end=(0, 0), dilations=(1, 1))
    >>> op = convreg.onednn.convolution_backward_weights
    >>> how = reductions(op, x, dy, data_format="NCX", weights_format="OIX", **call)["diff_weights"]
    >>> how.pieces, how.samples(range(1, 2))
    (2, range(1, 3))
    """
    return partial_of(Parts.of(Asking(PARTIAL), op, inputs, attributes, batch), of, pieces, start)


def partial_of(parts: Parts, of: str | None, pieces: range, start: int | None) -> Partial:
    """Sum some pieces of a result of a call."""
    output = parts.output(of)
    sums = parts.sums(output, pieces, start, kernels)
    cut = parts.cut(output)
    if not sums:  # a tensor is empty: the call has no kernel calls, and its result is zeros
        sums = [Sum(pieces.start, pieces.stop, np.zeros(parts.size(output), np.float32))]
    return Partial(parts.function, output, parts.batch, pieces, cut.pieces, tuple(sums), parts.sample())


@guarded(JOIN)
def merge(partials: Iterable[Partial]) -> Partial:
    """Add partial sums of pieces that follow one another, in the order of the tree; one `Partial` is left.

    Parameters
    ----------
    partials : iterable of Partial
        Of one result, in any order, without gaps between their pieces.

    Returns
    -------
    Partial

    Raises
    ------
    OpError
        If the pieces overlap or have gaps, or the partial sums are of different results.
    """
    ordered = _ordered(partials)
    first = ordered[0]
    sums = joined([one for part in ordered for one in part.sums], first.total)
    return Partial(first.operator, first.output, first.batch, range(first.pieces.start, ordered[-1].pieces.stop),
                   first.total, tuple(sums), first._sample)


@guarded(JOIN)
def join(partials: Iterable[Partial], threads: int | None = None) -> Array:
    """Add the partial sums of all pieces in the order of the tree, and round the sum as the call would.

    Parameters
    ----------
    partials : iterable of Partial
        Of one result, in any order: together all its pieces, each once.
    threads : int, optional
        Of the rounding.

    Returns
    -------
    ndarray
        The result, bit for bit that of the one call.

    Raises
    ------
    OpError
        If pieces are missing or there twice, or the partial sums are of different results.
    """
    whole = merge(partials)
    if len(whole.pieces) != whole.total:
        missing = f"{whole.pieces.stop} to {whole.total - 1}"
        if whole.pieces.start > 0:
            missing = f"0 to {whole.pieces.start - 1}"
        raise Asking(JOIN).refuse("partials", f"without the pieces {missing} of {whole.output}",
                                  f"all {whole.total} pieces")
    bound = bound_to(whole.operator.spec, whole._sample)
    workers = thread_count(bound.call, threads)
    return run_for(bound, whole.output, Delivered(whole.sums[0].values), workers)


def _ordered(partials: Iterable[Partial]) -> list[Partial]:
    """Return partial sums in the order of their pieces, refused unless they follow one another."""
    ask = Asking(JOIN)
    given = list(partials) if isinstance(partials, Iterable) else [partials]
    for one in given:
        if not isinstance(one, Partial):
            raise ask.refuse("partials", shorten(one), "Partial objects, as `partial` returns them", wrong_type=True)
    if not given:
        raise ask.refuse("partials", "none", "at least one")
    ordered = sorted(given, key=lambda one: one.pieces.start)
    wanted = _stated(ordered[0])
    for one in ordered[1:]:
        for name, has in _stated(one).items():
            if has != wanted[name]:
                raise ask.refuse("partials", f"two with the {name} {shorten(wanted[name])} and {shorten(has)}",
                                 "partial sums of one call")
    for before, after in pairwise(ordered):
        if before.pieces.stop != after.pieces.start:
            raise ask.refuse("partials", f"{before.pieces} and {after.pieces}",
                             "ranges of pieces that follow one another")
    return ordered


def _stated(one: Partial) -> dict[str, Any]:
    """Return what partial sums of one call agree in, as the checks of the call leave it."""
    bound = bound_to(one.operator.spec, one._sample)
    call = bound.call
    return {"operator": call.spec.qualified_name, "output": one.output, "batch": one.batch,
            "number of pieces": one.total, "conformance": call.conformance, "attributes": dict(call.attributes),
            "shapes": call.inputs, "scales": _scales(bound)}


def _scales(bound: Bound) -> list[Any]:
    return [None if array is None else array.tolist()
            for port, array in zip(bound.call.spec.inputs, bound.inputs, strict=True) if port.scales]
