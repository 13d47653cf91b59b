"""What kind of error wrong elements look like, where that is cheap to test and certain enough to say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from ..formats import FORMATS
from ..memory import Array
from ..spec import snake_case
from . import ranks
from .analysis import analyse
from .arithmetic import ACCUMULATORS
from .axes import Axis, weight_axes
from .bounds import Analysis, with_arithmetic
from .calling import bound_of
from .evidence import COSTLY, explains, fits, share
from .judgement import outside
from .orders import in_other_order
from .rounding import Rounding, Step

if TYPE_CHECKING:
    from .record import Golden

MOST = 1 << 16
"""The most wrong elements that are tested."""
FEWEST = 8
"""With fewer, a coincidence is too likely to be told."""
LARGEST = 64
"""The largest denominator of a factor, or numerator of one below 1, that is told."""

RULES = {"toward_zero": "toward zero", "half_away": "to nearest, ties away from zero",
         "nearest_even": "to nearest, ties to even"}
"""Rules of a last rounding, in words."""
NARROWER = {"float32": "kept in float32 precision", "truncating": "rounded toward zero",
            "float16": "kept in float16 precision", "bfloat16": "kept in bfloat16 precision"}
"""Accumulators that are tried, the most precise first, and what they do to sums in words."""
BEFORE = ("float16", "bfloat16")
"""Formats that a result may have been rounded to first."""
TURNED = "the sign of the result is turned"


def causes(golden: Golden, analysis: Analysis, codes: Array, wrong: Array, everywhere: bool) -> tuple[str, ...]:
    """Say what the wrong elements have in common.

    Parameters
    ----------
    golden : Golden
    analysis : Analysis
        Of the judged output.
    codes : ndarray
        The judged results in the storage of the format, flat.
    wrong : ndarray of bool
        Flat.
    everywhere : bool
        Whether they lie in no part of the output, as those of narrower sums do.
    """
    places = np.flatnonzero(wrong)[:MOST]
    if places.size < FEWEST:
        return ()
    exact = analysis
    if analysis.stored is not None:  # the result of a conversion says nothing about other numbers and roundings
        exact = replace(analysis, stored=None, arithmetic=analysis.arithmetic._replace(ties="rule"))
    known, found = exact.at(places), ranks.ranks(codes[places], analysis.format)
    rule = _of_all(_other_rule, exact, codes, known, found)
    told = _constant(known, found) or _scaled(known, found, bool(rule)) or _turned(golden, analysis, codes, wrong) or \
        in_other_order(analysis, codes, wrong) or rule or _of_all(_rounded_before, exact, codes, known, found)
    if not told and everywhere:
        told = _narrower(known, found)
    if told == TURNED and (known.reference < 0).all() and (analysis.reference[~wrong] > 0).any():
        told = "the exact result without its sign"
    return (told,) if told else ()


def _of_all(
    test: Callable[[Analysis, Array], str], exact: Analysis, codes: Array, known: Analysis, found: Array
) -> str:
    """Return what a test says of the wrong elements, if what it says holds for the others too."""
    if not test(known, found):
        return ""
    sample = np.linspace(0, codes.size - 1, min(MOST, codes.size)).astype(np.int64)
    return test(exact.at(sample), ranks.ranks(codes[sample], exact.format))


def _constant(known: Analysis, found: Array) -> str:
    """Say that all results, or all that are due, are NaN, zero, the largest number or infinity; empty if not."""
    format, last, ends = known.format, ranks.largest(known.format), known.ends()
    overflow = "NaN" if format.infinity is None else "infinity"
    saturated = (np.abs(ends.low) == last) & (ends.low == ends.high)
    if ((found == ranks.NAN) if format.infinity is None else (found == np.sign(ends.low) * (last + 1))).all() \
            and saturated.all():
        return f"{overflow}, where the largest number of the format is due"
    if (found == ranks.NAN).all():
        if not format.negative_zero and ((known.reference < 0) & (ends.high == 0)).all():
            return "NaN, where numbers below zero round to zero: the format has no -0"
        number = np.isfinite(known.reference)
        return "NaN, where the exact results are " + (
            "numbers" if number.all() else "infinite" if not number.any() else "not NaN")
    if (found == ranks.NAN).any():
        return ""
    if (ends.low == ranks.NAN).all():
        value = ranks.values_of(found[:1], format)[0]
        return f"{f'{value:g}' if (found == found[0]).all() else 'numbers'}, where the exact results are NaN"
    if (found == 0).all():
        low, high = (np.abs(ranks.values_of(end, format)) for end in ends[:2])
        small = (np.minimum(low, high) < format.smallest_normal) & (np.maximum(low, high) <= format.smallest_normal)
        return "zero, where the exact results are " + (
            "subnormal numbers" if small.all() else "negative" if (known.reference < 0).all() else "not")
    if (np.abs(found) == last).all() and not outside(np.sign(found) * (last + 1), ends, format).any():
        return f"the largest number of the format, where {overflow} is due"
    return ""


def _scaled(known: Analysis, found: Array, rounded: bool) -> str:
    """Say by which number nearly all results are too large; empty if it is no simple one, or a rounding explains it.

    The simplest number near the median of the ratios counts. The steps of the format between the results decide what
    is near, how simple the number has to be, and which numbers are too near to 1 to be told from a rounding.
    """
    values = ranks.values_of(found, known.format)
    if np.isfinite(values).any() and fits(replace(known, reference=-known.reference), found):
        return TURNED
    usable = np.isfinite(values) & np.isfinite(known.reference) & (known.reference != 0) & (values != 0)
    if rounded or not usable.any():
        return ""
    ratio = float(np.median(values[usable] / known.reference[usable]))
    places = np.abs(found[usable])
    step = float(np.median(ranks.values_of(places + 1, known.format) / ranks.values_of(places, known.format))) - 1
    if not 1e-6 < abs(ratio) < 1e6 or not abs(ratio - 1) > step:
        return ""
    for limit in range(1, min(LARGEST, int(step**-0.5)) + 1):
        simple = Fraction(ratio).limit_denominator(limit) if abs(ratio) >= 1 else \
            1 / Fraction(1 / ratio).limit_denominator(limit)
        factor = float(simple)
        if factor in (1.0, -1.0) or abs(factor - ratio) > abs(ratio) * step / 2:
            continue
        scaled = replace(known, reference=known.reference * factor, magnitude=known.magnitude * abs(factor),
                         quanta=None)
        if fits(scaled, found):
            return f"the exact result times {simple}"
    return ""


def _other_rule(known: Analysis, found: Array) -> str:
    """Say by which other rule the last rounding would make the results; empty if by none."""
    *first, last = known.rounding.steps
    for rule, words in RULES.items():
        if rule != last.rounding and fits(replace(known, rounding=Rounding((*first, last._replace(rounding=rule)))),
                                          found):
            return f"consistent with a last rounding {words}"
    return ""


def _rounded_before(known: Analysis, found: Array) -> str:
    """Say from which narrower format the last rounding would make the results; empty if from none."""
    *first, last = known.rounding.steps
    for name in BEFORE:
        if name != known.format.name:
            twice = Rounding((*first, Step(FORMATS[name], FORMATS[name].rounding), last))
            if fits(replace(known, rounding=twice), found):
                return f"consistent with a rounding to {name} before the last one"
    return ""


def _narrower(known: Analysis, found: Array) -> str:
    """Say which narrower accumulator explains the results, which may have other causes too; empty if none does."""
    for name, words in NARROWER.items():
        if ACCUMULATORS[name].unit > known.accumulator.unit:
            lower = with_arithmetic({"": known}, known.arithmetic._replace(accumulator=name))[""]
            if _narrow(lower) and fits(lower, found) and share(lower, np.roll(found, 1)) < 0.5:
                return f"consistent with sums {words}"
    return ""


def _narrow(known: Analysis) -> bool:
    """Whether the results that rounding can make lie close together: a wide interval would fit nearly everything."""
    number = np.isfinite(known.reference) & (known.reference != 0)
    low, high = (ranks.values_of(end[number], known.format) for end in known.ends()[:2])
    with np.errstate(invalid="ignore"):
        return bool(number.any() and np.median((high - low) / np.abs(known.reference[number])) < 0.5)


def _turned(golden: Golden, analysis: Analysis, codes: Array, wrong: Array) -> str:
    """Say that a result is that of a kernel whose taps or channels are turned; empty if it is not."""
    if analysis.reference.size > COSTLY:
        return ""
    bound = bound_of(golden)
    spec = bound.call.spec
    if next(port.role for port in spec.outputs if port.name == analysis.output) == "grad_weight":
        for words, turn in _turns(analysis.axes, analysis.shape):
            found, places = (np.ascontiguousarray(turn(each.reshape(analysis.shape))).ravel()
                             for each in (codes, wrong))
            if explains(analysis, ranks.ranks(found, analysis.format), places):
                return words
        return ""
    name = snake_case(spec.roles.get("weight", ""))
    weights = golden.inputs.get(name)
    if weights is None:
        return ""
    for words, turn in _turns(weight_axes(bound.call, bound.plan, weights.ndim), weights.shape):
        other = replace(golden, inputs={**golden.inputs, name: np.ascontiguousarray(turn(weights))})
        if explains(analyse(other, analysis.arithmetic)[analysis.output], ranks.ranks(codes, analysis.format), wrong):
            return words
    return ""


def _turns(axes: tuple[Axis, ...], shape: tuple[int, ...]) -> list[tuple[str, Callable[[Array], Array]]]:
    """Return ways to turn the taps or the channels of weights, in words and as functions."""
    taps = [number for number, axis in enumerate(axes) if axis.kind == "tap"]
    found: list[tuple[str, Callable[[Array], Array]]] = []
    if any(shape[number] > 1 for number in taps):
        found.append(("the result for reversed taps", lambda array: np.flip(array, tuple(taps))))
    channels = [number for number, axis in enumerate(axes) if axis.kind == "channel"]
    if len(channels) == 2 and all(axis.groups == 1 for axis in axes) and shape[channels[0]] == shape[channels[1]] > 1:
        found.append(("the result for exchanged input and output channels",
                      lambda array: np.swapaxes(array, *channels)))
    if len(taps) > 1 and shape[taps[-2]] == shape[taps[-1]] > 1:
        found.append(("the result for exchanged tap rows and columns",
                      lambda array: np.swapaxes(array, taps[-2], taps[-1])))
    return found
