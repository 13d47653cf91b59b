"""Activations. At a corner of a function its left derivative holds, as in PyTorch, unless a rule says otherwise."""

from __future__ import annotations

from math import pi, sqrt

import numpy as np

from ..rule_registry import Gradients, gradient_of
from ..step import Step
from ..value import Value


@gradient_of("Relu")
def relu(step: Step) -> Value:
    """``g`` where y > 0."""
    return step.g.only(step.y.cast(np.bool_))  # y is never negative, and Sign takes three times as long


@gradient_of("LeakyRelu")
def leaky_relu(step: Step) -> Value:
    """``g`` where x > 0, else ``alpha g``."""
    return (step.x > 0).where(step.g, step.g * step.attribute("alpha", 0.01))


@gradient_of("PRelu")
def parametric_relu(step: Step) -> Gradients:
    """``g`` where x > 0, else ``slope g``; for the slope ``g min(x, 0)``."""
    x, slope = step.x, step.input(1)
    positive = x > 0
    first = positive.where(step.g, step.g * slope) if step.wants(0) else None
    second = step.summed(step.g * positive.where(0, x), 1) if step.wants(1) else None
    return [first, second]


@gradient_of("Elu")
def elu(step: Step) -> Value:
    """``g`` where x > 0, else ``g (y + alpha)``."""
    return (step.x > 0).where(step.g, step.g * (step.y + step.attribute("alpha", 1.0)))


@gradient_of("Clip", inputs=(0,))
def clip(step: Step) -> Value:
    """``g`` strictly between the bounds: at a bound it is 0, as for ReLU6 in PyTorch."""
    inside = None
    if step.has(1):
        inside = step.x > step.input(1)
    if step.has(2):
        below = step.x < step.input(2)
        inside = below if inside is None else inside.apply("And", below)
    return step.g if inside is None else step.g.only(inside)


@gradient_of("Sigmoid")
def sigmoid(step: Step) -> Value:
    """``g y (1 - y)``."""
    return step.g * (step.y * (1 - step.y))


@gradient_of("Tanh")
def tanh(step: Step) -> Value:
    """``g (1 - y y)``."""
    return step.g * (1 - step.y * step.y)


@gradient_of("Softplus")
def softplus(step: Step) -> Value:
    """``g sigmoid(x)``."""
    return step.g * step.x.apply("Sigmoid")


@gradient_of("Softsign")
def softsign(step: Step) -> Value:
    """``g (1 - |y|)^2``."""
    rest = 1 - step.y.apply("Abs")
    return step.g * (rest * rest)


@gradient_of("HardSigmoid")
def hard_sigmoid(step: Step) -> Value:
    """``alpha g`` where 0 < y < 1."""
    inside = (step.y > 0).apply("And", step.y < 1)
    return (step.g * step.attribute("alpha", 0.2)).only(inside)


@gradient_of("HardSwish")
def hard_swish(step: Step) -> Value:
    """0 where x <= -3, ``g (x/3 + 1/2)`` where x < 3, else ``g``."""
    x = step.x
    inner = (x / 3 + 0.5).only((x > -3).apply("And", x < 3))
    return step.g * (inner + (x >= 3).cast(x.dtype))


@gradient_of("Gelu")
def gelu(step: Step) -> Value:
    """``g (Phi(x) + x phi(x))``, or the derivative of the form with tanh."""
    x = step.x
    if step.attribute("approximate", "none") == "tanh":
        k = sqrt(2 / pi)
        square = x * x
        t = (x * (square * (0.044715 * k) + k)).apply("Tanh")
        inner = (1 - t * t) * (square * (3 * 0.044715 * k) + k)
        return step.g * ((t + 1 + x * inner) * 0.5)
    density = (x * x * -0.5).apply("Exp") * (1 / sqrt(2 * pi))
    below = ((x * sqrt(0.5)).apply("Erf") + 1) * 0.5
    return step.g * (below + x * density)


def _axes_of_softmax(step: Step) -> list[int]:
    return [step.attribute("axis", -1)]


@gradient_of("Softmax")
def softmax(step: Step) -> Value:
    """``y (g - sum(g y))``."""
    g, y = step.g, step.y
    return y * (g - (g * y).sum(_axes_of_softmax(step)))


@gradient_of("LogSoftmax")
def log_softmax(step: Step) -> Value:
    """``g - exp(y) sum(g)``."""
    return step.g - step.y.apply("Exp") * step.g.sum(_axes_of_softmax(step))


@gradient_of("ThresholdedRelu")
def thresholded_relu(step: Step) -> Value:
    """``g`` where x > alpha."""
    return step.g.only(step.x > step.attribute("alpha", 1.0))


@gradient_of("Celu")
def celu(step: Step) -> Value:
    """``g`` where x > 0, else ``g (y / alpha + 1)``."""
    return (step.x > 0).where(step.g, step.g * (step.y / step.attribute("alpha", 1.0) + 1))


@gradient_of("Selu")
def selu(step: Step) -> Value:
    """``gamma g`` where x > 0, else ``g (y + gamma alpha)``."""
    gamma = step.attribute("gamma", 1.0507009873554805)
    alpha = step.attribute("alpha", 1.6732632423543772)
    return (step.x > 0).where(step.g * gamma, step.g * (step.y + gamma * alpha))


@gradient_of("Mish")
def mish(step: Step) -> Value:
    """``g (t + x (1 - t t) sigmoid(x))`` with t = tanh(softplus(x))."""
    x = step.x
    t = x.apply("Softplus").apply("Tanh")
    return step.g * (t + x * ((1 - t * t) * x.apply("Sigmoid")))
