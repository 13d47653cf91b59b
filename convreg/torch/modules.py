"""`convert`: a module whose convolutions and linear layers compute on operands rounded as a recipe says."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable
from functools import lru_cache
from pickle import PicklingError
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from ..errors import Asking, near_misses
from ..guard import guarded
from . import functional
from .functional import How
from .ops import check_input
from .recipes import Recipe, as_recipe
from .seeds import Calls, counted_seed, drawn_seed, first_seed

ASK = Asking("convreg::torch.convert")

Skip = str | Iterable[str] | Callable[[str, nn.Module], bool] | None


class NotConverted(UserWarning):
    """Layers of a converted module that compute products as torch does."""


class Emulated:
    """What converted layers have beside those of torch.

    Attributes
    ----------
    convreg_recipe : Recipe
    convreg_layer : str
        The name of the layer in the module that was converted.
    """

    convreg_recipe: Recipe
    convreg_layer: str
    _convreg_text: str
    _convreg_stochastic: bool
    _convreg_calls: Calls
    _convreg_seed: Tensor
    training: bool

    def _convreg_set(self, recipe: Recipe, layer: str) -> None:
        self.convreg_recipe, self.convreg_layer, self._convreg_text = recipe, layer, recipe.text
        self._convreg_calls = Calls()
        self._convreg_stochastic = recipe.stochastic
        if recipe.stochastic and recipe.seed is not None:
            counter = torch.tensor(first_seed(recipe.seed, layer), dtype=torch.int64, device="cpu")
            self.register_buffer("_convreg_seed", counter, persistent=False)  # type: ignore[attr-defined]
        elif "_convreg_seed" in self._buffers:  # type: ignore[attr-defined]
            del self._convreg_seed

    def _convreg_how(self, input: Tensor) -> How:
        check_input(input, self.convreg_layer)
        seed = None
        if self._convreg_stochastic:
            seed = drawn_seed() if self.convreg_recipe.seed is None else counted_seed(
                self, self.convreg_layer, self.training or torch.is_grad_enabled(), input)
        return How(self._convreg_text, seed, self.convreg_layer)

    def extra_repr(self) -> str:
        """Return what torch prints of the layer, and the recipe."""
        return f"{super().extra_repr()}, recipe={self._convreg_text}"  # type: ignore[misc]


class _Linear(Emulated):
    def forward(self: Any, input: Tensor) -> Tensor:
        """Apply the layer."""
        return functional.linear(input, self.weight, self.bias, self._convreg_how(input))


class _Convolution(Emulated):
    def _conv_forward(self: Any, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        padding = self.padding
        if self.padding_mode != "zeros":
            check_input(input, self.convreg_layer)
            input = nn.functional.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            padding = 0
        return functional.convolution(input, weight, bias, self.stride, padding, self.dilation, self.groups,
                                      self._convreg_how(input))


class _Transposed(Emulated):
    def forward(self: Any, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        """Apply the layer."""
        check_input(input, self.convreg_layer)
        extra = self._output_padding(
            input, output_size, self.stride, self.padding, self.kernel_size, len(self.kernel_size), self.dilation)
        return functional.transposed(input, self.weight, self.bias, self.stride, self.padding, extra, self.groups,
                                     self.dilation, self._convreg_how(input))


class ConvregLinear(_Linear, nn.Linear):
    """A converted nn.Linear."""


class ConvregConv1d(_Convolution, nn.Conv1d):
    """A converted nn.Conv1d."""


class ConvregConv2d(_Convolution, nn.Conv2d):
    """A converted nn.Conv2d."""


class ConvregConv3d(_Convolution, nn.Conv3d):
    """A converted nn.Conv3d."""


class ConvregConvTranspose1d(_Transposed, nn.ConvTranspose1d):
    """A converted nn.ConvTranspose1d."""


class ConvregConvTranspose2d(_Transposed, nn.ConvTranspose2d):
    """A converted nn.ConvTranspose2d."""


class ConvregConvTranspose3d(_Transposed, nn.ConvTranspose3d):
    """A converted nn.ConvTranspose3d."""


CONVERTED: dict[type[nn.Module], type[Any]] = {
    nn.Linear: ConvregLinear, nn.Conv1d: ConvregConv1d, nn.Conv2d: ConvregConv2d, nn.Conv3d: ConvregConv3d,
    nn.ConvTranspose1d: ConvregConvTranspose1d, nn.ConvTranspose2d: ConvregConvTranspose2d,
    nn.ConvTranspose3d: ConvregConvTranspose3d,
}

COMPUTED_AS_A_WHOLE: tuple[type[nn.Module], ...] = (
    nn.MultiheadAttention, nn.RNNBase, nn.RNNCellBase, nn.Bilinear)
"""Modules whose products torch computes in one function, without calls of layers."""

_WRAPPERS = ("DistributedDataParallel", "FullyShardedDataParallel", "FSDPModule", "OptimizedModule", "DataParallel")
"""Names, so that none of them has to be imported. A module of fully_shard is an FSDPModule too."""

_OF_ATTENTION = nn.modules.linear.NonDynamicallyQuantizableLinear
"""MultiheadAttention's out_proj: its weight is read, and the layer is never called."""


