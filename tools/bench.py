"""``convreg bench`` times convreg and other libraries, shape by shape. It checks each result before it measures.

    bench_problems, bench_models    what is timed           bench_check     operands, reference, verdict
    bench_peers, bench_onednn       who is timed            bench_machine   peak and bandwidth
    bench_report                    tables, JSON, picture
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from math import prod
from pathlib import Path
from typing import Any

from convreg.ops.kernels.threads import team

import convreg
from convreg import GraphError
from convreg.calls.binding import asking
from convreg.errors import near_misses
from convreg.memory import max_bytes
from convreg.presentation import PLOT_FORMATS, picture_format

from .bench_check import DTYPES, LAYOUTS, RESULTS, Array, Case, defect, make_case, reference
from .bench_machine import measure_machine
from .bench_nodes import differences, results_of
from .bench_peers import LIBRARIES, PEERS, Peer, Prepared, Unsupported, open_peers
from .bench_problems import DIRECTIONS, Problem, parse_descriptor, read_shapes, shipped_shapes
from .bench_report import OURS, Report, Row, Timing, as_json, markdown, plot, set_rooflines, text
from .files import refuse_unwritable, write_atomically

DIRS = {**dict.fromkeys(("FWD", "FWD_D", "FWD_B", "FWD_I"), ("forward",)), "BWD_D": ("data",),
        "BWD_W": ("weights",), "BWD_WB": ("weights",), "BWD_DW": ("data", "weights"),
        **{name: (name,) for name in DIRECTIONS}}
"""benchdnn's names of directions, and ours."""
WITH_BIAS = ("FWD_B", "BWD_WB")
"""The directions that have a bias in benchdnn."""
WIDE = ("f64", "float64", "fp64", "double")
"""Names that resemble narrow formats, for which a hint would be misleading."""

PAUSE = 0.005
"""Seconds between libraries: the threads of the last one stop waiting for work by spinning."""
TURN = 0.003
"""The shortest turn of a library in seconds; short calls would otherwise measure cold caches and sleeping threads."""
PATIENCE = 10
"""A library that has used this many times its share of the time stops after two runs."""

Progress = Callable[[int, int, str], None]


