"""Operands of a timed call, and the float64 result that every timed result is compared with.

The reference is a sum of matrix products, one per tap, on slices of the operands; it shares no code with the kernels.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod, sqrt
from typing import Any

import ml_dtypes
import numpy as np

import convreg
from convreg.formats import FORMATS
from convreg.layers import OPERANDS, RESULT, in_layout, inside
from convreg.memory import Array

from .problems import Problem
from .worker import uniform

FORMAT_NAMES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16", "e4m3fn": "float8_e4m3fn",
                "e5m2": "float8_e5m2", "hifloat8": "hifloat8"}
"""The timed number formats: their names here, and in their records."""
DTYPES = {name: FORMATS[full].dtype for name, full in FORMAT_NAMES.items()}
EIGHT_BIT = ("e4m3fn", "e5m2", "hifloat8")
RESULTS = {name: (name, "f32") if name in EIGHT_BIT else (name,) for name in DTYPES}
"""The formats of results that are timed: the format of the operands, and also f32 if it has 8 bits."""
BLOCK = 2**22
"""Elements of an operand that the reference widens to float64 at a time."""


@dataclass(frozen=True)
class Case:
    """One timed call. `operands` are arrays with channels before space, in any memory order.

    `dtype` is the number format of the operands, `result` that of the result.
    """

    problem: Problem
    direction: str
    dtype: str
    layout: str
    operands: dict[str, Array]
    result: str

    @property
    def kernel(self) -> str:
        """Which of the three kernels it is."""
        return self.problem.kernel(self.direction)

    @property
    def result_shape(self) -> tuple[int, ...]:
        """Shape of the result, channels before space."""
        shape: tuple[int, ...] = getattr(self.problem.shapes, RESULT[self.kernel])
        return shape

    @property
    def terms(self) -> int:
        """Most products that are summed into one element of the result."""
        g = self.problem.geometry
        taps = prod(axis.taps for axis in g.axes)
        return {"forward": g.large_channels * taps, "backward_data": g.small_channels * taps,
                "backward_weights": g.batch * prod(axis.small for axis in g.axes)}[self.kernel]

    @property
    def bytes(self) -> int:
        """The smallest number of bytes that a call reads and writes."""
        shapes = self.problem.shapes._asdict()
        result = prod(shapes.pop(RESULT[self.kernel]))
        return (sum(map(prod, shapes.values())) * DTYPES[self.dtype].itemsize
                + result * DTYPES[self.result].itemsize)


def make_case(problem: Problem, direction: str, dtype: str, layout: str, result: str | None = None) -> Case:
    """Return a call with operands uniform in [-1, 1), the same ones on every run; the result is of their format."""
    operands = {}
    for name in OPERANDS[problem.kernel(direction)]:
        array = uniform(**recipe(problem, name, dtype, layout), quantize=convreg.quantize)
        operands[name] = from_layout(array, name, layout)
    return Case(problem, direction, dtype, layout, operands, result or dtype)


def recipe(problem: Problem, name: str, dtype: str, layout: str) -> dict[str, Any]:
    """Return the arguments of `uniform` for an operand in its layout."""
    return {"shape": in_layout(getattr(problem.shapes, name), name, layout),
            "seed": zlib.crc32(f"{problem.name} {name}".encode()),
            "format": FORMAT_NAMES[dtype]}


def from_layout(array: Array, name: str, layout: str) -> Array:
    """Return an array in a layout as a view with channels before space."""
    if layout == "ncx":
        return array
    return np.moveaxis(array, (-1, -2), (0, 1)) if name == "taps" else np.moveaxis(array, -1, 1)


def to_layout(array: Array, name: str, layout: str) -> Array:
    """Return an array with channels before space as the view whose axes are in the layout's order."""
    if layout == "ncx":
        return array
    return np.moveaxis(array, (0, 1), (-1, -2)) if name == "taps" else np.moveaxis(array, 1, -1)


def reference(case: Case) -> Array:
    """Return the result of a call in float64, not rounded, with channels before space."""
    g = case.problem.geometry
    G, C, M = g.groups, g.large_channels, g.small_channels
    result = np.zeros(case.result_shape)
    grouped = {"taps": (G, M, C), "large": (g.batch, G, C), "small": (g.batch, G, M)}
    views = {name: array.reshape(*grouped[name], *array.shape[2:])
             for name, array in (*case.operands.items(), (RESULT[case.kernel], result))}
    for n, tap, xs, ys in _products(case):
        at: dict[str, Any] = {"taps": (..., *tap), "large": (n, ..., *xs), "small": (n, ..., *ys)}
        operand = [widened(views[name][at[name]]) for name in OPERANDS[case.kernel]]
        target = views[RESULT[case.kernel]][at[RESULT[case.kernel]]]
        if case.kernel == "backward_weights":
            large, small = (array.reshape(*array.shape[:2], -1) for array in operand)
            target += small @ large.swapaxes(1, 2)
        else:
            data, weights = operand
            matrix = weights if case.kernel == "forward" else weights.swapaxes(1, 2)
            target += (matrix @ data.reshape(*data.shape[:2], -1)).reshape(target.shape)
    return result


