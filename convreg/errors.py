"""Exceptions for bad input, one per kind of mistake. They name operator, argument, value and what is allowed."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from itertools import islice
from typing import Any, Protocol, SupportsIndex

MOST_BYTES = 2**20
"""The largest array that an exception takes along in a copy."""

LONGEST_WORD, LONGEST_TEXT = 400, 4000
"""The most characters without a space, such as a path or a name of a file's choice, and of one message."""

_LONG_WORD = re.compile(rf"(\S{{{LONGEST_WORD - 3}}})\S{{3}}\S+")


class _Portable(Exception):
    """An exception that copies and pickles with all its attributes, whatever its constructor takes.

    A value that does not pickle, such as a lambda, or is too large is replaced in the pickle by its description: an
    error raised in a worker process has to reach the parent.
    """

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Callable[..., BaseException], tuple[Any, ...]]:
        def picklable(value: Any) -> Any:
            there_and_back = _copies(value, lambda value: pickle.loads(pickle.dumps(value, int(protocol))))
            return value if there_and_back else Description(shorten(value))

        return _restored, (type(self), _each(self.args, picklable), _each(vars(self), picklable))

    def __reduce__(self) -> tuple[Callable[..., BaseException], tuple[Any, ...]]:
        return self.__reduce_ex__(0)  # Dask's reducer asks for this whatever the protocol; what 0 takes, all take

    def __deepcopy__(self, memo: dict[int, Any]) -> BaseException:
        def copied(value: Any) -> Any:
            return copy.deepcopy(value) if _copies(value, copy.deepcopy) else value

        return _restored(type(self), _each(self.args, copied), _each(vars(self), copied))


def _restored(kind: type[BaseException], args: tuple[Any, ...], attributes: dict[str, Any]) -> BaseException:
    error = kind.__new__(kind, *args)
    vars(error).update(attributes)
    return error


def _each(values: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(values, dict):
        return {name: change(value) for name, value in values.items()}
    return tuple(map(change, values))


def _copies(value: Any, make: Callable[[Any], Any]) -> bool:
    """Whether a value is small and has a copy that prints as it does."""
    try:
        entries = value if isinstance(value, list | tuple) else (value,)
        size = sum(getattr(entry, "nbytes", 0) for entry in entries)
        return bool(size <= MOST_BYTES and shorten(make(value)) == shorten(value))
    except Exception:  # copying runs code of foreign objects
        return False


class Description:
    """Stands for a value that does not pickle; it prints as the value did."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        """What the value's own was."""
        return self.text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Description) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)


class OpError(_Portable, ValueError):
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
        Row of the vendor's rule table (``"R20"``, ``"E34"``, ``"15"``), or a rule of every operator: ``"arguments"``,
        ``"geometry"``, ``"max_bytes"``, ``"memory"`` or ``"cluster"``. docs/rules.md lists all of them.
    status : int or None
        The vendor's status number under an Ascend product's conformance.
    accepted_by : tuple of str
        The conformances under which the same call is legal; ``"emulation"`` only where the operator's default rule
        is not among them.
    """

    def __init__(
        self, op: str, argument: str, value: Any, allowed: str, *, rule: str = "geometry", status: int | None = None
    ) -> None:
        self.op, self.argument, self.value, self.allowed = op, argument, value, allowed
        self.rule, self.status = rule, status
        self.accepted_by: tuple[str, ...] = ()
        super().__init__(op, argument, value, allowed)

    def __repr__(self) -> str:
        """Return the constructor's call with the value in bounded text."""
        return f"{type(self).__name__}({self.op!r}, {self.argument!r}, {shorten(self.value)}, {self.allowed!r})"

    def __str__(self) -> str:
        """Return one sentence: operator, value, what is allowed, the rule, and the conformances that accept it."""
        plain = len(self.argument) < 100 and self.argument.isprintable()
        argument = self.argument if plain else shorten(self.argument)
        text = f"{self.op}: {argument}={shorten(self.value)} is refused; allowed: {self.allowed} [rule {self.rule}"
        if self.status is not None:
            text += f", status {self.status}"
        if self.accepted_by:
            text += "; accepted under conformance=" + " or ".join(repr(name) for name in self.accepted_by)
        return printable(text + "]")


