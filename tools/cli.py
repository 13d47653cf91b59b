"""The command line, ``convreg VERB``. The module of a verb is imported when the verb is chosen."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import convreg
from convreg import GraphError, OpError, UnknownOp
from convreg.errors import printable
from convreg.files import reason

Action = Callable[[argparse.Namespace], int | None]
"""Returns the exit status if it is not 0."""


class Verb(NamedTuple):
    """A verb: its name, its description, and where the function is that adds its arguments and returns the action."""

    name: str
    text: str
    module: str
    function: str

    def add_to(self, parser: argparse.ArgumentParser) -> Action:
        """Add the arguments of the verb to its parser; return the action."""
        function: Callable[[argparse.ArgumentParser], Action] = getattr(
            import_module(f"{__package__}.{self.module}"), self.function)
        return function(parser)


VERBS = (
    Verb("import", "Import a oneDNN graph (JSON) or an OpenVINO model (XML with a bin file) as an ONNX model.",
         "models", "import_"),
    Verb("export", "Export a model as OpenVINO IR (.xml and .bin) or as a oneDNN graph (.json).", "models", "export"),
    Verb("run", "Run a model and print one line per output: name, shape, element type, smallest, largest and mean "
         "value. A line after the outputs names the engine that computed them.", "models", "run"),
    Verb("check", "Check a model with onnx's full checker and the rules of the operators.", "models", "check"),
    Verb("list", "List the operators.", "operators", "list_"),
    Verb("show", "Show an operator's signature and documentation.", "operators", "show"),
    Verb("docs", "Write docs/operators.md and the table of operators in README.md, both from the declarations.",
         "operators", "docs"),
    Verb("capabilities", "Print the instruction sets, which one is used and why, the number of threads and the "
         "version.", "operators", "capabilities"),
    Verb("bench", "Time convreg and other libraries on layers of networks, and check each result first.",
         "bench", "bench"),
    Verb("numerics", "Measure the error of gradients in low-precision formats against float64, with and without "
         "scales.", "numerics", "numerics_"),
    Verb("golden", "Write golden vectors: inputs, exact results and the bound of errors, in the files of another "
         "tool.", "golden", "golden_"),
    Verb("compare", "Judge results of a kernel by golden vectors; the exit status is 0, 1 for wrong results, 2 without "
         "a verdict.", "golden", "compare"),
    Verb("explain", "Show the result of every conformance for a call or a model's nodes, and how other vendors would "
         "read them.", "explaining", "explain"),
    Verb("algorithm", "Show the algorithm that computes a call, and what it was chosen over. Nothing is computed.",
         "explaining", "algorithm"),
    Verb("lower", "Rewrite every convreg node of a model to standard ONNX, so that any runtime can run it.",
         "rewriting", "lower"),
    Verb("functions", "Add a function body to every convreg node of a model, for runtimes without convreg.",
         "rewriting", "functions"),
    Verb("translate", "Rewrite the gradient nodes of a model to the operators of one dialect.",
         "rewriting", "translate"),
    Verb("train-step", "Make a training step of a forward model: loss, gradients and the optimizer's update in one "
         "ONNX file.", "training", "train_step"),
    Verb("train", "Train with a step model over the samples of an .npz file, and write the forward model with trained "
         "weights.", "training", "train"),
)


class Command(argparse.ArgumentParser):
    """The parser of one verb, which gets its arguments when it is used."""

    def __init__(self, verb: Verb, **settings: Any) -> None:
        super().__init__(description=verb.text, **settings)
        self.verb: Verb | None = verb

    def complete(self) -> Command:
        """Return the parser with all of its arguments."""
        if self.verb is not None:
            verb, self.verb = self.verb, None
            self.set_defaults(failure=1, refuse=self.error)  # the verb may choose another status
            self.set_defaults(act=verb.add_to(self))
        return self

    def parse_known_args(self, *args: Any, **kwargs: Any) -> Any:
        """Parse as every parser does."""
        self.complete()
        return super().parse_known_args(*args, **kwargs)


class _Version(argparse.Action):
    """Prints the version, which is not looked up before."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        print(f"convreg {convreg.__version__}")
        parser.exit()


def parser_of(verbs: Sequence[Verb] = VERBS) -> argparse.ArgumentParser:
    """Return the parser with one subcommand per verb."""
    parser = argparse.ArgumentParser(prog="convreg", description="Gradients of convolutions as vendors define them.")
    parser.add_argument("--version", action=_Version, nargs=0, help="show program's version number and exit")
    commands = parser.add_subparsers(metavar="VERB", required=True, parser_class=Command)
    for verb in verbs:
        commands.add_parser(verb.name, verb=verb, help=verb.text)
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
