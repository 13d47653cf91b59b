"""Train a small residual network on handwritten digits in several recipes of convreg.torch, and draw the curves.

The images are the 8x8 digits of examples/digits, brought to 32x32. Every recipe starts from the same weights and sees
the same batches. `convreg.torch.observe` records what rounding costs the tensors of every layer.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from statistics import median_low
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import convreg.torch
from convreg import GraphError
from convreg.presentation import aligned, picture_format

DIGITS = Path(__file__).resolve().parent.parent / "digits" / "digits.npz"
RECIPES = ("float32", "bfloat16", "hifloat8", "fp8_hybrid")
HELD_BACK = 0.2
BATCH = 32
LEARNING_RATE = 0.05
COLOURS = ("black", "tab:blue", "tab:green", "tab:orange", "tab:red", "tab:purple", "tab:brown", "tab:pink")


class Block(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, channels: int, made: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, made, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(made)
        self.conv2 = nn.Conv2d(made, made, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(made)
        self.short = nn.Identity() if stride == 1 else nn.Sequential(
            nn.Conv2d(channels, made, 1, stride, bias=False), nn.BatchNorm2d(made))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.short(x))


class ResNet(nn.Module):
    """Three blocks of 16, 32 and 64 channels: nine convolutions and one linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 16, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        self.block1, self.block2, self.block3 = Block(16, 16, 1), Block(16, 32, 2), Block(32, 64, 2)
        self.head = nn.Linear(64, 10)

    def forward(self, images: Tensor) -> Tensor:
        x = F.relu(self.norm(self.stem(images)))
        x = self.block3(self.block2(self.block1(x)))
        return self.head(x.mean((2, 3)))


@dataclass
class Images:
    """Images as (N, 1, 32, 32), and their digits."""

    images: Tensor
    labels: Tensor


def load_digits(seed: int) -> tuple[Images, Images]:
    """Return training and held-back images in random order."""
    with np.load(DIGITS) as arrays:
        images, labels = torch.from_numpy(arrays["images"]), torch.from_numpy(arrays["labels"].astype(np.int64))
    images = F.interpolate(images[:, None].float() / 16, size=32, mode="bilinear", align_corners=False)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    split = round(HELD_BACK * len(order))
    held_back, training = order[:split], order[split:]
    return Images(images[training], labels[training]), Images(images[held_back], labels[held_back])


def shifted(images: Tensor, generator: torch.Generator) -> Tensor:
    """Move a batch by up to three pixels: 1,438 images are few."""
    down, right = torch.randint(7, (2,), generator=generator).tolist()
    return F.pad(images, (3, 3, 3, 3))[:, :, down : down + 32, right : right + 32]


def accuracy(net: nn.Module, data: Images) -> float:
    """Return the share of images that the network gets right."""
    net.eval()
    with torch.no_grad():
        logits = torch.cat([net(images) for images in data.images.split(256)])
    net.train()
    return float((logits.argmax(1) == data.labels).float().mean())


@dataclass
class Run:
    """One training, and what was measured on the way."""

    recipe: str
    losses: list[float] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)
    seconds: float = 0.0
    seen: Any = None

    def epoch_losses(self) -> np.ndarray:
        """Mean loss of every epoch."""
        return np.array(self.losses).reshape(len(self.accuracies), -1).mean(axis=1)

    def ratio(self, layer: str, tensor: str) -> float:
        """Median signal-to-noise ratio of a layer's tensor."""
        return median_low(record.snr_db for record in self.seen.select(layer=layer, tensor=tensor))


def train(name: str, recipe: Any, options: argparse.Namespace) -> Run:
    """Train from the seed's weights on the seed's batches."""
    run, generator = Run(name), torch.Generator().manual_seed(options.seed)
    torch.manual_seed(options.seed)
    training, held_back = load_digits(options.seed)
    count = options.images or len(training.labels)
    net = convreg.torch.convert(ResNet(), recipe)
    optimiser = torch.optim.SGD(net.parameters(), LEARNING_RATE, momentum=0.9, weight_decay=1e-4)
    steps = count // BATCH
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, options.epochs * steps)
    with convreg.torch.observe(net, every=options.every) as run.seen:
        for epoch in range(1, options.epochs + 1):
            begin = time.perf_counter()
            order = torch.randperm(count, generator=generator)
            for batch in order[: steps * BATCH].split(BATCH):
                loss = F.cross_entropy(net(shifted(training.images[batch], generator)), training.labels[batch])
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                schedule.step()
                run.losses.append(loss.item())
            run.seconds += time.perf_counter() - begin
            run.accuracies.append(accuracy(net, held_back))
            print(f"{name}: epoch {epoch} of {options.epochs}, loss {np.mean(run.losses[-steps:]):.3f}, held-back "
                  f"accuracy {run.accuracies[-1]:.1%}", file=sys.stderr, flush=True)
    return run


