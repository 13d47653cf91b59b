"""Arguments that nobody should pass: a call gives a right answer or an exception of ours that names its argument."""

from __future__ import annotations

import copy
import decimal
import fractions
import pickle
import tracemalloc
from collections import deque
from dataclasses import replace
from itertools import count

import ml_dtypes
import numpy as np
import pytest
from valid_calls import VALID, several

import convreg
import convreg.numerics
import convreg.onnx
from convreg.calls.signature import signature_of

OURS = (convreg.OpError, convreg.UnknownOp, convreg.GraphError)
MOST = 64 * 2**20
COPIED: set = set()
ALL = ("onednn::ConvolutionBackwardData", "ascend::ConvolutionBackward", "nodes::Quantize")
"""Operators that meet all values at each argument; the others meet each third one."""


class Raising:
    """Whatever is asked of it raises something of its own."""

    def __getattr__(self, name):
        raise RuntimeError(name)

    def __repr__(self):
        raise RuntimeError("no text")

    def __index__(self):
        raise RuntimeError("no number")

    def __len__(self):
        raise RuntimeError("no length")

    def __iter__(self):
        raise RuntimeError("no entries")

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("no array")

    def __bool__(self):
        raise RuntimeError("no truth")

    def __eq__(self, other):
        raise RuntimeError("equal to nothing")

    def __hash__(self):
        raise RuntimeError("no hash")


ITSELF: list = []
ITSELF.append(ITSELF)
HOSTILE = {
    "none": None, "list": [], "tuple": (), "dict": {}, "set": {1}, "object": object(), "type": int, "lambda": lambda: 0,
    "nan": float("nan"), "inf": 1e400, "minus": -1, "zero": 0, "huge": 10**5000, "int64": 2**63, "least": -(2**63),
    "half": 0.5, "true": True, "complex": 1j, "decimal": decimal.Decimal(1), "fraction": fractions.Fraction(1, 2),
    "bytes": b"\x00", "bytearray": bytearray(b"ab"), "memoryview": memoryview(b"ab"), "empty text": "", "text": "NCX",
    "nul": "a\0b", "surrogate": "\ud800", "long text": "x" * 100_000, "line": "a\nb", "floats": [1.5, 2.5],
    "ragged": [[1], [2, 3]], "deep": [[[[[[[[1]]]]]]]], "itself": ITSELF, "texts": ["a", None], "huge list": [10**5000],
    "long list": [1] * 10_000, "deque": deque([1, 1]), "endless": count(), "generator": (n for n in [1, 1]),
    "range": range(2), "raising": Raising(), "raising entry": [Raising()], "scalar": np.float32(1), "array": np.ones(2),
    "empty array": np.zeros(0, np.float32), "objects": np.array([None, "a"], object), "words": np.array(["a", "b"]),
    "dates": np.array(["2020-01-01"], "M8[D]"), "structure": np.zeros(2, [("a", "f4"), ("b", "i4")]),
    "big endian": np.ones((1, 1, 1), ">f4"), "wide": np.broadcast_to(np.float32(0), (2**20, 2**20)),
    "wide big endian": np.broadcast_to(np.array(0, ">f4"), (2**20, 2**20)),
    "long shape": np.broadcast_to(np.int32(1), (2**40,)), "empty and giant": np.empty((0, 2**30, 2**30), np.float32),
    "many axes": np.ones((1,) * 32, np.float32), "masked": np.ma.masked_array([1.0], [True]),
    "booleans": np.array([True, False]), "int4": np.zeros(2, ml_dtypes.int4), "module": np, "ellipsis": ...,
}


def attempt(operation, function, *args, **kwargs):
    """The result, or the exception of ours; it has text, pickles and copies."""
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    try:
        result = function(*args, **kwargs)
    except OURS as error:
        result = error
    if isinstance(result, OURS):
        check_exception(operation, result)
    assert tracemalloc.get_traced_memory()[1] - before < MOST
    return result


def check_exception(operation, error):
    """It is one printable sentence of bounded length, and copies say the same."""
    text = str(error)
    assert text.isprintable()
    assert len(text) < 3000
    seen = type(error), type(getattr(error, "value", None)), getattr(error, "argument", None)
    if seen not in COPIED:
        COPIED.add(seen)
        for twin in (pickle.loads(pickle.dumps(error)), copy.deepcopy(error)):
            assert type(twin) is type(error)
            assert str(twin) == text
            assert vars(twin).keys() == vars(error).keys()
    if isinstance(error, convreg.OpError):
        assert error.op == operation
        assert isinstance(error.argument, str)


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
