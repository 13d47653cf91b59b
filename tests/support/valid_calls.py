"""One small legal call of every operator, under its default conformance."""

from __future__ import annotations

import numpy as np
from drawn import Drawn
from gradient_calls import GradientCall, forward, single, together

import convreg

CASE = Drawn(groups=1, stride=(1, 1), dilation=(1, 1), begin=(1, 1), end=(1, 1), large=(2, 3, 5, 6), small=(2, 4, 5, 6),
             weights=(4, 3, 3, 3))


def several(results):
    """The results of a call as a tuple."""
    return results if isinstance(results, tuple) else (results,)


def _numbers(shape):
    return (np.arange(np.prod(shape)).reshape(shape) % 7 - 3).astype(np.float32) / 4


def _calls():
    found = [*single(CASE, _numbers), *forward(CASE, _numbers), *together(CASE, _numbers, (True, True, True), False)]
    x = _numbers((3, 5))
    found += [GradientCall("nodes::Quantize", (x,), {}),
              GradientCall("nodes::Dequantize", (convreg.quantize(x, "hifloat8"),), {})]
    return {call.name: call for call in found}


VALID = _calls()
assert set(VALID) == set(convreg.names())
