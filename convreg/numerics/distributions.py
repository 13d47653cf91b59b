"""Random arrays of named distributions, the same on every run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from ..calls.arguments import integer, integers
from ..errors import Asking
from ..guard import guarded
from ..memory import Array, max_bytes
from ..spec import Rules
from .arguments import name_of

Generator = np.random.Generator


def _normal(random: Generator, shape: tuple[int, ...]) -> Array:
    return random.standard_normal(shape)


def _relu(random: Generator, shape: tuple[int, ...]) -> Array:
    return np.maximum(random.standard_normal(shape), 0)


def _uniform(random: Generator, shape: tuple[int, ...]) -> Array:
    return random.uniform(-1, 1, shape)


def _lognormal(random: Generator, shape: tuple[int, ...]) -> Array:
    signs = np.where(random.random(shape) < 0.5, -1.0, 1.0)
    return signs * np.exp(random.normal(np.log(2.0**-16), 2.0, shape))


def _student(random: Generator, shape: tuple[int, ...]) -> Array:
    return 2.0**-10 * random.standard_t(2.5, shape)


_DRAWS: dict[str, tuple[str, Callable[[Generator, tuple[int, ...]], Array]]] = {
    "normal": ("standard normal", _normal),
    "relu": ("standard normal, negative numbers set to 0, as activations behind a ReLU", _relu),
    "uniform": ("uniform in [-1, 1)", _uniform),
    "lognormal": ("magnitudes log-normal with median 2**-16 and sigma 2.0 (a binade is 0.69), random signs: the "
                  "distribution of gradients in deep networks", _lognormal),
    "student": ("Student's t with 2.5 degrees of freedom times 2**-10: many large outliers", _student),
}
DISTRIBUTIONS: dict[str, str] = {name: text for name, (text, _) in _DRAWS.items()}
"""Name -> description."""


@guarded("convreg::numerics")
def draw(distribution: str, shape: Sequence[int], seed: int = 0) -> Array:
    """Return random numbers of a named distribution.

    Parameters
    ----------
    distribution : str
        A key of `DISTRIBUTIONS`, which describes each one.
    shape : sequence of int
        Extents of the array.
    seed : int
        Seed of NumPy's default generator.

    Returns
    -------
    ndarray
        float32 numbers. Equal arguments give equal numbers.

    Raises
    ------
    OpError, OpTypeError
        If there is no such distribution, or the shape or the seed is wrong.
    """
    ask, rules = Asking("convreg::numerics"), Rules()
    make = _DRAWS[name_of(ask, "distribution", distribution, _DRAWS)][1]
    extents, number = integers(ask, rules, "shape", shape), integer(ask, rules, "seed", seed)
    if number < 0:
        raise ask.refuse("seed", seed, "an integer not below 0")
    if any(extent < 0 for extent in extents) or len(extents) > 32:
        raise ask.refuse("shape", shape, "at most 32 extents, none below 0")
    if 8 * prod([extent or 1 for extent in extents]) > max_bytes(ask):
        raise ask.refuse("shape", shape, f"an array of at most {max_bytes(ask)} bytes in float64", "max_bytes")
    return np.asarray(make(np.random.default_rng(number), extents), np.float32)
