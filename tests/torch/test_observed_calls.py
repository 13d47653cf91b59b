"""observe: which calls are recorded, steps, nesting, and what it leaves behind."""

import copy
import io
import pickle
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from observed_figures import check, hooks, identity  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import convreg  # noqa: E402
import convreg.torch  # noqa: E402
from convreg.errors import GraphError, OpError, OpTypeError  # noqa: E402
from convreg.torch import functional  # noqa: E402
from convreg.torch.observing import NothingObserved  # noqa: E402

convert, emulate, observe, recipe = (
    convreg.torch.convert, convreg.torch.emulate, convreg.torch.observe, convreg.torch.recipe)

pytestmark = pytest.mark.filterwarnings("ignore:.*VariableFunctionsClass.*", "ignore::convreg.torch.vanishing."
                                        "VanishedGradients")


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


def test_calls_that_fail_leave_the_next_ones_right():
    net = convert(nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 2))), "hifloat8")
    with observe(net) as seen:
        for _ in range(2):
            with pytest.raises(OpError):
                net[1](torch.ones(1, 3))
        with pytest.raises(OpError):
            net(torch.ones(1, 3))
        net[0](torch.ones(1, 4))
        net(torch.ones(1, 4))
    assert [entry.layer for entry in seen.select(tensor="input")] == ["0", "0", "1.0"]


def test_a_profiler_changes_nothing():
    net, x = convert(nn.Conv1d(2, 2, 3), "hifloat8"), torch.randn(1, 2, 8)
    found = []
    for context in (nullcontext(), torch.profiler.profile()):
        with context, observe(net) as seen:
            net(x).square().sum().backward()
        found.append(seen.records)
    assert len(found[0]) == 3
    assert found[0] == found[1]


def test_vanished_gradients_are_named_by_their_layer():
    convreg.torch.vanishing._warned.clear()
    net = convert(nn.Sequential(nn.Linear(3, 3)), recipe("hifloat8", grad_weight="hifloat8"))
    with observe(net) as seen, pytest.warns(convreg.torch.vanishing.VanishedGradients, match="layer '0'"):
        (net(torch.ones(1, 3)).sum() * 1e-9).backward()
    assert seen.select(tensor="grad_output")[0].flushed == 1.0


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


def test_settings_as_numbers_of_numpy():
    net = convert(nn.Linear(4, 4), "hifloat8")
    with observe(net, every=np.int64(2), scales=np.False_, inference=np.True_) as seen, torch.no_grad():
        for _ in range(3):
            net(torch.randn(2, 4))
    assert [entry.step for entry in seen.select(tensor="input")] == [0, 2]


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


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_traces_have_no_node_of_it():
    from torch.fx.experimental.proxy_tensor import make_fx

    net, x = identity(4, "hifloat8", grad_weight="hifloat8"), torch.randn(2, 4)

    def gradients(x):
        return torch.autograd.grad(net(x).sum(), list(net.parameters()))

    plain = make_fx(gradients)(x).code
    with observe(net) as seen:
        assert make_fx(gradients)(x).code == plain
    assert len(seen) == 4


def test_threads_are_kept_apart():
    net = convert(nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4))), "hifloat8")
    with observe(net) as seen, ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: net(torch.randn(3, 4)).sum().backward(), range(12)))
    for name in ("0", "1.0"):
        for tensor in ("input", "weight", "grad_output"):
            assert len(seen.select(layer=name, tensor=tensor)) == 12


RESULTS = recipe("hifloat8", grad_input="hifloat8", grad_weight="bfloat16")


def test_gradients_of_several_directions_are_computed_and_not_recorded():
    net, x = convert(nn.Conv2d(3, 4, 3), RESULTS), torch.randn(2, 3, 5, 5, requires_grad=True)
    directions = torch.randn(3, 2, 4, 3, 3)
    with observe(net) as seen:
        y = net(x)
        found = torch.autograd.grad(y, net.weight, directions, is_grads_batched=True, retain_graph=True)[0]
        assert {entry.tensor for entry in seen.records} == {"input", "weight"}
        truth = [torch.autograd.grad(y, net.weight, direction, retain_graph=True)[0] for direction in directions]
    assert torch.equal(found, torch.stack(truth))
    assert len(seen.select(tensor="grad_output")) == 3


def test_tensors_with_other_signs_are_recorded_as_their_numbers():
    """Such as the imaginary part of a conjugate, which torch leaves unwritten."""
    torch.manual_seed(3)
    net, x, dy = convert(nn.Conv2d(3, 4, 3), RESULTS), torch.randn(2, 3, 5, 5), torch.randn(2, 4, 3, 3)
    records = []
    for turned in (torch._neg_view, torch.neg):
        with observe(net) as seen:
            net(turned(x).requires_grad_()).backward(turned(dy))
        records.append(seen.records)
    assert records[0] == records[1]
    assert len(records[0]) == 5
