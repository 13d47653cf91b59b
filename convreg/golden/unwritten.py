"""Elements that a kernel never wrote: they hold what their memory was filled with before."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..formats import Format
from ..memory import Array
from . import ranks
from .evidence import NEARLY_ALL

FILLS = (0x00, 0x55, 0xAA, 0xA5, 0x5A, 0xCC, 0xCD, 0xDD, 0xFD, 0xFE, 0xFF, 0xEE, 0xBB)
"""Bytes that debuggers, allocators and tests fill memory with."""
WORDS = (0xDEADBEEF, 0xBAADF00D, 0xCAFEBABE, 0xFEEDFACE, 0x0BADF00D, 0xDEADC0DE, 0xABABABAB, 0x7FC00000, 0xFFC00000)
"""Patterns of four bytes; the last two are NaN as most software and most processors make it."""
SPREAD = "in several places"
FEW = 4
SHARE = 0.5
"""A value that no element is expected to have counts if it is this share of the wrong elements at least, and if no
value is a larger share of what these elements should hold."""


class Fill(NamedTuple):
    """Elements that all hold one pattern.

    `run` says how they lie: "in one run to the end", "in one run" or "in several places".
    """

    pattern: int
    value: float
    elements: int
    run: str
    known: bool
    width: int

    def __str__(self) -> str:
        """One sentence."""
        shown = f"0x{self.pattern:0{2 * self.width}x} ({self.value:g})"
        why = "a usual fill of memory" if self.known else "one value"
        told = "they look never written"
        if self.value == 0 and self.run == SPREAD:
            told = "never written, or all terms of their sums are missing"
        return f"{self.elements} wrong elements hold {shown}, {why}, {self.run}: {told}"


def unwritten(codes: Array, wrong: Array, golden: Array, format: Format, *, makes_nan: bool = False) -> Fill | None:
    """Return the pattern that looks like memory nobody wrote.

    Parameters
    ----------
    codes, golden : ndarray
        The judged and the golden results as unsigned integers, flat.
    wrong : ndarray of bool
    format : Format
    makes_nan : bool
        Whether arithmetic on the operands may make NaN: some are infinite or NaN, or sums overflow.
    """
    places = np.flatnonzero(wrong)
    held, counts = np.unique(codes[places], return_counts=True)
    most = int(counts.argmax())
    pattern, count = int(held[most]), int(counts[most])
    mine = places[codes[places] == held[most]]
    value, due = float(_numbers(held[most:most + 1], format)[0]), _numbers(golden[mine], format)
    known = _is_fill(pattern, format)
    if count < (FEW if known else 4 * FEW):
        return None
    if makes_nan and _as_arithmetic_makes_nan(pattern, value, format):
        return None
    holding, right = codes == held[most], _numbers(golden, format)
    if (value == 0 and _flushed(due, format)) or _cut_off(value, due, holding, right) or \
            _without_nan(value, due, holding, right):
        return None
    mostly, usual = count >= SHARE * places.size, _expected(pattern, golden)
    if usual and not mostly:  # as where results with many zeros lie in other places
        return None
    if not known or format.bits == 8:  # with 256 codes a fill's byte is often a result
        extreme = value == value and abs(value) >= format.largest  # where a sum overflows
        if extreme or usual or not mostly or (value and _alike(golden[mine])):
            return None
    run = SPREAD
    if int(mine[-1] - mine[0]) + 1 == count:
        run = "in one run to the end" if mine[-1] == codes.size - 1 else "in one run"
    return Fill(pattern, value, count, run, known, format.bits // 8)


def _is_fill(pattern: int, format: Format) -> bool:
    width = format.bits // 8
    data = pattern.to_bytes(width, "little")
    if len(set(data)) == 1:
        return data[0] in FILLS
    whole = int.from_bytes((data * 4)[:4], "little")
    doubled = int.from_bytes(data[:4], "little") if width >= 4 else whole
    return (width >= 4 and data[:4] * (width // 4) == data and doubled in WORDS) or pattern == format.nan


def _flushed(due: Array, format: Format) -> bool:
    """Whether a kernel that flushes subnormal numbers writes zeros in place of these numbers."""
    return bool((np.abs(due) <= format.smallest_normal).all())


def _cut_off(value: float, due: Array, holding: Array, golden: Array) -> bool:
    """Whether a kernel that limits its results to a range writes its end in place of these numbers.

    Then all results beyond the end hold it, and other results lie within.
    """
    for beyond, within in ((np.less, np.greater), (np.greater, np.less)):
        if due.size >= 4 * FEW and beyond(due, value).all() and within(golden, value).any():
            return bool(np.mean(holding[beyond(golden, value)]) >= NEARLY_ALL)
    return False


def _without_nan(value: float, due: Array, holding: Array, golden: Array) -> bool:
    """Whether a kernel writes a number in place of every NaN, as one that takes NaN as zero does."""
    return value == value and bool(np.isnan(due).all() and np.mean(holding[np.isnan(golden)]) >= NEARLY_ALL)


def _as_arithmetic_makes_nan(pattern: int, value: float, format: Format) -> bool:
    """Whether a pattern is a NaN that processors compute, of either sign; in 8 bits every NaN may be one."""
    sign = 1 << (format.bits - 1)
    return value != value and (format.bits == 8 or pattern & ~sign == format.nan & ~sign)


def _numbers(codes: Array, format: Format) -> Array:
    return ranks.values_of(ranks.ranks(codes, format), format)


def _alike(golden: Array) -> bool:
    """Whether one value is so large a share of what elements should hold that one result of all is no surprise."""
    return bool(np.unique(golden, return_counts=True)[1].max() > SHARE * golden.size)


def _expected(pattern: int, golden: Array) -> bool:
    """Whether so many golden elements have the pattern that it says nothing."""
    return bool(np.count_nonzero(golden == pattern) > golden.size // 8)
