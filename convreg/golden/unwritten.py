"""Elements that a kernel never wrote: they hold what their memory was filled with before."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..conversion import dequantize
from ..formats import Format
from ..memory import Array

FILLS = (0x00, 0x55, 0xAA, 0xA5, 0x5A, 0xCC, 0xCD, 0xDD, 0xFD, 0xFE, 0xFF, 0xEE, 0xBB)
"""Bytes that debuggers, allocators and tests fill memory with."""
WORDS = (0xDEADBEEF, 0xBAADF00D, 0xCAFEBABE, 0xFEEDFACE, 0x0BADF00D, 0xDEADC0DE, 0xABABABAB, 0x7FC00000, 0xFFC00000)
"""Patterns of four bytes; the last two are NaN as most software makes it."""
FEW = 4
SHARE = 0.5
"""A value that no element is expected to have counts if it is this share of the wrong elements at least."""


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
        return f"{self.elements} wrong elements hold {shown}, {why}, {self.run}: they look never written"


def unwritten(codes: Array, wrong: Array, golden: Array, format: Format) -> Fill | None:
    """Return the pattern that looks like memory nobody wrote.

    Parameters
    ----------
    codes, golden : ndarray
        The judged and the golden results as unsigned integers, flat.
    wrong : ndarray of bool
    format : Format
    """
    places = np.flatnonzero(wrong)
    held, counts = np.unique(codes[places], return_counts=True)
    most = int(counts.argmax())
    pattern, count = int(held[most]), int(counts[most])
    known = _is_fill(pattern, format)
    if not known and (count < 4 * FEW or count < SHARE * places.size or _expected(pattern, golden)):
        return None
    if count < FEW:
        return None
    if format.bits == 8 and (count < SHARE * places.size or _expected(pattern, golden)):
        return None  # with 256 codes a fill's byte is often a result
    mine = places[codes[places] == held[most]]
    run = "in several places"
    if int(mine[-1] - mine[0]) + 1 == count:
        run = "in one run to the end" if mine[-1] == codes.size - 1 else "in one run"
    value = float(dequantize(held[most:most + 1].view(format.storage), format.name, dtype=np.float64)[0])
    return Fill(pattern, value, count, run, known, format.bits // 8)


def _is_fill(pattern: int, format: Format) -> bool:
    width = format.bits // 8
    data = pattern.to_bytes(width, "little")
    if len(set(data)) == 1:
        return data[0] in FILLS
    whole = int.from_bytes((data * 4)[:4], "little")
    doubled = int.from_bytes(data[:4], "little") if width >= 4 else whole
    return (width >= 4 and data[:4] * (width // 4) == data and doubled in WORDS) or pattern == format.nan


def _expected(pattern: int, golden: Array) -> bool:
    """Whether so many golden elements have the pattern that it says nothing."""
    return bool(np.count_nonzero(golden == pattern) > golden.size // 8)
