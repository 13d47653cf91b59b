"""Calls at the limits: lines longer than a tile, sizes beyond 64 bits, misaligned memory, extents without elements."""

from __future__ import annotations

import time

import numpy as np
import pytest
from convreg.ops import kernels
from convreg.ops.kernels import engine
from kernel_cases import bits, windowed
from memory_layouts import FAR, Layout, Placed
from ort_sessions import session

import convreg
from convreg.errors import OpError
from convreg.geometry import Window

ONES = {"stride": (1, 1, 1), "dilation": (1, 1, 1), "begin": (0, 0, 0)}
NO_PADS = {"strides": [1, 1], "pads_begin": [0, 0], "pads_end": [0, 0], "dilations": [1, 1], "data_format": "NCX"}
LINE = {"strides": [1], "pads_end": [0], "dilations": [1], "data_format": "NCX"}


def misaligned(array: np.ndarray) -> np.ndarray:
    """The same numbers one byte beside where they should lie."""
    memory = np.zeros(array.nbytes + array.itemsize + 1, np.uint8)
    moved = memory[1:1 + array.nbytes].view(array.dtype).reshape(array.shape)
    moved[...] = array
    assert not moved.flags.aligned
    return moved


def repeated(*shape: int, dtype: type = np.float32) -> np.ndarray:
    """Ones of any shape in the memory of one."""
    return np.broadcast_to(np.ones((), dtype), shape)


# ---------------------------------------------------------------------------------------------------------------------
# Lines longer than a tile


@pytest.mark.parametrize("width", [47, 48, 49, 95, 96, 97, 1000])
@pytest.mark.parametrize("format", ["float32", "float16", "bfloat16", "float8_e4m3fn", "hifloat8"])
def test_transposed_lines_of_any_length(isa, format, width):
    """The second-last axis is contiguous, and the small side has few channels: lines are transposed whole."""
    rng = np.random.default_rng(width)
    dy = rng.integers(-2, 3, (1, 1, width, 8)).astype(np.float32)
    x = rng.integers(-2, 3, (1, 1, 8, width)).astype(np.float32)
    turned, straight = (array if format == "float32" else convreg.quantize(array, format) for array in (dy, x))
    kernel = {"conformance": "emulation"} if format not in ("float32", "float16", "bfloat16") else {}
    result = convreg.onednn.convolution_backward_weights(
        straight, turned.swapaxes(2, 3), [1, 1, 1, 1], **NO_PADS, weights_format="OIX", **kernel)
    exact = (x * dy.swapaxes(2, 3)).sum()
    expected = np.float32(exact) if format == "float32" else convreg.quantize(exact, format)
    assert bits(result).item() == bits(np.asarray(expected)).item()


# ---------------------------------------------------------------------------------------------------------------------
# Sizes beyond 64 bits

