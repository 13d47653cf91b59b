"""Quantize and Dequantize as nodes: what the functions compute, scales, and a chain through one of our gradients."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import convreg
import convreg.onnx
from convreg.errors import GraphError, OpError

NARROW = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "hifloat8")
FLOAT32_MAX = float(np.finfo(np.float32).max)
VALUES = np.concatenate([np.random.default_rng(5).standard_normal(1000) * 100,
                         [0, -0.0, np.inf, -np.inf, np.nan, 1e-7, 1e9]]).astype(np.float32).reshape(19, 53)


def codes(array):
    return array.view(f"u{array.itemsize}")


def model(nodes, inputs, outputs):
    return helper.make_model(
        helper.make_graph(nodes, "chain", inputs, outputs), ir_version=10,
        opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("convreg", 1),
                       helper.make_opsetid("convreg.ascend", 1)])


@pytest.mark.parametrize("format", NARROW)
@pytest.mark.parametrize("chosen", [{}, {"rounding": "half_away", "saturate": True},
                                    {"rounding": "stochastic", "seed": 9}])
def test_quantize_is_the_function(format, chosen):
    expected = convreg.quantize(VALUES, format, **chosen)
    made = convreg.onnx.node_model("nodes::Quantize", VALUES, format=format, **chosen, as_inputs=True)
    convreg.onnx.check(made)
    for result in (convreg.nodes.quantize(VALUES, format=format, **chosen),
                   convreg.onnx.run(made, {"x": VALUES})["y"]):
        assert result.dtype == expected.dtype
        assert np.array_equal(codes(result), codes(expected))


@pytest.mark.parametrize("engine", ["reference", "onnxruntime"])
@pytest.mark.parametrize("format", NARROW)
def test_there_and_back_with_a_scale(format, engine):
    if engine == "onnxruntime":
        pytest.importorskip("onnxruntime")
    scale = np.float32([[0.25], [8]] * 9 + [[3]])
    types = {"operand_types": ["hifloat8"]} if format == "hifloat8" else {}
    nodes = [helper.make_node("Quantize", ["x", "scale"], ["codes"], domain="convreg", format=format, saturate=1),
             helper.make_node("Dequantize", ["codes", "scale"], ["y"], domain="convreg", **types)]
    made = model(nodes, [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 53]),
                         helper.make_tensor_value_info("scale", TensorProto.FLOAT, ["N", 1])],
                 [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 53])])
    convreg.onnx.check(made)
    with np.errstate(all="ignore"):
        expected = convreg.dequantize(convreg.quantize(VALUES / scale, format, saturate=True)) * scale
    result = convreg.onnx.run(made, {"x": VALUES, "scale": scale}, engine=engine)["y"]
    assert np.array_equal(result, expected, equal_nan=True)


def test_a_gradient_between_conversions():
    """Quantize, the gradient in hifloat8, Dequantize: bytes in between, the values of the functions."""
    shapes = (2, 4, 6), (2, 3, 6), (4, 3, 3)
    random = np.random.default_rng(1)
    arrays = [random.standard_normal(shape).astype(np.float32) for shape in shapes]
    names = ("dy", "x", "w")
    nodes = [helper.make_node("Quantize", [name], [f"{name}8"], domain="convreg") for name in names]
    nodes += [helper.make_node("ConvolutionBackward", [f"{name}8" for name in names], ["gx8", "gw8"],
                               domain="convreg.ascend", operand_types=["hifloat8"] * 3, stride=[1], padding=[1],
                               dilation=[1], outputMask=[1, 1, 0]),
              helper.make_node("Dequantize", ["gw8"], ["gw"], domain="convreg", operand_types=["hifloat8"])]
    made = model(nodes, [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
                         for name, shape in zip(names, shapes, strict=True)],
                 [helper.make_tensor_value_info("gw", TensorProto.FLOAT, shapes[2])])
    convreg.onnx.check(made)
    narrow = [convreg.quantize(array, "hifloat8") for array in arrays]
    expected = convreg.ascend.convolution_backward(*narrow, stride=[1], padding=[1], dilation=[1],
                                                   output_mask=[True, True, False])[1]
    result = convreg.onnx.run(made, dict(zip(names, arrays, strict=True)))["gw"]
    assert np.array_equal(result, convreg.dequantize(expected))


@pytest.mark.parametrize("engine", ["reference", "onnx", "onnxruntime"])
@pytest.mark.parametrize("saturate", [0, 1])
@pytest.mark.parametrize("format", NARROW[:-1])
def test_lowered_to_casts(format, saturate, engine):
    """The same numbers from standard nodes, in every runtime; functions hold the same nodes."""
    scale = np.float32([[0.25]] * 18 + [[0.75]])
    around = np.linspace(0.9, min(1.2, FLOAT32_MAX / (limit := convreg.formats()[format].largest)), VALUES.size) * limit
    x = np.concatenate([VALUES, np.float32(around).reshape(VALUES.shape) * scale])
    scale = np.concatenate([scale, scale])
    nodes = [helper.make_node("Quantize", ["x", "scale"], ["codes"], domain="convreg", format=format,
                              saturate=saturate),
             helper.make_node("Dequantize", ["codes", "scale"], ["y"], domain="convreg")]
    made = model(nodes, [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 53]),
                         helper.make_tensor_value_info("scale", TensorProto.FLOAT, ["N", 1])],
                 [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 53])])
    expected = convreg.onnx.run(made, {"x": x, "scale": scale})["y"]
    assert np.isinf(expected).any() != (saturate or format == "float8_e4m3fn")
    for written in (convreg.onnx.lower(made), convreg.onnx.attach_functions(made)):
        onnx.checker.check_model(written)
        result = run_elsewhere(onnx.inliner.inline_local_functions(written), engine, {"x": x, "scale": scale})
        np.testing.assert_array_equal(result, expected)


def run_elsewhere(made, engine, feeds):
    assert all(node.domain == "" for node in made.graph.node)
    with np.errstate(all="ignore"):
        if engine == "reference":
            return convreg.onnx.run(made, feeds)["y"]
        if engine == "onnx":
            return onnx.reference.ReferenceEvaluator(made).run(None, feeds)[0]
        onnxruntime = pytest.importorskip("onnxruntime")
        return onnxruntime.InferenceSession(made.SerializeToString()).run(None, feeds)[0]


@pytest.mark.parametrize(("chosen", "reason"), [
    ({}, "hifloat8 has no element type"), ({"format": "bfloat16", "rounding": "half_away"}, "because Cast lacks it")])
def test_what_cast_cannot_do_is_not_lowered(chosen, reason):
    made = convreg.onnx.node_model("nodes::Quantize", VALUES, **chosen, as_inputs=True)
    with pytest.raises(GraphError, match=reason):
        convreg.onnx.lower(made)
    assert convreg.onnx.translate(made, to="onednn").graph.node[0].op_type == "Quantize"
    with pytest.raises(GraphError, match=reason):
        convreg.onnx.translate(made, to="onednn", rest="lower")


@pytest.mark.parametrize("to", ["ascend", "onednn", "openvino", "aten"])
def test_the_rest_of_a_translation_includes_conversions(to):
    made = convreg.onnx.node_model("nodes::Quantize", VALUES, np.float32(4), format="float8_e5m2", as_inputs=True)
    assert convreg.onnx.translate(made, to).graph.node == made.graph.node
    written = convreg.onnx.translate(made, to, rest="lower")
    assert written.SerializeToString() == convreg.onnx.lower(made).SerializeToString()
    assert not [node.op_type for node in written.graph.node if node.domain]


def test_bytes_need_a_name():
    nodes = [helper.make_node("Dequantize", ["x"], ["y"], domain="convreg")]
    made = model(nodes, [helper.make_tensor_value_info("x", TensorProto.UINT8, [3])],
                 [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])])
    with pytest.raises(GraphError, match="uint8"):
        convreg.onnx.check(made)


@pytest.mark.parametrize("arguments", [
    {"format": "float32"}, {"format": "float16", "rounding": "hybrid"}, {"scale": np.ones((2, 1, 1), np.float32)},
    {"scale": np.ones(52, np.float32)}, {"seed": -1},
])
def test_refused(arguments):
    with pytest.raises(OpError):
        convreg.nodes.quantize(VALUES, **arguments)


def test_any_strides_and_no_elements():
    out = np.zeros((53, 19), np.uint8).view(convreg.hifloat8).T
    assert convreg.nodes.quantize(VALUES, np.float32(2), out=out) is out
    assert np.array_equal(codes(np.ascontiguousarray(out)), codes(convreg.quantize(VALUES / 2, "hifloat8")))
    assert convreg.nodes.dequantize(convreg.nodes.quantize(np.empty((0, 3), np.float32))).shape == (0, 3)


def test_the_reference_rounds_nothing():
    assert np.array_equal(convreg.nodes.quantize.reference(VALUES, np.float32(3)), VALUES.astype(np.float64) / 3,
                          equal_nan=True)


def test_schemas_are_known():
    convreg.onnx.run(convreg.onnx.node_model("nodes::Quantize", VALUES))
    schema = onnx.defs.get_schema("Quantize", 1, "convreg")
    assert schema.attributes.keys() == {"format", "rounding", "saturate", "seed"}
