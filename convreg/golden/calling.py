"""One call of an operator as golden vectors hold it: checked, with plain attributes, and its results by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import registry
from ..calls.binding import Bound, asking, bind
from ..calls.signature import Operator, reader_of
from ..errors import Asking, GraphError, OpError, UnknownOp
from ..memory import Array
from ..spec import OpSpec, snake_case
from .data import format_name

if TYPE_CHECKING:
    from .record import Golden

ASK = Asking("convreg::golden")

OTHER_ARGUMENTS = ("out", "threads", "conformance")
"""Arguments of an operator's Python function that are no attributes of a case."""


def check_texts(**given: Any) -> None:
    """Refuse an argument that is no text.

    Raises
    ------
    OpTypeError
    """
    for argument, value in given.items():
        if not isinstance(value, str):
            raise ASK.refuse(argument, value, "a text", wrong_type=True)


class Parts(NamedTuple):
    """What a call consists of, in the order of the fields of `Golden` after its name."""

    op: str
    attributes: dict[str, Any]
    conformance: str | None
    inputs: dict[str, Array]
    outputs: dict[str, Array]


def called(
    op: Operator | str, inputs: Mapping[str, Any] | Sequence[Any], attributes: Mapping[str, Any],
    conformance: str | None, threads: int | None,
) -> Parts:
    """Compute a call and return it with its results.

    Raises
    ------
    OpError, OpTypeError
        What the operator raises; or if a name is given twice, or random bits would decide the result.
    UnknownOp
        If there is no such operator.
    """
    operator = registry.resolve(op)
    spec = operator.spec
    arguments = _named(spec, inputs)
    for name in arguments.keys() & attributes.keys():
        raise ASK.refuse(name, "given twice", "one value, among the inputs or the attributes", wrong_type=True)
    bound = bound_call(spec, {**arguments, **attributes}, conformance)
    if attributes.get("rounding") == "stochastic" and attributes.get("seed") is None:
        raise ASK.refuse("seed", None, "an integer: without it the results of stochastic rounding differ from call to "
                         "call")
    tensors: dict[str, Array] = {}
    plain = {name: _plain(value) for name, value in attributes.items() if value is not None}
    for port, array in zip(spec.vendor_inputs, bound.inputs, strict=False):
        name = snake_case(port.name)
        given = arguments.get(name)
        if array is not None:
            tensors[name] = array
        elif isinstance(given, np.ndarray):
            tensors[name] = given
        elif given is not None:
            plain[name] = _plain(given)  # a shape, given as a list
    results = operator(**tensors, **plain, **_chosen(conformance), threads=threads)
    made = results if isinstance(results, tuple) else (results,)
    outputs = {port.name: array for port, array in zip(spec.outputs, made, strict=True) if array is not None}
    return Parts(spec.qualified_name, plain, conformance, tensors, outputs)


def _chosen(conformance: str | None) -> dict[str, str]:
    return {} if conformance is None else {"conformance": conformance}


def _named(spec: OpSpec, inputs: Any) -> dict[str, Any]:
    """Return inputs by argument name, without those that are absent."""
    names = [snake_case(port.name) for port in spec.vendor_inputs]
    if isinstance(inputs, Mapping):
        unknown = next((name for name in inputs if name not in names), None)
        if unknown is not None:
            raise ASK.refuse("inputs", unknown, "names among " + ", ".join(names), wrong_type=True)
        return {name: value for name, value in inputs.items() if value is not None}
    if isinstance(inputs, str | bytes) or not isinstance(inputs, Sequence):
        raise ASK.refuse("inputs", type(inputs).__name__, "a mapping by argument name, or a sequence in the order "
                         + ", ".join(names), wrong_type=True)
    if len(inputs) > len(names):
        raise ASK.refuse("inputs", f"{len(inputs)} arrays", f"at most {len(names)}: {', '.join(names)}",
                         wrong_type=True)
    return {name: value for name, value in zip(names, inputs, strict=False) if value is not None}


def _plain(value: Any) -> Any:
    """Return an attribute as JSON has it; the operator takes it for the same."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return [_plain(entry) for entry in value] if isinstance(value, list | tuple) else value


def bound_call(spec: OpSpec, arguments: Mapping[str, Any], conformance: str | None) -> Bound:
    """Return a checked and planned call of Python's arguments."""
    other = next((name for name in OTHER_ARGUMENTS if arguments.get(name) is not None), None)
    if other is not None:
        raise asking(spec, spec.conformances[0]).refuse(other, "given", "no such attribute of golden vectors",
                                                        "arguments", wrong_type=True)
    given = reader_of(spec)((), {**arguments, **_chosen(conformance)})
    return bind(spec, given.tensors, given.attributes, conformance=given.conformance)


def bound_of(golden: Golden) -> Bound:
    """Return the call of golden vectors, checked and planned.

    Raises
    ------
    OpError, OpTypeError
        If the operator refuses it.
    """
    spec = registry.resolve(golden.op).spec
    return bound_call(spec, {**golden.inputs, **golden.attributes}, golden.conformance)


def check_parts(parts: Parts) -> None:
    """Check what a file holds: the operator accepts the inputs, and makes outputs of these names, shapes and formats.

    Raises
    ------
    GraphError
    """
    try:
        spec = registry.get(parts.op).spec
        bound = bound_call(spec, {**_named(spec, parts.inputs), **parts.attributes}, parts.conformance)
    except (OpError, UnknownOp) as error:
        raise GraphError(f"holds a call that convreg refuses: {error}") from None
    made = {port.name: (list(tensor.extents), tensor.format)
            for port, tensor in zip(spec.outputs, bound.plan.outputs, strict=True) if tensor is not None}
    held = {name: (list(array.shape), format_name(array)) for name, array in parts.outputs.items()}
    for name in [*made, *held]:
        if made.get(name) != held.get(name):
            raise GraphError(f"output {name!r} is {_text(held.get(name))}; needed: {_text(made.get(name))}, which "
                             f"{parts.op} makes of the inputs")


def _text(tensor: tuple[list[int], str] | None) -> str:
    return "absent" if tensor is None else f"{tensor[1]} of shape {tensor[0]}"
