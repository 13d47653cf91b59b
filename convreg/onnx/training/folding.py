"""Constants computed before the graph runs: shapes as far as they are known, and what follows from them.

Floating-point initializers are parameters, so nothing that depends on them is folded.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from ...errors import GraphError
from ..execution.evaluator import Evaluator
from ..graph import Scope, attribute_value, attributes_of, dtype_of, graphs_of
from ..model.tensor_data import array_of

LARGEST = 2**16
"""Elements of the largest constant that is made."""

RANDOM = {"Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
          "RandomUniformLike"}

Array = np.ndarray[Any, np.dtype[Any]]
Partial = list[Any]
"""A vector of integers of which some are not known: None."""


class Folding:
    """The constants of a graph, found in one pass over its nodes."""

    def __init__(self, model: ModelProto, scope: Scope) -> None:
        self.model, self.scope = model, scope
        given = {value.name for value in model.graph.input}
        self.known: dict[str, Array] = {}
        for tensor in model.graph.initializer:
            kind = dtype_of(tensor.data_type)
            if tensor.name not in given and kind is not None and kind.kind in "iub":
                self.known[tensor.name] = array_of(tensor)
        self.partial: dict[str, Partial] = {}

    def fold(self) -> bool:
        """Replace nodes whose results are known by initializers; return whether there were any."""
        graph = self.model.graph
        kept, made = [], dict[str, Array]()
        outputs = {value.name for value in graph.output}
        for node in graph.node:
            found = self._results(node)
            if found is None:
                self._follow(node)
                kept.append(node)
                continue
            for name, array in zip(node.output, found, strict=False):
                if name:
                    self.known[name] = made[name] = array
            if outputs.intersection(node.output):
                kept.append(node)
                for name in node.output:
                    made.pop(name, None)
        if len(kept) == len(graph.node):
            return False
        copies = []
        for node in kept:
            copy = NodeProto()
            copy.CopyFrom(node)
            copies.append(copy)
        del graph.node[:]
        graph.node.extend(copies)
        graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in made.items())
        return True

    def _results(self, node: NodeProto) -> list[Array] | None:
        """What a node makes, None where that is not known before the graph runs or is large."""
        if node.domain != "" or node.op_type in RANDOM or any(True for _ in graphs_of(node)):
            return None
        if node.op_type == "Constant":
            return _constant(node)
        if node.op_type in ("Shape", "Size"):
            return self._shape(node)
        names = [name for name in node.input if name]
        if all(name in self.known for name in names) and (names or node.op_type == "ConstantOfShape"):
            return self._computed(node)
        found = self._entries(node)
        if found is not None and None not in found[0]:
            return [np.asarray(found[0], np.int64).reshape(() if found[1] else -1)]
        return None

    def _shape(self, node: NodeProto) -> list[Array] | None:
        declared = self.scope.get(node.input[0])
        if declared is None or declared.shape is None:
            return None
        if node.op_type == "Size":
            if not all(isinstance(extent, int) for extent in declared.shape):
                return None
            return [np.asarray(np.prod([extent for extent in declared.shape if isinstance(extent, int)] or [1]),
                               np.int64)]
        part = _part(node, declared.shape)
        return [np.asarray(part, np.int64)] if all(isinstance(extent, int) for extent in part) else None

    def _computed(self, node: NodeProto) -> list[Array] | None:
        declared = [self.scope.get(name) for name in node.output if name]
        for value in declared:
            if value is None or value.shape is None or not all(isinstance(extent, int) for extent in value.shape):
                continue
            if np.prod([extent for extent in value.shape if isinstance(extent, int)] or [1]) > LARGEST:
                return None
        if node.op_type in ("ConstantOfShape", "Expand", "Tile", "Range") and not self._is_small(node):
            return None
        alone = NodeProto()
        alone.CopyFrom(node)
        feeds = {name: self.known[name] for name in node.input if name}
        whole = helper.make_model(
            helper.make_graph([alone], "one", [
                helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
                for name, array in feeds.items()],
                [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in node.output if name]),
            opset_imports=self.model.opset_import, ir_version=self.model.ir_version)
        try:
            values = iter(Evaluator(whole).run(None, feeds))
        except GraphError:
            return None  # the runtime that gets the node will say what is wrong with it
        results = [np.asarray(next(values)) if name else np.empty(0) for name in node.output]
        return results if all(array.size <= LARGEST for array in results) else None

    def _is_small(self, node: NodeProto) -> bool:
        """Whether the result of a node that may make much of little has few elements."""
        if node.op_type == "Range":
            start, limit, delta = (float(self.known[name]) for name in node.input)
            return delta != 0 and abs((limit - start) / delta) <= LARGEST
        shape = self.known[node.input[-1]]
        factor = self.known[node.input[0]].size if node.op_type == "Tile" else 1
        return bool(np.prod(shape.astype(np.float64)) * factor <= LARGEST)

    def _follow(self, node: NodeProto) -> None:
        """Note the entries of a vector that are known."""
        found = self._entries(node)
        if found is not None and len(node.output) == 1:
            self.partial[node.output[0]] = found[0] if not found[1] else [("scalar", found[0][0])]

    def _vector(self, name: str) -> tuple[Partial, bool] | None:
        """Entries of a value of rank 0 or 1, and whether its rank is 0."""
        if name in self.known:
            array = self.known[name]
            return ([int(entry) for entry in array.ravel()], array.ndim == 0) if (
                array.ndim <= 1 and array.dtype.kind in "iu" and array.size <= 64) else None
        found = self.partial.get(name)
        if found is None:
            return None
        if len(found) == 1 and isinstance(found[0], tuple):
            return [found[0][1]], True
        return found, False

    def _entries(self, node: NodeProto) -> tuple[Partial, bool] | None:
        """Follow a vector of extents through the operators that take shapes apart and put them together."""
        if node.domain != "" or not node.output:
            return None
        if node.op_type == "Shape":
            declared = self.scope.get(node.input[0])
            if declared is None or declared.shape is None:
                return None
            return [extent if isinstance(extent, int) else None for extent in _part(node, declared.shape)], False
        if node.op_type not in FOLLOWED:
            return None
        operands = [self._vector(name) for name in node.input if name]
        if not operands or any(operand is None for operand in operands):
            return None
        return FOLLOWED[node.op_type](node, [operand for operand in operands if operand is not None])


Operands = list[tuple[Partial, bool]]


def _concat(node: NodeProto, operands: Operands) -> tuple[Partial, bool] | None:
    return [entry for entries, _ in operands for entry in entries], False


def _gather(node: NodeProto, operands: Operands) -> tuple[Partial, bool] | None:
    (entries, _), (places, is_scalar) = operands
    if any(place is None or not -len(entries) <= place < len(entries) for place in places):
        return None
    return [entries[place] for place in places], is_scalar


def _slice(node: NodeProto, operands: Operands) -> tuple[Partial, bool] | None:
    entries, *bounds = (entries for entries, _ in operands)
    numbers = [bound[0] if len(bound) == 1 else None for bound in bounds]
    if None in numbers or (len(numbers) > 2 and numbers[2] not in (0, -1)):
        return None
    start, end, *_ = numbers
    step = numbers[3] if len(numbers) > 3 else 1
    return (entries[start:end:step], False) if step is not None and step > 0 else None


def _same(node: NodeProto, operands: Operands) -> tuple[Partial, bool] | None:
    if node.op_type == "Cast" and attribute_value(node.attribute[0]) not in (TensorProto.INT64, TensorProto.INT32):
        return None
    return operands[0]


def _unsqueeze(node: NodeProto, operands: Operands) -> tuple[Partial, bool] | None:
    entries, is_scalar = operands[0]
    return (entries, False) if is_scalar else None


def _squeeze(node: NodeProto, operands: Operands) -> tuple[Partial, bool] | None:
    entries, is_scalar = operands[0]
    return (entries, True) if len(entries) == 1 and not is_scalar else None


FOLLOWED = {"Concat": _concat, "Gather": _gather, "Slice": _slice, "Cast": _same, "Identity": _same,
            "Unsqueeze": _unsqueeze, "Squeeze": _squeeze}


def _part(node: NodeProto, shape: tuple[Any, ...]) -> tuple[Any, ...]:
    """What Shape takes of a shape."""
    attributes = attributes_of(node)
    start, end = attributes.get("start", 0), attributes.get("end", len(shape))
    start, end = (bound + len(shape) if bound < 0 else bound for bound in (start, end))
    return shape[max(start, 0):max(end, 0)]


def _constant(node: NodeProto) -> list[Array] | None:
    """The value of a Constant node; strings and sparse values stay nodes."""
    [proto] = node.attribute
    match proto.name:
        case "value":
            return [array_of(proto.t)]
        case "value_float" | "value_floats":
            return [np.asarray(attribute_value(proto), np.float32)]
        case "value_int" | "value_ints":
            return [np.asarray(attribute_value(proto), np.int64)]
    return None
