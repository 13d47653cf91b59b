"""Dropout and what exporters write in its place: the gradient passes the mask that the forward pass drew."""

import numpy as np
import onnx.parser
import pytest
from onnx import TensorProto, helper

import convreg.onnx
from convreg.onnx.training.prepare import prepare
from convreg.onnx.training.reverse_pass import add_gradients

HEADER = '<ir_version: 10, opset_import: ["": 20]>'


@pytest.fixture(params=["reference", "onnxruntime"])
def engine(request):
    if request.param == "onnxruntime":
        pytest.importorskip("onnxruntime")
    return request.param


def gradients(model, feeds, engine, wrt=("x",)):
    return convreg.onnx.run(convreg.onnx.gradient(model, "loss", wrt), feeds, engine=engine)


@pytest.mark.parametrize("ratio", ["0.25", "0.5"])
def test_dropout_passes_its_own_mask(engine, ratio):
    model = onnx.parser.parse_model(f"""{HEADER}
        g (float[N,40] x) => (float loss, float[N,40] y) {{
            r = Constant<value_float={ratio}>()
            t = Constant<value = bool {{1}}>()
            y = Dropout(x, r, t)
            loss = ReduceSum<keepdims=0>(y)
        }}""")
    x = np.random.default_rng(0).normal(size=(5, 40)).astype(np.float32) + 5
    made = gradients(model, {"x": x}, engine)
    np.testing.assert_allclose(made["x_grad"] * x, made["y"], rtol=1e-6)
    assert 0 < (made["x_grad"] == 0).mean() < 1


def test_the_mode_of_dropout_may_be_an_input(engine):
    model = onnx.parser.parse_model(f"""{HEADER}
        g (float[N,40] x, float ratio, bool training) => (float loss, float[N,40] y) {{
            y = Dropout(x, ratio, training)
            loss = ReduceSum<keepdims=0>(y)
        }}""")
    x = np.random.default_rng(0).normal(size=(5, 40)).astype(np.float32) + 5
    for training in (True, False):
        made = gradients(model, {"x": x, "ratio": np.float32(0.25), "training": np.bool_(training)}, engine)
        np.testing.assert_allclose(made["x_grad"] * x, made["y"], rtol=1e-6)
        assert (made["x_grad"] == 1).all() != training


def test_dropout_taken_apart_passes_its_own_mask(engine):
    """RandomUniformLike, a comparison and arithmetic, as newer exporters write stochastic depth."""
    model = onnx.parser.parse_model(f"""{HEADER}
        g (float[N,40] x) => (float loss, float[N,40] y) {{
            drawn = RandomUniformLike(x)
            keep = Constant<value_float=0.75>()
            kept = Less(drawn, keep)
            mask = Cast<to=1>(kept)
            scaled = Div(mask, keep)
            y = Mul(x, scaled)
            loss = ReduceSum<keepdims=0>(y)
        }}""")
    x = np.random.default_rng(0).normal(size=(5, 40)).astype(np.float32) + 5
    made = gradients(model, {"x": x}, engine)
    np.testing.assert_allclose(made["x_grad"] * x, made["y"], rtol=1e-6)


def test_a_seed_multiplies_every_gradient():
    model = onnx.parser.parse_model(f"""{HEADER}
        g (float[2,3] x, float scale) => (float loss) {{ s = Mul(x, x) loss = ReduceSum<keepdims=0>(s) }}""")
    whole, names = add_gradients(prepare(model), "loss", ["x"], seed="scale")
    whole.graph.output.append(helper.make_tensor_value_info(names["x"], TensorProto.FLOAT, [2, 3]))
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    made = convreg.onnx.run(whole, {"x": x, "scale": np.float32(8)})
    np.testing.assert_array_equal(made["x_grad"], 16 * x)


def test_the_sum_of_a_value_with_several_elements_is_differentiated():
    model = onnx.parser.parse_model(f"{HEADER} g (float[N,3] x) => (float[N,3] y) {{ y = Mul(x, x) }}")
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    made = convreg.onnx.run(convreg.onnx.gradient(model, "y", ["x"]), {"x": x})
    np.testing.assert_array_equal(made["x_grad"], 2 * x)
