"""The verbs ``explain`` and ``algorithm``: what rules and kernels make of a call that is described by shapes."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Iterable, Sequence
from math import prod

import numpy as np

import convreg
from convreg import GraphError, UnknownOp
from convreg.calls.signature import signature_of, tensor_port
from convreg.errors import Asking, near_misses, shorten
from convreg.formats import FORMATS
from convreg.memory import Array, max_bytes
from convreg.spec import OpSpec, snake_case

Action = Callable[[argparse.Namespace], None]
_INTEGER = re.compile(r"[+-]?[0-9]+")


def explain(parser: argparse.ArgumentParser) -> Action:
    """Add the arguments of ``convreg explain``; return the action."""
    parser.add_argument("subject", metavar="NAME|MODEL", help="an operator's name, or an ONNX file")
    _describing(parser)
    parser.add_argument("--node", metavar="NAME", help="only this node of a model: its name or the name of an output")

    def act(args: argparse.Namespace) -> None:
        if _is_model(args.subject):
            if args.shape or args.set or args.dtype:
                raise GraphError("--shape, --set and --dtype describe a call; a model's nodes have theirs")
            for place, told in convreg.onnx.explain_nodes(args.subject, args.node).items():
                print(f"{place}\n{told}\n")
            return
        if args.node is not None:
            raise GraphError("--node names a node of a model; allowed: an ONNX file")
        spec = convreg.get(args.subject).spec
        print(convreg.explain(spec.qualified_name, dtypes=_formats(spec, args), **_arguments(spec, args, _extents)))

    return act


def _is_model(subject: str) -> bool:
    """Whether the subject is a file; names of operators come first, unless they end as ONNX files do."""
    if subject.endswith(".onnx"):
        return True
    try:
        convreg.get(subject)
    except UnknownOp:
        return os.path.exists(subject)
    return False


def algorithm(parser: argparse.ArgumentParser) -> Action:
    """Add the arguments of ``convreg algorithm``; return the action."""
    parser.add_argument("name", metavar="NAME", help="an operator's name")
    _describing(parser)
    parser.add_argument("--threads", type=int, metavar="N", help="the number of threads (default: convreg's)")

    def act(args: argparse.Namespace) -> None:
        spec = convreg.get(args.name).spec
        formats = _formats(spec, args)

        def operand(name: str, text: str) -> object:
            port, extents = tensor_port(spec, name), _extents(name, text)
            return extents if port is None else _operand(name, extents, formats[port.name])

        choices = convreg.algorithm(spec.qualified_name, threads=args.threads, **_arguments(spec, args, operand))
        print("\n\n".join(map(str, choices)) or "no algorithm: the call has no sums to compute")

    return act


def _describing(parser: argparse.ArgumentParser) -> None:
    """Add the options that describe a call."""
    parser.add_argument("--shape", metavar="PORT=1,8,4,4", action="append", default=[],
                        help="the shape of an input; may be repeated")
    parser.add_argument("--set", metavar="NAME=VALUE", action="append", default=[],
                        help="an attribute; commas separate the entries of a list; may be repeated")
    parser.add_argument("--dtype", metavar="[PORT=]FORMAT", action="append", default=[], type=_stated_format,
                        help=f"the number format of all inputs or of one: {', '.join(FORMATS)} (default float32)")


def _stated_format(text: str) -> str:
    """Return the text of an option ``--dtype`` if its format exists; which ports there are, the operator decides."""
    format = text.rpartition("=")[2]
    if format not in FORMATS:
        raise argparse.ArgumentTypeError(
            f"no number format named {shorten(format)}; allowed: {', '.join(FORMATS)}{_hint(format, FORMATS)}")
    return text


def _hint(name: str, known: Iterable[str]) -> str:
    near = near_misses(name, known)
    return f" (did you mean {near[0]!r}?)" if near else ""


def _arguments(spec: OpSpec, args: argparse.Namespace, shaped: Callable[[str, str], object]) -> dict[str, object]:
    """Return the arguments of the operator's function; `shaped` reads the name and the text of a shape."""
    arguments: dict[str, object] = {}
    known = [name for name in signature_of(spec).parameters if name not in ("out", "threads")]
    for option, texts in (("--shape", args.shape), ("--set", args.set)):
        for name, text in _pairs(option, texts):
            if snake_case(name) not in known:  # "threads" and the like would be taken for options of the functions
                raise GraphError(f"{option} {name}={text}: allowed: one of {', '.join(known)}"
                                 f"{_hint(snake_case(name), known)}")
            if snake_case(name) in arguments:  # in the vendor's spelling, in Python's, or in one of each
                raise GraphError(f"{option} {name}={text}: {snake_case(name)} is given twice; allowed: one value")
            arguments[snake_case(name)] = shaped(name, text) if option == "--shape" else _value(spec, name, text)
    return arguments


