"""Measures one training step of a ResNet-18 in torch and in recipes of convreg.torch: `python docs/torch_speed.py`.

The network has a 3x3 stem for images of 32x32, as in papers on CIFAR. A step is the forward pass, cross-entropy, the
backward pass and SGD with momentum. All ways of computing it take turns in one process, so that other load on the
machine meets all of them. "ratio" is the median over the rounds of a way's time divided by torch's float32 time in the
same round. Microsoft's microxcaling takes part where it is installed: bfloat16, and MX blocks of E4M3 on the CPU.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable
from statistics import median

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import convreg.torch
from convreg.presentation import aligned, markdown_table

STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))
RECIPES = ("hifloat8", "bfloat16", "fp8_hybrid")
LAST = ("float32", "hifloat8")
"""What is measured in channels-last memory too."""


class Block(nn.Module):
    """The basic block of a residual network."""

    def __init__(self, channels: int, made: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(channels, made, 3, stride, 1, bias=False), nn.BatchNorm2d(made)
        self.conv2, self.norm2 = nn.Conv2d(made, made, 3, 1, 1, bias=False), nn.BatchNorm2d(made)
        self.short = nn.Identity() if channels == made else nn.Sequential(
            nn.Conv2d(channels, made, 1, stride, bias=False), nn.BatchNorm2d(made))

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block."""
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.short(x))


def resnet18() -> nn.Module:
    """Return ResNet-18 with a 3x3 stem: 20 convolutions, one linear layer, 0.56 GMAC for an image of 32x32."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    channels = 64
    for made, stride in STAGES:
        layers += [Block(channels, made, stride), Block(made, made, 1)]
        channels = made
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))


def microxcaling() -> dict[str, Callable[[nn.Module], nn.Module]]:
    """Return what converts a module to microxcaling's layers, by name; nothing where it is not installed."""
    try:
        import mx
        from mx.specs import finalize_mx_specs
    except ImportError:  # also another package of that name
        return {}

    def converter(specs: dict[str, object]) -> Callable[[nn.Module], nn.Module]:
        def convert(module: nn.Module) -> nn.Module:
            for name, layer in module.named_children():
                if isinstance(layer, nn.Conv2d):
                    made = mx.Conv2d(layer.in_channels, layer.out_channels, layer.kernel_size, layer.stride,
                                     layer.padding, bias=False, mx_specs=finalize_mx_specs(dict(specs)))
                elif isinstance(layer, nn.Linear):
                    made = mx.Linear(layer.in_features, layer.out_features, mx_specs=finalize_mx_specs(dict(specs)))
                else:
                    convert(layer)
                    continue
                made.load_state_dict(layer.state_dict())
                setattr(module, name, made)
            return module

        return convert

    bfloat16 = {"bfloat": 16, "custom_cuda": False, "quantize_backprop": True}
    blocks = {"scale_bits": 8, "block_size": 32, "w_elem_format": "fp8_e4m3", "a_elem_format": "fp8_e4m3"}
    return {"microxcaling bfloat16": converter(bfloat16),
            "microxcaling MX E4M3": converter({**bfloat16, **blocks})}


def stepper(net: nn.Module, images: Tensor, labels: Tensor) -> Callable[[], None]:
    """Return one training step."""
    optimiser = torch.optim.SGD(net.parameters(), 1e-3, momentum=0.9)

    def step() -> None:
        loss = F.cross_entropy(net(images), labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()

    return step


def ways(batch: int, peers: bool) -> dict[str, Callable[[], None]]:
    """Return the steps to measure, by name; the first is what the others are compared with."""
    torch.manual_seed(0)
    base = resnet18()
    images, labels = torch.randn(batch, 3, 32, 32), torch.randint(10, (batch,))
    last = images.to(memory_format=torch.channels_last)
    nets: dict[str, tuple[nn.Module, Tensor]] = {"torch float32": (copy.deepcopy(base), images)}

    def add(name: str, net: nn.Module, with_last: bool) -> None:
        nets[name] = net, images
        if with_last:
            nets[f"{name}, channels last"] = copy.deepcopy(net).to(memory_format=torch.channels_last), last

    add("torch float32", copy.deepcopy(base), "float32" in LAST)
    for recipe in RECIPES:
        add(f"convreg {recipe}", convreg.torch.convert(copy.deepcopy(base), recipe), recipe in LAST)
    for name, convert in microxcaling().items() if peers else ():
        add(name, convert(copy.deepcopy(base)), False)
    return {name: stepper(net, given, labels) for name, (net, given) in nets.items()}


def measure(steps: dict[str, Callable[[], None]], seconds: float, rounds: int) -> dict[str, list[float]]:
    """Return the seconds of every step of every way: in turns, until the time is over and `rounds` are complete."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for step in steps.values():
        step()
    names, begin = list(steps), time.perf_counter()
    while min(map(len, times.values())) < rounds or time.perf_counter() - begin < seconds:
        for name in names:
            start = time.perf_counter()
            steps[name]()
            times[name].append(time.perf_counter() - start)
        names.reverse()  # nobody always comes after the same one
    return times


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=60, help="how long to measure at least (default 60)")
    parser.add_argument("--rounds", type=int, default=3, help="how many turns of each at least (default 3)")
    parser.add_argument("--no-peers", action="store_true", help="leave microxcaling out, which takes the most time")
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    times = measure(ways(options.batch, not options.no_peers), options.seconds, options.rounds)
    base = next(iter(times.values()))
    cells = [["step", "least ms", "median ms", "ratio"]]
    for name, values in times.items():
        ratios = [value / other for value, other in zip(values, base, strict=True)]
        cells.append([name, f"{1000 * min(values):.0f}", f"{1000 * median(values):.0f}", f"{median(ratios):.2f}"])
    print("\n".join((markdown_table if options.markdown else aligned)(cells)))
    print(f"\n{len(base)} rounds, batch {options.batch}, {options.threads} threads, torch {torch.__version__}")


if __name__ == "__main__":
    main()
