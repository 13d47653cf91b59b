"""Standard nodes on the reference engine: right where onnx's own implementations are wrong, or refused by name."""

from __future__ import annotations

import math

import numpy as np
import pytest
from onnx import ModelProto, helper, shape_inference
from releases import not_before

import convreg.onnx
from convreg import GraphError

RNG = np.random.default_rng(5)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def one_node(op_type: str, version: int, operands: list, outputs: int = 1, **attributes) -> ModelProto:
    names = ["" if array is None else f"x{index}" for index, array in enumerate(operands)]
    made = [f"y{index}" for index in range(outputs)]
    graph = helper.make_graph(
        [helper.make_node(op_type, names, made, **attributes)], "one",
        [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
         for name, array in zip(names, operands, strict=True) if name],
        [helper.make_empty_tensor_value_info(name) for name in made])
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", version)])
    return shape_inference.infer_shapes(model)


def feeds_of(operands: list) -> dict[str, np.ndarray]:
    return {f"x{index}": array for index, array in enumerate(operands) if array is not None}


X4, C3 = normal(2, 3, 5, 4), normal(3)
STATISTICS = [X4, C3, C3 + 1, C3 * 2, np.abs(C3) + 1]
FAR = np.float32([[1000, 0, -30], [-200, 0, 1]])
LABELS = np.array([[1, 2, 0], [2, 2, 1]])
RIGHT = {
    "softmax 1": ("Softmax", 1, [normal(2, 3, 4)], {}),
    "softmax 11": ("Softmax", 11, [normal(2, 3, 4)], {"axis": 0}),
    "softmax 12": ("Softmax", 12, [normal(2, 3, 4)], {"axis": -2}),
    "softmax 13": ("Softmax", 13, [normal(2, 3, 4)], {"axis": 1}),
    "log softmax": ("LogSoftmax", 11, [normal(2, 3, 4)], {}),
    "log softmax 13, far": ("LogSoftmax", 13, [FAR], {}),
    "log softmax 13, axis, 16 bits": ("LogSoftmax", 13, [FAR.astype(np.float16)], {"axis": 0}),
    "cross-entropy, far": ("SoftmaxCrossEntropyLoss", 13, [FAR, LABELS[0, :2]], {}),
    "cross-entropy, weights": ("SoftmaxCrossEntropyLoss", 12, [normal(2, 3, 3), LABELS, np.float32([1, 2, 3])], {}),
    "cross-entropy, ignored": ("SoftmaxCrossEntropyLoss", 13, [normal(2, 3, 3), LABELS], {"ignore_index": 2}),
    "cross-entropy, none": ("SoftmaxCrossEntropyLoss", 13, [normal(2, 3, 3), LABELS, np.float32([1, 2, 3])],
                            {"reduction": "none", "ignore_index": 2}),
    "cross-entropy, sum": ("SoftmaxCrossEntropyLoss", 13, [normal(2, 3, 3), LABELS], {"reduction": "sum"}),
    "hardmax": ("Hardmax", 11, [normal(2, 3, 4)], {"axis": 1}),
    "batch normalization 7": ("BatchNormalization", 7, STATISTICS, {}),
    "batch normalization 9": ("BatchNormalization", 9, STATISTICS, {"epsilon": 0.1}),
    "batch normalization 13": ("BatchNormalization", 13, STATISTICS, {"momentum": 0.5}),
    "batch normalization 15": ("BatchNormalization", 15, STATISTICS, {}),
    "few channels": ("LRN", 13, [normal(2, 2, 3, 3)], {"size": 5, "alpha": 0.3}),
    "one channel": ("LRN", 13, [normal(2, 1, 3, 3)], {"size": 3, "alpha": 0.3}),
    "many channels": ("LRN", 13, [normal(5, 7, 3, 2)], {"size": 3, "alpha": 0.3, "bias": 2.0}),
    "fewer indices": ("GatherElements", 13, [normal(3, 4, 2), np.array([[[1], [-4], [2]]])], {"axis": 1}),
    "fewer indices, axis 0": ("GatherElements", 11, [normal(3, 4), np.array([[1, 0], [-1, 2]])], {}),
    "norm 1": ("LpNormalization", 13, [normal(2, 3, 4)], {"p": 1}),
    "norm 1, axis": ("LpNormalization", 22, [normal(2, 3, 4)], {"p": 1, "axis": 1}),
    "norm 2": ("LpNormalization", 1, [normal(2, 3, 4)], {"axis": 0}),
    "same lower, strides": ("MaxPool", 12, [normal(1, 2, 7, 6)],
                            {"kernel_shape": [3, 2], "strides": [2, 1], "auto_pad": "SAME_LOWER"}),
    "one axis, one-sided": ("MaxPool", 11, [normal(2, 2, 7)], {"kernel_shape": [3], "pads": [2, 0], "strides": [2]}),
    "ceiling": ("MaxPool", 12, [normal(1, 1, 4)], {"kernel_shape": [3], "strides": [2], "ceil_mode": 1}),
    "no window in the padding": ("MaxPool", 12, [normal(1, 1, 3, 3)], {
        "kernel_shape": [1, 1], "strides": [2, 2], "ceil_mode": 1}),
    "volumes": ("MaxPool", 12, [normal(1, 2, 5, 4, 6)], {
        "kernel_shape": [2, 3, 2], "strides": [2, 1, 3], "dilations": [2, 1, 1], "pads": [1, 0, 1, 0, 2, 0]}),
    "bytes": ("MaxPool", 12, [RNG.integers(0, 255, (1, 1, 4, 4)).astype(np.uint8)], {
        "kernel_shape": [2, 2], "pads": [1, 1, 1, 1]}),
    "average, same": ("AveragePool", 11, [normal(1, 2, 7)], {
        "kernel_shape": [3], "strides": [2], "auto_pad": "SAME_LOWER"}),
    "average, padding": ("AveragePool", 19, [normal(1, 2, 5, 5)], {
        "kernel_shape": [3, 3], "strides": [3, 2], "pads": [1, 1, 0, 0], "ceil_mode": 1, "count_include_pad": 1}),
    "norms": ("LpPool", 18, [normal(1, 2, 5, 5)], {"kernel_shape": [2, 3], "p": 3, "pads": [1, 0, 0, 2]}),
    "global, one axis": ("GlobalMaxPool", 1, [normal(2, 3, 5)], {}),
    "global, three axes": ("GlobalMaxPool", 22, [normal(2, 3, 2, 3, 4)], {}),
    "slice from below": ("Slice", 13, [normal(4, 5), np.array([-100]), np.array([-100]), np.array([0]),
                                       np.array([-1])], {}),
    "slice backwards": ("Slice", 10, [normal(4, 5), np.array([100, 1]), np.array([-100, 4]), np.array([1, 0]),
                                      np.array([-2, 1])], {}),
    "error function": ("Erf", 13, [normal(3, 4)], {}),
    "mean, first operand broadcast": ("Mean", 13, [normal(3), normal(2, 1), normal(1, 2, 3)], {}),
    "pads below 0": ("Pad", 13, [normal(4, 5), np.array([-1, 2, 0, -3]), np.float32([7]).reshape(())], {}),
    "pads of an attribute": ("Pad", 2, [normal(4, 5)], {"pads": [-1, 2, 0, -3], "value": 7.0}),
    "pads below 0 of some axes": ("Pad", 18, [normal(4, 5), np.array([-1, 2]), None, np.array([-1])], {}),
    "pads below 0, reflected": ("Pad", 13, [normal(4, 6), np.array([0, -1, -1, 2])], {"mode": "reflect"}),
    "pads below 0, edges": ("Pad", 13, [normal(4, 6), np.array([2, -2, -1, 3])], {"mode": "edge"}),
    "mean of large float16": ("Mean", 13, [np.full(2, 60000, np.float16)] * 2, {}),
    "all taken away, then padded": ("Pad", 13, [normal(6), np.array([-6, 2])], {}),
    "squares of integers": ("ReduceSumSquare", 13, [RNG.integers(0, 9, (2, 3)).astype(np.int32)], {"axes": [1]}),
}


