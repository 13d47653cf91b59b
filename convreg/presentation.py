"""How reports are shown: JSON, tables, and pictures with matplotlib where that is installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from math import isfinite
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

from .errors import GraphError, printable, shorten
from .files import refuse_unwritable, write_atomically

PLOT_FORMATS = ("png", "svg", "pdf")


def json_value(value: Any) -> Any:
    """Return a value as JSON can hold it: infinities and NaN become the strings that `float` reads."""
    if isinstance(value, Mapping):
        return {str(name): json_value(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(entry) for entry in value]
    return str(value) if isinstance(value, float) and not isfinite(value) else value


def aligned(cells: Sequence[Sequence[str]], words: int = 1) -> list[str]:
    """Return the lines of a table, a rule below the first; the first `words` columns are flush left, numbers right.

    What files choose, such as names of layers, is shown with escapes.
    """
    cells = [[*map(printable, line)] for line in cells]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(cell.ljust(width) if place < words else cell.rjust(width)
                       for place, (cell, width) in enumerate(zip(line, widths, strict=True))).rstrip()
             for line in cells]
    return [lines[0], "-" * len(lines[0]), *lines[1:]]


def markdown_table(cells: Sequence[Sequence[str]], words: int = 1) -> list[str]:
    """Return the lines of a Markdown table whose first `words` columns are flush left; with escapes as `aligned`."""
    head, *body = ("| " + " | ".join(printable(cell).replace("|", "\\|") for cell in line) + " |" for line in cells)
    return [head, "|---" * words + "|" + "---:|" * (len(cells[0]) - words), *body]


def percent(share: float) -> str:
    """Return a share from 0 to 1 as text."""
    if not share:
        return "0"
    return f"{100 * share:.2g}%" if share < 0.0995 else f"{100 * share:.1f}%"


def require_matplotlib(extra: str) -> None:
    """Raise before hours of measuring, not after.

    Raises
    ------
    GraphError
        If matplotlib does not import; it names the extra that brings it.
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise GraphError(
            f"a plot needs matplotlib, which is not installed: pip install 'convreg[{extra}]'") from None


def picture_format(path: str, extra: str, argument: str = "--plot") -> str:
    """Return the format that the file of the option `argument` asks for, before anything is measured.

    Raises
    ------
    GraphError
        If it is none of `PLOT_FORMATS`, the file cannot be written, or matplotlib does not import.
    """
    suffix = Path(path).suffix
    format = suffix.lower().removeprefix(".")
    if format not in PLOT_FORMATS:
        allowed = ", ".join(f".{name}" for name in PLOT_FORMATS)
        has = f"the suffix {suffix!r}" if suffix else "no suffix"
        raise GraphError(f"{argument}={path!r} is refused: it has {has}, "
                         f"and the suffix must name the picture's format; allowed: {allowed}")
    refuse_unwritable(argument, path)
    require_matplotlib(extra)
    return format


def save_picture(figure: Any, file: str | PathLike[str] | BinaryIO, format: str | None) -> None:
    """Write a figure of matplotlib; a path gets the whole picture or none.

    Raises
    ------
    GraphError
        If the file cannot be written.
    """
    if isinstance(file, str | PathLike):
        content = BytesIO()
        figure.savefig(content, format=format or Path(file).suffix[1:].lower() or "png", dpi=100)
        write_atomically(file, lambda stream: stream.write(content.getbuffer()))
        return
    try:
        figure.savefig(file, format=format, dpi=100)
    except (OSError, TypeError, ValueError) as error:  # files of any kind, closed or not binary
        reason = getattr(error, "strerror", None) or shorten(str(error))  # the text of an OSError repeats the path
        raise GraphError(f"the picture {shorten(file)} cannot be written: {reason}") from None
