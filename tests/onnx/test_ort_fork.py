"""Nodes and sessions of onnxruntime in forked processes."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest
from places import SUPPORT

pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")

START = """
    import os, signal, sys, threading, warnings
    import numpy as np
    import onnxruntime
    from onnx import helper
    from graphs import data_gradient, value
    from ort_sessions import CALLS, expected_of, feeds_of, model, same, sample, session, shaped
    from convreg.onnx import Session
    warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of fork beside threads: that is the test

    FEEDS = feeds_of(2, 24)
    EXPECTED = expected_of(FEEDS)

    def right(session):
        results = session.run(None, FEEDS) if isinstance(session, onnxruntime.InferenceSession) else [
            session.run(FEEDS)["dx"]]
        same(results, EXPECTED)
        return True

    def in_child(check):
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            signal.alarm(20)  # a hang ends here, with a status
            os._exit(0 if check() else 1)
        return os.waitpid(child, 0)[1] == 0

    def ours():
        return Session(shaped(), engine="onnxruntime")

    def plain():
        return session(shaped())
"""


def run_python(program: str) -> list[str]:
    path = os.pathsep.join([str(SUPPORT), os.getcwd(), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(START) + textwrap.dedent(program)], timeout=120,
                          env={**os.environ, "PYTHONPATH": path, "CONVREG_NUM_THREADS": "2"}, capture_output=True,
                          text=True, check=False)
    assert not done.stderr, done.stderr
    assert done.returncode == 0
    return done.stdout.split()


@pytest.mark.parametrize("make", ["ours", "plain"])
def test_sessions_made_before_and_after_the_fork(make):
    """Before and after the first run, child after child, in a grandchild, and from another thread of the child."""
    assert run_python(f"""
    make = {make}
    def in_thread():
        results = []
        worker = threading.Thread(target=lambda: results.append(right(before)))
        worker.start()
        worker.join()
        return results == [True]

    before = make()
    print(in_child(lambda: right(before)), right(before))
    print(*(in_child(lambda: right(before)) for _ in range(3)))
    print(in_child(lambda: right(make())), in_child(in_thread))
    print(in_child(lambda: right(before) and in_child(lambda: right(before) and right(make()))))
    print(right(before))
    """) == ["True"] * 9


def test_every_operator_in_a_forked_process():
    """Operators that prepare their operands and operators whose kernel calls are repeated."""
    assert run_python("""
    for name in sorted(CALLS):
        made, feeds, expected = sample(name, np.dtype(np.float32))
        plain, engine = session(made), Session(made, engine="onnxruntime")
        same(plain.run(None, feeds), expected)

        def check():
            for _ in range(2):
                same(plain.run(None, feeds), expected)
                same([*engine.run(feeds).values()], expected)
            return True
        assert in_child(check), name
    print("done")
    """) == ["done"]


def test_a_library_registered_first_in_a_child():
    """The parent has run kernels on threads without the library; the child registers it again and again."""
    assert run_python("""
    print(Session(shaped(), engine="reference").run(FEEDS)["dx"].tobytes() == EXPECTED.tobytes())
    print(in_child(lambda: right(plain()) and right(ours()) and right(plain())))
    """) == ["True"] * 2


def test_a_session_of_the_parent_ends_in_a_child():
    """onnxruntime joins its threads when a session ends, and a forked process has none of them."""
    assert run_python("""
    def ends(used):
        def check():
            global before
            assert not used or right(before)
            del before
            return True
        return check

    before = ours()
    print(right(before), in_child(ends(False)), in_child(ends(True)), right(before))
    """) == ["True"] * 4
