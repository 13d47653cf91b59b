"""Reading and writing of files. A failure is one sentence and never leaves a partial file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from convreg import GraphError
from convreg.outputs import physical_memory
from convreg.paths import path_of

PathLike = str | os.PathLike[str]


def read_bytes(path: PathLike) -> bytes:
    """Return a file's content.

    Raises
    ------
    GraphError
        If it cannot be read.
    """
    file = path_of(path)
    try:
        refuse_devices(file)
        size = file.stat().st_size
        if size > physical_memory():
            raise ValueError(f"{size} bytes are more than the memory holds")
        return file.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise GraphError(f"{file}: cannot be read: {reason(error)}") from None


def write_atomically(path: PathLike, write: Callable[[BinaryIO], object]) -> None:
    """Let `write` fill a temporary file beside `path`, then rename it: readers see the old file or the whole new one.

    Raises
    ------
    GraphError
        If the file cannot be written.
    """
    target = path_of(path)
    try:
        target = target.resolve()  # a link keeps pointing to its file
        refuse_devices(target)
        descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                write(file)
            os.chmod(name, 0o666 & ~_umask())  # mkstemp's files are the owner's alone
            os.replace(name, target)
        except BaseException:
            os.unlink(name)
            raise
    except (OSError, ValueError) as error:
        raise GraphError(f"{target}: cannot be written: {reason(error)}") from None


def refuse_unwritable(argument: str, path: PathLike) -> None:
    """Raise ahead of long work where `write_atomically` would fail after it.

    Raises
    ------
    GraphError
        It names the argument.
    """
    try:
        target = path_of(path).resolve()
        refuse_devices(target)
        tempfile.TemporaryFile(dir=target.parent).close()
    except (OSError, ValueError) as error:
        raise GraphError(f"{argument}={os.fspath(path)!r} is refused: {reason(error)}; allowed: a file, new or not, in "
                         "a folder that exists and takes files") from None


def refuse_devices(path: Path) -> None:
    """Raise `ValueError` for a device, which may never end when it is read, and must not be renamed over."""
    if path.exists() and not path.is_file():
        raise ValueError("not a regular file")


def _umask() -> int:
    """The process's mask, which can only be read by setting it."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def reason(error: BaseException) -> str:
    """Return an exception's message as one line, without the path that an `OSError` repeats."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text.split()) or type(error).__name__
