"""Models written as serialized oneDNN graphs: well-formed by the format's rules, equal bits when read back."""

from __future__ import annotations

import json
from math import prod
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from convreg.tools.onnx_io import export_graph_json, export_model, import_graph_json
from drawn import convolutions, dyadic, normal
from gradient_calls import forward, single, together
from graphs import data_gradient, model, value
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper

import convreg
import convreg.onnx
from convreg import GraphError

SEEDS = st.integers(0, 2**32 - 1)
LAYOUTS = st.tuples(st.sampled_from(["NCX", "NXC"]), st.sampled_from(["OIX", "XIO"]))
WRITTEN = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
RNG = np.random.default_rng(5)
UNKNOWN = -(2**63)
TENSOR = ["id", "dtype", "shape", "stride", "layout_type", "property_type"]
VALUES = {"string": str, "s64": int, "s64[]": list, "bool": int, "f32": float}


def checked(path: Path) -> dict:
    """The document, after a look at every rule of the format's sections on graphs, operations and tensors."""
    document = json.loads(path.read_text())
    assert list(document) == ["version", "engine_kind", "fpmath_mode", "fpmath_mode_apply_to_int", "input_ports",
                              "output_ports", "graph"]
    operations = document["graph"]
    assert len({operation["id"] for operation in operations}) == len(operations)
    produced: dict[int, dict] = {}
    seen: dict[int, dict] = {}
    for operation in operations:
        assert list(operation) == ["id", "name", "kind", "attrs", "inputs", "outputs"]
        for attribute in operation["attrs"].values():
            assert list(attribute) == ["type", "value"]
            assert type(attribute["value"]) is VALUES[attribute["type"]]
        for tensor in (*operation["inputs"], *operation["outputs"]):
            assert list(tensor) == TENSOR
            assert seen.setdefault(tensor["id"], tensor) == tensor
            if UNKNOWN in tensor["shape"]:
                assert (tensor["stride"], tensor["layout_type"]) == ([UNKNOWN], "undef")
            else:
                extents = [max(extent, 1) for extent in tensor["shape"]]
                assert tensor["stride"] == [prod(extents[axis + 1:]) for axis in range(len(extents))]
        for tensor in operation["outputs"]:
            assert tensor["id"] not in produced
            assert tensor["property_type"] == "undef"
            produced[tensor["id"]] = tensor
    assert set(document["input_ports"]) == seen.keys() - produced.keys()
    assert set(document["output_ports"]) <= produced.keys()
    return document


