"""A call seen before is looked up by what it looks like: the look-up must tell apart what the rules tell apart."""

import gc
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from convreg.calls._likeness import likeness

from convreg import OpError, aten, onednn, openvino
from convreg.calls import execution, function, repeated
from convreg.calls.function import function_of
from convreg.spec import Attribute, OpSpec, Plan, Port

NAMES, TENSORS = ("data", "filters", "shape"), frozenset({"data", "filters"})
X, W = np.arange(18, dtype=np.float32).reshape(1, 2, 3, 3), np.ones((2, 2, 2, 2), np.float32)
WINDOW = {"strides": [1, 1], "pads_begin": [0, 0], "pads_end": [0, 0], "dilations": [1, 1]}
FULL = {**WINDOW, "dst_shape": (1, 2, 4, 4), "data_format": "NCX", "weights_format": "OIX"}


def key(*args, **kwargs):
    return likeness(NAMES, TENSORS, args, kwargs)


@pytest.mark.parametrize(("one", "other"), [
    ({"groups": 1}, {"groups": True}), ({"groups": 1}, {"groups": [1]}), ({"groups": 1}, {"group": 1}),
    ({"strides": [1, 1]}, {"strides": [True, True]}), ({"strides": [1, 1]}, {"strides": [1]}),
    ({"strides": [1, 1]}, {"strides": [1, True]}), ({"strides": [1]}, {"strides": 1}),
    ({"names": ["a", "b"]}, {"names": ["a", None]}), ({"names": ["1"]}, {"names": [1]}),
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
    {"groups": np.int64(1)}, {"strides": [1, np.int64(1)]}, {"strides": [1, 1.0]},
    {"out": X}, {"data": np.ma.array(X)}, {"mode": b"NCX"},
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


# ---------------------------------------------------------------------------------------------------------------------
# The cache


@pytest.fixture
def empty_cache():
    """The cache without entries, until the test is over."""
    before = dict(repeated._known)
    repeated._known.clear()
    yield repeated._known
    repeated._known.clear()
    repeated._known.update(before)


def doubled(spec: OpSpec) -> OpSpec:
    def run(plan, inputs, outputs, kernels, threads):
        np.multiply(inputs[0], 2, out=outputs[0])

    return replace(spec, run=run)


LONE = OpSpec(
    vendor="acme", name="Lone", since_version=1, doc="x.", source="none", inputs=(Port("x", "x."),),
    outputs=(Port("y", "y."),), attributes=(Attribute("offset", "int", "Added.", 0),), types={"T": ("float32",)},
    conformances=("document",), plan=lambda call: Plan((call.tensor("x"),), call["offset"]),
    run=lambda plan, inputs, outputs, kernels, threads: np.add(inputs[0], plan.work, out=outputs[0]),
    infer=lambda call: (call.tensor("x"),))


def test_functions_and_nodes_share_one_cache(empty_cache, monkeypatch):
    spec = onednn.convolution_backward_data.spec
    expected = onednn.convolution_backward_data(X, W, **FULL)
    execution.execute(spec, [X, W], FULL)
    execution.execute(spec, [X, W, None], FULL, conformance="library")
    assert len(empty_cache) == 3
    for module in (execution, function):
        monkeypatch.setattr(module, "bind", lambda *_, **__: pytest.fail("bound again"))
    for array in (X, X[::-1].copy(), np.asfortranarray(X)):
        np.testing.assert_array_equal(onednn.convolution_backward_data(array, W, **FULL), expected)
        np.testing.assert_array_equal(execution.execute(spec, (array, W), FULL), expected)
        np.testing.assert_array_equal(execution.execute(spec, [array, W, None], FULL, conformance="library"), expected)
    with pytest.raises(OpError, match="threads"):
        execution.execute(spec, [X, W], FULL, threads=-1)
    assert len(empty_cache) == 3


def test_an_operator_of_one_input(empty_cache):
    lone = function_of(LONE)
    for offset in (1, 2, 1, 2):
        assert lone(X, offset=offset)[0, 0, 0, 1] == 1 + offset
        assert execution.execute(LONE, [X], {"offset": offset})[0, 0, 0, 1] == 1 + offset
    assert len(empty_cache) == 4


def test_an_operator_of_the_same_name_starts_anew(empty_cache):
    first, second = function_of(LONE), function_of(doubled(LONE))
    for _ in range(2):
        np.testing.assert_array_equal(first(X), X)
        np.testing.assert_array_equal(second(X), 2 * X)
        np.testing.assert_array_equal(execution.execute(first.spec, [X], {}), X)
        np.testing.assert_array_equal(execution.execute(second.spec, [X], {}), 2 * X)


def test_no_array_stays_alive(empty_cache):
    x, w = X.copy(), W.copy()
    known = [weakref.ref(array) for array in (x, w)]
    for _ in range(2):
        known.append(weakref.ref(onednn.convolution_backward_data(x, w, **FULL)))
        known.append(weakref.ref(execution.execute(onednn.convolution_backward_data.spec, [x, w], FULL)))
    assert len(empty_cache) == 2
    del x, w
    gc.collect()
    assert [array() for array in known] == [None] * len(known)


def test_the_cache_is_bounded(empty_cache, monkeypatch):
    monkeypatch.setattr(repeated, "MOST", 3)
    lone = function_of(LONE)
    for offset in range(10):
        assert lone(X, offset=offset)[0, 0, 0, 0] == offset
        assert 1 <= len(empty_cache) <= 3


def test_threads_share_the_cache(empty_cache, monkeypatch):
    """Some add entries and others clear them, while all look up theirs."""
    monkeypatch.setattr(repeated, "MOST", 4)
    lone = function_of(LONE)

    def call(number: int) -> bool:
        return all(lone(X, offset=offset)[0, 0, 0, 0] == offset for offset in (number % 7, number % 5))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(call, range(400)))


def test_what_is_refused_is_refused_again(empty_cache):
    for _ in range(2):
        with pytest.raises(OpError, match="strides"):
            onednn.convolution_backward_data(X, W, **{**FULL, "strides": [0, 1]})
    assert not empty_cache


def test_frames_of_a_repeated_call():
    """Small calls consist of Python frames: each costs as much as a small kernel's arithmetic."""
    def frames(call) -> list[str]:
        call()
        seen: list[str] = []
        sys.setprofile(lambda frame, event, _: seen.append(frame.f_code.co_name) if event == "call" else None)
        try:
            call()
        finally:
            sys.setprofile(None)
        return seen[1:]  # without that of `call`

    assert len(frames(lambda: onednn.convolution_backward_data(X, W, **FULL))) <= 15
    one = np.ones((1, 1, 1, 1), np.float32)
    three = [one, one, one, [1], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True, True, True]]
    assert len(frames(lambda: aten.convolution_backward(*three))) <= 38
