"""Checks of the parts of a declaration: its conformances, ports and attributes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any, get_args

from ..errors import Asking, OpError, shorten
from ..spec import Attribute, Kind, OpSpec, Port, Rules, Spellings

ASKING = Asking("convreg::register")

INTEGERS = ("int32", "int64")
"""The types that an input which states a shape may have."""

_ENTRIES: dict[str, tuple[type, bool]] = {
    "int": (int, False), "ints": (int, True), "bool": (bool, False), "bools": (bool, True), "string": (str, False),
    "strings": (str, True)}
"""The type of the entries of an attribute by its kind, and whether it is a tuple of them."""


def check_conformances(spec: OpSpec) -> None:
    """Refuse names that stand twice or mean something else, and fields that name no conformance of the operator."""
    names = spec.conformances
    if len({*names}) < len(names) or not {*names}.isdisjoint(("", "*")):
        raise ASKING.refuse("conformances", names, "names that differ from each other, '' and '*'")
    allowed = f"a mapping between two of the conformances {', '.join(names)}"
    if not isinstance(spec.extends, Mapping):
        raise ASKING.refuse("extends", spec.extends, allowed, wrong_type=True)
    for added, base in spec.extends.items():
        if added not in names or base not in names or base in spec.extends:
            raise ASKING.refuse("extends", dict(spec.extends), f"{allowed}, of which the second extends none")
    _check_only("uniform", spec, spec.uniform)
    _check_each("rules", spec, spec.rules, lambda value: isinstance(value, Rules), "Rules")
    if not isinstance(spec.statuses, Mapping) or not all(
            name in names and isinstance(rows, Mapping) for name, rows in spec.statuses.items()):
        raise ASKING.refuse("statuses", spec.statuses, f"a mapping from the conformances {', '.join(names)} to "
                            "mappings from rules to numbers", wrong_type=True)


def check_port(spec: OpSpec, field: str, port: Port) -> None:
    """Refuse what a port cannot be: a field of the wrong type, or one that has no meaning at its place."""
    for name, kind in (("doc", str), ("type", str), ("rule", str), ("scales", str), ("like", str), ("optional", bool),
                       ("shape", bool), ("attribute", bool)):
        _check_type(field, port, name, kind)
    if not port.type:
        raise _wrong(field, port, "type", "the name of a type variable")
    _check_only(field, spec, port.only, f"only of {port.name} is ")
    tensors = [other.name for other in spec.inputs if not other.shape and not other.scales]
    if port.attribute and not (port.shape and port.optional):
        raise _wrong(field, port, "attribute", "False, or True beside shape=True and optional=True")
    if field == "outputs":
        if port.shape or port.scales:
            raise _wrong(field, port, "shape" if port.shape else "scales", "none for an output")
        if port.like and port.like not in tensors:
            raise _wrong(field, port, "like", f"one of the inputs {', '.join(tensors)}")
        return
    if port.scales and (port.scales not in tensors or port.shape):
        raise _wrong(field, port, "scales", f"one of the inputs {', '.join(tensors)}, for a tensor")
    if port.scales and not port.optional:
        raise _wrong(field, port, "optional", "True for an input that scales another")
    if port.like:
        raise _wrong(field, port, "like", "none for an input")


def check_order(spec: OpSpec) -> None:
    """Refuse inputs in an order that no call can give, and inputs that scale the same one."""
    for first, second in pairwise(spec.inputs):
        if first.optional and not second.optional:
            raise ASKING.refuse("inputs", [first.name, second.name], "required inputs before optional ones")
        if first.scales and not second.scales:
            raise ASKING.refuse("inputs", [first.name, second.name], "inputs that scale others after all the rest")
    scaled = [port.scales for port in spec.scale_ports]
    if len({*scaled}) < len(scaled):
        raise ASKING.refuse("inputs", scaled, "one scale for each input")
    for before, after in pairwise(spec.attributes):
        if spec.positional_attributes and before.only and not after.only:
            raise ASKING.refuse("attributes", [before.name, after.name], "attributes of some conformances only after "
                                "those of all, where attributes may be given by position")
    optional = [port.name for port in spec.vendor_inputs if port.optional]
    required = [attribute.name for attribute in spec.attributes if attribute.required and not attribute.only]
    if spec.positional_attributes and optional and required:
        raise ASKING.refuse("positional_attributes", True, f"False: the input {optional[0]} is optional, and the "
                            f"attribute {required[0]} after it is not")


def check_attribute(spec: OpSpec, attribute: Attribute) -> None:
    """Refuse bounds, spellings and defaults that contradict the kind of an attribute or each other."""
    kind = attribute.kind
    if not isinstance(kind, str) or kind not in get_args(Kind):
        raise _wrong("attributes", attribute, "kind", " or ".join(get_args(Kind)))
    _check_type("attributes", attribute, "doc", str)
    _check_only("attributes", spec, attribute.only, f"only of {attribute.name} is ")
    for name in ("rule", "rule_negative"):
        _check_each(f"{name} of {attribute.name}", spec, getattr(attribute, name),
                    lambda value: isinstance(value, str), "the name of a rule")
    _check_spellings(spec, attribute)
    _check_bounds(spec, attribute)
    if attribute.unset is not None and (kind != "ints" or not _has_kind(attribute.unset, "ints")):
        raise _wrong("attributes", attribute, "unset", "a tuple of integers for an attribute of kind ints, or None")
    if attribute.required or attribute.default is None:
        return
    entries = _entries(attribute)
    if kind in ("int", "ints") and not all(-(2**63) <= entry < 2**63 for entry in entries):
        raise _wrong("attributes", attribute, "default", "64-bit integers")
    for base in _bases(spec):
        spellings = attribute.spellings(base)
        wrong = [entry for entry in entries if spellings is not None and spellings.resolve(entry) is None]
        if spellings is not None and wrong:
            raise _wrong("attributes", attribute, "default", f"{', '.join(map(repr, spellings.table))} under {base!r}")


def _entries(attribute: Attribute) -> tuple[Any, ...]:
    """Return the entries of a default, refused where they are not of the attribute's kind."""
    kind, several = _ENTRIES[attribute.kind]
    if not _has_kind(attribute.default, attribute.kind):
        told = f"a tuple of {kind.__name__}" if several else f"of type {kind.__name__}"
        raise _wrong("attributes", attribute, "default", f"{told}, None or REQUIRED for the kind {attribute.kind}",
                     wrong_type=True)
    return attribute.default if several else (attribute.default,)


