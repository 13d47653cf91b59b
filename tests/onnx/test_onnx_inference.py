"""Type and shape inference and full checking of models that hold convreg's nodes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from graphs import OPSETS, data_gradient, model, value
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

import convreg
import convreg.onnx
from convreg import GraphError, OpError, OpTypeError
from convreg.calls.binding import make_call
from convreg.spec import TensorType

DY, W = value("dy", [1, 4, 8, 8]), value("w", [4, 3, 3, 3])
OPEN = value("dx", [None] * 4)


def inferred(made: onnx.ModelProto, name: str | None = None) -> tuple:
    """Shape of the first output, or of the value called `name`."""
    graph = convreg.onnx.infer_shapes(made).graph
    found = graph.output[0] if name is None else next(v for v in graph.value_info if v.name == name)
    dims = found.type.tensor_type.shape.dim
    return tuple(dim.dim_value if dim.HasField("dim_value") else dim.dim_param for dim in dims)


def refused(made: onnx.ModelProto) -> str:
    """The text with which `check` refuses a model; the text must be there through onnx's own functions as well."""
    with pytest.raises(GraphError) as caught:
        convreg.onnx.check(made)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_constant_shapes(dtype):
    initializer = model([data_gradient(["dy", "w", "s"])], [DY, W], [OPEN], {"s": np.array([1, 3, 8, 8], dtype)})
    constant = model(
        [helper.make_node("Constant", [], ["s"], value=onnx.numpy_helper.from_array(np.array([1, 3, 8, 8], dtype))),
         data_gradient(["dy", "w", "s"])], [DY, W], [OPEN])
    attribute = model([data_gradient(["dy", "w"], dst_shape=[1, 3, 8, 8])], [DY, W], [OPEN])
    for made in (initializer, constant, attribute):
        assert inferred(made) == (1, 3, 8, 8)
        convreg.onnx.check(made)
        onnx.checker.check_model(made, full_check=True)


@pytest.mark.parametrize("cast", [False, True])
def test_symbolic_shape(cast):
    nodes = [
        helper.make_node("Shape", ["x"], ["all"]),
        helper.make_node("Slice", ["all", "two", "four"], ["space"]),
        helper.make_node("Concat", ["front", "space"], ["joined"], axis=0),
        helper.make_node("Cast", ["joined"], ["s"], to=TensorProto.INT32) if cast
        else helper.make_node("Identity", ["joined"], ["s"]),
        data_gradient(["dy", "w", "s"]),
    ]
    made = model(nodes, [value("x", ["N", "C", "h", 7]), value("dy", ["N", 4, None, None]), W], [OPEN],
                 {"two": np.array([2]), "four": np.array([4]), "front": np.array([1, 3])})
    shape = inferred(made)
    assert shape == (1, 3, "h", 7) if cast else shape[0] != 0  # Identity does not propagate values in every onnx
    convreg.onnx.check(made)


def test_symbolic_shape_of_numbers_is_checked():
    nodes = [helper.make_node("Shape", ["x"], ["s"]), data_gradient(["dy", "w", "s"])]
    fits = model(nodes, [value("x", [1, 3, 8, 8]), DY, W], [OPEN])
    assert inferred(fits) == (1, 3, 8, 8)
    assert "[rule R25]" in refused(model(nodes, [value("x", [1, 3, 9, 8]), DY, W], [OPEN]))


def test_unknown_shape_input_falls_back_to_the_attribute_then_to_the_rank():
    shape_input = value("s", [4], np.int64)
    assert inferred(model([data_gradient(["dy", "w", "s"], dst_shape=[1, 3, 8, 8])], [DY, W, shape_input],
                          [OPEN])) == (1, 3, 8, 8)
    rank_only = inferred(model([data_gradient(["dy", "w", "s"])], [DY, W, shape_input], [value("dx", [None] * 4)]))
    assert len(rank_only) == 4
    assert all(isinstance(extent, str) for extent in rank_only)


