"""Kernels in threads whose arithmetic another library has changed: the same bits, and the thread as it was."""

from __future__ import annotations

import ctypes
import platform
import threading
from collections.abc import Callable

import numpy as np
import pytest
from emulation import not_emulated

import convreg
from convreg import ascend, onednn

ROUNDINGS = {"x86_64": [0x400, 0x800, 0xC00], "aarch64": [0x400000, 0x800000, 0xC00000]}.get(platform.machine(), [])
"""What `fesetround` takes for rounding downward, upward and toward zero, in the order of <fenv.h> of the machine."""

GEN = np.random.default_rng(5)
DY, W = (GEN.standard_normal(extents).astype(np.float32) for extents in [(2, 24, 20, 20), (24, 40, 3, 3)])
FAR = DY.astype(np.float64) * 1.1
CONV = {"strides": [1, 1], "pads_begin": [1, 1], "pads_end": [1, 1], "dilations": [1, 1], "data_format": "NCX",
        "weights_format": "OIX"}


def gradients(threads: int) -> np.ndarray:
    return onednn.convolution_backward_data(DY, W, **CONV, dst_shape=[2, 40, 20, 20], threads=threads)


def by_plain_loops(threads: int) -> np.ndarray:
    with convreg.force_algorithm("reference"):
        return onednn.convolution_backward_data(DY[:1, :8], W[:8], **CONV, dst_shape=[1, 40, 20, 20], threads=threads)


def exact(threads: int) -> np.ndarray:
    return onednn.convolution_backward_data.reference(DY, W, **CONV, dst_shape=[2, 40, 20, 20])


def narrowed(threads: int) -> np.ndarray:
    return convreg.quantize(np.repeat(FAR, 8, axis=0), "float32", threads=threads)


def scaled(threads: int) -> np.ndarray:
    return convreg.quantize(FAR * 1e-280, "float64", scale=2.0**-126, threads=threads)


def of_ascend(threads: int) -> np.ndarray:
    return ascend.convolution_backward(
        DY[:, :, :18, :18].astype(np.float16), np.ones((2, 40, 20, 20), np.float16), W.astype(np.float16),
        bias_sizes=[24], stride=[1, 1], padding=[0, 0], dilation=[1, 1], transposed=False, output_padding=[0, 0],
        groups=1, output_mask=[True, True, True], cube_math_type=0, threads=threads)[1]


CALLS = [gradients, by_plain_loops, exact, narrowed, scaled, of_ascend]


@pytest.mark.skipif(not ROUNDINGS, reason="the numbers of fesetround on this machine are not known here")
@pytest.mark.parametrize("threads", [1, pytest.param(2, marks=not_emulated)])
@pytest.mark.parametrize("compute", CALLS, ids=lambda call: call.__name__)
def test_rounding_of_the_caller(compute: Callable[[int], np.ndarray], threads: int):
    """Of a thread that calls for the first time, whose team begins then, and that keeps its own rounding."""
    library = ctypes.CDLL(None)
    expected = compute(threads)
    for rounding in ROUNDINGS:
        got, kept = [], []

        def call(rounding: int = rounding, got: list = got, kept: list = kept) -> None:
            library.fesetround(rounding)
            got.append(compute(threads))
            kept.append(library.fegetround())

        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
        assert kept == [rounding]
        np.testing.assert_array_equal(got[0], expected)


@pytest.mark.skipif(not ROUNDINGS, reason="the numbers of fesetround on this machine are not known here")
def test_rounding_of_a_refused_call():
    """A call that fails leaves the arithmetic as it was, too."""
    library = ctypes.CDLL(None)
    library.fesetround(ROUNDINGS[0])
    try:
        with convreg.force_algorithm("patches"), pytest.raises(convreg.OpError):
            gradients(1)
        kept = library.fegetround()
    finally:
        library.fesetround(0)
    assert kept == ROUNDINGS[0]
