"""OpenVINO models imported by the standard-library reader, run, and compared with the runtime's or NumPy's values."""

from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import pytest
from convreg.tools.onnx_io import import_ir, import_model
from model_files import IR, arrays_of
from places import DATA

import convreg
from convreg import GraphError

CASES = DATA / "openvino_ir"
INDEX = json.loads((CASES / "index.json").read_text())["models"]
RNG = np.random.default_rng(7)
IMAGE = RNG.integers(-8, 9, (2, 4, 5, 6)).astype(np.float32)


@pytest.mark.parametrize("reader", ["standard", "openvino"])
@pytest.mark.parametrize("case", INDEX, ids=lambda case: case["name"])
def test_runtime_values(case, reader):
    if reader == "openvino":
        pytest.importorskip("openvino")
    path = CASES / f"{case['name']}.xml"
    model = import_model(path) if reader == "standard" else import_ir(path, reader=reader)
    convreg.onnx.check(model)
    arrays = arrays_of(path.with_suffix(".npz"))
    assert model.ir_version == 10
    assert [value.name for value in model.graph.input] == list(case["inputs"])
    results = convreg.onnx.run(model, {name: arrays[f"in_{name}"] for name in case["inputs"]})
    assert list(results) == list(case["outputs"])
    for name, shape in case["outputs"].items():
        assert list(results[name].shape) == shape
        np.testing.assert_array_equal(results[name], arrays[f"out_{name}"])


def test_the_package_folds_what_is_constant(tmp_path):
    pytest.importorskip("openvino")
    ir = IR()
    image = ir.parameter("x", "1,2,3,3", "f32")
    half = ir.constant(np.array([3, 4], np.int64))
    extents = ir.layer("Multiply", [half, ir.constant(np.array([2, 2], np.int64))], auto_broadcast="numpy")
    weights = ir.constant(np.ones((2, 1, 2, 2), np.float32))
    ir.result(ir.layer("ConvolutionBackpropData", [image, weights, extents], strides="2,2", dilations="1,1",
                       pads_begin="0,0", pads_end="0,0", auto_pad="explicit", output_padding="0,0"))
    path = ir.write(tmp_path)
    plain, folded = import_ir(path), import_ir(path, reader="openvino")
    assert [node.op_type for node in plain.graph.node] == ["Mul", "ConvolutionBackpropData"]
    assert [node.op_type for node in folded.graph.node] == ["ConvolutionBackpropData"]
    x = np.arange(18, dtype=np.float32).reshape(1, 2, 3, 3)
    first, second = (next(iter(convreg.onnx.run(model, {"x": x}).values())) for model in (plain, folded))
    assert first.shape == (1, 1, 6, 8)
    np.testing.assert_array_equal(first, second)


def test_readers_refuse_by_name(tmp_path, monkeypatch):
    path = CASES / "one_d.xml"
    with pytest.raises(GraphError, match="'standard' or 'openvino'"):
        import_ir(path, reader="mine")
    monkeypatch.setattr("convreg.tools.formats.openvino.package.find_spec", lambda name: None)
    with pytest.raises(GraphError, match="pip install openvino"):
        import_ir(path, reader="openvino")


def test_a_file_that_the_package_refuses(tmp_path):
    pytest.importorskip("openvino")
    damaged = tmp_path / "model.xml"
    damaged.write_text((CASES / "one_d.xml").read_text()[:900])
    with pytest.raises(GraphError, match="OpenVINO's reader"):
        import_ir(damaged, reader="openvino")


@pytest.mark.parametrize(("shape", "dims"), [
    ("", []), ("2,3", [2, 3]), ("?, -1 ,1..8", ["x_0", "x_1", "x_2"]), ("..8,2,3", ["x_0", 2, 3]),
    ("2..,2,3", ["x_0", 2, 3]), ("1,2,0..", [1, 2, "x_2"]), ("..,2 .. 3", ["x_0", "x_1"])])
def test_shapes_of_parameters(tmp_path, shape, dims):
    ir = IR()
    ir.result(ir.layer("ReLU", [ir.parameter("x", shape)]))
    made = import_ir(ir.write(tmp_path)).graph.input[0].type.tensor_type.shape.dim
    assert [dim.dim_value or dim.dim_param for dim in made] == dims


