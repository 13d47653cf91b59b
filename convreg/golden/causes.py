"""What kind of error wrong elements look like, where that is cheap to test and certain enough to say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from ..conversion import dequantize
from ..formats import FORMATS
from ..memory import Array
from ..spec import snake_case
from . import ranks
from .analysis import analyse, bound_of
from .arithmetic import ACCUMULATORS
from .axes import Axis, weight_axes
from .bounds import Analysis, with_arithmetic
from .judgement import outside
from .rounding import Rounding, Step

if TYPE_CHECKING:
    from .record import Golden

MOST = 1 << 16
"""The most wrong elements that are tested."""
FEWEST = 8
"""With fewer, a coincidence is too likely to be told."""
NEARLY_ALL = 0.99
LARGEST = 64
"""The largest denominator of a factor, or numerator of one below 1, that is told."""

NARROWER = ("truncating", "float16", "bfloat16")
"""Accumulators that are tried, the most precise first."""
COSTLY = 1 << 22
"""Elements of an output above which no other call is computed to explain it."""
BEFORE = ("float16", "bfloat16")
"""Formats that a result may have been rounded to first."""


def causes(analysis: Analysis, codes: Array, wrong: Array, everywhere: bool) -> tuple[str, ...]:
    """Say what the wrong elements have in common.

    Parameters
    ----------
    analysis : Analysis
    codes : ndarray
        The judged results in the storage of the format, flat.
    wrong : ndarray of bool
        Flat.
    everywhere : bool
        Whether they lie in no part of the output; those of lower precision do.
    """
    places = np.flatnonzero(wrong)[:MOST]
    if places.size < FEWEST or analysis.stored is not None:
        return ()
    known, format = analysis.at(places), analysis.format
    found = ranks.ranks(codes[places], format)
    values = dequantize(codes[places], format.name, dtype=np.float64)
    return tuple(_tests(known, found, values, everywhere))


def _fits(known: Analysis, found: Array) -> bool:
    """Whether rounding could have made nearly all results of an analysis."""
    return float(np.mean(~outside(found, known.ends(), known.format))) >= NEARLY_ALL


def _tests(known: Analysis, found: Array, values: Array, everywhere: bool) -> Iterator[str]:
    last = ranks.largest(known.format)
    numbers = found != ranks.NAN
    if not numbers.any():
        yield "NaN, where the exact results are numbers"
        return
    if (found[numbers] == 0).all() and numbers.all():
        yield "zero, where the exact results are not"
        return
    if numbers.all() and not outside(np.where(np.abs(found) == last, np.sign(found) * (last + 1), found),
                                     known.ends(), known.format).any():
        yield "the largest number of the format, where infinity is due"
        return
    if _fits(replace(known, reference=-known.reference), found):
        yield "the sign of the result is turned"
        return
    ratio = _ratio(known, found, values)
    if ratio:
        yield f"the exact result times {ratio}"
    elif everywhere:
        yield from _rounded(known, found)


def _ratio(known: Analysis, found: Array, values: Array) -> str:
    """Return the simple number that nearly all results are too large by, empty if there is none."""
    usable = np.isfinite(values) & np.isfinite(known.reference) & (known.reference != 0)
    if not usable.any():
        return ""
    ratio = float(np.median(values[usable] / known.reference[usable]))
    if not 1e-6 < abs(ratio) < 1e6:
        return ""
    simple = Fraction(ratio).limit_denominator(LARGEST) if abs(ratio) >= 1 else \
        1 / Fraction(1 / ratio).limit_denominator(LARGEST)
    factor = float(simple)
    if factor in (1.0, -1.0) or abs(factor - ratio) > abs(ratio) * 2.0**-(known.format.mantissa + 1):
        return ""
    scaled = replace(known, reference=known.reference * factor, magnitude=known.magnitude * abs(factor), quanta=None)
    return str(simple) if _fits(scaled, found) else ""


def _rounded(known: Analysis, found: Array) -> Iterator[str]:
    """Compare with results of lower precision; what a narrower accumulator explains may have other causes too."""
    *first, last = known.rounding.steps
    if _fits(replace(known, rounding=Rounding((*first, last._replace(rounding="toward_zero")))), found):
        yield "consistent with a last rounding toward zero"
        return
    for name in BEFORE:
        if name != known.format.name:
            twice = Rounding((*first, Step(FORMATS[name], FORMATS[name].rounding), last))
            if _fits(replace(known, rounding=twice), found):
                yield f"consistent with a rounding to {name} before the last one"
                return
    for name in NARROWER:
        if ACCUMULATORS[name].unit > known.accumulator.unit:
            lower = with_arithmetic({"": known}, known.arithmetic._replace(accumulator=name))[""]
            number = np.isfinite(known.reference) & (known.reference != 0)
            spread = lower.error()[number] / np.abs(known.reference[number])
            narrow = spread.size and np.median(spread) < 0.25  # a wide interval would fit nearly everything
            if narrow and _fits(lower, found):
                yield f"consistent with sums kept in {name} precision"
                return


def turned(golden: Golden, analysis: Analysis, codes: Array, wrong: int) -> tuple[str, ...]:
    """Say whether a result is that of a kernel whose taps lie the other way round.

    Parameters
    ----------
    golden : Golden
    analysis : Analysis
        Of the judged output.
    codes : ndarray
        The judged results in the storage of the format, flat.
    wrong : int
        The number of wrong elements.
    """
    if not FEWEST <= wrong <= analysis.reference.size <= COSTLY:
        return ()
    bound = bound_of(golden)
    spec = bound.call.spec
    if next(port.role for port in spec.outputs if port.name == analysis.output) == "grad_weight":
        for words, turn in _turns(analysis.axes, analysis.shape):
            found = turn(codes.reshape(analysis.shape))
            if _fits(analysis, ranks.ranks(np.ascontiguousarray(found).ravel(), analysis.format)):
                return (words,)
        return ()
    name = snake_case(spec.roles.get("weight", ""))
    weights = golden.inputs.get(name)
    if weights is None:
        return ()
    for words, turn in _turns(weight_axes(bound.call, bound.plan, weights.ndim), weights.shape):
        other = replace(golden, inputs={**golden.inputs, name: np.ascontiguousarray(turn(weights))})
        if _fits(analyse(other, analysis.arithmetic)[analysis.output], ranks.ranks(codes, analysis.format)):
            return (words,)
    return ()


def _turns(axes: tuple[Axis, ...], shape: tuple[int, ...]) -> list[tuple[str, Callable[[Array], Array]]]:
    """Return ways to turn the taps of weights, in words and as functions."""
    taps = [number for number, axis in enumerate(axes) if axis.kind == "tap"]
    found: list[tuple[str, Callable[[Array], Array]]] = []
    if any(shape[number] > 1 for number in taps):
        found.append(("the result for reversed taps", lambda array: np.flip(array, tuple(taps))))
    if len(taps) > 1 and shape[taps[-2]] == shape[taps[-1]] > 1:
        found.append(("the result for exchanged tap rows and columns",
                      lambda array: np.swapaxes(array, taps[-2], taps[-1])))
    return found
