"""observe: every figure against a plain statement in NumPy."""

import copy
import json
import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from observed_figures import check, exponent_for, identity, ratio, rounded  # noqa: E402
from torch import nn  # noqa: E402
from torch_layers import array_of, modules, record  # noqa: E402

import convreg.torch  # noqa: E402
from convreg.torch.measuring import SAMPLE  # noqa: E402

convert, observe, recipe = convreg.torch.convert, convreg.torch.observe, convreg.torch.recipe

pytestmark = pytest.mark.filterwarnings("ignore:.*VariableFunctionsClass.*", "ignore::convreg.torch.vanishing."
                                        "VanishedGradients")

OPERANDS = {"hifloat8": ("hifloat8",) * 3, "bfloat16": ("bfloat16",) * 3,
            "fp8_hybrid": ("float8_e4m3fn", "float8_e4m3fn", "float8_e5m2")}


@pytest.mark.parametrize("name", ["residual", "unet", "1d", "3d", "grouped", "shared", "channels_last", "bfloat16",
                                  "linear"])
@pytest.mark.parametrize("kind", OPERANDS)
def test_figures_are_those_of_a_plain_statement(kind, name):
    module, x = modules()[name]
    net = convert(module, kind)
    with observe(net) as seen:
        calls = record(net, x)
    assert seen.layers == tuple(dict.fromkeys(call.name for call in calls))
    count = {}
    for call in calls:
        number = count[call.name] = count.get(call.name, -1) + 1
        arrays = {"input": call.input, "weight": call.layer.weight, "grad_output": call.output.grad}
        found = {entry.tensor: entry for entry in seen.select(layer=call.name) if entry.call == number}
        assert list(found) == list(arrays)
        for (tensor, values), format in zip(arrays.items(), OPERANDS[kind], strict=True):
            array, entry = array_of(values), found[tensor]
            padded = tensor == "input" and getattr(call.layer, "padding", 0) == "same"
            padded |= tensor == "input" and getattr(call.layer, "padding_mode", "zeros") != "zeros"
            if name == "bfloat16" and kind == "bfloat16":
                assert (entry.snr_db, entry.flushed, entry.exponent) == (math.inf, 0.0, 0)
            elif not padded:
                check(entry, array, exponent_for(array, format) if kind == "fp8_hybrid" else 0,
                      saturate=kind == "fp8_hybrid")
            assert (entry.step, entry.product, entry.format) == (0, "", format)
    assert len(seen) == 3 * len(calls)


@pytest.mark.parametrize("seed", [None, 5])
def test_stochastic_rounding_is_seen_as_it_happened(seed):
    net = identity(40, "hifloat8", rounding="stochastic", seed=seed)
    x = torch.randn(30, 40)
    with observe(net) as seen:
        outputs = [net(x) for _ in range(3)]
    assert [entry.step for entry in seen.select(tensor="input")] == [0, 1, 2]
    for step, output in enumerate(outputs):
        entry = seen.select(tensor="input", step=step)[0]
        assert entry.snr_db == pytest.approx(ratio(output.detach().numpy(), x.numpy()))
    assert len({entry.snr_db for entry in seen.select(tensor="input")}) == 3


def test_channels_have_scales_of_their_own():
    net = identity(6, "fp8_hybrid", scaling="channel")
    x = torch.randn(50, 6) * 10.0 ** torch.arange(-12, 12, 4)
    with observe(net) as seen:
        output = net(x)
    entry = seen.select(tensor="input")[0]
    assert entry.exponent is None
    assert entry.snr_db == pytest.approx(ratio(output.detach().numpy(), x.numpy()))
    assert entry.saturated == 0
    assert "channel" in seen.table()


@pytest.mark.parametrize(("format", "saturate", "snr"), [
    ("hifloat8", False, -math.inf), ("hifloat8", True, None), ("fp8_hybrid", True, None)])
def test_too_large_numbers_are_counted(format, saturate, snr):
    net = identity(8, format, saturate=saturate, scaling="none")
    x = torch.randn(4, 8)
    x[0, :3] = torch.tensor([1e6, -1e7, 4e5])
    with observe(net) as seen:
        net(x)
    entry = seen.select(tensor="input")[0]
    check(entry, x.numpy(), 0, saturate=saturate)
    assert entry.saturated == 3 / 32
    assert snr is None or entry.snr_db == snr


@pytest.mark.parametrize("saturate", [False, True])
def test_hybrid_rounding_makes_the_largest_number_infinite(saturate):
    net = identity(4, "hifloat8", rounding="hybrid", saturate=saturate)
    with observe(net) as seen:
        net(torch.tensor([[32768.0, 1.0, 2.0, 0.0]]))
    entry = seen.select(tensor="input")[0]
    assert (entry.snr_db, entry.saturated) == ((math.inf, 0) if saturate else (-math.inf, 1 / 4))


def test_tensors_that_are_not_finite_are_told():
    net = identity(4, "hifloat8")
    x = torch.tensor([[1.0, math.inf, 0.0, 3.0], [1e-30, math.nan, 1.0, 1e30]])
    with observe(net) as seen:
        net(x)
    entry = seen.select(tensor="input")[0]
    assert math.isnan(entry.snr_db)
    assert entry.best_exponent is None
    assert entry.saturated == 2 / 8  # NaN is not too large
    assert entry.flushed == 1 / 7
    assert type(entry.flushed) is type(entry.saturated) is float
    assert seen.table().splitlines()[2].split()[5:7] == ["nan", "nan"]
    assert json.loads(seen.to_json())["records"][0]["snr_db"] == "nan"


