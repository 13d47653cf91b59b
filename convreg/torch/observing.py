"""`observe`: what rounding costs each tensor of each layer, recorded in every step of a training."""

from __future__ import annotations

import json
import threading
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes

from ..guard import guarded
from . import passes
from .bridge import is_plain
from .functional import WATCHES, How
from .measuring import Record, measured
from .observed import ASK, Observed
from .operands import Codes, rounded
from .problems import Arguments
from .recipes import PRODUCTS, RECIPES, RESULTS, Recipe, Rounding, as_recipe, settings
from .seeds import recomputing


class NothingObserved(UserWarning):
    """An observation ended without a record."""


@guarded("convreg::torch.observe")
def observe(
    module: nn.Module, *, every: int = 1, recipe: Recipe | str | None = None, scales: bool = True,
    inference: bool = False,
) -> Observation:
    """Record what rounding does to the tensors of a module's layers, until the ``with`` block ends.

    Converted layers are observed. Inside of `emulate` all layers and functions that it replaces are observed; the layer
    of a function is the module whose forward pass calls it. A call is recorded with its input and its weight, and with
    its output gradient when its backward pass comes. If the recipe rounds the gradients of input or weight, they are
    computed once more and recorded too. `Record` says what is measured.

    A step begins when the module is called. If parts of it are called by themselves, a step begins when one of them is
    called for the second time. `Observation.step` begins a step by hand.

    An observation changes no bit of the module's results. Calls that torch.compile has compiled are not recorded, and
    compiled modules are refused. Observations may be nested, also those of parts of a module.

    Parameters
    ----------
    module : nn.Module
        What `convert` returned, or a module that is called inside of `emulate`.
    every : int
        The steps 0, ``every``, ``2 * every`` and so on are recorded. A recorded step takes two to four times as long as
        a step without an observation. Other steps take some microseconds per layer more.
    recipe : Recipe or str, optional
        The recipe that is measured, in place of the one that the layers compute with. The records then say what it
        would lose in this training.
    scales : bool
        Whether to look for the best power-of-two scales. For HiFloat8 the search takes most of the time of a record.
    inference : bool
        Whether calls in evaluation mode without gradients are recorded and counted as steps too.

    Returns
    -------
    Observation
        It has begun. Its `stop` method ends it, and so does the end of a ``with`` block.

    Raises
    ------
    OpError, OpTypeError, UnknownOp
        If an argument is refused.

    Warns
    -----
    NothingObserved
        If it ends without a record.

    Examples
    --------
    >>> net = convreg.torch.convert(torch.nn.Sequential(torch.nn.Linear(4, 2)), "hifloat8")
    >>> with convreg.torch.observe(net) as seen:
    ...     for step in range(3):
    ...         net(torch.ones(5, 4)).square().mean().backward()
    >>> sorted({record.tensor for record in seen.records})
    ['grad_output', 'input', 'weight']
    >>> seen.select(tensor="input")[-1].step
    2
    """
    if not isinstance(module, nn.Module):
        raise ASK.refuse("module", type(module).__name__, "an nn.Module", wrong_type=True)
    if isinstance(every, bool) or not isinstance(every, int | np.integer):
        raise ASK.refuse("every", every, "a positive integer", wrong_type=True)
    if every < 1:
        raise ASK.refuse("every", every, "a positive integer")
    for name, value in (("scales", scales), ("inference", inference)):
        if not isinstance(value, bool | np.bool_):
            raise ASK.refuse(name, value, "True or False", wrong_type=True)
    for name, layer in module.named_modules():
        kind = type(layer).__name__
        compiled = kind == "OptimizedModule" or getattr(layer, "_compiled_call_impl", None) is not None
        if compiled or isinstance(layer, torch.jit.ScriptModule):
            raise ASK.refuse("module", f"{name or 'the module'}, a {kind}{', compiled' if compiled else ''}",
                             "modules that are not compiled, scripted or traced; observe the module that torch.compile "
                             "was given, and call that one", wrong_type=True)
    text = None if recipe is None else as_recipe(recipe).text
    return Observation(module, int(every), text, bool(scales), bool(inference)).start()


