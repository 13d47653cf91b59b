"""The engine against the plain loops, bit for bit: any geometry, layout, format, number of threads, instruction set."""

from __future__ import annotations

import random

import ml_dtypes
import numpy as np
import pytest
from convreg.ops import kernels
from convreg.ops.kernels import direct, engine
from kernel_cases import Case, bits

DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16,
          "float8_e4m3fn": ml_dtypes.float8_e4m3fn, "float8_e5m2": ml_dtypes.float8_e5m2}
OPERANDS = {"forward": ("large", "taps", "small"), "backward_data": ("small", "taps", "large"),
            "backward_weights": ("large", "small", "taps")}
SPECIALS = [np.inf, -np.inf, np.nan]


@pytest.fixture(params=engine.usable())
def isa(request):
    before = engine.isa()
    engine.use_isa(request.param)
    yield request.param
    engine.use_isa(before)


def case_of(batch: int, groups: int, c: int, m: int, axes: list[tuple[int, ...]]) -> Case:
    """The case of up to three axes, each (x, y, k, s, d, b)."""
    x, y, k, s, d, b = zip(*lifted(axes), strict=True)
    return Case((batch, groups, c, *x), (batch, groups, m, *y), (groups, m, c, *k), s, d, b)


def multiplications(case: Case) -> int:
    return int(np.prod(case.small) * case.taps[2] * np.prod(case.taps[3:]))


