"""How many threads a kernel runs on."""

from __future__ import annotations

import os


def _read_default() -> int:
    for name in ("CONVREG_NUM_THREADS", "OMP_NUM_THREADS"):
        value = os.environ.get(name, "").strip()
        if value.isdecimal() and int(value) > 0:
            return int(value)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_DEFAULT = _read_default()


def default_threads() -> int:
    """Return the number of threads a call uses when it names none; read once, at import."""
    return _DEFAULT


def team(threads: int) -> int:
    return threads or _DEFAULT