def draw(path: Path, runs: list[Run]) -> None:
    """Write loss, accuracy and the signal-to-noise ratios of all layers as one picture."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 4.4), layout="constrained")
    losses, accuracies, ratios = figure.subplots(1, 3, width_ratios=(1, 1, 1.5))
    for run, colour in zip(runs, cycle(COLOURS), strict=False):
        epochs = np.arange(1, len(run.accuracies) + 1)
        losses.plot(epochs - 0.5, run.epoch_losses(), color=colour, label=run.recipe)
        accuracies.plot(epochs, 100 * np.array(run.accuracies), color=colour, marker="o", markersize=3)
        for tensor, style in (("input", "o"), ("weight", "x"), ("grad_output", "v")):
            known = [(place, run.ratio(layer, tensor)) for place, layer in enumerate(run.seen.layers)]
            shown = [(place, ratio) for place, ratio in known if np.isfinite(ratio)]
            if shown:
                ratios.plot(*zip(*shown, strict=True), style, color=colour, markersize=5, linestyle="-", linewidth=0.6,
                            markerfacecolor="none")
    losses.set(xlabel="epoch", ylabel="mean cross-entropy of an epoch", title="Training loss", yscale="log")
    accuracies.set(xlabel="epoch", ylabel="recognised (%)", title="Held-back images")
    ratios.set(ylabel="median signal-to-noise ratio (dB)",
               title="Operands: circle input, cross weight, triangle grad_output")
    layers = runs[0].seen.layers
    ratios.set_xticks(range(len(layers)), layers, rotation=30, ha="right", fontsize=8)
    for axes in (losses, accuracies):
        axes.locator_params(axis="x", integer=True)
    for axes in (losses, accuracies, ratios):
        axes.grid(alpha=0.3)
        axes.title.set_fontsize(11)
    figure.legend(*losses.get_legend_handles_labels(), loc="outside lower center", ncols=len(runs), frameon=False)
    figure.savefig(path, dpi=90)


def results_table(runs: list[Run]) -> list[str]:
    """Return a line per run."""
    cells = [["recipe", "accuracy", "loss", "input dB", "weight dB", "grad_output dB", "flushed", "ms a step"]]
    for run in runs:
        worst = [min(run.ratio(layer, tensor) for layer in run.seen.layers)
                 for tensor in ("input", "weight", "grad_output")]
        cells.append([run.recipe, f"{run.accuracies[-1]:.1%}", f"{run.epoch_losses()[-1]:.4f}",
                      *("exact" if ratio == np.inf else f"{ratio:.1f}" for ratio in worst),
                      f"{max(record.flushed for record in run.seen.select(tensor='grad_output')):.1%}",
                      f"{1000 * run.seconds / len(run.losses):.0f}"])
    return aligned(cells)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--recipes", type=lambda text: text.split(","), default=list(RECIPES), metavar="NAME,...",
                        help=f"default {','.join(RECIPES)}; NAME+tensor and NAME+channel set the scaling")
    parser.add_argument("--picture", type=Path, default=Path("torch_formats.png"))
    parser.add_argument("--layers", type=Path, metavar="FOLDER",
                        help="write the picture and the JSON file of every recipe's observation here too")
    parser.add_argument("--every", type=int, default=15, help="observe every so many steps (default 15)")
    parser.add_argument("--images", type=int, help="train on that many images only")
    options = parser.parse_args(arguments)
    most = len(load_digits(0)[0].labels)
    images = most if options.images is None else options.images
    if min(options.epochs, options.every) < 1 or not BATCH <= images <= most or not 0 <= options.seed < 2**63:
        parser.error(f"--epochs and --every take numbers from 1 on, --images from {BATCH} to {most}, --seed from 0 to "
                     "2**63 - 1")
    try:
        picture_format(str(options.picture), "demo", "--picture")  # before the work, not after it
        recipes = {}
        for text in options.recipes:
            name, _, scaling = text.partition("+")
            recipes[text] = convreg.torch.recipe(name, **({"scaling": scaling} if scaling else {}))
            if name == "float64":
                parser.error("--recipes takes recipes for modules of float32; float64 is for modules of float64")
        if options.layers:
            options.layers.mkdir(parents=True, exist_ok=True)
    except (GraphError, ValueError, KeyError, OSError) as error:
        sys.exit(f"train.py: {error}")

    runs = [train(name, recipe, options) for name, recipe in recipes.items()]
    draw(options.picture, runs)
    for run in runs if options.layers else []:
        run.seen.plot(options.layers / f"{run.recipe}.png")
        run.seen.save(options.layers / f"{run.recipe}.json")
    print("\n".join(["the worst layer's median signal-to-noise ratios, and the largest share of gradients that became "
                     "zero", *results_table(runs), ""]))
    print(f"{sum(run.seconds for run in runs):.0f} s for {sum(len(run.losses) for run in runs):,} steps of {BATCH} "
          f"images; picture {options.picture}")


if __name__ == "__main__":
    main()