@pytest.mark.parametrize(("shape", "message"), [
    *((shape, "an extent is '', not an integer") for shape in ("1,,2,3", "1,2,3,", ",1,2,3", ",")),
    ("1_0", "'1_0', not an integer"), ("a..b", "a bound of 'a..b' is 'a', not an integer"), ("1.5..", "'1.5'"),
    ("8..1", "the interval '8..1' holds no extent"), ("-3..4", "the interval '-3..4' holds no extent"),
    ("...", "is '.', not an integer"), ("1...3", "'.3', not an integer")])
def test_shapes_that_parameters_cannot_have(tmp_path, shape, message):
    ir = IR()
    ir.result(ir.layer("ReLU", [ir.parameter("x", shape)]))
    with pytest.raises(GraphError, match=message):
        import_ir(ir.write(tmp_path))


def test_unknown_extents_stay_symbols():
    model = import_ir(CASES / "dynamic_data_const_output_shape.xml")
    dims = [dim.dim_value or dim.dim_param for dim in model.graph.input[0].type.tensor_type.shape.dim]
    assert dims == ["x_0", 3, "x_2", "x_3"]
    dims = [dim.dim_value or dim.dim_param for dim in model.graph.output[0].type.tensor_type.shape.dim]
    assert dims == ["x_0", 2, 7, 6]


def run(tmp_path, ir: IR, **inputs):
    model = import_ir(ir.write(tmp_path))
    results = convreg.onnx.run(model, inputs)
    return next(iter(results.values()))


