"""Graphs that mix standard nodes with ours: values, subgraphs, functions, blank outputs, sessions and errors."""

from __future__ import annotations

import gc
import threading
import weakref

import ml_dtypes
import numpy as np
import pytest
from drawn import dyadic
from graphs import OPSETS, SAME_3X3, data_gradient, model, value
from onnx import AttributeProto, FunctionProto, ModelProto, NodeProto, TensorProto, helper

import convreg
import convreg.onnx
from convreg import GraphError, OpError, OpTypeError
from convreg.calls import execution
from convreg.onnx.execution.evaluator import Evaluator

pytestmark = pytest.mark.usefixtures("default_engine")

RNG = np.random.default_rng(0)
FEEDS = {"dy": dyadic(RNG, (1, 4, 8, 8)), "w": dyadic(RNG, (4, 3, 3, 3))}
DY, W = value("dy", [1, 4, 8, 8]), value("w", [4, 3, 3, 3])
DX = value("dx", [1, 3, 8, 8])
SHAPE = [1, 3, 8, 8]
GRADS = {"strides": [1, 1], "pads": [1, 1, 1, 1]}


def expected(dy: np.ndarray = FEEDS["dy"], w: np.ndarray = FEEDS["w"]) -> np.ndarray:
    return convreg.onednn.convolution_backward_data(dy, w, SHAPE, **SAME_3X3)


def three_gradients(outputs: list[str], **attributes) -> NodeProto:
    return helper.make_node("ConvGrad", ["dy", "x", "w"], outputs, domain="com.microsoft", **{**GRADS, **attributes})


def test_mixed_graph():
    """relu(dx(relu(dy))) * 2 + 1 with the shape taken from another input."""
    nodes = [helper.make_node("Relu", ["dy"], ["a"]), helper.make_node("Shape", ["x"], ["s"]),
             data_gradient(["a", "w", "s"], "b"), helper.make_node("Relu", ["b"], ["c"]),
             helper.make_node("Mul", ["c", "two"], ["d"]), helper.make_node("Add", ["d", "one"], ["y"])]
    made = model(nodes, [DY, W, value("x", ["N", 3, "H", "W"])], [value("y", [None] * 4), value("c", [None] * 4)],
                 {"two": np.float32(2), "one": np.float32(1)})
    results = convreg.onnx.run(made, {**FEEDS, "x": np.zeros(SHAPE, np.float32)})
    inner = np.maximum(expected(np.maximum(FEEDS["dy"], 0)), 0)
    assert list(results) == ["y", "c"]
    np.testing.assert_array_equal(results["c"], inner)
    np.testing.assert_array_equal(results["y"], inner * 2 + 1)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_tensors(dtype):
    feeds = {name: array.astype(dtype) for name, array in FEEDS.items()}
    made = model([data_gradient(["dy", "w"], dst_shape=SHAPE)], [value("dy", [1, 4, 8, 8], dtype)],
                 [value("dx", SHAPE, dtype)], {"w": feeds["w"]})
    result = convreg.onnx.run(made, {"dy": feeds["dy"]})["dx"]
    assert result.dtype == dtype
    np.testing.assert_array_equal(result.astype(np.float32), expected().astype(dtype).astype(np.float32))


@pytest.mark.parametrize("blank", [(), (0,), (1,), (2,), (0, 1), (1, 2)])
def test_blank_outputs_are_not_computed(blank, monkeypatch):
    allocated = []
    real = execution.perform
    monkeypatch.setattr(execution, "perform", lambda *args: allocated.append(args[3]) or real(*args))
    names = ["" if index in blank else name for index, name in enumerate(("dx", "dw", "db"))]
    while not names[-1]:
        names.pop()
    made = model([three_gradients(names)], [DY, W, value("x", SHAPE)], [value(name) for name in names if name])
    x = dyadic(np.random.default_rng(1), tuple(SHAPE))
    results = convreg.onnx.run(made, {**FEEDS, "x": x}, engine="reference")
    everything = dict(zip(("dx", "dw", "db"), convreg.microsoft.conv_grad(FEEDS["dy"], x, FEEDS["w"], **GRADS),
                          strict=True))
    assert [output is None for output in allocated[0]] == [name not in names for name in everything]
    assert results.keys() == {name for name in names if name}
    for name, result in results.items():
        np.testing.assert_array_equal(result, everything[name])


