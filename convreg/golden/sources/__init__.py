"""Cases of golden vectors from other tools' files: `cases` decides by the content which one it is."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ...errors import GraphError, shorten
from ...files import json_of, read_bytes
from ...guard import guarded
from ...paths import path_of
from ..record import Case
from . import atk, benchdnn, own, ttk
from .own import write_cases

__all__ = ["cases", "write_cases"]

WANTED = ("an ONNX model, a batch file of benchdnn or a descriptor, a CSV table of TTK, a JSON table of ATK, or "
          "convreg's own JSON file of cases")


@guarded("convreg::golden")
def cases(source: Any, *, inputs: Mapping[str, Any] | None = None, deconv: bool = False) -> Iterator[Case]:
    """Return the cases of a file, of a model, or of a benchdnn descriptor.

    Parameters
    ----------
    source : path-like or str or onnx.ModelProto
        The path of an ONNX model, of a batch file of benchdnn, of a CSV table of TTK, of a JSON table of ATK or of a
        JSON file of convreg (`golden.sources.own`); the content decides which one. A text that names no file may be
        benchdnn's options and descriptors; without ``--dir`` they stand for the gradients of data and weights.
    inputs : mapping, optional
        For a model: input name -> array. The model is run, and the cases hold the operands that occur.
    deconv : bool
        For benchdnn: whether descriptors are deconvolutions, as after ``--deconv``.

    Returns
    -------
    iterator of Case
        Each case is read when it is asked for.

    Raises
    ------
    GraphError
        If there is no such file, or it is none of these; later, when a case is asked for that is damaged, contradicts
        itself or states what no operator computes. The message names the file and the place in it.
    """
    if not isinstance(source, str | os.PathLike):
        _refuse_others("the model", inputs=None, deconv=deconv)
        return _of_model(source, "the model", inputs)
    path = path_of(source)
    if not _exists(path):
        if isinstance(source, str) and benchdnn.looks_like_options(source):
            _refuse_others(shorten(source), inputs=inputs, deconv=False)
            return benchdnn.of_text(source, deconv=deconv)
        raise GraphError(f"{shorten(str(source))} is no file and no descriptor; needed: {WANTED}")
    return _of_file(path, inputs, deconv)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name that is too long, or a NUL
        return False


def _of_file(path: Path, inputs: Mapping[str, Any] | None, deconv: bool) -> Iterator[Case]:
    content = read_bytes(path)
    if content.startswith((b"PK\x03\x04", b"\x93NUMPY")):
        raise GraphError(f"{path} is an Excel workbook or an archive of arrays; needed: {WANTED} (a workbook saved as "
                         "CSV; golden vectors are read by convreg.golden.load)")
    start = content.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    is_model = path.suffix.lower() == ".onnx" or b"\0" in content[:4096] or content[:1] in (b"\x08", b"")
    if not content or not (is_model or start):
        raise GraphError(f"{path} is empty; needed: {WANTED}")
    _refuse_others(str(path), inputs=None if is_model else inputs, deconv=False)
    if is_model:
        _refuse_others(str(path), inputs=None, deconv=deconv)
        return _of_model(str(path), str(path), inputs)
    if start in (b"[", b"{"):
        _refuse_others(str(path), inputs=None, deconv=deconv)
        return _of_json(path, content)
    if ttk.is_table(content):
        _refuse_others(str(path), inputs=None, deconv=deconv)
        return ttk.of_table(content, str(path))
    return benchdnn.of_file(path, content, deconv=deconv)


def _of_model(model: Any, file: str, inputs: Mapping[str, Any] | None) -> Iterator[Case]:
    from .model import of_model  # needs onnx

    return of_model(model, file, inputs)


def _of_json(path: Path, content: bytes) -> Iterator[Case]:
    try:
        document = json_of(content.removeprefix(b"\xef\xbb\xbf"))
    except ValueError as error:
        raise GraphError(f"{path}: not a JSON file ({error}); needed: {WANTED}") from None
    if own.is_table(document):
        return own.of_table(document, str(path))
    if atk.is_table(document):
        return atk.of_table(document, str(path))
    raise GraphError(f"{path} is JSON, but holds no cases; needed: a list of ATK's objects with 'aclnn_name' and "
                     f"'inputs', or an object with \"format\": {own.FORMAT!r}")


def _refuse_others(name: str, *, inputs: Any, deconv: bool) -> None:
    """Refuse options that the source has no use for."""
    if inputs is not None:
        raise GraphError(f"inputs= is refused for {name}; needed: an ONNX model")
    if deconv:
        raise GraphError(f"deconv=True is refused for {name}; needed: a batch file of benchdnn or a descriptor")
