"""A call seen before is looked up by what it looks like: the look-up must tell apart what the rules tell apart."""

import numpy as np
import pytest
from convreg.calls._likeness import likeness

from convreg import OpError, aten, onednn, openvino

NAMES, TENSORS = ("data", "filters", "shape"), frozenset({"data", "filters"})
X, W = np.arange(18, dtype=np.float32).reshape(1, 2, 3, 3), np.ones((2, 2, 2, 2), np.float32)
WINDOW = {"strides": [1, 1], "pads_begin": [0, 0], "pads_end": [0, 0], "dilations": [1, 1]}
FULL = {**WINDOW, "dst_shape": (1, 2, 4, 4), "data_format": "NCX", "weights_format": "OIX"}


def key(*args, **kwargs):
    return likeness(NAMES, TENSORS, args, kwargs)


@pytest.mark.parametrize(("one", "other"), [
    ({"groups": 1}, {"groups": True}), ({"groups": 1}, {"groups": [1]}), ({"groups": 1}, {"group": 1}),
    ({"strides": [1, 1]}, {"strides": [True, True]}), ({"strides": [1, 1]}, {"strides": [1]}),
    ({"mode": "None"}, {"mode": None}), ({"strides": []}, {"strides": None}), ({"data": X}, {"filters": X}),
    ({"data": X}, {"data": X[:, :1]}),
    ({"data": X}, {"data": X.astype(">f4")}), ({"data": X}, {"data": X.view(np.int32)}), ({}, {"groups": None}),
])  # fmt: skip
def test_calls_that_differ_have_other_keys(one, other):
    assert key(**one) != key(**other)
    assert len({key(**one), key(**one), key(**other)}) == 2


def test_position_counts():
    assert key(X, W) != key(X, filters=W) != key(data=X, filters=W)
    assert key(X, W) == key(X + 1, W * 2)
    assert key([1, 2]) == key((1, 2))


@pytest.mark.parametrize("kwargs", [
    {"shape": np.array([1, 2], np.int32)}, {"strides": [np.int64(1)]}, {"strides": [[1]]}, {"strides": [1.0]},
    {"groups": np.int64(1)}, {"out": X}, {"data": np.ma.array(X)}, {"mode": b"NCX"},
])  # fmt: skip
def test_what_is_out_of_the_ordinary_has_none(kwargs):
    assert key(**kwargs) is None


def test_more_arguments_than_there_are_have_none():
    assert key(X, W, None, X) is None


def test_arrays_are_found_wherever_they_stand():
    first = onednn.convolution_backward_data(X, W, **FULL)
    for _ in range(2):
        for args, kwargs in (((2 * X, W), {}), ((2 * X,), {"weights": W}), ((), {"weights": W, "diff_dst": 2 * X})):
            again = onednn.convolution_backward_data(*args, **kwargs, **FULL)
            np.testing.assert_array_equal(again, 2 * first)


def test_a_shape_given_as_an_array_is_read_every_time():
    for extent in (6, 7, 6):
        shape = np.array([extent, extent], np.int64)
        result = openvino.convolution_backprop_data(X, W, shape, **{**WINDOW, "strides": [2, 2]}, auto_pad="same_upper",
                                                 data_format="NCX", filter_format="OIX")
        assert result.shape == (1, 2, extent, extent)


def test_converted_arrays_are_converted_again():
    expected = onednn.convolution_backward_data(X, W, **FULL)
    for _ in range(2):
        swapped = onednn.convolution_backward_data(X.astype(">f4"), W, **FULL)
        np.testing.assert_array_equal(swapped, expected)


def test_the_memory_limit_holds_for_a_repeated_call(monkeypatch):
    def call():
        return onednn.convolution_backward_data(X, W, **FULL)

    call()
    monkeypatch.setenv("CONVREG_MAX_BYTES", "100")
    with pytest.raises(OpError, match="CONVREG_MAX_BYTES"):
        call()


def test_optional_outputs_of_repeated_calls():
    for mask in ([True, False, True], [False, True, False], [True, False, True]):
        results = aten.convolution_backward(
            np.ones((1, 2, 2, 2), np.float32), X, W, [2], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, mask)
        assert [result is not None for result in results] == mask
