"""One number of HiFloat8, convreg.hifloat8: made, printed, compared, hashed, kept."""

from __future__ import annotations

import copy
import math
import pickle
import subprocess
import sys
from decimal import Decimal
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rounding_model import quantized

import convreg
from convreg import hifloat8

CODES = np.arange(256, dtype=np.uint8).view(hifloat8)
NUMBERS = [number for number in CODES if not math.isnan(float(number))]
NAN = hifloat8(math.nan)


def code(number) -> int:
    assert type(number) is hifloat8
    return int(number.view(np.uint8))


def expected(number: float) -> int:
    return int(quantized(np.array(number, np.float64), "hifloat8", "half_away"))


@given(st.floats(width=64) | st.floats(-50000, 50000) | st.floats(-2.0**-15, 2.0**-15))
def test_floats_are_rounded_once(number):
    assert code(hifloat8(number)) == expected(number)


@given(st.integers(-(2**100), 2**100) | st.integers(-50000, 50000))
def test_integers_are_rounded_once(number):
    assert code(hifloat8(number)) == expected(float(number))


@pytest.mark.parametrize("number", [
    1.5, "1.5", " 1.5e0\n", b"1.5", Fraction(3, 2), Decimal("1.5"), np.float16(1.5), np.float32(1.5), np.float64(1.5),
    np.longdouble(1.5), ml_dtypes.bfloat16(1.5), ml_dtypes.float8_e5m2(1.5), hifloat8(1.5), np.array(1.5),
    np.array(1.5, np.float32), np.array(1.5, object), np.array(1.5, hifloat8), np.str_("1.5"), 1.49, 1.44])
def test_what_a_number_is_made_of(number):
    assert code(hifloat8(number)) == code(hifloat8(1.5)) == 0x0C


def test_further_makings():
    assert code(hifloat8()) == 0
    assert [code(hifloat8(value)) for value in (True, False, np.True_, np.int8(-3), np.uint64(2**64 - 1))] == [
        0x08, 0x00, 0x08, 0x94, 0x6F]
    assert [code(hifloat8(text)) for text in ("inf", "-Infinity", "nan", "-0.0", "-1e-9")] == [0x6F, 0xEF, 0x80, 0, 0]
    array = hifloat8(np.array([[1.5, 3.0]]))
    assert array.dtype == hifloat8
    assert array.tolist() == [[1.5, 3.0]]


@pytest.mark.skipif(np.finfo(np.longdouble).nmant <= 52, reason="long double is no wider than float64")
@pytest.mark.parametrize("make", [hifloat8, lambda number: np.array([number]).astype(hifloat8)[0]])
def test_long_doubles_are_rounded_once(make):
    tie, least = np.longdouble(1.0625), np.longdouble(2) ** -63
    assert [code(make(sign * number)) & 0x7F for number in (tie - least, tie, tie + least) for sign in (1, -1)] == [
        8, 8, 9, 9, 9, 9]
    for number in (np.finfo(np.longdouble).max, np.longdouble("inf")):
        assert [code(make(number)), code(make(-number))] == [0x6F, 0xEF]
    assert code(make(np.finfo(np.longdouble).tiny)) == 0
    assert code(make(np.longdouble("nan"))) == 0x80


def holder():
    array = np.empty((), object)
    array[()] = array
    return array


@pytest.mark.parametrize(("value", "kind"), [
    (None, TypeError), ([1.5], TypeError), ((1,), TypeError), ({}, TypeError), (1j, TypeError),
    (np.complex64(1), TypeError), ("x", ValueError), ("", ValueError), (b"x", ValueError), (10**400, OverflowError),
    (np.datetime64(1, "s"), TypeError), (np.array("1.5"), TypeError), (np.zeros((), "V1"), (TypeError, ValueError)),
    (np.array(["a"]), TypeError), (object(), TypeError), (np.array(1j), TypeError), (holder(), RecursionError)])
def test_what_no_number_is_made_of(value, kind):
    if isinstance(value, np.ndarray) and value.dtype.kind == "c":
        assert code(hifloat8(value)) == 0  # a cast of an array, which drops the imaginary part
        return
    with pytest.raises(kind):
        hifloat8(value)


def test_calls_that_are_wrong():
    for call in (lambda: hifloat8(1, 2), lambda: hifloat8(number=1), lambda: hifloat8(1, dtype=hifloat8)):
        with pytest.raises(TypeError):
            call()
    with pytest.raises(TypeError):
        type("Sub", (hifloat8,), {})
    with pytest.raises(TypeError):
        hifloat8.name = "immutable"


