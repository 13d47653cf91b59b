"""Models in and out: the readers and writers of other frameworks' files, and the writer of ONNX files."""

from __future__ import annotations

from collections import deque

from onnx import ModelProto

from convreg import GraphError
from convreg.errors import shorten
from convreg.files import PathLike, read_bytes, reason, write_atomically
from convreg.guard import guarded
from convreg.onnx.graph import messages_of
from convreg.onnx.model.files import Source
from convreg.paths import path_of

from .formats.graph_json.importer import graph_model, import_graph_json
from .formats.graph_json.writer import export_graph_json
from .formats.openvino.importer import import_ir, ir_model
from .formats.openvino.writer import export_ir

__all__ = ["export_graph_json", "export_ir", "export_model", "import_graph_json", "import_ir", "import_model", "save"]


@guarded("convreg::onnx_io")
def import_model(
    path: PathLike, *, bin_path: PathLike | None = None, lenient: bool = False, reader: str = "standard"
) -> ModelProto:
    """Return the ONNX model of a file. The content of the file determines its format.

    Parameters
    ----------
    path : path-like
        A serialized oneDNN graph (JSON), or the XML file of an OpenVINO IR model with its bin file beside it.
    bin_path : path-like, optional
        As in `import_ir`.
    lenient : bool
        As in `import_graph_json`.
    reader : {"standard", "openvino"}
        As in `import_ir`.

    Returns
    -------
    onnx.ModelProto

    Raises
    ------
    GraphError
        If the file is neither, or is damaged, or if an argument is given that files of its format do not have.
    """
    content = read_bytes(path)
    start = content.lstrip(b"\xef\xbb\xbf\xff\xfe\x00 \t\r\n")[:1]
    is_standard = isinstance(reader, str) and reader == "standard"
    if start == b"{":
        if bin_path is not None:
            raise GraphError(f"{path}: bin_path={shorten(bin_path)} is refused; only OpenVINO models have a bin file")
        if not is_standard:
            raise GraphError(f"{path}: reader={shorten(reader)} is refused; allowed for a oneDNN graph: 'standard'")
        return graph_model(path, content, lenient=lenient)
    if start == b"<":
        if lenient:
            raise GraphError(f"{path}: lenient={shorten(lenient)} is refused; only oneDNN graphs are read leniently")
        return ir_model(path, content, bin_path) if is_standard else import_ir(path, bin_path, reader=reader)
    raise GraphError(f"{path}: neither a oneDNN graph (JSON) nor an OpenVINO model (its XML file)")


@guarded("convreg::onnx_io")
def export_model(source: Source, path: PathLike) -> None:
    """Write a model in the format that the suffix of the file chooses.

    Parameters
    ----------
    source : onnx.ModelProto or path
    path : path-like
        ``.xml`` (OpenVINO, constants beside it as ``.bin``) or ``.json`` (a oneDNN graph).

    Raises
    ------
    GraphError
        If the suffix is unknown, or as in the writer of the format. Nothing is written then.
    """
    suffix = path_of(path).suffix
    if suffix == ".xml":
        export_ir(source, path)
    elif suffix == ".json":
        export_graph_json(source, path)
    else:
        raise GraphError(f"{path}: the suffix names the format: .xml or .json")


@guarded("convreg::onnx_io")
def save(model: ModelProto, path: PathLike) -> None:
    """Write a model to a file. The file is written completely or not at all.

    Parameters
    ----------
    model : onnx.ModelProto
    path : path-like
        The ONNX file.

    Raises
    ------
    GraphError
        If the model is too large for one file (2 GiB) or the file cannot be written.
    """
    if not isinstance(model, ModelProto):
        raise GraphError(f"a model is an onnx.ModelProto, not {type(model).__name__}")
    deque(messages_of(model), maxlen=0)  # which refuses what protobuf would not survive
    try:
        content = model.SerializeToString()
    except Exception as error:  # protobuf raises classes of its own
        raise GraphError(f"{path}: the model cannot be written as one file: {reason(error)}") from error
    write_atomically(path, lambda file: file.write(content))
