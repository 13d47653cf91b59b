"""Operands and results rounded as a recipe says: their scales, the seeds of stochastic rounding, their codes."""

from __future__ import annotations

from math import frexp, isfinite
from typing import NamedTuple

import torch
from torch import Tensor

from .bridge import codes_of, rounds, values_of
from .problems import Arguments
from .recipes import KNOWN, Rounding

TOP = {"hifloat8": 8.0}
"""The magnitude that scaling brings the largest number to, where that is not the format's largest: HiFloat8 has three
mantissa bits up to 8 only."""


class Codes(NamedTuple):
    """Numbers of a format. Their values are `tensor` times `scale`, which is a vector if every channel has its own."""

    tensor: Tensor
    scale: float | Tensor = 1.0


def rounded(tensor: Tensor, name: str, how: Rounding | None, arguments: Arguments, seed: int) -> Codes:
    """Return an operand or a result of a layer rounded to a format.

    Parameters
    ----------
    tensor : Tensor
        Codes of the format are taken as they are.
    name : str
        ``"input"``, ``"weight"`` or ``"grad_output"``: what channels it has. Gradients have those of their tensor.
    how : Rounding or None
    arguments : Arguments
        Those of the layer.
    seed : int
        Seed of the call; each tensor and product draws other numbers from it.
    """
    if how is None or not rounds(tensor.dtype, how.format):
        return Codes(tensor)
    number = mixed(seed, how.stream) if how.rounding == "stochastic" else 0
    if how.scaling == "none":
        return Codes(codes_of(tensor, how.format, how.rounding, how.saturate, 0, number))
    if how.scaling == "tensor":
        exponent = exponent_for(largest_magnitude(tensor), how.format)
        return Codes(codes_of(tensor, how.format, how.rounding, how.saturate, exponent, number), 2.0**-exponent)
    apart, axes = _channels(tensor, name, arguments)
    exponents = _channel_exponents(apart, how.format, axes)
    codes = codes_of(apart, how.format, how.rounding, how.saturate, exponents, number)
    return Codes(codes.reshape(tensor.shape), _powers(-exponents.flatten()))


def decoded(codes: Codes, name: str, arguments: Arguments, dtype: torch.dtype) -> Tensor:
    """Return the values of what `rounded` returned, rounded to a dtype."""
    if isinstance(codes.scale, float):
        return values_of(codes.tensor, dtype, frexp(codes.scale)[1] - 1)
    apart, axes = _channels(values_of(codes.tensor, torch.float32), name, arguments)
    shape = [extent if axis in axes else 1 for axis, extent in enumerate(apart.shape)]
    return (apart * codes.scale.reshape(shape)).reshape(codes.tensor.shape).to(dtype)


def _channels(tensor: Tensor, name: str, arguments: Arguments) -> tuple[Tensor, tuple[int, ...]]:
    """Return a view of a tensor and its axes of channels: the output channels of a transposed weight are on two."""
    if name != "weight":
        return tensor, (1,)
    if not arguments.transposed:
        return tensor, (0,)
    return tensor.unflatten(0, (arguments.groups, -1)), (0, 2)


def largest_magnitude(tensor: Tensor) -> float:
    """Return the largest magnitude of a tensor, NaN if it has one, 0 if it is empty."""
    if not tensor.numel():
        return 0.0
    low, high = torch.aminmax(tensor.detach() if tensor.dtype.itemsize > 1 else values_of(tensor, torch.float32))
    return max(-low.item(), high.item())


def exponent_for(largest: float, format: str) -> int:
    """Return the exponent of the power of two that scales numbers up to `largest` to a format.

    It is floor(log2(top / largest)), 0 if `largest` is 0 or not finite, and such that the power and its inverse are
    normal numbers of float32.
    """
    if not largest or not isfinite(largest):
        return 0
    (top, top_exponent), (part, exponent) = frexp(TOP.get(format, KNOWN[format].largest)), frexp(largest)
    return max(-126, min(126, top_exponent - exponent - (top < part)))


def _channel_exponents(tensor: Tensor, format: str, axes: tuple[int, ...]) -> Tensor:
    """Return `exponent_for` of every index of some axes, as int32 that broadcasts to the tensor."""
    others = [axis for axis in range(tensor.ndim) if axis not in axes]
    values = tensor.detach() if tensor.dtype is torch.float32 else values_of(tensor.detach(), torch.float32)
    if not values.numel():
        return torch.zeros([extent if axis in axes else 1 for axis, extent in enumerate(values.shape)],
                           dtype=torch.int32)
    largest = torch.maximum(values.amax(others, keepdim=True), values.amin(others, keepdim=True).neg_())
    exponents = [exponent_for(number, format) for number in largest.flatten().tolist()]
    return torch.tensor(exponents, dtype=torch.int32).reshape(largest.shape)


def _powers(exponents: Tensor) -> Tensor:
    """Return powers of two as float32."""
    return torch.ldexp(torch.ones(exponents.shape, dtype=torch.float32), exponents)


def mixed(seed: int, stream: int) -> int:
    """Return the seed of one stream of random numbers: the two numbers through the finaliser of SplitMix64.

    Source: Steele, Lea and Flood, Fast Splittable Pseudorandom Number Generators, OOPSLA 2014.
    """
    state = (seed * 8 + stream + 1) * 0x9E3779B97F4A7C15 % 2**64
    state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    state = (state ^ state >> 27) * 0x94D049BB133111EB % 2**64
    return state ^ state >> 31
