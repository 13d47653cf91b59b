"""Times convreg and other libraries on the same calls, in turns, after a check of each result."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import convreg
from convreg.progress import Progress

from .calls import Job
from .check import DTYPES, Array, Case, defect, make_case, reference
from .jobs import jobs_of, one_of, refuse_endless, started
from .machine import measure_machine
from .nodes import differences
from .peer import Peer, Prepared, Unsupported
from .peers import LIBRARIES, PEERS, Convreg, open_peers
from .problems import Problem
from .report import OURS, Report, Row, Timing, set_rooflines
from .worker import Turn, take_turn

Name = TypeVar("Name", bound=Hashable)

OWN = "f32"
"""A number format, and the library that is convreg in it."""
PAUSE = 0.005
"""Seconds between libraries: the threads of the last one stop waiting for work by spinning."""
TURN = 0.003
"""The shortest turn of a library in seconds; short calls would otherwise measure cold caches and sleeping threads."""
PATIENCE = 10
"""A library that has used this many times its share of the time stops after two runs."""


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
    algorithm: str | None = None,
    together: bool = False,
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
    algorithm : str, optional
        The one that convreg's calls are forced to take. The library "f32" and the measured peak choose freely.
    together : bool
        Time all number formats of a layer in turns, f32 among them, and take convreg's f32 as the library "f32".
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
    peers, dtypes = chosen(peers, dtypes, algorithm, together)
    refuse_endless(repeat, seconds)
    workers = started(threads)
    jobs = jobs_of(problems, directions, dtypes, layouts)
    opened, absent = open_peers(peers, workers)
    if progress:
        progress(0, len(jobs), "peak and bandwidth")
    machine = measure_machine(dict.fromkeys(job.dtype for job in jobs), opened, workers)
    if algorithm is not None:
        opened[OURS] = Convreg(workers, algorithm)
    rows, done = [], 0
    for group in groups_of(jobs, together):
        if progress:
            progress(done, len(jobs), group[0].words if len(group) == 1 else f"{group[0].words} and other formats")
        rows += time_group(group, opened, repeat, seconds)
        done += len(group)
    if progress:
        progress(len(jobs), len(jobs), "")
    about = {name: peer.about for name, peer in opened.items()}
    notes = [*notes, *differences(dict.fromkeys(job.problem for job in jobs), dtypes, layouts)]
    return report_of(Report(machine, workers, repeat, seconds, about, absent, notes, rows, algorithm, together))


def chosen(peers: Sequence[str], dtypes: Sequence[str] | None, algorithm: str | None, together: bool
           ) -> tuple[list[str], Sequence[str] | None]:
    """Return the libraries and the number formats that are meant, each once.

    Raises
    ------
    GraphError
        If there is no library or algorithm of a name.
    """
    for name in peers:
        one_of(name, PEERS, "library")
    if algorithm is not None:
        one_of(algorithm, convreg.algorithm_names(), "algorithm")
    if together:
        return [*dict.fromkeys(name for name in peers if name != OWN)], [*dict.fromkeys((OWN, *(dtypes or DTYPES)))]
    return [*dict.fromkeys(peers)], dtypes


def report_of(timed: Report) -> Report:
    """Return the report of calls that were timed, with what follows from the times of all."""
    about = dict(timed.peers)
    if timed.together:
        own = {OWN: "convreg in f32, timed in turns with the other formats of a layer"}
        about = {OURS: about.pop(OURS), **own, **about}
        _set_own(timed.rows)
    return replace(timed, machine=set_rooflines(timed.machine, timed.rows), peers=about)


def groups_of(jobs: Sequence[Job], together: bool) -> list[list[Job]]:
    """Return the jobs that take turns: each alone, or those of a layer, direction and layout."""
    if not together:
        return [[job] for job in jobs]
    groups: dict[tuple[Problem, str, str], list[Job]] = {}
    for job in jobs:
        groups.setdefault((job.problem, job.direction, job.layout), []).append(job)
    return [*groups.values()]


def time_group(group: Sequence[Job], peers: Mapping[str, Peer], repeat: int, seconds: float) -> list[Row]:
    """Check and time calls that take turns."""
    rows: list[Row] = []
    prepared: dict[tuple[int, str], Prepared] = {}
    known: dict[str, tuple[Case, Array]] = {}
    for place, job in enumerate(group):
        if job.dtype not in known:  # results in another format have the same operands
            case = make_case(*job)
            known = {job.dtype: (case, reference(case))}
        case, expected = known[job.dtype]
        case = replace(case, result=job.result)
        rows.append(Row.of(case))
        prepared |= {(place, name): one for name, one in checked(case, expected, peers, rows[-1]).items()}
    turns = {key: partial(take_turn, one.call) for key, one in prepared.items()}
    for (place, name), timing in measure(turns, repeat, seconds).items():
        rows[place].timings[name] = timing
        if name == OURS:
            rows[place].algorithm = prepared[place, name].algorithm()
    return rows


def _set_own(rows: Sequence[Row]) -> None:
    """Give the rows of other formats the time of f32."""
    own = {(row.name, row.layer, row.direction, row.layout): row.timings[OURS] for row in rows
           if row.dtype == OWN and row.seconds(OURS) is not None}
    for row in rows:
        timing = own.get((row.name, row.layer, row.direction, row.layout))
        if row.dtype != OWN and timing is not None:
            row.timings[OWN] = timing


def checked(case: Case, expected: Array, peers: Mapping[str, Peer], row: Row) -> dict[str, Prepared]:
    """Run each library once, note wrong results and refusals in the row, and return what is to be timed."""
    calls: dict[str, Prepared] = {}
    for name, peer in peers.items():
        try:
            prepared = peer.prepare(case)
            result = prepared.call()
        except Unsupported as why:
            row.unsupported[name] = str(why)
            continue
        found = defect(case, prepared.array(result), expected)
        if found:
            row.wrong[name] = found
        calls[name] = prepared
    return calls


def measure(turns: Mapping[Name, Callable[[float], Turn]], repeat: int, seconds: float) -> dict[Name, Timing]:
    """Return the shortest run of each call; they take turns, and all get as many turns unless one is very slow.

    An entry of `turns` runs its call for the given time.
    """
    best = dict.fromkeys(turns, float("inf"))
    runs, spent = dict.fromkeys(turns, 0), dict.fromkeys(turns, 0.0)
    waiting = list(turns)
    while waiting and (min(runs[name] for name in waiting) < repeat
                       or min(spent[name] for name in waiting) < seconds):
        for name in waiting:
            time.sleep(PAUSE)
            turn = turns[name](TURN)
            best[name] = min(best[name], turn.best)
            runs[name] += turn.runs
            spent[name] += turn.spent
        waiting = [name for name in waiting if runs[name] < 2 or spent[name] < PATIENCE * max(seconds, TURN)]
    return {name: Timing(best[name], runs[name]) for name in turns}
