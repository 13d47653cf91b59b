"""observe: figures against a plain statement in NumPy; steps, nesting, what it leaves behind; tables and pictures."""

import copy
import io
import json
import math
import pickle
import re
import sys
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402
from torch_layers import array_of, modules, record  # noqa: E402

import convreg  # noqa: E402
import convreg.torch  # noqa: E402
from convreg.errors import GraphError, OpError, OpTypeError, UnknownOp  # noqa: E402
from convreg.torch import functional  # noqa: E402
from convreg.torch.measuring import SAMPLE  # noqa: E402
from convreg.torch.observing import NothingObserved  # noqa: E402

convert, emulate, observe, recipe = (
    convreg.torch.convert, convreg.torch.emulate, convreg.torch.observe, convreg.torch.recipe)

pytestmark = pytest.mark.filterwarnings("ignore:.*VariableFunctionsClass.*", "ignore::convreg.torch.vanishing."
                                        "VanishedGradients")

OPERANDS = {"hifloat8": ("hifloat8",) * 3, "bfloat16": ("bfloat16",) * 3,
            "fp8_hybrid": ("float8_e4m3fn", "float8_e4m3fn", "float8_e5m2")}


def ratio(found, exact):
    exact, found = exact.astype(np.float64).ravel(), found.astype(np.float64).ravel()
    noise, signal = np.sum((found - exact) ** 2), np.sum(exact**2)
    if not np.isfinite(found).all():
        return -math.inf
    return 10 * math.log10(signal / noise) if noise else math.inf


def rounded(array, format, exponent=0, **how):
    codes = convreg.quantize(np.ldexp(array.astype(np.float32), exponent), format, **how)
    return np.ldexp(convreg.dequantize(codes, dtype=np.float64), -exponent)


def check(found, array, exponent, **how):
    """A record against the array that it tells of."""
    exact = array.astype(np.float32)
    values = rounded(exact, found.format, exponent, **how)
    assert found.exponent == exponent
    assert found.elements == exact.size
    assert found.largest == np.abs(exact).max()
    assert found.snr_db == pytest.approx(ratio(values, exact), abs=1e-9)
    assert found.flushed == np.mean(values[exact != 0] == 0)
    endless = rounded(exact, found.format, exponent)
    assert found.saturated == np.mean(~np.isfinite(endless))
    best = ratio(rounded(exact, found.format, found.best_exponent, **how), exact)
    others = [ratio(rounded(exact, found.format, power, **how), exact) for power in range(-30, 31)]
    assert best >= max(others) - 1e-9


def exponent_for(array, format):
    top = 8.0 if format == "hifloat8" else convreg.formats()[format].largest
    return math.floor(math.log2(top / np.abs(array.astype(np.float64)).max()))


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


def identity(features, format, **changes):
    """A linear layer whose output is its rounded input."""
    layer = nn.Linear(features, features, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.eye(features))
    return convert(layer, recipe(format, **changes))


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


def test_tensors_that_are_not_finite_are_told():
    net = identity(4, "hifloat8")
    x = torch.tensor([[1.0, math.inf, 0.0, 3.0], [1e-30, math.nan, 1.0, 1e30]])
    with observe(net) as seen:
        net(x)
    entry = seen.select(tensor="input")[0]
    assert math.isnan(entry.snr_db)
    assert entry.best_exponent is None
    assert entry.saturated == 3 / 8
    assert entry.flushed == 1 / 7
    assert seen.table().splitlines()[2].split()[5:7] == ["nan", "nan"]
    assert json.loads(seen.to_json())["records"][0]["snr_db"] == "nan"


def test_zeros_and_empty_batches_are_exact():
    net = identity(4, "fp8_hybrid")
    with observe(net) as seen:
        net(torch.zeros(3, 4))
        net(torch.zeros(0, 4))
    assert [(entry.snr_db, entry.flushed, entry.largest, entry.best_exponent)
            for entry in seen.select(tensor="input")] == [(math.inf, 0.0, 0.0, 0)] * 2


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


def trained(net, x, steps=3):
    """The gradients of some steps of a copy."""
    net, made = copy.deepcopy(net), []
    optimiser = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(steps):
        optimiser.zero_grad()
        net(x).float().square().mean().backward()
        optimiser.step()
        made += [p.grad.clone() for p in net.parameters()]
    return made


