"""`Recipe` and `recipe`: what they state, refuse and keep."""

import copy
import itertools
import json
import pickle
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from convreg.errors import OpError, OpTypeError, UnknownOp  # noqa: E402
from convreg.torch import RECIPES, Recipe, recipe  # noqa: E402
from convreg.torch.operands import exponent_for, mixed  # noqa: E402
from convreg.torch.recipes import settings  # noqa: E402
from convreg.torch.seeds import first_seed  # noqa: E402

SOME = [*(source.recipe for source in RECIPES.values()),
        Recipe(input={"forward": "hifloat8", "grad_weight": None}, rounding={"grad_output": "stochastic"}, seed=3),
        Recipe(weight="float16", scaling={"weight": "channel", "grad_input": "tensor"}, grad_input="float8_e5m2",
               saturate=True)]


@pytest.mark.parametrize("stated", SOME)
def test_recipes_survive_text_pickle_and_copies(stated):
    assert settings(stated.text) == settings(Recipe(**json.loads(stated.text)).text)
    for copied in (pickle.loads(pickle.dumps(stated)), copy.deepcopy(stated)):
        assert copied == stated
        assert hash(copied) == hash(stated)
        assert copied.text == stated.text


def test_named_recipes_state_what_their_sources_do():
    assert all(source.stated for source in RECIPES.values())
    eight, hybrid = recipe("hifloat8"), recipe("fp8_hybrid")
    assert (eight.input, eight.weight, eight.grad_output) == ("hifloat8",) * 3
    assert (eight.scaling, eight.saturate) == ("none", False)
    assert settings("hifloat8").grad_output[0].rounding == "half_away"
    assert (hybrid.input, hybrid.weight, hybrid.grad_output) == ("float8_e4m3fn", "float8_e4m3fn", "float8_e5m2")
    assert (hybrid.scaling, hybrid.saturate) == ("tensor", True)
    assert settings("fp8_hybrid").input[0].rounding == "nearest_even"
    assert recipe("fp8_e4m3").grad_output == "float8_e4m3fn"
    assert recipe("hifloat8", scaling="tensor") == Recipe(input="hifloat8", weight="hifloat8", grad_output="hifloat8",
                                                          scaling="tensor")


def test_hybrid_rounding_is_for_hifloat8_alone():
    made = settings(recipe("hifloat8", rounding="hybrid", grad_weight="bfloat16").text)
    assert made.grad_output[0].rounding == "hybrid"
    assert made.grad_weight.rounding == "nearest_even"


@pytest.mark.parametrize(("arguments", "error", "said"), [
    ({"input": "hifloat9"}, UnknownOp, "hifloat8"), ({"input": 8}, OpTypeError, "input"),
    ({"input": {"forward": "hifloat8"}}, OpError, "grad_weight"), ({"grad_input": {"a": 1}}, OpTypeError, "grad_input"),
    ({"scaling": "tensr"}, OpError, "'tensor'"), ({"scaling": 3}, OpTypeError, "scaling"),
    ({"scaling": {"gradient": "tensor"}}, OpError, "grad_output"), ({"scaling": {"input": "x"}}, OpError, "channel"),
    ({"rounding": "up"}, OpError, "stochastic"), ({"rounding": {"weight": "up"}}, OpError, "rounding of weight"),
    ({"scaling": {"input": torch.ones(2)}}, OpTypeError, "scaling of input"),
    ({"rounding": {"input": ["hybrid"]}}, OpTypeError, "rounding of input"),
    ({"saturate": 1}, OpTypeError, "saturate"), ({"seed": 1}, OpError, "stochastic"),
    ({"rounding": "stochastic", "seed": -1}, OpError, "seed"),
    ({"rounding": "stochastic", "seed": 1.5}, OpTypeError, "seed"),
    ({"rounding": "stochastic", "seed": 2**62}, OpError, "seed"), ({"input": "float64"}, OpError, "float64")])
def test_wrong_recipes_are_refused_where_they_are_made(arguments, error, said):
    with pytest.raises(error, match=said):
        Recipe(**arguments)
    with pytest.raises(error, match=said):
        recipe("float32", **arguments)


def test_numbers_of_numpy_are_numbers():
    made = recipe("hifloat8", rounding="stochastic", seed=np.int64(3), saturate=np.True_)
    assert made == recipe("hifloat8", rounding="stochastic", seed=3, saturate=True)
    assert settings(made.text).input[0].saturate is True
    with pytest.raises(OpTypeError, match="seed"):
        recipe("hifloat8", rounding="stochastic", seed=np.True_)


@pytest.mark.parametrize("text", ["{", "[]", "[" * 100_000, '{"input":' * 100_000])
def test_texts_that_are_none_of_a_recipe_are_refused(text):
    with pytest.raises(UnknownOp, match="the text of a Recipe"):
        settings(text)


def test_wrong_names_are_refused():
    with pytest.raises(UnknownOp, match="did you mean fp8_hybrid"):
        recipe("fp8_hybird")
    with pytest.raises(OpTypeError, match="did you mean scaling"):
        recipe("hifloat8", scalling="tensor")
    with pytest.raises(OpTypeError, match="name"):
        recipe(8)


@pytest.mark.parametrize(("largest", "format", "exponent"), [
    (448.0, "float8_e4m3fn", 0), (449.0, "float8_e4m3fn", -1), (1.75, "float8_e4m3fn", 8), (1.76, "float8_e4m3fn", 7),
    (57344.0, "float8_e5m2", 0), (8.0, "hifloat8", 0), (8.1, "hifloat8", -1), (4.0, "hifloat8", 1),
    (1.0, "float16", 15), (0.0, "hifloat8", 0), (float("inf"), "hifloat8", 0), (float("nan"), "hifloat8", 0),
    (1e-45, "float8_e4m3fn", 126), (3e38, "hifloat8", -125)])
def test_scales_bring_the_largest_magnitude_to_the_formats_top(largest, format, exponent):
    assert exponent_for(largest, format) == exponent


def test_streams_of_seeds_are_apart():
    seeds = {mixed(seed, stream) for seed in range(1000) for stream in range(8)}
    assert len(seeds) == 8000
    starts = sorted(first_seed(7, f"layer{index}") for index in range(1000))
    assert min(b - a for a, b in itertools.pairwise(starts)) > 2**30


def test_convreg_imports_without_torch():
    code = ("import sys, convreg; assert 'torch' not in sys.modules; sys.modules['torch'] = None\n"
            "try:\n import convreg.torch\nexcept ImportError as error:\n assert 'convreg[torch]' in str(error), error\n"
            "else:\n raise AssertionError")
    subprocess.run([sys.executable, "-c", code], check=True)
