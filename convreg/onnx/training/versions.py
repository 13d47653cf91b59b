"""Models of older versions of standard ONNX in a version that the rules know, with what onnx's converter would lose."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper, version_converter

from ...errors import GraphError, shorten
from ..graph import contradiction, place, scope_of, sentence, used_names

OLDEST_OPSET, NEWEST_OPSET = 18, 26
"""The versions of standard ONNX in which the rules write their nodes. Models of older ones are converted."""

BOUNDS_VERSION = 11
BOUNDED = ("Clip", "Pad")
"""Operators whose numbers are inputs from `BOUNDS_VERSION` of standard ONNX on, and attributes before."""

TRAINING_MODE_VERSION = 14
"""The version from which on an attribute of BatchNormalization states the mode. Before, further outputs state it."""

RESAMPLED = ("Upsample", "Resize")
"""Operators that below `BOUNDS_VERSION` read the place ``i / scale``, and take the element before it if they are to
take the nearest one. Later versions have attributes for both, with other defaults."""

OLDEST_IR = 10


def standard_version(model: ModelProto) -> int | None:
    """Return the version of standard ONNX that a model imports."""
    return next((entry.version for entry in model.opset_import if entry.domain == ""), None)


def in_known_version(model: ModelProto) -> ModelProto:
    """Return the model in a version of standard ONNX that the rules know; `model` may change.

    Raises
    ------
    GraphError
        If the model imports no version or one that is too new, or onnx cannot convert it.
    """
    version = standard_version(model)
    if version is None:
        words = contradiction(model)
        raise GraphError("the model imports no version of standard ONNX"
                         + (f", and its functions cannot be inlined: {words}" if words else ""))
    if version > NEWEST_OPSET:
        raise GraphError(f"the model imports version {version} of standard ONNX; allowed: up to {NEWEST_OPSET}")
    if version < OLDEST_OPSET:
        trained = _cut_training_outputs(model) if version < TRAINING_MODE_VERSION else set()
        resampled = {node.output[0] for node in model.graph.node
                     if node.op_type in RESAMPLED and node.domain == ""} if version < BOUNDS_VERSION else set()
        try:
            made = version_converter.convert_version(model, OLDEST_OPSET)
        except Exception as error:  # the converter raises whatever it meets
            raise GraphError(f"the model imports version {version} of standard ONNX, and onnx cannot convert it to "
                             f"{OLDEST_OPSET}: {sentence(error)}") from error
        _restore_notes(model.graph, made.graph)
        for node in made.graph.node:
            if node.output and node.output[0] in trained:
                node.attribute.append(helper.make_attribute("training_mode", 1))
            if node.output and node.output[0] in resampled:
                node.attribute.extend([helper.make_attribute("coordinate_transformation_mode", "asymmetric"),
                                       helper.make_attribute("nearest_mode", "floor")])
        model = made
        if version < BOUNDS_VERSION:
            _retype_bounds(model)
    model.ir_version = max(model.ir_version, OLDEST_IR)
    return model


def _cut_training_outputs(model: ModelProto) -> set[str]:
    """Cut the outputs of batch normalisations to those that the mode of training has in later versions; return the
    first outputs of the nodes in this mode."""
    read = {name for node in model.graph.node for name in used_names(node)}
    read.update(value.name for value in model.graph.output)
    trained = set()
    for node in model.graph.node:
        if node.op_type != "BatchNormalization" or node.domain != "" or not any(node.output[1:]):
            continue
        for name in node.output[3:]:
            if name in read:
                raise GraphError(f"{place(node)}: its output {shorten(name)} is a saved statistic, which standard ONNX "
                                 f"does not have from version {TRAINING_MODE_VERSION} on, and it is used; allowed: "
                                 "saved statistics that nothing reads")
        del node.output[3:]
        trained.add(node.output[0])
    return trained


def _restore_notes(before: GraphProto, after: GraphProto) -> None:
    """Give a converted graph the documentation and the metadata of the graph before, which the converter drops."""
    for field in ("metadata_props", "quantization_annotation"):
        if not getattr(after, field):
            getattr(after, field).extend(getattr(before, field))
    for field in ("input", "output", "value_info", "initializer"):
        known = {entry.name: entry for entry in getattr(before, field)}
        for entry in getattr(after, field):
            copy_notes(known.get(entry.name), entry)
    makers = {node.output[0]: node for node in before.node if node.output}
    for node in after.node:
        maker = makers.get(node.output[0]) if node.output else None
        if maker is not None and maker.op_type == node.op_type:
            copy_notes(maker, node)


def copy_notes(source: Any, target: Any) -> None:
    """Give a message the documentation and the metadata of another one, or of none, where it has no own."""
    if source is not None:
        target.doc_string = target.doc_string or source.doc_string
        if not target.metadata_props:
            target.metadata_props.extend(source.metadata_props)


def _retype_bounds(model: ModelProto) -> None:
    """Give the numbers of Clip and Pad the element type of the data: onnx's converter always writes float32."""
    scope = scope_of(model.graph)
    constants = {node.output[0]: node for node in model.graph.node if node.op_type == "Constant" and node.output}
    for node in model.graph.node:
        if node.op_type not in BOUNDED or node.domain != "":
            continue
        declared = scope.get(node.input[0]) if node.input else None
        if declared is not None and declared.dtype is not None:
            for name in constants.keys() & set(node.input[1:]):
                _retype(constants[name], declared.dtype)


def _retype(constant: NodeProto, dtype: np.dtype[Any]) -> None:
    """Convert the tensor of a Constant node from float32 to another type."""
    for proto in constant.attribute:
        if proto.name == "value" and proto.t.data_type == TensorProto.FLOAT:
            with np.errstate(over="ignore"):  # the bound that Clip has by default is infinite in float16
                array = numpy_helper.to_array(proto.t).astype(dtype)
            proto.t.CopyFrom(numpy_helper.from_array(array, proto.t.name))
