"""Number formats in OpenVINO's layers: 8-bit integers, 8-bit floats and wide integers, read and written."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from convreg.tools.onnx_io import export_ir, import_ir
from graphs import model, value
from ir_files import layers
from model_files import IR
from onnx import TensorProto, helper

import convreg.onnx
from convreg import GraphError

BYTES = np.array([-128, -128, 127, 100, -7, 3], np.int8)
OTHERS = np.array([-1, 127, 127, -3, 2, -2], np.int8)
FLOATS = np.array([0.1, 448, 464, 465, 1000, -1000, 60000, 62000, -np.inf, np.nan], np.float32)


def runtime(path: Path, *feeds: np.ndarray) -> np.ndarray:
    openvino = pytest.importorskip("openvino")
    return openvino.Core().compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})(list(feeds))[0]


def run(source: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The results, which are the same by either engine."""
    first, second = (list(convreg.onnx.run(source, feeds, engine=engine).values()) for engine in ("reference", None))
    for pair in zip(first, second, strict=True):  # NumPy sees no NaN in types of ml_dtypes
        np.testing.assert_array_equal(*(array if array.dtype.kind in "iu" else array.astype(float) for array in pair))
    return first


def read(folder: Path, kind: str, *operands: np.ndarray, **attributes) -> tuple[np.ndarray, Path]:
    """The result of one layer whose operands are all inputs, and the file."""
    ir = IR()
    names = {"int8": "i8", "int32": "i32", "float32": "f32", "float16": "f16"}
    ports = [ir.parameter(f"x{index}", str(len(array)), names[array.dtype.name])
             for index, array in enumerate(operands)]
    made = ir.layer(kind, ports, **attributes)
    if kind == "Convert":
        made = ir.layer("Convert", [made], destination_type="f32")
    ir.result(made)
    path = ir.write(folder)
    feeds = {f"x{index}": array for index, array in enumerate(operands)}
    (result,) = run(import_ir(path), feeds)
    return result, path


@pytest.mark.parametrize(("kind", "expected"), [
    ("Negative", [127, 127, -127, -100, 7, -3]), ("Abs", [127, 127, 127, 100, 7, 3])])
def test_read_arithmetic_of_one_byte_saturates(tmp_path, kind, expected):
    result, path = read(tmp_path, kind, BYTES)
    assert (result.dtype, result.tolist()) == (np.int8, expected)
    np.testing.assert_array_equal(result, runtime(path, BYTES))


@pytest.mark.parametrize(("python_division", "expected"), [
    ("false", [127, -1, 1, -33, -3, -1]), ("true", [127, -2, 1, -34, -4, -2])])
def test_read_quotients_of_bytes_saturate(tmp_path, python_division, expected):
    """-128 / -1 leaves the range, and so does what is divided where quotients are rounded down."""
    result, path = read(tmp_path, "Divide", BYTES, OTHERS, auto_broadcast="numpy", m_pythondiv=python_division)
    assert (result.dtype, result.tolist()) == (np.int8, expected)
    if python_division == "false":  # the runtime rounds toward zero always
        np.testing.assert_array_equal(result, runtime(path, BYTES, OTHERS))


@pytest.mark.parametrize(("target", "expected"), [
    ("f8e4m3", [0.1015625, 448, 448, *[np.nan] * 7]),
    ("f8e5m2", [0.09375, 448, 448, 448, 1024, -1024, 57344, np.inf, -np.inf, np.nan])])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_read_conversions_to_8_bit_floats_do_not_saturate(tmp_path, target, dtype, expected):
    with np.errstate(over="ignore"):
        numbers = FLOATS.astype(dtype)
    result, path = read(tmp_path, "Convert", numbers, destination_type=target)
    np.testing.assert_array_equal(result, np.array(expected, np.float32))
    np.testing.assert_array_equal(result, runtime(path, numbers))


def written(folder: Path, op_type: str, *operands: np.ndarray, to: int | None = None, back: int | None = None,
            **stated) -> tuple[onnx.ModelProto, dict[str, np.ndarray], Path]:
    """A model of one node in a file; the first operand is an input, the others are constants."""
    first, *others = operands
    names = [f"c{index}" for index in range(len(others))]
    nodes = [helper.make_node(op_type, ["x", *names], ["y"], name=op_type, **stated)]
    if to is not None:
        nodes[0].attribute.append(helper.make_attribute("to", to))
    if back is not None:
        nodes.append(helper.make_node("Cast", ["y"], ["z"], to=back))
    source = convreg.onnx.infer_shapes(model(
        nodes, [value("x", first.shape, first.dtype)],
        [value(nodes[-1].output[0], None, first.dtype if back is None else helper.tensor_dtype_to_np_dtype(back))],
        dict(zip(names, others, strict=True))))
    path = folder / "node.xml"
    export_ir(source, path)
    return source, {"x": first}, path


