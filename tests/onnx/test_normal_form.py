"""Models in both spellings of the standard domain, and with sparse tensors."""

from __future__ import annotations

import numpy as np
import pytest
from graphs import model, value
from onnx import ModelProto, helper, numpy_helper

import convreg.onnx
from convreg import GraphError

pytestmark = pytest.mark.usefixtures("default_engine")

RELU = [helper.make_node("Relu", ["x"], ["y"])]
PAIR = ([value("x", [2])], [value("y", [2])])


def spelled(node_domain: str, *imports: tuple[str, int]) -> ModelProto:
    """A Relu inside an If inside a function, in a model that imports what is said."""
    branches = {f"{name}_branch": helper.make_graph(
        [helper.make_node("Relu", ["a"], [name], domain=node_domain)], name, [], [value(name, [2])])
        for name in ("then", "else")}
    opsets = [helper.make_opsetid(*entry) for entry in imports]
    function = helper.make_function(
        "local", "F", ["c", "a"], ["b"], [helper.make_node("If", ["c"], ["b"], domain=node_domain, **branches)], opsets)
    made = model([helper.make_node("F", ["c", "x"], ["y"], domain="local")],
                 [value("c", [], np.bool_), *PAIR[0]], PAIR[1], functions=[function])
    del made.opset_import[:]
    made.opset_import.extend([*opsets, helper.make_opsetid("local", 1)])
    return made


@pytest.mark.parametrize("made", [
    spelled("", ("ai.onnx", 20)), spelled("ai.onnx", ("ai.onnx", 20)), spelled("ai.onnx", ("", 20)),
    spelled("ai.onnx", ("", 20), ("ai.onnx", 20))])
def test_both_names_of_the_standard_domain(made):
    before = made.SerializeToString()
    convreg.onnx.check(made)
    feeds = {"c": np.array(True), "x": [-1, 2]}
    assert convreg.onnx.run(made, feeds)["y"].tolist() == [0, 2]
    assert made.SerializeToString() == before  # the caller's model is left as it was


def test_gradient_under_the_long_name_of_the_standard_domain():
    made = model(RELU, *PAIR)
    made.opset_import[0].domain = "ai.onnx"
    made.opset_import[0].version = 20
    results = convreg.onnx.run(convreg.onnx.gradient(made, "y", ["x"]), {"x": [-1, 2]}, engine="reference")
    assert results["x_grad"].tolist() == [0, 1]


def test_two_versions_of_the_standard_domain():
    with pytest.raises(GraphError, match=r"imports versions 20 and 18 of standard ONNX, by its names '' and "
                                         r"'ai\.onnx'; allowed: one version"):
        convreg.onnx.run(spelled("", ("", 20), ("ai.onnx", 18)), {"c": np.array(True), "x": [-1, 2]})


@pytest.mark.parametrize("indices", [[1, 5], [[0, 1], [1, 2]]])
@pytest.mark.parametrize("as_constant", [False, True])
def test_sparse_tensors(as_constant, indices):
    sparse = helper.make_sparse_tensor(numpy_helper.from_array(np.array([1, 2], np.float32), "w"),
                                       numpy_helper.from_array(np.array(indices, np.int64), "places"), [2, 3])
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    if as_constant:
        nodes.insert(0, helper.make_node("Constant", [], ["w"], sparse_value=sparse))
    made = model(nodes, [value("x", ["n", 2])], [value("y", ["n", 3])])
    if not as_constant:
        made.graph.sparse_initializer.append(sparse)
    convreg.onnx.check(made)
    feeds = {"x": np.array([[1, 10]], np.float32)}
    assert convreg.onnx.run(made, feeds)["y"].tolist() == [[0, 1, 20]]
    results = convreg.onnx.run(convreg.onnx.gradient(made, "y", ["x"]), feeds)
    assert results["x_grad"].tolist() == [[1, 2]]


@pytest.mark.parametrize(("values", "indices", "message"), [
    (np.array([1, 2], np.float32), [1, 6], "sparse tensor 'w': "),
    (np.array([1, 2], np.float32), [5, 1], "sparse tensor 'w': "),
    (np.array([1, 2], np.float32), [1], "sparse tensor 'w': "),
    (np.array(["a", "b"], object), [1, 5], "sparse tensor 'w' holds strings; allowed: numbers"),
])
def test_sparse_tensors_that_contradict_themselves(values, indices, message):
    made = model([helper.make_node("Identity", ["w"], ["y"])], [], [value("y")])
    made.graph.sparse_initializer.add(dims=[2, 3]).values.CopyFrom(numpy_helper.from_array(values, "w"))
    made.graph.sparse_initializer[0].indices.CopyFrom(numpy_helper.from_array(np.array(indices, np.int64)))
    for act in (convreg.onnx.check, convreg.onnx.run):
        with pytest.raises(GraphError, match=message):
            act(made)


@pytest.mark.parametrize(("dims", "names", "message"), [
    ([1] * 70, ["w"], "sparse tensor 'w': "), ([6], ["w", "w"], "two initializers have the name 'w'"),
])
def test_sparse_tensors_that_no_array_can_be(dims, names, message):
    made = model([helper.make_node("Identity", ["w"], ["y"])], [], [value("y")])
    for name in names:
        made.graph.sparse_initializer.add(dims=dims).values.CopyFrom(
            numpy_helper.from_array(np.ones(1, np.float32), name))
        made.graph.sparse_initializer[-1].indices.CopyFrom(numpy_helper.from_array(np.zeros(1, np.int64)))
    with pytest.raises(GraphError, match=message):
        convreg.onnx.run(made)
