"""Arrays of HiFloat8: made, moved, kept in files, ordered, printed; and as convreg's functions take them."""

from __future__ import annotations

import copy
import io
import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import convreg
from convreg import hifloat8
from convreg.archives import archive_of, load_one, load_together
from convreg.files import write_atomically
from convreg.formats import FORMATS, HIFLOAT8_IN_FILES, format_of

DTYPE = np.dtype(hifloat8)
CODES = np.arange(256, dtype=np.uint8)
ALL = CODES.view(hifloat8)
VALUES = convreg.dequantize(CODES, "hifloat8")
FORMER = np.dtype([("hifloat8", np.uint8)])


@pytest.fixture
def array():
    return np.array([1.0, 1.125, -2.0, 0.0], hifloat8)


def codes(array):
    assert array.dtype == DTYPE
    return array.view(np.uint8)


def test_the_dtype():
    assert FORMATS["hifloat8"].dtype is np.dtype(hifloat8)
    assert format_of(DTYPE) is FORMATS["hifloat8"]
    assert (DTYPE.name, str(DTYPE), DTYPE.itemsize, DTYPE.alignment) == ("hifloat8", "hifloat8", 1, 1)
    assert DTYPE.type is hifloat8
    assert (DTYPE.kind, DTYPE.isbuiltin, DTYPE.hasobject, DTYPE.isnative, DTYPE.fields) == ("V", 2, False, True, None)
    assert DTYPE.newbyteorder(">") == DTYPE
    assert pickle.loads(pickle.dumps(DTYPE)) is DTYPE
    for other in (np.uint8, "V1", np.float32, FORMER, HIFLOAT8_IN_FILES):
        assert np.dtype(other) != DTYPE
    assert issubclass(hifloat8, np.generic)
    assert hifloat8.__module__ == "convreg"


def test_arrays_are_made_of_numbers(array):
    for made in (np.array([1, 1.1, hifloat8(-2), "0"], hifloat8), np.asarray([1.0, 1.125, -2.0, 0.0], dtype=DTYPE),
                 np.array([1, 1.125, -2, 0]).astype(hifloat8), np.fromiter([1.0, 1.125, -2.0, 0.0], hifloat8),
                 np.array([hifloat8(1), hifloat8(1.125), hifloat8(-2), hifloat8(0)]),
                 np.frombuffer(array.tobytes(), hifloat8), np.concatenate([array[:1], array[1:]])):
        np.testing.assert_array_equal(codes(made), codes(array))
    assert codes(np.zeros(2, hifloat8)).tolist() == [0, 0]
    assert codes(np.ones((), hifloat8)).tolist() == 8
    assert np.full(3, 1.5, hifloat8).tolist() == [1.5] * 3
    assert np.empty((0, 3), hifloat8).astype(np.float32).shape == (0, 3)
    assert np.arange(0, 20, 2, dtype=hifloat8).tolist() == [0, 2, 4, 6, 8, 10, 12, 14, 16, 20]
    assert np.eye(2, dtype=hifloat8).tolist() == [[1, 0], [0, 1]]
    for wrong in ([None], [1j], ["x"], [[1, 2]], [object()]):
        with pytest.raises((TypeError, ValueError)):
            array[:1] = np.array(wrong, hifloat8) if wrong != [[1, 2]] else [[1, 2], [3]]


def test_elements_are_read_and_assigned(array):
    assert type(array[0]) is hifloat8
    assert type(array.item(0)) is float
    assert array.tolist() == [1.0, 1.125, -2.0, 0.0]
    array[0], array[1], array[2:] = 1.5, hifloat8(3), np.array([40960, math.nan])
    assert codes(array).tolist() == [0x0C, 0x14, 0x6F, 0x80]
    array.fill(2)
    array.put([1], [4.0])
    array.flat[2] = np.float32(8)
    assert array.tolist() == [2, 4, 8, 2]
    np.copyto(array, np.array([True, False, True, False]))
    assert array.tolist() == [1, 0, 1, 0]
    for value in (None, 1j, "x", [1, 2]):
        with pytest.raises((TypeError, ValueError)):
            array[0] = value
    assert array.tolist() == [1, 0, 1, 0]


