"""The stages of a divided step: which nodes run on shards, which are sums over shards, which run on whole operands.

In stage s the whole nodes come first. They read what stages before s made on shards, and the sums of these. Then come
the shards of stage s. A node is in the earliest stage that its operands allow, so a step has as many stages as the
samples of its batch meet.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from onnx import NodeProto

from ...graph import used_names
from .separable import STANDARD_RULES
from .specialised import Known
from .splits import Rule, Split, computed, filled, split_of
from .sums import Total, channel_total, gradient_total
from .windows import mark_places, max_pool, ours, scatter_elements

Statistics = Literal["synchronous", "whole", "per_shard"]

RULES: dict[tuple[str, str], Rule] = {**STANDARD_RULES, ("", "MaxPool"): max_pool,
                                      ("", "ScatterElements"): scatter_elements}


class ShardNode(NamedTuple):
    """A node that runs on every shard."""

    node: NodeProto
    split: Split


class SumNode(NamedTuple):
    """A node whose result is a sum over samples, added in the tree's order."""

    node: NodeProto
    total: Total


class Plan:
    """The nodes of a step by where they run.

    Attributes
    ----------
    known : Known
    shards : dict
        Stage -> nodes that run on every shard.
    sums : dict
        Stage -> sums that are ready when the stage begins.
    wholes : list
        Pairs of a stage and nodes that run together on whole operands, on some worker.
    head, tail : list
        Nodes that run in the client's process before and after everything else: those that no shard comes before, and
        those that no shard comes after, such as the update of the parameters.
    """

    def __init__(self, known: Known, nodes: Sequence[NodeProto], data: Iterable[str], statistics: Statistics) -> None:
        self.known, self._statistics = known, statistics
        self.shards: dict[int, list[ShardNode]] = {}
        self.sums: dict[int, list[SumNode]] = {}
        self._level: dict[str, int] = {}
        for name in data:
            if known.per_sample(name) == 1:
                known.rows[name] = 1
                self._level[name] = 0
        self._whole: list[tuple[int, NodeProto]] = []
        for node in nodes:
            placed = self._place(node)
            if placed is not None:
                self._whole.append((placed, node))
        self._drop_unread(nodes)
        self._sort_whole(self._whole)

    def _place(self, node: NodeProto) -> int | None:
        """Put a node among shards or sums, or return the stage in which it runs whole."""
        known = self.known
        if filled(known, node):
            known.filled[node.output[0]] = node
            return None
        if computed(known, node):
            known.computed.update({name: node for name in node.output if name})
            return None
        total = self._as_sum(node)
        if total is not None:
            stage = self._after_whole(node)
            if any(self._level.get(name, 0) and name not in known.rows for name in node.input):
                stage += 1  # sums come before the whole nodes of their stage
            self.sums.setdefault(stage, []).append(SumNode(node, total))
            self._note(node, stage)
            return None
        split = split_of(known, node, RULES, ours)
        if split is None:
            stage = self._after_whole(node)
            self._note(node, stage)
            return stage
        for read, name in zip(split.reads, node.input, strict=True):
            if read and name in known.computed:  # it is divided, so it is made in one place
                made = known.computed[name]
                self._whole.append((0, made))
                for other in filter(None, made.output):
                    del known.computed[other]
        stage = self._after(node, split.reads)
        self.shards.setdefault(stage, []).append(ShardNode(node, split))
        for name in split.makes:
            known.rows[name] = known.per_sample(name)
        mark_places(known, node)
        self._note(node, stage)
        return None

    def _as_sum(self, node: NodeProto) -> Total | None:
        found = gradient_total(self.known, node)
        return channel_total(self.known, node) if found is None and self._statistics == "synchronous" else found

    def _after(self, node: NodeProto, reads: Sequence[bool]) -> int:
        """The earliest stage in which a node can read its inputs, rows where `reads` says so."""
        stage = 0
        for read, name in zip(reads, node.input, strict=True):
            beyond = int(name in self.known.rows and not read)
            stage = max(stage, self._level.get(name, 0) + beyond)
        return stage

    def _after_whole(self, node: NodeProto) -> int:
        """The earliest stage in which a node can read all of its inputs."""
        return max((self._level.get(name, 0) + int(name in self.known.rows) for name in used_names(node)), default=0)

    def _note(self, node: NodeProto, stage: int) -> None:
        self._level.update({name: stage for name in node.output if name})

    def _drop_unread(self, nodes: Sequence[NodeProto]) -> None:
        """Drop nodes that nobody reads, now that sums are known to read less than their nodes do."""
        read = {id(member.node): member.total.reads for members in self.sums.values() for member in members}
        live = set(self.known.outputs)
        kept: set[int] = set()
        for node in reversed(nodes):
            if live.intersection(node.output):
                kept.add(id(node))
                live.update(read.get(id(node), used_names(node)))
        shards = {stage: [member for member in members if id(member.node) in kept]
                  for stage, members in self.shards.items()}
        sums = {stage: [member for member in members if id(member.node) in kept]
                for stage, members in self.sums.items()}
        self.shards = {stage: members for stage, members in shards.items() if members}
        self.sums = {stage: members for stage, members in sums.items() if members}
        self._whole = [(stage, node) for stage, node in self._whole if id(node) in kept]

    def _sort_whole(self, whole: list[tuple[int, NodeProto]]) -> None:
        """Tell the whole nodes of head, middle and tail from each other, and those of the middle into parts."""
        known = self.known
        early = {name for members in self.shards.values() for member in members for name in member.node.input}
        inner: set[int] = set()
        for number in range(len(whole) - 1, -1, -1):
            _, node = whole[number]
            if any(name in known.rows for name in used_names(node)) or any(name in early for name in node.output):
                inner.add(number)
                early.update(used_names(node))
        joined = {name for members in self.sums.values() for member in members for name in member.node.output}
        late = set(known.rows) | joined
        self.head: list[NodeProto] = []
        self.tail: list[NodeProto] = []
        middle: list[tuple[int, NodeProto]] = []
        for number, (stage, node) in enumerate(whole):
            depends = any(name in late for name in used_names(node))
            if depends:
                late.update(name for name in node.output if name)
            if number not in inner:
                self.tail.append(node)
            elif depends:
                middle.append((stage, node))
            else:
                self.head.append(node)
        self.wholes = _independent(middle, known)


