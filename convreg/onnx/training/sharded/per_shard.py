"""Steps in which every shard is a batch of its own up to the gradients: statistics of a shard, averages over shards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from onnx import ModelProto, NodeProto

from ....errors import GraphError
from ...graph import used_names
from ..record import StepRecord
from .assembly import CLIENT, Assembly, Division, Draft, Samples, serialised
from .draws import Draws
from .parts import whole_part
from .rewrites import rewritten, with_axes
from .specialised import Extents, known_of, specialised
from .sums import Mean, Summed
from .units import Item, Joined, Unit


class PerShard(Assembly):
    """Divides a step at the gradients of its parameters.

    A shard makes its outputs, its loss, its gradients and its running statistics as if it was the batch. The outputs
    are joined. Everything else is averaged, weighted by the samples, before the one update.
    """

    def __init__(
        self, model: ModelProto, record: StepRecord, shapes: Mapping[str, Extents], shards: Sequence[Samples],
        others: Sequence[str], draws: Draws, engine: str, own_convolutions: bool,
    ) -> None:
        batch = shards[-1][1]
        whole = specialised(model, shapes)
        super().__init__(known_of(whole, batch), shards, engine)
        self.nodes = rewritten(whole, self.known, draws)
        self.step, self.record, self.shapes = with_axes(model, self.known), record, shapes
        self.others = list(dict.fromkeys(others))
        self.draws, self.own = draws, own_convolutions
        self.data = [name for name in (*record.data, record.target) if name is not None and self.known.per_sample(name)
                     == 1]
        self.gradients = self._gradients(model)
        self.reads: dict[int, dict[str, bool]] = {}
        """By the samples of a shard, the values that it reads, and whether it reads its own rows of them alone."""

    def divided(self) -> Division:
        """Return the units."""
        statistics = [self.record.state[name] for name in self.record.statistics]
        cut = list(dict.fromkeys((*self.gradients, *statistics, *self.others)))
        rows: dict[str, bool] = {}
        for size in sorted({end - first for first, end in self.shards}):
            rows = self._shard_model(size, cut)
        averaged: list[Summed] = [self._mean(name) for name in cut if not rows[name]]
        self.totals = {total.result: total for total in averaged}
        joins = self.join_groups(1, averaged)
        values = {}
        for number, samples in enumerate(self.shards):
            self._shard_unit(f"shard 0.{number}", samples)
        for name in cut:
            items = tuple(Item(name, *samples) for samples in self.shards)
            for number, item in enumerate(items):
                self.note(f"shard 0.{number}", item, joins.get(name, CLIENT))
            if name in joins:
                unit = self.drafts[joins[name]]
                unit.unit = unit.unit.with_join(Joined(name, items))
                self.note(joins[name], Item(name), CLIENT)
                items = (Item(name),)
            values[name] = items
        made = [name for name in self.record.state.values() if name not in values]
        tail = whole_part(self.known, self._after(made, set(cut)), made, self.own)
        for value, _ in tail.reads.values():
            if value in self.data or (value not in values and value not in self.shapes):
                raise _refused(f"the update reads {value!r}, which is neither a gradient nor carried")
        return self.finished(values, None, (), tail, made)

    def _gradients(self, model: ModelProto) -> list[str]:
        made = {name for node in model.graph.node for name in node.output}
        names = [f"{name}_grad" for name in self.record.parameters]
        for name in names:
            if name not in made:
                raise _refused(f"the step model has no value {name!r}, the gradient that shards average")
        return names

    def _shard_model(self, samples: int, cut: Sequence[str]) -> dict[str, bool]:
        """Make the model of a shard; return which values of the cut have rows."""
        shapes = {name: (samples, *shape[1:]) if name in self.data else shape for name, shape in self.shapes.items()}
        model = specialised(self.step, shapes, cut)
        known = known_of(model, samples)
        part = whole_part(known, rewritten(model, known, self.draws), cut, self.own)
        self.models[f"shard 0 of {samples}"] = serialised(part.model)
        for value, _ in part.reads.values():
            own = value in self.data or known.shape(value) != self.known.shape(value)
            self.reads.setdefault(samples, {})[value] = own
        return {name: name in self.others and known.per_sample(name) > 0
                and known.per_sample(name) == self.known.per_sample(name) for name in cut}

    def _shard_unit(self, name: str, samples: Samples) -> None:
        size = samples[1] - samples[0]
        reads = {value: (Item(value, *samples) if own else Item(value),) for value, own in self.reads[size].items()}
        self.drafts[name] = Draft(Unit(name, 0, "shard", samples, f"shard 0 of {size}", reads))
        for [item] in reads.values():
            self.note(None, item, name)

    def _mean(self, name: str) -> Mean:
        dtype = self.known.dtype(name)
        if dtype is None or not np.issubdtype(dtype, np.floating):
            raise _refused(f"the output {name!r} is {dtype} and has no rows, so shards cannot average it")
        return Mean(name, f"the average of {name!r}", tuple(end - first for first, end in self.shards),
                    self.known.bytes_of(name))

    def _after(self, wanted: Sequence[str], cut: set[str]) -> list[NodeProto]:
        """The nodes that make values from those of the cut."""
        makers = {name: node for node in self.nodes for name in node.output if name}
        needed, waiting = set[int](), list(wanted)
        while waiting:
            name = waiting.pop()
            node = makers.get(name)
            if node is None or name in cut or id(node) in needed:
                continue
            needed.add(id(node))
            waiting += used_names(node)
        return [node for node in self.nodes if id(node) in needed]


def _refused(reason: str) -> GraphError:
    return GraphError(f"statistics='per_shard' is refused: {reason}; allowed: 'synchronous' or 'whole'")