@pytest.mark.parametrize("normed", [nn.utils.parametrizations.weight_norm, nn.utils.parametrizations.spectral_norm])
@pytest.mark.parametrize("seed", [None, 3])
def test_observing_changes_no_bit(seed, normed):
    torch.manual_seed(1)
    net = convert(nn.Sequential(normed(nn.Conv2d(3, 4, 3)), nn.ReLU(inplace=True), nn.Dropout(0.2), nn.Flatten(2),
                                nn.Linear(36, 5)),
                  recipe("hifloat8", rounding="stochastic", seed=seed, grad_weight="hifloat8"))
    x = torch.randn(4, 3, 8, 8)
    torch.manual_seed(2)
    expected = trained(net, x)
    torch.manual_seed(2)
    copied = copy.deepcopy(net)
    with observe(copied) as seen, pytest.MonkeyPatch.context() as patch:
        patch.setattr(copy, "deepcopy", lambda value: value)
        found = trained(copied, x)
    assert all(map(torch.equal, expected, found))
    assert {entry.step for entry in seen.records} == {0, 1, 2}
    assert len(seen) == 3 * 2 * 4


def hooks(module):
    return sum(len(layer._forward_hooks) + len(layer._forward_pre_hooks) for layer in module.modules())


def test_nothing_is_left_behind():
    net = convert(nn.Sequential(nn.Conv1d(2, 2, 3), nn.Sequential(nn.Linear(6, 2))), "hifloat8")
    x = torch.randn(1, 2, 8)
    with observe(net) as seen:
        assert hooks(net) == 8
        assert seen.active
        net(x)
    assert hooks(net) == 0
    assert not functional.WATCHES
    count = len(seen)
    net(x)
    assert len(seen) == count == 4
    with pytest.raises(RuntimeError, match="own"), observe(net):
        raise RuntimeError("own")
    assert hooks(net) == 0
    assert not functional.WATCHES
    with seen:
        net(x)
    assert len(seen) == 8
    assert [entry.step for entry in seen.select(tensor="input")] == [0, 0, 1, 1]
    handle = observe(net)
    net(x)
    handle.stop()
    handle.stop()
    assert len(handle) == 4


def test_a_backward_pass_after_the_block_is_seen():
    net = identity(3, "hifloat8")
    with observe(net) as seen:
        loss = net(torch.randn(2, 3)).sum()
    loss.backward()
    assert [entry.tensor for entry in seen.records] == ["input", "weight", "grad_output"]


def test_observations_nest():
    net = convert(nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4))), "hifloat8")
    x = torch.randn(2, 4)
    with observe(net) as outer:
        net(x)
        with observe(net[1]) as inner, observe(net, every=2) as same:
            for _ in range(3):
                net(x)
        net(x)
    assert inner.layers == ("0",)
    assert same.layers == outer.layers == ("0", "1.0")
    assert [entry.step for entry in inner.select(tensor="input")] == [0, 1, 2]
    assert [entry.step for entry in same.select(layer="0", tensor="input")] == [0, 2]
    assert [entry.step for entry in outer.select(layer="0", tensor="input")] == [0, 1, 2, 3, 4]


def test_parts_that_are_called_make_steps():
    net = convert(nn.ModuleDict({"encode": nn.Linear(4, 4), "decode": nn.Linear(4, 4)}), "hifloat8")
    with observe(net) as seen:
        for _ in range(2):
            net["decode"](net["encode"](torch.randn(1, 4))).sum().backward()
    assert [(entry.layer, entry.step) for entry in seen.select(tensor="grad_output")] == [
        ("decode", 0), ("encode", 0), ("decode", 1), ("encode", 1)]


def test_steps_begin_by_hand():
    net = identity(3, "hifloat8")
    with observe(net) as seen:
        for _ in range(2):
            seen.step()
            for _ in range(3):
                net(torch.randn(2, 3)).sum().backward()
    assert [(entry.step, entry.call) for entry in seen.select(tensor="grad_output")] == [
        (step, call) for step in range(2) for call in range(3)]


def test_evaluation_is_left_out_unless_asked_for():
    net = identity(3, "hifloat8")
    x = torch.randn(2, 3)
    with observe(net) as seen, observe(net, inference=True) as everything:
        net(x).sum().backward()
        net.eval()
        with torch.no_grad():
            net(x)
        with torch.inference_mode():
            net(x)
        net.train()(x).sum().backward()
    assert [entry.step for entry in seen.select(tensor="input")] == [0, 1]
    assert [entry.step for entry in everything.select(tensor="input")] == [0, 1, 2, 3]
    assert [entry.step for entry in everything.select(tensor="grad_output")] == [0, 3]
    net.eval()
    with pytest.warns(NothingObserved, match="inference=True"), torch.no_grad(), observe(net):
        net(x)