def test_blank_output_leaves_absent_inputs_absent():
    """A value under the empty name must not reach a later node's blank input."""
    made = model([helper.make_node("TopK", ["v", "k"], ["", "i"]), helper.make_node("Clip", ["v", "", "top"], ["y"])],
                 [value("v", [3])], [value("y", [3])], {"k": np.array([1]), "top": np.float32(2)})
    assert convreg.onnx.run(made, {"v": np.array([1, -2, 3], np.float32)})["y"].tolist() == [1, -2, 2]


def test_masked_output_that_is_named_is_empty():
    node = helper.make_node(
        "convolution_backward", ["dy", "x", "w"], ["dx", "dw", "db"], domain="convreg.aten", stride=[1, 1],
        padding=[1, 1], dilation=[1, 1], transposed=0, output_padding=[0, 0], groups=1, output_mask=[1, 0, 1])
    made = model([node], [DY, W, value("x", SHAPE)], [DX, value("dw", [None]), value("db", [4])])
    convreg.onnx.check(made)
    results = convreg.onnx.run(made, {**FEEDS, "x": np.zeros(SHAPE, np.float32)})
    assert results["dw"].size == 0
    np.testing.assert_array_equal(results["dx"], expected())


def branch(name: str, shape: list[int]) -> helper.GraphProto:
    return helper.make_graph([data_gradient(["dy", "w"], name, "inner", dst_shape=shape)], name, [], [value(name)])


@pytest.mark.parametrize("taken", [True, False])
def test_if(taken):
    made = model([helper.make_node("If", ["c"], ["dx"], then_branch=branch("yes", SHAPE), else_branch=helper.make_graph(
        [helper.make_node("Identity", ["other"], ["no"])], "no", [], [value("no")]))],
        [value("c", [], np.bool_), DY, W], [DX], {"other": np.zeros(SHAPE, np.float32)})
    result = convreg.onnx.run(made, {**FEEDS, "c": np.array(taken)})["dx"]
    np.testing.assert_array_equal(result, expected() if taken else 0)


def test_loop():
    """Three steps of v <- v + dx(dy), dx from outside the body's own values."""
    body = helper.make_graph(
        [data_gradient(["dy", "w"], "step", dst_shape=SHAPE), helper.make_node("Add", ["v", "step"], ["next"]),
         helper.make_node("Identity", ["go"], ["on"])],
        "body", [value("i", [], np.int64), value("go", [], np.bool_), value("v", SHAPE)],
        [value("on", [], np.bool_), value("next", SHAPE)])
    made = model([helper.make_node("Loop", ["count", "", "v0"], ["dx"], body=body)], [DY, W], [DX],
                 {"count": np.array(3), "v0": np.zeros(SHAPE, np.float32)})
    np.testing.assert_array_equal(convreg.onnx.run(made, FEEDS)["dx"], 3 * expected())


def function(name: str, node: NodeProto, **extra) -> FunctionProto:
    return helper.make_function("local", name, ["a", "b"], ["c"], [node], OPSETS, **extra)


@pytest.mark.parametrize("order", [1, -1])
def test_functions_in_any_order(order):
    functions = [function("Inner", data_gradient(["a", "b"], "c", dst_shape=SHAPE)),
                 function("Outer", helper.make_node("Inner", ["a", "b"], ["c"], domain="local"))]
    made = model([helper.make_node("Outer", ["dy", "w"], ["dx"], domain="local")], [DY, W], [DX],
                 functions=functions[::order])
    np.testing.assert_array_equal(convreg.onnx.run(made, FEEDS)["dx"], expected())


def linked(name: str, kind: int, source: str) -> AttributeProto:
    return AttributeProto(name=name, type=kind, ref_attr_name=source)


@pytest.mark.parametrize("shape", [None, [1, 3, 7, 8]])
def test_function_attributes_and_their_defaults(shape):
    node = data_gradient(["a", "b"], "c")
    node.attribute.remove(next(entry for entry in node.attribute if entry.name == "strides"))
    node.attribute.append(linked("strides", AttributeProto.INTS, "step"))
    node.attribute.append(linked("dst_shape", AttributeProto.INTS, "to"))
    back = function("Back", node, attributes=["step"], attribute_protos=[helper.make_attribute("to", SHAPE)])
    stated = {"to": shape} if shape else {}
    made = model([helper.make_node("Back", ["dy", "w"], ["dx"], domain="local", step=[1, 1], **stated)], [DY, W], [DX],
                 functions=[back])
    if shape:
        with pytest.raises(OpError, match="R25"):
            convreg.onnx.run(made, FEEDS)
        return
    np.testing.assert_array_equal(convreg.onnx.run(made, FEEDS)["dx"], expected())
    assert made.graph.node[0].attribute[0].name == "step"  # the caller's model is left as it was
    assert len(made.graph.node[0].attribute) == 1


