"""A step model with the extents of one batch written into it, and what is known of its values then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from ....memory import Array
from ...graph import Declared, flattened, used_names
from ...model.tensor_data import array_of
from ..folding import Folding
from ..inference import typed
from ..prepare import ROUNDS
from ..tidy import tidy

Extents = tuple[int, ...]


@dataclass
class Known:
    """What is known of a specialised graph before it runs.

    Attributes
    ----------
    model : onnx.ModelProto
    batch : int
        Samples of the batch.
    declared : dict
        Values by name, as inference states them.
    constants : dict
        Initializers that are no inputs.
    rows : dict
        The values that exist as shards: name -> rows per sample. Sample i has the rows from ``i * rows`` on.
    filled : dict
        Nodes by what they make: one number everywhere along axis 0, from constants alone. Every part that reads such a
        value makes it itself, of as many rows as it needs.
    computed : dict
        Nodes by what they make: small values that follow from constants. Every part that reads one makes it itself, so
        that onnxruntime can simplify there what it simplifies in the whole graph.
    local : dict
        Values that hold places in a shard's own elements, with the number of elements per sample.
    unread : set
        Names of outputs that nobody reads.
    readers : dict
        The nodes that read a value.
    outputs : set
        Names of the graph's outputs.
    """

    model: ModelProto
    batch: int
    declared: dict[str, ValueInfoProto]
    constants: dict[str, TensorProto]
    rows: dict[str, int] = field(default_factory=dict)
    filled: dict[str, NodeProto] = field(default_factory=dict)
    computed: dict[str, NodeProto] = field(default_factory=dict)
    local: dict[str, int] = field(default_factory=dict)
    unread: set[str] = field(default_factory=set)
    outputs: set[str] = field(default_factory=set)
    readers: dict[str, list[NodeProto]] = field(default_factory=dict)

    def shape(self, name: str) -> Extents | None:
        """Return the extents of a value where inference knows all of them."""
        if name in self.constants:
            return tuple(self.constants[name].dims)
        if name not in self.declared:
            return None
        shape = Declared.of(self.declared[name]).shape
        if shape is None or not all(isinstance(extent, int) for extent in shape):
            return None
        return tuple(map(int, shape))

    def dtype(self, name: str) -> np.dtype[np.generic] | None:
        """Return the element type of a value."""
        return Declared.of(self.declared[name]).dtype if name in self.declared else None

    def value(self, name: str) -> Array | None:
        """Return the value of a constant, None for what only a run tells."""
        return array_of(self.constants[name]) if name in self.constants else None

    def per_sample(self, name: str) -> int:
        """Return how many rows of a value belong to each sample, 0 where axis 0 is not divided so."""
        shape = self.shape(name)
        if not shape or not shape[0] or not self.batch or shape[0] % self.batch:
            return 0
        return shape[0] // self.batch

    def bytes_of(self, name: str) -> int:
        """Return the bytes of a value, 0 where they are not known."""
        shape, dtype = self.shape(name), self.dtype(name)
        return 0 if shape is None or dtype is None else int(np.prod(shape, dtype=np.int64)) * dtype.itemsize


def specialised(model: ModelProto, shapes: Mapping[str, Extents], kept: Sequence[str] | None = None) -> ModelProto:
    """Return a model whose inputs have these extents.

    Parameters
    ----------
    model : onnx.ModelProto
        Default values of its inputs are dropped.
    shapes : mapping
        The extents of every input.
    kept : sequence of str, optional
        The values to return, by default the model's outputs.

    Returns
    -------
    onnx.ModelProto
        With constants folded, so that extents that the graph computes are constants, and with the types and shapes of
        all values.
    """
    fixed = ModelProto()
    fixed.CopyFrom(flattened(model))
    given = {value.name for value in fixed.graph.input}
    tensors = [tensor for tensor in fixed.graph.initializer if tensor.name not in given]
    copies = [TensorProto.FromString(tensor.SerializeToString()) for tensor in tensors]
    del fixed.graph.initializer[:]
    fixed.graph.initializer.extend(copies)
    del fixed.graph.value_info[:]
    del fixed.training_info[:]
    for value in fixed.graph.input:
        if value.name in shapes:
            _state(value, shapes[value.name])
    outputs = {value.name: value for value in fixed.graph.output}
    chosen = [outputs.get(name, ValueInfoProto(name=name)) for name in (outputs if kept is None else kept)]
    chosen = [ValueInfoProto.FromString(value.SerializeToString()) for value in chosen]
    del fixed.graph.output[:]
    for value in chosen:
        value.type.tensor_type.ClearField("shape")
        fixed.graph.output.append(value)
    tidy(fixed)
    fixed = typed(fixed)
    for _ in range(ROUNDS):
        if not Folding(fixed, {value.name: Declared.of(value) for value in _values(fixed)}).fold():
            break
        fixed = typed(fixed)
    tidy(fixed)
    return fixed


def known_of(model: ModelProto, batch: int) -> Known:
    """Return what is known of a specialised model."""
    given = {value.name for value in model.graph.input}
    constants = {tensor.name: tensor for tensor in model.graph.initializer if tensor.name not in given}
    declared = {name: helper.make_tensor_value_info(name, tensor.data_type, tensor.dims)
                for name, tensor in constants.items()}
    known = Known(model, batch, declared | {value.name: value for value in _values(model)}, constants)
    for node in model.graph.node:
        for name in dict.fromkeys(used_names(node)):
            known.readers.setdefault(name, []).append(node)
    known.outputs = {value.name for value in model.graph.output}
    known.unread = {name for node in model.graph.node for name in node.output
                    if name and name not in known.readers and name not in known.outputs}
    return known


def _values(model: ModelProto) -> list[ValueInfoProto]:
    graph = model.graph
    return [value for value in (*graph.value_info, *graph.output, *graph.input) if value.type.HasField("tensor_type")]


def _state(value: ValueInfoProto, shape: Extents) -> None:
    """Write the extents of an input."""
    dims = value.type.tensor_type.shape
    del dims.dim[:]
    for extent in shape:
        dims.dim.add().dim_value = extent
    if not shape:
        dims.SetInParent()
