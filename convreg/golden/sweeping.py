"""`sweep`: a folder of golden vectors made by a cluster or by this process, which goes on where it was interrupted.

What is done waits in a folder inside of the one that is filled: the files of finished cases, and a file with a line for
each of them. When all are done, everything moves to its place, the manifest last.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from ..calls.arguments import integer
from ..distributed.journal import Journal, key_of
from ..distributed.sizes import Sizes, hollow, sizes_of
from ..distributed.sweep import Task, named
from ..distributed.sweep import sweep as results_of
from ..errors import GraphError, OpError, UnknownOp
from ..files import PathLike, make_folder, reason, write_together
from ..formats import FORMATS
from ..guard import guarded, thread_count
from ..paths import path_of
from ..progress import Progress
from ..registry import resolve
from ..spec import Rules
from . import manifest
from .calling import ASK, check_texts
from .data import digest_of_file
from .layouts import Places, close, layout_of, write_case
from .layouts.base import Layout, Row
from .manifest import Entry, Manifest
from .record import Case, checked

WORK = ".convreg.sweep"
"""The folder of what is done, inside of the one that is filled."""
DONE, FILES = "done.jsonl", "files"
KIND = "convreg golden vectors"
PER_OPERAND, PER_RESULT = 32, 80
"""Bytes for each element of operands and results: as they are and in float64, the reference and the bound with the
arrays that they are computed of, and the content of the files."""


class Made(NamedTuple):
    """A case as a worker made it: what the manifest says of it, its rows, and the content of its files."""

    entry: Entry
    rows: list[Row]
    contents: dict[str, bytes]


@guarded("convreg::golden")
def sweep(
    cases: Iterable[Case], folder: PathLike, layout: str = "npz", *, seed: int = 0, fill: str = "normal",
    command: str = "", client: Any = None, threads: int | None = None, progress: Progress | None = None,
) -> Manifest:
    """Make golden vectors of many cases and write them into a folder, as `layouts.write` does, with the same bytes.

    Parameters
    ----------
    cases : iterable of Case
    folder : path-like
        A folder that does not exist or is empty, or one that the same sweep began: then only the cases that are missing
        are made. In a folder that the same sweep filled there is nothing to do.
    layout : str
        A key of `layouts.LAYOUTS`.
    seed, fill
        As for `Case.make`.
    command : str
        For the manifest.
    client : distributed.Client or str, optional
        The cluster that makes the cases, one task each: a client of Dask, the address of a scheduler, or ``"local:N"``
        for N processes on this machine. Without it this process makes one after the other. The files are equal. Workers
        write nothing: their results come here as bytes.
    threads : int, optional
        Threads for the kernels of a case; by default the processors of a host divided among its tasks. The files do not
        depend on it.
    progress : callable, optional
        Called with the number of cases done, of all, and a name.

    Returns
    -------
    Manifest

    Raises
    ------
    OpError, OpTypeError, UnknownOp
        What the calls raise, with a note that names the case; calls that are refused are so before anything is made. Or
        if the cluster is refused or lost, or no worker has the memory for a case.
    GraphError
        If the folder holds something else, a file cannot be written, two cases have one name, or the layout cannot
        express a case; or if a cluster is named and dask is not installed. Cases that are done stay, for the next call.
    """
    thread_count(ASK, threads)
    kind, root, work = layout_of(layout), path_of(folder), path_of(folder) / WORK
    known: dict[str, Case] = {}
    places, taken = Places(kind, folder), {}
    seed = integer(ASK, Rules(), "seed", seed)
    check_texts(fill=fill, command=command)
    for case in checked("cases", cases, Case):
        taken[case.name] = places.take(case.name)
        known[case.name] = case
    wanted = Manifest(layout, {}, {}, seed, fill, command)
    if os.path.isfile(root / manifest.NAME):  # a name that is too long is none
        held = _finished(root, wanted, known)
        rmtree(work, ignore_errors=True)
        return held
    tasks = [Task(name, (layout, case, taken[name], seed, fill), _bytes_of(case, threads))
             for name, case in known.items()]
    with ExitStack() as undo:
        _begin(root, work, undo)
        about = {"layout": layout, "seed": seed, "fill": fill, "command": command}
        with Journal(work / DONE, KIND, about) as journal:
            _gather(root, work)
            keys = {name: key_of(case) for name, case in known.items()}
            entries = {name: found for name, key in keys.items()
                       if (found := journal.made(name, key, partial(_held, work))) is not None}
            waiting = [task for task in tasks if task.name not in entries]
            if entries:
                undo.pop_all()  # they stay, whatever happens to the others
            for task, result in results_of(made, waiting, client, ASK, threads=threads, progress=progress):
                _write(result.contents, work / FILES)
                journal.add(task.name, keys[task.name],
                            {"entry": manifest.object_of(result.entry), "rows": result.rows})
                entries[task.name] = result.entry, result.rows
                undo.pop_all()
        whole = _close(kind, work / FILES, wanted._replace(cases={name: entries[name][0] for name in known}),
                       [row for name in known for row in entries[name][1]])
        undo.pop_all()
    _move(work / FILES, root)
    rmtree(work, ignore_errors=True)
    return whole


def made(threads: int | None, layout: str, case: Case, place: str, seed: int, fill: str) -> Made:
    """Make one case and return its files; runs in a worker, too."""
    golden = case.make(seed=seed, fill=fill, threads=threads)
    with TemporaryDirectory(prefix="convreg.") as name:
        root = Path(name)
        entry, rows = write_case(layout_of(layout), golden, place, root)
        contents = {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(root.rglob("*"))
                    if path.is_file()}
    return Made(entry, rows, contents)


def _bytes_of(case: Case, threads: int | None) -> int:
    """Return the memory that a case takes at most; refuse a call that its operator refuses, and name the case."""
    tensors = {name: operand.values if operand.values is not None and operand.format not in FORMATS else
               hollow(operand.shape, FORMATS[operand.format].dtype if operand.format in FORMATS else operand.format)
               for name, operand in case.inputs.items()}
    chosen = {} if case.conformance is None else {"conformance": case.conformance}
    try:
        sizes: Sizes = sizes_of(resolve(case.op), (), {**tensors, **case.attributes, **chosen}, threads)
    except (OpError, UnknownOp) as error:
        raise named(error, case.name) from None
    return PER_OPERAND * sum(sizes.operands) + PER_RESULT * sum(sizes.results) + 2 * sizes.workspace


def _finished(root: Path, wanted: Manifest, cases: Mapping[str, Case]) -> Manifest:
    """Return the manifest of a folder that the same sweep filled; refuse others."""
    held = manifest.read(root)
    for field in ("layout", "seed", "fill", "command"):
        if getattr(held, field) != getattr(wanted, field):
            raise GraphError(f"{root}: holds golden vectors with {field}={getattr(held, field)!r}; needed: "
                             f"{getattr(wanted, field)!r}, or a new or empty folder")
    same = list(held.cases) == list(cases) and all(_alike(entry, cases[name]) for name, entry in held.cases.items())
    if not same:
        raise GraphError(f"{root}: holds golden vectors of other cases; needed: a new or empty folder")
    return held


def _alike(entry: Entry, case: Case) -> bool:
    """Whether the manifest's record may be that of a case."""
    inputs = {name: (held.format, held.shape) for name, held in entry.inputs.items()}
    return (entry.op, entry.conformance, entry.fields) == (
        resolve(case.op).spec.qualified_name, case.conformance, dict(case.fields)) and all(
        inputs.get(name, (operand.format, list(operand.shape))) == (operand.format, list(operand.shape))
        for name, operand in case.inputs.items())


