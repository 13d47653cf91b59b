"""Losses between the output of a forward model and a target, as standard ONNX nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

import numpy as np
from onnx import ModelProto, helper

from ...errors import GraphError, shorten
from ..graph import Declared, scope_of
from .value import Value, Writer

Loss = Literal["softmax_cross_entropy", "mse"]
LOSSES = get_args(Loss)
FLOATS = ("float16", "bfloat16", "float32", "float64")
"""Element types of outputs from which a loss can be made."""


class Made(NamedTuple):
    """Names of a loss and of its target; the target is None where the model itself makes the loss."""

    loss: str
    target: str | None


def check_loss(loss: object) -> None:
    """Refuse what names no loss."""
    if loss is not None and not (isinstance(loss, str) and loss in LOSSES):
        raise GraphError(f"loss={shorten(loss)} is refused; allowed: {', '.join(map(repr, LOSSES))}, or None for a "
                         "model whose output is the loss")


def add_loss(model: ModelProto, output: str, loss: Loss | None, writer: Writer) -> Made:
    """Append a loss to a prepared model, and its target to the model's inputs.

    Parameters
    ----------
    model : onnx.ModelProto
        Changed in place.
    output : str
        A value of the graph.
    loss : {"softmax_cross_entropy", "mse"} or None
        The mean over all labels of the cross-entropy of the softmax along axis 1, with a target of int64 without that
        axis; the mean over all elements of the squared difference, with a target of the output's type and shape. None
        means that the output is a loss already.
    writer : Writer
        Gets what is known of the new values.

    Raises
    ------
    GraphError
        If the output does not have the type or the shape that the loss needs.
    """
    declared = scope_of(model.graph).get(output)
    if declared is None or declared.dtype is None or declared.dtype.name not in FLOATS:
        kind = "a value of unknown type" if declared is None or declared.dtype is None else declared.dtype
        raise GraphError(f"the output {output!r} is {kind}; allowed for a loss: {', '.join(FLOATS)}")
    if loss is None:
        if declared.shape is None or any(extent != 1 for extent in declared.shape):
            raise GraphError(f"loss=None needs an output that is the loss, of one element; {output!r} is {declared}; "
                             f"allowed: another output=, or loss={' or '.join(map(repr, LOSSES))}")
        return Made(output, None)
    return WRITERS[loss](model, declared, writer)


def _target(model: ModelProto, writer: Writer, dtype: np.dtype[np.generic], shape: tuple[int | str | None, ...]) -> str:
    name = writer.names.fresh("target")
    writer.know(name, dtype, shape)
    model.graph.input.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtype), shape))
    return name


def _softmax_cross_entropy(model: ModelProto, output: Declared, writer: Writer) -> Made:
    if output.shape is None or len(output.shape) < 2:
        raise GraphError(f"loss='softmax_cross_entropy' needs an output of shape [batch, classes, ...]; "
                         f"{output.name!r} is {output}")
    target = _target(model, writer, np.dtype(np.int64), (output.shape[0], *output.shape[2:]))
    value = writer.add("SoftmaxCrossEntropyLoss", writer.value(output.name), writer.value(target), reduction="mean")
    return _named(value, output, writer, target)


def _mse(model: ModelProto, output: Declared, writer: Writer) -> Made:
    if output.shape is None or output.dtype is None:
        raise GraphError(f"loss='mse' needs an output of known rank; inference finds no shape of {output.name!r}")
    target = _target(model, writer, output.dtype, output.shape)
    difference = writer.value(output.name) - writer.value(target)
    return _named((difference * difference).mean(None, keepdims=False), output, writer, target)


def _named(value: Value, output: Declared, writer: Writer, target: str) -> Made:
    assert output.dtype is not None
    loss = writer.names.fresh("loss")
    writer.named(value, loss)
    writer.know(loss, output.dtype, ())
    return Made(loss, target)


WRITERS: dict[str, Callable[[ModelProto, Declared, Writer], Made]] = {
    "softmax_cross_entropy": _softmax_cross_entropy, "mse": _mse}