@guarded("convreg::torch.convert")
def convert(module: nn.Module, recipe: Recipe | str, *, skip: Skip = None) -> nn.Module:
    """Return a copy of a module that computes products on operands rounded as a recipe says.

    Parameters
    ----------
    module : nn.Module
        Every Conv1d to Conv3d, ConvTranspose1d to ConvTranspose3d and Linear in it is converted: also parametrized ones
        (weight norm, spectral norm), pruned ones, those of subclasses that keep torch's forward pass, and layers that
        were converted before.
    recipe : Recipe or str
        A recipe, or the name of one.
    skip : str, iterable of str or callable, optional
        Layers to leave as they are: names of layers, or of modules with all layers in them, as in ``named_modules()``;
        or a function of name and module. `first_and_last` returns the names that papers leave in high precision.

    Returns
    -------
    nn.Module
        The same structure and the same ``state_dict``. Parameters and buffers are those of `module`, not copies.

    Raises
    ------
    OpError, OpTypeError
        If an argument is refused.
    UnknownOp
        If there is no recipe of that name.

    Warns
    -----
    NotConverted
        Names layers whose products remain torch's, unless `skip` names them.

    Examples
    --------
    >>> module = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.Flatten(), torch.nn.Linear(16, 2))
    >>> net = convreg.torch.convert(module, "hifloat8", skip="0")
    >>> [type(layer).__name__ for layer in net]
    ['Conv2d', 'Flatten', 'ConvregLinear']
    """
    if not isinstance(module, nn.Module):
        raise ASK.refuse("module", type(module).__name__, "an nn.Module", wrong_type=True)
    _check_whole(module)
    how = as_recipe(recipe)
    skipped = _skipped(module, skip)
    try:
        converted = copy.deepcopy(module, _shared(module))
    except (TypeError, RuntimeError, PicklingError) as error:  # such as locks, and results kept in a list
        raise ASK.refuse("module", type(module).__name__, f"a module that copy.deepcopy copies; here it says: {error}",
                         wrong_type=True) from error
    names = {}  # a shared layer has the first of its names
    for name, layer in converted.named_modules():
        names[layer] = name
    left: list[str] = []
    changed = 0
    for layer, name in names.items():
        if name in skipped:
            continue
        if (target := converted_class(layer)) is not None:
            layer.__class__ = target
            layer._convreg_set(how, name or "the module")
            changed += 1
        elif reason := _reason(layer):
            left.append(f"{name or 'the module'} ({reason})")
        if isinstance(layer, nn.TransformerEncoderLayer):  # else its fused inference would not call the layers in it
            layer.activation_relu_or_gelu = 0
    if left:
        warnings.warn(f"convreg.torch.convert leaves products to torch in: {'; '.join(left)}", NotConverted,
                      stacklevel=3)
    elif not changed and not skipped:
        warnings.warn("convreg.torch.convert found no convolution and no linear layer", NotConverted, stacklevel=3)
    return converted


@guarded("convreg::torch.first_and_last")
def first_and_last(module: nn.Module) -> tuple[str, ...]:
    """Return the names of the first and the last layer that `convert` would convert, in the order of definition.

    Many recipes leave both in high precision: ``convert(module, recipe, skip=first_and_last(module))``.

    Parameters
    ----------
    module : torch.nn.Module

    Returns
    -------
    tuple of str
        Two names, one if there is one such layer, none if there is none.

    Raises
    ------
    OpTypeError
        If `module` is no module.
    """
    if not isinstance(module, nn.Module):
        raise Asking("convreg::torch.first_and_last").refuse(
            "module", type(module).__name__, "an nn.Module", wrong_type=True)
    names = [name for name, layer in module.named_modules() if converted_class(layer) is not None]
    return (names[0], names[-1]) if len(names) > 1 else tuple(names)