class Functions(nn.Module):
    """Products by functions, in the module itself and in a layer."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 3, 3, 3))
        self.last = nn.Linear(4, 2)

    def forward(self, x):
        y = nn.functional.conv2d(x, self.weight)
        y = nn.functional.conv2d(y, self.weight.transpose(0, 1), padding=1)
        y = nn.functional.conv2d(y, self.weight)
        return self.last(y.mean((2, 3)))


def test_emulated_functions_are_observed():
    net, x = Functions(), torch.randn(2, 3, 8, 8)
    with observe(net) as seen:
        with emulate("hifloat8"):
            loss = net(x).square().mean()
        net(x)  # torch's own
        nn.functional.linear(x, x[0, 0])
    loss.backward()
    assert [(entry.layer, entry.call, entry.tensor) for entry in seen.records if entry.tensor != "weight"] == [
        ("", 0, "input"), ("", 1, "input"), ("", 2, "input"), ("last", 0, "input"),
        ("last", 0, "grad_output"), ("", 2, "grad_output"), ("", 1, "grad_output"), ("", 0, "grad_output")]
    check(seen.records[0], x.numpy(), 0)
    assert "(the module)" in str(seen)


def test_plain_modules_record_nothing_and_say_so():
    with pytest.warns(NothingObserved, match=r"no converted layer, and no layer inside of emulate\(\)"), \
            observe(nn.Linear(2, 2)) as seen:
        seen._observed(torch.randn(1, 2))
    assert str(seen) == "Linear: no records"
    with pytest.raises(GraphError, match="nothing was recorded"):
        seen.plot(io.BytesIO(), "png")


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("seed", [None, 4])
def test_checkpoints_record_every_call_once(seed, reentrant):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)

        def forward(self, x, saving):
            inner = nn.Sequential(self.first, nn.ReLU(), self.second)
            return checkpoint(inner, x, use_reentrant=reentrant) if saving else inner(x)

    torch.manual_seed(0)
    net = convert(Model(), recipe("hifloat8", rounding="stochastic", seed=seed))
    x = torch.randn(5, 6, requires_grad=True)
    found = []
    for saving in (False, True):
        torch.manual_seed(1)
        copied = copy.deepcopy(net)
        with observe(copied) as seen:
            for _ in range(2):
                copied(x, saving).square().mean().backward()
        found.append(sorted(map(repr, seen.records)))
    assert len(found[0]) == 2 * 2 * 3
    assert found[0] == found[1]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiled_calls_are_not_recorded():
    torch._dynamo.reset()
    net = convert(nn.Sequential(nn.Linear(3, 3), nn.ReLU()), "hifloat8")
    x = torch.randn(2, 3)
    step = torch.compile(lambda x: net(x).square(), fullgraph=True, backend="aot_eager")
    seen = observe(net)
    expected = step(x)
    expected.sum().backward()
    with pytest.warns(NothingObserved, match=r"torch\.compile"):
        seen.stop()
    assert len(seen) == 0
    assert torch.equal(step(x), expected)
    with observe(net) as seen:
        assert torch.equal(net(x).square(), expected)
    assert len(seen) == 2
    for compiled in (torch.compile(net, backend="eager"), nn.Sequential(torch.compile(net, backend="eager"))):
        with pytest.raises(OpTypeError, match=r"OptimizedModule, compiled' is refused; .*not compiled"):
            observe(compiled)
    net.compile(backend="eager")
    with pytest.raises(OpTypeError, match="not compiled"):
        observe(net)


def test_copies_are_not_observed(tmp_path):
    net = convert(nn.Sequential(nn.Linear(3, 3)), "hifloat8")
    with observe(net) as seen:
        copied, loaded = copy.deepcopy(net), pickle.loads(pickle.dumps(net))
        torch.save(net, tmp_path / "net.pt")
        net(torch.ones(1, 3))
        copied(torch.ones(1, 3))
        loaded(torch.ones(1, 3))
    assert len(seen) == 2


def test_modes_of_others_see_nothing_of_it():
    class Functions(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            called.append(func)
            return func(*args, **(kwargs or {}))

    class Operators(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            called.append(func)
            return func(*args, **(kwargs or {}))

    net, called, counts = identity(4, "hifloat8", grad_weight="hifloat8"), [], []
    for begun in (False, True):
        called.clear()
        with Operators(), Functions(), observe(net) if begun else nullcontext() as seen:
            net(torch.ones(2, 4)).sum().backward()
        counts.append(len(called))
    assert counts[0] == counts[1] > 4
    assert len(seen) == 4


def test_table_json_and_picture(tmp_path):
    torch.manual_seed(0)
    net = convert(nn.Sequential(nn.Conv1d(2, 3, 3), nn.ReLU(), nn.Linear(6, 2)), "hifloat8")
    with observe(net) as seen:
        for step in range(3):
            net(torch.randn(2, 2, 8) * 10.0 ** (5 - 3 * step)).sum().backward()
    head, _, *lines = seen.table().splitlines()
    assert re.split("  +", head) == ["layer", "tensor", "format", "steps", "SNR dB", "worst dB", "flushed", "saturated",
                                     "largest", "scaled by", "best scale"]
    assert [line.split()[:4] for line in lines] == [
        [layer, tensor, "hifloat8", "3"] for layer in ("0", "2") for tensor in ("input", "weight", "grad_output")]
    ratios = sorted(entry.snr_db for entry in seen.select(layer="0", tensor="input"))
    assert lines[0].split()[4:6] == [f"{ratios[1]:.1f}", f"{ratios[0]:.1f}"]
    assert seen.table(markdown=True).startswith("| layer | tensor |")
    seen.save(tmp_path / "seen.json")
    held = json.loads((tmp_path / "seen.json").read_text())
    assert held["module"] == "Sequential"
    assert len(held["records"]) == len(seen)
    assert held["records"][0]["best_exponent"] == seen.records[0].best_exponent
    pytest.importorskip("matplotlib")
    for name in ("seen.png", "seen.svg", "seen.pdf"):
        seen.plot(tmp_path / name)
        assert (tmp_path / name).stat().st_size > 4000
    stream = io.BytesIO()
    seen.plot(stream, "png")
    assert stream.getvalue().startswith(b"\x89PNG")
    with pytest.raises(GraphError, match="cannot be written"):
        seen.plot(tmp_path / "absent" / "seen.png")
    with pytest.raises(OpError, match="format='gif'"):
        seen.plot(tmp_path / "seen.gif")
    with pytest.raises(GraphError):
        seen.save(tmp_path)


def test_pictures_show_what_was_recorded():
    """Cells of a picture are the records': worst of the numbers lost, median ratio, exact ones apart from overflow."""
    from convreg.torch.observed_picture import _tables

    net = identity(4, "hifloat8")
    with observe(net) as seen:
        net(torch.tensor([[1.0, 2.0, 0.5, 0.0]]))
        net(torch.tensor([[1e9, 2.0, 1e-12, 0.0]]))
    ratios, zeros, large = _tables(seen.select(tensor="input"), ["other", ""], {0: 0, 1: 1}, 2)
    np.testing.assert_array_equal(ratios, [[np.nan, np.nan], [np.inf, -np.inf]])
    np.testing.assert_array_equal(zeros[1], [0, 1 / 3])
    np.testing.assert_array_equal(large, [[False, False], [False, True]])


