"""Models that nobody vouches for: what they hide, what they grow to, what would end the process."""

from __future__ import annotations

import contextlib
from itertools import pairwise

import numpy as np
import onnx
import pytest
from convreg.tools import onnx_io
from graphs import data_gradient, model, value
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper
from releases import not_before

import convreg.onnx
from convreg import GraphError
from convreg.onnx import limits

VERBS = {
    "check": convreg.onnx.check, "infer_shapes": convreg.onnx.infer_shapes, "lower": convreg.onnx.lower,
    "Session": convreg.onnx.Session, "run": lambda source: convreg.onnx.run(source, {"x": np.ones(4, np.float32)}),
    "translate": lambda source: convreg.onnx.translate(source, "onednn"),
    "attach_functions": convreg.onnx.attach_functions, "explain_nodes": convreg.onnx.explain_nodes,
    "call_of": convreg.onnx.call_of, "gradient_calls": convreg.onnx.gradient_calls,
}
X, Y = value("x", [4]), value("y", [4])


def refused(made: ModelProto, message: str, *verbs: str) -> None:
    """Every verb refuses the model in one sentence."""
    for verb in verbs or VERBS:
        with pytest.raises(GraphError, match=message) as caught:
            VERBS[verb](made)
        assert "\n" not in str(caught.value)


def function(name: str, nodes: list[NodeProto], defaults: list[AttributeProto] | None = None):
    imports = [helper.make_opsetid("", 22), helper.make_opsetid("local", 1)]
    return helper.make_function("local", name, ["x"], ["y"], nodes, imports, [], defaults or [])


def call(name: str, *names: str) -> list[NodeProto]:
    """A chain of calls through these values."""
    return [helper.make_node(name, [a], [b], domain="local") for a, b in pairwise(names)]


def outside() -> TensorProto:
    tensor = TensorProto(name="hidden", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="../secret.bin")
    return tensor


def constant(attribute: AttributeProto) -> ModelProto:
    node = helper.make_node("Constant", [], ["y"])
    node.attribute.append(attribute)
    return model([node], [], [Y])


def in_default() -> ModelProto:
    body = helper.make_node("Constant", [], ["y"])
    body.attribute.add(name="value", type=AttributeProto.TENSOR, ref_attr_name="value")
    return model(call("F", "x", "y"), [X], [Y],
                 functions=[function("F", [body], [helper.make_attribute("value", outside())])])


def in_list() -> ModelProto:
    return constant(AttributeProto(name="value", type=AttributeProto.TENSORS, tensors=[outside()]))


def in_sparse_attribute() -> ModelProto:
    attribute = AttributeProto(name="sparse_value", type=AttributeProto.SPARSE_TENSOR)
    attribute.sparse_tensor.values.CopyFrom(numpy_helper.from_array(np.ones(1, np.float32)))
    attribute.sparse_tensor.indices.CopyFrom(outside())
    return constant(attribute)


def in_sparse_list() -> ModelProto:
    attribute = AttributeProto(name="sparse_value", type=AttributeProto.SPARSE_TENSORS)
    attribute.sparse_tensors.add().values.CopyFrom(outside())
    return constant(attribute)


def under_wrong_type() -> ModelProto:
    return constant(AttributeProto(name="value", type=AttributeProto.FLOAT, t=outside()))


def in_sparse_initializer() -> ModelProto:
    made = model([helper.make_node("Relu", ["s"], ["y"])], [], [Y])
    made.graph.sparse_initializer.add().values.CopyFrom(outside())
    return made


def in_training_graph() -> ModelProto:
    made = model([helper.make_node("Relu", ["x"], ["y"])], [X], [Y])
    made.training_info.add().initialization.initializer.append(outside())
    return made


HIDDEN = [in_default, in_list, in_sparse_attribute, in_sparse_list, under_wrong_type, in_sparse_initializer,
          in_training_graph]