def widened(array: Array, dtype: Any = np.float64) -> Array:
    """Numbers of any of the formats, exactly."""
    if array.dtype.itemsize == 1:
        return convreg.dequantize(array, dtype=dtype)
    return np.asarray(array, dtype)


def narrowed(array: Array, dtype: str) -> Array:
    """Round to one of the formats."""
    return convreg.quantize(array, dtype) if dtype == "hifloat8" else array.astype(DTYPES[dtype], copy=False)


def _products(case: Case) -> Iterator[tuple[int, tuple[int, ...], tuple[slice, ...], tuple[slice, ...]]]:
    """Yield sample, tap and the slices of the large and small side that this tap joins, in blocks of bounded size."""
    g = case.problem.geometry
    row = g.groups * max(g.large_channels, g.small_channels) * prod(axis.small for axis in g.axes[1:])
    rows = max(1, BLOCK // row)
    for n, tap in product(range(g.batch), product(*(range(axis.taps) for axis in g.axes))):
        spans = [inside(axis, t) for axis, t in zip(g.axes, tap, strict=True)]
        if not all(spans):
            continue
        for start in range(0, len(spans[0]), rows):
            block = [spans[0][start: start + rows], *spans[1:]]
            large = [axis.stride * span[0] - axis.begin + t * axis.dilation
                     for axis, span, t in zip(g.axes, block, tap, strict=True)]
            xs = tuple(slice(first, first + axis.stride * (len(span) - 1) + 1, axis.stride)
                       for axis, span, first in zip(g.axes, block, large, strict=True))
            yield n, tap, xs, tuple(slice(span.start, span.stop) for span in block)


def defect(case: Case, result: Array, expected: Array) -> str:
    """Return the defect of a result, or an empty string.

    An element may be off by four roundings of f32 at 1 per term summed (one chain of thousands of terms uses up
    more than one of them). Then it is rounded once to an 8-bit format, or eight times to a wider one (some libraries
    keep partial sums in it) at the size that it has or that sums of such operands have.
    """
    if result.shape != expected.shape:
        return f"shape {list(result.shape)} instead of {list(expected.shape)}"
    stored = DTYPES[case.result]
    if result.dtype != stored:
        return f"{result.dtype} instead of {stored}"
    shares = _shares_of_one_rounding if case.result in EIGHT_BIT else _shares_of_many_roundings
    worst, where, error = -1.0, [0], 0.0
    for index in range(result.shape[0]):  # in slices: the results of large layers fill memory
        found, wanted = widened(result[index]), expected[index]
        share = shares(case, found, wanted)
        share[np.isnan(share)] = np.inf
        place = np.unravel_index(int(share.argmax()), share.shape)
        if share[place] > worst:
            worst, where, error = float(share[place]), [index, *map(int, place)], float(abs(found - wanted)[place])
    return f"error {error:.3g} at {where}, {worst:.2g} times the allowed one" if worst > 1 else ""


def _shares_of_many_roundings(case: Case, found: Array, wanted: Array) -> Array:
    """The errors over the allowed ones."""
    unit = float(ml_dtypes.finfo(DTYPES[case.result]).eps) / 2
    typical = sqrt(case.terms) / 3  # the product of two operands has the standard deviation 1/3
    shares: Array = np.abs(found - wanted) / (4 * 2.0**-24 * case.terms + 8 * unit * (np.abs(wanted) + typical))
    return shares


def _shares_of_one_rounding(case: Case, found: Array, wanted: Array) -> Array:
    """The errors over the allowed ones: rounding is monotonic, so it keeps bounds of the sum bounds of the result."""
    slack = 4 * 2.0**-24 * case.terms
    low, high = (widened(narrowed(wanted + shift, case.result)) for shift in (-slack, slack))
    overflow = np.copysign(np.inf, wanted)  # which a format without infinities stores as NaN
    beyond = np.isnan(low) | np.isnan(high)
    found = np.where(np.isnan(found) & beyond, overflow, found)
    low, high = (np.where(np.isnan(bound), overflow, bound) for bound in (low, high))
    inside = (low <= found) & (found <= high)
    allowed = np.where(found > wanted, high - wanted, wanted - low)
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.where(allowed >= 0, np.abs(found - wanted) / allowed, np.inf)
    return np.where(inside, 0.0, shares)
