"""Checks of a declaration before anything is derived from it."""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import shorten
from ..formats import FORMATS
from ..roles import CONVERTED, DATA_LAYOUTS, NUMBERS, OPERANDS, RESULTS, SHAPES, WEIGHT_LAYOUTS, Convolution, Role
from ..spec import Attribute, Kind, OpSpec, Port, snake_case
from .parts import ASKING, INTEGERS, check_attribute, check_conformances, check_covered, check_order, check_port

RESERVED = ("conformance", "out", "threads", "scales", "operand_types")
"""Arguments that every function may have besides its operator's own, and the attribute that nodes may have."""

TAKEN = {"plan": ("call",), "run": ("plan", "inputs", "outputs", "kernels", "threads"), "infer": ("call",)}
"""The arguments of the functions of a declaration."""

STANDARD = "ai.onnx"
"""The domain of standard ONNX; others that belong to it begin with this name and a dot."""


def check_declaration(spec: Any, taken: Iterable[str]) -> None:
    """Refuse what is no complete declaration; `taken` are names that a vendor may not have.

    Raises
    ------
    OpError, OpTypeError
        They name the field of the declaration.
    """
    if not isinstance(spec, OpSpec):
        raise ASKING.refuse("spec", spec, "an OpSpec", wrong_type=True)
    for field in ("vendor", "name"):
        _check_name(field, getattr(spec, field))
    if spec.vendor in taken:
        raise ASKING.refuse("vendor", spec.vendor, "a name that no part of convreg has")
    since = spec.since_version
    if isinstance(since, bool) or not isinstance(since, int) or not 0 < since < 2**31:
        raise ASKING.refuse("since_version", since, "an integer from 1 to 2**31 - 1", wrong_type=True)
    for field in ("doc", "source"):
        if not isinstance(getattr(spec, field), str) or not getattr(spec, field).strip():
            raise ASKING.refuse(field, getattr(spec, field), "a string that is not empty", wrong_type=True)
    if not isinstance(spec.domain, str):
        raise ASKING.refuse("domain", spec.domain, "a string", wrong_type=True)
    if spec.domain != "".join(spec.domain.split()) or f"{spec.domain}.".startswith(f"{STANDARD}."):
        raise ASKING.refuse("domain", spec.domain, f"a domain without white space that is not {STANDARD} or in it")
    for field in ("positional_attributes", "ordered_checks"):
        if not isinstance(getattr(spec, field), bool):
            raise ASKING.refuse(field, getattr(spec, field), "True or False", wrong_type=True)
    for field, arguments in TAKEN.items():
        if not _takes(getattr(spec, field), len(arguments)):
            raise ASKING.refuse(field, getattr(spec, field), f"a function of ({', '.join(arguments)})", wrong_type=True)
    _check_entries("conformances", spec.conformances, str, least=1)
    _check_entries("inputs", spec.inputs, Port)
    _check_entries("outputs", spec.outputs, Port, least=1)
    _check_entries("attributes", spec.attributes, Attribute)
    _check_arguments(spec)
    check_conformances(spec)
    for field, ports in (("inputs", spec.inputs), ("outputs", spec.outputs)):
        for port in ports:
            check_port(spec, field, port)
    for attribute in spec.attributes:
        check_attribute(spec, attribute)
    check_order(spec)
    _check_types(spec)
    _check_roles(spec)
    _check_arrangement(spec)


def _takes(function: Any, count: int) -> bool:
    """Whether a value is a function that takes so many arguments, as far as its signature is known."""
    if not callable(function):
        return False
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:  # a compiled function without a signature
        pass
    return True


def _check_name(field: str, name: Any) -> None:
    if not isinstance(name, str) or not name.isidentifier() or name.startswith("_"):
        raise ASKING.refuse(field, name, "a Python identifier that begins with a letter",
                             wrong_type=not isinstance(name, str))
    if keyword.iskeyword(name) or keyword.iskeyword(snake_case(name)):
        raise ASKING.refuse(field, name, f"a name that is no keyword of Python, as {snake_case(name)!r} is")