@pytest.mark.parametrize("case", [
    pytest.param(case, marks=not_before("onnxruntime", (1, 25), "has no kernel of that version"))
    if case == "norm 1, axis" else case for case in RIGHT])
def test_the_engines_agree(case):
    pytest.importorskip("onnxruntime")
    op_type, version, operands, attributes = RIGHT[case]
    model = one_node(op_type, version, operands, **attributes)
    found = {engine: convreg.onnx.run(model, feeds_of(operands), engine=engine)["y0"]
             for engine in ("onnxruntime", "reference")}
    assert convreg.onnx.Session(model).engine == "onnxruntime"
    assert found["reference"].dtype == found["onnxruntime"].dtype
    np.testing.assert_allclose(found["reference"], found["onnxruntime"], rtol=1e-5, atol=1e-6)


def test_logarithms_of_a_softmax_that_underflows_are_finite():
    """As in a training whose loss is large: onnx's are infinite."""
    model = one_node("SoftmaxCrossEntropyLoss", 13, [FAR, LABELS[0, :2]], 2)
    made = convreg.onnx.run(model, {"x0": FAR, "x1": LABELS[0, :2]}, engine="reference")
    np.testing.assert_allclose(made["y1"], [[0, -1000, -1030], [-201.3132617, -1.3132617, -0.3132617]], rtol=1e-6)
    np.testing.assert_allclose(made["y0"], (1000 + 0.3132617) / 2, rtol=1e-6)


