"""Our nodes in standard ONNX: the same numbers in onnxruntime and OpenVINO as on our kernels."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import onnx
import pytest
from amounts import examples
from drawn import convolutions, dyadic, normal
from gradient_calls import GradientCall, forward, single, together
from graphs import OPSETS, data_gradient, model, value
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper
from runtimes import onnxruntime_run, openvino_run

import convreg
import convreg.onnx
from convreg import GraphError, OpError, registry
from convreg.formats import FORMATS

SEEDS = st.integers(0, 2**32 - 1)
LAYOUTS = st.tuples(st.sampled_from(["NCX", "NXC"]), st.sampled_from(["OIX", "XIO"]))
MASKS = st.tuples(st.booleans(), st.booleans(), st.booleans()).filter(any)


def lowered(made: onnx.ModelProto) -> onnx.ModelProto:
    """The standard form, checked."""
    result = convreg.onnx.lower(made)
    onnx.checker.check_model(result, full_check=True)
    assert not [node.op_type for node in result.graph.node if node.domain]
    assert not result.functions
    assert {entry.domain for entry in result.opset_import} <= {"", "local"}
    assert result.graph.input == made.graph.input
    assert result.graph.output == made.graph.output
    return result


def filler(seed, make=dyadic, dtype=np.float32):
    rng = np.random.default_rng(seed)
    return lambda shape: make(rng, shape, dtype)


def agree(call: GradientCall, run=onnxruntime_run) -> None:
    """Equal bits; for data whose sums are exact."""
    made = call.model
    results = run(lowered(made), call.feeds)
    for name, expected in convreg.onnx.run(made, call.feeds).items():
        assert results[name].dtype == expected.dtype
        np.testing.assert_array_equal(results[name], expected, err_msg=str(call))


@examples(25, 60)
@given(convolutions(), SEEDS, LAYOUTS)
def test_single_gradients(case, seed, layouts):
    for call in (*single(case, filler(seed), layouts), *forward(case, filler(seed))):
        agree(call)


@examples(20, 40)
@given(convolutions(symmetric=True), SEEDS, MASKS, st.booleans(),
       st.sampled_from(["float32", "float16", "bfloat16"]))
def test_gradients_together(case, seed, mask, transposed, name):
    for call in together(case, filler(seed, dtype=FORMATS[name].dtype), mask, transposed):
        agree(call)


@settings(max_examples=12)
@given(convolutions(), SEEDS, LAYOUTS)
def test_openvino_runtime(case, seed, layouts):
    for call in (*single(case, filler(seed), layouts), *forward(case, filler(seed))):
        agree(call, openvino_run)


@pytest.mark.slow
@settings(max_examples=400)
@given(convolutions(), SEEDS, LAYOUTS)
def test_many_geometries(case, seed, layouts):
    for call in (*single(case, filler(seed), layouts), *forward(case, filler(seed))):
        agree(call)
        agree(call, openvino_run)


@st.composite
def windows(draw, case):
    """Attributes of any window of the full scatter, much of it outside or empty."""
    count = len(case.stride)
    full = [s * (y - 1) + (k - 1) * d + 1 for s, y, k, d in
            zip(case.stride, case.small[2:], case.weights[2:], case.dilation, strict=True)]
    numbers = st.integers(0, 9)
    attributes = {
        "strides": case.stride, "dilations": case.dilation, "groups": case.groups, "data_format": "NCX",
        "filter_format": "OIX", "conformance": "openvino",
        "pads_begin": [draw(numbers) for _ in range(count)],
        "pads_end": [draw(st.integers(-4, 4)) for _ in range(count)],
        "output_padding": [draw(st.integers(-1, 4)) for _ in range(count)],
        "auto_pad": draw(st.sampled_from(["explicit", "same_upper", "same_lower", "valid"])),
    }
    if draw(st.booleans()):
        attributes["output_shape"] = [draw(st.integers(0, extent + 5)) for extent in full]
    return attributes


@examples(40, 100)
@given(convolutions(), st.data(), SEEDS)
def test_any_window(case, data, seed):
    fill = filler(seed)
    call = GradientCall("openvino::ConvolutionBackpropData", (fill(case.small), fill(case.weights)),
                        data.draw(windows(case)))
    try:
        made = call.model
    except OpError:
        with pytest.raises(OpError):
            convreg.get(call.name)(*call.tensors, **call.arguments)
        return
    assert made.graph.output[0].name == "input_delta"
    agree(call)


@settings(max_examples=40)
@given(convolutions(), SEEDS, st.sampled_from(["SAME_UPPER", "SAME_LOWER", "VALID"]),
       st.sampled_from(["document", "library"]))
def test_auto_pad_is_the_operators_own(case, seed, mode, conformance):
    small = [-(-x // s) if mode != "VALID" else (x - (k - 1) * d - 1) // s + 1 for x, s, k, d in
             zip(case.large[2:], case.stride, case.weights[2:], case.dilation, strict=True)]
    if min(small) < 1:
        return
    fill = filler(seed)
    arguments = {**case.attributes, "groups": case.groups, "auto_pad": mode, "data_format": "NCX",
                 "weights_format": "OIX", "dst_shape": list(case.large), "conformance": conformance}
    call = GradientCall("onednn::ConvolutionBackwardData", (fill((*case.small[:2], *small)), fill(case.weights)),
                        arguments)
    try:
        made = call.model
    except OpError:
        assert conformance == "document"  # whose SAME does not fit every size
        return
    assert [node.op_type for node in lowered(made).graph.node if "Conv" in node.op_type] in ([], ["ConvTranspose"])
    agree(call)


@settings(max_examples=20)
@given(convolutions(), SEEDS, st.sampled_from(["IOX", "XOI"]))
def test_page_order_of_grouped_transposed_weights(case, seed, weights_format):
    fill = filler(seed)
    small, large, *taps = case.weights
    page = (small // case.groups, large * case.groups, *taps)
    if weights_format == "XOI":
        page = (*page[2:], page[1], page[0])
    agree(GradientCall("onednn::ConvTransposeBackwardData", (fill(case.large), fill(page)), {
        **case.attributes, "groups": case.groups, "data_format": "NCX", "weights_format": weights_format}))


@settings(max_examples=25)
@given(convolutions(symmetric=True), SEEDS, st.booleans(), st.sampled_from(["float32", "float16", "bfloat16"]))
def test_rounded_once(case, seed, transposed, name):
    """Normal numbers: within the error of float32 sums, and one rounding to the format."""
    fill = filler(seed, normal, FORMATS[name].dtype)
    call = together(case, fill, (True, True, True), transposed)[0]
    operator = convreg.get(call.name)
    results = onnxruntime_run(lowered(call.model), call.feeds)
    exact = operator.reference(*call.tensors, **call.arguments)
    sums = operator.reference(*map(np.abs, call.tensors), **call.arguments)
    terms = max(np.prod(case.large), np.prod(case.small), np.prod(case.weights))
    for port, wanted, magnitude in zip(operator.spec.outputs, exact, sums, strict=True):
        unit = np.abs(np.spacing(wanted.astype(results[port.name].dtype))).astype(np.float64)
        error = np.abs(results[port.name].astype(np.float64) - wanted)
        assert (error <= 2.0**-23 * (4 + np.sqrt(terms)) * magnitude + 0.5001 * unit).all()


@settings(max_examples=20)
@given(convolutions(symmetric=True), SEEDS)
def test_float64_stays_float64(case, seed):
    call = together(case, filler(seed, normal, np.float64), (True, True, True), False)[0]
    made = call.model
    results = convreg.onnx.run(lowered(made), call.feeds)
    for name, expected in convreg.onnx.run(made, call.feeds).items():
        assert results[name].dtype == np.float64
        np.testing.assert_allclose(results[name], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("formats", [
    ("float16", "bfloat16", "float32"), ("bfloat16", "bfloat16", "float16"), ("float32", "float16", "float16")])
@pytest.mark.parametrize("cube", [0, 2])
@pytest.mark.parametrize("transposed", [False, True])
def test_ascend_mixed_formats_and_float16_operands(formats, cube, transposed):
    """Multiples of 1/4 lose nothing in float16; 1 + 2**-9 in float32 does, in the operands and once more on the way."""
    rng = np.random.default_rng(3)
    arrays = [dyadic(rng, shape) for shape in ((1, 4, 5, 5), (1, 2, 5, 5) if not transposed else (1, 4, 5, 5))]
    weight = dyadic(rng, (4, 2, 3, 3) if not transposed else (4, 4, 3, 3)) * np.float32(1 + 2**-9)
    tensors = tuple(array.astype(FORMATS[name].dtype) for array, name in zip((*arrays, weight), formats, strict=True))
    agree(GradientCall("ascend::ConvolutionBackward", tensors, {
        "bias_sizes": [4], "stride": [1, 1], "padding": [1, 1], "dilation": [1, 1], "transposed": transposed,
        "cube_math_type": cube}))


@pytest.mark.skipif("float8_e5m2" not in convreg.ascend.convolution_backward.spec.types["T1"]["emulation"],
                    reason="the kernels do not compute with 8-bit formats in this build")
def test_eight_bit_gradients():
    rng = np.random.default_rng(4)
    tensors = tuple(dyadic(rng, shape, ml_dtypes.float8_e5m2) for shape in ((1, 4, 5), (1, 2, 5), (4, 2, 3)))
    agree(GradientCall("ascend::ConvolutionBackward", tensors, {
        "bias_sizes": [4], "stride": [1], "padding": [1], "dilation": [1], "output_mask": (True, True, False),
        "conformance": "emulation"}))


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("batch", [0, 1, 3])
@pytest.mark.parametrize("symbol", ["N", None, "given"])
def test_any_batch(groups, batch, symbol):
    """One lowered model serves every batch, none included; the shape of dx comes from that of x."""
    stated = {"strides": [2, 2], "pads_begin": [1, 0], "pads_end": [0, 1], "dilations": [1, 2], "groups": groups}
    filters = [6, 4 // groups, 3, 3]
    first = batch if symbol == "given" else symbol
    made = model(
        [helper.make_node("Shape", ["x"], ["size"]),
         data_gradient(["dy", "w", "size"], **stated),
         helper.make_node("ConvolutionBackwardWeights", ["x", "dy"], ["dw"], domain="convreg.onednn", data_format="NCX",
                          weights_format="OIX", weights_shape=filters, **stated)],
        [value("x", [first, 4, 9, 9]), value("dy", [first, 6, 4, 3]), value("w", filters)],
        [value("dx", [None] * 4), value("dw", [None] * 4)])
    fill = filler(5)
    feeds = {"x": fill((batch, 4, 9, 9)), "dy": fill((batch, 6, 4, 3)), "w": fill(filters)}
    expected = convreg.onnx.run(made, feeds)
    for run in (onnxruntime_run, *([openvino_run] if batch else [])):
        results = run(lowered(made), feeds)
        for name in expected:
            np.testing.assert_array_equal(results[name], expected[name])


def twice_and_in_branches() -> onnx.ModelProto:
    """A function that is called with two shapes, and an If whose branches hold nodes that read from around it."""
    body = helper.make_function(
        "local", "halved", ["g", "k"], ["out"],
        [helper.make_node("ConvolutionBackpropData", ["g", "k"], ["d"], domain="convreg.openvino", strides=[2, 2],
                          pads_begin=[1, 1], pads_end=[0, 0], dilations=[1, 1], data_format="NCX",
                          filter_format="OIX", conformance="openvino"),
         helper.make_node("Constant", [], ["two"], value_float=2.0), helper.make_node("Div", ["d", "two"], ["out"])],
        OPSETS)
    branches = [helper.make_graph([data_gradient([name, "w"], f"{name}_dx", dst_shape=[1, 3, 8, 8])], name, [],
                                  [value(f"{name}_dx", [1, 3, 8, 8])]) for name in ("dy", "other")]
    return model(
        [helper.make_node("If", ["which"], ["chosen"], then_branch=branches[0], else_branch=branches[1]),
         helper.make_node("halved", ["dy", "w"], ["big"], domain="local"),
         helper.make_node("halved", ["small", "w"], ["little"], domain="local")],
        [value("dy", [1, 4, 8, 8]), value("other", [1, 4, 8, 8]), value("w", [4, 3, 3, 3]),
         value("small", [1, 4, 2, 3]), value("which", [], bool)],
        [value("chosen", [1, 3, 8, 8]), value("big", [None] * 4), value("little", [None] * 4)], functions=[body])


@pytest.mark.parametrize("which", [False, True])
def test_functions_and_subgraphs(which):
    made, fill = twice_and_in_branches(), filler(6)
    feeds = {"dy": fill((1, 4, 8, 8)), "other": fill((1, 4, 8, 8)), "w": fill((4, 3, 3, 3)),
             "small": fill((1, 4, 2, 3)), "which": np.array(which)}
    expected, before = convreg.onnx.run(made, feeds), made.SerializeToString()
    results = onnxruntime_run(lowered(made), feeds)
    assert made.SerializeToString() == before
    for name in expected:
        np.testing.assert_array_equal(results[name], expected[name])


def masked(named: list[str], mask: list[int]) -> onnx.ModelProto:
    """An aten node; outputs that are named and asked for are the graph's."""
    kinds = zip(named, mask, [[None] * 3, [None] * 3, [None]], strict=False)
    return model(
        [helper.make_node("convolution_backward", ["g", "x", "w"], named, domain="convreg.aten", stride=[1],
                          padding=[1], dilation=[1], transposed=0, output_padding=[0], groups=1, output_mask=mask)],
        [value("g", [2, 4, 5]), value("x", [2, 3, 5]), value("w", [4, 3, 3])],
        [value(name, shape) for name, asked, shape in kinds if name and asked])


