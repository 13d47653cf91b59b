"""The standards of CANN's operator test kit (hicann/ops-test-kit 2.8)."""

from __future__ import annotations

import numpy as np

from ...memory import Array
from .pair import Outcome, Pair

MIXED = {
    "float32": (2.0**-10, 2.0**-16, 1e-2), "float16": (2.0**-9, 2.0**-9, 0.1), "bfloat16": (2.0**-6, 2.0**-6, 1.0),
    "float8_e4m3fn": (2.0**-2, 2.0**-4, 4.0), "float8_e5m2": (2.0**-1, 2.0**-3, 8.0)}
"""Relative and absolute tolerance, and the largest error allowed, by format; float64 is held to those of float32."""
MATCHED = 0.99

RELATIVE = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float8_e4m3fn": 2.0**-3, "float8_e5m2": 2.0**-2}
OTHERWISE = 2.0**-13

SMALL = {"float16": (2.0**-11, 2.0**-16), "bfloat16": (2.0**-8, 2.0**-16), "float32": (2.0**-14, 2.0**-30)}
"""Below the first number a golden value is small; the second is the absolute error that counts there."""
LEVELS = {"max": 5.0, "mean": 1.5, "rms": 1.5}
"""The ratios of level L1, the kit's default."""

CODES = ("hifloat8",)
"""Formats that the kit judges by their codes, whatever standard is asked for."""
SIXTEEN_BIT = ("float16", "bfloat16")


def mix_tolerance(pair: Pair) -> Outcome:
    """Most elements within a tolerance, and none beyond a limit."""
    if pair.format.name in CODES:
        return _by_codes(pair, "mix_tolerance")
    rtol, atol, limit = MIXED.get(pair.format.name, MIXED["float32"])
    finite, mismatch = pair.agreement()
    error = pair.difference()
    with np.errstate(invalid="ignore"):
        matched = ~finite & ~mismatch | finite & (error <= atol + rtol * np.abs(pair.g))
    ratio = float(matched.sum()) / matched.size
    largest = np.inf if mismatch.any() else float(error[finite].max(initial=0))
    return Outcome("mix_tolerance", ratio >= MATCHED and largest <= limit,
                   {"matched_ratio": ratio, "max_abs_error": largest},
                   {"matched_ratio": MATCHED, "max_abs_error": limit, "rtol": rtol, "atol": atol})


def stat_rel_err(pair: Pair) -> Outcome:
    """The mean and the largest relative error."""
    if pair.format.name in CODES:
        return _by_codes(pair, "stat_rel_err")
    limit = RELATIVE.get(pair.format.name, OTHERWISE)
    limits = {"mean": limit, "max": 10 * limit}
    finite, mismatch = pair.agreement()
    if mismatch.any():
        return Outcome("stat_rel_err", False, {"mean": np.nan, "max": np.nan}, limits, "NaN or infinity differs")
    relative = (pair.difference() / (np.abs(pair.g) + 1e-7))[finite]
    if not relative.size:
        return Outcome("stat_rel_err", True, {}, limits)
    mean, largest = float(relative.mean()), float(relative.max())
    return Outcome("stat_rel_err", mean < limit and largest < 10 * limit, {"mean": mean, "max": largest}, limits)


def isclose(pair: Pair) -> Outcome:
    """Nearly all elements within a relative tolerance."""
    return close(pair, "isclose")


def close(pair: Pair, name: str) -> Outcome:
    """Judge by the share of elements outside of a relative tolerance, as two vendors do."""
    if pair.format.name in CODES and name == "isclose":
        return _by_codes(pair, name)
    tolerance = 1e-3 if pair.format.name in SIXTEEN_BIT else 1e-4
    with np.errstate(invalid="ignore", over="ignore"):
        wrong = float((~np.isclose(pair.a, pair.g, rtol=tolerance, atol=1e-8, equal_nan=True)).mean())
    return Outcome(name, wrong <= tolerance, {"wrong": wrong}, {"wrong": tolerance, "rtol": tolerance, "atol": 1e-8})


def cosine(pair: Pair) -> Outcome:
    """The angle between the two results as vectors."""
    if pair.format.name in CODES:
        return _by_codes(pair, "cosine")
    with np.errstate(all="ignore"):
        found = float(pair.a @ pair.g / (np.linalg.norm(pair.a) * np.linalg.norm(pair.g)))
    note = ""
    if found != found:
        zeros = not (pair.a.any() and pair.g.any())
        note = "a result of zeros has no angle" if zeros else "NaN, infinity and sums that overflow have no angle"
    return Outcome("cosine", bool(1 - found <= 0.01), {"cosine": found}, {"cosine": 0.99}, note)


