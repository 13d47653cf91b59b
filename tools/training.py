"""``convreg train-step`` makes a training step of a forward model; ``convreg train`` runs it over data."""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from collections.abc import Callable
from typing import Any, get_args, get_type_hints

import convreg
from convreg import GraphError
from convreg.archives import load_together
from convreg.errors import printable
from convreg.files import refuse_unwritable, write_atomically
from convreg.onnx.training.sharded.steps import STATISTICS
from convreg.presentation import picture_format
from convreg.progress import Progress, bar, reporter

from .cluster import add_dask

Action = Callable[[argparse.Namespace], None]


def _words(function: Callable[..., Any]) -> dict[str, str]:
    """Return what a docstring in numpydoc's form says of each parameter."""
    text = inspect.getdoc(function) or ""
    section = text.partition("Parameters\n")[2].partition("\nReturns\n")[0].partition("-\n")[2]
    found: dict[str, str] = {}
    for names, lines in re.findall(r"^(\w[\w, ]*?) : [^\n]*\n((?:    [^\n]*\n?)+)", section, re.MULTILINE):
        words = " ".join(lines.split()).replace("`", "").replace("%", "%%").rstrip(".")
        found |= dict.fromkeys((name.strip() for name in names.split(",")), words)
    return found


def _options(parser: argparse.ArgumentParser, function: Callable[..., Any], skip: set[str]) -> list[str]:
    """Add an option for every keyword argument of a function; return their names."""
    words, hints = _words(function), get_type_hints(function)
    added = []
    for name, parameter in inspect.signature(function).parameters.items():
        if name in skip or parameter.kind is not parameter.KEYWORD_ONLY:
            continue
        kinds, default = _kinds(hints[name]), parameter.default
        choices = [choice for kind in kinds for choice in get_args(kind) if isinstance(choice, str)]
        about = words.get(name, "")  # Python may have removed docstrings
        if default is not None and default is not inspect.Parameter.empty and not isinstance(default, bool):
            about = f"{about} (default {default})"
        settings: dict[str, Any] = {"help": about, "dest": name, "default": default}
        if default is inspect.Parameter.empty:
            settings |= {"required": True, "default": None}
        flag = f"--{name.replace('_', '-')}"
        if bool in kinds:
            settings["action"] = argparse.BooleanOptionalAction if default else "store_true"
        elif choices:
            settings["choices"] = [*choices, *(["none"] if type(None) in kinds else [])]
        elif name == "wrt":
            settings |= {"action": "append", "metavar": "NAME", "help": f"{about}. May be repeated"}
        elif name == "betas":
            settings |= {"nargs": 2, "type": float, "metavar": ("B1", "B2")}
        else:
            kind = next(kind for kind in (int, float, str) if kind in kinds or kind is str)
            settings |= {"type": kind, "metavar": {int: "N", float: "X", str: "NAME"}[kind]}
        parser.add_argument(flag, **settings)
        added.append(name)
    return added


def _kinds(hint: Any) -> tuple[Any, ...]:
    """The members of a union; a Literal is one of them."""
    if hint in (bool, int, float, str):
        return (hint,)
    members = get_args(hint)
    return (hint,) if members and all(isinstance(member, str) for member in members) else members


def train_step(parser: argparse.ArgumentParser) -> Action:
    """Add the arguments of ``convreg train-step``; return the action."""
    parser.add_argument("model", metavar="FORWARD", help="the ONNX file of the forward model, weights included")
    parser.add_argument("-o", "--output-file", metavar="STEP", required=True, dest="to",
                        help="the ONNX file to write")
    names = _options(parser, convreg.onnx.training_step, set())

    def act(args: argparse.Namespace) -> None:
        from . import onnx_io

        given = {name: getattr(args, name) for name in names}
        if given["loss"] == "none":
            given["loss"] = None
        refuse_unwritable("--output-file", args.to)
        step = convreg.onnx.training_step(args.model, **given)
        onnx_io.save(step, args.to)
        record = convreg.onnx.StepRecord.of(step)
        kinds = sorted({f"{node.domain}::{node.op_type}" for node in step.graph.node if node.domain})
        needs = [*record.data, *([record.target] if record.target is not None else [])]
        outside = f"outside standard ONNX: {', '.join(kinds)}" if kinds else "all standard ONNX"
        print(f"{args.to}: {len(step.graph.node)} nodes, {len(record.parameters)} parameters; takes "
              f"{printable(', '.join(needs))}; {printable(outside)}")

    return act


