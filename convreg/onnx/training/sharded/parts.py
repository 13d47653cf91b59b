"""Models of parts of a divided step: some nodes for a shard of so many samples, or on whole operands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from ....memory import Array
from ...graph import used_names
from ...standard import OURS
from ..record import set_metadata
from .plan import ShardNode
from .specialised import Known
from .splits import Change, changed, filled_for

WHOLE = "/whole"
"""What is appended to the name of a value that a shard reads in full, beside its own rows perhaps."""

ROWS = "/rows"
"""What is appended to the name of a constant of which a shard reads its own rows, beside all of it perhaps."""


class Part(NamedTuple):
    """A model, and the value that each input is, with whether a shard gives its own rows of it alone."""

    model: ModelProto
    reads: dict[str, tuple[str, bool]]


class _Builder:
    """Collects nodes, the constants that they read, and the inputs that are left."""

    def __init__(self, known: Known, samples: int | None) -> None:
        self.known, self.samples = known, samples
        self.nodes: list[NodeProto] = []
        self.constants: dict[str, TensorProto] = {}
        self.reads: dict[str, tuple[str, bool]] = {}
        self.made: set[str] = set()
        self.declared: dict[str, ValueInfoProto] = {}

    def declare(self, name: str, value: str, rows: bool) -> None:
        """State type and extents of a value under a name of this part."""
        known = self.known.declared.get(value)
        if known is None:
            return
        own = ValueInfoProto()
        own.CopyFrom(known)
        own.name = name
        if rows and self.samples is not None:
            own.type.tensor_type.shape.dim[0].dim_value = self.samples * self.known.per_sample(value)
        self.declared[name] = own

    def operand(self, name: str, rows: bool) -> str:
        """Return the name under which this part has a value."""
        if not name or name in self.made:
            return name
        if name in self.known.constants and not (rows and self.samples is not None):
            self.constants[name] = self.known.constants[name]
            return name
        if name in self.known.computed and not rows:
            node = NodeProto()
            node.CopyFrom(self.known.computed[name])
            for own in node.input:
                self.operand(own, False)
            for own in filter(None, node.output):
                self.declare(own, own, False)
            self.append(node, list(node.output))
            return name
        own = name if rows or self.samples is None else f"{name}{WHOLE}"
        if name in self.known.constants:
            own = f"{name}{ROWS}"
        if own in self.made or own in self.reads:
            return own
        self.declare(own, name, rows)
        if name in self.known.filled:
            node = self.known.filled[name]
            change = filled_for(self.known, node, self.samples if rows else None)
            for place, source in enumerate(node.input):
                if place not in change.constants:
                    self.operand(source, False)
            self.append(changed(node, change, self.keep(own, change)), [own])
            return own
        self.reads[own] = name, rows
        return own

    def keep(self, prefix: str, change: Change) -> Callable[[int], str]:
        """Add the constants of a change and return how they are named by their places."""
        for place, array in change.constants.items():
            self.constant(f"{prefix}/input_{place}", array)
        return lambda place: f"{prefix}/input_{place}"

    def constant(self, name: str, array: Array) -> str:
        """Add a constant."""
        self.constants[name] = numpy_helper.from_array(array, name)
        return name

    def append(self, node: NodeProto, outputs: Sequence[str]) -> None:
        """Add a node that makes these values; it reads names of this part."""
        del node.output[:]
        node.output.extend(outputs)
        self.nodes.append(node)
        self.made.update(name for name in outputs if name)

    def shard_node(self, node: NodeProto, reads: Sequence[bool], change: Change) -> None:
        """Add a node for a shard."""
        copy = changed(node, change, self.keep(node.output[-1], change))
        for place, (name, rows) in enumerate(zip(node.input, reads, strict=True)):
            if place not in change.constants:
                copy.input[place] = self.operand(name, rows)
        if self._is_single_row(node):
            self._append_doubled(copy, node, reads)
            return
        for name in filter(None, node.output):
            self.declare(name, name, name in self.known.rows)
        self.append(copy, list(node.output))

    def _is_single_row(self, node: NodeProto) -> bool:
        """Whether a shard's matrix product has one row where that of the batch has several.

        Libraries compute products of one row by other loops, whose sums have other bits.
        """
        if node.op_type not in ("Gemm", "MatMul") or self.samples is None:
            return False
        shape, right = self.known.shape(node.input[0]), self.known.shape(node.input[1])
        if shape is None or right is None or len(right) > 2:
            return False
        rows = int(np.prod(shape[:-1]))
        return rows > 1 and rows // self.known.batch * self.samples == 1

    def _append_doubled(self, copy: NodeProto, node: NodeProto, reads: Sequence[bool]) -> None:
        """Add a product with its row twice, and take the first row of the result."""
        made = node.output[0]
        for place, rows in enumerate(reads):
            if rows:
                twice = f"{made}/twice_{place}"
                row = copy.input[place]
                self.append(helper.make_node("Concat", [row, row], [twice], axis=0), [twice])
                copy.input[place] = twice
        self.append(copy, [f"{made}/twice"])
        bounds = [self.constant(f"{made}/{word}", np.array([entry], np.int64))
                  for word, entry in (("first", 0), ("end", 1), ("axis", 0))]
        self.declare(made, made, True)
        self.append(helper.make_node("Slice", [f"{made}/twice", *bounds], [made]), [made])

    def model(self, outputs: Iterable[str], own_convolutions: bool) -> ModelProto:
        """Return the model."""
        like = self.known.model
        names = list(outputs)
        graph = helper.make_graph(
            self.nodes, "part", [self.declared[name] for name in self.reads],
            [self.declared.get(name, ValueInfoProto(name=name)) for name in names], list(self.constants.values()),
            value_info=[value for name, value in self.declared.items() if name not in self.reads and name not in names])
        made = helper.make_model(graph, ir_version=like.ir_version, opset_imports=like.opset_import)
        if own_convolutions:
            set_metadata(made, OURS, "1")
        return made


def shard_part(
    known: Known, nodes: Sequence[ShardNode], outputs: Iterable[str], samples: int, own_convolutions: bool
) -> Part:
    """Return nodes as a model for a shard of so many samples."""
    builder = _Builder(known, samples)
    for node, split in nodes:
        builder.shard_node(node, split.reads, Change() if split.change is None else split.change(samples))
    return Part(builder.model(outputs, own_convolutions), builder.reads)


def whole_part(known: Known, nodes: Sequence[NodeProto], outputs: Sequence[str], own_convolutions: bool) -> Part:
    """Return nodes as a model of whole operands; outputs that no node makes are filled values."""
    builder = _Builder(known, None)
    for node in nodes:
        for name in used_names(node):
            if name in known.declared or name in known.constants:
                builder.operand(name, False)
        copy = NodeProto()
        copy.CopyFrom(node)
        for name in filter(None, node.output):
            builder.declare(name, name, False)
        builder.append(copy, list(node.output))
    for name in outputs:
        builder.operand(name, False)
    return Part(builder.model(outputs, own_convolutions), builder.reads)
