"""A benchmark on a cluster: every layer on every kind of machine, one at a time on each host."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from functools import lru_cache, partial
from math import prod
from typing import Any, NamedTuple

from convreg.ops.kernels.threads import available

from convreg import GraphError
from convreg.distributed.cluster import Cluster
from convreg.distributed.journal import Journal, key_of
from convreg.distributed.sweep import Task, sweep, swept
from convreg.errors import Asking
from convreg.files import PathLike, reason
from convreg.progress import Progress

from .calls import Job
from .jobs import jobs_of, refuse_endless, started
from .machine import Identity, Machine, identity, measure_machine
from .nodes import differences
from .peer import Peer
from .peers import LIBRARIES, Convreg, open_peers
from .problems import Problem
from .report import OURS, Report, Row, Timing
from .timing import chosen, groups_of, report_of, time_group

ASK = Asking("convreg::bench")
KIND = "convreg bench figures"
BYTES_PER_NUMBER = 48
"""Of the three tensors: operands in two layouts, the result, and the reference in float64 with what it is made of."""
LOCK = f"convreg-bench-{os.getuid()}.lock"
"""The file in the folder of temporary files that the process which measures on a host holds."""


class Timed(NamedTuple):
    """Calls that were timed together, and where: the machine, the number of threads, and the libraries."""

    machine: Machine
    threads: int
    peers: dict[str, str]
    absent: dict[str, str]
    rows: list[Row]


def run_on(
    problems: Sequence[Problem],
    client: Any = None,
    *,
    path: PathLike | None = None,
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
) -> list[Report]:
    """Time convreg and other libraries on a cluster: every call once on each kind of machine.

    Machines are of one kind if they have the same processor, number of processors and instruction set. A call is a task
    of the cluster. A process of a host that measures holds a lock there, so one call at a time is timed on a host.

    Parameters
    ----------
    problems : sequence of Problem
    client : distributed.Client or str, optional
        A client of Dask, the address of a scheduler, or ``"local:N"``. Without it this process measures.
    path : path-like, optional
        A file that gets a JSON line for the calls that are timed together, as soon as they are. What the file has is
        not timed again, and is reported also for kinds of machines that are not in the cluster now.
    threads : int, optional
        For every library; by default all processors of a host that a worker may use.
    directions, dtypes, layouts, peers, repeat, seconds, algorithm, together, notes, progress
        As for `run`.

    Returns
    -------
    list of Report
        One per kind of machine.

    Raises
    ------
    GraphError
        As `run`, or if the file cannot be written or belongs to another benchmark.
    OpError
        If the cluster is refused or lost.
    """
    peers, dtypes = chosen(peers, dtypes, algorithm, together)
    refuse_endless(repeat, seconds)
    if threads is not None and threads < 1:
        raise GraphError(f"threads={threads} is refused; allowed: a positive integer")
    jobs = jobs_of(problems, directions, dtypes, layouts)
    groups = _named(groups_of(jobs, together))
    formats = tuple(dict.fromkeys(job.dtype for job in jobs))
    choices = {"peers": list(peers), "threads": threads, "repeat": repeat, "seconds": seconds, "algorithm": algorithm,
               "together": together}
    found: dict[Identity, dict[str, Timed]] = {}
    with ExitStack() as undo:
        cluster = None if client is None else undo.enter_context(Cluster(client, ASK))
        journal = None if path is None else undo.enter_context(Journal(path, KIND, choices))
        keys = {name: key_of([list(group), list(formats)]) for name, group in groups.items()}
        for name, kind, timed in _done(journal, keys):
            found.setdefault(kind, {})[name] = timed
        tasks, place = [], {}
        for kind, hosts in _kinds(cluster).items():
            for name, group in groups.items():
                if name not in found.get(kind, {}):
                    task = Task(f"{name} on {', '.join(map(str, kind))}",
                                (group, formats, tuple(peers), threads, repeat, seconds, algorithm), _bytes_of(group),
                                hosts)
                    tasks.append(task)
                    place[task.name] = name
        results = (sweep(timed_alone, tasks, None, ASK, progress=progress) if cluster is None
                   else swept(timed_alone, tasks, cluster, ASK, progress=progress))
        for task, timed in results:
            kind, name = _kind_of(timed.machine), place[task.name]
            found.setdefault(kind, {})[name] = timed
            if journal is not None:
                journal.add(f"{name} on {', '.join(map(str, kind))}", keys[name], _as_json(name, timed))
    notes = [*notes, *differences(dict.fromkeys(job.problem for job in jobs), dtypes, layouts)]
    return [_report([parts[name] for name in groups if name in parts],
                    partial(Report, repeat=repeat, seconds=seconds, notes=[*notes, *_missing(groups, parts)],
                            algorithm=algorithm, together=together)) for parts in found.values()]


def timed_alone(
    _: int | None, group: Sequence[Job], formats: tuple[str, ...], peers: tuple[str, ...], threads: int | None,
    repeat: int, seconds: float, algorithm: str | None,
) -> Timed:
    """Time calls in turns while no other process of the host does; runs in a worker."""
    with _quiet():
        workers = started(available() if threads is None else threads)
        opened, absent = _opened(peers, workers)
        machine = _machine(formats, peers, workers)
        if algorithm is not None:
            opened = {**opened, OURS: Convreg(workers, algorithm)}
        rows = time_group(group, opened, repeat, seconds)
        return Timed(machine, workers, {name: peer.about for name, peer in opened.items()}, dict(absent), rows)


@lru_cache(maxsize=4)
def _opened(peers: tuple[str, ...], threads: int) -> tuple[Mapping[str, Peer], Mapping[str, str]]:
    return open_peers(peers, threads)


@lru_cache(maxsize=4)
def _machine(formats: tuple[str, ...], peers: tuple[str, ...], threads: int) -> Machine:
    """Measure the machine once in a process."""
    return measure_machine(formats, _opened(peers, threads)[0], threads)


@contextmanager
def _quiet() -> Iterator[None]:
    """Hold the host's lock for the block."""
    path = os.path.join(tempfile.gettempdir(), LOCK)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise GraphError(f"{path}: cannot be opened: {reason(error)}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _kinds(cluster: Cluster | None) -> dict[Identity, tuple[str, ...]]:
    """Return the kinds of machines with their hosts."""
    if cluster is None:
        return {identity(): ()}
    hosts = {worker.address: worker.host for worker in cluster.workers()}
    kinds: dict[Identity, dict[str, None]] = {}
    for address, kind in cluster.client.run(identity).items():
        kinds.setdefault(kind, {})[hosts.get(address, "")] = None
    return {kind: tuple(host for host in found if host) for kind, found in sorted(kinds.items())}


def _kind_of(machine: Machine) -> Identity:
    return Identity(machine.processor, machine.processors, machine.isa)


def _named(groups: Sequence[Sequence[Job]]) -> dict[str, Sequence[Job]]:
    """Return groups of jobs by name; equal jobs count as one."""
    return {" ".join([*group[0][1:], group[0].problem.name, f"({group[0].problem})"]): group for group in groups}


def _bytes_of(group: Sequence[Job]) -> int:
    return max(BYTES_PER_NUMBER * sum(map(prod, job.problem.shapes)) for job in group) + 2**27


def _done(journal: Journal | None, keys: Mapping[str, str]) -> Iterator[tuple[str, Identity, Timed]]:
    """Yield what a file has of these calls."""
    if journal is None:
        return
    for full, (_, held) in journal.done.items():
        try:
            name, timed = held["name"], _from_json(held)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise GraphError(f"{journal.path}: case {full!r} is no result of convreg bench: {reason(error)}") from None
        if name in keys and journal.result(full, keys[name]) is not None:
            yield name, _kind_of(timed.machine), timed


def _as_json(name: str, timed: Timed) -> dict[str, Any]:
    return {"name": name, "machine": asdict(timed.machine), "threads": timed.threads, "peers": timed.peers,
            "absent": timed.absent, "rows": [asdict(row) for row in timed.rows]}


def _from_json(held: Mapping[str, Any]) -> Timed:
    machine = held["machine"]
    peaks = {dtype: (float(rate), str(by)) for dtype, (rate, by) in machine["peaks"].items()}
    rows = [Row(**{**row, "timings": {peer: Timing(**timing) for peer, timing in row["timings"].items()}})
            for row in held["rows"]]
    return Timed(Machine(**{**machine, "peaks": peaks}), held["threads"], held["peers"], held["absent"], rows)


def _missing(groups: Mapping[str, Any], parts: Mapping[str, Any]) -> list[str]:
    """Say how many calls a machine that is not in the cluster now has not timed."""
    count = sum(name not in parts for name in groups)
    return [f"{count} of {len(groups)} calls are not timed on this machine yet"] if count else []


def _report(parts: Sequence[Timed], report: Callable[..., Report]) -> Report:
    """Return the report of a kind of machine; its limits are the best that any process measured."""
    peaks: dict[str, tuple[float, str]] = {}
    for part in parts:
        for dtype, peak in part.machine.peaks.items():
            peaks[dtype] = max(peaks.get(dtype, peak), peak)
    machine = replace(parts[0].machine, peaks=peaks, bandwidth=max(part.machine.bandwidth for part in parts))
    return report_of(report(machine=machine, threads=parts[0].threads, peers=parts[0].peers, absent=parts[0].absent,
                            rows=[row for part in parts for row in part.rows]))
