"""convreg inside onnxruntime: the operator library, and sessions whose engine is onnxruntime."""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
import threading

import ml_dtypes
import numpy as np
import pytest
from drawn import convolutions, dyadic, normal
from graphs import OPSETS, SAME_3X3, data_gradient, value
from graphs import model as newest_model
from hypothesis import given
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper

import convreg
import convreg.onnx
from convreg import GraphError, OpError, OpTypeError, registry
from convreg.derive import formats_of
from convreg.formats import FORMATS
from convreg.onnx import Session, ort_library
from convreg.onnx.ort import element_of, records, records_of

onnxruntime = pytest.importorskip("onnxruntime")

RNG = np.random.default_rng(0)
X, W, DY = (1, 4, 6, 5), (6, 2, 3, 3), (1, 6, 3, 3)  # two groups, stride 2, pads 1
NCX = {"data_format": "NCX", "weights_format": "OIX"}
STEP = {"strides": [2, 2], "pads_begin": [1, 1], "pads_end": [1, 1], "dilations": [1, 1]}
PYTORCH = {"stride": [2, 2], "padding": [1, 1], "dilation": [1, 1], "groups": 2}
ONEDNN = {**STEP, **NCX, "groups": 2}
TRANSPOSED = {**STEP, "data_format": "NCX", "groups": 2}

CALLS = {
    "ascend::ConvolutionBackward": ((DY, X, W), PYTORCH),
    "aten::convolution_backward": ((DY, X, W), {
        **PYTORCH, "bias_sizes": [6], "transposed": False, "output_padding": [0, 0], "output_mask": [True] * 3}),
    "microsoft::ConvGrad": ((DY, X, W), {"strides": [2, 2], "pads": [1, 1, 1, 1], "group": 2}),
    "onednn::Convolution": ((X, W, (6,)), ONEDNN),
    "onednn::ConvolutionBackwardData": ((DY, W), {**ONEDNN, "dst_shape": X}),
    "onednn::ConvolutionBackwardWeights": ((X, DY), {**ONEDNN, "weights_shape": W}),
    "onednn::ConvTranspose": ((DY, W, (4,)), {**TRANSPOSED, "weights_format": "IOX", "output_padding": [1, 0]}),
    "onednn::ConvTransposeBackwardData": ((X, W), {**TRANSPOSED, "weights_format": "IOX"}),
    "onednn::ConvTransposeBackwardWeights": ((DY, X), {
        **TRANSPOSED, "weights_format": "IOX", "weights_shape": W}),
    "openvino::ConvolutionBackpropData": (((1, 6, 3, 3), (6, 4, 3, 3)), {
        **STEP, "data_format": "NCX", "filter_format": "OIX", "output_shape": X}),
    "openvino::GroupConvolutionBackpropData": ((DY, (2, 3, 2, 3, 3)), {**STEP, "output_shape": X[2:]}),
}
"""Shapes of the tensors and attributes of one call of every operator."""


def older(made: ModelProto) -> ModelProto:
    """In the standard operators that the oldest onnxruntime has; the nodes here are the same in both."""
    made.opset_import[0].version = 21
    return made


def model(*parts, **kwargs) -> ModelProto:
    return older(newest_model(*parts, **kwargs))


def options():
    made = onnxruntime.SessionOptions()
    made.register_custom_ops_library(ort_library())
    made.log_severity_level = 4
    return made


def session(made: ModelProto):
    """A session of onnxruntime itself; ConvGrad moves to where the library has it."""
    copy = ModelProto()
    copy.CopyFrom(older(made))
    for node in copy.graph.node:
        if node.domain == "com.microsoft":
            node.domain = "convreg.microsoft"
    copy.opset_import.append(helper.make_opsetid("convreg.microsoft", 1))
    return onnxruntime.InferenceSession(copy.SerializeToString(), options(), providers=["CPUExecutionProvider"])


