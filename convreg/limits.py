"""Limits of the number formats that arrays are stored in, as `numpy.finfo` has them for NumPy's own."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import frexp
from typing import Any

import ml_dtypes
import numpy as np

from .errors import Asking
from .formats import FORMATS, format_of, hifloat8
from .guard import guarded


@dataclass(frozen=True, repr=False)
class HiFloat8Limits:
    """Limits of HiFloat8, under the names of `numpy.finfo`.

    Attributes
    ----------
    dtype : numpy.dtype
    bits : int
    max, min : hifloat8
        The largest and the smallest finite number.
    eps, epsneg : hifloat8
        The distance from 1 to the next larger number, and to the next smaller one.
    machep, negep : int
        Their exponents.
    nmant : int
        Mantissa bits at 1, where the format has the most.
    nexp, iexp : int
        Bits of the longest exponent, its sign included.
    maxexp : int
        The smallest power of two that overflows.
    minexp : int
        The smallest power of two that the exponent field represents, that of `smallest_normal`.
    smallest_normal, tiny : hifloat8
        2**-15. Smaller numbers are powers of two.
    smallest_subnormal : hifloat8
        The smallest number above zero.
    precision : int
        Decimal digits.
    resolution : hifloat8
        ``10**-precision``.
    """

    dtype: np.dtype[Any]
    bits: int
    max: Any
    min: Any
    eps: Any
    epsneg: Any
    machep: int
    negep: int
    nmant: int
    nexp: int
    iexp: int
    maxexp: int
    minexp: int
    smallest_normal: Any
    tiny: Any
    smallest_subnormal: Any
    precision: int
    resolution: Any

    def __repr__(self) -> str:
        return f"finfo(resolution={self.resolution}, min={self.min}, max={self.max}, dtype={self.dtype})"

    def __str__(self) -> str:
        """One line per attribute."""
        return "\n".join([f"Limits of {self.dtype}", *(f"{field.name:20}{getattr(self, field.name)}"
                                                       for field in fields(self)[1:])])


@guarded("convreg::finfo")
def finfo(dtype: Any) -> Any:
    """Return the limits of a format of floating-point numbers.

    Parameters
    ----------
    dtype : dtype, scalar type, array or str
        A format of `convreg.formats` that arrays are stored in: its name, its dtype, or an array of it.

    Returns
    -------
    HiFloat8Limits, ml_dtypes.finfo or numpy.finfo
        All have the attributes of `numpy.finfo`.

    Raises
    ------
    OpTypeError
        If it is no such format.
    """
    try:
        if isinstance(dtype, str) and dtype in FORMATS:
            known = FORMATS[dtype]
        else:
            kind = dtype if isinstance(dtype, type) else getattr(dtype, "dtype", dtype)
            held = None if kind is None else format_of(np.dtype(kind))  # None means float64 to NumPy
            if held is None:
                raise TypeError
            known = held
    except Exception:  # NumPy raises whatever the reader of such a description meets
        raise Asking("convreg::finfo").refuse("dtype", dtype, "a dtype or the name of " + ", ".join(FORMATS),
                                              wrong_type=True) from None
    return _of_hifloat8() if known.name == "hifloat8" else ml_dtypes.finfo(known.dtype)


def _of_hifloat8() -> HiFloat8Limits:
    format, one = FORMATS["hifloat8"], hifloat8(1)
    eps, epsneg = np.nextafter(one, hifloat8(2)) - one, one - np.nextafter(one, hifloat8(0))
    normal = hifloat8(format.smallest_normal)
    return HiFloat8Limits(
        dtype=format.dtype, bits=format.bits, max=hifloat8(format.largest), min=hifloat8(-format.largest),
        eps=eps, epsneg=epsneg, machep=_exponent(eps), negep=_exponent(epsneg), nmant=format.mantissa, nexp=4, iexp=4,
        maxexp=_exponent(format.largest) + 1, minexp=_exponent(normal), smallest_normal=normal, tiny=normal,
        smallest_subnormal=hifloat8(format.smallest), precision=1, resolution=hifloat8(0.1))


def _exponent(power: Any) -> int:
    return frexp(power)[1] - 1
