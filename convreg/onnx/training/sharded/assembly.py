"""Units put together: who makes what, who needs it, and what the client's process itself does."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from onnx import ModelProto

from ....memory import Array
from .parts import Part
from .specialised import Known
from .sums import Summed
from .units import Item, Piece, Program, Unit
from .work import runtime_version

CLIENT = "client"
"""Stands for the client's process where units are meant."""

JOINED = 1 << 20
"""Bytes of sums from which on they are joined by several tasks."""

TOGETHER = 1 << 16
"""Bytes of a unit's results up to which they are one group: to move them costs less than a task to part them."""

Samples = tuple[int, int]


@dataclass(frozen=True)
class Source:
    """Pieces of values that the client hands over, and the units that need them."""

    items: tuple[Item, ...]
    needed_by: tuple[str, ...]


@dataclass(frozen=True)
class Division:
    """A step for one batch size as tasks.

    Attributes
    ----------
    program : Program
    order : tuple of str
        The units, each after those that it reads from.
    inputs : dict
        Unit -> pairs of a unit, or `CLIENT`, and the number of a group of its results (of a `Source`).
    sources : tuple of Source
    results : tuple
        Pairs of a unit and a group that the client needs.
    values : dict
        Values that the client needs -> the pieces that they are joined from.
    head, tail : str
        Models that the client runs itself before and after, empty for none.
    head_reads, tail_reads : tuple of str
    head_makes, tail_makes : tuple of str
    constants : dict
        Constants of the graph of which shards read their own rows.
    sizes : dict
        Bytes of the groups of results.
    shards : int
    """

    program: Program
    order: tuple[str, ...]
    inputs: Mapping[str, tuple[tuple[str, int], ...]]
    sources: tuple[Source, ...]
    results: tuple[tuple[str, int], ...]
    values: Mapping[str, tuple[Item, ...]]
    head: str
    tail: str
    head_reads: tuple[str, ...]
    tail_reads: tuple[str, ...]
    head_makes: tuple[str, ...]
    tail_makes: tuple[str, ...]
    constants: Mapping[str, Array]
    sizes: Mapping[tuple[str, int], int]
    shards: int


