"""The verb ``convreg bench``: its options, and what they mean to `run` and `compare`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any

from convreg import GraphError
from convreg.files import refuse_unwritable, write_atomically
from convreg.layers import DIRECTIONS, LAYOUTS
from convreg.presentation import PLOT_FORMATS, picture_format
from convreg.progress import reporter

from ..cluster import add_dask
from ..options import names
from . import formats
from .check import DTYPES, FORMAT_NAMES
from .comparison import compare, shown
from .jobs import jobs_of, one_of
from .nodes import differences
from .peers import LIBRARIES, PEERS
from .problems import Problem, problem_of, read_shapes, shipped_shapes
from .report import OURS, as_json, markdown, plot, text
from .sweeping import run_on
from .timing import run

DIRS = {**dict.fromkeys(("FWD", "FWD_D", "FWD_B", "FWD_I"), ("forward",)), "BWD_D": ("data",),
        "BWD_W": ("weights",), "BWD_WB": ("weights",), "BWD_DW": ("data", "weights"),
        **{name: (name,) for name in DIRECTIONS}}
"""benchdnn's names of directions, and ours."""
WITH_BIAS = ("FWD_B", "BWD_WB")
"""The directions that have a bias in benchdnn."""
SHORT = {full: name for name, full in FORMAT_NAMES.items()}
"""The names of number formats in reports, by those that the rest of convreg has."""


def bench(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], None]:
    """Add the arguments of ``convreg bench``; return the action."""
    parser.allow_abbrev = False  # benchdnn has many more options, and half a name must not be taken for another
    parser.add_argument("problems", metavar="PROBLEM", nargs="*",
                        help="a benchdnn problem descriptor such as mb8_ic64ih56oc64oh56kh3ph1")
    parser.add_argument("--shapes", metavar="FILE", help="a JSON file of layers (default: 38 layers of real networks)")
    parser.add_argument("--model", metavar="FILE", help="time the convolutions and gradients of an ONNX model")
    parser.add_argument("--dir", type=names, metavar="DIR,...", help="data, weights, forward, or benchdnn's BWD_D, "
                        "BWD_W, BWD_DW, FWD, in any letter case (default: BWD_D,BWD_W; for a model, its own)")
    parser.add_argument("--deconv", action="store_true", help="read the descriptors as transposed convolutions")
    parser.add_argument("--dtype", "--dt", type=_format_names, metavar="DTYPE,...",
                        help=f"{', '.join(DTYPES)}, or their names elsewhere, such as float32 (default: f32; for a "
                        "model, the formats of its nodes)")
    parser.add_argument("--formats", type=_format_names, metavar="FORMAT,...",
                        help="time these number formats of each layer in turns, and f32, in one table with ratios to "
                        "f32 and to PyTorch; all means every format. 8-bit operands have rows with results in their "
                        "format and in f32")
    parser.add_argument("--layout", type=names, default=["ncx"], metavar="LAYOUT,...",
                        help="ncx (weights in oix), nxc (weights in xio); default: ncx")
    parser.add_argument("--peers", type=names, metavar="NAME,...",
                        help=f"the libraries to compare with: {', '.join(LIBRARIES)}, none, or f32 for convreg's "
                        "own f32 (default: the installed libraries)")
    parser.add_argument("--only", action="append", metavar="NAME",
                        help="only layers with this name; * matches any characters; may be repeated")
    parser.add_argument("--threads", type=int, metavar="N",
                        help="the number of threads of every library (default: convreg's)")
    parser.add_argument("--repeat", type=int, default=5, metavar="N", help="the smallest number of runs (default 5)")
    parser.add_argument("--seconds", type=float, default=0.5, metavar="S",
                        help="the time per library and layer; runs repeat until it has passed (default 0.5)")
    parser.add_argument("--algorithm", metavar="NAME", help="force this algorithm of convreg; layers that it does not "
                        "fit are not timed, and directions that it does not apply to choose freely")
    parser.add_argument("--against", metavar="BUILD|FILE", help="compare with another build of convreg, given by its "
                        "folder, or with a file that --json wrote; exit status 1 if a layer is more than 5%% slower "
                        "twice in a row")
    parser.add_argument("--results", metavar="FILE", help="write a JSON line for each layer as soon as it is timed; "
                        "what the file has already is not timed again")
    add_dask(parser, "time every layer on every kind of machine that it has, one at a time on each host")
    parser.add_argument("--json", metavar="FILE", help="write all figures to a JSON file")
    parser.add_argument("--plot", metavar="FILE",
                        help=f"draw a bar chart; the suffix chooses the format: {', '.join(PLOT_FORMATS)}")
    parser.add_argument("--markdown", action="store_true", help="print Markdown tables")
    return _act


