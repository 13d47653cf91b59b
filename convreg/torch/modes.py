"""`emulate`: the functions of torch.nn.functional on operands rounded as a recipe says, inside a ``with`` block."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import CheckpointFunction

from ..errors import Asking
from . import functional
from .bridge import asking
from .functional import How, Ints
from .modules import NotConverted
from .ops import check_input
from .recipes import Recipe, as_recipe
from .seeds import Calls, counted_seed, drawn_seed, first_seed

_WHOLE = (
    (F, "multi_head_attention_forward"), (torch, "_native_multi_head_attention"),
    (torch, "_transformer_encoder_layer_fwd"), (torch, "lstm"), (torch, "gru"), (torch, "rnn_tanh"),
    (torch, "rnn_relu"), (torch, "lstm_cell"), (torch, "gru_cell"), (torch, "rnn_tanh_cell"), (torch, "rnn_relu_cell"),
    (torch, "bilinear"), (F, "bilinear"), (torch, "conv_tbc"))

COMPUTED_AS_A_WHOLE = {getattr(where, name): name for where, name in _WHOLE if hasattr(where, name)}
"""Functions that hold products and do not call the functions that are replaced."""


class emulate(TorchFunctionMode):
    """A context manager in which convolutions and linear layers round their operands as a recipe says.

    It replaces ``torch.nn.functional.conv1d`` to ``conv3d``, ``conv_transpose1d`` to ``conv_transpose3d`` and
    ``linear``, and ``torch.convolution``. Their gradients are computed by the recipe wherever ``backward()`` is called,
    also outside of the block and in other threads. ``torch.matmul``, ``@``, ``mm``, ``bmm`` and ``einsum`` are left
    alone. Functions that hold products and are left to torch, such as multi-head attention, are named in a warning.

    Parameters
    ----------
    recipe : Recipe or str
        A recipe, or the name of one. With a seed, calls are counted as long as the object is used: enter the same
        object in every step of a training, or all steps round with the same numbers.

    Raises
    ------
    OpError, OpTypeError, UnknownOp
        If the recipe is refused.

    Warns
    -----
    NotConverted
        Once for each function with products that torch computes.

    Notes
    -----
    ``torch.utils.checkpoint`` computes a block again in the backward pass, where the mode is off. Give it
    ``use_reentrant=False`` and ``context_fn=lambda: (nullcontext(), mode)``. The reentrant kind is refused.

    Examples
    --------
    >>> x, weight = torch.ones(1, 2, 5), torch.ones(3, 2, 2, requires_grad=True)
    >>> with convreg.torch.emulate("hifloat8"):
    ...     loss = torch.nn.functional.conv1d(x, weight).square().mean()
    >>> loss.backward()
    >>> weight.grad[0, 0, 0].item()  # 2.6667 without rounding; the output gradient of 0.6667 becomes 0.6875
    2.75
    """

    def __init__(self, recipe: Recipe | str) -> None:
        super().__init__()
        self.recipe = as_recipe(recipe)
        self._text = self.recipe.text
        self._convreg_calls = Calls()
        self._warned: set[str] = set()
        self._convreg_seed: Tensor | None = None
        if self.recipe.stochastic and self.recipe.seed is not None:
            self._convreg_seed = torch.tensor(first_seed(self.recipe.seed, "emulate"), dtype=torch.int64, device="cpu")

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Replace a function, or call it."""
        replaced = REPLACED.get(func)
        if replaced is not None:
            return replaced(self, *args, **(kwargs or {}))
        if (name := COMPUTED_AS_A_WHOLE.get(func)) is not None:
            self._warn(name)
        return func(*args, **(kwargs or {}))

    def _how(self, input: Tensor, weight: Tensor) -> How:
        check_input(input, "")
        if not torch.is_grad_enabled() and not torch.compiler.is_compiling():
            _refuse_reentrant()
        seed = None
        if self._convreg_seed is not None:
            seed = counted_seed(self, "", True, input, weight)
        elif self.recipe.stochastic:
            seed = drawn_seed()
        return How(self._text, seed, "")

    def _warn(self, name: str) -> None:
        if name not in self._warned:
            self._warned.add(name)
            warnings.warn(f"convreg.torch.emulate: torch computes {name} as a whole, so its products are not rounded",
                          NotConverted, stacklevel=4)


def _refuse_reentrant() -> None:
    """Refuse a forward pass in a checkpoint of the reentrant kind: its recomputation would not see the mode."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code is CheckpointFunction.forward.__code__:
            raise Asking("convreg::torch.emulate").refuse(
                "use_reentrant", True, "use_reentrant=False with context_fn=lambda: (nullcontext(), mode), in which "
                "`mode` is this emulate(...); or convert(): the backward pass of a reentrant checkpoint computes the "
                "block again in plain torch")
        frame = frame.f_back  # type: ignore[assignment]


def _linear(mode: emulate, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    how = mode._how(input, weight)
    if weight.dim() == 1:  # one output feature, without an axis
        return functional.linear(input, weight.unsqueeze(0), None if bias is None else bias.reshape(1), how).squeeze(-1)
    if bias is not None and bias.dim() < 2 and bias.numel() == 1:  # one number for all features
        bias = bias.expand(weight.shape[0])
    return functional.linear(input, weight, bias, how)


def _convolution(
    mode: emulate, input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Ints = 1,
    padding: Ints | str = 0, dilation: Ints = 1, groups: int = 1, *, axes: int | None = None,
) -> Tensor:
    _check_axes(weight, axes)
    return functional.convolution(input, weight, bias, stride, padding, dilation, groups, mode._how(input, weight))


def _transposed(
    mode: emulate, input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Ints = 1, padding: Ints = 0,
    output_padding: Ints = 0, groups: int = 1, dilation: Ints = 1, *, axes: int | None = None,
) -> Tensor:
    _check_axes(weight, axes)
    return functional.transposed(input, weight, bias, stride, padding, output_padding, groups, dilation,
                                 mode._how(input, weight))


def _check_axes(weight: Tensor, axes: int | None) -> None:
    """Refuse weights of another number of spatial axes than the function has, as torch does."""
    if axes is not None and weight.dim() != axes + 2:
        raise asking("convolution", "").refuse("weight", list(weight.shape), f"{axes + 2} axes in this function",
                                               "geometry")


def _either(
    mode: emulate, input: Tensor, weight: Tensor, bias: Tensor | None, stride: Ints, padding: Ints, dilation: Ints,
    transposed: bool, output_padding: Ints, groups: int,
) -> Tensor:
    if transposed:
        return _transposed(mode, input, weight, bias, stride, padding, output_padding, groups, dilation)
    return _convolution(mode, input, weight, bias, stride, padding, dilation, groups)


REPLACED: dict[Any, Callable[..., Tensor]] = {
    F.linear: _linear, torch.convolution: _either,
    **{getattr(F, f"conv{axes}d"): partial(_convolution, axes=axes) for axes in (1, 2, 3)},
    **{getattr(F, f"conv_transpose{axes}d"): partial(_transposed, axes=axes) for axes in (1, 2, 3)},
}
"""The functions that are replaced."""
