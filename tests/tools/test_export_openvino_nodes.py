"""Each standard node written as OpenVINO IR, read back, run by the openvino package, and written again."""

from __future__ import annotations

import numpy as np
import pytest
from convreg.tools.onnx_io import export_ir, import_ir
from drawn import dyadic
from graphs import model, value
from ir_files import openvino_values
from onnx import TensorProto, helper

import convreg.onnx

RNG = np.random.default_rng(11)
I64 = np.int64


def standard(op_type: str, *inputs, outputs: int = 1, element: int | None = None, second=None, **stated):
    """A model of one standard node: the first input is fed, the others are constants; None is left out."""
    names = ["x", *(f"c{index}" if array is not None else "" for index, array in enumerate(inputs[1:]))]
    constants = {name: array for name, array in zip(names[1:], inputs[1:], strict=True) if name}
    made = [f"y{index}" for index in range(outputs)]
    node = helper.make_node(op_type, names, made, name=op_type, **stated)
    dtype = inputs[0].dtype if element is None else helper.tensor_dtype_to_np_dtype(element)
    results = [value(name, None, second if second and index else dtype) for index, name in enumerate(made)]
    bare = model([node], [value("x", inputs[0].shape, inputs[0].dtype)], results, constants)
    inferred = convreg.onnx.infer_shapes(bare)
    assert len(inferred.graph.output) == outputs
    return inferred, {"x": inputs[0]}