@pytest.mark.parametrize("number", CODES, ids=lambda number: f"{code(number):#04x}")
def test_every_number(number):
    value = float(convreg.dequantize(np.array([code(number)], np.uint8), "hifloat8")[0])
    same = pickle.loads(pickle.dumps(number)), copy.copy(number), copy.deepcopy(number), hifloat8(str(number))
    assert [code(other) for other in same] == [code(number)] * 4
    assert repr(number) == str(number) == repr(value)
    assert f"{number:.3f} {number:>12} {number:e}" == f"{value:.3f} {value:>12} {value:e}"
    assert bool(number) == bool(value)
    assert number.dtype == np.dtype(hifloat8)
    assert number.itemsize == 1
    assert number.tobytes() == bytes([code(number)])
    if math.isnan(value):
        assert math.isnan(float(number))
        assert number != number
        assert isinstance(hash(number), int)
        for compared in (number == number, number < 1, number >= 1.0, number > number):
            assert not compared
    else:
        assert float(number) == value
        assert complex(number) == value
        assert number == value == number == hifloat8(value)
        assert hash(number) == hash(value)
        assert {value: 1}[number] == 1
    if math.isfinite(value):
        assert int(number) == math.trunc(number) == int(value)
        assert (math.floor(number), math.ceil(number), round(number)) == (
            math.floor(value), math.ceil(value), round(value))
        assert number.as_integer_ratio() == value.as_integer_ratio()
        assert number.is_integer() == value.is_integer()
    else:
        with pytest.raises((ValueError, OverflowError)):
            int(number)


def test_rounding_to_digits_keeps_the_type():
    assert code(round(hifloat8(1.125), 1)) == code(hifloat8(1.1))
    assert round(hifloat8(2.5), None) == 2
    assert isinstance(round(hifloat8(2.5), None), int)


@given(st.sampled_from(NUMBERS), st.sampled_from(NUMBERS) | st.floats() | st.integers())
def test_comparisons_are_those_of_the_values(number, other):
    exact = float(other) if isinstance(other, hifloat8) else other
    for compare in (lambda a, b: a < b, lambda a, b: a <= b, lambda a, b: a == b, lambda a, b: a != b,
                    lambda a, b: a > b, lambda a, b: a >= b):
        assert isinstance(compare(number, other), np.bool_)
        assert compare(number, other) == compare(float(number), exact)
        assert compare(other, number) == compare(exact, float(number))


def test_comparisons_with_others():
    number = hifloat8(1.5)
    assert number == np.float32(1.5) == number == np.float64(1.5)
    assert number < np.int64(2)
    assert (number == np.array([1.5, 2.0])).tolist() == [True, False]
    assert number != "1.5"
    assert number != None  # noqa: E711
    with pytest.raises(TypeError):
        _ = number < "1"


def test_arithmetic_of_numbers():
    a, b = hifloat8(7.0), hifloat8(2.5)
    with np.errstate(all="ignore"):
        for result, value in ((a + b, 9.5), (a - b, 4.5), (a * b, 17.5), (a / b, 2.8), (a // b, 2.0), (a % b, 2.0),
                              (a**b, 7**2.5), (-a, -7.0), (+a, 7.0), (abs(-a), 7.0), (divmod(a, b)[0], 2.0),
                              (divmod(-a, b)[1], 0.5)):
            assert code(result) == expected(value)
    assert type(a + np.float32(1)) is np.float32
    assert type(a * np.float64(1)) is np.float64
    array = a + np.array([1.0, 2.0], hifloat8)
    assert array.dtype == hifloat8
    for operation in (lambda: a + "1", lambda: a + None, lambda: a << 1, lambda: [1, 2][hifloat8(1)]):
        with pytest.raises(TypeError):
            operation()


def test_numbers_leave_nothing_behind():
    counted = hifloat8, np.dtype(hifloat8)

    def work():
        with np.errstate(all="ignore"):
            for value in (1.5, "2", np.float32(3), np.longdouble(3), np.array(1.0), np.array([1.0])):
                number = hifloat8(value)
                hash(hifloat8(1)), repr(number), number == 1.0, number + number, number == number, f"{hifloat8(2):f}"
                pickle.loads(pickle.dumps(number))
            for value in (None, "x", 1j, [1]):
                with pytest.raises((TypeError, ValueError)):
                    hifloat8(value)
            array = np.array([1.5, "2", 3], object).astype(hifloat8)
            array[0], array[1] = hifloat8(1), 2.5
            array.tolist(), array[1], array.astype(ml_dtypes.bfloat16), array @ array, np.sort(array), array.max()

    work()
    before = [sys.getrefcount(one) for one in counted]
    for _ in range(50):
        work()
    after = [sys.getrefcount(one) for one in counted]
    assert all(abs(now - then) < 10 for now, then in zip(after, before, strict=True))


def test_pickles_of_another_process():
    program = ("import sys, pickle, numpy as np, convreg; "
               "sys.stdout.buffer.write(pickle.dumps([convreg.hifloat8(1.5), np.array([2.5], convreg.hifloat8)]))")
    made = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True).stdout
    number, array = pickle.loads(made)
    assert code(number) == 0x0C
    assert array.dtype == hifloat8
    assert array.tolist() == [2.5]
