"""Golden vectors for people who write kernels: inputs, exact results, the error that rounding can make, and a verdict.

    make                returns the golden vectors of one call
    load                returns those of a file, which `Golden.save` wrote
    Golden, Case        a call with its results; a call whose inputs are not drawn yet
    cases, write_cases  the calls that other tools' files state; convreg's own file of them
    sweep               fills a folder with golden vectors of many cases, here or on a cluster
    layouts             golden vectors in the folders and files of other tools
    FILLS               the values that a case's inputs can get
    compare             judges a kernel's results by the error that rounding can make, or by a vendor's standard
    Report              what it found
"""

from __future__ import annotations

from . import layouts
from .fills import FILLS
from .make import load, make
from .record import Case, Golden, Operand
from .report import OutputReport, Report
from .sources import cases, write_cases
from .sweeping import sweep
from .verdict import compare

__all__ = ["FILLS", "Case", "Golden", "Operand", "OutputReport", "Report", "cases", "compare", "layouts", "load",
           "make", "sweep", "write_cases"]
