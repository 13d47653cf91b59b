"""HiFloat8 in graphs: bytes, a node attribute that says what they mean, metadata that mirrors it."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import convreg
import convreg.onnx
from convreg.errors import GraphError, OpTypeError

function = convreg.ascend.convolution_backward
LINE = {"stride": [1], "padding": [1], "dilation": [1]}
SHAPES = (2, 4, 6), (2, 3, 6), (4, 3, 3)
NAMES = ("gradOutput", "input", "weight")
HIFLOAT8 = ("hifloat8",) * 3


def operands(formats):
    random = np.random.default_rng(7)
    return [convreg.quantize(random.standard_normal(shape), format)
            for shape, format in zip(SHAPES, formats, strict=True)]


def codes(array):
    return array.view(f"u{array.itemsize}")


def graph(formats, *, types=None, mirrors=None, outputs=("gi", "gw", "gb"), **attributes):
    """One node whose tensors are graph inputs, written by hand."""
    bits = {"hifloat8": TensorProto.UINT8, "float8_e4m3fn": TensorProto.FLOAT8E4M3FN, "float32": TensorProto.FLOAT,
            "uint8": TensorProto.UINT8}
    values = [helper.make_tensor_value_info(name, bits[format], shape)
              for name, format, shape in zip(NAMES, formats, SHAPES, strict=True)]
    for value in values:
        if mirrors and value.name in mirrors:
            value.metadata_props.add(key="convreg.dtype", value=mirrors[value.name])
    if types is not None:
        attributes["operand_types"] = types
    node = helper.make_node("ConvolutionBackward", NAMES, outputs, domain="convreg.ascend", **LINE, **attributes)
    made = zip(("gi", "gw", "gb"), (formats[1], formats[2], formats[0]), (*SHAPES[1:], (4,)), strict=True)
    results = [helper.make_tensor_value_info(name, bits[format], shape) for name, format, shape in made
               if name in outputs]
    return helper.make_model(
        helper.make_graph([node], "gradients", values, results), ir_version=10,
        opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("convreg.ascend", 1)])


def inferred(model):
    return {value.name: value.type.tensor_type.elem_type for value in convreg.onnx.infer_shapes(model).graph.output}


def run(model, arrays, **options):
    return convreg.onnx.run(model, dict(zip(NAMES, arrays, strict=True)), **options)


@pytest.mark.parametrize("engine", ["reference", "onnxruntime"])
@pytest.mark.parametrize("formats", [HIFLOAT8, ("hifloat8", "float8_e4m3fn", "float32"),
                                     ("float32", "hifloat8", "hifloat8")])
def test_a_node_computes_what_the_function_does(formats, engine):
    if engine == "onnxruntime":
        pytest.importorskip("onnxruntime")
    types = [name if name == "hifloat8" else "" for name in formats]
    model = graph(formats, types=types, conformance="emulation")
    convreg.onnx.check(model)
    arrays = operands(formats)
    expected = function(*arrays, **LINE, conformance="emulation")
    assert inferred(model)["gi"] == (TensorProto.UINT8 if formats[1] == "hifloat8" else TensorProto.FLOAT8E4M3FN)
    for given in (arrays, [array.view(np.uint8) if array.dtype == convreg.hifloat8 else array for array in arrays]):
        results = run(model, given, engine=engine)
        for result, wanted in zip(results.values(), expected, strict=True):
            assert result.dtype == (np.uint8 if wanted.dtype == convreg.hifloat8 else wanted.dtype)
            assert np.array_equal(codes(result), codes(wanted))


def test_bytes_move_between_nodes_as_bytes():
    """A transposition of the payload is standard ONNX, exact, between two of our nodes."""
    arrays = operands(HIFLOAT8)
    swapped = arrays[2].transpose(1, 0, 2)
    model = graph(HIFLOAT8, types=list(HIFLOAT8), outputs=("gi",))
    model.graph.node[0].input[2] = "turned"
    model.graph.node.insert(0, helper.make_node("Transpose", ["weight"], ["turned"], perm=[1, 0, 2]))
    model.graph.input[2].CopyFrom(helper.make_tensor_value_info("weight", TensorProto.UINT8, swapped.shape))
    convreg.onnx.check(model)
    result = run(model, [*arrays[:2], np.ascontiguousarray(swapped)])["gi"]
    assert np.array_equal(result, codes(function(*arrays, **LINE, output_mask=[True, True, False])[0]))


@pytest.mark.parametrize("as_inputs", [False, True, ("input",)])
@pytest.mark.parametrize("formats", [HIFLOAT8, ("float32", "hifloat8", "float32"), ("float32",) * 3])
def test_a_call_and_its_model(formats, as_inputs):
    arrays = operands(formats)
    call = {**LINE, "conformance": "emulation", "rounding": "stochastic", "seed": 3}
    model = convreg.onnx.node_model(function, *arrays, **call, as_inputs=as_inputs)
    convreg.onnx.check(model)
    stated = {proto.name: list(proto.strings) for proto in model.graph.node[0].attribute}
    if "hifloat8" in formats:
        assert stated["operand_types"] == [(name if name == "hifloat8" else "").encode() for name in formats]
    else:
        assert "operand_types" not in stated
    said = {value.name: value.metadata_props[0].value for value in
            (*model.graph.input, *model.graph.output, *model.graph.initializer) if value.metadata_props}
    assert {name for name in NAMES if name in said} == {
        name for name, format in zip(NAMES, formats, strict=True) if format == "hifloat8"}
    free = NAMES if as_inputs is True else as_inputs or ()
    values = {name: array for name, array in zip(NAMES, arrays, strict=True) if name in free}
    expected = function(*arrays, **call)
    for result, wanted in zip(convreg.onnx.run(model, values).values(), expected, strict=True):
        assert result.dtype == wanted.dtype
        assert np.array_equal(codes(result), codes(wanted))
    again = convreg.onnx.call_of(model, values)
    assert [array.dtype for array in again.inputs] == [array.dtype for array in arrays]
    for result, wanted in zip(again.operator(*again.inputs, **again.attributes), expected, strict=True):
        assert np.array_equal(codes(result), codes(wanted))


@pytest.mark.parametrize(("formats", "types", "reason"), [
    (HIFLOAT8, None, "uint8"),
    (HIFLOAT8, ["hifloat8", "hifloat8"], "uint8"),
    (("float32", "float32", "float32"), ["", "", "hifloat8"], "operand_types"),
    (("uint8", "float32", "float32"), ["float8_e4m3fn"], "operand_types"),
    (HIFLOAT8, ["hifloat9"], "operand_types"),
    (HIFLOAT8, ["hifloat8"] * 4, "operand_types"),
])
def test_refused_operand_types(formats, types, reason):
    model = graph(formats, types=types, conformance="emulation")
    with pytest.raises(GraphError, match=reason):
        convreg.onnx.check(model)
    with pytest.raises((OpTypeError, convreg.OpError), match=reason):
        run(model, [array.view(np.uint8) if array.dtype == convreg.hifloat8 else array for array in operands(
            [name.replace("uint8", "hifloat8") for name in formats])])


def test_formats_that_onnx_has_may_be_stated():
    model = graph(("float32", "float8_e4m3fn", "float32"), types=["", "float8_e4m3fn"], conformance="emulation")
    convreg.onnx.check(model)


def test_operators_without_hifloat8_have_no_such_attribute():
    schema = onnx.defs.get_schema("ConvGrad", 1, "com.microsoft")
    assert "operand_types" not in schema.attributes
    assert "tensor(uint8)" in {name for constraint in
                               onnx.defs.get_schema("ConvolutionBackward", 1, "convreg.ascend").type_constraints
                               for name in constraint.allowed_type_strs}


def test_mirrors():
    """A missing mirror is no error, a contradicting one is; a mirror alone says nothing."""
    mirrored = graph(HIFLOAT8, types=list(HIFLOAT8), mirrors=dict.fromkeys(NAMES, "hifloat8"), conformance="emulation")
    convreg.onnx.check(mirrored)
    wrong = graph(HIFLOAT8, types=list(HIFLOAT8), mirrors={"input": "float16"}, conformance="emulation")
    with pytest.raises(GraphError, match=r"operand_types.*'input'.*'float16'"):
        convreg.onnx.check(wrong)
    alone = graph(HIFLOAT8, mirrors={"weight": "hifloat8"}, conformance="emulation")
    with pytest.raises(GraphError, match="operand_types"):
        convreg.onnx.Session(alone)


def test_a_mirrored_output_is_an_array_of_the_format():
    model = graph(HIFLOAT8, types=list(HIFLOAT8), conformance="emulation")
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("gi", TensorProto.UINT8, SHAPES[1]))
    model.graph.output[0].metadata_props.add(key="convreg.dtype", value="hifloat8")
    results = run(model, operands(HIFLOAT8))
    assert results["gi"].dtype == convreg.hifloat8
    assert results["gw"].dtype == np.uint8


def test_the_attribute_survives_a_file(tmp_path):
    arrays = operands(HIFLOAT8)
    model = convreg.onnx.node_model(function, *arrays, **LINE, conformance="emulation")
    onnx.save(model, tmp_path / "node.onnx")
    result = convreg.onnx.run(tmp_path / "node.onnx")["gradInput"]
    assert np.array_equal(codes(result), codes(function(*arrays, **LINE, conformance="emulation")[0]))


def test_lowering_names_what_has_no_standard_form():
    model = convreg.onnx.node_model(function, *operands(HIFLOAT8), **LINE, conformance="emulation")
    with pytest.raises(GraphError, match="hifloat8"):
        convreg.onnx.lower(model)
    rounded = convreg.onnx.node_model(function, *operands(("float32",) * 3), **LINE, conformance="emulation",
                                      rounding="toward_zero", output_formats=["float16", "", ""])
    with pytest.raises(GraphError, match="rounding"):
        convreg.onnx.lower(rounded)


def test_lowered_8_bit_gradients():
    """Formats that Cast knows are lowered; the bias gradient of an 8-bit gradOutput is rounded once there too."""
    formats = "float8_e5m2", "float8_e4m3fn", "float32"
    arrays = operands(formats)
    call = {**LINE, "conformance": "emulation", "output_formats": ["", "", "float32"]}
    model = convreg.onnx.lower(convreg.onnx.node_model(function, *arrays, **call))
    for result, wanted in zip(convreg.onnx.run(model).values(), function(*arrays, **call), strict=True):
        np.testing.assert_allclose(result.astype(np.float32), wanted.astype(np.float32), rtol=0.13, atol=1e-2)
        assert result.dtype == wanted.dtype


def test_tools_read_the_numbers_not_the_bytes():
    tools = pytest.importorskip("convreg.tools.tensors")
    ones = convreg.quantize(np.ones((2, 3)), "hifloat8")
    assert tools.describe("x", ones) == "x [2, 3] hifloat8 min 1 max 1 mean 1"


def test_engines_read_the_same_types():
    """Inside onnxruntime no kernel sees `operand_types`, and all bytes are HiFloat8: other nodes stay outside."""
    pytest.importorskip("onnxruntime")
    arrays = operands(HIFLOAT8)
    bytes_ = [array.view(np.uint8) for array in arrays]
    stated = graph(HIFLOAT8, types=["hifloat8"] * 3, conformance="emulation")
    running = convreg.onnx.Session(stated)
    found = {engine: convreg.onnx.run(stated, dict(zip(running.inputs, bytes_, strict=True)), engine=engine)
             for engine in ("onnxruntime", "reference")}
    for name, array in found["reference"].items():
        assert found["onnxruntime"][name].tobytes() == array.tobytes()
    unstated = graph(HIFLOAT8, types=None, conformance="emulation")
    for engine in (None, "onnxruntime", "reference"):
        with pytest.raises(convreg.OpError, match="uint8"):
            convreg.onnx.run(unstated, dict(zip(running.inputs, bytes_, strict=True)), engine=engine)
