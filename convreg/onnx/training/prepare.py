"""A forward model made ready for its gradients: flat, constants folded, every type and shape that is known stated."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, TensorShapeProto, numpy_helper, version_converter

from ...errors import GraphError
from ..graph import contradiction, scope_of, sentence
from ..model.checks import check_made_once
from ..model.files import Source, opened_flat
from .batch_norm import Mode, set_batch_norm
from .folding import Folding
from .inference import check_typed, typed
from .rounding import check_format, round_products
from .tidy import sort_nodes

OLDEST_OPSET, NEWEST_OPSET = 18, 26
"""The versions of standard ONNX in which the rules write their nodes. Models of older ones are converted."""

BOUNDED, BOUNDS_VERSION = ("Clip", "Pad"), 11
"""Operators whose numbers are inputs from a version of standard ONNX on, and attributes before."""

OLDEST_IR = 10
ROUNDS = 8
"""How often constants are folded: each time more shapes may be known."""


def prepare(source: Source, *, batch_norm: Mode = "as_exported", forward_format: str | None = None) -> ModelProto:
    """Return a copy of a forward model as `add_gradients` takes it. It is checked in full on the way.

    Parameters
    ----------
    source : onnx.ModelProto or path
    batch_norm : {"as_exported", "train", "frozen"}
        The mode of batch normalisations, as in `set_batch_norm`.
    forward_format : str, optional
        Number format to which the operands of Conv, ConvTranspose, Gemm and MatMul are rounded.

    Returns
    -------
    onnx.ModelProto
        Local functions are inlined; constants are initializers, those that follow from known shapes too; the version
        of standard ONNX is 18 or later; value_info states what inference finds. Symbols that exporters wrote at inner
        values and outputs are dropped, because they may contradict each other.

    Raises
    ------
    GraphError
        If the model is wrong, has no floating-point input or initializer, cannot be converted to version 18, or an
        argument has a wrong value.
    """
    return prepared(opened_flat(source), batch_norm, forward_format)


def prepared(flat: ModelProto, batch_norm: Mode, forward_format: str | None) -> ModelProto:
    """Return what `prepare` returns, for what `opened_flat` returned.

    Raises
    ------
    GraphError
        As `prepare`.
    """
    check_format("forward_format", forward_format)
    model = ModelProto()
    model.CopyFrom(flat)
    check_made_once(model.graph)
    model = _converted(model)
    _forget_symbols(model)
    set_batch_norm(model, batch_norm)
    known = _inferred(model)
    for _ in range(ROUNDS):
        if not Folding(known, scope_of(known.graph)).fold():
            break
        known = _inferred(known)
    if forward_format not in (None, "float32"):
        round_products(known, forward_format)
        known = _inferred(known)
    sort_nodes(known.graph)
    check_typed(known)
    return known


def _converted(model: ModelProto) -> ModelProto:
    """Return the model in a version of standard ONNX that the rules know."""
    version = next((entry.version for entry in model.opset_import if entry.domain == ""), None)
    if version is None:
        words = contradiction(model)
        raise GraphError("the model imports no version of standard ONNX"
                         + (f", and its functions cannot be inlined: {words}" if words else ""))
    if version > NEWEST_OPSET:
        raise GraphError(f"the model imports version {version} of standard ONNX; allowed: up to {NEWEST_OPSET}")
    if version < OLDEST_OPSET:
        try:
            model = version_converter.convert_version(model, OLDEST_OPSET)
        except Exception as error:  # the converter raises whatever it meets
            raise GraphError(f"the model imports version {version} of standard ONNX, and onnx cannot convert it to "
                             f"{OLDEST_OPSET}: {sentence(error)}") from error
        if version < BOUNDS_VERSION:
            _retype_bounds(model)
    model.ir_version = max(model.ir_version, OLDEST_IR)
    return model


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


def _forget_symbols(model: ModelProto) -> None:
    """Forget extents that have names instead of numbers, except those of inputs."""
    for value in (*model.graph.value_info, *model.graph.output):
        shape: TensorShapeProto = value.type.tensor_type.shape
        for dim in shape.dim:
            if dim.HasField("dim_param"):
                dim.ClearField("dim_param")


def _inferred(model: ModelProto) -> ModelProto:
    """Return the model with what inference finds; declarations of inner values that contradict it are dropped."""
    try:
        return typed(model)
    except GraphError:
        if not model.graph.value_info:
            raise
        bare = ModelProto()
        bare.CopyFrom(model)
        del bare.graph.value_info[:]
        return typed(bare)
