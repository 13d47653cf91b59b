"""convreg's Quantize and Dequantize: gradients pass as if nothing was rounded (the straight-through estimator)."""

from __future__ import annotations

from ..rounding import DOMAIN
from ..rule_registry import gradient_of
from ..step import Step
from ..value import Value


@gradient_of("Quantize", domain=DOMAIN, inputs=(0,), through=True)
def quantize(step: Step) -> Value:
    """``g``, divided by the scale."""
    return step.summed(step.g / step.input(1), 0) if step.has(1) else step.g


@gradient_of("Dequantize", domain=DOMAIN, inputs=(0,), through=True)
def dequantize(step: Step) -> Value:
    """``g``, multiplied by the scale."""
    return step.summed(step.g * step.input(1), 0) if step.has(1) else step.g