def run(
    problems: Sequence[Problem],
    *,
    directions: Sequence[str] = ("data", "weights"),
    dtypes: Sequence[str] | None = None,
    layouts: Sequence[str] = ("ncx",),
    peers: Sequence[str] = LIBRARIES,
    threads: int | None = None,
    repeat: int = 5,
    seconds: float = 0.5,
    notes: Sequence[str] = (),
    progress: Progress | None = None,
) -> Report:
    """Time convreg and other libraries on the same calls.

    Parameters
    ----------
    problems : sequence of Problem
        The layers; those that name directions of their own keep them.
    directions : sequence of {"data", "weights", "forward"}
    dtypes : sequence of {"f32", "bf16", "f16", "e4m3fn", "e5m2", "hifloat8"}, optional
        By default that of each layer, f32 for those that name none.
    layouts : sequence of {"ncx", "nxc"}
        Channels before space (weights OIX) or behind it (weights XIO).
    peers : sequence of str
        Names in `PEERS`; those that do not import are listed in the report.
    threads : int, optional
        For every library; by default what convreg takes, and no more than it starts.
    repeat : int
        Runs of each library on each call, at the least.
    seconds : float
        Time that each library gets on each call; more runs until it is over.
    notes : sequence of str
        Sentences to carry into the report.
    progress : callable, optional
        Called with the number of calls done, of all calls, and the one that comes.

    Returns
    -------
    Report

    Raises
    ------
    GraphError
        If a name or number is outside the allowed ones, or nothing is left to time.
    """
    for name in dtypes or ():
        if name.lower() in WIDE:
            raise GraphError(f"number format {name!r} is refused: float64 is not timed; allowed: {', '.join(DTYPES)}")
    for values, allowed, what in ((directions, DIRECTIONS, "direction"), (dtypes or (), DTYPES, "number format"),
                                  (layouts, LAYOUTS, "layout"), (peers, PEERS, "library")):
        for value in values:
            _one_of(value, allowed, what)
    if repeat < 1:
        raise GraphError(f"repeat={repeat} is refused; allowed: an integer, at least 1")
    if not 0 <= seconds < float("inf"):
        raise GraphError(f"seconds={seconds} is refused; allowed: a finite number, at least 0")
    workers = _workers(threads)
    own = dict.fromkeys(problem.dtype or "f32" for problem in problems)
    formats = own if dtypes is None else dtypes
    jobs = [(problem, direction, dtype, layout, result) for layout in layouts for dtype in formats
            for result in RESULTS[dtype] for direction in directions for problem in problems
            if direction in (problem.directions or directions)
            and (dtypes is not None or dtype == (problem.dtype or "f32")) and result in results_of(problem, dtype)]
    if not jobs:
        raise GraphError("nothing to time: no layer has one of the directions " + ", ".join(directions))
    timed = dict.fromkeys(problem for problem, *_ in jobs)
    for problem in timed:
        _refuse_beyond_memory(problem)
    opened, absent = open_peers([*dict.fromkeys(peers)], workers)
    if progress:
        progress(0, len(jobs), "peak and bandwidth")
    machine = measure_machine(dict.fromkeys(dtype for _, _, dtype, _, _ in jobs), opened, workers)
    rows = []
    for done, job in enumerate(jobs):
        if progress:
            progress(done, len(jobs), " ".join((job[0].name, *job[1:4])))
        case = make_case(*job)
        row = Row.of(case)
        calls = _checked(case, reference(case), opened, row)
        row.timings = measure(calls, repeat, seconds)
        rows.append(row)
    if progress:
        progress(len(jobs), len(jobs), "")
    return Report(set_rooflines(machine, rows), workers, repeat, seconds,
                  {name: peer.about for name, peer in opened.items()}, absent,
                  [*notes, *differences(timed, dtypes, layouts)], rows)


def _checked(case: Case, expected: Array, peers: Mapping[str, Peer], row: Row) -> dict[str, Callable[[], Any]]:
    """Run each library once, note wrong results and refusals in the row, and return the calls to be timed."""
    calls: dict[str, Callable[[], Any]] = {}
    for name, peer in peers.items():
        try:
            prepared: Prepared = peer.prepare(case)
        except Unsupported as why:
            row.unsupported[name] = str(why)
            continue
        found = defect(case, prepared.array(prepared.call()), expected)
        if found:
            row.wrong[name] = found
        calls[name] = prepared.call
    return calls


def measure(calls: Mapping[str, Callable[[], Any]], repeat: int, seconds: float) -> dict[str, Timing]:
    """Return the shortest time of each call; they take turns, and all get as many turns unless one is very slow."""
    best = dict.fromkeys(calls, float("inf"))
    runs, spent = dict.fromkeys(calls, 0), dict.fromkeys(calls, 0.0)
    collecting = gc.isenabled()
    gc.disable()
    try:
        waiting = list(calls)
        while waiting and (min(runs[name] for name in waiting) < repeat
                           or min(spent[name] for name in waiting) < seconds):
            for name in waiting:
                time.sleep(PAUSE)
                turn = 0.0
                while turn < TURN:
                    start = time.perf_counter()
                    calls[name]()
                    taken = time.perf_counter() - start
                    turn += taken
                    best[name] = min(best[name], taken)
                    runs[name] += 1
                spent[name] += turn
            waiting = [name for name in waiting if runs[name] < 2 or spent[name] < PATIENCE * max(seconds, TURN)]
    finally:
        if collecting:
            gc.enable()
    return {name: Timing(best[name], runs[name]) for name in calls}


def _workers(threads: int | None) -> int:
    """Return the number of threads that convreg starts for a requested number; refuse a number above that."""
    if threads is None:
        return team(0)
    most = team(sys.maxsize)
    if not 1 <= threads <= most:
        raise GraphError(f"threads={threads} is refused; allowed: 1{f' to {most}' if most > 1 else ''}, "
                         "the threads that convreg starts here")
    return threads


