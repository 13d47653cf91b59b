"""Calls of the kernels, and what they compute written from the relation x = y*s - begin + t*d alone."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import ml_dtypes
import numpy as np
from hypothesis import strategies as st

from convreg.geometry import Window

STORED = {"float32": np.float32, "float64": np.float64, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16,
          "float8_e4m3fn": ml_dtypes.float8_e4m3fn, "float8_e5m2": ml_dtypes.float8_e5m2}
CODES = {2: np.uint16, 1: np.uint8}


@dataclass(frozen=True)
class Case:
    """One call: shapes in the kernels' axis order, and what moves the window."""

    large: tuple[int, ...]
    small: tuple[int, ...]
    taps: tuple[int, ...]
    stride: tuple[int, int, int] = (1, 1, 1)
    dilation: tuple[int, int, int] = (1, 1, 1)
    begin: tuple[int, int, int] = (0, 0, 0)

    @property
    def window(self) -> dict:
        return {"stride": self.stride, "dilation": self.dilation, "begin": self.begin}

    def meetings(self) -> Iterator[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]]:
        """All (x, y, t) that meet, t slowest, then y row-major."""
        for t in np.ndindex(*self.taps[3:]):
            for y in np.ndindex(*self.small[3:]):
                x = tuple(y[a] * self.stride[a] - self.begin[a] + t[a] * self.dilation[a] for a in range(3))
                if all(0 <= x[a] < self.large[3 + a] for a in range(3)):
                    yield x, y, t


@st.composite
def cases(draw, smallest: int = 1) -> Case:
    """Windows anywhere: inside, over either edge, wholly outside; `smallest=0` draws empty extents too."""
    counts = st.integers(smallest, 3)
    batch, groups, c, m = draw(counts), draw(counts), draw(counts), draw(counts)
    extents = [draw(st.tuples(st.integers(smallest, 6), st.integers(smallest, 5), st.integers(smallest, 3)))
               for _ in range(3)]
    x, y, k = zip(*extents, strict=True)
    triple = st.tuples(*[st.integers(1, 4)] * 3)
    return Case((batch, groups, c, *x), (batch, groups, m, *y), (groups, m, c, *k),
                draw(triple), draw(triple), draw(st.tuples(*[st.integers(-8, 8)] * 3)))


def bits(array: np.ndarray) -> np.ndarray:
    """What a kernel is handed: floats as they are, other formats as codes."""
    return array if array.dtype in (np.float32, np.float64) else array.view(CODES[array.itemsize])


def drawn_arrays(case: Case, seed: int, dtype=np.float64) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return tuple(rng.standard_normal(shape).astype(dtype) for shape in (case.large, case.small, case.taps))


def windowed(kernel):
    """A kernel as operators call it, with the keywords of the compiled ones."""
    def compute(*arrays, stride, dilation, begin, formats, **more) -> None:
        kernel(*arrays, Window(stride, dilation, begin, formats), **more)
    return compute


def call(kernel, case: Case, first, second, shape, formats, **more) -> np.ndarray:
    """Run one kernel on arrays of any dtype; the result starts out as nonsense."""
    result = np.full(shape, 9, STORED[formats[2]])
    kernel(bits(first), bits(second), bits(result), **case.window, formats=formats, **more)
    return result


def forward(case: Case, large: np.ndarray, taps: np.ndarray) -> np.ndarray:
    """The sums in float64, in no particular order."""
    small = np.zeros(case.small)
    for x, y, t in case.meetings():
        small[(..., *y)] += np.einsum("ngc,gmc->ngm", large[(..., *x)], taps[(..., *t)])
    return small


def backward_data(case: Case, small: np.ndarray, taps: np.ndarray) -> np.ndarray:
    """The sums in float64, in no particular order."""
    large = np.zeros(case.large)
    for x, y, t in case.meetings():
        large[(..., *x)] += np.einsum("ngm,gmc->ngc", small[(..., *y)], taps[(..., *t)])
    return large


def backward_weights(case: Case, large: np.ndarray, small: np.ndarray) -> np.ndarray:
    """The sums in float64, in no particular order."""
    taps = np.zeros(case.taps)
    for x, y, t in case.meetings():
        taps[(..., *t)] += np.einsum("ngc,ngm->gmc", large[(..., *x)], small[(..., *y)])
    return taps


