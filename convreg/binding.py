"""Turns the arguments of a caller into a `Call` with arrays. Only this module reads user input before the rules."""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ._likeness import likeness
from .errors import OpError, Refusing
from .formats import format_of
from .geometry.layouts import with_hint
from .outputs import Array, check_overlap, max_bytes, output_values
from .spec import Attribute, Call, OpSpec, Plan, Port, Rules, Shape, TensorType, by_conformance

T = TypeVar("T")

UNSET_SHAPE = (0,) * 12
"""The value that means "not given" in oneDNN's files: zeros, as many as the library's largest rank."""

LONGEST = 4096
"""Entries of the longest list that is read; rules refuse much shorter ones."""


class Bound(NamedTuple):
    """A checked call: the plan, the input arrays in port order, and the arrays given as ``out=``."""

    call: Call
    plan: Plan
    inputs: tuple[Array | None, ...]
    outputs: tuple[Array | None, ...]

    def repeats(self, inputs: Sequence[Any]) -> bool:
        """Whether the arrays are those that the caller gave, not converted."""
        return all(array is None or array is given for array, given in zip(self.inputs, inputs, strict=True))


def bind(
    spec: OpSpec,
    inputs: Sequence[Any],
    attributes: Mapping[str, Any],
    *,
    conformance: str | None = None,
    out: Any = None,
    wanted: tuple[bool, ...] | None = None,
) -> Bound:
    """Check a call and plan it.

    Parameters
    ----------
    spec : OpSpec
    inputs : sequence
        In the order of the ports, None = absent, as are those left out at the end; shape ports take a sequence of
        integers or a 1-D integer array.
    attributes : mapping
        The attributes given, by the vendor's names.
    conformance : str, optional
        Rule to follow, by default the operator's first.
    out : array or tuple of arrays or None
    wanted : tuple of bool, optional
        Which outputs a graph names; by default all.

    Raises
    ------
    OpError, OpTypeError
        With the rule that refuses and, in ``accepted_by``, the conformances that would not.
    """
    if len(inputs) < len(spec.inputs):
        inputs = (*inputs, *(None,) * (len(spec.inputs) - len(inputs)))
    if conformance is not None:
        check_conformance(spec, conformance)
    alike = None if out is not None else likeness(spec.input_names, spec.tensor_names, inputs, attributes)
    key = None if alike is None else (spec, conformance, wanted, alike)
    if key is not None and key in _seen:
        call, plan = _seen[key]
        arrays = [None if port.shape else value for port, value in zip(spec.inputs, inputs, strict=True)]
        return Bound(call, plan, tuple(arrays), (None,) * len(spec.outputs))
    bound = judged(spec, conformance, lambda chosen: _bind(spec, inputs, attributes, chosen, out, wanted))
    if key is not None and bound.repeats(inputs):
        remember(_seen, key, (bound.call, bound.plan))
    return bound


_seen: dict[Hashable, tuple[Call, Plan]] = {}
"""Legal calls by their shapes, formats and attributes, so that a repeated one costs a look-up."""


def remember(seen: dict[Hashable, Any], key: Hashable, known: Any) -> None:
    """Add to a dictionary of bounded size."""
    if len(seen) >= 4096:
        seen.clear()
    seen[key] = known


def judged(spec: OpSpec, conformance: str | None, attempt: Callable[[str], T]) -> T:
    """Return ``attempt(conformance)``, None being the default; an `OpError` from it learns who else would accept."""
    chosen = spec.conformances[0] if conformance is None else conformance
    check_conformance(spec, chosen)
    try:
        return attempt(chosen)
    except OpError as error:
        accepting = [other for other in spec.conformances if other != chosen and _accepts(attempt, other)]
        error.accepted_by = tuple(
            other for other in accepting if spec.base(other) == other or spec.base(other) not in accepting)
        raise


def check_conformance(spec: OpSpec, conformance: Any) -> None:
    """Refuse what names no conformance of the operator."""
    if not isinstance(conformance, str) or conformance not in spec.conformances:
        raise asking(spec, spec.conformances[0]).refuse(
            "conformance", conformance, " or ".join(map(repr, spec.conformances)), "arguments",
            wrong_type=not isinstance(conformance, str))


def _accepts(attempt: Callable[[str], Any], conformance: str) -> bool:
    try:
        attempt(conformance)
    except OpError:
        return False
    return True


def asking(spec: OpSpec, conformance: str) -> Call:
    """Return a call of nothing, to raise errors with before there is a real one."""
    return Call(spec, conformance, (None,) * len(spec.inputs), (), (None,) * len(spec.outputs), ())