def _refuse_beyond_memory(problem: Problem) -> None:
    """Refuse what cannot be measured here: three tensors, and the result again in float64."""
    spec = convreg.onednn.convolution.spec
    limit = max_bytes(asking(spec, spec.conformances[0]))
    sizes = [*map(prod, problem.shapes)]
    if 4 * sum(sizes) + 8 * max(sizes) > limit:
        raise GraphError(f"{problem.name}: tensors of {sizes} elements do not fit into {limit} bytes")


def _one_of(value: str, allowed: Iterable[str], what: str) -> None:
    known = list(allowed)
    if value not in known:
        near = near_misses(value, known)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise GraphError(f"no {what} named {value!r}; allowed: {', '.join(known)}{hint}")


# ---------------------------------------------------------------------------------------------------------------------
# The verb


def bench(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], None]:
    """Time convreg and other libraries on layers of networks, and check each result first."""
    def names(value: str) -> list[str]:
        return [name for name in value.split(",") if name]

    parser.allow_abbrev = False  # benchdnn has many more options, and half a name must not be taken for another
    parser.add_argument("problems", metavar="PROBLEM", nargs="*",
                        help="a benchdnn problem descriptor such as mb8_ic64ih56oc64oh56kh3ph1")
    parser.add_argument("--shapes", metavar="FILE", help="a JSON file of layers (default: 38 layers of real networks)")
    parser.add_argument("--model", metavar="FILE", help="time the convolutions and gradients of an ONNX model")
    parser.add_argument("--dir", type=names, metavar="DIR,...", help="data, weights, forward, or benchdnn's BWD_D, "
                        "BWD_W, BWD_DW, FWD, in any letter case (default: BWD_D,BWD_W; for a model, its own)")
    parser.add_argument("--deconv", action="store_true", help="read the descriptors as transposed convolutions")
    parser.add_argument("--dtype", "--dt", type=names, metavar="DTYPE,...",
                        help=f"{', '.join(DTYPES)} (default: f32; for a model, the formats of its nodes)")
    parser.add_argument("--layout", type=names, default=["ncx"], metavar="LAYOUT,...",
                        help="ncx (weights in oix), nxc (weights in xio); default: ncx")
    parser.add_argument("--peers", type=names, default=list(LIBRARIES), metavar="NAME,...",
                        help=f"the libraries to compare with: {', '.join(LIBRARIES)}, none, or f32 for convreg's "
                        "own f32 (default: the installed libraries)")
    parser.add_argument("--only", action="append", metavar="NAME",
                        help="only layers with this name; * matches any characters; may be repeated")
    parser.add_argument("--threads", type=int, metavar="N",
                        help="the number of threads of every library (default: convreg's)")
    parser.add_argument("--repeat", type=int, default=5, metavar="N", help="the smallest number of runs (default 5)")
    parser.add_argument("--seconds", type=float, default=0.5, metavar="S",
                        help="the time per library and layer; runs repeat until it has passed (default 0.5)")
    parser.add_argument("--json", metavar="FILE", help="write all figures to a JSON file")
    parser.add_argument("--plot", metavar="FILE",
                        help=f"draw a bar chart; the suffix chooses the format: {', '.join(PLOT_FORMATS)}")
    parser.add_argument("--markdown", action="store_true", help="print Markdown tables")
    return _act


