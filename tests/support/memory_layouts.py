"""Arrays in drawn places in memory, with canaries around their elements."""

from __future__ import annotations

import mmap
import random
from dataclasses import dataclass
from math import prod

import numpy as np
from emulation import EMULATED

MARGIN = 64  # bytes of canary before the first element and after the last
CANARY = 0xA5
FAR = 1 << 30  # bytes from one part of a far array to the next
FAR_PARTS = 9
FAR_BYTES = 1 << 18  # of a far array
MOST_BYTES = 1 << 21  # of an array with gaps
STYLES = ("contiguous", "fortran", "permuted", "channels last", "strided", "reversed", "mixed", "mixed",
          *(() if EMULATED else ("far",)))  # an emulator keeps a record of every page, also of those never touched


@dataclass(frozen=True)
class Layout:
    """Where an array's elements lie: strides and the first element's offset, in bytes, in a buffer of `size` bytes.

    `far` is the axis whose parts lie a gigabyte apart in a sparse mapping, None where all lie in one buffer.
    """

    style: str
    strides: tuple[int, ...]
    offset: int
    size: int
    far: int | None = None

    def __str__(self) -> str:
        return f"{self.style} {self.strides}+{self.offset % 8}"


def draw_layout(rng: random.Random, shape: tuple[int, ...], itemsize: int, style: str | None = None) -> Layout:
    """Return a place for an array in which no two elements overlap, in some style or the named one."""
    style = style or rng.choice(STYLES)
    rank = len(shape)
    order = list(range(rank))  # slowest axis first
    if style == "fortran":
        order.reverse()
    elif style in ("permuted", "mixed"):
        rng.shuffle(order)
    elif style == "channels last" and rank > 2:
        order = [0, *range(2, rank), 1]
    far = None
    if style == "far" and rank:
        far = rng.randrange(rank)
        if shape[far] > FAR_PARTS or itemsize * prod(shape) > FAR_BYTES:
            far, style = None, "contiguous"
    gaps, signs = [1] * rank, [1] * rank
    if style in ("strided", "mixed"):
        gaps = [rng.choice([1, 1, 2, 3]) for _ in range(rank)]
        if itemsize * prod(extent * gap for extent, gap in zip(shape, gaps, strict=True)) > MOST_BYTES:
            gaps = [1] * rank
    if style in ("reversed", "mixed"):
        signs = [rng.choice([1, -1]) for _ in range(rank)]
    step = itemsize
    if rng.random() < 0.1:  # as the field of a packed record
        step += rng.choice([1, 2, itemsize, 3])
    strides, before = [0] * rank, 0
    for axis in reversed(order):
        if axis == far:
            strides[axis] = FAR * signs[axis]
            continue
        strides[axis] = signs[axis] * step * gaps[axis]
        if signs[axis] < 0 and shape[axis]:
            before += (shape[axis] - 1) * step * gaps[axis]
        step = step * gaps[axis] * max(1, shape[axis]) + (rng.choice([0, 0, 0, itemsize, 1]) if style == "mixed" else 0)
    misaligned = rng.choice([0, 0, 0, itemsize, 1, itemsize // 2, itemsize - 1])
    offset = MARGIN + before + misaligned
    return Layout(style, tuple(strides), offset, offset + step + 2 * itemsize + MARGIN, far)


class Placed:
    """An array in a layout: `view`, and the memory around it filled with canaries."""

    def __init__(self, layout: Layout, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self.layout, self.shape, self.dtype = layout, shape, dtype
        if layout.far is None:
            memory = np.full(layout.size + 64, CANARY, np.uint8)
            start = -memory.ctypes.data % 64
            self.parts = [memory[start:start + layout.size]]
            self.view = np.ndarray(shape, dtype, self.parts[0], layout.offset, layout.strides)
        else:
            flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
            memory = np.frombuffer(mmap.mmap(-1, FAR_PARTS * FAR, flags=flags), np.uint8)
            self.parts = [memory[number * FAR:number * FAR + layout.size] for number in range(shape[layout.far])]
            for part in self.parts:
                part[:] = CANARY
            self.view = np.ndarray(shape, dtype, memory, layout.offset, layout.strides)

    def stray_bytes(self, values: np.ndarray) -> int:
        """Bytes that differ from canaries around elements of these values."""
        far = self.layout.far
        if far is None:
            return _stray(self.parts[0], self.layout, self.layout.strides, values)
        strides = tuple(stride for axis, stride in enumerate(self.layout.strides) if axis != far)
        return sum(_stray(part, self.layout, strides, np.take(values, number, far))
                   for number, part in enumerate(self.parts))


def _stray(memory: np.ndarray, layout: Layout, strides: tuple[int, ...], values: np.ndarray) -> int:
    expected = np.full(layout.size, CANARY, np.uint8)
    np.ndarray(values.shape, values.dtype, expected, layout.offset, strides)[...] = values
    return int((memory != expected).sum())


def placed(rng: random.Random, array: np.ndarray) -> tuple[np.ndarray, str]:
    """Return the same numbers elsewhere in memory, repeated by strides of 0 where the array repeats them, and where."""
    once = array[tuple(slice(1) if stride == 0 and extent > 1 else slice(None)
                       for stride, extent in zip(array.strides, array.shape, strict=True))]
    layout = draw_layout(rng, once.shape, array.itemsize)
    place = Placed(layout, once.shape, array.dtype)
    place.view[...] = once
    name = f"broadcast {layout}" if once.shape != array.shape else str(layout)
    return np.broadcast_to(place.view, array.shape), name
