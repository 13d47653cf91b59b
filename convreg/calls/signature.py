"""The Python signature of an operator, and the function that sorts the arguments of a call by it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

from ..errors import near_misses
from ..spec import Call, OpSpec, Port, Rules, snake_case
from .binding import asking

SCALES = "scales"
"""The one argument that stands for all ports that scale others."""


class Operator(Protocol):
    """The Python function of an operator, with its declaration and its float64 reference."""

    spec: OpSpec
    __name__: str

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the operator."""

    def reference(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the same call in float64 and return it unrounded, as float64."""


class Arguments(NamedTuple):
    """The arguments of a Python call: tensors in port order, attributes by the vendor's names, options of the call."""

    tensors: list[Any]
    attributes: dict[str, Any]
    conformance: Any
    out: Any
    threads: Any


def signature_of(spec: OpSpec) -> inspect.Signature:
    """Return the Python signature: ports by position, attributes by keyword, then what calls have in common."""
    parameters = [
        inspect.Parameter(snake_case(port.name), inspect.Parameter.POSITIONAL_OR_KEYWORD,
                          default=None if port.optional else inspect.Parameter.empty)
        for port in spec.vendor_inputs
    ]
    for index, attribute in enumerate(spec.attributes):
        # a positional argument with a default must not precede one without
        positional = spec.positional_attributes and not attribute.only
        bare = positional and any(later.required for later in spec.attributes[index:])
        parameters.append(inspect.Parameter(
            snake_case(attribute.name),
            inspect.Parameter.POSITIONAL_OR_KEYWORD if positional else inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if bare or attribute.required else attribute.default))
    extra: dict[str, Any] = {SCALES: None} if spec.scale_ports else {}
    if len(spec.conformances) > 1:
        extra["conformance"] = spec.conformances[0]
    parameters += [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
                   for name, default in {**extra, "out": None, "threads": None}.items()]
    return inspect.Signature(parameters)


def positional_names(signature: inspect.Signature) -> list[str]:
    """Return the arguments that may be given by position."""
    return [name for name, p in signature.parameters.items() if p.kind is p.POSITIONAL_OR_KEYWORD]


def tensor_port(spec: OpSpec, name: str) -> Port | None:
    """Return the input that takes a tensor and has this name, in the vendor's spelling or in Python's."""
    return next((port for port in spec.inputs if not port.shape and name in (port.name, snake_case(port.name))), None)


def reader_of(spec: OpSpec) -> Callable[[tuple[Any, ...], dict[str, Any]], Arguments]:
    """Return the function that sorts the positional and keyword arguments of a call."""
    signature = signature_of(spec)
    parameters, positional = signature.parameters, positional_names(signature)
    inputs = [snake_case(port.name) for port in spec.vendor_inputs]
    vendor_names = {snake_case(attribute.name): attribute.name for attribute in spec.attributes}
    unscaled = [None] * len(spec.scale_ports)
    call = asking(spec, spec.conformances[0])

    def read(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        if len(args) > len(positional):
            rule = _rules(call, kwargs.get("conformance")).arity
            raise call.refuse("arguments", f"{len(args)} positional", f"{len(positional)}: {', '.join(positional)}",
                              rule, wrong_type=True)
        for name, value in zip(positional, args, strict=False):
            if name in kwargs:
                raise call.refuse(name, "given twice", "one value", "arguments", wrong_type=True)
            kwargs[name] = value
        out, threads, conformance = (kwargs.pop(name, None) for name in ("out", "threads", "conformance"))
        tensors = [kwargs.pop(name, None) for name in inputs]
        if unscaled:
            scales = kwargs.pop(SCALES, None)
            tensors += unscaled if scales is None else scale_values(call, scales)
        attributes = {}
        for name, value in kwargs.items():
            if name not in vendor_names:
                raise _unknown_argument(call, name, value, parameters, conformance)
            attributes[vendor_names[name]] = value
        return Arguments(tensors, attributes, conformance, out, threads)

    return read


def scale_values(call: Call, value: Any) -> list[Any]:
    """Return one entry per port that scales, None where an operand has no scale."""
    ports = call.spec.scale_ports
    if not isinstance(value, tuple | list) or len(value) != len(ports):
        scaled = ", ".join(snake_case(port.scales) for port in ports)
        raise call.refuse(SCALES, value, f"a tuple of {len(ports)}: one scale or None for each of {scaled}",
                          "arguments", wrong_type=True)
    return list(value)


def _unknown_argument(call: Call, name: str, value: Any, known: Iterable[str], conformance: Any) -> Exception:
    names = list(known)
    near = near_misses(name, names)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    rule = _rules(call, conformance).unknown
    shown = "given" if hasattr(type(value), "__array__") else value  # the message would tell no more of a tensor
    return call.refuse(name, shown, f"{hint}one of {', '.join(names)}", rule, wrong_type=True)


def _rules(call: Call, conformance: Any) -> Rules:
    """Return the rows under a conformance that may be none."""
    known = isinstance(conformance, str) and conformance in call.spec.conformances
    return call.spec.rules_under(conformance if known else call.conformance)
