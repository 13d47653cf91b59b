"""Golden vectors for people who write kernels: inputs, exact results, the error that rounding can make, and a verdict.

    make                returns the golden vectors of one call
    Golden, Case        a call with its results; a call whose inputs are not drawn yet
    cases, write_cases  the calls that other tools' files state; convreg's own file of them
"""

from __future__ import annotations

from .record import Case, Golden, Operand
from .sources import cases, write_cases

__all__ = ["Case", "Golden", "Operand", "cases", "write_cases"]
