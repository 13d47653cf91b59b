"""Turns the arguments of a caller into a checked and planned `Call` with arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from ..errors import OpError
from ..formats import FORMATS
from ..geometry import Geometry
from ..geometry.layouts import with_hint
from ..memory import Array
from ..spec import Call, OpSpec, Plan, Shape, TensorType
from .arguments import UNSET_SHAPE, attribute_values, shape_value, tensor_type, tensor_value
from .outputs import check_overlap, output_values

T = TypeVar("T")


class Bound(NamedTuple):
    """A checked call: the plan, the input arrays in port order, and the arrays given as ``out=``."""

    call: Call
    plan: Plan
    inputs: tuple[Array | None, ...]
    outputs: tuple[Array | None, ...]


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
    return judged(spec, conformance, lambda chosen: _bind(spec, inputs, attributes, chosen, out, wanted))


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
    plan = _checked_plan(call, spec.plan(call))
    rules = spec.rules_under(call.conformance)
    for port, given, made in zip(spec.outputs, call.outputs, plan.outputs, strict=True):
        if given is None or made is None:
            continue
        if given.shape != made.shape:
            raise call.refuse(port.name, list(given.shape or ()), f"shape {list(made.extents)}", port.rule)
        if given.format != made.format:
            raise call.refuse(port.name, given.format, made.format, rules.output_format, wrong_type=True)
    return plan


def _checked_plan(call: Call, plan: Any) -> Plan:
    """Return what an operator's function `plan` returned, refused where it is no plan of a call."""
    if not isinstance(plan, Plan):
        raise call.refuse("plan", plan, "a function that returns a Plan", "arguments", wrong_type=True)
    check_results(call, "plan", plan.outputs)
    if plan.geometry is not None:
        if not isinstance(plan.geometry, Geometry):
            raise call.refuse("plan", plan.geometry, "a function that states a Geometry or None", "arguments",
                              wrong_type=True)
        plan.geometry.checked(call)
    return plan


def check_results(call: Call, function: str, made: Any) -> None:
    """Refuse types of results, as an operator's function `plan` or `infer` states them, that fit no output."""
    if not isinstance(made, tuple) or len(made) != len(call.spec.outputs) or not all(
            tensor is None or (isinstance(tensor, TensorType) and tensor.format in FORMATS) for tensor in made):
        names = ", ".join(port.name for port in call.spec.outputs)
        raise call.refuse(function, made, "a function that states a tuple of one TensorType or None for each output: "
                          f"{names}", "arguments", wrong_type=True)


def check_declared(call: Call) -> None:
    """Apply the declared formats and bounds, unless the vendor's rule does so in an order of its own."""
    if not call.spec.ordered_checks:
        call.check_formats()
        call.check_bounds(*(attribute.name for attribute in call.spec.attributes))
