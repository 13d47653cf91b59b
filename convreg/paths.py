"""Paths that callers name, before anything is read from or written to them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .errors import GraphError, shorten


def path_of(value: Any) -> Path:
    """Return what a caller gave as a path.

    Raises
    ------
    GraphError
        If it is no path of text, or is empty.
    """
    if isinstance(value, str) and not value:
        raise GraphError("the path '' is empty; allowed: the path of a file")
    try:
        return Path(value)
    except Exception as error:  # __fspath__ of foreign objects may raise anything
        raise GraphError(f"the path {shorten(value)} is a {type(value).__name__}; allowed: a str or an os.PathLike of "
                         "text") from error