def same(results, expected) -> None:
    """Equal to the bit, absent ones left out."""
    expected = [array for array in (expected if isinstance(expected, tuple) else (expected,)) if array is not None]
    assert len(results) == len(expected)
    for result, array in zip(results, expected, strict=True):
        assert result.dtype == array.dtype
        assert result.shape == array.shape
        assert result.tobytes() == array.tobytes()


def test_every_operator_has_a_call_and_records():
    assert set(CALLS) == {spec.qualified_name for spec in registry.specs()}
    assert {record.operator.spec for record in records()} == {operator.spec for operator in registry.operators()}


def sample(name: str, dtype: np.dtype):
    """A call of an operator as a model, what to feed it, and its results."""
    operator = convreg.get(name)
    shapes, attributes = CALLS[name]
    tensors = [dyadic(RNG, shape, dtype) if dtype.itemsize < 4 else normal(RNG, shape, dtype) for shape in shapes]
    made = older(convreg.onnx.node_model(operator, *tensors, **attributes, as_inputs=True))
    feeds = {entry.name: np.asarray(attributes[entry.name]) if entry.name in attributes else tensor for entry, tensor in
             zip(made.graph.input, [*tensors, None], strict=False)}
    return made, feeds, operator(*tensors, **attributes)


@pytest.mark.parametrize("dtype", [np.float32, np.float16], ids=["float32", "float16"])
@pytest.mark.parametrize("name", sorted(CALLS))
def test_every_operator_equals_its_function(name, dtype):
    made, feeds, expected = sample(name, np.dtype(dtype))
    running = session(made)
    for _ in range(3):  # the first plans, the others repeat
        same(running.run(None, feeds), expected)


@pytest.mark.parametrize("format", ["float64", "bfloat16"])
@pytest.mark.parametrize("name", sorted(CALLS))
def test_every_element_type(name, format):
    """Records have the types of the declaration; those onnxruntime's arrays do not carry pass as OrtValues."""
    spec = convreg.get(name).spec
    taken = [{entry[0] for entry in record.inputs if not entry[2]} for record in records_of(spec)]
    declared = {element_of(format) for variable in spec.types for format in formats_of(spec, variable)
                if variable in {port.type for port in spec.inputs if not port.shape}}
    assert set().union(*taken) == declared
    if element_of(format) in declared:
        made, feeds, expected = sample(name, FORMATS[format].dtype)
        running = Session(made, engine="onnxruntime")
        assert [type(part.runner).__name__ for part in running._runner.parts] == ["OnOrt"]
        same([*running.run(feeds).values()], expected)


EIGHT_BIT = [name for name in formats_of(convreg.ascend.convolution_backward.spec, "T1") if FORMATS[name].bits == 8]


@pytest.mark.parametrize("format", EIGHT_BIT)
def test_eight_bit_tensors(format):
    """Codes go in and come out: FP8 as onnxruntime's own types, HiFloat8 as bytes."""
    operator = convreg.ascend.convolution_backward
    call = {**PYTORCH, "output_mask": [True, True, False], "conformance": "emulation"}
    tensors = [RNG.integers(0, 64, shape, dtype=np.uint8) for shape in (DY, X, W)]  # finite in all three
    expected = operator(*(array.view(FORMATS[format].dtype) for array in tensors), **call)
    attributes = {"stride": [2, 2], "padding": [1, 1], "dilation": [1, 1], "groups": 2, "outputMask": [1, 1, 0],
                  "conformance": "emulation"}
    node = helper.make_node("ConvolutionBackward", ["dy", "x", "w"], ["dx", "dw"], domain="convreg.ascend",
                            **attributes)
    element = element_of(format)
    info = helper.make_tensor_value_info
    made = helper.make_model(
        helper.make_graph([node], "g", [info("dy", element, DY), info("x", element, X), info("w", element, W)],
                          [info("dx", element, X), info("dw", element, W)]), ir_version=10, opset_imports=OPSETS)
    kind = onnxruntime.OrtValue
    feeds = {name: kind.ortvalue_from_numpy_with_onnx_type(array, element)
             for name, array in zip(("dy", "x", "w"), tensors, strict=True)}
    for result, array in zip(session(made).run_with_ort_values(None, feeds), expected, strict=False):
        assert result.numpy().tobytes() == array.tobytes()