def layer_of(tmp_path, kind, x, *constants, **attributes):
    """Value of one layer whose first operand is a parameter and whose others are constants."""
    ir = IR()
    names = {"float32": "f32", "int32": "i32", "int64": "i64", "bool": "boolean"}
    operands = [ir.parameter("x", ",".join(map(str, x.shape)), names[str(x.dtype)])]
    operands += [ir.constant(value) for value in constants]
    ir.result(ir.layer(kind, operands, **attributes))
    return run(tmp_path, ir, x=x)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize(
    ("kind", "attributes", "expected"),
    [
        ("ReLU", {}, lambda x: np.maximum(x, 0)),
        ("Sigmoid", {}, sigmoid),
        ("Tanh", {}, np.tanh),
        ("Exp", {}, np.exp),
        ("Abs", {}, np.abs),
        ("Negative", {}, np.negative),
        ("Ceiling", {}, np.ceil),
        ("Floor", {}, np.floor),
        ("Sin", {}, np.sin),
        ("SoftPlus", {}, lambda x: np.log1p(np.exp(x))),
        ("Mish", {"opset": "opset4"}, lambda x: x * np.tanh(np.log1p(np.exp(x)))),
        ("HSwish", {"opset": "opset4"}, lambda x: x * np.clip(x + 3, 0, 6) / 6),
        ("HSigmoid", {"opset": "opset5"}, lambda x: np.clip(x + 3, 0, 6) / 6),
        ("Swish", {"opset": "opset4"}, lambda x: x * sigmoid(x)),
        ("Elu", {"alpha": "0.5"}, lambda x: np.where(x > 0, x, 0.5 * (np.exp(x) - 1))),
        ("Clamp", {"min": "-1.5", "max": "2.25"}, lambda x: np.clip(x, -1.5, 2.25)),
        ("SoftMax", {"axis": 1}, lambda x: np.exp(x) / np.exp(x).sum(1, keepdims=True)),
        ("SoftMax", {"axis": -1, "opset": "opset8"}, lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True)),
        ("Gelu", {"opset": "opset7", "approximation_mode": "TANH"},
         lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_unary_layers(tmp_path, kind, attributes, expected):
    x = IMAGE / 4
    np.testing.assert_allclose(layer_of(tmp_path, kind, x, **attributes), expected(x.astype(np.float64)), rtol=1e-5,
                               atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("Add", np.add), ("Subtract", np.subtract), ("Multiply", np.multiply), ("Divide", np.divide), ("Power", np.power),
     ("Maximum", np.maximum), ("Minimum", np.minimum), ("SquaredDifference", lambda a, b: (a - b) ** 2)],
)
def test_binary_layers_broadcast(tmp_path, kind, expected):
    x, other = np.abs(IMAGE) + 1, np.array([[1.0], [2.0], [4.0], [0.5], [3.0]], np.float32)
    got = layer_of(tmp_path, kind, x, other, auto_broadcast="numpy")
    np.testing.assert_allclose(got, expected(x, other), rtol=1e-6)


@pytest.mark.parametrize(("python_division", "expected"), [("true", [-4, 3, -4]), ("false", [-3, 3, -3])])
def test_integer_division(tmp_path, python_division, expected):
    got = layer_of(tmp_path, "Divide", np.array([-7, 7, 7], np.int32), np.array([2, 2, -2], np.int32),
                   m_pythondiv=python_division)
    assert got.tolist() == expected


@pytest.mark.parametrize("slope", [np.array([0.25], np.float32), np.array([0.5, -1, 2, 0], np.float32),
                                   np.array([0.5, -1, 2, 0], np.float32).reshape(1, 4, 1, 1)])
def test_prelu_slope_lies_along_channels(tmp_path, slope):
    per_channel = slope.reshape(-1, 1, 1) if slope.size > 1 else slope
    expected = np.where(IMAGE >= 0, IMAGE, IMAGE * per_channel)
    np.testing.assert_array_equal(layer_of(tmp_path, "PReLU", IMAGE, slope), expected)


def test_batch_norm_operand_order_depends_on_the_set(tmp_path):
    gamma, beta, mean, variance = (RNG.random(4, np.float32) + 0.5 for _ in range(4))
    column = [vector.reshape(-1, 1, 1) for vector in (gamma, beta, mean, variance)]
    expected = column[0] * (IMAGE - column[2]) / np.sqrt(column[3] + 0.125) + column[1]
    got = layer_of(tmp_path, "BatchNormInference", IMAGE, gamma, beta, mean, variance, epsilon="0.125", opset="opset5")
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)
    ir = IR()
    x = ir.parameter("x", "2,4,5,6")
    ir.result(ir.layer("BatchNormInference", [ir.constant(gamma), ir.constant(beta), x, ir.constant(mean),
                                              ir.constant(variance)], epsilon="0.125"))
    np.testing.assert_allclose(run(tmp_path, ir, x=IMAGE), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("auto_pad", ["explicit", "valid", "same_upper", "same_lower"])
@pytest.mark.parametrize("groups", [0, 1, 2])
def test_forward_convolutions(tmp_path, auto_pad, groups):
    torch = pytest.importorskip("torch")
    shape = (3, 4, 3, 2) if not groups else (groups, 6 // groups, 4 // groups, 3, 2)
    taps = RNG.integers(-4, 5, shape).astype(np.float32)
    got = layer_of(tmp_path, "GroupConvolution" if groups else "Convolution", IMAGE, taps, strides="2,1",
                   dilations="1,2", pads_begin="1,0", pads_end="0,2", auto_pad=auto_pad)
    totals = {"explicit": ((1, 0), (0, 2)), "valid": ((0, 0), (0, 0)), "same_upper": ((1, 1), (1, 1)),
              "same_lower": ((1, 1), (1, 1))}[auto_pad]
    x = torch.from_numpy(np.pad(IMAGE.astype(np.float64), ((0, 0), (0, 0), *totals)))
    w = torch.from_numpy(taps.astype(np.float64).reshape(-1, *shape[-3:]))
    expected = torch.nn.functional.conv2d(x, w, stride=(2, 1), dilation=(1, 2), groups=groups or 1)
    np.testing.assert_array_equal(got, expected.numpy())


@pytest.mark.parametrize("attributes", [
    {"strides": "2,2", "kernel": "3,2", "pads_begin": "1,0", "pads_end": "1,1"},
    {"strides": "1,2", "kernel": "2,2", "pads_begin": "0,0", "pads_end": "0,0", "rounding_type": "ceil"},
])
def test_pooling(tmp_path, attributes):
    torch = pytest.importorskip("torch")
    (top, left), (bottom, right) = (map(int, attributes[name].split(",")) for name in ("pads_begin", "pads_end"))
    kernel, stride = (tuple(map(int, attributes[name].split(","))) for name in ("kernel", "strides"))
    padded = torch.nn.functional.pad(torch.from_numpy(IMAGE), (left, right, top, bottom), value=-np.inf)
    np.testing.assert_array_equal(layer_of(tmp_path, "MaxPool", IMAGE, **attributes),
                                  torch.nn.functional.max_pool2d(padded, kernel, stride).numpy())
    zeros = torch.nn.functional.pad(torch.from_numpy(IMAGE), (left, right, top, bottom))
    sums = torch.nn.functional.avg_pool2d(zeros, kernel, stride, divisor_override=1)
    ones = torch.nn.functional.pad(torch.ones(IMAGE.shape), (left, right, top, bottom))
    counts = torch.nn.functional.avg_pool2d(ones, kernel, stride, divisor_override=1)
    np.testing.assert_allclose(layer_of(tmp_path, "AvgPool", IMAGE, exclude_pad="true", **attributes),
                               (sums / counts).numpy(), rtol=1e-6)
    np.testing.assert_allclose(layer_of(tmp_path, "AvgPool", IMAGE, exclude_pad="false", **attributes),
                               (sums / np.prod(kernel)).numpy(), rtol=1e-6)


def test_second_output_of_max_pool(tmp_path):
    ir = IR()
    x = ir.parameter("x", "2,4,5,6")
    values, indices = ir.layer("MaxPool", [x], 2, opset="opset8", strides="1,1", kernel="2,2", pads_begin="0,0",
                               pads_end="0,0", dilations="1,1", index_element_type="i64", axis=0)
    ir.result(values)
    assert run(tmp_path, ir, x=IMAGE).shape == (2, 4, 4, 5)
    ir.result(indices)
    with pytest.raises(GraphError, match="the second output, the indices"):
        run(tmp_path, ir, x=IMAGE)


@pytest.mark.parametrize("keep", ["true", "false"])
@pytest.mark.parametrize("axes", [[2, 3], [-1], 1])
def test_reductions(tmp_path, keep, axes):
    got = layer_of(tmp_path, "ReduceMean", IMAGE, np.array(axes), keep_dims=keep)
    axis = tuple(axes) if isinstance(axes, list) else axes
    np.testing.assert_allclose(got, IMAGE.mean(axis, keepdims=keep == "true"), rtol=1e-5, atol=1e-6)


def test_matrix_products(tmp_path):
    other = RNG.integers(-4, 5, (3, 6)).astype(np.float32)
    np.testing.assert_array_equal(layer_of(tmp_path, "MatMul", IMAGE, other, transpose_b="true"), IMAGE @ other.T)
    other = RNG.integers(-4, 5, (5, 3)).astype(np.float32)
    np.testing.assert_array_equal(layer_of(tmp_path, "MatMul", IMAGE, other, transpose_a="true", transpose_b="false"),
                                  IMAGE.swapaxes(-1, -2) @ other)


@pytest.mark.parametrize(
    ("kind", "constants", "attributes", "expected"),
    [
        ("Reshape", ([0, -1, 3],), {"special_zero": "true"}, lambda x: x.reshape(2, -1, 3)),
        ("Transpose", ([0, 2, 3, 1],), {}, lambda x: x.transpose(0, 2, 3, 1)),
        ("Transpose", ([],), {}, lambda x: x.T),
        ("Unsqueeze", ([0, -1],), {}, lambda x: x[None, ..., None]),
        ("Gather", ([2, 0], 1), {}, lambda x: x[:, [2, 0]]),
        ("Gather", ([-1], -1), {"opset": "opset8", "batch_dims": 0}, lambda x: x[..., [-1]]),
        ("Slice", ([4], [-6], [-2], [2]), {"opset": "opset8"}, lambda x: x[:, :, 4:-6:-2]),
        ("StridedSlice", ([0, 1, 0], [0, 0, 4], [1, 1, 2]),
         {"begin_mask": "1,0,1", "end_mask": "1,1,0", "shrink_axis_mask": "", "new_axis_mask": "0"},
         lambda x: x[:, 1:, :4:2]),
        ("StridedSlice", ([0, -1], [0, 0], [1, 1]), {"begin_mask": "1,0", "end_mask": "1,0", "shrink_axis_mask": "0,1"},
         lambda x: x[:, -1]),
        ("StridedSlice", ([0, 0], [0, 0], [1, -1]), {"begin_mask": "1,1", "end_mask": "1,1"}, lambda x: x[:, ::-1]),
        ("Pad", ([0, 1, 0, 2], [0, 0, 1, 0], np.float32(7)), {"pad_mode": "constant"},
         lambda x: np.pad(x, ((0, 0), (1, 0), (0, 1), (2, 0)), constant_values=7)),
        ("Pad", ([0, 0, 1, 2], [0, 0, 1, 0]), {"pad_mode": "reflect"},
         lambda x: np.pad(x, ((0, 0), (0, 0), (1, 1), (2, 0)), mode="reflect")),
        ("Broadcast", ([3, 2, 4, 5, 6],), {"mode": "numpy"}, lambda x: np.broadcast_to(x, (3, 2, 4, 5, 6))),
        ("ShapeOf", (), {"output_type": "i32", "opset": "opset3"}, lambda x: np.array(x.shape)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_movement_layers(tmp_path, kind, constants, attributes, expected):
    values = [value if isinstance(value, np.generic) else np.array(value, np.int64) for value in constants]
    np.testing.assert_array_equal(layer_of(tmp_path, kind, IMAGE, *values, **attributes), expected(IMAGE))


def test_splits(tmp_path):
    for kind, rest, attributes in [("Split", (), {"num_splits": 2}), ("VariadicSplit", ([-1, 1],), {})]:
        ir = IR()
        operands = [ir.parameter("x", "2,4,5,6"), ir.constant(np.int64(1)), *(ir.constant(np.array(c)) for c in rest)]
        first, second = ir.layer(kind, operands, 2, **attributes)
        ir.result(ir.layer("Concat", [second, first], axis=1))
        cut = 2 if kind == "Split" else 3
        np.testing.assert_array_equal(run(tmp_path, ir, x=IMAGE), np.concatenate([IMAGE[:, cut:], IMAGE[:, :cut]], 1))


@pytest.mark.parametrize("version", [10, 11])
def test_compressed_constants_and_computed_output_shape(tmp_path, version):
    """A U-Net step: filters in f16 behind Convert, the extent taken from the skip connection."""
    taps = RNG.integers(-3, 4, (4, 2, 3, 3)).astype(np.float16)
    ir = IR(version)
    x, skip = ir.parameter("x", "?,4,3,1..8"), ir.parameter("skip", "?,2,-1,-1")
    filter_ = ir.layer("Convert", [ir.constant(taps)], destination_type="f32")
    shape = ir.layer("ShapeOf", [skip], opset="opset3", output_type="i32")
    extents = ir.layer("StridedSlice", [shape, *(ir.constant(np.array([v])) for v in (2, 4, 1))], begin_mask="0",
                       end_mask="0")
    up = ir.layer("ConvolutionBackpropData", [x, filter_, extents], name="up", strides="2,2", pads_begin="1,1",
                  auto_pad="EXPLICIT")
    ir.result(ir.layer("Add", [up, skip], name="sum", auto_broadcast="numpy"))
    small, large = IMAGE[:, :, :3, :4], IMAGE[:, :2, :5, :6]
    model = import_ir(ir.write(tmp_path))
    assert [node.op_type for node in model.graph.node if node.domain] == ["ConvolutionBackpropData"]
    assert [value.name for value in model.graph.output] == ["sum"]
    got = convreg.onnx.run(model, {"x": small, "skip": large})["sum"]
    expected = convreg.openvino.convolution_backprop_data(
        small, taps.astype(np.float32), [5, 6], strides=[2, 2], pads_begin=[1, 1], pads_end=[0, 0], dilations=[1, 1],
        auto_pad="explicit", data_format="NCX", filter_format="OIX", conformance="openvino") + large
    np.testing.assert_array_equal(got, expected)


def test_stated_shape_behind_a_conversion_is_folded(tmp_path):
    ir = IR()
    x = ir.parameter("x", "1,1,3")
    shape = ir.layer("Convert", [ir.constant(np.array([6], np.uint8))], destination_type="i64")
    taps = ir.constant(np.array([[[1, 10, 100]]], np.float32))
    ir.result(ir.layer("ConvolutionBackpropData", [x, taps, shape], strides="2", auto_pad="same_upper"))
    model = import_ir(ir.write(tmp_path))
    assert len(model.graph.output[0].type.tensor_type.shape.dim) == 3
    assert [dim.dim_value for dim in model.graph.output[0].type.tensor_type.shape.dim] == [1, 1, 6]
    got = next(iter(convreg.onnx.run(model, {"x": np.array([[[1, 2, 3]]], np.float32)}).values()))
    assert got.tolist() == [[[10, 102, 20, 203, 30, 300]]]


@pytest.mark.parametrize("dtype", [np.float64, np.float16, ml_dtypes.bfloat16, np.int8, np.uint16, np.uint64,
                                   ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, bool])
def test_constants_of_every_plain_type(tmp_path, dtype):
    names = {"float64": "f64", "float16": "f16", "bfloat16": "bf16", "int8": "i8", "uint16": "u16", "uint64": "u64",
             "float8_e4m3fn": "f8e4m3", "float8_e5m2": "f8e5m2", "bool": "boolean"}
    value = np.array([[0, 1, 2], [3, 5, 7]]).astype(dtype)
    ir = IR()
    ir.result(ir.constant(value, names[np.dtype(dtype).name]), "c")
    got = convreg.onnx.run(import_ir(ir.write(tmp_path)))["c"]
    assert got.dtype == value.dtype
    np.testing.assert_array_equal(got.astype(np.float64), value.astype(np.float64))


def test_names_of_results(tmp_path):
    ir = IR()
    x = ir.parameter("x", "3")
    relu = ir.layer("ReLU", [x], name="act", names="first,second")
    for value, name in [(relu, ""), (relu, "again"), (x, ""), (ir.layer("Exp", [relu], name="plain"), "")]:
        ir.result(value, name)
    model = import_ir(ir.write(tmp_path))
    assert [value.name for value in model.graph.output] == ["first", "again", "x_1", "plain"]


def test_missing_attributes_have_the_runtimes_defaults(tmp_path):
    taps = RNG.integers(-3, 4, (2, 2, 3, 2, 2)).astype(np.float32)
    got = layer_of(tmp_path, "GroupConvolutionBackpropData", IMAGE, taps)
    expected = convreg.openvino.group_convolution_backprop_data(
        IMAGE, taps, strides=[1, 1], pads_begin=[0, 0], pads_end=[0, 0], dilations=[1, 1])
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    ("kind", "attributes", "message"),
    [
        ("Interpolate", {}, r"layer 2 \(Interpolate\) 'Interpolate_2': this type of layer is not known"),
        ("ReLU", {"slope": 1}, "attribute 'slope' is not known"),
        ("ConvolutionBackpropData", {"groups": 2}, "attribute 'groups' is not known"),
        ("ConvolutionBackpropData", {"auto_pad": "notset"}, r"auto_pad='notset' is refused.*rule 18"),
        ("ConvolutionBackpropData", {"strides": "1,1,1"}, "rule 5"),
        ("ConvolutionBackpropData", {"strides": "2.0,2"}, "'strides' is '2.0', not an integer"),
        ("ConvolutionBackpropData", {"pads_begin": "-1,0", "pads_end": "0,0"}, "rule 12"),
        ("ConvolutionBackpropData", {"opset": "opset99"}, "operation set 'opset99'"),
        ("ConvolutionBackpropData", {"opset": "extension"}, "operation set 'extension'"),
        ("Add", {"auto_broadcast": "pdpd"}, "auto_broadcast is 'pdpd'"),
        ("Add", {"auto_broadcast": "numpy"}, "ShapeInferenceError|Incompatible"),
        ("Clamp", {"min": "0"}, "attribute 'max' is missing"),
        ("Clamp", {"min": "1", "max": "0"}, "min 1.0 is above max 0.0"),
        ("MaxPool", {"strides": "1,1"}, "do not have an entry per spatial axis"),
        ("MaxPool", {"strides": "0,1", "kernel": "2,2", "rounding_type": "ceil"}, "are not positive"),
        ("Convolution", {"strides": "1,1"}, "the data has 4 channels, the filter 2"),
        ("GroupConvolution", {}, "the data has 4 channels, the filter 12"),
    ],
)
def test_what_is_not_known_is_refused_by_name(tmp_path, kind, attributes, message):
    ir = IR()
    operands = [ir.parameter("x", "1,4,5,6"), ir.constant(np.ones((4, 2, 3, 3), np.float32))]
    ir.result(ir.layer(kind, operands[:1] if kind in ("ReLU", "Clamp", "MaxPool") else operands, **attributes))
    with pytest.raises(GraphError, match=message):
        import_ir(ir.write(tmp_path))
