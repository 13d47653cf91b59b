"""One call becomes one node and the same call again, exactly."""

from __future__ import annotations

import tracemalloc
from collections.abc import Mapping

import ml_dtypes
import numpy as np
import onnx
import pytest
from drawn import convolutions, dyadic, to_layout
from graphs import model, value
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

import convreg
import convreg.onnx
from convreg import GraphError, OpError

RNG = np.random.default_rng(0)
DTYPES = [np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)]


def same(first, second) -> bool:
    """Equal values of equal kind; a list and a tuple of the same entries are the same statement."""
    if isinstance(first, np.ndarray) or isinstance(second, np.ndarray):
        return (isinstance(first, np.ndarray) and isinstance(second, np.ndarray) and first.dtype == second.dtype
                and first.shape == second.shape and first.tobytes() == second.tobytes())
    if isinstance(first, list | tuple):
        return list(first) == list(second)
    return type(first) is type(second) and first == second


def round_trip(name: str, inputs: tuple, attributes: Mapping, as_inputs: bool = False) -> onnx.ModelProto:
    """Export, check, read back, compare statement and result."""
    made = convreg.onnx.node_model(name, *inputs, as_inputs=as_inputs, **attributes)
    made = onnx.ModelProto.FromString(made.SerializeToString())
    convreg.onnx.check(made)
    feeds = {}
    if as_inputs:
        assert not made.graph.initializer
        tensors = [array for array in inputs if isinstance(array, np.ndarray)]
        feeds = dict(zip((entry.name for entry in made.graph.input), tensors, strict=True))
    operator, back, stated = convreg.onnx.call_of(made, feeds)
    assert operator is convreg.get(name)
    assert all(same(one, two) for one, two in zip(inputs, back, strict=False))
    assert all(value is None for value in back[len(inputs):])
    given_attributes = {name: entry for name, entry in attributes.items() if entry is not None}
    assert stated.keys() == given_attributes.keys()
    assert all(same(given_attributes[name], stated[name]) for name in stated)
    expected = operator(*inputs, **attributes)
    results = expected if isinstance(expected, tuple) else (expected,)
    made_results = convreg.onnx.run(made, feeds)
    computed = [result for result in results if result is not None]
    assert len(made_results) == len(computed)
    for one, two in zip(made_results.values(), computed, strict=True):
        assert same(one, two)
    again = operator(*back, **stated)
    repeated = again if isinstance(again, tuple) else (again,)
    assert all(same(one, two) for one, two in zip(repeated, results, strict=True))
    return made


@given(convolutions(), st.sampled_from(DTYPES), st.sampled_from(["attribute", "int32", "int64"]), st.booleans(),
       st.sampled_from([("NCX", "OIX"), ("NXC", "XIO"), (None, None)]), st.sampled_from([None, "document", "library"]))
def test_onednn_round_trip(drawn, dtype, shape, as_inputs, layouts, conformance):
    data, weights = layouts[0] or "NXC", layouts[1] or "XIO"
    stated = to_layout(np.empty(drawn.large), data).shape
    if conformance == "library" and shape == "int64":
        shape = "int32"
    inputs = (to_layout(dyadic(RNG, drawn.small, dtype), data), to_layout(dyadic(RNG, drawn.weights, dtype), weights),
              stated if shape == "attribute" else np.array(stated, shape))
    attributes = {**drawn.attributes, "groups": drawn.groups, "conformance": conformance, "data_format": layouts[0],
                  "weights_format": layouts[1]}
    round_trip("onednn::ConvolutionBackwardData", inputs, attributes, as_inputs)


@given(convolutions(symmetric=True), st.sampled_from(DTYPES), st.tuples(*[st.booleans()] * 3).filter(any),
       st.booleans())
def test_ascend_round_trip(drawn, dtype, mask, as_inputs):
    inputs = dyadic(RNG, drawn.small, dtype), dyadic(RNG, drawn.large), dyadic(RNG, drawn.weights, dtype)
    round_trip("ascend::ConvolutionBackward", inputs, {
        "stride": drawn.stride, "padding": drawn.begin, "dilation": drawn.dilation, "groups": drawn.groups,
        "output_mask": mask, "cube_math_type": 1, "transposed": False}, as_inputs)


@given(convolutions(symmetric=True))
def test_aten_and_conv_grad_round_trip(drawn):
    inputs = dyadic(RNG, drawn.small), dyadic(RNG, drawn.large), dyadic(RNG, drawn.weights)
    round_trip("aten::convolution_backward", inputs, {
        "stride": drawn.stride, "padding": drawn.begin, "dilation": drawn.dilation, "transposed": False,
        "output_padding": [0], "groups": drawn.groups, "output_mask": [True, True, True]})
    round_trip("com.microsoft::ConvGrad", inputs, {
        "strides": drawn.stride, "pads": (*drawn.begin, *drawn.end), "dilations": drawn.dilation,
        "group": drawn.groups})