def test_unknown_rank_is_no_error():
    made = model([data_gradient(["dy", "w", "s"])], [value("dy"), value("w"), value("s", None, np.int64)], [OPEN])
    convreg.onnx.infer_shapes(made)
    made = model([helper.make_node("Reshape", ["a", "t"], ["dy"]), data_gradient(["dy", "w"], dst_shape=[1, 3, 8, 8])],
                 [value("a"), value("t", [None], np.int64), value("w")], [OPEN])
    assert inferred(made) == (1, 3, 8, 8)


@pytest.mark.parametrize("name", convreg.names())
def test_every_operator_tolerates_open_inputs(name):
    """Nothing but types known, then ranks, then symbols; the attributes are complete."""
    spec = convreg.get(name).spec
    filled = {"strides": [1, 1], "stride": [1, 1], "dilations": [1, 1], "dilation": [1, 1], "pads_begin": [1, 1],
              "pads_end": [1, 1], "padding": [1, 1], "transposed": 0, "output_padding": [0, 0], "groups": 1,
              "output_mask": [1, 1, 1]}
    attributes = {a.name: filled[a.name] for a in spec.attributes if a.required}
    ports = [port for port in spec.vendor_inputs if not port.shape]
    dtype = np.uint8 if name == "nodes::Quantize" else np.float32
    node = helper.make_node(spec.name, [port.name for port in ports], [port.name for port in spec.outputs],
                            domain=spec.onnx_domain, **attributes)
    for shape in (None, [None] * 4, ["a", "b", "c", "d"], [2, None, "h", None]):
        shapes = {port.name: shape for port in ports}
        if shape is not None:
            shapes |= {"bias": [None]} if "bias" in shapes else {}
            shapes |= {"filter": [None, *shape]} if name.startswith("openvino::Group") else {}
        made = model([node], [value(name, shape) for name, shape in shapes.items()],
                     [value(port.name, None, dtype) for port in spec.outputs])
        graph = convreg.onnx.infer_shapes(made).graph
        for output in graph.output:
            assert output.type.tensor_type.elem_type == helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


@pytest.mark.parametrize(("shape", "text"), [
    ([1, 3, 9, 8], "[rule R25]"), ([1, 3, 8], "[rule R18]"), ([1, 2, 8, 8], "[rule R22]"), ([2, 3, 8, 8], "[rule R21]"),
    ([1, 3, -8, 8], "[rule R19]"),
])
def test_impossible_shapes_carry_our_text(shape, text):
    for made in (model([data_gradient(["dy", "w", "s"])], [DY, W], [OPEN], {"s": np.array(shape)}),
                 model([data_gradient(["dy", "w"], dst_shape=shape)], [DY, W], [OPEN])):
        message = refused(made)
        assert text in message
        assert "onednn::ConvolutionBackwardData" in message
        assert "gradient" in message  # the node's name
        for through_onnx in (lambda made: onnx.checker.check_model(made, full_check=True),
                             lambda made: onnx.shape_inference.infer_shapes(made, strict_mode=True, data_prop=True)):
            with pytest.raises(OpError) as caught:
                through_onnx(made)
            assert str(caught.value) in message


def test_errors_name_the_conformance_that_would_accept():
    made = model([data_gradient(["dy", "w"], dst_shape=[1, 3, 8, 8], conformance="library", auto_pad="same_upper")],
                 [DY, W], [OPEN])
    message = refused(made)
    assert "[rule R4; accepted under conformance='document']" in message
    assert "SAME_UPPER" in message
    assert "conformance='mine'" in refused(
        model([data_gradient(["dy", "w"], dst_shape=[1, 3, 8, 8], conformance="mine")], [DY, W], [OPEN]))


@pytest.mark.parametrize("lie", [[1, 3, 8, 9], [1, 3, 8], [1, 3, 8, 8, 1]])
def test_declared_shapes_that_lie(lie):
    node = data_gradient(["dy", "w"], dst_shape=[1, 3, 8, 8])
    assert "differ" in refused(model([node], [DY, W], [value("dx", lie)]))
    inner = model([node, helper.make_node("Relu", ["dx"], ["y"])], [DY, W], [value("y", [None] * 4)])
    inner.graph.value_info.append(value("dx", lie))
    refused(inner)


