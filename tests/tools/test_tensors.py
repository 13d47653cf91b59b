"""Inputs of models in formats that ONNX or NumPy's files cannot name: bytes that stand for numbers."""

from __future__ import annotations

import numpy as np
import pytest
from convreg.tools import tensors
from onnx import TensorProto, helper

import convreg
import convreg.onnx


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


@pytest.mark.parametrize(("content", "message"), [
    (b"", "does not begin as an .npy file does"), (b"not an array", "does not begin as an .npy file does"),
    (b"PK\x03\x04", "an archive, which may hold several arrays; allowed: one .npy file"),
    (b"\x93NUMPY\x01\x00", "not a NumPy array file")])
def test_inputs_that_are_no_array_files(tmp_path, content, message):
    """numpy.load takes other bytes for pickled objects, and proposes to load them."""
    path = tmp_path / "x.npy"
    path.write_bytes(content)
    with pytest.raises(convreg.GraphError, match=message) as caught:
        tensors.feeds(tensors.needed(model_of("hifloat8", True)), [f"x={path}"], fill=False, seed=0)
    assert "pickle" not in str(caught.value)
