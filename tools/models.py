"""The verbs that read, write, check and run models: ``import``, ``export``, ``check`` and ``run``."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import convreg
from convreg import archives
from convreg.errors import printable
from convreg.files import refuse_unwritable, write_together

Action = Callable[[argparse.Namespace], None]


def import_(parser: argparse.ArgumentParser) -> Action:
    """Add the arguments of ``convreg import``; return the action."""
    parser.add_argument("source", metavar="SRC", help="the file to read; its content determines the format")
    parser.add_argument("-o", "--output", metavar="MODEL", required=True, help="the ONNX file to write")
    parser.add_argument("--bin", metavar="FILE",
                        help="the constants of an OpenVINO model (default: the .bin file beside SRC)")
    parser.add_argument("--lenient", action="store_true",
                        help="read a negative pads_end of a oneDNN data gradient as 0; it does not affect the values")
    parser.add_argument("--reader", choices=("standard", "openvino"), default="standard",
                        help="openvino: OpenVINO's package reads the model first and folds constants "
                        "(default: standard)")

    def act(args: argparse.Namespace) -> None:
        from . import onnx_io

        model = onnx_io.import_model(args.source, bin_path=args.bin, lenient=args.lenient, reader=args.reader)
        onnx_io.save(model, args.output)
        print(f"{args.output}: {_summary(model)}")

    return act


def export(parser: argparse.ArgumentParser) -> Action:
    """Add the arguments of ``convreg export``; return the action."""
    parser.add_argument("model", metavar="MODEL", help="the ONNX file to read")
    parser.add_argument("-o", "--output", metavar="OUT", required=True,
                        help="the file to write; its suffix chooses the format")

    def act(args: argparse.Namespace) -> None:
        from . import onnx_io

        onnx_io.export_model(convreg.onnx.load(args.model), args.output)
        print(f"{args.output}: written")

    return act


def check(parser: argparse.ArgumentParser) -> Action:
    """Add the arguments of ``convreg check``; return the action."""
    parser.add_argument("model", metavar="MODEL", help="the ONNX file to read")

    def act(args: argparse.Namespace) -> None:
        model = convreg.onnx.load(args.model)
        convreg.onnx.check(model)
        print(f"{args.model}: {_summary(model)}")

    return act


def _summary(model: object) -> str:
    graph = model.graph  # type: ignore[attr-defined]
    ours = sum(node.domain not in ("", "ai.onnx") for node in graph.node)
    names = [printable(", ".join(value.name for value in values)) for values in (graph.input, graph.output)]
    return f"ok, {len(graph.node)} nodes, {ours} of them outside standard ONNX; inputs {names[0]}; outputs {names[1]}"


def run(parser: argparse.ArgumentParser) -> Action:
    """Add the arguments of ``convreg run``; return the action."""
    parser.add_argument("model", metavar="MODEL", help="the ONNX file to run")
    parser.add_argument("-i", "--input", metavar="NAME=VALUE", action="append", default=[],
                        help="an input: an .npy file, 'random', or 'random:2,3,4' with the extents; may be repeated")
    parser.add_argument("--random", action="store_true", help="fill all other inputs with random values")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random values (default 0)")
    parser.add_argument("--engine", choices=("onnxruntime", "reference"),
                        help="what runs the model (default: onnxruntime if it is installed and runs the model)")
    parser.add_argument("-o", "--output", metavar="FILE.npz", help="write all outputs to one file")
    parser.add_argument("--output-dir", metavar="DIR", help="write each output to DIR/NAME.npy")

    def act(args: argparse.Namespace) -> None:
        from . import tensors

        folders = [] if args.output_dir is None else [Path(args.output_dir), *Path(args.output_dir).parents]
        if args.output is not None and Path(args.output).parent not in folders:  # those are made with the files
            refuse_unwritable("--output", args.output)
        model = convreg.onnx.load(args.model)
        session = convreg.onnx.Session(model, engine=args.engine)
        feeds = tensors.feeds(tensors.needed(model), args.input, fill=args.random, seed=args.seed)
        results = session.run(feeds)
        files = [] if args.output is None else [(args.output, archives.archive_of(results))]
        if args.output_dir is not None:
            files += archives.apart(results, args.output_dir)
        write_together(files, args.output_dir)
        for name, array in results.items():
            print(tensors.describe(name, array))
        note = session.engine_note if results.engine == session.engine else "onnxruntime refuses these inputs"
        print(f"engine: {results.engine}{f' ({note})' if note else ''}")

    return act