@pytest.mark.parametrize("made", HIDDEN)
def test_external_data_is_found_wherever_a_tensor_can_stand(tmp_path, made):
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(b"\1" * 64)
    path = folder / "model.onnx"
    path.write_bytes(made().SerializeToString())
    with pytest.raises(GraphError, match=r"external data .*secret\.bin' is refused"):
        convreg.onnx.load(path)
    refused(made(), "'hidden' has external data that is not loaded")


def nested(depth: int, width: int) -> ModelProto:
    """Functions that call each other `width` times."""
    functions = [function("f0", [helper.make_node("Relu", ["x"], ["y"])])]
    for level in range(1, depth):
        names = ["x", *(f"v{index}" for index in range(1, width)), "y"]
        functions.append(function(f"f{level}", call(f"f{level - 1}", *names)))
    return model(call(f"f{depth - 1}", "x", "y"), [X], [Y], functions=functions)


def test_functions_that_multiply_are_counted_before_they_are_inlined():
    refused(nested(20, 10), r"grow to \d+ nodes when the functions it calls are inlined; allowed: \d+")
    refused(nested(limits.CALL_DEPTH + 1, 1), "calls inside calls")
    x = np.array([-1, 0, 1, 2], np.float32)
    np.testing.assert_array_equal(convreg.onnx.run(nested(5, 3), {"x": x})["y"], np.maximum(x, 0))


def test_functions_that_multiply_bytes():
    large = helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(np.zeros(2**16, np.float32)))
    body = function("F", [large, helper.make_node("Relu", ["x"], ["y"])])
    count = limits.ADDED_BYTES // 2**18 + 2
    names = ["x", *(f"v{index}" for index in range(1, count)), "y"]
    refused(model(call("F", *names), [X], [Y], functions=[body]), "bytes when the functions")


def test_calls_inside_subgraphs_count():
    functions = [function("f0", [helper.make_node("Relu", ["x"], ["y"])])]
    for level in range(1, 20):
        branches = {branch: helper.make_graph(
            [helper.make_node(f"f{level - 1}", ["x"], [branch], domain="local")], branch, [],
            [onnx.ValueInfoProto(name=branch)]) for branch in ("then_branch", "else_branch")}
        truth = helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.array(True)))
        functions.append(function(f"f{level}", [truth, helper.make_node("If", ["c"], ["y"], **branches)]))
    refused(model(call("f19", "x", "y"), [X], [Y], functions=functions), "nodes when the functions")


def test_recursion_is_refused():
    relu = [helper.make_node("Relu", ["x"], ["y"])]
    refused(model(call("F", "x", "y"), [X], [Y], functions=[function("F", call("F", "x", "y"))]),
            "local::F, which calls local::F, calls itself")
    circle = [function("F", call("G", "x", "y")), function("G", call("F", "x", "y"))]
    refused(model(call("F", "x", "y"), [X], [Y], functions=circle), "calls itself")
    overloads = [function("F", call("F", "x", "y")), function("F", relu)]
    overloads[0].node[0].overload = overloads[1].overload = "other"
    refused(model(call("F", "x", "y"), [X], [Y], functions=overloads), "calls itself")
    refused(model(call("F", "x", "y"), [X], [Y], functions=[function("F", relu)] * 2), "twice")


LARGE = 2**31


@pytest.mark.parametrize("nodes", [
    [("Cast", ["x"], ["y"], {"to": 7})],
    [("Relu", ["x"], ["z"], {}), ("Cast", ["z"], ["y"], {"to": 7})],
    [("Shape", ["x"], ["s"], {}), ("ConstantOfShape", ["s"], ["z"], {}), ("Cast", ["z"], ["y"], {"to": 7})],
    [("Add", ["x", "x"], ["z"], {}), ("Cast", ["z"], ["y"], {"to": 7})],
], ids=["one node", "later", "by a shape", "sum"])
def test_long_vectors_are_not_followed_element_by_element(nodes):
    """Inference of onnx's own makes a record for each of 2**31 elements."""
    made = model([helper.make_node(kind, ins, outs, **attributes) for kind, ins, outs, attributes in nodes],
                 [value("x", [LARGE])], [value("y", [LARGE], np.int64)])
    convreg.onnx.check(made)
    inferred = convreg.onnx.infer_shapes(made)
    assert {found.type.tensor_type.shape.dim[0].dim_value for found in inferred.graph.value_info
            if found.name != "s"} <= {LARGE}


