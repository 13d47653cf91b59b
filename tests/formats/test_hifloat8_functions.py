"""NumPy's functions on HiFloat8: the exact result, rounded once."""

from __future__ import annotations

import math
import warnings
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from rounding_model import grid, quantized

import convreg
from convreg import hifloat8

CODES = np.arange(256, dtype=np.uint8)
ALL = CODES.view(hifloat8)
VALUES = convreg.dequantize(CODES, "hifloat8", dtype=np.float64)
EVERY_PAIR = ALL[:, None], ALL[None, :]
WIDE_PAIR = VALUES[:, None], VALUES[None, :]


def rounded(values):
    return quantized(np.asarray(values, np.float64), "hifloat8", "half_away")


def agree(result, expected):
    assert result.dtype == np.dtype(hifloat8)
    np.testing.assert_array_equal(result.view(np.uint8), expected)


@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "divide", "fmod", "remainder", "floor_divide"])
def test_arithmetic_of_every_pair(name):
    """float64 is exact here, or nearer to the result than any tie is."""
    with np.errstate(all="ignore"):
        agree(getattr(np, name)(*EVERY_PAIR), rounded(getattr(np, name)(*WIDE_PAIR)))
        if name in ("remainder", "floor_divide"):
            agree(np.divmod(*EVERY_PAIR)[name == "remainder"], rounded(np.divmod(*WIDE_PAIR)[name == "remainder"]))


def test_quotients_are_the_exact_ones_rounded():
    """Fractions, whose distance to a tie is known, against the division of every pair of finite numbers above zero."""
    values, codes = grid("hifloat8")
    exact = [Fraction(value) for value in values.tolist()]
    ties = [(low + high) / 2 for low, high in pairwise(exact)]
    numbers = values[1:-1:5].tolist()
    for a in numbers:
        for b in numbers:
            index = sum(Fraction(a) / Fraction(b) >= tie for tie in ties)
            with np.errstate(over="ignore"):
                assert int((hifloat8(a) / hifloat8(b)).view(np.uint8)) == codes[index]


@pytest.mark.parametrize("name", [
    "negative", "positive", "absolute", "fabs", "square", "reciprocal", "sqrt", "sign", "floor", "ceil", "rint",
    "trunc", "conjugate"])
def test_exact_functions_of_every_number(name):
    with np.errstate(all="ignore"):
        agree(getattr(np, name)(ALL), rounded(getattr(np, name)(VALUES)))


@lru_cache
def precise(name, value):
    """The result to 40 digits, as float64; those of numbers outside the domain by float64's own function."""
    with localcontext() as context:
        context.prec = 40
        x = Decimal(value)
        if name == "log":
            return float(x.ln())
        if name == "log10":
            return float(x.log10())
        if name == "log2":
            return float(x.ln() / Decimal(2).ln())
        if name == "log1p":
            return float((1 + x).ln())
        if name == "cbrt":
            return float(x ** (Decimal(1) / 3))
        power = x.exp() if name in ("exp", "expm1") else Decimal(2) ** x
        return float(power - (name == "expm1"))


