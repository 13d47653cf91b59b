"""What a number format costs: the error of gradients computed in it against float64.

    compare             a call's arrays in, a `Comparison` out: one row per gradient, format and scale
    draw                arrays of named distributions with fixed seeds
    error_of            signal-to-noise ratio, relative errors and cosine of any two arrays
    best_exponent       the power of two by which an array fits into a format best
"""

from __future__ import annotations

from .comparison import FORMATS, Comparison, OperandError, Row, compare
from .distributions import DISTRIBUTIONS, draw
from .metrics import Binades, Error, binades_of, error_of
from .picture import plot
from .scaling import Rounding, best_exponent

__all__ = [
    "DISTRIBUTIONS",
    "FORMATS",
    "Binades",
    "Comparison",
    "Error",
    "OperandError",
    "Rounding",
    "Row",
    "best_exponent",
    "binades_of",
    "compare",
    "draw",
    "error_of",
    "plot",
]
