"""Figures of roundings, stated plainly in NumPy, for records of convreg.torch.observe."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import convreg.torch


def ratio(found, exact):
    exact, found = exact.astype(np.float64).ravel(), found.astype(np.float64).ravel()
    noise, signal = np.sum((found - exact) ** 2), np.sum(exact**2)
    if not np.isfinite(found).all():
        return -math.inf
    return 10 * math.log10(signal / noise) if noise else math.inf


def rounded(array, format, exponent=0, **how):
    codes = convreg.quantize(np.ldexp(array.astype(np.float32), exponent), format, **how)
    return np.ldexp(convreg.dequantize(codes, dtype=np.float64), -exponent)


def check(found, array, exponent, **how):
    """A record against the array that it tells of."""
    exact = array.astype(np.float32)
    values = rounded(exact, found.format, exponent, **how)
    assert found.exponent == exponent
    assert found.elements == exact.size
    assert found.largest == np.abs(exact).max()
    assert found.snr_db == pytest.approx(ratio(values, exact), abs=1e-9)
    assert found.flushed == np.mean(values[exact != 0] == 0)
    endless = rounded(exact, found.format, exponent)
    assert found.saturated == np.mean(~np.isfinite(endless))
    best = ratio(rounded(exact, found.format, found.best_exponent, **how), exact)
    others = [ratio(rounded(exact, found.format, power, **how), exact) for power in range(-30, 31)]
    assert best >= max(others) - 1e-9


def exponent_for(array, format):
    top = 8.0 if format == "hifloat8" else convreg.formats()[format].largest
    return math.floor(math.log2(top / np.abs(array.astype(np.float64)).max()))


def identity(features, format, **changes):
    """A linear layer whose output is its rounded input."""
    layer = nn.Linear(features, features, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.eye(features))
    return convreg.torch.convert(layer, convreg.torch.recipe(format, **changes))


def hooks(module):
    return sum(len(layer._forward_hooks) + len(layer._forward_pre_hooks) for layer in module.modules())