@pytest.mark.parametrize(("named", "mask", "operators"), [
    (["dx", "", ""], [1, 1, 1], {"ConvTranspose"}), (["", "dw"], [1, 1, 1], {"Conv"}),
    (["dx", "dw", "db"], [0, 0, 1], {"ReduceSum"}), (["dx", "dw", "db"], [1, 0, 1], {"ConvTranspose", "ReduceSum"})])
def test_masked_and_blank_outputs_are_not_computed(named, mask, operators):
    kinds = {node.op_type for node in lowered(masked(named, mask)).graph.node}
    assert kinds & {"Conv", "ConvTranspose", "ReduceSum"} == operators


def test_a_masked_output_that_is_read_has_no_elements():
    made, fill = masked(["dx", "dw"], [1, 0, 0]), filler(7)
    made.graph.node.append(helper.make_node("Size", ["dw"], ["size"]))
    made.graph.output.append(value("size", [], np.int64))
    feeds = {"g": fill((2, 4, 5)), "x": fill((2, 3, 5)), "w": fill((4, 3, 3))}
    assert convreg.onnx.run(made, feeds)["size"] == 0
    assert onnxruntime_run(lowered(made), feeds)["size"] == 0


def refused(made: onnx.ModelProto) -> str:
    with pytest.raises(GraphError) as caught:
        convreg.onnx.lower(made)
    return str(caught.value)