def _begin(root: Path, work: Path, undo: ExitStack) -> None:
    """Make the folders of a sweep; what is made here is removed again unless a case is done."""
    make_folder(root, undo)
    try:
        other = next((entry.name for entry in root.iterdir() if entry.name != WORK), None)
        if other is not None and not (work / DONE).is_file():
            raise GraphError(f"{root}: holds {other!r}; needed: a new or empty folder, or one that the same sweep "
                             "began")
        if not work.exists():
            undo.callback(rmtree, work, ignore_errors=True)
        (work / FILES).mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:  # ValueError: a GraphError, or a NUL in the path
        if isinstance(error, GraphError):
            raise
        raise GraphError(f"{root}: cannot be filled: {reason(error)}") from None


def _gather(root: Path, work: Path) -> None:
    """Take back what an interrupted end of a sweep had moved to its place already."""
    for entry in root.iterdir():
        if entry.name != WORK and not (work / FILES / entry.name).exists():
            os.rename(entry, work / FILES / entry.name)


def _held(work: Path, result: Any) -> tuple[Entry, list[Row]] | None:
    """Return a case that is done, None if its files are not what they were."""
    entry = manifest.entry_of(result["entry"])
    with suppress(GraphError):
        if all(digest_of_file(work / FILES / name) == hash for name, hash in entry.files.items()):
            return entry, [(table, cells) for table, cells in result["rows"]]
    return None


def _write(contents: Mapping[str, bytes], root: Path) -> None:
    """Write the files of a case, all or none."""
    for folder in {(root / name).parent for name in contents}:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise GraphError(f"{folder}: cannot be made: {reason(error)}") from None
    write_together((root / name, lambda file, content=content: file.write(content))  # type: ignore[misc]
                   for name, content in contents.items())


def _close(kind: Layout, files: Path, made: Manifest, rows: list[Row]) -> Manifest:
    """Write the files of all cases and the manifest, in place of those that an interruption left."""
    for name in (*kind.root_files, manifest.NAME):
        (files / name).unlink(missing_ok=True)
    return close(kind, files, made, rows)


def _move(files: Path, root: Path) -> None:
    """Move everything to its place, the manifest last."""
    for entry in sorted(files.iterdir(), key=lambda entry: (entry.name == manifest.NAME, entry.name)):
        try:
            os.rename(entry, root / entry.name)
        except OSError as error:
            raise GraphError(f"{root / entry.name}: cannot be written: {reason(error)}") from None
