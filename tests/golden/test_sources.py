"""`cases` decides by the content what a source is, and refuses everything else with one sentence."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import vendor_tables as tables
from graphs import data_gradient, model, value
from onnx import helper
from plain_gradients import Windows, filled, outcome
from valid_calls import VALID, several

import convreg
from convreg import GraphError
from convreg.formats import FORMATS
from convreg.golden import cases, write_cases
from convreg.spec import snake_case

DESCRIPTOR = "mb1_ic2ih4oc2kh3"


def whole():
    return model([data_gradient(["dy", "w", "shape"])], [value("dy", [1, 2, 4, 4]), value("w", [2, 2, 3, 3])],
                 [value("dx", None)], {"shape": np.array([1, 2, 4, 4], np.int32)})


def test_every_kind_of_file_under_any_name(tmp_path):
    (tmp_path / "a").write_text(f"--dir=BWD_W {DESCRIPTOR}")
    (tmp_path / "b").write_text(tables.ttk_tables()["ttk_aclnn.csv"])
    (tmp_path / "c").write_text("\n " + tables.atk_table())
    (tmp_path / "d").write_bytes(whole().SerializeToString())
    write_cases(cases(DESCRIPTOR), tmp_path / "e")
    (tmp_path / "f").write_bytes(b"\xef\xbb\xbf" + (tmp_path / "e").read_bytes())
    counts = {path.name: len(list(cases(path))) for path in sorted(tmp_path.iterdir())}
    assert counts == {"a": 1, "b": 2, "c": 215, "d": 1, "e": 2, "f": 2}
    assert len(list(cases(str(tmp_path / "a")))) == 1
    assert len(list(cases(whole()))) == 1


def test_a_file_is_preferred_to_a_descriptor_of_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert len(list(cases(DESCRIPTOR))) == 2
    (tmp_path / DESCRIPTOR).write_text(f"--dir=BWD_W {DESCRIPTOR}")
    assert len(list(cases(DESCRIPTOR))) == 1


@pytest.mark.parametrize(("content", "words"), [
    (b"", "is empty"), (b" \n\t", "is empty"), (b"PK\x03\x04rest", "is an Excel workbook or an archive"),
    (b"\x93NUMPY\x01\x00", "an archive of arrays"), (b"{", "not a JSON file"), (b"[1, 2]", "holds no cases"),
    (b'{"format": "other"}', "holds no cases"), (b'{"a": 1, "a": 2}', "occurs twice"), (b"[NaN]", "not a JSON number"),
    (b"[" * 100_000, "not a JSON file"), (b"\x08\x07broken", "not a readable ONNX model"),
    (b"text\0text", "not a readable ONNX model"), (b"some words", "descriptor 'some'"),
    (b"\xff\xfe", "not UTF-8 text"),
])
def test_other_files(tmp_path, content, words):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(GraphError, match="file") as error:
        list(cases(path))
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("source", "words"), [
    ("none.csv", "'none.csv' is no file and no descriptor; needed: an ONNX model"), ("", "the path '' is empty"),
    ("x" * 5000, "is no file"), ("a\0b", "is no file"),
    (5, "a model is an onnx.ModelProto or a path, not int"), (".", "not a regular file"),
    ("mb1_ic2ih4oc2kh3 other.csv", "is no file"), ("mb1", "no ic and no oc"), (None, "NoneType"), (b"x", "bytes"),
])
def test_other_sources(source, words):
    with pytest.raises(GraphError) as error:
        list(cases(source))
    assert words in str(error.value)


def test_options_that_a_source_has_no_use_for(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(whole().SerializeToString())
    table = tmp_path / "cases.csv"
    table.write_text(tables.ttk_tables()["ttk_aclnn.csv"])
    for source, options in ((path, {"deconv": True}), (table, {"deconv": True}), (table, {"inputs": {}}),
                            (DESCRIPTOR, {"inputs": {}}), (whole(), {"deconv": True})):
        with pytest.raises(GraphError, match=r"is refused for .*; needed: "):
            cases(source, **options)
    with pytest.raises(convreg.OpTypeError, match="convreg::golden: dconv"):
        cases(DESCRIPTOR, dconv=True)


def test_only_models_import_onnx(tmp_path):
    (tmp_path / "table.csv").write_text(tables.ttk_tables()["ttk_kernel_input.csv"])
    code = (f"import sys; from convreg.golden import cases\n"
            f"found = [*cases({DESCRIPTOR!r}), *cases({str(tmp_path / 'table.csv')!r})]\n"
            "assert len(found) == 18 and 'onnx' not in sys.modules")
    subprocess.run([sys.executable, "-c", code], check=True)


# ---------------------------------------------------------------------------------------------------------------------
# Models


def network():
    """Two forward layers, one of them transposed, and what belongs to neither."""
    rng = np.random.default_rng(0)
    constants = {"w": rng.integers(-2, 3, (4, 2, 3, 3)).astype(np.float32) / 2,
                 "v": rng.integers(-2, 3, (4, 3, 2, 2)).astype(np.float32) / 2}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["y"], name="first", pads=[1, 0, 1, 2], strides=[2, 1], group=2),
        helper.make_node("Relu", ["y"], ["z"]),
        helper.make_node("ConvTranspose", ["z", "v"], ["out"], strides=[2, 2], output_padding=[1, 0],
                         pads=[0, 1, 1, 0]),
    ]
    return model(nodes, [value("x", [2, 4, 7, 6])], [value("out", None)], constants)


def test_gradients_of_forward_layers():
    found = {case.name: case for case in cases(network())}
    assert list(found) == ["first-data", "first-weights", "out-data", "out-weights"]
    whole = network()
    w, v = (np.frombuffer(tensor.raw_data, np.float32).reshape(tensor.dims) for tensor in whole.graph.initializer)
    first = Windows((2, 1), (1, 0), (1, 1), 2)
    operands = filled(found["first-data"])
    assert np.array_equal(operands["weights"], w)
    assert np.array_equal(outcome(found["first-data"], operands)["diff_src"],
                          first.data(operands["diff_dst"], w, (2, 4, 7, 6)))
    operands = filled(found["first-weights"])
    assert found["first-weights"].inputs["src"].values is None
    assert np.array_equal(outcome(found["first-weights"], operands)["diff_weights"],
                          first.weight(operands["src"], operands["diff_dst"], w.shape))
    second = Windows((2, 2), (0, 1), (1, 1))
    operands = filled(found["out-data"])
    small = found["out-weights"].inputs["src"].shape
    assert np.array_equal(outcome(found["out-data"], operands)["diff_src"],
                          second.forward(operands["diff_dst"], v, small))
    operands = filled(found["out-weights"])
    assert np.array_equal(outcome(found["out-weights"], operands)["diff_weights"],
                          second.weight(operands["diff_dst"], operands["src"], v.shape))


def test_a_run_gives_the_operands_that_occur():
    x = np.random.default_rng(1).integers(-2, 3, (2, 4, 7, 6)).astype(np.float32)
    found = {case.name: case for case in cases(network(), inputs={"x": x})}
    assert list(found) == ["first-data", "first-weights", "out-data", "out-weights"]
    assert np.array_equal(found["first-weights"].inputs["src"].values, x)
    assert found["first-weights"].inputs["diff_dst"].values is None
    assert found["out-weights"].inputs["src"].values.min() == 0


def test_nodes_of_operators():
    case, = cases(whole())
    assert (case.name, case.op) == ("gradient", "onednn::ConvolutionBackwardData")
    assert case.inputs["dst_shape"].values.tolist() == [1, 2, 4, 4]
    assert case.inputs["dst_shape"].format == "int32"
    operands = filled(case)
    expected = Windows((1, 1), (1, 1), (1, 1)).data(operands["diff_dst"], operands["weights"], (1, 2, 4, 4))
    assert np.array_equal(outcome(case, operands)["diff_src"], expected)


@pytest.mark.parametrize("name", sorted(VALID))
def test_a_call_survives_as_a_node(name):
    """The case of a call's model repeats the call, with all tensors constants and with all of them inputs."""
    call = VALID[name]
    exact = several(convreg.get(name)(*call.tensors, **call.arguments))
    for inputs in (None, call.feeds):
        whole = convreg.onnx.node_model(name, *call.tensors, **call.arguments, as_inputs=inputs is not None)
        (case,) = cases(whole, inputs=inputs)
        made = outcome(case, {key: operand.values for key, operand in case.inputs.items()})
        expected = [array for array in exact if array is not None]
        assert all(first.tobytes() == second.tobytes() for first, second in zip(made.values(), expected, strict=True))


