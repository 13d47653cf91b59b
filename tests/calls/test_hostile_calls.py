"""Arguments that nobody should pass: a call gives a right answer or an exception of ours that names its argument."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hostile import HOSTILE, OURS, attempt
from valid_calls import VALID, several

import convreg
import convreg.numerics
import convreg.onnx
from convreg.calls.signature import signature_of

ALL = ("onednn::ConvolutionBackwardData", "ascend::ConvolutionBackward", "nodes::Quantize")
"""Operators that meet all values at each argument; the others meet each third one."""


@pytest.fixture(autouse=True)
def _traced():
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.parametrize("name", VALID)
def test_every_argument_of_every_operator(name):
    """What passes has the result of the call without that argument, of its default, or a shape of its own."""
    call, operator = VALID[name], convreg.get(name)
    given = dict(zip(signature_of(operator.spec).parameters, call.tensors, strict=False)) | call.arguments
    for place, parameter in enumerate(signature_of(operator.spec).parameters):
        for kind, value in [*HOSTILE.items()][0 if name in ALL else place % 3::1 if name in ALL else 3]:
            found = attempt(name, operator, **{**given, parameter: value})
            if isinstance(found, convreg.OpError):
                assert found.accepted_by == tuple(map(str, found.accepted_by))
            else:
                assert all(array is None or isinstance(array, np.ndarray) for array in several(found))
            if parameter == "conformance" and kind not in ("none", "empty text"):
                assert found.argument == "conformance"
            if parameter in ("threads", "out") and not isinstance(found, convreg.OpError):
                for ours, right in zip(several(found), several(operator(**given)), strict=True):
                    np.testing.assert_array_equal(ours, right)


@pytest.mark.parametrize("name", ["onednn::ConvolutionBackwardData", "aten::convolution_backward"])
def test_every_entry_of_lists(name):
    call, operator = VALID[name], convreg.get(name)
    for parameter, stated in call.arguments.items():
        if isinstance(stated, list | tuple):
            for value in HOSTILE.values():
                attempt(name, operator, *call.tensors, **{**call.arguments, parameter: [value, *stated[1:]]})


@pytest.mark.parametrize("name", ["onednn::ConvolutionBackwardData", "ascend::ConvolutionBackward"])
def test_arguments_of_emulation(name):
    """Formats of results, rounding, seed and scales, which the default conformance does not have."""
    call, operator = VALID[name], convreg.get(name)
    names = signature_of(operator.spec).parameters.keys() - call.arguments.keys()
    for parameter in names & {"output_format", "output_formats", "rounding", "saturate", "seed", "scales"}:
        for value in HOSTILE.values():
            stated = (value, None) if parameter == "scales" else [value] * 3
            attempt(name, operator, *call.tensors, **{**call.arguments, "conformance": "emulation", parameter: stated})


def test_names_of_arguments():
    call = VALID["onednn::Convolution"]
    for name in ("", "a\0b", "\ud800", "x" * 100_000, "self", "spec", "args"):
        assert isinstance(attempt(call.name, convreg.get(call.name), *call.tensors, **call.arguments, **{name: 1}),
                          convreg.OpTypeError)


@pytest.mark.parametrize("name", VALID)
def test_references_and_workspace(name):
    call, operator = VALID[name], convreg.get(name)
    for index in range(len(call.tensors)):
        for value in [*HOSTILE.values()][index::3]:
            tensors = [*call.tensors[:index], value, *call.tensors[index + 1:]]
            attempt(name, operator.reference, *tensors, **call.arguments)
            attempt(name, convreg.workspace_bytes, operator, *tensors, **call.arguments)


X = np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize(("function", "given"), [
    (convreg.quantize, {"x": X, "format": "bfloat16", "rounding": None, "saturate": False, "seed": None, "out": None,
                        "threads": None}),
    (convreg.quantize, {"x": X, "format": "hifloat8", "rounding": "stochastic", "seed": 1}),
    (convreg.dequantize, {"codes": convreg.quantize(X, "hifloat8"), "format": None, "dtype": np.float32, "out": None,
                          "threads": None}),
    (convreg.dequantize, {"codes": np.zeros(3, np.uint8), "format": "float8_e5m2"}),
], ids=lambda value: getattr(value, "__name__", ""))
def test_conversions(function, given):
    for parameter in given:
        for value in HOSTILE.values():
            found = attempt(f"convreg::{function.__name__}", function, **{**given, parameter: value})
            assert isinstance(found, (np.ndarray, *OURS))


def test_the_registry():
    for value in HOSTILE.values():
        attempt("convreg::get", convreg.get, value)
        version = attempt("convreg::get", convreg.get, "onednn::Convolution", value)
        assert getattr(version, "spec", None) is convreg.onednn.convolution.spec or isinstance(version, OURS)
        assert isinstance(attempt("convreg::register", convreg.register, value), convreg.OpTypeError)
        assert isinstance(attempt("", convreg.workspace_bytes, value), convreg.UnknownOp)
        assert isinstance(attempt("", convreg.explain, value), convreg.UnknownOp)
    for version in ("1", 1.5, True, [1], b"1", np.float64(1)):
        with pytest.raises(convreg.OpTypeError, match=r"^convreg::get: version="):
            convreg.get("onednn::Convolution", version=version)
    with pytest.raises(convreg.UnknownOp, match="predates"):
        convreg.get("onednn::Convolution", version=0)
    assert convreg.get("onednn::Convolution", version=np.int64(1)) is convreg.onednn.convolution


def test_explain():
    call = VALID["onednn::ConvolutionBackwardData"]
    shapes = [array.shape for array in call.tensors]
    for value in [*HOSTILE.values()][::2]:
        for index in range(len(shapes)):
            attempt(call.name, convreg.explain, call.name, *shapes[:index], value, *shapes[index + 1:],
                    **call.arguments)
        for parameter in call.arguments:
            attempt(call.name, convreg.explain, call.name, *shapes, **{**call.arguments, parameter: value})
        attempt(call.name, convreg.explain, call.name, *shapes, dtypes=value, **call.arguments)


DRAWN = [convreg.numerics.draw("normal", shape) for shape in ((1, 2, 4, 4), (1, 3, 4, 4), (2, 3, 3, 3))]


@pytest.mark.parametrize(("function", "given", "names"), [
    (convreg.numerics.draw, {"distribution": "normal", "shape": (2, 3), "seed": 0}, "convreg::numerics"),
    (convreg.numerics.error_of, {"array": X, "exact": X}, "convreg::numerics"),
    (convreg.numerics.binades_of, {"values": X}, "convreg::numerics"),
    (convreg.numerics.compare, {
        "op": "ascend::ConvolutionBackward", "inputs": DRAWN, "attributes": {
            "stride": [1, 1], "padding": [1, 1], "dilation": [1, 1]}, "formats": ["bfloat16"], "scaled": False,
        "result": None, "rounding": None, "saturate": False, "seed": 0}, "ascend::ConvolutionBackward"),
], ids=lambda value: getattr(value, "__name__", ""))
def test_numerics(function, given, names):
    for place, parameter in enumerate(given):
        for value in [*HOSTILE.values()][place % 4::4] if function is convreg.numerics.compare else HOSTILE.values():
            attempt(names, function, **{**given, parameter: value})


def test_empty_results_with_giant_extents():
    """NumPy has no array of shape (0, 3, 2**31, 2**31), so there is no such result, reference or workspace."""
    stated = {"dilations": [1, 1], "pads_begin": [0, 0], "pads_end": [0, 0],
              "strides": [2**31, 2**31], "data_format": "NCX", "weights_format": "IOX"}
    tensors = np.zeros((0, 4, 2, 2), np.float32), np.zeros((4, 3, 1, 1), np.float32)
    operator = convreg.onednn.conv_transpose
    for function in (operator, operator.reference, lambda *args, **kw: convreg.workspace_bytes(operator, *args, **kw)):
        found = attempt("onednn::ConvTranspose", function, *tensors, **stated)
        assert (found.argument, found.rule) == ("dst", "max_bytes")
    assert operator(*tensors, **{**stated, "strides": [1, 1]}).shape == (0, 3, 2, 2)
    assert len(convreg.onnx.node_model(operator, *tensors, **stated).graph.output) == 1


@pytest.mark.parametrize(("field", "value"), [
    ("vendor", ""), ("vendor", "errors"), ("vendor", "onnx"), ("vendor", "quantize"), ("vendor", None), ("name", "a b"),
    ("name", "\ud800"), ("since_version", 0), ("since_version", "1"), ("since_version", True), ("doc", None),
    ("inputs", None), ("inputs", [1]), ("inputs", "src"), ("outputs", ()), ("attributes", {}), ("types", None),
    ("types", {}), ("types", {"T": ("float31",)}), ("conformances", ()), ("conformances", [1]), ("plan", None),
    ("run", 1), ("infer", "x"),
])
def test_declarations(field, value):
    """A declaration that lacks something is refused by the name of the field, and leaves nothing behind."""
    before = convreg.names()
    spec = replace(convreg.microsoft.conv_grad.spec, **{"vendor": "acme", field: value})
    error = attempt("convreg::register", convreg.register, spec)
    assert isinstance(error, convreg.OpError)
    assert error.argument == field
    assert convreg.names() == before
    assert len(convreg.operators()) == len(before)


def test_arguments_of_declarations():
    """Names stand for one thing."""
    spec = replace(convreg.microsoft.conv_grad.spec, vendor="acme")
    for other in (replace(spec.attributes[0], name="out"), spec.attributes[1], replace(spec.attributes[0], name="dX"),
                  replace(spec.attributes[0], kind="float")):
        changed = replace(spec, attributes=(*spec.attributes, other))
        assert attempt("convreg::register", convreg.register, changed).argument == "attributes"
