"""Golden vectors for people who write kernels: inputs, exact results, the error that rounding can make, and a verdict.

    make                returns the golden vectors of one call
    Golden, Case        a call with its results; a call whose inputs are not drawn yet
    compare             judges a kernel's results by the error that rounding can make, or by a vendor's standard
    Report              what it found
"""

from __future__ import annotations

from .record import Case, Golden, Operand
from .report import OutputReport, Report
from .verdict import compare

__all__ = ["Case", "Golden", "Operand", "OutputReport", "Report", "compare"]
