"""Divided steps with the interface of one carried session: state in this process, work elsewhere."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any, get_args

import numpy as np
from onnx import ModelProto

from .... import registry
from ....distributed.cluster import Cluster
from ....errors import Refusing
from ....memory import Array
from ...graph import flattened, nodes_of
from ...team import threads_of_nodes
from ..carried_values import CarriedValues
from ..record import StepRecord
from .assembly import Division, Samples, shards_of
from .division import Divider
from .draws import Draws
from .executors import Executor, Here, OnDask
from .per_shard import PerShard
from .plan import Plan, Statistics
from .report import StepReport, reported
from .rewrites import rewritten
from .specialised import Extents, known_of, specialised
from .units import Item, Items, gathered, taken
from .work import opened

SHARDS = 8
"""Of a batch on a cluster, unless the caller says how many."""

STATISTICS = get_args(Statistics)

MOST_DIVISIONS = 8
"""Sizes of batches whose divisions are kept."""


class DividedSteps(CarriedValues):
    """Runs of a step model whose batch is divided into shards.

    Parameters
    ----------
    model : onnx.ModelProto
    record : StepRecord
    values : mapping
        The first value of everything that is carried.
    others : list of str
        The outputs that a run returns.
    engine : str
    executor : Executor
    shards : int
    statistics : {"synchronous", "whole", "per_shard"}
    threads : int or None
        Of convreg's kernels in this process.
    """

    def __init__(
        self, model: ModelProto, record: StepRecord, values: Mapping[str, Array], others: list[str], *, engine: str,
        executor: Executor, shards: int, statistics: Statistics, threads: int | None,
    ) -> None:
        self._model, self._record, self._others = flattened(model), record, others
        super().__init__(values)
        self._engine, self._executor, self._shards = engine, executor, shards
        self._statistics, self._threads = statistics, threads
        self._own = any((operator := registry.find_node(node.domain, node.op_type)) is not None
                        and operator.spec.convolves for node in nodes_of(self._model))
        self._draws = Draws(self._model, engine)
        self._divisions: OrderedDict[Any, tuple[Division, dict[str, Array]]] = OrderedDict()
        self._took = (0.0, 0.0, 0.0)
        self._last: Division | None = None

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Make a step and return the outputs that are not carried; `advance` makes it count."""
        began = perf_counter()
        given = {name: np.asarray(array) for name, array in {**feeds, **self._values}.items()}
        division, shapes = self._division(given)
        batch = self._batch(given)
        values: dict[str, Any] = {**given, **division.constants, **self._draws.draw(shapes)}
        values |= self._here(division, division.head, division.head_reads, values)
        sources: list[Items] = [{item: _slice(values[item.value], item, batch) for item in source.items}
                                for source in division.sources]
        ready = perf_counter()
        found = self._executor.run(division, sources)
        done = perf_counter()
        held: dict[Item, Any] = {item: value for items in found.values() for item, value in items.items()}
        values |= {name: gathered(items, held) for name, items in division.values.items()}
        values |= self._here(division, division.tail, division.tail_reads, values)
        self._next = {name: np.asarray(values[following]) for name, following in self._record.state.items()}
        self._took, self._last = (ready - began, done - ready, perf_counter() - done), division
        return {name: np.asarray(values[name]) for name in self._others}

    def report(self) -> StepReport | None:
        """Return what the last step took, None before the first."""
        return None if self._last is None else reported(self._last, self._executor.ran(), self._took)

    @property
    def dashboard(self) -> str | None:
        """The address of Dask's page about the cluster."""
        return self._executor.dashboard

    def close(self) -> None:
        """End what was started for these steps."""
        self._executor.close()

    def _here(self, division: Division, name: str, reads: tuple[str, ...], values: Mapping[str, Any]) -> dict[str, Any]:
        """Run a model of the client in this process."""
        if not name:
            return {}
        runner, outputs = opened(division.program, name)
        with threads_of_nodes(self._threads or 0):
            return dict(zip(outputs, runner.run(None, {value: values[value] for value in reads}), strict=True))

    def _batch(self, given: Mapping[str, Array]) -> int:
        """The samples of a batch, 1 where no input has any."""
        name = self._record.batched(given)
        return 1 if name is None else given[name].shape[0]

    def _division(self, given: Mapping[str, Array]) -> tuple[Division, dict[str, Array]]:
        key = tuple(sorted((name, array.shape) for name, array in given.items()))
        if key in self._divisions:
            self._divisions.move_to_end(key)
            return self._divisions[key]
        batch = self._batch(given)
        shards = shards_of(batch, self._shards)
        shapes = {name: array.shape for name, array in given.items()}
        made = (self._per_shard if self._statistics == "per_shard" else self._planned)(shapes, batch, shards)
        self._divisions[key] = made
        while len(self._divisions) > MOST_DIVISIONS:
            self._divisions.popitem(last=False)
        return made

    def _planned(
        self, shapes: Mapping[str, Extents], batch: int, shards: Sequence[Samples]
    ) -> tuple[Division, dict[str, Array]]:
        model = specialised(self._model, shapes)
        known = known_of(model, batch)
        data = [name for name in (*self._record.data, self._record.target) if name is not None]
        plan = Plan(known, rewritten(model, known, self._draws), data, self._statistics)
        wanted = [*self._others, *self._record.state.values()]
        return Divider(plan, shards, wanted, self._engine, self._own).divided(), self._draws.shapes(known)

    def _per_shard(
        self, shapes: Mapping[str, Extents], batch: int, shards: Sequence[Samples]
    ) -> tuple[Division, dict[str, Array]]:
        divider = PerShard(self._model, self._record, shapes, shards, self._others, self._draws, self._engine,
                           self._own)
        return divider.divided(), self._draws.shapes(divider.known)


def _slice(value: Any, item: Item, batch: int) -> Any:
    return taken(np.asarray(value), item, (0, batch))


def divided_steps(
    model: ModelProto, record: StepRecord, values: Mapping[str, Array], others: list[str], *, engine: str,
    threads: int | None, client: Any, shards: int | None, statistics: Statistics | None, ask: Refusing,
) -> DividedSteps | None:
    """Return divided steps as the arguments of `Trainer` ask for them, None for steps that are not divided.

    Raises
    ------
    OpError
        If an argument has a wrong value, or the cluster does not answer.
    """
    if shards is not None and (isinstance(shards, bool) or not isinstance(shards, int | np.integer) or shards < 1):
        raise ask.refuse("shards", shards, "a positive integer, or None")
    if statistics is not None and not (isinstance(statistics, str) and statistics in STATISTICS):
        raise ask.refuse("statistics", statistics, f"{', '.join(map(repr, STATISTICS))}, or None")
    if client is None and shards is None:
        if statistics is not None:
            raise ask.refuse("statistics", statistics, "None unless shards= or client= divides the batches")
        return None
    executor: Executor = Here(threads or None) if client is None else OnDask(Cluster(client, ask))
    try:
        return DividedSteps(model, record, values, others, engine=engine, executor=executor,
                            shards=SHARDS if shards is None else int(shards), threads=threads,
                            statistics="synchronous" if statistics is None else statistics)
    except BaseException:
        executor.close()
        raise