def _bind(
    spec: OpSpec, inputs: Sequence[Any], attributes: Mapping[str, Any], conformance: str, out: Any,
    wanted: tuple[bool, ...] | None,
) -> Bound:
    before = asking(spec, conformance)
    rules = spec.rules_under(conformance)
    arrays: list[Array | None] = []
    stated: dict[str, Shape | None] = {}
    for port, value in zip(spec.inputs, inputs, strict=True):
        if value is None and not port.optional:
            raise before.refuse(port.name, None, "a tensor", rules.missing_input, wrong_type=True)
        if port.shape:
            extents = None if value is None else shape_value(before, rules, port, value)
            stated[port.name] = None if extents == UNSET_SHAPE else extents
            arrays.append(None)
        else:
            arrays.append(None if value is None else tensor_value(before, rules, port, value))
    outputs = output_values(before, rules, out)
    call = make_call(spec, conformance, tuple(map(tensor_type, arrays)), stated, attributes,
                   tuple(map(tensor_type, outputs)), wanted)
    plan = plan_of(call)
    check_overlap(call, arrays, outputs, plan)
    return Bound(call, plan, tuple(arrays), outputs)


def make_call(
    spec: OpSpec,
    conformance: str,
    tensors: tuple[TensorType | None, ...],
    stated: Mapping[str, Shape | None],
    attributes: Mapping[str, Any],
    outputs: tuple[TensorType | None, ...] | None = None,
    wanted: tuple[bool, ...] | None = None,
) -> Call:
    """Return the call of these tensors and attributes; `stated` holds the values of the inputs that state shapes.

    Tensors left out at the end are absent.
    """
    before, rules = asking(spec, conformance), spec.rules_under(conformance)
    tensors = (*tensors, *(None,) * (len(spec.inputs) - len(tensors)))
    for port, tensor in zip(spec.inputs, tensors, strict=True):
        if tensor is not None and port.only and conformance not in port.only:
            raise before.refuse(port.name, "given", "no such input", rules.arity, wrong_type=True)
    values = attribute_values(before, rules, attributes)
    shapes = dict(stated)
    for port in spec.shape_ports:
        said, other = shapes[port.name], values.pop(port.name, None)
        if said is None:
            shapes[port.name] = other
        elif other not in (None, said) and before.base != "document" and all(isinstance(n, int) for n in said):
            raise before.refuse(port.name, list(other), f"{list(said)}, the value of the input", port.rule)
    return Call(
        spec, conformance, tensors, tuple(values.items()) + tuple(shapes.items()),
        outputs or (None,) * len(spec.outputs), wanted or (True,) * len(spec.outputs),
        frozenset(name for name, value in attributes.items() if value is not None),
    )


@lru_cache(maxsize=4096)
def plan_of(call: Call) -> Plan:
    """Apply the declared bounds and formats, then the vendor's rule; cached, since a call holds no arrays."""
    try:
        return _planned(call)
    except OpError as error:
        raise with_hint(call, error, _planned) from None


def _planned(call: Call) -> Plan:
    spec = call.spec
    check_declared(call)
    plan = spec.plan(call)
    rules = spec.rules_under(call.conformance)
    for port, given, made in zip(spec.outputs, call.outputs, plan.outputs, strict=True):
        if given is None or made is None:
            continue
        if given.shape != made.shape:
            raise call.refuse(port.name, list(given.shape or ()), f"shape {list(made.extents)}", port.rule)
        if given.format != made.format:
            raise call.refuse(port.name, given.format, made.format, rules.output_format, wrong_type=True)
    return plan


def check_declared(call: Call) -> None:
    """Apply the declared formats and bounds, unless the vendor's rule does so in an order of its own."""
    if not call.spec.ordered_checks:
        call.check_formats()
        call.check_bounds(*(attribute.name for attribute in call.spec.attributes))


def tensor_type(array: Array | None) -> TensorType | None:
    """Shape and format of an array; a dtype outside the known formats keeps its own name."""
    if array is None:
        return None
    known = format_of(array.dtype)
    return TensorType(array.shape, known.name if known else str(array.dtype))


def tensor_value(call: Call, rules: Rules, port: Port, value: Any) -> Array:
    """Return the array behind anything `np.asarray` takes; plain numbers become float32, integers in scales alone."""
    try:
        array = np.asarray(value)
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
            return tuple([boolean(call, rules, attribute.name, entry)
                          for entry in entries_of(call, rules, attribute.name, value, "a list of booleans")])
        case "string":
            return spelled(call, rules, attribute, value)
        case "strings":
            return tuple(["" if entry is None else spelled(call, rules, attribute, entry)
                          for entry in entries_of(call, rules, attribute.name, value, "a list of strings")])


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
    return tuple([integer(call, rules, name, entry)
                  for entry in entries_of(call, rules, name, value, "a list of integers")])


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
