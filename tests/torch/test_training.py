"""Training of converted modules with torch's own tools: autocast, loss scaling, averages, distributed data parallel."""

import copy
import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch_layers import modules  # noqa: E402

import convreg.torch  # noqa: E402

ROOT = Path(__file__).parents[2]


def task():
    """Return a small network with inputs and classes that it can learn."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, 2), nn.ReLU(),
                        nn.Flatten(), nn.Linear(72, 4))
    x = torch.randn(64, 1, 8, 8)
    return net, x, (x[:, 0, :4].mean((1, 2)) > 0).long() + 2 * (x[:, 0, 4:].mean((1, 2)) > 0).long()


@pytest.mark.parametrize("recipe", [*convreg.torch.RECIPES, "stochastic"])
def test_every_recipe_trains(recipe):
    net, x, target = task()
    if recipe == "float64":
        net, x = net.double(), x.double()
    how = convreg.torch.recipe("hifloat8", rounding={"grad_output": "stochastic"}, scaling="tensor", seed=0) \
        if recipe == "stochastic" else recipe
    converted = convreg.torch.convert(net, how)
    optimizer = torch.optim.SGD(converted.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for _ in range(40):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(converted(x), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.3 * losses[0]


def test_loss_scaling_skips_overflow_and_unscales():
    net, x, target = task()
    converted = convreg.torch.convert(net, "hifloat8")
    optimizer = torch.optim.SGD(converted.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**60, growth_interval=2)
    before, scales = [parameter.detach().clone() for parameter in net.parameters()], []
    for step in range(40):
        optimizer.zero_grad()
        scaler.scale(nn.functional.cross_entropy(converted(x), target)).backward()
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
        if step == 0:  # the first gradients overflowed: no step was taken
            assert all(map(torch.equal, before, net.parameters()))
    assert scales[0] == 2.0**59
    assert min(scales) < 2.0**30
    assert all(torch.isfinite(parameter).all() for parameter in net.parameters())
    assert not torch.equal(before[0], next(net.parameters()))


def test_autocast_leaves_layers_to_their_recipe():
    net, x, target = task()
    converted = convreg.torch.convert(net, "hifloat8", skip=["0"])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hidden = converted[:3](x)
        assert hidden.dtype is torch.bfloat16  # of the layer that is torch's
        output = converted[3:](hidden)
        assert output.dtype is torch.bfloat16  # results have the dtype of the input
        loss = nn.functional.cross_entropy(output, target)
    loss.backward()
    assert all(parameter.grad.dtype is torch.float32 for parameter in net.parameters())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert convreg.torch.convert(net, "hifloat8")[0](x).dtype is torch.float32


def test_averages_and_gradient_accumulation():
    net, x, target = task()
    converted = convreg.torch.convert(net, "fp8_hybrid").eval()
    average = torch.optim.swa_utils.AveragedModel(converted)
    optimizer = torch.optim.AdamW(converted.parameters())
    for _ in range(2):
        for part in range(2):
            nn.functional.cross_entropy(converted(x[part::2]), target[part::2]).backward()
        optimizer.step()
        optimizer.zero_grad()
        average.update_parameters(converted)
    assert average(x).shape == (64, 4)
    again = copy.deepcopy(net)
    again.load_state_dict(converted.state_dict())
    assert torch.equal(convreg.torch.convert(again, "fp8_hybrid").eval()(x), converted(x))


DISTRIBUTED = """
import sys, torch, torch.distributed as dist, convreg.torch
from torch.nn.parallel import DistributedDataParallel
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Conv2d(2, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 3))
recipe = convreg.torch.recipe("hifloat8", rounding="stochastic", seed=3) if sys.argv[3] == "stochastic" else sys.argv[3]
model = DistributedDataParallel(convreg.torch.convert(net, recipe))
x = torch.randn(8, 2, 8, 8)
same = model.module(x).detach()
others = [torch.empty_like(same) for _ in range(2)]
dist.all_gather(others, same)
assert torch.equal(*others) == (sys.argv[3] != "stochastic"), "errors of the ranks are correlated"
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(x[rank::2]).square().mean().backward()
    optimizer.step()
for parameter in net.parameters():
    others = [torch.empty_like(parameter.grad) for _ in range(2)]
    dist.all_gather(others, parameter.grad)
    assert torch.equal(*others)
dist.barrier()  # neither process may close its connections while the other reads
dist.destroy_process_group()
"""


def run_two(program, *arguments):
    """Run a program in two processes that meet; its first argument is the rank."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1"}
    workers = [subprocess.Popen([sys.executable, "-c", program, str(rank), *arguments],
                                env=environment, stderr=subprocess.PIPE, text=True) for rank in range(2)]
    said = [worker.communicate(timeout=300)[1] for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0], "\n".join(said)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["hifloat8", "stochastic"])
def test_two_processes_train_together(recipe, tmp_path):
    run_two(DISTRIBUTED, str(tmp_path / "meeting"), recipe)


SHARDED = """
import copy, sys, torch, torch.distributed as dist, convreg.torch
from torch.distributed.fsdp import FullyShardedDataParallel
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Conv2d(2, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 3))
alone = convreg.torch.convert(copy.deepcopy(net), "hifloat8")
sharded = FullyShardedDataParallel(convreg.torch.convert(net, "hifloat8"), device_id=torch.device("cpu"))
x = torch.randn(8, 2, 8, 8)
optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (alone, sharded)]
for _ in range(3):
    for model, optimizer in zip((alone, sharded), optimizers):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
assert torch.equal(sharded(x), alone(x))  # the mean of two equal gradients is each of them
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_two_processes_train_with_shards_of_the_parameters(tmp_path):
    run_two(SHARDED, str(tmp_path / "meeting"))


def networks():
    """Return torchvision's networks and a U-Net, with inputs; nothing where torchvision does not import."""
    models = pytest.importorskip("torchvision.models", exc_type=ImportError)
    return {
        "resnet18": lambda: (models.resnet18(num_classes=5), torch.randn(4, 3, 64, 64)),
        "mobilenet_v3_small": lambda: (models.mobilenet_v3_small(num_classes=5), torch.randn(4, 3, 64, 64)),
        "efficientnet_b0": lambda: (models.efficientnet_b0(num_classes=5), torch.randn(4, 3, 64, 64)),
        "convnext_tiny": lambda: (models.convnext_tiny(num_classes=5), torch.randn(2, 3, 64, 64)),
        "unet": lambda: modules()["unet"],
    }


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("recipe", [name for name in convreg.torch.RECIPES if name != "float64"])
@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small", "efficientnet_b0", "convnext_tiny", "unet"])
def test_networks_train_ten_steps(name, recipe, compiled):
    torch.manual_seed(0)
    if compiled:
        torch._dynamo.reset()
    net, x = networks()[name]()
    model = convreg.torch.convert(net, recipe)
    run = torch.compile(model, fullgraph=True) if compiled else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    target = torch.randn_like(model.eval()(x)).detach()
    for layer in model.train().modules():
        if "Drop" in type(layer).__name__ or "Depth" in type(layer).__name__:
            layer.eval()  # so that ten steps show whether the loss falls
    losses = []
    for _ in range(10):
        optimizer.zero_grad()
        loss = (run(x) - target).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert all(torch.isfinite(parameter).all() for parameter in net.parameters())
    assert min(losses[5:]) < losses[0]
