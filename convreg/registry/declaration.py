"""Checks of a declaration before anything is derived from it."""

from __future__ import annotations

import keyword
from collections.abc import Iterable, Mapping
from typing import Any, get_args

from ..errors import Asking
from ..formats import FORMATS
from ..spec import Attribute, Kind, OpSpec, Port, snake_case

RESERVED = ("conformance", "out", "threads", "scales")
"""Arguments that every function may have besides its operator's own."""

_asking = Asking("convreg::register")


def check_declaration(spec: Any, taken: Iterable[str]) -> None:
    """Refuse what is no complete declaration; `taken` are names that a vendor may not have.

    Raises
    ------
    OpError, OpTypeError
        They name the field of the declaration.
    """
    if not isinstance(spec, OpSpec):
        raise _asking.refuse("spec", spec, "an OpSpec", wrong_type=True)
    for field in ("vendor", "name"):
        _check_name(field, getattr(spec, field))
    if spec.vendor in taken:
        raise _asking.refuse("vendor", spec.vendor, "a name that no part of convreg has")
    if isinstance(spec.since_version, bool) or not isinstance(spec.since_version, int) or spec.since_version < 1:
        raise _asking.refuse("since_version", spec.since_version, "an integer from 1 on", wrong_type=True)
    for field in ("doc", "source", "domain"):
        if not isinstance(getattr(spec, field), str):
            raise _asking.refuse(field, getattr(spec, field), "a string", wrong_type=True)
    for field in ("plan", "run", "infer"):
        if not callable(getattr(spec, field)):
            raise _asking.refuse(field, getattr(spec, field), "a function", wrong_type=True)
    _check_entries("conformances", spec.conformances, str, least=1)
    _check_entries("inputs", spec.inputs, Port)
    _check_entries("outputs", spec.outputs, Port, least=1)
    _check_entries("attributes", spec.attributes, Attribute)
    _check_arguments(spec)
    _check_types(spec)


def _check_name(field: str, name: Any) -> None:
    if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
        raise _asking.refuse(field, name, "a Python identifier", wrong_type=not isinstance(name, str))


def _check_entries(field: str, entries: Any, kind: type, least: int = 0) -> None:
    if not isinstance(entries, tuple) or len(entries) < least or not all(isinstance(entry, kind) for entry in entries):
        count = "one or more" if least else "any number"
        raise _asking.refuse(field, entries, f"a tuple of {kind.__name__}, {count}", wrong_type=True)


def _check_arguments(spec: OpSpec) -> None:
    """Refuse names that stand for two things in a call."""
    seen: dict[str, str] = {}
    for field, entries in (("inputs", spec.inputs), ("outputs", spec.outputs), ("attributes", spec.attributes)):
        for entry in entries:
            _check_name(field, entry.name)
            name = snake_case(entry.name)
            if name in RESERVED or name in seen:
                raise _asking.refuse(field, entry.name, f"names that differ from each other and from "
                                     f"{', '.join(RESERVED)}")
            seen[name] = field
    for attribute in spec.attributes:
        if attribute.kind not in get_args(Kind):
            raise _asking.refuse("attributes", attribute.kind, f"kinds {', '.join(get_args(Kind))}")


def _check_types(spec: OpSpec) -> None:
    """Refuse ports whose number formats are not declared, and formats that nobody knows."""
    if not isinstance(spec.types, Mapping):
        raise _asking.refuse("types", spec.types, "a mapping from type variables to names of formats", wrong_type=True)
    for port in (*spec.inputs, *spec.outputs):
        if not port.shape and port.type not in spec.types:
            raise _asking.refuse("types", list(spec.types), f"an entry for {port.type}, the type of {port.name}")
    for variable, declared in spec.types.items():
        for formats in declared.values() if isinstance(declared, Mapping) else [declared]:
            unknown = [name for name in formats if name not in FORMATS] if isinstance(formats, tuple) else [formats]
            if unknown and not any(port.shape and port.type == variable for port in spec.inputs):
                raise _asking.refuse("types", {variable: formats}, f"tuples of {', '.join(FORMATS)}", wrong_type=True)
