"""Models the time of a data-parallel training step of ResNet-50: `python docs/scale_model.py`.

Kernel times are measured on this machine, layer by layer; bytes follow from shapes and from the cut of the sums
(`convreg.distributed.reductions`); bandwidth and the cost of a task are options. Prints the tables of docs/scale.md.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from math import ceil, log2
from typing import Any

import numpy as np

import convreg
from convreg.distributed import reductions

WORKERS = (1, 2, 8, 64, 256, 1000)
MEASURED = 4
"""Samples of a measured call."""


@dataclass(frozen=True)
class Layer:
    """A square convolution: channels of both sides, the extent of the input, taps, stride; how often it occurs."""

    channels: int
    outputs: int
    extent: int
    taps: int
    stride: int
    count: int = 1

    @property
    def small(self) -> int:
        """The extent of the output."""
        return -(-self.extent // self.stride)

    @property
    def weights(self) -> int:
        """Bytes of the weights, and of one partial sum."""
        return 4 * self.channels * self.outputs * self.taps**2

    @property
    def sample(self) -> int:
        """Bytes of the operands of a weights gradient, for one sample."""
        return 4 * (self.channels * self.extent**2 + self.outputs * self.small**2)

    def pieces(self, batch: int) -> int:
        """Return how many pieces the weights gradient of a batch has."""
        x = np.broadcast_to(np.float32(0), (batch, self.channels, self.extent, self.extent))
        dy = np.broadcast_to(np.float32(0), (batch, self.outputs, self.small, self.small))
        how = reductions("onednn::ConvolutionBackwardWeights", x, dy, weights_shape=(
            self.outputs, self.channels, self.taps, self.taps), **self.attributes)
        return how["diff_weights"].pieces

    @property
    def attributes(self) -> dict[str, Any]:
        """Those of oneDNN's operators."""
        begin = (self.taps - 1) // 2
        end = max(0, (self.small - 1) * self.stride + self.taps - self.extent - begin)
        return {"strides": (self.stride,) * 2, "pads_begin": (begin,) * 2, "pads_end": (end,) * 2,
                "dilations": (1, 1), "data_format": "NCX", "weights_format": "OIX"}


def resnet50() -> list[Layer]:
    """The convolutions of ResNet-50 on images of 224x224 pixels."""
    layers = [Layer(3, 64, 224, 7, 2)]
    inputs, extent = 64, 56
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        small = extent // stride
        layers += [Layer(inputs, width, extent, 1, 1), Layer(width, width, extent, 3, stride),
                   Layer(width, 4 * width, small, 1, 1), Layer(inputs, 4 * width, extent, 1, stride),
                   Layer(4 * width, width, small, 1, 1, blocks - 1), Layer(width, width, small, 3, 1, blocks - 1),
                   Layer(width, 4 * width, small, 1, 1, blocks - 1)]
        inputs, extent = 4 * width, small
    return layers


@dataclass(frozen=True)
class Times:
    """Seconds for one sample of a layer: forward with the data gradient, and the weights gradient."""

    rows: float
    sums: float


def measured(layer: Layer, threads: int) -> Times:
    """Time the three kernels of a layer, the fastest of three calls."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((MEASURED, layer.channels, layer.extent, layer.extent), np.float32)
    dy = rng.standard_normal((MEASURED, layer.outputs, layer.small, layer.small), np.float32)
    w = rng.standard_normal((layer.outputs, layer.channels, layer.taps, layer.taps), np.float32)
    more = {**layer.attributes, "threads": threads}

    def best(call: Any) -> float:
        times = []
        for _ in range(4):
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        return min(times) / MEASURED

    forward = best(lambda: convreg.onednn.convolution(x, w, **more))
    data = best(lambda: convreg.onednn.convolution_backward_data(dy, w, x.shape, **more))
    sums = best(lambda: convreg.onednn.convolution_backward_weights(x, dy, w.shape, **more))
    return Times(forward + data, sums)


@dataclass(frozen=True)
class Step:
    """The seconds of a step by what takes them."""

    rows: float
    sums: float
    operands: float
    joins: float
    parameters: float
    tasks: float

    @property
    def total(self) -> float:
        """All of it: nothing is overlapped."""
        return self.rows + self.sums + self.operands + self.joins + self.parameters + self.tasks


def modelled(
    layers: list[Layer], times: list[Times], workers: int, samples: int, bandwidth: float, task: float
) -> Step:
    """Model a step of so many samples per worker.

    Every worker computes the rows of its own samples. A layer with at least as many pieces as workers is summed where
    its samples are, except for one sample at each end of a worker's range. A layer with fewer pieces is summed by as
    many workers as it has pieces, each of which receives the operands of its piece. Sums of different layers run side
    by side. A join receives all partial sums of its layer. Parameters go from worker to worker, in a binary tree.
    """
    batch = workers * samples
    rows = sums = operands = joins = 0.0
    longest = most = largest = 0.0
    for layer, own in zip(layers, times, strict=True):
        pieces = layer.pieces(batch)
        parts = min(pieces, workers)
        rows += layer.count * own.rows * samples
        sums += layer.count * own.sums * batch / workers
        longest = max(longest, own.sums * batch / parts)
        moved = 0.0 if workers == 1 else layer.sample if parts == workers else layer.sample * (batch / parts - samples)
        operands += layer.count * moved * parts / workers / bandwidth
        most = max(most, moved / bandwidth)
        received = 0.0 if parts == 1 else 2.0 * parts * layer.weights
        joins += layer.count * received / workers / bandwidth
        largest = max(largest, received / bandwidth)
    weights = sum(layer.count * layer.weights for layer in layers)
    parameters = 0.0 if workers == 1 else (1 + ceil(log2(workers))) * weights / bandwidth
    units = sum(layer.count for layer in layers)
    return Step(rows, max(sums, longest), max(operands, most), max(joins, largest), parameters,
                task * (3 + units * (1 + 1 / workers)))


def main() -> None:
    """Print a table for each bandwidth."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--threads", type=int, default=convreg.capabilities()["threads"], help="of a worker")
    parser.add_argument("--samples", type=int, default=32, help="per worker")
    parser.add_argument("--gigabits", type=float, nargs="+", default=[10.0, 100.0], help="of a worker's link")
    parser.add_argument("--task", type=float, default=1e-3, help="seconds that Dask takes for a task")
    given = parser.parse_args()
    layers = resnet50()
    times = [measured(layer, given.threads) for layer in layers]
    for gigabits in given.gigabits:
        print(f"\n{given.samples} samples per worker, {given.threads} threads, {gigabits:g} Gbit/s; seconds\n")
        print("| workers | rows | sums | operands | joins | parameters | tasks | step | samples a second | of linear |")
        print("|---" * 10 + "|")
        alone = 0.0
        for workers in WORKERS:
            step = modelled(layers, times, workers, given.samples, gigabits * 1e9 / 8, given.task)
            rate = workers * given.samples / step.total
            alone = alone or rate
            print(f"| {workers} | {step.rows:.2f} | {step.sums:.2f} | {step.operands:.2f} | {step.joins:.2f} | "
                  f"{step.parameters:.2f} | {step.tasks:.2f} | {step.total:.2f} | {rate:.1f} | "
                  f"{rate / alone / workers:.2f} |")


if __name__ == "__main__":
    main()