def rounded(exact: Fraction, dtype: type) -> np.floating:
    """The nearest float32 or float64, ties to even, by comparing exact distances."""
    near = dtype(float(exact))  # at most one step off
    around = [np.nextafter(near, dtype(-np.inf)), near, np.nextafter(near, dtype(np.inf))]
    return min(around, key=lambda v: (abs(Fraction(float(v)) - exact), int(v.view(f"u{v.itemsize}")) & 1))


def chain(terms: Iterator[tuple[np.floating, np.floating]], dtype: type) -> np.floating:
    """One fused multiply-add per term, from +0."""
    total = dtype(0)
    for a, b in terms:
        total = rounded(Fraction(float(a)) * Fraction(float(b)) + Fraction(float(total)), dtype)
    return total


def ordered_forward(case: Case, large: np.ndarray, taps: np.ndarray, blocks: bool = False) -> np.ndarray:
    """Bit for bit: taps outermost, channels innermost, these 32 at a time where sums are taken in blocks."""
    terms: dict = {}
    for x, y, t in case.meetings():
        for n, g, m, c in itertools.product(*map(range, case.small[:3]), range(case.taps[2])):
            terms.setdefault((n, g, m, *y), []).append((large[(n, g, c, *x)], taps[(g, m, c, *t)]))
    return _sums(terms, case.small, large.dtype.type, case.taps[2] if blocks else 0)


def ordered_backward_data(case: Case, small: np.ndarray, taps: np.ndarray, blocks: bool = False) -> np.ndarray:
    """As `ordered_forward`."""
    terms: dict = {}
    for x, y, t in case.meetings():
        for n, g, c, m in itertools.product(*map(range, case.large[:3]), range(case.taps[1])):
            terms.setdefault((n, g, c, *x), []).append((small[(n, g, m, *y)], taps[(g, m, c, *t)]))
    return _sums(terms, case.large, small.dtype.type, case.taps[1] if blocks else 0)


def _sums(terms: dict, shape: tuple[int, ...], dtype: type, channels: int) -> np.ndarray:
    """One chain each, or with so many channels in a tap their blocks, each of two chains of 16 terms."""
    result = np.zeros(shape, dtype)
    for place, pairs in terms.items():
        if channels == 0:
            result[place] = chain(iter(pairs), dtype)
            continue
        for tap in range(0, len(pairs), channels):
            for first in range(tap, tap + channels, 32):
                middle, end = (min(first + n, tap + channels) for n in (16, 32))
                result[place] += chain(iter(pairs[first:middle]), dtype) + chain(iter(pairs[middle:end]), dtype)
    return result


def ordered_backward_weights(case: Case, large: np.ndarray, small: np.ndarray, blocks: bool = False) -> np.ndarray:
    """Bit for bit: batch outermost, then y row-major, cut into pieces that join in a tree; where the small side has few
    channels, each piece is whole lines and sixteen chains along them, else positions may be taken 32 at a time."""
    dtype = large.dtype.type
    result = np.zeros(case.taps, dtype)
    positions, line = case.small[0] * int(np.prod(case.small[3:])), case.small[5]
    chains, unit = (16, max(1, line)) if case.small[2] <= 8 else (1, 1)
    pieces = max(1, min(-(-positions // 4096), max(1, 2**23 // int(np.prod(case.taps))), positions // unit))
    length = -(-(positions // unit) // pieces) * unit
    met = {(y, t): x for x, y, t in case.meetings()}
    order = list(itertools.product(range(case.small[0]), np.ndindex(*case.small[3:])))
    for place in np.ndindex(*case.taps):
        (g, m, c), t = place[:3], place[3:]
        part = []
        for p in range(pieces):
            terms = [[] for _ in range(2 * (length // 32 + 1) if blocks else chains)]
            for k, (n, y) in enumerate(order[p * length:(p + 1) * length]):
                if (y, t) in met:
                    which = k // 16 if blocks else y[2] % chains
                    terms[which].append((large[(n, g, c, *met[y, t])], small[(n, g, m, *y)]))
            lanes = [chain(iter(some), dtype) for some in terms]
            if blocks:
                lanes = [sum((a + b for a, b in zip(lanes[::2], lanes[1::2], strict=True)), dtype(0))]
            while len(lanes) > 1:
                lanes = [a + b for a, b in zip(lanes[:len(lanes) // 2], lanes[len(lanes) // 2:], strict=True)]
            part.append(lanes[0])
        step = 1
        while step < pieces:
            for i in range(0, pieces - step, 2 * step):
                part[i] = part[i] + part[i + step]
            step *= 2
        result[place] = part[0]
    return result
