"""``convreg golden`` writes golden vectors; ``convreg compare`` judges a device's results by them."""

from __future__ import annotations

import argparse
import json
import os
import shlex
from collections.abc import Callable, Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import convreg
from convreg import GraphError, golden
from convreg.errors import printable, shorten
from convreg.files import is_folder
from convreg.formats import FORMATS
from convreg.golden import Case, Golden, layouts, manifest, sweeping
from convreg.paths import path_of
from convreg.progress import reporter

from .cluster import add_dask
from .options import names

UNUSABLE = 2
"""The exit status of `convreg compare` without a verdict."""

SHOWN = 10
"""Cases that a text names."""


def golden_(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], None]:
    """Add the arguments of ``convreg golden``; return the action."""
    parser.add_argument("source", metavar="SOURCE",
                        help="a benchdnn descriptor or batch file, an ONNX model, a case table of the Ascend operator "
                        "test kit (CSV) or of ATK (JSON), or convreg's own JSON of cases; the content decides which")
    parser.add_argument("-o", "--output", metavar="DIR", required=True, help="the folder to fill, new or empty")
    parser.add_argument("--layout", choices=tuple(layouts.LAYOUTS), default="npz",
                        help="; ".join(f"{name}: {text}" for name, text in layouts.LAYOUTS.items()) + " (default npz)")
    parser.add_argument("--seed", type=int, default=0,
                        help="seed of the values; equal seeds give equal bytes (default 0)")
    parser.add_argument("--fill", choices=tuple(golden.FILLS), default="normal",
                        help="; ".join(f"{name}: {text}" for name, (text, _) in golden.FILLS.items())
                        + " (default normal)")
    parser.add_argument("--conformance", metavar="NAME", help="the rules of every call, in place of the source's")
    parser.add_argument("--dtype", metavar="NAME,...",
                        help="formats of the floating-point operands, in place of the source's: one name for all, or "
                        "one for each in the order of the operator's arguments")
    parser.add_argument("--only", metavar="GLOB", help="take only the cases whose names match")
    parser.add_argument("--deconv", action="store_true", help="read benchdnn's descriptors as deconvolutions")
    parser.add_argument("-i", "--input", metavar="NAME=VALUE", action="append", default=[],
                        help="an input of an ONNX model, as for run; other inputs get random values, and the model's "
                        "nodes get the operands that occur")
    add_dask(parser, "make the cases, one a task; then cases that are done stay in DIR when the command ends early, "
             "and the same command, with or without this option, goes on")
    return _write


def _write(args: argparse.Namespace) -> None:
    total = sum(1 for _ in _cases(args))
    if not total:
        raise GraphError(f"{args.source}: no case{f' matches {args.only!r}' if args.only else ''}; needed: one or more"
                         f"{_first_names(args)}")
    if args.dask is not None or (path_of(args.output) / sweeping.WORK).is_dir():
        made = golden.sweep(_cases(args), args.output, args.layout, seed=args.seed, fill=args.fill,
                            command=_command(args), client=args.dask, progress=reporter())
    else:
        made = _one_by_one(args, total)
    print(f"{args.output}: {len(made.cases)} case{'' if len(made.cases) == 1 else 's'}, layout {args.layout}")


def _one_by_one(args: argparse.Namespace, total: int) -> manifest.Manifest:
    """Make all cases here; the folder is filled when all are done."""
    progress, done = reporter(), 0

    def goldens() -> Iterator[Golden]:
        for case in _cases(args):
            progress(done, total, case.name)
            yield case.make(seed=args.seed, fill=args.fill)

    def count(name: str) -> None:
        nonlocal done
        done += 1

    try:
        return layouts.write(args.layout, args.output, goldens(), seed=args.seed, fill=args.fill,
                             command=_command(args), progress=count)
    finally:
        progress(total, total, "")