@pytest.mark.parametrize("format", ["hifloat8", "fp8_hybrid", "bfloat16"])
def test_nan_does_not_count_as_too_large(format):
    net = identity(4, format)
    x = torch.tensor([[1.0, math.nan, 0.0, 3.0], [math.nan, 1.0, 1.0, 2.0]])
    with observe(net) as seen:
        net(x)
    entry = seen.select(tensor="input")[0]
    assert entry.saturated == 0
    assert math.isnan(entry.largest)
    with observe(net) as seen:
        net(torch.full((2, 4), math.nan))
    assert seen.select(tensor="input")[0].saturated == 0


def test_zeros_and_empty_batches_are_exact():
    net = identity(4, "fp8_hybrid")
    with observe(net) as seen:
        net(torch.zeros(3, 4))
        net(torch.zeros(0, 4))
    assert [(entry.snr_db, entry.flushed, entry.largest, entry.best_exponent)
            for entry in seen.select(tensor="input")] == [(math.inf, 0.0, 0.0, 0)] * 2


def test_figures_are_numbers_of_python():
    net = identity(4, "hifloat8")
    with observe(net) as seen:
        net(torch.tensor([[1.0, 2.0**-30, 3.3, 0.0]]))
    [record] = seen.select(tensor="input")
    assert [type(number) for number in (record.snr_db, record.flushed, record.saturated, record.largest)] == [float] * 4


def test_the_best_scale_of_many_numbers_is_that_of_some():
    net = identity(400, "hifloat8")
    x = torch.randn(100, 400) * 1e-5
    with observe(net) as seen:
        net(x)
    flat = x.numpy().ravel()
    some = np.append(flat[::math.ceil(flat.size / SAMPLE)], flat[np.abs(flat).argmax()])
    assert flat.size > 2 * SAMPLE
    found = seen.select(tensor="input")[0].best_exponent
    best = [ratio(rounded(some, "hifloat8", power), some) for power in range(-10, 41)]
    assert ratio(rounded(some, "hifloat8", found), some) == max(best)


def test_formats_of_the_products_are_told_apart():
    stated = convreg.torch.Recipe(input={"forward": "float8_e4m3fn", "grad_weight": None}, weight="float8_e4m3fn",
                                  grad_output={"grad_input": "float8_e5m2", "grad_weight": "bfloat16"})
    net = convert(nn.Conv1d(3, 5, 3), stated)
    with observe(net) as seen:
        calls = record(net, torch.randn(2, 3, 9))
    found = {(entry.tensor, entry.product): entry for entry in seen.records}
    assert list(found) == [("input", "forward"), ("input", "grad_weight"), ("weight", ""),
                           ("grad_output", "grad_input"), ("grad_output", "grad_weight")]
    assert found["input", "grad_weight"].snr_db == math.inf
    assert found["input", "grad_weight"].format == ""
    dy = array_of(calls[0].output.grad)
    check(found["grad_output", "grad_input"], dy, 0)
    check(found["grad_output", "grad_weight"], dy, 0)
    assert "grad_output for grad_weight" in str(seen)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("layer", [nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"), nn.Linear(7, 4),
                                   nn.ConvTranspose2d(3, 4, 3, stride=2, groups=1)],
                         ids=lambda layer: type(layer).__name__)
def test_rounded_gradients_are_measured_against_their_sums(layer, dtype):
    layer = copy.deepcopy(layer).to(dtype)
    x = torch.randn(2, 3, 7, 7).to(dtype)
    results = {}
    for formats in ({}, {"grad_input": "float8_e5m2", "grad_weight": "float8_e4m3fn"}):
        net = convert(layer, recipe("fp8_hybrid", **formats))
        layer.zero_grad()
        given = x.clone().requires_grad_()
        with observe(net) as seen:
            output = net(given)
        torch.manual_seed(3)
        output.backward(torch.randn(output.shape).to(dtype))
        results[bool(formats)] = array_of(given.grad), array_of(layer.weight.grad), seen
    exact, found, seen = results[False], results[True], results[True][2]
    assert {entry.tensor for entry in exact[2].records} == {"input", "weight", "grad_output"}
    for index, (name, format) in enumerate((("grad_input", "float8_e5m2"), ("grad_weight", "float8_e4m3fn"))):
        entry = seen.select(tensor=name)[0]
        assert entry.format == format
        if dtype is torch.float32 and (name == "grad_weight" or getattr(layer, "padding_mode", "zeros") == "zeros"):
            assert entry.snr_db == pytest.approx(ratio(found[index], exact[index]))
            assert entry.largest == np.abs(exact[index]).max()
        else:
            assert 20 < entry.snr_db < 45


def test_another_recipe_is_measured_in_this_training():
    torch.manual_seed(0)
    net = convert(nn.Conv2d(3, 4, 3), "float32")
    with observe(net) as plain, observe(net, recipe="hifloat8") as other:
        calls = record(net, torch.randn(2, 3, 8, 8))
    assert {entry.snr_db for entry in plain.records} == {math.inf}
    check(other.select(tensor="grad_output")[0], array_of(calls[0].output.grad), 0)
