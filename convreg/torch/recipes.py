"""Recipes: which tensor is rounded to which format for which product, and how."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ..errors import Asking, OpError, UnknownOp, near_misses
from ..formats import FORMATS, OPERAND_ROUNDINGS, ROUNDINGS, Format
from ..guard import guarded

PRODUCTS = {
    "input": ("forward", "grad_weight"),
    "weight": ("forward", "grad_input"),
    "grad_output": ("grad_input", "grad_weight"),
}
"""The products that each operand is a factor of. A product has the name of its result."""

RESULTS = ("grad_input", "grad_weight")

TENSORS = (*PRODUCTS, *RESULTS)
"""What a recipe may round."""

SCALINGS = ("none", "tensor", "channel")

KNOWN: dict[str, Format] = {**FORMATS, **OPERAND_ROUNDINGS}

Formats = str | None | Mapping[str, str | None]
"""One format for both products of an operand, or one for each; None means that nothing is rounded."""


@dataclass(frozen=True)
class Recipe:
    """The formats of a layer's operands and gradients, their scaling and their rounding.

    Parameters
    ----------
    input, weight, grad_output : str or mapping or None
        The format that the operand is rounded to before its products: a name of `convreg.formats`, or None to leave
        it as it is. A mapping names one format for each of the operand's two products: ``"forward"`` and
        ``"grad_weight"`` of the input, ``"forward"`` and ``"grad_input"`` of the weight, ``"grad_input"`` and
        ``"grad_weight"`` of the output gradient.
    grad_input, grad_weight : str or None
        The format that the gradient is rounded to. None leaves the one rounding to the dtype of the tensor. The
        gradient keeps that dtype in any case.
    scaling : str or mapping
        ``"none"``; ``"tensor"``: a power of two for each tensor, from its present largest magnitude; ``"channel"``: one
        for each channel. A mapping names the scaling of single tensors, of the five above; others have none. Formats
        with the range of float32 are never scaled.
    rounding : str, mapping or None
        A rounding of `convreg.quantize`; None means the format's own. A mapping names the rounding of single tensors.
        ``"hybrid"`` applies to hifloat8 and leaves other formats their own.
    saturate : bool
        Whether a number that is too large becomes the format's largest one instead of infinity or NaN.
    seed : int or None
        Seed of stochastic rounding, below 2**62. With None every call draws a new seed from torch's default generator,
        so that `torch.manual_seed` makes the calls repeatable.

    Raises
    ------
    OpError, OpTypeError
        If an argument is refused.
    UnknownOp
        If there is no such format.

    Examples
    --------
    >>> from convreg.torch import Recipe
    >>> recipe = Recipe(input="hifloat8", weight="hifloat8", grad_output="hifloat8", scaling={"grad_output": "tensor"})
    >>> recipe = Recipe(input={"forward": "float8_e4m3fn", "grad_weight": None}, weight="float8_e4m3fn")
    >>> recipe.text
    '{"input":["float8_e4m3fn",null],"weight":"float8_e4m3fn"}'
    """

    input: Any = None
    weight: Any = None
    grad_output: Any = None
    grad_input: Any = None
    grad_weight: Any = None
    scaling: Any = "none"
    rounding: Any = None
    saturate: bool = False
    seed: int | None = None

    def __post_init__(self) -> None:
        for name, products in PRODUCTS.items():
            object.__setattr__(self, name, _formats(name, getattr(self, name), products))
        for name in RESULTS:
            _format(name, getattr(self, name))
        object.__setattr__(self, "scaling", _choices("scaling", self.scaling, SCALINGS, "none"))
        object.__setattr__(self, "rounding", _choices("rounding", self.rounding, (None, *ROUNDINGS), None))
        if not isinstance(self.saturate, bool | np.bool_):
            raise ASK.refuse("saturate", self.saturate, "True or False", wrong_type=True)
        object.__setattr__(self, "saturate", bool(self.saturate))
        if self.seed is not None:
            allowed = "an integer from 0 to 2**62 - 1, or None"
            if isinstance(self.seed, bool) or not isinstance(self.seed, int | np.integer):
                raise ASK.refuse("seed", self.seed, allowed, wrong_type=True)
            if not 0 <= self.seed < 2**62:
                raise ASK.refuse("seed", self.seed, allowed)
            object.__setattr__(self, "seed", int(self.seed))  # the text is JSON, which has no integers of NumPy
        used = [format for name in PRODUCTS for format in self.operand(name)]
        used += [getattr(self, name) for name in RESULTS]
        if "float64" in used[:-2] and set(used[:-2]) != {"float64"}:
            raise ASK.refuse("input, weight, grad_output", used[:-2], "float64 for all operands or for none: products "
                             "of float64 mix with no other format")
        if not self.stochastic and self.seed is not None:
            raise ASK.refuse("seed", self.seed, "None unless some rounding is 'stochastic'")

    def operand(self, name: str) -> tuple[str | None, str | None]:
        """Return the formats of an operand for its two products, in the order of the class's documentation."""
        value = getattr(self, name)
        return value if isinstance(value, tuple) else (value, value)

    def scaling_of(self, name: str) -> str:
        """Return the scaling of a tensor."""
        return self.scaling if isinstance(self.scaling, str) else dict(self.scaling).get(name, "none")

    def rounding_of(self, name: str) -> str | None:
        """Return the rounding of a tensor, None for the format's own."""
        return dict(self.rounding).get(name) if isinstance(self.rounding, tuple) else self.rounding

    @property
    def stochastic(self) -> bool:
        """Whether some rounding is stochastic."""
        return any(self.rounding_of(name) == "stochastic" for name in TENSORS)

    @property
    def text(self) -> str:
        """The recipe as the operators take it: JSON of what differs from the defaults."""
        stated = {field.name: getattr(self, field.name) for field in fields(self)
                  if getattr(self, field.name) != field.default}
        return json.dumps(stated, sort_keys=True, separators=(",", ":"))


