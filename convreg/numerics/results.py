"""What `compare` returns: a table of errors, which can be drawn."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, BinaryIO

from ..errors import Asking, GraphError, UnknownOp, shorten
from ..files import reason
from ..guard import guarded
from ..presentation import aligned, json_value, markdown_table, percent
from . import picture
from .metrics import Binades, Error


@dataclass(frozen=True, slots=True)
class OperandError:
    """An operand in a format.

    Attributes
    ----------
    name : str
        The port.
    exponent : int
        The operand is multiplied by 2**exponent before it is rounded; 0 means no scale.
    error : Error
        Of the rounded operand.
    flushed : float
        Share of the numbers that are not zero which became zero.
    saturated : float
        Share of the numbers that are too large for the format, or came out as infinity or NaN.
    """

    name: str
    exponent: int
    error: Error
    flushed: float
    saturated: float


@dataclass(frozen=True, slots=True)
class Row:
    """One result of the call with its operands in one format.

    Attributes
    ----------
    output : str
        The port.
    format, result : str
        Formats of the operands and of the result.
    scaled : bool
        Whether operands and result are scaled by their best powers of two.
    exponent : int
        The result is multiplied by 2**exponent before it is rounded.
    error : Error
        Error of the result against float64 on operands that were not rounded.
    flushed : float
        Share of the elements that are zero but are not zero in float64.
    saturated : float
        Share of the elements that are too large for the format, or infinite or NaN.
    binades : Binades
        Where the magnitudes of the result lie.
    operands : tuple of OperandError
    """

    output: str
    format: str
    result: str
    scaled: bool
    exponent: int
    error: Error
    flushed: float
    saturated: float
    binades: Binades
    operands: tuple[OperandError, ...]


_HEADER = ("format", "scaled by", "SNR dB", "largest rel.", "mean rel.", "cosine", "flushed", "saturated")


@dataclass(frozen=True)
class Comparison:
    """The result of `compare`. It prints as a table.

    Attributes
    ----------
    operator : str
        Qualified name.
    shapes : dict
        Port -> shape of every operand.
    exact : dict
        Output -> `Binades` of its exact values.
    rows : tuple of Row
        In the order of outputs and formats; each format without scales and then, unless left out, with scales.
    """

    operator: str
    shapes: dict[str, tuple[int, ...]]
    exact: dict[str, Binades]
    rows: tuple[Row, ...]

    def row(self, output: str, format: str, *, scaled: bool = False) -> Row:
        """Return one row.

        Raises
        ------
        UnknownOp
            If there is none.
        """
        found = {f"{row.output} in {row.format}{', scaled' if row.scaled else ''}": row for row in self.rows}
        name = f"{output} in {format}{', scaled' if scaled else ''}" if {str} == {type(output), type(format)} else ""
        if name not in found:
            raise UnknownOp(name or shorten((output, format)), found, what="row")
        return found[name]

    def table(self, *, markdown: bool = False) -> str:
        """Return the rows as a text or Markdown table.

        The column "scaled by" gives the exponents of the powers of two for the operands in order and, after ">", for
        the result. If no power of two is better than none, there is only the row without scales.
        """
        cells = [["gradient", *_HEADER]]
        for row in self.rows:
            exponents = [operand.exponent for operand in row.operands]
            if not row.scaled or any(exponents) or row.exponent:
                scale = f"{','.join(map(str, exponents))} > {row.exponent}" if row.scaled else "-"
                cells.append([row.output, row.format, scale, *_cells(row)])
        return "\n".join((markdown_table if markdown else aligned)(cells, words=3))

    def operands_table(self, *, markdown: bool = False) -> str:
        """Return a table of the operands in each format, against what was given."""
        cells = [["operand", *_HEADER]]
        seen = {(operand.name, row.format, row.scaled): operand for row in self.rows for operand in row.operands}
        for name in self.shapes:
            cells += [[name, format, str(operand.exponent) if scaled else "-", *_cells(operand)]
                      for (port, format, scaled), operand in seen.items()
                      if port == name and (operand.exponent or not scaled)]
        return "\n".join((markdown_table if markdown else aligned)(cells, words=3))

    def __str__(self) -> str:
        """Operator, shapes and both tables."""
        shapes = ", ".join(f"{name} {list(shape)}" for name, shape in self.shapes.items())
        return f"{self.operator}: {shapes}\n{self.operands_table()}\n\n{self.table()}"

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON can hold it: infinities and NaN become the strings that `float` reads."""
        rows = []
        for row in self.rows:
            entry = json_value(asdict(row))
            rows.append({**entry, "binades": row.binades.to_dict()})
        return {"operator": self.operator, "shapes": {name: list(shape) for name, shape in self.shapes.items()},
                "exact": {name: binades.to_dict() for name, binades in self.exact.items()}, "rows": rows}

    @staticmethod
    def from_dict(held: Mapping[str, Any]) -> Comparison:
        """Return what `to_dict` made.

        Raises
        ------
        GraphError
            If it is none of these.
        """
        try:
            rows = tuple(Row(**{**row, "error": _error(row["error"]), "binades": Binades.from_dict(row["binades"]),
                                "flushed": float(row["flushed"]), "saturated": float(row["saturated"]),
                                "operands": tuple(OperandError(**{**operand, "error": _error(operand["error"])})
                                                  for operand in row["operands"])}) for row in held["rows"])
            return Comparison(held["operator"], {name: tuple(shape) for name, shape in held["shapes"].items()},
                              {name: Binades.from_dict(binades) for name, binades in held["exact"].items()}, rows)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise GraphError(f"not what Comparison.to_dict makes: {reason(error)}") from None

    def to_json(self) -> str:
        """Return everything as JSON."""
        return json.dumps(self.to_dict(), indent=1, allow_nan=False)

    def plot(self, file: str | BinaryIO, format: str | None = None) -> None:
        """Draw the signal-to-noise ratios, and where the gradients lie in the formats' ranges.

        Parameters
        ----------
        file : path or binary file
        format : str, optional
            ``"png"``, ``"svg"`` or ``"pdf"``; by default as the path ends.

        Raises
        ------
        GraphError
            If matplotlib is not installed.
        """
        plot({self.operator: self}, file, format)


