"""The products of a layer on rounded operands: the output, and the gradients, computed by the kernels.

Sums are float32, or float64 for operands in float64. Powers of two that scale operands are taken out of the result. If
no bit can change by it, the kernels take the weight multiplied by them, and need no pass over the result.
"""

from __future__ import annotations

from collections.abc import Callable
from math import frexp
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..memory import Array
from ..ops import kernels
from ..ops._emulation import EIGHT_BIT
from ..ops._scales import Factor, Layout, ScaledKernels, Side
from .bridge import format_of, stored, values_of
from .operands import Codes, decoded, rounded
from .problems import Arguments, Problem
from .recipes import Rounding

SAFE = range(-100, 61)
"""Exponents by which a sum of products of 8-bit numbers can be scaled at any point with equal bits.

The numbers are multiples of 2**-22 or larger and at most 2**16, so scaled products are multiples of 2**-144, which
float32 represents below its normal numbers too, and sums of up to 2**35 of them stay below 2**128.
"""


def forward(
    problem: Problem, transposed: bool, data: Codes, weight: Codes, bias: Tensor | None, out: Tensor
) -> None:
    """Write the output of a convolution, transposed or not."""
    kernel = "backward_data" if transposed else "forward"
    added = None if bias is None or not out.numel() else _accumulator(bias, out)
    _convolve(problem, transposed, kernel, data, weight, out, problem.input_extents, problem.output_extents, added)


def input_gradient(problem: Problem, transposed: bool, gradient: Codes, weight: Codes, out: Tensor) -> None:
    """Write the gradient of the input."""
    kernel = "forward" if transposed else "backward_data"
    _convolve(problem, transposed, kernel, gradient, weight, out, problem.output_extents, problem.input_extents)


def weight_gradient(problem: Problem, transposed: bool, gradient: Codes, data: Codes, out: Tensor) -> None:
    """Write the gradient of the weight."""
    dy = problem.data(stored(gradient.tensor), problem.output_extents)
    x = problem.data(stored(data.tensor), problem.input_extents)
    (large, first), (small, second) = ((gradient, dy), (data, x)) if transposed else ((data, x), (gradient, dy))
    window = problem.geometry.windows[format_of(large.tensor), format_of(small.tensor), format_of(out)]
    used = _scaled_kernels(problem, transposed, large=large, small=small)
    used.backward_weights(first, second, problem.weights(stored(out)), window, threads=torch.get_num_threads())


def bias_gradient(problem: Problem, transposed: bool, gradient: Codes, out: Tensor) -> None:
    """Write the sums of the output gradient over all but channels."""
    side: Side = "large" if transposed else "small"
    used = _scaled_kernels(problem, transposed, **{side: gradient})
    used.bias_sum(problem.data(stored(gradient.tensor), problem.output_extents), stored(out),
                  formats=(format_of(gradient.tensor), format_of(out)), threads=torch.get_num_threads())


def _convolve(
    problem: Problem, transposed: bool, kernel: str, data: Codes, weight: Codes, out: Tensor, extents: tuple[int, ...],
    out_extents: tuple[int, ...], bias: Array | None = None,
) -> None:
    data, weight = _joined(data, weight)
    window = problem.geometry.windows[format_of(data.tensor), format_of(weight.tensor), format_of(out)]
    used = _scaled_kernels(problem, transposed, taps=weight, **{"large" if kernel == "forward" else "small": data})
    getattr(used, kernel)(problem.data(stored(data.tensor), extents), problem.weights(stored(weight.tensor)),
                          problem.data(stored(out), out_extents), window, bias=bias, threads=torch.get_num_threads())


def _joined(data: Codes, weight: Codes) -> tuple[Codes, Codes]:
    """Return the operands with the scales of both in the weight's numbers, where that changes no bit."""
    if isinstance(data.scale, Tensor) or isinstance(weight.scale, Tensor) or data.scale == weight.scale == 1.0:
        return data, weight
    (data_part, data_exponent), (weight_part, weight_exponent) = frexp(data.scale), frexp(weight.scale)
    if not data_part == weight_part == 0.5:  # callers of the operators may state scales that are no powers of two
        return data, weight
    exponent = data_exponent + weight_exponent - 2
    if exponent not in SAFE or not {format_of(data.tensor), format_of(weight.tensor)} <= {*EIGHT_BIT}:
        return data, weight
    return Codes(data.tensor), Codes(values_of(weight.tensor, torch.bfloat16, exponent))


def _scaled_kernels(problem: Problem, transposed: bool, **codes: Codes) -> Any:
    """Return kernels that apply the scales of operands, by their place; the plain kernels where there are none."""
    for some in codes.values():
        if not isinstance(some.scale, float) or some.scale != 1.0:
            break
    else:
        return kernels
    outputs: Side = "large" if transposed else "small"
    factors = {}
    for place, some in codes.items():
        values = np.asarray(some.scale, np.float64)
        side: Any = None if values.size == 1 else outputs if place == "taps" else place
        factors[place] = Factor(values, side, problem.geometry.groups)
    return ScaledKernels(kernels, Layout(outputs, outputs, problem.geometry.groups), factors)


def _accumulator(bias: Tensor, out: Tensor) -> Array:
    """Return the bias as kernels add it."""
    wide = torch.float64 if out.dtype is torch.float64 else torch.float32
    return stored(values_of(bias.detach(), wide).contiguous())


def delivered(
    like: Tensor, name: str, how: Rounding | None, arguments: Arguments, seed: int, compute: Callable[[Tensor], None]
) -> Tensor:
    """Return a gradient, rounded to a format first where `how` says so.

    Parameters
    ----------
    like : Tensor
        An uninitialised tensor of the result's shape, dtype and memory order.
    name, how, arguments, seed
        As in `operands.rounded`.
    compute : callable
        Writes the sums to the tensor that it gets: the result, or numbers to be rounded.
    """
    if how is None:
        compute(like)
        return like
    sums = like if like.dtype in (torch.float32, torch.float64) else torch.empty_like(like, dtype=torch.float32)
    compute(sums)
    return decoded(rounded(sums, name, how, arguments, seed), name, arguments, like.dtype)
