"""Attributes that are computed once, also in a process that was forked while another thread computed."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from convreg.once import once


class Counted:
    def __init__(self) -> None:
        self.computed = 0

    @once
    def value(self) -> int:
        """The answer."""
        self.computed += 1
        return 42


def test_computed_when_first_asked_for():
    counted = Counted()
    assert (counted.computed, counted.value, counted.value, counted.computed) == (0, 42, 42, 1)
    assert Counted.value.__doc__ == "The answer."


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of fork beside threads: that is the test
def test_a_forked_process_does_not_wait_for_a_thread_of_its_parent():
    computing, finish = threading.Event(), threading.Event()

    class Slow:
        def __init__(self, waits: bool) -> None:
            self.waits = waits

        @once
        def value(self) -> int:
            if self.waits:
                computing.set()
                finish.wait()
            return 1

    worker = threading.Thread(target=lambda: Slow(True).value)
    worker.start()
    computing.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        os._exit(0 if Slow(False).value == 1 else 1)
    status = os.waitpid(child, 0)[1]
    finish.set()
    worker.join()
    assert status == 0
