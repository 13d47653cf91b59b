"""The quantum of an array: the largest power of two that divides all of its numbers."""

from __future__ import annotations

import numpy as np

from ..conversion import dequantize
from ..formats import format_of
from ..memory import Array

BLOCK = 1 << 18
SPREAD = 24
"""Binary digits from the largest number of an array to its quantum above which sums are hardly ever exact."""

ZERO = 2**20
"""The exponent of an array of zeros, which every power of two divides."""


def exponent_of_quanta(array: Array) -> int | None:
    """Return the binary exponent of the quantum of an array of any format; None if it is too small to be of use.

    Infinities and NaN do not count.
    """
    known = format_of(array.dtype)
    assert known is not None, array.dtype
    flat = array.reshape(-1)
    if known.bits <= 16:
        present = np.flatnonzero(np.bincount(flat.view(known.storage), minlength=2**known.bits))
        return _exponent(known.values[present].astype(np.float64))
    lowest, highest = ZERO, -ZERO
    for start in range(0, flat.size, BLOCK):
        values = dequantize(flat[start:start + BLOCK], dtype=np.float64)
        lowest = min(lowest, _exponent(values))
        finite = np.abs(values[np.isfinite(values)])
        top = finite.max(initial=0.0)
        highest = max(highest, int(np.frexp(top)[1]) if top else -ZERO)
        if highest - lowest > SPREAD:
            return None
    return lowest


def _exponent(values: Array) -> int:
    values = values[np.isfinite(values) & (values != 0)]
    if not values.size:
        return ZERO
    mantissa, exponent = np.frexp(values)
    digits = np.ldexp(mantissa, 53).astype(np.int64)
    lowest = np.frexp((digits & -digits).astype(np.float64))[1] - 1  # the place of the last digit that is set
    return int((exponent - 53 + lowest).min())
