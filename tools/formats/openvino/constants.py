"""The bin file of an OpenVINO model: the bytes that its constants name, and no other file's."""

from __future__ import annotations

from pathlib import Path

from convreg import GraphError
from convreg.files import PathLike, reading, reason, size_of
from convreg.onnx.limits import PROTOBUF_BYTES, Shared
from convreg.paths import path_of


def refuse_link(xml_path: PathLike) -> Path:
    """Return the bin file beside an XML file.

    Raises
    ------
    GraphError
        If it is a link that leads out of the folder.
    """
    path = path_of(xml_path).with_suffix(".bin")
    try:
        if not path.resolve().is_relative_to(path.parent.resolve()):
            raise GraphError(f"{path} is a link that leads out of the model's folder; allowed: a file of the folder, "
                             "or one that is named explicitly")
    except GraphError:
        raise
    except (OSError, RuntimeError, ValueError) as error:  # links that form a circle, a NUL
        raise GraphError(f"{path}: cannot be read: {reason(error)}") from None
    return path


class Constants:
    """A bin file, of which only the bytes of constants are read."""

    def __init__(self, path: PathLike) -> None:
        self._path = path_of(path)
        self._shared = Shared(PROTOBUF_BYTES)

    def slice(self, offset: int, size: int) -> bytes:
        """Return `size` bytes from `offset`.

        Raises
        ------
        GraphError
            If they lie outside the file, or all slices so far are far more than the file or than an ONNX file holds.
        """
        if not size and offset >= 0:
            return b""
        with reading(self._path) as file:
            held = size_of(file)
            if offset < 0 or offset + size > held:
                raise GraphError(f"bytes {offset} to {offset + size} lie outside {self._path}, which has {held}")
            self._shared.take(str(self._path), held, size, str(self._path))
            file.seek(offset)
            return file.read(size)
