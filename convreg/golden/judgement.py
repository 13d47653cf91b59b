"""The judgement of one output: which elements lie outside the bound, and figures about all of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ..conversion import dequantize
from ..formats import Format
from ..memory import Array
from . import ranks
from .bounds import PROBABLE, Analysis, Ends, blocks
from .report import Element, Steps


def outside(places: Array, ends: Ends, format: Format) -> Array:
    """Return which results, given as ranks, rounding cannot have made.

    A format without infinity overflows to NaN, which is right where one of the two ends overflows.
    """
    nan, needed = places == ranks.NAN, ends.low == ranks.NAN
    allowed = needed | ends.undefined
    if format.infinity is None:
        last = ranks.largest(format)
        allowed = allowed | (ends.high > last) | (ends.low < -last)
    between = ~needed & (places >= ends.low) & (places <= ends.high)
    found: Array = ~np.where(nan, allowed, between)
    return found


def excess(places: Array, ends: Ends) -> Array:
    """Return the steps from results to the nearest end; `ranks.NAN` where one of the two is NaN."""
    below, above = ranks.distance(places, ends.low), ranks.distance(places, ends.high)
    return np.where(places == ranks.NAN, ranks.NAN, np.minimum(below, above))


class Extreme(NamedTuple):
    """A wrong element by its flat number, with what `excess` says."""

    place: int
    steps: int


@dataclass
class Judgement:
    """What was counted so far."""

    wrong: Array
    unlikely: int = 0
    golden_outside: int = 0
    first: Extreme | None = None
    worst: Extreme | None = None
    largest: int = 0
    total: float = 0.0
    numbers: int = 0
    above_0: int = 0
    above_1: int = 0
    nan: list[int] = field(default_factory=lambda: [0, 0])
    infinite: list[int] = field(default_factory=lambda: [0, 0])
    signal: float = 0.0
    noise: float = 0.0

    @property
    def count(self) -> int:
        """The number of wrong elements."""
        return int(np.count_nonzero(self.wrong))

    @property
    def steps(self) -> Steps:
        """Distances from the golden result."""
        numbers = max(self.numbers, 1)
        return Steps(self.largest, self.total / numbers, self.above_0 / numbers, self.above_1 / numbers)

    @property
    def snr_db(self) -> float:
        """Signal-to-noise ratio against the exact result, where that and the golden one are finite."""
        if self.noise == 0:
            return float(np.inf)
        with np.errstate(divide="ignore"):
            return float(10 * np.log10(np.float64(self.signal) / self.noise)) if np.isfinite(self.noise) else -np.inf


def judge(analysis: Analysis, codes: Array, golden: Array) -> Judgement:
    """Judge one output, block by block.

    Parameters
    ----------
    analysis : Analysis
    codes, golden : ndarray
        The judged and the golden results in the storage of the format, flat.
    """
    format = analysis.format
    found = Judgement(np.zeros(codes.size, bool))
    unit = _unit(analysis.reference)
    for part in blocks(codes.size):
        ends = analysis.ends(part)
        got, expected = ranks.ranks(codes[part], format), ranks.ranks(golden[part], format)
        wrong = outside(got, ends, format)
        found.wrong[part] = wrong
        found.golden_outside += int(np.count_nonzero(outside(expected, ends, format)))
        if wrong.any():
            _note_extremes(found, part.start, np.flatnonzero(wrong), excess(got, ends))
        _count(found, got, expected, format)
        number = np.isfinite(analysis.reference[part]) & np.isfinite(ranks.values_of(expected, format))
        _add_noise(found, analysis.reference[part][number], codes[part][number], format, unit)
        suspects = ~wrong & (got != expected) & (got != ranks.NAN)
        if suspects.any() and analysis.terms[part].max(initial=0) > PROBABLE**2:
            places = part.start + np.flatnonzero(suspects)
            likely = analysis.at(places).ends(likely=True)
            found.unlikely += int(np.count_nonzero(outside(got[suspects], likely, format)))
    return found


def _note_extremes(found: Judgement, start: int, places: Array, steps: Array) -> None:
    first = int(places[0])
    if found.first is None:
        found.first = Extreme(start + first, int(steps[first]))
    worst = int(places[steps[places].argmax()])
    if found.worst is None or steps[worst] > found.worst.steps:
        found.worst = Extreme(start + worst, int(steps[worst]))


def _count(found: Judgement, got: Array, expected: Array, format: Format) -> None:
    last = ranks.largest(format)
    for side, places in enumerate((got, expected)):
        nan = places == ranks.NAN
        found.nan[side] += int(np.count_nonzero(nan))
        found.infinite[side] += int(np.count_nonzero(~nan & (np.abs(np.where(nan, 0, places)) > last)))
    both = (got != ranks.NAN) & (expected != ranks.NAN)
    steps = ranks.distance(got[both], expected[both])
    if steps.size:
        found.largest = max(found.largest, int(steps.max()))
        found.total += float(steps.astype(np.float64).sum())
        found.numbers += steps.size
        found.above_0 += int(np.count_nonzero(steps > 0))
        found.above_1 += int(np.count_nonzero(steps > 1))


def _unit(exact: Array) -> int:
    """Return the power of two by which the numbers are multiplied, so that no square overflows or vanishes."""
    largest = max((float(np.abs(values[np.isfinite(values)]).max(initial=0))
                   for values in (exact[part] for part in blocks(exact.size))), default=0.0)
    return -int(np.frexp(largest)[1]) if largest else 0


def _add_noise(found: Judgement, exact: Array, codes: Array, format: Format, unit: int) -> None:
    got = dequantize(codes, format.name, dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        wanted = np.ldexp(exact, unit)
        difference = np.ldexp(got, unit) - wanted
        found.signal += float(wanted @ wanted)
        noise = float(difference @ difference)
    found.noise += np.inf if noise != noise else noise


def element(
    analysis: Analysis, extreme: Extreme | None, codes: Array, golden: Array
) -> Element | None:
    """Return the record of a wrong element."""
    if extreme is None:
        return None
    place = np.array([extreme.place])
    ends = analysis.at(place).ends()
    low, high = (float(ranks.values_of(end, analysis.format)[0]) for end in ends[:2])
    expected, got = (float(dequantize(values[place], analysis.format.name, dtype=np.float64)[0])
                     for values in (golden, codes))
    index = tuple(int(number) for number in np.unravel_index(extreme.place, analysis.shape))
    return Element(index, expected, got, low, high, None if extreme.steps == ranks.NAN else extreme.steps)
