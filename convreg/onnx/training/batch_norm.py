"""Batch normalisation in training, or with frozen statistics: the mode of a model's nodes, and their statistics."""

from __future__ import annotations

from typing import Literal, get_args

from onnx import ModelProto, NodeProto, helper

from ...errors import GraphError, shorten
from ..graph import attribute_value, attributes_of, place, used_names
from ..rewrite.builder import Names
from .value import Writer

Mode = Literal["as_exported", "train", "frozen"]
MODES = get_args(Mode)


def is_training(node: NodeProto) -> bool:
    """Whether a BatchNormalization node normalises by the statistics of its batch."""
    return node.op_type == "BatchNormalization" and node.domain == "" and any(
        proto.name == "training_mode" and attribute_value(proto) for proto in node.attribute)


def batch_norms(model: ModelProto) -> list[NodeProto]:
    """Return the BatchNormalization nodes of a model's graph."""
    return [node for node in model.graph.node
            if node.op_type == "BatchNormalization" and node.domain == ""]


def set_batch_norm(model: ModelProto, mode: Mode) -> None:
    """Set the mode of every batch normalisation, in place.

    Parameters
    ----------
    model : onnx.ModelProto
    mode : {"as_exported", "train", "frozen"}
        "train" normalises by the statistics of the batch and updates the running ones; "frozen" normalises by the
        running statistics and leaves them; "as_exported" changes no mode. Nodes in training mode get all three
        outputs; the updated statistics of ``P`` are named ``P.next``, and nodes that share them update them in turn.

    Raises
    ------
    GraphError
        If there is no such mode, or "train" is asked of a model that has no BatchNormalization.
    """
    if not isinstance(mode, str) or mode not in MODES:
        raise GraphError(f"batch_norm={shorten(mode)} is refused; allowed: {', '.join(map(repr, MODES))}")
    nodes = batch_norms(model)
    if mode == "train" and not nodes:
        raise GraphError("batch_norm='train' is refused, because the model has no BatchNormalization; exporters fold "
                         "it into Conv unless told otherwise (torch.onnx.export: optimize=False, or dynamo=False with "
                         "training=TrainingMode.TRAINING and do_constant_folding=False); allowed: 'as_exported'")
    names, updated = Names.of(model), dict[str, str]()
    read = {name for node in model.graph.node for name in used_names(node)}
    read.update(value.name for value in model.graph.output)
    removed: dict[str, str] = {}
    for node in nodes:
        training = is_training(node) if mode == "as_exported" else mode == "train"
        for index in range(len(node.attribute) - 1, -1, -1):
            if node.attribute[index].name == "training_mode":
                del node.attribute[index]
        if training:
            node.attribute.append(helper.make_attribute("training_mode", 1))
            _chain_statistics(node, names, read, updated)
        else:
            removed.update(zip(node.output[1:3], node.input[3:5], strict=False))
            del node.output[1:]
    _replace_removed(model, {old: new for old, new in removed.items() if old})


def running_statistics(model: ModelProto) -> dict[str, str]:
    """Return the running statistics of a prepared model by name, each with the value that updates it."""
    updated: dict[str, str] = {}
    origin: dict[str, str] = {}
    for node in batch_norms(model):
        if is_training(node):
            for before, after in zip(node.input[3:5], node.output[1:3], strict=False):
                origin[after] = origin.get(before, before)
                updated[origin[after]] = after
    return updated


def _chain_statistics(node: NodeProto, names: Names, read: set[str], updated: dict[str, str]) -> None:
    """Name the updated statistics; a node that shares them continues where the one before it ended."""
    node.output.extend([""] * (3 - len(node.output)))
    for source, output in ((3, 1), (4, 2)):
        name = node.input[source]
        if node.output[output] not in read:  # exporters name them after the node, and nobody reads them
            node.output[output] = names.fresh(f"{name}.next")
        node.input[source] = updated.get(name, name)
        updated[name] = node.output[output]


def _replace_removed(model: ModelProto, removed: dict[str, str]) -> None:
    """Read the running statistics where an output that is gone was read."""
    if not removed:
        return
    for node in model.graph.node:
        for index, name in enumerate(node.input):
            if name in removed:
                node.input[index] = removed[name]
    for value in model.graph.output:
        if value.name in removed:
            model.graph.node.append(helper.make_node("Identity", [removed[value.name]], [value.name]))


def use_batch_statistics(node: NodeProto, writer: Writer) -> None:
    """Compute the statistics of a training node's batch beside it, and let it normalise by them as by running ones.

    The gradient needs the statistics, which the node keeps to itself. Besides, onnxruntime writes the running
    statistics that a training node hands to other nodes over those it read, inputs of the caller included.
    """
    attributes = attributes_of(node)
    momentum = float(attributes.get("momentum", 0.9))
    x = writer.value(node.input[0])
    if x.shape is None:
        raise GraphError(f"{place(node)}: the rank of {x.name!r} must be known, and inference finds no shape")
    axes = [0, *range(2, len(x.shape))]
    middle = x.mean(axes)
    centred = x - middle
    made = (middle.reshape([-1]), (centred * centred).mean(axes, keepdims=False))
    for index, batch in enumerate(made, 1):
        running = writer.value(node.input[index + 2])
        batch = batch.cast(running.dtype)
        writer.know(batch.name, batch.dtype, running.shape)
        if index < len(node.output) and node.output[index]:
            writer.named(running * momentum + batch * (1 - momentum), node.output[index])
            writer.know(node.output[index], running.dtype, running.shape)
        node.input[index + 2] = batch.name
    del node.output[1:]
    kept = [proto for proto in node.attribute if proto.name not in ("training_mode", "momentum")]
    attributes_kept = [type(proto).FromString(proto.SerializeToString()) for proto in kept]
    del node.attribute[:]
    node.attribute.extend(attributes_kept)
