"""Arrays as a number format holds them, as they are or scaled by the power of two that suits the format best."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..conversion import dequantize, quantize
from ..formats import Format
from ..outputs import Array
from .metrics import binade_of_largest, error_of

DEEPEST = 40
"""How many binades below the top a scale is looked for in a format whose precision changes with the exponent."""
TOP = 2.0**16
"""Formats of wide range bring their largest operand no higher than this, so that products stay far from overflow."""


class Rounding(NamedTuple):
    """A number format and its rounding, with the arguments of `convreg.quantize`."""

    format: Format
    rounding: str | None = None
    saturate: bool = False
    seed: int | None = None

    def of(self, values: Array, exponent: int = 0) -> Array:
        """Return round(values * 2**exponent) / 2**exponent in float64, for float32 or float64 values."""
        with np.errstate(over="ignore", under="ignore"):
            codes = quantize(np.ldexp(values, exponent), self.format.name, rounding=self.rounding,
                             saturate=self.saturate, seed=self.seed)
            return np.ldexp(dequantize(codes, dtype=np.float64), -exponent)

    def lost(self, values: Array, found: Array, exponent: int) -> Array:
        """Return where `found`, the rounded values, is infinite or NaN, or where rounding to nearest would overflow."""
        return ~(np.isfinite(found) & np.isfinite(Rounding(self.format).of(values, exponent)))


def best_exponent(values: Array, how: Rounding) -> int:
    """Return the exponent e for which round(values * 2**e) / 2**e has the best signal-to-noise ratio to `values`.

    The candidates are 0 and the exponents around the one that brings the largest magnitude into the binade of the
    format's largest number (at most 2**16): from one below to three above, where saturation may improve the ratio.
    That is enough for formats with one precision for all normal numbers, since a larger scale only makes their grid
    finer. The precision of HiFloat8 falls with the distance from 1, so its candidates start at 40 below. If several
    candidates are equally good, the one with the smallest magnitude is returned; 0 if no scale is better than none.
    """
    if not np.any(values):
        return 0
    format = how.format
    limit = min(format.largest, TOP)
    top = int(np.frexp(limit)[1]) - 1 - binade_of_largest(values)
    tapered = format.smallest != format.smallest_normal * 2.0**-format.mantissa
    if not tapered and _is_normal(values, format):
        return 0  # every power of two that keeps the numbers normal gives the same error
    tried = sorted({0, *range(top - (DEEPEST if tapered else 1), top + 4)}, key=abs)
    return max(tried, key=lambda exponent: error_of(how.of(values, exponent), values).snr_db)


def _is_normal(values: Array, format: Format) -> bool:
    magnitudes = np.abs(values[values != 0])
    return bool(magnitudes.min() >= format.smallest_normal and magnitudes.max() <= format.largest)
