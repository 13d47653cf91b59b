"""A convolution and its gradients as their definitions say, in float64 and independent of convreg."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from drawn import dyadic

import convreg
from convreg.golden import Case, Operand


class Windows(NamedTuple):
    """The relation of data (N, C, X), weights (M, C/groups, K) and results (N, M, Y); `begin` is the padding before."""

    stride: tuple[int, ...]
    begin: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int = 1

    def parts(self, data: Any, weight: Any, result: Any) -> Iterator[tuple[tuple, tuple, tuple]]:
        """Index data, weights and results that belong together: one tap of one group; `data` has a margin."""
        channels, filters = weight[1], weight[0] // self.groups
        for group, tap in product(range(self.groups), product(*map(range, weight[2:]))):
            space = tuple(slice(t * d, t * d + s * (y - 1) + 1, s)
                          for t, d, s, y in zip(tap, self.dilation, self.stride, result[2:], strict=True))
            ours = slice(group * filters, (group + 1) * filters)
            yield (slice(None), slice(group * channels, (group + 1) * channels), *space), (ours, slice(None), *tap), (
                slice(None), ours)

    def margin(self, shape: Any, weight: Any, result: Any) -> tuple[np.ndarray, tuple]:
        """Zeros with room for every window, and where the data lies in them."""
        extents = [b + x + s * y + k * d for b, x, s, y, k, d in zip(
            self.begin, shape[2:], self.stride, result[2:], weight[2:], self.dilation, strict=True)]
        inside = tuple(slice(b, b + x) for b, x in zip(self.begin, shape[2:], strict=True))
        return np.zeros((*shape[:2], *extents)), (slice(None), slice(None), *inside)

    def forward(self, data: np.ndarray, weight: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """The convolution."""
        result = np.zeros(shape)
        room, inside = self.margin(data.shape, weight.shape, shape)
        room[inside] = data
        for x, w, y in self.parts(data.shape, weight.shape, shape):
            result[y] += np.einsum("nc...,mc->nm...", room[x], weight[w])
        return result

    def data(self, result: np.ndarray, weight: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """The gradient of the data."""
        room, inside = self.margin(shape, weight.shape, result.shape)
        for x, w, y in self.parts(shape, weight.shape, result.shape):
            room[x] += np.einsum("nm...,mc->nc...", result[y], weight[w])
        return room[inside]

    def weight(self, data: np.ndarray, result: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """The gradient of the weights."""
        gradient = np.zeros(shape)
        room, inside = self.margin(data.shape, shape, result.shape)
        room[inside] = data
        for x, w, y in self.parts(data.shape, shape, result.shape):
            columns, rows = (array.reshape(*array.shape[:2], -1) for array in (room[x], result[y]))
            gradient[w] += np.einsum("ncp,nmp->mc", columns, rows)
        return gradient


def filled(case: Case, seed: int = 0) -> dict[str, np.ndarray]:
    """Operands whose sums are exact; constant ones where the range of the values has one value."""
    rng = np.random.default_rng(seed)
    return {name: _filled(operand, rng) for name, operand in case.inputs.items()}


def _filled(operand: Operand, rng: np.random.Generator) -> np.ndarray:
    if operand.values is not None:
        return operand.values
    numbers = dyadic(rng, operand.shape)
    if operand.low is not None and operand.low == operand.high:
        numbers = np.full(operand.shape, operand.low, np.float32)
    return convreg.quantize(numbers, operand.format)


def outcome(case: Case, operands: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The results of a case by the vendor's names of the outputs, without those that are masked off."""
    operator = convreg.get(case.op)
    chosen = {} if case.conformance is None else {"conformance": case.conformance}
    results = operator(**operands, **case.attributes, **chosen)
    results = results if isinstance(results, tuple) else (results,)
    return {port.name: array for port, array in zip(operator.spec.outputs, results, strict=True) if array is not None}


def wide(array: np.ndarray) -> np.ndarray:
    """Any array as float64."""
    return convreg.dequantize(array, dtype=np.float64)
