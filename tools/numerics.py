"""``convreg numerics`` measures the error that number formats cause in gradients of a layer, a model or a call."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from math import prod, sqrt
from pathlib import Path

import convreg
from convreg import GraphError, numerics
from convreg.archives import load_together
from convreg.calls.signature import signature_of
from convreg.errors import near_misses, shorten
from convreg.files import refuse_unwritable, write_atomically
from convreg.numerics import Case, Drawn
from convreg.presentation import picture_format
from convreg.progress import reporter

from .bench.calls import Job, user_call
from .bench.peer import Unsupported
from .bench.problems import Problem, problem_of, shipped_shapes
from .cluster import add_dask
from .options import names


def numerics_(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], None]:
    """Add the arguments of ``convreg numerics``; return the action."""
    parser.add_argument("subjects", metavar="SUBJECT", nargs="+", help="a layer, MODEL.onnx or CALL.npz; a layer is a "
                        "name that `convreg bench` knows, in which * matches any characters, or a benchdnn problem "
                        "descriptor such as mb2_ic64ih28oc64oh28kh3ph1; CALL.npz holds the arguments of --op by name")
    parser.add_argument("--op", metavar="NAME", help="the operator of CALL.npz")
    parser.add_argument("--inputs", metavar="FILE.npz", help="the inputs of MODEL.onnx, by name")
    parser.add_argument("-i", "--input", metavar="NAME=VALUE", action="append", default=[],
                        help="one input of MODEL.onnx, as for run")
    parser.add_argument("--random", action="store_true", help="fill the other inputs of MODEL.onnx with random values")
    parser.add_argument("--draw", metavar="DIST",
                        help="the distribution of a layer's output gradient: " + "; ".join(
                            f"{name} ({text})" for name, text in numerics.DISTRIBUTIONS.items())
                        + ". The data is relu; the weights are normal with variance 2 over the fan-in "
                        "(default lognormal)")
    parser.add_argument("--formats", type=names, default=list(numerics.FORMATS), metavar="NAME,...",
                        help=f"the number formats (default {', '.join(numerics.FORMATS)})")
    parser.add_argument("--result", metavar="NAME",
                        help="the format of the gradients (default: the format of the operands)")
    parser.add_argument("--rounding", metavar="NAME",
                        help="the rounding of operands and results (default: each format's own)")
    parser.add_argument("--saturate", action="store_true",
                        help="replace numbers that are too large by the largest number of the format")
    parser.add_argument("--unscaled", action="store_true", help="leave out the rows with scales")
    parser.add_argument("--seed", type=int, default=0,
                        help="the seed of random values and of stochastic rounding (default 0)")
    parser.add_argument("--results", metavar="FILE", help="write a JSON line for each call as soon as it is compared; "
                        "calls that the file has already are not compared again")
    add_dask(parser, "compare, one call a task")
    parser.add_argument("--json", metavar="FILE", help="write all figures and the histograms to a JSON file")
    parser.add_argument("--plot", metavar="FILE",
                        help="draw ratios and ranges; the suffix chooses the format: png, svg or pdf")
    parser.add_argument("--markdown", action="store_true", help="print Markdown tables")
    return _act


def _act(args: argparse.Namespace) -> None:
    format = "" if args.plot is None else picture_format(args.plot, "demo")
    if args.json is not None:
        refuse_unwritable("--json", args.json)
    found = numerics.sweep(
        _cases(args), formats=args.formats, scaled=not args.unscaled, result=args.result, rounding=args.rounding,
        saturate=args.saturate, seed=args.seed, client=args.dask, path=args.results, progress=reporter())
    for title, comparison in found.items():
        heading = f"{title}: {comparison.operator}"
        if args.markdown:
            print(f"### {heading}\n\n{comparison.operands_table(markdown=True)}\n\n{comparison.table(markdown=True)}\n")
        else:
            print(f"{title}: {comparison}\n")
    if args.json is not None:
        text = json.dumps({
            "convreg": convreg.__version__, "subject": " ".join(args.subjects), "seed": args.seed,
            "comparisons": {title: comparison.to_dict() for title, comparison in found.items()}}, indent=1,
            allow_nan=False)
        write_atomically(args.json, lambda file: file.write(text.encode()))
    if args.plot is not None:
        write_atomically(args.plot, lambda file: numerics.plot(found, file, format))


def _cases(args: argparse.Namespace) -> dict[str, Case]:
    """Return the calls of all subjects by title; those of several models have the file's name in front."""
    kinds = [subject.rpartition(".")[2] if subject.endswith((".onnx", ".npz")) else "layer"
             for subject in args.subjects]
    for option, given, wanted in (("--op", args.op, "npz"), ("--inputs", args.inputs, "onnx"),
                                  ("--input", args.input, "onnx"), ("--random", args.random, "onnx"),
                                  ("--draw", args.draw is not None, "layer")):
        if given and wanted not in kinds:
            raise GraphError(f"{option} needs a subject that "
                             f"{'is a layer' if wanted == 'layer' else f'ends in .{wanted}'}")
    cases: dict[str, Case] = {}
    for subject, kind in zip(args.subjects, kinds, strict=True):
        of_kind = {"onnx": _of_model, "npz": _of_archive, "layer": _of_layers}[kind]
        for title, case in of_kind(subject, args):
            if kind == "onnx" and len(kinds) > 1:
                title = f"{Path(subject).stem} {title}"
            if title in cases:
                raise GraphError(f"{title!r} is named twice; needed: different subjects")
            cases[title] = case
    return cases