@pytest.mark.parametrize("label", [-1, 3])
def test_labels_that_no_class_has_are_refused(label):
    labels = np.array([0, label])
    model = one_node("SoftmaxCrossEntropyLoss", 13, [FAR, labels], ignore_index=7)
    with pytest.raises(GraphError, match=f"the label {label} is refused; allowed: 0 to 2, and 7, which is ignored"):
        convreg.onnx.run(model, {"x0": FAR, "x1": labels}, engine="reference")


@pytest.mark.parametrize("storage_order", [0, 1])
@pytest.mark.parametrize("shape", [(2, 2, 7), (2, 2, 5, 6)])
def test_places_of_maxima(shape, storage_order):
    pytest.importorskip("onnxruntime")
    x = normal(*shape)
    spatial = len(shape) - 2
    model = one_node("MaxPool", 12, [x], 2, kernel_shape=[3] * spatial, strides=[2] * spatial,
                     pads=[1] * (2 * spatial), storage_order=storage_order if spatial > 1 else 0)
    for name, array in convreg.onnx.run(model, {"x0": x}, engine="onnxruntime").items():
        np.testing.assert_array_equal(convreg.onnx.run(model, {"x0": x}, engine="reference")[name], array)


def test_values_written_out():
    """Without onnxruntime."""
    def value(op_type, version, operands, **attributes):
        model = one_node(op_type, version, operands, **attributes)
        return convreg.onnx.run(model, feeds_of(operands), engine="reference")["y0"].tolist()

    ones = np.ones((1, 2, 2), np.float32)
    assert value("Softmax", 11, [ones]) == [[[0.25, 0.25], [0.25, 0.25]]]
    assert value("Softmax", 13, [ones], axis=1) == [[[0.5, 0.5], [0.5, 0.5]]]
    assert value("LpNormalization", 13, [np.array([-1, 3, 0, 0], np.float32)], p=1) == [-0.25, 0.75, 0, 0]
    assert value("LpNormalization", 13, [np.zeros(3, np.float32)], p=1) == [0, 0, 0]
    line = np.arange(5, dtype=np.float32).reshape(1, 1, 5)
    assert value("MaxPool", 12, [line], kernel_shape=[3], strides=[2], auto_pad="SAME_LOWER") == [[[1, 3, 4]]]
    statistics = [np.full((1, 1, 2), 3, np.float32), *(np.array([number], np.float32) for number in (2, 1, 1, 4))]
    assert value("BatchNormalization", 9, statistics, epsilon=0.0) == [[[3, 3]]]
    assert value("LRN", 13, [np.ones((1, 1, 1, 1), np.float32)], size=3, alpha=3.0, beta=1.0) == [[[[0.5]]]]
    assert value("Pad", 18, [np.array(["a", "b"], object), np.array([1, -1])]) == ["", "a"]
    assert value("Pad", 18, [np.array(3, np.float32), np.zeros(0, np.int64)]) == 3


@pytest.mark.parametrize("engine", [None, "reference"])
def test_double_precision(engine):
    x = np.array([0.3, -1.7])
    erf = np.array([math.erf(number) for number in x])
    np.testing.assert_array_equal(convreg.onnx.run(one_node("Erf", 13, [x]), {"x0": x}, engine=engine)["y0"], erf)
    gelu = convreg.onnx.run(one_node("Gelu", 20, [x]), {"x0": x}, engine=engine)["y0"]
    np.testing.assert_allclose(gelu, [number * (1 + math.erf(number / math.sqrt(2))) / 2 for number in x], rtol=1e-14)
    wide = [x, np.ones((3, 2))]
    mean = convreg.onnx.run(one_node("Mean", 13, wide), feeds_of(wide), engine=engine)["y0"]
    np.testing.assert_array_equal(mean, (x + wide[1]) / 2)


@pytest.mark.parametrize("pads", [[-8, 5], [-3, -4]])
def test_pads_that_take_away_more_than_there_is(pads):
    model = one_node("Pad", 13, [normal(6), np.array(pads)])
    with pytest.raises(GraphError, match=f"node that makes 'y0': pads of {pads[0]} and {pads[1]} are refused for an "
                                         "axis of 6 elements"):
        convreg.onnx.run(model, {"x0": normal(6), "x1": np.array(pads)}, engine="reference")