WRAPPING = -(-2**64 // 40)  # taps whose notes take more than 2**64 bytes


@pytest.mark.parametrize("taps", [2**27, 2**40, 2**58, WRAPPING - 1, WRAPPING, WRAPPING + 3])
def test_windows_too_large_to_describe_are_refused(taps):
    x, w, pads = np.ones((1, 1, 5), np.float32), repeated(1, 1, taps), {"pads_begin": [taps - 5]}
    forward = convreg.onednn.convolution, (x, w)
    backward = convreg.onednn.convolution_backward_data, (repeated(1, 1, 1), w, [1, 1, 5])
    for operator, tensors in (forward, backward):
        for function in (operator, lambda *args, op=operator, **more: convreg.workspace_bytes(op, *args, **more)):
            with pytest.raises(OpError, match=r"a window of .* taps"):
                function(*tensors, **LINE, **pads, weights_format="OIX")


def test_references_within_memory(monkeypatch):
    monkeypatch.setenv("CONVREG_MAX_BYTES", str(2**20))
    with pytest.raises(OpError, match="CONVREG_MAX_BYTES"):
        convreg.onednn.convolution.reference(repeated(1, 1, 2**40), repeated(1, 1, 1), **LINE, pads_begin=[0],
                                             weights_format="OIX")


@pytest.mark.parametrize("kernel", ["forward", "backward_data", "backward_weights"])
@pytest.mark.parametrize(("large", "small", "taps", "window"), [
    ((1, 1, 1, 1, 1, 5), (1, 1, 1, 1, 1, 1), (1, 1, 1, 1, 1, 2**27), {}),
    ((1, 1, 2**31, 1, 1, 1), (1, 1, 1, 1, 1, 1), (1, 1, 2**31, 1, 1, 1), {}),
    ((1, 1, 1, 1, 1, 1), (1, 1, 2**31, 1, 1, 1), (1, 2**31, 1, 1, 1, 1), {}),
    ((2**20, 2**15, 2**15, 1, 1, 1), (2**20, 2**15, 1, 1, 1, 1), (2**15, 1, 2**15, 1, 1, 1), {}),
    ((1, 1, 1, 1, 1, 9), (1, 1, 1, 1, 1, 2), (1, 1, 1, 1, 1, 1), {"stride": (1, 1, 2**60)}),
    ((1, 1, 1, 1, 1, 9), (1, 1, 1, 1, 1, 1), (1, 1, 1, 1, 1, 2), {"dilation": (1, 1, 2**62)}),
    ((1, 1, 1, 1, 1, 9), (1, 1, 1, 1, 1, 1), (1, 1, 1, 1, 1, 1), {"begin": (0, 0, -(2**62))}),
    ((2**40, 1, 1, 1, 1, 1), (2**40, 1, 2**12, 1, 1, 1), (1, 2**12, 1, 1, 1, 1), {}),
    ((1, 1, 2**26, 1, 1, 1), (2**20, 1, 2**26, 1, 1, 1), (1, 2**22, 2**26, 1, 1, 1), {}),
])
def test_kernels_refuse_what_they_cannot_describe(kernel, large, small, taps, window):
    sides = {"large": repeated(*large), "small": repeated(*small), "taps": repeated(*taps)}
    order = {"forward": ("large", "taps", "small"), "backward_data": ("small", "taps", "large"),
             "backward_weights": ("large", "small", "taps")}[kernel]
    with pytest.raises(OverflowError):
        engine.workspace_bytes(kernel, *(sides[side] for side in order), **ONES | window, formats=("float32",) * 3)


@pytest.mark.parametrize("far", [2**53, 2**54, 2**56, 3 * 2**56, 2**58, 7 * 2**56])
@pytest.mark.parametrize("axis", [0, 1])
def test_dilations_whose_products_with_extents_are_beyond_64_bits(axis, far):
    """Weights gradients in pairs: all taps but the first lie outside."""
    extents, taps, dilation = [(8, 16, 16), (1, 64, 64)][axis], [1, 1, 1], [1, 1, 1]
    taps[axis], dilation[axis] = 2, far
    rng = np.random.default_rng(far % 1000)
    large, small = (rng.integers(0x3F00, 0x4000, (2, 1, 32, *extents)).astype(np.uint16) for _ in range(2))
    got = np.zeros((1, 32, 32, *taps), np.uint16)
    first = np.zeros((1, 32, 32, 1, 1, 1), np.uint16)
    formats = ("bfloat16",) * 3
    engine.backward_weights(large, small, got, **(ONES | {"dilation": tuple(dilation)}), formats=formats)
    engine.backward_weights(large, small, first, **ONES, formats=formats)
    assert np.array_equal(got[:, :, :, :1, :1, :1], first)
    assert not got[:, :, :, 1:].any()
    assert not got[:, :, :, :, 1:].any()


def test_extents_without_elements_are_no_work():
    far = 2**61
    for kernel, shapes in {
        "forward": ((0, 1, 1, 1, 1, far), (1, 1, 1, 1, 1, 1), (0, 1, 1, 1, 1, far)),
        "backward_data": ((0, 1, 1, 1, 1, far), (1, 1, 1, 1, 1, 1), (0, 1, 1, 1, 1, far)),
        "backward_weights": ((1, 1, 1, 1, 1, 1), (1, 1, 1, 1, 1, 1), (0, 1, 1, 1, 1, far)),
    }.items():
        operands = [repeated(*shape, dtype=np.uint8) for shape in shapes[:2]]
        result = np.lib.stride_tricks.as_strided(np.zeros(1, np.uint8), shapes[2], (0,) * 6)
        for call in (getattr(engine, kernel), windowed(getattr(kernels, kernel))):
            call(*operands, result, **ONES, formats=("float8_e5m2",) * 3)
        assert engine.workspace_bytes(kernel, *operands, result, **ONES, formats=("float8_e5m2",) * 3) == 0


def test_empty_operands_of_giant_extents_leave_zeros():
    large, small = repeated(0, 1, 1, 1, 1, 2**57), repeated(0, 1, 2, 1, 1, 2**57)
    taps = np.ones((1, 2, 1, 1, 1, 1), np.float32)
    kernels.backward_weights(large, small, taps, Window(**ONES, formats=("float32",) * 3))
    assert (taps == 0).all()


@pytest.mark.parametrize("dtype", [np.int8, np.int64, ">f4"])
def test_conversions_of_giant_views_are_refused(dtype):
    giant = np.broadcast_to(np.ones((), dtype), (2**40,))
    with pytest.raises(OpError, match="allowed"):
        convreg.quantize(giant, "bfloat16")
    if dtype == ">f4":
        with pytest.raises(OpError, match="allowed"):
            convreg.dequantize(giant)


# ---------------------------------------------------------------------------------------------------------------------
# Misaligned memory


@pytest.mark.parametrize("format", ["float32", "float64"])
def test_a_misaligned_bias_is_read_by_copy(format):
    large, taps = np.ones((1, 1, 1, 1, 1, 4), format), np.ones((1, 2, 1, 1, 1, 1), format)
    bias = misaligned(np.array([1.5, -2], format))
    for forward in (windowed(kernels.forward), engine.forward, kernels.reference.forward):
        small = np.zeros((1, 1, 2, 1, 1, 4), format)
        forward(large, taps, small, **ONES, formats=(format,) * 3, bias=bias, threads=1)
        assert (small[0, 0, :, 0, 0, 0] == [2.5, -1]).all()


def test_misaligned_views_are_copied_without_their_repetitions():
    one = misaligned(np.ones((1, 1), np.float32))[0]
    large = np.lib.stride_tricks.as_strided(one, (2**20, 1, 1, 1, 1, 2**20), (0,) * 6)
    small = np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (0, 1, 1, 1, 1, 2**20), (0,) * 6)
    kernels.forward(large[:0], one.reshape((1,) * 6), small, Window(**ONES, formats=("float32",) * 3))
    assert kernels.aligned(large).strides == (0,) * 6
    assert kernels.aligned(large).flags.aligned


