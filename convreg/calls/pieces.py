"""Sums over the batch taken apart: stand-ins for the module of kernels that sum some pieces, or deliver a finished sum.

A declaration's `run` computes with the kernels that it is given. With `PieceSums` it sums pieces of its weights or bias
gradient; with `Delivered` it rounds a finished sum as the whole call would.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any, NamedTuple

import numpy as np

import convreg.ops.kernels.trees as trees

from ..conversion import quantize
from ..formats import FORMATS
from ..geometry import Window
from ..memory import Array
from ..ops.kernels import bias_gradient
from .recording import Recorder

WIDE = ("float64", "float32")
"""The formats of sums: the first between float64 arrays, the second otherwise."""


class Cut(NamedTuple):
    """How a sum over the batch and the positions of the small side is cut: `core/reduction.h` has the rule."""

    batch: int
    positions: int
    """Of one sample."""
    pieces: int
    length: int
    """Of a piece, in positions."""

    def samples(self, first: int, end: int) -> range:
        """Return the samples that pieces [first, end) meet; empty pieces take the last one: no part is empty."""
        positions = self.batch * self.positions
        if not positions:
            return range(self.batch)
        start = min(first * self.length // self.positions, self.batch - 1)
        stop = -(-min(end * self.length, positions) // self.positions)
        return range(start, max(start + 1, stop))


class CutOf(Recorder):
    """Finds how the one sum of a call is cut, given its operands for one sample or more."""

    cut: Cut | None = None

    def __init__(self, batch: int) -> None:
        self._batch = batch

    def note(self, kernel: str, operands: tuple[Array, Array, Array], settings: dict[str, Any]) -> None:
        """Look at the shapes of a weights gradient."""
        if kernel == "backward_weights":
            _, small, taps = operands
            self.cut = cut_of(self._batch, small, taps)


def cut_of(batch: int, small: Array, taps: Array) -> Cut:
    """Return how sums over a batch are cut, given arrays that have any number of its samples."""
    return Cut(batch, prod(small.shape[3:]), *trees.pieces_of(batch, small.shape, taps.size))


class Sum(NamedTuple):
    """The sums of pieces [first, end), a subtree: one number per tap, in the order of the kernels."""

    first: int
    end: int
    values: Array


class PieceSums:
    """Stands in for the module of kernels: sums the subtrees of some pieces.

    Parameters
    ----------
    kernels : module or Recorder
        What computes, or notes, the subtrees.
    batch : int
        The samples of the whole sum.
    pieces : range
        The pieces, which follow one another.
    start : int
        The sample that the operands begin with.
    """

    def __init__(self, kernels: Any, batch: int, pieces: range, start: int) -> None:
        self._kernels, self._batch, self._pieces, self._start = kernels, batch, pieces, start
        self.sums: list[Sum] = []

    def backward_weights(self, large: Array, small: Array, taps: Array, window: Window, *, threads: int = 0) -> None:
        """Sum pieces of a weights gradient; `taps` is not written."""
        formats = (*window.formats[:2], self._wide(window.formats))
        for sums, part, subtree in self._subtrees(small, taps, formats[2]):
            self._kernels.backward_weights(large[part], small[part], sums, replace(window, formats=formats),
                                           threads=threads, subtree=subtree)

    def bias_sum(self, small: Array, bias: Array, *, formats: tuple[str, str], threads: int = 0) -> None:
        """Sum pieces of a bias gradient; `bias` is not written."""
        (_, _, taps), _ = bias_gradient(small, bias, formats)
        wide = self._wide(formats)
        for sums, part, subtree in self._subtrees(small, taps, wide):
            self._kernels.bias_sum(small[part], sums.reshape(-1), formats=(formats[0], wide), threads=threads,
                                   subtree=subtree)

    @staticmethod
    def _wide(formats: tuple[str, ...]) -> str:
        return WIDE["float64" not in formats]

    def _subtrees(self, small: Array, taps: Array, wide: str) -> Any:
        """Yield an array for each subtree, the samples that it needs of the operands, and its place among these."""
        cut = cut_of(self._batch, small, taps)
        for first, end in trees.subtrees_of(self._pieces.start, self._pieces.stop, cut.pieces):
            samples = cut.samples(first, end)
            sums = np.empty(taps.shape, FORMATS[wide].dtype)
            part = slice(samples.start - self._start, samples.stop - self._start)
            yield sums, part, (first * cut.length - samples.start * cut.positions, end - first, cut.length)
            self.sums.append(Sum(first, end, sums))


class Delivered:
    """Stands in for the module of kernels: a finished sum is the result of a weights or bias gradient, rounded once."""

    def __init__(self, total: Array) -> None:
        self._total = total

    def backward_weights(self, large: Array, small: Array, taps: Array, window: Window, *, threads: int = 0) -> None:
        """Write taps."""
        self._write(taps, window.formats[2], threads)

    def bias_sum(self, small: Array, bias: Array, *, formats: tuple[str, str], threads: int = 0) -> None:
        """Write bias."""
        self._write(bias, formats[1], threads)

    def _write(self, result: Array, format: str, threads: int) -> None:
        total = self._total.reshape(result.shape) + self._total.dtype.type(0)  # a zero is +0
        if format in WIDE:
            result[...] = total
        else:
            quantize(total, format, out=result.view(FORMATS[format].dtype), threads=threads or None)


def joined(sums: list[Sum], pieces: int) -> list[Sum]:
    """Add subtrees that follow one another as far as the tree adds them; the arrays of `sums` stay as they are."""
    found: list[Sum] = []
    own: list[bool] = []
    for one in sums:
        found.append(one)
        own.append(False)
        while len(found) > 1 and trees.adds(found[-2].first, found[-1].first, found[-1].end, pieces):
            right = found.pop()
            own.pop()
            left = found[-1]
            with np.errstate(all="ignore"):  # infinities meet, as in the kernels
                values = np.add(left.values, right.values, out=left.values if own[-1] else None)
            found[-1], own[-1] = Sum(left.first, right.end, values), True
    return found
