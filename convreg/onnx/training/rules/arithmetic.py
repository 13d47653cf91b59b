"""Arithmetic element by element, with broadcasting, and functions of one number."""

from __future__ import annotations

from math import pi, sqrt

import numpy as np

from ..rule_registry import Gradients, gradient_of
from ..step import Step
from ..value import Value


def _each(step: Step, *formulas: Value | None) -> list[Value | None]:
    """Sum what belongs to each input to its shape."""
    return [None if formula is None else step.summed(formula, index) for index, formula in enumerate(formulas)]


@gradient_of("Add")
def add(step: Step) -> Gradients:
    """``g`` for both."""
    return _each(step, *(step.g if wanted else None for wanted in step.wanted))


@gradient_of("Sum")
def variadic_sum(step: Step) -> Gradients:
    """``g`` for each."""
    return _each(step, *(step.g if wanted else None for wanted in step.wanted))


@gradient_of("Mean")
def variadic_mean(step: Step) -> Gradients:
    """``g / count`` for each."""
    share = step.g / len(step.node.input)
    return _each(step, *(share if wanted else None for wanted in step.wanted))


@gradient_of("Sub")
def sub(step: Step) -> Gradients:
    """``g`` and ``-g``."""
    second = step.summed(step.g, 1) if step.wants(1) else None
    return [step.summed(step.g, 0) if step.wants(0) else None, None if second is None else -second]


@gradient_of("Mul")
def mul(step: Step) -> Gradients:
    """``g b`` and ``g a``."""
    a, b = step.input(0), step.input(1)
    return _each(step, step.g * b if step.wants(0) else None, step.g * a if step.wants(1) else None)


@gradient_of("Div")
def div(step: Step) -> Gradients:
    """``g / b`` and ``-g y / b``."""
    quotient = step.g / step.input(1)
    second = step.summed(quotient * step.y, 1) if step.wants(1) else None
    return [step.summed(quotient, 0) if step.wants(0) else None, None if second is None else -second]


@gradient_of("Pow")
def power(step: Step) -> Gradients:
    """``g p x^(p-1)``, and ``g y log x`` with 0 where x is not positive."""
    x, p = step.x, step.input(1)
    stated = step.constant(1)
    number = float(stated.reshape(-1)[0]) if stated is not None and stated.size == 1 else None
    base = exponent = None
    if step.wants(0):
        if number == 2:
            base = step.summed(step.g * x * 2, 0)
        elif number is not None:
            base = step.summed(step.g * x ** (number - 1) * number, 0)
        else:
            p = p.cast(x.dtype)
            base = step.summed(step.g * (p * x ** (p - 1)), 0)
    if step.wants(1):
        positive = x > 0
        logarithm = positive.where(x, 1).apply("Log")
        exponent = step.summed(step.g * step.y * logarithm, 1).cast(step.input(1).dtype)
    return [base, exponent]


@gradient_of("Neg")
def neg(step: Step) -> Value:
    """``-g``."""
    return -step.g


@gradient_of("Abs")
def absolute(step: Step) -> Value:
    """``g sign(x)``: 0 at 0."""
    return step.g * step.x.apply("Sign")


@gradient_of("Exp")
def exp(step: Step) -> Value:
    """``g y``."""
    return step.g * step.y


@gradient_of("Log")
def log(step: Step) -> Value:
    """``g / x``."""
    return step.g / step.x


@gradient_of("Sqrt")
def square_root(step: Step) -> Value:
    """``g / 2y``."""
    return step.g / (step.y * 2)


@gradient_of("Reciprocal")
def reciprocal(step: Step) -> Value:
    """``-g y y``."""
    return -(step.g * step.y * step.y)


@gradient_of("Sin")
def sin(step: Step) -> Value:
    """``g cos(x)``."""
    return step.g * step.x.apply("Cos")


@gradient_of("Cos")
def cos(step: Step) -> Value:
    """``-g sin(x)``."""
    return -(step.g * step.x.apply("Sin"))


@gradient_of("Erf")
def erf(step: Step) -> Value:
    """``g 2 / sqrt(pi) exp(-x x)``."""
    return step.g * (-(step.x * step.x)).apply("Exp") * (2 / sqrt(pi))


def _extremum(step: Step) -> Gradients:
    """Operands that equal the result share ``g``: two that tie get a half each, as ``torch.maximum`` gives them."""
    if len(step.node.input) == 1:
        return [step.g]
    kind = step.x.dtype
    hits = [step.input(index).equal(step.y).cast(kind) for index in range(len(step.node.input))]
    total = hits[0]
    for hit in hits[1:]:
        total = total + hit
    share = step.g / total
    return _each(step, *(share * hit if wanted else None for hit, wanted in zip(hits, step.wanted, strict=True)))


@gradient_of("Max")
def maximum(step: Step) -> Gradients:
    """``g`` where an operand is the largest; operands that tie share it equally."""
    return _extremum(step)


@gradient_of("Min")
def minimum(step: Step) -> Gradients:
    """``g`` where an operand is the smallest; operands that tie share it equally."""
    return _extremum(step)


@gradient_of("Where")
def where(step: Step) -> Gradients:
    """``g`` where the condition chose the operand, else 0."""
    condition = step.input(0)
    other = condition.apply("Not", dtype=np.bool_)
    return _each(step, None, step.g.only(condition) if step.wants(1) else None,
                 step.g.only(other) if step.wants(2) else None)
