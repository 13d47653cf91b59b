"""Trigonometric and hyperbolic functions of one number, and their inverses. `arithmetic` has Sin and Cos."""

from __future__ import annotations

from ..rule_registry import gradient_of
from ..step import Step
from ..value import Value


def _over_root(step: Step, square: Value) -> Value:
    return step.g / square.apply("Sqrt")


@gradient_of("Tan")
def tan(step: Step) -> Value:
    """``g (1 + y y)``."""
    return step.g * (1 + step.y * step.y)


@gradient_of("Asin")
def arc_sine(step: Step) -> Value:
    """``g / sqrt(1 - x x)``."""
    return _over_root(step, 1 - step.x * step.x)


@gradient_of("Acos")
def arc_cosine(step: Step) -> Value:
    """``-g / sqrt(1 - x x)``."""
    return -_over_root(step, 1 - step.x * step.x)


@gradient_of("Atan")
def arc_tangent(step: Step) -> Value:
    """``g / (1 + x x)``."""
    return step.g / (1 + step.x * step.x)


@gradient_of("Sinh")
def hyperbolic_sine(step: Step) -> Value:
    """``g cosh(x)``."""
    return step.g * step.x.apply("Cosh")


@gradient_of("Cosh")
def hyperbolic_cosine(step: Step) -> Value:
    """``g sinh(x)``."""
    return step.g * step.x.apply("Sinh")


@gradient_of("Asinh")
def inverse_hyperbolic_sine(step: Step) -> Value:
    """``g / sqrt(x x + 1)``."""
    return _over_root(step, step.x * step.x + 1)


@gradient_of("Acosh")
def inverse_hyperbolic_cosine(step: Step) -> Value:
    """``g / sqrt(x x - 1)``."""
    return _over_root(step, step.x * step.x - 1)


@gradient_of("Atanh")
def inverse_hyperbolic_tangent(step: Step) -> Value:
    """``g / (1 - x x)``."""
    return step.g / (1 - step.x * step.x)
