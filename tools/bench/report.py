"""The results of the benchmark as text, Markdown, JSON and a picture with matplotlib."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import exp, log
from typing import BinaryIO, TypeVar

from convreg.errors import printable
from convreg.presentation import aligned, markdown_table

from .check import Case
from .machine import Machine

OURS = "convreg"


@dataclass(frozen=True)
class Timing:
    """The shortest of so many runs."""

    seconds: float
    runs: int


@dataclass
class Row:
    """One call: the times by library, and why a library has none; `dtype` is the format of the operands."""

    name: str
    direction: str
    dtype: str
    layout: str
    layer: str
    gflop: float
    gflop_inside: float
    bytes: int
    roofline_seconds: float = 0.0
    timings: dict[str, Timing] = field(default_factory=dict)
    wrong: dict[str, str] = field(default_factory=dict)
    unsupported: dict[str, str] = field(default_factory=dict)
    result: str = ""
    """Format of the result, by default that of the operands."""
    algorithm: str = ""
    """convreg's algorithm; names of several joined by "+"."""

    def __post_init__(self) -> None:
        self.result = self.result or self.dtype

    @staticmethod
    def of(case: Case) -> Row:
        """Return the row of a call that has not been timed yet."""
        problem = case.problem
        return Row(problem.name, case.direction, case.dtype, case.layout, str(problem), problem.gflop,
                   problem.gflop_inside, case.bytes, result=case.result)

    def seconds(self, peer: str) -> float | None:
        """Return the time of a library whose result is right."""
        return self.timings[peer].seconds if peer in self.timings and peer not in self.wrong else None

    def rate(self, peer: str) -> float | None:
        """Return GFLOP/s."""
        seconds = self.seconds(peer)
        return None if seconds is None else self.gflop / seconds

    def share(self, peer: str) -> float | None:
        """Return the part of the roofline that a library reaches."""
        seconds = self.seconds(peer)
        return None if seconds is None else self.roofline_seconds / seconds

    def ratio(self, peer: str) -> float | None:
        """Return how many times longer than convreg a library takes."""
        ours, theirs = self.seconds(OURS), self.seconds(peer)
        return None if ours is None or theirs is None else theirs / ours


@dataclass(frozen=True)
class Report:
    """All results of one run of the benchmark."""

    machine: Machine
    threads: int
    repeat: int
    seconds: float
    peers: Mapping[str, str]
    absent: Mapping[str, str]
    notes: Sequence[str]
    rows: Sequence[Row]
    algorithm: str | None = None
    """The algorithm that convreg's calls were forced to take."""
    together: bool = False
    """Whether all number formats of a layer were timed in turns."""

    @property
    def others(self) -> list[str]:
        """The libraries beside convreg."""
        return [name for name in self.peers if name != OURS]

    def tables(self) -> Iterator[tuple[str, list[Row]]]:
        """Yield a title and the rows of each direction, number format, format of results and layout."""
        return grouped(self.rows, lambda row: (row.direction, row.dtype, row.result, row.layout))


T = TypeVar("T")


def grouped(rows: Iterable[T], kind: Callable[[T], tuple[str, str, str, str]]) -> Iterator[tuple[str, list[T]]]:
    """Yield a title and the rows of each kind: direction, number format, format of results, layout."""
    tables: dict[tuple[str, str, str, str], list[T]] = {}
    for row in rows:
        tables.setdefault(kind(row), []).append(row)
    for (direction, dtype, result, layout), members in tables.items():
        what = "forward" if direction == "forward" else f"{direction} gradient"
        formats = dtype if result == dtype else f"{dtype}, results in {result}"
        yield f"{what}, {formats}, {layout}", members


def set_rooflines(machine: Machine, rows: Sequence[Row]) -> Machine:
    """Fill in the rooflines, and return the machine with peaks no lower than the rates that were seen on the way."""
    peaks = dict(machine.peaks)
    for row in rows:
        for peer in row.timings:
            if (seconds := row.seconds(peer)) and row.gflop_inside / seconds > peaks[row.dtype][0]:
                peaks[row.dtype] = row.gflop_inside / seconds, f"{peer} on {row.name}, {row.direction}"
    for row in rows:
        row.roofline_seconds = max(row.gflop_inside / peaks[row.dtype][0], row.bytes / 1e9 / machine.bandwidth)
    return replace(machine, peaks=peaks)


def geometric_mean(values: Sequence[float]) -> float:
    """Return the geometric mean of positive numbers."""
    return exp(sum(map(log, values)) / len(values))