def train(parser: argparse.ArgumentParser) -> Action:
    """Add the arguments of ``convreg train``; return the action."""
    parser.add_argument("model", metavar="STEP", help="the ONNX file that `convreg train-step` wrote")
    parser.add_argument("--data", metavar="FILE.npz", required=True,
                        help="an array for every input of the forward model and the target, by name; the first axis "
                        "is that of the samples")
    parser.add_argument("-o", "--output-file", metavar="TRAINED", required=True, dest="to",
                        help="the ONNX file to write: the forward model in the form for inference")
    names = _options(parser, convreg.onnx.fit, {"progress"})
    parser.add_argument("--engine", choices=("onnxruntime", "reference"),
                        help="what runs the steps (default: onnxruntime if it is installed and runs the model)")
    parser.add_argument("--threads", type=int, metavar="N", help="threads of the engine and of convreg's kernels")
    add_dask(parser, "make the steps")
    parser.add_argument("--shards", type=int, metavar="N",
                        help="divide each batch into N parts (default: 8 with --dask, else the batch is not divided); "
                        "the number decides the bits, the workers do not")
    parser.add_argument("--statistics", choices=STATISTICS,
                        help="how divided steps take means and sums over samples and space, such as those of batch "
                        "normalisation (default: synchronous)")
    parser.add_argument("--plot", metavar="FILE",
                        help="draw the loss; the suffix chooses the format: png, svg or pdf")

    def act(args: argparse.Namespace) -> None:
        from . import onnx_io

        format = "" if args.plot is None else picture_format(args.plot, "demo")
        refuse_unwritable("--output-file", args.to)
        with convreg.onnx.Trainer(args.model, engine=args.engine, threads=args.threads, client=args.dask,
                                  shards=args.shards, statistics=args.statistics) as trainer:
            if trainer.dashboard:
                print(f"dashboard: {trainer.dashboard}", file=sys.stderr)
            record = trainer.record
            data = load_together(args.data, [*record.data, *([record.target] if record.target is not None else [])])
            history = convreg.onnx.fit(trainer, data, **{name: getattr(args, name) for name in names},
                                       progress=_progress())
        onnx_io.save(trainer.export(), args.to)
        if args.plot is not None:
            write_atomically(args.plot, lambda file: _draw(history.epochs, file, format))
        for epoch, loss in enumerate(history.epochs, 1):
            print(f"epoch {epoch}: mean loss {loss:.6g}")
        print(f"{args.to}: trained in {trainer.steps} steps; engine: {trainer.engine}"
              f"{f' ({trainer.engine_note})' if trainer.engine_note else ''}")

    return act


def _progress() -> Progress:
    """A bar on a terminal; elsewhere a line per epoch, not one per step."""
    show = reporter()
    if show is bar:
        return show
    last = ""

    def report(done: int, total: int, what: str) -> None:
        nonlocal last
        epoch = what.partition(",")[0]
        if epoch != last:
            last = epoch
            show(done, total, what)

    return report


def _draw(losses: list[float], file: Any, format: str) -> None:
    """Write the curve of the mean loss of every epoch as a picture."""
    from matplotlib.figure import Figure

    if not losses:
        raise GraphError("no epoch is complete, so there is no loss to draw")
    figure = Figure(figsize=(6.4, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot(range(1, len(losses) + 1), losses, marker="o", markersize=3, linewidth=1.4)
    axes.set(xlabel="epoch", ylabel="mean loss of an epoch", title="Training loss")
    if min(losses) > 0:
        axes.set_yscale("log")
    axes.locator_params(axis="x", integer=True)
    axes.grid(alpha=0.3)
    figure.savefig(file, format=format, dpi=100)
