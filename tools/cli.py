"""The command line, ``convreg VERB``. Each verb is a function that adds its arguments and returns the action."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import convreg
from convreg import GraphError, OpError, UnknownOp, archives
from convreg.calls.signature import signature_of
from convreg.calls.text import docs_page, table
from convreg.errors import printable
from convreg.files import read_bytes, reason, refuse_unwritable, write_atomically, write_together
from convreg.registry.builtin import OPERATORS

from .bench import bench
from .explaining import algorithm, explain
from .golden import compare, golden_
from .numerics import numerics_
from .rewriting import functions, lower, translate
from .training import train, train_step

Action = Callable[[argparse.Namespace], int | None]
"""Returns the exit status if it is not 0."""
TABLE_START, TABLE_END = "<!-- operators:begin -->", "<!-- operators:end -->"


def import_(parser: argparse.ArgumentParser) -> Action:
    """Import a oneDNN graph (JSON) or an OpenVINO model (XML with a bin file) as an ONNX model."""
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
    """Export a model as OpenVINO IR (.xml and .bin) or as a oneDNN graph (.json)."""
    parser.add_argument("model", metavar="MODEL", help="the ONNX file to read")
    parser.add_argument("-o", "--output", metavar="OUT", required=True,
                        help="the file to write; its suffix chooses the format")

    def act(args: argparse.Namespace) -> None:
        from . import onnx_io

        onnx_io.export_model(convreg.onnx.load(args.model), args.output)
        print(f"{args.output}: written")

    return act


def check(parser: argparse.ArgumentParser) -> Action:
    """Check a model with onnx's full checker and the rules of the operators."""
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
    """Run a model and print one line per output: name, shape, element type, smallest, largest and mean value.

    A line after the outputs names the engine that computed them.
    """
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


def list_(parser: argparse.ArgumentParser) -> Action:
    """List the operators."""

    def act(args: argparse.Namespace) -> None:
        for operator in convreg.operators():
            spec = operator.spec
            choice = f"  conformance {', '.join(spec.conformances)}" if len(spec.conformances) > 1 else ""
            print(f"{spec.qualified_name:42} convreg.{spec.vendor}.{spec.function_name}{choice}")

    return act


def show(parser: argparse.ArgumentParser) -> Action:
    """Show an operator's signature and documentation."""
    parser.add_argument("name", metavar="NAME", help="vendor::Name, or only Name if one vendor has it")

    def act(args: argparse.Namespace) -> None:
        operator = convreg.get(args.name)
        spec = operator.spec
        print(f"convreg.{spec.vendor}.{spec.function_name}{signature_of(spec)}\n\n{operator.__doc__}")

    return act


def docs(parser: argparse.ArgumentParser) -> Action:
    """Write docs/operators.md and the table of operators in README.md, both from the declarations."""
    parser.add_argument("--root", metavar="DIR", default=".", help="the checkout (default: the current directory)")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file would change")

    def act(args: argparse.Namespace) -> None:
        root = Path(args.root)
        readme = root / "README.md"
        wanted = {root / "docs" / "operators.md": docs_page(OPERATORS),
                  readme: _with_table(readme, table(OPERATORS))}
        stale = [path for path, text in wanted.items() if not path.is_file() or _text(path) != text]
        if stale and args.check:
            paths = " and ".join(map(str, stale))
            raise GraphError(f"{paths} differ from the declarations; run `convreg docs`")
        for path in stale:
            content = wanted[path].encode("utf-8")
            write_atomically(path, lambda file, content=content: file.write(content))  # type: ignore[misc]
            print(f"{path}: written")

    return act


def _text(path: Path) -> str:
    try:
        return read_bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise GraphError(f"{path}: not text in UTF-8: {reason(error)}") from None


def _with_table(path: Path, rows: str) -> str:
    """Return the file's text with the rows between the markers replaced."""
    text = _text(path)
    before, start, rest = text.partition(TABLE_START)
    _, end, after = rest.partition(TABLE_END)
    if not start or not end:
        raise GraphError(f"{path} lacks the lines {TABLE_START!r} and {TABLE_END!r}, which enclose the table")
    return f"{before}{start}\n{rows.strip()}\n{end}{after}"


def capabilities(parser: argparse.ArgumentParser) -> Action:
    """Print the instruction sets, which one is used and why, the number of threads and the version."""

    def act(args: argparse.Namespace) -> None:
        for name, value in convreg.capabilities().items():
            if isinstance(value, dict):
                value = [f"{key} {number:.4g}" for key, number in value.items()]
            print(f"{name}: {', '.join(value) if isinstance(value, list) else value}")

    return act


VERBS = (import_, export, run, check, list_, show, docs, capabilities, bench, numerics_, golden_, compare, explain,
         algorithm, lower, functions, translate, train_step, train)


def parser_of(verbs: Sequence[Callable[[argparse.ArgumentParser], Action]] = VERBS) -> argparse.ArgumentParser:
    """Return the parser with one subcommand per verb; the function gives its name and description."""
    parser = argparse.ArgumentParser(prog="convreg", description="Gradients of convolutions as vendors define them.")
    parser.add_argument("--version", action="version", version=f"convreg {convreg.__version__}")
    commands = parser.add_subparsers(metavar="VERB", required=True)
    for verb in verbs:
        text = verb.__doc__ or ""
        command = commands.add_parser(verb.__name__.rstrip("_").replace("_", "-"), help=text, description=text)
        command.set_defaults(failure=1)
        command.set_defaults(act=verb(command), refuse=command.error)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb and return the exit status: 0, or 1 after one message on the standard error.

    A verb may have other statuses for its verdict and for its failure.
    """
    args, unknown = parser_of().parse_known_args(arguments)
    if unknown:  # argparse would show the usage of `convreg`, which names no option of the verb
        args.refuse(f"unrecognized arguments: {' '.join(unknown)}")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names may have characters that its encoding lacks
    try:
        status = args.act(args) or 0
        if sys.stdout is not None:  # it is None where the caller closed it
            sys.stdout.flush()
    except BrokenPipeError:  # the reader of our output, such as `head`, has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
    except (GraphError, OpError, UnknownOp, MemoryError, OSError) as error:
        print(f"convreg: {printable(_message(error)).removeprefix('convreg: ')}", file=sys.stderr)
        return int(args.failure)
    return int(status)


def _message(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.filename}: {reason(error)}" if error.filename else reason(error)
    return " ".join([str(error) or type(error).__name__, *getattr(error, "__notes__", [])])


if __name__ == "__main__":
    sys.exit(main())