def _cases(args: argparse.Namespace) -> Iterator[Case]:
    """Return the cases of the source that are asked for, with the rules and the formats that are."""
    options: dict[str, Any] = {"deconv": True} if args.deconv else {}
    if args.input:
        from . import tensors

        if not os.path.exists(args.source):  # a descriptor of benchdnn, or a wrong path
            raise GraphError(f"--input {args.input[0]} is refused: {shorten(args.source)} is no file; needed: an ONNX "
                             "model as the source")
        wanted = tensors.needed(convreg.onnx.load(args.source))
        options["inputs"] = tensors.feeds(wanted, args.input, fill=True, seed=args.seed)
    for case in golden.cases(args.source, **options):
        if args.only is None or fnmatchcase(case.name, args.only):
            chosen = case if args.conformance is None else replace(case, conformance=args.conformance)
            yield chosen if args.dtype is None else _in_formats(chosen, args.dtype)


def _first_names(args: argparse.Namespace) -> str:
    """Name the first cases of a source of which none is asked for."""
    names = [case.name for case in islice(_cases(argparse.Namespace(**{**vars(args), "only": None})), 4)]
    return f" of {', '.join(map(shorten, names[:3]))}{', ...' if len(names) > 3 else ''}" if names else ""


def _in_formats(case: Case, text: str) -> Case:
    """Return a case with its floating-point operands in other formats."""
    floats = [name for name, operand in case.inputs.items() if operand.format in FORMATS]
    names = text.split(",")
    unknown = next((name for name in names if name not in FORMATS), None)
    if unknown is not None:
        raise GraphError(f"--dtype {unknown!r} is no number format; allowed: {', '.join(FORMATS)}")
    if len(names) not in (1, len(floats)):
        raise GraphError(f"--dtype has {len(names)} names; needed for case {case.name!r}: one, or {len(floats)} for "
                         f"{', '.join(floats)}")
    formats = dict(zip(floats, names * len(floats) if len(names) == 1 else names, strict=False))
    return replace(case, inputs={name: replace(operand, format=formats.get(name, operand.format))
                                 for name, operand in case.inputs.items()})


def _command(args: argparse.Namespace) -> str:
    """Return the command without folders: they differ from machine to machine."""
    source = Path(args.source).name if os.path.isfile(args.source) else args.source
    parts = ["convreg", "golden", source, "--layout", args.layout, "--seed", str(args.seed), "--fill", args.fill]
    for option in ("conformance", "dtype", "only"):
        if (value := getattr(args, option)) is not None:
            parts += [f"--{option}", value]
    parts += ["--deconv"] if args.deconv else []
    for entry in args.input:
        name, _, value = entry.partition("=")
        parts += ["--input", f"{name}={Path(value).name}"]
    return shlex.join(parts)