def binary_equal(pair: Pair) -> Outcome:
    """Equal bytes, or both NaN."""
    device, golden = (codes.view(f"u{codes.itemsize}") for codes in (pair.device, pair.golden))
    differ = int(((device != golden) & ~(np.isnan(pair.a) & np.isnan(pair.g))).sum())
    return Outcome("binary_equal", not differ, {"differ": differ}, {"differ": 0})


def requant(pair: Pair) -> Outcome:
    """Codes that differ by one at most, in arithmetic of eight bits that wraps."""
    note = "codes of HiFloat8 are not ordered by value" if pair.format.name in CODES else ""
    if pair.format.bits != 8:
        outcome = binary_equal(pair)
        return outcome._replace(standard="requant", note="formats of 8 bits only: judged by equal bytes")
    both = np.isnan(pair.a) & np.isnan(pair.g)
    wrong = float((_steps(pair.device, pair.golden) & ~both).mean())
    return Outcome("requant", wrong <= 1e-3, {"wrong": wrong}, {"wrong": 1e-3}, note)


def _steps(device: Array, golden: Array) -> Array:
    """Return where the wrapped magnitude of the wrapped difference is above one, as NumPy's int8 has it."""
    with np.errstate(over="ignore"):
        found: Array = np.abs(device.view(np.int8) - golden.view(np.int8)) > 1
        return found


def _by_codes(pair: Pair, asked: str) -> Outcome:
    outcome = requant(pair)
    return outcome._replace(standard=asked, note=f"the kit judges {pair.format.name} by requant; {outcome.note}")


def quant(pair: Pair) -> Outcome:
    """Integers that differ by one at most."""
    with np.errstate(invalid="ignore"):
        wrong = float((~(np.abs(np.trunc(pair.a) - np.trunc(pair.g)) <= 1)).mean())
    return Outcome("quant", wrong <= 0, {"wrong": wrong}, {"wrong": 0}, "the kit takes it for int4 and int8 only")


def cross_check(pair: Pair) -> Outcome:
    """The errors against those of another device; it needs that device's result."""
    limits = {f"{name}_ratio": limit for name, limit in LEVELS.items()} | {"small_ratio": 2.0}
    if pair.b is None:
        return Outcome("cross_check", False, {}, limits, "another device's result is needed: other=")
    if pair.format.name not in SMALL:
        return Outcome("cross_check", False, {}, limits, f"the kit has it for {', '.join(SMALL)} only")
    small_value, small_error = SMALL[pair.format.name]
    a, g, b = pair.a, pair.g, pair.b
    finite = np.isfinite(a) & np.isfinite(g) & np.isfinite(b)
    alike = _alike(a, b) | (~np.isfinite(g) & _alike(a, g))
    passed = bool(alike[~finite].all())
    large, small = finite & (np.abs(g) >= small_value), finite & (np.abs(g) < small_value)
    figures = {}
    if large.any():
        own, others = _errors(a[large], g[large]), _errors(b[large], g[large])
        for name, limit in LEVELS.items():
            figures[f"{name}_ratio"] = ratio = _ratio(own[name], others[name], small_value)
            passed &= ratio <= limit
    if small.any():
        mine, theirs = (int((np.abs(values[small] - g[small]) > small_error).sum()) for values in (a, b))
        figures["small_ratio"] = mine / max(theirs, 1)
        passed &= figures["small_ratio"] <= 2
    return Outcome("cross_check", bool(passed), figures, limits)


def _alike(first: Array, second: Array) -> Array:
    found: Array = (np.isnan(first) & np.isnan(second)) | (first == second)
    return found


def _errors(values: Array, golden: Array) -> dict[str, float]:
    difference = np.abs(values - golden)
    relative = difference / (np.abs(golden) + 1e-7)
    with np.errstate(over="ignore"):
        squares = np.mean(difference.astype(np.float64)**2)
    return {"max": float(relative.max()), "mean": float(relative.mean()), "rms": float(np.sqrt(squares))}


def _ratio(own: float, other: float, floor: float) -> float:
    return 1.0 if own == other == 0 else own / max(other, floor)
