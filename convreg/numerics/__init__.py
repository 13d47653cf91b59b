"""The error of gradients in a number format, measured against float64.

    compare             returns a `Comparison` of a call's arrays: one row per gradient, format and scale
    sweep               compares many calls, here or on a cluster: a `Case` each, whose operands may be `Drawn`
    draw                arrays of named distributions with fixed seeds
    error_of            signal-to-noise ratio, relative errors and cosine of any two arrays
    best_exponent       the power of two with which an array has the smallest error in a format
"""

from __future__ import annotations

from .cases import Case, Drawn
from .comparison import FORMATS, compare
from .distributions import DISTRIBUTIONS, draw
from .metrics import Binades, Error, binades_of, error_of
from .results import Comparison, OperandError, Row, plot
from .scaling import Rounding, best_exponent
from .sweeping import sweep

__all__ = [
    "DISTRIBUTIONS",
    "FORMATS",
    "Binades",
    "Case",
    "Comparison",
    "Drawn",
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
    "sweep",
]