def test_arrays_are_moved(array):
    square = array.reshape(2, 2)
    for other in (square.copy(), copy.deepcopy(square), pickle.loads(pickle.dumps(square)), square.T.copy().T,
                  np.stack([square[0], square[1]]), np.ascontiguousarray(square[:, ::-1])[:, ::-1],
                  square.view(np.uint8).view(hifloat8), square.take([0, 1], axis=0), square.byteswap(),
                  np.where(square == square, square, hifloat8(0)), np.asfortranarray(square),
                  np.pad(square, 1)[1:-1, 1:-1], square.astype(hifloat8),
                  square.astype(object).astype(hifloat8), np.flip(np.flip(square))):
        np.testing.assert_array_equal(codes(np.ascontiguousarray(other)), codes(square))
    assert repr(array) == "array([1.0, 1.125, -2.0, 0.0], dtype=hifloat8)"
    assert str(array[()]) == "[1.0 1.125 -2.0 0.0]"


@pytest.mark.parametrize("part", [np.s_[::2], np.s_[::-3], np.s_[:0], np.s_[5], np.s_[...], np.s_[[3, 1, 2]]], ids=str)
def test_views_of_every_stride_are_read_and_written(part):
    """Also as a field of a structure, whose elements have any address, and in files of bytes in memory."""
    fields = np.zeros(256, [("odd", "V3"), ("number", hifloat8)])
    fields["number"] = ALL
    for whole in (ALL.copy(), fields["number"], np.frombuffer(bytearray(b"?" + CODES.tobytes()), hifloat8, offset=1)):
        np.testing.assert_array_equal(np.asarray(whole[part]).astype(np.float64), VALUES[part])
        np.testing.assert_array_equal(np.asarray(whole[part]).view(np.uint8), CODES[part])
        np.testing.assert_array_equal(convreg.dequantize(whole[part]), VALUES[part])
        whole[part] = VALUES[part]
        np.testing.assert_array_equal(np.ascontiguousarray(whole).view(np.uint8), CODES)
    assert fields[5].tolist()[1] == VALUES[5]


def read_back(write, read):
    stream = io.BytesIO()
    write(stream)
    stream.seek(0)
    return read(stream)


def test_numpy_files_hold_bytes(array, tmp_path):
    """A dtype that is registered has no name in NumPy's files, as ml_dtypes' have none."""
    loaded = read_back(lambda file: np.save(file, array, allow_pickle=False), np.load)
    assert loaded.dtype == np.dtype("V1")
    np.testing.assert_array_equal(loaded.view(hifloat8), array)
    np.testing.assert_array_equal(convreg.dequantize(loaded, "hifloat8"), array.astype(np.float32))
    with pytest.raises(convreg.OpTypeError):
        convreg.dequantize(loaded)
    np.save(tmp_path / "a.npy", array)
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    np.testing.assert_array_equal(convreg.dequantize(mapped, "hifloat8"), array.astype(np.float32))


def test_files_of_convreg_name_the_format(array, tmp_path):
    entries = {"x": array, "y": array.reshape(2, 2)[:, :1], "z": np.array(hifloat8(1.5))}
    write_atomically(tmp_path / "a.npz", archive_of(entries))
    entries = load_together(tmp_path / "a.npz", ["x", "y", "z"])
    assert [codes(entry).tolist() for entry in entries.values()] == [[8, 9, 0x90, 0], [[8], [0x90]], 12]
    with np.load(read_back(archive_of({"x": array}), lambda file: file)) as file:
        assert file["x"].dtype == HIFLOAT8_IN_FILES
        np.testing.assert_array_equal(convreg.dequantize(file["x"]), array.astype(np.float32))


@pytest.mark.parametrize("dtype", [FORMER, HIFLOAT8_IN_FILES])
def test_arrays_of_earlier_files_are_read(array, dtype, tmp_path):
    former = array.view(np.uint8).view(dtype)
    np.testing.assert_array_equal(convreg.dequantize(former), array.astype(np.float32))
    np.save(tmp_path / "former.npy", former)
    np.testing.assert_array_equal(codes(load_one(tmp_path / "former.npy")), codes(array))
    ones = convreg.quantize(np.ones((1, 1, 2, 2)), "hifloat8")
    results = [convreg.aten.convolution_backward(
        ones.view(given), ones.view(given), ones[..., :1, :1].view(given), None, [1, 1], [0, 0], [1, 1], False,
        [0, 0], 1, [True, True, False], conformance="emulation") for given in (DTYPE, dtype)]
    for ours, theirs in zip(results[0][:2], results[1][:2], strict=True):
        np.testing.assert_array_equal(codes(ours), codes(theirs))


