"""What a library offers to be timed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from .check import Array, Case


class Unsupported(Exception):
    """A library cannot do a call or use the number of threads; the message says why."""


class Prepared(NamedTuple):
    """A call ready to be timed, and how its result becomes an array with channels before space.

    `algorithm` returns the name of convreg's algorithm, which may change until the call has run several times; names of
    parts of a call are joined by "+". The call may raise `Unsupported`.
    """

    call: Callable[[], Any]
    array: Callable[[Any], Array]
    algorithm: Callable[[], str] = str


class Peer(Protocol):
    """A library: `about` says its version and what is timed."""

    about: str

    def prepare(self, case: Case) -> Prepared:
        """Return the call, or raise `Unsupported`."""
