"""Golden vectors for people who write kernels: inputs, exact results, the error that rounding can make, and a verdict.

    make                returns the golden vectors of one call
    load                returns those of a file, which `Golden.save` wrote
    Golden, Case        a call with its results; a call whose inputs are not drawn yet
    cases, write_cases  the calls that other tools' files state; convreg's own file of them
    layouts             golden vectors in the folders and files of other tools
    FILLS               the values that a case's inputs can get
"""

from __future__ import annotations

from . import layouts
from .fills import FILLS
from .make import load, make
from .record import Case, Golden, Operand
from .sources import cases, write_cases

__all__ = ["FILLS", "Case", "Golden", "Operand", "cases", "layouts", "load", "make", "write_cases"]
