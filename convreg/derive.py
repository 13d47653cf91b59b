"""Derives from a declaration what a user sees: Python function, signature, docstring, table row and docs page.

`binding` derives the validation and `convreg.onnx.schemas` the ONNX schemas. No other module repeats a declaration.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from math import prod
from types import ModuleType
from typing import Any, NamedTuple, Protocol, cast

import numpy as np

from ._likeness import likeness
from .binding import Bound, asking, bind, remember
from .errors import OpError, Refusing, near_misses
from .formats import FORMATS
from .guard import failure
from .outputs import Array, allocate, check_sizes, max_bytes
from .spec import Attribute, Call, OpSpec, Plan, Rules, by_conformance, snake_case

Result = Array | tuple[Array | None, ...] | None


class Operator(Protocol):
    """The Python function of an operator, with its declaration and its float64 reference."""

    spec: OpSpec
    __name__: str

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the operator."""

    def reference(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the same call by plain loops in float64 and return it unrounded, as float64."""


class Arguments(NamedTuple):
    """The arguments of a Python call: tensors in port order, attributes by the vendor's names, options of the call."""

    tensors: list[Any]
    attributes: dict[str, Any]
    conformance: Any
    out: Any
    threads: Any


class Repeat(NamedTuple):
    """An earlier legal call: its plan, and the positions of its arrays among the arguments (-1 = absent)."""

    call: Call
    plan: Plan
    places: Sequence[int]
    workers: int


def positional_names(signature: inspect.Signature) -> list[str]:
    """Return the arguments that may be given by position."""
    return [name for name, p in signature.parameters.items() if p.kind is p.POSITIONAL_OR_KEYWORD]


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
                raise _unknown_argument(call, name, parameters, conformance)
            attributes[vendor_names[name]] = value
        return Arguments(tensors, attributes, conformance, out, threads)

    return read


SCALES = "scales"
"""The one argument that stands for all ports that scale others."""


def scale_values(call: Call, value: Any) -> list[Any]:
    """Return one entry per port that scales, None where an operand has no scale."""
    ports = call.spec.scale_ports
    if not isinstance(value, tuple | list) or len(value) != len(ports):
        scaled = ", ".join(snake_case(port.scales) for port in ports)
        raise call.refuse(SCALES, value, f"a tuple of {len(ports)}: one scale or None for each of {scaled}",
                          "arguments", wrong_type=True)
    return list(value)


def function_of(spec: OpSpec) -> Operator:
    """Return the Python function that a declaration describes."""
    read, signature = reader_of(spec), signature_of(spec)
    positional = positional_names(signature)
    tensor_names = frozenset(map(snake_case, spec.tensor_names))
    no_outputs = (None,) * len(spec.outputs)
    seen: dict[Hashable, Repeat] = {}

    def function(*args: Any, **kwargs: Any) -> Result:
        key = likeness(positional, tensor_names, args, kwargs)
        if (known := seen.get(key)) is not None:
            call, plan, places, workers = known
            arrays = (*args, *kwargs.values(), None)
            return perform(spec, call, plan, tuple([arrays[place] for place in places]), no_outputs, workers)
        given = [*positional[:len(args)], *kwargs]
        tensors, attributes, conformance, out, threads = read(args, kwargs)
        bound = bind(spec, tensors, attributes, conformance=conformance, out=out)
        workers = thread_count(bound.call, threads)
        if key is not None and bound.repeats(tensors):
            places = [-1 if array is None else given.index(snake_case(name))
                      for name, array in zip(spec.input_names, bound.inputs, strict=True)]
            remember(seen, key, Repeat(bound.call, bound.plan, places, workers))
        return perform(spec, *bound, workers)

    def referee(*args: Any, **kwargs: Any) -> Result:
        """Compute the same call by plain loops in float64 and return it unrounded, as float64."""
        tensors, attributes, conformance, out, threads = read(args, kwargs)
        if out is not None:
            raise asking(spec, spec.conformances[0]).refuse(
                "out", "given", "None: the reference returns new arrays in float64", "arguments", wrong_type=True)
        thread_count(asking(spec, spec.conformances[0]), threads)
        return refer(spec, tensors, attributes, conformance=conformance)

    function.__name__ = function.__qualname__ = spec.function_name
    function.__module__ = f"convreg.{spec.vendor}"
    function.__doc__ = docstring(spec)
    vars(function).update(__signature__=signature, spec=spec, reference=referee)
    return cast(Operator, function)


def execute(
    spec: OpSpec,
    inputs: Sequence[Any],
    attributes: Mapping[str, Any],
    *,
    conformance: str | None = None,
    out: Any = None,
    threads: int | None = None,
    wanted: tuple[bool, ...] | None = None,
) -> Result:
    """Bind, plan, allocate and run one call given in the vendor's names, as graph nodes do."""
    bound = bind(spec, inputs, attributes, conformance=conformance, out=out, wanted=wanted)
    return perform(spec, *bound, thread_count(bound.call, threads))


def perform(
    spec: OpSpec, call: Call, plan: Plan, inputs: tuple[Array | None, ...], given: tuple[Array | None, ...],
    workers: int,
) -> Result:
    """Run a bound call; `given` are the arrays given as ``out=``."""
    outputs = allocate(call, plan, given)
    try:
        spec.run(plan, inputs, outputs, kernels(), workers)
    except (OverflowError, MemoryError, OpError) as error:
        raise failure(call, error) from None
    return outputs[0] if len(outputs) == 1 else outputs


def refer(
    spec: OpSpec, inputs: Sequence[Any], attributes: Mapping[str, Any], *, conformance: str | None = None
) -> Result:
    """Compute a call given in the vendor's names by the plain loops in float64, without any rounding."""
    from .conversion import dequantize  # compiled, as the loops are

    bound = bind(spec, inputs, attributes, conformance=conformance)
    check_reference_sizes(bound)
    try:
        wide = [None if array is None else dequantize(array, dtype=np.float64) for array in bound.inputs]
        outputs = exact_results(spec, bound.plan, wide)
    except (OverflowError, MemoryError, OpError) as error:
        raise failure(bound.call, error) from None
    return outputs[0] if len(outputs) == 1 else outputs


def check_reference_sizes(bound: Bound) -> None:
    """Refuse a call whose operands and results take more than ``max_bytes`` as float64, which the reference needs."""
    numbers = sum(array.size for array in bound.inputs if array is not None)
    numbers += sum(prod(made.extents) for made in bound.plan.outputs if made is not None)
    if 8 * numbers > max_bytes(bound.call):
        raise bound.call.refuse("inputs", f"{numbers} numbers with the outputs", "what takes at most "
                                f"{max_bytes(bound.call)} bytes as float64 (CONVREG_MAX_BYTES sets the limit)",
                                "max_bytes")
    check_sizes(bound.call, [made and made._replace(format="float64") for made in bound.plan.outputs])


def exact_results(spec: OpSpec, plan: Plan, inputs: Sequence[Array | None]) -> tuple[Array | None, ...]:
    """Compute a planned call on float64 arrays by the plain loops, without any rounding."""
    from .ops.kernels import plain

    outputs = tuple(None if made is None else np.zeros(made.extents) for made in plan.outputs)
    spec.run(plan, inputs, outputs, plain, 0)
    return outputs


@lru_cache(maxsize=1)
def kernels() -> ModuleType:
    """Return the compiled kernels, imported on first use."""
    from .ops import kernels

    return kernels


def thread_count(call: Refusing, threads: int | None) -> int:
    """Return the number of threads for the kernels; 0 is their default."""
    if threads is None:
        return 0
    if isinstance(threads, bool) or not isinstance(threads, int | np.integer):
        raise call.refuse("threads", threads, "a positive integer or None", "arguments", wrong_type=True)
    if not 0 < threads < 2**31:
        raise call.refuse("threads", threads, "a positive integer or None", "arguments")
    return int(threads)


def _unknown_argument(call: Call, name: str, known: Iterable[str], conformance: Any) -> Exception:
    names = list(known)
    near = near_misses(name, names)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    rule = _rules(call, conformance).unknown
    return call.refuse(name, "given", f"{hint}one of {', '.join(names)}", rule, wrong_type=True)


def _rules(call: Call, conformance: Any) -> Rules:
    """Return the rows under a conformance that may be none."""
    known = isinstance(conformance, str) and conformance in call.spec.conformances
    return call.spec.rules_under(conformance if known else call.conformance)


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


def docstring(spec: OpSpec) -> str:
    """Return the numpydoc text of an operator's function."""
    summary, _, formula = spec.doc.partition(": ")
    lines = [summary.removesuffix(".") + ".", ""]
    if formula:
        lines += [*textwrap.wrap(formula, 100), ""]
    lines += ["Parameters", "----------"]
    for port in spec.vendor_inputs:
        kind = "sequence of int" if port.shape else f"array of {port.type}"
        lines += _entry(f"{snake_case(port.name)} : {kind}{', optional' if port.optional else ''}", port.doc)
    for attribute in spec.attributes:
        lines += _entry(f"{snake_case(attribute.name)} : {_kind_text(attribute)}",
                        attribute.doc + _allowed(attribute, spec))
    if spec.scale_ports:
        lines += _entry(f"{SCALES} : tuple of arrays, optional", _scales_text(spec))
    if len(spec.conformances) > 1:
        lines += _entry("conformance : str", "The rules that hold: " + ", ".join(map(repr, spec.conformances)) + ".")
    several = len(spec.outputs) > 1
    lines += _entry(
        f"out : {'tuple of arrays' if several else 'array'}, optional",
        "Where to write the result; any strides." + (" None allocates that result." if several else ""))
    lines += _entry("threads : int, optional", "Number of threads. The bits of the result do not depend on it.")
    lines += ["", "Returns", "-------"]
    for port in spec.outputs:
        masked = " or None" if port.optional else ""
        lines += _entry(f"{snake_case(port.name)} : array of {port.type}{masked}", port.doc)
    lines += ["", "Raises", "------"]
    lines += _entry("OpError", "The rules refuse a value. The error names the row of the rule table.")
    lines += _entry("OpTypeError",
                    "A number format is wrong, an argument is missing or unknown, or a value has the wrong type.")
    lines += ["", "Notes", "-----", *_types_text(spec), "", *textwrap.wrap(f"Source: {spec.source}", 100)]
    lines += [f"ONNX node: {spec.name} of domain {spec.onnx_domain}, version {spec.since_version}."]
    return "\n".join(lines)


def _entry(head: str, text: str) -> list[str]:
    return [head, *textwrap.wrap(text, 100, initial_indent="    ", subsequent_indent="    ")]


def _scales_text(spec: OpSpec) -> str:
    """Describe each entry of the tuple by the documentation of its port."""
    ports = spec.scale_ports
    entries = " ".join(f"For {snake_case(port.scales)}: {port.doc}" for port in ports)
    return f"{len(ports)} float32 scales; None means no scale. {entries} Allowed: only under " \
           f"{', '.join(map(repr, ports[0].only))}."


def _kind_text(attribute: Attribute) -> str:
    kind = {"int": "int", "ints": "sequence of int", "bool": "bool", "bools": "sequence of bool", "string": "str",
            "strings": "sequence of str"}
    text = kind[attribute.kind]
    return text if attribute.required else f"{text}, default {attribute.default!r}"


def _allowed(attribute: Attribute, spec: OpSpec) -> str:
    parts = []
    if attribute.choices is not None:
        bases = {spec.base(conformance) for conformance in spec.conformances}
        choices = {name: spellings for name, spellings in attribute.choices.items() if name == "*" or name in bases}
        for conformance, spellings in choices.items():
            where = "" if conformance == "*" or len(choices) == 1 else f" under {conformance!r}"
            case = "" if spellings.case_sensitive else " in any letter case"
            parts.append(", ".join(map(repr, spellings.table)) + case + where)
    low = attribute.minimum if not isinstance(attribute.minimum, Mapping) else min(
        (value for value in attribute.minimum.values() if value is not None), default=None)
    if low is not None:
        parts.append(f"at least {low}" + (f", at most {attribute.maximum}" if attribute.maximum is not None else ""))
    if attribute.only:
        parts.append("only under " + ", ".join(map(repr, attribute.only)))
    return f" Allowed: {'; '.join(parts)}." if parts else ""


def _types_text(spec: OpSpec) -> list[str]:
    variables: dict[str, list[str]] = {}
    shapes = {port.type for port in spec.shape_ports}
    for variable in spec.types:
        formats = "an integer type" if variable in shapes else ", ".join(formats_of(spec, variable))
        variables.setdefault(formats, []).append(variable)
    rows = [f"{', '.join(names)}: {formats}." for formats, names in variables.items()]
    if spec.uniform:
        chosen = by_conformance(spec.types[spec.outputs[0].type], spec.uniform[0])
        rows.append(f"Under {' and '.join(map(repr, spec.uniform))} all tensors have one format, "
                    f"{' or '.join(chosen)}.")
    return [line for row in rows for line in textwrap.wrap(row, 100)]


def formats_of(spec: OpSpec, variable: str) -> list[str]:
    """Every number format that a type variable takes under some conformance, in the order of the records."""
    declared = spec.types[variable]
    lists = declared.values() if isinstance(declared, Mapping) else [declared]
    union = {name for names in lists for name in names}
    return [name for name in FORMATS if name in union]


def docs_page(operators: Iterable[Operator]) -> str:
    """Return the Markdown page of operators: one section each, signature and docstring."""
    sections = ["# Operators", "",
                "`convreg docs` writes this page from the declarations in `ops/`.", "",
                table(operators := list(operators))]
    for operator in operators:
        spec = operator.spec
        signature = f"convreg.{spec.vendor}.{spec.function_name}{signature_of(spec)}"
        sections += ["", f"## {spec.qualified_name}", "", "```text",
                     *textwrap.wrap(signature, 110, subsequent_indent="    "), "```", "", "```text", docstring(spec),
                     "```"]
    return "\n".join(sections) + "\n"


def table(operators: Iterable[Operator]) -> str:
    """Return the Markdown table of operators, their functions, number formats and conformances."""
    rows = ["| operator | Python | formats | conformance |", "|---|---|---|---|"]
    for operator in operators:
        spec = operator.spec
        used = {name for variable in spec.types for name in formats_of(spec, variable)}
        formats = [name for name in FORMATS if name in used]
        rows.append(f"| {spec.qualified_name} | `convreg.{spec.vendor}.{spec.function_name}` | {', '.join(formats)} | "
                    f"{', '.join(spec.conformances) if len(spec.conformances) > 1 else ''} |")
    return "\n".join(rows)