class OpTypeError(OpError, TypeError):
    """A wrong element type, a missing or an unknown argument, or an attribute of the wrong kind."""


class Refusing(Protocol):
    """An object that raises errors in its name: a call of an operator or of another function."""

    def refuse(
        self, argument: str, value: Any, allowed: str, rule: str = ..., *, wrong_type: bool = ...
    ) -> OpError:
        """Return the exception for a value that is not allowed."""


class Asking:
    """A call of a function that is not an operator, with the name that its errors use."""

    def __init__(self, op: str) -> None:
        self.op = op

    def refuse(
        self, argument: str, value: Any, allowed: str, rule: str = "arguments", *, wrong_type: bool = False
    ) -> OpError:
        """Return the exception for a value that is not allowed."""
        return (OpTypeError if wrong_type else OpError)(self.op, argument, value, allowed, rule=rule)


class UnknownOp(_Portable, KeyError):
    """No operator, number format, recipe or row of a result has that name. The message lists similar names.

    A conformance with an unknown name is an `OpError`.
    """

    def __init__(self, name: str, known: Iterable[str], *, what: str = "operator", note: str = "") -> None:
        self.name, self.known = name, tuple(known)
        self.near = near_misses(name, self.known)
        self.what, self.note = what, note
        super().__init__(name)

    def __str__(self) -> str:
        """Name the unknown thing, similar names or all known names, and any broken plug-in."""
        hint = "did you mean " + ", ".join(self.near) if self.near else "known: " + ", ".join(self.known)
        note = f" ({self.note})" if self.note else ""
        return printable(f"no {self.what} named {shorten(self.name)}; {hint}{note}")


class GraphError(_Portable, ValueError):
    """A model or a file that cannot be read, checked, executed or written."""

    def __str__(self) -> str:
        """Return the message as one printable line: files choose the names that it repeats."""
        return printable(super().__str__())


def add_note(error: BaseException, note: str) -> None:
    """Append a note to an error, as its own method does from Python 3.11 on."""
    error.__notes__ = [*getattr(error, "__notes__", ()), note]  # type: ignore[attr-defined]


def near_misses(name: str, known: Iterable[str]) -> list[str]:
    """Return up to three names of `known` that look like `name`, letter case and vendor prefix aside."""
    by_folded: dict[str, str] = {}
    for full in known:
        by_folded.setdefault(full.lower(), full)
        by_folded.setdefault(full.rpartition("::")[2].lower(), full)
    found = get_close_matches(name[:200].lower(), by_folded, n=6, cutoff=0.6)
    return list(dict.fromkeys(by_folded[key] for key in found))[:3]


def shorten(value: Any, limit: int = 120) -> str:
    """Return ``repr(value)`` cut to `limit` characters, so that no message prints a tensor."""
    cut = False
    try:
        beginning = _beginning(value, limit)
        cut = beginning is not value
        text = re.sub(r"\s*\n\s*", " ", repr(beginning))
    except Exception:  # integers of thousands of digits have none, and foreign objects may raise anything
        text = f"<{type(value).__name__}>"
    return text if len(text) <= limit and not cut else text[: limit - 3] + "..."


def _beginning(value: Any, limit: int) -> Any:
    """Return a collection without what lies behind `limit` entries: each takes a character at least."""
    if isinstance(value, list | tuple | str | bytes) and len(value) > limit:
        return value[:limit]
    if isinstance(value, dict) and len(value) > limit:
        return dict(islice(value.items(), limit))
    if isinstance(value, set | frozenset) and len(value) > limit:
        return type(value)(islice(value, limit))
    return value


def printable(text: str) -> str:
    """Return text as one line of bounded length: line breaks, control characters and lone surrogates as escapes."""
    shown = "".join(_escaped(character) for character in text[: LONGEST_TEXT + 1])
    shown = _LONG_WORD.sub(lambda found: f"{found[1]}...", shown)
    return shown if len(shown) <= LONGEST_TEXT else shown[: LONGEST_TEXT - 3] + "..."


def _escaped(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