ASK = Asking("convreg::torch.Recipe")


def _format(argument: str, name: Any) -> str | None:
    if name is None:
        return None
    if not isinstance(name, str):
        raise ASK.refuse(argument, name, "the name of a format or None: " + ", ".join(KNOWN), wrong_type=True)
    if name not in KNOWN:
        raise UnknownOp(name, KNOWN, what="format")
    return name


def _formats(argument: str, value: Any, products: tuple[str, str]) -> str | tuple[str | None, ...] | None:
    """Return one format, or a tuple with those of the two products where they differ."""
    if isinstance(value, Mapping):
        if set(value) != set(products):
            raise ASK.refuse(argument, dict(value), f"the formats of its products, {products[0]} and {products[1]}")
        value = tuple(value[product] for product in products)
    if isinstance(value, list | tuple) and len(value) == 2:
        pair = tuple(_format(argument, name) for name in value)
        return pair if pair[0] != pair[1] else pair[0]
    return _format(argument, value)


def _choices(argument: str, value: Any, known: tuple[Any, ...], default: Any) -> Any:
    """Return one choice for all tensors, or the pairs of tensor and choice that differ from the default."""
    allowed = " or ".join(map(repr, known))
    if isinstance(value, list | tuple):
        try:
            value = dict(value)
        except (TypeError, ValueError):
            raise ASK.refuse(argument, value, f"{allowed}, or a mapping", wrong_type=True) from None
    if not isinstance(value, Mapping):
        if not isinstance(value, str | None) or value not in known:
            raise ASK.refuse(argument, value, f"{allowed}, or a mapping from tensors",
                             wrong_type=not isinstance(value, str))
        return value
    for name, choice in value.items():
        if name not in TENSORS:
            near = near_misses(str(name), TENSORS)
            raise ASK.refuse(argument, name, (f"did you mean {near[0]}? " if near else "") + "one of "
                             + ", ".join(TENSORS))
        if not isinstance(choice, str | None) or choice not in known:
            raise ASK.refuse(f"{argument} of {name}", choice, allowed, wrong_type=not isinstance(choice, str | None))
    return tuple((name, value[name]) for name in TENSORS if value.get(name, default) != default) or default


class Source(NamedTuple):
    """A named recipe with where it is stated."""

    recipe: Recipe
    stated: str


RECIPES = {
    "float32": Source(Recipe(), "No rounding: the sums of convreg on the tensors as they are."),
    "float64": Source(
        Recipe(input="float64", weight="float64", grad_output="float64"),
        "No rounding: the sums of convreg in float64, for modules of float64."),
    "bfloat16": Source(
        Recipe(input="bfloat16", weight="bfloat16", grad_output="bfloat16"),
        "Kalamkar et al., A Study of BFLOAT16 for Deep Learning Training, arXiv 1905.12322: operands of all products "
        "in bfloat16, sums in float32, no loss scaling."),
    "hifloat8": Source(
        Recipe(input="hifloat8", weight="hifloat8", grad_output="hifloat8"),
        "Luo et al., Ascend HiFloat8 Format for Deep Learning, arXiv 2409.16626: one format for both passes, half away "
        "from zero, no scales of tensors."),
    "fp8_hybrid": Source(
        Recipe(input="float8_e4m3fn", weight="float8_e4m3fn", grad_output="float8_e5m2", scaling="tensor",
               saturate=True),
        "Micikevicius et al., FP8 Formats for Deep Learning, arXiv 2209.05433: weights and activations in E4M3, "
        "gradients in E5M2, a scale for each tensor; TransformerEngine's Format.HYBRID with current scaling."),
    "fp8_e4m3": Source(
        Recipe(input="float8_e4m3fn", weight="float8_e4m3fn", grad_output="float8_e4m3fn", scaling="tensor",
               saturate=True),
        "TransformerEngine's Format.E4M3 and torchao's float8 recipes with E4M3 for all three operands."),
}
"""The recipes by name, with their sources."""


