"""Public functions that are no operators, called with wrong arguments, and every kind of call without enough memory."""

from __future__ import annotations

import inspect
import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from convreg.tools import onnx_io
from hostile import HOSTILE, OURS, attempt
from valid_calls import VALID, several

import convreg
import convreg.onnx
from convreg import GraphError, OpError, OpTypeError, UnknownOp, numerics
from convreg.formats import FORMATS
from convreg.numerics import Rounding

X = np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)
LAYER = {"stride": [1, 1], "padding": [1, 1], "dilation": [1, 1]}
DRAWN = [numerics.draw("normal", shape) for shape in ((1, 2, 4, 4), (1, 3, 4, 4), (2, 3, 3, 3))]


@pytest.mark.parametrize("name", [
    "quantize", "dequantize", "get", "register", "names", "operators", "formats", "capabilities", "workspace_bytes",
    "algorithm", "algorithm_names", "force_algorithm", "explain", "numerics.compare", "numerics.draw",
    "numerics.error_of", "numerics.binades_of", "numerics.best_exponent", "numerics.plot"])
def test_arguments_that_the_signature_lacks(name):
    function = getattr(numerics, name[9:]) if name.startswith("numerics.") else getattr(convreg, name)
    operation = "convreg::numerics" if name.startswith("numerics.") else f"convreg::{name}"
    if name not in ("workspace_bytes", "algorithm", "explain"):  # the arguments of the operator
        error = attempt(operation, function, *[1] * 9)
        assert isinstance(error, convreg.OpTypeError)
        assert (error.argument, error.value) == ("arguments", "9 positional")
        assert attempt(operation, function, bogus=1).argument == "bogus"
    if name not in ("names", "operators", "formats", "capabilities", "algorithm_names"):
        error = attempt(operation, function)
        assert isinstance(error, convreg.OpTypeError)
        assert error.allowed == "a value: it is required"


def test_messages_about_arguments():
    with pytest.raises(convreg.OpTypeError, match="did you mean saturate"):
        convreg.quantize(X, "bfloat16", saturated=True)
    with pytest.raises(convreg.OpTypeError, match="format='given twice'"):
        convreg.quantize(X, "bfloat16", format="float16")
    with pytest.raises(convreg.OpTypeError, match=r"^convreg::quantize: format=None is refused"):
        convreg.quantize(X)


def test_references_refuse_out():
    """They would ignore it."""
    for name, call in VALID.items():
        operator = convreg.get(name)
        results = several(operator.reference(*call.tensors, **call.arguments, threads=1))
        error = attempt(name, operator.reference, *call.tensors, **call.arguments, out=results)
        assert (type(error), error.argument) == (convreg.OpTypeError, "out")
        assert attempt(name, operator.reference, *call.tensors, **call.arguments, threads="2").argument == "threads"