def test_declared_type_that_lies():
    node = data_gradient(["dy", "w"], dst_shape=[1, 3, 8, 8])
    refused(model([node], [DY, W], [value("dx", [1, 3, 8, 8], np.float16)]))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_element_types_follow_the_inputs(dtype):
    inputs = [value("dy", [1, 4, 8, 8], dtype), value("w", [4, 3, 3, 3], dtype)]
    made = model([data_gradient(["dy", "w"], dst_shape=[1, 3, 8, 8])], inputs, [value("dx", [1, 3, 8, 8], dtype)])
    convreg.onnx.check(made)


@pytest.mark.parametrize(("dy", "w"), [(np.float64, np.float64), (np.int32, np.int32), (np.float16, np.float32)])
def test_unsupported_and_mixed_types(dy, w):
    made = model([data_gradient(["dy", "w"], dst_shape=[1, 3, 8, 8])],
                 [value("dy", [1, 4, 8, 8], dy), value("w", [4, 3, 3, 3], w)], [value("dx", [1, 3, 8, 8], dy)])
    refused(made)


def test_missing_and_unknown_attributes():
    node = data_gradient(["dy", "w"], dst_shape=[1, 3, 8, 8])
    node.attribute.remove(next(a for a in node.attribute if a.name == "strides"))
    made = model([node], [DY, W], [OPEN])
    assert "strides" in refused(made)
    with pytest.raises(OpTypeError, match=r"strides=None .* \[rule R1\]"):
        onnx.shape_inference.infer_shapes(made)
    assert "stride" in refused(model([data_gradient(["dy", "w"], dst_shape=[1, 3, 8, 8], stride=[1])], [DY, W], [OPEN]))


def test_wrong_kind_and_too_many_inputs():
    assert "groups" in refused(model([data_gradient(["dy", "w"], dst_shape=[1, 3, 8, 8], groups=[1])], [DY, W], [OPEN]))
    refused(model([data_gradient(["dy", "w", "", "dy"], dst_shape=[1, 3, 8, 8])], [DY, W], [OPEN]))
    refused(model([data_gradient(["dy"], dst_shape=[1, 3, 8, 8])], [DY], [OPEN]))
    refused(model([data_gradient(["", "w"], dst_shape=[1, 3, 8, 8])], [W], [OPEN]))


@pytest.mark.parametrize("blank", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2)])
@pytest.mark.parametrize(("domain", "op_type", "attributes"), [
    ("com.microsoft", "ConvGrad", {"pads": [1, 1, 1, 1]}),
    ("convreg.aten", "convolution_backward", {
        "stride": [1, 1], "padding": [1, 1], "dilation": [1, 1], "transposed": 0, "output_padding": [0, 0], "groups": 1,
        "output_mask": [1, 1, 1]}),
    ("convreg.ascend", "ConvolutionBackward", {"stride": [1, 1], "padding": [1, 1], "dilation": [1, 1]}),
])
def test_blank_outputs(blank, domain, op_type, attributes):
    shapes = {"dx": [1, 3, 8, 8], "dw": [4, 3, 3, 3], "db": [4]}
    names = ["" if index in blank else name for index, name in enumerate(shapes)]
    made = model([helper.make_node(op_type, ["dy", "x", "w"], names, domain=domain, **attributes)],
                 [DY, value("x", [1, 3, 8, 8]), W], [value(name, [None] * len(shapes[name])) for name in names if name])
    convreg.onnx.check(made)
    for output in convreg.onnx.infer_shapes(made).graph.output:
        assert [dim.dim_value for dim in output.type.tensor_type.shape.dim] == shapes[output.name]


def test_types_of_mixed_ascend_operands():
    node = helper.make_node("ConvolutionBackward", ["dy", "x", "w"], ["dx", "dw", "db"], domain="convreg.ascend",
                            stride=[1, 1], padding=[1, 1], dilation=[1, 1])
    made = model([node], [value("dy", [1, 4, 8, 8], np.float16), value("x", [1, 3, 8, 8]),
                          value("w", [4, 3, 3, 3], ml_dtypes.bfloat16)],
                 [value("dx", None), value("dw", None, ml_dtypes.bfloat16), value("db", None, np.float16)])
    del made.graph.output[:]
    made.graph.output.extend([value("dx", [1, 3, 8, 8]), value("dw", [4, 3, 3, 3], ml_dtypes.bfloat16),
                              value("db", [4], np.float16)])
    convreg.onnx.check(made)
    made.graph.output[1].CopyFrom(value("dw", [4, 3, 3, 3], np.float32))
    refused(made)


