"""Models in and out: the readers of other frameworks' files, and the writer of ONNX files."""

from __future__ import annotations

from onnx import ModelProto

from convreg import GraphError

from .files import PathLike, read_bytes, reason, write_atomically
from .graph_json_import import import_graph_json
from .openvino_import import import_ir

__all__ = ["import_graph_json", "import_ir", "import_model", "save"]


def import_model(path: PathLike, *, bin_path: PathLike | None = None, lenient: bool = False) -> ModelProto:
    """Return the ONNX model of a file whose content tells its format.

    Parameters
    ----------
    path : path-like
        A serialized oneDNN graph (JSON), or the XML file of an OpenVINO IR model with its bin file beside it.
    bin_path : path-like, optional
        As in `import_ir`.
    lenient : bool
        As in `import_graph_json`.

    Returns
    -------
    onnx.ModelProto

    Raises
    ------
    GraphError
        If the file is neither, or is damaged.
    """
    start = read_bytes(path).lstrip(b"\xef\xbb\xbf\xff\xfe\x00 \t\r\n")[:1]
    if start == b"{":
        return import_graph_json(path, lenient=lenient)
    if start == b"<":
        return import_ir(path, bin_path)
    raise GraphError(f"{path}: neither a oneDNN graph (JSON) nor an OpenVINO model (its XML file)")


def save(model: ModelProto, path: PathLike) -> None:
    """Write a model to a file, which appears whole or not at all.

    Raises
    ------
    GraphError
        If the model is too large for one file (2 GiB) or the file cannot be written.
    """
    try:
        content = model.SerializeToString()
    except Exception as error:  # protobuf raises classes of its own
        raise GraphError(f"{path}: the model cannot be written as one file: {reason(error)}") from error
    write_atomically(path, lambda file: file.write(content))