def _act(args: argparse.Namespace) -> None:
    format = "" if args.plot is None else _picture(args.plot)
    if args.json is not None:
        refuse_unwritable("--json", args.json)
    for option, given, allowed in (("--dir", args.dir, DIRS), ("--dtype", args.dtype, DTYPES),
                                   ("--layout", args.layout, LAYOUTS), ("--peers", args.peers, (*PEERS, "none"))):
        if given == []:
            raise GraphError(f"{option}='' is refused; allowed: one or more of {', '.join(allowed)}")
    peers = _peers(args.peers)
    problems, notes = _selected(args)
    directions: Sequence[str] = DIRECTIONS if args.model else ("data", "weights")
    if args.dir is not None:
        names = _spelled(args.dir)
        directions = [*dict.fromkeys(direction for name in names for direction in DIRS[name])]
        notes += [f"{name} is timed without its bias" for name in names if name in WITH_BIAS]
    report = run(
        problems, directions=directions, dtypes=args.dtype, layouts=args.layout, peers=peers, threads=args.threads,
        repeat=args.repeat, seconds=args.seconds, notes=notes, progress=bar if sys.stderr.isatty() else lines)
    print((markdown if args.markdown else text)(report))
    if args.json is not None:
        write_atomically(args.json, lambda file: file.write(as_json(report).encode()))
    if args.plot is not None:
        write_atomically(args.plot, lambda file: plot(report, file, format))
    if wrong := [row.name for row in report.rows if OURS in row.wrong]:
        raise GraphError(f"results of convreg are wrong: {', '.join(wrong)}")


def _spelled(names: Sequence[str]) -> list[str]:
    """Return the keys of `DIRS` for names in any letter case, each once."""
    keys = {key.lower(): key for key in DIRS}
    for name in names:
        if name.lower() not in keys:
            _one_of(name, DIRS, "direction")
    return [*dict.fromkeys(keys[name.lower()] for name in names)]


def _peers(names: Sequence[str]) -> list[str]:
    """Return the libraries for names; "none" must be the only name."""
    for name in names:
        _one_of(name, (*PEERS, "none"), "library")
    if "none" in names and len(names) > 1:
        raise GraphError(f"--peers={','.join(names)!r} is refused: none excludes other names; allowed: none, "
                         f"or one or more of {', '.join(PEERS)}")
    return [name for name in names if name != "none"]


def _picture(path: str) -> str:
    """Return the format of a picture; refuse a file that cannot be written before anything is measured."""
    suffix = Path(path).suffix
    if suffix.lower().removeprefix(".") not in PLOT_FORMATS:
        allowed = ", ".join(f".{name}" for name in PLOT_FORMATS)
        raise GraphError(f"--plot={path!r} is refused: it has {f'the suffix {suffix!r}' if suffix else 'no suffix'}, "
                         f"and the suffix must name the picture's format; allowed: {allowed}")
    refuse_unwritable("--plot", path)
    return picture_format(path, "bench")


def _selected(args: argparse.Namespace) -> tuple[list[Problem], list[str]]:
    if bool(args.problems) + bool(args.shapes) + bool(args.model) > 1:
        raise GraphError("descriptors, --shapes and --model exclude each other; allowed: one of them")
    notes: list[str] = []
    if args.problems:
        problems = [parse_descriptor(descriptor, transposed=args.deconv) for descriptor in args.problems]
    elif args.deconv:
        raise GraphError("--deconv needs problem descriptors")
    elif args.model:
        from .bench_models import read_model  # needs onnx, which no other verb's start should wait for

        problems, notes = read_model(args.model)
    else:
        problems = read_shapes(args.shapes) if args.shapes else shipped_shapes()
    for pattern in args.only or ():
        if not any(fnmatchcase(problem.name, pattern) for problem in problems):
            _one_of(pattern, [problem.name for problem in problems], "layer")
    return [problem for problem in problems
            if not args.only or any(fnmatchcase(problem.name, pattern) for pattern in args.only)], notes


def bar(done: int, total: int, what: str) -> None:
    """Draw a progress bar in place of the last one."""
    filled = 24 * done // total
    line = f"[{'#' * filled}{'.' * (24 - filled)}] {done}/{total} {what}"
    sys.stderr.write(f"\r\x1b[K{line[:110]}" if done < total else "\r\x1b[K")
    sys.stderr.flush()


def lines(done: int, total: int, what: str) -> None:
    """Write a line per call, for output that is not a terminal."""
    if done < total:
        print(f"{done}/{total} {what}", file=sys.stderr, flush=True)
