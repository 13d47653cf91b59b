"""The operator library in plain onnxruntime sessions."""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest
from drawn import convolutions, normal
from graphs import SAME_3X3, data_gradient, value
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper
from ort_sessions import (
    CALLS,
    DY,
    DY_3X3,
    FREE,
    NCX,
    PYTORCH,
    RNG,
    STEP,
    W_3X3,
    W,
    X,
    expected_of,
    feeds_of,
    model,
    options,
    same,
    sample,
    session,
    shaped,
)

import convreg
import convreg.onnx
from convreg import OpError, registry
from convreg.calls.text import formats_of
from convreg.formats import FORMATS
from convreg.onnx import Session, ort_library
from convreg.onnx.runtime_ort.nodes import element_of, records, records_of
from convreg.onnx.standard import STANDARD

onnxruntime = pytest.importorskip("onnxruntime")


def test_every_operator_has_a_call_and_records():
    assert set(CALLS) == {spec.qualified_name for spec in registry.specs() if spec.vendor != "nodes"}
    assert {record.operator.spec for record in records()} == {
        *(operator.spec for operator in registry.operators()), *STANDARD.values()}


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


@pytest.mark.parametrize("format", [name for name in FORMATS if FORMATS[name].bits == 8])
def test_eight_bit_tensors_and_operators_that_come_later(format, monkeypatch):
    """Codes go in and come out: FP8 as onnxruntime's own types, HiFloat8 as bytes; here of a plug-in's operator."""
    monkeypatch.setattr(registry, "_operators", {name: dict(found) for name, found in registry._operators.items()})
    spec = convreg.onednn.convolution_backward_data.spec
    types = {**dict.fromkeys(spec.types, (format,)), "T2": spec.types["T2"]}  # that of the shape stays
    operator = convreg.register(replace(spec, vendor="later", types=types))
    codes = [RNG.integers(0, 64, shape, dtype=np.uint8) for shape in (DY, W)]  # finite in all three
    call = {**STEP, **NCX, "groups": 2, "dst_shape": X}
    expected = operator(*(array.view(FORMATS[format].dtype) for array in codes), **call)
    node = helper.make_node("ConvolutionBackwardData", ["dy", "w"], ["dx"], domain="convreg.later", **call)
    element, info = element_of(format), helper.make_tensor_value_info
    made = helper.make_model(
        helper.make_graph([node], "g", [info("dy", element, DY), info("w", element, W)], [info("dx", element, X)]),
        ir_version=10, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("convreg.later", 1)])
    kind = onnxruntime.OrtValue
    feeds = {name: kind.ortvalue_from_numpy_with_onnx_type(array, element)
             for name, array in zip(("dy", "w"), codes, strict=True)}
    (result,) = session(made).run_with_ort_values(None, feeds)
    assert result.element_type() == element
    assert ctypes.string_at(result.data_ptr(), expected.nbytes) == expected.tobytes()  # numpy() takes not all of them


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


def test_standard_convolutions_beside_gradients_have_the_bits_of_the_reference_engine():
    """Models with gradients of convolutions compute the others by our kernels, too; other models by onnxruntime's."""
    rng = np.random.default_rng(4)
    dy, x, w = (normal(rng, shape) for shape in ((2, 3, 6, 6), (2, 3, 6, 6), (3, 3, 3, 3)))
    model = convreg.onnx.node_model("aten::convolution_backward", dy, x, w, [3], [1, 1], [1, 1], [1, 1], False, [0, 0],
                                    1, [True, False, False], as_inputs=True)
    node = model.graph.node[0]
    model.graph.node.append(helper.make_node("Conv", [node.output[0], node.input[2]], ["again"], auto_pad="SAME_UPPER"))
    model.graph.output.append(helper.make_tensor_value_info("again", 1, None))
    if all(entry.domain for entry in model.opset_import):
        model.opset_import.append(helper.make_opsetid("", 22))
    feeds = dict(zip(node.input, (dy, x, w), strict=False))
    ours, theirs = (Session(model, engine=engine).run(feeds)["again"] for engine in ("onnxruntime", "reference"))
    np.testing.assert_array_equal(ours, theirs)