MIXED = [(a, b, c) for a in ("float32", "float16") for b in ("float32", "float16") for c in ("float32", "float16")]


@pytest.mark.parametrize("formats", MIXED)
def test_mixed_formats(formats):
    tensors = [normal(RNG, shape, FORMATS[format].dtype) for shape, format in zip((DY, X, W), formats, strict=True)]
    made = convreg.onnx.node_model("ascend::ConvolutionBackward", *tensors, **PYTORCH, as_inputs=True)
    feeds = dict(zip(("gradOutput", "input", "weight"), tensors, strict=True))
    same(session(made).run(None, feeds), convreg.ascend.convolution_backward(*tensors, **PYTORCH))


@pytest.mark.parametrize("mode", [0, 1, 2, 3])
def test_operands_that_are_rounded_first(mode):
    """The node does more than calling kernels on its tensors, so it cannot be written down."""
    tensors = [normal(RNG, shape) for shape in (DY, X, W)]
    call = {**PYTORCH, "cube_math_type": mode}
    made = convreg.onnx.node_model("ascend::ConvolutionBackward", *tensors, **call, as_inputs=True)
    feeds = dict(zip(("gradOutput", "input", "weight"), tensors, strict=True))
    running = session(made)
    for _ in range(2):
        same(running.run(None, feeds), convreg.ascend.convolution_backward(*tensors, **call))


@given(convolutions(), st.sampled_from(["NCX", "NXC"]), st.sampled_from(["OIX", "XIO"]),
       st.sampled_from(["int32", "int64"]))
def test_drawn_geometry_and_layouts(drawn, layout, filters, kind):
    rng = np.random.default_rng(1)
    call = {**drawn.attributes, "groups": drawn.groups, "data_format": layout, "weights_format": filters}
    order = (lambda shape: shape) if layout == "NCX" else (lambda shape: (shape[0], *shape[2:], shape[1]))
    taps = drawn.weights if filters == "OIX" else (*drawn.weights[2:], drawn.weights[1], drawn.weights[0])
    dy, w, x = normal(rng, order(drawn.small)), normal(rng, taps), normal(rng, order(drawn.large))
    shape = np.array(x.shape, kind)
    made = convreg.onnx.node_model("onednn::ConvolutionBackwardData", dy, w, shape, **call, as_inputs=True)
    same(session(made).run(None, {"diff_dst": dy, "weights": w, "dst_shape": shape}),
         convreg.onednn.convolution_backward_data(dy, w, shape, **call))
    made = convreg.onnx.node_model("onednn::ConvolutionBackwardWeights", x, dy, taps, **call, as_inputs=True)
    same(session(made).run(None, {"src": x, "diff_dst": dy}),
         convreg.onednn.convolution_backward_weights(x, dy, taps, **call))


@pytest.mark.parametrize("mask", [(a, b, c) for a in (0, 1) for b in (0, 1) for c in (0, 1)])
@pytest.mark.parametrize("blank", [(), (0,), (1,), (2,), (0, 1)])
def test_masks_and_blank_outputs(mask, blank):
    tensors = dict(zip(("dy", "x", "w"), (normal(RNG, shape) for shape in (DY, X, W)), strict=True))
    names = ["" if index in blank else name for index, name in enumerate(("dx", "dw", "db"))]
    node = helper.make_node("ConvolutionBackward", [*tensors], names, domain="convreg.ascend", outputMask=mask,
                            **{name: PYTORCH[name] for name in PYTORCH})
    made = model([node], [value(name, array.shape) for name, array in tensors.items()],
                 [value(name) for name in names if name])
    results = dict(zip([name for name in names if name], session(made).run(None, tensors), strict=True))
    expected = convreg.ascend.convolution_backward(*tensors.values(), **PYTORCH, output_mask=mask)
    for name, asked, array in zip(("dx", "dw", "db"), mask, expected, strict=True):
        if name in results:
            assert results[name].tobytes() == (array.tobytes() if asked else b"")
            assert results[name].dtype == np.float32


