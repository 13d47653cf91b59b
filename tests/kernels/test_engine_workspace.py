"""The workspace of a call: bounded for any layer, and the same bits where that divides the work."""

from __future__ import annotations

import random

import numpy as np
import pytest
from convreg.ops.kernels import engine
from engine_cases import DTYPES, OPERANDS, case_of
from engine_comparison import compare, drawn_values
from kernel_cases import Case, bits
from numpy.lib.stride_tricks import as_strided

MIB = 2**20


def layer(batch: int, groups: int, c: int, m: int, *axes: tuple[int, ...]) -> Case:
    """A case of axes (y, k, s, d, b), padded alike at both ends."""
    extents = [max((y - 1) * s + (k - 1) * d + 1 - 2 * b, 1) for y, k, s, d, b in axes]
    return case_of(batch, groups, c, m, [(x, *axis) for x, axis in zip(extents, axes, strict=True)])


EXTREME = {
    "patches": layer(8, 1, 3, 768, *[(14, 16, 16, 1, 0)] * 2),
    "large patches": layer(8, 1, 3, 1024, *[(12, 32, 32, 1, 0)] * 2),
    "patches of volumes": layer(2, 1, 4, 768, *[(8, 8, 8, 1, 0)] * 3),
    "long strided kernel": layer(8, 1, 2, 2050, (29, 2048, 512, 1, 0)),
    "long kernel": layer(8, 1, 2, 2050, (2049, 2048, 1, 1, 0)),
    "wide stride of one tap": layer(1, 1, 1, 8, *[(1, 1, 1, 1, 0)] * 3),
    "many stride classes": layer(1, 1, 1, 8, *[(2, 1, 64, 1, 0)] * 3),
    "many to few": layer(8, 1, 100000, 3, *[(8, 3, 1, 1, 1)] * 2),
    "few to many": layer(8, 1, 3, 100000, *[(8, 3, 1, 1, 1)] * 2),
    "few from volumes": layer(1, 1, 2048, 2, *[(8, 3, 1, 1, 1)] * 3),
    "a million channels to one": layer(1, 1, 10**6, 1, *[(4, 1, 1, 1, 0)] * 2),
    "a million channels": layer(1, 1, 10**6, 9, *[(4, 3, 1, 1, 1)] * 2),
    "long sums": layer(4, 1, 300000, 40, (2, 3, 1, 1, 0)),
    "a million groups": layer(2, 10**6, 1, 1, *[(8, 3, 1, 1, 1)] * 2),
    "a million small groups": layer(1, 10**6, 5, 2, *[(4, 3, 1, 1, 1)] * 2),
    "depthwise, long kernel": layer(1, 64, 1, 1, (10**5, 10**5, 1, 1, 0)),
    "a million taps": layer(1, 1, 1, 1, *[(100, 1000, 1, 1, 0)] * 2),
    "many taps, depthwise": layer(2, 16, 2, 2, *[(2, 400, 1, 1, 0)] * 2),
    "taps of one class": layer(1, 64, 1, 1, (2, 10**5, 2, 2, 0)),
    "far taps": layer(1, 1, 2, 3, *[(40, 3, 1, 100, 100)] * 3),
    "far taps of more channels": layer(1, 1, 3, 20, *[(40, 3, 1, 100, 100)] * 3),
    "window as large as the plane": layer(1, 1, 1, 2000, *[(1, 128, 1, 1, 0)] * 2),
    "two long lines": layer(8, 2, 1, 1, (2, 1, 1, 1, 0), (10**6, 1, 1, 1, 0)),
    "a long line": layer(1, 1, 16, 16, (10**7, 3, 1, 1, 0)),
    "many images": layer(10**6, 1, 16, 16, (1, 1, 1, 1, 0)),
    "many outputs": layer(1, 1, 1, 2 * 10**6, (1, 1, 1, 1, 0)),
    "dilated, strided groups": layer(2, 12, 2, 2, *[(100, 16, 16, 3, 0)] * 2),
}


def nowhere(shape: tuple[int, ...], number_format: str, channels_last: bool) -> np.ndarray:
    """An array of this shape and its strides, of which only the first number exists."""
    number = bits(np.zeros(1, DTYPES[number_format]))
    order = (0, 3, 4, 5, 1, 2) if channels_last else range(6)
    strides, step = [0] * 6, number.itemsize
    for axis in reversed(order):
        strides[axis], step = step, step * shape[axis]
    return as_strided(number, shape, strides)