def compare(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    """Add the arguments of ``convreg compare``; return the action."""
    parser.add_argument("golden", metavar="GOLDEN",
                        help="an .npz file of golden vectors, a folder that `convreg golden` filled, or a case in it")
    parser.add_argument("result", metavar="RESULT",
                        help="an .npz file keyed by output names; an .npy, .bin or .pb file of the only output; or a "
                        "folder of them, named as in the layout")
    parser.add_argument("--case", metavar="NAME", help="compare only this case of a folder")
    parser.add_argument("--standard", metavar="NAME,...", type=names, default=["bound"],
                        help="what decides: bound, or standards of the vendors (default bound)")
    parser.add_argument("--accumulator", metavar="NAME", help="what the kernel's sums are kept in (default float32)")
    parser.add_argument("--parts", metavar="FORMAT:COUNT",
                        help="the format in which the kernel stores parts of a sum, and their number")
    parser.add_argument("--operands", metavar="FORMAT", help="the format to which the kernel rounds operands first")
    parser.add_argument("--flush-to-zero", action="store_true", help="the kernel takes subnormal numbers as zero")
    parser.add_argument("--ties", choices=("both", "rule"), default="both",
                        help="whether an exact tie may round to either side (default both)")
    parser.add_argument("--other", metavar="RESULT", help="results of another device, for standards that need them")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.set_defaults(failure=UNUSABLE)
    return _compare


class Subject(NamedTuple):
    """What is compared: the folder with the manifest and its cases, or a file of one case."""

    root: Path
    known: manifest.Manifest | None
    names: list[str]

    def golden(self, name: str) -> Golden:
        """Return a case, checked."""
        return golden.load(self.root) if self.known is None else layouts.from_entry(
            self.root, self.known.case(name), self.known.layout)

    def results(self, case: Golden, path: str) -> dict[str, Any]:
        """Return what a device wrote for a case."""
        layout = None if self.known is None else self.known.layout
        return layouts.read_results(case, path, layout, many=len(self.names) > 1)


def _compare(args: argparse.Namespace) -> int:
    subject, choices = _subject(args), _choices(args)
    if len(subject.names) > 1 and not is_folder(path_of(args.result)):
        raise GraphError(f"{args.result}: a file; needed: a folder with the results of {len(subject.names)} cases, or "
                         "--case")
    verdicts: dict[str, tuple[bool, str]] = {}
    unread: dict[str, str] = {}
    reports, shown = {}, ""
    progress = reporter() if len(subject.names) > 1 else None
    for done, name in enumerate(subject.names):
        if progress is not None:
            progress(done, len(subject.names), name)
        case = subject.golden(name)
        try:
            other = None if args.other is None else subject.results(case, args.other)
            results = subject.results(case, args.result)
        except GraphError as error:  # of a missing or damaged file, which says nothing about the other cases
            unread[name] = str(error)
            continue
        report = golden.compare(case, results, args.standard, other=other, **choices)
        verdicts[name] = report.passed, report.verdict
        if args.json:
            reports[name] = report.to_dict()
        if not shown and (not report.passed or progress is None):
            shown = str(report)
        del case, other, results, report  # before the next ones are read
    if not verdicts:
        raise GraphError(next(iter(unread.values())))
    if progress is not None:
        progress(len(subject.names), len(subject.names), "")
    passed = all(good for good, _ in verdicts.values())
    if args.json:
        print(json.dumps(next(iter(reports.values())) if progress is None else
                         {"passed": passed and not unread, "cases": reports, "without_verdict": unread},
                         indent=1, allow_nan=False))
    else:
        print(shown if progress is None else _summary(verdicts, shown, unread))
    if not passed:
        return 1
    return UNUSABLE if unread else 0


def _summary(verdicts: dict[str, tuple[bool, str]], shown: str, unread: dict[str, str]) -> str:
    """Return the verdict on several cases, the report of the first that fails, and a line for each of the others."""
    failed = [text for good, text in verdicts.values() if not good]
    cases, lines = len(verdicts) + len(unread), []
    if failed:
        lines = [f"FAIL  {len(failed)} of {cases} cases", shown, *_few(failed[1:], SHOWN - 1)]
    elif not unread:
        return f"PASS  {cases} cases"
    if unread:
        lines += [f"NONE  no verdict on {len(unread)} of {cases} cases" + ("" if failed else ", all others pass"),
                  *_few([f"{shorten(name)}: {printable(text)}" for name, text in unread.items()], SHOWN)]
    return "\n".join(lines)


def _few(lines: list[str], most: int) -> list[str]:
    """Return the first lines, and how many there are besides."""
    return [*lines[:most], *([f"and {len(lines) - most} more"] if len(lines) > most else [])]


def _subject(args: argparse.Namespace) -> Subject:
    path = path_of(args.golden)
    if not is_folder(path):
        if args.case is not None:
            raise GraphError(f"{path}: --case {args.case!r} is refused for a file; needed: a folder with a manifest")
        return Subject(path, None, [""])
    found = manifest.root_of(path)
    if found is None:
        raise GraphError(f"{path}: has no {manifest.NAME} and is no case of a folder with one; needed: golden vectors")
    root, inside = found
    known = manifest.read(root)
    if args.case is not None and inside not in (None, args.case):
        raise GraphError(f"{path}: case {inside!r}; needed: --case {inside!r}, or the folder with the manifest")
    name = args.case or inside
    if name is not None:
        known.case(name)
    names = list(known.cases) if name is None else [name]
    if not names:
        raise GraphError(f"{root / manifest.NAME}: no cases; needed: one or more")
    return Subject(root, known, names)


def _choices(args: argparse.Namespace) -> dict[str, Any]:
    """Return what the caller states about the kernel's arithmetic."""
    parts = None
    if args.parts is not None:
        format, _, count = args.parts.partition(":")
        if not count.isascii() or not count.isdigit() or len(count) > 10:
            raise GraphError(f"--parts {args.parts!r} is refused; needed: FORMAT:COUNT, such as float32:8")
        parts = format, int(count)
    return {"accumulator": args.accumulator, "parts": parts, "operands": args.operands,
            "flush_to_zero": args.flush_to_zero, "ties": args.ties}
