"""How far an array is from the exact one: signal-to-noise, relative errors, cosine, and where its numbers lie."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import Asking
from ..guard import guarded
from ..memory import Array
from .arguments import numbers


@dataclass(frozen=True, slots=True)
class Error:
    """The error of an array against the exact one.

    Attributes
    ----------
    snr_db : float
        Signal-to-noise ratio, 10 log10(SUM exact**2 / SUM (array - exact)**2). It is infinite if the arrays are equal
        and minus infinity if the array has an infinity or a NaN.
    largest_relative, mean_relative : float
        Largest and mean of abs(array - exact) / abs(exact) over the elements whose exact value is not zero. They are
        infinite if the array has an infinity or a NaN.
    cosine : float
        Cosine of the angle between the two arrays as vectors; NaN if one of them is zero or not finite.
    """

    snr_db: float
    largest_relative: float
    mean_relative: float
    cosine: float


@guarded("convreg::numerics")
def error_of(array: Array, exact: Array) -> Error:
    """Return the error of an array against the exact one, computed in float64.

    Parameters
    ----------
    array : array_like
        Numbers of any format that `convreg.dequantize` reads, or of any real NumPy type.
    exact : array_like
        Finite numbers of the same shape.

    Returns
    -------
    Error

    Raises
    ------
    OpError, OpTypeError
        If the shapes differ, the exact array is not finite, or an argument is not an array of numbers.
    """
    ask = Asking("convreg::numerics")
    found, wanted = numbers(ask, "array", array), numbers(ask, "exact", exact)
    if found.shape != wanted.shape:
        raise ask.refuse("array", list(found.shape), f"shape {list(wanted.shape)}, as exact has")
    if not np.isfinite(wanted).all():
        raise ask.refuse("exact", "infinity or NaN", "finite numbers")
    found, wanted = found.ravel(), wanted.ravel()
    unit = unit_of(wanted)
    with np.errstate(all="ignore"):  # of numbers far larger than the exact ones
        scaled, wanted = times_power(found, unit), times_power(wanted, unit)
        if not np.isfinite(scaled).all():
            return Error(-np.inf, np.inf, np.inf, np.nan)
        difference, signal = scaled - wanted, _product(wanted, wanted)
        nonzero = wanted != 0
        relative = np.abs(difference[nonzero] / wanted[nonzero])
        direction = times_power(found, unit_of(found))
        length = float(np.sqrt(signal * _product(direction, direction)))
        return Error(_decibels(signal, difference), float(relative.max(initial=0)),
                     float(relative.mean()) if relative.size else 0.0,
                     _product(wanted, direction) / length if length else np.nan)


def snr_of(found: Array, wanted: Array, unit: int) -> float:
    """Return what `error_of` has as the signal-to-noise ratio.

    `unit` is that of the exact numbers, which `wanted` holds as a vector, multiplied by 2**unit already.
    """
    scaled = times_power(found.ravel(), unit)
    return _decibels(_product(wanted, wanted), scaled - wanted) if np.isfinite(scaled).all() else -np.inf


def _decibels(signal: float, difference: Array) -> float:
    return decibels(signal, _product(difference, difference))


def _product(first: Array, second: Array) -> float:
    """Return the sum of products, whose order does not depend on the threads of NumPy's library of linear algebra."""
    return float(np.multiply(first, second).sum())


def decibels(signal: float, noise: float) -> float:
    """Return the ratio of two sums of squares, infinite if the second is zero."""
    with np.errstate(divide="ignore"):
        return 10 * float(np.log10(np.float64(signal) / noise)) if noise else np.inf


def unit_of(wanted: Array) -> int:
    """Return the exponent of a power of two times which the squares of gradients like 1e-200 are not zero."""
    return -binade_of_largest(wanted)


def times_power(values: Array, exponent: int) -> Array:
    """Return ``np.ldexp(values, exponent)``, which takes several times as long as a product."""
    limits = np.finfo(values.dtype)
    if limits.minexp <= exponent < limits.maxexp:
        product: Array = values * limits.dtype.type(2.0**exponent)
        return product
    return np.ldexp(values, exponent)


def binade_of_largest(values: Array) -> int:
    """Return the binary exponent of the largest magnitude, 0 where all are zero."""
    largest = float(np.abs(values).max(initial=0))
    return int(np.frexp(largest)[1]) - 1 if largest else 0


@dataclass(frozen=True, slots=True)
class Binades:
    """A histogram of magnitudes.

    Attributes
    ----------
    counts : dict of int to int
        Binary exponent e -> number of magnitudes in [2**e, 2**(e+1)), in increasing order of e.
    zeros, infinite : int
        Numbers of zeros, and of infinities and NaN.
    """

    counts: dict[int, int]
    zeros: int
    infinite: int

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON can hold it: the keys of counts become strings."""
        return {"counts": {str(exponent): count for exponent, count in self.counts.items()}, "zeros": self.zeros,
                "infinite": self.infinite}

    @staticmethod
    def from_dict(held: Mapping[str, Any]) -> Binades:
        """Return what `to_dict` made."""
        return Binades({int(exponent): count for exponent, count in held["counts"].items()}, held["zeros"],
                       held["infinite"])


@guarded("convreg::numerics")
def binades_of(values: Array) -> Binades:
    """Return the histogram of an array's magnitudes.

    Parameters
    ----------
    values : array_like
        Numbers of any format that `convreg.dequantize` reads, or of any real NumPy type.

    Returns
    -------
    Binades

    Raises
    ------
    OpError, OpTypeError
        If the argument is not an array of numbers.
    """
    flat = numbers(Asking("convreg::numerics"), "values", values).ravel()
    finite = flat[np.isfinite(flat)]
    exponents, counts = np.unique(np.frexp(finite[finite != 0])[1] - 1, return_counts=True)
    return Binades(dict(zip(exponents.tolist(), counts.tolist(), strict=True)), int((finite == 0).sum()),
                   flat.size - finite.size)


def flushed_share(array: Array, exact: Array) -> float:
    """Return the share of those elements that are exactly not zero which became zero."""
    nonzero = exact != 0
    count = int(nonzero.sum())
    return int((array[nonzero] == 0).sum()) / count if count else 0.0
