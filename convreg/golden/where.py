"""Where the wrong elements of an output lie, in words: the simplest set of indices that holds them all.

A set is only named if wrong elements that are spread at random would hardly ever all lie in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..memory import Array
from .axes import Axis

CHANCE = 1e-4
"""The probability below which it is no accident that all wrong elements lie in a set."""
NEARLY = 0.9
"""A simpler set is preferred if its share of wrong elements is at least this part of the best one's."""
LISTED = 4
"""The most indices that are listed one by one."""
LONGEST = 64
"""The longest period of indices that is looked for, and the widest frame."""


class Found(NamedTuple):
    """A set of elements that holds all wrong ones: words, its number of elements, and how simple it is (0 simplest)."""

    text: str
    size: int
    rank: float


class Place(NamedTuple):
    """Where the wrong elements lie: words, and whether that is in no particular part of the output."""

    text: str
    everywhere: bool


def where(wrong: Array, axes: Sequence[Axis]) -> Place:
    """Say where the wrong elements lie.

    Parameters
    ----------
    wrong : ndarray of bool
        In the shape of the output; at least one element is wrong.
    axes : sequence of Axis
        One per axis of the array.

    Returns
    -------
    Place
        With a text such as "in the last row (6): 40 of the 42 elements there".
    """
    count = int(np.count_nonzero(wrong))
    if count == wrong.size:
        return Place("in the whole output", True)
    if count == 1:
        return Place(f"in a single element: {_named(np.argwhere(wrong)[0], axes)}", False)
    marginal = [np.asarray(wrong.any(axis=tuple(other for other in range(wrong.ndim) if other != axis)))
                for axis in range(wrong.ndim)]
    candidates = [found for found in (
        *_products(wrong.shape, marginal, axes), _borders(wrong, axes), _run(wrong)) if found is not None]
    telling = [found for found in candidates
               if count * np.log(max(found.size, 1) / wrong.size) < np.log(CHANCE)]
    share = f"{min(100 * count / wrong.size, 99.9):.3g} % of the elements"  # not "nearly the whole: 100 %"
    if not telling:
        spread = "in nearly the whole output" if count > 0.5 * wrong.size else "scattered over the output"
        return Place(f"{spread}: {share}", True)
    best = max(count / found.size for found in telling)
    found = min((found for found in telling if count / found.size >= NEARLY * best),
                key=lambda found: (found.rank, found.size))
    filled = "all" if count == found.size else f"{count} of the"
    return Place(f"{found.text}: {filled} {found.size} elements there", False)


def _named(index: Array, axes: Sequence[Axis]) -> str:
    return ", ".join(f"{axis.name} {number}" for axis, number in zip(axes, index.tolist(), strict=True))


def _products(shape: tuple[int, ...], marginal: list[Array], axes: Sequence[Axis]) -> list[Found]:
    """Return sets that restrict some axes, each to indices that can be said in words; one more axis each time."""
    told = {}
    for number, (hit, axis) in enumerate(zip(marginal, axes, strict=True)):
        words = None if hit.all() else in_words(hit, axis)
        if words is not None:
            told[number] = words
    order = sorted(told, key=lambda number: marginal[number].mean())
    found, chosen, size = [], [], int(np.prod(shape))
    for number in order:
        chosen.append(number)
        size = size // shape[number] * int(marginal[number].sum())
        found.append(Found("in " + _joined(chosen, told, marginal, axes), size, float(len(chosen))))
    return found


def _joined(chosen: Sequence[int], told: dict[int, str], marginal: list[Array], axes: Sequence[Axis]) -> str:
    """Return the words for several axes; a single tap of all tap axes is named at once."""
    taps = [number for number, axis in enumerate(axes) if axis.kind == "tap"]
    words = []
    if len(taps) > 1 and all(number in chosen and marginal[number].sum() == 1 for number in taps):
        words.append(f"tap ({', '.join(str(int(np.flatnonzero(marginal[number])[0])) for number in taps)})")
        chosen = [number for number in chosen if number not in taps]
    return " of ".join([*words, *(told[number] for number in sorted(chosen, reverse=True))])


