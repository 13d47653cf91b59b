"""The standards of MindStudio's msprobe (Ascend-mstt), and the double thousandth of Ascend's papers."""

from __future__ import annotations

import numpy as np

from ...memory import Array
from . import ttk
from .pair import Outcome, Pair

SMALL = {"float32": (2.0**-20, 2.0**-30, 2.0**-20), "float16": (2.0**-10, 2.0**-16, 2.0**-10),
         "bfloat16": (2.0**-10, 1e-16, 2.0**-8)}
"""Below the first number a golden value is small; allowed absolute error of small and relative error of others."""


def thousandth(pair: Pair) -> Outcome:
    """999 of 1000 elements within a relative error of 0.001."""
    return _share_within(pair, "thousandth", 1e-3)


def ten_thousandth(pair: Pair) -> Outcome:
    """999 of 1000 elements within a relative error of 0.0001."""
    return _share_within(pair, "ten_thousandth", 1e-4)


def double_thousandth(pair: Pair) -> Outcome:
    """999 of 1000 elements within 0.001 for 16 bits, 9999 of 10000 within 0.0001 for float32."""
    return ttk.close(pair, "double_thousandth")


def _share_within(pair: Pair, name: str, limit: float) -> Outcome:
    with np.errstate(all="ignore"):
        share = float((np.abs((pair.a - pair.g) / pair.g) < limit).mean())
    return Outcome(name, share >= 0.999, {"share": share}, {"share": 0.999, "relative": limit},
                   "zero against zero counts as wrong" if ((pair.a == 0) & (pair.g == 0)).any() else "")


def absolute_threshold(pair: Pair) -> Outcome:
    """Small values by their absolute error, others by their relative error; all have to hold."""
    small_value, absolute, relative = SMALL.get(pair.format.name, SMALL["float32"])
    finite, mismatch = pair.agreement()
    error, size = pair.difference(), np.abs(pair.g)
    small = finite & (size <= small_value)
    with np.errstate(all="ignore"):
        wrong_small = float((small & (error > absolute)).sum()) / max(int(small.sum()), 1)
        others = finite & ~small
        wrong = float((others & (error / size >= relative)).sum()) / max(int(others.sum()), 1)
    specials = float(mismatch.sum()) / max(int((~finite).sum()), 1)
    figures = {"inf_nan_error_ratio": specials, "rel_err_ratio": wrong, "abs_err_ratio": wrong_small}
    return Outcome("absolute_threshold", not any(figures.values()), figures,
                   {"small_value": small_value, "absolute": absolute, "relative": relative})


def ulp(pair: Pair) -> Outcome:
    """Errors in units of the golden value's last place, as msprobe counts them."""
    errors = _ulps(pair, pair.a)
    if pair.format.bits >= 32:
        mean, share = float(errors.mean()), float((errors > 32).mean())
        figures, limits = {"mean": mean, "share_above_32": share}, {"mean": 64.0, "share_above_32": 0.05}
        passed, beyond = mean < 64 or share < 0.05, 32
    else:
        share = float((errors > 1).mean())
        figures, limits = {"share_above_1": share}, {"share_above_1": 1e-3}
        passed, beyond = share < 1e-3, 1
    if pair.b is not None:
        other = float((_ulps(pair, pair.b) > beyond).mean())
        figures["ratio_to_other"] = share / other if other else (1.0 if not share else np.inf)
        limits["ratio_to_other"] = 1.0
        passed = passed or figures["ratio_to_other"] < 1
    return Outcome("ulp", bool(passed), figures, limits)


def _ulps(pair: Pair, values: Array) -> Array:
    """Return abs(values - golden) over 2**floor(log2(abs(golden))) eps; where one is not finite, 0 or infinity."""
    finite = np.isfinite(values) & np.isfinite(pair.g)
    golden = np.where(finite, pair.g, 1.0)
    place = np.maximum(np.frexp(golden)[1] - 1, int(np.log2(pair.format.smallest_normal)))
    if pair.format.name == "hifloat8":
        digits = np.select([np.abs(place) <= 3, np.abs(place) <= 7], [3, 2], 1)
    else:
        digits = np.full(place.shape, pair.format.mantissa)
    with np.errstate(all="ignore"):
        error = np.abs(np.where(finite, values, 0).astype(np.float64) - np.where(finite, golden, 0))
        steps = np.ldexp(error, digits - place)
    same = (np.isnan(values) & np.isnan(pair.g)) | (values == pair.g)
    return np.where(finite, steps, np.where(same, 0.0, np.inf))