class Observation(Observed):
    """What `observe` returns: the records, and the end of recording.

    It is a context manager that ends at the end of the block. The records stay. `start` or another ``with`` continues
    it.
    """

    def __init__(self, module: nn.Module, every: int, recipe: str | None, scales: bool, inference: bool) -> None:
        super().__init__(type(module).__name__, every)
        self._observed, self._recipe, self._scales, self._inference = module, recipe, scales, inference
        self._handles: list[Any] = []
        self._place = _Place()
        self._step = 0
        self._by_hand = False
        self._begun: set[str] = set()
        self._calls: Counter[tuple[str, bool]] = Counter()
        self._left_out = 0

    @property
    def active(self) -> bool:
        """Whether calls are recorded."""
        return bool(self._handles)

    def start(self) -> Observation:
        """Continue to record; an observation that `observe` returns has started."""
        if not self.active:
            for name, layer in self._observed.named_modules():
                self._handles += (layer.register_forward_pre_hook(_Entering(self, name)),
                                  layer.register_forward_hook(_Leaving(self), always_call=True))
            WATCHES.append(self._saw)
        return self

    def stop(self) -> None:
        """Stop recording, and remove all hooks. Calls recorded so far get the records of their backward passes.

        Warns
        -----
        NothingObserved
            If there is no record.
        """
        self._remove()
        if not self._records:
            why = ("its calls were in evaluation mode without gradients, which inference=True records"
                   if self._left_out and not self._begun else
                   "no converted layer, and no layer inside of emulate(), was called; calls that torch.compile has "
                   "compiled are not recorded")
            warnings.warn(f"convreg.torch.observe recorded nothing of {self.module}: {why}", NothingObserved,
                          stacklevel=2)

    def _remove(self) -> None:
        if self.active:
            WATCHES.remove(self._saw)
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._place = _Place()

    def __enter__(self) -> Observation:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.stop()
        else:
            self._remove()

    def step(self) -> None:
        """Begin a step. From the first call on, calls of the module begin none: put it first in the training's loop.

        It is for steps with several calls of the module, such as those that accumulate gradients.
        """
        self._by_hand = True
        if self._begun:
            self._advance()

    def _advance(self) -> None:
        self._step += 1
        self._begun.clear()
        self._calls.clear()

    def _enter(self, name: str, training: bool) -> None:
        place = self._place
        if not name:
            place.names.clear()  # an interrupt from the keyboard may have left some
        if not place.names and not recomputing():
            place.live = torch.is_grad_enabled() or training or self._inference
            if place.live:
                if name in self._begun and not self._by_hand:
                    self._advance()
                self._begun.add(name)
            else:
                self._left_out += 1
        place.names.append(name)

    def _leave(self) -> None:
        if self._place.names:
            self._place.names.pop()

    def _saw(self, input: Tensor, weight: Tensor, geometry: tuple[Any, ...], how: How, output: Tensor) -> None:
        names, again = self._place.names, recomputing()
        if not names or self._step % self.every or not (again or self._place.live):
            return
        if not {type(input), type(weight)} <= {Tensor, nn.Parameter}:  # such as the tensors of a trace
            return
        stride, padding, dilation, transposed, output_padding, groups = geometry
        arguments = Arguments(tuple(stride), tuple(padding), tuple(dilation), transposed, tuple(output_padding), groups)
        key = names[-1], again
        with _undisturbed():
            input, weight = input.resolve_neg(), weight.resolve_neg()
            seen = _Call(self, key[0], self._step, self._calls[key], arguments, self._recipe or how.recipe, how)
            self._calls[key] += 1
            if not again:
                seen.operand("input", input)
                seen.operand("weight", weight)
            if output.grad_fn is not None:
                seen.keep(input, weight)
                output.grad_fn.register_prehook(seen.arrived)