@dataclass(frozen=True)
class Summary:
    """The summary of a table by library: geometric means, and the worst ratio with its row.

    A library without a right result in the table is in none of them.
    """

    seconds: Mapping[str, float]
    rate: Mapping[str, float]
    share: Mapping[str, float]
    ratio: Mapping[str, float]
    worst: Mapping[str, tuple[float, str]]


def summarize(report: Report, rows: Sequence[Row]) -> Summary:
    """Return the last lines of a table."""
    def means(measure: Callable[[Row, str], float | None], names: Iterable[str]) -> dict[str, float]:
        known = {name: [value for row in rows if (value := measure(row, name)) is not None] for name in names}
        return {name: geometric_mean(values) for name, values in known.items() if values}

    ratios = {peer: [(ratio, row.name) for row in rows if (ratio := row.ratio(peer)) is not None]
              for peer in report.others}
    return Summary(means(Row.seconds, report.peers), means(Row.rate, report.peers), means(Row.share, report.peers),
                   means(Row.ratio, report.others), {peer: min(found) for peer, found in ratios.items() if found})


def preamble(report: Report) -> list[str]:
    """Return sentences on the machine, the libraries and the protocol."""
    machine = report.machine
    lines = [f"{machine.processor}, {machine.processors} processors, instruction set {machine.isa}; "
             f"threads of every library: {report.threads}"]
    if not report.together:  # its tables have no rooflines
        lines += [f"peak {dtype}: {rate:.0f} GFLOP/s ({by})" for dtype, (rate, by) in machine.peaks.items()]
        lines.append(f"bandwidth: {machine.bandwidth:.1f} GB/s (array copy, bytes read and written)")
    lines += [f"{name}: {about}" for name, about in report.peers.items()]
    lines += [f"{name} is not measured: {why}" for name, why in report.absent.items()]
    lines.append(f"shortest of at least {report.repeat} runs, libraries in turn; operands with fixed seeds; every "
                 "result compared with a float64 reference before it is timed")
    if not report.together:
        lines.append("roofline: the time at the measured peak, or at the bandwidth if that is longer, over convreg's "
                     "time; data in the caches can beat it")
    lines.append("ratios: a library's time over convreg's, so above 1 convreg is faster")
    return [*map(printable, (*lines, *report.notes))]


def text(report: Report) -> str:
    """Return the report for a terminal."""
    parts = ["\n".join(preamble(report))]
    for title, rows in report.tables():
        parts.append("\n".join([title, *aligned(_cells(report, rows)), *_remarks(report, rows)]))
    return "\n\n".join(parts)


def markdown(report: Report) -> str:
    """Return the report as Markdown."""
    parts = ["\n".join(f"* {line}" for line in preamble(report))]
    for title, rows in report.tables():
        remarks = "".join(f"\n\n{remark}" for remark in _remarks(report, rows))
        table = markdown_table(_cells(report, rows))
        parts.append("\n".join([f"### {title[0].upper()}{title[1:]}", "", *table]) + remarks)
    return "\n\n".join(parts)


def _header(report: Report) -> list[str]:
    return ["shape", "GFLOP", "ms", "GFLOP/s", "roofline", "algorithm", *(f"{name} ratio" for name in report.others)]


def _cells(report: Report, rows: list[Row]) -> list[list[str]]:
    """Return the table's cells: header, a line per row, geometric means, and the worst ratio of each column."""
    lines = [_header(report)]
    for row in rows:
        line = [row.name, f"{row.gflop:.3g}", measured(row, OURS, row.seconds, milliseconds),
                measured(row, OURS, row.rate, "{:.1f}".format), measured(row, OURS, row.share, "{:.0%}".format),
                row.algorithm or "-"]
        lines.append(line + [measured(row, peer, row.ratio, "{:.2f}".format) for peer in report.others])
    summary = summarize(report, rows)
    lines.append(["geometric mean", "", known(summary.seconds.get(OURS), milliseconds),
                  known(summary.rate.get(OURS), "{:.1f}".format), known(summary.share.get(OURS), "{:.0%}".format), "",
                  *(known(summary.ratio.get(peer), "{:.2f}".format) for peer in report.others)])
    if report.others:
        lines.append(["worst ratio", "", "", "", "", "",
                      *(f"{summary.worst[peer][0]:.2f}" if peer in summary.worst else "-" for peer in report.others)])
    return lines


def milliseconds(seconds: float) -> str:
    """Return a time as the tables have it."""
    return f"{1e3 * seconds:#.3g}".rstrip(".")