def _of_archive(subject: str, args: argparse.Namespace) -> Iterator[tuple[str, Case]]:
    if not args.op:
        raise GraphError(f"{subject} holds the arguments of an operator: name it with --op")
    operator = convreg.get(args.op)
    arrays = load_together(subject, signature_of(operator.spec).parameters)
    yield subject, Case(operator, {name: array if array.dtype.kind in "fV" and array.ndim else array.tolist()
                                   for name, array in arrays.items()})


def _of_model(subject: str, args: argparse.Namespace) -> Iterator[tuple[str, Case]]:
    from . import tensors

    model = convreg.onnx.load(subject)
    wanted = tensors.needed(model)
    feeds = tensors.archived(wanted, args.inputs) if args.inputs else {}
    rest = {name: kind for name, kind in wanted.items() if name not in feeds}
    feeds |= tensors.feeds(rest, args.input, fill=args.random, seed=args.seed)
    for name, call in convreg.onnx.gradient_calls(model, feeds).items():
        yield name, Case(call.operator, call.inputs, call.attributes)


def _of_layers(subject: str, args: argparse.Namespace) -> Iterator[tuple[str, Case]]:
    for problem in _problems(subject):
        for direction in problem.directions or ("data", "weights"):
            try:
                function, names, settings = user_call(Job(problem, direction, "f32", "ncx", "f32"))
            except Unsupported as why:
                raise GraphError(f"{problem.name}: {why}") from None
            distribution = "lognormal" if args.draw is None else args.draw
            operands = [_drawn(problem, name, distribution, args.seed) for name in names]
            yield f"{problem.name} {direction}", Case(getattr(convreg.onednn, function), operands, settings)


def _problems(subject: str) -> list[Problem]:
    """Return the layers of the bench with a name, or the layer that a problem descriptor states."""
    shapes = shipped_shapes()
    if found := [shape for shape in shapes if fnmatchcase(shape.name, subject)]:
        return found
    try:
        return [problem_of(subject)]
    except GraphError as error:
        near = near_misses(subject, [shape.name for shape in shapes])
        hint = f" (did you mean {', '.join(near)}?)" if near else ""
        raise GraphError(f"no layer of `convreg bench` is named {shorten(subject)}{hint}, and it is no problem "
                         f"descriptor: {error}") from None


def _drawn(problem: Problem, name: str, distribution: str, seed: int) -> Drawn:
    """An operand of a layer: gradients as asked for, data behind a ReLU, weights as He initialises them."""
    shape = getattr(problem.shapes, name)
    if name == "taps":
        small, large = shape[0], shape[1]
        fan_in = (small // problem.geometry.groups if problem.transposed else large) * prod(shape[2:])
        return Drawn("normal", shape, seed, sqrt(2 / fan_in))
    is_gradient = (name == "small") != problem.transposed
    return Drawn(distribution if is_gradient else "relu", shape, seed + (1 if is_gradient else 2))