def in_words(hit: Array, axis: Axis) -> str | None:
    """Say which indices of an axis are hit, None if there are no simple words for them."""
    places = np.flatnonzero(hit)
    extent, count = hit.size, places.size
    first, last = int(places[0]), int(places[-1])
    name, plural = axis.name, axis.plural
    per_group = extent // axis.groups
    if axis.groups > 1 and count == per_group and last - first + 1 == count and first % per_group == 0:
        return f"group {first // per_group} ({plural} {first} to {last})" if count > 1 else \
            f"group {first // per_group} ({name} {first})"
    if count == 1:
        if axis.kind in ("batch", "group") or first not in (0, extent - 1):
            return f"{name} {first}"
        return f"the {'first' if first == 0 else 'last'} {name} ({first})"
    if last - first + 1 == count:
        if first == 0:
            return f"the first {count} {plural}"
        if last == extent - 1:
            return f"the last {count} {plural} (from {first} on)"
        return f"{plural} {first} to {last}"
    inner = int(np.flatnonzero(~hit)[0]), int(np.flatnonzero(~hit)[-1])
    if inner[1] - inner[0] + 1 == extent - count:
        return f"the first {_several(inner[0], axis)} and the last {_several(extent - 1 - inner[1], axis)}"
    steps = np.diff(places)
    step = int(steps[0])
    if (steps == step).all() and count > 2 and first < step and last + step >= extent:
        return f"every {_ordinal(step)} {name}, from {first} on"
    period = _period(hit)
    if period is not None:
        residues = np.flatnonzero(hit[:period]).tolist()
        return f"{plural} whose number modulo {period} is {_list(residues)}"
    if count <= LISTED:
        return f"{plural} {_list(places.tolist())}"
    return None


def _period(hit: Array) -> int | None:
    """Return the smallest period of the indices that are hit, if few of its residues are."""
    for period in range(2, min(hit.size // 2, LONGEST) + 1):
        if (hit[period:] == hit[:-period]).all():
            return period if hit[:period].sum() <= LISTED else None
    return None


def _several(count: int, axis: Axis) -> str:
    return axis.name if count == 1 else f"{count} {axis.plural}"


def _ordinal(number: int) -> str:
    ending = "th" if number // 10 % 10 == 1 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _list(numbers: list[int]) -> str:
    *most, last = map(str, numbers)
    return f"{', '.join(most)} and {last}" if most else last


def _borders(wrong: Array, axes: Sequence[Axis]) -> Found | None:
    """Return the narrowest frame along the spatial axes that holds all wrong elements."""
    space = [number for number, axis in enumerate(axes) if axis.kind == "space"]
    others = tuple(number for number in range(wrong.ndim) if number not in space)
    if not space:
        return None
    plane = np.count_nonzero(wrong, axis=others)
    inside = [[0, extent] for extent in plane.shape]
    for _ in range(LONGEST):
        rest = plane[tuple(slice(*ends) for ends in inside)]
        if not rest.size:
            return None
        if not rest.any():
            return _frame(wrong, axes, space, inside)
        density, axis, end = max(
            (float(np.take(rest, place, axis).mean()), axis, end)
            for axis in range(rest.ndim) for end, place in ((0, 0), (1, -1)))
        if density == 0:
            return None
        inside[axis][end] += -1 if end else 1
    return None


def _frame(wrong: Array, axes: Sequence[Axis], space: Sequence[int], inside: Sequence[Sequence[int]]) -> Found:
    """Return the elements outside of a range of each spatial axis."""
    words = []
    free = 1
    for (low, high), number in zip(inside, space, strict=True):
        words += [f"the {side} {_several(width, axes[number])}"
                  for side, width in (("first", low), ("last", wrong.shape[number] - high)) if width]
        free *= high - low
    size = wrong.size - wrong.size // int(np.prod([wrong.shape[number] for number in space])) * free
    return Found(f"at the borders ({_list_of(words)})", size, 1.0 if len(words) == 1 else 1.5)


def _list_of(words: list[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def _run(wrong: Array) -> Found | None:
    """Return the range in memory order that holds all wrong elements."""
    flat = wrong.reshape(-1)
    first, last = int(flat.argmax()), flat.size - 1 - int(flat[::-1].argmax())
    size = last - first + 1
    if size == flat.size:
        return None
    text = f"from element {first} in memory order to the end" if last == flat.size - 1 else \
        f"in the elements {first} to {last} in memory order"
    return Found(text, size, 2.5)
