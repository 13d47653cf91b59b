"""Golden vectors in the folders of other tools: cases written one at a time, read back, and devices' results read.

    LAYOUTS         name -> description
    write           fills a folder with cases and a manifest
    load_case       returns a case of such a folder
    read_results    returns what a device wrote for a case
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from ...archives import digest, load_one, load_together
from ...calls.arguments import integer
from ...errors import GraphError, shorten
from ...files import PathLike, is_folder, new_folder, refuse_devices
from ...guard import guarded
from ...memory import Array
from ...paths import path_of
from ...spec import Rules
from .. import archive, manifest
from ..archive import check_array
from ..calling import ASK, Parts, check_parts, check_texts
from ..data import digest_of_file, format_name, named, read_content
from ..manifest import Entry, Manifest, Stored
from ..record import Golden, checked
from .base import Files, Layout, Row, write_bytes
from .bin import Bin
from .hipdnn import Hipdnn
from .npz import Npz
from .onnx import Onnx, read_tensor
from .ttk import Ttk

__all__ = ["LAYOUTS", "load_case", "read_results", "results_from", "write"]

_KINDS: dict[str, tuple[str, type[Layout]]] = {
    "npz": ("one .npz file per case, with the reference and the bound", Npz),
    "bin": ("raw bytes, a file per array; types and shapes are in the manifest", Bin),
    "onnx": ("folders of onnx's backend tests; the model is a node of convreg's domain", Onnx),
    "ttk": ("the Ascend operator test kit: data for replay and the table of the cases", Ttk),
    "hipdnn": ("bundles of hipDNN's integration tests", Hipdnn)}
LAYOUTS: dict[str, str] = {name: text for name, (text, _) in _KINDS.items()}
"""Name -> description."""


def layout_of(name: str) -> Layout:
    """Return a layout.

    Raises
    ------
    GraphError
        If there is none of that name.
    """
    if not isinstance(name, str) or name not in _KINDS:
        raise GraphError(f"layout {shorten(name)} is refused; allowed: {', '.join(_KINDS)}")
    return _KINDS[name][1]()


@guarded("convreg::golden")
def write(
    layout: str, folder: PathLike, goldens: Iterable[Golden], *, seed: int | None = None, fill: str | None = None,
    command: str = "", progress: Callable[[str], object] | None = None,
) -> Manifest:
    """Write golden vectors into a new folder, one at a time, and a manifest with the SHA-256 of every file.

    Parameters
    ----------
    layout : str
        A key of `LAYOUTS`.
    folder : path-like
        It does not exist, or is empty. It is filled at the end: after an exception it is as it was before.
    goldens : iterable of Golden
        Each is dropped before the next one is asked for.
    seed, fill, command
        How the vectors were made, for the manifest.
    progress : callable, optional
        Called with the name of every case that is written.

    Returns
    -------
    Manifest

    Raises
    ------
    OpTypeError
        If an argument has another type.
    GraphError
        If the folder holds something, a file cannot be written, two cases have one name, or the layout cannot express a
        case; also what the iterable raises.
    """
    kind = layout_of(layout)
    records = checked("goldens", goldens, Golden)
    if seed is not None:
        seed = integer(ASK, Rules(), "seed", seed)
    if fill is not None:
        check_texts(fill=fill)
    check_texts(command=command)
    with new_folder(folder, manifest.NAME) as root:
        cases: dict[str, Entry] = {}
        rows: list[Row] = []
        places = Places(kind, folder)
        for golden in records:
            name = golden.name
            cases[name], added = write_case(kind, golden, places.take(name), root)
            rows += added
            del golden  # before the next one is made
            if progress is not None:
                progress(name)
        made = close(kind, root, Manifest(layout, cases, {}, seed, fill, command), rows)
    return made


class Places:
    """The names that cases have in a folder, each taken once."""

    def __init__(self, kind: Layout, folder: PathLike) -> None:
        self._kind, self._folder = kind, folder
        self._taken = {kind.folder(name): f"the file {name}" for name in (manifest.NAME, *kind.root_files)}

    def take(self, name: str) -> str:
        """Return the name in the file system.

        Raises
        ------
        GraphError
            If another case or file has it.
        """
        place = self._kind.folder(name)
        if place in self._taken:
            raise GraphError(f"case {name!r} and {self._taken[place]} would both be {place!r} in {self._folder}; "
                             "needed: different names")
        self._taken[place] = f"case {name!r}"
        return place


def write_case(kind: Layout, golden: Golden, place: str, root: Path) -> tuple[Entry, list[Row]]:
    """Write a case into a folder; return what the manifest says of it, and its rows in the files of all cases."""
    files = kind.write(golden, place, root)
    return _entry(golden, files, kind, root), list(files.rows)


def close(kind: Layout, root: Path, made: Manifest, rows: Sequence[Row]) -> Manifest:
    """Write the files of all cases and the manifest, and return it with the hashes of these files."""
    kind.close(rows, root)
    whole = made._replace(files={name: digest_of_file(root / name) for name in kind.root_files
                                 if (root / name).is_file()})
    write_bytes(manifest.written(whole), root / manifest.NAME)
    return whole


def _entry(golden: Golden, files: Files, kind: Layout, root: Path) -> Entry:
    def stored(arrays: Mapping[str, Array], held: Mapping[str, str]) -> dict[str, Stored]:
        return {name: Stored(held[name], format_name(array), list(array.shape), digest(array))
                for name, array in arrays.items() if name in held}

    inputs, outputs = stored(golden.inputs, files.inputs), stored(golden.outputs, files.outputs)
    arrays = [*inputs.values(), *outputs.values()]
    hashes = {array.file: array.sha256 for array in arrays} if kind.raw else {}
    for file in dict.fromkeys([*(array.file for array in arrays), *files.others]):
        if file not in hashes:
            hashes[file] = digest_of_file(root / file)
    return Entry(golden.name, files.paths, golden.op, golden.conformance, dict(golden.attributes), dict(golden.fields),
                 inputs, outputs, hashes)


@guarded("convreg::golden")
def load_case(root: PathLike, name: str) -> Golden:
    """Return a case of a folder that `write` filled.

    Parameters
    ----------
    root : path-like
        The folder with the manifest.
    name : str
        The name of the case.

    Returns
    -------
    Golden

    Raises
    ------
    GraphError
        If there is no such case, an array differs from its SHA-256, dtype or shape in the manifest, or the arrays are
        none of a call of the operator.
    """
    return from_entry(path_of(root), *manifest.read_case(root, name))


def from_entry(root: Path, case: Entry, layout: str) -> Golden:
    """Return a case of a manifest that was read."""
    manifest.check_links(root, case)
    held = layout_of(layout).read(root, case)
    inputs = held.inputs | _checked(root, case.inputs, held.inputs)
    parts = Parts(case.op, case.attributes, case.conformance, inputs, _checked(root, case.outputs, held.outputs))
    try:
        check_parts(parts)
    except GraphError as error:
        raise GraphError(f"{root / manifest.NAME}: case {case.name!r} {error}") from None
    return Golden(case.name, *parts, case.fields)


def _checked(root: Path, entries: Mapping[str, Stored], arrays: Mapping[str, Array]) -> dict[str, Array]:
    found = {}
    for name, entry in entries.items():
        if name not in arrays:
            raise GraphError(f"{root / entry.file}: {name!r} is missing; needed: what the manifest names")
        found[name] = check_array(arrays[name], entry._asdict(), f"{root / entry.file}: {name!r}")
    return found


@guarded("convreg::golden")
def read_results(
    golden: Golden, path: PathLike, layout: str | None = None, *, many: bool = False
) -> dict[str, Array]:
    """Return what a device wrote for a case.

    Parameters
    ----------
    golden : Golden
        The case.
    path : path-like
        An .npz file keyed by the names of the outputs; an .npy, .bin or .pb file of the only output; or a folder with a
        file for each output, named as in the layout. Golden vectors of the same call, as `Golden.save` or `write` wrote
        them, are taken for results too.
    layout : str, optional
        A key of `LAYOUTS`; by default the names of all layouts are looked for, in the order of `LAYOUTS`.
    many : bool
        Whether a folder has results of several cases; the file of an output then carries the name of its case, or lies
        in the folder of its case.

    Returns
    -------
    dict
        Output -> array in the format and shape of the golden one.

    Raises
    ------
    OpTypeError
        If `golden` is none.
    GraphError
        If a file is missing, unreadable, of another dtype or shape, or belongs to another case; or if a folder has
        several files for an output.
    """
    if not isinstance(golden, Golden):
        raise ASK.refuse("golden", golden, "Golden vectors", wrong_type=True)
    place = path_of(path)
    if not is_folder(place):
        return _of_file(golden, place)
    kinds = [layout_of(name) for name in (_KINDS if layout is None else (layout,))]
    vectors = manifest.read_case(place, golden.name) if (place / manifest.NAME).is_file() else None
    own = None if vectors is None else vectors[0].files
    files = {output: _file_of(golden, output, place, kinds, many, own) for output in golden.outputs}
    if vectors is not None:
        return results_from(golden, from_entry(place, *vectors), place)
    if (first := next(iter(files.values()), "")) in _together(golden, kinds):
        return _of_file(golden, place / first)
    return {output: _one(golden, output, place / name) for output, name in files.items()}


def _together(golden: Golden, kinds: Sequence[Layout]) -> list[str]:
    """Return the names of files that hold all outputs."""
    return [f"{kind.folder(golden.name)}.npz" for kind in kinds]


def _file_of(
    golden: Golden, output: str, place: Path, kinds: Sequence[Layout], many: bool, own: Collection[str] | None
) -> str:
    """Return the name of the only file of a folder that holds an output.

    In a folder of golden vectors that is the manifest, and `own` are the files that it names.
    """
    names = [name for kind in kinds for name in _candidates(kind, golden, output, many)]
    files = [name for name in dict.fromkeys([*_together(golden, kinds), *names])
             if name not in (own or ()) and (place / name).is_file()]
    if own is not None:
        files.insert(0, manifest.NAME)
    if not files:
        raise GraphError(f"{place}: no file for output {output!r} of case {golden.name!r}; needed: one of "
                         f"{', '.join(dict.fromkeys(names))}")
    if len(files) > 1:
        raise GraphError(f"{place}: output {output!r} of case {golden.name!r} is in {' and in '.join(files)}; "
                         "needed: one of them")
    return files[0]


def _candidates(kind: Layout, golden: Golden, output: str, many: bool) -> list[str]:
    name = kind.folder(golden.name)
    try:
        several = kind.results_of_many(golden, name, output)
    except GraphError:  # the layout cannot express the case
        return []
    return several if many else [*several, *kind.results(golden, name, output)]


def _of_file(golden: Golden, path: Path) -> dict[str, Array]:
    """Return the results in a single file."""
    if path.suffix == ".npz":
        arrays = load_together(path, None)
        if archive.is_golden(arrays):
            return results_from(golden, Golden(*archive.read(path, arrays)), path)
        for name in arrays.keys() ^ golden.outputs.keys():
            what = "is no output" if name in arrays else "is missing"
            raise GraphError(f"{path}: {name!r} {what} of case {golden.name!r}; needed: {', '.join(golden.outputs)}")
        return {name: _fitting(golden, name, arrays[name], path) for name in golden.outputs}
    if len(golden.outputs) != 1:
        raise GraphError(f"{path}: a file of one array; needed: results for {', '.join(golden.outputs)}")
    (output,) = golden.outputs
    return {output: _one(golden, output, path)}


def _one(golden: Golden, output: str, path: Path) -> Array:
    """Return the result in a file of one array."""
    try:
        refuse_devices(path)
    except ValueError as error:
        raise GraphError(f"{path}: {error}") from None
    wanted = golden.outputs[output]
    if path.suffix == ".npy":
        return _fitting(golden, output, load_one(path), path)
    if path.suffix == ".bin":
        return read_content(path, format_name(wanted), wanted.shape)
    if path.suffix == ".pb":
        return _fitting(golden, output, read_tensor(path, format_name(wanted)), path)
    raise GraphError(f"{path}: a file of unknown kind; needed: .npz, .npy, .bin or .pb")


def _fitting(golden: Golden, output: str, array: Array, path: Path) -> Array:
    """Return a result in the format of its output; refuse another dtype or shape."""
    wanted = golden.outputs[output]
    if not hasattr(array, "dtype") or array.shape != wanted.shape:
        shape = list(array.shape) if hasattr(array, "shape") else "none"
        raise GraphError(f"{path}: output {output!r} has shape {shape}; needed: {list(wanted.shape)}")
    try:
        native = array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
        if wanted.dtype == np.float16 and native.dtype == np.uint16:  # codes, which results may be in 8 and 16 bits
            return native.view(np.float16)
        return named(native, format_name(wanted))
    except GraphError as error:
        raise GraphError(f"{path}: output {output!r} has {error}") from None


def results_from(golden: Golden, other: Golden, path: Path) -> dict[str, Array]:
    """Return the outputs of other golden vectors as results.

    Parameters
    ----------
    golden : Golden
        The vectors that results are wanted for.
    other : Golden
        Vectors that were read from a file, such as those of another device.
    path : path-like
        The file, which the error names.

    Returns
    -------
    dict of str to array

    Raises
    ------
    GraphError
        If the other vectors have another call or other inputs.
    """
    mine, theirs = ((each.op, dict(each.attributes), each.conformance) for each in (golden, other))
    same = mine == theirs and golden.inputs.keys() == other.inputs.keys() and all(
        format_name(array) == format_name(other.inputs[name]) and array.shape == other.inputs[name].shape
        and digest(array) == digest(other.inputs[name]) for name, array in golden.inputs.items())
    if not same:
        raise GraphError(f"{path}: holds case {other.name!r} with another call or other inputs; needed: case "
                         f"{golden.name!r}")
    return {name: _fitting(golden, name, other.outputs[name], path) for name in golden.outputs}