@guarded("convreg::torch.recipe")
def recipe(name: str, **changes: Any) -> Recipe:
    """Return a recipe by name.

    Parameters
    ----------
    name : str
        ``"hifloat8"``, ``"fp8_hybrid"``, ``"fp8_e4m3"``, ``"bfloat16"``, ``"float32"`` or ``"float64"``.
        ``RECIPES[name].stated`` says where the recipe comes from.
    **changes
        Arguments of `Recipe` that replace those of the recipe, such as ``scaling="tensor"``.

    Returns
    -------
    Recipe

    Raises
    ------
    UnknownOp
        If there is no such recipe or format.
    OpError, OpTypeError
        If a change is refused.
    """
    ask = Asking("convreg::torch.recipe")
    if not isinstance(name, str):
        raise ask.refuse("name", name, " or ".join(map(repr, RECIPES)), wrong_type=True)
    if name not in RECIPES:
        raise UnknownOp(name, RECIPES, what="recipe")
    known = [field.name for field in fields(Recipe)]
    for argument in changes:
        if argument not in known:
            near = near_misses(argument, known)
            raise ask.refuse(argument, "given", (f"did you mean {near[0]}? " if near else "") + "one of "
                             + ", ".join(known), wrong_type=True)
    return replace(RECIPES[name].recipe, **changes)


def as_recipe(value: Recipe | str) -> Recipe:
    """Return the recipe that a user names or gives."""
    if isinstance(value, Recipe):
        return value
    if not isinstance(value, str):
        raise Asking("convreg::torch").refuse("recipe", value, "a convreg.torch.Recipe or one of "
                                              + ", ".join(map(repr, RECIPES)), wrong_type=True)
    return recipe(value)


class Rounding(NamedTuple):
    """How one tensor is rounded for one product.

    `stream` is the number that the seed of stochastic rounding is combined with; every tensor and product has another.
    """

    format: str
    rounding: str
    saturate: bool
    scaling: str
    stream: int


class Settings(NamedTuple):
    """A recipe resolved for the kernels: a `Rounding` for each operand and product, None where nothing is rounded."""

    input: tuple[Rounding | None, Rounding | None]
    weight: tuple[Rounding | None, Rounding | None]
    grad_output: tuple[Rounding | None, Rounding | None]
    grad_input: Rounding | None
    grad_weight: Rounding | None
    stochastic: bool
    wide: bool
    """Whether the operands are float64."""


@lru_cache(maxsize=256)
def settings(text: str) -> Settings:
    """Return the settings that a text states: the name of a recipe, or `Recipe.text`.

    Raises
    ------
    OpError, OpTypeError, UnknownOp
        If it states none.
    """
    if text in RECIPES:
        stated = RECIPES[text].recipe
    else:
        try:
            stated = Recipe(**json.loads(text))
        except OpError:
            raise
        except (ValueError, TypeError, RecursionError):
            raise UnknownOp(text, RECIPES, what="recipe", note="the text of a Recipe is Recipe(...).text") from None

    def resolved(name: str, format: str | None, stream: int) -> Rounding | None:
        if format is None:
            return None
        known = KNOWN[format]
        rounding = stated.rounding_of(name)
        return Rounding(format, rounding if rounding in known.roundings else known.rounding, stated.saturate,
                        stated.scaling_of(name) if scaled(format) else "none", stream)

    operands = []
    for index, name in enumerate(PRODUCTS):
        first, second = stated.operand(name)
        made = resolved(name, first, 2 * index)
        operands.append((made, made if first == second else resolved(name, second, 2 * index + 1)))
    input, weight, grad_output = operands
    return Settings(
        input, weight, grad_output, resolved("grad_input", stated.grad_input, 6),
        resolved("grad_weight", stated.grad_weight, 7), stated.stochastic, "float64" in stated.operand("input"))


def scaled(format: str) -> bool:
    """Whether a scaling applies to a format: those with the exponents of float32 need none."""
    return KNOWN[format].largest < 2.0**100
