"""Gradients in another vendor's words: every pair of dialects, there and back, equal bit for bit."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from amounts import examples
from drawn import convolutions, dyadic
from gradient_calls import GradientCall, forward, single, together
from graphs import data_gradient, model, value
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

import convreg
import convreg.onnx
from convreg import GraphError
from convreg.formats import FORMATS

SEEDS = st.integers(0, 2**32 - 1)
LAYOUTS = st.tuples(st.sampled_from(["NCX", "NXC"]), st.sampled_from(["OIX", "XIO"]))
MASKS = st.tuples(st.booleans(), st.booleans(), st.booleans()).filter(any)
DIALECTS = ("ascend", "onednn", "openvino", "aten")


def translated(made: onnx.ModelProto, to: str, **options) -> onnx.ModelProto:
    """The model in a dialect, checked: no other dialect is left."""
    result = convreg.onnx.translate(made, to, **options)
    onnx.checker.check_model(result, full_check=True)
    convreg.onnx.check(result)
    assert {node.domain for node in result.graph.node} <= {"", f"convreg.{to}"}
    assert result.graph.input == made.graph.input
    assert result.graph.output == made.graph.output
    return result


def stated_by(call: GradientCall, to: str) -> bool:
    """Whether a dialect has the gradient at all: OpenVINO has none with respect to weights."""
    computed = {value.name for value in call.model.graph.output}
    return to != "openvino" or not computed & {"diff_weights", "grad_weight", "gradWeight", "dW"}


def reaches(made: onnx.ModelProto) -> bool:
    """Whether any tap meets the data; else there are only zeros, which every dialect has."""
    return any(node.op_type in ("Conv", "ConvTranspose") for node in convreg.onnx.lower(made).graph.node)


def filler(seed, dtype=np.float32):
    rng = np.random.default_rng(seed)
    return lambda shape: dyadic(rng, shape, dtype)


def there_and_back(call: GradientCall, home: str) -> None:
    made = call.model
    expected = convreg.onnx.run(made, call.feeds)
    for to in DIALECTS:
        if not stated_by(call, to) and reaches(made):
            with pytest.raises(GraphError, match=r"openvino cannot express it: it has no gradient .* to weights"):
                convreg.onnx.translate(made, to)
            continue
        there = translated(made, to)
        back = translated(there, home) if home != "microsoft" else there
        for form in (there, back):
            if form == made:
                continue
            results = convreg.onnx.run(form, call.feeds)
            for name, array in expected.items():
                assert results[name].dtype == array.dtype
                np.testing.assert_array_equal(results[name], array, err_msg=f"{to}: {call}")


@examples(8, 20)
@given(convolutions(), SEEDS, LAYOUTS)
def test_single_gradients(case, seed, layouts):
    for call in single(case, filler(seed), layouts):
        there_and_back(call, call.name.partition("::")[0])


@examples(8, 20)
@given(convolutions(symmetric=True), SEEDS, MASKS, st.booleans(), st.sampled_from(["float32", "float16", "bfloat16"]))
def test_gradients_together(case, seed, mask, transposed, name):
    for call in together(case, filler(seed, FORMATS[name].dtype), mask, transposed):
        there_and_back(call, call.name.partition("::")[0])


@examples(8, 15)
@given(convolutions(), SEEDS)
def test_unequal_pads_of_conv_grad(case, seed):
    call = together(case, filler(seed), (True, True, True), False)[2]
    assert call.name == "microsoft::ConvGrad"
    there_and_back(call, "microsoft")


@examples(8, 15)
@given(convolutions(symmetric=True), SEEDS, MASKS, st.booleans())
def test_through_all_dialects(case, seed, mask, transposed):
    """Ascend to oneDNN to OpenVINO, what that cannot state in standard ONNX, to ATen and back to Ascend."""
    call = together(case, filler(seed), mask, transposed)[1]
    made = call.model
    expected = convreg.onnx.run(made, call.feeds)
    for to in ("onednn", "openvino", "aten", "ascend"):
        made = translated(made, to, rest="lower")
        results = convreg.onnx.run(made, call.feeds)
        for name, array in expected.items():
            np.testing.assert_array_equal(results[name], array)


@examples(8, 15)
@given(convolutions(), SEEDS)
def test_forward_operators_become_standard(case, seed):
    for call in forward(case, filler(seed)):
        expected = convreg.onnx.run(call.model, call.feeds)
        assert convreg.onnx.translate(call.model, "onednn") == call.model
        for to in ("ascend", "openvino", "aten"):
            result = translated(call.model, to)
            assert not [node for node in result.graph.node if node.domain]
            np.testing.assert_array_equal(convreg.onnx.run(result, call.feeds)["dst"], expected["dst"])


DY, W = value("dy", [1, 4, 8, 8]), value("w", [4, 3, 3, 3])


def only(made: onnx.ModelProto) -> dict:
    """Attributes of the only node that is not standard."""
    (node,) = [node for node in made.graph.node if node.domain]
    return {entry.name: helper.get_attribute_value(entry) for entry in node.attribute}


def same_upper(conformance: str) -> onnx.ModelProto:
    """A 4x4 kernel at stride 1, whose three pads cannot be halved."""
    return model([data_gradient(["dy", "w"], dst_shape=[1, 3, 8, 8], auto_pad="SAME_UPPER", conformance=conformance)],
                 [DY, value("w", [4, 3, 4, 4])], [value("dx", [1, 3, 8, 8])])


@pytest.mark.parametrize(("conformance", "begin"), [("document", 2), ("library", 1)])
def test_pads_are_resolved_by_the_rule_of_the_source(conformance, begin):
    made = same_upper(conformance)
    assert only(translated(made, "openvino"))["pads_begin"] == [begin] * 2
    assert only(translated(made, "openvino"))["auto_pad"] == b"explicit"
    assert only(translated(made, "openvino"))["conformance"] == b"openvino"
    ascend = translated(made, "ascend")
    assert only(ascend)["padding"] == [begin, 3 - begin, begin, 3 - begin]
    assert [node.op_type for node in ascend.graph.node if node.op_type == "Pad"] == []


def test_unequal_pads_that_a_dialect_cannot_state_are_done_outside():
    made = translated(same_upper("document"), "aten")
    assert only(made)["padding"] == [0, 0]
    assert "Slice" in {node.op_type for node in made.graph.node}


def test_groups_take_openvinos_own_operation():
    made = model([data_gradient(["dy", "w"], dst_shape=[1, 6, 8, 8], groups=2)], [DY, W], [value("dx", [1, 6, 8, 8])])
    kinds = [node.op_type for node in translated(made, "openvino").graph.node]
    assert kinds.count("GroupConvolutionBackpropData") == 1
    assert kinds.count("Reshape") == 1


def test_openvinos_older_page_becomes_the_runtimes_form():
    made = model([helper.make_node("ConvolutionBackpropData", ["dy", "w"], ["dx"], domain="convreg.openvino",
                                   strides=[2, 2], pads_begin=[0, 0], pads_end=[0, 0], dilations=[1, 1],
                                   data_format="NXC", filter_format="XIO", output_shape=[1, 16, 16, 3],
                                   auto_pad="same_upper")],
                 [value("dy", [1, 8, 8, 4]), value("w", [3, 3, 3, 4])], [value("dx", [1, 16, 16, 3])])
    result = translated(made, "openvino")
    assert only(result)["data_format"] == b"NCX"
    assert translated(result, "openvino") == result
    fill = filler(1)
    feeds = {"dy": fill((1, 8, 8, 4)), "w": fill((3, 3, 3, 4))}
    np.testing.assert_array_equal(convreg.onnx.run(result, feeds)["dx"], convreg.onnx.run(made, feeds)["dx"])


@pytest.mark.parametrize("to", DIALECTS)
@pytest.mark.parametrize("batch", [1, 3])
def test_any_batch(to, batch):
    made = model([helper.make_node("Shape", ["x"], ["s"]), data_gradient(["dy", "w", "s"])],
                 [value("dy", ["N", 4, 8, 8]), W, value("x", ["N", 3, 8, 8])], [value("dx", ["N", 3, 8, 8])])
    fill = filler(2)
    feeds = {"dy": fill((batch, 4, 8, 8)), "w": fill((4, 3, 3, 3)), "x": fill((batch, 3, 8, 8))}
    expected = convreg.onnx.run(made, feeds)["dx"]
    there = translated(made, to)
    back = translated(there, "onednn")
    for form in (there, back):
        np.testing.assert_array_equal(convreg.onnx.run(form, feeds)["dx"], expected)


def test_float64_names_who_would():
    call = together_float64()
    for to, would in (("onednn", "'aten' or 'onnx' can"), ("ascend", "'aten' or 'onnx' can")):
        with pytest.raises(GraphError, match="float64") as caught:
            convreg.onnx.translate(call.model, to)
        assert str(caught.value).endswith(would)
    translated(call.model, "onednn", rest="lower")


def together_float64() -> GradientCall:
    rng = np.random.default_rng(0)
    x, w, dy = (dyadic(rng, shape, np.float64) for shape in ((1, 2, 5), (3, 2, 3), (1, 3, 3)))
    return GradientCall("microsoft::ConvGrad", (dy, x, w), {"pads": [0, 0]})


@pytest.mark.parametrize("formats", [("float16", "bfloat16", "float32"), ("bfloat16", "bfloat16", "float16")])
@pytest.mark.parametrize("cube", [0, 2])
@pytest.mark.parametrize("to", ["onednn", "aten"])
def test_ascends_roundings_become_casts(formats, cube, to):
    rng = np.random.default_rng(3)
    shapes = ((1, 4, 5, 5), (1, 2, 5, 5), (4, 2, 3, 3))
    tensors = tuple((dyadic(rng, shape) * np.float32(1 + 2**-9)).astype(FORMATS[name].dtype)
                    for shape, name in zip(shapes, formats, strict=True))
    call = GradientCall("ascend::ConvolutionBackward", tensors, {
        "bias_sizes": [4], "stride": [1, 1], "padding": [1, 1], "dilation": [1, 1], "cube_math_type": cube})
    expected = convreg.onnx.run(call.model, call.feeds)
    results = convreg.onnx.run(translated(call.model, to), call.feeds)
    for name, array in expected.items():
        assert results[name].dtype == array.dtype
        np.testing.assert_array_equal(results[name], array)


def test_hf32_stays_in_its_dialect():
    ones = [np.ones(shape, np.float32) for shape in ((1, 1, 3), (1, 1, 3), (1, 1, 1))]
    made = GradientCall("ascend::ConvolutionBackward", tuple(ones), {
        "bias_sizes": [1], "stride": [1], "padding": [0], "dilation": [1], "cube_math_type": 1}).model
    assert convreg.onnx.translate(made, "ascend") == made
    with pytest.raises(GraphError, match=r"HF32.*no other dialect can"):
        convreg.onnx.translate(made, "onednn")


def test_to_onnx_is_lowering():
    made = same_upper("document")
    assert convreg.onnx.translate(made, "onnx") == convreg.onnx.lower(made)


def test_unknown_words():
    with pytest.raises(GraphError, match=r"no dialect 'cudnn'.*ascend, onednn, openvino, aten, onnx"):
        convreg.onnx.translate(same_upper("document"), "cudnn")
    with pytest.raises(GraphError, match="rest='drop'"):
        convreg.onnx.translate(same_upper("document"), "aten", rest="drop")


def test_a_window_that_nothing_reaches_is_zeros_in_every_dialect():
    made = model([helper.make_node("ConvolutionBackpropData", ["dy", "w"], ["dx"], domain="convreg.openvino",
                                   strides=[1, 1], pads_begin=[20, 0], pads_end=[0, 0], dilations=[1, 1],
                                   data_format="NCX", filter_format="OIX", output_shape=[4, 5], groups=1,
                                   conformance="openvino")], [DY, W], [value("dx", [1, 3, 4, 5])])
    feeds = {"dy": np.full((1, 4, 8, 8), np.nan, np.float32), "w": np.ones((4, 3, 3, 3), np.float32)}
    for to in ("onednn", "aten", "ascend", "onnx"):
        result = convreg.onnx.translate(made, to)
        np.testing.assert_array_equal(convreg.onnx.run(result, feeds)["dx"], np.zeros((1, 3, 4, 5), np.float32))


@pytest.mark.parametrize("mask", [[False, False, True], [False, True, True], [True, True, True]])
@pytest.mark.parametrize("to", DIALECTS)
def test_zeros_that_a_product_writes_for_empty_tensors(to, mask):
    """A product accepts sizes that do not fit where a tensor is empty: there are zeros, and no window to state."""
    shapes = ((2, 4, 3), (2, 2, 5), (0, 1, 2)) if not mask[0] else ((0, 4, 3), (0, 2, 3), (4, 2, 1))
    arrays = [np.ones(shape, np.float16) for shape in shapes]
    made = convreg.onnx.node_model(
        "ascend::ConvolutionBackward", *arrays, stride=[1], padding=[0], dilation=[2], bias_sizes=[4],
        groups=1 if mask[0] else 2, output_mask=mask, conformance="atlas-a2", as_inputs=True)
    feeds = {entry.name: array for entry, array in zip(made.graph.input, arrays, strict=True)}
    wanted, results = convreg.onnx.run(made, feeds), convreg.onnx.run(convreg.onnx.translate(made, to), feeds)
    assert {name: (array.dtype, array.shape, array.tobytes()) for name, array in results.items()} == {
        name: (array.dtype, array.shape, array.tobytes()) for name, array in wanted.items()}
