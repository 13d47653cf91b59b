"""Whether the right numbers lie in another order: of the axes in memory, or of the bytes of each number."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

import numpy as np

from ..memory import Array
from . import ranks
from .axes import UNNAMED
from .bounds import Analysis
from .evidence import COSTLY, explains, fits

SAMPLE = 256
"""Wrong elements that decide whether an order is worth the test of all elements."""


def in_other_order(analysis: Analysis, codes: Array, wrong: Array) -> str:
    """Say in which order the numbers lie; empty if there is none that makes them right.

    Parameters
    ----------
    analysis : Analysis
    codes : ndarray
        The judged results in the storage of the format, flat.
    wrong : ndarray of bool
        Flat; at least one element is.
    """
    format, shape = analysis.format, analysis.shape
    if codes.size > COSTLY:
        return ""
    if format.bits > 8 and explains(analysis, ranks.ranks(codes.byteswap(), format), wrong):
        return "the result with the bytes of each number in the opposite order"
    held = np.flatnonzero(wrong)
    held = held[np.linspace(0, held.size - 1, min(SAMPLE, held.size)).astype(np.int64)]
    sample = ranks.ranks(codes[held], format)
    for order in _orders(shape):
        stored, back = tuple(shape[axis] for axis in order), tuple(np.argsort(order).tolist())
        index = np.unravel_index(held, stored)
        places = np.ravel_multi_index(tuple(index[axis] for axis in back), shape)
        if fits(analysis.at(places), sample):
            found, moved = (np.ascontiguousarray(each.reshape(stored).transpose(back)).ravel()
                            for each in (codes, wrong))
            if explains(analysis, ranks.ranks(found, format), moved):
                return "the result with its axes in the order " + ", ".join(
                    analysis.axes[axis].name.removesuffix(UNNAMED) for axis in order)
    return ""


def _orders(shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Return the orders of axes in which elements of an array of a shape lie in other places."""
    known = {tuple(axis for axis, extent in enumerate(shape) if extent > 1)}
    for order in permutations(range(len(shape))):
        matters = tuple(axis for axis in order if shape[axis] > 1)
        if matters not in known:
            known.add(matters)
            yield order
