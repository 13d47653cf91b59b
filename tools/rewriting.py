"""The verbs that rewrite the nodes of a model."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import convreg
from convreg.errors import printable

Action = Callable[[argparse.Namespace], None]


def _writing(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="the ONNX file to read")
    parser.add_argument("-o", "--output", metavar="OUT", required=True, help="the ONNX file to write")


def _save(model: object, path: str) -> None:
    from . import onnx_io

    onnx_io.save(model, path)  # type: ignore[arg-type]
    kinds = sorted({f"{node.domain}::{node.op_type}" for node in model.graph.node if node.domain})  # type: ignore[attr-defined]
    print(f"{path}: {len(model.graph.node)} nodes, "  # type: ignore[attr-defined]
          f"{'outside standard ONNX: ' + printable(', '.join(kinds)) if kinds else 'all of standard ONNX'}")


def lower(parser: argparse.ArgumentParser) -> Action:
    """Add the arguments of ``convreg lower``; return the action."""
    _writing(parser)

    def act(args: argparse.Namespace) -> None:
        _save(convreg.onnx.lower(convreg.onnx.load(args.model)), args.output)

    return act


def functions(parser: argparse.ArgumentParser) -> Action:
    """Add the arguments of ``convreg functions``; return the action."""
    _writing(parser)

    def act(args: argparse.Namespace) -> None:
        _save(convreg.onnx.attach_functions(convreg.onnx.load(args.model)), args.output)

    return act


def translate(parser: argparse.ArgumentParser) -> Action:
    """Add the arguments of ``convreg translate``; return the action."""
    _writing(parser)
    parser.add_argument("--to", metavar="DIALECT", required=True,
                        help="the dialect: ascend, onednn, openvino, aten or onnx")
    parser.add_argument("--lower-rest", action="store_true",
                        help="write gradient nodes that the dialect cannot express, and Quantize and Dequantize, in "
                        "standard ONNX (default: fail at such gradients, and keep the conversions)")

    def act(args: argparse.Namespace) -> None:
        model = convreg.onnx.load(args.model)
        _save(convreg.onnx.translate(model, args.to, rest="lower" if args.lower_rest else "error"), args.output)

    return act
