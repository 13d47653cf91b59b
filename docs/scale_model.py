"""Models the time of a data-parallel training step of ResNet-50: `python docs/scale_model.py`.

Kernel times are measured on this machine, layer by layer; bytes follow from shapes and from the cut of the sums
(`convreg.distributed.reductions`); bandwidth and the cost of a task are options. Prints the tables of docs/scale.md.
With ``--check`` it models the steps of a small network instead, with the bandwidth and the cost of a task that a
cluster of this machine's processes has, and measures them there.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, log2
from typing import Any

import numpy as np
import onnx.numpy_helper
import onnx.parser

import convreg
import convreg.onnx
from convreg.distributed import reductions

WORKERS = (1, 2, 8, 64, 256, 1000)
MEASURED = 4
"""Samples of a measured call."""
SHARDS = 8
"""Of a step on few workers."""


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

    forward = shortest(lambda: convreg.onednn.convolution(x, w, **more))
    data = shortest(lambda: convreg.onednn.convolution_backward_data(dy, w, x.shape, **more))
    sums = shortest(lambda: convreg.onednn.convolution_backward_weights(x, dy, w.shape, **more))
    return Times((forward + data) / MEASURED, sums / MEASURED)


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
    layers: list[Layer], times: list[Times], workers: int, samples: float, bandwidth: float, task: float
) -> Step:
    """Model a step of so many samples per worker.

    Every worker computes the rows of its own samples. A layer with at least as many pieces as workers is summed where
    its samples are, except for one sample at each end of a worker's range. A layer with fewer pieces is summed by as
    many workers as it has pieces, each of which receives the operands of its piece. Sums of different layers run side
    by side. A join receives all partial sums of its layer. Parameters go from worker to worker, in a binary tree.
    Dask's scheduler handles one task after the other: two for each shard, of which there are 8 or one per worker, and
    one for each layer.
    """
    batch = round(workers * samples)
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
    tasks = 2 * max(SHARDS, workers) + sum(layer.count for layer in layers)
    return Step(rows, max(sums, longest), max(operands, most), max(joins, largest), parameters, task * tasks)


# ---------------------------------------------------------------------------------------------------------------------
# The check

CHECKED = (Layer(3, 64, 32, 3, 1), Layer(64, 64, 32, 3, 1, 5))
BATCH = 64


def network() -> onnx.ModelProto:
    """The layers of `CHECKED` with ReLU between them, means of the planes, and a dense layer."""
    rng = np.random.default_rng(0)
    nodes, tensors, value = [], {}, "x"
    for number in range(6):
        tensors[f"w{number}"] = rng.standard_normal((64, 3 if number == 0 else 64, 3, 3), np.float32) * 0.05
        nodes.append(f"c{number} = Conv<pads=[1, 1, 1, 1]>({value}, w{number}) r{number} = Relu(c{number})")
        value = f"r{number}"
    tensors["space"], tensors["dense"] = np.array([2, 3]), rng.standard_normal((64, 10), np.float32)
    nodes.append(f"m = ReduceMean<keepdims=0>({value}, space) y = MatMul(m, dense)")
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 20]> net (float[N, 3, 32, 32] x) => (float[N, 10] y) {'
        + " ".join(nodes) + "}")
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in tensors.items())
    return model


def shortest(run: Callable[[], Any], repeat: int = 7) -> float:
    """Return the seconds of the fastest of some runs."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def check() -> None:
    """Print the modelled and the measured seconds of steps with one and two workers."""
    import dask
    from distributed import Client, LocalCluster

    step = convreg.onnx.training_step(network(), optimizer="sgd")
    rng = np.random.default_rng(0)
    fed = {"x": rng.standard_normal((BATCH, 3, 32, 32), np.float32), "target": rng.integers(0, 10, BATCH)}
    times = [measured(layer, 1) for layer in CHECKED]
    kept = {f"distributed.nanny.pre-spawn-environ.MALLOC_{name}_THRESHOLD_": 2**30 for name in ("TRIM", "MMAP")}
    print("| workers | GB/s | ms a task | rows | sums | operands | joins | tasks | modelled | measured |")
    print("|---" * 10 + "|")
    for workers in (1, 2):
        with dask.config.set(kept), LocalCluster(
                n_workers=workers, threads_per_worker=1, dashboard_address=None,
                env={"CONVREG_NUM_THREADS": "1"}) as local, Client(local, set_as_default=False) as client:
            bandwidth, task = costs_of(client)
            trainer = convreg.onnx.Trainer(step, client=client)
            taken = []
            for _ in range(8):
                trainer.step(fed)
                taken.append(trainer.last_step.seconds)
            trainer.close()
        model = modelled(list(CHECKED), times, workers, BATCH / workers, bandwidth, task)
        print(f"| {workers} | {bandwidth / 1e9:.2f} | {task * 1e3:.2f} | {model.rows:.3f} | {model.sums:.3f} | "
              f"{model.operands:.3f} | {model.joins:.3f} | {model.tasks:.3f} | {model.total:.3f} | {min(taken):.3f} |")


def costs_of(client: Any) -> tuple[float, float]:
    """Return the bytes a second to a worker and back, and the seconds of a task among many."""
    import dask

    numbers = np.zeros(2**23)
    moved = shortest(lambda: client.submit(_same, numbers, pure=False).result())
    one = shortest(lambda: client.submit(_same, 0, pure=False).result())
    many = [dask.delayed(_same, pure=False)(number) for number in range(200)]
    return 2 * numbers.nbytes / (moved - one), shortest(lambda: client.gather(client.compute(many)), 3) / len(many)


def _same(value: Any) -> Any:
    """A task that does nothing."""
    return value


def main() -> None:
    """Print a table for each bandwidth."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--threads", type=int, default=convreg.capabilities()["threads"], help="of a worker")
    parser.add_argument("--samples", type=int, default=32, help="per worker")
    parser.add_argument("--gigabits", type=float, nargs="+", default=[10.0, 100.0], help="of a worker's link")
    parser.add_argument("--task", type=float, default=1e-3, help="seconds that Dask takes for a task")
    parser.add_argument("--check", action="store_true", help="compare the model with steps on this machine")
    given = parser.parse_args()
    if given.check:
        check()
        return
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
