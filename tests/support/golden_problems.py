"""Drawn gradients with golden vectors, results of honest kernels in other orders of summation, and planted bugs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from drawn import Drawn
from gradient_calls import GradientCall, single

import convreg
from convreg.golden import Golden

DATA, WEIGHTS = "onednn::ConvolutionBackwardData", "onednn::ConvolutionBackwardWeights"


def golden_of(call: GradientCall, name: str = "") -> Golden:
    """The golden vectors of a call; arguments whose results are masked off are left out."""
    function = convreg.get(call.name)
    results = function(*call.tensors, **call.arguments)
    results = results if isinstance(results, tuple) else (results,)
    arguments = dict(call.arguments)
    conformance = arguments.pop("conformance", None)
    inputs = dict(zip((convreg.spec.snake_case(port.name) for port in function.spec.vendor_inputs), call.tensors,
                      strict=False))
    outputs = {port.name: array for port, array in zip(function.spec.outputs, results, strict=True)
               if array is not None}
    return Golden(name, function.spec.qualified_name, arguments, conformance, inputs, outputs)


def draw_case(rng: np.random.Generator, channels: int = 6) -> Drawn:
    """A convolution of one to three axes."""
    axes = int(rng.integers(1, 4))
    groups = int(rng.choice([1, 1, 2, 3]))
    large_channels, small_channels = (int(rng.integers(1, channels + 1)) for _ in range(2))
    batch = int(rng.integers(1, 4))
    large, small, taps, stride, dilation, begin, end = [], [], [], [], [], [], []
    for _ in range(axes):
        k, s, d = int(rng.integers(1, 5)), int(rng.integers(1, 4)), int(rng.integers(1, 3))
        reach = (k - 1) * d + 1
        pb, pe = (int(rng.integers(0, min(reach, 4))) for _ in range(2))
        x = max(1, reach - pb - pe) + int(rng.integers(0, 9 if axes < 3 else 5))
        for values, value in ((taps, k), (stride, s), (dilation, d), (begin, pb), (end, pe), (large, x)):
            values.append(value)
        small.append((x + pb + pe - reach) // s + 1)
    return Drawn(groups, tuple(stride), tuple(dilation), tuple(begin), tuple(end),
                 (batch, groups * large_channels, *large), (batch, groups * small_channels, *small),
                 (groups * small_channels, large_channels, *taps))


FILLS: dict[str, Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]] = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "positive": lambda rng, shape: rng.random(shape),
    "integers": lambda rng, shape: rng.integers(-8, 9, shape).astype(float),
    "wide": lambda rng, shape: rng.standard_normal(shape) * 2.0**rng.integers(-6, 7, shape),
    "sparse": lambda rng, shape: rng.standard_normal(shape) * (rng.random(shape) < 0.3),
}


@dataclass(frozen=True)
class Problem:
    """A gradient of a drawn convolution, its operands in one format; `name` is the operator."""

    case: Drawn
    name: str
    format: str
    call: GradientCall
    golden: Golden

    @property
    def honest(self) -> np.ndarray:
        """The result tap after tap in float32, then rounded."""
        return self.rounded(summed(self, self.case))

    def rounded(self, values: np.ndarray) -> np.ndarray:
        """Values in the format of the problem."""
        return convreg.quantize(values, self.format)

    @property
    def operands(self) -> dict[str, np.ndarray]:
        """The tensors in float32, channel-first: small and weights, or large and small."""
        names = ("small", "weights") if self.name == DATA else ("large", "small")
        return {name: convreg.dequantize(array) for name, array in zip(names, self.call.tensors, strict=True)}

    @property
    def output(self) -> str:
        """The name of the result."""
        return next(iter(self.golden.outputs))


def draw_problem(rng: np.random.Generator, format: str, fill: str | None = None, channels: int = 6) -> Problem:
    """A data or weights gradient in a format."""
    case, name = draw_case(rng, channels), (DATA, WEIGHTS)[int(rng.integers(2))]
    values = FILLS[fill or str(rng.choice(list(FILLS)))]
    call = next(call for call in single(case, lambda shape: convreg.quantize(values(rng, shape), format),
                                        ("NCX", "OIX")) if call.name == name)
    if format not in ("float32", "bfloat16", "float16"):
        call = call._replace(arguments={**call.arguments, "conformance": "emulation"})
    return Problem(case, name, format, call, golden_of(call))


def _places(case: Drawn, tap: tuple[int, ...]) -> tuple[tuple[slice, ...], tuple[slice, ...]] | None:
    """The positions of the small and of the large side that a tap joins, None if it joins none."""
    small, large = [], []
    for x, y, s, d, b, t in zip(case.large[2:], case.small[2:], case.stride, case.dilation, case.begin, tap,
                                strict=True):
        places = [place for place in range(y) if 0 <= place * s - b + t * d < x]
        if not places:
            return None
        small.append(slice(places[0], places[-1] + 1))
        large.append(slice(places[0] * s - b + t * d, places[-1] * s - b + t * d + 1, s))
    return tuple(small), tuple(large)


def parts(problem: Problem, case: Drawn, operands: dict[str, np.ndarray] | None = None
          ) -> Iterator[tuple[tuple, np.ndarray]]:
    """For every tap, the part of the result that it adds to and what it adds, in float32."""
    own = problem.case
    held = operands or problem.operands
    groups = own.groups

    def grouped(array: np.ndarray) -> np.ndarray:
        return array.reshape(array.shape[0], groups, -1, *array.shape[2:])

    for tap in np.ndindex(*own.weights[2:]):
        places = _places(case, tap)
        if places is None:
            continue
        small, large = places
        if problem.name == DATA:
            dy = grouped(held["small"])[(..., *small)]
            w = held["weights"][(..., *tap)].reshape(groups, -1, own.weights[1])
            part = np.einsum("ngm...,gmc->ngc...", dy, w)
            yield (slice(None), slice(None), slice(None), *large), part
        else:
            x, dy = grouped(held["large"])[(..., *large)], grouped(held["small"])[(..., *small)]
            x, dy = (array.reshape(*array.shape[:3], -1) for array in (x, dy))
            yield (slice(None), slice(None), slice(None), *tap), np.einsum("ngcp,ngmp->gmc", x, dy)


def _empty(problem: Problem) -> np.ndarray:
    case = problem.case
    if problem.name == DATA:
        return np.zeros((case.large[0], case.groups, case.large[1] // case.groups, *case.large[2:]), np.float32)
    return np.zeros((case.groups, case.weights[0] // case.groups, *case.weights[1:]), np.float32)


def summed(problem: Problem, case: Drawn, operands: dict[str, np.ndarray] | None = None, *, backwards: bool = False,
           after: Callable[[np.ndarray], np.ndarray] = lambda values: values) -> np.ndarray:
    """The sum tap after tap in float32, by the relation of `case`; `after` changes what is kept."""
    result = _empty(problem)
    added = list(parts(problem, case, operands))
    for place, part in reversed(added) if backwards else added:
        result[place] = after(result[place] + part)
    return result.reshape(_shape(problem))


def tree(problem: Problem) -> np.ndarray:
    """The sum by pairs of taps, then of pairs, in float32."""
    sums = []
    for place, part in parts(problem, problem.case):
        one = _empty(problem)
        one[place] = part
        sums.append(one)
    while len(sums) > 1:
        sums = [a + b for a, b in zip(sums[::2], sums[1::2], strict=False)] + sums[len(sums) // 2 * 2:]
    return (sums[0] if sums else _empty(problem)).reshape(_shape(problem))


def _shape(problem: Problem) -> tuple[int, ...]:
    return problem.case.large if problem.name == DATA else problem.case.weights


def to_digits(values: np.ndarray, digits: int) -> np.ndarray:
    """Values rounded to so many binary digits."""
    mantissa, exponent = np.frexp(values)
    return np.ldexp(np.rint(np.ldexp(mantissa, digits)), exponent - digits).astype(np.float32)


def planted(problem: Problem) -> dict[str, np.ndarray]:
    """Results of kernels with one bug each, by the bug's name, in the format of the problem."""
    case, held = problem.case, problem.operands
    data = problem.name == DATA
    found: dict[str, np.ndarray] = {}
    border, corner = held["small"].copy(), [0] * len(case.stride)
    border[..., 0] = 0
    if data:  # the positions of the first column lack their last tap
        missing = held["weights"].copy()
        missing[..., -1] = 0
        first = summed(problem, case, {**held, "weights": missing})
        found["tap missing at border"] = np.where(np.arange(case.large[-1]) == 0, first, summed(problem, case))
    else:
        first = summed(problem, case, {**held, "small": border})
        found["tap missing at border"] = np.where(np.arange(case.weights[-1]) == 0, first, summed(problem, case))
    found["pad off by one"] = summed(problem, replace(case, begin=(*case.begin[:-1], case.begin[-1] + 1)))
    found["strides swapped"] = summed(problem, replace(case, stride=case.stride[::-1]))
    found["dilation ignored"] = summed(problem, replace(case, dilation=tuple(1 for _ in corner)))
    mixed = "weights" if data else "small"
    if case.groups > 1:
        axis = 0 if data else 1
        rolled = np.roll(held[mixed], held[mixed].shape[axis] // case.groups, axis)
        found["groups mixed up"] = summed(problem, case, {**held, mixed: rolled})
    if data:
        tail = held["weights"].copy()
        tail[-1:] = 0
        found["channel tail dropped"] = summed(problem, case, {**held, "weights": tail})
    else:
        tail = summed(problem, case)
        tail[-1:] = 0
        found["channel tail dropped"] = tail
    found["accumulates in bfloat16"] = summed(
        problem, case, after=lambda values: convreg.dequantize(convreg.quantize(values, "bfloat16")))
    found["rounded twice"] = to_digits(summed(problem, case), 11)
    found["sign turned"] = -summed(problem, case)
    turned = tuple(slice(None, None, -1) for _ in corner)
    if data:
        found["kernel transposed"] = summed(problem, case, {**held, "weights": held["weights"][(..., *turned)]})
    else:
        found["kernel transposed"] = summed(problem, case)[(..., *turned)]
    less = held["small"].copy()
    less[-1] = 0
    found["batch item missing"] = summed(problem, case, {**held, "small": less})
    stale = summed(problem, case)
    if stale.size > 1:
        flat = stale.reshape(-1)
        flat[flat.size // 2] = flat[flat.size // 2 - 1]
        found["one stale element"] = stale
    return {name: problem.rounded(np.ascontiguousarray(values)) for name, values in found.items()}