def test_conformance_and_absent_attributes():
    """Defaults are the declaration's; the rule chosen shows in the result."""
    dy, w = normal(RNG, (1, 4, 4, 1)), normal(RNG, (2, 2, 1, 1))
    call = {"strides": [2, 2], "pads_begin": [0, 0], "pads_end": [0, 0], "dilations": [1, 1], "auto_pad": "SAME_UPPER",
            "dst_shape": [1, 8, 8, 1]}
    for conformance in ("document", "library"):
        node = helper.make_node("ConvolutionBackwardData", ["dy", "w"], ["dx"], domain="convreg.onednn",
                                conformance=conformance, **call)
        made = model([node], [value("dy", dy.shape), value("w", w.shape)], [value("dx")])
        same(session(made).run(None, {"dy": dy, "w": w}),
             convreg.onednn.convolution_backward_data(dy, w, **call, conformance=conformance))


DY_3X3, W_3X3 = normal(RNG, (1, 4, 8, 8)), normal(RNG, (4, 3, 3, 3))
FREE = {"dy": value("dy", ["N", 4, "H", "W"]), "w": value("w", ["O", 3, 3, 3]), "s": value("s", [None], np.int64)}


def shaped() -> ModelProto:
    return model([data_gradient(["dy", "w", "s"])], [*FREE.values()], [value("dx", [None] * 4)])


