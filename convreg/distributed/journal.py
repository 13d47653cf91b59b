"""The file of a sweep: a JSON line for each case that is done, written when it is done.

The first line says what the sweep is. A sweep that begins with such a file goes on where the last one ended.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

import numpy as np

from .. import __version__
from ..archives import digest
from ..errors import GraphError, shorten
from ..files import PathLike, json_of, reason, refuse_devices
from ..paths import path_of

VERSION = 1

T = TypeVar("T")


class Done(NamedTuple):
    """A case that is done: what it was made of, as a text, and its result as JSON has it."""

    key: str
    result: Any


class Journal:
    """An open file of a sweep; a context manager. One process at a time has it.

    Attributes
    ----------
    done : dict of str to Done
        The cases that are done, by name.
    """

    def __init__(self, path: PathLike, kind: str, about: Mapping[str, Any]) -> None:
        """Open a file, or begin one.

        Parameters
        ----------
        path : path-like
        kind : str
            What the file holds, such as ``"convreg numerics results"``.
        about : mapping
            The choices that hold for all cases, as JSON has them. A file with others is refused.

        Raises
        ------
        GraphError
            If the file cannot be read or written, is none of these, belongs to another sweep or to another version of
            convreg, or another process has it open.
        """
        self.path = path_of(path)
        self._head = {"kind": kind, "version": VERSION, "convreg": __version__, "about": json.loads(json.dumps(about))}
        self.done: dict[str, Done] = {}
        try:
            refuse_devices(self.path)
            self._file = os.fdopen(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666), "r+b", buffering=0)
        except (OSError, ValueError) as error:  # ValueError: a NUL in the path
            raise GraphError(f"{self.path}: cannot be written: {reason(error)}") from None
        try:
            self._lock()
            self._read()
        except BaseException:
            self._file.close()
            raise

    def add(self, name: str, key: str, result: Any) -> None:
        """Write the line of a case.

        Raises
        ------
        GraphError
            If it cannot be written. The file is as it was before.
        """
        self._append({"case": name, "key": key, "result": result})
        self.done[name] = Done(key, result)

    def result(self, name: str, key: str) -> Any:
        """Return the result of a case, None if it is not done.

        Raises
        ------
        GraphError
            If the file has a case of this name that was made of something else.
        """
        found = self.done.get(name)
        if found is None:
            return None
        if found.key != key:
            raise GraphError(f"{self.path}: has case {name!r} with another call, other operands or another seed; "
                             "needed: the same ones, or another file")
        return found.result

    def made(self, name: str, key: str, make: Callable[[Any], T]) -> T | None:
        """Return what `make` makes of the result of a case, None if it is not done.

        Raises
        ------
        GraphError
            As `result`, or if it makes nothing of it.
        """
        held = self.result(name, key)
        try:
            return None if held is None else make(held)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise GraphError(f"{self.path}: case {name!r} has no result of such a sweep: {reason(error)}; needed: a "
                             "file that nothing else has written to, or a new file") from None

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        self.close()

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise GraphError(f"{self.path}: another sweep writes to it; needed: one at a time") from None
        except OSError:  # a file system without locks
            pass

    def _read(self) -> None:
        content = self._file.read()
        whole = content[:content.rfind(b"\n") + 1]  # a process that was ended may leave a part of a line
        try:
            head, *lines = [json_of(line) for line in whole.splitlines()] or [None]
            if head is None and not content.startswith(self._line(self._head)[:len(content)]):
                raise ValueError("the first line is none of a sweep")
            if head is not None:
                self._check(head)
            for line in lines:
                self.done[line["case"]] = Done(line["key"], line["result"])
        except GraphError as error:
            raise GraphError(f"{self.path}: {error}") from None
        except (ValueError, KeyError, TypeError) as error:
            raise GraphError(f"{self.path}: no file of a sweep: {reason(error)}; needed: one, or a new file") from None
        self._cut(len(whole))
        if head is None:
            self._append(self._head)

    def _check(self, head: Any) -> None:
        """Refuse the first line of another sweep."""
        if not isinstance(head, dict) or head.get("kind") != self._head["kind"] or head.get("version") != VERSION or (
                not isinstance(head.get("about"), dict)):
            raise ValueError(f"the first line is none of {self._head['kind']}, version {VERSION}")
        if head["convreg"] != __version__:
            raise GraphError(f"holds results of convreg {head['convreg']}; needed: {__version__}, or a new file")
        theirs, ours = head["about"], self._head["about"]
        for name in dict.fromkeys([*ours, *theirs]):
            if theirs.get(name) != ours.get(name):
                raise GraphError(f"holds a sweep with {name}={shorten(theirs.get(name))}; needed: "
                                 f"{shorten(ours.get(name))}, or a new file")

    def _append(self, value: Any) -> None:
        line, end = memoryview(self._line(value)), self._file.seek(0, os.SEEK_END)
        try:
            while line:
                line = line[self._file.write(line) or 0:]
        except OSError as error:
            self._cut(end)
            raise GraphError(f"{self.path}: cannot be written: {reason(error)}") from None

    def _cut(self, end: int) -> None:
        self._file.truncate(end)

    @staticmethod
    def _line(value: Any) -> bytes:
        return json.dumps(value, allow_nan=False).encode() + b"\n"


def key_of(case: Any) -> str:
    """Return the SHA-256 of what a case is made of, in hexadecimal: plain values, records of them, and arrays."""
    return hashlib.sha256(json.dumps(_plain(case), sort_keys=True).encode()).hexdigest()


def _plain(value: Any) -> Any:
    """Return a value as JSON has it; arrays by their hashes."""
    if is_dataclass(value):
        return {entry.name: _plain(getattr(value, entry.name)) for entry in fields(value)}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {str(name): _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if value is None or isinstance(value, str | int | float):
        return value
    array = np.asarray(value)
    return {"dtype": str(array.dtype), "shape": list(array.shape), "sha256": digest(array)}
