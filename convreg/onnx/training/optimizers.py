"""Optimizers as standard ONNX nodes: how one step changes a parameter and the state beside it.

Definitions and defaults are those of torch.optim (SGD, Adam and AdamW, neither amsgrad nor maximize). One default is
another: the momentum is 0.9, where torch's SGD has 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import GraphError, shorten
from .value import Value

LEARNING_RATE = 1e-3
"""What all of torch's optimizers take unless told otherwise."""


@dataclass(frozen=True)
class Moment:
    """One parameter in one step.

    Attributes
    ----------
    parameter, gradient, rate : Value
        Of one element type; the learning rate is a scalar.
    state : mapping of str to Value
        By the optimizer's suffixes.
    constants : mapping of str to object
        The optimizer's.
    count : Value or None
        The number of this step, from 1 on, as a scalar of float64; None where the optimizer does not count.
    """

    parameter: Value
    gradient: Value
    rate: Value
    state: Mapping[str, Value]
    constants: Mapping[str, Any]
    count: Value | None

    def narrowed(self, value: Value) -> Value:
        """Return a scalar of float64 in the parameter's element type."""
        return value.cast(self.parameter.dtype)


Update = Callable[[Moment], tuple[Value, dict[str, Value]]]
"""Writes the next value of the parameter, and of each of its states."""


@dataclass(frozen=True)
class Optimizer:
    """An optimizer.

    Attributes
    ----------
    update : callable
    constants : mapping of str to object
        Names of the constants, with torch's defaults.
    suffixes : tuple of str
        States of a parameter ``P`` are named ``P.<suffix>``; all begin as zeros of its shape.
    counts : bool
        Whether it needs the number of the step.
    """

    update: Update
    constants: Mapping[str, Any]
    suffixes: tuple[str, ...] = ()
    counts: bool = False


def _decayed(moment: Moment) -> Value:
    """The gradient of the loss and of half the squared parameters times the weight decay."""
    decay = moment.constants["weight_decay"]
    return moment.gradient + moment.parameter * decay if decay else moment.gradient


def _sgd(moment: Moment) -> tuple[Value, dict[str, Value]]:
    """``p -= rate g``."""
    return moment.parameter - moment.rate * _decayed(moment), {}


def _momentum(moment: Moment) -> tuple[Value, dict[str, Value]]:
    """``v = momentum v + g``; ``p -= rate v``, with Nesterov's look ahead ``p -= rate (g + momentum v)``."""
    gradient, factor = _decayed(moment), float(moment.constants["momentum"])
    velocity = moment.state["velocity"] * factor + gradient
    step = gradient + velocity * factor if moment.constants["nesterov"] else velocity
    return moment.parameter - moment.rate * step, {"velocity": velocity}


def _adam(moment: Moment) -> tuple[Value, dict[str, Value]]:
    """Adam, weight decay as part of the gradient."""
    return _adaptive(moment, moment.parameter, _decayed(moment))


def _adamw(moment: Moment) -> tuple[Value, dict[str, Value]]:
    """Adam, weight decay apart from the gradient: ``p *= 1 - rate decay`` before the step."""
    decay = moment.constants["weight_decay"]
    parameter = moment.parameter * (1 - moment.rate * decay) if decay else moment.parameter
    return _adaptive(moment, parameter, moment.gradient)


def _adaptive(moment: Moment, parameter: Value, gradient: Value) -> tuple[Value, dict[str, Value]]:
    """``p -= rate / (1 - b1^t) m / (sqrt(v) / sqrt(1 - b2^t) + eps)``.

    The corrections are computed in float64, as torch does: ``1 - 0.999`` has four digits in float32.
    """
    first, second = map(float, moment.constants["betas"])
    assert moment.count is not None
    writer, wide = moment.count.writer, np.dtype(np.float64)
    corrections = [1 - writer.add("Pow", writer.scalar(beta, wide), moment.count) for beta in (first, second)]
    mean = moment.state["moment1"] * first + gradient * (1 - first)
    square = moment.state["moment2"] * second + gradient * gradient * (1 - second)
    size = square.apply("Sqrt") / moment.narrowed(corrections[1].apply("Sqrt")) + moment.constants["eps"]
    rate = moment.rate / moment.narrowed(corrections[0])
    return parameter - mean * rate / size, {"moment1": mean, "moment2": square}


OPTIMIZERS: dict[str, Optimizer] = {
    "sgd": Optimizer(_sgd, {"weight_decay": 0.0}),
    "momentum": Optimizer(_momentum, {"momentum": 0.9, "nesterov": False, "weight_decay": 0.0}, ("velocity",)),
    "adam": Optimizer(_adam, {"betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0}, ("moment1", "moment2"), True),
    "adamw": Optimizer(_adamw, {"betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01}, ("moment1", "moment2"),
                       True),
}


def optimizer_of(name: Any, given: Mapping[str, Any]) -> tuple[Optimizer, dict[str, Any]]:
    """Return an optimizer and its constants: those that are given, and the defaults where None is given.

    Raises
    ------
    GraphError
        If there is no such optimizer, it has no such constant, or a value is out of its range.
    """
    if not isinstance(name, str) or name not in OPTIMIZERS:
        raise GraphError(f"optimizer={shorten(name)} is refused; allowed: {', '.join(map(repr, OPTIMIZERS))}")
    optimizer = OPTIMIZERS[name]
    constants = dict(optimizer.constants)
    for key, value in given.items():
        if value is None:
            continue
        if key not in constants:
            raise GraphError(f"{key}={shorten(value)} is refused: optimizer={name!r} has no such constant; allowed: "
                             f"{', '.join(constants)}")
        constants[key] = _checked(key, value)
    return optimizer, constants


def _checked(key: str, value: Any) -> Any:
    if key == "nesterov":
        return flag(key, value)
    if key == "betas":
        if not isinstance(value, list | tuple) or len(value) != 2:
            raise GraphError(f"betas={shorten(value)} is refused; allowed: two numbers from 0 to below 1")
        return tuple(number("betas", entry, below=1) for entry in value)
    return number(key, value, below=1 if key == "momentum" else None)


def flag(name: str, value: Any) -> bool:
    """Return True or False.

    Raises
    ------
    GraphError
        If it is neither.
    """
    if not isinstance(value, bool):
        raise GraphError(f"{name}={shorten(value)} is refused; allowed: True or False")
    return value


def number(name: str, value: Any, *, below: float | None = None, positive: bool = False) -> float:
    """Return a number that is finite and not negative.

    Raises
    ------
    GraphError
        If it is none.
    """
    allowed = f"a number from 0 to below {below:g}" if below is not None else (
        "a finite number above 0" if positive else "a finite number, 0 or above")
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise GraphError(f"{name}={shorten(value)} is refused; allowed: {allowed}")
    try:
        found = float(value)
    except OverflowError:
        found = float("inf")
    if not (found > 0 if positive else found >= 0) or not found < (float("inf") if below is None else below):
        raise GraphError(f"{name}={shorten(value)} is refused; allowed: {allowed}")
    return found