IMAGE = dyadic(RNG, (2, 4, 5, 6))
POSITIVE = np.abs(IMAGE) + np.float32(0.5)
EXACT = {
    "relu": ("Relu", IMAGE), "abs": ("Abs", IMAGE), "neg": ("Neg", IMAGE), "sign": ("Sign", IMAGE),
    "floor": ("Floor", IMAGE), "ceil": ("Ceil", IMAGE),
    "add": ("Add", IMAGE, dyadic(RNG, (4, 1, 1))), "sub": ("Sub", IMAGE, dyadic(RNG, (6,))),
    "mul": ("Mul", IMAGE, dyadic(RNG, (5, 1))), "div": ("Div", IMAGE, np.float32(4)),
    "integer div": ("Div", np.arange(-6, 6, dtype=np.int32), np.array(4, np.int32)),
    "max": ("Max", IMAGE, np.float32(0.25), dyadic(RNG, (6,))), "min": ("Min", IMAGE, np.float32(0.25)),
    "clip": ("Clip", IMAGE, np.float32(-1), np.float32(1.5)), "clip low": ("Clip", IMAGE, np.float32(-1)),
    "clip high": ("Clip", IMAGE, None, np.float32(0.5)),
    "transpose": ("Transpose", IMAGE, {"perm": [2, 0, 3, 1]}), "reverse": ("Transpose", IMAGE),
    "reshape": ("Reshape", IMAGE, np.array([0, -1, 3], I64)), "flatten": ("Flatten", IMAGE),
    "flatten axis": ("Flatten", IMAGE, {"axis": -1}),
    "slice": ("Slice", IMAGE, np.array([1, -1], I64), np.array([3, -9], I64), np.array([1, 3], I64),
              np.array([1, -2], I64)),
    "slice plain": ("Slice", IMAGE, np.array([1, 1], I64), np.array([2, 3], I64)),
    "slice int32": ("Slice", IMAGE, np.array([1], np.int32), np.array([3], np.int32), np.array([1], np.int32)),
    "split": ("Split", IMAGE, np.array([1, 3], I64), {"axis": -3, "outputs": 2}),
    "split equal": ("Split", IMAGE, {"axis": 3, "num_outputs": 3, "outputs": 3}),
    "pad": ("Pad", IMAGE, np.array([0, 0, 1, 2, 0, 0, 0, 3], I64), np.float32(1.5)),
    "pad axes": ("Pad", IMAGE, np.array([1, 2], I64), None, np.array([-1], I64)),
    "pad reflect": ("Pad", IMAGE, np.array([0, 0, 1, 2, 0, 0, 0, 3], I64), {"mode": "reflect"}),
    "sum": ("ReduceSum", IMAGE, np.array([0, 2], I64), {"keepdims": 0}), "sum all": ("ReduceSum", IMAGE),
    "sum none": ("ReduceSum", IMAGE, np.array([], I64), {"noop_with_empty_axes": 1}),
    "maximum": ("ReduceMax", IMAGE, np.array([-1], I64)),
    "squeeze": ("Squeeze", IMAGE[:, :1], np.array([1], I64)), "squeeze all": ("Squeeze", IMAGE[:1, :, :1]),
    "unsqueeze": ("Unsqueeze", IMAGE, np.array([0, -1], I64)),
    "concat": ("Concat", IMAGE, dyadic(RNG, (2, 1, 5, 6)), {"axis": 1}),
    "matmul": ("MatMul", IMAGE, dyadic(RNG, (6, 3))),
    "gemm": ("Gemm", dyadic(RNG, (4, 3)), dyadic(RNG, (5, 4)), dyadic(RNG, (5,)),
             {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0}),
    "gather": ("Gather", IMAGE, np.array([[1, -1], [0, 2]], I64), {"axis": 2}),
    "expand": ("Expand", IMAGE[:, :1], np.array([4, 1, 1], I64)),
    "shape": ("Shape", IMAGE, {"element": TensorProto.INT64}),
    "shape part": ("Shape", IMAGE, {"element": TensorProto.INT64, "start": 1, "end": -1}),
    "size": ("Size", IMAGE, {"element": TensorProto.INT64}),
    "cast": ("Cast", IMAGE, {"to": TensorProto.INT32, "element": TensorProto.INT32}),
    "identity": ("Identity", IMAGE),
    **{name.lower(): (name, IMAGE, np.float32(0.5), {"element": TensorProto.BOOL}) for name in (
        "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")},
    **{name.lower(): (name, IMAGE > 0, IMAGE[0] > 1, {"element": TensorProto.BOOL}) for name in ("And", "Or", "Xor")},
    "not": ("Not", IMAGE > 0, {"element": TensorProto.BOOL}),
    "where": ("Where", IMAGE > 0, IMAGE[1], np.float32(3), {"element": TensorProto.FLOAT}),
    "top": ("TopK", IMAGE[..., 0].copy(), np.array([3], I64), {"axis": 1, "outputs": 2, "largest": 0, "second": I64}),
    "constant of no axes": ("ConstantOfShape", np.array([], I64), {"element": TensorProto.FLOAT}),
    "constant of shape": ("ConstantOfShape", np.array([2, 3], I64), {"element": TensorProto.FLOAT}),
    "arg max": ("ArgMax", IMAGE, {"axis": 1, "keepdims": 0, "element": TensorProto.INT64}),
    "one hot": ("OneHot", np.array([0, 2, -1, -3], I64), np.array(3, I64), np.array([0, 2], np.float32),
                {"element": TensorProto.FLOAT}),
    "one hot axis": ("OneHot", np.array([[0, 2], [1, -1]], np.int32), np.array(3, I64), np.array([1, 2], np.int32),
                     {"element": TensorProto.INT32, "axis": 0}),
    "max pool": ("MaxPool", IMAGE, {"kernel_shape": [2, 3], "strides": [2, 1], "pads": [0, 1, 0, 1]}),
    "slopes": ("PRelu", IMAGE, dyadic(RNG, (6,))), "slopes of channels": ("PRelu", IMAGE, dyadic(RNG, (4, 1, 1))),
    "slopes of a table": ("PRelu", IMAGE[0, 0], dyadic(RNG, (6,))), "one slope": ("PRelu", IMAGE, np.float32(0.5)),
    "leaky": ("LeakyRelu", IMAGE, {"alpha": 0.25}),
    "conv": ("Conv", IMAGE, dyadic(RNG, (3, 4, 2, 3)), dyadic(RNG, (3,)), {"pads": [1, 0, 0, 2], "strides": [2, 1]}),
    "conv same": ("Conv", IMAGE, dyadic(RNG, (3, 4, 2, 2)), {"auto_pad": "SAME_LOWER", "strides": [2, 1]}),
    "conv groups": ("Conv", IMAGE, dyadic(RNG, (6, 2, 3, 3)), {"group": 2, "dilations": [2, 1]}),
    "conv transpose": ("ConvTranspose", IMAGE, dyadic(RNG, (4, 2, 3, 2)), dyadic(RNG, (4,)), {
        "group": 2, "strides": [2, 3], "pads": [1, 0, 0, 1], "output_padding": [1, 2]}),
    "conv transpose shape": ("ConvTranspose", IMAGE, dyadic(RNG, (4, 2, 3, 2)), {
        "strides": [2, 3], "output_shape": [10, 18]}),
}
CLOSE = {
    "sigmoid": ("Sigmoid", IMAGE), "tanh": ("Tanh", IMAGE), "exp": ("Exp", IMAGE), "log": ("Log", POSITIVE),
    "sqrt": ("Sqrt", POSITIVE), "erf": ("Erf", IMAGE), "pow": ("Pow", POSITIVE, np.float32(1.5)),
    "softmax": ("Softmax", IMAGE, {"axis": 1}), "log softmax": ("LogSoftmax", IMAGE),
    "mean": ("ReduceMean", IMAGE, np.array([1, 3], I64)), "elu": ("Elu", IMAGE, {"alpha": 0.5}),
    "gelu": ("Gelu", IMAGE, {"approximate": "tanh"}), "mish": ("Mish", IMAGE), "softplus": ("Softplus", IMAGE),
    "hard swish": ("HardSwish", IMAGE), "global": ("GlobalAveragePool", IMAGE),
    "average": ("AveragePool", IMAGE, {"kernel_shape": [2, 2], "pads": [1, 0, 0, 1]}),
    "normal": ("BatchNormalization", IMAGE, *[POSITIVE[0, :, 0, index].copy() for index in range(4)], {"epsilon": 0.5}),
    "cross entropy": ("SoftmaxCrossEntropyLoss", dyadic(RNG, (4, 3)), np.array([0, 2, 1, 1], I64), {"outputs": 2}),
}
OTHER_SUMS = {"global", "cross entropy"}
"""What is read back as nodes that add in another order."""


