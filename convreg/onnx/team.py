"""How many threads the nodes of a graph run on, for the block that runs it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_THREADS: ContextVar[int] = ContextVar("convreg_node_threads", default=0)


def team() -> int:
    """Return the number that was asked for, 0 for the default of the kernels."""
    return _THREADS.get()


@contextmanager
def threads_of_nodes(threads: int) -> Iterator[None]:
    """Let nodes run on so many threads in the block; sessions opened in it keep the number for standard nodes."""
    before = _THREADS.set(threads)
    try:
        yield
    finally:
        _THREADS.reset(before)
