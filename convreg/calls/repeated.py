"""The one cache of repeated calls: legal calls by what they look like from outside, without their arrays.

Two calls are alike if the shapes and dtypes of their arrays and their plain attributes are equal, under equal names;
`_likeness` makes the key of that. A key also has the declaration, so an operator that replaces another one of the same
name starts with no entries. Entries hold no array.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from ..memory import Array
from ..spec import Call, Plan
from .binding import Bound
from .outputs import Room, check_sizes

MOST = 4096
"""Entries of the cache. One more, and it starts anew."""


class Known(NamedTuple):
    """A legal call that was made before.

    `inputs` takes the input arrays, None where one is absent, out of the values of all arguments and a None behind
    them. `room` is what the outputs take, and `workers` the number of threads that was asked for, 0 for the default.
    """

    call: Call
    plan: Plan
    room: Room
    inputs: Callable[[tuple[Any, ...]], tuple[Array | None, ...]]
    workers: int


_known: dict[Hashable, Known] = {}

find = _known.get


def remember(key: Hashable, bound: Bound, given: Sequence[Any], places: Sequence[int], workers: int = 0) -> None:
    """Keep a legal call for those that repeat it.

    Parameters
    ----------
    key : hashable
        The declaration, what else decides the call, and its likeness.
    bound : Bound
        Nothing is kept of a call whose inputs are not the arrays that the caller gave: others must be converted too.
    given : sequence
        The inputs as the caller gave them, in the order of the ports.
    places : sequence of int
        Where among the values of all arguments each input stands; -1 where it is absent.
    workers : int
    """
    if any(array is not None and array is not value for array, value in zip(bound.inputs, given, strict=True)):
        return
    room = check_sizes(bound.call, bound.plan.outputs)
    chosen = [-1 if array is None else place for array, place in zip(bound.inputs, places, strict=True)]
    if len(_known) >= MOST:
        _known.clear()
    _known[key] = Known(bound.call, bound.plan, room, _taking(chosen), workers)


def _taking(places: Sequence[int]) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    """Return a function that takes the entries at these places out of a tuple."""
    if len(places) > 1:
        return itemgetter(*places)
    return itemgetter(slice(places[0], places[0] + 1 or None) if places else slice(0))
