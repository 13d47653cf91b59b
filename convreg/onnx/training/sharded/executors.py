"""What runs the units of a step: this process, one after the other, or a cluster of Dask.

Both get the same units, which depend on the batch alone. So the number of workers decides nothing but the time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from operator import getitem
from time import perf_counter, time
from typing import Any, NamedTuple, Protocol
from uuid import uuid4
from weakref import WeakKeyDictionary

from ....distributed.cluster import Cluster, Shares
from ....errors import GraphError, OpError
from .assembly import CLIENT, Division
from .units import Items, Program, bytes_of
from .work import compute

Place = tuple[str, int]
"""A unit, or `CLIENT`, and the number of a group of its results."""

SHARED = 1 << 16
"""Bytes from which on whole values that several shards read are copied to the workers before these begin."""

RETRIES = 1
"""How often a task that raises is run again before its error is that of the step."""


class Ran(NamedTuple):
    """What one unit took: its seconds, the bytes that came from other workers, and the bytes of its results."""

    unit: str
    seconds: float
    moved: int
    made: int


class Executor(Protocol):
    """Runs the units of a step; `dashboard` is the address of a page about the cluster, if there is one."""

    dashboard: str | None

    def run(self, division: Division, sources: Sequence[Items]) -> dict[Place, Items]:
        """Run all units and return the groups of results that the client needs."""

    def ran(self) -> list[Ran]:
        """Return what the units of the last step took."""

    def close(self) -> None:
        """End what was started."""


class Here:
    """Runs the units in this process, one after the other."""

    def __init__(self, threads: int | None) -> None:
        self._threads = threads
        self.dashboard: str | None = None
        self._ran: list[Ran] = []

    def run(self, division: Division, sources: Sequence[Items]) -> dict[Place, Items]:
        """Run all units; a result is dropped after its last reader."""
        held: dict[Place, Items] = {(CLIENT, number): items for number, items in enumerate(sources)}
        readers: dict[Place, int] = {}
        for places in (*division.inputs.values(), division.results):
            for place in places:
                readers[place] = readers.get(place, 0) + 1
        self._ran = []
        for name in division.order:
            start = perf_counter()
            made = compute(division.program, name, self._threads, [held[place] for place in division.inputs[name]])
            self._ran.append(Ran(name, perf_counter() - start, 0, sum(map(_bytes_of, made))))
            held.update({(name, number): group for number, group in enumerate(made)})
            for place in division.inputs[name]:
                readers[place] -= 1
                if not readers[place]:
                    del held[place]
        return {place: held[place] for place in division.results}

    def ran(self) -> list[Ran]:
        """Return what the units of the last step took."""
        return self._ran

    def close(self) -> None:
        """Nothing was started."""


class OnDask:
    """Runs the units as tasks of a cluster.

    Everything that a task needs is an argument or the result of another task, so that Dask can make anew what a worker
    takes along when it dies.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.dashboard = cluster.dashboard
        self._shares = cluster.shares()
        self._programs: WeakKeyDictionary[Program, Any] = WeakKeyDictionary()  # until its division is forgotten
        self._last: tuple[Division, dict[str, str], float, dict[Place, int]] | None = None
        cluster.client.get_task_stream(count=0)  # from now on the scheduler notes what tasks take

    def run(self, division: Division, sources: Sequence[Items]) -> dict[Place, Items]:
        """Submit all units and wait for what the client needs.

        Raises
        ------
        GraphError, OpError
            Of a unit that failed twice, or of the cluster.
        """
        from dask import config
        from distributed import KilledWorker

        keys: dict[str, str] = {}
        began = time()
        try:
            # The parameters of a step are as large as they are; Dask warns of graphs above 10 MB.
            with config.set({"distributed.admin.large-graph-warning-threshold": 1 << 60}):
                futures = self._submitted(division, sources, keys)
            found = self._cluster.client.gather(futures)
        except (GraphError, OpError):
            raise
        except KilledWorker as error:
            names = {key: name for name, key in keys.items()}
            unit = division.program.units.get(names.get(str(error.task), ""))
            where = "" if unit is None else f" that computed {unit.words} of the batch"
            raise GraphError(f"{error.allowed_failures + 1} workers{where} died one after the other, perhaps of a lack "
                             "of memory; the state stays what it was before the step") from error
        except Exception as error:
            if isinstance(error, CancelledError | OSError) or self._cluster.client.status != "running":
                raise self._cluster.lost(error) from error
            raise
        sizes = {(CLIENT, number): _bytes_of(items) for number, items in enumerate(sources)}
        self._last = division, keys, began, sizes
        return dict(zip(division.results, found, strict=True))

    def _submitted(self, division: Division, sources: Sequence[Items], keys: dict[str, str]) -> list[Any]:
        """Give the cluster the whole step at once; return the futures of what the client needs."""
        from dask import delayed

        client, token = self._cluster.client, uuid4().hex
        program = self._program(division.program)
        hand, work, pick = (delayed(function, pure=False, traverse=False) for function in (_handed, _task, getitem))
        places: dict[Place, Any] = {}
        shared = []
        for number, (items, source) in enumerate(zip(sources, division.sources, strict=True)):
            readers = {division.program.units[name].samples for name in source.needed_by}
            if len(readers) < 2 or _bytes_of(items) < SHARED or any(item.first is not None for item in items):
                places[CLIENT, number] = hand(_Handed(items), dask_key_name=f"convreg_batch-{token}-{number}")
                continue
            places[CLIENT, number] = client.submit(_handed, _Handed(items), key=f"convreg_shared-{token}-{number}")
            shared.append(places[CLIENT, number])
        if shared:
            # Without copies Dask gives all shards to the one worker that holds the parameters.
            with suppress(OSError):  # if a worker died, Dask makes it anew where it is needed
                client.replicate(shared, n=division.shards)
        for number, name in enumerate(division.order):
            unit = division.program.units[name]
            keys[name] = key = f"convreg_{unit.kind}_{unit.stage}-{token}-{number}"
            made = work(program, name, self._shares, *(places[place] for place in division.inputs[name]),
                        dask_key_name=key)
            if len(unit.groups) == 1:
                places[name, 0] = made
                continue
            places.update({(name, group): pick(made, group, dask_key_name=f"{key}-{group}")
                           for group in range(len(unit.groups))})
        futures: list[Any] = client.compute([places[place] for place in division.results], retries=RETRIES,
                                            optimize_graph=False)
        return futures

    def _program(self, program: Program) -> Any:
        """The program as a result on the cluster, which every worker fetches once."""
        there = self._programs.get(program)
        if there is None or there.status not in ("pending", "finished"):  # a cluster that restarts forgets it
            there = self._programs[program] = self._cluster.client.submit(
                _handed, _Handed(program), key=f"convreg_program-{uuid4().hex}")
        return there

    def ran(self) -> list[Ran]:
        """Return what the units of the last step took, as Dask noted it."""
        if self._last is None or self._cluster.client.status != "running":
            return []
        division, keys, began, sizes = self._last
        names = {key: name for name, key in keys.items()}
        noted: dict[str, Any] = {}
        for entry in self._cluster.client.get_task_stream(start=began):
            if entry["key"] in names:
                noted[names[entry["key"]]] = entry
        found = []
        there: set[tuple[Place, str]] = set()
        for name in division.order:
            if name not in noted:
                continue
            entry, came = noted[name], 0
            for place in division.inputs[name]:
                source = noted[place[0]]["worker"] if place[0] in noted else CLIENT
                if source != entry["worker"] and (place, entry["worker"]) not in there:
                    there.add((place, entry["worker"]))  # a worker fetches it once
                    came += sizes[place] if place[0] == CLIENT else division.sizes[place]
            seconds = sum(part["stop"] - part["start"] for part in entry["startstops"] if part["action"] == "compute")
            groups = range(len(division.program.units[name].groups))
            found.append(Ran(name, seconds, came, sum(division.sizes[name, number] for number in groups)))
        return found

    def close(self) -> None:
        """Forget the programs, and end the cluster if it was started here."""
        self._programs.clear()
        self._cluster.close()


class _Handed:
    """What the client hands over, which Dask does not look into."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _handed(handed: _Handed) -> Any:
    """Return what the client hands over."""
    return handed.value


def _task(program: Program, name: str, shares: Shares, *given: Items) -> Any:
    """Compute a unit on a worker; a single group is returned as it is."""
    made = compute(program, name, shares.here(), list(given))
    return made[0] if len(made) == 1 else made


def _bytes_of(items: Mapping[Any, Any]) -> int:
    return sum(map(bytes_of, items.values()))
