"""The forward and the backward pass of a layer on tensors of the CPU: what the operators compute."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import torch
from torch import Tensor

from . import products
from .bridge import asking, check_dtypes, rounds
from .operands import Codes, rounded
from .problems import Arguments, Problem, layout, problem
from .recipes import Rounding, Settings, settings
from .vanishing import warn_if_vanished

Ints = Sequence[int]


def convolution(
    input: Tensor, weight: Tensor, bias: Tensor | None, stride: Ints, padding: Ints, dilation: Ints, transposed: bool,
    output_padding: Ints, groups: int, *, recipe: str = "float32", seed: Tensor | None = None, layer: str = "",
) -> Tensor:
    """Return the output of a convolution."""
    arguments = Arguments(tuple(stride), tuple(padding), tuple(dilation), transposed, tuple(output_padding), groups)
    return _forward(input, weight, bias, arguments, settings(recipe), seed, layer)[0]


def convolution_saving(
    input: Tensor, weight: Tensor, bias: Tensor | None, stride: Ints, padding: Ints, dilation: Ints, transposed: bool,
    output_padding: Ints, groups: int, *, keep: Sequence[bool], recipe: str = "float32", seed: Tensor | None = None,
    layer: str = "",
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the output, and codes and scale of input and weight as the backward pass takes them.

    Codes that `keep` does not ask for, or that would be the operand itself, are an empty tensor. So is a scale that the
    recipe does not have.
    """
    arguments = Arguments(tuple(stride), tuple(padding), tuple(dilation), transposed, tuple(output_padding), groups)
    how = settings(recipe)
    output, number, forward = _forward(input, weight, bias, arguments, how, seed, layer)
    kept: list[Tensor] = []
    for name, tensor, (first, second), wanted, codes in zip(
            ("input", "weight"), (input, weight), (how.input, how.weight), keep, forward, strict=True):
        if not wanted or not kept_as_codes(tensor, second):
            kept += (torch.empty(0, dtype=torch.uint8), torch.empty(0, dtype=torch.float32))
            continue
        if first != second:
            codes = rounded(tensor, name, second, arguments, number)
        kept += (codes.tensor, codes.scale if isinstance(codes.scale, Tensor)
                 else torch.full((), codes.scale, dtype=torch.float32) if has_scale(second)
                 else torch.empty(0, dtype=torch.float32))
    return output, kept[0], kept[1], kept[2], kept[3]


