"""Calls on more than one machine, with the bits of one: sums over the batch taken apart, sweeps and arrays on Dask.

`reductions`, `partial`, `merge` and `join` need nothing but convreg. The rest needs the extra ``[distributed]``.
"""

from __future__ import annotations

from .arrays import apply
from .pieces import Partial, Reduction, join, merge, partial, reductions

__all__ = ["Partial", "Reduction", "apply", "join", "merge", "partial", "reductions"]