def test_evaluator_reaches_functions_by_itself():
    """Functions that cannot be inlined, for their imports differ, run in evaluators of their own."""
    older = [helper.make_opsetid("", 18), *OPSETS[1:]]
    made = model([helper.make_node("Back", ["dy", "w"], ["dx"], domain="local", step=[1, 1])], [DY, W], [DX])
    node = data_gradient(["a", "b"], "d", dst_shape=SHAPE)
    node.attribute.remove(next(entry for entry in node.attribute if entry.name == "strides"))
    node.attribute.append(linked("strides", AttributeProto.INTS, "step"))
    made.functions.append(helper.make_function(
        "local", "Back", ["a", "b"], ["c"], [node, helper.make_node("Relu", ["d"], ["c"])], older, attributes=["step"]))
    np.testing.assert_array_equal(Evaluator(made).run(None, FEEDS)[0], np.maximum(expected(), 0))
    np.testing.assert_array_equal(convreg.onnx.run(made, FEEDS)["dx"], np.maximum(expected(), 0))


def test_our_kernel_wins_over_a_function_of_the_same_name():
    body = helper.make_function("convreg.onednn", "ConvolutionBackwardData", ["dy", "w"], ["dx"],
                                [helper.make_node("Identity", ["dy"], ["dx"])], OPSETS)
    made = model([data_gradient(["dy", "w"], dst_shape=SHAPE)], [DY, W], [DX], functions=[body])
    np.testing.assert_array_equal(convreg.onnx.run(made, FEEDS)["dx"], expected())


def step_model() -> ModelProto:
    """w <- w - dw, as a training step feeds itself."""
    return model([three_gradients(["", "dw"]), helper.make_node("Sub", ["w", "dw"], ["w_next"])],
                 [DY, W, value("x", SHAPE)], [value("w_next", [4, 3, 3, 3])])


def test_session_is_reusable():
    session = convreg.onnx.Session(step_model())
    assert session.inputs == ["dy", "w", "x"]
    assert session.outputs == ["w_next"]
    rng = np.random.default_rng(2)
    weights = again = FEEDS["w"]
    for _ in range(3):
        x = dyadic(rng, tuple(SHAPE))
        weights = session.run({"dy": FEEDS["dy"], "w": weights, "x": x})["w_next"]
        again = again - convreg.microsoft.conv_grad(FEEDS["dy"], x, again, **GRADS)[1]
        np.testing.assert_array_equal(weights, again)


def test_session_from_several_threads():
    session = convreg.onnx.Session(model([data_gradient(["dy", "w"], dst_shape=SHAPE)], [DY, W], [DX]))
    inputs = [dyadic(np.random.default_rng(seed), (1, 4, 8, 8)) for seed in range(8)]
    results: dict[int, np.ndarray] = {}

    def work(index: int) -> None:
        for _ in range(5):
            results[index] = session.run({"dy": inputs[index], "w": FEEDS["w"]})["dx"]

    threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for index, dy in enumerate(inputs):
        np.testing.assert_array_equal(results[index], expected(dy))


def test_values_are_dropped_after_their_last_use():
    """Of a long chain only the values still needed are alive."""
    alive = weakref.WeakSet()

    class Tracked(np.ndarray):
        def __array_finalize__(self, other):
            alive.add(Holder(self))

    class Holder:
        def __init__(self, array):
            array.holder = self

    nodes = [helper.make_node("Neg", [f"v{index}"], [f"v{index + 1}"]) for index in range(20)]
    evaluator = Evaluator(model(nodes, [value("v0", [4])], [value("v20", [4])]))
    peak = 0

    for node in evaluator.rt_nodes_:
        def counted(*args, run=node.run, **kwargs):
            nonlocal peak
            gc.collect()
            peak = max(peak, len(alive))
            return run(*args, **kwargs)

        node.run = counted
    evaluator.run(None, {"v0": np.ones(4, np.float32).view(Tracked)})
    assert 0 < peak <= 4


def test_initializers_may_be_overridden_or_left_out():
    made = model([data_gradient(["dy", "w"], dst_shape=SHAPE)], [DY, W], [DX], {"w": FEEDS["w"]})
    session = convreg.onnx.Session(made)
    assert session.inputs == ["dy"]
    np.testing.assert_array_equal(session.run({"dy": FEEDS["dy"]})["dx"], expected())
    doubled = session.run({"dy": FEEDS["dy"], "w": 2 * FEEDS["w"]})["dx"]
    np.testing.assert_array_equal(doubled, 2 * expected())


