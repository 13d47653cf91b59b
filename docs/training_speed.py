"""Measures a training step of ResNet-18 in several ways: `python docs/training_speed.py`.

Ways: the step that `convreg.onnx.training_step` makes, in onnxruntime with convreg's library; PyTorch eager; and
onnxsim's `compile_training_loop`, where that package is installed. Each runs in a process of its own, one after the
other, with two threads, on 16 random images of 64x64 pixels and 10 classes. The optimizer is SGD with momentum 0.9. The
first two normalise by the statistics of the batch; onnxsim takes only a model whose batch normalisations are folded.
Memory is the largest resident memory during the steps less the memory before the first one. Prints the table of
docs/training.md. Needs torch, torchvision, onnxscript and onnxruntime.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

BATCH, SIZE, CLASSES, RATE = 16, 64, 10, 0.01
WAYS = ("convreg in onnxruntime", "PyTorch eager", "onnxsim")

Array = np.ndarray[Any, Any]


def network() -> Any:
    """ResNet-18 of torchvision with the same weights in every process."""
    import torch
    import torchvision

    torch.manual_seed(0)
    return torchvision.models.resnet18(num_classes=CLASSES)


def batch() -> tuple[Array, Array]:
    """Random images and labels."""
    rng = np.random.default_rng(0)
    return rng.standard_normal((BATCH, 3, SIZE, SIZE)).astype(np.float32), rng.integers(0, CLASSES, BATCH)


def export(path: Path, *, training: bool) -> None:
    """Write the network as an ONNX file, with batch normalisations in training mode or folded."""
    import torch

    mode = torch.onnx.TrainingMode
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter announces its successor
        torch.onnx.export(
            network().train(training), (torch.randn(BATCH, 3, SIZE, SIZE),), str(path), dynamo=False, opset_version=17,
            training=mode.TRAINING if training else mode.EVAL, do_constant_folding=not training, input_names=["x"],
            output_names=["y"], dynamic_axes={"x": {0: "N"}, "y": {0: "N"}} if training else None)


def convreg_step(folder: Path, threads: int) -> Callable[[], float]:
    """The step model, its state in onnxruntime's memory."""
    import convreg.onnx

    step = convreg.onnx.training_step(folder / "train.onnx", optimizer="momentum", learning_rate=RATE)
    trainer = convreg.onnx.Trainer(step, engine="onnxruntime", threads=threads)
    x, target = batch()
    return lambda: float(trainer.step({"x": x, "target": target})["loss"])


def torch_step(folder: Path, threads: int) -> Callable[[], float]:
    """PyTorch, one operator after the other."""
    import torch

    torch.set_num_threads(threads)
    model = network().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)
    x, target = (torch.from_numpy(array) for array in batch())

    def run() -> float:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), target)
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return run


def onnxsim_step(folder: Path, threads: int) -> Callable[[], float]:
    """onnxsim's training loop over the folded model, with the loss as part of the graph."""
    import onnx
    import onnxsim
    from onnx import helper, numpy_helper

    model = onnx.load(folder / "folded.onnx")
    x, target = batch()
    graph = model.graph
    graph.input.append(helper.make_tensor_value_info("hot", onnx.TensorProto.FLOAT, [BATCH, CLASSES]))
    graph.initializer.append(numpy_helper.from_array(np.array(-1.0 / BATCH, np.float32), "share"))
    graph.initializer.append(numpy_helper.from_array(np.array([BATCH, -1]), "flat"))
    for node in graph.node:
        if node.op_type == "Flatten":  # onnxsim has no rule for it
            node.CopyFrom(helper.make_node("Reshape", [node.input[0], "flat"], list(node.output)))
    graph.node.extend([  # nor for LogSoftmax
        helper.make_node("Softmax", ["y"], ["shares"], axis=1), helper.make_node("Log", ["shares"], ["logs"]),
        helper.make_node("Mul", ["logs", "hot"], ["picked"]),
        helper.make_node("ReduceSum", ["picked"], ["summed"], keepdims=0),
        helper.make_node("Mul", ["summed", "share"], ["loss"])])
    del graph.output[:]
    graph.output.append(helper.make_tensor_value_info("loss", onnx.TensorProto.FLOAT, []))
    weights = [tensor.name for tensor in graph.initializer
               if tensor.name != "share" and tensor.data_type == onnx.TensorProto.FLOAT and tensor.dims]
    loop = onnxsim.compile_training_loop(model, "loss", weights, optimizer="sgd_momentum")
    feeds = {"x": x, "hot": np.eye(CLASSES, dtype=np.float32)[target]}
    return lambda: float(np.ravel(loop(feeds, RATE))[0])


STEPS: dict[str, Callable[[Path, int], Callable[[], float]]] = dict(
    zip(WAYS, (convreg_step, torch_step, onnxsim_step), strict=True))


def resident() -> float:
    """The resident memory of this process in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def peak() -> float:
    """The largest resident memory since `forget_peak`, in MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 2**10


def forget_peak() -> None:
    """Let the largest resident memory begin with the present one."""
    Path("/proc/self/clear_refs").write_text("5")


def measure(way: str, folder: Path, steps: int, threads: int) -> dict[str, Any]:
    """Time one way in this process."""
    run = STEPS[way](folder, threads)
    before = resident()
    forget_peak()
    losses, seconds = [], []
    for _ in range(steps):
        begin = time.perf_counter()
        losses.append(run())
        seconds.append(time.perf_counter() - begin)
    timed = seconds[1:]  # the first one takes memory and prepares
    return {"least": min(timed), "median": statistics.median(timed), "memory": peak() - before, "losses": losses}


def main() -> None:
    """Run each way in a process of its own and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=12, help="of each way; the first one does not count (default 12)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--ways", type=lambda text: text.split(","), default=list(WAYS), metavar="NAME,...")
    parser.add_argument("--one", nargs=2, metavar=("WAY", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one[0], Path(options.one[1]), options.steps, options.threads)))
        return
    if unknown := [way for way in options.ways if way not in WAYS]:
        parser.error(f"no way named {', '.join(unknown)}; allowed: {', '.join(WAYS)}")
    environment = os.environ | {"OMP_NUM_THREADS": str(options.threads), "CONVREG_NUM_THREADS": str(options.threads)}
    print("| way | least, ms | median, ms | memory, MiB | loss before and after |\n|---|---:|---:|---:|---|")
    with TemporaryDirectory() as name:
        folder = Path(name)
        export(folder / "train.onnx", training=True)
        export(folder / "folded.onnx", training=False)
        for way in options.ways:
            if way == "onnxsim" and find_spec("onnxsim") is None:
                print("onnxsim is not installed and is left out", file=sys.stderr)
                continue
            done = subprocess.run(
                [sys.executable, __file__, "--one", way, name, "--steps", str(options.steps), "--threads",
                 str(options.threads)], env=environment, capture_output=True, text=True)
            if done.returncode:
                sys.exit(f"{way}: {done.stderr}")
            found = json.loads(done.stdout.splitlines()[-1])
            print(f"| {way} | {1000 * found['least']:.0f} | {1000 * found['median']:.0f} | {found['memory']:.0f} | "
                  f"{found['losses'][0]:.3f}, {found['losses'][-1]:.3f} |", flush=True)


if __name__ == "__main__":
    main()
