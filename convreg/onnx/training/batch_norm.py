"""Batch normalisation in training, or with frozen statistics: the mode of a model's nodes, and their statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from onnx import ModelProto, NodeProto, helper

from ...errors import GraphError, shorten
from ..graph import attribute_value, used_names
from ..rewrite.builder import Names

if TYPE_CHECKING:
    from .step import Step
    from .value import Value

Mode = Literal["as_exported", "train", "frozen"]
MODES = get_args(Mode)


def is_training(node: NodeProto) -> bool:
    """Whether a BatchNormalization node normalises by the statistics of its batch."""
    return any(proto.name == "training_mode" and attribute_value(proto) for proto in node.attribute)


def batch_norms(model: ModelProto) -> list[NodeProto]:
    """Return the BatchNormalization nodes of a model's graph."""
    return [node for node in model.graph.node
            if node.op_type == "BatchNormalization" and node.domain in ("", "ai.onnx")]


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
    if mode not in MODES:
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
    for place, output in ((3, 1), (4, 2)):
        name = node.input[place]
        if node.output[output] not in read:  # exporters name them after the node, and nobody reads them
            node.output[output] = names.fresh(f"{name}.next")
        node.input[place] = updated.get(name, name)
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


def statistics_of_batch(step: Step) -> tuple[Value, Value]:
    """Return mean and variance of a training node's batch.

    The node updates running statistics by ``running momentum + batch (1 - momentum)``. With a momentum of 0 it hands
    out the batch's own, which spares computing them again, and the update is two small nodes beside it.
    """
    momentum = step.attribute("momentum", 0.9)
    outputs = [step.output(index) for index in (1, 2)]
    if momentum == 0:
        return outputs[0], outputs[1]
    _set_float(step.node, "momentum", 0.0)
    batch = []
    for index, (place, updated) in enumerate(zip((3, 4), outputs, strict=True), 1):
        own = step.writer.names.fresh(f"{step.node.output[0]}/batch_{('mean', 'variance')[index - 1]}")
        step.node.output[index] = own
        step.writer.know(own, updated.dtype, updated.shape)
        value = step.writer.value(own)
        step.writer.named(step.input(place) * momentum + value * (1 - momentum), updated.name)
        batch.append(value)
    return batch[0], batch[1]


def _set_float(node: NodeProto, name: str, value: float) -> None:
    for proto in node.attribute:
        if proto.name == name:
            proto.f = value
            return
    node.attribute.append(helper.make_attribute(name, value))
