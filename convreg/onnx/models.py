"""Models read from files that nobody vouches for, and checked by onnx together with our declarations."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, numpy_helper, shape_inference

from .. import registry
from ..errors import GraphError, OpError
from . import payload
from .execution import place, sentence
from .inference import dtype_of
from .schemas import know_nodes, nodes_of

PACKED = {"INT4": 4, "UINT4": 4, "FLOAT4E2M1": 4, "INT2": 2, "UINT2": 2}
"""Bits of the element types that share bytes in a file, though not in an array."""

Source = ModelProto | str | os.PathLike[str]


def load(path: str | os.PathLike[str]) -> ModelProto:
    """Read a model with its external data.

    Parameters
    ----------
    path : path
        An ONNX file; external data is taken from the file's folder and nowhere else.

    Returns
    -------
    onnx.ModelProto
        With all tensors in memory.

    Raises
    ------
    GraphError
        If the file is no ONNX model, or its external data lies outside the folder (absolute, through ``..`` or through
        a link), is missing, or is not as long as its tensor.
    """
    file = Path(path)
    if not file.is_file():
        raise GraphError(f"{file}: no such file")
    try:
        model = onnx.load_model(str(file), load_external_data=False)
    except Exception as error:  # the reader's own, protobuf's, or the operating system's
        raise GraphError(f"{file}: not a readable ONNX model ({sentence(error)})") from error
    if not model.ir_version or not model.HasField("graph") or has_broken_text(model):
        raise GraphError(f"{file}: not an ONNX model")
    folder = file.parent.resolve()
    for tensor in tensors_of(model):
        if tensor.data_location == TensorProto.EXTERNAL:
            _read_external(tensor, folder)
    return model


def opened(source: Source) -> ModelProto:
    """Return the model itself or the one in a file, with its operators made known to onnx."""
    if isinstance(source, str | os.PathLike):
        source = load(source)
    if not isinstance(source, ModelProto):
        raise GraphError(f"a model is an onnx.ModelProto or a path, not {type(source).__name__}")
    for tensor in tensors_of(source):
        if tensor.data_location == TensorProto.EXTERNAL:
            raise GraphError(f"tensor {tensor.name!r} has external data that is not loaded; "
                             "convreg.onnx.load(path) reads a model with it")
        if any(extent < 0 for extent in tensor.dims):
            raise GraphError(f"tensor {tensor.name!r} has dims {list(tensor.dims)}; allowed: no negative extent")
    know_nodes(source)
    _check_mirrors(source.graph)
    return source


def _check_mirrors(graph: GraphProto) -> None:
    """Refuse metadata that contradicts the nodes about codes which travel as bytes."""
    said = payload.mirrors([*graph.input, *graph.output, *graph.value_info, *graph.initializer])
    for node in graph.node:
        operator = registry.find_node(node.domain, node.op_type)
        if operator is None or not payload.may_carry(operator.spec):
            continue
        stated = next((list(proto.strings) for proto in node.attribute if proto.name == payload.ATTRIBUTE), [])
        for index, name in enumerate(node.input):
            own = stated[index].decode("utf-8", "replace") if index < len(stated) else ""
            other = said.get(name, own)
            if other != own and (payload.is_carried(own) or payload.is_carried(other)):
                raise GraphError(f"{place(node)}: {payload.ATTRIBUTE} has {own!r} for the input {name!r}, whose "
                                 f"metadata {payload.MIRROR} says {other!r}")


def array_of(tensor: TensorProto) -> np.ndarray[Any, np.dtype[Any]]:
    """Return a tensor's values."""
    try:
        return numpy_helper.to_array(tensor)
    except Exception as error:  # whatever NumPy and onnx say of data and dims that disagree
        raise GraphError(f"tensor {tensor.name!r}: {sentence(error)}") from error


def has_broken_text(message: Any) -> bool:
    """Whether a string anywhere is not UTF-8: protobuf then hands out bytes, which nothing further on expects."""
    for field, value in message.ListFields():
        values = value if isinstance(value, Sequence) and not isinstance(value, str | bytes) else [value]
        if field.type == field.TYPE_STRING and any(isinstance(entry, bytes) for entry in values):
            return True
        if field.type == field.TYPE_MESSAGE and any(has_broken_text(entry) for entry in values):
            return True
    return False


