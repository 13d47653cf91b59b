"""Times convreg and other libraries on the same calls, in turns, after a check of each result."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import convreg

from ..progress import Progress
from .check import Array, Case, defect, make_case, reference
from .jobs import jobs_of, one_of, refuse_endless, started
from .machine import measure_machine
from .nodes import differences
from .peer import Peer, Prepared, Unsupported
from .peers import LIBRARIES, PEERS, Convreg, open_peers
from .problems import Problem
from .report import OURS, Report, Row, Timing, set_rooflines
from .worker import Turn, take_turn

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
    for name in peers:
        one_of(name, PEERS, "library")
    if algorithm is not None:
        one_of(algorithm, convreg.algorithm_names(), "algorithm")
    refuse_endless(repeat, seconds)
    workers = started(threads)
    jobs = jobs_of(problems, directions, dtypes, layouts)
    opened, absent = open_peers([*dict.fromkeys(peers)], workers)
    if progress:
        progress(0, len(jobs), "peak and bandwidth")
    machine = measure_machine(dict.fromkeys(job.dtype for job in jobs), opened, workers)
    if algorithm is not None:
        opened[OURS] = Convreg(workers, algorithm)
    rows = []
    for done, job in enumerate(jobs):
        if progress:
            progress(done, len(jobs), job.words)
        case = make_case(*job)
        row = Row.of(case)
        calls = checked(case, reference(case), opened, row)
        row.timings = measure({name: partial(take_turn, call) for name, call in calls.items()}, repeat, seconds)
        rows.append(row)
    if progress:
        progress(len(jobs), len(jobs), "")
    return Report(set_rooflines(machine, rows), workers, repeat, seconds,
                  {name: peer.about for name, peer in opened.items()}, absent,
                  [*notes, *differences(dict.fromkeys(job.problem for job in jobs), dtypes, layouts)], rows, algorithm)


def checked(case: Case, expected: Array, peers: Mapping[str, Peer], row: Row) -> dict[str, Callable[[], Any]]:
    """Run each library once, note wrong results and refusals in the row, and return the calls to be timed."""
    calls: dict[str, Callable[[], Any]] = {}
    for name, peer in peers.items():
        try:
            prepared: Prepared = peer.prepare(case)
            result = prepared.call()
        except Unsupported as why:
            row.unsupported[name] = str(why)
            continue
        if name == OURS:
            row.algorithm = prepared.algorithm
        found = defect(case, prepared.array(result), expected)
        if found:
            row.wrong[name] = found
        calls[name] = prepared.call
    return calls


def measure(turns: Mapping[str, Callable[[float], Turn]], repeat: int, seconds: float) -> dict[str, Timing]:
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
