"""Standard nodes, one after the other, under names that no other value of the model has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, helper, numpy_helper

from ...formats import FORMATS
from ..graph import graphs_of, nodes_of
from ..runtime_ort.guards import LAST_FINITE

Extents = tuple[int, ...]


class Names:
    """Names that are taken, and new ones beside them; `first` is the number of a name's first variant."""

    def __init__(self, taken: Iterable[str] = (), *, first: int = 2) -> None:
        self._taken = set(taken)
        self._first = first
        self._counts: dict[str, int] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._taken

    @classmethod
    def of(cls, model: ModelProto) -> Names:
        """Return the names of a model."""
        names = cls()
        graphs: list[GraphProto] = [model.graph]
        for node in nodes_of(model):
            names._taken.update([node.name, *node.input, *node.output])
            graphs.extend(graphs_of(node))
        for graph in graphs:
            names._taken.update(value.name for value in (*graph.input, *graph.initializer, *graph.output))
        return names

    def fresh(self, wish: str) -> str:
        """Return `wish`, numbered if it is taken, and take it."""
        name, count = wish, self._counts.get(wish, self._first)
        while name in self._taken:
            name, count = f"{wish}_{count}", count + 1
        self._counts[wish] = count  # so that many wishes for one name take no longer than others
        self._taken.add(name)
        return name


def prefix_of(node: NodeProto) -> str:
    """What the names of the nodes that stand in for a node begin with, followed by "/" and their operator."""
    return node.name or next((name for name in node.output if name), node.op_type)


def replaced(before: Iterable[NodeProto], after: Iterable[NodeProto]) -> dict[str, NodeProto]:
    """Return the nodes that others stand in for after a rewriting, by the names of those others."""
    nodes: dict[str, NodeProto] = {}
    kept = set()
    for node in before:
        nodes.setdefault(prefix_of(node), node)
        kept.add(node.name)
    return {node.name: nodes[prefix] for node in after
            if node.name not in kept and (prefix := node.name.rpartition("/")[0]) in nodes}


class Builder:
    """Nodes that stand in for one node; a node that would compute what another does is that other."""

    def __init__(self, names: Names, prefix: str) -> None:
        self._names, self._prefix = names, prefix
        self.reset()

    def reset(self) -> None:
        """Start over."""
        self.nodes: list[NodeProto] = []
        self._known: dict[tuple[Any, ...], str] = {}
        self._finished: set[str] = set()

    def add(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """Append a standard node and return the name of its output."""
        key = (op_type, inputs, tuple((name, str(value)) for name, value in attributes.items()))
        if key not in self._known:
            (self._known[key],) = self.add_node(op_type, inputs, 1, **attributes)
        return self._known[key]

    def add_node(
        self, op_type: str, inputs: Sequence[str], outputs: int | Sequence[bool], *, domain: str = "", **attributes: Any
    ) -> list[str]:
        """Append a node of any domain and return the names of its outputs, blank where `outputs` says so."""
        present = [True] * outputs if isinstance(outputs, int) else list(outputs)
        while len(present) > 1 and not present[-1]:
            present.pop()
        name = self._names.fresh(f"{self._prefix}/{op_type}")
        made = [self._names.fresh(f"{name}:{index}") if here else "" for index, here in enumerate(present)]
        self.nodes.append(helper.make_node(op_type, list(inputs), made, name=name, domain=domain, **attributes))
        return made

    def constant(self, values: Any, dtype: Any = np.int64) -> str:
        """Return a constant."""
        array = np.asarray(values, dtype)
        key = ("Constant", array.dtype.str, array.shape, array.tobytes())
        if key not in self._known:
            (self._known[key],) = self.add_node("Constant", [], 1, value=numpy_helper.from_array(array))
        return self._known[key]

    def finish(self, value: str, name: str) -> None:
        """Give a value the name under which the graph knows it."""
        maker = next((node for node in self.nodes if value in node.output), None)
        if maker is None or value in self._finished:
            self.nodes.append(helper.make_node("Identity", [value], [name], name=self._names.fresh(
                f"{self._prefix}/Identity")))
            return
        for node in self.nodes:
            for names in (node.input, node.output):
                for index, used in enumerate(names):
                    if used == value:
                        names[index] = name
        self._known = {key: name if known == value else known for key, known in self._known.items()}
        self._finished.add(name)

    def cast(self, value: str, source: str, target: str) -> str:
        """Convert between number formats, rounding to nearest even; overflow is not clamped."""
        if source == target:
            return value
        wide, element = {}, helper.np_dtype_to_tensor_dtype(FORMATS[target].dtype)
        if element in LAST_FINITE:
            wide["saturate"] = 0
            if FORMATS[source].bits > 8:
                value = self.beyond(value, source, LAST_FINITE[element], np.inf)
        return self.add("Cast", value, to=element, **wide)

    def beyond(self, value: str, format: str, limit: float, result: float) -> str:
        """Replace what exceeds a limit by a number of its sign; NaN stays, which Clip does not promise."""
        for compare, sign in (("Greater", 1.0), ("Less", -1.0)):
            bound, put = (self.constant(sign * number, FORMATS[format].dtype) for number in (limit, result))
            value = self.add("Where", self.add(compare, value, bound), put, value)
        return value

    def transpose(self, value: str, order: Sequence[int]) -> str:
        """Permute axes."""
        return value if list(order) == sorted(order) else self.add("Transpose", value, perm=list(order))

    def reshape(self, value: str, extents: Sequence[int]) -> str:
        """Give another shape; 0 keeps an extent, -1 takes what is left."""
        return self.add("Reshape", value, self.constant(extents))

    def resize(self, value: str, begin: Sequence[int], end: Sequence[int], extents: Sequence[int]) -> str:
        """Add `begin` and `end` zeros around the spatial axes of channel-first data; negative ones crop.

        Cropping leaves something, so no negative entry reaches Pad, which not every runtime takes there.
        """
        if any(entry < 0 for entry in (*begin, *end)):
            starts = [max(-entry, 0) for entry in begin]
            ends = [extent - max(-entry, 0) for extent, entry in zip(extents, end, strict=True)]
            value = self.add("Slice", value, self.constant(starts), self.constant(ends),
                             self.constant(range(2, len(begin) + 2)))
        pads = [0, 0, *(max(entry, 0) for entry in begin), 0, 0, *(max(entry, 0) for entry in end)]
        return self.add("Pad", value, self.constant(pads)) if any(pads) else value

    def extents(self, extents: Sequence[int], batch_of: str | None = None) -> str:
        """Return a shape; with `batch_of` the first extent is that value's, whatever it will be."""
        if batch_of is None:
            return self.constant(extents)
        batch = self.add("Slice", self.add("Shape", batch_of), self.constant([0]), self.constant([1]))
        return self.add("Concat", batch, self.constant(extents[1:]), axis=0)

    def zeros(self, extents: Sequence[int], format: str, batch_of: str | None = None) -> str:
        """Return zeros; `batch_of` as in `extents`."""
        wide = format if format == "float64" else "float32"
        zero = numpy_helper.from_array(np.zeros(1, FORMATS[wide].dtype))
        value = self.add("ConstantOfShape", self.extents(extents, batch_of), value=zero)
        return self.cast(value, wide, format)