@given(st.lists(st.integers(0, 255), min_size=1, max_size=40))
def test_order_is_that_of_the_numbers(drawn):
    array = np.array(drawn, np.uint8).view(hifloat8)
    values = array.astype(np.float32)
    for axis in (array, np.tile(array, (3, 1)).T[:, 1], array[::-1][::-1]):
        np.testing.assert_array_equal(np.sort(axis).astype(np.float32), np.sort(values))
        np.testing.assert_array_equal(np.sort(axis, kind="stable").astype(np.float32), np.sort(values))
        np.testing.assert_array_equal(np.argsort(axis, kind="stable"), np.argsort(values, kind="stable"))
        assert axis.argmax() == values.argmax()
        assert axis.argmin() == values.argmin()
        assert np.count_nonzero(axis) == np.count_nonzero(values)
        assert [place.tolist() for place in axis.nonzero()] == [place.tolist() for place in values.nonzero()]
    ordered = np.sort(values)
    np.testing.assert_array_equal(np.searchsorted(np.sort(array), array), np.searchsorted(ordered, values))
    numbers = ~np.isnan(values)
    np.testing.assert_array_equal(np.unique(array[numbers]).astype(np.float32), np.unique(values[numbers]))
    np.testing.assert_array_equal(array == array[0], values == values[0])


@given(st.floats(-100, 100), st.floats(-10, 10).filter(lambda step: abs(step) > 0.01), st.integers(3, 50))
def test_ranges_are_even_and_rounded_once(start, step, count):
    """NumPy gives the first two elements; the others follow from these."""
    made = np.arange(start, start + (count - 0.5) * step, step, dtype=hifloat8)
    first, second = float(hifloat8(start)), float(hifloat8(start + step))
    expected = convreg.quantize(first + np.arange(count) * (second - first), "hifloat8")
    np.testing.assert_array_equal(codes(made), codes(expected))


def test_operators_and_out_take_arrays_of_any_stride():
    x = np.random.default_rng(0).standard_normal((2, 3, 5, 5)).astype(hifloat8)
    w = np.random.default_rng(1).standard_normal((4, 3, 2, 2)).astype(hifloat8)
    plain = convreg.onednn.convolution(
        x, w, strides=[1, 1], pads_begin=[0, 0], pads_end=[0, 0], dilations=[1, 1], data_format="NCX",
        weights_format="OIX", conformance="emulation")
    assert plain.dtype == DTYPE
    room = np.zeros((2, 4, 4, 8), hifloat8)[..., ::2]
    other = convreg.onednn.convolution(
        np.asfortranarray(x), w[::-1][::-1], strides=[1, 1], pads_begin=[0, 0], pads_end=[0, 0], dilations=[1, 1],
        data_format="NCX", weights_format="OIX", conformance="emulation", out=room)
    assert other is room
    np.testing.assert_array_equal(plain, room)
    with pytest.raises(convreg.OpError, match="overlaps"):
        convreg.onednn.convolution(x, w, strides=[1, 1], pads_begin=[0, 0], pads_end=[0, 0], dilations=[1, 1],
                                   data_format="NCX", weights_format="OIX", conformance="emulation",
                                   out=np.lib.stride_tricks.as_strided(x, (2, 4, 4, 4)))
    zero = convreg.dequantize(convreg.quantize(np.zeros((0, 2)), "hifloat8"))
    assert zero.shape == (0, 2)
    assert convreg.dequantize(np.array(hifloat8(1.5))).shape == ()
    assert convreg.dequantize(hifloat8(1.5)) == 1.5
    assert codes(convreg.quantize([hifloat8(1.5)], "hifloat8")).tolist() == [12]


def test_en_dtypes_is_taken_and_given():
    en_dtypes = pytest.importorskip("en_dtypes")
    theirs = CODES.view(en_dtypes.hifloat8)
    np.testing.assert_array_equal(convreg.dequantize(theirs), VALUES)
    np.testing.assert_array_equal(theirs.view(hifloat8).astype(np.float32), VALUES)
    np.testing.assert_array_equal(ALL.view(en_dtypes.hifloat8).astype(np.float32), VALUES)
    out = np.zeros(256, en_dtypes.hifloat8)
    convreg.quantize(VALUES, "hifloat8", out=out)
    np.testing.assert_array_equal(out.view(np.uint8), CODES)