DY, W = value("dy", [1, 4, 8, 8]), value("w", [4, 3, 3, 3])


def test_unknown_extents_are_named():
    told = refused(model([data_gradient(["dy", "w", "s"])], [DY, W, value("s", [4], np.int64)],
                         [value("dx", [None] * 4)]))
    assert "node 'gradient': every extent of dst_shape but the batch must be known" in told
    told = refused(model([data_gradient(["dy", "w"], dst_shape=[1, 3, 8, 8])], [value("dy", [1, 4, "h", 8]), W],
                         [value("dx", [None] * 4)]))
    assert "node 'gradient'" in told
    assert "every extent of diff_dst but the batch must be known" in told
    assert "[1, 4, 'h', 8]" in told


def test_a_node_that_its_rules_refuse():
    told = refused(model([data_gradient(["dy", "w"], dst_shape=[1, 3, 9, 9])], [DY, W], [value("dx", [None] * 4)]))
    assert "R25" in told
    assert "gradient" in told


def test_hf32_operands_are_refused_by_name():
    made = GradientCall("ascend::ConvolutionBackward", tuple(np.ones(s, np.float32) for s in ((1, 1, 3), (1, 1, 3),
                        (1, 1, 1))), {"bias_sizes": [1], "stride": [1], "padding": [0], "dilation": [1],
                                      "cube_math_type": 1}).model
    assert "HF32" in refused(made)


