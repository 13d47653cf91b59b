"""Single arguments of a call as the rules see them: tensors, shapes, attributes and the number of threads.

Only this module and `outputs` read user input before the rules.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

import numpy as np

from ..errors import OpError, Refusing
from ..formats import format_of
from ..memory import Array, array_of, max_bytes
from ..spec import Attribute, Call, Port, Rules, TensorType, by_conformance

T = TypeVar("T")

UNSET_SHAPE = (0,) * 12
"""The value that means "not given" in oneDNN's files: zeros, as many as the library's largest rank."""

LONGEST = 4096
"""Entries of the longest list that is read; rules refuse much shorter ones."""


def tensor_type(array: Array | None) -> TensorType | None:
    """Shape and format of an array; a dtype outside the known formats keeps its own name."""
    if array is None:
        return None
    known = format_of(array.dtype)
    return TensorType(array.shape, known.name if known else str(array.dtype))


def tensor_value(call: Call, rules: Rules, port: Port, value: Any) -> Array:
    """Return the array behind anything `np.asarray` takes; plain numbers become float32, integers in scales alone."""
    try:
        array = array_of(value)
        if not hasattr(value, "dtype") and (array.dtype == np.float64 or (port.scales and array.dtype.kind == "i")):
            with np.errstate(over="ignore", invalid="ignore"):
                array = array.astype(np.float32)
    except Exception as error:  # __array__ of foreign objects may raise anything
        raise call.refuse(port.name, type(value).__name__, f"a value that numpy.asarray takes ({error})", rules.format,
                          wrong_type=True) from None
    if array.dtype.byteorder not in "=|" and not array.dtype.isnative:
        if array.nbytes > max_bytes(call):
            raise call.refuse(port.name, list(array.shape), f"an array in native byte order, or one of at most "
                              f"{max_bytes(call)} bytes (CONVREG_MAX_BYTES sets the limit)", "max_bytes")
        try:
            array = array.astype(array.dtype.newbyteorder("="))
        except MemoryError:
            raise call.refuse(port.name, list(array.shape), f"an array in native byte order, or one whose copy of "
                              f"{array.nbytes} bytes fits the memory that is free", "memory") from None
    return array


def shape_value(call: Call, rules: Rules, port: Port, value: Any) -> tuple[int, ...]:
    """Return the extents that a shape argument states."""
    if isinstance(value, np.ndarray) or hasattr(value, "__array__"):
        try:
            array = np.asarray(value)
        except Exception as error:  # __array__ of foreign objects may raise anything
            raise call.refuse(port.name, type(value).__name__, f"a list of integers ({error})", rules.kind,
                              wrong_type=True) from None
        strict = call.base == "library"
        if array.dtype != np.int32 if strict else array.dtype.kind not in "iu":
            raise call.refuse(port.name, str(array.dtype), "int32" if strict else "an integer tensor",
                              rules.shape_format, wrong_type=True)
        if array.ndim != 1:
            raise call.refuse(port.name, list(array.shape), "a 1-D tensor", rules.shape_length)
        if array.size > LONGEST:
            raise call.refuse(port.name, list(array.shape), f"at most {LONGEST} extents", rules.shape_length)
        return tuple(array.tolist())
    return integers(call, rules, port.name, value)


def attribute_values(call: Call, rules: Rules, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return all attributes by name: given ones as the rules see them, the others at their defaults."""
    spec = call.spec
    values: dict[str, Any] = {}
    declared = {attribute.name: attribute for attribute in spec.attributes}
    known = {name: attribute for name, attribute in declared.items()
             if not attribute.only or call.conformance in attribute.only or call.base in attribute.only}
    stating = {port.name for port in spec.shape_ports if port.attribute}
    for name in given:
        if name not in known and name not in stating:
            if name in declared and states_default(call, rules, declared[name], given[name]):
                continue
            raise call.refuse(name, given[name], "one of " + ", ".join([*known, *sorted(stating)]), rules.unknown,
                              wrong_type=True)
    for name in stating & given.keys():
        value = integers(call, rules, name, given[name]) if given[name] is not None else None
        values[name] = None if value == UNSET_SHAPE else value
    for attribute in known.values():
        value = given.get(attribute.name)
        if value is not None:
            values[attribute.name] = attribute_value(call, rules, attribute, value)
        elif attribute.required:
            raise call.refuse(attribute.name, None, f"a value ({attribute.kind}): it is required",
                              rules.missing_attribute, wrong_type=True)
        else:
            values[attribute.name] = default_value(call, attribute)
    return values


def default_value(call: Call, attribute: Attribute) -> Any:
    """Return the default of an attribute as the rules see it."""
    spellings = attribute.spellings(call.base)
    return (spellings.resolve(attribute.default) if spellings else None) or attribute.default


