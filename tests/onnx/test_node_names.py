"""Names of nodes: what onnxruntime refuses is refused by `check`, and imported graphs have a name for every node."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from convreg.tools.onnx_io import export_ir, import_graph_json, import_ir
from graphs import model, value
from model_files import IR, graph, operation, tensor, write_graph
from onnx import helper
from places import DATA, ROOT

import convreg.onnx
from convreg import GraphError
from convreg.onnx import ort_library

VENDOR = ROOT.parent / "shared" / "cases"
FILES = sorted([*DATA.rglob("*.xml"), *VENDOR.rglob("*.xml"),
                *(VENDOR / "onednn_graph_json").rglob("*.json")])


def chain(*names: str, first: str = "x", last: str = "y", op_type: str = "Relu"):
    """Nodes of these names, one after the other."""
    values = [first, *(f"{last}_{index}" for index in range(1, len(names))), last]
    return [helper.make_node(op_type, [values[index]], [values[index + 1]], name=name)
            for index, name in enumerate(names)]


def branch(prefix: str, *names: str):
    return helper.make_graph(chain(*names, last=prefix), prefix, [], [value(prefix, (2,))])


def if_node(then_names, else_names, name: str = "choice"):
    return helper.make_node("If", ["c"], ["y"], name=name, then_branch=branch("t", *then_names),
                            else_branch=branch("e", *else_names))


def function(name: str, nodes, inputs=("x",), output: str = "y"):
    return helper.make_function("local", name, list(inputs), [output], nodes, [helper.make_opsetid("", 22),
                                                                              helper.make_opsetid("local", 1)])


def call(name: str, first: str = "x", last: str = "y", node: str = ""):
    return helper.make_node(name, [first], [last], name=node, domain="local")


TWICE = [call("f", "x", "m", "A"), call("f", "m", "y", "B")]
REFUSED = {
    "in the graph": (chain("A", "A"), []),
    "of two operators": ([*chain("A", last="m"), *chain("A", first="m", op_type="Abs")], []),
    "far apart": (chain("A", "B", "", "C", "A"), []),
    "in a branch": ([if_node(["A"], ["B", "C", "B"])], []),
    "two calls": ([call("f", "x", "m", "A"), call("f", "m", "y", "A")], [function("f", chain("P", "Q"))]),
    "in a function": ([call("f")], [function("f", chain("A", "A"))]),
    "in a function that a function calls": ([call("g")], [
        function("f", chain("A", "A")), function("g", [call("f")])]),
    "in a branch in a function": ([helper.make_node("f", ["x", "c"], ["y"], domain="local")], [
        function("f", [if_node(["A", "A"], ["B"])], ("x", "c"))]),
}
ALLOWED = {
    "none": (chain("", "", ""), []),
    "of other case": (chain("A", "a"), []),
    "of a tensor": (chain("x", "y"), []),
    "in both branches": ([if_node(["A", "B"], ["A", "B"])], []),
    "of the node around": ([if_node(["A", "choice"], ["choice"])], []),
    "in a graph and a branch": ([*chain("A", last="m"), if_node(["A"], ["A"])], []),
    "in a function called twice": (TWICE, [function("f", chain("A", "Q"))]),
    "in a function that nothing calls": (chain("A"), [function("f", chain("A", "A"))]),
}


def built(nodes, functions):
    return model(nodes, [value("x", (2,)), value("c", (), np.bool_)], [value("y", (2,))], functions=functions)


def opened_by_onnxruntime(made) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.register_custom_ops_library(ort_library())
    onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("case", REFUSED)
def test_a_name_twice_in_one_graph_is_refused_as_by_onnxruntime(case):
    made = built(*REFUSED[case])
    onnx.checker.check_model(made, full_check=True)
    with pytest.raises(GraphError, match=r"two nodes named '[AB]'.*; allowed: different names, or none"):
        convreg.onnx.check(made)
    with pytest.raises(Exception, match="two nodes with same node name"):
        opened_by_onnxruntime(made)


@pytest.mark.parametrize("case", ALLOWED)
def test_other_names_are_accepted_as_by_onnxruntime(case):
    made = built(*ALLOWED[case])
    convreg.onnx.check(made)
    opened_by_onnxruntime(made)


def test_the_message_names_both_nodes():
    nodes = [*chain("A", last="m"), *chain("A", first="m", op_type="Abs")]
    with pytest.raises(GraphError, match="the graph has two nodes named 'A': the Relu that makes 'm' and the Abs that "
                                         "makes 'y'"):
        convreg.onnx.check(built(nodes, []))


def test_writers_of_other_formats_give_new_names(tmp_path):
    export_ir(built(chain("A", "A"), []), tmp_path / "model.xml")
    made = import_ir(tmp_path / "model.xml")
    assert [node.name for node in made.graph.node] == ["A", "A_1"]


def check_names(made) -> None:
    """Every node has a name, no two the same, and onnxruntime opens the model."""
    names = [node.name for node in made.graph.node]
    assert all(names)
    assert len(set(names)) == len(names)
    convreg.onnx.check(made)
    opened_by_onnxruntime(made)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_files_of_vendors(path):
    made = import_ir(path) if path.suffix == ".xml" else import_graph_json(path, lenient=True)
    check_names(made)


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
def test_operations_of_several_nodes(tmp_path, dtype):
    x, w = [2, 3, 4], [3]
    vectors = [tensor(number, w, dtype) for number in range(2, 6)]
    made = import_graph_json(write_graph(tmp_path, graph(
        operation(0, "BatchNormInference", [tensor(1, x, dtype), *vectors], [tensor(6, x, dtype)], epsilon=1e-5,
                  data_format="NCX"),
        {**operation(1, "ReLU", [tensor(6, x, dtype)], [tensor(7, x, dtype)]), "name": "op0"},
        {**operation(2, "Multiply", [tensor(7, x, dtype)] * 2, [tensor(8, x, dtype)]), "name": ""},
        {**operation(3, "MatMul", [tensor(8, x, dtype), tensor(9, [2, 4, 5], dtype)], [tensor(10, [2, 3, 5], dtype)]),
         "name": "op0_0"})))
    check_names(made)
    by_output = {node.output[0]: node.name for node in made.graph.node}
    assert [by_output[name] for name in ("6", "7", "8", "10")] == ["op0", "op0_2", "Multiply_2", "op0_0"]
    assert {node.name.split("/")[0] for node in made.graph.node} == {"op0", "op0_2", "Multiply_2", "op0_0"}


def test_layers_of_several_nodes_and_of_one_name(tmp_path):
    ir = IR()
    x = ir.parameter("x", "2,4,3")
    limits = [ir.constant(np.array(limit, np.float32)) for limit in (-1, 1, -2, 2)]
    x = ir.layer("FakeQuantize", [x, *limits], name="same", levels=16)
    x = ir.layer("Swish", [x], opset="opset4", name="same")
    x = ir.layer("ReLU", [x], name="same/Sigmoid")
    parts = ir.layer("Split", [x, ir.constant(np.array(1))], 2, name="same", num_splits=2)
    for part in parts:
        ir.result(part)
    ir.result((0, 0))
    ir.result((0, 0))
    made = import_ir(ir.write(tmp_path))
    check_names(made)
    split = next(node for node in made.graph.node if node.op_type == "Split")
    assert split.name.startswith("same")
    assert {"same", "same/Sigmoid"} <= {node.name for node in made.graph.node}


def test_one_hot_of_any_integers(tmp_path):
    for indices in (np.int64, np.int32):
        for depth in (np.int64, np.int32):
            ir = IR()
            x = ir.parameter("x", "3", {np.int64: "i64", np.int32: "i32"}[indices])
            values = [ir.constant(np.array(number, np.float32)) for number in (2, -1)]
            ir.result(ir.layer("OneHot", [x, ir.constant(np.array(3, depth)), *values], axis=-1))
            made = import_ir(ir.write(tmp_path))
            check_names(made)
            (got,) = convreg.onnx.run(made, {"x": np.array([0, 2, -1], indices)}).values()
            np.testing.assert_array_equal(got, [[2, -1, -1], [-1, -1, 2], [-1, -1, -1]])


def test_many_layers_of_one_name_take_no_longer(tmp_path):
    ir = IR()
    x = ir.parameter("x", "2")
    for _ in range(3000):
        x = ir.layer("ReLU", [x], name="same")
    ir.result(x)
    check_names(import_ir(ir.write(tmp_path)))




def test_names_that_are_no_text(tmp_path):
    named = {**operation(0, "ReLU", [tensor(0, [2])], [tensor(1, [2])]), "name": "\ud800"}
    with pytest.raises(GraphError, match=r"'name' of operation 0 .* half a surrogate pair"):
        import_graph_json(write_graph(tmp_path, graph(named)))
