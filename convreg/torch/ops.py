"""torch.ops.convreg: convolution, its gradients, and the variant of the forward pass that keeps codes for them.

`convolution` takes the arguments of aten.convolution, `convolution_backward` those of aten.convolution_backward, and
both a recipe, a seed and the name of a layer. `convolution_saving` returns the codes that the backward pass needs
beside the output, so that saved activations take one byte per number; the gradient formula of `convolution` calls it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from . import products
from .bridge import DTYPES, asking, check_dtypes, refuse_place, rounds
from .operands import Codes, rounded
from .problems import Arguments, layout, output_shape, problem
from .recipes import Rounding, Settings, settings
from .vanishing import warn_if_vanished

GEOMETRY = ("SymInt[] stride, SymInt[] padding, SymInt[] dilation, bool transposed, SymInt[] output_padding, "
            "SymInt groups")
HOW = 'str recipe="float32", Tensor? seed=None, str layer=""'

LIBRARY = torch.library.Library("convreg", "DEF")
LIBRARY.define(f"convolution(Tensor input, Tensor weight, Tensor? bias, {GEOMETRY}, *, {HOW}) -> Tensor")
LIBRARY.define(
    f"convolution_saving(Tensor input, Tensor weight, Tensor? bias, {GEOMETRY}, *, bool[2] keep, {HOW}) "
    "-> (Tensor output, Tensor input_codes, Tensor input_scale, Tensor weight_codes, Tensor weight_scale)")
LIBRARY.define(
    f"convolution_backward(Tensor grad_output, Tensor input, Tensor weight, SymInt[]? bias_sizes, {GEOMETRY}, "
    f"bool[3] output_mask, *, {HOW}, Tensor? input_scale=None, Tensor? weight_scale=None, "
    "ScalarType? input_dtype=None, ScalarType? weight_dtype=None) -> (Tensor, Tensor, Tensor)")

CONVOLUTION = torch.ops.convreg.convolution.default
SAVING = torch.ops.convreg.convolution_saving.default
BACKWARD = torch.ops.convreg.convolution_backward.default

Ints = Sequence[int]


# What is not the CPU's dense memory arrives here: the kernels below are registered for that alone.

def _refuse(op: str) -> Any:
    names = {"convolution_backward": ("grad_output", "input", "weight")}.get(op, ("input", "weight", "bias"))

    def kernel(*args: Any, layer: str = "", **kwargs: Any) -> Any:
        for name, tensor in zip(names, args, strict=False):
            if tensor is not None and (tensor.device.type != "cpu" or tensor.layout is not torch.strided
                                       or tensor.is_quantized):
                raise refuse_place(asking(op, layer), name, tensor)
        raise refuse_place(asking(op, layer), names[0], args[0])

    return kernel


for _name in ("convolution", "convolution_saving", "convolution_backward"):
    LIBRARY.impl(_name, _refuse(_name), "CompositeExplicitAutograd")


# Kernels

def _seed_of(op: str, layer: str, how: Settings, seed: Tensor | None) -> int:
    if not how.stochastic:
        return 0
    if seed is None:
        raise asking(op, layer).refuse("seed", None, "a tensor of one int64: the recipe rounds stochastically",
                                       wrong_type=True)
    if seed.dtype is not torch.int64 or seed.numel() != 1:
        raise asking(op, layer).refuse("seed", f"{list(seed.shape)} of {seed.dtype}", "a tensor of one int64",
                                       wrong_type=True)
    return int(seed.item())


def _forward(
    op: str, input: Tensor, weight: Tensor, bias: Tensor | None, arguments: Arguments, recipe: str,
    seed: Tensor | None, layer: str,
) -> tuple[Tensor, Settings, int, tuple[Codes, Codes]]:
    how, ask = settings(recipe), asking(op, layer)
    check_dtypes(ask, how.wide, input=input, weight=weight, bias=bias)
    number = _seed_of(op, layer, how, seed)
    found = problem(op, layer, input.shape, weight.shape, arguments)
    if bias is not None and tuple(bias.shape) != found.output[1:2]:
        raise ask.refuse("bias", list(bias.shape), f"shape {list(found.output[1:2])}", "geometry")
    x = rounded(input, "input", how.input[0], arguments, number)
    w = rounded(weight, "weight", how.weight[0], arguments, number)
    output = torch.empty(found.output, dtype=_wide(input.dtype), memory_format=layout(input, weight))
    products.forward(found, arguments.transposed, x, w, bias, output)
    return output, how, number, (x, w)


def _wide(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of results for an operand of a dtype: float32 where it is one of codes."""
    return torch.float32 if dtype.itemsize == 1 else dtype


