"""Gradient calls out of models, and `convreg numerics` on layers, arrays and models."""

from __future__ import annotations

import json

import numpy as np
import pytest
from convreg.tools.cli import main
from graphs import data_gradient, model, value
from onnx import helper
from places import ROOT

import convreg
import convreg.onnx
from convreg.errors import GraphError
from convreg.numerics import compare, draw

DIGITS = ROOT / "examples" / "digits" / "training_step.onnx"


# ---------------------------------------------------------------------------------------------------------------------
# Models


def test_gradient_calls_of_a_model():
    random = np.random.default_rng(0)
    w = random.standard_normal((2, 3, 3, 3), np.float32)
    net = model([data_gradient(["dy", "w"], "dx", dst_shape=[1, 3, 5, 5])], [value("dy", [1, 2, 5, 5])],
                [value("dx", [1, 3, 5, 5])], {"w": w})
    dy = random.standard_normal((1, 2, 5, 5), np.float32)
    calls = convreg.onnx.gradient_calls(net, {"dy": dy})
    assert list(calls) == ["gradient"]
    call = calls["gradient"]
    assert np.array_equal(call.operator(*call.inputs, **call.attributes), convreg.onnx.run(net, {"dy": dy})["dx"])


def test_gradient_calls_of_the_demo():
    """Three nodes: the first layer needs no gradient of its data."""
    random = np.random.default_rng(0)
    step = convreg.onnx.load(DIGITS)
    shapes = {entry.name: [dim.dim_value for dim in entry.type.tensor_type.shape.dim] for entry in step.graph.input}
    feeds = {name: random.normal(0, 0.1, shape).astype(np.float32) for name, shape in shapes.items()
             if name.startswith(("conv", "dense"))}
    feeds |= {"images": random.integers(0, 17, (4, 8, 8)).astype(np.uint8), "target": np.arange(4),
              "learning_rate": 0.1}
    calls = convreg.onnx.gradient_calls(step, feeds)
    assert sorted(call.operator.spec.name for call in calls.values()) == [
        "ConvolutionBackwardData", "ConvolutionBackwardWeights", "ConvolutionBackwardWeights"]
    last = list(calls.values())[-1]
    expected = convreg.onnx.run(step, {**feeds, **{name: np.zeros_like(array) for name, array in feeds.items()
                                                   if name.endswith(".velocity")}}, engine="reference")
    gradient = last.operator(*last.inputs, **last.attributes)
    np.testing.assert_array_equal(gradient, expected["conv1.weight.velocity.next"])


def test_models_without_gradients_and_engines_without_observers():
    conv = model([helper.make_node("Conv", ["x", "w"], ["y"])], [value("x", [1, 1, 3]), value("w", [1, 1, 1])],
                 [value("y", [1, 1, 3])])
    feeds = {"x": np.ones((1, 1, 3), np.float32), "w": np.ones((1, 1, 1), np.float32)}
    with pytest.raises(GraphError, match="no node that computes a gradient"):
        convreg.onnx.gradient_calls(conv, feeds)
    with pytest.raises(GraphError, match="observer"):
        convreg.onnx.Session(conv, engine="onnxruntime", observer=print)


# ---------------------------------------------------------------------------------------------------------------------
# The verb


def test_verb_on_a_layer(tmp_path, capsys):
    assert main(["numerics", "mb1ic3ih5oc4kh3ph1nsmall", "--formats", "bfloat16,float8_e5m2", "--draw", "student",
                 "--json", str(tmp_path / "found.json")]) == 0
    out, error = capsys.readouterr()
    assert "small data: onednn::ConvolutionBackwardData: diff_dst [1, 4, 5, 5]" in out
    assert "small weights: onednn::ConvolutionBackwardWeights" in out
    assert "1/2 small weights" in error
    read = json.loads((tmp_path / "found.json").read_text())
    assert list(read["comparisons"]) == ["small data", "small weights"]
    assert {row["format"] for row in read["comparisons"]["small data"]["rows"]} == {"bfloat16", "float8_e5m2"}


