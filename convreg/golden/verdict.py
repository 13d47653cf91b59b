"""`compare`: a kernel's results against golden vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import Asking, near_misses
from ..formats import Format, format_of
from ..guard import guarded, thread_count
from ..memory import Array, array_of
from ..registry import resolve
from .analysis import analyse
from .arithmetic import USUAL, Arithmetic, arithmetic
from .bounds import Analysis, same_sums, with_arithmetic
from .causes import causes
from .judgement import element, judge
from .record import Golden
from .report import OutputReport, Report
from .standards import BOUND, Outcome, Pair, check_other, names_of
from .standards import judge as judge_by
from .unwritten import unwritten
from .where import where


@guarded("convreg::golden")
def compare(
    golden: Golden,
    results: Any,
    standard: str | Sequence[str] = BOUND,
    *,
    accumulator: str | None = None,
    parts: tuple[str, int] | None = None,
    operands: str | float | None = None,
    flush_to_zero: bool = False,
    ties: str = "both",
    other: Any = None,
    threads: int | None = None,
) -> Report:
    """Judge results of a kernel.

    By default an element is wrong if no order of summation and no split of the sum explains it: the operator itself
    gives the largest error that rounding can make, element by element. No tolerance is involved.

    Parameters
    ----------
    golden : Golden
        The call, with its inputs and results.
    results : mapping of str to array_like, or array_like
        By the vendor's names of the outputs, each with the shape and number format of the golden output; arrays of 8
        and 16 bits may hold the codes as unsigned integers. One array where there is one output. Outputs that the call
        masks off may be None or absent.
    standard : str or sequence of str
        "bound", or names of `convreg.golden.standards.STANDARDS`. All that are named have to pass. The bound is
        always reported.
    accumulator : str, optional
        What sums are kept in: "float32", "truncating" (float32 that rounds toward zero), "float16", "bfloat16" or
        "float64". By default float64 for float64 operands and float32 for all others.
    parts : (str, int), optional
        Format in which parts of a sum are stored in between, and their number: a sum that is split over several units,
        or a gradient that is added up in place.
    operands : str or float, optional
        Format to which the kernel rounds the operands of products first, where the operator does not, such as "hf32";
        or the largest relative error of such a rounding.
    flush_to_zero : bool
        Whether the kernel takes and makes numbers below the normal range of float32 as zero.
    ties : str
        "both": an exact result in the middle between two numbers may become either. "rule": as the vendor rounds.
    other : mapping or array_like, optional
        Results of another device on the same call, for standards that compare errors with it.
    threads : int, optional
        Number of threads. The report does not depend on it.

    Returns
    -------
    Report

    Raises
    ------
    OpError, OpTypeError
        If an output is missing or unknown, a shape or number format differs, an argument is wrong, or a standard has
        no limits for the call. There is no verdict then.

    Notes
    -----
    docs/verdict.md has the mathematics, the treatment of NaN, infinity and -0, and the standards.
    """
    ask = Asking("convreg::golden")
    if not isinstance(golden, Golden):
        raise ask.refuse("golden", type(golden).__name__, "a Golden, as make and load return", wrong_type=True)
    names = names_of(ask, standard)
    how = arithmetic(ask, accumulator, parts, operands, flush_to_zero, ties)
    thread_count(ask, threads)
    outputs = {name: _format(ask, name, array) for name, array in golden.outputs.items()}
    check_other(ask, names, {name: format.name for name, format in outputs.items()}, other is not None)
    given = _taken(ask, "results", golden, outputs, results)
    others = {} if other is None else _taken(ask, "other", golden, outputs, other)
    known = _analyses(golden, how, threads)
    if set(known) != set(outputs):
        raise ask.refuse("golden", f"outputs {', '.join(outputs)}", f"the outputs of the call: {', '.join(known)}")
    for name, found in known.items():
        if golden.outputs[name].shape != found.shape or outputs[name] is not found.format:
            raise ask.refuse(
                "golden", f"{name} as {outputs[name].name} {list(golden.outputs[name].shape)}",
                f"{found.format.name} {list(found.shape)}, which the call makes")
    reports = {}
    for name, codes in given.items():
        held = _codes(golden.outputs[name], outputs[name])
        standards = tuple(judge_by(one, Pair(outputs[name], codes, held, others.get(name)))
                          for one in names if one != BOUND)
        reports[name] = _report(golden, known[name], codes, held, standards, BOUND in names, how)
    return Report(golden.name, golden.op, names, _stated(how), reports)


def _analyses(golden: Golden, how: Arithmetic, threads: int | None) -> Mapping[str, Analysis]:
    if not same_sums(how):
        return analyse(golden, how, threads=threads)
    if "analysis" not in vars(golden):  # the cached property, computed here on so many threads
        vars(golden)["analysis"] = analyse(golden, threads=threads)
    return golden.analysis if how == USUAL else with_arithmetic(golden.analysis, how)


def _report(
    original: Golden, analysis: Analysis, codes: Array, golden: Array, standards: tuple[Outcome, ...], decides: bool,
    how: Arithmetic,
) -> OutputReport:
    found = judge(analysis, codes, golden)
    looks: tuple[str, ...] = ()
    place = holes = ""
    if found.count:
        place, everywhere = where(found.wrong.reshape(analysis.shape), analysis.axes)
        fill = unwritten(_unsigned(codes), found.wrong, _unsigned(golden), analysis.format,
                         makes_nan=analysis.makes_nan)
        holes = "" if fill is None else str(fill)
        if fill is None or fill.elements < found.count:
            looks = causes(original, analysis, codes, found.wrong, everywhere)
    return OutputReport(
        analysis.output, analysis.format.name, analysis.shape, codes.size, found.count, found.unlikely,
        element(analysis, found.first, codes, golden), element(analysis, found.worst, codes, golden), found.snr_db,
        found.steps, (found.nan[0], found.nan[1]), (found.infinite[0], found.infinite[1]), place, looks, holes,
        standards, found.golden_outside if how == USUAL else 0, decides)


def _stated(how: Arithmetic) -> str:
    """Return what the caller states about the kernel, in words."""
    words = []
    if how.accumulator is not None:
        words.append(f"sums in {how.accumulator}")
    if how.parts is not None:
        words.append(f"{how.parts[1]} parts stored in {how.parts[0]}")
    if how.operands is not None:
        words.append(f"operands rounded to {how.operands}" if isinstance(how.operands, str) else
                     f"operands rounded by at most {how.operands:g}")
    if how.flush_to_zero:
        words.append("subnormal numbers flushed to zero")
    if how.ties == "rule":
        words.append("ties rounded by the vendor's rule")
    return ", ".join(words)


def _format(ask: Asking, name: str, array: Any) -> Format:
    known = format_of(array.dtype) if isinstance(array, np.ndarray) else None
    if known is None:
        raise ask.refuse("golden", f"{name} as {getattr(array, 'dtype', type(array).__name__)}",
                         "outputs in number formats of convreg.formats", wrong_type=True)
    return known


def _taken(
    ask: Asking, argument: str, golden: Golden, outputs: Mapping[str, Format], results: Any
) -> dict[str, Array]:
    """Return the codes of results by output, refused where they are not those of the call."""
    if not isinstance(results, Mapping):
        if len(outputs) != 1:
            raise ask.refuse(argument, type(results).__name__, "a mapping with an array for each of "
                             f"{', '.join(outputs)}", wrong_type=True)
        results = {next(iter(outputs)): results}
    declared = [port.name for port in resolve(golden.op).spec.outputs]
    for name, value in results.items():
        if name not in outputs and not (name in declared and value is None):
            near = near_misses(name, outputs) if isinstance(name, str) else []
            hint = f"did you mean {' or '.join(near)}? " if near else ""
            raise ask.refuse(argument, name, f"{hint}the outputs of {golden.op} here: {', '.join(outputs)}")
    found = {}
    for name, format in outputs.items():
        if results.get(name) is None:
            raise ask.refuse(name, "no array", f"{format.name} in shape {list(golden.outputs[name].shape)}: "
                             f"{argument} has no such output")
        found[name] = _array(ask, name, results[name], format, golden.outputs[name].shape)
    return found


def _array(ask: Asking, name: str, value: Any, format: Format, shape: tuple[int, ...]) -> Array:
    try:
        array = array_of(value)
    except Exception as error:  # __array__ of foreign objects may raise anything
        raise ask.refuse(name, type(value).__name__, f"an array of {format.name} ({error})", wrong_type=True) from None
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    raw = format.bits <= 16 and array.dtype == np.dtype(f"u{format.bits // 8}")
    if format_of(array.dtype) is not format and not raw:
        codes = f", or its codes as uint{format.bits}" if format.bits <= 16 else ""
        raise ask.refuse(name, str(array.dtype), f"{format.name}{codes}", wrong_type=True)
    if array.shape != shape:
        raise ask.refuse(name, f"shape {list(array.shape)}", f"shape {list(shape)}")
    return _codes(array, format)


def _codes(array: Array, format: Format) -> Array:
    """Return an array as the format stores it, flat and in C order."""
    return np.ascontiguousarray(array).reshape(-1).view(format.storage)


def _unsigned(codes: Array) -> Array:
    return codes.view(f"u{codes.itemsize}")