def _convolution(
    input: Tensor, weight: Tensor, bias: Tensor | None, stride: Ints, padding: Ints, dilation: Ints, transposed: bool,
    output_padding: Ints, groups: int, *, recipe: str = "float32", seed: Tensor | None = None, layer: str = "",
) -> Tensor:
    arguments = Arguments(tuple(stride), tuple(padding), tuple(dilation), transposed, tuple(output_padding), groups)
    return _forward("convolution", input, weight, bias, arguments, recipe, seed, layer)[0]


def _saving(
    input: Tensor, weight: Tensor, bias: Tensor | None, stride: Ints, padding: Ints, dilation: Ints, transposed: bool,
    output_padding: Ints, groups: int, *, keep: Sequence[bool], recipe: str = "float32", seed: Tensor | None = None,
    layer: str = "",
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    arguments = Arguments(tuple(stride), tuple(padding), tuple(dilation), transposed, tuple(output_padding), groups)
    output, how, number, forward = _forward("convolution", input, weight, bias, arguments, recipe, seed, layer)
    kept: list[Tensor] = []
    for name, tensor, roundings, wanted, codes in zip(
            ("input", "weight"), (input, weight), (how.input, how.weight), keep, forward, strict=True):
        if not wanted or not _kept(tensor, roundings[1]):
            kept += (torch.empty(0, dtype=torch.uint8), torch.empty(0))
            continue
        if roundings[1] != roundings[0]:
            codes = rounded(tensor, name, roundings[1], arguments, number)
        scale = codes.scale if isinstance(codes.scale, Tensor) else torch.tensor(codes.scale)
        kept += (codes.tensor, scale)
    return output, kept[0], kept[1], kept[2], kept[3]


def _kept(tensor: Tensor, how: Rounding | None) -> bool:
    """Whether the backward pass takes codes that the forward pass makes, and not the tensor itself."""
    return how is not None and rounds(tensor.dtype, how.format)


def _backward(
    grad_output: Tensor, input: Tensor, weight: Tensor, bias_sizes: Ints | None, stride: Ints, padding: Ints,
    dilation: Ints, transposed: bool, output_padding: Ints, groups: int, output_mask: Sequence[bool], *,
    recipe: str = "float32", seed: Tensor | None = None, layer: str = "", input_scale: Tensor | None = None,
    weight_scale: Tensor | None = None, input_dtype: torch.dtype | None = None, weight_dtype: torch.dtype | None = None,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    op = "convolution_backward"
    arguments = Arguments(tuple(stride), tuple(padding), tuple(dilation), transposed, tuple(output_padding), groups)
    how, ask = settings(recipe), asking(op, layer)
    check_dtypes(ask, how.wide, grad_output=grad_output, input=input, weight=weight)
    number = _seed_of(op, layer, how, seed)
    found = problem(op, layer, input.shape, weight.shape, arguments)
    if tuple(grad_output.shape) != found.output:
        raise ask.refuse("grad_output", list(grad_output.shape), f"shape {list(found.output)}", "geometry")
    if bias_sizes is not None and tuple(bias_sizes) != found.output[1:2]:
        raise ask.refuse("bias_sizes", list(bias_sizes), f"{list(found.output[1:2])} or None", "geometry")
    transposed = arguments.transposed
    dys: dict[Rounding | None, Codes] = {}

    def gradient(place: int) -> Codes:
        rounding = how.grad_output[place]
        if rounding not in dys:
            dys[rounding] = rounded(grad_output, "grad_output", rounding, arguments, number)
            warn_if_vanished(grad_output, dys[rounding], rounding, layer)
        return dys[rounding]

    def given(tensor: Tensor, scale: Tensor | None, name: str, rounding: Rounding | None) -> Codes:
        if scale is None:
            return rounded(tensor, name, rounding, arguments, number)
        return Codes(tensor, scale if scale.ndim else scale.item())

    grad_input = grad_weight = grad_bias = None
    if output_mask[0]:
        w = given(weight, weight_scale, "weight", how.weight[1])
        grad_input = torch.empty(input.shape, dtype=input_dtype or _wide(input.dtype),
                                 memory_format=layout(grad_output, weight, input))
        grad_input = products.delivered(
            grad_input, "input", how.grad_input, arguments, number,
            lambda out: products.input_gradient(found, transposed, gradient(0), w, out))
    if output_mask[1]:
        x = given(input, input_scale, "input", how.input[1])
        grad_weight = torch.empty_like(weight, dtype=weight_dtype or _wide(weight.dtype))
        grad_weight = products.delivered(
            grad_weight, "weight", how.grad_weight, arguments, number,
            lambda out: products.weight_gradient(found, transposed, gradient(1), x, out))
    if output_mask[2]:
        grad_bias = torch.empty(found.output[1], dtype=weight_dtype or _wide(weight.dtype))
        products.bias_gradient(found, transposed, gradient(1), grad_bias)
    return grad_input, grad_weight, grad_bias


LIBRARY.impl("convolution", _convolution, "CPU")
LIBRARY.impl("convolution_saving", _saving, "CPU")
LIBRARY.impl("convolution_backward", _backward, "CPU")


# Shapes without numbers

def _check_fake(op: str, layer: str, **tensors: Tensor | None) -> None:
    for name, tensor in tensors.items():
        if tensor is not None and tensor.device.type == "meta":
            raise refuse_place(asking(op, layer), name, tensor)


def _fake_convolution(
    input: Tensor, weight: Tensor, bias: Tensor | None, stride: Ints, padding: Ints, dilation: Ints, transposed: bool,
    output_padding: Ints, groups: int, *, recipe: str = "float32", seed: Tensor | None = None, layer: str = "",
) -> Tensor:
    _check_fake("convolution", layer, input=input, weight=weight, bias=bias)
    check_dtypes(asking("convolution", layer), settings(recipe).wide, input=input, weight=weight, bias=bias)
    shape = output_shape(input.shape, weight.shape, Arguments(
        tuple(stride), tuple(padding), tuple(dilation), transposed, tuple(output_padding), groups))
    return torch.empty(shape, dtype=_wide(input.dtype), device=input.device, memory_format=layout(input, weight))


def _fake_saving(
    input: Tensor, weight: Tensor, bias: Tensor | None, *geometry: Any, keep: Sequence[bool], recipe: str = "float32",
    seed: Tensor | None = None, layer: str = "",
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    output = _fake_convolution(input, weight, bias, *geometry, recipe=recipe, seed=seed, layer=layer)
    how, transposed, groups = settings(recipe), geometry[3], geometry[5]
    kept: list[Tensor] = []
    channels = (input.shape[1], weight.shape[1] * groups if transposed else weight.shape[0])
    for tensor, rounding, wanted, count in zip(
            (input, weight), (how.input[1], how.weight[1]), keep, channels, strict=True):
        if not wanted or not _kept(tensor, rounding):
            kept += (tensor.new_empty(0, dtype=torch.uint8), tensor.new_empty(0, dtype=torch.float32))
            continue
        assert rounding is not None
        kept += (torch.empty_like(tensor, dtype=DTYPES[rounding.format]),
                 tensor.new_empty((count,) if rounding.scaling == "channel" else (), dtype=torch.float32))
    return output, kept[0], kept[1], kept[2], kept[3]


def _fake_backward(
    grad_output: Tensor, input: Tensor, weight: Tensor, bias_sizes: Ints | None, *geometry: Any, recipe: str = "float32",
    seed: Tensor | None = None, layer: str = "", input_scale: Tensor | None = None, weight_scale: Tensor | None = None,
    input_dtype: torch.dtype | None = None, weight_dtype: torch.dtype | None = None,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    _check_fake("convolution_backward", layer, grad_output=grad_output, input=input, weight=weight)
    mask = geometry[-1]
    channels = weight.shape[1] * geometry[5] if geometry[3] else weight.shape[0]
    input_dtype, weight_dtype = input_dtype or _wide(input.dtype), weight_dtype or _wide(weight.dtype)
    return (
        torch.empty(input.shape, dtype=input_dtype, device=input.device,
                    memory_format=layout(grad_output, weight, input)) if mask[0] else None,
        torch.empty_like(weight, dtype=weight_dtype) if mask[1] else None,
        weight.new_empty((channels,), dtype=weight_dtype) if mask[2] else None)


torch.library.register_fake("convreg::convolution", _fake_convolution, lib=LIBRARY)
torch.library.register_fake("convreg::convolution_saving", _fake_saving, lib=LIBRARY)
torch.library.register_fake("convreg::convolution_backward", _fake_backward, lib=LIBRARY)


# Differentiation

class _Convolution(torch.autograd.Function):
    """`convolution` that keeps codes, and its gradients."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, weight: Tensor, bias: Tensor | None, geometry: tuple[Any, ...],
                how: dict[str, Any]) -> Tensor:
        wanted = ctx.needs_input_grad
        with torch._C._AutoDispatchBelowAutograd():
            output, x, x_scale, w, w_scale = SAVING(
                input, weight, bias, *geometry, keep=(wanted[1], wanted[0]), **how)
        stated = settings(how["recipe"])
        kept = _saved(input, x, x_scale, stated.input[1])
        if not wanted[1]:  # the shape is all that is needed
            kept = input.new_empty((1,) * input.dim()).expand(input.shape), None
        if wanted[0]:
            kept += _saved(weight, w, w_scale, stated.weight[1])
        else:
            kept += weight, None
        ctx.save_for_backward(*kept, how["seed"])
        ctx.geometry, ctx.how = geometry, how
        ctx.dtypes = {"input_dtype": _wide(input.dtype), "weight_dtype": _wide(weight.dtype)}
        return output

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Any, ...]:
        x, x_scale, w, w_scale, seed = ctx.saved_tensors
        grads = BACKWARD(grad_output, x, w, None, *ctx.geometry, list(ctx.needs_input_grad[:3]),
                         **{**ctx.how, "seed": seed}, input_scale=x_scale, weight_scale=w_scale, **ctx.dtypes)
        return (*grads, None, None)


def _saved(tensor: Tensor, codes: Tensor, scale: Tensor, how: Rounding | None) -> tuple[Tensor, Tensor | None]:
    """Return what stands for an operand until the backward pass: its codes and their scale, or the tensor itself."""
    if how is None or not _kept(tensor, how):
        return tensor, None
    return codes, None if how.scaling == "none" else scale


class _Gradients(torch.autograd.Function):
    """`convolution_backward` whose own gradients are refused."""

    @staticmethod
    def forward(ctx: Any, grad_output: Tensor, input: Tensor, weight: Tensor, rest: tuple[Any, ...],
                how: dict[str, Any]) -> tuple[Tensor | None, ...]:
        ctx.layer = how.get("layer", "")
        with torch._C._AutoDispatchBelowAutograd():
            grads: tuple[Tensor | None, ...] = BACKWARD(grad_output, input, weight, *rest, **how)
        return grads

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> None:
        raise asking("convolution_backward", ctx.layer).refuse(
            "create_graph", True, "one differentiation: the gradients of rounded operands have no gradients")


def _refuse_tangents(op: str, layer: str, **tensors: Tensor | None) -> None:
    """Refuse forward-mode differentiation, in which torch takes the tangent of an operator of ours for zero."""
    if forward_ad._current_level < 0:
        return
    for name, tensor in tensors.items():
        if tensor is not None and tensor.is_floating_point() and forward_ad.unpack_dual(tensor).tangent is not None:
            raise asking(op, layer).refuse(
                name, "a dual tensor", "no forward-mode differentiation (torch.func.jvp, dual numbers): only backward "
                "products are rounded by a recipe")


def _differentiable(*tensors: Tensor | None) -> bool:
    return torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors)


def _autograd_convolution(
    input: Tensor, weight: Tensor, bias: Tensor | None, *geometry: Any, recipe: str = "float32",
    seed: Tensor | None = None, layer: str = "",
) -> Tensor:
    how = {"recipe": recipe, "seed": seed, "layer": layer}
    _refuse_tangents("convolution", layer, input=input, weight=weight, bias=bias)
    if _differentiable(input, weight, bias):
        output: Tensor = _Convolution.apply(input, weight, bias, geometry, how)
        return output
    with torch._C._AutoDispatchBelowAutograd():
        output = CONVOLUTION(input, weight, bias, *geometry, **how)
        return output


def _autograd_saving(
    input: Tensor, weight: Tensor, bias: Tensor | None, *geometry: Any, layer: str = "", **how: Any
) -> tuple[Tensor, ...]:
    if _differentiable(input, weight, bias):
        raise asking("convolution_saving", layer).refuse(
            "input, weight, bias", "requires_grad", "tensors without gradients: torch.ops.convreg.convolution has them")
    with torch._C._AutoDispatchBelowAutograd():
        made: tuple[Tensor, ...] = SAVING(input, weight, bias, *geometry, layer=layer, **how)
        return made


def _autograd_backward(
    grad_output: Tensor, input: Tensor, weight: Tensor, *rest: Any, layer: str = "", **how: Any
) -> tuple[Tensor | None, ...]:
    how["layer"] = layer
    _refuse_tangents("convolution_backward", layer, grad_output=grad_output, input=input, weight=weight)
    if _differentiable(grad_output, input, weight):
        return tuple(_Gradients.apply(grad_output, input, weight, rest, how))
    with torch._C._AutoDispatchBelowAutograd():
        return tuple(BACKWARD(grad_output, input, weight, *rest, **how))


LIBRARY.impl("convolution", _autograd_convolution, "Autograd")
LIBRARY.impl("convolution_saving", _autograd_saving, "Autograd")
LIBRARY.impl("convolution_backward", _autograd_backward, "Autograd")


def _refuse_vmap(op: str) -> Any:
    def kernel(*args: Any, layer: str = "", **kwargs: Any) -> Any:
        raise asking(op, layer).refuse("input", "a tensor of torch.vmap", "tensors outside of torch.vmap: scales and "
                                       "seeds belong to whole tensors; put the axis into the batch")

    return kernel


for _name in ("convolution", "convolution_saving", "convolution_backward"):
    LIBRARY.impl(_name, _refuse_vmap(_name), "FuncTorchBatched")
