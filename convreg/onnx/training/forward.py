"""The forward graph inside a step model, and the model that is deployed: trained weights, inference form."""

from __future__ import annotations

import base64
import binascii
import hashlib
import zlib
from collections.abc import Mapping

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from ...errors import GraphError, shorten
from ...memory import Array
from ..graph import attribute_value, attributes_of, used_names
from ..model.checks import check_opened
from .batch_norm import set_batch_norm
from .initial import initial_tensors
from .record import KEY as RECORD
from .record import metadata, set_metadata
from .tidy import tidy
from .versions import copy_notes

KEY = "convreg.forward"
"""The entry of ``metadata_props`` that holds the forward graph: compressed, in base 64.

The step's own graph has other nodes where gradients need them: in the mode of training, rounded, in another version of
standard ONNX. The tensors are those of the step.
"""

LARGEST = 2**28
"""Bytes of a forward graph without the weights, so that a small file cannot take all memory."""


def keep_forward(step: ModelProto, forward: ModelProto) -> str:
    """Put a forward model into a step's metadata, without the tensors that the step has; return its hash.

    The hash covers nodes, inputs and outputs. It does not cover weights, notes of exporters, and what a step was made
    with.
    """
    bare = ModelProto()
    bare.CopyFrom(forward)
    for node in bare.graph.node:
        node.ClearField("metadata_props")  # exporters write stack traces with paths of their machine there
        node.ClearField("doc_string")
    held = {tensor.name: tensor for tensor in step.graph.initializer}
    state = {value.name for value in step.graph.input}
    kept = [tensor for tensor in forward.graph.initializer
            if tensor.name not in state and not _same(held.get(tensor.name), tensor)]
    del bare.graph.initializer[:]
    bare.graph.initializer.extend(kept)
    del bare.metadata_props[:]
    content = bare.SerializeToString()
    if len(content) > LARGEST:
        raise GraphError(f"the forward graph has {len(content)} bytes besides its weights; allowed: {LARGEST}")
    set_metadata(step, KEY, base64.b64encode(zlib.compress(content)).decode("ascii"))
    graph = hashlib.sha256()
    for part in (*bare.graph.node, *bare.graph.input, *bare.graph.output):
        graph.update(part.SerializeToString(deterministic=True))
    return graph.hexdigest()[:32]


def _same(held: TensorProto | None, tensor: TensorProto) -> bool:
    return held is not None and held.SerializeToString() == tensor.SerializeToString()


def forward_of(step: ModelProto) -> ModelProto:
    """Return the forward model that a step was made of, without the tensors that the step has.

    Raises
    ------
    GraphError
        If the metadata has none.
    """
    text = metadata(step).get(KEY)
    if text is None:
        raise GraphError(f"the model has no metadata {KEY!r}, which holds the forward graph")
    try:
        inflate = zlib.decompressobj()
        content = inflate.decompress(base64.b64decode(text, validate=True), LARGEST)
        if not inflate.eof:
            raise ValueError(f"it has more than {LARGEST} bytes, or ends early")
        model = ModelProto()
        model.ParseFromString(content)
    except (ValueError, binascii.Error, zlib.error) as error:
        raise GraphError(f"the model's metadata {KEY!r} is damaged: {error}") from None
    except Exception as error:  # protobuf's own class
        raise GraphError(f"the model's metadata {KEY!r} holds no model: {error}") from None
    return model


def deployed(step: ModelProto, values: Mapping[str, Array]) -> ModelProto:
    """Return the forward model in the form for inference.

    Parameters
    ----------
    step : onnx.ModelProto
        What `training_step` returned.
    values : mapping
        Name -> array of the trained parameters and running statistics.

    Returns
    -------
    onnx.ModelProto
        The model that the step was made of, with these values and the model's metadata. Batch normalisation uses
        running statistics, Dropout passes its input, and a random mask (stochastic depth) is its expected value.

    Raises
    ------
    GraphError
        If the step has no forward graph, or lacks one of its tensors.
    """
    model = forward_of(step)
    held = {tensor.name for tensor in model.graph.initializer}
    read = {name for node in model.graph.node for name in used_names(node)}
    read.update(value.name for value in model.graph.output)
    made = {name for node in model.graph.node for name in node.output}
    made |= {value.name for value in model.graph.input} | {tensor.values.name for tensor in
                                                           model.graph.sparse_initializer}
    others = {tensor.name: tensor for tensor in initial_tensors(step)}
    for name in sorted(read - held - made - {""}):
        if name in values:
            tensor = model.graph.initializer.add()
            tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(values[name]), name))
            copy_notes(others.get(name), tensor)
        elif name in others:
            model.graph.initializer.append(others[name])
        else:
            raise GraphError(f"the forward graph reads {shorten(name)}, which the step model does not have")
    model.metadata_props.extend(entry for entry in step.metadata_props if entry.key not in (KEY, RECORD))
    set_batch_norm(model, "frozen")
    _without_randomness(model)
    tidy(model)
    check_opened(model)
    return model


def _without_randomness(model: ModelProto) -> None:
    """Give Dropout and masks of stochastic depth the form for inference, in place."""
    makers = {name: node for node in model.graph.node for name in node.output if name}
    for node in model.graph.node:
        if node.domain != "":
            continue
        if node.op_type == "Dropout":
            while len(node.input) > 2:  # training_mode; without it the result is the input and the mask all true
                node.input.pop()
        elif node.op_type in ("Cast", "CastLike"):
            keep = _probability(makers.get(node.input[0]), makers)
            if keep is not None:
                _become_expected(node, keep)
        elif node.op_type == "Bernoulli":
            _become_identity(node)


def _probability(node: NodeProto | None, makers: Mapping[str, NodeProto]) -> str | None:
    """The value that a uniform random number between 0 and 1 is compared with by ``random < value``."""
    if node is None or node.op_type != "Less":
        return None
    source = makers.get(node.input[0])
    if source is None or source.op_type not in ("RandomUniformLike", "RandomUniform"):
        return None
    bounds = attributes_of(source)
    return node.input[1] if bounds.get("low", 0.0) == 0 and bounds.get("high", 1.0) == 1 else None


def _become_expected(node: NodeProto, probability: str) -> None:
    """Make a mask its expected value: a scalar that broadcasts where the mask was multiplied."""
    node.input[0] = probability


def _become_identity(node: NodeProto) -> None:
    """Make Bernoulli hand out its probabilities."""
    kind = next((attribute_value(proto) for proto in node.attribute if proto.name == "dtype"), None)
    del node.attribute[:]
    node.op_type = "Identity"
    if kind is not None:
        node.op_type = "Cast"
        node.attribute.append(helper.make_attribute("to", kind))
