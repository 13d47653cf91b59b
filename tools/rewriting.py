"""The verbs that rewrite the nodes of a model, and the verb ``explain``."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

import convreg
from convreg import GraphError
from convreg.spec import OpSpec, snake_case

Action = Callable[[argparse.Namespace], None]


def _writing(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="the ONNX file to read")
    parser.add_argument("-o", "--output", metavar="OUT", required=True, help="the ONNX file to write")


def _save(model: object, path: str) -> None:
    from . import onnx_io

    onnx_io.save(model, path)  # type: ignore[arg-type]
    kinds = sorted({f"{node.domain}::{node.op_type}" for node in model.graph.node if node.domain})  # type: ignore[attr-defined]
    print(f"{path}: {len(model.graph.node)} nodes, "  # type: ignore[attr-defined]
          f"{'outside standard ONNX: ' + ', '.join(kinds) if kinds else 'all of standard ONNX'}")


def lower(parser: argparse.ArgumentParser) -> Action:
    """Rewrite every convreg node of a model to standard ONNX, so that any runtime can run it."""
    _writing(parser)

    def act(args: argparse.Namespace) -> None:
        _save(convreg.onnx.lower(convreg.onnx.load(args.model)), args.output)

    return act


def functions(parser: argparse.ArgumentParser) -> Action:
    """Add a function body to every convreg node of a model, for runtimes without convreg."""
    _writing(parser)

    def act(args: argparse.Namespace) -> None:
        _save(convreg.onnx.attach_functions(convreg.onnx.load(args.model)), args.output)

    return act


def translate(parser: argparse.ArgumentParser) -> Action:
    """Rewrite the gradient nodes of a model to the operators of one dialect."""
    _writing(parser)
    parser.add_argument("--to", metavar="DIALECT", required=True,
                        help="the dialect: ascend, onednn, openvino, aten or onnx")
    parser.add_argument("--lower-rest", action="store_true",
                        help="write nodes that the dialect cannot express in standard ONNX (default: fail)")

    def act(args: argparse.Namespace) -> None:
        model = convreg.onnx.load(args.model)
        _save(convreg.onnx.translate(model, args.to, rest="lower" if args.lower_rest else "error"), args.output)

    return act


def explain(parser: argparse.ArgumentParser) -> Action:
    """Show the result of every conformance for a call or a model's nodes, and how other vendors would read them."""
    parser.add_argument("subject", metavar="NAME|MODEL", help="an operator's name, or an ONNX file")
    parser.add_argument("--shape", metavar="PORT=1,8,4,4", action="append", default=[],
                        help="the shape of an input; may be repeated")
    parser.add_argument("--set", metavar="NAME=VALUE", action="append", default=[],
                        help="an attribute; commas separate the entries of a list; may be repeated")
    parser.add_argument("--dtype", metavar="[PORT=]FORMAT", action="append", default=[],
                        help="the number format of all inputs or of one (default float32)")
    parser.add_argument("--node", metavar="NAME", help="only this node of a model: its name or the name of an output")

    def act(args: argparse.Namespace) -> None:
        if args.subject.endswith(".onnx"):
            if args.shape or args.set or args.dtype:
                raise GraphError("--shape, --set and --dtype describe a call; a model's nodes have theirs")
            for place, told in convreg.onnx.explain_nodes(args.subject, args.node).items():
                print(f"{place}\n{told}\n")
            return
        spec = convreg.get(args.subject).spec
        arguments: dict[str, object] = {
            name: _integers(f"--shape {name}", text) for name, text in _pairs("--shape", args.shape)}
        arguments |= {name: _value(spec, name, text) for name, text in _pairs("--set", args.set)}
        formats = dict.fromkeys((port.name for port in spec.inputs), "float32")
        for text in args.dtype:
            port, _, format = text.rpartition("=")
            formats.update({port: format} if port else dict.fromkeys(formats, format))
        print(convreg.explain(spec.qualified_name, dtypes=formats,
                              **{snake_case(name): value for name, value in arguments.items()}))

    return act


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