def recurrent(op_type: str, gates: int, *, lengths=None, version: int = 14, **attributes):
    operands = [normal(3, 2, 4), normal(1, gates * 3, 4), normal(1, gates * 3, 3)]
    if lengths is not None:
        operands += [None, np.array(lengths, np.int32)]
    return op_type, version, operands, {"hidden_size": 3, **attributes}


REFUSED = {
    "lengths": (*recurrent("LSTM", 4, lengths=[3, 2]), r"sequence_lens=\[3, 2\]"),
    "clip": (*recurrent("GRU", 3, clip=0.5), r"clip=0\.5"),
    "gates": (*recurrent("LSTM", 4, input_forget=1), "input_forget=1"),
    "activations": (*recurrent("GRU", 3, activations=["Sigmoid", "Relu"]), r"activations=\['Sigmoid', 'Relu'\]"),
    "dilated": ("MaxPool", 12, [normal(1, 1, 7)], {
        "kernel_shape": [3], "dilations": [2], "auto_pad": "SAME_UPPER"}, r"auto_pad='SAME_UPPER' and dilations=\[2\]"),
    "regions": ("RoiAlign", 10, [normal(1, 1, 8, 8), np.array([[0, 0, 4, 4]], np.float32), np.array([0])], {},
                "regions whose corners are whole pixels"),
    "cubic": ("GridSample", 20, [normal(1, 1, 4, 4), normal(1, 2, 2, 2)], {"mode": "cubic", "padding_mode": "border"},
              "mode='cubic' and padding_mode='border'"),
    "old resize": ("Resize", 10, [normal(1, 1, 2, 2), np.float32([1, 1, 2, 2])], {}, "scales as its second input"),
    "old training": ("BatchNormalization", 6, STATISTICS, {}, "is_test=0"),
    "axis": ("Add", 6, [normal(2, 2, 2), normal(2)], {"broadcast": 1, "axis": 0}, "axis=0"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_would_be_wrong_is_refused(case):
    op_type, version, operands, attributes, reason = REFUSED[case]
    model = one_node(op_type, version, operands, **attributes)
    with pytest.raises(GraphError, match=rf"{op_type} of version {version} of standard ONNX with {reason} is refused "
                                         "by the reference engine.*engine='onnxruntime' computes it"):
        convreg.onnx.run(model, feeds_of(operands), engine="reference")


def test_more_than_there_are():
    operands = [normal(2, 3), np.array([4])]
    with pytest.raises(GraphError, match="k=4 is refused; allowed: 0 to 3"):
        convreg.onnx.run(one_node("TopK", 11, operands, 2), feeds_of(operands), engine="reference")
    with pytest.raises(GraphError, match="k=4 is refused"):
        convreg.onnx.run(one_node("TopK", 11, operands, 2), feeds_of(operands))


@not_before("onnxruntime", (1, 30), "computes with negative padding")
def test_negative_padding_is_refused():
    operands = [normal(1, 1, 9)]
    with pytest.raises(GraphError, match="negative padding; allowed: strides that are not longer than the window"):
        convreg.onnx.run(one_node("MaxPool", 12, operands, kernel_shape=[1], strides=[3], auto_pad="SAME_UPPER"),
                         feeds_of(operands))


@pytest.mark.parametrize(("extents", "steps"), [([], 3), ([2], 3), ([2, 2], 3), ([], 0), ([2, 2], 0)])
def test_loops_stack_what_they_scan(extents, steps):
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["again"]), helper.make_node("Add", ["state", "x"], ["next"]),
         helper.make_node("Identity", ["state"], ["seen"])], "body",
        [helper.make_tensor_value_info("step", 7, []), helper.make_tensor_value_info("go", 9, []),
         helper.make_tensor_value_info("state", 1, extents)],
        [helper.make_tensor_value_info("again", 9, []), helper.make_tensor_value_info("next", 1, extents),
         helper.make_tensor_value_info("seen", 1, extents)])
    graph = helper.make_graph(
        [helper.make_node("Loop", ["count", "", "x"], ["last", "all"], body=body)], "loop",
        [helper.make_tensor_value_info("count", 7, []), helper.make_tensor_value_info("x", 1, extents)],
        [helper.make_tensor_value_info("last", 1, extents), helper.make_tensor_value_info("all", 1, [None, *extents])])
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 13)])
    x = normal(*extents)
    results = convreg.onnx.run(model, {"count": steps, "x": x}, engine="reference")
    assert results["all"].shape == (steps, *extents)
    np.testing.assert_allclose(results["last"], x * (steps + 1), rtol=1e-5)
    np.testing.assert_allclose(results["all"], [x * (step + 1) for step in range(steps)] or results["all"], rtol=1e-5)