@not_before("onnx", (1, 23), "counts the elements of long vectors in 32 bits")
def test_vectors_that_double():
    nodes = [helper.make_node("Concat", [f"v{step}", f"v{step}"], [f"v{step + 1}"], axis=0) for step in range(30)]
    convreg.onnx.check(model(nodes, [value("v0", [64], np.int64)], [value("v30", [2**36], np.int64)]))


def test_long_vectors_inside_functions():
    body = function("F", [helper.make_node("Cast", ["x"], ["y"], to=7)])
    convreg.onnx.check(model(call("F", "x", "y"), [value("x", [LARGE])], [value("y", [LARGE], np.int64)],
                             functions=[body]))


def test_shapes_are_still_followed_beside_long_vectors():
    """A shape computed from a shape is known, though a long vector is cast in the same graph."""
    nodes = [helper.make_node("Cast", ["long"], ["cast"], to=7), helper.make_node("Shape", ["x"], ["s"]),
             helper.make_node("Concat", ["s", "two"], ["t"], axis=0), helper.make_node("ConstantOfShape", ["t"], ["y"])]
    made = model(nodes, [value("long", [LARGE]), value("x", [3, 2])],
                 [value("cast", [LARGE], np.int64), onnx.ValueInfoProto(name="y")], {"two": np.array([2])})
    found = convreg.onnx.infer_shapes(made).graph.output[1].type.tensor_type.shape.dim
    assert [dim.dim_value for dim in found] == [3, 2, 2]
    assert not any(node.domain for node in convreg.onnx.infer_shapes(made).graph.node)


def tensor(**fields) -> ModelProto:
    made = model([helper.make_node("Relu", ["k"], ["y"])], [], [value("y")])
    made.graph.initializer.append(TensorProto(name="k", **fields))
    return made


@pytest.mark.parametrize(("fields", "message"), [
    ({"data_type": 1, "dims": [4], "raw_data": b"\0" * 15}, "holds 15 bytes; allowed: 16"),
    ({"data_type": 1, "dims": [2**40]}, "holds 0 entries of float_data; allowed: 1099511627776"),
    ({"data_type": 1, "dims": [2**40, 2**40], "raw_data": b"\0"}, "holds 1 bytes"),
    ({"data_type": 1, "dims": [-1], "float_data": [1]}, "negative"),
    ({"data_type": 99, "dims": [1], "raw_data": b"\0"}, "element type 99"),
    ({"data_type": 0, "dims": [1]}, "element type 0"),
    ({"data_type": 8, "dims": [1], "raw_data": b"\0"}, "strings"),
    ({"data_type": 22, "dims": [3], "raw_data": b"\0" * 3}, "holds 3 bytes; allowed: 2"),
])
def test_tensors_that_lie(fields, message):
    refused(tensor(**fields), message)


@pytest.mark.parametrize(("fields", "count"), [
    ({"data_type": 22, "int32_data": [0x21, 3]}, 3), ({"data_type": 14, "float_data": [1, 2, 3, 4]}, 2),
    ({"data_type": 10, "int32_data": [1, 2]}, 2), ({"data_type": 8, "string_data": [b"a"]}, 1),
    ({"data_type": 7, "int64_data": []}, 0), ({"data_type": 1, "raw_data": b""}, 0),
])
def test_tensors_in_every_form(fields, count):
    made = model([helper.make_node("Identity", ["k"], ["y"])], [], [onnx.ValueInfoProto(name="y")])
    made.graph.initializer.append(TensorProto(name="k", dims=[count], **fields))
    assert convreg.onnx.run(made, {})["y"].shape == (count,)