def test_inference_reaches_functions_and_subgraphs():
    function = helper.make_function("local", "Back", ["a", "b"], ["c"],
                                    [data_gradient(["a", "b"], "c", dst_shape=[1, 3, 8, 8])], OPSETS[:2])
    made = model([helper.make_node("Back", ["dy", "w"], ["dx"], domain="local")], [DY, W], [OPEN], functions=[function])
    assert inferred(made) == (1, 3, 8, 8)
    branch = [helper.make_graph([data_gradient(["dy", "w"], name, name, dst_shape=shape)], name, [], [value(name)])
              for name, shape in (("yes", [1, 3, 8, 8]), ("no", [1, 3, 9, 8]))]
    choice = helper.make_node("If", ["c"], ["dx"], then_branch=branch[0], else_branch=branch[1])
    assert "[rule R25]" in refused(model([choice], [value("c", [], np.bool_), DY, W], [OPEN]))


@st.composite
def open_calls(draw, spec):
    """Tensors with known and unknown ranks and extents, mostly of equal rank, and lists mostly of its length."""
    conformance = draw(st.sampled_from(spec.conformances))
    count = draw(st.integers(1, 3))
    extents = st.one_of(st.none(), st.just("a"), st.integers(0, 6))

    def shape(rank):
        length = draw(st.sampled_from([None, rank, rank, rank, rank + 1, rank - 1, 0]))
        return None if length is None else tuple(draw(extents) for _ in range(length))

    tensors, stated = [], {}
    for port in spec.inputs if conformance == "emulation" else spec.vendor_inputs:
        rank = 1 if port.name == "bias" else count + 2 + (port.name == "filter" and "Group" in spec.name)
        tensors.append(None if port.shape else TensorType(shape(rank), "float32"))
        if port.shape:
            stated[port.name] = shape(count + 2)
    attributes = {}
    for attribute in spec.attributes:
        if attribute.required or attribute.kind == "bools":
            length = draw(st.sampled_from([count] * 4 + [count + 1, 0]))
            attributes[attribute.name] = {"ints": [1] * length, "bools": [True] * (length if length > 1 else 3),
                                          "bool": draw(st.booleans()), "int": 2}[attribute.kind]
    return conformance, tuple(tensors), stated, attributes


@pytest.mark.parametrize("name", convreg.names())
def test_inference_answers_or_refuses_whatever_is_known(name):
    spec, answered = convreg.get(name).spec, []

    @given(open_calls(spec))
    @settings(max_examples=100)
    def answers(drawn):
        conformance, tensors, stated, attributes = drawn
        try:
            outputs = spec.infer(make_call(spec, conformance, tensors, stated, attributes))
        except OpError:
            return
        assert len(outputs) == len(spec.outputs)
        answered.append(outputs)

    answers()
    assert len(answered) >= 5


@pytest.mark.parametrize("length", [2, None])
def test_a_stated_shape_that_only_the_run_tells_is_not_an_absent_one(length):
    """Without the third input OpenVINO's result has its natural size, which must not be inferred here."""
    node = helper.make_node("GroupConvolutionBackpropData", ["dy", "w", "s"], ["dx"], domain="convreg.openvino",
                            strides=[2, 2], pads_begin=[0, 0], pads_end=[0, 0], dilations=[1, 1])
    filters, shape = value("w", [1, 4, 3, 3, 3]), value("s", [length], np.int64)
    made = model([node], [DY, filters, shape], [OPEN])
    assert [dim if isinstance(dim, int) else None for dim in inferred(made)] == [1, 3, None, None]
    x, w = np.ones((1, 4, 8, 8), np.float32), np.ones((1, 4, 3, 3, 3), np.float32)
    assert convreg.onnx.run(made, {"dy": x, "w": w, "s": np.array([9, 20])})["dx"].shape == (1, 3, 9, 20)


