"""Gradients of whole networks: against central differences, and the same in every dialect and engine."""

import numpy as np
import pytest
from forward_models import FORWARD, build
from gradient_models import assert_gradient
from onnx import ModelProto, helper, numpy_helper

import convreg.onnx

NAMES = list(FORWARD)


def gradients(name, dtype=np.float32, **options):
    model, feeds = build(name, dtype)
    return convreg.onnx.gradient(model, "loss", list(FORWARD[name].parameters), **options), feeds


@pytest.fixture(scope="module")
def exact():
    """The gradients of every network in float64."""
    made = {}
    for name in NAMES:
        model, feeds = gradients(name, np.float64)
        made[name] = convreg.onnx.run(model, feeds, engine="reference")
    return made


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_those_of_central_differences(name, exact):
    model, feeds = build(name, np.float64)
    for parameter in FORWARD[name].parameters:
        value = next(tensor for tensor in model.graph.initializer if tensor.name == parameter)
        array = numpy_helper.to_array(value)
        open_model = with_input(model, parameter, array)
        assert_gradient(exact[name][f"{parameter}_grad"], open_model, {**feeds, parameter: array}, parameter, 1e-6,
                        step=1e-5, most=2)


def with_input(model, name, array):
    """The model with an initializer that may be given."""
    whole = ModelProto()
    whole.CopyFrom(model)
    whole.graph.input.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype),
                                                           array.shape))
    return whole


@pytest.mark.parametrize("engine", ["onnxruntime", "reference"])
@pytest.mark.parametrize("name", NAMES)
def test_every_dialect_gives_the_gradients(name, engine, exact):
    if engine == "onnxruntime":
        pytest.importorskip("onnxruntime")
    model, feeds = gradients(name)
    largest = max(float(np.abs(exact[name][f"{parameter}_grad"]).max()) for parameter in FORWARD[name].parameters)
    bits = {}
    for dialect in ("aten", "onednn", "ascend", "onnx"):
        session = convreg.onnx.Session(convreg.onnx.translate(model, dialect), engine=engine)
        assert session.engine == engine
        assert session.engine_note == ""
        made = session.run(feeds)
        for parameter in FORWARD[name].parameters:
            expected, own = exact[name][f"{parameter}_grad"], made[f"{parameter}_grad"]
            scale = max(float(np.abs(expected).max()), 1e-2 * largest)
            np.testing.assert_allclose(own, expected, rtol=0, atol=1e-5 * scale, err_msg=f"{parameter} in {dialect}")
            if dialect != "onnx" and own.ndim > 1:  # oneDNN has no bias gradient: ReduceSum adds in another order
                assert bits.setdefault(parameter, own.tobytes()) == own.tobytes(), f"{parameter} in {dialect}"


@pytest.mark.parametrize("name", NAMES)
def test_lowered_models_run_in_onnxruntime_alone(name, exact):
    runtime = pytest.importorskip("onnxruntime")
    model, feeds = gradients(name)
    lowered = convreg.onnx.lower(model)
    assert {entry.domain for entry in lowered.opset_import} <= {""}
    session = runtime.InferenceSession(lowered.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    made = dict(zip(names, session.run(None, feeds), strict=True))
    largest = max(float(np.abs(exact[name][f"{parameter}_grad"]).max()) for parameter in FORWARD[name].parameters)
    for parameter in FORWARD[name].parameters:
        expected = exact[name][f"{parameter}_grad"]
        scale = max(float(np.abs(expected).max()), 1e-2 * largest)
        np.testing.assert_allclose(made[f"{parameter}_grad"], expected, rtol=0, atol=1e-5 * scale)


@pytest.mark.parametrize("name", ["residual", "unet", "convnext", "one_dimension"])
def test_the_batch_is_open(name):
    model, feeds = gradients(name)
    session = convreg.onnx.Session(model, engine="reference")
    whole = session.run(feeds)
    twice = session.run({key: np.concatenate([array, array]) for key, array in feeds.items()})
    for parameter in FORWARD[name].parameters:
        expected, own = whole[f"{parameter}_grad"], twice[f"{parameter}_grad"]
        np.testing.assert_allclose(own, expected, rtol=0, atol=1e-5 * max(1e-2, float(np.abs(expected).max())))


def test_equal_models_are_made_every_time():
    first, _ = gradients("branches")
    second, _ = gradients("branches")
    assert first.SerializeToString(deterministic=True) == second.SerializeToString(deterministic=True)


def test_the_gradient_of_an_input_and_of_an_inner_value():
    model, feeds = build("shared", np.float64)
    made = convreg.onnx.gradient(model, "loss", ["x", "c1", "w1"])
    results = convreg.onnx.run(made, feeds, engine="reference")
    assert_gradient(results["x_grad"], model, feeds, "x", step=1e-5)
    assert results["c1_grad"].shape == (2, 3, 6, 6)
    assert [dim.dim_param or dim.dim_value for dim in next(
        output for output in made.graph.output if output.name == "c1_grad").type.tensor_type.shape.dim][1:] == [3, 6, 6]


def test_only_what_is_asked_for_is_computed():
    model, _ = build("residual")
    made = convreg.onnx.gradient(model, "loss", ["w2"])
    assert [node.op_type for node in made.graph.node].count("convolution_backward") == 1
    backward = next(node for node in made.graph.node if node.op_type == "convolution_backward")
    assert [bool(name) for name in backward.output] == [False, True]
