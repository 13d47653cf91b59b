"""Nodes rewritten before a step is divided: one result per gradient, losses beside log-probabilities, masks drawn
apart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from .... import registry
from ....errors import GraphError
from ...graph import attributes_of, place
from ...rewrite.builder import Names
from ..folding import RANDOM
from .draws import FACTOR, Draws
from .specialised import Known


def rewritten(model: ModelProto, known: Known, draws: Draws) -> list[NodeProto]:
    """Return the nodes of a specialised model as they are divided.

    * A gradient node of ours that makes several results becomes one node for each: data gradients have rows, gradients
      of weights and biases are sums.
    * A SoftmaxCrossEntropyLoss with log-probabilities becomes two nodes: the log-probabilities of a sample need that
      sample alone.
    * Dropout becomes a quotient or a product with numbers that `draws` makes; other random nodes are replaced by
      what it makes.
    * CastLike becomes Cast, because it reads no number of its second input.
    * Squeeze without axes gets those of the batch: a shard of one sample has an axis 0 of extent 1 too.
    """
    names = Names.of(model)
    nodes: list[NodeProto] = []
    for node in model.graph.node:
        if node.op_type in RANDOM and node.domain == "":
            nodes += _drawn(known, node, names, draws)
        elif node.op_type == "SoftmaxCrossEntropyLoss" and len(node.output) > 1 and node.output[1]:
            nodes += _two_losses(node, names, known)
        elif node.op_type == "CastLike":
            nodes.append(_cast(node, known))
        elif _squeezes_all(node):
            nodes.append(_squeeze(node, names, known))
        else:
            nodes += _one_result_each(node)
    return nodes


def with_axes(model: ModelProto, known: Known) -> ModelProto:
    """Return a step model whose Squeeze nodes state the axes that they remove from the whole batch, for any shard."""
    if not any(map(_squeezes_all, model.graph.node)):
        return model
    names, changed = Names.of(model), ModelProto()
    changed.CopyFrom(model)
    for node in filter(_squeezes_all, changed.graph.node):
        axes = _axes(node, names, known)
        if axes is not None:
            changed.graph.initializer.append(axes)
            node.input[1:] = [axes.name]
    return changed


def _squeezes_all(node: NodeProto) -> bool:
    return node.op_type == "Squeeze" and node.domain == "" and not any(node.input[1:])


def _copy(node: NodeProto, outputs: Sequence[str]) -> NodeProto:
    copy = NodeProto()
    copy.CopyFrom(node)
    del copy.output[:]
    copy.output.extend(outputs)
    return copy


def _one_result_each(node: NodeProto) -> list[NodeProto]:
    operator = registry.find_node(node.domain, node.op_type)
    if operator is None or not operator.spec.convolves or sum(bool(name) for name in node.output) < 2:
        return [node]
    spec, copies = operator.spec, []
    mask = spec.convolution.mask
    for index, name in enumerate(node.output):
        if not name:
            continue
        copy = _copy(node, [*[""] * index, name])
        if copy.name:
            copy.name = f"{node.name}/{spec.outputs[index].name}"
        if mask:
            stated = attributes_of(node).get(mask, [1] * len(spec.outputs))
            for proto in list(copy.attribute):
                if proto.name == mask:
                    copy.attribute.remove(proto)
            copy.attribute.append(helper.make_attribute(
                mask, [int(bool(entry) and number == index) for number, entry in enumerate(stated)]))
        copies.append(copy)
    return copies


def _two_losses(node: NodeProto, names: Names, known: Known) -> list[NodeProto]:
    loss, logarithms = _copy(node, [node.output[0]]), _copy(node, [names.fresh(f"{node.output[0]}/of_shard"),
                                                                   node.output[1]])
    known.unread.add(logarithms.output[0])
    if node.name:
        logarithms.name = f"{node.name}/log_probabilities"
    if node.output[0] in known.readers or node.output[0] in known.outputs:
        return [loss, logarithms]
    return [logarithms]


def _cast(node: NodeProto, known: Known) -> NodeProto:
    dtype = known.dtype(node.output[0])
    if dtype is None:
        return node
    kind = helper.np_dtype_to_tensor_dtype(dtype)
    kept = {key: value for key, value in attributes_of(node).items() if key in ("saturate", "round_mode")}
    return helper.make_node("Cast", [node.input[0]], list(node.output), name=node.name, to=kind, **kept)


def _squeeze(node: NodeProto, names: Names, known: Known) -> NodeProto:
    axes = _axes(node, names, known)
    if axes is None:
        return node
    known.constants[axes.name] = axes
    return helper.make_node("Squeeze", [node.input[0], axes.name], list(node.output), name=node.name)


def _axes(node: NodeProto, names: Names, known: Known) -> TensorProto | None:
    """Return the axes that a Squeeze without axes removes from the batch."""
    shape = known.shape(node.input[0])
    if shape is None:
        return None
    axes = [axis for axis, extent in enumerate(shape) if extent == 1]
    return numpy_helper.from_array(np.array(axes, np.int64), names.fresh(f"{node.output[0]}/axes"))


def _drawn(known: Known, node: NodeProto, names: Names, draws: Draws) -> list[NodeProto]:
    """Return what stands for a random node."""
    if node.output[0] not in draws.made:
        raise GraphError(f"{place(node)} draws random numbers from values of the batch, so its results would depend on "
                         "how the batch is divided; allowed in a divided step: Dropout with a constant ratio, and "
                         "random numbers of a shape")
    if node.op_type != "Dropout":
        return []
    factor = ValueInfoProto()
    factor.CopyFrom(known.declared[node.output[0]])
    factor.name = f"{node.output[0]}{FACTOR}"
    known.declared[factor.name] = factor
    return [helper.make_node(draws.combine, [node.input[0], f"{node.output[0]}{FACTOR}"], [node.output[0]],
                             name=node.name or names.fresh(f"{node.output[0]}/dropout"))]
