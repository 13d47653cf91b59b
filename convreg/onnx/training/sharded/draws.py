"""Random numbers of a step, drawn in the client's process: one session draws those of all steps, in one order.

A mask depends on the shape, the seed and the number of draws before it. The whole mask of the batch is drawn at once,
as in a step that is not divided, and every shard gets its rows of it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from ....memory import Array
from ...execution.engines import choose
from ...execution.evaluator import Runner
from ...graph import attributes_of, dtype_of, flattened
from ...model.tensor_data import array_of
from ...team import threads_of_nodes
from ..folding import RANDOM
from .specialised import Known

FACTOR = "/factor"
"""What is appended to the name of a Dropout's result: what its input is divided by in onnxruntime, multiplied by in the
reference engine. Each does what the node does there, so that no bit changes."""

DRAWN = ("Dropout", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
"""Random nodes whose numbers depend on no value of the batch."""


class Draws:
    """The random nodes of a step model.

    Attributes
    ----------
    made : dict
        First output of every node that is drawn -> the values that are drawn for it.
    combine : {"Div", "Mul"}
        What a Dropout is of its input and its factor.
    """

    def __init__(self, model: ModelProto, engine: str) -> None:
        model = flattened(model)
        self.made: dict[str, list[str]] = {}
        self.combine = "Div" if engine == "onnxruntime" else "Mul"
        self._kept: dict[str, Array] = {}
        self._shaped: dict[str, str] = {}
        self._inputs: list[ValueInfoProto] = []
        self._outputs: list[ValueInfoProto] = []
        self._nodes: list[NodeProto] = []
        constants, types = _constants(model), _types(model)
        read: dict[str, TensorProto] = {}
        for node in model.graph.node:
            others = [name for name in node.input[1:] if name]
            drawn = node.op_type in RANDOM and node.domain == "" and node.output[0] in types
            if drawn and node.op_type in DRAWN and all(name in constants for name in others):
                self._add(node, types, constants)
                read |= {name: constants[name] for name in others}
        self._names = [value.name for value in self._outputs]
        self._runner: Runner | None = None
        if self.made:
            whole = helper.make_model(
                helper.make_graph(self._nodes, "draws", self._inputs, self._outputs, list(read.values())),
                ir_version=model.ir_version, opset_imports=model.opset_import)
            with threads_of_nodes(1):
                self._runner = choose(whole, engine, None).runner

    def _add(self, node: NodeProto, types: Mapping[str, int], constants: Mapping[str, TensorProto]) -> None:
        """Add a node that draws as one of the graph does, from ones of a shape that is given."""
        first, copy = node.output[0], NodeProto()
        copy.CopyFrom(node)
        if node.input:
            shape, ones = f"{first}/shape", f"{first}/ones"
            one = numpy_helper.from_array(np.ones(1, dtype_of(types.get(node.input[0], types[first]))))
            self._inputs.append(helper.make_tensor_value_info(shape, TensorProto.INT64, [None]))
            self._nodes.append(helper.make_node("ConstantOfShape", [shape], [ones], value=one))
            self._shaped[shape] = node.input[0]
            copy.input[0] = ones
        if node.op_type == "Dropout":
            copy.output[0] = f"{first}{FACTOR}"
            self._kept[copy.output[0]] = _kept(node, constants)
        self._nodes.append(copy)
        self.made[first] = [name for name in copy.output if name]
        self._outputs += [helper.make_tensor_value_info(name, kind, None) for name, kind in
                          zip(copy.output, (types[first], TensorProto.BOOL), strict=False) if name]

    @property
    def names(self) -> list[str]:
        """The values that are drawn."""
        return self._names

    def shapes(self, known: Known) -> dict[str, Array]:
        """Return the shapes that a specialised step asks for, by the names that `draw` takes."""
        return {name: np.array(known.shape(like), np.int64) for name, like in self._shaped.items()}

    def draw(self, shapes: Mapping[str, Array]) -> dict[str, Array]:
        """Return the numbers of the next step."""
        if self._runner is None:
            return {}
        drawn = dict(zip(self._names, self._runner.run(None, dict(shapes)), strict=True))
        if self.combine == "Div":
            for name, kept in self._kept.items():
                drawn[name] = np.where(drawn[name] == 0, np.inf, kept).astype(drawn[name].dtype)
        return drawn


def _kept(node: NodeProto, constants: Mapping[str, TensorProto]) -> Array:
    """The share of elements that a Dropout keeps, as onnxruntime computes it; 1 where it keeps all."""
    values = [array_of(constants[name]) if name else None for name in (*node.input[1:3], "", "")]
    ratio, training = values[0], values[1]
    if training is None or not training.reshape(-1)[0]:
        return np.ones((), np.float32)
    return np.float32(1) - np.asarray(0.5 if ratio is None else ratio, np.float32).reshape(-1)[0]


def _constants(model: ModelProto) -> dict[str, TensorProto]:
    """The constants of a graph: initializers that are no inputs, and what Constant nodes hold as tensors."""
    given = {value.name for value in model.graph.input}
    found = {tensor.name: tensor for tensor in model.graph.initializer if tensor.name not in given}
    for node in model.graph.node:
        if node.op_type == "Constant" and isinstance(held := attributes_of(node).get("value"), TensorProto):
            tensor = TensorProto()
            tensor.CopyFrom(held)
            tensor.name = node.output[0]
            found[tensor.name] = tensor
    return found


def _types(model: ModelProto) -> dict[str, int]:
    """Element types of values, as far as the model states them."""
    graph = model.graph
    found = {tensor.name: tensor.data_type for tensor in graph.initializer}
    return found | {value.name: value.type.tensor_type.elem_type
                    for value in (*graph.value_info, *graph.output, *graph.input)}
