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
from torch.nn import Parameter

from ..errors import OpError
from . import passes
from .bridge import DTYPES, asking, check_dtypes, is_plain, refuse_place
from .passes import Ints, has_scale, kept_as_codes, result_dtype
from .problems import Arguments, layout, output_shape
from .recipes import Rounding, settings

_GEOMETRY = ("SymInt[] stride, SymInt[] padding, SymInt[] dilation, bool transposed, SymInt[] output_padding, "
             "SymInt groups")
_HOW = 'str recipe="float32", Tensor? seed=None, str layer=""'

LIBRARY = torch.library.Library("convreg", "DEF")
LIBRARY.define(f"convolution(Tensor input, Tensor weight, Tensor? bias, {_GEOMETRY}, *, {_HOW}) -> Tensor")
LIBRARY.define(
    f"convolution_saving(Tensor input, Tensor weight, Tensor? bias, {_GEOMETRY}, *, bool[2] keep, {_HOW}) "
    "-> (Tensor output, Tensor input_codes, Tensor input_scale, Tensor weight_codes, Tensor weight_scale)")
LIBRARY.define(
    f"convolution_backward(Tensor grad_output, Tensor input, Tensor weight, SymInt[]? bias_sizes, {_GEOMETRY}, "
    f"bool[3] output_mask, *, {_HOW}, Tensor? input_scale=None, Tensor? weight_scale=None, "
    "ScalarType? input_dtype=None, ScalarType? weight_dtype=None) -> (Tensor, Tensor, Tensor)")

CONVOLUTION = torch.ops.convreg.convolution.default
SAVING = torch.ops.convreg.convolution_saving.default
BACKWARD = torch.ops.convreg.convolution_backward.default

TENSORS = {
    "convolution": ("input", "weight", "bias"),
    "convolution_saving": ("input", "weight", "bias"),
    "convolution_backward": ("grad_output", "input", "weight"),
}
"""The operators, and their first arguments."""


def _refuse(op: str) -> Any:
    """Return the kernel for what is not dense memory of the CPU."""

    def kernel(*args: Any, layer: str = "", **kwargs: Any) -> Any:
        for name, tensor in (*zip(TENSORS[op], args, strict=False), *kwargs.items()):
            if isinstance(tensor, Tensor) and (tensor.device.type != "cpu" or tensor.layout is not torch.strided
                                               or tensor.is_quantized or tensor.is_nested):
                raise refuse_place(op, layer, name, tensor)
        raise refuse_place(op, layer, TENSORS[op][0], args[0])

    return kernel


def _vmap_refusal(op: str, layer: str) -> OpError:
    return asking(op, layer).refuse("input", "a tensor of torch.vmap", "tensors outside of torch.vmap: scales and "
                                    "seeds belong to whole tensors; put the axis into the batch")


def _refuse_vmap(op: str) -> Any:
    def kernel(*args: Any, layer: str = "", **kwargs: Any) -> Any:
        raise _vmap_refusal(op, layer)

    return kernel


def check_input(input: Tensor, layer: str) -> None:
    """Refuse an input that is of a wrong kind, before a seed is drawn or counted for it.

    These are what is no tensor, integers, complex numbers, other devices and layouts, nested tensors, and tensors of
    vmap and of forward mode. Integers are refused here alone: the operators would take bytes for codes of HiFloat8,
    which no layer means.
    """
    if not isinstance(input, Tensor):
        raise asking("convolution", layer).refuse("input", type(input).__name__, "a torch.Tensor", wrong_type=True)
    if not input.is_floating_point():
        raise asking("convolution", layer).refuse("input", str(input.dtype), "a floating-point tensor", wrong_type=True)
    if torch.compiler.is_compiling():
        return
    if input.device.type != "cpu" or input.layout is not torch.strided or input.is_nested:
        raise refuse_place("convolution", layer, "input", input)
    if torch._C._functorch.is_batchedtensor(input):
        raise _vmap_refusal("convolution", layer)
    _refuse_tangents("convolution", layer, (input,))


def _fake_convolution(
    input: Tensor, weight: Tensor, bias: Tensor | None, stride: Ints, padding: Ints, dilation: Ints, transposed: bool,
    output_padding: Ints, groups: int, *, recipe: str = "float32", seed: Tensor | None = None, layer: str = "",
) -> Tensor:
    _check_fake("convolution", layer, (input, weight, bias), seed=seed)
    check_dtypes("convolution", layer, settings(recipe).wide, TENSORS["convolution"], (input, weight, bias))
    shape = output_shape(input.shape, weight.shape, Arguments(
        tuple(stride), tuple(padding), tuple(dilation), transposed, tuple(output_padding), groups))
    return torch.empty(shape, dtype=result_dtype(input.dtype), device=input.device,
                       memory_format=layout(input, weight))


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
        if rounding is None or not wanted or not kept_as_codes(tensor, rounding):
            kept += (tensor.new_empty(0, dtype=torch.uint8), tensor.new_empty(0, dtype=torch.float32))
            continue
        extents = {"none": (0,), "tensor": (), "channel": (count,)}[rounding.scaling]
        kept += (torch.empty_like(tensor, dtype=DTYPES[rounding.format]),
                 tensor.new_empty(extents, dtype=torch.float32))
    return output, kept[0], kept[1], kept[2], kept[3]