def check(source: onnx.ModelProto, feeds: dict[str, np.ndarray], path: Path, *, in_runtime: bool = True) -> np.ndarray:
    """The result, which is the same after the file, after a second file, and in OpenVINO."""
    (expected,) = run(source, feeds)
    again = import_ir(path)
    export_ir(again, path.with_name("again.xml"))
    for each in (again, import_ir(path.with_name("again.xml"))):
        (result,) = run(each, feeds)
        assert result.dtype == expected.dtype
        np.testing.assert_array_equal(result, expected)
    if in_runtime:
        np.testing.assert_array_equal(runtime(path, *feeds.values()), expected)
    return expected


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("op_type", ["Add", "Sub", "Mul", "Div"])
def test_written_arithmetic_of_bytes_wraps(tmp_path, op_type, dtype):
    """As ONNX's does: the layer of the same name would saturate."""
    first, second = BYTES.view(dtype), OTHERS.view(dtype)
    result = check(*written(tmp_path, op_type, first, second))
    wide = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply}
    if op_type in wide:
        assert result.tolist() == wide[op_type](first.astype(int), second.astype(int)).astype(dtype).tolist()


@pytest.mark.parametrize("op_type", ["Neg", "Abs"])
def test_written_negatives_of_bytes_wrap(tmp_path, op_type):
    assert check(*written(tmp_path, op_type, BYTES))[0] == -128


@pytest.mark.parametrize("saturate", [0, 1])
@pytest.mark.parametrize(("target", "largest"), [(TensorProto.FLOAT8E4M3FN, 448), (TensorProto.FLOAT8E5M2, 57344)])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32, np.int16, np.int8])
def test_written_conversions_to_8_bit_floats(tmp_path, dtype, target, largest, saturate):
    """Saturation is a Clamp, where numbers of the type can be too large."""
    numbers = FLOATS[:9] if np.dtype(dtype).kind == "f" else np.array([3, -100, 127, 17])
    if np.dtype(dtype).itemsize > 1 and np.dtype(dtype).kind == "i":
        numbers = np.append(numbers, [500, -30000])
    with np.errstate(over="ignore"):
        numbers = numbers.astype(dtype)
    source, feeds, path = written(tmp_path, "Cast", numbers, to=target, back=TensorProto.FLOAT, saturate=saturate)
    result = check(source, feeds, path)
    assert np.abs(result).max() <= largest or not saturate
    beyond = dtype in (np.float32, np.float16, np.int32) or (dtype == np.int16 and largest == 448)
    assert len(layers(path, "Clamp")) == (saturate and beyond)


@pytest.mark.parametrize(("target", "expected"), [
    (TensorProto.FLOAT8E4M3FN, [448, 448, -448, 0.5]), (TensorProto.FLOAT8E5M2, [448, 512, -57344, 0.5])])
def test_written_conversions_between_8_bit_floats(tmp_path, target, expected):
    """Clamp is computed in f32: its counterpart in ONNX takes no 8-bit floats."""
    numbers = np.array([448, 512, -57344, 0.5], np.float32).astype(ml_dtypes.float8_e5m2)
    source, feeds, path = written(tmp_path, "Cast", numbers, to=target, back=TensorProto.FLOAT)
    assert check(source, feeds, path, in_runtime=False).tolist() == expected


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_written_bounds_of_wide_integers_are_exact(tmp_path, dtype):
    """OpenVINO computes them in f32, so only the file is compared."""
    low, high = np.array(2**24 + 1, dtype), np.array(np.iinfo(dtype).max - 1, dtype)
    numbers = np.array([5, np.iinfo(dtype).max, 2**25 + 1], dtype)
    result = check(*written(tmp_path, "Clip", numbers, low, high), in_runtime=False)
    assert result.tolist() == [2**24 + 1, np.iinfo(dtype).max - 1, 2**25 + 1]


def test_written_powers_of_integers(tmp_path):
    numbers = np.array([4, 9, -3], np.int32)
    assert check(*written(tmp_path, "Pow", numbers, np.array(2, np.float32))).tolist() == [16, 81, 9]
    with pytest.raises(GraphError, match="Pow node 'Pow': a fractional or computed exponent of integers; allowed: an"):
        written(tmp_path, "Pow", numbers, np.array(0.5, np.float32))


@pytest.mark.parametrize("op_type", ["ReduceSum", "ReduceMax"])
def test_written_reductions_of_a_scalar(tmp_path, op_type):
    assert check(*written(tmp_path, op_type, np.array(3, np.float32))) == 3


def test_written_reductions_of_truth_values_are_refused(tmp_path):
    with pytest.raises(GraphError, match="ReduceMax node 'ReduceMax': the elements are truth values; allowed: numbers"):
        written(tmp_path, "ReduceMax", np.array([True, False]))


@pytest.mark.parametrize("saturate", [False, True])
@pytest.mark.parametrize("format", ["float8_e4m3fn", "float8_e5m2", "bfloat16", "float16"])
def test_written_conversions_of_ours(tmp_path, format, saturate):
    """Quantize nodes are written as `lower` writes them, in 8-bit floats with the bits of every number."""
    source = convreg.onnx.node_model("nodes::Quantize", FLOATS, as_inputs=["x"], format=format, saturate=saturate)
    path = tmp_path / "quantize.xml"
    export_ir(source, path)
    (expected,), (found,) = (run(each, {"x": FLOATS}) for each in (source, import_ir(path)))
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found.astype(np.float32), expected.astype(np.float32))


def test_formats_that_no_file_has_are_refused(tmp_path):
    source = convreg.onnx.node_model("nodes::Quantize", FLOATS, as_inputs=["x"], format="hifloat8")
    with pytest.raises(GraphError, match="Quantize node 'quantize': hifloat8 has no element type in ONNX"):
        export_ir(source, tmp_path / "quantize.xml")
