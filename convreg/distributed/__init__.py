"""Calls on more than one machine, with the bits of one: sums over the batch taken apart, sweeps and arrays on Dask.

`reductions`, `partial`, `merge` and `join` need nothing but convreg. The rest needs the extra ``[distributed]``.
"""

from __future__ import annotations

from .pieces import Partial, Reduction, join, merge, partial, reductions

__all__ = ["Partial", "Reduction", "join", "merge", "partial", "reductions"]
