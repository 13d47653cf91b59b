"""The call contract: arrays in, out=, threads=, memory limits, conformance, errors that say what is wrong."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading

import ml_dtypes
import numpy as np
import pytest

import convreg

ONE_D = {"strides": [1], "pads_begin": [1], "pads_end": [1], "dilations": [1], "data_format": "NCX",
         "weights_format": "OIX"}
DY = np.arange(12, dtype=np.float32).reshape(1, 2, 6)
W = np.arange(18, dtype=np.float32).reshape(2, 3, 3)
backward_data = convreg.onednn.convolution_backward_data


def refused(function, *args, **kwargs) -> convreg.OpError:
    with pytest.raises(convreg.OpError) as caught:
        function(*args, **kwargs)
    return caught.value


def test_registered_callable_and_function_are_the_same():
    op = convreg.get("ConvolutionBackwardData")
    np.testing.assert_array_equal(op(DY, W, [1, 3, 6], **ONE_D), backward_data(DY, W, dst_shape=[1, 3, 6], **ONE_D))


@pytest.mark.parametrize("make", [np.asfortranarray, lambda a: np.stack([a, a], -1)[..., 0], lambda a: a[::-1][::-1],
                                  lambda a: a.astype(">f4"), lambda a: a.tolist(), memoryview],
                         ids=["fortran", "strided", "reversed", "big-endian", "list", "memoryview"])
def test_any_array_like(make):
    expected = backward_data(DY, W, [1, 3, 6], **ONE_D)
    np.testing.assert_array_equal(backward_data(make(DY), make(W), [1, 3, 6], **ONE_D), expected)


def test_read_only_inputs():
    dy, w = DY.copy(), W.copy()
    dy.flags.writeable = w.flags.writeable = False
    np.testing.assert_array_equal(backward_data(dy, w, [1, 3, 6], **ONE_D), backward_data(DY, W, [1, 3, 6], **ONE_D))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_results_keep_the_format(dtype):
    result = backward_data(DY.astype(dtype), W.astype(dtype), [1, 3, 6], **ONE_D)
    assert result.dtype == dtype
    assert result.flags.c_contiguous


def test_out_of_any_strides_is_filled_and_stands_in_for_the_shape():
    expected = backward_data(DY, W, [1, 3, 6], **ONE_D)
    wide = np.full((6, 2, 3, 1), 7, np.float32)
    out = wide[:, 0].T
    assert backward_data(DY, W, out=out, **ONE_D) is out
    np.testing.assert_array_equal(out, expected)
    assert (wide[:, 1] == 7).all()
    reversed_ = np.empty((1, 3, 6), np.float32)[:, ::-1, ::-1]
    np.testing.assert_array_equal(backward_data(DY, W, out=reversed_, **ONE_D), expected)


def test_out_that_does_not_fit_is_refused():
    wrong = np.empty((1, 3, 7), np.float32)
    assert refused(backward_data, DY, W, [1, 3, 6], out=wrong, **ONE_D).rule == "R20"
    assert refused(backward_data, DY, W, out=np.empty((1, 3, 6)), **ONE_D).rule == "R12"
    frozen = np.empty((1, 3, 6), np.float32)
    frozen.flags.writeable = False
    assert "writable" in str(refused(backward_data, DY, W, out=frozen, **ONE_D))
    assert isinstance(refused(backward_data, DY, W, out="here", **ONE_D), convreg.OpTypeError)
    overlapping = np.lib.stride_tricks.as_strided(np.empty(8, np.float32), (1, 3, 6), (4, 4, 4))
    assert "do not overlap" in str(refused(backward_data, DY, W, out=overlapping, **ONE_D))
    shared = np.empty(40, np.float32)
    dy = shared[:12].reshape(1, 2, 6)
    assert "overlaps diff_dst" in str(refused(backward_data, dy, W, out=shared[6:24].reshape(1, 3, 6), **ONE_D))
    interleaved = np.empty((1, 3, 6, 2), np.float32)
    big = interleaved[..., 0]
    big[:, :2] = DY
    np.testing.assert_array_equal(backward_data(big[:, :2], W, out=interleaved[..., 1], **ONE_D),
                                  backward_data(DY, W, [1, 3, 6], **ONE_D))


@pytest.mark.parametrize("threads", [0, -1, 2**40])
def test_threads_out_of_range(threads):
    error = refused(backward_data, DY, W, [1, 3, 6], threads=threads, **ONE_D)
    assert error.argument == "threads"
    assert "positive" in error.allowed
    assert "2**31" in error.allowed


@pytest.mark.parametrize("threads", [True, 1.5, "2", [1]])
def test_threads_of_the_wrong_kind(threads):
    assert isinstance(refused(backward_data, DY, W, [1, 3, 6], threads=threads, **ONE_D), convreg.OpTypeError)


@pytest.mark.parametrize("function", [convreg.onednn.convolution_backward_data, convreg.onednn.convolution])
def test_bits_do_not_depend_on_threads(function):
    rng = np.random.default_rng(0)
    a, w = rng.standard_normal((2, 6, 9, 9)).astype("f4"), rng.standard_normal((6, 6, 3, 3)).astype("f4")
    attributes = {"strides": [1, 1], "pads_begin": [1, 1], "pads_end": [1, 1], "dilations": [1, 1],
                  "data_format": "NCX", "weights_format": "OIX"}
    if function is backward_data:
        attributes["dst_shape"] = a.shape
    results = [function(a, w, threads=n, **attributes) for n in (None, 1, 2, 3, 7, np.int64(2))]
    assert len({result.tobytes() for result in results}) == 1


def test_concurrent_calls_agree():
    expected = backward_data(DY, W, [1, 3, 6], **ONE_D).tobytes()
    results: list[bytes] = []

    def work():
        results.extend(backward_data(DY, W, [1, 3, 6], **ONE_D).tobytes() for _ in range(50))

    workers = [threading.Thread(target=work) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert set(results) == {expected}
    assert len(results) == 400


def test_outputs_above_the_limit_are_refused_by_name(monkeypatch):
    error = refused(backward_data, DY[..., :1], W[..., :1], [1, 3, 2**40], **{**ONE_D, "strides": [2**41]})
    assert (error.rule, error.argument) == ("max_bytes", "diff_src")
    assert "CONVREG_MAX_BYTES" in str(error)
    monkeypatch.setenv("CONVREG_MAX_BYTES", "71")
    assert refused(backward_data, DY, W, [1, 3, 6], **ONE_D).rule == "max_bytes"
    backward_data(DY, W, out=np.empty((1, 3, 6), np.float32), **ONE_D)
    monkeypatch.setenv("CONVREG_MAX_BYTES", "72")
    backward_data(DY, W, [1, 3, 6], **ONE_D)
    monkeypatch.setenv("CONVREG_MAX_BYTES", "much")
    assert refused(backward_data, DY, W, [1, 3, 6], **ONE_D).argument == "CONVREG_MAX_BYTES"


@pytest.mark.parametrize("attributes", [
    {"strides": [2**62]}, {"dilations": [2**62]}, {"pads_begin": [2**62]}, {"pads_end": [2**63 - 1]},
    {"strides": [2**63]}, {"dst_shape": [2**40, 3, 2**40]}, {"dst_shape": [1, 3, 2**63]}, {"groups": 2**62},
])
def test_absurd_sizes_are_refused_before_anything_is_allocated(attributes):
    refused(backward_data, DY, W, **{"dst_shape": [1, 3, 6], **ONE_D, **attributes})


def test_python_type_errors_never_escape():
    for args, kwargs in (
        ((), {}), ((DY,), {}), ((DY, W, [1, 3, 6], 4), ONE_D), ((DY, W), {**ONE_D, "stride": [1]}),
        ((DY, W, [1, 3, 6]), {**ONE_D, "diff_dst": DY}), ((DY, W, 6), ONE_D), ((DY, W, "136"), ONE_D),
        ((object(), W, [1, 3, 6]), ONE_D), ((DY, None, [1, 3, 6]), ONE_D), ((DY, W, [1, 3, 6.0]), ONE_D),
        ((DY, W, [1, 3, None]), ONE_D), ((DY, W, [1, 3, 6]), {**ONE_D, "groups": 1.0}),
        ((DY, W, [1, 3, 6]), {**ONE_D, "groups": True}), ((DY, W, [1, 3, 6]), {**ONE_D, "strides": 1}),
        ((DY, W, [1, 3, 6]), {**ONE_D, "strides": {1: 1}}), ((DY, W, [1, 3, 6]), {**ONE_D, "auto_pad": 3}),
        ((DY.astype(int), W, [1, 3, 6]), ONE_D), ((DY, W.astype(str), [1, 3, 6]), ONE_D),
        (([[1, [2]]], W, [1, 3, 6]), ONE_D),
    ):
        error = refused(backward_data, *args, **kwargs)
        assert isinstance(error, convreg.OpTypeError)
        assert isinstance(error, TypeError)
        assert isinstance(error, ValueError)
        assert error.op == "onednn::ConvolutionBackwardData"


def test_errors_name_everything_and_the_near_miss():
    error = refused(backward_data, DY, W, [1, 3, 6], conformance="library", **{**ONE_D, "auto_pad": "same_upper"})
    assert (error.op, error.argument, error.value, error.rule, error.status) == (
        "onednn::ConvolutionBackwardData", "auto_pad", "same_upper", "R4", None)
    assert error.accepted_by == ("document",)
    for part in ("did you mean 'SAME_UPPER'", "rule R4", "accepted under conformance='document'"):
        assert part in str(error)
    assert "stride=[1] is refused; allowed: did you mean strides" in str(
        refused(backward_data, DY, W, [1, 3, 6], stride=[1], **ONE_D))
    assert refused(backward_data, DY, W, [1, 3, 6], bias=DY, **ONE_D).value == "given"
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.rule) == (str(error), "R4")
    assert refused(backward_data, DY, W, [1, 3, 6], conformance="vendor", **ONE_D).argument == "conformance"


def test_failed_calls_write_nothing():
    out = np.full((1, 3, 6), 7, np.float32)
    refused(backward_data, DY, W, [1, 3, 6], out=out, **{**ONE_D, "pads_end": [3]})
    assert (out == 7).all()


def test_taps_in_the_padding_contribute_nothing():
    w = np.float32([[[np.inf, 1, np.nan]]])
    x = np.float32([[[2.0]]])
    for function in (convreg.onednn.convolution,):
        assert function(x, w, **ONE_D).tolist() == [[[2.0]]]
    assert backward_data(x, w, [1, 1, 1], **ONE_D).tolist() == [[[2.0]]]
    one = np.ones((1, 1, 3), np.float32)
    assert np.isnan(backward_data(one, w, [1, 1, 3], **ONE_D)).tolist() == [[[False, True, True]]]


def test_empty_batch():
    x, dy = np.zeros((0, 3, 6), np.float32), np.zeros((0, 2, 6), np.float32)
    assert backward_data(dy, W, [0, 3, 6], **ONE_D).shape == (0, 3, 6)
    dw = convreg.onednn.convolution_backward_weights(x, dy, [2, 3, 3], **ONE_D)
    assert dw.shape == (2, 3, 3)
    assert (dw == 0).all()


def test_environment_sets_the_default_thread_count():
    code = "import convreg; print(convreg.capabilities()['threads'])"
    for name in ("CONVREG_NUM_THREADS", "OMP_NUM_THREADS"):
        environment = {key: value for key, value in os.environ.items() if not key.endswith("NUM_THREADS")}
        shown = subprocess.run([sys.executable, "-c", code], env={**environment, name: "3"}, capture_output=True,
                               text=True, check=True)
        assert shown.stdout.strip() == "3"


def test_workspace_is_told_without_computing_and_bounded():
    x = np.broadcast_to(np.float32(0), (8, 64, 56, 56))
    w, wide = np.zeros((64, 64, 3, 3), np.float32), {**ONE_D, **{name: [1, 1] for name in
                                                                   ("strides", "pads_begin", "pads_end", "dilations")}}
    limit = 8 * 2**20
    data = convreg.workspace_bytes("ConvolutionBackwardData", x, w, x.shape, threads=1, **wide)
    assert 0 < data <= limit
    both = convreg.workspace_bytes(backward_data, x, w, x.shape, threads=2, **wide)
    assert data < both <= 2 * limit
    weights = convreg.workspace_bytes("ConvolutionBackwardWeights", x, x, w.shape, threads=2, **wide)
    assert 0 < weights <= 2 * limit + 64 * 2**20
    wide64 = [np.zeros((1, 2, 4)), np.zeros((1, 2, 4)), np.zeros((2, 2, 1))]
    assert 0 < convreg.workspace_bytes("aten::convolution_backward", *wide64, None, [1], [0], [1], False, [0], 1,
                                       [True, True, True]) <= limit
    refused(convreg.workspace_bytes, "ConvolutionBackwardData", x, w, **wide)
