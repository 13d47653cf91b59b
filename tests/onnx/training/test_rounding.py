"""Operands of products rounded to a format: the forward pass and its gradients."""

import numpy as np
import pytest
from forward_models import FORWARD, build
from gradient_models import with_loss
from onnx import helper

import convreg
import convreg.onnx
from convreg.errors import GraphError


def rounded(array, format):
    return convreg.dequantize(convreg.quantize(array, format, saturate=True), format).astype(np.float32)


@pytest.mark.parametrize("format", ["hifloat8", "float8_e4m3fn", "bfloat16"])
def test_operands_of_gradients_are_rounded_and_nothing_else(format):
    rng = np.random.default_rng(0)
    feeds = {"x": rng.normal(size=(2, 3, 6, 5)).astype(np.float32), "w": rng.normal(size=(4, 3, 3, 3)).astype(
        np.float32), "b": rng.normal(size=4).astype(np.float32)}
    weights = {"y.weight": rng.normal(size=(2, 4, 6, 5)).astype(np.float32)}
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], pads=[1, 1, 1, 1])
    model = with_loss([node], {**feeds, **weights}, ["y"])
    model.graph.output[0].type.tensor_type.elem_type = 1
    made = convreg.onnx.run(convreg.onnx.gradient(model, "loss", list(feeds), format=format), {**feeds, **weights},
                            engine="reference")
    expected = convreg.aten.convolution_backward(
        *(rounded(array, format) for array in (weights["y.weight"], feeds["x"], feeds["w"])), [4], [1, 1], [1, 1],
        [1, 1], False, [0, 0], 1, [True, True, True])
    for name, array in zip(feeds, expected, strict=True):
        np.testing.assert_array_equal(made[f"{name}_grad"], array)


def test_the_products_of_dense_layers_are_rounded_too():
    rng = np.random.default_rng(1)
    feeds = {"a": rng.normal(size=(3, 4)).astype(np.float32), "b": rng.normal(size=(4, 5)).astype(np.float32)}
    weight = rng.normal(size=(3, 5)).astype(np.float32)
    for op_type in ("MatMul", "Gemm"):
        model = with_loss([helper.make_node(op_type, ["a", "b"], ["y"])], {**feeds, "y.weight": weight}, ["y"])
        model.graph.output[0].type.tensor_type.elem_type = 1
        made = convreg.onnx.run(convreg.onnx.gradient(model, "loss", ["a", "b"], format="hifloat8"),
                                {**feeds, "y.weight": weight}, engine="reference")
        a, b, g = (rounded(array, "hifloat8") for array in (feeds["a"], feeds["b"], weight))
        np.testing.assert_allclose(made["a_grad"], g @ b.T, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(made["b_grad"], a.T @ g, rtol=1e-6, atol=1e-6)


def test_the_bias_of_a_dense_layer_sums_gradients_as_they_are():
    """It is no product, and Gemm's gradients do not share a node with it, as those of Conv do."""
    rng = np.random.default_rng(2)
    shapes = {"a": (3, 4), "b": (4, 5), "c": (5,), "y.weight": (3, 5)}
    feeds = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    model = with_loss([helper.make_node("Gemm", ["a", "b", "c"], ["y"])], feeds, ["y"])
    model.graph.output[0].type.tensor_type.elem_type = 1
    made = convreg.onnx.run(convreg.onnx.gradient(model, "loss", ["c"], format="hifloat8"), feeds, engine="reference")
    np.testing.assert_allclose(made["c_grad"], feeds["y.weight"].sum(0), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["residual", "unet", "convnext", "three_dimensions"])
def test_networks_run_in_hifloat8(name):
    model, feeds = build(name)
    parameters = list(FORWARD[name].parameters)
    wide = convreg.onnx.run(convreg.onnx.gradient(model, "loss", parameters), feeds)
    narrow = convreg.onnx.gradient(model, "loss", parameters, format="hifloat8", forward_format="hifloat8")
    for dialect in ("aten", "onednn", "ascend"):
        made = convreg.onnx.run(convreg.onnx.translate(narrow, dialect), feeds)
        assert abs(made["loss"] - wide["loss"]) < 0.05 * wide["loss"]
        for parameter in (parameter for parameter in parameters if parameter in ("w2", "w4", "f1", "fc_w")):
            one, two = (results[f"{parameter}_grad"].ravel() for results in (wide, made))
            assert one @ two / np.linalg.norm(one) / np.linalg.norm(two) > 0.7
    with pytest.raises(GraphError, match="hifloat8 has no element type"):
        convreg.onnx.lower(narrow)


def test_formats_that_onnx_has_are_lowered():
    model, feeds = build("branches")
    narrow = convreg.onnx.gradient(model, "loss", ["w1"], format="float8_e5m2", forward_format="bfloat16")
    made, lowered = (convreg.onnx.run(whole, feeds) for whole in (narrow, convreg.onnx.lower(narrow)))
    np.testing.assert_allclose(made["w1_grad"], lowered["w1_grad"], rtol=0, atol=1e-6)


def test_only_float32_is_rounded():
    model, _ = build("branches", np.float64)
    with pytest.raises(GraphError, match="float64; operands that are rounded to hifloat8 are float32"):
        convreg.onnx.gradient(model, "loss", ["w1"], format="hifloat8")
