"""How reports are shown: JSON, tables, and pictures with matplotlib where that is installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

from .errors import GraphError
from .files import refuse_unwritable

PLOT_FORMATS = ("png", "svg", "pdf")


def json_value(value: Any) -> Any:
    """Return a value as JSON can hold it: infinities and NaN become the strings that `float` reads."""
    if isinstance(value, Mapping):
        return {str(name): json_value(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(entry) for entry in value]
    return str(value) if isinstance(value, float) and not isfinite(value) else value


def aligned(cells: Sequence[Sequence[str]], words: int = 1) -> list[str]:
    """Return the lines of a table, a rule below the first; the first `words` columns are flush left, numbers right."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(cell.ljust(width) if place < words else cell.rjust(width)
                       for place, (cell, width) in enumerate(zip(line, widths, strict=True))).rstrip()
             for line in cells]
    return [lines[0], "-" * len(lines[0]), *lines[1:]]


def markdown_table(cells: Sequence[Sequence[str]], words: int = 1) -> list[str]:
    """Return the lines of a Markdown table whose first `words` columns are flush left."""
    head, *body = ("| " + " | ".join(line) + " |" for line in cells)
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