def _extents(name: str, text: str) -> list[int]:
    return _integers(f"--shape {name}", text)


def _formats(spec: OpSpec, args: argparse.Namespace) -> dict[str, str]:
    """Return the number format of every tensor, by the vendor's names."""
    of_all: list[str] = []
    formats: dict[str, str] = {}
    for text in args.dtype:
        name, equals, format = text.rpartition("=")
        port = tensor_port(spec, name)
        if equals and port is None:
            known = [snake_case(port.name) for port in spec.vendor_inputs if not port.shape]
            raise GraphError(f"--dtype {text}: allowed: FORMAT, or PORT=FORMAT with one of {', '.join(known)}"
                             f"{_hint(name, known)}")
        if of_all if port is None else port.name in formats:
            raise GraphError(f"--dtype {text}: the format of {name or 'all inputs'} is given twice; allowed: one value")
        if port is None:
            of_all.append(format)
        else:
            formats[port.name] = format
    rest = of_all[0] if of_all else "float32"
    return {port.name: formats.get(port.name, rest) for port in spec.inputs if not port.shape}


def _operand(name: str, extents: Sequence[int], format: str) -> Array:
    """Return an array of a shape in C order, whose memory is not touched."""
    if any(extent < 0 for extent in extents):
        raise GraphError(f"--shape {name}={','.join(map(str, extents))}: allowed: the shape of a tensor, without an "
                         "extent below 0")
    dtype = FORMATS[format].dtype
    limit = max_bytes(Asking("convreg::algorithm"))
    try:
        if prod(extents) * dtype.itemsize > limit:
            raise ValueError
        return np.zeros(extents, dtype)
    except (ValueError, OverflowError):
        raise GraphError(f"--shape {name}={','.join(map(str, extents))}: allowed: the shape of a tensor of at most "
                         f"{limit} bytes") from None


def _pairs(option: str, texts: Sequence[str]) -> list[tuple[str, str]]:
    pairs = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise GraphError(f"{option} {text}: allowed: NAME=VALUE")
        pairs.append((name, value))
    return pairs


def _integers(what: str, text: str) -> list[int]:
    """Read integers with commas between them; nothing but blanks is the empty list."""
    entries = [entry.strip() for entry in text.split(",")] if text.strip() else []
    try:
        if not all(map(_INTEGER.fullmatch, entries)):  # int() takes underscores and other alphabets' digits too
            raise ValueError
        return [int(entry) for entry in entries]
    except ValueError:
        raise GraphError(f"{what}={text}: allowed: integers with commas between them") from None


def _value(spec: OpSpec, name: str, text: str) -> object:
    """Read an attribute as its kind asks; the operator refuses names that it does not know."""
    kinds = {snake_case(attribute.name): attribute.kind for attribute in spec.attributes}
    kind = kinds.get(snake_case(name), "ints" if any(port.name == name for port in spec.shape_ports) else "string")
    if kind in ("string", "strings"):
        return text if kind == "string" else text.split(",")
    if kind in ("bool", "bools"):
        words = {"true": True, "false": False, "1": True, "0": False}
        values = [words.get(entry.strip().lower()) for entry in text.split(",")]
        if None in values:
            raise GraphError(f"--set {name}={text}: allowed: true or false")
        return values[0] if kind == "bool" else values
    numbers = _integers(f"--set {name}", text)
    if kind == "int" and len(numbers) != 1:
        raise GraphError(f"--set {name}={text}: allowed: an integer")
    return numbers[0] if kind == "int" else numbers
