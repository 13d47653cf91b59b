"""Stochastic rounding: which calls round with equal numbers, which with others, and recomputation by checkpoints."""

import copy
import subprocess
import sys
from contextlib import nullcontext
from functools import partial

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402
from torch_layers import modules  # noqa: E402

import convreg.torch  # noqa: E402
from convreg.errors import OpError  # noqa: E402
from convreg.torch import seeds  # noqa: E402
from convreg.torch.operands import mixed  # noqa: E402

COUNTED = convreg.torch.recipe("hifloat8", rounding="stochastic", seed=7)
DRAWN = convreg.torch.recipe("hifloat8", rounding="stochastic")


def gradients(module, x, run=None):
    module.zero_grad()
    (run or module)(x).square().sum().backward()
    return [parameter.grad.clone() for parameter in module.parameters()]


def equal(ones, others):
    return all(map(torch.equal, ones, others))


@pytest.mark.parametrize("name", ["unet", "1d", "shared", "linear"])
def test_bits_do_not_depend_on_threads(name):
    module, x = modules()[name]
    before, found = torch.get_num_threads(), []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        found.append(gradients(convreg.torch.convert(module, COUNTED), x))
    torch.set_num_threads(before)
    assert equal(found[0], found[1])
    assert equal(found[0], found[2])


def test_calls_layers_and_recipes_round_with_other_numbers():
    layer, x = nn.Linear(16, 16, bias=False), torch.randn(4, 16)
    both = convreg.torch.convert(nn.ModuleList([layer, copy.deepcopy(layer)]), COUNTED)
    first = both[0](x)
    assert not torch.equal(first, both[0](x))
    assert not torch.equal(first, both[1](x))
    assert torch.equal(first, convreg.torch.convert(nn.ModuleList([layer]), COUNTED)[0](x))
    other = convreg.torch.recipe("hifloat8", rounding="stochastic", seed=8)
    assert not torch.equal(first, convreg.torch.convert(nn.ModuleList([layer]), other)[0](x))


def test_input_weight_and_gradient_round_with_unrelated_numbers():
    same = torch.full((1, 4096), 1.03)
    seed = torch.tensor(3)
    codes = torch.ops.convreg.convolution_saving(
        same, same, None, [], [], [], False, [], 1, keep=[True, True], recipe=COUNTED.text, seed=seed)
    assert not torch.equal(codes[1], codes[3])
    ups = (codes[1] != codes[1].min()).float(), (codes[3] != codes[3].min()).float()
    assert abs(float(torch.corrcoef(torch.cat(ups))[0, 1])) < 0.06


def test_the_mean_is_the_exact_product():
    torch.manual_seed(0)
    layer, x = nn.Linear(8, 8, bias=False), torch.randn(2, 8)
    converted = convreg.torch.convert(layer, COUNTED)
    with torch.no_grad():
        mean = torch.stack([converted(x) for _ in range(3000)]).mean(0)
        assert float((mean - layer(x)).norm() / layer(x).norm()) < 0.01


def test_drawn_seeds_follow_torchs_generator():
    module, x = modules()["unet"]
    converted = convreg.torch.convert(module, DRAWN)
    torch.manual_seed(1)
    first = gradients(converted, x)
    second = gradients(converted, x)
    torch.manual_seed(1)
    assert equal(first, gradients(converted, x))
    assert not equal(first, second)


def test_copies_continue_and_states_stay_clean():
    module, x = modules()["unet"]
    converted = convreg.torch.convert(module, COUNTED)
    gradients(converted, x)
    copied = copy.deepcopy(converted)
    assert equal(gradients(copied, x), gradients(converted, x))
    assert list(converted.state_dict()) == list(module.state_dict())