def lifted(axes: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    return [(1, 1, 1, 1, 1, 0)] * (3 - len(axes)) + axes


def drawn_case(rng: random.Random) -> Case:
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


def drawn_values(rng: random.Random, shape: tuple[int, ...], name: str) -> np.ndarray:
    """Stored numbers of one magnitude or of many, dense or sparse, some infinite or NaN."""
    gen = np.random.default_rng(rng.getrandbits(32))
    values = gen.standard_normal(shape) * 2.0 ** rng.choice([0, 0, 0, -40, 40])
    if rng.random() < 0.15:
        values *= gen.random(shape) < 0.3
    if rng.random() < 0.15:
        values *= 2.0 ** gen.integers(-60, 20, shape)
    if rng.random() < 0.2:
        values = np.where(gen.random(shape) < 0.01, gen.choice(SPECIALS, shape), values)
    with np.errstate(over="ignore"):
        return bits(values.astype(np.float32).astype(DTYPES[name]))


def in_some_layout(rng: random.Random, array: np.ndarray) -> np.ndarray:
    """The same numbers in another order in memory: channels last, any order, with gaps, backwards, part of a larger array."""
    order = rng.choice([range(6), range(6), (0, 3, 4, 5, 1, 2), (0, 3, 4, 5, 1, 2), rng.sample(range(6), 6)])
    gap = rng.choice([1, 1, 1, 2])
    back = rng.choice([1, 1, 1, -1])
    room = rng.choice([0, 0, 0, 1, 3])
    memory = np.empty([array.shape[i] * gap + room for i in order], array.dtype)
    memory = memory[tuple(slice(array.shape[i] * gap) for i in order)][(slice(None, None, gap * back),) * 6]
    moved = memory.transpose(np.argsort(list(order)))
    moved[...] = array
    return moved


def as_referee_takes(array: np.ndarray, name: str) -> np.ndarray:
    values = np.empty(array.shape, np.float32)
    direct.decode(array, values, format=name)
    return values


def compare(kernel: str, case: Case, arrays: dict, formats: dict, layouts: random.Random, bias=None) -> None:
    first, second, result = OPERANDS[kernel]
    more = {} if bias is None else {"bias": bias}
    expected = np.zeros_like(arrays[result])
    getattr(direct, kernel)(
        as_referee_takes(arrays[first], formats[first]), as_referee_takes(arrays[second], formats[second]), expected,
        **case.window, formats=("float32", "float32", formats[result]), threads=2, **more,
    )
    expected_values = as_referee_takes(expected, formats[result])
    for threads in (1, 2, 3, 7):
        got = in_some_layout(layouts, np.full_like(arrays[result], 7))
        getattr(engine, kernel)(
            arrays[first], arrays[second], got, **case.window, formats=tuple(formats[n] for n in OPERANDS[kernel]),
            threads=threads, **more,
        )
        values = as_referee_takes(got, formats[result])
        different = values.view(np.uint32) != expected_values.view(np.uint32)
        different &= ~(np.isnan(values) & np.isnan(expected_values))
        assert not different.any(), (kernel, case, formats, threads, np.argwhere(different)[:3], values[different][:3],
                                     expected_values[different][:3])


def compare_all(
    case: Case, formats: dict[str, str], rng: random.Random, only: tuple[str, ...] = tuple(OPERANDS),
) -> None:
    """All kernels on drawn numbers, each operand in some layout, now and then with a bias."""
    arrays = {name: in_some_layout(rng, drawn_values(rng, getattr(case, name), formats[name])) for name in formats}
    for kernel in only:
        channels = {"forward": case.small, "backward_data": case.large}.get(kernel, ())[1:3]
        bias = drawn_values(rng, (int(np.prod(channels)),), "float32") if channels and rng.random() < 0.4 else None
        compare(kernel, case, arrays, formats, rng, bias)


@pytest.mark.parametrize("seed", range(8))
def test_random_calls(isa, seed):
    rng = random.Random(seed)
    for _ in range(12):
        case = drawn_case(rng)
        if multiplications(case) > 5e6:
            continue
        names = [rng.choice([*DTYPES, "float32", "bfloat16"]) for _ in range(3)]
        formats = dict(zip(("large", "small", "taps"), [names[0]] * 3 if rng.random() < 0.6 else names, strict=True))
        compare_all(case, formats, rng)


@pytest.mark.parametrize("seed", range(3))
def test_small_volumes(isa, seed):
    """Blocks of several short planes, residues apart: what overruns a line must meet only what is written later."""
    rng = random.Random(seed)
    for _ in range(30):
        s, y = ([rng.choice(some) for _ in range(3)] for some in ([1, 2, 2, 3], [1, 2, 3, 4]))
        k, b = [rng.randint(1, 3) for _ in range(3)], [rng.choice([0, 0, 1]) for _ in range(3)]
        x = [max(1, (y[i] - 1) * s[i] - b[i] + k[i]) for i in range(3)]
        batch, c, m = rng.choice([1, 2]), rng.choice([1, 2, 3]), rng.choice([1, 2, 3])
        case = Case((batch, 1, c, *x), (batch, 1, m, *y), (1, m, c, *k), tuple(s), (1, 1, 1), tuple(b))
        formats = dict.fromkeys(("large", "small", "taps"), rng.choice(["float32", "float32", "bfloat16"]))
        arrays = {name: drawn_values(rng, getattr(case, name), formats[name]) for name in formats}
        for kernel in OPERANDS:
            compare(kernel, case, arrays, formats, rng)


def drawn_depthwise_case(rng: random.Random) -> Case:
    """Groups of one to three channels: several images and rows, long lines and kernels, windows over any edge."""
    dimensions = rng.choice([1, 2, 2, 2, 3])
    axes = []
    for _ in range(dimensions):
        k = rng.choice([1, 2, 3, 3, 4, 5, 7, 11, *([17, 33, 40] if dimensions == 1 else [])])
        s, d = rng.choice([1, 1, 1, 2, 2, 3, 5]), rng.choice([1, 1, 1, 2, 3, 4])
        b, y = rng.choice([0, k // 2, k // 2, k - 1, -1, 5]), rng.randint(1, {1: 150, 2: 40, 3: 9}[dimensions])
        axes.append((max((y - 1) * s - b + (k - 1) * d + 1 + rng.choice([0, 0, -1, 1, -b, -b, 3]), 1), y, k, s, d, b))
    return case_of(rng.choice([1, 2, 3, 4, 5, 9]), rng.choice([2, 3, 5, 19]), *rng.choices([1, 1, 1, 2, 3], k=2), axes)


def drawn_narrow_planes_case(rng: random.Random) -> Case:
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


@pytest.mark.parametrize("seed", range(6))
def test_narrow_planes(isa, seed):
    rng = random.Random(seed)
    for _ in range(12):
        case = drawn_narrow_planes_case(rng)
        formats = dict.fromkeys(("large", "small", "taps"), rng.choice(["float32", "float32", *DTYPES]))
        compare_all(case, formats, rng)


@pytest.mark.parametrize("seed", range(4))
def test_depthwise_calls(isa, seed):
    rng = random.Random(seed)
    for _ in range(6):
        case = drawn_depthwise_case(rng)
        name = rng.choice(["float32", "float32", "bfloat16", "float16"])
        formats = dict.fromkeys(("large", "small", "taps"), name)
        compare_all(case, formats, rng)


def drawn_few_channels_case(rng: random.Random) -> Case:
    """One to five channels on one side, many on the other: first layers and patches, whose rows become merged tiles."""
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


@pytest.mark.parametrize("seed", range(6))
def test_few_channels(isa, seed):
    rng = random.Random(seed)
    for _ in range(10):
        case = drawn_few_channels_case(rng)
        if multiplications(case) > 5e6:
            continue
        formats = dict.fromkeys(("large", "small", "taps"), rng.choice(["float32", "float32", "bfloat16", *DTYPES]))
        compare_all(case, formats, rng)


def drawn_many_channels_case(rng: random.Random) -> Case:
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


@pytest.mark.parametrize("seed", range(6))
def test_many_channels(isa, seed):
    rng = random.Random(seed)
    for _ in range(8):
        case = drawn_many_channels_case(rng)
        if multiplications(case) > 5e6:
            continue
        formats = dict.fromkeys(("large", "small", "taps"), rng.choice(["float32", "float32", *DTYPES]))
        compare_all(case, formats, rng)


def drawn_many_blocks_case(rng: random.Random) -> Case:
    """Several planar blocks for a thread: images or parts of planes, each laid out while another is computed, or the
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


@pytest.mark.parametrize("seed", range(6))
def test_many_blocks(isa, seed):
    rng = random.Random(seed)
    for _ in range(12):
        case = drawn_many_blocks_case(rng)
        if multiplications(case) > 8e6:
            continue
        formats = dict.fromkeys(("large", "small", "taps"), rng.choice(["float32", "float32", "float32", *DTYPES]))
        compare_all(case, formats, rng, only=("forward", "backward_data"))


def drawn_lone_class_case(rng: random.Random) -> Case:
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


@pytest.mark.parametrize("seed", range(6))
def test_one_stride_class_reached(isa, seed):
    rng = random.Random(seed)
    for _ in range(12):
        case = drawn_lone_class_case(rng)
        if multiplications(case) > 3e6:
            continue
        formats = dict.fromkeys(("large", "small", "taps"), "float32")
        if rng.random() < 0.2:
            formats["small"] = rng.choice(list(DTYPES))
        compare_all(case, formats, rng, only=("backward_data",))


def drawn_few_columns_case(rng: random.Random) -> Case:
    """More weights than positions: windows as large as the plane, images of few positions."""
    axes = []
    for _ in range(rng.choice([1, 2, 2, 3])):
        k, y, s = rng.choice([1, 2, 3, 4, 4, 6]), rng.choice([1, 1, 1, 2, 3]), rng.choice([1, 1, 1, 2])
        axes.append(((y - 1) * s + k + rng.choice([0, 0, 0, 1]), y, k, s, 1, 0))
    channels = [rng.choice([17, 50, 130, 200]), rng.choice([64, 130, 300])]
    rng.shuffle(channels)
    return case_of(rng.choice([1, 2, 3, 8, 17, 33, 50]), rng.choice([1, 1, 1, 2]), *channels, axes)


@pytest.mark.parametrize("seed", range(6))
def test_few_columns(isa, seed):
    rng = random.Random(seed)
    for _ in range(12):
        case = drawn_few_columns_case(rng)
        if multiplications(case) > 1e7:
            continue
        formats = dict.fromkeys(("large", "small", "taps"), rng.choice(["float32", "float32", "float32", *DTYPES]))
        compare_all(case, formats, rng, only=("forward", "backward_data"))


def drawn_long_reduction_case(rng: random.Random) -> Case:
    """A weights gradient of several pieces: up to 17 of them, of which some are joined by one task, some at the end."""
    lines = rng.choice([1, rng.randint(40, 200)])
    k1, k2, s = 1 if lines == 1 else rng.randint(1, 3), rng.randint(1, 4), rng.choice([1, 1, 2])
    y, b = (lines, rng.randint(4100, 70000) // lines), rng.choice([0, 1])
    axes = [((y[0] - 1) * s + k1, y[0], k1, s, 1, 0), (max((y[1] - 1) * s - 2 * b + k2, 1), y[1], k2, s, 1, b)]
    return case_of(1, rng.choice([1, 1, 2]), rng.randint(1, 12), rng.randint(9, 40), axes)


@pytest.mark.parametrize("seed", range(6))
def test_long_reductions(isa, seed):
    rng = random.Random(seed)
    for _ in range(3):
        case = drawn_long_reduction_case(rng)
        if multiplications(case) > 1e7:
            continue
        formats = dict.fromkeys(("large", "small", "taps"), rng.choice(["float32", "float32", "bfloat16", "float16"]))
        compare_all(case, formats, rng, only=("backward_weights",))


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


@pytest.mark.parametrize("name", LARGER)
@pytest.mark.parametrize("number_format", ["float32", "bfloat16"])
def test_larger_calls(isa, name, number_format):
    rng = random.Random(name)
    case = LARGER[name]
    assert np.prod(case.small) * np.prod(case.taps) / (case.taps[0] * case.taps[1]) > 1e6
    formats = dict.fromkeys(("large", "small", "taps"), number_format)
    for layout in (range(6), (0, 3, 4, 5, 1, 2)):
        arrays = {}
        for operand in formats:
            values = np.random.default_rng(1).standard_normal(getattr(case, operand)).astype(DTYPES[number_format])
            arrays[operand] = np.ascontiguousarray(bits(values).transpose(layout)).transpose(np.argsort(list(layout)))
        for kernel in OPERANDS:
            compare(kernel, case, arrays, formats, rng)


def test_taps_at_one_place(isa):
    """Weights whose kernel axes have a stride of 0, as np.broadcast_to makes them."""
    case = LARGER["many channels, small planes"]
    rng = np.random.default_rng(0)
    arrays = {name: rng.standard_normal(getattr(case, name), dtype=np.float32) for name in ("large", "small", "taps")}
    arrays["taps"] = np.broadcast_to(arrays["taps"][..., :1], case.taps)
    for kernel in ("forward", "backward_data"):
        compare(kernel, case, arrays, dict.fromkeys(arrays, "float32"), random.Random(0))


def test_weights_packed_in_passes(isa):
    """More weights than a workspace holds, few positions: the taps are taken in turns, the sums kept between."""
    case = Case((1, 1, 3800, 1, 10, 10), (1, 1, 48, 1, 10, 10), (1, 48, 3800, 1, 3, 3), begin=(0, 1, 1))
    rng = np.random.default_rng(0)
    large, taps = (rng.standard_normal(shape, dtype=np.float32) for shape in (case.large, case.taps))
    call = case.window | {"formats": ("float32",) * 3}
    expected, got = (np.empty(case.small, np.float32) for _ in range(2))
    direct.forward(large, taps, expected, **call)
    assert engine.workspace_bytes("forward", large, taps, got, **call) < 8 << 20
    for threads in (1, 2):
        engine.forward(large, taps, got, **call, threads=threads)
        assert np.array_equal(bits(got), bits(expected))


def test_special_values_stay_out_of_the_padding(isa):
    case = Case((1, 1, 3, 1, 9, 9), (1, 1, 4, 1, 9, 9), (1, 4, 3, 1, 5, 5), begin=(0, 2, 2))
    formats = dict.fromkeys(("large", "small", "taps"), "float32")
    for special in SPECIALS:
        arrays = {name: np.ones(getattr(case, name), np.float32) for name in formats}
        arrays["taps"][0, 1, 2, 0, 0, 0] = special
        arrays["small"][0, 0, 2, 0, 0, 0] = special
        for kernel in OPERANDS:
            compare(kernel, case, arrays, formats, random.Random(0))


def test_sums_that_underflow_are_plus_zero(isa):
    case = Case((1, 1, 1, 1, 1, 40), (1, 1, 1, 1, 1, 40), (1, 1, 1, 1, 1, 3), begin=(0, 0, 1))
    formats = dict.fromkeys(("large", "small", "taps"), "float32")
    arrays = {name: np.full(getattr(case, name), -1e-30, np.float32) for name in formats}
    arrays["taps"] = -arrays["taps"]
    for kernel in OPERANDS:
        compare(kernel, case, arrays, formats, random.Random(0))


@pytest.mark.parametrize("seed", range(20))
def test_bfloat16_near_the_subnormals(isa, seed):
    """Products and sums on both sides of 2**-126, where the dot-product instruction flushes."""
    gen = np.random.default_rng(seed)
    case = Case((2, 1, 7, 1, 3, 21), (2, 1, 12, 1, 3, 21), (1, 12, 7, 1, 1, 3), begin=(0, 0, 1))
    first = int(gen.integers(-140, -30))
    second = int(gen.integers(-156, -66)) - first
    formats = {"large": "bfloat16", "small": "bfloat16", "taps": "bfloat16"}
    arrays = {"large": gen.standard_normal(case.large) * 2.0**first}
    arrays |= {name: gen.integers(-8, 8, getattr(case, name)) * 2.0**second for name in ("small", "taps")}
    arrays = {name: bits(a.astype(np.float32).astype(ml_dtypes.bfloat16)) for name, a in arrays.items()}
    for kernel in OPERANDS:
        compare(kernel, case, arrays, formats, random.Random(seed))


def test_the_fastest_set_runs_unless_named(isa):
    """Only the set with dot products is ever passed over: for the next, which differs from it in nothing else."""
    engine.use_isa("")
    chosen = engine.isa()
    assert chosen in engine.usable()[:2]
    assert chosen == engine.usable()[0] or (engine.usable()[0], chosen) == ("avx512bf16", "avx512")
    engine.use_isa(isa)
    assert engine.isa() == isa


def test_capabilities_tell_what_runs(isa):
    have = kernels.capabilities()
    assert have["isa"] == isa
    assert have["compiled"][-1] == "generic"
    with pytest.raises(ValueError, match="no instruction set 'mmx'"):
        engine.use_isa("mmx")
