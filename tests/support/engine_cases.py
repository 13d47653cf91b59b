"""Calls for the engine's tests: drawn geometries, each kind for one of its ways, and larger calls."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import pytest
from kernel_cases import Case

DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16,
          "float8_e4m3fn": ml_dtypes.float8_e4m3fn, "float8_e5m2": ml_dtypes.float8_e5m2,
          "hifloat8": np.uint8}
STORED = DTYPES | {"float64": np.float64}
LAID_OUT = [name if name not in ("float8_e4m3fn", "float8_e5m2") else pytest.param(name, marks=pytest.mark.slow)
            for name in DTYPES]
"""Formats of tests of how numbers are laid out. Those of 8 bits differ only in how a number is decoded: the quick tests
take one of them."""
OPERANDS = {"forward": ("large", "taps", "small"), "backward_data": ("small", "taps", "large"),
            "backward_weights": ("large", "small", "taps")}


def case_of(batch: int, groups: int, c: int, m: int, axes: list[tuple[int, ...]]) -> Case:
    """The case of up to three axes, each (x, y, k, s, d, b)."""
    x, y, k, s, d, b = zip(*lifted(axes), strict=True)
    return Case((batch, groups, c, *x), (batch, groups, m, *y), (groups, m, c, *k), s, d, b)


def multiplications(case: Case) -> int:
    return int(np.prod(case.small) * case.taps[2] * np.prod(case.taps[3:]))


def lifted(axes: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    return [(1, 1, 1, 1, 1, 0)] * (3 - len(axes)) + axes


def any_case(rng: random.Random) -> Case:
    """Few and many channels, groups, windows inside, over the edges and wholly outside, in one to three dimensions."""
    dimensions = rng.choice([1, 2, 2, 3])
    many = [33, 70] if rng.random() < 0.2 else []
    batch, groups = rng.choice([1, 1, 2, 3]), rng.choice([1, 1, 1, 2, 3, 5])
    c, m = rng.choice([1, 2, 3, 5, 8, 17, *many]), rng.choice([1, 2, 3, 7, 9, 16, 20, *many])
    if rng.random() < 0.2:
        c, m, groups = rng.choice([1, 1, 2]), rng.choice([1, 1, 2]), rng.choice([1, 4, 19, 35])
    axes = []
    for _ in range(dimensions):
        k, s, d = (rng.choice(some) for some in ([1, 1, 2, 3, 3, 4, 5], [1, 1, 1, 2, 2, 3], [1, 1, 2, 3]))
        b, y = rng.choice([0, 0, 1, k // 2, k - 1, -1, 5]), rng.randint(1, {1: 150, 2: 20, 3: 6}[dimensions])
        x = (y - 1) * s - b + (k - 1) * d + 1 + rng.choice([0, 0, -1, 1, -b, 3])
        axes.append((max(x, 1), y, k, s, d, b))
    axes = lifted(axes)
    if rng.random() < 0.2:
        rng.shuffle(axes)
    return case_of(batch, groups, c, m, axes)


def depthwise_case(rng: random.Random) -> Case:
    """Groups of one to three channels: several images and rows, long lines and kernels, windows over any edge."""
    dimensions = rng.choice([1, 2, 2, 2, 3])
    axes = []
    for _ in range(dimensions):
        k = rng.choice([1, 2, 3, 3, 4, 5, 7, 11, *([17, 33, 40] if dimensions == 1 else [])])
        s, d = rng.choice([1, 1, 1, 2, 2, 3, 5]), rng.choice([1, 1, 1, 2, 3, 4])
        b, y = rng.choice([0, k // 2, k // 2, k - 1, -1, 5]), rng.randint(1, {1: 150, 2: 40, 3: 9}[dimensions])
        axes.append((max((y - 1) * s - b + (k - 1) * d + 1 + rng.choice([0, 0, -1, 1, -b, -b, 3]), 1), y, k, s, d, b))
    return case_of(rng.choice([1, 2, 3, 4, 5, 9]), rng.choice([2, 3, 5, 19]), *rng.choices([1, 1, 1, 2, 3], k=2), axes)


def narrow_planes_case(rng: random.Random) -> Case:
    """Small groups on planes of which several lines fit a vector; mostly windows that leave the width as it is."""
    axes = []
    for most in rng.choice([(13, 8), (13, 8), (30, 3), (4, 13, 8)]):
        k, d = rng.choice([1, 2, 3, 3, 5, 7, 9]), rng.choice([1, 1, 1, 2, 3])
        y, b = rng.randint(1, most), (k - 1) * d // 2
        x, s = max(y - 2 * b + (k - 1) * d, 1), 1
        if rng.random() < 0.2:
            b, s = rng.choice([0, 1, 3, -1]), rng.choice([1, 2])
            x = max((y - 1) * s - b + (k - 1) * d + 1, 1)
        axes.append((x, y, k, s, d, b))
    return case_of(rng.choice([1, 3, 4, 5, 9]), rng.choice([2, 3, 19]), *rng.choices([1, 1, 1, 2, 3], k=2), axes)


def few_channels_case(rng: random.Random) -> Case:
    """One to five channels on one side, many on the other: first layers and patches, whose rows are stacked."""
    dimensions = rng.choice([1, 2, 2, 2, 3])
    channels = [rng.choice([1, 1, 2, 3, 3, 4, 5]), rng.choice([16, 17, 20, 33])]
    if rng.random() < 0.25:
        channels.reverse()
    axes = []
    for _ in range(dimensions):
        k, s, d = (rng.choice(some) for some in ([1, 2, 3, 3, 4, 5, 7], [1, 1, 2, 2, 3, 4, 8], [1, 1, 1, 2, 3]))
        b, y = rng.choice([0, 0, 1, k // 2, k - 1, -1, 5]), rng.randint(1, {1: 150, 2: 24, 3: 6}[dimensions])
        axes.append((max((y - 1) * s - b + (k - 1) * d + 1 + rng.choice([0, 0, -1, 1, -b, 3]), 1), y, k, s, d, b))
    return case_of(rng.choice([1, 1, 2]), rng.choice([1, 1, 2]), *channels, axes)


def patches_case(rng: random.Random) -> Case:
    """Kernels as large as their stride, mostly without padding: patch embeddings."""
    axes = []
    for _ in range(rng.choice([1, 2, 2, 3])):
        k, y = rng.choice([1, 2, 2, 3] if axes else [8, 8, 9, 14, 16]), rng.randint(1, 9)
        b = rng.choice([0] * 9 + [1])
        axes.append((max(y * k - b - rng.choice([0] * 9 + [1]), 1), y, k, k, 1, b))
    axes.reverse()
    channels = rng.choice([1, 3, 3, 8, 20]), rng.choice([5, 16, 33, 70])
    return case_of(rng.choice([1, 2, 3]), rng.choice([1, 1, 2]), *channels, axes)


def first_layer_case(rng: random.Random) -> Case:
    """Few channels of the large side and many positions: planes of even and odd extents, strides, volumes."""
    dimensions = rng.choice([1, 2, 2, 3])
    axes = []
    for _ in range(dimensions):
        k, s, d = (rng.choice(some) for some in ([1, 2, 3, 5, 7], [1, 1, 2, 2, 3, 4, 5, 8], [1, 1, 1, 2, 3]))
        b, y = rng.choice([0, 0, 1, k // 2, k - 1, -1]), rng.randint(1, {1: 300, 2: 26, 3: 8}[dimensions])
        axes.append((max((y - 1) * s - b + (k - 1) * d + 1 + rng.choice([0, 0, -1, 1, -b, 3]), 1), y, k, s, d, b))
    channels = rng.randint(1, 7), rng.choice([9, 16, 24, 33, 64])
    return case_of(rng.choice([1, 2, 3]), rng.choice([1, 1, 2]), *channels, axes)


def many_channels_case(rng: random.Random) -> Case:
    """Many channels on small planes, where rows of a product are positions."""
    dimensions = rng.choice([1, 2, 2, 3])
    channels = [rng.randint(32, 130), rng.randint(16, 140)]
    rng.shuffle(channels)
    axes = []
    for _ in range(dimensions):
        k, s, d = (rng.choice(some) for some in ([1, 2, 3, 3, 4], [1, 1, 1, 2], [1, 1, 1, 2, 6]))
        b, y = rng.choice([0, 1, k // 2, k - 1, (k - 1) * d]), rng.randint(1, {1: 60, 2: 14, 3: 6}[dimensions])
        axes.append((max((y - 1) * s - b + (k - 1) * d + 1 + rng.choice([0, 0, -1, 1, -b, -b]), 1), y, k, s, d, b))
    return case_of(rng.choice([1, 2, 4]), rng.choice([1, 1, 1, 2]), *channels, axes)


def wide_sums_case(rng: random.Random) -> Case:
    """Channels enough for sums in blocks, whole blocks and parts of them; small planes and long lines."""
    dimensions = rng.choice([1, 2, 2, 3])
    channels = [rng.choice([16, 17, 21, 31, 32, 33, 48, 49, 64, 100]), rng.choice([8, 9, 15, 16, 17, 24, 40, 64])]
    rng.shuffle(channels)
    axes = []
    for _ in range(dimensions):
        k, s, d = (rng.choice(some) for some in ([1, 1, 2, 3, 3, 5], [1, 1, 1, 2, 3, 5, 8], [1, 1, 1, 2, 4]))
        b, y = rng.choice([0, 0, 1, k // 2, k - 1, -1]), rng.randint(1, {1: 120, 2: 20, 3: 7}[dimensions])
        axes.append((max((y - 1) * s - b + (k - 1) * d + 1 + rng.choice([0, 0, -1, 1, -b, 3]), 1), y, k, s, d, b))
    return case_of(rng.choice([1, 1, 2, 3]), rng.choice([1, 1, 2]), *channels, axes)


def many_blocks_case(rng: random.Random) -> Case:
    """Several laid-out blocks for a thread: images or parts of planes, each laid out while another is computed, or the
    planes of volumes, with so many channels that they are cut."""
    kind = rng.choice(["images", "parts", "volumes", "volumes"])
    if kind == "volumes":
        batch, groups = rng.randint(1, 2), rng.choice([1, 1, 2])
        few, many, longest = rng.choice([(20, 40, 12), (2, 1200, 8)])
        channels = [rng.randint(1, few), rng.randint(max(16, many // 2), many)]
    elif kind == "images":
        batch, groups, longest = rng.randint(4, 9), rng.choice([1, 1, 2, 3]), 14
        channels = [rng.randint(1, 9), rng.randint(16, 40)]
    else:
        batch, groups, longest = rng.randint(1, 2), 1, 40
        channels = [rng.randint(1, 8), rng.choice([130, 144, 200, 260])]
    rng.shuffle(channels)
    axes = []
    tops = [(longest, longest, longest)] if kind == "volumes" else [
        (longest**2,), (longest, longest), (longest, longest), (3, longest, longest // 3)]
    for top in rng.choice(tops):
        k, s = rng.choice([1, 1, 2, 3]), rng.choice([1, 1, 1, 2])
        if kind == "volumes" and not axes:
            k, s = rng.choice([2, 3, 5]), 1
        b, y = rng.choice([0, 0, k // 2, k - 1, -1, 3]), rng.randint(max(1, top * 2 // 3), top)
        axes.append((max((y - 1) * s - b + k + rng.choice([0, 0, -1, 1, -b]), 1), y, k, s, 1, b))
    return case_of(batch, groups, *channels, axes)


def lone_class_case(rng: random.Random) -> Case:
    """Taps reach one stride class of the data gradient only, and all else in it is a bias; mostly whole steps."""
    axes = []
    for _ in range(rng.choice([1, 2, 2, 2, 3])):
        s = rng.choice([1, 2, 2, 2, 3, 4])
        k, d = rng.choice([(1, 1), (1, 1), (1, 1), (2, s), (3, 2 * s)])
        y, b = rng.randint(1, 40 // s), rng.choice([0, 0, 0, 1, s - 1, s * d])
        x = max((y - 1) * s - b + (k - 1) * d + 1, 1)
        axes.append((x if rng.random() < 0.2 else -(-x // s) * s, y, k, s, d, b))
    channels = rng.choice([3, 8, 9, 24, 50]), rng.choice([5, 17, 40, 150])
    return case_of(rng.choice([1, 2, 3]), rng.choice([1, 1, 2]), *channels, axes)


def few_columns_case(rng: random.Random) -> Case:
    """More weights than positions: windows as large as the plane, images of few positions."""
    axes = []
    for _ in range(rng.choice([1, 2, 2, 3])):
        k, y, s = rng.choice([1, 2, 3, 4, 4, 6]), rng.choice([1, 1, 1, 2, 3]), rng.choice([1, 1, 1, 2])
        axes.append(((y - 1) * s + k + rng.choice([0, 0, 0, 1]), y, k, s, 1, 0))
    channels = [rng.choice([17, 50, 130, 200]), rng.choice([64, 130, 300])]
    rng.shuffle(channels)
    return case_of(rng.choice([1, 2, 3, 8, 17, 33, 50]), rng.choice([1, 1, 1, 2]), *channels, axes)


def long_reduction_case(rng: random.Random) -> Case:
    """A weights gradient of several pieces: up to 17 of them, of which some are joined by one task, some at the end."""
    lines = rng.choice([1, rng.randint(40, 200)])
    k1, k2, s = 1 if lines == 1 else rng.randint(1, 3), rng.randint(1, 4), rng.choice([1, 1, 2])
    y, b = (lines, rng.randint(4100, 70000) // lines), rng.choice([0, 1])
    axes = [((y[0] - 1) * s + k1, y[0], k1, s, 1, 0), (max((y[1] - 1) * s - 2 * b + k2, 1), y[1], k2, s, 1, b)]
    return case_of(1, rng.choice([1, 1, 2]), rng.randint(1, 12), rng.randint(9, 40), axes)


def empty_case(rng: random.Random) -> Case:
    """Some extent is often zero: no images, groups, channels, positions or taps."""
    x, y, k = ([rng.choice([0, 1, 2, 5, 9]) for _ in range(3)] for _ in range(3))
    batch, groups = rng.choice([0, 1, 2]), rng.choice([0, 1, 1, 2])
    c, m = (rng.choice([0, 1, 3, 20, 40]) for _ in range(2))
    s, d, b = ([rng.choice(some) for _ in range(3)] for some in ([1, 1, 2, 3], [1, 2], [0, 0, 1, 2]))
    return Case((batch, groups, c, *x), (batch, groups, m, *y), (groups, m, c, *k), tuple(s), tuple(d), tuple(b))


def far_case(rng: random.Random) -> Case:
    """Small arrays whose positions or taps are up to billions apart."""
    axes = []
    for _ in range(rng.choice([1, 2, 2, 3])):
        k, y, x = rng.randint(1, 4), rng.randint(1, 6), rng.randint(1, 12)
        s, d = rng.choice([1, 1, 2, 5000, 10**9 + 1]), rng.choice([1, 1, 2, 4096, 10**9, 2**32 - 5])
        b = rng.choice([0, 1, d * rng.randrange(k), s * rng.randrange(y) + d * rng.randrange(k) - rng.randrange(x)])
        axes.append((x, y, k, s, d, b))
    c, m = ([1, 2, 3, 5, 20] for _ in range(2))
    return case_of(rng.choice([1, 2]), rng.choice([1, 1, 2, 17]), rng.choice(c), rng.choice(m), axes)


@dataclass(frozen=True)
class Draw:
    """Some calls of one kind for every seed, of which the quick tests take two thirds; those of more multiplications
    than `most` are left out."""

    case: Callable[[random.Random], Case]
    seeds: int
    calls: int
    most: float
    formats: tuple[str, ...] = ("float32", "float32", *DTYPES)  # of all operands together
    mixed: float = 0  # how often each operand has a format of its own
    kernels: tuple[str, ...] = tuple(OPERANDS)
    exact: float = 0  # how often results are float32 whatever the operands are

    def drawn_formats(self, rng: random.Random) -> dict[str, str]:
        operands = ("large", "small", "taps")
        if rng.random() < self.mixed:
            return {operand: rng.choice(self.formats) for operand in operands}
        return dict.fromkeys(operands, rng.choice(self.formats))


_MOSTLY_FLOAT32 = ("float32", "float32", "float32", *DTYPES)
_PRODUCTS = ("forward", "backward_data")
DRAWS = {
    "any": Draw(any_case, 8, 12, 5e6, ("float32", "bfloat16", *DTYPES), mixed=0.4),
    "depthwise": Draw(depthwise_case, 4, 6, np.inf, ("float32", "float32", "bfloat16", "float16")),
    "narrow planes": Draw(narrow_planes_case, 6, 12, np.inf),
    "few channels": Draw(few_channels_case, 6, 10, 5e6, ("float32", "float32", "bfloat16", *DTYPES)),
    "patches": Draw(patches_case, 6, 12, 5e6, ("float32", "bfloat16", *DTYPES)),
    "first layers": Draw(
        first_layer_case, 6, 10, 4e6, ("bfloat16", "bfloat16", "float8_e4m3fn", "hifloat8"), mixed=0.2,
        kernels=("backward_weights",), exact=0.8),
    "many channels": Draw(many_channels_case, 6, 8, 5e6),
    "wide sums": Draw(
        wide_sums_case, 8, 12, 4e6, ("bfloat16", "bfloat16", "float8_e4m3fn", "float8_e5m2"), mixed=0.3,
        exact=0.8),
    "many blocks": Draw(many_blocks_case, 6, 12, 8e6, _MOSTLY_FLOAT32, kernels=_PRODUCTS),
    "one stride class reached": Draw(
        lone_class_case, 6, 12, 3e6, (*["float32"] * 16, *DTYPES), mixed=0.3, kernels=("backward_data",)),
    "empty": Draw(empty_case, 4, 60, 1e6),
    "far apart": Draw(far_case, 6, 25, 1e6, _MOSTLY_FLOAT32),
    "few columns": Draw(few_columns_case, 6, 12, 1e7, _MOSTLY_FLOAT32, kernels=_PRODUCTS),
    "long reduction": Draw(
        long_reduction_case, 6, 3, 1e7, ("float32", "float32", "bfloat16", "float16"), kernels=("backward_weights",),
        exact=0.5),
}


# Every case takes more than the million multiplications below which the engine stays on one thread (panels.team_for).
LARGER = {
    "first layer": Case((2, 1, 3, 1, 61, 59), (2, 1, 32, 1, 31, 30), (1, 32, 3, 1, 7, 7), (1, 2, 2), begin=(0, 3, 3)),
    "blocks of columns and steps": Case(
        (2, 1, 72, 1, 20, 31), (2, 1, 80, 1, 20, 31), (1, 80, 72, 1, 3, 3), begin=(0, 1, 1)),
    "pieces of the reduction": Case(
        (3, 1, 4, 1, 60, 70), (3, 1, 18, 1, 60, 70), (1, 18, 4, 1, 3, 1), begin=(0, 1, 0)),
    "depthwise": Case((2, 60, 1, 1, 30, 41), (2, 60, 1, 1, 30, 41), (60, 1, 1, 1, 3, 3), begin=(0, 1, 1)),
    "depthwise, strided": Case(
        (4, 99, 1, 1, 30, 41), (4, 99, 1, 1, 15, 21), (99, 1, 1, 1, 3, 3), (1, 2, 2), begin=(0, 1, 1)),
    "depthwise, many groups": Case((3, 700, 1, 1, 9, 9), (3, 700, 1, 1, 9, 9), (700, 1, 1, 1, 3, 3), begin=(0, 1, 1)),
    "depthwise, long": Case((5, 19, 1, 1, 1, 400), (5, 19, 1, 1, 1, 400), (19, 1, 1, 1, 1, 33), begin=(0, 0, 16)),
    "depthwise, small planes": Case(
        (6, 210, 1, 1, 14, 14), (6, 210, 1, 1, 14, 14), (210, 1, 1, 1, 5, 5), begin=(0, 2, 2)),
    "depthwise, few groups": Case(
        (1, 2, 1, 9, 60, 70), (1, 2, 1, 9, 60, 70), (2, 1, 1, 3, 3, 3), begin=(1, 1, 1)),
    "small groups": Case((1, 5, 4, 9, 10, 21), (1, 5, 4, 9, 10, 21), (5, 4, 4, 3, 3, 3), begin=(1, 1, 1)),
    "small groups, long lines": Case(
        (1, 2, 4, 1, 1, 8390), (1, 2, 12, 1, 1, 2100), (2, 12, 4, 1, 1, 9), (1, 1, 4), begin=(0, 0, 5)),
    "small groups, wide planes": Case(
        (1, 2, 4, 1, 2, 3000), (1, 2, 9, 1, 2, 3000), (2, 9, 4, 1, 3, 3), begin=(0, 1, 1)),
    "pointwise": Case((2, 1, 70, 1, 14, 15), (2, 1, 130, 1, 14, 15), (1, 130, 70, 1, 1, 1)),
    "one position": Case((29, 1, 64, 1, 4, 4), (29, 1, 40, 1, 1, 1), (1, 40, 64, 1, 4, 4)),
    "wide dilation": Case(
        (1, 1, 40, 1, 17, 17), (1, 1, 24, 1, 17, 17), (1, 24, 40, 1, 3, 3), dilation=(1, 9, 9), begin=(0, 9, 9)),
    "full padding": Case((1, 1, 24, 6, 7, 8), (1, 1, 40, 4, 5, 6), (1, 40, 24, 3, 3, 3)),
    "one axis padded": Case((3, 1, 33, 1, 9, 17), (3, 1, 50, 1, 9, 17), (1, 50, 33, 1, 1, 7), begin=(0, 0, 3)),
    "many channels, small planes": Case(
        (3, 1, 96, 1, 9, 10), (3, 1, 130, 1, 9, 10), (1, 130, 96, 1, 3, 3), begin=(0, 1, 1)),
    "seventeen pieces": Case((1, 1, 9, 1, 260, 261), (1, 1, 12, 1, 260, 260), (1, 12, 9, 1, 1, 2)),
    "up-sampling by eight": Case((2, 1, 5, 1, 96, 96), (2, 1, 5, 1, 11, 11), (1, 5, 5, 1, 16, 16), (1, 8, 8)),
}
