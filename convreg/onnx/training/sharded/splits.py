"""How a node is divided among shards, and what becomes of it in one: what no single kind of operator decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from onnx import NodeProto, helper

from ....memory import Array
from ...graph import graphs_of
from ..folding import RANDOM
from ..inference import SMALL
from .specialised import Known


class Change(NamedTuple):
    """What a node is for a shard: other attributes, and constants in place of inputs, by their places."""

    attributes: Mapping[str, Any] = {}
    constants: Mapping[int, Array] = {}


class Split(NamedTuple):
    """How a node is divided.

    `reads` says of every input whether a shard reads its own rows of it, or all of it. `change(samples)` returns what
    differs in a shard of so many samples. `makes` lists the outputs that have rows; the other ones must be unread.
    """

    reads: tuple[bool, ...]
    makes: tuple[str, ...]
    change: Callable[[int], Change] | None = None


Rule = Callable[[Known, NodeProto], Split | None]


def split_of(known: Known, node: NodeProto, rules: Mapping[tuple[str, str], Rule], ours: Rule) -> Split | None:
    """Return how a node is divided, None where it needs whole operands.

    Parameters
    ----------
    known : Known
    node : onnx.NodeProto
    rules : mapping
        Rules by domain and operator.
    ours : callable
        The rule of nodes in other domains.
    """
    if any(True for _ in graphs_of(node)) or not node.output:
        return None
    rule = rules.get((node.domain, node.op_type), None if node.domain == "" else ours)
    split = rule(known, node) if rule is not None else None
    if split is None:
        return None
    rows = [name for read, name in zip(split.reads, node.input, strict=True) if read]
    if not any(name in known.rows for name in rows) or not all(map(known.per_sample, (*rows, *split.makes))):
        return None
    others = [name for name in node.output if name and name not in split.makes]
    return None if any(name not in known.unread for name in others) else split


def filled(known: Known, node: NodeProto) -> bool:
    """Whether a node makes the same along axis 0 everywhere, from constants alone."""
    if node.domain != "" or node.op_type not in ("ConstantOfShape", "Expand"):
        return False
    shape = known.shape(node.output[0])
    if not shape or any(name not in known.constants for name in node.input):
        return False
    if node.op_type == "ConstantOfShape":
        return True
    source = known.shape(node.input[0])
    return source is not None and (len(source) < len(shape) or source[0] == 1)


def computed(known: Known, node: NodeProto) -> bool:
    """Whether a node makes small values from constants alone."""
    if node.op_type in RANDOM or any(True for _ in graphs_of(node)) or not node.input:
        return False
    sources = (name in known.constants or name in known.computed for name in node.input if name)
    sizes = [known.bytes_of(name) for name in node.output if name]
    return all(sources) and all(size <= SMALL and name not in known.outputs
                                for size, name in zip(sizes, filter(None, node.output), strict=True))


def filled_for(known: Known, node: NodeProto, samples: int | None) -> Change:
    """Return what differs in a node that fills rows of so many samples, None for all of them."""
    shape = known.shape(node.output[0])
    assert shape is not None
    first = shape[0] if samples is None else known.per_sample(node.output[0]) * samples
    place = 0 if node.op_type == "ConstantOfShape" else 1
    return Change({}, {place: np.array([first, *shape[1:]], np.int64)})


def changed(node: NodeProto, change: Change, name: Callable[[int], str]) -> NodeProto:
    """Return a copy of a node for a shard; `name(place)` is the name of the constant at a place."""
    copy = NodeProto()
    copy.CopyFrom(node)
    for place in change.constants:
        copy.input[place] = name(place)
    kept = [proto for proto in copy.attribute if proto.name not in change.attributes]
    protos = [type(proto).FromString(proto.SerializeToString()) for proto in kept]
    del copy.attribute[:]
    copy.attribute.extend(protos)
    copy.attribute.extend(helper.make_attribute(key, value) for key, value in change.attributes.items())
    return copy