def test_scales_and_plots(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = numerics.compare("ascend::ConvolutionBackward", DRAWN, LAYER, formats=["bfloat16"])
    how = Rounding(FORMATS["hifloat8"])
    for kind, value in HOSTILE.items():
        for function, args in ((numerics.best_exponent, (value, how)), (numerics.best_exponent, (X, value)),
                               (Rounding, (value,)), (lambda given: how._replace(format=given), (value,)),
                               (numerics.best_exponent, (X, how._replace(rounding=value))),
                               (numerics.best_exponent, (X, how._replace(saturate=value))),
                               (numerics.best_exponent, (X, how._replace(seed=value))),
                               (how.of, (value,)), (how.of, (X, value))):
            assert isinstance(attempt("convreg::numerics", function, *args), (int, np.generic, np.ndarray, *OURS))
        for args in ((value, io.BytesIO(), "svg"), ({"a": value}, io.BytesIO(), "svg")):
            assert isinstance(attempt("convreg::numerics", numerics.plot, *args), OURS)
        if kind not in ("text", "line"):  # paths
            assert isinstance(attempt("convreg::numerics", found.plot, value), OURS)
        if kind != "none":
            assert isinstance(attempt("convreg::numerics", found.plot, io.BytesIO(), value), OURS)
        assert isinstance(attempt("", found.row, value, "bfloat16"), convreg.UnknownOp)
        assert isinstance(attempt("", convreg.formats().__getitem__, str(kind)), convreg.UnknownOp)


def test_pictures(tmp_path):
    pytest.importorskip("matplotlib")
    found = numerics.compare("ascend::ConvolutionBackward", DRAWN, LAYER, formats=["bfloat16"], scaled=False)
    with pytest.raises(convreg.GraphError, match="cannot be written"):
        found.plot(tmp_path / "none" / "a.png")
    with pytest.raises(convreg.GraphError, match="cannot be written"):
        found.plot(io.StringIO(), "png")
    with pytest.raises(convreg.OpError, match="format='jpg'"):
        found.plot(tmp_path / "a.jpg")
    numerics.plot({"$\\frac": found, "$x": found}, tmp_path / "a.svg")
    assert (tmp_path / "a.svg").stat().st_size


def test_compare_within_the_limit(monkeypatch):
    """The operands and exact results together count, before any of them is computed."""
    monkeypatch.setenv("CONVREG_MAX_BYTES", "1800")
    wide = [np.broadcast_to(np.float32(1), array.shape) for array in DRAWN]
    error = attempt("ascend::ConvolutionBackward", numerics.compare, "ascend::ConvolutionBackward", wide, LAYER)
    assert (error.argument, error.rule) == ("inputs", "max_bytes")


def test_errors_of_steps_name_the_operator(monkeypatch):
    """An operand that a scale multiplies is decoded first; the user has not called `dequantize`."""
    monkeypatch.setenv("CONVREG_MAX_BYTES", "100000")
    stated = {"strides": [1, 1], "pads_begin": [0, 0], "pads_end": [0, 0], "dilations": [1, 1], "data_format": "NCX",
              "weights_format": "OIX", "conformance": "emulation", "scales": (np.full(16, 3, np.float32), None)}
    dy = np.broadcast_to(np.float32(1), (8, 16, 32, 32))
    call = attempt("onednn::ConvolutionBackwardData", convreg.onednn.convolution_backward_data, dy,
                   np.ones((16, 1, 1, 1), np.float32), (8, 1, 32, 32), **stated)
    assert (call.argument, call.rule) == ("inputs", "max_bytes")


def test_subclasses_as_out():
    """Methods that a subclass of arrays overrides are not called."""
    class Odd(np.ndarray):
        def view(self, *args):
            raise RuntimeError("no view")

    out = np.ndarray.view(np.zeros((2, 3), np.float32), Odd)
    assert convreg.dequantize(convreg.quantize(X, "bfloat16"), out=out) is out
    np.testing.assert_array_equal(np.asarray(out), convreg.dequantize(convreg.quantize(X, "bfloat16")))


def test_arrays_of_no_elements_and_giant_extents():
    empty = np.empty((0, 2**30, 2**30), np.int8)
    for format in ("float64", "float32", "hifloat8"):
        found = attempt("convreg::quantize", convreg.quantize, empty, format)
        assert (found.argument, found.rule) == ("x", "max_bytes")
    assert attempt("convreg::dequantize", convreg.dequantize, empty.astype("u1"), "hifloat8",
                   dtype="f8").rule == "max_bytes"


WITHOUT_MEMORY = """
import resource
import numpy as np
import convreg
from convreg import numerics
from convreg.numerics import Rounding

def hollow(dtype, shape=(64, 64, 512, 256)):
    return np.broadcast_to(np.array(0, dtype), shape)

x, w, shape = hollow("f4"), np.ones((64, 64, 1, 1), "f4"), (64, 64, 512, 256)
stated = dict(strides=[1, 1], pads_begin=[0, 0], pads_end=[0, 0], dilations=[1, 1], data_format="NCX",
              weights_format="OIX")
data, name = convreg.onednn.convolution_backward_data, "onednn::ConvolutionBackwardData"
numerics.draw("normal", (2,)), data.reference(x[:1, :, :1, :1], w, (1, 64, 1, 1), **stated)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 400 * 2**20,) * 2)
for operation, call in [
    (name, lambda: data(x, w, shape, **stated)),
    (name, lambda: data(x, w, shape, **stated, conformance="emulation", output_format="hifloat8")),
    (name, lambda: data(hollow(">f4"), w, shape, **stated)),
    (name, lambda: data.reference(x, w, shape, **stated)),
    (name, lambda: convreg.workspace_bytes(data, x, w, shape, **stated)),
    ("nodes::Quantize", lambda: convreg.nodes.quantize(x, np.float32(2))),
    ("convreg::quantize", lambda: convreg.quantize(x, "bfloat16")),
    ("convreg::quantize", lambda: convreg.quantize(hollow("i1"), "bfloat16")),
    ("convreg::quantize", lambda: convreg.quantize(hollow(">f4"), "bfloat16")),
    ("convreg::dequantize", lambda: convreg.dequantize(x)),
    ("convreg::numerics", lambda: numerics.draw("normal", shape)),
    ("convreg::numerics", lambda: numerics.error_of(x, x)),
    ("convreg::numerics", lambda: numerics.binades_of(x)),
    ("convreg::numerics", lambda: numerics.best_exponent(x, Rounding(convreg.formats()["hifloat8"]))),
    ("convreg::numerics", lambda: numerics.compare(name, (x, w, shape), stated)),
]:
    try:
        call()
    except convreg.OpError as error:
        assert error.op == operation and error.rule == "memory", error
    else:
        raise AssertionError(operation)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory")
def test_results_that_do_not_fit_the_memory():
    """Above what is free but below CONVREG_MAX_BYTES."""
    program = f"import sys; sys.path.insert(0, {str(Path(convreg.__file__).parents[1])!r})\n{WITHOUT_MEMORY}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False,
                          env={"CONVREG_NUM_THREADS": "1", "CONVREG_MAX_BYTES": str(2**34), "PATH": ""})
    assert done.returncode == 0, done.stderr


FILES_AND_MODELS = [*(getattr(convreg.onnx, name) for name in convreg.onnx.__all__
                      if name not in ("NodeCall", "History", "StepRecord")),  # records that other functions return
                    *(getattr(onnx_io, name) for name in onnx_io.__all__)]


@pytest.mark.parametrize("function", FILES_AND_MODELS, ids=lambda function: function.__name__)
def test_functions_of_models_and_files(function):
    for args, kwargs, named in (((1,) * 9, {}, ""), ((), {"unheard_of": 3}, "unheard_of"), ((), {}, "")):
        parameters = [*inspect.signature(function).parameters.values()]
        if not args and not kwargs and all(p.default is not p.empty for p in parameters):
            continue
        with pytest.raises((OpError, GraphError, UnknownOp)) as caught:
            function(*args, **kwargs)
        assert named in str(caught.value) or any(p.kind is p.VAR_KEYWORD for p in parameters)


def test_session_runs_are_guarded():
    session = convreg.onnx.Session(convreg.onnx.node_model("nodes::Quantize", np.ones(3, "f4"), format="float8_e5m2"))
    with pytest.raises(OpTypeError, match=r"arguments='2 positional'.*at most 1: inputs"):
        session.run({}, {})