def measured(row: Row, peer: str, measure: Callable[[str], float | None], form: Callable[[float], str]) -> str:
    """Return a cell of a row: what is measured of a library, or that its result is wrong."""
    if peer in row.wrong:
        return "wrong"
    return known(measure(peer), form)


def known(value: float | None, form: Callable[[float], str]) -> str:
    """Return a cell: a value, if there is one."""
    return "-" if value is None else form(value)


def _remarks(report: Report, rows: list[Row]) -> list[str]:
    lines = [f"{row.name}: {peer} is wrong: {why}" for row in rows for peer, why in row.wrong.items()]
    lines += [f"worst against {peer}: {ratio:.2f} on {name}"
              for peer, (ratio, name) in summarize(report, rows).worst.items()]
    reasons: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for peer, why in row.unsupported.items():
            reasons.setdefault((peer, why), []).append(row.name)
    lines += [f"{peer} does not compute {', '.join(names) if len(names) < len(rows) else 'these'}: {why}"
              for (peer, why), names in reasons.items()]
    return [*map(printable, lines)]


def as_json(report: Report) -> str:
    """Return the report as JSON, times in milliseconds; docs/bench.md explains the keys."""
    results = []
    for row in report.rows:
        entry = asdict(row)
        timings = entry.pop("timings")
        entry["roofline_ms"] = 1e3 * entry.pop("roofline_seconds")
        entry["ms"] = {peer: 1e3 * timing["seconds"] for peer, timing in timings.items()}
        entry["runs"] = {peer: timing["runs"] for peer, timing in timings.items()}
        for key, measure in (("gflops", row.rate), ("roofline", row.share), ("ratio", row.ratio)):
            values = {peer: measure(peer) for peer in (report.others if key == "ratio" else report.peers)}
            entry[key] = {peer: value for peer, value in values.items() if value is not None}
        results.append(entry)
    tables = []
    for _, rows in report.tables():
        summary = summarize(report, rows)
        tables.append({
            "direction": rows[0].direction, "dtype": rows[0].dtype, "result": rows[0].result, "layout": rows[0].layout,
            "geometric_mean": {"ms": {peer: 1e3 * seconds for peer, seconds in summary.seconds.items()},
                               "gflops": summary.rate, "roofline": summary.share, "ratio": summary.ratio},
            "worst_ratio": {peer: {"ratio": ratio, "name": name} for peer, (ratio, name) in summary.worst.items()},
        })
    machine = asdict(report.machine)
    machine["peaks"] = {dtype: {"gflops": rate, "by": by} for dtype, (rate, by) in report.machine.peaks.items()}
    return json.dumps({
        "machine": machine, "threads": report.threads, "repeat": report.repeat, "seconds": report.seconds,
        "algorithm": report.algorithm, "peers": dict(report.peers), "absent": dict(report.absent),
        "notes": list(report.notes), "results": results, "tables": tables,
    }, indent=1, allow_nan=False)


def plot(report: Report, file: BinaryIO, format: str) -> None:
    """Draw GFLOP/s per shape: a bar per library, and a mark where the roofline is."""
    from matplotlib.figure import Figure

    tables = [*report.tables()]
    longest = max(len(rows) for _, rows in tables)
    names = [*report.peers]
    figure = Figure(figsize=(max(7.0, 1.5 + 0.13 * longest * (len(names) + 1)), 3.4 * len(tables) + 0.8),
                    layout="constrained")
    width = 0.8 / len(names)
    for axes, (title, rows) in zip(figure.subplots(len(tables), squeeze=False)[:, 0], tables, strict=True):
        for place, peer in enumerate(names):
            axes.bar([index - 0.4 + width * (place + 0.5) for index in range(len(rows))],
                     [row.rate(peer) or 0 for row in rows], width, label=peer)
        roof = [row.gflop / row.roofline_seconds for row in rows]
        axes.hlines(roof, [index - 0.45 for index in range(len(rows))], [index + 0.45 for index in range(len(rows))],
                    colors="black", linewidth=1, label="roofline")
        axes.set_xticks(range(len(rows)), [printable(row.name) for row in rows], rotation=60, ha="right", fontsize=7,
                        parse_math=False)
        axes.set_xlim(-0.6, len(rows) - 0.4)
        axes.set_ylabel("GFLOP/s")
        axes.set_title(title, loc="left", fontsize=10)
        axes.set_ylim(bottom=0)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, ncols=len(names) + 1, fontsize=8, frameon=False, loc="outside upper right")
    figure.savefig(file, format=format, dpi=130)
