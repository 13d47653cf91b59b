"""Units of work of a divided step: what one task computes, from which pieces of values, and who needs its results.

A unit is a part of the graph for one shard, sums over some samples, sums joined, or nodes on whole operands. Units hold
no arrays: a `Program` is made once for all batches of the same extents, and every process keeps what it has opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from ....distributed import Partial
from ....memory import Array
from .sums import Summed


class Item(NamedTuple):
    """A piece of a value that goes from one unit to another.

    `first` and `end` are samples, None for the whole value. Of a sum they are the pieces of a partial sum.
    """

    value: str
    first: int | None = None
    end: int | None = None


Items = Mapping[Item, Any]


class Piece(NamedTuple):
    """A partial sum: which total, its pieces, and where the rows of each value come from."""

    total: str
    first: int
    end: int
    rows: Mapping[str, tuple[Item, ...]]


class Joined(NamedTuple):
    """A sum that is joined, from these partial sums."""

    total: str
    parts: tuple[Item, ...]


@dataclass(frozen=True)
class Unit:
    """What one task does: run a model, sum pieces, join sums.

    Attributes
    ----------
    name : str
    stage : int
    kind : {"shard", "whole", "sum", "join"}
    samples : tuple of int
        The first sample and the end of those that it computes.
    model : str
        The name of a model of the program, empty for none.
    reads : dict
        Input of the model -> the pieces that it is joined from.
    pieces : tuple of Piece
    joins : tuple of Joined
    groups : tuple
        Its results: pieces of values, grouped by the units that need them.
    """

    name: str
    stage: int
    kind: str
    samples: tuple[int, int]
    model: str = ""
    reads: Mapping[str, tuple[Item, ...]] = field(default_factory=dict)
    pieces: tuple[Piece, ...] = ()
    joins: tuple[Joined, ...] = ()
    groups: tuple[tuple[Item, ...], ...] = ()

    def with_join(self, joined: Joined) -> Unit:
        """Return the unit with another sum to join."""
        return replace(self, joins=(*self.joins, joined))

    @property
    def words(self) -> str:
        """Which samples these are, for messages."""
        first, end = self.samples
        return f"sample {first}" if end - first == 1 else f"samples {first} to {end - 1}"


@dataclass(frozen=True, eq=False)
class Program:
    """All units of a step and what they run.

    Programs are compared as objects: those of two batches may run the same models in other places.

    Attributes
    ----------
    digest : str
        Names the models in the caches of processes.
    engine : str
        What runs the models.
    runtime : str
        The version of onnxruntime in the client's process, empty under the reference engine.
    models : dict
        Serialised models by name.
    totals : dict
        Sums by the value that they make.
    units : dict
    """

    digest: str
    engine: str
    runtime: str
    models: Mapping[str, bytes]
    totals: Mapping[str, Summed]
    units: Mapping[str, Unit]


def taken(made: Array, item: Item, samples: tuple[int, int]) -> Array:
    """Return a piece of a value of which these samples are there."""
    if item.first is None or item.end is None:
        return made
    first, end = samples
    if (item.first, item.end) == samples:
        return made
    each = len(made) // (end - first)
    return made[(item.first - first) * each:(item.end - first) * each]


def gathered(items: tuple[Item, ...], given: Items) -> Any:
    """Join pieces of a value along axis 0."""
    parts = [given[item] for item in items]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def bytes_of(result: Any) -> int:
    """Return the bytes of an array or a partial sum."""
    return int(result.nbytes) if isinstance(result, np.ndarray | Partial) else 0