def test_a_resumed_training_goes_on_with_the_same_bits(tmp_path):
    """As the page says: the whole module with a numbered seed, the state and torch's generator without one."""
    module, x = modules()["linear"]
    counted, drawn = convreg.torch.convert(module, COUNTED), convreg.torch.convert(module, DRAWN)
    gradients(counted, x)
    torch.save(counted, tmp_path / "model.pt")
    expected = gradients(counted, x)
    assert equal(gradients(torch.load(tmp_path / "model.pt", weights_only=False), x), expected)
    fresh = convreg.torch.convert(module, COUNTED)
    fresh.load_state_dict(counted.state_dict())
    assert not equal(gradients(fresh, x), expected)
    gradients(drawn, x)
    torch.save((drawn.state_dict(), torch.get_rng_state()), tmp_path / "run.pt")
    expected = gradients(drawn, x)
    state, numbers = torch.load(tmp_path / "run.pt")
    fresh = convreg.torch.convert(module, DRAWN)
    fresh.load_state_dict(state)
    torch.set_rng_state(numbers)
    assert equal(gradients(fresh, x), expected)


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("recipe", [COUNTED, DRAWN])
def test_checkpoints_round_a_recomputation_as_the_first_time(recipe, reentrant):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(2, 4, 3), nn.Tanh(), nn.Conv2d(4, 4, 3), nn.Flatten(), nn.Linear(64, 3))
    batches = [torch.randn(2, 2, 8, 8, requires_grad=True) for _ in range(3)]

    def plain(converted):
        return lambda x: converted[2:](converted[:2](x))

    def checkpointed(converted):
        return lambda x: checkpoint(converted[2:], checkpoint(converted[:2], x, use_reentrant=reentrant),
                                    use_reentrant=reentrant)

    found = []
    for way in (plain, checkpointed):
        converted = convreg.torch.convert(module, recipe)
        torch.manual_seed(5)
        run = way(converted)
        steps = [gradients(converted, x, run) for x in batches]
        converted.zero_grad()
        together = sum(run(x).square().sum() for x in batches)  # calls of the same layers wait for one backward pass
        together.backward()
        found.append([*(gradient for step in steps for gradient in step),
                      *(parameter.grad.clone() for parameter in module.parameters())])
    assert equal(*found)


def test_a_recomputation_that_cannot_be_told_is_refused():
    converted = convreg.torch.convert(nn.Linear(4, 4), COUNTED)
    x = torch.randn(2, 4, requires_grad=True)
    loss = sum(checkpoint(converted, x, use_reentrant=False).sum() for _ in range(2))
    with pytest.raises(OpError, match="seed=None"):
        loss.backward()
    one_batch = convreg.torch.convert(nn.Linear(4, 4), COUNTED)
    for _ in range(3):  # the same batch in several steps is no such case
        checkpoint(one_batch, x, use_reentrant=False).sum().backward()


@pytest.mark.parametrize("reentrant", [True, False])
def test_calls_on_other_orders_of_the_same_numbers_are_told_apart(reentrant):
    def plain(layer, x):
        return layer(x) + layer(x.flip(0)) * 2 + layer(x.flip(3))

    def checkpointed(layer, x):
        first, second, third = (checkpoint(layer, each, use_reentrant=reentrant) for each in (x, x.flip(0), x.flip(3)))
        return first + second * 2 + third

    layer, x, found = nn.Conv2d(2, 3, 3), torch.randn(2, 2, 8, 8, requires_grad=True), []
    for way in (plain, checkpointed):
        converted = convreg.torch.convert(layer, COUNTED)
        found.append(gradients(converted, x, partial(way, converted)))
    assert equal(*found)


@pytest.mark.skipif(not hasattr(torch._C._autograd, "_top_saved_tensors_default_hooks"),
                    reason="this PyTorch does not tell where a checkpoint is")
def test_calls_that_no_checkpoint_repeats_do_not_count():
    layer, x = convreg.torch.convert(nn.Conv2d(2, 3, 3), COUNTED), torch.randn(2, 2, 8, 8)
    layer(x)
    with torch.no_grad():
        layer(x)
    checkpoint(layer, x, use_reentrant=False).sum().backward()


@pytest.mark.parametrize("hooks", [nullcontext, torch.autograd.graph.save_on_cpu])
def test_hooks_of_others_do_not_confuse_a_recomputation(hooks):
    layer, x = nn.Linear(4, 4), torch.randn(2, 4, requires_grad=True)
    with hooks():
        one, two = (convreg.torch.convert(layer, COUNTED) for _ in range(2))
        plain = gradients(one, x, lambda x: one(x) + one(x) * 2)
        if hasattr(torch._C._autograd, "_top_saved_tensors_default_hooks"):
            assert equal(gradients(two, x, lambda x: two(x) + checkpoint(two, x, use_reentrant=False) * 2), plain)
        with pytest.raises(OpError, match="seed=None"):
            gradients(two, x, lambda x: two(x) + checkpoint(two, x, use_reentrant=True) * 2)


