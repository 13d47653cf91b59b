"""Exceptions for bad input, one per kind of mistake. They name operator, argument, value and what is allowed."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, Protocol


class OpError(ValueError):
    """A value that an operator's rules refuse.

    Attributes
    ----------
    op : str
        Qualified operator name, such as ``"onednn::ConvolutionBackwardData"``.
    argument : str
        The port or attribute with the wrong value, in the vendor's spelling.
    value : object
        The value that was given.
    allowed : str
        What is accepted.
    rule : str
        Row of the vendor's rule table (``"R20"``, ``"E34"``, ``"15"``), or ``"geometry"``.
    status : int or None
        The vendor's status number under an Ascend product's conformance.
    accepted_by : tuple of str
        The conformances under which the same call is legal.
    """

    def __init__(
        self, op: str, argument: str, value: Any, allowed: str, *, rule: str = "geometry", status: int | None = None
    ) -> None:
        self.op, self.argument, self.value, self.allowed = op, argument, value, allowed
        self.rule, self.status = rule, status
        self.accepted_by: tuple[str, ...] = ()
        super().__init__(op, argument, value, allowed)

    def __str__(self) -> str:
        """Return one sentence: operator, value, what is allowed, the rule, and the conformances that accept it."""
        text = f"{self.op}: {self.argument}={shorten(self.value)} is refused; allowed: {self.allowed} [rule {self.rule}"
        if self.status is not None:
            text += f", status {self.status}"
        if self.accepted_by:
            text += "; accepted under conformance=" + " or ".join(repr(name) for name in self.accepted_by)
        return text + "]"


class OpTypeError(OpError, TypeError):
    """A wrong element type, a missing or an unknown argument, or an attribute of the wrong kind."""


class Refusing(Protocol):
    """An object that raises errors in its name: a call of an operator or of another function."""

    def refuse(
        self, argument: str, value: Any, allowed: str, rule: str = ..., *, wrong_type: bool = ...
    ) -> OpError:
        """Return the exception for a value that is not allowed."""


class UnknownOp(KeyError):
    """No operator, format or conformance has that name. The message lists similar names."""

    def __init__(self, name: str, known: Iterable[str], *, what: str = "operator", note: str = "") -> None:
        self.name, self.known = name, tuple(known)
        self.near = near_misses(name, self.known)
        self.what, self.note = what, note
        super().__init__(name)

    def __str__(self) -> str:
        """Name the unknown thing, similar names or all known names, and any broken plug-in."""
        hint = "did you mean " + ", ".join(self.near) if self.near else "known: " + ", ".join(self.known)
        return f"no {self.what} named {self.name!r}; {hint}" + (f" ({self.note})" if self.note else "")


class GraphError(ValueError):
    """A model or a file that cannot be read, checked, executed or written."""


def add_note(error: BaseException, note: str) -> None:
    """Append a note to an error, as its own method does from Python 3.11 on."""
    error.__notes__ = [*getattr(error, "__notes__", ()), note]  # type: ignore[attr-defined]


def near_misses(name: str, known: Iterable[str]) -> list[str]:
    """Return up to three names of `known` that look like `name`, letter case and vendor prefix aside."""
    by_folded: dict[str, str] = {}
    for full in known:
        by_folded.setdefault(full.lower(), full)
        by_folded.setdefault(full.rpartition("::")[2].lower(), full)
    found = get_close_matches(name.lower(), by_folded, n=6, cutoff=0.6)
    return list(dict.fromkeys(by_folded[key] for key in found))[:3]


def shorten(value: Any, limit: int = 120) -> str:
    """Return ``repr(value)`` cut to `limit` characters, so that no message prints a tensor."""
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."