def feeds_of(batch: int, extent: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(100 * batch + extent)
    return {"dy": normal(rng, (batch, 4, extent, extent)), "w": W_3X3, "s": np.array([batch, 3, extent, extent])}


def expected_of(feeds: dict[str, np.ndarray]) -> np.ndarray:
    return convreg.onednn.convolution_backward_data(feeds["dy"], feeds["w"], feeds["s"], **SAME_3X3)


def test_dynamic_shapes():
    """More shapes than a node keeps programs for, each of them twice."""
    running = session(shaped())
    for _ in range(2):
        for extent in range(1, 90):
            feeds = feeds_of(1 + extent % 3, 1 + extent)
            same(running.run(None, feeds), expected_of(feeds))


def test_stated_shape_decides_between_programs():
    """The same tensors with another value of the shape input give another result."""
    running = session(model([data_gradient(["dy", "w", "s"], strides=[2, 2])], [*FREE.values()], [value("dx")]))
    for extent in (15, 16, 15):
        shape = np.array([1, 3, extent, extent])
        same(running.run(None, {"dy": DY_3X3, "w": W_3X3, "s": shape}), convreg.onednn.convolution_backward_data(
            DY_3X3, W_3X3, shape, **{**SAME_3X3, "strides": [2, 2]}))


def test_empty_tensors():
    running = session(shaped())
    feeds = feeds_of(0, 8)
    same(running.run(None, feeds), expected_of(feeds))
    x, dy, w = np.zeros((0, 4, 6, 5), np.float32), np.zeros((0, 6, 3, 3), np.float32), normal(RNG, W)
    made = convreg.onnx.node_model("ascend::ConvolutionBackward", dy, x, w, **PYTORCH, bias_sizes=[6], as_inputs=True)
    same(session(made).run(None, {"gradOutput": dy, "input": x, "weight": w}),
         convreg.ascend.convolution_backward(dy, x, w, **PYTORCH, bias_sizes=[6]))


ERRORS = [
    ({"dy": DY_3X3, "w": normal(RNG, (5, 3, 3, 3)), "s": np.array([1, 3, 8, 8])}, "R"),
    ({"dy": DY_3X3, "w": W_3X3, "s": np.array([1, 3, 8, 9])}, "R25"),
    ({"dy": DY_3X3, "w": W_3X3, "s": np.array([1, 3, 8])}, "R18"),
    ({"dy": DY_3X3, "w": W_3X3, "s": np.ones(1000, np.int64)}, "R18"),
    ({"dy": DY_3X3, "w": W_3X3, "s": np.array([1, 3, -8, 8])}, "R"),
    ({"dy": DY_3X3, "w": W_3X3, "s": np.array([2**40, 3, 2**40, 2**40])}, "R"),
]


@pytest.mark.parametrize(("feeds", "rule"), ERRORS)
def test_errors_have_our_text_and_leave_the_session_usable(feeds, rule):
    running, ours = session(shaped()), Session(shaped(), engine="onnxruntime")
    with pytest.raises(OpError) as refused:
        expected_of(feeds)
    assert refused.value.rule.startswith(rule)
    for _ in range(2):
        with pytest.raises(Exception, match="ONNXRuntimeError") as raised:
            running.run(None, feeds)
        assert str(refused.value) in str(raised.value)
        assert "gradient" in str(raised.value)  # the node's name
        with pytest.raises(OpError) as same_error:
            ours.run(feeds)
        assert str(same_error.value) == str(refused.value)
    good = feeds_of(2, 8)
    same(running.run(None, good), expected_of(good))


@pytest.mark.parametrize(("attributes", "text"), [
    ({"strides": 1}, "a list of integers"),
    ({"strides": [1.5, 1.0]}, "an integer"),
    ({"strides": "one"}, "a list of integers"),
    ({"data_format": 3}, "a string"),
    ({"groups": [1]}, "an integer"),
    ({"data_format": "NCHW"}, "'NXC', 'NCX'"),
    ({"conformance": "none"}, "'document' or 'library'"),
])
def test_bad_attributes_are_refused_when_the_session_is_made(attributes, text):
    with pytest.raises(Exception, match="is refused; allowed: " + text):
        session(model([data_gradient(["dy", "w", "s"], **attributes)], [*FREE.values()], [value("dx")]))


def test_missing_attribute_is_refused():
    node = helper.make_node("ConvolutionBackwardData", ["dy", "w"], ["dx"], domain="convreg.onednn")
    with pytest.raises(Exception, match=r"strides=None is refused.*\[rule R1\]"):
        session(model([node], [FREE["dy"], FREE["w"]], [value("dx")]))


def test_what_onnxruntime_cannot_express_runs_on_our_executor():
    """It shows lists of strings to no kernel, and fixes output types before it knows attributes."""
    tensors = dict(zip(("dy", "x", "w"), (normal(RNG, shape) for shape in (DY, X, W)), strict=True))
    node = helper.make_node("ConvolutionBackward", [*tensors], ["dx"], domain="convreg.ascend", **PYTORCH,
                            conformance="emulation", outputFormats=["float16", "", ""])
    made = model([node, helper.make_node("Cast", ["dx"], ["y"], to=TensorProto.FLOAT)],
                 [value(name, array.shape) for name, array in tensors.items()], [value("y", X)])
    with pytest.raises(Exception, match="outputFormats"):
        session(made)
    running = Session(made, engine="onnxruntime")
    assert [type(part.runner).__name__ for part in running._runner.parts] == ["Evaluator", "OnOrt"]
    same([*running.run(tensors).values()], Session(made).run(tensors)["y"])


def test_sessions_and_threads_at_once():
    """Several sessions and threads share nodes, programs and kernels."""
    shared = [session(shaped()) for _ in range(3)]
    wanted = {extent: expected_of(feeds_of(2, extent)) for extent in range(1, 13)}
    wrong = []

    def work(number: int) -> None:
        for step in range(150):
            extent = 1 + (step * (number + 1)) % 12
            result = shared[(number + step) % 3].run(None, feeds_of(2, extent))[0]
            if result.tobytes() != wanted[extent].tobytes():
                wrong.append((number, step))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_parallel_execution_of_branches():
    made_options = options()
    made_options.execution_mode = onnxruntime.ExecutionMode.ORT_PARALLEL
    made_options.inter_op_num_threads = 2
    nodes = [data_gradient(["dy", "w", "s"], f"dx{index}", f"gradient{index}") for index in range(4)]
    made = model([*nodes, helper.make_node("Sum", [f"dx{index}" for index in range(4)], ["y"])], [*FREE.values()],
                 [value("y")])
    running = onnxruntime.InferenceSession(made.SerializeToString(), made_options, providers=["CPUExecutionProvider"])
    feeds = feeds_of(2, 9)
    for _ in range(20):
        np.testing.assert_array_equal(running.run(None, feeds)[0], 4 * expected_of(feeds))


@pytest.mark.parametrize("name", sorted(CALLS))
def test_kernels_work_on_the_tensors_of_the_node(name):
    """In float32 every operator can be written down, and every operand is a view: nothing is copied."""
    made, feeds, _ = sample(name, np.dtype(np.float32))
    node, spec = made.graph.node[0], convreg.get(name).spec
    attributes = {entry.name: helper.get_attribute_value(entry) for entry in node.attribute}
    attributes = {name: text.decode() if isinstance(text, bytes) else text for name, text in attributes.items()}
    tensors = [(feeds[name].ctypes.data, helper.np_dtype_to_tensor_dtype(feeds[name].dtype), feeds[name].shape)
               if name else None for name in node.input]
    tensors += [None] * (len(spec.inputs) - len(tensors))
    record = records_of(spec)[0]
    elements = tuple(entry[0] for entry in record.outputs)
    made_node = record.operator.node(attributes, (True,) * len(spec.outputs), elements)
    written = made_node.program(tensors).written
    assert written is not None
    elsewhere = [place for _, _, places in written.steps for place in places if place[0] < 0]
    assert len(elsewhere) == len(written.constants)  # the ones that a bias sum multiplies


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_ten_thousand_steps_leak_nothing():
    """Repeated shapes, changing shapes beyond what a node keeps, errors, and sessions made and dropped."""
    running = session(shaped())
    inputs = [feeds_of(1, 1 + extent) for extent in range(70)]
    bad = {**inputs[0], "s": np.array([1, 3, 8, 9])}

    def steps(count: int) -> None:
        for step in range(count):
            running.run(None, inputs[step % 70 if step % 10 == 0 else 3])
            if step % 100 == 0:
                with pytest.raises(Exception, match="R25"):
                    running.run(None, bad)
            if step % 500 == 0:
                session(shaped()).run(None, inputs[2])
        gc.collect()

    steps(2000)
    before = resident()
    steps(10000)
    assert resident() - before < 4 << 20


def test_digits_training_steps_agree(request):
    path = request.config.rootpath / "examples" / "digits" / "training_step.onnx"
    made = older(convreg.onnx.load(path))
    rng = np.random.default_rng(3)
    shapes = {entry.name: [dim.dim_value for dim in entry.type.tensor_type.shape.dim] for entry in made.graph.input}
    state = {name: np.zeros(shape, np.float32) if name.endswith("velocity") else normal(rng, tuple(shape)) / 10
             for name, shape in shapes.items() if "." in name}
    engines = {engine: Session(made, engine=engine) for engine in ("reference", "onnxruntime")}
    assert len(engines["onnxruntime"]._runner.parts) == 1
    states = dict.fromkeys(engines, state)
    for _ in range(8):
        batch = {"images": rng.integers(0, 17, (32, 8, 8), dtype=np.uint8), "labels": rng.integers(0, 10, 32),
                 "learning_rate": np.float32(0.05), "momentum": np.float32(0.9)}
        results = {engine: running.run({**batch, **states[engine]}) for engine, running in engines.items()}
        states = {engine: {name.removesuffix(".next"): array for name, array in result.items()
                           if name.endswith(".next")} for engine, result in results.items()}
        for name, array in results["reference"].items():
            np.testing.assert_allclose(results["onnxruntime"][name], array, rtol=2e-4, atol=2e-6)


BF16 = np.dtype(ml_dtypes.bfloat16)


@pytest.mark.parametrize(("dtype", "gradient", "parts"), [
    (BF16, data_gradient(["r", "w"], dst_shape=[1, 3, 6, 6]), "OnOrt Evaluator OnOrt"),
    (np.dtype(np.float64), helper.make_node("ConvTranspose", ["r", "w"], ["dx"], pads=[1, 1, 1, 1]),
     "OnOrt Evaluator OnOrt Evaluator OnOrt"),
], ids=["bfloat16", "float64"])
def test_parts_without_a_kernel_run_on_ours(dtype, gradient, parts):
    """Conv in bfloat16 or float64, Relu in bfloat16: our executor; the rest: as few sessions as possible."""
    nodes = [
        helper.make_node("Cast", ["x"], ["xc"], to=helper.np_dtype_to_tensor_dtype(dtype)),
        helper.make_node("Conv", ["xc", "w"], ["y"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["y"], ["r"]),
        gradient,
        helper.make_node("Transpose", ["dx"], ["t"], perm=[0, 1, 3, 2]),
        helper.make_node("Cast", ["t"], ["f"], to=TensorProto.FLOAT),
    ]
    made = model(nodes, [value("x", ["N", 3, 6, 6]), value("w", [4, 3, 3, 3], dtype)],
                 [value("f", [1, 3, 6, 6]), value("t", [1, 3, 6, 6], dtype)])
    feeds = {"x": normal(RNG, (1, 3, 6, 6)), "w": normal(RNG, (4, 3, 3, 3), dtype)}
    running = Session(made, engine="onnxruntime")
    assert [type(part.runner).__name__ for part in running._runner.parts] == parts.split()
    wanted = Session(made).run(feeds)
    for _ in range(2):
        results = running.run(feeds)
        assert [*results] == ["f", "t"]
        same([*results.values()], tuple(wanted.values()))


def test_parts_with_initializers_subgraphs_and_passed_values():
    """Overridable constants, a branch that reads around itself, and outputs that no node makes."""
    branch = helper.make_graph([helper.make_node("Mul", ["a", "two"], ["b"])], "then", [], [value("b")])
    other = helper.make_graph([helper.make_node("Neg", ["a"], ["c"])], "else", [], [value("c")])
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"]), helper.make_node("Cast", ["y"], ["a"], to=TensorProto.FLOAT),
             helper.make_node("If", ["flag"], ["z"], then_branch=branch, else_branch=other)]
    held = {"w": normal(RNG, (2, 1, 1, 1), np.float64), "two": np.float32(2), "kept": np.float32(7)}
    made = model(nodes, [value("x", [1, 1, 4], np.float64), value("flag", [], np.bool_), value("two", [])],
                 [value("z", [1, 2, 4]), value("kept", []), value("x", [1, 1, 4], np.float64)],
                 {**held, "w": held["w"][..., 0]})
    running, plain = Session(made, engine="onnxruntime"), Session(made)
    assert len(running._runner.parts) == 2
    for extra in ({}, {"two": np.float32(3)}):
        for flag in (True, False):
            feeds = {"x": normal(RNG, (1, 1, 4), np.float64), "flag": np.array(flag), **extra}
            same([*running.run(feeds).values()], tuple(plain.run(feeds).values()))


def test_conv_grad_of_microsoft():
    """Our library must not hide what onnxruntime has in that domain: its fusions live there."""
    tensors = dict(zip(("dy", "x", "w"), (normal(RNG, shape) for shape in (DY, X, W)), strict=True))
    nodes = [helper.make_node("ConvGrad", [*tensors], ["dx", "", "db"], domain="com.microsoft", strides=[2, 2],
                              pads=[1, 1, 1, 1], group=2),
             helper.make_node("Conv", ["x", "w"], ["y"], strides=[2, 2], pads=[1, 1, 1, 1], group=2),
             helper.make_node("Relu", ["y"], ["r"])]
    made = model(nodes, [value(name, array.shape) for name, array in tensors.items()],
                 [value("dx"), value("db"), value("r")])
    running = Session(made, engine="onnxruntime")
    assert len(running._runner.parts) == 1
    dx, _, db = convreg.microsoft.conv_grad(*tensors.values(), strides=[2, 2], pads=[1, 1, 1, 1], group=2)
    results = running.run(tensors)
    same([results["dx"], results["db"]], (dx, db))
    np.testing.assert_allclose(results["r"], Session(made).run(tensors)["r"], rtol=1e-5, atol=1e-5)


def test_wrong_types_are_refused_by_both():
    made = model([data_gradient(["dy", "w"], dst_shape=[1, 3, 8, 8])],
                 [FREE["dy"], value("w", [4, 3, 3, 3], np.float16)], [value("dx")])
    with pytest.raises(Exception, match="ConvolutionBackwardData"):
        session(made)
    with pytest.raises(OpTypeError, match="float32, as diff_dst is"):
        convreg.onnx.run(made, {"dy": DY_3X3, "w": W_3X3.astype(np.float16)}, engine="onnxruntime")


@pytest.mark.parametrize("engine", ["ort", "", None, 1])
def test_unknown_engine(engine):
    with pytest.raises(GraphError, match=r"allowed: 'reference' or 'onnxruntime'"):
        Session(shaped(), engine=engine)


def test_without_onnxruntime(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(GraphError, match="needs the onnxruntime package"):
        Session(shaped(), engine="onnxruntime")
    same([*Session(shaped()).run(feeds_of(1, 8)).values()], expected_of(feeds_of(1, 8)))


def test_operator_sets_newer_than_onnxruntime():
    made = shaped()
    made.graph.node.append(helper.make_node("Relu", ["dx"], ["z"]))
    made.graph.output.append(value("z", [None] * 4))
    made.opset_import[0].version = 1000
    with pytest.raises(GraphError, match=f"onnxruntime {onnxruntime.__version__}: "):
        Session(made, engine="onnxruntime")


# What onnxruntime passes to `RegisterCustomOps`, for versions that are not here.
GET = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)
VERSION = ctypes.CFUNCTYPE(ctypes.c_void_p)
STATUS = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)