def test_old_opsets_are_refused():
    made = model([data_gradient(["dy", "w"], dst_shape=[1, 3, 8, 8])], [DY, W], [value("dx", [None] * 4)])
    made.opset_import[0].version = 12
    assert "version 12 of standard ONNX" in refused(made)
    made.opset_import[0].version = 13
    lowered(made)


def test_a_model_that_imports_no_standard_opset():
    made = model([data_gradient(["dy", "w"], dst_shape=[1, 3, 8, 8])], [DY, W], [value("dx", [None] * 4)])
    del made.opset_import[0]
    assert next(entry.version for entry in lowered(made).opset_import if entry.domain == "") == 22


def test_a_plug_ins_operator_is_refused_by_name(monkeypatch):
    monkeypatch.setattr(registry, "_operators", {name: dict(found) for name, found in registry._operators.items()})
    spec = convreg.onednn.convolution_backward_data.spec
    inputs, outputs = (tuple(replace(port, role="") for port in ports) for ports in (spec.inputs, spec.outputs))
    monkeypatch.setattr(convreg.onednn, spec.function_name, convreg.onednn.convolution_backward_data)  # put back later
    convreg.register(replace(spec, inputs=inputs, outputs=outputs), replace=True)
    told = refused(model([data_gradient(["dy", "w"], dst_shape=[1, 3, 8, 8])], [DY, W], [value("dx", [None] * 4)]))
    assert "the ports of onednn::ConvolutionBackwardData have no known roles" in told