class Wrapped(torch.Tensor):
    """A tensor whose numbers torch's operators alone can read."""

    @staticmethod
    def __new__(cls, held):
        return torch.Tensor._make_wrapper_subclass(cls, held.shape, dtype=held.dtype, device=held.device)

    def __init__(self, held):
        self.held = held

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        args = [arg.held if isinstance(arg, cls) else arg for arg in args]
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("view", [Wrapped, lambda x: torch.complex(torch.zeros(2, 4), -x).conj().imag])
def test_inputs_of_other_kinds_are_recognised(view):
    layer, x, found = nn.Linear(4, 4), torch.randn(2, 4), []
    for run in (lambda layer, x: layer(x), lambda layer, x: checkpoint(layer, x, use_reentrant=False)):
        converted = convreg.torch.convert(layer, COUNTED)
        found.append(gradients(converted, view(x), partial(run, converted)))
    assert equal(*found)


@pytest.mark.parametrize("where", ["torch.inference_mode()", "torch.device('meta')"])
def test_where_the_package_is_imported_does_not_matter(where):
    code = f"""
import torch
with {where}:
    import convreg.torch
from torch.utils.checkpoint import checkpoint
layer = convreg.torch.convert(torch.nn.Linear(4, 4), convreg.torch.recipe("hifloat8", rounding="stochastic", seed=1))
x = torch.randn(2, 4, requires_grad=True)
checkpoint(layer, x, use_reentrant=False)
assert layer._convreg_calls._seeds
g, = torch.autograd.grad(layer(x).sum(), x, create_graph=True)
try:
    g.square().sum().backward()
except convreg.OpError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert "create_graph" in done.stdout


def test_ranks_round_with_other_numbers(monkeypatch):
    monkeypatch.setattr(seeds.dist, "is_initialized", lambda: True)
    found = set()
    for rank in (0, 1, 2, 63, 64, 128, 4096, 2**20):
        monkeypatch.setattr(seeds.dist, "get_rank", lambda rank=rank: rank)
        number = int(seeds.apart(torch.tensor(2**62 - 1)))
        assert number > 0
        found.add(mixed(number, 1))
    assert len(found) == 8


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_programs_of_torch_export_and_traces_count_their_calls():
    layer, x = nn.Linear(3, 4), torch.randn(2, 3)
    traced = torch.jit.trace(convreg.torch.convert(layer, COUNTED), x, check_trace=False)
    exported = torch.export.export(convreg.torch.convert(nn.Sequential(layer), COUNTED), (x,)).module()
    for program in (traced, exported):
        assert not torch.equal(program(x), program(x))


def test_emulate_counts_its_calls():
    layer, x = nn.Linear(8, 8), torch.randn(4, 8)
    mode = convreg.torch.emulate(COUNTED)
    with mode:
        first, second = layer(x), layer(x)
    with mode:
        third = layer(x)
    assert not torch.equal(first, second)
    assert not torch.equal(second, third)
    with convreg.torch.emulate(COUNTED):
        assert torch.equal(layer(x), first)
    with convreg.torch.emulate(DRAWN):
        torch.manual_seed(0)
        drawn = layer(x)
        torch.manual_seed(0)
        assert torch.equal(layer(x), drawn)


def test_single_tensors_can_be_rounded_stochastically():
    recipe = convreg.torch.recipe("hifloat8", rounding={"grad_output": "stochastic"}, seed=1)
    layer, x = nn.Linear(8, 8), torch.randn(4, 8)
    converted = convreg.torch.convert(layer, recipe)
    assert torch.equal(converted(x), convreg.torch.convert(layer, "hifloat8")(x))
    assert not equal(gradients(converted, x), gradients(converted, x))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, of its forward mode
def test_refused_inputs_count_no_call():
    layer, x = convreg.torch.convert(nn.Conv2d(2, 3, 3), COUNTED), torch.randn(1, 2, 4, 4)
    before = layer._convreg_seed.clone()
    calls = [lambda: layer(x.to(torch.complex64)), lambda: layer(x.to("meta")), lambda: layer(x.to_sparse()),
             lambda: layer(x.to_mkldnn()), lambda: torch.func.vmap(layer)(x[None]),
             lambda: torch.func.jvp(layer, (x,), (x,))]
    for call in calls:
        with pytest.raises(OpError, match="input="):
            call()
    assert torch.equal(layer._convreg_seed, before)
    up = convreg.torch.convert(nn.ConvTranspose2d(2, 3, 3, stride=2), COUNTED)
    with pytest.raises(ValueError, match="output size"):
        up(x, output_size=[99, 99])
    assert up._convreg_seed == convreg.torch.convert(up, COUNTED)._convreg_seed