@pytest.mark.parametrize("name", sorted(VALID))
def test_a_call_without_its_values_keeps_shapes_and_formats(name):
    call = VALID[name]
    (case,) = cases(call.model)
    for port, array in zip(convreg.get(name).spec.inputs, call.tensors, strict=False):
        operand = case.inputs[snake_case(port.name)]
        assert (operand.shape, operand.values) == (array.shape, None)
        assert FORMATS[operand.format].dtype == array.dtype


def test_masked_outputs_and_emulation():
    dy, w = np.ones((1, 2, 4), np.float32), np.ones((2, 2, 1), np.float32)
    whole = convreg.onnx.node_model(
        "ascend::ConvolutionBackward", dy, dy, w, stride=[1], padding=[0], dilation=[1],
        output_mask=[False, True, False], output_formats=["", "bfloat16", ""], conformance="emulation", as_inputs=True)
    (case,) = cases(whole)
    assert (case.conformance, case.attributes["output_mask"]) == ("emulation", [False, True, False])
    assert case.attributes["output_formats"][1] == "bfloat16"


@pytest.mark.parametrize(("build", "words"), [
    (lambda: model([helper.make_node("Relu", ["x"], ["y"])], [value("x", [1])], [value("y", None)]),
     "has no node that is a convolution"),
    (lambda: model([helper.make_node("Conv", ["x", "w"], ["y"], name="c")], [value("x", ["N", 2, 4]),
                                                                            value("w", [2, 2, 1])],
                   [value("y", None)]), "the shape of 'x' is not known (x: float32 of shape [N, 2, 4]); needed"),
    (lambda: model([data_gradient(["dy", "w", "shape"])], [value("dy", [1, 2, 4, 4]), value("w", [2, 2, 3, 3]),
                                                           value("shape", [4], np.int32)], [value("dx", None)]),
     "the model computes the value of 'shape'; needed: a constant, or inputs= (--input in a shell) for a run"),
])
def test_models_that_state_no_case(build, words):
    with pytest.raises(GraphError) as error:
        list(cases(build()))
    assert words in str(error.value)
    assert "the model" in str(error.value)