def tensors_of(model: ModelProto) -> Iterator[TensorProto]:
    """Yield every tensor of a model: initializers and attributes, in subgraphs and functions too."""
    graphs: list[GraphProto] = [model.graph]
    nodes: list[NodeProto] = list(nodes_of(model))
    for node in nodes:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.TENSOR:
                yield attribute.t
            elif attribute.type == AttributeProto.SPARSE_TENSOR:
                yield from (attribute.sparse_tensor.values, attribute.sparse_tensor.indices)
            elif attribute.type == AttributeProto.GRAPH:
                graphs.append(attribute.g)
            yield from attribute.tensors
            graphs.extend(attribute.graphs)
    for graph in graphs:
        yield from graph.initializer
        for sparse in graph.sparse_initializer:
            yield from (sparse.values, sparse.indices)


def _read_external(tensor: TensorProto, folder: Path) -> None:
    """Move a tensor's external data into it."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    where = f"tensor {tensor.name!r}: external data {location!r}"
    if not location or Path(location).is_absolute() or ".." in Path(location).parts or "\\" in location:
        raise GraphError(f"{where} is refused; allowed: a relative path inside the model's folder")
    data = (folder / location).resolve()
    if not data.is_relative_to(folder):
        raise GraphError(f"{where} is refused; it leads out of the model's folder")
    if not data.is_file():
        raise GraphError(f"{where} is missing")
    offset, length = (_count(where, entries, key) for key in ("offset", "length"))
    expected = _bytes_of(where, tensor)
    if length not in (None, expected):
        raise GraphError(f"{where} claims {length} bytes; a tensor of {list(tensor.dims)} has {expected}")
    if (offset or 0) + expected > data.stat().st_size:
        raise GraphError(f"{where} has {data.stat().st_size} bytes; the tensor ends at {(offset or 0) + expected}")
    with data.open("rb") as stream:
        stream.seek(offset or 0)
        tensor.raw_data = stream.read(expected)
    del tensor.external_data[:]
    tensor.data_location = TensorProto.DEFAULT


def _count(where: str, entries: dict[str, str], key: str) -> int | None:
    text = entries.get(key)
    if text is not None and not (text.isascii() and text.isdecimal()):
        raise GraphError(f"{where} has {key}={text!r}; allowed: a number of bytes")
    return None if text is None else int(text)


def _bytes_of(where: str, tensor: TensorProto) -> int:
    if any(extent < 0 for extent in tensor.dims):
        raise GraphError(f"{where} has dims {list(tensor.dims)}; allowed: no negative extent")
    dtype = dtype_of(tensor.data_type)
    if dtype is None:
        raise GraphError(f"{where} has element type {tensor.data_type}, which onnx does not know")
    if tensor.data_type == TensorProto.STRING:
        raise GraphError(f"{where} holds strings, which have no external form")
    bits = PACKED.get(TensorProto.DataType.Name(tensor.data_type), 8 * dtype.itemsize)
    return -(-prod(tensor.dims) * bits // 8)


def check(source: Source) -> None:
    """Check a model as onnx does with everything switched on, our operators included.

    Standard Conv and ConvTranspose are also judged by the rules that run them, which onnx's checker has not. Two nodes
    of one graph must not have the same name: onnxruntime refuses such a model.

    Parameters
    ----------
    source : onnx.ModelProto or path

    Raises
    ------
    GraphError
        If the structure, a name, a type, an attribute or a declared shape is wrong; carries convreg's or onnx's text.
    """
    from .node_names import check_node_names  # which needs the modules that need this one

    model = opened(source)
    check_node_names(model)
    check_opened(model)


def check_opened(model: ModelProto) -> None:
    """As `check`, for an opened model whose nodes may have equal names: other formats do not carry them."""
    from .standard_check import check_convolutions  # which needs the modules that need this one

    try:
        onnx.checker.check_model(model, full_check=True)
    except Exception as error:
        raise _refusal(error) from error
    check_convolutions(infer_shapes(model).graph)


def infer_shapes(source: Source) -> ModelProto:
    """Return the model with the inferred types and shapes of all values, symbolic shape arithmetic included.

    Parameters
    ----------
    source : onnx.ModelProto or path

    Returns
    -------
    onnx.ModelProto

    Raises
    ------
    GraphError
        If a node refuses its inputs, or a declared type or shape contradicts the inferred one.
    """
    model = opened(source)
    try:
        return shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    except Exception as error:
        raise _refusal(error) from error


def _refusal(error: Exception) -> GraphError:
    """Return one sentence for what onnx or an inference function of ours raised."""
    if isinstance(error, OpError):
        return GraphError(" ".join([str(error), *getattr(error, "__notes__", [])]))
    return GraphError(sentence(error))