def test_nodes_of_onnxruntime_take_misaligned_tensors(monkeypatch):
    pytest.importorskip("onnxruntime")
    copied, run = [], kernels.run_anywhere
    monkeypatch.setattr(kernels, "run_anywhere", lambda *arguments: copied.append(1) or run(*arguments))
    rng = np.random.default_rng(5)
    tensors = [rng.integers(-3, 4, shape).astype(np.float32) for shape in ((1, 2, 6, 7), (3, 2, 3, 3), (3,))]
    arguments = {**NO_PADS, "weights_format": "OIX", "conformance": "library"}
    model = convreg.onnx.node_model("onednn::Convolution", *tensors, **arguments, as_inputs=True)
    expected = convreg.onednn.convolution(*tensors, **arguments)
    running = session(model)
    feeds = dict(zip((entry.name for entry in model.graph.input), map(misaligned, tensors), strict=True))
    assert (running.run(None, feeds)[0] == expected).all()
    result = misaligned(np.zeros(expected.shape, np.float32))
    binding = running.io_binding()
    for name, tensor in feeds.items():
        binding.bind_input(name, "cpu", 0, np.float32, tensor.shape, tensor.ctypes.data)
    binding.bind_output(model.graph.output[0].name, "cpu", 0, np.float32, result.shape, result.ctypes.data)
    running.run_with_iobinding(binding)
    assert (result == expected).all()
    assert copied


# ---------------------------------------------------------------------------------------------------------------------
# Results whose numbers lie far apart


def test_far_results_take_no_longer(isa):
    """What lies between the numbers of a result a gigabyte apart is not asked for line by line."""
    rng = np.random.default_rng(2)
    small = convreg.quantize(rng.integers(-2, 3, (3, 9, 1, 1, 32, 4)), "float8_e4m3fn").view(np.uint8)
    taps = convreg.quantize(rng.integers(-2, 3, (9, 1, 1, 1, 3, 2)), "float8_e4m3fn").view(np.uint8)
    call = {"stride": (1, 1, 1), "dilation": (1, 3, 1), "begin": (0, 1, 1), "formats": ("float8_e4m3fn",) * 3}
    near = np.zeros((3, 9, 1, 1, 36, 3), np.uint8)
    engine.backward_data(small, taps, near, **call)
    far = Placed(Layout("far", (324, 36, 1, 1, 1, FAR), 64, 3 * 324 + 128, 5), near.shape, near.dtype)
    before = time.process_time()
    engine.backward_data(small, taps, far.view, **call)
    assert time.process_time() - before < 2
    assert (far.view == near).all()
    assert far.stray_bytes(near) == 0
