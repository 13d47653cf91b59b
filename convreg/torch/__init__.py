"""PyTorch modules that train with gradients in HiFloat8, FP8, bfloat16 and other formats, on a CPU.

``convert(module, recipe)`` returns a module whose convolutions and linear layers round the operands of all their
products as the recipe says. ``emulate(recipe)`` does the same for the functions of ``torch.nn.functional`` inside a
``with`` block. ``observe(module)`` records what rounding costs every tensor of every layer.
``torch.ops.convreg.convolution`` and ``torch.ops.convreg.convolution_backward`` are the operators that all use. Only
``import convreg.torch`` imports torch; ``import convreg`` does not.
"""

from __future__ import annotations

try:
    import torch as _torch  # noqa: F401 - the message below is what a user without torch needs
except ModuleNotFoundError as _error:
    if _error.name != "torch":
        raise
    raise ImportError(
        "convreg.torch needs PyTorch 2.5 or newer, which is not installed: `pip install 'convreg[torch]'`") from None

from .modes import emulate
from .modules import convert, first_and_last
from .observing import observe
from .recipes import RECIPES, Recipe, recipe

__all__ = ["RECIPES", "Recipe", "convert", "emulate", "first_and_last", "observe", "recipe"]
