"""Checks of a declaration before anything is derived from it."""

from __future__ import annotations

import keyword
from collections.abc import Iterable, Mapping
from typing import Any, get_args

from ..errors import Asking, shorten
from ..formats import FORMATS
from ..roles import CONVERTED, DATA_LAYOUTS, NUMBERS, OPERANDS, RESULTS, SHAPES, WEIGHT_LAYOUTS, Convolution, Role
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
    _check_roles(spec)
    _check_arrangement(spec)


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


NEEDED: dict[Role, Role] = {
    "data": "grad_output", "weight": "grad_output", "bias": "grad_data", "grad_data": "weight", "grad_weight": "data",
    "grad_bias": "grad_output", "divisor": "number", "factor": "number", "number": CONVERTED, CONVERTED: "number"}
"""The role that a declaration must have beside another one."""


def _check_roles(spec: OpSpec) -> None:
    """Refuse roles that do not exist, stand twice or at the wrong place, and operators with some of them only."""
    places = [(port, "inputs", "an input", (*OPERANDS, *NUMBERS)) for port in spec.vendor_inputs if not port.shape]
    places += [(port, "inputs", "an input that states a shape", SHAPES) for port in spec.shape_ports]
    places += [(port, "inputs", "an input that scales another", ()) for port in spec.scale_ports]
    places += [(port, "outputs", "an output", (*RESULTS, CONVERTED)) for port in spec.outputs]
    known = (*OPERANDS, *RESULTS, *SHAPES, *NUMBERS, CONVERTED)
    seen: dict[Any, str] = {}
    for port, field, place, allowed in places:
        if port.role == "":
            continue
        if not isinstance(port.role, str) or port.role not in known:
            raise _role(field, port, f"the roles {', '.join(known)}, or none")
        if port.role not in allowed:
            raise _role(field, port, f"{' or '.join(allowed) or 'no role'} for {place}")
        if port.role in seen:
            raise _role(field, port, f"each role at one port, and {seen[port.role]} has it already")
        seen[port.role] = port.name
    if not seen:
        return
    for port, field, place, allowed in places:
        if port.role == "" and allowed:
            raise _role(field, port, f"{' or '.join(allowed)} for {place}, because other ports have roles")
        other = NEEDED.get(port.role) if port.role else None
        if other is not None and other not in seen:
            raise _role(field, port, f"a port with the role {other} beside it")
    if "number" in seen and "grad_output" in seen:
        raise _asking.refuse("inputs", [seen["number"], seen["grad_output"]],
                             "roles of a convolution or of a conversion, not of both")
    if {"divisor", "factor"} <= seen.keys():
        raise _asking.refuse("inputs", [seen["divisor"], seen["factor"]], "one of the roles divisor and factor")


def _role(field: str, port: Port, allowed: str) -> Exception:
    return _asking.refuse(field, f"role {shorten(port.role)} of {port.name}", allowed)


def _check_arrangement(spec: OpSpec) -> None:
    """Refuse an arrangement that names no attribute of the right kind, or layouts that nobody reads."""
    arranged = spec.convolution
    if not isinstance(arranged, Convolution):
        raise _asking.refuse("convolution", arranged, "a Convolution", wrong_type=True)
    if not isinstance(arranged.forward, bool):
        raise _asking.refuse("convolution", f"forward={shorten(arranged.forward)}", "True or False", wrong_type=True)
    if not isinstance(arranged.transposed, bool):
        _check_named(spec, "transposed", arranged.transposed, "bool", "True, False or ")
    if arranged.mask != "":
        _check_named(spec, "mask", arranged.mask, "bools")
    for field, value, known in (("data_layout", arranged.data_layout, DATA_LAYOUTS),
                                ("weight_layout", arranged.weight_layout, tuple(WEIGHT_LAYOUTS))):
        if value not in known:
            _check_named(spec, field, value, "string", f"{', '.join(known)} or ")
            spellings = (spec.attribute(value).choices or {}).values()
            spelled = sorted({said for choice in spellings for said in choice.table.values()})
            if not spelled or not {*spelled} <= {*known}:
                raise _asking.refuse("convolution", f"{field}={value!r} with the choices {spelled}",
                                     f"an attribute whose choices are spellings of {', '.join(known)}")


def _check_named(spec: OpSpec, field: str, name: Any, kind: Kind, others: str = "") -> None:
    """Refuse the name of an attribute that has another kind or that some calls leave without a value."""
    found = next((attribute for attribute in spec.attributes if attribute.name == name), None)
    if found is None or found.kind != kind or found.only or (found.default is None and field != "mask"):
        raise _asking.refuse("convolution", f"{field}={shorten(name)}", f"{others}the name of an attribute of kind "
                             f"{kind} that every call has")
