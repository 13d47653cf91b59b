"""Random numbers that are equal on every machine: Philox words, turned into numbers by operations that round exactly.

The words come from a counter and a key, so that an array depends on nothing that was made before it. Integer arithmetic
and single additions, multiplications and square roots of float64 are the same everywhere; logarithms are not.
"""

from __future__ import annotations

import hashlib
import json
from math import sqrt
from typing import Any

import numpy as np

from ..memory import Array

Words = np.ndarray[Any, np.dtype[np.uint64]]

VERSION = 1
"""Changes with every change of the numbers that a key gives."""

NORMAL_BITS = 48
_STEP = 2.0**-17 / sqrt(NORMAL_BITS / 4 + 1 / 12)


def stream(*key: str | int) -> np.random.Philox:
    """Return a stream of 64-bit words that the key alone decides; ``random_raw`` gives them."""
    text = json.dumps(["convreg.golden", VERSION, *key])
    return np.random.Philox(key=int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "little"))


def words(source: np.random.Philox, count: int) -> Words:
    """Return the next words of a stream."""
    return np.asarray(source.random_raw(count), np.uint64)


def normal(drawn: Words) -> Array:
    """Return one number per word, of mean 0 and variance 1, nearly normal.

    The number of ones among 48 bits has a binomial distribution; the other 16 bits spread it between the integers. No
    magnitude is above 7.05, and the fourth moment is 2.96 (3 for a normal distribution).
    """
    ones = _ones(drawn >> np.uint64(16))
    low = (drawn & np.uint64(0xFFFF)).astype(np.int64)
    centred = 2 * ((ones << 16) + low) + 1 - (NORMAL_BITS + 1) * 2**16
    return centred * _STEP


def _ones(bits: Words) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return how many bits of each word are set."""
    pairs, nibbles, octets, each = (np.uint64(mask) for mask in (
        0x5555555555555555, 0x3333333333333333, 0x0F0F0F0F0F0F0F0F, 0x0101010101010101))
    bits = bits - ((bits >> np.uint64(1)) & pairs)
    bits = (bits & nibbles) + ((bits >> np.uint64(2)) & nibbles)
    bits = (bits + (bits >> np.uint64(4))) & octets
    return ((bits * each) >> np.uint64(56)).astype(np.int64)


def uniform(drawn: Words, low: float, high: float) -> Array:
    """Return one number per word, evenly distributed in the closed range."""
    share = (drawn >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return low * (1 - share) + high * share


def integers(drawn: Words, low: int, high: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return one integer per word from `low` to `high`, at most 2**32 of them; the low 32 bits are not used."""
    count = np.uint64(high - low + 1)
    return ((((drawn >> np.uint64(32)) * count) >> np.uint64(32)).astype(np.int64)) + low


def kept(drawn: Words, share: float) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return which words belong to a share of all, by their low 32 bits."""
    return (drawn & np.uint64(0xFFFFFFFF)) < np.uint64(int(share * 2**32))


def places(source: np.random.Philox, size: int, count: int) -> list[int]:
    """Return `count` different positions among `size`."""
    found: dict[int, None] = {}
    for word in words(source, count).tolist():
        place = word * size >> 64
        while place in found:
            place = (place + 1) % size
        found[place] = None
    return list(found)
