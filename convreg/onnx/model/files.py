"""Models from untrusted sources: read with external data, and refused where onnx itself would fail on them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, SparseTensorProto, TensorProto, TensorShapeProto
from onnx.serialization import registry as formats

from ... import registry
from ...errors import GraphError, shorten
from ...guard import guarded
from ...paths import path_of
from .. import payload
from ..graph import Message, flattened, has_broken_text, messages_of, place, sentence, tensors_of
from ..limits import ADDED_BYTES, PROTOBUF_BYTES
from ..schema.onnx_faults import check_node
from ..schema.schemas import know_nodes
from .expansion import check_expansion
from .normal_form import in_normal_form
from .tensor_data import ExternalData, check_tensor, dense_bytes

Source = ModelProto | str | os.PathLike[str]


@guarded("convreg::onnx")
def load(path: str | os.PathLike[str]) -> ModelProto:
    """Read a model with its external data.

    Parameters
    ----------
    path : path
        An ONNX file. External data is read from the file's folder only.

    Returns
    -------
    onnx.ModelProto
        With all tensors in memory.

    Raises
    ------
    GraphError
        If the file is not an ONNX model, or its external data is outside the folder (absolute, through ``..`` or
        through a link), is missing, or has another length than its tensor.
    """
    file = _file(path)
    try:
        model = onnx.load_model(str(file), load_external_data=False)
    except Exception as error:  # the reader's own, protobuf's, or the operating system's
        raise GraphError(f"{file}: not a readable ONNX model ({_why(file, error)})") from error
    if not model.ir_version or not model.HasField("graph") or any(map(has_broken_text, messages_of(model))):
        raise GraphError(f"{file}: not an ONNX model")
    data = ExternalData(file.parent)
    for tensor in tensors_of(model):
        if tensor.data_location == TensorProto.EXTERNAL:
            data.read(tensor)
    return model


def _why(file: Path, error: Exception) -> str:
    """What is wrong with a file; protobuf's readers say nothing of use about files of other frameworks."""
    if isinstance(error, OSError):
        return sentence(error)
    with file.open("rb") as content:
        start = content.read(4096).lstrip()
    if start.startswith(b"<"):
        return "an XML document; `convreg import` reads models of OpenVINO"
    if formats.get_format_from_file_extension(file.suffix) == "json" and start:
        if not start.startswith(b"{"):
            return "the suffix stands for protobuf's JSON form of a model, which is an object with irVersion and graph"
        if b'"irVersion"' not in start:
            return f"the document begins without irVersion; `convreg import` reads graphs of oneDNN: {sentence(error)}"
    return sentence(error)


def _file(path: Any) -> Path:
    """The file that a path names, which protobuf can read whole."""
    file = path_of(path)
    try:
        if not file.is_file():
            raise GraphError(f"{file}: {'not a regular file' if file.exists() else 'no such file'}")
        size = file.stat().st_size
    except GraphError:
        raise
    except (OSError, RuntimeError, ValueError) as error:  # a name that is too long, a NUL, a circle of links
        raise GraphError(f"{shorten(str(file))}: cannot be read ({sentence(error)})") from error
    if formats.get_format_from_file_extension(file.suffix) == "onnxtxt":
        raise GraphError(f"{file}: onnx's own text format is refused, because its reader crashes on deep "
                         "nesting; allowed: binary models (.onnx), and protobuf's JSON and text formats")
    if size > PROTOBUF_BYTES:
        raise GraphError(f"{file}: the file has {size} bytes; an ONNX file has at most {PROTOBUF_BYTES}")
    return file


def opened(source: Source) -> ModelProto:
    """Return the model itself or the one in a file, in normal form, with its operators made known to onnx.

    Raises
    ------
    GraphError
        If the source is no model, or holds what `load` refuses: broken text, tensors without or with other data than
        their dims say, functions that call themselves or grow beyond `limits` when they are inlined.
    """
    if isinstance(source, str | os.PathLike):
        source = load(source)
    if not isinstance(source, ModelProto):
        raise GraphError(f"a model is an onnx.ModelProto or a path, not {type(source).__name__}")
    if not source.HasField("graph"):
        raise GraphError("the model has no graph")
    check_messages(source)
    check_expansion(source)
    source = in_normal_form(source)
    know_nodes(source)
    _check_outputs(source.graph)
    _check_mirrors(source.graph)
    return source


def opened_flat(source: Source) -> ModelProto:
    """Return what `opened` returns with local functions inlined; what stood in them is checked where it stands then.

    Raises
    ------
    GraphError
        As `opened`.
    """
    model = opened(source)
    flat = flattened(model)
    return model if flat is model else opened(flat)


def check_messages(root: Message) -> None:
    """Refuse what is wrong in itself, wherever it stands in a message.

    Raises
    ------
    GraphError
        It says what is wrong.
    """
    dense = 0
    for message in messages_of(root):
        if has_broken_text(message):
            raise GraphError(f"a {type(message).__name__} of the model holds text that is not UTF-8")
        if isinstance(message, TensorProto):
            check_tensor(message)
        if isinstance(message, TensorShapeProto.Dimension) and message.dim_value < 0:
            raise GraphError(f"a declared shape has the extent {message.dim_value}; allowed: none below 0")
        if isinstance(message, NodeProto):
            _check_attributes(message)
            check_node(message)
        if isinstance(message, SparseTensorProto):
            dense += dense_bytes(message)
            if dense > ADDED_BYTES:
                raise GraphError(f"sparse tensor {message.values.name!r}: the sparse tensors so far have {dense} bytes "
                                 f"when written out; allowed: {ADDED_BYTES}")


def _check_attributes(node: NodeProto) -> None:
    """Refuse an attribute that is stated twice, where readers differ in which one holds, or has no type."""
    seen = set()
    for attribute in node.attribute:
        if attribute.name in seen:
            raise GraphError(f"{place(node)}: attribute {shorten(attribute.name)} is stated twice")
        if attribute.type == AttributeProto.UNDEFINED:
            raise GraphError(f"{place(node)}: attribute {shorten(attribute.name)} has no type that onnx knows")
        seen.add(attribute.name)


def _check_outputs(graph: GraphProto) -> None:
    """Refuse outputs that nothing makes."""
    made = {name for node in graph.node for name in node.output if name}
    made.update(value.name for value in (*graph.input, *graph.initializer))
    made.update(sparse.values.name for sparse in graph.sparse_initializer)
    for value in graph.output:
        if value.name not in made:
            raise GraphError(f"no node makes the output {value.name!r}")


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