def _fake_backward(
    grad_output: Tensor, input: Tensor, weight: Tensor, bias_sizes: Ints | None, *geometry: Any,
    recipe: str = "float32", seed: Tensor | None = None, layer: str = "", input_scale: Tensor | None = None,
    weight_scale: Tensor | None = None, input_dtype: torch.dtype | None = None, weight_dtype: torch.dtype | None = None,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    _check_fake("convolution_backward", layer, (grad_output, input, weight), seed=seed, input_scale=input_scale,
                weight_scale=weight_scale)
    transposed, groups, mask = geometry[3], geometry[5], geometry[6]
    channels = weight.shape[1] * groups if transposed else weight.shape[0]
    input_dtype, weight_dtype = input_dtype or result_dtype(input.dtype), weight_dtype or result_dtype(weight.dtype)
    return (
        torch.empty(input.shape, dtype=input_dtype, device=input.device,
                    memory_format=layout(grad_output, weight, input)) if mask[0] else None,
        torch.empty_like(weight, dtype=weight_dtype) if mask[1] else None,
        weight.new_empty((channels,), dtype=weight_dtype) if mask[2] else None)


def _check_fake(op: str, layer: str, tensors: tuple[Tensor | None, ...], **others: Tensor | None) -> None:
    """Refuse tensors on the device "meta": they have no numbers. Those of a trace say that they are on the CPU."""
    for name, tensor in (*zip(TENSORS[op], tensors, strict=True), *others.items()):
        if tensor is not None and tensor.device.type == "meta":
            raise refuse_place(op, layer, name, tensor)


class _Convolution(torch.autograd.Function):
    """`convolution` that keeps codes, and its gradients."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, weight: Tensor, bias: Tensor | None, geometry: tuple[Any, ...],
                recipe: str, seed: Tensor | None, layer: str, direct: bool, links: tuple[Tensor | None, ...]) -> Tensor:
        data_wanted, weight_wanted, *_ = ctx.needs_input_grad
        compute: Any = passes.convolution_saving if direct else SAVING
        with torch._C._AutoDispatchBelowAutograd():
            output, x, x_scale, w, w_scale = compute(
                input, weight, bias, *geometry, keep=(weight_wanted, data_wanted), recipe=recipe, seed=seed,
                layer=layer)
        stated = settings(recipe)
        x, x_scale = _saved(input, x, x_scale, stated.input[1])
        if not weight_wanted:  # the shape is all that is needed
            x, x_scale = input.new_empty((1,) * input.dim()).expand(input.shape), None
        w, w_scale = _saved(weight, w, w_scale, stated.weight[1]) if data_wanted else (weight, None)
        ctx.save_for_backward(x, w, x_scale, w_scale, seed)
        ctx.geometry, ctx.recipe, ctx.layer, ctx.links = geometry, recipe, layer, links
        ctx.dtypes = result_dtype(input.dtype), result_dtype(weight.dtype)
        return output

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Any, ...]:
        x, w, x_scale, w_scale, seed = ctx.saved_tensors
        rest = (None, *ctx.geometry, ctx.needs_input_grad[:3])
        how = {"recipe": ctx.recipe, "seed": seed, "layer": ctx.layer, "input_scale": x_scale, "weight_scale": w_scale,
               "input_dtype": ctx.dtypes[0], "weight_dtype": ctx.dtypes[1]}
        if torch.is_grad_enabled() and any(link is not None for link in ctx.links):
            grads = _Gradients.apply(grad_output, x, w, rest, how, *ctx.links)
        elif not torch.is_grad_enabled() and _direct(grad_output, x, w):
            grads = passes.convolution_backward(grad_output, x, w, *rest, **how)
        else:
            grads = BACKWARD(grad_output, x, w, *rest, **how)
        return (*grads, None, None, None, None, None, None)


def _saved(tensor: Tensor, codes: Tensor, scale: Tensor, how: Rounding | None) -> tuple[Tensor, Tensor | None]:
    """Return what stands for an operand until the backward pass: its codes and their scale, or the tensor itself."""
    if how is None or not kept_as_codes(tensor, how):
        return tensor, None
    return codes, scale if has_scale(how) else None


def _link(tensor: Tensor) -> Tensor | None:
    """Return what depends on a tensor for autograd and holds none of its numbers.

    The codes that are kept for the backward pass depend on nothing for autograd. A second differentiation would take
    the gradients for constants.
    """
    if not tensor.requires_grad or not is_plain(tensor) or not tensor.dim():  # compilers make no second derivatives
        return None
    return tensor if tensor.is_leaf else tensor.narrow(0, 0, 0).clone()


class _Gradients(torch.autograd.Function):
    """`convolution_backward` whose own gradients are refused. For autograd its results depend on `links` too."""

    @staticmethod
    def forward(ctx: Any, grad_output: Tensor, input: Tensor, weight: Tensor, rest: tuple[Any, ...],
                how: dict[str, Any], *links: Tensor | None) -> tuple[Tensor | None, ...]:
        ctx.layer = how.get("layer", "")
        with torch._C._AutoDispatchBelowAutograd():
            grads: tuple[Tensor | None, ...] = BACKWARD(grad_output, input, weight, *rest, **how)
        return grads

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> None:
        raise asking("convolution_backward", ctx.layer).refuse(
            "create_graph", True, "one differentiation: the gradients of rounded operands have no gradients")


def _refuse_tangents(op: str, layer: str, tensors: tuple[Tensor | None, ...]) -> None:
    """Refuse forward-mode differentiation, in which torch takes the tangent of an operator of ours for zero."""
    if forward_ad._current_level < 0:
        return
    for name, tensor in zip(TENSORS[op], tensors, strict=False):
        if tensor is not None and tensor.is_floating_point() and forward_ad.unpack_dual(tensor).tangent is not None:
            raise asking(op, layer).refuse(
                name, "a dual tensor", "no forward-mode differentiation (torch.func.jvp, dual numbers): a recipe "
                "defines the products of a backward pass only")


def _differentiable(*tensors: Tensor | None) -> bool:
    if torch.is_grad_enabled():
        for tensor in tensors:
            if tensor is not None and tensor.requires_grad:
                return True
    return False


def _autograd_convolution(
    input: Tensor, weight: Tensor, bias: Tensor | None, *geometry: Any, recipe: str = "float32",
    seed: Tensor | None = None, layer: str = "", direct: bool = False,
) -> Tensor:
    _refuse_tangents("convolution", layer, (input, weight, bias))
    if _differentiable(input, weight, bias):
        if torch._C._are_functorch_transforms_active():
            raise asking("convolution", layer).refuse(
                "input", "a tensor of a torch.func transform", "backward() or torch.autograd.grad instead of "
                "torch.func.grad, vjp and jacrev")
        links = _link(input), _link(weight)
        output: Tensor = _Convolution.apply(input, weight, bias, geometry, recipe, seed, layer, direct, links)
        return output
    if direct:
        return passes.convolution(input, weight, bias, *geometry, recipe=recipe, seed=seed, layer=layer)
    with torch._C._AutoDispatchBelowAutograd():
        output = CONVOLUTION(input, weight, bias, *geometry, recipe=recipe, seed=seed, layer=layer)
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
    _refuse_tangents("convolution_backward", layer, (grad_output, input, weight))
    if _differentiable(grad_output, input, weight):
        return tuple(_Gradients.apply(grad_output, input, weight, rest, how))
    with torch._C._AutoDispatchBelowAutograd():
        return tuple(BACKWARD(grad_output, input, weight, *rest, **how))


for _name, _autograd, _fake in (
        ("convolution", _autograd_convolution, _fake_convolution),
        ("convolution_saving", _autograd_saving, _fake_saving),
        ("convolution_backward", _autograd_backward, _fake_backward)):
    LIBRARY.impl(_name, _refuse(_name), "CompositeExplicitAutograd")
    LIBRARY.impl(_name, _refuse_vmap(_name), "FuncTorchBatched")
    LIBRARY.impl(_name, getattr(passes, _name), "CPU")
    LIBRARY.impl(_name, _autograd, "Autograd")
    torch.library.register_fake(f"convreg::{_name}", _fake, lib=LIBRARY)


def _direct(*tensors: Tensor | None) -> bool:
    """Whether the dispatcher would do nothing but call the kernels, so that they can be called without it.

    It takes some 25 us per call of an operator. Nobody may listen: no mode, no trace, no profiler, no subclass.
    """
    for tensor in tensors:
        if tensor is not None and not (is_plain(tensor) and type(tensor) in (Tensor, Parameter)):
            return False
    return not (torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack() or torch._C._is_tracing()
                or torch.autograd._profiler_enabled())


def convolve(
    input: Tensor, weight: Tensor, bias: Tensor | None, *geometry: Any, recipe: str, seed: Tensor | None, layer: str
) -> Tensor:
    """Return what torch.ops.convreg.convolution does, in less time where nothing but the result is seen of it."""
    if torch.compiler.is_compiling() or not _direct(input, weight, bias):
        output: Tensor = torch.ops.convreg.convolution(
            input, weight, bias, *geometry, recipe=recipe, seed=seed, layer=layer)
        return output
    return _autograd_convolution(
        input, weight, bias, *geometry, recipe=recipe, seed=seed, layer=layer, direct=True)
