"""`compare`: one call in several number formats beside float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .. import registry
from ..calls.arguments import boolean, entries_of, integer, tensor_value
from ..calls.binding import asking, bind, check_conformance
from ..calls.execution import check_reference_sizes, exact_results, execute
from ..calls.signature import Arguments, Operator, reader_of
from ..conversion import dequantize
from ..errors import UnknownOp
from ..formats import FORMATS as STORED
from ..formats import ROUNDINGS, format_of, formats
from ..guard import guarded, thread_count
from ..memory import Array
from ..once import once
from ..spec import Call
from .metrics import binades_of, error_of, flushed_share
from .results import Comparison, OperandError, Row
from .scaling import Rounding, best_exponent

FORMATS = ("float32", "hf32", "bfloat16", "float16", "hifloat8", "float8_e4m3fn", "float8_e5m2")
"""What `compare` measures unless told otherwise."""


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

    The exact values come from the operator's reference: sums in float64 on the operands as given. For each
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
        As in `convreg.quantize`, for all roundings; by default each format's own rounding, and no saturation. Results
        in float32 are not rounded: they are the sums.
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
    if not names:
        raise call.asking.refuse("formats", names, "at least one name", "arguments")
    chosen = [(_rounding(call.asking, "formats", name, rounding, saturate),
               _rounding(call.asking, "result", result or ("float32" if name == "hf32" else name), rounding, saturate))
              for name in dict.fromkeys(names)]
    rows: list[Row] = []
    for operand, target in chosen:
        for with_scale in (False, True) if scaled else (False,):
            rows += call.rows(operand, target, with_scale, seed)
    order = list(call.exact)
    rows.sort(key=lambda row: order.index(row.output))
    return Comparison(function.spec.qualified_name, {name: array.shape for name, array in call.operands.items()},
                      {name: binades_of(values) for name, values in call.exact.items()}, tuple(rows))


def _rounding(call: Call, argument: str, name: str, rounding: str | None, saturate: bool) -> Rounding:
    known = formats()
    if name not in known:
        raise UnknownOp(name, known, what="format")
    measured = [key for key in (STORED if argument == "result" else known) if key != "float64"]
    if name not in measured:
        raise call.refuse(argument, name, " or ".join(measured), "arguments")
    if (argument, name) == ("result", "float32") and isinstance(rounding, str) and rounding in ROUNDINGS:
        rounding = None  # the sums are float32
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
        if not any(bound.plan.outputs):
            raise self.asking.refuse("attributes", dict(attributes), "a call with a result", "arguments")
        for port, made in zip(spec.outputs, bound.plan.outputs, strict=True):
            if made is not None and made.format != "float32":
                raise self.asking.refuse(port.name, made.format, "float32 results for float32 operands", "arguments",
                                         wrong_type=True)
        check_reference_sizes(bound)
        self.operands = {name: self._wide(name, array) for name, array in stored.items()}
        self._bound, self._threads = bound, thread_count(self.asking, given.threads)

    @once
    def exact(self) -> dict[str, Array]:
        """The results in float64, computed when every argument has been checked."""
        wide = [None if array is None else self.operands.get(port.name, array).astype(np.float64)
                for port, array in zip(self.spec.inputs, self._bound.inputs, strict=True)]
        results = exact_results(self.spec, self._bound.plan, wide, self._threads)
        return {port.name: values for port, values in zip(self.spec.outputs, results, strict=True)
                if values is not None}

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
