"""Models written as OpenVINO IR, read back by the openvino package and by our own importer: equal values."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from convreg.tools.onnx_io import export_ir, export_model, import_ir
from drawn import convolutions, dyadic
from gradient_calls import forward, single, together
from graphs import data_gradient, model, value
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from ir_files import attributes, check_again, check_values, layers, openvino_values
from model_files import arrays_of
from onnx import helper, numpy_helper
from places import DATA, ROOT

import convreg
import convreg.onnx
from convreg import GraphError

CASES = DATA / "openvino_ir"
INDEX = json.loads((CASES / "index.json").read_text())["models"]
DIGITS = ROOT / "examples" / "digits" / "training_step.onnx"
SEEDS = st.integers(0, 2**32 - 1)
WRITTEN = settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
RNG = np.random.default_rng(11)
I64 = np.int64


def check_both(path: Path, source: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> None:
    """Values after our importer and in OpenVINO are those of the source."""
    check_again(path, source, feeds)
    check_values(openvino_values(path, feeds), convreg.onnx.run(source, feeds))


@pytest.mark.parametrize("case", INDEX, ids=lambda case: case["name"])
def test_imported_models_come_out_the_same(tmp_path, case):
    arrays = arrays_of((CASES / case["name"]).with_suffix(".npz"))
    feeds = {name: arrays[f"in_{name}"] for name in case["inputs"]}
    source = import_ir(CASES / f"{case['name']}.xml")
    path = tmp_path / "again.xml"
    export_ir(source, path)
    again = import_ir(path)
    assert [entry.name for entry in again.graph.output] == list(case["outputs"])
    for results in (convreg.onnx.run(again, feeds), openvino_values(path, feeds)):
        for name in case["outputs"]:
            np.testing.assert_array_equal(results[name], arrays[f"out_{name}"])


def compiles(taps: tuple[int, ...]) -> bool:
    """Whether the runtime is right about it: it is not about shifted windows of kernels of one tap."""
    return any(tap > 1 for tap in taps)


@WRITTEN
@given(convolutions(max_batch=2), SEEDS, st.integers(0, 4), st.sampled_from([("NCX", "OIX"), ("NXC", "XIO")]))
def test_single_gradients(tmp_path, case, seed, which, layouts):
    rng = np.random.default_rng(seed)
    call = single(case, lambda shape: dyadic(rng, shape), layouts)[which]
    assume(compiles(case.weights[2:]))
    check_both(tmp_path / "m.xml", call.model, call.feeds)


@WRITTEN
@given(convolutions(symmetric=True), SEEDS, st.integers(0, 3), st.booleans())
def test_gradients_together(tmp_path, case, seed, which, transposed):
    rng = np.random.default_rng(seed)
    mask = (True, True, True)
    call = together(case, lambda shape: dyadic(rng, shape), mask, transposed)[which]
    assume(compiles(case.weights[2:]))
    check_both(tmp_path / "m.xml", call.model, call.feeds)


@settings(WRITTEN, max_examples=10)
@given(convolutions(), SEEDS, st.integers(0, 1))
def test_forward_operators(tmp_path, case, seed, which):
    rng = np.random.default_rng(seed)
    call = forward(case, lambda shape: dyadic(rng, shape))[which]
    assume(compiles(case.weights[2:]))
    check_both(tmp_path / "m.xml", call.model, call.feeds)


def test_same_becomes_explicit(tmp_path):
    """An odd total lies where the runtime puts it, and no shape is stated where output_padding does."""
    x, w = dyadic(RNG, (1, 2, 3, 4)), dyadic(RNG, (2, 3, 3, 3))
    for mode in ("same_upper", "same_lower", "SAME_UPPER"):
        source = convreg.onnx.node_model(
            "openvino::ConvolutionBackpropData", x, w, np.array([6, 7]), strides=[2, 2], pads_begin=[0, 0],
            pads_end=[0, 0], dilations=[1, 1], auto_pad=mode.lower(), data_format="NCX", filter_format="OIX",
            conformance="openvino", as_inputs=["output_delta"])
        path = tmp_path / "same.xml"
        check_both(path, source, {"output_delta": x})
        written = attributes(path, "ConvolutionBackpropData")
        assert written["auto_pad"] == "explicit"
        assert len(layers(path, "ConvolutionBackpropData")[0].find("input")) == 2


def test_one_group_takes_the_plain_operation(tmp_path):
    x, w = dyadic(RNG, (1, 2, 4)), dyadic(RNG, (1, 2, 3, 3))
    source = convreg.onnx.node_model(
        "openvino::GroupConvolutionBackpropData", x, w, strides=[2], pads_begin=[1], pads_end=[0], dilations=[1],
        output_padding=[1], as_inputs=["data"])
    path = tmp_path / "one.xml"
    check_both(path, source, {"data": x})
    assert not layers(path, "GroupConvolutionBackpropData")
    assert attributes(path, "ConvolutionBackpropData")["output_padding"] == "1"


def test_shape_known_at_run_time_only(tmp_path):
    """A stated shape goes along where the data's extents are open; it is i64 and spatial."""
    source = import_ir(CASES / "dynamic_data_const_output_shape.xml")
    path = tmp_path / "open.xml"
    export_ir(source, path)
    assert attributes(path, "Parameter")["shape"] == "?,3,?,?"
    data = [layer.find("data").attrib for layer in layers(path, "Const")]
    assert ("i64", "2") in [(entry["element_type"], entry["shape"]) for entry in data]


