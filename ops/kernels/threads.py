"""How many threads a kernel runs on, and how it runs in a forked process.

The default is CONVREG_NUM_THREADS, else OMP_NUM_THREADS (the first number of a list), else the processors this process
may use; read once, at import. What is not a positive integer is passed over, with a warning where the variable is ours.
An empty variable counts as unset.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable
from typing import Any

from .teams import OPENMP

# More threads than processors only cost. Small machines still get teams larger than themselves: results do not depend
# on the number, and tests show it. Of these, kernels use as many as can be started (`team.h`).
_MOST = max(os.cpu_count() or 1, 8)


def _from_environment() -> int | None:
    for name in ("CONVREG_NUM_THREADS", "OMP_NUM_THREADS"):
        value = os.environ.get(name, "").split(",")[0].strip()
        if number := re.fullmatch(r"0*([1-9][0-9]*)", value):
            return int(number[1]) if len(number[1]) < 10 else _MOST
        if value and name == "CONVREG_NUM_THREADS":
            warnings.warn(f"{name}={value[:100]!r} is not a positive integer and is ignored", RuntimeWarning,
                          stacklevel=2)
    return None


def available() -> int:
    """Return the processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_DEFAULT = _from_environment() or available()
_PROCESS = os.getpid()


def team(threads: int) -> int:
    """Return how many threads a call that asks for `threads` gets; 0 asks for the default."""
    return min(threads or _DEFAULT, _MOST) if OPENMP else 1


def default_threads() -> int:
    """Return the number of threads of a call that asks for none in particular."""
    return team(0)


def run(kernel: Callable[..., None], arrays: tuple[Any, ...], threads: int, settings: dict[str, Any]) -> None:
    """Call a kernel with these keywords on its team of threads.

    GNU's OpenMP keeps a team per calling thread. A forked process inherits the record of it but not its threads, and
    waits for them for ever. A thread born after the fork has no such record, so there the call is made on a new one.
    """
    threads = team(threads)
    if threads == 1 or os.getpid() == _PROCESS:
        kernel(*arrays, threads=threads, **settings)
        return
    from concurrent.futures import ThreadPoolExecutor  # slow to import, and few processes come here

    with ThreadPoolExecutor(max_workers=1) as newborn:
        try:
            call = newborn.submit(kernel, *arrays, threads=threads, **settings)
        except RuntimeError:  # no thread can be started
            kernel(*arrays, threads=1, **settings)
        else:
            call.result()
