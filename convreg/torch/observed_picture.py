"""The picture of an observation: layers by steps, coloured by signal-to-noise ratio and by the share of zeros."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from os import PathLike
from typing import BinaryIO

import numpy as np

from ..errors import shorten
from ..memory import Array
from ..presentation import require_matplotlib, save_picture
from .measuring import Record

MOST_COLUMNS = 240
"""More recorded steps than that share columns."""
MOST_LABELS = 36
"""Of more layers than that only some are named."""


def draw(
    groups: Mapping[str, Sequence[Record]], layers: Sequence[str], file: str | PathLike[str] | BinaryIO,
    format: str | None,
) -> None:
    """Draw records by the title of their tensor into a file that was checked.

    Raises
    ------
    GraphError
        If matplotlib is not installed, or the file cannot be written.
    """
    require_matplotlib("demo")
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    steps = sorted({record.step for records in groups.values() for record in records})
    wide = ceil(len(steps) / MOST_COLUMNS)
    columns = {step: index // wide for index, step in enumerate(steps)}
    first = steps[::wide]
    tables = {title: _tables(records, layers, columns, len(first)) for title, records in groups.items()}
    finite = np.concatenate([ratios[np.isfinite(ratios)] for ratios, _, _ in tables.values()])
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    flushed = max(float(np.nanmax(zeros, initial=0.0)) for _, zeros, _ in tables.values())

    tall = min(7.0, max(1.5, 0.2 * len(layers) + 0.7))
    figure = Figure(figsize=(11.0, tall * len(tables) + 0.6), layout="constrained")
    grid = figure.subplots(len(tables), 2, squeeze=False, sharex=True)
    viridis = colormaps["viridis"].with_extremes(over="white", under="red", bad="lightgrey")
    reds = colormaps["YlOrRd"].with_extremes(bad="lightgrey")
    for (title, (ratios, zeros, large)), (left, right) in zip(tables.items(), grid, strict=True):
        shown = np.where(np.isnan(ratios), np.nan, np.clip(ratios, low - 1e9, high + 1e9))
        image = left.imshow(shown, viridis, aspect="auto", interpolation="nearest", vmin=low, vmax=max(high, low + 1))
        share = right.imshow(100 * zeros, reds, aspect="auto", interpolation="nearest", vmin=0,
                             vmax=max(100 * flushed, 0.1))
        rows, places = np.nonzero(large)
        right.scatter(places, rows, s=9, color="red", linewidths=0)
        left.set_title(f"{title}: signal-to-noise ratio (dB)", fontsize=9, loc="left", parse_math=False)
        right.set_title(f"{title}: became zero (%)", fontsize=9, loc="left", parse_math=False)
        figure.colorbar(image, ax=left, extend="both", pad=0.01)
        figure.colorbar(share, ax=right, pad=0.01)
        every = ceil(len(layers) / MOST_LABELS)
        names = [shorten(layer or "(the module)", 40).strip("'") for layer in layers[::every]]
        left.set_yticks(range(0, len(layers), every), names, fontsize=7, parse_math=False)
        right.set_yticks([])
    for axes in grid[-1]:
        axes.set_xlabel("step", fontsize=9)
        marks = np.unique(np.linspace(0, len(first) - 1, min(8, len(first))).astype(int))
        axes.set_xticks(marks, [str(first[mark]) for mark in marks], fontsize=7)
    figure.suptitle("white: exact; red: numbers too large for the format; grey: not recorded", fontsize=8)
    save_picture(figure, file, format)


def _tables(
    records: Sequence[Record], layers: Sequence[str], columns: Mapping[int, int], count: int
) -> tuple[Array, Array, Array]:
    """Return ratios, shares of zeros, and where numbers are too large, by layer and column; NaN without a record."""
    places = {layer: row for row, layer in enumerate(layers)}
    cells: dict[tuple[int, int], list[Record]] = {}
    for record in records:
        cells.setdefault((places[record.layer], columns[record.step]), []).append(record)
    ratios, zeros = (np.full((len(layers), count), np.nan) for _ in range(2))
    large = np.zeros((len(layers), count), bool)
    for place, held in cells.items():
        known = sorted(record.snr_db for record in held if not np.isnan(record.snr_db))
        if known:
            ratios[place] = known[(len(known) - 1) // 2]
        zeros[place] = max(record.flushed for record in held)
        large[place] = any(record.saturated for record in held)
    return ratios, zeros, large
