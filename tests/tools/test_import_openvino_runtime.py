"""Models that OpenVINO's own package writes, with plain and with compressed constants: values as in its runtime."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from convreg.tools.onnx_io import import_ir
from drawn import dyadic

import convreg.onnx

openvino = pytest.importorskip("openvino")
op = openvino.opset13

RNG = np.random.default_rng(13)
I64 = np.int64
IMAGE = dyadic(RNG, (1, 4, 5, 6))


def constant(values, dtype=I64):
    return op.constant(np.array(values, dtype))


def weights(*shape):
    return op.constant(dyadic(RNG, shape))


def half_weights(*shape):
    """bfloat16, which the package takes as bits alone."""
    bits = dyadic(RNG, shape).astype(ml_dtypes.bfloat16).view(np.uint16)
    return openvino.op.Constant(openvino.Tensor(bits, openvino.Shape(shape), openvino.Type.bf16))


def up(x, filter_, strides, shape=None, **stated):
    return op.convolution_backprop_data(x, filter_, strides, shape, **stated)


def spatial(skip, rank):
    """The spatial extents of a tensor, computed."""
    return op.strided_slice(op.shape_of(skip), constant([2]), constant([rank]), constant([1]), [0], [0])


WINDOW = {"pads_begin": [1, 1], "pads_end": [0, 0], "dilations": [1, 1], "auto_pad": "explicit"}
CASES = {
    "shape in int32": ([IMAGE], lambda x: [up(x, weights(4, 3, 3, 3), [2, 2], constant([11, 12], np.int32), **WINDOW)]),
    "shape of a skip connection": ([IMAGE, dyadic(RNG, (1, 3, 11, 12))], lambda x, skip: [
        op.add(up(x, weights(4, 3, 3, 3), [2, 2], spatial(skip, 4), **WINDOW), skip)]),
    "shape gathered in int32": ([IMAGE[..., 0], dyadic(RNG, (1, 3, 11))], lambda x, skip: [op.concat([up(
        x, weights(4, 3, 4), [2], op.gather(op.shape_of(skip, "i32"), constant([2]), constant(0)),
        auto_pad="same_upper"), skip], 1)]),
    "filter is an input": ([IMAGE, dyadic(RNG, (4, 3, 2, 2))], lambda x, w: [
        up(x, w, [1, 1], auto_pad="valid", output_padding=[3, 2])]),
    "three axes": ([dyadic(RNG, (1, 2, 3, 4, 3))], lambda x: [up(
        x, weights(2, 3, 2, 2, 3), [2, 1, 2], pads_begin=[1, 0, 1], pads_end=[0, 1, 1], dilations=[1, 2, 1],
        output_padding=[1, 0, 3])]),
    "float16": ([IMAGE[..., 0].astype(np.float16)], lambda x: [
        up(x, op.constant(dyadic(RNG, (4, 3, 3)).astype(np.float16)), [2])]),
    "bfloat16": ([IMAGE[..., 0].astype(ml_dtypes.bfloat16)], lambda x: [up(x, half_weights(4, 3, 3), [2])]),
    "pads below zero": ([IMAGE[..., 0]], lambda x: [
        up(x, weights(4, 3, 3), [2], pads_begin=[1], pads_end=[-2], dilations=[1])]),
    "groups": ([IMAGE], lambda x: [op.group_convolution_backprop_data(
        x, weights(2, 2, 3, 3, 3), [2, 2], pads_begin=[1, 1], pads_end=[1, 1], dilations=[1, 1],
        output_padding=[1, 1])]),
    "depthwise, stated shape": ([IMAGE[..., 0]], lambda x: [op.group_convolution_backprop_data(
        x, weights(4, 1, 1, 3), [2], constant([8]), auto_pad="same_upper")]),
    "filter behind Convert and Reshape": ([IMAGE[..., 0]], lambda x: [op.group_convolution_backprop_data(
        x, op.reshape(op.convert(constant([[[1, -2, 0]] * 2] * 4, np.float16), "f32"), constant([2, 2, 2, 3]), False),
        [1])]),
    "top": ([RNG.permutation(48).reshape(2, 6, 4).astype(np.float32)], lambda x: [
        *op.topk(x, constant(2, np.int32), 1, "max", "value").outputs(),
        op.topk(x, constant(1), 2, "min", "index", "i64").output(1)]),
    "one hot": ([np.array([0, 2, -1, 3, 1])], lambda x: [
        op.one_hot(x, constant(3), constant(2, np.float32), constant(-1, np.float32), -1)]),
    "comparisons": ([IMAGE], lambda x: [
        op.select(op.greater_equal(x, constant(0, np.float32)), x, constant(-1, np.float32)),
        op.logical_xor(op.less(x, constant(0, np.float32)), op.not_equal(x, constant(0.25, np.float32)))]),
    "strided slices": ([IMAGE[0]], lambda x: [
        op.strided_slice(x, constant([1, 0, -1]), constant([0, 3, 0]), constant([1, 2, -2]), [0, 1, 0], [1, 0, 1]),
        op.strided_slice(x, constant([0, 0, 1]), constant([1, 3, 4]), constant([1, 1, 2]), [0] * 3, [0] * 3,
                         [1, 0, 0])]),
    "pads of data": ([IMAGE[0, 0]], lambda x: [
        op.pad(x, constant([-1, 1]), constant([0, -2]), "constant", constant(3, np.float32)),
        *(op.pad(x, constant([1, 0]), constant([0, 2]), mode) for mode in ("edge", "reflect"))]),
    "tiles": ([IMAGE[0, 0]], lambda x: [op.tile(x, constant([2, 1, 3])), op.tile(x, constant([2]))]),
    "norms": ([IMAGE[0]], lambda x: [op.reduce_l1(x, constant([1, -1]), False), op.reduce_l2(x, constant([1]), True)]),
    "fake quantization": ([IMAGE[0]], lambda x: [op.fake_quantize(
        x, *(constant(bound, np.float32) for bound in (-1, 2, -0.5, 7)), 16)]),
    "quantized weights": ([IMAGE], lambda x: [up(x, op.multiply(op.subtract(op.convert(
        op.constant(RNG.integers(-9, 9, (4, 3, 2, 2)).astype(np.int8)), "f32"), constant(2, np.float32)),
        constant([[[[0.5]]]] * 4, np.float32)), [2, 2])]),
    "poolings": ([IMAGE], lambda x: [
        op.avg_pool(x, [2, 1], [1, 0], [0, 1], [3, 2], True, "floor"),
        op.max_pool(x, [2, 2], [1, 1], [0, 0], [0, 0], [2, 2], "floor", "same_upper").output(0)]),
    "activations": ([IMAGE], lambda x: [op.hsigmoid(x), op.swish(x, constant(0.5, np.float32)), op.gelu(x, "tanh"),
                                        op.log_softmax(x, -2), op.softmax(x, 1)]),
}


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_written_by_the_package(tmp_path, name, compressed):
    arrays, build = CASES[name]
    parameters, feeds = [], []
    for index, array in enumerate(arrays):
        half = array.dtype == ml_dtypes.bfloat16
        kind = openvino.Type.bf16 if half else openvino.Type(array.dtype)
        parameters.append(op.parameter(openvino.PartialShape(list(array.shape)), kind, name=f"x{index}"))
        feeds.append(openvino.Tensor(array.view(np.uint16), openvino.Shape(array.shape), kind) if half else array)
    results = [made.output(0) if isinstance(made, openvino.Node) else made for made in build(*parameters)]
    path = tmp_path / "model.xml"
    openvino.save_model(openvino.Model(results, parameters, "model"), path, compress_to_fp16=compressed)
    expected = openvino.Core().compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})(feeds)
    found = convreg.onnx.run(import_ir(path), {f"x{index}": array for index, array in enumerate(arrays)})
    assert len(found) == len(results)
    for index, array in enumerate(found.values()):
        wanted = expected[index]
        if array.dtype == ml_dtypes.bfloat16:
            array, wanted = array.view(np.uint16), wanted.view(np.uint16)
        assert (array.shape, array.dtype) == (wanted.shape, wanted.dtype)
        tolerance = 2e-6 if name in ("activations", "norms", "fake quantization") else 0
        np.testing.assert_allclose(array, wanted, rtol=tolerance, atol=tolerance)