def _check_entries(field: str, entries: Any, kind: type, least: int = 0) -> None:
    if not isinstance(entries, tuple) or len(entries) < least or not all(isinstance(entry, kind) for entry in entries):
        count = "one or more" if least else "any number"
        raise ASKING.refuse(field, entries, f"a tuple of {kind.__name__}, {count}", wrong_type=True)


def _check_arguments(spec: OpSpec) -> None:
    """Refuse names that stand for two things in a call."""
    seen: dict[str, str] = {}
    for field, entries in (("inputs", spec.inputs), ("outputs", spec.outputs), ("attributes", spec.attributes)):
        for entry in entries:
            _check_name(field, entry.name)
            name = snake_case(entry.name)
            if name in RESERVED or name in seen:
                raise ASKING.refuse(field, entry.name, f"names that differ from each other and from "
                                     f"{', '.join(RESERVED)}")
            seen[name] = field


def _check_types(spec: OpSpec) -> None:
    """Refuse ports whose number formats are not declared, and formats that nobody knows."""
    if not isinstance(spec.types, Mapping):
        raise ASKING.refuse("types", spec.types, "a mapping from type variables to names of formats", wrong_type=True)
    used = {port.type: port for port in (*spec.outputs, *spec.inputs)}
    for variable, port in used.items():
        if variable not in spec.types:
            raise ASKING.refuse("types", list(spec.types), f"an entry for {variable}, the type of {port.name}")
    stating = {port.type for port in spec.shape_ports}
    for variable, declared in spec.types.items():
        if variable not in used:
            raise ASKING.refuse("types", variable, f"the types of ports: {', '.join(used)}")
        known: Iterable[str] = INTEGERS if variable in stating else FORMATS
        for formats in declared.values() if isinstance(declared, Mapping) else [declared]:
            if not isinstance(formats, tuple) or not formats or not all(
                    isinstance(name, str) and name in known for name in formats):
                raise ASKING.refuse("types", {variable: formats}, f"tuples of {', '.join(known)}", wrong_type=True)
        check_covered("types", declared, spec.conformances)
    mixed = [port.name for port in (*spec.inputs, *spec.outputs) if port.type in stating and not port.shape]
    if mixed:
        raise ASKING.refuse("types", mixed[0], "another type for it than for the inputs that state shapes")


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
        raise ASKING.refuse("inputs", [seen["number"], seen["grad_output"]],
                             "roles of a convolution or of a conversion, not of both")
    if {"divisor", "factor"} <= seen.keys():
        raise ASKING.refuse("inputs", [seen["divisor"], seen["factor"]], "one of the roles divisor and factor")


def _role(field: str, port: Port, allowed: str) -> Exception:
    return ASKING.refuse(field, f"role {shorten(port.role)} of {port.name}", allowed)


def _check_arrangement(spec: OpSpec) -> None:
    """Refuse an arrangement that names no attribute of the right kind, or layouts that nobody reads."""
    arranged = spec.convolution
    if not isinstance(arranged, Convolution):
        raise ASKING.refuse("convolution", arranged, "a Convolution", wrong_type=True)
    if not isinstance(arranged.forward, bool):
        raise ASKING.refuse("convolution", f"forward={shorten(arranged.forward)}", "True or False", wrong_type=True)
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
                raise ASKING.refuse("convolution", f"{field}={value!r} with the choices {spelled}",
                                     f"an attribute whose choices are spellings of {', '.join(known)}")


def _check_named(spec: OpSpec, field: str, name: Any, kind: Kind, others: str = "") -> None:
    """Refuse the name of an attribute that has another kind or that some calls leave without a value."""
    found = next((attribute for attribute in spec.attributes if attribute.name == name), None)
    if found is None or found.kind != kind or found.only or (found.default is None and field != "mask"):
        raise ASKING.refuse("convolution", f"{field}={shorten(name)}", f"{others}the name of an attribute of kind "
                             f"{kind} that every call has")