BATCHED = model([helper.make_node("Add", ["a", "b"], ["y"])], [value("a", ["N", 2]), value("b", ["N", 2])],
                [value("y", ["N", 2])])
TAKES = r"the model takes a: float32 of shape \[N, 2\], b: float32 of shape \[N, 2\]"
ONES = np.ones((3, 2), np.float32)


@pytest.mark.parametrize(("inputs", "message"), [
    ({"a": ONES}, "missing input 'b'; " + TAKES),
    ({"a": ONES, "b": ONES, "c": 1}, "unknown input 'c'; " + TAKES),
    ({"a": ONES, "b": ONES.astype(np.float64)}, r"input b: float32 of shape \[N, 2\], not float64"),
    ({"a": ONES, "b": ONES[0]}, r"input b: float32 of shape \[N, 2\] with N=3, not of shape \[2\]"),
    ({"a": ONES, "b": ONES[:, :1]}, r"input b: float32 of shape \[N, 2\] with N=3, not of shape \[3, 1\]"),
    ({"a": ONES, "b": ONES[:2]}, r"input b: float32 of shape \[N, 2\] with N=3, not of shape \[2, 2\]"),
    ({"a": ONES, "b": "text"}, "input b: float32 .*, not str"),
    ({"a": ONES, "b": [[1, 2], [3]]}, "input b: float32 .*, not list"),
    ([ONES, ONES], "inputs are a mapping from name to array, not list"),
    (None, "missing input 'a'"),
])
def test_inputs_are_checked(inputs, message):
    with pytest.raises(GraphError, match=message):
        convreg.onnx.run(BATCHED, inputs)


def test_declared_extents_of_0_are_shown():
    made = model([helper.make_node("Abs", ["a"], ["y"])], [value("a", [0, None])], [value("y", [0, None])])
    with pytest.raises(GraphError, match=r"the model takes a: float32 of shape \[0, \?\]"):
        convreg.onnx.run(made, {})


def test_lists_and_foreign_byte_order_are_taken():
    swapped = ONES.astype(ONES.dtype.newbyteorder())
    assert convreg.onnx.run(BATCHED, {"a": swapped, "b": [[1, 2]] * 3})["y"].tolist() == [[2, 3]] * 3


def test_errors_of_our_nodes_stay_themselves():
    made = model([data_gradient(["dy", "w"], name="back3", dst_shape=[1, 3, 9, 8])], [DY, W], [DX])
    with pytest.raises(OpError) as caught:
        convreg.onnx.run(made, FEEDS)
    assert caught.value.rule == "R25"
    assert caught.value.__notes__ == ["in convreg.onednn::ConvolutionBackwardData node 'back3'"]


@pytest.mark.parametrize(("change", "message"), [
    ({"strides": None}, "strides=None"), ({"stride": [1, 1]}, "stride=.*strides"), ({"groups": "one"}, "groups='one'"),
    ({"conformance": "none"}, "conformance='none'"), ({"groups": 1.5}, "groups=1.5|groups=np.float32"),
])
def test_attribute_errors_without_a_check(change, message):
    node = data_gradient(["dy", "w"], dst_shape=SHAPE, **{k: v for k, v in change.items() if v is not None})
    for name in (name for name, given in change.items() if given is None):
        node.attribute.remove(next(entry for entry in node.attribute if entry.name == name))
    with pytest.raises(OpError, match=message):
        convreg.onnx.run(model([node], [DY, W], [DX]), FEEDS)


def test_type_errors_inside_subgraphs_stay_ours():
    """onnx wraps a TypeError of a subgraph in one of its own."""
    made = model([helper.make_node("If", ["c"], ["dx"], name="choice", then_branch=branch("yes", SHAPE),
                                   else_branch=branch("no", SHAPE))],
                 [value("c", [], np.bool_), value("dy", [1, 4, 8, 8], np.int32), W], [DX])
    with pytest.raises(OpTypeError, match="diff_dst='int32'") as caught:
        convreg.onnx.run(made, {"c": np.array(True), "dy": np.zeros((1, 4, 8, 8), np.int32), "w": FEEDS["w"]})
    assert caught.value.__notes__ == ["in convreg.onednn::ConvolutionBackwardData node 'inner'", "in If node 'choice'"]


