"""Rows of TTK's tables: their cells by column, read without running anything."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ...errors import GraphError, shorten
from ..record import Operand
from .ascend import ranged, shape_of
from .literals import literal

PRODUCTS = {"Ascend950": "ascend950", "Ascend910B": "atlas-a2", "Ascend910_93": "atlas-a2", "Ascend910": "atlas-910",
            "Ascend910A": "atlas-910", "Ascend310P": "atlas-910"}
"""Conformances by the beginning of the products' names, whose case does not count."""


def rows(text: str, file: str) -> Iterator[list[str]]:
    """Yield the cells of a table's rows, the header first."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        yield from reader
    except csv.Error as error:
        raise GraphError(f"{file}, line {reader.line_num}: {error}; needed: a CSV table of TTK") from None


class Row(NamedTuple):
    """A row's cells by column, and where it stands."""

    fields: Mapping[str, str]
    place: str

    @property
    def name(self) -> str:
        """Name of the case."""
        return self.fields.get("testcase_name", "").strip() or f"auto_testcase_name_{self.place.rpartition(' ')[2]}"

    def where(self, column: str = "") -> str:
        """Words that find a cell."""
        return f"{self.place} ({shorten(self.name)})" + (f", column {column!r}" if column else "")

    def text(self, column: str) -> str:
        """The text of a cell."""
        return self.fields.get(column, "").strip()

    def value(self, column: str, default: Any = None) -> Any:
        """The value of a cell, the default for an empty or missing one."""
        text = self.text(column)
        if not text:
            return default
        try:
            return literal(text)
        except ValueError as error:
            raise GraphError(f"{self.where(column)}: {error}; needed: a Python literal") from None

    def entries(self, column: str, count: int, default: Any = None) -> list[Any]:
        """A cell's tuple with one entry per tensor; a single entry stands for all."""
        value = self.value(column)
        value = (default,) if value is None or value == () else value
        if not isinstance(value, tuple | list) or len(value) not in (1, count):
            raise GraphError(f"{self.where(column)}: {shorten(value)} is refused; needed: a tuple of {count}")
        return [*value] * (count if len(value) == 1 else 1)

    def refuse_given(self, *columns: str) -> None:
        """Refuse cells that would change what the case is."""
        for column in columns:
            value = self.value(column, ())
            if value not in ((), None, [], {}):
                raise GraphError(f"{self.where(column)}: {shorten(value)} is refused, because the values or the place "
                                 "of tensors would come from elsewhere; needed: an empty cell")


def attributes_cell(row: Row) -> dict[str, Any]:
    """Return the attributes that a row states."""
    value = row.value("attributes", {})
    if not isinstance(value, dict):
        raise GraphError(f"{row.where('attributes')}: {shorten(value)} is refused; needed: a dictionary")
    return dict(value)


def shapes_cell(row: Row, column: str, count: int) -> list[tuple[int, ...]]:
    """Return the shapes of a cell."""
    value = row.value(column, ())
    if not isinstance(value, tuple | list) or len(value) != count:
        raise GraphError(f"{row.where(column)}: {shorten(value)} is refused; needed: a tuple of {count} shapes")
    return [shape_of(entry, row.where(column)) for entry in value]


def operands_of(row: Row, shapes: Sequence[tuple[int, ...]], formats: Sequence[str], tensors: int) -> list[Operand]:
    """Return operands with their ranges; one range serves all, and outputs may have some too."""
    where = row.where("input_data_ranges")
    ranges = row.value("input_data_ranges", ())
    if not isinstance(ranges, tuple | list) or len(ranges) not in (0, 1, len(shapes), tensors):
        raise GraphError(f"{where}: {shorten(ranges)} is refused; needed: one range, or {len(shapes)}")
    ranges = [*ranges] * len(shapes) if len(ranges) == 1 else [*ranges] or [None] * len(shapes)
    return [ranged(shape, format, entry, where)
            for shape, format, entry in zip(shapes, formats, ranges, strict=False)]


def product_of(row: Row) -> str | None:
    """Return the conformance of the product that a row is for, None where it is for several or states none."""
    names = row.value("soc_series", ())
    names = (names,) if isinstance(names, str) else names or ()
    if not isinstance(names, tuple | list) or not all(isinstance(name, str) for name in names):
        raise GraphError(f"{row.where('soc_series')}: {shorten(names)} is refused; needed: names of products")
    found = {_conformance(name) for name in names if not name.startswith("-")}
    return found.pop() if len(found) == 1 else None


def _conformance(name: str) -> str | None:
    """Return the conformance of one product by the longest beginning of its name."""
    begins = [known for known in PRODUCTS if name.lower().startswith(known.lower())]
    return PRODUCTS[max(begins, key=len)] if begins else None


def series_of(conformance: str | None) -> str:
    """Return the cell that names the products of a conformance and no others, empty where it is that of no product."""
    names = tuple(name for name, product in PRODUCTS.items() if product == conformance and not any(
        other.startswith(name) for other in PRODUCTS if other != name))
    return repr(names) if names else ""
