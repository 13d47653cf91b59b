"""The roundings of a result after its sum, applied to the two ends of an interval: which numbers may come out."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..conversion import quantize
from ..formats import FORMATS, Format
from ..memory import Array
from ..spec import Plan
from . import ranks

CHOSEN = ("stochastic", "hybrid")
"""Roundings that leave either neighbour, whichever is nearer."""


class Step(NamedTuple):
    """One rounding to a format, in the terms of `convreg.quantize`."""

    format: Format
    rounding: str
    saturate: bool = False

    def codes(self, values: Array) -> Array:
        """Round float64 numbers as the rule says; the roundings that choose are rounded to nearest."""
        rule = None if self.rounding in CHOSEN else self.rounding
        return quantize(values, self.format.name, rounding=rule, saturate=self.saturate)

    def rank(self, values: Array) -> Array:
        """Return the ranks of rounded numbers; an overflow to NaN has the rank after the largest number."""
        return self._beyond(ranks.ranks(self.codes(values), self.format), values)

    def outward(self, values: Array, towards: float, ties: bool) -> Array:
        """Return the rank of the farthest number in a direction (an infinity) that may come out.

        A number in the middle between two rounds to the farther one if `ties`.
        """
        if self.rounding in CHOSEN:
            found = Step(self.format, "toward_zero", self.saturate).rank(values)
            away = values > 0 if towards > 0 else values < 0
            if self.rounding == "stochastic":
                away &= ranks.values_of(found, self.format) != values
            last = ranks.largest(self.format) + (not self.saturate)
            return np.where(found == ranks.NAN, found, np.clip(found + np.where(away, np.sign(towards), 0).astype(
                np.int64), -last, last))
        if ties and self.rounding != "toward_zero" and self.format.name != "float64":
            values = np.where(np.isfinite(values), np.nextafter(values, towards), values)
        return self.rank(values)

    def _beyond(self, places: Array, values: Array) -> Array:
        if self.format.infinity is not None:
            return places
        over = ranks.largest(self.format) + 1
        return np.where((places == ranks.NAN) & ~np.isnan(values), np.where(values > 0, over, -over), places)


class Rounding(NamedTuple):
    """The roundings that a sum goes through, the last one to the format of the output."""

    steps: tuple[Step, ...]

    @property
    def format(self) -> Format:
        """The format of the output."""
        return self.steps[-1].format

    def rank(self, values: Array) -> Array:
        """Return the ranks of float64 numbers after all roundings."""
        *first, last = self.steps
        for step in first:
            values = ranks.values_of(step.rank(values), step.format)
        return last.rank(values)

    def outward(self, values: Array, towards: float, ties: bool) -> Array:
        """Return the ranks of the farthest numbers in a direction that may come out."""
        *first, last = self.steps
        for step in first:
            values = ranks.values_of(step.outward(values, towards, ties), step.format)
        return last.outward(values, towards, ties)


def rounding_of(plan: Plan, place: int, wide: bool) -> Rounding:
    """Return the roundings of an output of a planned call; `wide` says that its operands are float64.

    A sum is in the accumulator's format before, so a first rounding to float32 changes nothing that the bound allows.
    """
    made, last = plan.outputs[place], None if plan.emulation is None else plan.emulation.last
    assert made is not None, place
    sums = "float64" if wide else "float32"
    written = plan.precision.stages[place] if plan.precision.stages else sums
    target = FORMATS[made.format]
    rule = target.rounding
    if last is not None and last.rounding in target.roundings:
        rule = last.rounding
    end = Step(target, rule, last is not None and last.saturate)
    usual = last is None or last.usual
    if written == sums or (written == target.name and not usual):
        return Rounding((end,))
    first = Step(FORMATS[written], FORMATS[written].rounding)
    return Rounding((first,) if written == target.name else (first, end))