def test_many_steps_and_layers_fit_a_picture():
    pytest.importorskip("matplotlib")
    net = convert(nn.Sequential(*(nn.Linear(2, 2) for _ in range(80))), "hifloat8")
    with observe(net, scales=False) as seen:
        for _ in range(3):
            net(torch.randn(1, 2))
    seen._records += [replace(entry, step=step) for step in range(3, 300) for entry in seen._records[:2]]
    assert {entry.best_exponent for entry in seen.records} == {None}
    stream = io.BytesIO()
    seen.plot(stream, "png")
    assert 10_000 < len(stream.getvalue()) < 400_000


def test_a_missing_matplotlib_is_named(monkeypatch):
    net = identity(2, "hifloat8")
    with observe(net) as seen:
        net(torch.ones(1, 2))
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(GraphError, match="needs matplotlib"):
        seen.plot(io.BytesIO(), "png")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_traced_modules_are_refused():
    with pytest.raises(OpTypeError, match="scripted or traced"):
        observe(torch.jit.trace(nn.ReLU(), torch.ones(1)))


def test_wrong_arguments_are_named():
    net = identity(2, "hifloat8")
    with pytest.raises(OpTypeError, match=r"module='str' is refused; allowed: an nn\.Module"):
        observe("x")
    for changes, kind in (({"every": 0}, OpError), ({"every": 1.5}, OpTypeError), ({"every": True}, OpTypeError),
                          ({"scales": 1}, OpTypeError), ({"inference": None}, OpTypeError),
                          ({"recipe": 3}, OpTypeError),
                          ({"recipe": "hifloat"}, UnknownOp), ({"evry": 2}, OpTypeError)):
        with pytest.raises(kind):
            observe(net, **changes)
    assert hooks(net) == 0
    with observe(net) as seen:
        net(torch.ones(1, 2))
    for changes in ({"layer": "absent"}, {"tensor": "inpt"}):
        with pytest.raises(UnknownOp):
            seen.select(**changes)
    with pytest.raises(OpTypeError):
        seen.select(step="0")
    with pytest.raises(OpTypeError):
        seen.save(None)