def test_old_version_is_refused_with_a_sentence():
    said = []

    @STATUS
    def create_status(code, text):
        said.append(text.decode())
        return 1

    functions = (ctypes.c_void_p * 300)(ctypes.cast(create_status, ctypes.c_void_p))
    get = GET(lambda version: ctypes.addressof(functions) if version <= 16 else 0)
    text = ctypes.create_string_buffer(b"1.16.3")
    name = VERSION(lambda: ctypes.addressof(text))
    base = (ctypes.c_void_p * 2)(ctypes.cast(get, ctypes.c_void_p), ctypes.cast(name, ctypes.c_void_p))
    register = ctypes.PyDLL(ort_library()).RegisterCustomOps
    register.argtypes, register.restype = [ctypes.c_void_p, ctypes.c_void_p], ctypes.c_void_p
    assert register(None, ctypes.addressof(base)) == 1
    assert said == ["convreg needs an onnxruntime with version 17 of its interface, as 1.17 and later have; "
                    "this is onnxruntime 1.16.3"]


def test_library_that_python_has_not_set_up_is_refused():
    """The file alone, in a process that imports only onnxruntime."""
    program = (f"import onnxruntime\noptions = onnxruntime.SessionOptions()\n"
               f"options.register_custom_ops_library({ort_library()!r})\n")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert "convreg.onnx.ort_library()" in done.stderr


def test_process_ends_with_sessions_alive():
    """Kernels are destroyed with the interpreter going down."""
    program = ("import onnxruntime, convreg.onnx, numpy as np\n"
               "d, w = np.ones((1, 1, 4, 4), 'f'), np.ones((1, 1, 3, 3), 'f')\n"
               "m = convreg.onnx.node_model('onednn::ConvolutionBackwardData', d, w, [1, 1, 4, 4], strides=[1, 1],\n"
               "    pads_begin=[1, 1], pads_end=[1, 1], dilations=[1, 1], data_format='NCX', weights_format='OIX',\n"
               "    as_inputs=True)\n"
               "m.opset_import[0].version = 21\n"
               "s = convreg.onnx.Session(m, engine='onnxruntime')\n"
               "print(s.run({'diff_dst': d, 'weights': w})['diff_src'].sum())\n")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "100.0\n"), done.stderr