def _has_kind(value: Any, kind: Kind) -> bool:
    entry_type, several = _ENTRIES[kind]
    if several and not isinstance(value, tuple):
        return False
    return all(isinstance(entry, entry_type) and (kind not in ("int", "ints") or not isinstance(entry, bool))
               for entry in (value if several else (value,)))


def _check_spellings(spec: OpSpec, attribute: Attribute) -> None:
    choices = attribute.choices
    if choices is None:
        return
    if attribute.kind not in ("string", "strings"):
        raise _wrong("attributes", attribute, "choices", f"None for an attribute of kind {attribute.kind}")
    if not isinstance(choices, Mapping):
        raise _wrong("attributes", attribute, "choices", "a mapping from conformances or '*' to Spellings")
    _check_each(f"choices of {attribute.name}", spec, choices, lambda value: isinstance(value, Spellings), "Spellings")
    for spellings in choices.values():
        table, sensitive = spellings
        if not isinstance(table, Mapping) or not table or not all(
                isinstance(text, str) for texts in (table, table.values()) for text in texts):
            raise _wrong("attributes", attribute, "choices", "Spellings of a mapping from strings to strings")
        upper = [] if sensitive else [text for text in table if text != text.lower()]
        if upper:
            raise _wrong("attributes", attribute, "choices", f"lower case in place of {upper[0]!r}, because letter "
                         "case does not count")


def _check_bounds(spec: OpSpec, attribute: Attribute) -> None:
    """Refuse bounds that are no integers, that no value meets, or that the default breaks."""
    if attribute.minimum is None and attribute.maximum is None:
        return
    if attribute.kind not in ("int", "ints"):
        raise _wrong("attributes", attribute, "minimum" if attribute.maximum is None else "maximum",
                     f"None for an attribute of kind {attribute.kind}")
    _check_each(f"minimum of {attribute.name}", spec, attribute.minimum,
                lambda value: value is None or _has_kind(value, "int"), "an integer or None")
    high = attribute.maximum
    if high is not None and not _has_kind(high, "int"):
        raise _wrong("attributes", attribute, "maximum", "an integer or None")
    entries = () if attribute.required or attribute.default is None else _entries(attribute)
    for base in _bases(spec):
        low = _value(attribute.minimum, base)
        if low is not None and high is not None and low > high:
            raise _wrong("attributes", attribute, "maximum", f"at least the minimum {low} under {base!r}")
        if any((low is not None and entry < low) or (high is not None and entry > high) for entry in entries):
            raise _wrong("attributes", attribute, "default", f"within the bounds under {base!r}: minimum {low}, "
                         f"maximum {high}")


def _bases(spec: OpSpec) -> Iterable[str]:
    return dict.fromkeys(map(spec.base, spec.conformances))


def _value(value: Any, conformance: str) -> Any:
    return value.get(conformance, value.get("*")) if isinstance(value, Mapping) else value


def _check_each(field: str, spec: OpSpec, value: Any, fits: Callable[[Any], bool], allowed: str) -> None:
    """Refuse a value that may differ by conformance if it is wrong or missing for one whose rules hold."""
    entries = [*value.values()] if isinstance(value, Mapping) else [value]
    if not all(map(fits, entries)):
        raise ASKING.refuse(field, value, f"{allowed}, or a mapping from conformances or '*' to such", wrong_type=True)
    check_covered(field, value, _bases(spec))


def check_covered(field: str, value: Any, conformances: Iterable[str]) -> None:
    """Refuse a mapping by conformance that leaves one out."""
    if isinstance(value, Mapping) and "*" not in value:
        for name in conformances:
            if name not in value:
                raise ASKING.refuse(field, dict(value), f"a mapping with an entry for {name!r}, or for the others as "
                                    "'*'")


def _check_only(field: str, spec: OpSpec, only: Any, told: str = "") -> None:
    if not isinstance(only, tuple) or not all(name in spec.conformances for name in only):
        raise ASKING.refuse(field, f"{told}{shorten(only)}" if told else only,
                            f"a tuple of {', '.join(spec.conformances)}", wrong_type=not isinstance(only, tuple))


def _check_type(field: str, entry: Port | Attribute, name: str, kind: type) -> None:
    if not isinstance(getattr(entry, name), kind):
        raise _wrong(field, entry, name, f"of type {kind.__name__}", wrong_type=True)


def _wrong(field: str, entry: Port | Attribute, name: str, allowed: str, *, wrong_type: bool = False) -> OpError:
    return ASKING.refuse(field, f"{name} of {entry.name} is {shorten(getattr(entry, name))}", allowed,
                         wrong_type=wrong_type)
