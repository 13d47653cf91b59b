"""What one rounding of a tensor costs: signal-to-noise ratio, numbers lost to zero and to overflow, the best scale."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, frexp, isfinite, nan
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..memory import Array
from ..numerics import Rounding as NumpyRounding
from ..numerics import best_exponent
from ..numerics.metrics import decibels, times_power, unit_of
from .bridge import rounds, stored
from .operands import Codes, decoded, largest_magnitude, rounded
from .problems import Arguments
from .recipes import KNOWN, Rounding

SAMPLE = 2**12
"""The most numbers that the best scale is looked for with: every scale is tried on all of them."""

BLOCK = 2**13
"""Numbers that are compared at a time: they stay in the cache, and BLAS starts no threads for them."""


@dataclass(frozen=True, slots=True)
class Record:
    """One tensor of one call of a layer, and what rounding did to it.

    Attributes
    ----------
    layer : str
        Name in the observed module.
    step : int
        The step of the training, from 0 on.
    call : int
        The call of the layer in this step, from 0 on.
    tensor : str
        ``"input"``, ``"weight"``, ``"grad_output"``, and ``"grad_input"`` and ``"grad_weight"`` where the recipe rounds
        them.
    product : str
        The product that the tensor is rounded for, ``"forward"``, ``"grad_input"`` or ``"grad_weight"``. It is empty if
        one rounding serves all.
    format : str
        What the tensor is rounded to; ``""`` if it is left as it is.
    exponent : int or None
        The tensor is multiplied by 2**exponent before it is rounded; None if each channel has an exponent of its own.
    elements : int
        How many numbers the tensor has.
    snr_db : float
        Signal-to-noise ratio of the rounded tensor against the tensor, as in `convreg.numerics.Error`: infinite if no
        number changed, minus infinity if one became infinite or NaN. NaN if the tensor itself is not finite.
    flushed : float
        Share of the numbers that are not zero which became zero.
    saturated : float
        Share of the numbers that are too large for the format, whether they became its largest number, infinity or
        NaN. Infinite numbers count; NaN in the tensor does not, and `largest` is NaN then.
    largest : float
        Largest magnitude of the tensor before it is scaled.
    best_exponent : int or None
        The exponent e for which the tensor times 2**e has the best signal-to-noise ratio in the format, as in
        `convreg.numerics.best_exponent`. It is found with at most 4096 numbers, evenly spaced, and the largest one.
        None if it was not looked for, or the tensor is not finite.
    """

    layer: str
    step: int
    call: int
    tensor: str
    product: str
    format: str
    exponent: int | None
    elements: int
    snr_db: float
    flushed: float
    saturated: float
    largest: float
    best_exponent: int | None


def measured(
    tensor: Tensor, name: str, how: Rounding | None, arguments: Arguments, seed: int, scales: bool
) -> dict[str, Any]:
    """Return the entries of a `Record` from `format` on.

    Parameters
    ----------
    tensor, name, how, arguments, seed
        As for `operands.rounded`, which rounds here as it does in the layer.
    scales : bool
        Whether to look for the best scale.
    """
    wide = torch.float64 if tensor.dtype is torch.float64 else torch.float32
    exact = _flat(tensor.detach().to(wide))
    largest = largest_magnitude(tensor)
    entries = {"format": "" if how is None else how.format, "exponent": 0, "elements": exact.size, "snr_db": np.inf,
               "flushed": 0.0, "saturated": 0.0, "largest": largest, "best_exponent": 0 if scales else None}
    if not isfinite(largest):
        entries.update(snr_db=nan, best_exponent=None)
    if how is None or not rounds(tensor.dtype, how.format):
        return entries
    codes = rounded(tensor.detach(), name, how, arguments, seed)
    entries["exponent"] = 1 - frexp(codes.scale)[1] if isinstance(codes.scale, float) else None
    found = _flat(decoded(codes, name, arguments, wide))
    entries["flushed"], ratio = _compared(found, exact)
    if isfinite(largest):
        entries["snr_db"] = ratio
        if scales:
            entries["best_exponent"] = best_exponent(_sample(exact), NumpyRounding(
                KNOWN[how.format], how.rounding, how.saturate, seed if how.rounding == "stochastic" else None))
    # The largest number of HiFloat8 itself becomes infinite in hybrid rounding.
    if not isfinite(largest) or (how.scaling == "none" and largest >= KNOWN[how.format].largest):
        whole = decoded(Codes(tensor.detach().to(wide), 1.0 / codes.scale), name, arguments, wide)
        lost = NumpyRounding(KNOWN[how.format]).lost(_flat(whole), found, 0)
        entries["saturated"] = float((lost & ~np.isnan(exact)).mean())
    return entries


def _compared(found: Array, exact: Array) -> tuple[float, float]:
    """Return the share of numbers that became zero, and the signal-to-noise ratio, of rounded numbers."""
    zeros = nonzero = 0
    signal = noise = 0.0
    unit = unit_of(exact) if exact.dtype == np.float64 else 0  # squares of float32 are in the range of float64
    with np.errstate(invalid="ignore"):  # infinity minus infinity
        for begin in range(0, exact.size, BLOCK):
            wanted, made = exact[begin : begin + BLOCK], found[begin : begin + BLOCK]
            present = wanted != 0
            nonzero += int(np.count_nonzero(present))
            zeros += int(np.count_nonzero(present & (made == 0)))
            wanted, made = (times_power(values.astype(np.float64), unit) for values in (wanted, made))
            made -= wanted
            signal, noise = signal + float(wanted @ wanted), noise + float(made @ made)
    return zeros / nonzero if nonzero else 0.0, decibels(signal, noise) if isfinite(noise) else -np.inf


def _flat(tensor: Tensor) -> Array:
    return stored(tensor.contiguous()).reshape(-1)


def _sample(values: Array) -> Array:
    """Return all of a few numbers, of many those in even distances and the one of the largest magnitude."""
    if values.size <= SAMPLE:
        return values
    return np.append(values[::ceil(values.size / SAMPLE)], values[np.abs(values).argmax()])
