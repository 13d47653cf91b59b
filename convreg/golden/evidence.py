"""Whether an explanation fits: the share of judged results that rounding could have made of another analysis."""

from __future__ import annotations

import numpy as np

from ..memory import Array
from .bounds import Analysis
from .judgement import outside

NEARLY_ALL = 0.99
"""The share of results that an explanation has to fit: elements may be wrong for more than one reason."""
COSTLY = 1 << 22
"""Elements of an output above which no explanation is tried that needs another call or another order of them."""


def share(known: Analysis, found: Array) -> float:
    """Return the share of results, given as ranks, that rounding could have made."""
    return float(np.mean(~outside(found, known.ends(), known.format)))


def fits(known: Analysis, found: Array) -> bool:
    """Whether rounding could have made nearly all results."""
    return share(known, found) >= NEARLY_ALL


def explains(known: Analysis, found: Array, wrong: Array) -> bool:
    """Whether rounding could have made nearly all results, and nearly all of the wrong ones."""
    possible = ~outside(found, known.ends(), known.format)
    return bool(np.mean(possible) >= NEARLY_ALL and np.mean(possible[wrong]) >= NEARLY_ALL)