class _Place(threading.local):
    """Where a thread is in a module: the modules whose forward pass runs, and whether the call is one to record."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.live = False


class _Call:
    """A recorded call of a layer, until its backward pass."""

    def __init__(self, observation: Observation, layer: str, step: int, call: int, arguments: Arguments, recipe: str,
                 how: How) -> None:
        self.observation, self.where = observation, (layer, step, call)
        self.arguments, self.recipe, self.stated = arguments, recipe, settings(recipe)
        self.name = how.layer
        self.number = 0 if how.seed is None else int(how.seed.item())
        self.kept: dict[str, Codes] = {}
        self.wanted = [False, False, False]

    def operand(self, name: str, tensor: Tensor) -> None:
        """Record an operand: once if one rounding serves both products, else for each."""
        first, second = getattr(self.stated, name)
        for product, how in (("", first),) if first == second else zip(PRODUCTS[name], (first, second), strict=True):
            self.record(name, product, tensor, name, how)

    def record(self, name: str, product: str, tensor: Tensor, like: str, how: Rounding | None) -> None:
        """Record a tensor, which has the channels of the operand `like`."""
        entries = measured(tensor, like, how, self.arguments, self.number, self.observation._scales)
        self.observation._records.append(Record(*self.where, name, product, **entries))

    def keep(self, input: Tensor, weight: Tensor) -> None:
        """Keep the operands of the backward pass if the recipe rounds its results.

        These are copies: the layer keeps codes, so that the training may overwrite the tensors.
        """
        wanted = input.requires_grad, weight.requires_grad
        if not any(want and getattr(self.stated, name) for want, name in zip(wanted, RESULTS, strict=True)):
            return
        self.wanted = [*wanted, False]
        for name, tensor in (("input", input), ("weight", weight)):
            how = getattr(self.stated, name)[1]
            codes = rounded(tensor.detach(), name, how, self.arguments, self.number)
            self.kept[name] = Codes(codes.tensor.clone()) if codes.tensor.data_ptr() == tensor.data_ptr() else codes

    def arrived(self, gradients: tuple[Tensor | None, ...]) -> None:
        """Record the output gradient, and the results where they are rounded."""
        gradient = gradients[0]
        if gradient is None or type(gradient) is not Tensor:
            return
        with torch.no_grad(), _undisturbed():
            gradient = gradient.resolve_neg()
            if not is_plain(gradient):  # such as several directions at once, of is_grads_batched
                return
            self.operand("grad_output", gradient)
            if self.kept:
                self.results(gradient.detach())

    def results(self, gradient: Tensor) -> None:
        """Compute the gradients as the layer does but for the last rounding, and record that."""
        wide = torch.float64 if self.stated.wide else torch.float32
        scales = [torch.as_tensor(codes.scale, dtype=torch.float32) for codes in self.kept.values()]
        sums = passes.convolution_backward(
            gradient, self.kept["input"].tensor, self.kept["weight"].tensor, None, *self.arguments, self.wanted,
            recipe=_without_results(self.recipe), seed=torch.tensor(self.number), layer=self.name,
            input_scale=scales[0], weight_scale=scales[1], input_dtype=wide, weight_dtype=wide)
        for name, like, made in zip(RESULTS, ("input", "weight"), sums, strict=False):
            how = getattr(self.stated, name)
            if made is not None and how is not None:
                self.record(name, "", made, like, how)


class _Entering:
    """A hook before the forward pass of a module. A copy of the module gets one that does nothing."""

    def __init__(self, observation: Observation, name: str) -> None:
        self.observation, self.name = observation, name

    def __call__(self, module: nn.Module, *_: Any) -> None:
        """Enter the module."""
        if not torch.compiler.is_compiling():
            self.observation._enter(self.name, module.training)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_Idle, ())


class _Leaving:
    """A hook after the forward pass of a module, also one that failed."""

    def __init__(self, observation: Observation) -> None:
        self.observation = observation

    def __call__(self, *_: Any) -> None:
        """Leave the module."""
        if not torch.compiler.is_compiling():
            self.observation._leave()

    def __reduce__(self) -> tuple[Any, ...]:
        return (_Idle, ())


class _Idle:
    """What stands for the hooks in copies of an observed module."""

    def __call__(self, *_: Any) -> None:
        """Do nothing."""


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Hide what is computed in the block from all modes: they would change it, or count and trace it."""
    with torch._C.DisableTorchFunction(), _disable_current_modes():
        yield


@lru_cache(maxsize=256)
def _without_results(text: str) -> str:
    """Return a recipe's text without formats of results."""
    stated = RECIPES[text].recipe if text in RECIPES else Recipe(**json.loads(text))
    return replace(stated, grad_input=None, grad_weight=None).text
