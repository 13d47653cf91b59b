"""Reading and writing of files. A failure is one sentence and never leaves a partial file."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from shutil import rmtree
from stat import S_ISDIR
from typing import Any, BinaryIO

from .errors import GraphError, shorten
from .memory import physical_memory
from .paths import path_of

PathLike = str | os.PathLike[str]
Write = Callable[[BinaryIO], object]
"""Writes the content of a file."""


def read_bytes(path: PathLike) -> bytes:
    """Return a file's content.

    Raises
    ------
    GraphError
        If it cannot be read.
    """
    with reading(path) as file:
        if (size := size_of(file)) > physical_memory():
            raise ValueError(f"{size} bytes are more than the memory holds")
        return file.read()


@contextmanager
def reading(path: PathLike) -> Iterator[BinaryIO]:
    """Open a regular file for the block, and name the path in errors of the operating system.

    Raises
    ------
    GraphError
        If the file cannot be read, or the block raises `OSError` or `ValueError`.
    """
    file = path_of(path)
    try:
        refuse_devices(file)
        with file.open("rb") as stream:
            yield stream
    except GraphError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise GraphError(f"{file}: cannot be read: {reason(error)}") from None


def size_of(file: BinaryIO) -> int:
    """Return the number of bytes in an open file."""
    return os.fstat(file.fileno()).st_size


def json_of(content: bytes) -> Any:
    """Return the value of a JSON document.

    Raises
    ------
    ValueError
        If it is none. A `GraphError`, if an object has a key twice or a number is NaN or infinite: the standard has
        neither, and readers differ in what they make of it.
    """
    try:
        return json.loads(content, object_pairs_hook=_unique, parse_constant=_not_finite)
    except RecursionError as error:
        raise ValueError(reason(error)) from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise GraphError(f"key {key!r} occurs twice in one object")
        found[key] = value
    return found


def _not_finite(text: str) -> Any:
    raise GraphError(f"{text} is not a JSON number")


def write_atomically(path: PathLike, write: Write) -> None:
    """Let `write` fill a temporary file beside `path`, then rename it: readers see the old file or the whole new one.

    Raises
    ------
    GraphError
        If the file cannot be written.
    """
    write_together([(path, write)])


def write_together(files: Iterable[tuple[PathLike, Write]], folder: PathLike | None = None) -> None:
    """Write files as `write_atomically` does, all or none; `folder` is made first where it is missing.

    Raises
    ------
    GraphError
        If a file cannot be written, or the folder cannot be made.
    """
    with ExitStack() as undo:
        if folder is not None:
            make_folder(path_of(folder), undo)
        filled = []
        for path, write in files:
            target = path_of(path)
            with _writing(target):
                target = target.resolve()  # a link keeps pointing to its file
                refuse_devices(target)
                filled.append((_filled(target, write, undo), target))
        for temporary, target in filled:
            with _writing(target):
                os.replace(temporary, target)
        undo.pop_all()


@contextmanager
def new_folder(path: PathLike, last: str) -> Iterator[Path]:
    """Give the block a temporary folder; what it writes there stands in `path` afterwards, or nothing does.

    Parameters
    ----------
    path : path-like
        A folder that does not exist or is empty.
    last : str
        The entry that is moved last: where it stands, all stands.

    Raises
    ------
    GraphError
        If the folder cannot be made, or holds something.
    """
    target = path_of(path)
    with ExitStack() as undo:
        make_folder(target, undo)
        with _writing(target, "filled"):
            if (held := next(target.iterdir(), None)) is not None:
                raise GraphError(f"{target}: holds {held.name!r}; needed: a new or empty folder")
            temporary = Path(tempfile.mkdtemp(prefix=".convreg.", dir=target))
        undo.callback(rmtree, temporary, ignore_errors=True)
        yield temporary
        with _writing(target, "filled"):
            for entry in sorted(temporary.iterdir(), key=lambda entry: (entry.name == last, entry.name)):
                moved = target / entry.name
                undo.callback(_remove, moved)
                os.rename(entry, moved)
            temporary.rmdir()
        undo.pop_all()


def is_folder(path: Path) -> bool:
    """Whether a path is a folder.

    Raises
    ------
    GraphError
        If it does not exist.
    """
    try:
        return S_ISDIR(path.stat().st_mode)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise GraphError(f"{path}: cannot be read: {reason(error)}") from None


def _remove(path: Path) -> None:
    _ignore_errors(lambda: rmtree(path) if path.is_dir() else path.unlink())


@contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """Open a new file of such a folder for the block, and make its folder.

    Raises
    ------
    GraphError
        If it cannot be written.
    """
    with _writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            yield file


def make_folder(folder: Path, undo: ExitStack) -> None:
    """Make a folder and those above it; `undo` removes those that are empty again.

    Raises
    ------
    GraphError
        If it cannot be made.
    """
    with _writing(folder, "made"):
        for missing in [path for path in (*reversed(folder.parents), folder) if not path.exists()]:
            undo.callback(_ignore_errors, missing.rmdir)
        folder.mkdir(parents=True, exist_ok=True)


def _filled(target: Path, write: Write, undo: ExitStack) -> str:
    """Return the name of a temporary file beside `target` that holds what `write` writes."""
    descriptor, name = tempfile.mkstemp(prefix=".convreg.", dir=target.parent)
    undo.callback(_ignore_errors, lambda: os.unlink(name))
    with os.fdopen(descriptor, "wb") as file:
        write(file)
    os.chmod(name, 0o666 & ~_umask())  # mkstemp's files are the owner's alone
    return name


def _ignore_errors(clean: Callable[[], object]) -> None:
    with suppress(OSError, ValueError):  # ValueError: a NUL in the path
        clean()


@contextmanager
def _writing(path: Path, what: str = "written") -> Iterator[None]:
    """Name the path in errors of the operating system."""
    try:
        yield
    except GraphError:
        raise
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: links that form a circle
        raise GraphError(f"{path}: cannot be {what}: {reason(error)}") from None


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
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: links that form a circle
        given = repr(os.fspath(path)) if isinstance(path, str | os.PathLike) else shorten(path)
        raise GraphError(f"{argument}={given} is refused: {reason(error)}; allowed: a file, new or not, in a folder "
                         "that exists and takes files") from None


def refuse_devices(path: Path) -> None:
    """Raise `ValueError` for a device, which may never end when it is read, and must not be renamed over."""
    if path.exists() and not path.is_file():
        raise ValueError("not a regular file")


def _umask() -> int:
    """The process's mask. Where the system does not tell it, it can only be read by setting it, for all threads."""
    with suppress(OSError), open("/proc/self/status", "rb") as status:
        for line in status:
            if line.startswith(b"Umask:"):
                return int(line.split()[1], 8)
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def reason(error: BaseException) -> str:
    """Return an exception's message as one line, without the path that an `OSError` repeats."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text.split()) or type(error).__name__
