"""Operators without a rule that onnx defines by simpler ones: their gradients, and what stays as it is."""

import numpy as np
import onnx.parser
import pytest
from gradient_models import assert_gradient, weighted, with_loss
from onnx import helper, numpy_helper

import convreg.onnx
from convreg.onnx.training.prepare import prepare


@pytest.mark.parametrize(("op_type", "opset", "shapes", "attributes"), [
    ("Swish", 24, [(3, 4)], {"alpha": 1.5}),
    ("Swish", 24, [(3, 4)], {}),
    ("Shrink", 20, [(3, 4)], {}),
    ("Shrink", 20, [(3, 4)], {"lambd": 0.2, "bias": 0.1}),
    ("Attention", 23, [(2, 3, 4), (2, 5, 4), (2, 5, 4)], {"q_num_heads": 2, "kv_num_heads": 2}),
    ("Attention", 24, [(2, 4, 3, 2), (2, 2, 3, 2), (2, 2, 3, 2)], {"is_causal": 1}),
])
def test_gradients_against_differences(op_type, opset, shapes, attributes):
    rng = np.random.default_rng(0)
    given = {name: rng.normal(size=shape) for name, shape in zip("abc", shapes, strict=False)}
    nodes = [helper.make_node(op_type, [*given], ["y"], **attributes)]
    feeds = weighted(nodes, given, ["y"], opset=opset)
    model = with_loss(nodes, feeds, ["y"], opset=opset, open_batch=True)
    made = convreg.onnx.run(convreg.onnx.gradient(model, "loss", [*given]), feeds, engine="reference")
    for name in given:
        assert_gradient(made[f"{name}_grad"], model, feeds, name)


def language_model():
    """A block of a Transformer as exporters write it for version 23, with an open batch."""
    rng = np.random.default_rng(0)
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 23]> block (float[N,5,8] x) => (float[N,8,5] y) {
            [first] n = RMSNormalization(x, scale)
            h = MatMul(n, w)
            q, k, v = Split<axis=2, num_outputs=3>(h)
            [heads] a = Attention<q_num_heads=2, kv_num_heads=2, is_causal=1>(q, k, v)
            r = Add(a, x)
            [second] m = RMSNormalization(r, scale)
            y = Transpose<perm=[0, 2, 1]>(m)
        }""")
    weights = {"w": rng.normal(size=(8, 24)), "scale": rng.uniform(0.5, 1.5, 8)}
    model.graph.initializer.extend(numpy_helper.from_array(array.astype(np.float32), name)
                                   for name, array in weights.items())
    x, target = rng.standard_normal((3, 5, 8)).astype(np.float32), rng.integers(8, size=(3, 5))
    return model, weights, x, target


@pytest.mark.parametrize("engine", ["reference", "onnxruntime"])
def test_a_transformer_of_version_23_trains_as_in_torch(engine):
    if engine == "onnxruntime":
        pytest.importorskip("onnxruntime")
    torch = pytest.importorskip("torch")
    model, weights, x, target = language_model()
    w, scale = (torch.tensor(weights[name], requires_grad=True) for name in ("w", "scale"))
    data = torch.tensor(x, dtype=torch.float64)

    def normalised(value):
        return value / torch.sqrt((value * value).mean(-1, keepdim=True) + 1e-5) * scale

    heads = [part.reshape(3, 5, 2, 4).transpose(1, 2) for part in (normalised(data) @ w).split(8, 2)]
    mixed = torch.nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
    scores = normalised(mixed.transpose(1, 2).reshape(3, 5, 8) + data).transpose(1, 2)
    loss = torch.nn.functional.cross_entropy(scores, torch.tensor(target))
    loss.backward()

    step = convreg.onnx.training_step(model, learning_rate=1)
    convreg.onnx.check(step)
    done = convreg.onnx.run(step, {"x": x, "target": target}, engine=engine)
    assert abs(float(done["loss"]) - loss.item()) < 1e-6
    for name, tensor in (("w", w), ("scale", scale)):
        np.testing.assert_allclose(done[f"{name}.next"], weights[name] - tensor.grad.numpy(), atol=2e-6)
    exported = convreg.onnx.Trainer(step, engine="reference").export()
    assert [node.op_type for node in exported.graph.node] == [node.op_type for node in model.graph.node]


def test_operators_with_a_rule_and_those_without_gradients_stay():
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 20]> g (float[N,4] x) => (float[N,4] y) {
            a = Gelu(x)
            b = Bernoulli(x)
            c = GreaterOrEqual(a, b)
            y = Where(c, a, x)
        }""")
    assert [node.op_type for node in prepare(model).graph.node] == ["Gelu", "Bernoulli", "GreaterOrEqual", "Where"]


def test_a_rule_of_the_user_comes_first(rules):
    @rules.gradient_of("Shrink")
    def shrink(step):
        """Twice ``g``."""
        return step.g * 2

    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 20]> g (float[4] x) => (float[4] y) { y = Shrink<lambd=0.5>(x) }""")
    made = convreg.onnx.run(convreg.onnx.gradient(model, "y", ["x"]), {"x": np.ones(4, np.float32)})
    assert made["x_grad"].tolist() == [2, 2, 2, 2]
