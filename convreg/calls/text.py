"""The texts that are derived from a declaration: docstring, row of the table, and section of the docs page."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping

from ..formats import FORMATS
from ..spec import Attribute, OpSpec, by_conformance, snake_case
from .signature import SCALES, Operator, signature_of


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
    only = f" Allowed: only under {', '.join(map(repr, ports[0].only))}." if ports[0].only else ""
    return f"{len(ports)} float32 scales; None means no scale. {entries}{only}"


def _kind_text(attribute: Attribute) -> str:
    kind = {"int": "int", "ints": "sequence of int", "bool": "bool", "bools": "sequence of bool", "string": "str",
            "strings": "sequence of str"}
    text = kind[attribute.kind]
    return text if attribute.required else f"{text}, default {attribute.default!r}"


def _allowed(attribute: Attribute, spec: OpSpec) -> str:
    parts = []
    bases = dict.fromkeys(spec.base(conformance) for conformance in spec.conformances)
    if attribute.choices is not None:
        choices = {name: spellings for name, spellings in attribute.choices.items() if name == "*" or name in bases}
        for conformance, spellings in choices.items():
            where = "" if conformance == "*" or len(choices) == 1 else f" under {conformance!r}"
            case = "" if spellings.case_sensitive else " in any letter case"
            parts.append(", ".join(map(repr, spellings.table)) + case + where)
    lows = {base: by_conformance(attribute.minimum, base) for base in bases}
    alike = len({*lows.values()}) == 1
    bounds = {"" if alike else f" under {base!r}": low for base, low in lows.items() if low is not None}
    high = "" if attribute.maximum is None else f", at most {attribute.maximum}"
    parts += [f"at least {low}{high}{where}" for where, low in bounds.items()]
    if attribute.only:
        parts.append("only under " + ", ".join(map(repr, attribute.only)))
    return f" Allowed: {'; '.join(parts)}." if parts else ""


def _types_text(spec: OpSpec) -> list[str]:
    """List the number formats of the type variables that the arguments name; a shape and the scales name none."""
    variables: dict[str, list[str]] = {}
    named = {port.type for port in (*spec.inputs, *spec.outputs) if not port.shape and not port.scales}
    for variable in spec.types:
        if variable in named:
            variables.setdefault(", ".join(formats_of(spec, variable)), []).append(variable)
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
                "An array is anything that `numpy.asarray` takes, or a tensor of PyTorch. Masked arrays are refused,",
                "because no operator leaves numbers out. [rules.md](rules.md) lists the rules that errors name.", "",
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


