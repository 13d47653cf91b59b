"""Arrays as a number format holds them, as they are or scaled by the power of two that suits the format best."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from ..calls.arguments import integer
from ..conversion import dequantize, quantize
from ..errors import Asking
from ..formats import Format, formats
from ..guard import guarded
from ..memory import Array
from ..spec import Rules
from .arguments import check_size, numbers
from .metrics import binade_of_largest, snr_of, times_power, unit_of

DEEPEST = 40
"""How many binades below the top a scale is looked for in a format whose precision changes with the exponent."""
TOP = 2.0**16
"""Formats of wide range bring their largest operand no higher than this, so that products stay far from overflow."""
FARTHEST = 2**16
"""The largest exponent of a scale that is computed with, far beyond what any format needs."""

_ask = Asking("convreg::numerics")


class _Choices(NamedTuple):
    """The fields of a `Rounding`."""

    format: Format
    rounding: str | None = None
    saturate: bool = False
    seed: int | None = None


class Rounding(_Choices):
    """A number format and its rounding, with the arguments of `convreg.quantize`.

    Attributes
    ----------
    format : Format
        A record of `convreg.formats`; its name is accepted too.
    rounding, saturate, seed
        As for `convreg.quantize`.

    Raises
    ------
    OpTypeError, UnknownOp
        If there is no such format.
    """

    __slots__ = ()

    def __new__(
        cls, format: Format | str, rounding: str | None = None, saturate: bool = False, seed: int | None = None
    ) -> Rounding:
        """Look the format up if its name is given."""
        known = formats()
        record = known[format] if isinstance(format, str) else format
        if not isinstance(record, Format) or record not in known.values():
            raise _ask.refuse("format", format, "a record of convreg.formats or the name of one: " + ", ".join(known),
                              "arguments", wrong_type=True)
        return super().__new__(cls, record, rounding, saturate, seed)

    @classmethod
    def _make(cls, iterable: Iterable[Any]) -> Rounding:  # type: ignore[override]  # generic there
        """Check the fields that `_replace` gives, too."""
        return cls(*iterable)

    @guarded("convreg::numerics")
    def of(self, values: Array, exponent: int = 0) -> Array:
        """Return round(values * 2**exponent) / 2**exponent in float64, for float32 or float64 values."""
        floats, power = _floats(values), integer(_ask, Rules(), "exponent", exponent)
        if not -FARTHEST <= power <= FARTHEST:
            raise _ask.refuse("exponent", exponent, f"an integer from -{FARTHEST} to {FARTHEST}")
        with np.errstate(over="ignore", under="ignore"):
            codes = quantize(times_power(floats, power), self.format.name, rounding=self.rounding,
                             saturate=self.saturate, seed=self.seed)
            return times_power(dequantize(codes, dtype=np.float64), -power)

    def lost(self, values: Array, found: Array, exponent: int) -> Array:
        """Return where `found`, the rounded values, is infinite or NaN, or where rounding to nearest would overflow."""
        return ~(np.isfinite(found) & np.isfinite(Rounding(self.format).of(values, exponent)))


@guarded("convreg::numerics")
def best_exponent(values: Array, how: Rounding) -> int:
    """Return the exponent e for which round(values * 2**e) / 2**e has the best signal-to-noise ratio to `values`.

    The candidates are 0 and the exponents around the one that brings the largest magnitude into the binade of the
    format's largest number (at most 2**16): from one below to three above, where saturation may improve the ratio.
    That is enough for formats with one precision for all normal numbers, since a larger scale only makes their grid
    finer. The precision of HiFloat8 falls with the distance from 1, so its candidates start at 40 below. If several
    candidates are equally good, the one with the smallest magnitude is returned; 0 if no scale is better than none.

    Parameters
    ----------
    values : array of numbers, any shape
        Finite numbers.
    how : Rounding
        The format, its rounding and whether it saturates.

    Returns
    -------
    int
        The exponent e.

    Raises
    ------
    OpError, OpTypeError
        If `values` are not finite numbers, or `how` is no `Rounding`.
    """
    values = _checked(values, how)
    if not np.any(values):
        return 0
    format = how.format
    limit = min(format.largest, TOP)
    top = int(np.frexp(limit)[1]) - 1 - binade_of_largest(values)
    tapered = format.smallest != format.smallest_normal * 2.0**-format.mantissa
    if not tapered and _is_normal(values, format):
        return 0  # every power of two that keeps the numbers normal gives the same error
    tried = sorted({0, *range(top - (DEEPEST if tapered else 1), top + 4)}, key=abs)
    unit = unit_of(values)
    exact = times_power(values.astype(np.float64).ravel(), unit)
    return max(tried, key=lambda exponent: snr_of(how.of(values, exponent), exact, unit))


def _checked(values: Any, how: Any) -> Array:
    """Return finite numbers as an array that `Rounding.of` rounds."""
    if not isinstance(how, Rounding):
        raise _ask.refuse("how", how, "a Rounding", wrong_type=True)
    array = _floats(values)
    if not np.isfinite(array).all():
        raise _ask.refuse("values", "infinity or NaN", "finite numbers")
    return array


def _floats(values: Any) -> Array:
    """Return an array of float32 or float64 as it is, other numbers as float64."""
    if isinstance(values, np.ndarray) and values.dtype in (np.float32, np.float64):
        check_size(_ask, "values", values)
        return np.asarray(values)
    return numbers(_ask, "values", values)


def _is_normal(values: Array, format: Format) -> bool:
    magnitudes = np.abs(values[values != 0])
    return bool(magnitudes.min() >= format.smallest_normal and magnitudes.max() <= format.largest)