def test_training_step(tmp_path):
    """A whole step of SGD, gradients included, with an open batch."""
    source = onnx.load(DIGITS)
    inputs = {entry.name for entry in source.graph.input}
    kept = [tensor for tensor in source.graph.initializer if tensor.name not in inputs]  # IR has no default values
    del source.graph.initializer[:]
    source.graph.initializer.extend(kept)
    path = tmp_path / "digits.xml"
    export_ir(source, path)
    rng = np.random.default_rng(3)
    feeds = {}
    for entry in source.graph.input:
        shape = [dim.dim_value or 5 for dim in entry.type.tensor_type.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(entry.type.tensor_type.elem_type)
        values = rng.integers(0, 10, shape) if dtype.kind in "iu" else rng.standard_normal(shape) / 8
        feeds[entry.name] = np.asarray(values, dtype)
    expected = convreg.onnx.run(source, feeds)
    for results in (convreg.onnx.run(import_ir(path), feeds), openvino_values(path, feeds)):
        assert list(results) == list(expected)
        for name, array in expected.items():
            np.testing.assert_allclose(results[name], array, rtol=1e-5, atol=1e-6)
    openvino = pytest.importorskip("openvino")
    assert len(openvino.Core().read_model(path).get_ops()) > 100


@pytest.mark.parametrize(("dtype", "element"), [
    (np.float64, "f64"), (np.float16, "f16"), (ml_dtypes.bfloat16, "bf16"), (np.int64, "i64"), (np.int32, "i32"),
    (np.uint8, "u8"), (np.bool_, "boolean"), (ml_dtypes.float8_e4m3fn, "f8e4m3"), (ml_dtypes.float8_e5m2, "f8e5m2")])
def test_constants_keep_their_bits(tmp_path, dtype, element):
    array = np.array([[0, 1, 2], [3, 0.5, 1.5]]).astype(dtype)
    node = helper.make_node("Reshape", ["c", "shape"], ["y"])
    source = model([node], [value("x", (1,))], [value("y", (6,), dtype), value("x", (1,))],
                   {"c": array, "shape": np.array([6], I64)})
    path = tmp_path / "c.xml"
    export_ir(source, path)
    assert attributes(path, "Parameter")["element_type"] == "f32"
    assert element in [layer.find("data").attrib["element_type"] for layer in layers(path, "Const")]
    (again,) = [numpy_helper.to_array(tensor) for tensor in import_ir(path).graph.initializer if len(tensor.dims) == 2]
    assert again.dtype == dtype
    np.testing.assert_array_equal(again, array)
    openvino = pytest.importorskip("openvino")
    read = openvino.Core().read_model(path)
    (constant,) = [op for op in read.get_ops() if op.get_friendly_name() == "c"]
    assert constant.data.tobytes() == array.tobytes()


def test_half_precision_gradients(tmp_path):
    """f16 and bf16 models keep their types; OpenVINO computes them in f32 and rounds once, as convreg does."""
    for dtype in (np.float16, ml_dtypes.bfloat16):
        x, w = dyadic(RNG, (1, 2, 4, 4), dtype), dyadic(RNG, (2, 3, 3, 3), dtype)
        source = convreg.onnx.node_model(
            "onednn::ConvolutionBackwardData", x, w, [1, 3, 6, 6], strides=[1, 1], pads_begin=[0, 0], pads_end=[0, 0],
            dilations=[1, 1], data_format="NCX", weights_format="OIX", as_inputs=["diff_dst"])
        path = tmp_path / "half.xml"
        export_ir(source, path)
        expected = convreg.onnx.run(source, {"diff_dst": x})
        again = convreg.onnx.run(import_ir(path), {"diff_dst": x})
        assert again["diff_src"].dtype == dtype
        np.testing.assert_array_equal(again["diff_src"], expected["diff_src"])
        openvino = pytest.importorskip("openvino")
        read = openvino.Core().read_model(path)
        assert read.outputs[0].get_element_type().get_type_name() == ("f16" if dtype is np.float16 else "bf16")


def test_equal_constants_are_written_once(tmp_path):
    array = dyadic(RNG, (7,))
    nodes = [helper.make_node("Add", ["x", "a"], ["t"]), helper.make_node("Mul", ["t", "b"], ["y"])]
    source = model(nodes, [value("x", (7,))], [value("y", (7,))], {"a": array, "b": array})
    check_both(tmp_path / "m.xml", source, {"x": dyadic(RNG, (7,))})
    assert (tmp_path / "m.bin").stat().st_size == array.nbytes


def test_names_with_commas_and_several_outputs(tmp_path):
    nodes = [helper.make_node("Relu", ["x,1"], ["a,b"], name="same"),
             helper.make_node("Neg", ["x,1"], ["c"], name="same"), helper.make_node("Identity", ["a,b"], ["d"])]
    source = model(nodes, [value("x,1", (3,))], [value(name, (3,)) for name in ("d", "a,b", "c")])
    path = tmp_path / "names.xml"
    export_ir(source, path)
    x = np.array([-1, 0, 2], np.float32)
    again = convreg.onnx.run(import_ir(path), {"x,1": x})
    assert list(again) == ["d", "a,b", "c"]
    np.testing.assert_array_equal(again["d"], [0, 0, 2])
    openvino = pytest.importorskip("openvino")
    read = openvino.Core().read_model(path)
    assert [sorted(output.get_names()) for output in read.outputs] == [["d"], ["a,b"], ["c"]]


def test_local_functions_are_inlined(tmp_path):
    body = helper.make_function("local", "f", ["a"], ["b"], [helper.make_node("Neg", ["a"], ["n"]),
                                helper.make_node("Relu", ["n"], ["b"])], [helper.make_opsetid("", 22)])
    source = model([helper.make_node("f", ["x"], ["y"], domain="local")], [value("x", (3,))], [value("y", (3,))],
                   functions=[body])
    check_both(tmp_path / "f.xml", source, {"x": np.array([-1, 0, 2], np.float32)})


def test_empty_batch(tmp_path):
    """Nothing to compute, but a shape that the file must lead to."""
    x, w = np.zeros((0, 2, 3), np.float32), dyadic(RNG, (2, 3, 4))
    source = convreg.onnx.node_model(
        "openvino::ConvolutionBackpropData", x, w, np.array([7]), strides=[2], pads_begin=[1], pads_end=[0],
        dilations=[1], auto_pad="same_upper", data_format="NCX", filter_format="OIX", conformance="openvino",
        as_inputs=["output_delta"])
    export_ir(source, tmp_path / "empty.xml")
    made = convreg.onnx.run(import_ir(tmp_path / "empty.xml"), {"output_delta": x})
    assert made["input_delta"].shape == (0, 3, 7)


def refused(tmp_path, source, match) -> None:
    with pytest.raises(GraphError, match=match):
        export_ir(source, tmp_path / "m.xml")
    assert not list(tmp_path.iterdir())


def test_what_has_no_counterpart_is_refused_by_name(tmp_path):
    x = value("x", (3,))
    refused(tmp_path, model([helper.make_node("Det", ["m"], ["y"], name="odd")], [value("m", (2, 2))],
                            [value("y", ())]), "odd.*Det")
    refused(tmp_path, model([helper.make_node("Clip", ["x"], ["y\x01"])], [x], [value("y\x01", (3,))]), "XML")
    refused(tmp_path, model([helper.make_node("Clip", ["x", "b", "b"], ["y"])], [x], [value("y", (3,))],
                            {"b": np.zeros(1, np.float32)}), "shape.*scalars")
    refused(tmp_path, model([helper.make_node("Identity", ["x"], ["y"])], [value("x", (3,), np.complex64)],
                            [value("y", (3,), np.complex64)]), "COMPLEX64")
    refused(tmp_path, model([helper.make_node("Pad", ["x", "p"], ["y"], mode="wrap")], [x], [value("y", (5,))],
                            {"p": np.array([1, 1], I64)}), "wrap")
    open_shape = model([data_gradient(["dy", "w"], dst_shape=[1, 2, 4, 4])], [
        value("dy", (1, 2, "h", "w_")), value("w", (2, 2, 3, 3))], [value("dx", (1, 2, 4, 4))])
    refused(tmp_path, open_shape, "must be known")


def test_suffix_and_folder_decide(tmp_path):
    source = model([helper.make_node("Relu", ["x"], ["y"])], [value("x", (3,))], [value("y", (3,))])
    with pytest.raises(GraphError, match="suffix"):
        export_model(source, tmp_path / "m.pb")
    with pytest.raises(GraphError, match=r"\.xml"):
        export_ir(source, tmp_path / "m.ir")
    with pytest.raises(GraphError, match="cannot be written"):
        export_ir(source, tmp_path / "missing" / "m.xml")
    (tmp_path / "m.bin").mkdir()
    with pytest.raises(GraphError, match="cannot be written"):
        export_ir(source, tmp_path / "m.xml")
    assert [path.name for path in tmp_path.iterdir()] == ["m.bin"]
