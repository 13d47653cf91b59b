"""Casts between HiFloat8 and every other number type: one rounding, as `quantize` does it, and exact the other way."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import ml_dtypes
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
FLOATS = ["f2", "f4", "f8", "g", "F", "D", "G"]
INTEGERS = ["b", "B", "h", "H", "i", "I", "l", "L", "q", "Q"]
OTHERS = [kind for kind in vars(ml_dtypes).values() if isinstance(kind, type) and issubclass(kind, np.generic)
          and np.can_cast(kind, np.float32)]


def rows(name):
    with open(Path(__file__).parents[1] / "data" / name, newline="") as file:
        return list(csv.DictReader(file))


def near_every_midpoint(dtype):
    """All numbers of the format, all midpoints between neighbours, and the floats beside each, of both signs."""
    values = grid("hifloat8").values
    points = np.concatenate([values, (values[1:] + values[:-1]) / 2]).astype(dtype)
    points = np.concatenate([points, np.nextafter(points, dtype(0)), np.nextafter(points, dtype(np.inf))])
    return np.concatenate([points, -points, np.array([np.inf, -np.inf, np.nan, -0.0], dtype)])


def test_the_tables_of_the_format():
    table = rows("hifloat8_decode.csv")
    numbers = np.array([int(row["code"]) for row in table], np.uint8).view(hifloat8)
    np.testing.assert_array_equal(numbers.astype(np.float64), [float.fromhex(row["value_hex"]) for row in table])
    table = rows("hifloat8_encode.csv")
    numbers = np.array([int(row["f32_bits"], 16) for row in table], np.uint32).view(np.float32)
    np.testing.assert_array_equal(numbers.astype(hifloat8).view(np.uint8), [int(row["code"]) for row in table])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_casts_round_as_quantize_does(dtype):
    numbers = near_every_midpoint(dtype)
    ours = numbers.astype(hifloat8).view(np.uint8)
    np.testing.assert_array_equal(ours, convreg.quantize(numbers, "hifloat8").view(np.uint8))
    np.testing.assert_array_equal(ours, quantized(numbers, "hifloat8", "half_away"))
    np.testing.assert_array_equal([int(hifloat8(number).view(np.uint8)) for number in numbers], ours)
    for other in (np.array(numbers.tolist(), hifloat8), np.array(numbers, object).astype(hifloat8),
                  numbers.astype(np.result_type(dtype, "F")).astype(hifloat8),
                  numbers.astype(np.longdouble).astype(hifloat8), numbers[::-1].astype(hifloat8)[::-1],
                  numbers.astype(numbers.dtype.newbyteorder()).astype(hifloat8)):
        np.testing.assert_array_equal(other.view(np.uint8), ours)


@given(arrays.arrays(np.float64, st.integers(0, 20), elements=st.floats()))
def test_casts_of_any_float64(numbers):
    with np.errstate(all="raise"):
        ours = numbers.astype(hifloat8).view(np.uint8)
    np.testing.assert_array_equal(ours, quantized(numbers, "hifloat8", "half_away"))


def test_casts_of_every_float16():
    numbers = np.arange(2**16, dtype=np.uint16).view(np.float16)
    with np.errstate(invalid="ignore"):
        expected = quantized(numbers.astype(np.float64), "hifloat8", "half_away")
    np.testing.assert_array_equal(numbers.astype(hifloat8).view(np.uint8), expected)


@pytest.mark.parametrize("dtype", FLOATS)
def test_floats_hold_every_number(dtype):
    wide = ALL.astype(dtype)
    np.testing.assert_array_equal(wide.real.astype(np.float64), VALUES)
    assert not wide.imag[wide == wide].any()
    np.testing.assert_array_equal(wide.astype(hifloat8).view(np.uint8), CODES)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers(dtype):
    """Toward zero, within the type's limits; NaN becomes 0; no warning."""
    limits = np.iinfo(dtype)
    expected = [0 if value != value else limits.max if value > limits.max else limits.min if value < limits.min
                else int(value) for value in VALUES.tolist()]
    with np.errstate(all="raise"):
        np.testing.assert_array_equal(ALL.astype(dtype), np.array(expected, dtype))
        numbers = np.array(sorted({*range(max(limits.min, -300), min(limits.max, 300)), limits.min, limits.max,
                                   *(value for value in (40959, 40960, -40960) if limits.min <= value <= limits.max)}),
                           dtype)
        np.testing.assert_array_equal(numbers.astype(hifloat8).view(np.uint8),
                                      quantized(numbers.astype(np.float64), "hifloat8", "half_away"))