def test_verb_on_arrays(tmp_path, capsys):
    path = tmp_path / "call.npz"
    dy, x, w = (draw("normal", shape, seed) for seed, shape in enumerate([(2, 8, 6, 6), (2, 4, 6, 6), (8, 4, 3, 3)]))
    np.savez(path, grad_output=dy, input=x, weight=w, stride=[1, 1], padding=[1, 1], dilation=[1, 1], transposed=False,
             conformance="document")
    assert main(["numerics", str(path), "--op", "ascend::ConvolutionBackward", "--formats", "hifloat8", "--markdown",
                 "--unscaled", "--result", "float32"]) == 0
    out = capsys.readouterr().out
    layer = {"stride": [1, 1], "padding": [1, 1], "dilation": [1, 1]}
    found = compare("ascend::ConvolutionBackward", (dy, x, w), layer, formats=["hifloat8"], scaled=False,
                    result="float32")
    assert found.table(markdown=True) in out


def test_verb_on_a_model(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    random = np.random.default_rng(0)
    net = model([data_gradient(["dy", "w"], "dx", dst_shape=[1, 3, 5, 5])],
                [value("dy", ["n", 2, 5, 5]), value("w", [2, 3, 3, 3])], [value("dx", ["n", 3, 5, 5])])
    (tmp_path / "net.onnx").write_bytes(net.SerializeToString())
    dy = random.standard_normal((1, 2, 5, 5), np.float32)
    np.savez(tmp_path / "data.npz", dy=dy)
    assert main(["numerics", str(tmp_path / "net.onnx"), "--inputs", str(tmp_path / "data.npz"), "--random",
                 "--plot", str(tmp_path / "net.png")]) == 0
    assert "gradient: onednn::ConvolutionBackwardData: diff_dst [1, 2, 5, 5]" in capsys.readouterr().out
    assert (tmp_path / "net.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("arguments", "words"), [
    (["nolayer"], "is named 'nolayer', and it is no problem descriptor: descriptor 'nolayer' gives no ic"),
    (["resnet50_res2a_2c"], "named 'resnet50_res2a_2c' (did you mean resnet50_res2a_2b"),
    (["resnet51_*"], "no layer of `convreg bench` is named 'resnet51_*'"),
    (["nowhere.onnx"], "nowhere.onnx"),
    (["nowhere.npz", "--op", "aten::convolution_backward"], "cannot be read"),
    (["call.npz"], "--op"),
    (["mb1ic3ih5oc4kh3ph1", "--op", "aten::convolution_backward"], "ends in .npz"),
    (["mb1ic3ih5oc4kh3ph1", "--inputs", "data.npz"], "ends in .onnx"),
    (["mb1ic3ih5oc4kh3ph1", "--formats", "f8"], "no format named 'f8'"),
    (["mb1ic3ih5oc4kh3ph1", "--draw", "gauss"], "distribution='gauss'"),
    (["nowhere.onnx", "--draw", "normal"], "--draw needs a subject that is a layer"),
    (["mb1ic3ih5oc4kh3ph1", "--plot", "errors.gif"], "--plot='errors.gif' is refused: it has the suffix '.gif'"),
    (["mb1ic3ih5oc4kh3ph1", "--plot", "no/where.png"], "--plot='no/where.png' is refused: No such file or directory"),
    (["mb1ic3ih5oc4kh3ph1", "--json", "no/where.json"], "--json='no/where.json' is refused: No such file or directory"),
    (["mb1ic3ih5oc4kh3ph1", "--seed", "-1"], "seed=-1"),
])
def test_bad_arguments(tmp_path, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(tmp_path)
    assert main(["numerics", *arguments]) == 1
    out, error = capsys.readouterr()
    assert out == ""
    assert words in error
    assert error.splitlines()[-1].startswith("convreg: ")


def test_no_archive(tmp_path, capsys):
    (tmp_path / "call.npz").write_bytes(b"PK nothing")
    assert main(["numerics", str(tmp_path / "call.npz"), "--op", "aten::convolution_backward"]) == 1
    assert "not an archive" in capsys.readouterr().err