def _error(held: Mapping[str, Any]) -> Error:
    return Error(**{name: float(value) for name, value in held.items()})


def _cells(measured: Row | OperandError) -> list[str]:
    error = measured.error
    return [f"{error.snr_db:.1f}", f"{error.largest_relative:.2g}", f"{error.mean_relative:.2g}",
            f"{error.cosine:.6f}", percent(measured.flushed), percent(measured.saturated)]




@guarded("convreg::numerics")
def plot(comparisons: Mapping[str, Comparison], file: str | BinaryIO, format: str | None = None) -> None:
    """Draw comparisons below each other, one line per gradient.

    The left side shows the signal-to-noise ratio in each format. The right side shows the range of each format, with
    thin lines for subnormal numbers, and below it the magnitudes of the exact gradient.

    Parameters
    ----------
    comparisons : mapping
        Title -> `Comparison`.
    file : path or binary file
    format : str, optional
        ``"png"``, ``"svg"`` or ``"pdf"``; by default as the path ends.

    Raises
    ------
    OpError, OpTypeError
        If an argument is refused.
    GraphError
        If matplotlib is not installed, or the file cannot be written.
    """
    ask = Asking("convreg::numerics")
    if not isinstance(comparisons, Mapping) or not comparisons or not all(
            isinstance(title, str) and title.isprintable() and isinstance(found, Comparison)
            for title, found in comparisons.items()):
        raise ask.refuse("comparisons", comparisons, "a mapping from printable titles to results of compare",
                         wrong_type=True)
    picture.check_target(ask, file, format)
    picture.draw(comparisons, file, format)