def named(name):
    """The model of a node in the tables, and what to feed it."""
    op_type, *inputs = {**EXACT, **CLOSE}[name]
    stated = inputs.pop() if isinstance(inputs[-1], dict) else {}
    return standard(op_type, *inputs, **stated)


@pytest.mark.parametrize("name", [*EXACT, *CLOSE])
def test_standard_nodes(tmp_path, name):
    source, feeds = named(name)
    expected = convreg.onnx.run(source, feeds)
    path = tmp_path / "node.xml"
    export_ir(source, path)
    for results, close in ((convreg.onnx.run(import_ir(path), feeds), name in OTHER_SUMS),
                           (openvino_values(path, feeds), name in CLOSE)):
        for output, array in expected.items():
            assert results[output].shape == array.shape
            assert results[output].dtype == array.dtype
            tolerance = 2e-6 if close else 0
            np.testing.assert_allclose(results[output], array, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", [*EXACT, *CLOSE])
def test_files_stay_the_same(tmp_path, name):
    """What is read is written again, from the third time on as the same file, apart from OneHot's indices."""
    source, feeds = named(name)
    texts, results = [], []
    for number in range(4):
        path = tmp_path / f"{number}.xml"
        export_ir(source, path)
        source = import_ir(path)
        texts.append(path.read_bytes())
        results.append(convreg.onnx.run(source, feeds))
    for later in results[1:]:
        for output, array in results[0].items():
            np.testing.assert_array_equal(later[output], array)
    if name not in ("one hot", "one hot axis", "cross entropy"):
        assert texts[3] == texts[2]
