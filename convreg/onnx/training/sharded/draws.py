"""Random numbers of a step, drawn in the client's process: one session draws those of all steps, in one order.

A mask depends on the shape, the seed and the number of draws before it. The whole mask of the batch is drawn at once,
as in a step that is not divided, and every shard gets its rows of it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from ....memory import Array
from ...execution.engines import choose
from ...graph import dtype_of, flattened
from ...team import threads_of_nodes
from ..folding import RANDOM
from .separable import attributes_of
from .specialised import Known

FACTOR = "/factor"
"""What is appended to the name of a Dropout's result: what its input is multiplied by."""

LIKE = ("RandomNormalLike", "RandomUniformLike")


class Draws:
    """The random nodes of a step model.

    Attributes
    ----------
    made : dict
        First output of every node that is drawn -> the values that are drawn for it.
    """

    def __init__(self, model: ModelProto, engine: str) -> None:
        model = flattened(model)
        given = {value.name for value in model.graph.input}
        constants = {tensor.name: tensor for tensor in model.graph.initializer if tensor.name not in given}
        constants |= {node.output[0]: _tensor(node) for node in model.graph.node if node.op_type == "Constant"
                      and any(proto.name == "value" for proto in node.attribute)}
        self.made: dict[str, list[str]] = {}
        self._shaped: dict[str, str] = {}
        self._runner = None
        types = _types(model)
        graph_nodes: list[NodeProto] = []
        inputs, outputs, tensors = [], [], dict[str, TensorProto]()
        for node in model.graph.node:
            if node.domain not in ("", "ai.onnx") or node.op_type not in RANDOM:
                continue
            others = [name for name in node.input[1:] if name]
            element = types.get(node.output[0], types.get(node.input[0] if node.input else "", 0))
            if node.op_type not in ("Dropout", "RandomNormal", "RandomUniform", *LIKE) or not element or any(
                    name not in constants for name in others):
                continue  # refused where the step is divided
            first = node.output[0]
            copy = NodeProto()
            copy.CopyFrom(node)
            if node.op_type in ("Dropout", *LIKE):
                shape = f"{first}/shape"
                inputs.append(helper.make_tensor_value_info(shape, TensorProto.INT64, [None]))
                one = numpy_helper.from_array(np.ones(1, dtype_of(types.get(node.input[0], element))))
                graph_nodes.append(helper.make_node("ConstantOfShape", [shape], [f"{first}/ones"], value=one))
                copy.input[0] = f"{first}/ones"
                self._shaped[shape] = node.input[0]
            tensors |= {name: constants[name] for name in others}
            if node.op_type == "Dropout":
                copy.output[0] = f"{first}{FACTOR}"
            graph_nodes.append(copy)
            self.made[first] = [name for name in copy.output if name]
            outputs += [helper.make_empty_tensor_value_info(name) for name in self.made[first]]
            for name, kind in zip(copy.output, (element, TensorProto.BOOL), strict=False):
                if name:
                    outputs[-len(self.made[first]) + self.made[first].index(name)].CopyFrom(
                        helper.make_tensor_value_info(name, kind, None))
        if self.made:
            whole = helper.make_model(
                helper.make_graph(graph_nodes, "draws", inputs, outputs, list(tensors.values())),
                ir_version=model.ir_version, opset_imports=model.opset_import)
            with threads_of_nodes(1):
                self._runner = choose(whole, engine, None).runner
        self._names = [value.name for value in outputs]

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
        return dict(zip(self._names, self._runner.run(None, dict(shapes)), strict=True))


def _tensor(node: NodeProto) -> TensorProto:
    tensor = TensorProto()
    tensor.CopyFrom(attributes_of_tensor(node))
    tensor.name = node.output[0]
    return tensor


def attributes_of_tensor(node: NodeProto) -> TensorProto:
    """Return the tensor of a Constant node."""
    value = attributes_of(node)["value"]
    assert isinstance(value, TensorProto)
    return value


def _types(model: ModelProto) -> dict[str, int]:
    """Element types of values, as far as the model states them."""
    graph = model.graph
    found = {tensor.name: tensor.data_type for tensor in graph.initializer}
    return found | {value.name: value.type.tensor_type.elem_type
                    for value in (*graph.value_info, *graph.output, *graph.input)}
