"""Golden vectors, and the command that writes every format."""

from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import onnx
import pytest
from convreg.tools.cli import main
from convreg.tools.onnx_io import export_golden, export_model, golden, import_ir
from drawn import dyadic, normal
from drawn_scales import drawn_scales
from emulated_calls import EIGHT_BIT, emulated_calls
from graphs import data_gradient, model, value
from hypothesis import given, settings
from hypothesis import strategies as st
from model_files import arrays_of
from onnx import helper

import convreg
import convreg.onnx
from convreg import GraphError

RNG = np.random.default_rng(9)
CASE = {"strides": [2, 1], "pads_begin": [1, 0], "pads_end": [0, 1], "dilations": [1, 2], "data_format": "NCX",
        "weights_format": "OIX"}


def gradient(dtype=np.float32, **stated) -> onnx.ModelProto:
    nodes = [data_gradient(["dy", "w"], "g", dst_shape=[1, 3, 5, 5], **stated), helper.make_node("Relu", ["g"], ["dx"])]
    return model(nodes, [value("dy", (1, 2, 5, 5), dtype)], [value("dx", (1, 3, 5, 5), dtype)],
                 {"w": normal(RNG, (2, 3, 3, 3), dtype)})


def test_model(tmp_path):
    """The float64 reference is exact, the result rounded; every array and the description need NumPy alone."""
    source, dy = gradient(), normal(RNG, (1, 2, 5, 5))
    path = tmp_path / "g.npz"
    export_golden(source, path, {"dy": dy})
    arrays = arrays_of(path)
    assert sorted(arrays) == ["const_w", "description", "f64_dx", "in_dy", "out_dx"]
    np.testing.assert_array_equal(arrays["in_dy"], dy)
    np.testing.assert_array_equal(arrays["out_dx"], convreg.onnx.run(source, {"dy": dy})["dx"])
    exact = np.zeros((1, 3, 7, 7))
    for y, x in np.ndindex(5, 5):
        exact[0, :, y:y + 3, x:x + 3] += np.einsum(
            "o,oiyx->iyx", dy[0, :, y, x].astype(float), arrays["const_w"].astype(float))
    np.testing.assert_allclose(arrays["f64_dx"], np.maximum(exact[:, :, 1:-1, 1:-1], 0), rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(arrays["out_dx"], arrays["f64_dx"], rtol=1e-5, atol=1e-5)
    assert not np.array_equal(arrays["out_dx"], arrays["f64_dx"])
    description = json.loads(str(arrays["description"]))
    assert [node["op_type"] for node in description["nodes"]] == ["ConvolutionBackwardData", "Relu"]
    assert description["nodes"][0]["attributes"]["dst_shape"] == [1, 3, 5, 5]
    assert description["formats"]["f64_dx"] == "float64"


@pytest.mark.parametrize(("dtype", "stored"), [
    (ml_dtypes.bfloat16, np.uint16), (np.float16, np.float16)])
def test_narrow_formats_are_stored_as_bits(dtype, stored):
    source, dy = gradient(dtype), normal(RNG, (1, 2, 5, 5), dtype)
    arrays = golden(source, {"dy": dy})
    assert arrays["out_dx"].dtype == stored
    result = arrays["out_dx"].view(dtype)
    np.testing.assert_array_equal(result, convreg.onnx.run(source, {"dy": dy})["dx"])
    assert arrays["f64_dx"].dtype == np.float64
    np.testing.assert_array_equal(arrays["f64_dx"].astype(np.float32).astype(dtype), result)
    assert json.loads(str(arrays["description"]))["formats"]["out_dx"] == np.dtype(dtype).name


def test_call():
    """A call holds its own inputs; a stated shape stays an attribute, masked outputs do not appear."""
    dy, w = normal(RNG, (1, 4, 3, 5)), normal(RNG, (4, 2, 3, 3))
    source = convreg.onnx.node_model("onednn::ConvolutionBackwardData", dy, w, [1, 4, 6, 8], groups=2, **CASE)
    call = convreg.onnx.call_of(source)
    arrays = golden(call)
    assert sorted(arrays) == ["description", "f64_diff_src", "in_diff_dst", "in_weights", "out_diff_src"]
    np.testing.assert_array_equal(arrays["out_diff_src"], call.operator(*call.inputs, **call.attributes))
    with pytest.raises(GraphError, match="its own inputs"):
        golden(call, {"diff_dst": dy})


def test_hifloat8_nodes():
    """The reference takes the numbers that the bytes mean, and rounds nothing; HF32 has one too."""
    arrays = [normal(RNG, shape) for shape in ((1, 2, 5, 5), (1, 3, 5, 5), (2, 3, 3, 3))]
    stated = {"stride": [1, 1], "padding": [1, 1], "dilation": [1, 1], "output_mask": [True, False, False]}
    narrow = [convreg.quantize(array, "hifloat8") for array in arrays]
    source = convreg.onnx.node_model("ascend::ConvolutionBackward", *narrow, **stated, as_inputs=True)
    names = ("gradOutput", "input", "weight")
    for entry in (*source.graph.input, *source.graph.output):  # the node alone says what its bytes are
        del entry.metadata_props[:]
    made = golden(source, dict(zip(names, (array.view(np.uint8) for array in narrow), strict=True)))
    expected = convreg.ascend.convolution_backward.reference(*narrow, **stated)[0]
    np.testing.assert_allclose(made["f64_gradInput"], expected, rtol=1e-13, atol=1e-13)
    np.testing.assert_array_equal(made["out_gradInput"], convreg.quantize(expected, "hifloat8").view(np.uint8))
    formats = json.loads(str(made["description"]))["formats"]
    assert {formats[f"in_{name}"] for name in names} | {formats["out_gradInput"]} == {"hifloat8"}

    source = convreg.onnx.node_model("ascend::ConvolutionBackward", *arrays, **stated, cube_math_type=1, as_inputs=True)
    made = golden(source, dict(zip(names, arrays, strict=True)))
    expected = convreg.ascend.convolution_backward.reference(*arrays, **stated)[0]
    np.testing.assert_allclose(made["f64_gradInput"], expected, rtol=1e-13, atol=1e-13)
    assert not np.allclose(made["out_gradInput"], expected, rtol=1e-6, atol=0)


@settings(max_examples=40)
@given(emulated_calls(formats=EIGHT_BIT, special=False), st.data())
def test_any_formats_and_scales(call, data):
    """The reference of an emulated node is that of the function: exact operands times exact scales."""
    rng = np.random.default_rng(1)
    scales, _ = drawn_scales(call, rng, lambda _: data.draw(st.sampled_from(["none", "tensor", "channel"])))
    call = call._replace(arguments={**call.arguments, "scales": scales})
    source = call.model
    ports = [port.name for port in convreg.get(call.name).spec.scale_ports]
    made = golden(source, {**call.feeds, **{port: scale for port, scale in zip(ports, scales, strict=True)
                                            if scale is not None}})
    expected = convreg.get(call.name).reference(*call.tensors, **call.arguments)
    names = [entry.name for entry in source.graph.output]
    for name, exact in zip(names, expected if isinstance(expected, tuple) else (expected,), strict=True):
        np.testing.assert_allclose(made[f"f64_{name}"], exact, rtol=1e-12, atol=1e-12)


def test_conversions_around_moved_bytes():
    """Quantize, Concat of bytes with a constant, Pad, Dequantize: the reference divides and multiplies alone."""
    x, scale = normal(RNG, (2, 3)), np.float32(3)
    constant = convreg.quantize(normal(RNG, (2, 2)), "hifloat8")
    nodes = [helper.make_node("Quantize", ["x", "scale"], ["a"], domain="convreg", rounding="toward_zero"),
             helper.make_node("Concat", ["a", "c"], ["b"], axis=1),
             helper.make_node("Pad", ["b", "pads"], ["moved"]),
             helper.make_node("Dequantize", ["moved", "scale"], ["y"], domain="convreg", operand_types=["hifloat8"])]
    source = model(nodes, [value("x", (2, 3))], [value("y", (2, 6))], {
        "scale": scale, "c": constant.view(np.uint8), "pads": np.array([0, 0, 0, 1])})
    source.opset_import.add(domain="convreg", version=1)
    made = golden(source, {"x": x})
    np.testing.assert_array_equal(made["const_c"], constant.view(np.uint8))
    numbers = convreg.dequantize(constant, dtype=np.float64)
    expected = np.concatenate([x.astype(float) / 3 * 3, numbers * 3, np.zeros((2, 1))], axis=1)
    np.testing.assert_allclose(made["f64_y"], expected, rtol=1e-15)
    assert not np.allclose(made["out_y"], expected, rtol=1e-3)


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(gradient().SerializeToString())
    return path


def test_command(saved, capsys):
    for suffix in (".xml", ".json", ".npz"):
        assert main(["export", str(saved), "-o", str(saved.with_suffix(suffix))]) == 0
    assert capsys.readouterr().out.count("written") == 3
    dy = dyadic(RNG, (1, 2, 5, 5))
    result = convreg.onnx.run(import_ir(saved.with_suffix(".xml")), {"dy": dy})["dx"]
    np.testing.assert_array_equal(result, convreg.onnx.run(saved, {"dy": dy})["dx"])


def test_command_takes_inputs_and_a_seed(saved, tmp_path):
    dy = dyadic(RNG, (1, 2, 5, 5))
    np.save(tmp_path / "dy.npy", dy)
    runs = {"given": ["-i", f"dy={tmp_path / 'dy.npy'}"], "first": ["--seed", "1"], "again": ["--seed", "1"]}
    for name, options in runs.items():
        assert main(["export", str(saved), "-o", str(tmp_path / f"{name}.npz"), *options]) == 0
    found = {name: arrays_of(tmp_path / f"{name}.npz")["in_dy"] for name in runs}
    np.testing.assert_array_equal(found["given"], dy)
    np.testing.assert_array_equal(found["first"], found["again"])


@pytest.mark.parametrize(("arguments", "message"), [
    (["-o", "out.pb"], "suffix"), (["-o", "out.xml", "-i", "dy=random"], "take inputs"),
    (["-o", "out.npz", "-i", "no=random"], "no input"), (["-o", "missing/out.json"], "cannot be written")])
def test_command_fails_with_one_message_and_no_file(saved, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(saved.parent)
    assert main(["export", str(saved), *arguments]) == 1
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.err.count("\n") == 1
    assert [path.name for path in saved.parent.iterdir()] == ["model.onnx"]


def test_python_entry(tmp_path):
    export_model(gradient(), tmp_path / "g.npz", {"dy": dyadic(RNG, (1, 2, 5, 5))})
    assert "out_dx" in arrays_of(tmp_path / "g.npz")