def _independent(nodes: list[tuple[int, NodeProto]], known: Known) -> list[tuple[int, list[NodeProto]]]:
    """Return the nodes of each stage in parts that read nothing of each other; those without shards are one part."""
    parts: list[tuple[int, list[NodeProto]]] = []
    for stage in sorted({stage for stage, _ in nodes}):
        members = [node for own, node in nodes if own == stage]
        group: dict[str, int] = {}
        found: list[list[NodeProto]] = []
        for node in members:
            touched = sorted({group[name] for name in used_names(node) if name in group})
            if touched:
                first = touched[0]
                for other in touched[1:]:
                    found[first] += found[other]
                    found[other] = []
                    group.update({name: first for name, number in group.items() if number == other})
            else:
                first = len(found)
                found.append([])
            found[first].append(node)
            group.update({name: first for name in node.output if name})
        order = {id(node): number for number, node in enumerate(members)}
        heavy: list[list[NodeProto]] = []
        light: list[list[NodeProto]] = []
        for part in filter(None, found):
            part.sort(key=lambda node: order[id(node)])
            (heavy if any(name in known.rows for node in part for name in used_names(node)) else light).append(part)
        parts += [(stage, part) for part in heavy]
        together = sorted((node for part in light for node in part), key=lambda node: order[id(node)])
        if together:
            parts.append((stage, together))
    return parts