def states_default(call: Call, rules: Rules, attribute: Attribute, value: Any) -> bool:
    """Whether a value given for an attribute that the conformance lacks is its default, so that nothing is asked."""
    if value is None:
        return True
    try:
        stated = attribute_value(call, rules, attribute, value)
        names_none = attribute.kind == "strings" and stated == ("",) * len(call.spec.outputs)
        return names_none or bool(stated == default_value(call, attribute))
    except OpError:
        return False


def attribute_value(call: Call, rules: Rules, attribute: Attribute, value: Any) -> Any:
    """Return one attribute as the rules see it."""
    match attribute.kind:
        case "ints":
            entries = integers(call, rules, attribute.name, value)
            return attribute.default if attribute.unset is not None and entries == attribute.unset else entries
        case "int":
            return integer(call, rules, attribute.name, value)
        case "bool":
            return boolean(call, rules, attribute.name, value)
        case "bools":
            return each(call, rules, attribute.name, value, "a list of booleans",
                        lambda entry: boolean(call, rules, attribute.name, entry))
        case "string":
            return spelled(call, rules, attribute, value)
        case "strings":
            return each(call, rules, attribute.name, value, "a list of strings",
                        lambda entry: "" if entry is None else spelled(call, rules, attribute, entry))


def spelled(call: Call, rules: Rules, attribute: Attribute, value: Any) -> str:
    """Return the value that a string spells under the conformance in force."""
    if not isinstance(value, str):
        raise call.refuse(attribute.name, value, "a string", rules.kind, wrong_type=True)
    if not value and rules.empty_string != "arguments":
        raise call.refuse(attribute.name, value, "a string that is not empty", rules.empty_string)
    spellings = attribute.spellings(call.base)
    if spellings is None:
        return value
    meant = spellings.resolve(value)
    if meant is None:
        near = [text for text in spellings.table if text.lower() == value.lower()]
        allowed = ", ".join(map(repr, spellings.table)) + ("" if spellings.case_sensitive else " in any letter case")
        if near:
            allowed += f" (did you mean {near[0]!r}?)"
        raise call.refuse(attribute.name, value, allowed, by_conformance(attribute.rule, call.base))
    return meant


def integer(call: Refusing, rules: Rules, name: str, value: Any) -> int:
    """Return a 64-bit integer; booleans and floats are not taken for one."""
    if isinstance(value, bool | np.bool_):
        raise call.refuse(name, value, "an integer", rules.kind, wrong_type=True)
    try:
        number = operator.index(value)
    except Exception:  # __index__ of foreign objects may raise anything
        raise call.refuse(name, value, "an integer", rules.kind, wrong_type=True) from None
    if not -(2**63) <= number < 2**63:
        raise call.refuse(name, number, "a 64-bit integer", rules.kind, wrong_type=True)
    return number


def integers(call: Refusing, rules: Rules, name: str, value: Any) -> tuple[int, ...]:
    """Return a tuple of 64-bit integers from a list, tuple or 1-D array."""
    return each(call, rules, name, value, "a list of integers", lambda entry: integer(call, rules, name, entry))


def each(
    call: Refusing, rules: Rules, name: str, value: Any, what: str, one: Callable[[Any], T]
) -> tuple[T, ...]:
    """Return the entries of a list, each read by `one`; its error shows the whole list."""
    entries = entries_of(call, rules, name, value, what)
    try:
        return tuple([one(entry) for entry in entries])
    except OpError as error:
        raise call.refuse(name, entries, f"{error.allowed} in each entry", error.rule,
                          wrong_type=isinstance(error, TypeError)) from None


def entries_of(call: Refusing, rules: Rules, name: str, value: Any, what: str) -> list[Any]:
    """Return the entries of a list, tuple, other sequence or 1-D array of bounded length."""
    try:
        if isinstance(value, str | bytes | bytearray | Mapping):
            raise TypeError
        listed = value if isinstance(value, Sequence) else np.asarray(value)
        if isinstance(listed, np.ndarray) and listed.ndim != 1:
            raise TypeError
        entries = list(islice(listed, LONGEST + 1))
    except Exception:  # methods of foreign objects may raise anything
        raise call.refuse(name, value, what, rules.kind, wrong_type=True) from None
    if len(entries) > LONGEST:
        raise call.refuse(name, value, f"{what} of at most {LONGEST} entries", rules.kind)
    return entries


def boolean(call: Refusing, rules: Rules, name: str, value: Any) -> bool:
    """Return a boolean; ONNX spells them 0 and 1."""
    if isinstance(value, bool | np.bool_) or (isinstance(value, int | np.integer) and value in (0, 1)):
        return bool(value)
    raise call.refuse(name, value, "a boolean", rules.kind, wrong_type=True)