def test_booleans():
    np.testing.assert_array_equal(ALL.astype(bool), VALUES != 0)
    assert np.array([True, False]).astype(hifloat8).tolist() == [1.0, 0.0]


@pytest.mark.parametrize("kind", OTHERS, ids=lambda kind: kind.__name__)
def test_types_of_ml_dtypes(kind):
    """Through float32, which is exact on HiFloat8's side: each side rounds once."""
    there = ALL.astype(kind)
    assert there.dtype == kind
    np.testing.assert_array_equal(there.view(np.uint8), ALL.astype(np.float32).astype(kind).view(np.uint8))
    numbers = np.arange(2 ** (8 * min(there.itemsize, 2)), dtype=f"u{there.itemsize}")
    if there.itemsize == 1:
        numbers = numbers.astype(np.float32).astype(kind)
    numbers = numbers.view(kind)
    back = numbers.astype(hifloat8)
    np.testing.assert_array_equal(back.view(np.uint8), numbers.astype(np.float32).astype(hifloat8).view(np.uint8))
    np.testing.assert_array_equal(numbers[::-3].astype(hifloat8).view(np.uint8), back[::-3].view(np.uint8))
    np.testing.assert_array_equal(ALL[::2].astype(kind).view(np.uint8).tobytes(), there[::2].tobytes())
    number = kind(1)
    assert hifloat8(number) == float(number)


def test_types_that_hold_every_number():
    for kind in (np.float16, ml_dtypes.bfloat16):
        np.testing.assert_array_equal(ALL.astype(kind).astype(hifloat8).view(np.uint8), CODES)


def test_what_is_not_cast():
    for dtype in ("M8[s]", "m8[s]", "S4", "U4"):
        with pytest.raises(TypeError):
            ALL.astype(dtype)
        with pytest.raises(TypeError):
            np.zeros(3, dtype).astype(hifloat8)
    with pytest.raises((TypeError, ValueError)):
        ALL.astype("V2")
    with pytest.raises(ValueError, match="buffer"):
        memoryview(ALL)


def test_promotion():
    for wider in ("f4", "f8", "g", "F", "D", "G"):
        assert np.promote_types(hifloat8, wider) == np.dtype(wider)
        assert np.can_cast(hifloat8, wider)
        assert not np.can_cast(wider, hifloat8)
        assert (ALL[8:10] + np.ones(2, wider)).dtype == np.dtype(wider)
    for narrower in ("?", "b", "B"):
        assert np.promote_types(hifloat8, narrower) == np.dtype(hifloat8)
        assert (ALL[8:10] + np.ones(2, narrower)).dtype == np.dtype(hifloat8)
    for other in ("f2", ml_dtypes.bfloat16, ml_dtypes.float8_e5m2):
        with pytest.raises(TypeError):
            np.promote_types(hifloat8, other)
        assert (ALL[8:10] + np.ones(2, other)).dtype == np.float32
    large = np.array([448, 1], ml_dtypes.float8_e4m3fn)  # of the same kind and size, which NumPy takes for equivalent
    assert (ALL[:1] + large).dtype == np.dtype(hifloat8)
    assert (ALL[:1] + large).astype(float).tolist() == [512, 1]
    assert (large + ALL[:1]).dtype == large.dtype
    assert (ALL[8:10] * 2).dtype == np.dtype(hifloat8)
    assert (ALL[8:10] * 2.0).dtype == np.float32
    assert np.concatenate([ALL[8:10], np.ones(2, np.float32)]).dtype == np.float32
    with pytest.raises(TypeError):
        np.add(ALL[8:10], 1, out=np.zeros(2, np.int8))


def test_connections_that_are_refused():
    from convreg._hifloat8 import connect

    for kind in OTHERS:
        assert connect(kind) is None  # a second time
    for wrong in (1, float, np.float32, hifloat8, ml_dtypes, np.dtype(hifloat8)):
        with pytest.raises(TypeError):
            connect(wrong)


def test_en_dtypes_that_was_imported_before():
    pytest.importorskip("en_dtypes")
    program = """
import en_dtypes, numpy as np, convreg
codes = np.arange(256, dtype=np.uint8)
ours, theirs = codes.view(convreg.hifloat8), codes.view(en_dtypes.hifloat8)
assert (ours.astype(en_dtypes.hifloat8).view(np.uint8) == codes).all()
assert (theirs.astype(convreg.hifloat8).view(np.uint8) == codes).all()
assert convreg.hifloat8(en_dtypes.hifloat8(1.5)) == 1.5
"""
    subprocess.run([sys.executable, "-W", "error::RuntimeWarning", "-c", program], check=True)
