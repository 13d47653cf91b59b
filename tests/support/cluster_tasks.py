"""What tests let the workers of a cluster do; workers import this module."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import numpy as np

import convreg
from convreg.errors import OpError


def echo(threads, value):
    return value, os.getpid()


def threads_of(threads):
    return threads


def is_first(flag):
    """Whether no other task has asked before, of those with this flag: tasks of two workers may ask at once."""
    try:
        Path(flag).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def die_once(threads, flag, value):
    """End the worker of the first task that is called, and no other."""
    if is_first(flag):
        os.kill(os.getpid(), signal.SIGKILL)
    return value


def die(threads):
    os.kill(os.getpid(), signal.SIGKILL)


def fail(threads, flag, kind):
    """Fail, and count how often."""
    with Path(flag).open("a") as file:
        file.write("x")
    if kind == "operator":
        convreg.onednn.convolution(np.ones((1, 1, 3), np.float32))
    if kind == "memory":
        raise OpError("convreg::numerics", "inputs", "no memory", "less", rule="memory")
    raise OSError(28, "No space left on device", "/somewhere")


def refuse():
    """Raise an exception with a value that does not pickle."""
    raise OpError("a::b", "argument", threading.Lock(), "it")


def recover(threads, flag):
    """Fail the first time only."""
    if is_first(flag):
        raise ConnectionError("lost")
    return "done"


def hold(threads, folder, name):
    """Say when the task began and ended."""
    begin = time.monotonic()
    time.sleep(0.2)
    Path(folder, name).write_text(f"{begin} {time.monotonic()}")