def shards_of(batch: int, shards: int) -> list[Samples]:
    """Divide a batch into shards that differ by one sample at most; none is empty."""
    count = max(1, min(shards, batch))
    edges = [batch * part // count for part in range(count + 1)]
    return list(pairwise(edges))


@dataclass
class Draft:
    """A unit while it is put together."""

    unit: Unit
    pieces: list[Piece] = field(default_factory=list)
    results: dict[Item, list[str]] = field(default_factory=dict)


class Assembly:
    """Drafts of units, and the pieces of values between them."""

    def __init__(self, known: Known, shards: Sequence[Samples], engine: str) -> None:
        self.known, self.shards, self.engine = known, shards, engine
        self.models: dict[str, bytes] = {}
        self.drafts: dict[str, Draft] = {}
        self.given: dict[Item, list[str]] = {}
        self.totals: dict[str, Summed] = {}

    def note(self, maker: str | None, item: Item, reader: str) -> None:
        """Note that a unit or the client reads a piece that a unit makes, or without a maker the client."""
        if maker == reader:
            return
        readers = self.given if maker is None else self.drafts[maker].results
        found = readers.setdefault(item, [])
        if reader not in found:
            found.append(reader)

    def join_groups(self, stage: int, sums: Sequence[Summed]) -> dict[str, str]:
        """Name the unit that joins each sum, of about equal bytes, and draft these units."""
        size = sum(total.bytes for total in sums)
        count = max(1, min(len(self.shards), len(sums), -(-size // JOINED)))
        loads = [0] * count
        chosen: dict[str, str] = {}
        for total in sorted(sums, key=lambda total: -total.bytes):
            place = loads.index(min(loads))
            loads[place] += total.bytes
            chosen[total.result] = f"join {stage}.{place}"
        for name in dict.fromkeys(chosen.values()):
            self.drafts[name] = Draft(Unit(name, stage, "join", (0, self.known.batch)))
        return chosen

    def finished(
        self, values: Mapping[str, tuple[Item, ...]], head: Part | None, head_makes: Sequence[str], tail: Part | None,
        tail_makes: Sequence[str],
    ) -> Division:
        """Return the division; `values` are what the client needs besides its own, and the pieces of it."""
        for name, part in (("head", head), ("tail", tail)):
            if part is not None:
                self.models[name] = serialised(part.model)
        inputs: dict[str, list[tuple[str, int]]] = {name: [] for name in self.drafts}
        results: list[tuple[str, int]] = []
        units: dict[str, Unit] = {}
        for name, draft in self.drafts.items():
            groups = self._groups(draft)
            for number, group in enumerate(groups):
                for reader in sorted({reader for item in group for reader in draft.results[item]}):
                    (results if reader == CLIENT else inputs[reader]).append((name, number))
            units[name] = replace(draft.unit, pieces=tuple(draft.pieces), groups=tuple(map(tuple, groups)))
        sources = [Source(tuple(items), readers) for readers, items in _grouped(self.given).items()]
        for number, source in enumerate(sources):
            for reader in source.needed_by:
                inputs[reader].append((CLIENT, number))
        constants = {item.value: value for item in self.given if (value := self.known.value(item.value)) is not None}
        digest = hashlib.sha256(repr(sorted(self.models.items())).encode()).hexdigest()
        program = Program(digest, self.engine, runtime_version(self.engine), self.models, self.totals, units)
        sizes = {(name, number): sum(map(self._size, group)) for name, unit in units.items()
                 for number, group in enumerate(unit.groups)}
        return Division(
            program, tuple(_ordered(inputs)), {name: tuple(found) for name, found in inputs.items()}, tuple(sources),
            tuple(results), values, "head" if head else "", "tail" if tail else "", _reads(head), _reads(tail),
            tuple(head_makes), tuple(tail_makes), constants, sizes, len(self.shards))

    def _groups(self, draft: Draft) -> list[list[Item]]:
        """Group the results of a unit by who reads them, since a reader fetches whole groups.

        Readers of the same shard run where the results are. For them only the time counts until which a result is
        held: to the next stage, or longer.
        """
        if sum(map(self._size, draft.results)) <= TOGETHER:
            return [list(draft.results)] if draft.results else []
        unit, found = draft.unit, dict[tuple[str, ...], list[Item]]()
        for item, readers in draft.results.items():
            key = set()
            for reader in readers:
                other = self.drafts[reader].unit if reader != CLIENT else None
                if other is None or (other.kind, other.samples) != ("shard", unit.samples) or unit.kind != "shard":
                    key.add(reader)
                else:
                    key.add("next" if other.stage == unit.stage + 1 else "later")
            if "later" in key:
                key.discard("next")
            found.setdefault(tuple(sorted(key)), []).append(item)
        return list(found.values())

    def _size(self, item: Item) -> int:
        if item.value in self.totals and item.first is not None:
            return self.totals[item.value].bytes
        whole = self.known.bytes_of(item.value)
        if item.first is None or item.end is None or not self.known.batch:
            return whole
        return whole * (item.end - item.first) // self.known.batch


def _grouped(results: Mapping[Item, Sequence[str]]) -> dict[tuple[str, ...], list[Item]]:
    groups: dict[tuple[str, ...], list[Item]] = {}
    for item, readers in results.items():
        groups.setdefault(tuple(sorted(readers)), []).append(item)
    return groups


def _ordered(inputs: Mapping[str, Iterable[tuple[str, int]]]) -> list[str]:
    """Return the units, each after those that it reads from; the order of their making where it can stay."""
    order: list[str] = []
    left = {name: {maker for maker, _ in found if maker != CLIENT} for name, found in inputs.items()}
    while left:
        ready = [name for name, makers in left.items() if not makers]
        assert ready, "units read from each other"
        order += ready
        for name in ready:
            del left[name]
        for makers in left.values():
            makers.difference_update(ready)
    return order


def _reads(part: Part | None) -> tuple[str, ...]:
    return () if part is None else tuple(value for value, _ in part.reads.values())


def serialised(model: ModelProto) -> bytes:
    """Return a model as bytes that are equal for equal models."""
    return model.SerializeToString(deterministic=True)
