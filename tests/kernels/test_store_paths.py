"""How results are stored: every number of a format, its neighbours and midpoints, and floats of all exponents.

They go through every algorithm, memory layout and length of a line, and are compared with the rounding written from the
formats' values alone.
"""

from __future__ import annotations

import numpy as np
import pytest
import rounding_model as model
from convreg.ops.kernels import engine
from rounding_model import FORMATS, NARROW, boundaries, spread

import convreg

ROUNDING = {name: FORMATS[name].rounding for name in NARROW}
WINDOW = {"stride": (1, 1, 1), "dilation": (1, 1, 1), "begin": (0, 0, 0)}
LENGTHS = [*range(1, 20), 31, 32, 33, 47, 48, 49, 64, 100]


def points(name: str, count: int) -> np.ndarray:
    """So many floats: boundaries of the format, starting anywhere, mixed with floats of all exponents."""
    gen = np.random.default_rng(count)
    every = np.concatenate([boundaries(name), spread(4000, seed=count)])
    return every[gen.integers(0, every.size, count)]


def stored(x: np.ndarray, factors: np.ndarray, name: str) -> np.ndarray:
    """Codes of products, of which no zero is negative."""
    with np.errstate(invalid="ignore"):  # of signalling NaN
        return comparable(model.quantized(x * factors + np.float32(0), name, ROUNDING[name]), name)


def comparable(codes: np.ndarray, name: str) -> np.ndarray:
    """Codes with one NaN for all whose sign and payload are free."""
    values = FORMATS[name].values[codes.astype(np.int64)]
    return np.where(np.isnan(values), FORMATS[name].nan, codes).astype(np.int64)


def results(shape: tuple[int, ...], layout: str, step: int, dtype: np.dtype) -> np.ndarray:
    """An array whose columns lie `step` apart, channels before or after them; what lies between is marked."""
    n, g, m, *x = shape
    if layout == "last":
        return np.full((n, *x[:2], x[2] * step, g, m), 0x5A, dtype).transpose(0, 4, 5, 1, 2, 3)[..., ::step]
    return np.full((n, g, m, *x[:2], x[2] * step), 0x5A, dtype)[..., ::step]


def algorithms(kernel: str, arrays: tuple[np.ndarray, ...], settings: dict) -> list[str]:
    [(_, _, _, _, candidates), *_] = engine.choices(kernel, *arrays, **settings)
    return [name for name, *_ in candidates]


@pytest.mark.parametrize("step", [1, 2, 3])
@pytest.mark.parametrize("layout", ["first", "last"])
@pytest.mark.parametrize("name", NARROW)
def test_lines_of_every_length(name, layout, step, isa):
    """Results of several groups or channels: the operand times +1 and -1."""
    for number, length in enumerate(LENGTHS):
        groups, channels = [(1, 1), (1, 3), (1, 9), (5, 1), (17, 1), (2, 2), (1, 18), (33, 1)][number % 8]
        x = points(name, groups * 3 * length).reshape(1, groups, 1, 1, 3, length)
        signs = np.where(np.arange(channels) % 2, -1, 1).astype(np.float32).reshape(1, 1, channels, 1, 1, 1)
        taps = np.broadcast_to(signs.reshape(1, channels, 1, 1, 1, 1), (groups, channels, 1, 1, 1, 1)).copy()
        settings = {**WINDOW, "formats": ("float32", "float32", name)}
        large = x
        if layout == "last":
            large = np.ascontiguousarray(x.transpose(0, 3, 4, 5, 1, 2)).transpose(0, 4, 5, 1, 2, 3)
        expected = stored(x, signs, name)
        back = taps.transpose(0, 2, 1, 3, 4, 5).copy()  # as a gradient: of forward with the channels exchanged
        for kernel, weights in (("forward", taps), ("backward_data", back)):
            out = results((1, groups, channels, 1, 3, length), layout, step, FORMATS[name].storage)
            for algorithm in algorithms(kernel, (large, weights, out), settings):
                out.base[...] = 0x5A
                getattr(engine, kernel)(large, weights, out, **settings, threads=1, algorithm=algorithm)
                said = f"{kernel} {algorithm} {length} {channels}"
                np.testing.assert_array_equal(comparable(out, name), expected, said)
                if step > 1:
                    between = np.ones(out.base.shape, bool)
                    (between.transpose(0, 4, 5, 1, 2, 3) if layout == "last" else between)[..., ::step] = False
                    assert (out.base[between] == 0x5A).all(), (kernel, algorithm, length)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("name", [*NARROW, "float32"])
