"""What all layouts share: names of folders, and arrays in files of raw bytes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from ...errors import GraphError
from ...files import writing
from ...memory import Array
from ..data import read_content, write_content
from ..manifest import Entry, Stored

if TYPE_CHECKING:
    from ..record import Golden

LONGEST, CUT = 120, 96
"""Characters of a name that is taken as it is, and of the part of a longer one that is kept."""


Row = tuple[str, dict[str, str]]


class Files(NamedTuple):
    """Where a layout wrote a case: what belongs to the case alone, the files of its arrays, and other files.

    An input without a file is one that `Layout.read` knows without it. `rows` are the case's lines in the files of all
    cases, `Layout.root_files`: the name of the file and the cells by column.
    """

    paths: list[str]
    inputs: dict[str, str]
    outputs: dict[str, str]
    others: list[str]
    rows: Sequence[Row] = ()


class Arrays(NamedTuple):
    """The arrays of a case, read from its files."""

    inputs: dict[str, Array]
    outputs: dict[str, Array]


class Layout:
    """How golden vectors lie in a folder.

    `root_files` are the files beside the cases that it may write. `raw` says that every
    array has a file of its own with nothing but its bytes.
    """

    name: ClassVar[str]
    raw: ClassVar[bool] = False
    root_files: ClassVar[tuple[str, ...]] = ()

    def folder(self, name: str) -> str:
        """Return the name that a case has in the file system."""
        return safe_name(name)

    def write(self, golden: Golden, name: str, root: Path) -> Files:
        """Write a case.

        Raises
        ------
        GraphError
            If the layout cannot express it, or a file cannot be written.
        """
        raise NotImplementedError

    def close(self, rows: Sequence[Row], root: Path) -> None:
        """Write the files of `root_files` with the rows of all cases in order, after the last case."""

    def read(self, root: Path, case: Entry) -> Arrays:
        """Return the arrays of a case.

        Raises
        ------
        GraphError
        """
        def of(held: Mapping[str, Stored]) -> dict[str, Array]:
            return {name: read_content(root / array.file, array.format, array.shape) for name, array in held.items()}

        return Arrays(of(case.inputs), of(case.outputs))

    def results(self, golden: Golden, name: str, output: str) -> list[str]:
        """Return the files that may hold a device's result, in the folder of a case."""
        raise NotImplementedError

    def results_of_many(self, golden: Golden, name: str, output: str) -> list[str]:
        """Return the files that may hold a device's result, in a folder with results of other cases."""
        return [f"{name}/{file}" for file in self.results(golden, name, output)]


def safe_name(name: str) -> str:
    """Return the name of a case's folder, as the Ascend test kit forms it.

    A name of at most 120 letters, digits, ``_``, ``.`` and ``-`` that neither begins nor ends with ``.`` or ``_`` stays
    as it is. In others each run of other characters becomes ``_``, and the SHA-256 of the name makes them different.
    """
    if re.fullmatch(r"[A-Za-z0-9_.-]+", name) and name == name.strip("._") and len(name) <= LONGEST:
        return name
    stem = re.sub(r"[^A-Za-z0-9_.-]+", "_", name).strip("._")[:CUT] or "case"
    return f"{stem}-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"


def write_array(array: Array, path: Path) -> None:
    """Write the bytes of an array to a new file."""
    with writing(path) as file:
        write_content(array, file)


def write_bytes(content: bytes, path: Path) -> None:
    """Write a new file."""
    with writing(path) as file:
        file.write(content)


def refuse(golden: Golden, layout: str, has: str, needed: str) -> GraphError:
    """Return the exception for a case that a layout cannot express."""
    return GraphError(f"case {golden.name!r} cannot be written as {layout}: {has}; needed: {needed}")