def test_sparse_tensors_are_bounded():
    made = model([helper.make_node("Relu", ["s"], ["y"])], [], [value("y")])
    sparse = made.graph.sparse_initializer.add(dims=[2**40])
    sparse.values.CopyFrom(numpy_helper.from_array(np.ones(1, np.float32), "s"))
    sparse.indices.CopyFrom(numpy_helper.from_array(np.zeros(1, np.int64), "i"))
    refused(made, "4398046511104 bytes when written out")


def test_sparse_tensors_of_functions_are_bounded():
    """Each call of the function has the tensor written out."""
    sparse = helper.make_sparse_tensor(numpy_helper.from_array(np.ones(1, np.float32), "s"),
                                       numpy_helper.from_array(np.zeros(1, np.int64), "i"), [2**23])
    body = [helper.make_node("Constant", [], ["s"], sparse_value=sparse),
            helper.make_node("ReduceSum", ["s"], ["t"], keepdims=0), helper.make_node("Add", ["x", "t"], ["y"])]
    names = ["x", *(f"v{index}" for index in range(11)), "y"]
    refused(model(call("f", *names), [X], [Y], functions=[function("f", body)]), r"grow to \d+ bytes")


def test_nesting_is_bounded(tmp_path):
    made = ModelProto(ir_version=10)
    made.opset_import.add(version=22)
    graph = made.graph
    for _ in range(3000):
        node = graph.node.add(op_type="If", input=["x"], output=["y"])
        graph = node.attribute.add(name="then_branch", type=AttributeProto.GRAPH).g
    refused(made, "nested more than")
    with pytest.raises(GraphError, match="nested more than"):
        onnx_io.save(made, tmp_path / "deep.onnx")


def test_text_that_is_no_text():
    made = ModelProto.FromString(model([helper.make_node("Relu", ["x"], ["y"])], [X], [Y]).SerializeToString()
                                 .replace(b"Relu", b"Re\xff\xfe"))
    refused(made, "not UTF-8")


def slicing(*nodes: NodeProto, constants: dict[str, np.ndarray], extents: list[int]) -> ModelProto:
    cut = helper.make_node("Slice", ["z", "starts", "ends", "axes", "steps"], ["y"], name="cut")
    return model([*nodes, cut], [value("x", extents)], [onnx.ValueInfoProto(name="y")],
                 {"axes": np.array([len(extents) - 1]), **constants})


FORWARD = {"starts": np.array([0]), "ends": np.array([9]), "steps": np.array([1])}


def test_impossible_extents_before_a_slice():
    """onnx's own inference ends the process for these."""
    cropped = helper.make_node("Pad", ["x", "pads"], ["z"])
    made = slicing(cropped, constants={**FORWARD, "pads": np.array([-3, 0])}, extents=[2])
    refused(made, "Slice of an extent of -1", "infer_shapes")
    window = helper.make_node("Conv", ["x", "w"], ["z"])
    made = slicing(window, constants={**FORWARD, "w": np.ones((1, 1, 5, 5), np.float32)}, extents=[1, 1, 2, 2])
    refused(made, "Slice of an extent of -2", "infer_shapes")
    backward = {"starts": np.array([9]), "ends": np.array([-9]), "steps": np.array([-1])}
    copied = helper.make_node("Identity", ["x"], ["z"])
    refused(slicing(copied, constants=backward, extents=[0]), "Slice node 'cut'.* extent of 0", "infer_shapes")
    for constants, extent in ((FORWARD, 0), (backward, 3)):
        found = convreg.onnx.infer_shapes(slicing(copied, constants=constants, extents=[extent]))
        assert found.graph.output[0].type.tensor_type.shape.dim[0].dim_value == extent
        assert [node.op_type for node in found.graph.node] == ["Identity", "Slice"]
        assert {entry.domain for entry in found.opset_import} == {
            entry.domain for entry in slicing(copied, constants=constants, extents=[extent]).opset_import}