def check_equal(path: Path, source: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> dict:
    """Our importer's reading of what was written makes the same bits."""
    expected = convreg.onnx.run(source, feeds, engine="reference")
    ids = export_graph_json(source, path)
    document = checked(path)
    again = import_graph_json(path)
    values = {**{tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in source.graph.initializer}, **feeds}
    taken = {entry.name for entry in again.graph.input}
    results = convreg.onnx.run(again, {str(ids[name]): array for name, array in values.items()
                                       if str(ids.get(name)) in taken}, engine="reference")
    assert list(results) == [str(ids[name]) for name in expected]
    for name, array in expected.items():
        assert results[str(ids[name])].dtype == array.dtype
        assert results[str(ids[name])].tobytes() == array.tobytes()
    return document


@WRITTEN
@given(convolutions(), SEEDS, st.integers(0, 4), LAYOUTS)
def test_single_gradients(tmp_path, case, seed, which, layouts):
    rng = np.random.default_rng(seed)
    call = single(case, lambda shape: normal(rng, shape), layouts)[which]
    document = check_equal(tmp_path / "g.json", call.model, call.feeds)
    if which < 4:
        (operation,) = document["graph"]
        attributes = {name: entry["value"] for name, entry in operation["attrs"].items()}
        assert (attributes["data_format"], attributes["auto_pad"]) == (layouts[0], "None")
        assert ("dst_shape" in attributes) == (which == 0)
        assert ("weights_shape" in attributes) == (which in (1, 3))


@WRITTEN
@given(convolutions(), SEEDS, st.integers(0, 1))
def test_forward_operators(tmp_path, case, seed, which):
    rng = np.random.default_rng(seed)
    call = forward(case, lambda shape: normal(rng, shape))[which]
    check_equal(tmp_path / "g.json", call.model, call.feeds)


@WRITTEN
@given(convolutions(symmetric=True), SEEDS, st.integers(0, 1), st.booleans())
def test_gradients_of_other_dialects(tmp_path, case, seed, which, transposed):
    """All gradients but the bias's, whose ReduceSum the importer does not read; what no kind states is refused."""
    rng = np.random.default_rng(seed)
    call = together(case, lambda shape: normal(rng, shape), (True, True, False), transposed)[which]
    needed = {node.op_type for node in convreg.onnx.translate(call.model, "onednn", rest="lower").graph.node}
    if needed & {"Slice", "Pad", "ConstantOfShape"}:
        with pytest.raises(GraphError, match=r"(Slice|Pad|ConstantOfShape).*no kind"):
            export_graph_json(call.model, tmp_path / "g.json")
    else:
        check_equal(tmp_path / "g.json", call.model, call.feeds)


def test_pages_rule_becomes_explicit_pads(tmp_path):
    """SAME by the published page's rule, which the library reads otherwise, keeps its window."""
    x, w = dyadic(RNG, (1, 2, 3)), dyadic(RNG, (2, 3, 4))
    for mode in ("SAME_UPPER", "same_lower"):
        source = convreg.onnx.node_model(
            "onednn::ConvolutionBackwardData", x, w, [1, 3, 6], strides=[2], pads_begin=[0], pads_end=[0],
            dilations=[1], auto_pad=mode, data_format="NCX", weights_format="OIX", conformance="document",
            as_inputs=True)
        document = check_equal(tmp_path / "g.json", source, {"diff_dst": x, "weights": w})
        assert document["graph"][0]["attrs"]["auto_pad"]["value"] == "None"


def test_bfloat16(tmp_path):
    x, w = dyadic(RNG, (1, 2, 5, 5), ml_dtypes.bfloat16), dyadic(RNG, (2, 3, 3, 3), ml_dtypes.bfloat16)
    nodes = [data_gradient(["dy", "w"], "g", dst_shape=[1, 3, 5, 5]), helper.make_node("Relu", ["g"], ["dx"])]
    source = model(nodes, [value("dy", x.shape, x.dtype)], [value("dx", (1, 3, 5, 5), x.dtype)], {"w": w})
    document = check_equal(tmp_path / "g.json", source, {"dy": x})
    assert [tensor["dtype"] for tensor in document["graph"][0]["inputs"]] == ["bf16", "bf16"]
    assert [tensor["property_type"] for tensor in document["graph"][0]["inputs"]] == ["variable", "constant"]


IMAGE = normal(RNG, (2, 4, 5, 6))
I64 = np.int64
NODES = {
    "relu": ("Relu",), "sigmoid": ("Sigmoid",), "tanh": ("Tanh",), "exp": ("Exp",), "abs": ("Abs",),
    "round": ("Round",), "mish": ("Mish",), "elu": ("Elu", {"alpha": 0.5}), "leaky": ("LeakyRelu", {"alpha": 0.25}),
    "gelu": ("Gelu",), "gelu tanh": ("Gelu", {"approximate": "tanh"}),
    "add": ("Add", normal(RNG, (4, 1, 1))), "sub": ("Sub", normal(RNG, (6,))), "mul": ("Mul", normal(RNG, (5, 1))),
    "div": ("Div", np.float32([4])), "max": ("Max", np.float32([0.5])), "min": ("Min", np.float32([0.5])),
    "clip": ("Clip", np.float32(-0.5), np.float32(0.75)),
    "transpose": ("Transpose", {"perm": [2, 0, 3, 1]}), "reverse": ("Transpose",),
    "reshape": ("Reshape", np.array([0, -1, 3], I64)), "flatten": ("Flatten", {"axis": 2}),
    "squeeze": ("Unsqueeze", np.array([0, -1], I64)), "concat": ("Concat", normal(RNG, (2, 1, 5, 6)), {"axis": 1}),
    "hard swish": ("HardSwish",), "softmax": ("Softmax", {"axis": 1}), "log softmax": ("LogSoftmax",),
    "matmul": ("MatMul", normal(RNG, (6, 3))), "sum": ("ReduceSum", np.array([0, -1], I64), {"keepdims": 0}),
    **{name: (f"Reduce{name}", np.array([1], I64)) for name in ("Max", "Mean", "Min", "Prod", "Sum")},
    "sum all": ("ReduceSum",),
    "cast": ("Cast", {"to": onnx.TensorProto.BFLOAT16}),
    "conv": ("Conv", normal(RNG, (6, 2, 3, 2)), normal(RNG, (6,)), {"group": 2, "pads": [1, 0, 0, 1],
                                                                    "strides": [2, 1]}),
    "conv transpose": ("ConvTranspose", normal(RNG, (4, 2, 3, 2)), {"group": 2, "strides": [2, 3],
                                                                   "output_padding": [1, 2], "pads": [1, 0, 0, 1]}),
}


def one_node(op_type: str, *inputs, **stated) -> onnx.ModelProto:
    """A standard node of which the first input is fed and the others are constants."""
    names = [f"c{index}" for index in range(len(inputs))]
    node = helper.make_node(op_type, ["x", *names], ["y"], name=op_type, **stated)
    dtype = ml_dtypes.bfloat16 if op_type == "Cast" else np.float32
    return convreg.onnx.infer_shapes(model([node], [value("x", IMAGE.shape)], [value("y", None, dtype)],
                                           dict(zip(names, inputs, strict=True))))


@pytest.mark.parametrize("name", NODES)
def test_standard_nodes(tmp_path, name):
    op_type, *inputs = NODES[name]
    stated = inputs.pop() if inputs and isinstance(inputs[-1], dict) else {}
    check_equal(tmp_path / "g.json", one_node(op_type, *inputs, **stated), {"x": IMAGE})


@pytest.mark.parametrize(("op_type", "shape", "weights"), [
    ("Conv", (2, 4, 5, 6), (6, 4, 3, 2)), ("ConvTranspose", (2, 4, 5, 6), (4, 2, 3, 2)), ("Gemm", (5, 6), (6, 3))])
def test_an_empty_name_is_no_operand(tmp_path, op_type, shape, weights):
    """That of a bias which is left out."""
    node = helper.make_node(op_type, ["x", "c", ""], ["y"])
    source = convreg.onnx.infer_shapes(model([node], [value("x", shape)], [value("y", None, np.float32)],
                                             {"c": normal(RNG, weights)}))
    document = check_equal(tmp_path / "g.json", source, {"x": normal(RNG, shape)})
    assert [len(operation["inputs"]) for operation in document["graph"]] == [2]


@pytest.mark.parametrize(("op_type", "inputs", "stated", "kind", "attrs"), [
    ("ReduceSum", [np.array([0, 2], I64)], {"keepdims": 0}, "ReduceSum", {
        "axes": {"type": "s64[]", "value": [0, 2]}, "keep_dims": {"type": "bool", "value": 0}}),
    ("MatMul", [normal(RNG, (6, 3))], {}, "MatMul", {
        "transpose_a": {"type": "bool", "value": 0}, "transpose_b": {"type": "bool", "value": 0}}),
    ("Softmax", [], {"axis": 1}, "SoftMax", {"axis": {"type": "s64", "value": 1}}),
])
def test_attributes_as_the_library_names_them(tmp_path, op_type, inputs, stated, kind, attrs):
    export_graph_json(one_node(op_type, *inputs, **stated), tmp_path / "g.json")
    (operation,) = checked(tmp_path / "g.json")["graph"]
    assert (operation["kind"], operation["attrs"]) == (kind, attrs)


def test_product_with_a_bias(tmp_path):
    """Both operands transposed; bf16 sums are made in f32 and rounded once, as the library does.

    The numbers are integers, whose f32 sums are exact in any order.
    """
    stated = {"transA": 1, "transB": 1}
    x, *constants = (RNG.integers(-32, 33, shape).astype(np.float32) for shape in ((4, 3), (5, 4), (5,)))
    names = ["c0", "c1"]
    for dtype in (np.float32, ml_dtypes.bfloat16):
        source = convreg.onnx.infer_shapes(model(
            [helper.make_node("Gemm", ["x", *names], ["y"], **stated)], [value("x", x.shape, dtype)],
            [value("y", None, dtype)], dict(zip(names, (c.astype(dtype) for c in constants), strict=True))))
        export_graph_json(source, path := tmp_path / "g.json")
        again = import_graph_json(path)
        feeds = dict(zip((entry.name for entry in again.graph.input),
                         (array.astype(dtype) for array in (x, *constants)), strict=True))
        (result,) = convreg.onnx.run(again, feeds).values()
        wide = [array.astype(dtype).astype(np.float32) for array in (x, *constants)]
        np.testing.assert_array_equal(result, (wide[0].T @ wide[1].T + wide[2]).astype(dtype))


def test_equal_ids_are_one_tensor_and_identities_vanish(tmp_path):
    nodes = [helper.make_node("Identity", ["x"], ["same"]), helper.make_node("Mul", ["same", "x"], ["square"]),
             helper.make_node("Relu", ["square"], ["hidden"]), helper.make_node("Add", ["hidden", "square"], ["y"])]
    source = model(nodes, [value("x", ("n", 3))], [value("y", ("n", 3)), value("square", ("n", 3))])
    document = check_equal(tmp_path / "g.json", source, {"x": IMAGE[0, 0, :, :3].copy()})
    first = document["graph"][0]
    assert first["kind"] == "Multiply"
    assert len({tensor["id"] for tensor in first["inputs"]}) == 1


@pytest.mark.parametrize(("nodes", "constants", "match"), [
    ([helper.make_node("Pad", ["x", "p"], ["y"], name="odd")], {"p": np.array([0, 0, 0, 0], I64)}, "odd.*Pad.*no kind"),
    ([helper.make_node("Identity", ["x"], ["t"]), helper.make_node("Relu", ["c"], ["y"])], {"c": np.zeros(3)},
     "float64"),
    ([helper.make_node("Clip", ["x", "low"], ["y"])], {"low": np.float32(0)}, "bounds"),
    ([helper.make_node("Clip", ["x", "low", "low"], ["y"])], {"low": np.zeros(1, np.float32)}, "scalars"),
    ([helper.make_node("Gemm", ["x", "c"], ["y"], alpha=2.0)], {"c": np.zeros((3, 3), np.float32)}, "alpha"),
    ([helper.make_node("Conv", ["i", "c"], ["y"], auto_pad="VALID")], {
        "i": IMAGE, "c": np.zeros((3, 4, 2, 2), np.float32)}, "auto_pad"),
])
def test_what_has_no_kind_is_refused_by_name(tmp_path, nodes, constants, match):
    dtype = np.float64 if match == "float64" else np.float32
    source = convreg.onnx.infer_shapes(
        model(nodes, [value("x", (3, 3))], [value("y", None, dtype)], constants))
    with pytest.raises(GraphError, match=match):
        export_graph_json(source, tmp_path / "g.json")
    assert not list(tmp_path.iterdir())


def test_a_refused_node_is_named_once(tmp_path):
    source = model([data_gradient(["dy", "w"], name="back", dst_shape=[1, 2, 4, 4])],
                   [value("dy", (1, 2, "h", 4)), value("w", (2, 2, 3, 3))], [value("dx", (1, 2, 4, 4))])
    with pytest.raises(GraphError) as caught:
        export_graph_json(source, tmp_path / "m.json")
    assert str(caught.value).count("node 'back'") == 1


def test_outputs_must_be_made(tmp_path):
    source = model([helper.make_node("Relu", ["x"], ["y"])], [value("x", (3,))], [value("y", (3,)), value("x", (3,))])
    with pytest.raises(GraphError, match="'x' is an input or a constant"):
        export_model(source, tmp_path / "g.json")
    open_batch = model([data_gradient(["dy", "w", "s"])], [
        value("dy", ("n", 2, 4, 4)), value("w", (2, 2, 3, 3)), value("s", (4,), np.int32)],
        [value("dx", ("n", 2, 4, 4))])
    with pytest.raises(GraphError, match=r"known before the graph runs|batch must be known"):
        export_model(open_batch, tmp_path / "g.json")
    assert not list(tmp_path.iterdir())


def test_conversions_of_ours_become_type_casts(tmp_path):
    x = np.array([[1, 1.001, -3e38]], np.float32)
    source = convreg.onnx.node_model("nodes::Quantize", x, as_inputs=["x"], format="bfloat16")
    document = check_equal(tmp_path / "q.json", source, {"x": x})
    assert [entry["kind"] for entry in document["graph"]] == ["TypeCast"]


@pytest.mark.parametrize(("name", "words"), [("grad", "node 'grad'"), ("", "node that makes 'dx'")])
@pytest.mark.parametrize(("batch", "pads_end", "why"), [
    (1, -3, "the format has no operation for it.*standard::Pad"), ("N", 0, "the batch must be known")])
def test_a_refused_part_of_a_translated_node_names_that_node(tmp_path, name, words, batch, pads_end, why):
    node = helper.make_node("ConvolutionBackpropData", ["dy", "w"], ["dx"], domain="convreg.openvino", name=name,
                            strides=[1], pads_begin=[0], pads_end=[pads_end], dilations=[1], data_format="NCX",
                            filter_format="OIX", conformance="openvino")
    made = model([node], [value("dy", [batch, 4, 4]), value("w", [4, 2, 3])], [value("dx", [batch, 2, None])])
    with pytest.raises(GraphError, match=rf"convreg\.openvino::ConvolutionBackpropData {words}: {why}"):
        export_graph_json(made, tmp_path / "graph.json")
    assert not (tmp_path / "graph.json").exists()