@pytest.mark.parametrize(("kind", "name"), [("input", "x"), ("output", "y")])
def test_values_without_a_type_or_a_shape_are_named(kind, name):
    for field, bare in (("type", helper.make_empty_tensor_value_info(name)), ("shape", value(name))):
        values = {"x": value("x", [2]), "y": value("y", [2]), name: bare}
        made = model([helper.make_node("Relu", ["x"], ["y"])], [values["x"]], [values["y"]])
        with pytest.raises(GraphError, match=f"{kind} '{name}' has no {field}; allowed: .* with a {field}"):
            convreg.onnx.check(made)


def test_an_unknown_operator_is_quoted_once():
    made = model([helper.make_node("Foo", ["x"], ["y"], domain="convreg.aten")], [value("x", [2])], [value("y", [2])])
    with pytest.raises(GraphError, match=r"no operator of convreg\.aten named 'Foo'; known: convolution_backward"):
        convreg.onnx.check(made)


@pytest.mark.parametrize("version", [10, 12, 18, 21, 22, 24])
@pytest.mark.parametrize("op_type", ["AveragePool", "LpPool", "MaxPool"])
@pytest.mark.parametrize(("extent", "window", "made"), [
    (5, {"kernel_shape": [2], "strides": [2], "pads": [1, 1]}, 3),
    (4, {"kernel_shape": [1], "strides": [2]}, 2),
    (5, {"kernel_shape": [2], "strides": [3], "pads": [1, 1]}, 2),
    (8, {"kernel_shape": [3], "strides": [2]}, 4),
    (7, {"kernel_shape": [2], "strides": [2], "auto_pad": "SAME_UPPER"}, 4),
    ("n", {"kernel_shape": [2], "strides": [2]}, "unk__0"),
])
def test_poolings_that_round_up(version, op_type, extent, window, made):
    """A window that starts in the padding at the end does not count: onnx's inference counts it before version 22."""
    if op_type == "LpPool" and version < 18:
        pytest.skip("LpPool rounds down before version 18")
    node = helper.make_node(op_type, ["x"], ["z"], ceil_mode=1, **window)
    nodes = [node, helper.make_node("Identity", ["z"], ["y"])]
    whole = model(nodes, [value("x", [1, 1, extent])], [value("y", [1, 1, None if extent == "n" else made])])
    imports(whole, version)
    convreg.onnx.check(whole)
    assert inferred(whole) == inferred(whole, "z") == (1, 1, made)
    assert [*convreg.onnx.infer_shapes(whole).graph.node] == nodes
    if extent != "n":
        x = np.arange(extent, dtype=np.float32).reshape(1, 1, extent)
        assert convreg.onnx.run(whole, {"x": x}, engine="reference")["y"].shape == (1, 1, made)


def imports(whole: onnx.ModelProto, version: int) -> None:
    """Let a model import a version of standard ONNX."""
    next(entry for entry in whole.opset_import if entry.domain == "").version = version


def test_poolings_that_round_up_in_functions_and_branches():
    pool = helper.make_node("MaxPool", ["x"], ["z"], kernel_shape=[1], strides=[2], ceil_mode=1)
    function = helper.make_function("local", "Pool", ["x"], ["z"], [pool], [helper.make_opsetid("", 20)])
    inner = {"then_branch": helper.make_node("Identity", ["p"], ["b"]),
             "else_branch": helper.make_node("MaxPool", ["x"], ["b"], kernel_shape=[1], strides=[2], ceil_mode=1)}
    branches = {name: helper.make_graph([node], name, [], [value("b", [1, 1, 2])]) for name, node in inner.items()}
    nodes = [helper.make_node("Pool", ["x"], ["p"], domain="local"), helper.make_node("If", ["c"], ["y"], **branches)]
    whole = model(nodes, [value("x", [1, 1, 4]), value("c", [], np.bool_)], [value("y", [1, 1, 2])],
                  functions=[function])
    imports(whole, 20)
    convreg.onnx.check(whole)
    assert inferred(whole, "p") == (1, 1, 2)