def test_cells_of_strided_points(name, biased, isa):
    """A gradient of one tap with a stride: products at every so many positions, and the bias alone between them."""
    channels = 18
    signs = np.where(np.arange(channels) % 2, -1, 1).astype(np.float32)
    bias = (np.arange(channels) - 7).astype(np.float32) / 8 if biased else np.zeros(channels, np.float32)
    for number, length in enumerate(LENGTHS):
        stride, begin = [((1, 1, 2), 0), ((1, 2, 2), -1), ((1, 2, 1), 0), ((1, 1, 3), -2), ((2, 1, 2), 0)][number % 5]
        x = (points(name, 3 * length) if name != "float32" else spread(3 * length)).reshape(1, 1, 1, 1, 3, length)
        x = np.where(np.isfinite(x), x, np.float32(1))
        extent = (stride[0], 3 * stride[1], length * stride[2])
        values = np.broadcast_to(bias.reshape(channels, 1, 1, 1), (channels, *extent)).copy()
        own = (slice(None), slice(0, None, stride[0]), slice(0, None, stride[1]), slice(-begin, None, stride[2]))
        with np.errstate(over="ignore"):
            values[own] = x[0, 0] * signs.reshape(channels, 1, 1, 1) + np.float32(0) + bias.reshape(channels, 1, 1, 1)
        settings = {**WINDOW, "stride": stride, "begin": (0, 0, begin), "formats": ("float32", "float32", name)}
        settings["bias"] = bias if biased else None
        out = np.full((1, 1, channels, *extent), 0x5A, np.float32 if name == "float32" else FORMATS[name].storage)
        taps = signs.reshape(1, 1, channels, 1, 1, 1).copy()
        for algorithm in algorithms("backward_data", (x, taps, out), settings):
            out[...] = 0x5A
            engine.backward_data(x, taps, out, **settings, threads=1, algorithm=algorithm)
            if name == "float32":
                np.testing.assert_array_equal(out[0, 0].view(np.uint32), values.view(np.uint32), algorithm)
            else:
                expected = comparable(model.quantized(values, name, ROUNDING[name]), name)
                np.testing.assert_array_equal(comparable(out[0, 0], name), expected, f"{algorithm} {length} {stride}")


@pytest.mark.parametrize("layout", ["first", "last"])
@pytest.mark.parametrize("name", NARROW)
def test_weights_of_every_extent(name, layout, isa):
    """One position: a gradient of weights is a product of two numbers, stored for every pair of channels and tap."""
    for number, channels in enumerate((1, 2, 3, 5, 8, 9, 15, 16, 17, 24, 31, 33, 50)):
        width = 1 + number % 3
        groups, few = [(1, 1), (1, 4), (2, 9), (3, 1), (1, 17)][number % 5]
        large = np.where(np.arange(few * width) % 2, -1, 1).astype(np.float32).reshape(1, 1, few, 1, 1, width)
        large = np.broadcast_to(large, (1, groups, few, 1, 1, width)).copy()
        small = points(name, groups * channels).reshape(1, groups, channels, 1, 1, 1)
        rows, columns = small.reshape(groups, channels, 1, 1, 1, 1), large.reshape(groups, 1, few, 1, 1, width)
        expected = stored(rows, columns, name)
        out = np.empty(expected.shape, FORMATS[name].storage)
        if layout == "last":
            out = np.empty((groups, channels, 1, 1, width, few), out.dtype).transpose(0, 1, 5, 2, 3, 4)
        settings = {**WINDOW, "formats": ("float32", "float32", name)}
        for algorithm in algorithms("backward_weights", (large, small, out), settings):
            out[...] = 0x5A
            engine.backward_weights(large, small, out, **settings, threads=1, algorithm=algorithm)
            np.testing.assert_array_equal(comparable(out, name), expected, f"{algorithm} {groups} {channels} {few}")


@pytest.mark.parametrize("name", NARROW)
def test_every_code_is_loaded_exactly(name, isa):
    """Each code times 1, in lines of every length and step."""
    every = np.arange(2 ** FORMATS[name].bits).astype(FORMATS[name].storage)
    one = np.asarray(convreg.quantize(np.ones((1, 1, 1, 1, 1, 1), np.float32), name)).view(every.dtype)
    settings = {**WINDOW, "formats": (name, name, "float32")}
    for number, length in enumerate(LENGTHS):
        step = 1 + number % 4
        codes = every[number * 37 % 256:][:length * step] if length < 100 else every[:every.size // step * step]
        line = codes[::step].reshape(1, 1, 1, 1, 1, -1)
        out = np.empty(line.shape, np.float32)
        for algorithm in algorithms("forward", (line, one, out), settings):
            engine.forward(line, one, out, **settings, threads=1, algorithm=algorithm)
            expected = FORMATS[name].values[codes[::step]]
            np.testing.assert_array_equal(out.ravel(), expected, f"{algorithm} {length} {step}")


def thresholds(name: str) -> tuple[np.ndarray, np.ndarray]:
    """The bits of the first float that rounds to each code from zero up, and these codes; NaN comes last."""
    values, codes = model.grid(name)
    middle = (values[1:] + values[:-1]) / 2  # exact in float64
    with np.errstate(over="ignore"):
        first = middle.astype(np.float32)
    bits = first.view(np.uint32).astype(np.int64) + (first < middle)  # the first float that is no smaller
    up = model.quantized(bits.astype(np.uint32).view(np.float32), name, ROUNDING[name])
    bits += up != codes[1:]  # a tie that goes to the even number below
    return np.concatenate([[0], bits, [0x7F800001]]), np.append(codes, FORMATS[name].nan)


@pytest.mark.slow
@pytest.mark.parametrize("name", NARROW)
def test_every_float_is_rounded_as_by_the_model(name, isa):
    """All 2**32 floats: between two thresholds all have one code."""
    format, size = FORMATS[name], 1 << 24
    bits, magnitudes = thresholds(name)
    for first in range(0, 2**32, size):
        negative, start = divmod(first, 2**31)
        counts = np.diff(np.clip(np.append(bits, 2**31), start, start + size))
        codes = magnitudes | (negative << (format.bits - 1))
        if name == "hifloat8":
            codes[[0, -1]] = 0, format.nan
        elif format.bits == 8:
            codes[np.isin(codes, format.nan_codes)] = format.nan
        x = np.arange(first, first + size, dtype=np.uint32).view(np.float32)
        got = np.asarray(convreg.quantize(x, name)).view(format.storage)
        assert (got == np.repeat(codes.astype(format.storage), counts)).all(), hex(first)
