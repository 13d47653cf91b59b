"""The .npz file of golden vectors: arrays that any NumPy reads, and a description.

Entries are ``input.NAME``, ``output.NAME``, ``reference.NAME`` and ``bound.NAME``; ``description`` is a JSON text.
Formats that NumPy lacks are stored as unsigned codes; the description names the format of every array and has its
SHA-256. The reference and the bound are for other programs: convreg computes them again from the inputs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import __version__
from ..archives import archive_of, digest, load_together, stored
from ..errors import GraphError, OpError
from ..files import PathLike, json_of, write_atomically
from ..memory import Array
from ..registry import get
from .calling import Parts, check_parts
from .data import format_name, named

if TYPE_CHECKING:
    from .record import Golden

KIND, VERSION = "convreg golden", 1
DESCRIPTION = "description"
REQUIRED = {"kind": str, "version": int, "convreg": str, "name": str, "op": str, "conformance": str | None,
            "attributes": dict, "fields": dict, "arrays": dict}
ARRAY = {"format": str, "shape": list, "sha256": str}


class Read(NamedTuple):
    """What a file holds, in the order of the fields of `Golden`."""

    name: str
    op: str
    attributes: dict[str, Any]
    conformance: str | None
    inputs: dict[str, Array]
    outputs: dict[str, Array]
    fields: dict[str, str]


def save(golden: Golden, path: PathLike) -> None:
    """Write golden vectors to a file; equal ones give equal bytes."""
    groups = {"input": golden.inputs, "output": golden.outputs}
    if get(golden.op).spec.convolves:  # others sum nothing, so there is no bound
        groups |= {"reference": golden.reference, "bound": golden.bound}
    arrays = {f"{group}.{name}": array for group, held in groups.items() for name, array in held.items()}
    text = json.dumps({
        "kind": KIND, "version": VERSION, "convreg": __version__, "name": golden.name, "op": golden.op,
        "conformance": golden.conformance, "attributes": dict(sorted(golden.attributes.items())),
        "fields": dict(golden.fields),
        "arrays": {name: {"format": format_name(array), "shape": list(array.shape), "sha256": digest(array)}
                   for name, array in arrays.items()}}, allow_nan=False)
    write_atomically(path, archive_of({DESCRIPTION: np.array(text),
                                       **{name: stored(array) for name, array in arrays.items()}}))


def is_golden(arrays: Mapping[str, Array]) -> bool:
    """Whether the arrays of an .npz file may be golden vectors."""
    return DESCRIPTION in arrays


def read(path: PathLike, arrays: dict[str, Array] | None = None) -> Read:
    """Return what a file holds, checked; `arrays` are its entries where they have been read.

    Raises
    ------
    GraphError
    """
    arrays = load_together(path, None) if arrays is None else dict(arrays)
    try:
        text = arrays.pop(DESCRIPTION, None)
        if text is None or text.ndim or text.dtype.kind != "U":
            raise GraphError(f"no golden vectors: needed is a text in the entry {DESCRIPTION!r}")
        about = json_of(str(text).encode())
        check_fields(about, REQUIRED, "the description")
        if about["kind"] != KIND or about["version"] != VERSION:
            raise GraphError(f"{about['kind']!r} version {about['version']}; needed: {KIND!r} version {VERSION}")
        held = _checked(arrays, about["arrays"])
        parts = Parts(about["op"], about["attributes"], about["conformance"], _group(held, "input"),
                      _group(held, "output"))
        check_parts(parts)
    except (GraphError, OpError, ValueError) as error:
        raise GraphError(f"{path}: {error}") from None
    return Read(about["name"], *parts, {name: str(value) for name, value in about["fields"].items()})


def check_fields(value: Any, required: Mapping[str, Any], what: str) -> None:
    """Refuse what is no JSON object with these keys, of values of these types."""
    if not isinstance(value, dict):
        raise GraphError(f"{what} is a {type(value).__name__}; needed: a JSON object")
    for name, kind in required.items():
        if name not in value:
            raise GraphError(f"{what} has no {name!r}; needed: {', '.join(required)}")
        if not isinstance(value[name], kind):
            raise GraphError(f"{name!r} of {what} is a {type(value[name]).__name__}; needed: "
                             f"{getattr(kind, '__name__', kind)}")


def check_array(array: Array, about: Mapping[str, Any], what: str) -> Array:
    """Return a stored array in its format, checked against what a description says of it."""
    try:
        found = named(array, about["format"])
    except GraphError as error:
        raise GraphError(f"{what}: {error}") from None
    if list(found.shape) != about["shape"]:
        raise GraphError(f"{what}: shape {list(found.shape)}; needed: {about['shape']}")
    if digest(found) != about["sha256"]:
        raise GraphError(f"{what}: SHA-256 {digest(found)}; needed: {about['sha256']}")
    return found


def _checked(arrays: dict[str, Array], about: dict[str, Any]) -> dict[str, Array]:
    """Return the arrays in the order and the formats of the description."""
    other = next((name for name in arrays.keys() ^ about.keys()), None)
    if other is not None:
        where = "the archive" if other in arrays else "the description"
        raise GraphError(f"entry {other!r} is only in {where}; needed: in both")
    found = {}
    for name, entry in about.items():
        check_fields(entry, ARRAY, f"the description of {name!r}")
        if not isinstance(arrays[name], np.ndarray):
            raise GraphError(f"entry {name!r} is no array")
        found[name] = check_array(arrays[name], entry, f"entry {name!r}")
    return found


def _group(arrays: Mapping[str, Array], group: str) -> dict[str, Array]:
    return {name.removeprefix(f"{group}."): array for name, array in arrays.items() if name.startswith(f"{group}.")}
