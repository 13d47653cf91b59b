"""What is known about one output of a call, and between which numbers its elements may lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from ..formats import FORMATS, Format
from ..memory import Array
from . import ranks
from .arithmetic import SMALLEST_NORMAL, USUAL, Accumulator, Arithmetic
from .axes import Axis
from .rounding import Rounding

HALF = 2.0**-53
"""Unit roundoff of float64, in which the exact result is computed."""

PROBABLE = 6.0
"""How many standard deviations of a random walk are likely: an error beyond has the probability 2 exp(-18)."""


class Ends(NamedTuple):
    """The ranks between which a result may lie, both included.

    `low` is `ranks.NAN` where the result has to be NaN. `undefined` says where it may also be NaN, because partial
    sums of both signs can overflow, or one while an operand is infinite.
    """

    low: Array
    high: Array
    undefined: Array


@dataclass(frozen=True, eq=False)
class Analysis:
    """What is known about one output of a call.

    Attributes
    ----------
    output : str
        The vendor's name.
    shape : tuple of int
    rounding : Rounding
        What happens to a sum before it is stored.
    reference, magnitude, terms : ndarray of float64
        s, S and n, one number an element, in C order and flat. S leaves out infinite operands.
    wide : bool
        Whether the operands are float64.
    products : bool
        Whether the terms are products; those of a bias gradient are not.
    added : int
        Terms besides the products: the bias.
    factors : int
        Scales that are not all powers of two: each costs one rounding.
    highest_scale, lowest_scale : float
        The product of the largest scales, at least 1, and that of the smallest ones, at most 1: a kernel may multiply
        operands or sums by them.
    quanta : int or None
        Binary exponent of q; None where it is not known.
    lost : ndarray or float
        What flushing subnormal operands to zero can change.
    arithmetic : Arithmetic
    stored : ndarray, optional
        The one allowed result of a conversion, which has no error.
    axes : tuple of Axis
        What the axes of the output count.
    """

    output: str
    shape: tuple[int, ...]
    rounding: Rounding
    reference: Array
    magnitude: Array
    terms: Array
    wide: bool = False
    products: bool = True
    added: int = 0
    factors: int = 0
    highest_scale: float = 1.0
    lowest_scale: float = 1.0
    quanta: int | None = None
    lost: Array | float = 0.0
    arithmetic: Arithmetic = USUAL
    stored: Array | None = field(default=None, repr=False)
    axes: tuple[Axis, ...] = ()

    @property
    def format(self) -> Format:
        """The format of the output."""
        return self.rounding.format

    @property
    def accumulator(self) -> Accumulator:
        """The arithmetic of the sums."""
        return self.arithmetic.accumulator_for(self.wide)

    @property
    def quantum(self) -> float:
        """q, 0 where it is not known or below all numbers of float64."""
        return 0.0 if self.quanta is None or self.quanta < -1074 else 2.0**min(self.quanta, 1023)

    @property
    def makes_nan(self) -> bool:
        """Whether arithmetic on the operands may make NaN: some are infinite or NaN, or magnitudes overflow."""
        if not np.isfinite(self.reference).all():
            return True
        return bool(self.magnitude.max(initial=0) > min(self._largest, self.format.largest))

    def error(self, part: slice = slice(None)) -> Array:
        """Return e: how far a sum may lie from the reference, for a part of the flat elements."""
        how, accumulator = self.arithmetic, self.accumulator
        magnitude, terms = self.magnitude[part], self.terms[part]
        operations = terms if self.products else np.maximum(terms - 1, 0)
        roundings = np.where(terms == 0, 0, operations + self.added) + self.factors
        logarithm = roundings * np.log1p(accumulator.unit)
        underflow = accumulator.underflow * ((terms if self.products else 0) + self.factors)
        if how.parts is not None:
            unit = 2.0**-(FORMATS[how.parts[0]].mantissa + 1)
            logarithm = logarithm + how.parts[1] * np.log1p(unit)
            underflow = underflow + how.parts[1] * FORMATS[how.parts[0]].smallest / 2
        unit = self._operand_unit
        with np.errstate(over="ignore", invalid="ignore"):
            growth = np.expm1(logarithm) * (1 + unit)**2 + (2 + unit) * unit + np.expm1((operations + 4) * HALF)
            error = np.where(magnitude == 0, 0, growth * magnitude) + underflow * self.highest_scale
            if how.flush_to_zero:
                lost = self.lost if isinstance(self.lost, float) else self.lost[part]
                error = error + (2 * terms + 1) * SMALLEST_NORMAL * self.highest_scale + lost
            error = error * (1 + (terms + 8) * (2 * HALF))  # what float64 itself may have lost on the way here
        return np.where(self._exact(magnitude, terms), 0.0, error)

    def _exact(self, magnitude: Array, terms: Array) -> Array:
        """Whether no rounding is possible before the roundings of the result."""
        untouched = (terms == 0) & (self.factors == 0) & np.isfinite(magnitude)
        quantum, digits = self.quantum, self.accumulator.digits
        smallest = 2 * self.accumulator.underflow
        if self.arithmetic.parts is not None:
            parts = FORMATS[self.arithmetic.parts[0]]
            digits = min(digits, parts.mantissa + 1)
            smallest = max(smallest, parts.smallest)
        if self.arithmetic.flush_to_zero:
            smallest = max(smallest, SMALLEST_NORMAL)
        if quantum / self.highest_scale < smallest or self.factors or self._operand_unit:
            return untouched
        return untouched | ((magnitude <= 2.0**digits * quantum) & (magnitude <= self._largest))

    def ends(self, part: slice = slice(None), *, likely: bool = False) -> Ends:
        """Return the ranks between which results may lie; with `likely`, those of the probable error."""
        if self.stored is not None:
            return self._ends_of_conversion(self.stored[part], self.reference[part])
        exact, magnitude = self.reference[part], self.magnitude[part]
        error = self.error(part)
        if likely:
            error = np.minimum(error, PROBABLE * np.sqrt(self.terms[part] + self.added) * self.accumulator.unit *
                               magnitude)
        number = np.isfinite(exact)
        finite, error = error, np.where(number, error, 0.0)
        with np.errstate(over="ignore", invalid="ignore"):
            low = np.where(error == 0, exact, np.nextafter(exact - error, -np.inf))
            high = np.where(error == 0, exact, np.nextafter(exact + error, np.inf))
            largest = self._largest
            over = number & (error > 0) & ((magnitude + exact) / 2 + error > largest)
            under = number & (error > 0) & ((magnitude - exact) / 2 + error > largest)
            opposed = ~number & (finite + magnitude > largest)  # an infinite operand, and an overflow elsewhere
        high, low = np.where(over, np.inf, high), np.where(under, -np.inf, low)
        ties = self.arithmetic.ties == "both"
        low, high = self.rounding.outward(low, -np.inf, ties), self.rounding.outward(high, np.inf, ties)
        if opposed.any():
            undefined = int(self.rounding.rank(np.array([np.nan]))[0])
            if undefined != ranks.NAN:  # a saturating conversion to HiFloat8 makes 0 of NaN
                low = np.where(opposed, np.minimum(low, undefined), low)
                high = np.where(opposed, np.maximum(high, undefined), high)
        return Ends(low, high, (over & under) | opposed)

    @property
    def _largest(self) -> float:
        """The number beyond which partial sums overflow, before or after they are scaled."""
        parts = self.arithmetic.parts
        largest = min(self.accumulator.largest, np.inf if parts is None else FORMATS[parts[0]].largest)
        return largest * self.lowest_scale

    @property
    def _operand_unit(self) -> float:
        return self.arithmetic.operand_unit if self.products else 0.0

    def _ends_of_conversion(self, stored: Array, exact: Array) -> Ends:
        if self.rounding.steps[-1].rounding == "stochastic":
            low, high = (self.rounding.outward(exact, end, True) for end in (-np.inf, np.inf))
        else:
            low = high = ranks.ranks(stored, self.format)
        return Ends(low, high, np.zeros(low.shape, bool))

    def at(self, places: Array) -> Analysis:
        """Return what is known about some of the elements, by their flat numbers."""
        return replace(
            self, shape=places.shape, reference=self.reference[places], magnitude=self.magnitude[places],
            terms=self.terms[places], lost=self.lost if isinstance(self.lost, float) else self.lost[places],
            stored=None if self.stored is None else self.stored[places])

    def bound(self) -> Array:
        """Return the largest difference between a result and the reference that rounding can make."""
        bounds = np.empty(self.reference.size)
        for part in blocks(self.reference.size):
            ends, exact = self.ends(part), self.reference[part]
            with np.errstate(invalid="ignore"):
                low, high = (ranks.values_of(end, self.format) for end in ends[:2])
                found = np.maximum(high - exact, exact - low)
            found[ends.undefined] = np.inf
            bounds[part] = np.where(np.isfinite(exact), np.maximum(found, 0), 0)
        return bounds.reshape(self.shape)


BLOCK = 1 << 18
"""Elements that are worked on together, so that what is computed about them fits the processor's caches."""


def blocks(size: int) -> Sequence[slice]:
    """Return slices that cover so many elements."""
    return [slice(start, min(start + BLOCK, size)) for start in range(0, size, BLOCK)]


def with_arithmetic(known: Mapping[str, Analysis], arithmetic: Arithmetic) -> dict[str, Analysis]:
    """Return analyses for another accumulator, other parts or other ties, whose sums are the same."""
    return {name: replace(found, arithmetic=arithmetic) for name, found in known.items()}


def same_sums(arithmetic: Arithmetic) -> bool:
    """Whether the sums do not depend on these choices, beside the usual ones."""
    return arithmetic.rounded_operands is None and not arithmetic.flush_to_zero
