"""An array of HiFloat8 holds codes: NumPy must not take them for numbers, nor numbers for codes."""

from __future__ import annotations

import copy
import io
import pickle

import ml_dtypes
import numpy as np
import pytest
from convreg.tools import tensors
from onnx import TensorProto, helper

import convreg
import convreg.onnx

VALUES = [1.0, 1.125, -2.0, 0.0]


@pytest.fixture
def array():
    return convreg.quantize(VALUES, "hifloat8")


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i1", "u1", "i8", "?", "c8", "S4", "U4", "M8[s]",
                                   ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn])
def test_casts_to_anything_raise(array, dtype):
    target = np.zeros(4, dtype)
    for cast in (lambda: array.astype(dtype), lambda: np.array(array, dtype), lambda: np.asarray(array, dtype=dtype),
                 lambda: np.array(list(array), dtype), lambda: np.copyto(target, array, casting="unsafe"),
                 lambda: target.__setitem__(slice(None), array), lambda: target.__setitem__(0, array[0]),
                 lambda: np.concatenate([array, target]), lambda: np.where([True] * 4, array, target)):
        with pytest.raises((TypeError, ValueError)):
            cast()
    assert (target.view(np.uint8) == 0).all()


@pytest.mark.parametrize("value", [1.5, 1, True, 1j, "1", None, (1,), (1, 0), [1.5], ((1,),)])
def test_numbers_are_not_assigned(array, value):
    before = array.view(np.uint8).tolist()
    for cast in (lambda: array.__setitem__(0, value), lambda: array.fill(value), lambda: array.put([0], [value]),
                 lambda: np.array([value, value], convreg.hifloat8), lambda: np.asarray([value], convreg.hifloat8),
                 lambda: array.flat.__setitem__(0, value), lambda: np.fromiter([value], convreg.hifloat8)):
        with pytest.raises((TypeError, ValueError)):
            cast()
    assert array.view(np.uint8).tolist() == before


@pytest.mark.parametrize("compute", [
    lambda a: a + a, lambda a: a * 2, lambda a: 2.0 - a, lambda a: a @ a, lambda a: -a, lambda a: a < a,
    lambda a: a == 1.0, lambda a: a.sum(),
    lambda a: a.mean(), lambda a: a.max(), lambda a: np.abs(a), lambda a: np.isnan(a),
    lambda a: np.allclose(a, a), lambda a: float(a[0]), lambda a: int(a[0]), lambda a: np.arange(300)[a],
    lambda a: np.dot(a, a), lambda a: np.einsum("i,i", a, a), lambda a: np.result_type(a, np.float32),
    lambda a: np.clip(a, 0, 1),
    lambda a: range(300)[a[0]], lambda a: np.float32(a[0]), lambda a: np.cumsum(a), lambda a: np.bincount(a)])
def test_nothing_is_computed(array, compute):
    with pytest.raises((TypeError, ValueError, IndexError)):
        compute(array)


def test_codes_are_moved_and_kept(array):
    square = array.reshape(2, 2)
    saved = io.BytesIO()
    np.save(saved, square)
    saved.seek(0)
    zipped = io.BytesIO()
    np.savez(zipped, a=square)
    zipped.seek(0)
    with np.load(zipped, allow_pickle=False) as file:
        entries = file["a"]
    for other in (square.copy(), copy.deepcopy(square), pickle.loads(pickle.dumps(square)), np.load(saved), entries,
                  square.T.T, np.stack([square[0], square[1]]), np.concatenate([square[:1], square[1:]]),
                  np.ascontiguousarray(square[:, ::-1])[:, ::-1], square.view(np.uint8).view(convreg.hifloat8),
                  np.frombuffer(square.tobytes(), convreg.hifloat8).reshape(2, 2), square.take([0, 1], axis=0)):
        assert other.dtype == convreg.hifloat8
        assert convreg.dequantize(other).tolist() == [[1.0, 1.125], [-2.0, 0.0]]
        assert (other == square).all()
    square[0] = square[1]
    assert convreg.dequantize(square).tolist() == [[-2.0, 0.0]] * 2
    assert not np.zeros(3, convreg.hifloat8).view(np.uint8).any()


def test_arrays_of_earlier_files_are_read(array):
    former = array.view(np.uint8).view([("hifloat8", np.uint8)])
    assert convreg.dequantize(former).tolist() == VALUES
    ones = convreg.quantize(np.ones((1, 1, 2, 2)), "hifloat8")
    results = [convreg.aten.convolution_backward(
        ones.view(dtype), ones.view(dtype), ones[..., :1, :1].view(dtype), None, [1, 1], [0, 0], [1, 1], False,
        [0, 0], 1, [True, True, False], conformance="emulation") for dtype in (convreg.hifloat8, former.dtype)]
    for ours, theirs in zip(results[0][:2], results[1][:2], strict=True):
        np.testing.assert_array_equal(ours, theirs)


def model_of(format, mirrored):
    """A transposition before a node that takes bytes for numbers; the graph's input may say so itself, or not."""
    nodes = [helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0]),
             helper.make_node("Dequantize", ["t"], ["y"], domain="convreg", operand_types=[format])]
    x = helper.make_tensor_value_info("x", TensorProto.UINT8, [40, 50])
    if mirrored:
        x.metadata_props.add(key="convreg.dtype", value=format)
    graph = helper.make_graph(nodes, "g", [x], [helper.make_tensor_value_info("y", TensorProto.FLOAT, [50, 40])])
    return helper.make_model(graph, ir_version=10, opset_imports=[
        helper.make_opsetid("", 22), helper.make_opsetid("convreg", 1)])


@pytest.mark.parametrize("mirrored", [True, False])
def test_random_inputs_are_numbers(mirrored):
    model = model_of("hifloat8", mirrored)
    feeds = tensors.feeds(tensors.needed(model), [], fill=True, seed=3)
    drawn = np.random.default_rng(3).standard_normal((40, 50), np.float32)
    rounded = convreg.dequantize(convreg.quantize(drawn, "hifloat8"))
    np.testing.assert_array_equal(convreg.dequantize(feeds["x"]), rounded)
    result = convreg.onnx.run(model, feeds)["y"]
    assert 0.9 < result.std() < 1.1


@pytest.mark.parametrize("element", [TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E5M2])
def test_random_inputs_of_other_formats_are_numbers_too(element):
    x = helper.make_tensor_value_info("x", element, [500])
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [x], [
        helper.make_tensor_value_info("y", element, [500])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)])
    values = convreg.dequantize(tensors.feeds(tensors.needed(model), [], fill=True, seed=0)["x"])
    assert 0.9 < values.std() < 1.1


def test_inputs_that_are_no_tensors_are_refused():
    values = helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, [2])
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [values], [
        helper.make_tensor_sequence_value_info("y", TensorProto.FLOAT, [2])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)])
    with pytest.raises(convreg.GraphError, match="no tensor"):
        tensors.feeds(tensors.needed(model), ["x=random:2"], fill=False, seed=0)
