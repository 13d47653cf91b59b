"""``convreg bench --against``: this build beside another one, or beside a file of earlier figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from convreg import GraphError
from convreg.errors import printable
from convreg.paths import path_of
from convreg.presentation import aligned, markdown_table
from convreg.progress import Progress

from .builds import OWN, Build
from .calls import Job
from .check import make_case, reference
from .figures import Figures, Key, read_figures
from .jobs import refuse_endless, started
from .machine import identity
from .nodes import listed
from .peer import Unsupported
from .peers import Convreg
from .report import OURS, Row, geometric_mean, grouped, milliseconds
from .timing import checked, measure
from .worker import take_turn

KEPT = 0.95
"""The smallest share of the speed before that a call may keep without being measured again."""
LONGER = 3
"""How many times longer the second measurement is."""
BEFORE, NOW = "before", "now"


@dataclass(frozen=True)
class Pair:
    """The shortest runs in seconds, before and now."""

    before: float
    now: float

    @property
    def ratio(self) -> float:
        """How many times faster it is now."""
        return self.before / self.now


@dataclass(frozen=True)
class Compared:
    """A call with the times that count: the second ones where it was measured `twice`."""

    job: Job
    times: Pair
    twice: bool = False

    @property
    def lost(self) -> bool:
        """Whether it was too slow both times."""
        return self.twice and self.times.ratio < KEPT


@dataclass(frozen=True)
class Comparison:
    """What was compared, and sentences on builds, protocol and calls that were not compared."""

    threads: int
    about: Sequence[str]
    rows: Sequence[Compared]
    remarks: Sequence[str] = ()
    wrong: Sequence[str] = ()
    """The calls whose results are wrong now."""

    @property
    def lost(self) -> list[Compared]:
        """The calls that were too slow twice in a row."""
        return [row for row in self.rows if row.lost]

    def raise_if_lost(self) -> None:
        """Raise if a result is wrong or a call was too slow twice in a row.

        Raises
        ------
        GraphError
            It names the calls.
        """
        if self.wrong:
            raise GraphError(f"results of convreg are wrong: {', '.join(self.wrong)}")
        if self.lost:
            raise GraphError(f"{len(self.lost)} of {len(self.rows)} calls lost more than {_LIMIT} twice in a row: "
                             + ", ".join(f"{row.job.words} (ratio {row.times.ratio:.2f})" for row in self.lost))


_LIMIT = f"{1 - KEPT:.0%}"

Time = Callable[[Job, float], Pair]
"""Measures a call before and now, each for so many seconds, or raises `Unsupported`."""


def judge(jobs: Sequence[Job], time: Time, seconds: float, progress: Progress | None = None
          ) -> tuple[list[Compared], list[str]]:
    """Measure each call, and those that are too slow again after all others, for longer; the second time counts.

    Returns
    -------
    list of Compared
    list of str
        A sentence on each reason for which calls were not compared.
    """
    found: dict[Job, Compared] = {}
    refused: dict[str, list[str]] = {}
    for twice in (False, True):
        waiting = [row.job for row in found.values() if row.times.ratio < KEPT] if twice else [*dict.fromkeys(jobs)]
        for done, job in enumerate(waiting):
            if progress:
                progress(done, len(waiting), f"{job.words}{' again' if twice else ''}")
            try:
                found[job] = Compared(job, time(job, LONGER * seconds if twice else seconds), twice)
            except Unsupported as why:
                refused.setdefault(str(why), []).append(job.words)
        if progress:
            progress(len(waiting), len(waiting), "")
    return [*found.values()], [f"not compared: {listed(names)}: {why}" for why, names in refused.items()]


def compare(jobs: Sequence[Job], against: str, *, threads: int | None, repeat: int, seconds: float,
            notes: Sequence[str] = (), progress: Progress | None = None) -> Comparison:
    """Compare this build with the build in a folder or with the figures in a file.

    Parameters
    ----------
    jobs : sequence of Job
        The calls.
    against : str
        A checkout with compiled modules, a folder into which convreg is installed, or a file that ``convreg bench
        --json`` wrote on this machine.
    threads, repeat, seconds, notes, progress
        As for `run`.

    Raises
    ------
    GraphError
        If a number is outside the allowed ones, the build cannot be imported or dies, the file holds no figures or
        those of another machine, or there is nothing to compare.
    """
    refuse_endless(repeat, seconds)
    workers = started(threads)
    folder = path_of(against)
    if folder.is_dir():
        comparison = _with_build(jobs, folder, workers, repeat, seconds, progress)
    else:
        comparison = _with_figures(jobs, read_figures(against), workers, repeat, seconds, progress)
    if not comparison.rows and not comparison.wrong:
        raise GraphError(". ".join(["nothing was compared", *comparison.remarks]))
    protocol = (f"shortest of at least {repeat} runs in {seconds} seconds; a call whose ratio is below {KEPT} is "
                f"measured again after all others, {LONGER} times as long, and the second ratio counts")
    about = [*comparison.about, protocol, "ratio: the time before over the time now, so above 1 this build is faster"]
    return Comparison(workers, [*about, *notes], comparison.rows, comparison.remarks, comparison.wrong)


def _with_build(jobs: Sequence[Job], folder: Path, threads: int, repeat: int, seconds: float,
                progress: Progress | None) -> Comparison:
    """Compare with another build: each in a process of its own, both in turns on every call."""
    changed: dict[str, None] = {}
    with Build(folder) as before, Build(OWN) as now:
        builds = {BEFORE: before, NOW: now}

        def time(job: Job, seconds: float) -> Pair:
            digests = {build.prepare(job, threads) for build in builds.values()}
            if len(digests) > 1:
                changed[job.words] = None
            best = measure({name: build.turn for name, build in builds.items()}, repeat, seconds)
            return Pair(best[BEFORE].seconds, best[NOW].seconds)

        rows, remarks = judge(jobs, time, seconds, progress)
    if changed:
        remarks.append(f"results differ from those before: {listed([*changed])}")
    about = [f"{name}: the build in {build.folder}, instruction set {build.isa}" for name, build in builds.items()]
    return Comparison(threads, [*about, "the builds run in turns, each in a process of its own"], rows, remarks)


def _with_figures(jobs: Sequence[Job], figures: Figures, threads: int, repeat: int, seconds: float,
                  progress: Progress | None) -> Comparison:
    """Compare with figures of an earlier time; calls that only one of both has are listed."""
    here = identity()
    for what, then, this in (("processor", figures.identity.processor, here.processor),
                             ("number of processors", figures.identity.processors, here.processors),
                             ("number of threads", figures.threads, threads)):
        if then != this:
            raise GraphError(f"{figures.path} is refused: its {what} is {then!r}, here it is {this!r}; allowed: "
                             "figures of the same machine and number of threads")
    keys = {Key.of(job): job for job in jobs}
    peer = Convreg(threads)
    wrong: list[str] = []

    def time(job: Job, seconds: float) -> Pair:
        case = make_case(*job)
        row = Row.of(case)
        prepared = checked(case, reference(case), {OURS: peer}, row)
        if OURS in row.wrong:
            wrong.append(job.words)
            raise Unsupported(f"the result is wrong: {row.wrong[OURS]}")
        if OURS in row.unsupported:
            raise Unsupported(row.unsupported[OURS])
        best = measure({OURS: partial(take_turn, prepared[OURS].call)}, repeat, seconds)
        return Pair(figures.times[Key.of(job)], best[OURS].seconds)

    common = [job for key, job in keys.items() if key in figures.times]
    rows, remarks = judge(common, time, seconds, progress)
    if missing := [job.words for key, job in keys.items() if key not in figures.times]:
        remarks.append(f"without a time in {figures.path}: {listed(missing)}")
    if more := [f"{key.name} {key.direction} {key.dtype} {key.layout}" for key in figures.times if key not in keys]:
        remarks.append(f"only in {figures.path}: {listed(more)}")
    about = [f"{here.processor}, {here.processors} processors",
             f"{BEFORE}: {figures.path}, at least {figures.repeat} runs in {figures.seconds} seconds, instruction set "
             f"{figures.identity.isa}",
             f"{NOW}: the build in {OWN}, instruction set {here.isa}"]
    if figures.identity.isa != here.isa:
        remarks.append(f"warning: the instruction set was {figures.identity.isa}, now it is {here.isa}")
    if figures.algorithm is not None:
        remarks.append(f"warning: the algorithm {figures.algorithm} was forced, now convreg chooses")
    return Comparison(threads, about, rows, remarks, wrong)


def shown(comparison: Comparison, *, as_markdown: bool = False) -> str:
    """Return the comparison as text or as Markdown."""
    tables = grouped(comparison.rows, lambda row: (row.job.direction, row.job.dtype, row.job.result, row.job.layout))
    threads = f"{comparison.threads} thread{'s' if comparison.threads > 1 else ''}"
    mark, parts = "* " if as_markdown else "", []
    parts.append("\n".join(f"{mark}{printable(line)}" for line in comparison.about))
    for title, rows in tables:
        title = f"{title}, {threads}"
        if as_markdown:
            parts.append("\n".join([f"### {title[0].upper()}{title[1:]}", "", *markdown_table([*_cells(rows)])]))
        else:
            parts.append("\n".join([title, *aligned([*_cells(rows)])]))
    parts.append("\n".join(f"{mark}{printable(line)}" for line in _remarks(comparison)))
    return "\n\n".join(parts)


def _cells(rows: Sequence[Compared]) -> Iterator[list[str]]:
    """Yield the table's lines: header, a line per call, geometric means."""
    yield ["shape", "before ms", "now ms", "ratio", "measured"]
    for row in rows:
        yield [row.job.problem.name, milliseconds(row.times.before), milliseconds(row.times.now),
               f"{row.times.ratio:.3f}", "twice" if row.twice else "once"]
    means = [geometric_mean([getattr(row.times, name) for row in rows]) for name in (BEFORE, NOW, "ratio")]
    yield ["geometric mean", *map(milliseconds, means[:2]), f"{means[2]:.3f}", ""]


def _remarks(comparison: Comparison) -> Iterator[str]:
    yield from comparison.remarks
    for row in comparison.lost:
        yield f"lost more than {_LIMIT} twice in a row: {row.job.words}, ratio {row.times.ratio:.3f}"
    if not comparison.lost:
        yield f"no call lost more than {_LIMIT} twice in a row"
