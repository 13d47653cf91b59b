"""Golden vectors for people who write kernels: inputs, exact results, the error that rounding can make, and a verdict.

    make                returns the golden vectors of one call
    Golden, Case        a call with its results; a call whose inputs are not drawn yet
"""

from __future__ import annotations

from .record import Case, Golden, Operand

__all__ = ["Case", "Golden", "Operand"]