def test_openvino_group_states_its_shape_as_a_tensor():
    inputs = dyadic(RNG, (1, 4, 5)), dyadic(RNG, (2, 2, 3, 3)), np.array([11])
    made = round_trip("openvino::GroupConvolutionBackpropData", inputs, {
        "strides": [2], "pads_begin": [0], "pads_end": [0], "dilations": [1], "auto_pad": "same_upper"})
    assert {tensor.name for tensor in made.graph.initializer} == {"data", "filter", "output_shape"}
    listed = convreg.onnx.node_model("openvino::GroupConvolutionBackpropData", *inputs[:2], [11], strides=[2],
                                     pads_begin=[0], pads_end=[0], dilations=[1], auto_pad="same_upper")
    assert listed.graph.initializer[2].name == "output_shape"


SMALL = {"strides": [1], "pads_begin": [0], "pads_end": [0], "dilations": [1]}
PAIR = dyadic(RNG, (1, 6, 4)), dyadic(RNG, (3, 2, 4))


def test_models_are_written_for_everyone():
    made = convreg.onnx.node_model(convreg.onednn.convolution, *PAIR[:1], dyadic(RNG, (3, 4, 2)), **SMALL)
    assert made.ir_version == 10
    assert {entry.domain: entry.version for entry in made.opset_import} == {"": 22, "convreg.onednn": 1}
    assert made.producer_name == "convreg"
    assert made.producer_version == convreg.__version__
    node = made.graph.node[0]
    assert (node.name, node.op_type, node.domain) == ("convolution", "Convolution", "convreg.onednn")
    assert node.doc_string == convreg.onednn.convolution.spec.doc
    assert [entry.name for entry in made.graph.output] == ["dst"]


def test_some_tensors_as_inputs():
    made = convreg.onnx.node_model("onednn::Convolution", dyadic(RNG, (1, 6, 4)), dyadic(RNG, (3, 4, 2)),
                                   as_inputs=["src"], **SMALL)
    assert [entry.name for entry in made.graph.input] == ["src"]
    assert [tensor.name for tensor in made.graph.initializer] == ["weights"]
    with pytest.raises(GraphError, match="does not hold 'src'"):
        convreg.onnx.call_of(made)
    every = convreg.onnx.node_model("onednn::Convolution", dyadic(RNG, (1, 6, 4)), dyadic(RNG, (3, 4, 2)),
                                    as_inputs=np.array(["src", "weights"]), **SMALL)
    assert [entry.name for entry in every.graph.input] == ["src", "weights"]
    with pytest.raises(GraphError, match=r"as_inputs names \['bias', 'source'\]; the call has \['src', 'weights'\]"):
        convreg.onnx.node_model("onednn::Convolution", dyadic(RNG, (1, 6, 4)), dyadic(RNG, (3, 4, 2)),
                                as_inputs=["source", "bias"], **SMALL)


def test_bad_calls_are_not_exported():
    with pytest.raises(OpError, match="R22"):
        convreg.onnx.node_model("onednn::Convolution", dyadic(RNG, (1, 6, 4)), dyadic(RNG, (3, 3, 2)), **SMALL)
    with pytest.raises(convreg.UnknownOp):
        convreg.onnx.node_model("onednn::Convolutio", *PAIR, **SMALL)
    for extra in ({"threads": 1}, {"out": np.empty((1, 4, 2), np.float32)}):
        with pytest.raises(GraphError, match="cannot hold"):
            convreg.onnx.node_model("onednn::Convolution", dyadic(RNG, (1, 6, 4)), dyadic(RNG, (3, 4, 2)), **SMALL,
                                    **extra)


def test_large_views_are_not_copied_into_a_model(monkeypatch):
    """They take no memory, and the tensors of a model do; inputs of the graph are not copied."""
    monkeypatch.setenv("CONVREG_MAX_BYTES", str(2**20))
    wide, weights = np.broadcast_to(np.float32(1), (1, 3, 2**18)), np.ones((4, 3, 1), np.float32)
    settings = {**SMALL, "data_format": "NCX", "weights_format": "OIX"}
    tracemalloc.start()
    try:
        for as_inputs in (False, ["weights"]):
            with pytest.raises(OpError, match=r"src=.*CONVREG_MAX_BYTES.*as_inputs") as caught:
                convreg.onnx.node_model("onednn::Convolution", wide, weights, **settings, as_inputs=as_inputs)
            assert (caught.value.argument, caught.value.rule) == ("src", "max_bytes")
        convreg.onnx.node_model("onednn::Convolution", wide, weights, **settings, as_inputs=["src"])
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_graphs_that_are_no_call():
    relu = helper.make_node("Relu", ["x"], ["y"])
    with pytest.raises(GraphError, match="the graph has 2 nodes"):
        convreg.onnx.call_of(model([relu, relu], [value("x", [1])], [value("y", [1])]))
    with pytest.raises(GraphError, match="::Relu is not an operator"):
        convreg.onnx.call_of(model([relu], [value("x", [1])], [value("y", [1])]))
