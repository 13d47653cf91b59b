"""Calls of `torch.nn.functional` as calls of convreg's operators: arguments in users' spelling, unbatched inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import index
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .bridge import asking
from .ops import convolve

Ints = int | Sequence[int]


class How(NamedTuple):
    """What the operators need beside tensors and geometry: the recipe's text, the seed and the layer's name."""

    recipe: str
    seed: Tensor | None
    layer: str


WATCHES: list[Callable[[Tensor, Tensor, tuple[Any, ...], How, Tensor], None]] = []
"""What observers want to be told of every call that is not compiled: operands, geometry, `How` and the output."""


def linear(input: Tensor, weight: Tensor, bias: Tensor | None, how: How) -> Tensor:
    """Apply a linear layer to the last axis of an input of any rank."""
    if input.dim() == 2:
        return _convolve(input, weight, bias, [], [], [], False, [], 1, how)
    if input.dim() == 0:
        raise asking("convolution", how.layer).refuse("input", [], f"a last axis of {weight.shape[-1]} features")
    rows = input.unsqueeze(0) if input.dim() == 1 else input.flatten(0, -2)
    output = _convolve(rows, weight, bias, [], [], [], False, [], 1, how)
    return output.reshape(*input.shape[:-1], weight.shape[0])


def convolution(
    input: Tensor, weight: Tensor, bias: Tensor | None, stride: Ints, padding: Ints | str, dilation: Ints, groups: int,
    how: How,
) -> Tensor:
    """Apply a convolution with the weight's number of axes; `padding` may be ``"same"`` or ``"valid"``."""
    axes = weight.dim() - 2
    if isinstance(padding, str):
        input, padding = _padded(input, weight, stride, padding, dilation, how.layer)
    arguments = (_listed(stride, axes), _listed(padding, axes), _listed(dilation, axes), False, [0] * axes, groups)
    if input.dim() == weight.dim() - 1:
        return _convolve(input.unsqueeze(0), weight, bias, *arguments, how).squeeze(0)
    return _convolve(input, weight, bias, *arguments, how)


def transposed(
    input: Tensor, weight: Tensor, bias: Tensor | None, stride: Ints, padding: Ints, output_padding: Ints, groups: int,
    dilation: Ints, how: How,
) -> Tensor:
    """Apply a transposed convolution with the weight's number of axes."""
    axes = weight.dim() - 2
    arguments = (_listed(stride, axes), _listed(padding, axes), _listed(dilation, axes), True,
                 _listed(output_padding, axes), groups)
    if input.dim() == weight.dim() - 1:
        return _convolve(input.unsqueeze(0), weight, bias, *arguments, how).squeeze(0)
    return _convolve(input, weight, bias, *arguments, how)


def _convolve(input: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> Tensor:
    *geometry, how = rest
    output = convolve(input, weight, bias, *geometry, recipe=how.recipe, seed=how.seed, layer=how.layer)
    if not torch.compiler.is_compiling():
        for watch in tuple(WATCHES):
            watch(input, weight, tuple(geometry), how, output)
    return output


def _listed(value: Ints, count: int) -> list[int]:
    if isinstance(value, int):
        return [value] * count
    if not isinstance(value, Sequence):  # integers of NumPy, and tensors of one integer
        return [index(value)] * count
    return list(value) * count if len(value) == 1 else list(value)


def _padded(
    input: Tensor, weight: Tensor, stride: Ints, padding: str, dilation: Ints, layer: str
) -> tuple[Tensor, list[int]]:
    """Return the input and the padding for ``"same"`` or ``"valid"``; an odd total is one longer at the end."""
    axes = weight.dim() - 2
    if padding == "valid":
        return input, [0] * axes
    if padding != "same" or any(step != 1 for step in _listed(stride, axes)):
        raise asking("convolution", layer).refuse("padding", padding, "'valid', 'same' with stride 1, or integers")
    totals = [d * (k - 1) for d, k in zip(_listed(dilation, axes), weight.shape[2:], strict=True)]
    if any(total % 2 for total in totals):
        ends = [end for total in reversed(totals) for end in (0, total % 2)]
        input = F.pad(input, ends)
    return input, [total // 2 for total in totals]
