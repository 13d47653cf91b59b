"""Sessions that several threads run at once, in a process and in its forked children."""

from __future__ import annotations

import os
import signal
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from graphs import data_gradient, value
from onnx import helper
from ort_sessions import expected_of, feeds_of, model, shaped

from convreg import OpError
from convreg.onnx import Session

ENGINES = ("onnxruntime", "reference")
SHAPES = [(batch, extent) for batch in (1, 2, 3) for extent in (5, 8, 13)]


def opened(engine: str, made) -> Session:
    if engine == "onnxruntime":
        pytest.importorskip("onnxruntime")
    return Session(made, engine=engine)


def attempt(session: Session, expected: dict, turn: int) -> bool:
    """Whether a run is right: every third one has an operand that the operator refuses, for a reason of its own."""
    shape = SHAPES[turn % len(SHAPES)]
    feeds = dict(feeds_of(*shape))
    if turn % 3:
        return session.run(feeds)["dx"].tobytes() == expected[shape]
    feeds["s"] = np.array([shape[0], 3, 100 + turn, 7])
    try:
        session.run(feeds)
    except OpError as error:
        return str(100 + turn) in str(error)
    return False


@pytest.mark.parametrize("engine", ENGINES)
def test_runs_at_once(engine):
    session = opened(engine, shaped())
    expected = {shape: expected_of(feeds_of(*shape)).tobytes() for shape in SHAPES}
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(lambda turn: attempt(session, expected, turn), range(96)))


@pytest.mark.parametrize("engine", ENGINES)
def test_subgraphs_at_once(engine):
    """Loops keep the state of a run apart from that of another."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["again"]), helper.make_node("Add", ["state", "x"], ["next"])], "body",
        [helper.make_tensor_value_info("step", 7, []), helper.make_tensor_value_info("go", 9, []),
         helper.make_tensor_value_info("state", 1, None)],
        [helper.make_tensor_value_info("again", 9, []), helper.make_tensor_value_info("next", 1, None)])
    made = model([data_gradient(["dy", "w", "s"]), helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)],
                 [value("dy", ["N", 4, "H", "W"]), value("w", [4, 3, 3, 3]), value("s", [4], np.int64),
                  value("n", [], np.int64), value("x", ["K"])],
                 [value("dx", [None] * 4), value("y", [None])])
    session = opened(engine, made)
    feeds = feeds_of(1, 5)

    def right(turn: int) -> bool:
        found = session.run({**feeds, "n": turn % 7, "x": np.full(turn + 1, turn, np.float32)})["y"]
        return found.tolist() == [turn * (turn % 7 + 1)] * (turn + 1)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(right, range(64)))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("engine", ENGINES)
def test_threads_of_a_forked_child(engine):
    session = opened(engine, shaped())
    expected = {shape: expected_of(feeds_of(*shape)).tobytes() for shape in SHAPES}
    assert attempt(session, expected, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of fork beside threads
        child = os.fork()
    if child == 0:
        signal.alarm(30)  # a hang ends here, with a status
        try:
            with ThreadPoolExecutor(4) as pool:
                right = all(pool.map(lambda turn: attempt(session, expected, turn), range(24)))
        finally:
            os._exit(0 if right else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert attempt(session, expected, 2)
