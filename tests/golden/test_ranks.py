"""Ranks: the order of a format's numbers, and distances in steps."""

from __future__ import annotations

import csv
import math
import tracemalloc

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from places import DATA

import convreg
from convreg import OpError, OpTypeError, UnknownOp
from convreg.formats import FORMATS
from convreg.golden import ranks

NARROW = [name for name, format in FORMATS.items() if format.bits <= 16]
WIDE = {"float32": np.float32, "float64": np.float64}


def neighbours():
    with (DATA / "hifloat8_neighbours.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("name", NARROW)
def test_the_order_of_ranks_is_the_order_of_numbers(name):
    format = FORMATS[name]
    codes = np.arange(2**format.bits, dtype=format.storage)
    values, places = convreg.dequantize(codes, name, dtype=np.float64), ranks.ranks(codes, format)
    numbers = ~np.isnan(values)
    assert (places[~numbers] == ranks.NAN).all()
    distinct = np.unique(values[numbers])
    zero = np.searchsorted(distinct, 0.0)
    np.testing.assert_array_equal(places[numbers], np.searchsorted(distinct, values[numbers]) - zero)
    np.testing.assert_array_equal(ranks.values_of(places, format)[numbers], values[numbers] + 0.0)
    assert ranks.values_of(np.array([ranks.largest(format), ranks.largest(format) + 1]), format).tolist() == [
        format.largest, math.inf]


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float8_e5m2", "float8_e4m3fn"])
def test_ranks_of_ordered_codes_are_the_codes(name):
    format = FORMATS[name]
    codes = np.arange(2**(format.bits - 1), dtype=format.storage)
    numbers = ~np.isnan(convreg.dequantize(codes, name))
    np.testing.assert_array_equal(ranks.ranks(codes, format)[numbers], codes[numbers])


@pytest.mark.parametrize("name", WIDE)
@given(data=st.data())
def test_wide_formats_are_ordered(name, data):
    format, width = FORMATS[name], {"float32": 32, "float64": 64}[name]
    a, b = (data.draw(st.floats(width=width, allow_nan=False)) for _ in range(2))
    first, second = ranks.ranks(np.array([a, b], format.dtype), format).tolist()
    assert (a < b) == (first < second)
    assert (a == b) == (first == second)
    assert ranks.values_of(np.array([first]), format).tolist() == [a]
    if math.isfinite(a):
        above = np.nextafter(format.dtype.type(a), format.dtype.type(np.inf))
        assert convreg.ulp_distance(format.dtype.type(a), above) == 1


def test_neighbours_of_hifloat8_are_those_of_the_table():
    rows = neighbours()
    assert len(rows) == 846
    a, b = (np.array([int(row[name]) for row in rows], np.uint8) for name in "ab")
    found = convreg.ulp_distance(a, b, "hifloat8")
    for row, distance in zip(rows, found.tolist(), strict=True):
        assert distance == (int(row["rank_distance"]) if row["rank_distance"] else ranks.NAN)
        assert (distance == 1) == (row["neighbours"] == "1")


def test_special_distances():
    nan, far = np.nan, ranks.NAN
    assert convreg.ulp_distance(np.float32([0, nan, nan, 1]), np.float32([-0.0, nan, 1, nan])).tolist() == [
        0, 0, far, far]
    tiny = np.float32(1e-45)
    assert convreg.ulp_distance(tiny, -tiny) == 2
    assert convreg.ulp_distance(np.finfo(np.float32).max, np.float32(np.inf)) == 1
    e4m3 = np.array([0x7E, 0x7F, 0xFF], np.uint8)  # the largest number, and both NaN
    assert convreg.ulp_distance(e4m3, e4m3[::-1].copy(), "float8_e4m3fn").tolist() == [far, 0, far]
    largest = np.finfo(np.float64).max
    assert convreg.ulp_distance(largest, -largest) == far - 1
    assert convreg.ulp_distance(-np.inf, np.inf) == far - 1


def test_arrays_broadcast_and_any_memory_order_is_read():
    values = np.arange(12, dtype=np.float32).reshape(3, 4).T
    assert convreg.ulp_distance(values, values[:, :1]).shape == (4, 3)
    assert convreg.ulp_distance(values, values.astype(">f4")).max() == 0
    assert convreg.ulp_distance(np.zeros((0, 3), ml_dtypes.bfloat16), np.zeros((1, 3), ml_dtypes.bfloat16)).shape == (
        0, 3)


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<u2"])
def test_sizes_are_checked_before_anything_is_copied(monkeypatch, dtype):
    """A large view of one number takes no memory, and neither does its refusal."""
    monkeypatch.setenv("CONVREG_MAX_BYTES", "1000000")
    wide = np.broadcast_to(np.array(1, dtype), (2**13, 2**11))
    format = "bfloat16" if dtype == "<u2" else None
    tracemalloc.start()
    try:
        with pytest.raises(OpError, match="CONVREG_MAX_BYTES"):
            convreg.ulp_distance(wide, wide, format)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
    assert not convreg.ulp_distance(wide[:9, ::-7], wide[8::-1, ::-7], format).any()


@pytest.mark.parametrize(("arguments", "kind", "told"), [
    ((np.float32(1), np.float64(1)), OpTypeError, "float32, as a is"),
    ((np.zeros(2, np.uint8), np.zeros(2, np.uint8)), OpTypeError, "raw codes and their format"),
    ((np.zeros(2), np.zeros(2), "hifloat8"), OpTypeError, "the codes of hifloat8"),
    ((np.zeros(2), np.zeros(3)), OpError, "broadcasts"),
    ((np.zeros(2), "text"), OpTypeError, "raw codes"),
    ((np.zeros(2), np.zeros(2), "hifloat9"), UnknownOp, "hifloat8"),
    ((np.zeros(2), np.zeros(2), 8), OpTypeError, "the name of a format"),
    ((np.zeros(2),), OpTypeError, "it is required"),
])
def test_refusals(arguments, kind, told):
    with pytest.raises(kind, match=told):
        convreg.ulp_distance(*arguments)