@pytest.mark.parametrize(("count", "outputs"), [(3, ["y", "b", "c", "d"]), (2**30, ["y"]), (-1, ["y"])])
def test_splits_into_other_parts_than_outputs(count, outputs):
    refused(model([helper.make_node("Split", ["x"], outputs, num_outputs=count)], [X], [value("y")]),
            f"num_outputs states {count} parts; allowed: {len(outputs)}")


@pytest.mark.parametrize("equation", ["i.", "......", "...i...", "-", "i->j->k", "1", "i..,j", ">"])
def test_equations_that_einsum_would_search_for_ever(equation):
    refused(model([helper.make_node("Einsum", ["x"], ["y"], equation=equation)], [X], [value("y")]),
            "Einsum node .*equation=.* is refused; allowed: terms of letters")


def test_equations_that_calls_state():
    node = helper.make_node("Einsum", ["x"], ["y"])
    node.attribute.append(AttributeProto(name="equation", type=AttributeProto.STRING, ref_attr_name="e"))
    made = model(call("f", "x", "y"), [X], [Y])
    made.functions.append(function("f", [node]))
    refused(made, "equation='e' is refused")


@pytest.mark.parametrize("equation", ["i->i", " i -> ", "...i -> i ...", "i", "...", "I"])
def test_equations_of_einsum(equation):
    convreg.onnx.infer_shapes(model([helper.make_node("Einsum", ["x"], ["y"], equation=equation)], [X], [value("y")]))


def test_attributes_without_a_type():
    node = helper.make_node("Relu", ["x"], ["y"])
    node.attribute.append(AttributeProto(name="alpha", f=1.0))
    refused(model([node], [X], [Y]), "attribute 'alpha' has no type")


@pytest.mark.parametrize("name", ["z" * 100_000, "a\nb\x1b[31m", "a " * 50_000])
def test_names_that_errors_repeat(name):
    made = model([helper.make_node("Relu", ["x"], ["z"])], [X], [value(name, [4])])
    for verb in VERBS.values():
        with pytest.raises(GraphError) as caught:
            verb(made)
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) <= 4000


def test_structure():
    refused(ModelProto(), "no graph")
    refused(model([helper.make_node("Relu", ["x"], ["z"])], [X], [Y]), "no node makes the output 'y'")
    refused(model([helper.make_node("Relu", ["x"], ["y"])] * 2, [X], [Y]), "makes 'y', which an earlier node makes too",
            "Session", "run")
    refused(model([helper.make_node("Relu", ["x"], ["y"])], [value("x", [-4])], [Y]), "extent -4")


def test_unknown_operators_of_ours():
    made = model([helper.make_node("ConvolutionBackwardDate", ["x"], ["y"], domain="convreg.onednn")], [X], [Y])
    refused(made, "ConvolutionBackwardDate.*did you mean ConvolutionBackwardData", "check")


def damaged(change) -> ModelProto:
    made = model([data_gradient(["dy", "w"], dst_shape=[1, 3, 8, 8])], [value("dy", [1, 4, 8, 8])],
                 [value("dx", [1, 3, 8, 8])], {"w": np.ones((4, 3, 3, 3), np.float32)})
    change(made.graph.node[0])
    return made


def set_attribute(node: NodeProto, name: str, **fields) -> None:
    attribute = next(entry for entry in node.attribute if entry.name == name)
    attribute.CopyFrom(AttributeProto(name=name, **fields))