def converted_class(layer: nn.Module) -> type[Any] | None:
    """Return the class that a layer gets, None for one that is not converted."""
    held = type(layer)
    plain: Any = parametrize.type_before_parametrizations(layer)
    if issubclass(plain, Emulated):
        return held
    if issubclass(plain, _OF_ATTENTION) or isinstance(layer, nn.modules.lazy.LazyModuleMixin):
        return None
    base: Any = next((known for known in CONVERTED if issubclass(plain, known)), None)
    if base is None:
        return None
    if plain is not base:
        methods = ("forward", "_conv_forward", "_output_padding")
        if any(getattr(plain, name, None) is not getattr(base, name, None) for name in methods):
            return None
    target = CONVERTED[base] if plain is base else _derived(plain, base)
    if held is plain:
        return target
    return type(held.__name__, (target,), {
        name: value for name, value in vars(held).items() if name not in ("__dict__", "__weakref__")})


@lru_cache(maxsize=256)
def _derived(plain: Any, base: Any) -> Any:
    """Return the class for layers of a subclass of torch's."""
    mixin = CONVERTED[base].__bases__[0]
    return type(f"Convreg{plain.__name__}", (mixin, plain), {
        "__module__": plain.__module__, "__qualname__": f"Convreg{plain.__qualname__}", "__doc__": plain.__doc__,
        "__reduce_ex__": lambda self, protocol: (_new, (plain, base), object.__reduce_ex__(self, 2)[2])})


def _new(plain: Any, base: Any) -> nn.Module:
    """Return an empty layer of a derived class, which pickle and deepcopy then fill."""
    made = _derived(plain, base)
    return made.__new__(made)


def _check_whole(module: nn.Module) -> None:
    """Refuse wrappers whose copies share nothing with the module inside."""
    for name, layer in module.named_modules():
        kind = type(layer).__name__
        if isinstance(layer, torch.jit.ScriptModule):
            raise ASK.refuse("module", f"{name or 'the module'}, a {kind}", "modules that are not scripted or traced",
                             wrong_type=True)
        if any(known.__name__ in _WRAPPERS for known in type(layer).__mro__):
            raise ASK.refuse("module", f"{name or 'the module'}, a {kind}", "a module that is not wrapped: convert it, "
                             "then wrap the result", wrong_type=True)


def _shared(module: nn.Module) -> dict[int, Any]:
    """Return the memo with which deepcopy keeps the tensors of a module."""
    memo: dict[int, Any] = {}
    for layer in module.modules():
        kept = (*layer._parameters.values(), *layer._buffers.values(), *vars(layer).values())
        memo.update({id(tensor): tensor for tensor in kept if isinstance(tensor, Tensor)})
    return memo


def _skipped(module: nn.Module, skip: Skip) -> set[str]:
    """Return the first name of every module that `skip` names or that lies in one."""
    if skip is None:
        return set()
    places: dict[nn.Module, list[str]] = {}
    for name, layer in module.named_modules(remove_duplicate=False):
        places.setdefault(layer, []).append(name)
    if callable(skip):
        return {names[0] for layer, names in places.items() if any(skip(name, layer) for name in names)}
    try:
        wanted = [skip] if isinstance(skip, str) else list(skip)
    except TypeError:
        raise ASK.refuse("skip", type(skip).__name__, "names of layers or a function of name and module",
                         wrong_type=True) from None
    known = {name for names in places.values() for name in names}
    for name in wanted:
        if not isinstance(name, str):
            raise ASK.refuse("skip", name, "names of named_modules(), which are strings", wrong_type=True)
        if name not in known:
            near = near_misses(name, known)
            raise ASK.refuse("skip", name, (f"did you mean {near[0]}? " if near else "") + "names of named_modules()")
    return {names[0] for names in places.values() for name in names
            if any(name == outer or name.startswith(f"{outer}.") or not outer for outer in wanted)}


def _reason(layer: nn.Module) -> str:
    """Return why a layer with products is not converted, or nothing for one without."""
    kind = type(layer).__name__
    if isinstance(layer, nn.modules.lazy.LazyModuleMixin):
        if not any(issubclass(known, getattr(layer, "cls_to_become", None) or ()) for known in CONVERTED):
            return ""
        return f"{kind}: run it once before it is converted"
    if isinstance(layer, _OF_ATTENTION):
        return ""  # its MultiheadAttention is named
    if isinstance(layer, COMPUTED_AS_A_WHOLE):
        return f"{kind}: torch computes it as a whole"
    if isinstance(layer, tuple(CONVERTED)):
        return f"{kind}: it has a forward pass of its own; emulate() covers functions that it calls"
    return ""
