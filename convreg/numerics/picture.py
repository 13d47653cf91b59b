"""The picture of comparisons: signal-to-noise ratios, and gradients in the ranges of the formats."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, log2
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from ..errors import Asking
from ..formats import formats
from ..presentation import PLOT_FORMATS, require_matplotlib, save_picture
from .arguments import name_of
from .metrics import Binades

if TYPE_CHECKING:
    from .results import Comparison, Row

PLAIN, SCALED, RANGE, DENSITY = "#9ecae1", "#08519c", "#636363", "#fdae6b"


def draw(comparisons: Mapping[str, Comparison], file: str | BinaryIO, format: str | None) -> None:
    """Draw comparisons, by title, into a file that was checked.

    Raises
    ------
    GraphError
        If matplotlib is not installed, or the file cannot be written.
    """
    require_matplotlib("demo")
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    low, high = _limits([binades for found in comparisons.values() for binades in found.exact.values()])
    panels = [(title, found, output) for title, found in comparisons.items() for output in found.exact]
    counts = [len(_names(found)) for _, found, _ in panels]
    heights = [0.9 + 0.36 * count for count in counts]
    figure = Figure(figsize=(9.5, sum(heights) + 0.7), layout="constrained")
    grid = figure.subplots(len(panels), 2, squeeze=False, gridspec_kw={"height_ratios": heights})
    for (title, found, output), (ratios, ranges) in zip(panels, grid, strict=True):
        _draw_ratios(ratios, found, output)
        _draw_ranges(ranges, found, output)
        ranges.set_xlim(low, high)
        ratios.set_title(f"{title}: {output}" if len(comparisons) > 1 else output, loc="left", fontsize=10,
                         parse_math=False)
    grid[-1][0].set_xlabel("signal-to-noise ratio against float64 (dB)")
    grid[-1][1].set_xlabel("binary exponent of the magnitude")
    handles = [Patch(color=PLAIN, label="operands and result unscaled"),
               Patch(color=SCALED, label="best power-of-two scales"),
               Patch(color=DENSITY, label="magnitudes of the exact gradient"),
               Patch(color=RANGE, label="range of a format (thin: subnormal)")]
    if not any(row.scaled for found in comparisons.values() for row in found.rows):
        del handles[1]
    figure.legend(handles=handles, ncols=len(handles), fontsize=8, frameon=False, loc="outside upper center")
    save_picture(figure, file, format)


def check_target(ask: Asking, file: Any, format: Any) -> None:
    """Refuse what is no file and no format of pictures."""
    path = isinstance(file, str | PathLike)
    if not path and not callable(getattr(type(file), "write", None)):
        raise ask.refuse("file", file, "a path or a binary file", wrong_type=True)
    if path and (not str(file) or "\0" in str(file)):
        raise ask.refuse("file", file, "a path, which is not empty and has no NUL")
    if format is not None or (path and Path(file).suffix):
        name_of(ask, "format", Path(file).suffix[1:].lower() if format is None else format, PLOT_FORMATS)


def _names(found: Comparison) -> list[str]:
    return list(dict.fromkeys(row.format for row in found.rows))


def _draw_ratios(axes: Any, found: Comparison, output: str) -> None:
    names = _names(found)
    rows = [row for row in found.rows if row.output == output]
    finite = [row.error.snr_db for row in rows if abs(row.error.snr_db) < inf]
    longest = max([1.0, *finite])
    several = any(row.scaled for row in rows)
    for row in rows:
        place = names.index(row.format) + ((0.2 if row.scaled else -0.2) if several else 0)
        length = longest if row.error.snr_db == inf else max(row.error.snr_db, 0.0)
        axes.barh(place, length, 0.38 if several else 0.7, color=SCALED if row.scaled else PLAIN)
        axes.text(length + 0.015 * longest, place, _label(row), va="center", fontsize=7.5)
    axes.set_yticks(range(len(names)), names, fontsize=8.5)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlim(0, 1.3 * longest)
    _plain_frame(axes)


def _label(row: Row) -> str:
    if row.error.snr_db == -inf:
        return f"overflow ({100 * row.saturated:.2g} % of the elements)"
    text = "exact" if row.error.snr_db == inf else f"{row.error.snr_db:.1f}"
    if row.flushed > 0.0005:
        text += f", {100 * row.flushed:.2g} % zero"
    return text + (f", {100 * row.saturated:.2g} % too large" if row.saturated else "")


def _draw_ranges(axes: Any, found: Comparison, output: str) -> None:
    records, exact = formats(), found.exact[output]
    names = list(dict.fromkeys(row.result for row in found.rows if row.output == output))
    for place, name in enumerate(names):
        record = records[name]
        top = log2(record.largest)
        axes.hlines(place, log2(record.smallest), top, color=RANGE, linewidth=1)
        axes.hlines(place, log2(record.smallest_normal), top, color=RANGE, linewidth=5)
    total, tallest = sum(exact.counts.values()) or 1, max(exact.counts.values(), default=1)
    floor, space = len(names) + 1.4, 1.7
    axes.bar([exponent + 0.5 for exponent in exact.counts],
             [-space * count / tallest for count in exact.counts.values()], 1.0, floor, color=DENSITY)
    for exponent, count in exact.counts.items():
        if count == tallest:
            axes.text(exponent + 1.3, floor - space, f"{tallest / total:.0%} in [2^{exponent}, 2^{exponent + 1})",
                      va="top", fontsize=7.5)
            break
    axes.set_yticks(range(len(names)), names, fontsize=8.5)
    axes.set_ylim(floor, -0.5)
    _plain_frame(axes)


def _limits(gradients: list[Binades]) -> tuple[int, int]:
    """Return the exponents to show: all gradients, and all numbers of the 8-bit formats."""
    exponents = [exponent for binades in gradients for exponent in binades.counts]
    return min([-24, *exponents]) - 2, max([16, *exponents]) + 2


def _plain_frame(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)
    axes.tick_params(axis="x", labelsize=8)
