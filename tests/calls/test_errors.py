"""Exceptions reach other processes whole, and environment variables are refused in one sentence."""

from __future__ import annotations

import copy
import copyreg
import os
import pickle
import subprocess
import sys
import threading
from collections import Counter, defaultdict
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest

import convreg
from convreg.errors import GraphError, OpError, OpTypeError, UnknownOp, add_note


class Odd:
    """Pickles, but not back."""

    def __reduce__(self):
        return eval, ("1 +",)

    def __repr__(self):
        return "odd"


def noted(error):
    add_note(error, "in node 'n'")
    return error


def accepted(error):
    error.accepted_by = ("library",)
    return error


ERRORS = [
    OpError("a::b", "argument", [1], "two", rule="R4", status=161001), accepted(OpTypeError("a::b", "c", None, "it")),
    OpError("a::b", "c", threading.Lock(), "it"), OpError("a::b", "c", lambda: 0, "it"), OpError("a::b", "c", np, "it"),
    OpError("a::b", "c", Odd(), "it"), OpError("a::b", "c", 10**5000, "it"), OpError("a::b", "c", "\ud800", "it"),
    UnknownOp("Convolve", ["a::Convolution"], what="format", note="one is broken"), GraphError("it is damaged"),
    noted(UnknownOp("x", ["y"])), noted(GraphError("it")),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_exceptions_pickle_and_copy(error, protocol):
    for twin in (pickle.loads(pickle.dumps(error, protocol)), copy.copy(error), copy.deepcopy(error)):
        assert type(twin) is type(error)
        assert str(twin) == str(error)
        assert len(twin.args) == len(error.args)
        assert vars(twin).keys() == vars(error).keys()
        assert all(getattr(twin, name) == value for name, value in vars(error).items() if name != "value")
        kind = type(getattr(error, "value", None)).__name__
        assert kind in ("lock", "function", "module", "Odd", "int") or vars(twin) == vars(error)
        assert len(repr(twin)) < 1000
        assert str(pickle.loads(pickle.dumps(twin))) == str(error)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_exceptions_pickle_with_a_registered_reducer(error, protocol, monkeypatch):
    """Dask registers one for every class of exceptions there is, and it asks for `__reduce__`."""
    monkeypatch.setitem(copyreg.dispatch_table, type(error), lambda error: error.__reduce__())
    test_exceptions_pickle_and_copy(error, protocol)


def test_process_pools_survive_exceptions():
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        with pytest.raises(UnknownOp, match="did you mean") as caught:
            pool.submit(convreg.get, "Convolutio").result(60)
        assert caught.value.near
        with pytest.raises(OpTypeError, match="threads"):
            pool.submit(convreg.quantize, [1.0], "bfloat16", threads="2").result(60)
        assert pool.submit(convreg.names).result(60) == convreg.names()


def test_values_are_shown_in_bounded_text():
    for value in (10**5000, "x" * 10**6, [1] * 10**6, {n: n for n in range(10**5)}, set(range(10**5)), (b"x" * 10**6,)):
        assert len(str(OpError("a::b", "c", value, "it"))) < 300
        assert len(str(UnknownOp(str(value)[:10**6] if not isinstance(value, int) else "n", ["a"]))) < 300


def test_values_of_subclasses_are_shown_in_bounded_text():
    """Whatever their constructors take, and whatever they raise."""
    class Refusing(list):
        def __getitem__(self, place):
            raise RuntimeError("no part")

    for value, start in ((defaultdict(int, {n: n for n in range(1000)}), "{0: 0, 1: 1"),
                         (Counter(range(1000)), "{0: 1, 1: 1"), (Refusing(range(1000)), "<Refusing>")):
        text = str(OpError("a::b", "c", value, "it"))
        assert text.startswith(f"a::b: c={start}")
        assert len(text) < 300


def printed(program, **variables):
    done = subprocess.run([sys.executable, "-c", program], env={**os.environ, **variables}, capture_output=True,
                          text=True, check=False)
    return done.returncode, done.stdout.strip(), done.stderr.strip()


REFUSED = """
import convreg, convreg.onnx
operator, tensors = convreg.onednn.convolution, ([[[1.0]]], [[[1.0]]])
settings = {"strides": [1], "pads_begin": [0], "pads_end": [0], "dilations": [1]}
for compute in (convreg.capabilities, lambda: convreg.quantize([1.0], "bfloat16"),
                lambda: operator(*tensors, **settings), lambda: operator.reference(*tensors, **settings),
                lambda: convreg.algorithm(operator, *tensors, **settings),
                lambda: convreg.workspace_bytes(operator, *tensors, **settings)):
    try:
        compute()
    except convreg.OpError as error:
        assert error.__context__ is None and error.__cause__ is None
        print(error)
"""


def test_an_unknown_instruction_set_is_refused_in_one_sentence():
    """On import nothing happens; each computation is refused, and the command line prints the sentence."""
    status, out, err = printed(REFUSED, CONVREG_ISA="foo")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert len(lines) == 6
    assert {*lines} == {lines[0]}
    assert lines[0].startswith("convreg: CONVREG_ISA='foo' is refused; allowed: ")
    assert "'generic'" in lines[0]
    program = "import sys; from convreg.tools.cli import main; sys.exit(main(['capabilities']))"
    assert printed(program, CONVREG_ISA="foo") == (1, "", lines[0])


@pytest.mark.parametrize(("variable", "text", "warned"), [
    ("OMP_NUM_THREADS", "4,2", False), ("OMP_NUM_THREADS", "9" * 5000, False),
    ("CONVREG_NUM_THREADS", "9" * 5000, False),
    ("CONVREG_NUM_THREADS", "foo" * 1000, True), ("CONVREG_NUM_THREADS", "\u0663", True)])
def test_any_text_in_the_variables_of_threads(variable, text, warned):
    """A warning where our own is no positive integer, never a failure."""
    program = "import convreg; print(convreg.capabilities()['threads'] >= 1, convreg.quantize([1.0], 'bfloat16'))"
    status, out, err = printed(program, **{"OMP_NUM_THREADS": "", variable: text})
    assert (status, out) == (0, "True [1]")
    assert "Traceback" not in err
    assert len(err) < 1000
    assert ("is not a positive integer" in err) == warned


@pytest.mark.parametrize(("text", "refused"), [
    ("", False), (" 1000 ", False), ("9" * 5000, False), ("foo", True), ("-1", True), ("1e9", True),
    ("\u0663" * 3, True), ("0", True)])
def test_any_text_in_the_limit_of_memory(monkeypatch, text, refused):
    monkeypatch.setenv("CONVREG_MAX_BYTES", text)
    if not refused:
        assert convreg.quantize([1.0], "bfloat16") == 1
        return
    with pytest.raises(OpError, match=r"MAX_BYTES|at most 0 bytes"):
        convreg.quantize([1.0], "bfloat16")