@pytest.mark.parametrize("name", ["exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "cbrt"])
def test_exponentials_and_logarithms_of_every_number(name):
    with np.errstate(all="ignore"):
        result = getattr(np, name)(ALL)
        own = getattr(np, name)(VALUES)
    inside = (np.abs(VALUES) < 300) if "exp" in name else (VALUES > 0) & np.isfinite(VALUES)
    expected = [precise(name, value) if there else other
                for value, there, other in zip(VALUES.tolist(), inside.tolist(), own.tolist(), strict=True)]
    agree(result, rounded(expected))


@pytest.mark.parametrize("name", [
    "sin", "cos", "tan", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "arcsinh", "arccosh", "arctanh",
    "deg2rad", "rad2deg", "degrees", "radians"])
def test_other_functions_of_every_number(name):
    with np.errstate(all="ignore"):
        agree(getattr(np, name)(ALL), rounded(getattr(np, name)(VALUES)))


@pytest.mark.parametrize("name", ["power", "float_power", "arctan2", "hypot", "logaddexp", "logaddexp2", "heaviside"])
def test_other_functions_of_every_pair(name):
    with np.errstate(all="ignore"):
        agree(getattr(np, name)(*EVERY_PAIR), rounded(getattr(np, name)(*WIDE_PAIR)))


@pytest.mark.parametrize("name", ["maximum", "minimum", "fmax", "fmin"])
def test_extremes_of_every_pair(name):
    agree(getattr(np, name)(*EVERY_PAIR), rounded(getattr(np, name)(*WIDE_PAIR)))


@pytest.mark.parametrize("name", [
    "equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "logical_and", "logical_or", "logical_xor"])
def test_truths_of_every_pair(name):
    with np.errstate(all="raise"):
        result = getattr(np, name)(*EVERY_PAIR)
    assert result.dtype == bool
    np.testing.assert_array_equal(result, getattr(np, name)(*WIDE_PAIR))


def test_truths_of_every_number():
    for name in ("isnan", "isinf", "isfinite", "logical_not"):
        np.testing.assert_array_equal(getattr(np, name)(ALL), getattr(np, name)(VALUES))
    np.testing.assert_array_equal(np.signbit(ALL), VALUES < 0)
    np.testing.assert_array_equal(np.any(ALL.reshape(16, 16), axis=1), np.any(VALUES.reshape(16, 16), axis=1))
    np.testing.assert_array_equal(np.all(ALL.reshape(16, 16), axis=1), np.all(VALUES.reshape(16, 16), axis=1))


def test_signs_are_copied_where_there_is_one():
    """Zero has no sign, and NaN has none."""
    a, b = WIDE_PAIR
    agree(np.copysign(*EVERY_PAIR), rounded(np.where(np.isnan(a), a, np.abs(a)) * np.where(b < 0, -1, 1)))


def test_neighbours_are_those_of_the_values():
    ordered = np.sort(VALUES[~np.isnan(VALUES)])
    places = np.searchsorted(ordered, VALUES)
    a, b = WIDE_PAIR
    step = np.sign(np.nan_to_num(b, posinf=1e9, neginf=-1e9) - np.nan_to_num(a, posinf=1e9, neginf=-1e9)).astype(int)
    moved = ordered[np.clip(np.where(np.isnan(a), 0, places[:, None]) + step, 0, len(ordered) - 1)]
    agree(np.nextafter(*EVERY_PAIR), rounded(np.where(np.isnan(a) | np.isnan(b), np.nan, moved)))
    away = np.nextafter(ALL, np.copysign(hifloat8(np.inf), ALL)).astype(np.float64)
    with np.errstate(invalid="ignore"):
        agree(np.spacing(ALL), rounded(np.where(np.isinf(VALUES), np.nan, away - VALUES)))
    assert np.nextafter(hifloat8(0), hifloat8(-1)) == -(2.0**-22)
    assert np.nextafter(hifloat8(15), hifloat8(100)) == 16


def test_warnings_are_those_of_floats():
    one, large = hifloat8(1), hifloat8(32768)
    for operation, flag in ((lambda: large + large, "over"), (lambda: one / hifloat8(0), "divide"),
                            (lambda: np.log(hifloat8(-1)), "invalid"), (lambda: np.exp(large), "over"),
                            (lambda: np.array([large]) * np.array([large]), "over")):
        with np.errstate(all="ignore", **{flag: "raise"}), pytest.raises(FloatingPointError):
            operation()
        with np.errstate(all="ignore"):
            operation()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for array in (ALL[np.isfinite(ALL)], ALL):
            _ = array == array, array < array, np.maximum(array, array), np.isnan(array), -array, np.sign(array)
            np.sort(array), array.argmax(), np.nextafter(array, array), array.astype(np.float32)


def test_functions_keep_to_strides_and_outputs():
    grid_of = ALL.reshape(16, 16)
    with np.errstate(all="ignore"):
        expected = rounded(np.add(VALUES.reshape(16, 16).T, VALUES.reshape(16, 16)[::-1]))
        agree(np.ascontiguousarray(grid_of.T + grid_of[::-1]), expected)
        room = np.zeros((16, 32), hifloat8)
        np.add(grid_of.T, grid_of[::-1], out=room[:, ::2])
        agree(np.ascontiguousarray(room[:, ::2]), expected)
        assert not room[:, 1::2].any()
        ours = ALL.copy()
        ours += ours
        agree(ours, rounded(VALUES + VALUES))
        agree(np.add(ALL[:0], ALL[:0]), np.zeros(0))
        agree(np.add(ALL, ALL, where=VALUES > 0, out=np.zeros(256, hifloat8)),
              np.where(VALUES > 0, rounded(VALUES + VALUES), 0))


def test_sums_are_rounded_after_every_addition():
    """As those of ml_dtypes' types; a sum that shall not stick needs a wider dtype."""
    ones = np.ones(100, hifloat8)
    assert ones.sum() == 16
    assert ones.sum(dtype=np.float32) == 100
    assert np.cumsum(ones)[:17].astype(int).tolist() == [*range(1, 16), 16, 16]
    assert np.array([2, 3, 4], hifloat8).prod() == 24
    assert np.array([1, -7, 4], hifloat8).max() == 4
    assert np.array([1, 2, 4.5], hifloat8).mean(dtype=np.float64) == 2.5


def test_clip():
    low, high = hifloat8(-2), hifloat8(3)
    expected = rounded(np.clip(VALUES, -2, 3))
    agree(np.clip(ALL, low, high), expected)
    agree(ALL.clip(-2, 3), expected)


@given(st.data())
def test_products_of_matrices_are_summed_and_rounded_once(data):
    m, n, p = (data.draw(st.integers(0, 5)) for _ in range(3))
    elements = st.integers(0, 255).filter(lambda code: code != 0x80 and code & 0x7F != 0x6F)
    a, b = (data.draw(arrays.arrays(np.uint8, shape, elements=elements)).view(hifloat8) for shape in ((m, n), (n, p)))
    sums = np.zeros((m, p))
    for k in range(n):  # in the order of the elements, in float64
        sums += a[:, k, None].astype(np.float64) * b[None, k].astype(np.float64)
    expected = rounded(sums)
    with np.errstate(over="ignore"):
        for product in (a @ b, np.matmul(a, b), np.dot(a, b), np.asfortranarray(a) @ np.asfortranarray(b),
                        (b.T @ a.T).T, np.matmul(a[None], b[None])[0], np.inner(a, b.T), np.tensordot(a, b, 1)):
            agree(np.ascontiguousarray(product), expected)
        if m and p:
            assert int(np.dot(a[0], b[:, 0]).view(np.uint8)) == int((a[0] @ b[:, 0]).view(np.uint8)) == expected[0, 0]


def test_nan_and_infinity_in_products():
    a = np.array([[1, math.inf], [math.nan, 1]], hifloat8)
    with np.errstate(invalid="ignore"):
        agree(a @ np.array([[1], [0]], hifloat8), [[0x80], [0x80]])
        agree(a @ np.array([[1], [2]], hifloat8), [[0x6F], [0x80]])


def test_functions_of_python_over_arrays():
    array = np.array([1.5, 2, -0.5], hifloat8)
    assert np.where(array > 0, array, hifloat8(0)).tolist() == [1.5, 2, 0]
    assert np.median(array) == 1.5
    assert np.round(array).tolist() == [2, 2, 0]
    assert np.isin(array, array).all()
    assert np.diff(array).tolist() == [0.5, -2.5]
    assert sum(array) == 3.0
    assert max(array) == 2
    assert math.isclose(math.sqrt(array[1]), math.sqrt(2))
