"""A planned step as units: parts for shards, sums of their samples, and parts on whole operands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from onnx import NodeProto

from .assembly import CLIENT, JOINED, Assembly, Division, Draft, Samples, serialised
from .parts import shard_part, whole_part
from .plan import Plan
from .sums import Total
from .units import Item, Joined, Piece, Unit


class Divider(Assembly):
    """Makes the division of a plan."""

    def __init__(
        self, plan: Plan, shards: Sequence[Samples], wanted: Sequence[str], engine: str, own_convolutions: bool
    ) -> None:
        super().__init__(plan.known, shards, engine)
        self.plan, self.wanted, self.own = plan, list(dict.fromkeys(wanted)), own_convolutions
        self.makers: dict[str, str | int] = {}
        """Who makes a value: a unit, or the stage whose shards do. What is missing comes from the client."""
        self.totals = {member.total.result: member.total for members in plan.sums.values() for member in members}

    def divided(self) -> Division:
        """Return the units of the plan."""
        plan = self.plan
        for stage, members in plan.shards.items():
            self.makers.update({name: stage for member in members for name in member.split.makes})
            for number, samples in enumerate(self.shards):
                name = f"shard {stage}.{number}"
                self.drafts[name] = Draft(Unit(name, stage, "shard", samples))
        for number, (stage, nodes) in enumerate(plan.wholes):
            own = f"whole {stage}.{number}"
            self.makers.update({name: own for node in nodes for name in node.output if name})
            self.drafts[own] = Draft(Unit(own, stage, "whole", (0, self.known.batch)))
        joins = {stage: self.join_groups(stage, [member.total for member in members])
                 for stage, members in plan.sums.items()}
        for chosen in joins.values():
            self.makers.update(chosen)
        tail_makes = [name for node in plan.tail for name in node.output if name in self.wanted]
        tail_makes += [name for name in self.wanted if name in self.known.filled]
        tail = whole_part(self.known, plan.tail, tail_makes, self.own) if tail_makes else None
        head_made = {name for node in plan.head for name in node.output if name}
        for stage in plan.shards:
            self._read_by_shards(stage)
        for stage in plan.sums:
            self._read_by_sums(stage, joins[stage])
        for number, (stage, nodes) in enumerate(plan.wholes):
            self._read_by_whole(f"whole {stage}.{number}", nodes)
        from_tail = {name for node in plan.tail for name in node.output if name}
        needed = [value for value, _ in tail.reads.values()] if tail is not None else []
        needed += [name for name in self.wanted if name not in from_tail and name not in tail_makes]
        values = {name: self._whole(name, CLIENT) for name in dict.fromkeys(needed)
                  if name in self.makers}
        head_makes = [name for name in dict.fromkeys((*(item.value for item in self.given), *needed))
                      if name in head_made]
        head = whole_part(self.known, plan.head, head_makes, self.own) if head_makes else None
        for stage in plan.shards:
            self._shard_models(stage)
        for number, (stage, nodes) in enumerate(plan.wholes):
            name = f"whole {stage}.{number}"
            outputs = list(dict.fromkeys(item.value for item in self.drafts[name].results))
            self.models[name] = serialised(whole_part(self.known, nodes, outputs, self.own).model)
        return self.finished(values, head, head_makes, tail, tail_makes)

    def _rows(self, name: str, samples: Samples, reader: str) -> tuple[Item, ...]:
        """The pieces that make up the rows of a value for some samples, noted as needed by a unit."""
        maker = self.makers.get(name)
        if not isinstance(maker, int):
            item = Item(name, *samples)
            self.note(maker, item, reader)
            return (item,)
        items = []
        for number, (first, end) in enumerate(self.shards):
            if first < samples[1] and samples[0] < end:
                item = Item(name, max(first, samples[0]), min(end, samples[1]))
                self.note(f"shard {maker}.{number}", item, reader)
                items.append(item)
        return tuple(items)

    def _whole(self, name: str, reader: str) -> tuple[Item, ...]:
        """The pieces that make up a whole value."""
        maker = self.makers.get(name)
        if isinstance(maker, int):
            return self._rows(name, (0, self.known.batch), reader)
        item = Item(name)
        self.note(maker, item, reader)
        return (item,)

    def _read_by_shards(self, stage: int) -> None:
        """Note what the units of a stage's shards read."""
        reads = {size: shard_part(self.known, self.plan.shards[stage], (), size, self.own).reads
                 for size in {end - first for first, end in self.shards}}
        for number, samples in enumerate(self.shards):
            name = f"shard {stage}.{number}"
            draft = self.drafts[name]
            draft.unit = replace(draft.unit, reads={
                own: self._rows(value, samples, name) if rows else self._whole(value, name)
                for own, (value, rows) in reads[samples[1] - samples[0]].items()})

    def _shard_models(self, stage: int) -> None:
        """Make the models of a stage's shards, now that it is known what of their results is read."""
        members = self.plan.shards[stage]
        made = [name for member in members for name in member.split.makes]
        read = {item.value for number in range(len(self.shards))
                for item in self._items_of(self.drafts[f"shard {stage}.{number}"])}
        outputs = [name for name in made if name in read]
        for size in sorted({end - first for first, end in self.shards}):
            part = shard_part(self.known, members, outputs, size, self.own)
            self.models[f"shard {stage} of {size}"] = serialised(part.model)
        for number, (first, end) in enumerate(self.shards):
            draft = self.drafts[f"shard {stage}.{number}"]
            draft.unit = replace(draft.unit, model=f"shard {stage} of {end - first}")

    @staticmethod
    def _items_of(draft: Draft) -> list[Item]:
        """What is read of a unit's results, its own sums included."""
        return [*draft.results, *(item for piece in draft.pieces for items in piece.rows.values() for item in items)]

    def _read_by_sums(self, stage: int, joins: Mapping[str, str]) -> None:
        """Give every piece of a stage's sums to the shard in which it begins.

        The shard's own unit sums those pieces that need its samples alone. Those that end beyond it are divided among
        further units, since sums of few pieces would all be the first shard's.
        """
        parts: dict[str, list[Item]] = {}
        beyond: list[tuple[Total, range]] = []
        for member in self.plan.sums.get(stage, ()):
            total = member.total
            needed = [total.cut.samples(range(piece, piece + 1)) for piece in range(total.cut.pieces)]
            for number, (first, end) in enumerate(self.shards):
                mine = [piece for piece, samples in enumerate(needed) if first <= samples.start < end or (
                    samples.start >= end and number == len(self.shards) - 1)]
                own = f"shard {stage - 1}.{number}"
                inside = [piece for piece in mine if needed[piece].stop <= end and own in self.drafts]
                if inside:
                    parts.setdefault(total.result, []).append(
                        self._sum(own, total, range(inside[0], inside[-1] + 1), joins))
                if left := mine[len(inside):]:
                    beyond.append((total, range(left[0], left[-1] + 1)))
        for total, pieces, unit in self._spread(stage, beyond):
            parts.setdefault(total.result, []).append(self._sum(unit, total, pieces, joins))
        for result, items in parts.items():
            draft = self.drafts[joins[result]]
            draft.unit = draft.unit.with_join(Joined(result, tuple(items)))

    def _sum(self, unit: str, total: Total, pieces: range, joins: Mapping[str, str]) -> Item:
        """Let a unit sum some pieces; return the partial sum."""
        needed = total.cut.samples(pieces)
        rows = {value: self._rows(value, (needed.start, needed.stop), unit) for value in total.reads}
        self.drafts[unit].pieces.append(Piece(total.result, pieces.start, pieces.stop, rows))
        item = Item(total.result, pieces.start, pieces.stop)
        self.note(unit, item, joins[total.result])
        return item

    def _spread(self, stage: int, sums: Sequence[tuple[Total, range]]) -> Iterator[tuple[Total, range, str]]:
        """Choose a unit for each run of pieces, so that all read about as many bytes."""
        costs = []
        for total, pieces in sums:
            samples = len(total.cut.samples(pieces))
            costs.append(sum(self.known.bytes_of(value) for value in total.reads) * samples // self.known.batch)
        loads = [0] * max(1, min(len(self.shards), -(-sum(costs) // JOINED)))
        for cost, (total, pieces) in sorted(zip(costs, sums, strict=True), key=lambda entry: -entry[0]):
            place = loads.index(min(loads))
            loads[place] += cost
            name, needed = f"sum {stage}.{place}", total.cut.samples(pieces)
            if name not in self.drafts:
                self.drafts[name] = Draft(Unit(name, stage, "sum", (needed.start, needed.stop)))
            draft = self.drafts[name]
            first, end = draft.unit.samples
            draft.unit = replace(draft.unit, samples=(min(first, needed.start), max(end, needed.stop)))
            yield total, pieces, name

    def _read_by_whole(self, name: str, nodes: Sequence[NodeProto]) -> None:
        """Note what a unit of nodes on whole operands reads."""
        part = whole_part(self.known, nodes, (), self.own)
        draft = self.drafts[name]
        draft.unit = replace(draft.unit, model=name, reads={own: self._whole(value, name)
                                                            for own, (value, _) in part.reads.items()})