def convolution_backward(
    grad_output: Tensor, input: Tensor, weight: Tensor, bias_sizes: Ints | None, stride: Ints, padding: Ints,
    dilation: Ints, transposed: bool, output_padding: Ints, groups: int, output_mask: Sequence[bool], *,
    recipe: str = "float32", seed: Tensor | None = None, layer: str = "", input_scale: Tensor | None = None,
    weight_scale: Tensor | None = None, input_dtype: torch.dtype | None = None, weight_dtype: torch.dtype | None = None,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Return the gradients of input, weight and bias that `output_mask` asks for."""
    op, how = "convolution_backward", settings(recipe)
    arguments = Arguments(tuple(stride), tuple(padding), tuple(dilation), transposed, tuple(output_padding), groups)
    check_dtypes(op, layer, how.wide, ("grad_output", "input", "weight"), (grad_output, input, weight))
    number = _seed_of(op, layer, seed) if how.stochastic else 0
    found = problem(op, layer, input.shape, weight.shape, arguments)
    if grad_output.shape != found.output:
        raise asking(op, layer).refuse("grad_output", list(grad_output.shape), f"shape {list(found.output)}",
                                       "geometry")
    if bias_sizes is not None and tuple(bias_sizes) != found.output[1:2]:
        raise asking(op, layer).refuse("bias_sizes", list(bias_sizes), f"{list(found.output[1:2])} or None", "geometry")
    first, second = how.grad_output
    data_wanted, weight_wanted, bias_wanted = output_mask

    def gradient(rounding: Rounding | None) -> Codes:
        codes = rounded(grad_output, "grad_output", rounding, arguments, number)
        warn_if_vanished(grad_output, codes, rounding, layer)
        return codes

    def given(tensor: Tensor, scale: Tensor | None, name: str, rounding: Rounding | None) -> Codes:
        if scale is None:
            return rounded(tensor, name, rounding, arguments, number)
        _check_scale(op, layer, f"{name}_scale", scale, tensor.shape[1] if name == "input" else found.output[1])
        return Codes(tensor, scale if scale.ndim else scale.item())

    dy = gradient(second) if weight_wanted or bias_wanted else None
    grad_input = grad_weight = grad_bias = None
    if data_wanted:
        other = dy if dy is not None and first == second else gradient(first)
        w = given(weight, weight_scale, "weight", how.weight[1])
        like = torch.empty(input.shape, dtype=input_dtype or result_dtype(input.dtype),
                           memory_format=layout(grad_output, weight, input))
        grad_input = products.delivered(
            like, "input", how.grad_input, arguments, number,
            lambda out: products.input_gradient(found, transposed, other, w, out))
    if dy is None:
        return grad_input, None, None
    if weight_wanted:
        x = given(input, input_scale, "input", how.input[1])
        like = torch.empty_like(weight, dtype=weight_dtype or result_dtype(weight.dtype))
        grad_weight = products.delivered(
            like, "weight", how.grad_weight, arguments, number,
            lambda out: products.weight_gradient(found, transposed, dy, x, out))
    if bias_wanted:
        grad_bias = torch.empty(found.output[1], dtype=weight_dtype or result_dtype(weight.dtype))
        products.bias_gradient(found, transposed, dy, grad_bias)
    return grad_input, grad_weight, grad_bias


def _forward(
    input: Tensor, weight: Tensor, bias: Tensor | None, arguments: Arguments, how: Settings, seed: Tensor | None,
    layer: str,
) -> tuple[Tensor, int, tuple[Codes, Codes]]:
    """Return the output, the seed, and the operands of the product."""
    op = "convolution"
    check_dtypes(op, layer, how.wide, ("input", "weight", "bias"), (input, weight, bias))
    number = _seed_of(op, layer, seed) if how.stochastic else 0
    found: Problem = problem(op, layer, input.shape, weight.shape, arguments)
    if bias is not None and bias.shape != found.output[1:2]:
        raise asking(op, layer).refuse("bias", list(bias.shape), f"shape {list(found.output[1:2])}", "geometry")
    x = rounded(input, "input", how.input[0], arguments, number)
    w = rounded(weight, "weight", how.weight[0], arguments, number)
    output = torch.empty(found.output, dtype=result_dtype(input.dtype), memory_format=layout(input, weight))
    products.forward(found, arguments.transposed, x, w, bias, output)
    return output, number, (x, w)


def _seed_of(op: str, layer: str, seed: Tensor | None) -> int:
    if seed is None or seed.dtype is not torch.int64 or seed.numel() != 1:
        given = None if seed is None else f"{list(seed.shape)} of {seed.dtype}"
        raise asking(op, layer).refuse("seed", given, "a tensor of one int64: the recipe rounds stochastically",
                                       wrong_type=True)
    return int(seed.item())


def _check_scale(op: str, layer: str, name: str, scale: Tensor, channels: int) -> None:
    if scale.dtype is not torch.float32:
        raise asking(op, layer).refuse(name, str(scale.dtype), "torch.float32", wrong_type=True)
    if scale.shape not in ((), (channels,)):
        raise asking(op, layer).refuse(name, list(scale.shape), f"shape [] or [{channels}]", "geometry")
    for number in scale.flatten().tolist():
        if not 0 < number < inf:
            raise asking(op, layer).refuse(name, number, "finite numbers above zero")


def result_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of results for an operand of a dtype: float32 where it is one of codes."""
    return torch.float32 if dtype.itemsize == 1 else dtype


def has_scale(how: Rounding | None) -> bool:
    """Whether codes have a scale beside them."""
    return how is not None and how.scaling != "none"


def kept_as_codes(tensor: Tensor, how: Rounding | None) -> bool:
    """Whether the backward pass takes codes that the forward pass makes, and not the tensor itself."""
    return how is not None and rounds(tensor.dtype, how.format)