@pytest.mark.parametrize("number_format", ["float32", "bfloat16", "float8_e4m3fn"])
@pytest.mark.parametrize("name", EXTREME)
def test_workspace_is_bounded(name, number_format):
    case = EXTREME[name]
    for channels_last in (False, True):
        operands = {side: nowhere(getattr(case, side), number_format, channels_last and side != "taps")
                    for side in ("large", "small", "taps")}
        for kernel, order in OPERANDS.items():
            for threads in (1, 2, 8):
                told = engine.workspace_bytes(
                    kernel, *(operands[side] for side in order), **case.window, formats=(number_format,) * 3,
                    threads=threads)
                assert 0 < told <= (8 * threads + 64) * MIB, (kernel, channels_last, threads, told / MIB)


@pytest.mark.parametrize(("name", "limit"), [
    ("patches", 8), ("large patches", 8), ("long strided kernel", 8), ("many to few", 8)])
def test_workspace_of_divided_work_is_small(name, limit):
    case = EXTREME[name]
    operands = {side: nowhere(getattr(case, side), "float32", False) for side in ("large", "small", "taps")}
    for kernel in ("backward_data", "backward_weights"):
        told = engine.workspace_bytes(kernel, *(operands[side] for side in OPERANDS[kernel]), **case.window,
                                      formats=("float32",) * 3, threads=1)
        assert told <= limit * MIB, (kernel, told / MIB)


DIVIDED = {  # with one thread: kernel and layer
    "classes of patches": ("backward_data", layer(2, 1, 3, 530, *[(2, 16, 16, 1, 0)] * 2)),
    "classes of overlapping patches": ("backward_data", layer(1, 1, 9, 520, (2, 18, 16, 1, 3), (3, 17, 16, 1, 2))),
    "classes of one line": ("backward_data", layer(1, 2, 2, 300, (3, 600, 512, 1, 7))),
    "classes without weights": ("backward_data", layer(2, 2, 1, 1, *[(2, 3, 80, 1, 1)] * 2)),
    "classes of one line without weights": ("backward_data", layer(2, 3, 1, 2, (2, 3, 8000, 1, 1))),
    "classes of groups side by side": ("backward_data", layer(1, 20, 1, 1, *[(2, 3, 80, 2, 1)] * 2)),
    "sums in passes": ("forward", layer(1, 1, 2000, 9, (3, 100, 3, 50, 0))),
    "sums in passes to the large side": ("backward_data", layer(1, 1, 9, 2000, (3, 100, 1, 50, 40))),
    "channels of few sums": ("backward_weights", layer(1, 1, 7500, 3, *[(3, 3, 1, 1, 1)] * 3)),
    "taps of few sums": ("backward_weights", layer(2, 2, 2, 2, (2, 150, 1, 1, 3), (17, 300, 1, 1, 5))),
    "far taps of few sums": ("backward_weights", layer(1, 1, 2, 3, (2, 3, 1, 700, 700), (3, 3, 1, 800, 0))),
    "many groups side by side": ("backward_weights", layer(1, 55003, 1, 1, (2, 60, 1, 1, 20))),
    "frames of far taps": ("backward_weights", layer(1, 1, 2, 9, (4, 9, 1, 1, 0), (5, 3, 1, 100000, 0))),
}


@pytest.mark.parametrize("number_format", ["float32", "bfloat16", "float8_e4m3fn"])
@pytest.mark.parametrize("name", DIVIDED)
def test_divided_work_has_the_same_bits(name, number_format):
    kernel, case = DIVIDED[name]
    rng = random.Random(name)
    formats = dict.fromkeys(("large", "small", "taps"), number_format)
    order = (0, 3, 4, 5, 1, 2) if "side by side" in name else range(6)
    arrays = {}
    for side in formats:
        values = drawn_values(rng, getattr(case, side), number_format)
        arrays[side] = np.ascontiguousarray(values.transpose(order)).transpose(np.argsort(list(order)))
    compare(kernel, case, arrays, formats, rng)