@pytest.mark.parametrize(("nodes", "message"), [
    ([helper.make_node("MatMul", ["dy", "w"], ["dx"], name="product")], "MatMul node 'product': "),
    ([helper.make_node("Relu", ["later"], ["dx"]), helper.make_node("Relu", ["dy"], ["later"])],
     "the Relu node that makes 'dx': no earlier node makes its input 'later'"),
    ([helper.make_node("Relu", ["dy"], ["other"])], "no node makes the output 'dx'"),
    ([helper.make_node("Rleu", ["dy"], ["dx"])], "Rleu"),
    ([helper.make_node("Thing", ["dy"], ["dx"], domain="local")], "Thing"),
    ([helper.make_node("Thing", ["dy"], ["dx"], domain="nowhere")], "nowhere"),
    ([data_gradient(["dy", "w", "", "", "", "w"], dst_shape=SHAPE)], "6 inputs"),
])
def test_bad_graphs(nodes, message):
    with pytest.raises(GraphError, match=message) as caught:
        convreg.onnx.run(model(nodes, [DY, W], [DX]), FEEDS)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize(("node", "message"), [
    (("Sub", ["x", ""], ["y"]), r"Sub.*'y'.*input 1 \(B\) is missing"),
    (("Tanh", [""], ["y"]), r"input 0 \(input\) is missing"),
    (("Slice", ["x", "x"], ["y"]), r"input 2 \(ends\) is missing"),
    (("Max", ["x", ""], ["y"]), r"inputs from 0 on \(data_0\) is blank"),
    (("Relu", ["x", "x"], ["y"]), "2 inputs; allowed: 1"),
    (("Dropout", ["x"], ["y", "mask", "more"]), "3 outputs; allowed: 1 to 2"),
    (("Sum", [], ["y"]), "0 inputs; allowed: 1 or more"),
])
def test_operands_that_are_missing_or_too_many(node, message):
    made = model([helper.make_node(*node)], [value("x", [2])], [value("y", [2])])
    with pytest.raises(GraphError, match=message):
        convreg.onnx.run(made, {"x": [1, 2]}, engine="reference")


@pytest.mark.parametrize("sizes", [[2, 2], [1, 1], [3], [4, -1], [1, 1, 1]])
def test_parts_that_are_not_the_whole(sizes):
    """onnx's evaluator drops elements, or makes parts that are too short."""
    node = helper.make_node("Split", ["x", "s"], ["y", "z"], name="parts")
    made = model([node], [value("x", [3]), value("s", [None], np.int64)], [value("y", [None]), value("z", [None])])
    with pytest.raises(GraphError, match=r"'parts'.*split=.*2 outputs, with a sum of 3"):
        convreg.onnx.run(made, {"x": [1, 2, 3], "s": sizes}, engine="reference")
    assert convreg.onnx.run(made, {"x": [1, 2, 3], "s": [2, 1]}, engine="reference")["z"] == [3]


def test_bounds_of_slice_that_do_not_match():
    made = model([helper.make_node("Slice", ["x", "s", "e"], ["y"])],
                 [value("x", [3]), value("s", [1], np.int64), value("e", [None], np.int64)], [value("y", [None])])
    with pytest.raises(GraphError, match="1 starts, 2 ends"):
        convreg.onnx.run(made, {"x": [1, 2, 3], "s": [0], "e": [1, 2]}, engine="reference")


def test_operator_newer_than_the_imported_domain():
    made = model([data_gradient(["dy", "w"], dst_shape=SHAPE)], [DY, W], [DX])
    entry = next(entry for entry in made.opset_import if entry.domain == "convreg.onednn")
    entry.version = 0
    with pytest.raises(GraphError, match=r"version 0 of convreg\.onednn"):
        convreg.onnx.run(made, FEEDS)


def test_sources_that_are_no_models():
    for source in (3, b"bytes", None, TensorProto()):
        with pytest.raises(GraphError, match=r"a model is an onnx\.ModelProto or a path"):
            convreg.onnx.run(source, {})


def test_attributes_that_are_no_text():
    ours = data_gradient(["dy", "w"], dst_shape=SHAPE, data_format=b"\xff")
    with pytest.raises(GraphError, match=r"ConvolutionBackwardData node 'gradient': attribute data_format=b'\\xff' is "
                                         "refused; allowed: text in UTF-8"):
        convreg.onnx.run(model([ours], [DY, W], [DX]), FEEDS)
    names = [helper.make_node("Identity", ["x"], ["y"], name="copy", texts=["a", b"\xff"])]
    with pytest.raises(GraphError, match=r"Identity node 'copy': attribute texts=b'\\xff'"):
        convreg.onnx.run(model(names, [value("x", [2])], [value("y", [2])]), {"x": [1, 2]})
