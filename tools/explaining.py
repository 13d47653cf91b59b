"""The verbs ``explain`` and ``algorithm``: what rules and kernels make of a call that is described by shapes."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from math import prod

import numpy as np

import convreg
from convreg import GraphError
from convreg.errors import Asking
from convreg.memory import Array, max_bytes
from convreg.spec import OpSpec, snake_case

Action = Callable[[argparse.Namespace], None]


def explain(parser: argparse.ArgumentParser) -> Action:
    """Show the result of every conformance for a call or a model's nodes, and how other vendors would read them."""
    parser.add_argument("subject", metavar="NAME|MODEL", help="an operator's name, or an ONNX file")
    _describing(parser)
    parser.add_argument("--node", metavar="NAME", help="only this node of a model: its name or the name of an output")

    def act(args: argparse.Namespace) -> None:
        if args.subject.endswith(".onnx"):
            if args.shape or args.set or args.dtype:
                raise GraphError("--shape, --set and --dtype describe a call; a model's nodes have theirs")
            for place, told in convreg.onnx.explain_nodes(args.subject, args.node).items():
                print(f"{place}\n{told}\n")
            return
        spec = convreg.get(args.subject).spec
        arguments = {**_shapes(args), **_attributes(spec, args)}
        print(convreg.explain(spec.qualified_name, dtypes=_formats(spec, args),
                              **{snake_case(name): value for name, value in arguments.items()}))

    return act


def algorithm(parser: argparse.ArgumentParser) -> Action:
    """Show the algorithm that computes a call, and what it was chosen over. Nothing is computed."""
    parser.add_argument("name", metavar="NAME", help="an operator's name")
    _describing(parser)
    parser.add_argument("--threads", type=int, metavar="N", help="the number of threads (default: convreg's)")

    def act(args: argparse.Namespace) -> None:
        spec = convreg.get(args.name).spec
        formats = _formats(spec, args)
        arguments: dict[str, object] = {
            name: _operand(name, extents, formats[name]) if name in spec.tensor_names else extents
            for name, extents in _shapes(args).items()}
        arguments |= _attributes(spec, args)
        choices = convreg.algorithm(spec.qualified_name, threads=args.threads,
                                    **{snake_case(name): value for name, value in arguments.items()})
        print("\n\n".join(map(str, choices)) or "no algorithm: the call has nothing to compute")

    return act


def _describing(parser: argparse.ArgumentParser) -> None:
    """Add the options that describe a call."""
    parser.add_argument("--shape", metavar="PORT=1,8,4,4", action="append", default=[],
                        help="the shape of an input; may be repeated")
    parser.add_argument("--set", metavar="NAME=VALUE", action="append", default=[],
                        help="an attribute; commas separate the entries of a list; may be repeated")
    parser.add_argument("--dtype", metavar="[PORT=]FORMAT", action="append", default=[],
                        help="the number format of all inputs or of one (default float32)")


def _shapes(args: argparse.Namespace) -> dict[str, list[int]]:
    return {name: _integers(f"--shape {name}", text) for name, text in _pairs("--shape", args.shape)}


def _attributes(spec: OpSpec, args: argparse.Namespace) -> dict[str, object]:
    return {name: _value(spec, name, text) for name, text in _pairs("--set", args.set)}


def _formats(spec: OpSpec, args: argparse.Namespace) -> dict[str, str]:
    """Return the number format of every input."""
    formats = dict.fromkeys((port.name for port in spec.inputs), "float32")
    for text in args.dtype:
        port, _, format = text.rpartition("=")
        formats.update({port: format} if port else dict.fromkeys(formats, format))
    return formats


def _operand(name: str, extents: Sequence[int], format: str) -> Array:
    """Return an array of a shape in C order, whose memory is not touched."""
    dtype = convreg.formats()[format].dtype
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
    try:
        return [int(entry) for entry in text.split(",") if entry.strip()]
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