def test_a_model_without_our_nodes_stays_as_it_is():
    made = model([helper.make_node("Relu", ["dy"], ["y"])], [DY], [value("y", [1, 4, 8, 8])])
    assert convreg.onnx.lower(made) == made


def test_names_stay_apart():
    made = model([helper.make_node("Relu", ["dy"], ["gradient/ConvTranspose:0"], name="gradient/ConvTranspose"),
                  data_gradient(["gradient/ConvTranspose:0", "w"], dst_shape=[1, 3, 8, 8])], [DY, W],
                 [value("dx", [None] * 4)])
    names = [node.name for node in lowered(made).graph.node]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(("extent", "pads_end", "extra"), [(16, 1, {}), (17, 0, {"output_padding": [1, 1]})])
def test_a_gradient_of_a_real_convolution_is_one_conv_transpose(extent, pads_end, extra):
    made = model([data_gradient(["dy", "w"], dst_shape=[1, 3, extent, extent], strides=[2, 2],
                                pads_end=[pads_end] * 2)], [DY, W], [value("dx", [None] * 4)])
    (node,) = lowered(made).graph.node
    lists = {attribute.name: list(attribute.ints) for attribute in node.attribute if attribute.ints}
    assert lists == {"strides": [2, 2], "dilations": [1, 1], "pads": [1, 1, 0, 0], **extra}