DAMAGE = {
    "no attributes": lambda node: node.ClearField("attribute"), "no inputs": lambda node: node.ClearField("input"),
    "no outputs": lambda node: node.ClearField("output"), "blank input": lambda node: node.input.__setitem__(0, ""),
    "more inputs": lambda node: node.input.extend(["dy"] * 8),
    "unknown domain": lambda node: setattr(node, "domain", "no.such"),
    "unknown operator": lambda node: setattr(node, "op_type", "Nothing"),
    "a float": lambda node: set_attribute(node, "dst_shape", type=AttributeProto.FLOAT, f=1),
    "a string": lambda node: set_attribute(node, "strides", type=AttributeProto.STRING, s=b"\xff"),
    "nothing": lambda node: set_attribute(node, "strides", type=AttributeProto.INTS),
    "no kind": lambda node: set_attribute(node, "strides"),
    "a reference": lambda node: set_attribute(node, "strides", type=AttributeProto.INTS, ref_attr_name="s"),
    "a number for text": lambda node: set_attribute(node, "data_format", type=AttributeProto.INT, i=2**62),
    "twice": lambda node: node.attribute.append(node.attribute[0]),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("suffix", [".xml", ".json"])
def test_damaged_nodes_in_exporters(tmp_path, damage, suffix):
    made = damaged(DAMAGE[damage])
    with pytest.raises((GraphError, convreg.OpError)):
        onnx_io.export_model(made, tmp_path / f"out{suffix}")
    assert not list(tmp_path.iterdir())


def test_constants_of_more_axes_than_numpy_has(tmp_path):
    made = tensor(data_type=1, dims=[1] * 70, raw_data=b"\0" * 4)
    with pytest.raises(GraphError):
        onnx_io.export_model(made, tmp_path / "out.xml")


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_nodes(damage):
    """Whatever happens is ours."""
    for use in VERBS.values():
        made = damaged(DAMAGE[damage])
        with contextlib.suppress(GraphError, convreg.OpError):
            use(made)


JUNK = [None, 3, 1.5, b"bytes", [], {}, object(), np.zeros(3), onnx.GraphProto(), type, "a\0b", "x" * 5000, ".", ""]


@pytest.mark.parametrize("junk", JUNK, ids=lambda junk: repr(junk)[:12])
def test_anything_for_a_model_or_a_path(tmp_path, junk):
    for use in (convreg.onnx.load, *VERBS.values(), onnx_io.import_model, onnx_io.import_ir, onnx_io.import_graph_json,
                lambda junk: onnx_io.save(junk, tmp_path / "out.onnx")):
        with pytest.raises(GraphError) as caught:
            use(junk)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("junk", [None, 3, 1.5, b"bytes", [], {}, object(), np.zeros(3), onnx.GraphProto(), type],
                         ids=lambda junk: repr(junk)[:12])
def test_anything_for_another_argument(junk):
    good = model([helper.make_node("Relu", ["x"], ["y"])], [X], [Y])
    one = convreg.onnx.node_model("nodes::Quantize", np.ones(3, np.float32), format="float8_e5m2", as_inputs=True)
    for use in (lambda: convreg.onnx.translate(good, junk), lambda: convreg.onnx.translate(good, "aten", rest=junk),
                lambda: convreg.onnx.node_model(junk), lambda: convreg.onnx.schema_of(junk),
                lambda: convreg.onnx.call_of(one, junk), lambda: onnx_io.save(good, junk),
                lambda: onnx_io.export_ir(good, junk),
                lambda: onnx_io.export_graph_json(good, junk), lambda: onnx_io.export_model(good, junk)):
        with pytest.raises((GraphError, convreg.OpError, convreg.UnknownOp)):
            use()


def test_explain_reads_what_a_rule_leaves_unread():
    """Empty lists stand for the neutral values."""
    text = convreg.explain("openvino::ConvolutionBackpropData", output_delta=[1, 4, 8, 8], filter=[4, 3, 3, 3],
                           conformance="openvino", data_format="NCX", filter_format="OIX", strides=[1, 1],
                           pads_begin=[], pads_end=[], dilations=[])
    assert str(text)
