"""One spelling of what models may write in two: the domain of standard ONNX, and tensors that are mostly zeros."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    SparseTensorProto,
    TensorProto,
    checker,
    numpy_helper,
)

from ...errors import GraphError, shorten
from ..graph import Message, messages_of, sentence
from .tensor_data import array_of

ALIAS = "ai.onnx"
"""The long name of the domain of standard ONNX, whose usual name is empty."""


def in_normal_form(model: ModelProto) -> ModelProto:
    """Return a model in the spelling that all executors read; itself where nothing changes.

    The domain ``ai.onnx`` gets its usual name. Sparse initializers and the sparse values of Constant nodes become
    dense tensors.

    Parameters
    ----------
    model : onnx.ModelProto
        With sparse tensors whose size was checked.

    Returns
    -------
    onnx.ModelProto

    Raises
    ------
    GraphError
        If a model or a function imports two versions of standard ONNX, or a sparse tensor contradicts itself.
    """
    if not any(map(_is_spelled_otherwise, messages_of(model))):
        return model
    changed = ModelProto()
    changed.CopyFrom(model)
    for message in messages_of(changed):
        if isinstance(message, ModelProto | FunctionProto):
            _import_once(message)
        if isinstance(message, NodeProto | FunctionProto) and message.domain == ALIAS:
            message.domain = ""
        if isinstance(message, GraphProto):
            _write_out_initializers(message)
        if isinstance(message, NodeProto):
            _write_out(message)
    return changed


def dense(sparse: SparseTensorProto) -> TensorProto:
    """Return a sparse tensor written out, under the name of its values.

    Raises
    ------
    GraphError
        If its parts contradict each other, or it holds strings.
    """
    where = f"sparse tensor {sparse.values.name!r}"
    if sparse.values.data_type == TensorProto.STRING:
        raise GraphError(f"{where} holds strings; allowed: numbers")
    try:
        checker.check_sparse_tensor(sparse)
        values, indices = array_of(sparse.values), array_of(sparse.indices)
        array: np.ndarray[Any, Any] = np.zeros(tuple(sparse.dims), values.dtype)
    except Exception as error:  # the checker's own, what it meets in damaged messages, or NumPy's for too many axes
        raise GraphError(f"{where}: {sentence(error)}") from error
    if indices.ndim == 1:
        array.reshape(-1)[indices] = values
    else:
        array[tuple(indices.T)] = values
    return numpy_helper.from_array(array, sparse.values.name)


def _is_spelled_otherwise(message: Message) -> bool:
    if isinstance(message, ModelProto | FunctionProto) and any(entry.domain == ALIAS for entry in message.opset_import):
        return True
    if isinstance(message, NodeProto | FunctionProto) and message.domain == ALIAS:
        return True
    return isinstance(message, SparseTensorProto)


def _import_once(holder: ModelProto | FunctionProto) -> None:
    """Import standard ONNX by its usual name, and once."""
    standard = [entry.version for entry in holder.opset_import if entry.domain in ("", ALIAS)]
    if len({*standard}) > 1:
        what = f"function {holder.domain}::{holder.name}" if isinstance(holder, FunctionProto) else "the model"
        raise GraphError(f"{what} imports versions {' and '.join(map(str, standard))} of standard ONNX, by its names "
                         f"'' and {ALIAS!r}; allowed: one version")
    others = [entry for entry in holder.opset_import if entry.domain not in ("", ALIAS)]
    del holder.opset_import[:]
    for version in standard[:1]:
        holder.opset_import.add(domain="", version=version)
    holder.opset_import.extend(others)


def _write_out_initializers(graph: GraphProto) -> None:
    """Make the sparse initializers of a graph dense ones."""
    names = {tensor.name for tensor in graph.initializer}
    for sparse in graph.sparse_initializer:
        if sparse.values.name in names:
            raise GraphError(f"two initializers have the name {shorten(sparse.values.name)}; allowed: one")
        names.add(sparse.values.name)
        graph.initializer.append(dense(sparse))
    graph.ClearField("sparse_initializer")


def _write_out(node: NodeProto) -> None:
    """Let a Constant hold its sparse value as a dense one."""
    for attribute in node.attribute if (node.domain, node.op_type) == ("", "Constant") else ():
        if attribute.name == "sparse_value" and attribute.HasField("sparse_tensor"):
            value = dense(attribute.sparse_tensor)
            attribute.Clear()
            attribute.name, attribute.type = "value", AttributeProto.TENSOR
            attribute.t.CopyFrom(value)