def _act(args: argparse.Namespace) -> None:
    format = "" if args.plot is None else picture_format(args.plot, "bench")
    if args.json is not None:
        refuse_unwritable("--json", args.json)
    for option, given, allowed in (("--dir", args.dir, DIRS), ("--dtype", args.dtype, DTYPES),
                                   ("--formats", args.formats, ("all", *DTYPES)),
                                   ("--layout", args.layout, LAYOUTS), ("--peers", args.peers, (*PEERS, "none"))):
        if given == []:
            raise GraphError(f"{option}='' is refused; allowed: one or more of {', '.join(allowed)}")
    dtypes, together = args.dtype, args.formats is not None
    if together:
        dtypes = _formats(args)
    peers = _peers(args.peers if args.peers is not None else ("torch",) if together else LIBRARIES)
    problems, notes = _selected(args)
    directions: Sequence[str] = DIRECTIONS if args.model else ("data", "weights")
    if args.dir is not None:
        names = _spelled(args.dir)
        directions = [*dict.fromkeys(direction for name in names for direction in DIRS[name])]
        notes += [f"{name} is timed without its bias" for name in names if name in WITH_BIAS]
    if args.against is not None:
        _compare(args, problems, directions, notes)
        return
    choices: dict[str, Any] = {
        "directions": directions, "dtypes": dtypes, "layouts": args.layout, "peers": peers, "threads": args.threads,
        "repeat": args.repeat, "seconds": args.seconds, "algorithm": args.algorithm, "together": together,
        "notes": notes, "progress": reporter()}
    if args.dask is None and args.results is None:
        reports = [run(problems, **choices)]
    else:
        reports = run_on(problems, args.dask, path=args.results, **choices)
    print("\n\n".join(formats.shown(report, as_markdown=args.markdown) if together
                      else (markdown if args.markdown else text)(report) for report in reports))
    if args.json is not None:
        content = as_json(reports[0]) if len(reports) == 1 else json.dumps(
            {"reports": [json.loads(as_json(report)) for report in reports]}, indent=1, allow_nan=False)
        write_atomically(args.json, lambda file: file.write(content.encode()))
    if args.plot is not None:
        if len(reports) > 1:
            raise GraphError(f"--plot draws one kind of machine; the cluster has {len(reports)}: nothing is drawn")
        write_atomically(args.plot, lambda file: plot(reports[0], file, format))
    if wrong := [row.name for report in reports for row in report.rows if OURS in row.wrong]:
        raise GraphError(f"results of convreg are wrong: {', '.join(dict.fromkeys(wrong))}")


def _compare(args: argparse.Namespace, problems: Sequence[Problem], directions: Sequence[str],
             notes: Sequence[str]) -> None:
    """Print the comparison with another build or with earlier figures."""
    for option, given in (("--json", args.json), ("--plot", args.plot), ("--peers", args.peers),
                          ("--dask", args.dask), ("--results", args.results)):
        if given not in (None, ["none"]):
            raise GraphError(f"{option} is refused beside --against, which times convreg alone and prints its tables")
    if args.algorithm is not None:
        raise GraphError("--algorithm is refused beside --against, which compares what each build chooses")
    jobs = jobs_of(problems, directions, args.dtype, args.layout)
    notes = [*notes, *differences(dict.fromkeys(job.problem for job in jobs), args.dtype, args.layout)]
    comparison = compare(jobs, args.against, threads=args.threads, repeat=args.repeat, seconds=args.seconds,
                         notes=notes, progress=reporter())
    print(shown(comparison, as_markdown=args.markdown))
    comparison.raise_if_lost()


def _format_names(value: str) -> list[str]:
    """Return the names of number formats that commas separate, each in either spelling."""
    return [SHORT.get(name, name) for name in names(value)]


def _formats(args: argparse.Namespace) -> list[str]:
    """Return the number formats that are timed in turns."""
    for option, given in (("--dtype", args.dtype), ("--against", args.against)):
        if given is not None:
            raise GraphError(f"{option} is refused beside --formats, which names the number formats of one report")
    for name in args.formats:
        one_of(name, ("all", *DTYPES), "number format")
    return [*DTYPES] if "all" in args.formats else args.formats


def _spelled(names: Sequence[str]) -> list[str]:
    """Return the keys of `DIRS` for names in any letter case, each once."""
    keys = {key.lower(): key for key in DIRS}
    for name in names:
        if name.lower() not in keys:
            one_of(name, DIRS, "direction")
    return [*dict.fromkeys(keys[name.lower()] for name in names)]


def _peers(names: Sequence[str]) -> list[str]:
    """Return the libraries for names; "none" must be the only name."""
    for name in names:
        one_of(name, (*PEERS, "none"), "library")
    if "none" in names and len(names) > 1:
        raise GraphError(f"--peers={','.join(names)!r} is refused: none excludes other names; allowed: none, "
                         f"or one or more of {', '.join(PEERS)}")
    return [name for name in names if name != "none"]


def _selected(args: argparse.Namespace) -> tuple[list[Problem], list[str]]:
    if bool(args.problems) + bool(args.shapes) + bool(args.model) > 1:
        raise GraphError("descriptors, --shapes and --model exclude each other; allowed: one of them")
    notes: list[str] = []
    if args.problems:
        problems = [problem_of(descriptor, transposed=args.deconv) for descriptor in args.problems]
    elif args.deconv:
        raise GraphError("--deconv needs problem descriptors")
    elif args.model:
        from .models import read_model  # needs onnx, which no other verb's start should wait for

        problems, notes = read_model(args.model)
    else:
        problems = read_shapes(args.shapes) if args.shapes else shipped_shapes()
    for pattern in args.only or ():
        if not any(fnmatchcase(problem.name, pattern) for problem in problems):
            one_of(pattern, [problem.name for problem in problems], "layer")
    return [problem for problem in problems
            if not args.only or any(fnmatchcase(problem.name, pattern) for pattern in args.only)], notes
