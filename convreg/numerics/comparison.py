"""`compare`: one call in several number formats beside float64."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any, BinaryIO

import numpy as np

from .. import registry
from ..binding import asking, bind, boolean, check_conformance, entries_of, integer, tensor_value
from ..conversion import dequantize
from ..derive import Arguments, Operator, check_reference_sizes, exact_results, execute, reader_of
from ..errors import UnknownOp, shorten
from ..formats import FORMATS as STORED
from ..formats import format_of, formats
from ..guard import guarded
from ..outputs import Array
from ..presentation import aligned, markdown_table
from ..spec import Call
from .metrics import Binades, Error, binades_of, error_of, flushed_share
from .scaling import Rounding, best_exponent

FORMATS = ("float32", "hf32", "bfloat16", "float16", "hifloat8", "float8_e4m3fn", "float8_e5m2")
"""What `compare` measures unless told otherwise."""


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
            entry = _plain(asdict(row))
            rows.append({**entry, "binades": row.binades.to_dict()})
        return {"operator": self.operator, "shapes": {name: list(shape) for name, shape in self.shapes.items()},
                "exact": {name: binades.to_dict() for name, binades in self.exact.items()}, "rows": rows}

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
        from .picture import plot

        plot({self.operator: self}, file, format)


def _cells(measured: Row | OperandError) -> list[str]:
    error = measured.error
    return [f"{error.snr_db:.1f}", f"{error.largest_relative:.2g}", f"{error.mean_relative:.2g}",
            f"{error.cosine:.6f}", _percent(measured.flushed), _percent(measured.saturated)]


def _percent(share: float) -> str:
    if not share:
        return "0"
    return f"{100 * share:.2g}%" if share < 0.0995 else f"{100 * share:.1f}%"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return str(value) if isinstance(value, float) and not isfinite(value) else value


@guarded("convreg::numerics")
def compare(
    op: str | Operator,
    inputs: Sequence[Any] | Mapping[str, Any],
    attributes: Mapping[str, Any] | None = None,
    *,
    formats: Sequence[str] = FORMATS,
    scaled: bool = True,
    result: str | None = None,
    rounding: str | None = None,
    saturate: bool = False,
    seed: int = 0,
) -> Comparison:
    """Measure the error that number formats cause in a gradient.

    The exact values come from the operator's reference: plain loops in float64 on the operands as given. For each
    format the operands are rounded to it. The operator then computes in float32. float32 represents the rounded
    numbers exactly and, for formats of at most 16 bits, their products too, so the sums are those of the operator on
    operands of that format. Each result is rounded to the format once. Operands in hf32 have float32 results.

    Parameters
    ----------
    op : str or function
        As for `convreg.get`, or the function itself. The operator must have float32 results for float32 operands.
    inputs : sequence or mapping
        The operands in the order of the ports, or by the function's argument names: finite numbers in float32, float64
        or a narrower format, which is widened. Shapes are given as to the function.
    attributes : mapping, optional
        The function's other arguments, `conformance` and `threads` included.
    formats : sequence of str
        Names of `convreg.formats`, except float64.
    scaled : bool
        Whether to measure each format a second time with scales. Then every operand and every result is multiplied by
        its best power of two before it is rounded, and divided by it afterwards. `best_exponent` defines the best
        power; for a result the criterion is the error of its last rounding. Sums are computed without scales, because
        a power of two changes no bit of a float32 sum unless it overflows or underflows.
    result : str, optional
        Format of the results; by default the format of the operands.
    rounding, saturate
        As in `convreg.quantize`, for all roundings; by default each format's own rounding, and no saturation.
    seed : int
        Seed of stochastic rounding. The operands and results use `seed` and the numbers that follow it.

    Returns
    -------
    Comparison

    Raises
    ------
    OpError, OpTypeError
        If the operator refuses the call, an operand is not finite, or an argument is wrong.
    UnknownOp
        If there is no such operator or format.

    Examples
    --------
    >>> import numpy as np
    >>> dy, x, w = (convreg.numerics.draw("normal", shape, seed) for seed, shape in
    ...             enumerate([(2, 8, 6, 6), (2, 4, 6, 6), (8, 4, 3, 3)]))
    >>> found = convreg.numerics.compare("ascend::ConvolutionBackward", (dy, x, w),
    ...                                  {"stride": [1, 1], "padding": [1, 1], "dilation": [1, 1]})
    >>> found.row("gradInput", "bfloat16").error.snr_db > 40
    True
    """
    function = registry.resolve(op)
    call = _Measured(function, inputs, {} if attributes is None else attributes)
    rules = call.spec.rules_under(call.asking.conformance)
    names = entries_of(call.asking, rules, "formats", formats, "a list of names")
    for argument, name in (*(("formats", name) for name in names), ("result", "" if result is None else result)):
        if not isinstance(name, str):
            raise call.asking.refuse(argument, name, "names of formats", "arguments", wrong_type=True)
    scaled, seed = boolean(call.asking, rules, "scaled", scaled), integer(call.asking, rules, "seed", seed)
    saturate = boolean(call.asking, rules, "saturate", saturate)
    if seed < 0:
        raise call.asking.refuse("seed", seed, "an integer not below 0", "arguments")
    rows: list[Row] = []
    for name in dict.fromkeys(names):
        operand = _rounding(call.asking, "formats", name, rounding, saturate)
        target = _rounding(call.asking, "result", result or ("float32" if name == "hf32" else name), rounding, saturate)
        for with_scale in (False, True) if scaled else (False,):
            rows += call.rows(operand, target, with_scale, seed)
    if not rows:
        raise call.asking.refuse("formats", names, "at least one name", "arguments")
    order = list(call.exact)
    rows.sort(key=lambda row: order.index(row.output))
    return Comparison(function.spec.qualified_name, {name: array.shape for name, array in call.operands.items()},
                      {name: binades_of(values) for name, values in call.exact.items()}, tuple(rows))


def _rounding(call: Call, argument: str, name: str, rounding: str | None, saturate: bool) -> Rounding:
    known = formats()
    if name not in known:
        raise UnknownOp(name, known, what="format")
    if name == "float64" or (argument == "result" and name not in STORED):
        raise call.refuse(argument, name, " or ".join(key for key in known if key not in ("float64", "hf32")),
                          "arguments")
    if rounding is not None and (not isinstance(rounding, str) or rounding not in known[name].roundings):
        raise call.refuse("rounding", rounding, f"{' or '.join(known[name].roundings)} for {name}", "arguments")
    return Rounding(known[name], rounding, saturate)


class _Measured:
    """A call with its operands in full precision and its exact results."""

    def __init__(self, function: Operator, inputs: Sequence[Any] | Mapping[str, Any], attributes: Mapping[str, Any]
                 ) -> None:
        self.spec = spec = function.spec
        self.asking = asking(spec, spec.conformances[0])
        rules = spec.rules_under(self.asking.conformance)
        if not isinstance(inputs, Mapping):
            inputs = entries_of(self.asking, rules, "inputs", inputs, "a list or mapping of arrays")
        named = inputs if isinstance(inputs, Mapping) else {}
        for argument, mapping in (("inputs", named), ("attributes", attributes)):
            if not isinstance(mapping, Mapping) or not all(isinstance(name, str) for name in mapping):
                raise self.asking.refuse(argument, mapping, "a mapping from names to values", "arguments",
                                         wrong_type=True)
        given: Arguments = reader_of(spec)(
            () if isinstance(inputs, Mapping) else tuple(inputs),
            {**(inputs if isinstance(inputs, Mapping) else {}), **attributes})
        if given.conformance is not None:
            check_conformance(spec, given.conformance)
            self.asking = asking(spec, given.conformance)
        if given.out is not None:
            raise self.asking.refuse("out", "given", "no array, because only errors are returned", "arguments")
        self.given, stored = given, self._stored(given.tensors)
        hollow = {name: np.broadcast_to(np.float32(0), array.shape) for name, array in stored.items()}
        bound = bind(spec, self._tensors(hollow), given.attributes, conformance=given.conformance)
        for port, made in zip(spec.outputs, bound.plan.outputs, strict=True):
            if made is not None and made.format != "float32":
                raise self.asking.refuse(port.name, made.format, "float32 results for float32 operands", "arguments",
                                         wrong_type=True)
        check_reference_sizes(bound)
        self.operands = {name: self._wide(name, array) for name, array in stored.items()}
        wide = [None if array is None else self.operands.get(port.name, array).astype(np.float64)
                for port, array in zip(spec.inputs, bound.inputs, strict=True)]
        self.exact = {port.name: values for port, values in
                      zip(spec.outputs, exact_results(spec, bound.plan, wide), strict=True) if values is not None}

    def _stored(self, tensors: Sequence[Any]) -> dict[str, Array]:
        """Return the operands as they are given, in any known format."""
        rules = self.spec.rules_under(self.asking.conformance)
        stored = {}
        for port, value in zip(self.spec.inputs, tensors, strict=True):
            if port.shape or port.scales or value is None:
                continue
            array = tensor_value(self.asking, rules, port, value)
            if format_of(array.dtype) is None:
                raise self.asking.refuse(port.name, str(array.dtype), " or ".join(STORED), "arguments", wrong_type=True)
            stored[port.name] = array
        return stored

    def _wide(self, name: str, array: Array) -> Array:
        """Return an operand in float32 or float64, whichever it is given in; other formats in float32."""
        values = array if array.dtype in (np.float32, np.float64) else dequantize(array)
        if not np.isfinite(values).all():
            raise self.asking.refuse(name, "infinity or NaN", "finite numbers", "arguments")
        return values

    def _tensors(self, operands: Mapping[str, Array]) -> list[Any]:
        return [operands.get(port.name, value if port.shape or port.scales else None)
                for port, value in zip(self.spec.inputs, self.given.tensors, strict=True)]

    def rows(self, operand: Rounding, target: Rounding, scaled: bool, seed: int) -> list[Row]:
        """Round the operands, compute, round the results, and measure both."""
        rounded, errors = {}, []
        for number, (name, values) in enumerate(self.operands.items()):
            how = operand._replace(seed=seed + number)
            exponent = best_exponent(values, how) if scaled else 0
            rounded[name] = held = how.of(values, exponent)
            errors.append(OperandError(name, exponent, error_of(held, values), flushed_share(held, values),
                                       _mean(how.lost(values, held, exponent))))
        with np.errstate(over="ignore", under="ignore"):
            narrow = {name: array.astype(np.float32) for name, array in rounded.items()}
        results = execute(self.spec, self._tensors(narrow), self.given.attributes, conformance=self.given.conformance,
                          threads=self.given.threads)
        several = results if isinstance(results, tuple) else (results,)
        named = {port.name: sums for port, sums in zip(self.spec.outputs, several, strict=True) if sums is not None}
        rows = []
        for number, (name, sums) in enumerate(named.items(), len(self.operands)):
            how = target._replace(seed=seed + number)
            exponent = best_exponent(sums, how) if scaled and np.isfinite(sums).all() else 0
            found, exact = how.of(sums, exponent), self.exact[name]
            rows.append(Row(
                name, operand.format.name, target.format.name, scaled, exponent, error_of(found, exact),
                flushed_share(found, exact), _mean(how.lost(sums, found, exponent)), binades_of(found), tuple(errors)))
        return rows


def _mean(mask: Array) -> float:
    return float(mask.mean()) if mask.size else 0.0
