"""What an observation has recorded: tables, JSON and pictures."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from math import isnan
from os import PathLike
from statistics import median_low
from typing import Any, BinaryIO

import numpy as np

from .. import __version__
from ..errors import Asking, GraphError, UnknownOp
from ..files import write_atomically
from ..guard import guarded
from ..numerics.picture import check_target
from ..presentation import aligned, json_value, markdown_table, percent
from . import observed_picture
from .measuring import Record
from .recipes import TENSORS

ASK = Asking("convreg::torch.observe")

_HEADER = ["layer", "tensor", "format", "steps", "SNR dB", "worst dB", "flushed", "saturated", "largest", "scaled by",
           "best scale"]


class Observed:
    """Records of an observation. It prints as a table.

    Attributes
    ----------
    module : str
        The class of the observed module.
    every : int
        Which steps were recorded: those whose number it divides.
    """

    def __init__(self, module: str, every: int, records: Iterable[Record] = ()) -> None:
        self.module, self.every = module, every
        self._records = list(records)

    @property
    def records(self) -> tuple[Record, ...]:
        """All records in the order in which they were made."""
        return tuple(self._records)

    @property
    def layers(self) -> tuple[str, ...]:
        """The layers that have records, in the order of their first calls."""
        return tuple(dict.fromkeys(record.layer for record in self._records))

    def __len__(self) -> int:
        """The number of records."""
        return len(self._records)

    @guarded("convreg::torch.observe")
    def select(
        self, *, layer: str | None = None, tensor: str | None = None, step: int | None = None
    ) -> tuple[Record, ...]:
        """Return the records of a layer, a tensor, a step, or of several of these.

        Raises
        ------
        UnknownOp
            If there is no record of such a layer, or no such tensor.
        OpTypeError
            If `layer` or `tensor` is no text, or `step` is not an integer.
        """
        for what, name, known in (("layer", layer, self.layers), ("tensor", tensor, TENSORS)):
            if not isinstance(name, str | None):
                raise ASK.refuse(what, name, " or ".join(map(repr, known)), wrong_type=True)
            if name is not None and name not in known:
                raise UnknownOp(name, known, what=what)
        if step is not None and (isinstance(step, bool) or not isinstance(step, int | np.integer)):
            raise ASK.refuse("step", step, "an integer", wrong_type=True)
        return tuple(record for record in self._records if layer in (None, record.layer)
                     and tensor in (None, record.tensor) and step in (None, record.step))

    @guarded("convreg::torch.observe")
    def table(self, *, markdown: bool = False) -> str:
        """Return a line for each layer and tensor, as a text or Markdown table.

        The signal-to-noise ratio is the median over all calls, and the lowest of all; shares and the largest magnitude
        are the largest of all calls; scales are powers of two, those of the last call.
        """
        if not self._records:
            return f"{self.module}: no records"
        cells = [_HEADER]
        for records in self._by_tensor():
            last = records[-1]
            ratios = [record.snr_db for record in records if not isnan(record.snr_db)]
            cells.append([
                last.layer or "(the module)", titled(last), last.format or "as it is",
                str(len({record.step for record in records})), _decibels(median_low(ratios)) if ratios else "nan",
                _decibels(min(ratios)) if ratios else "nan", percent(max(record.flushed for record in records)),
                percent(max(record.saturated for record in records)),
                f"{max(record.largest for record in records):.3g}",
                "channel" if last.exponent is None else _power(last.exponent),
                "-" if last.best_exponent is None else _power(last.best_exponent)])
        return "\n".join((markdown_table if markdown else aligned)(cells, words=3))

    def _by_tensor(self) -> Iterator[list[Record]]:
        """Yield the records of each layer and tensor, layers in the order of their calls."""
        groups: dict[tuple[str, str, str], list[Record]] = {}
        for record in self._records:
            groups.setdefault((record.layer, record.tensor, record.product), []).append(record)
        layers = self.layers
        for key in sorted(groups, key=lambda key: (layers.index(key[0]), TENSORS.index(key[1]), key[2])):
            yield groups[key]

    def __str__(self) -> str:
        """Return the table."""
        return self.table()

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON can hold it: infinities and NaN become the strings that `float` reads."""
        return {"convreg": __version__, "module": self.module, "every": self.every,
                "records": [json_value(asdict(record)) for record in self._records]}

    def to_json(self) -> str:
        """Return everything as JSON."""
        return json.dumps(self.to_dict(), indent=1, allow_nan=False)

    @guarded("convreg::torch.observe")
    def save(self, path: str | PathLike[str]) -> None:
        """Write everything to a JSON file.

        Raises
        ------
        OpTypeError
            If `path` is not one.
        GraphError
            If the file cannot be written.
        """
        if not isinstance(path, str | PathLike):
            raise ASK.refuse("path", path, "a path", wrong_type=True)
        text = self.to_json()
        write_atomically(path, lambda file: file.write(text.encode()))

    @guarded("convreg::torch.observe")
    def plot(self, file: str | PathLike[str] | BinaryIO, format: str | None = None) -> None:
        """Draw what every layer lost in every recorded step.

        Each tensor has two panels with one line per layer and one column per step: the signal-to-noise ratio, and the
        share of numbers that became zero. A red dot marks steps with numbers that were too large.

        Parameters
        ----------
        file : path or binary file
        format : str, optional
            ``"png"``, ``"svg"`` or ``"pdf"``; by default as the path ends.

        Raises
        ------
        OpError, OpTypeError
            If an argument is refused.
        GraphError
            If matplotlib is not installed, nothing was recorded, or the file cannot be written.
        """
        check_target(ASK, file, format)
        if not self._records:
            raise GraphError(f"{self.module}: nothing was recorded that could be drawn")
        groups: dict[str, list[Record]] = {}
        for name in TENSORS:
            for record in self._records:
                if record.tensor == name:
                    groups.setdefault(titled(record), []).append(record)
        observed_picture.draw(groups, self.layers, file, format)


def titled(record: Record) -> str:
    """Return the name of a record's tensor, and of the product if it is rounded for each by itself."""
    return f"{record.tensor} for {record.product}" if record.product else record.tensor


def _decibels(ratio: float) -> str:
    return "exact" if ratio == float("inf") else f"{ratio:.1f}"


def _power(exponent: int) -> str:
    return f"2^{exponent}" if exponent else "1"
