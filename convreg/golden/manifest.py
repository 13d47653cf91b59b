"""The manifest of a folder of golden vectors: every case and file with its SHA-256, and how all was made."""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from .. import __version__
from ..errors import GraphError, shorten
from ..files import PathLike, json_of, read_bytes, reason
from ..memory import span
from ..paths import path_of
from .archive import ARRAY, check_fields
from .data import dtype_of

NAME = "manifest.json"
KIND, VERSION = "convreg golden manifest", 1
REQUIRED = {"kind": str, "version": int, "layout": str, "seed": int | None, "fill": str | None, "command": str,
            "versions": dict, "files": dict, "cases": list}
CASE = {"name": str, "paths": list, "op": str, "conformance": str | None, "attributes": dict, "fields": dict,
        "inputs": dict, "outputs": dict, "files": dict}


class Stored(NamedTuple):
    """An array in a file of the folder; the hash is that of the array's bytes."""

    file: str
    format: str
    shape: list[int]
    sha256: str


class Entry(NamedTuple):
    """A case: the files and folders that hold nothing else, its call, its arrays, and the hashes of its files.

    `fields` is the record of the case in the source that it was read from.
    """

    name: str
    paths: list[str]
    op: str
    conformance: str | None
    attributes: dict[str, Any]
    fields: dict[str, str]
    inputs: dict[str, Stored]
    outputs: dict[str, Stored]
    files: dict[str, str]


class Manifest(NamedTuple):
    """What a folder of golden vectors holds, and how it was made: by which seed, fill and command."""

    layout: str
    cases: dict[str, Entry]
    files: dict[str, str]
    seed: int | None = None
    fill: str | None = None
    command: str = ""

    def case(self, name: str) -> Entry:
        """Return a case by its name.

        Raises
        ------
        GraphError
        """
        if not isinstance(name, str) or name not in self.cases:
            known = ", ".join(map(repr, list(self.cases)[:10])) + (", ..." if len(self.cases) > 10 else "")
            raise GraphError(f"no case {shorten(name)}; the manifest has {known or 'none'}")
        return self.cases[name]


def written(manifest: Manifest) -> bytes:
    """Return the content of the file."""
    cases = [object_of(case) for case in manifest.cases.values()]
    return json.dumps({
        "kind": KIND, "version": VERSION, "layout": manifest.layout, "seed": manifest.seed, "fill": manifest.fill,
        "command": manifest.command,
        "versions": {"convreg": __version__, "numpy": np.__version__, "ml_dtypes": ml_dtypes.__version__},
        "files": manifest.files, "cases": cases}, indent=1, allow_nan=False).encode() + b"\n"


def object_of(case: Entry) -> dict[str, Any]:
    """Return what the file says of a case."""
    def arrays(held: Mapping[str, Stored]) -> dict[str, Any]:
        return {name: array._asdict() for name, array in held.items()}

    return {**case._asdict(), "inputs": arrays(case.inputs), "outputs": arrays(case.outputs)}


def entry_of(held: Any) -> Entry:
    """Return the record that `object_of` made, from JSON.

    Raises
    ------
    GraphError
        If it is none of these.
    """
    check_fields(held, CASE, "a case")
    if not held["paths"]:
        raise GraphError(f"case {held['name']!r} has no paths; needed: one or more")
    return Entry(**{**{name: held[name] for name in Entry._fields}, "paths": [_inside(each) for each in held["paths"]],
                    "fields": {name: str(value) for name, value in held["fields"].items()},
                    "inputs": _arrays(held["inputs"]), "outputs": _arrays(held["outputs"])})


def read(root: PathLike) -> Manifest:
    """Return the manifest of a folder.

    Raises
    ------
    GraphError
        If there is none, or it is damaged.
    """
    path = path_of(root) / NAME
    content = read_bytes(path)
    try:
        return _manifest_of(content)
    except ValueError as error:  # GraphError is one
        raise GraphError(f"{path}: {error}") from None


def read_case(root: PathLike, name: str) -> tuple[Entry, str]:
    """Return a case of a folder's manifest, and the layout of the folder.

    The manifest is checked again only if its content is another than at the last call. Without that, reading all cases
    of a folder one by one would check all cases for each of them.

    Raises
    ------
    GraphError
        As `read`; or if there is no such case.
    """
    path = path_of(root) / NAME
    content = read_bytes(path)
    try:
        known = _last_manifest_of(content)
        return deepcopy(known.case(name)), known.layout
    except ValueError as error:
        raise GraphError(f"{path}: {error}") from None


def _manifest_of(content: bytes) -> Manifest:
    """Return the manifest with this content; raise `ValueError` for other content."""
    about = json_of(content)
    check_fields(about, REQUIRED, "the manifest")
    if about["kind"] != KIND or about["version"] != VERSION:
        raise GraphError(f"{about['kind']!r} version {about['version']}; needed: {KIND!r} version {VERSION}")
    cases = {}
    for entry in about["cases"]:
        case = entry_of(entry)
        if case.name in cases:
            raise GraphError(f"case {case.name!r} occurs twice; needed: different names")
        cases[case.name] = case
    return Manifest(about["layout"], cases, about["files"], about["seed"], about["fill"], about["command"])


_last_manifest_of = lru_cache(maxsize=1)(_manifest_of)


def _arrays(entries: Mapping[str, Any]) -> dict[str, Stored]:
    found = {}
    for name, entry in entries.items():
        check_fields(entry, {"file": str, **ARRAY}, f"the array {name!r}")
        shape, itemsize = entry["shape"], dtype_of(entry["format"]).itemsize
        if len(shape) > 32 or not all(type(extent) is int and extent >= 0 for extent in shape) or \
                span(shape, itemsize) >= 2**63:
            raise GraphError(f"the array {name!r} has the shape {shorten(shape)}; needed: at most 32 integers, none "
                             "below 0, that make less than 2**63 bytes without those of 0")
        found[name] = Stored(_inside(entry["file"]), entry["format"], shape, entry["sha256"])
    return found


def _inside(path: Any) -> str:
    """Return a path of the manifest, refused where it leaves the folder."""
    if not isinstance(path, str) or not path or "\0" in path or Path(path).is_absolute() or ".." in Path(path).parts:
        raise GraphError(f"the path {path!r} leaves the folder; needed: a path inside it")
    return path


def check_links(root: Path, case: Entry) -> None:
    """Refuse a case of which a file is a link that leads out of the folder.

    Raises
    ------
    GraphError
        It names the file.
    """
    files = [*case.paths, *(array.file for array in (*case.inputs.values(), *case.outputs.values()))]
    for file in dict.fromkeys(files):
        path = root / file
        try:
            inside = path.resolve().is_relative_to(root.resolve())
        except (OSError, RuntimeError, ValueError) as error:  # circles of links, names that are too long or no text
            raise GraphError(f"{path}: cannot be read: {reason(error)}") from None
        if not inside:
            raise GraphError(f"{path} is a link that leads out of the folder; needed: a file of the folder")


def root_of(path: PathLike) -> tuple[Path, str | None] | None:
    """Return the folder with the manifest that a path belongs to, and the case at the path if it is one.

    None means that neither the path nor a folder above it has a manifest.
    """
    place = path_of(path).resolve()
    if (place / NAME).is_file():
        return place, None
    for root in place.parents:
        if (root / NAME).is_file():
            inside = place.relative_to(root).as_posix()
            name = next((case.name for case in read(root).cases.values() if inside in case.paths), None)
            return None if name is None else (root, name)
    return None
