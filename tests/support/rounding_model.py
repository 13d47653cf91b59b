"""What quantize computes, written from the formats' values alone: neighbours, exact fractions, one decision."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

import convreg

NARROW = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "hifloat8")
PLAIN_ROUNDINGS = ("nearest_even", "half_away", "toward_zero")
FORMATS = convreg.formats()


def as_float64(x: np.ndarray) -> np.ndarray:
    """Exactly, and silent about signalling NaN."""
    with np.errstate(invalid="ignore"):
        return x.astype(np.float64)


class Grid(NamedTuple):
    """The numbers from zero up with their codes; the last one stands for everything beyond the largest."""

    values: np.ndarray
    codes: np.ndarray


@lru_cache
def grid(name: str) -> Grid:
    format = FORMATS[name]
    codes = np.arange(2 ** (format.bits - 1))
    values = as_float64(format.values[: codes.size])
    order = np.argsort(values[np.isfinite(values)], kind="stable")
    values, codes = values[np.isfinite(values)][order], codes[np.isfinite(values)][order]
    beyond = format.nan if format.infinity is None else format.infinity
    step = 2.0 ** np.floor(np.log2(values[-1]) - format.mantissa) if name != "hifloat8" else values[-1] / 2
    return Grid(np.append(values, values[-1] + step), np.append(codes, beyond))


def neighbours(x: np.ndarray, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Index in the grid of the number at or below each |x|, and the fraction of the step from there to |x|."""
    values = grid(name).values
    magnitude = np.abs(as_float64(x))
    magnitude = np.where(np.isnan(magnitude), 0, magnitude)
    index = np.searchsorted(values, magnitude, side="right") - 1
    last = values.size - 1
    low, high = values[np.minimum(index, last - 1)], values[np.minimum(index + 1, last)]
    with np.errstate(invalid="ignore"):
        fraction = np.where(index == last, 0, (magnitude - low) / (high - low))
    return index, fraction


def quantized(
    x: np.ndarray, name: str, rounding: str, saturate: bool = False, up: np.ndarray | None = None
) -> np.ndarray:
    """Codes of float values; `up` replaces the decision of the rounding."""
    format, (_, codes) = FORMATS[name], grid(name)
    index, fraction = neighbours(x, name)
    last = codes.size - 1
    if up is None:
        up = {"nearest_even": (fraction > 0.5) | ((fraction == 0.5) & (codes[np.minimum(index, last)] % 2 == 1)),
              "half_away": fraction >= 0.5, "toward_zero": np.zeros(x.shape, bool)}[rounding]
    index = np.minimum(index + up, last)
    finite = ~np.isinf(x)
    if saturate:
        index = np.minimum(index, last - 1)
    elif rounding == "toward_zero":
        index = np.where(finite, np.minimum(index, last - 1), index)
    result = codes[index]
    signed = np.signbit(x) & (format.negative_zero | (result != 0))
    result = result | (signed.astype(np.int64) << (format.bits - 1))
    if name == "hifloat8":
        return np.where(np.isnan(x), 0 if saturate else 0x80, result)
    if format.bits == 8:  # one code for all that is no number
        return np.where(np.isnan(x) | np.isin(result, format.nan_codes), format.nan, result)
    return np.where(np.isnan(x), format.nan | np.signbit(x).astype(np.int64) << (format.bits - 1), result)


def boundaries(name: str, dtype: type = np.float32) -> np.ndarray:
    """Every number, every midpoint, the floats beside each, both signs; overflow; specials and tiny numbers."""
    values = grid(name).values
    middle = (values[1:] + values[:-1]) / 2
    largest = float(np.finfo(np.float32).max)
    points = np.concatenate([values, middle, [2.0**-149, 2.0**-126, 1e30, largest]])
    points = points[points <= largest].astype(dtype)
    with np.errstate(over="ignore"):
        ends = [np.nextafter(points, dtype(end)) for end in (np.inf, -np.inf)]
    points = np.concatenate([points, *ends])
    points = np.concatenate([points, np.array([0, np.inf, np.nan], dtype)])
    return np.concatenate([points, -points])


def spread(count: int, seed: int = 0) -> np.ndarray:
    """Floats of all exponents, NaN with payloads among them."""
    return np.random.default_rng(seed).integers(0, 2**32, count, dtype=np.uint32).view(np.float32)


def philox(seed: int, stream: int, count: int) -> np.ndarray:
    """Words 0 to count - 1 of Philox4x32-10 with key `seed` and counters (0, stream), (1, stream), ..."""
    groups = np.arange(-(-count // 4), dtype=np.uint64)
    mask = np.uint64(2**32 - 1)
    a, b, c, d = groups & mask, groups >> 32, np.full_like(groups, stream), np.zeros_like(groups)
    low, high = seed % 2**32, seed >> 32
    for _ in range(10):
        p, q = a * np.uint64(0xD2511F53), c * np.uint64(0xCD9E8D57)
        a, b, c, d = q >> 32 ^ b ^ np.uint64(low), q & mask, p >> 32 ^ d ^ np.uint64(high), p & mask
        low, high = (low + 0x9E3779B9) % 2**32, (high + 0xBB67AE85) % 2**32
    return np.stack([a, b, c, d], 1).ravel()[:count]


def hybrid(x: np.ndarray, saturate: bool = False) -> np.ndarray:
    """HiFloat8 codes under hybrid rounding, one number at a time, in integers; the rule of arXiv 2409.16626."""
    single = x.dtype == np.float32
    bits = x.view(np.uint32 if single else np.uint16)
    with np.errstate(invalid="ignore"):
        wide = x.astype(np.float32)
    codes = quantized(wide, "hifloat8", "half_away", saturate)
    index, _ = neighbours(wide, "hifloat8")
    for place in np.flatnonzero(np.isfinite(wide) & (np.abs(wide) < 40960) & (np.abs(wide) >= 2**-23)):
        exponent = int(np.floor(np.log2(np.abs(np.float64(wide[place])))))
        if abs(exponent) < 4:
            continue
        below = grid("hifloat8").values[index[place]]
        width = 2 if abs(exponent) < 8 else 1 if abs(exponent) < 16 else 0
        step = 2.0**-22 if exponent == -23 else 2.0 ** (exponent - width)
        fraction = (float(np.abs(wide[place])) - below) / step  # of the step that the source's exponent has
        if single:
            up = int(fraction * 2**14) >= int(bits[place]) % 2**14
        else:
            up = int(fraction * 4) >= int(bits[place]) % 2 * 2 + 1
        codes[place] = quantized(wide[place:place + 1], "hifloat8", "", saturate, np.array([up]))[0]
    return codes
