"""Train the network of training_step.onnx on handwritten digits and draw the curves.

The model holds one step of SGD with momentum; this script feeds it batches and carries parameters and velocities from
one step to the next. Accuracy comes from the inference part, cut out of the same file at ``logits``.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx.utils import Extractor

import convreg.onnx

HERE = Path(__file__).resolve().parent
MODEL = HERE / "training_step.onnx"
HELD_BACK = 0.2
BATCH = 32
LEARNING_RATE = 0.05
MOMENTUM = 0.9

Array = np.ndarray[Any, Any]
State = dict[str, Array]


class Images(NamedTuple):
    images: Array
    labels: Array

    def take(self, rows: Array) -> Images:
        return Images(self.images[rows], self.labels[rows])


class Step(NamedTuple):
    """What one step reports: mean loss, and the share of the batch that was right."""

    loss: float
    accuracy: float


def load_digits(rng: np.random.Generator) -> tuple[Images, Images]:
    """Return training and held-back images in random order."""
    with np.load(HERE / "digits.npz") as arrays:
        digits = Images(arrays["images"], arrays["labels"].astype(np.int64))
    order = rng.permutation(len(digits.labels))
    held_back = round(HELD_BACK * len(order))
    return digits.take(order[held_back:]), digits.take(order[:held_back])


def initial_state(model: onnx.ModelProto, rng: np.random.Generator) -> State:
    """Return He-initialised weights; biases and velocities are zero."""
    carried = {output.name.removesuffix(".next") for output in model.graph.output if output.name.endswith(".next")}
    state = {}
    for entry in model.graph.input:
        if entry.name not in carried:
            continue
        shape = [dim.dim_value for dim in entry.type.tensor_type.shape.dim]
        if entry.name.endswith(".weight"):
            fan_in = shape[0] if len(shape) == 2 else math.prod(shape[1:])
            state[entry.name] = (rng.standard_normal(shape) * math.sqrt(2 / fan_in)).astype(np.float32)
        else:
            state[entry.name] = np.zeros(shape, np.float32)
    return state


def inference_part(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the graph from images and parameters to logits."""
    parameters = [entry.name for entry in model.graph.input if entry.name.endswith((".weight", ".bias"))]
    return Extractor(convreg.onnx.infer_shapes(model)).extract_model(["images", *parameters], ["logits"])


def accuracy(session: convreg.onnx.Session, state: State, data: Images) -> float:
    """Return the share of `data` that the network gets right."""
    parameters = {name: value for name, value in state.items() if not name.endswith(".velocity")}
    logits = session.run({"images": data.images, **parameters})["logits"]
    return float(np.mean(logits.argmax(axis=1) == data.labels))


def batches_of(data: Images) -> int:
    """Return the number of batches in an epoch; the last one may be smaller."""
    return math.ceil(len(data.labels) / BATCH)


def shifted(images: Array, rng: np.random.Generator) -> Array:
    """Move half of the batches by up to one pixel: 1,438 images are few."""
    if rng.random() < 0.5:
        return images
    down, right = rng.integers(0, 3, size=2)
    return np.pad(images, ((0, 0), (1, 1), (1, 1)))[:, down : down + 8, right : right + 8]


def train(
    session: convreg.onnx.Session, state: State, data: Images, epochs: int, rng: np.random.Generator
) -> Iterator[Step]:
    """Run all steps, with a learning rate that falls along a half cosine; `state` is updated in place."""
    batches = batches_of(data)
    for step in range(epochs * batches):
        if step % batches == 0:
            order = rng.permutation(len(data.labels))
        batch = data.take(order[step % batches * BATCH :][:BATCH])
        rate = LEARNING_RATE * 0.5 * (1 + math.cos(math.pi * step / (epochs * batches)))
        results = session.run({
            "images": shifted(batch.images, rng),
            "labels": batch.labels,
            "learning_rate": np.float32(rate),
            "momentum": np.float32(MOMENTUM),
            **state,
        })
        for name in state:
            state[name] = results[f"{name}.next"]
        yield Step(float(results["loss"]), float(results["correct"]) / len(batch.labels))


def show_progress(done: int, total: int, text: str) -> None:
    """Draw a bar, on a terminal over the one before."""
    filled = 30 * done // total
    terminal = sys.stderr.isatty()
    print(f"{chr(13) if terminal else ''}[{'#' * filled}{'.' * (30 - filled)}] {text}",
          end="" if terminal and done < total else "\n", file=sys.stderr, flush=True)


def draw(path: Path, epochs: int, steps: list[Step], held_back: list[float]) -> None:
    """Write loss and accuracy over the epochs as a picture."""
    from matplotlib.figure import Figure

    positions = np.linspace(0, epochs, len(steps))
    middles = np.arange(epochs) + 0.5
    loss, right = np.array(steps).reshape(epochs, -1, len(Step._fields)).mean(axis=1).T
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    losses, accuracies = figure.subplots(1, 2)
    losses.plot(positions, [step.loss for step in steps], color="0.8", linewidth=0.8, label="each batch")
    losses.plot(middles, loss, color="tab:blue", label="mean of an epoch")
    losses.set(xlabel="epoch", ylabel="cross-entropy", title="Training loss", yscale="log")
    accuracies.plot(middles, 100 * right, color="tab:blue", label="training images, half of them shifted")
    accuracies.plot(100 * np.array(held_back), "o-", markersize=3, color="tab:orange", label="held-back images")
    accuracies.set(xlabel="epoch", ylabel="recognised (%)", title="Accuracy", ylim=(0, 102))
    for axes in (losses, accuracies):
        axes.legend(frameon=False)
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--picture", type=Path, default=Path("digits.png"))
    options = parser.parse_args(arguments)
    try:
        import matplotlib  # noqa: F401  (asked for before the work, not after it)
    except ModuleNotFoundError:
        sys.exit("train.py draws its curves with matplotlib, which is not installed: pip install matplotlib")

    rng = np.random.default_rng(options.seed)
    model = onnx.load(MODEL)
    session, inference = convreg.onnx.Session(model), convreg.onnx.Session(inference_part(model))
    training, held_back = load_digits(rng)
    state = initial_state(model, rng)

    steps: list[Step] = []
    tested = [accuracy(inference, state, held_back)]
    begin = time.perf_counter()
    for step in train(session, state, training, options.epochs, rng):
        steps.append(step)
        epoch, rest = divmod(len(steps), batches_of(training))
        if not rest:
            tested.append(accuracy(inference, state, held_back))
            loss = np.mean([step.loss for step in steps[-batches_of(training):]])
            show_progress(epoch, options.epochs, f"epoch {epoch} of {options.epochs}, loss {loss:.3f}, "
                                                 f"held-back accuracy {tested[-1]:.1%}")
    seconds = time.perf_counter() - begin
    draw(options.picture, options.epochs, steps, tested)

    parameters = sum(value.size for name, value in state.items() if not name.endswith(".velocity"))
    rows = {
        "parameters": f"{parameters:,}",
        "images": f"{len(training.labels):,} to train, {len(held_back.labels)} held back",
        "steps": f"{len(steps):,} of {BATCH} images",
        "time": f"{seconds:.1f} s, {1000 * seconds / len(steps):.1f} ms a step",
        "held-back accuracy": f"{tested[-1]:.1%}",
        "picture": str(options.picture),
    }
    for name, value in rows.items():
        print(f"{name:<20}{value}")


if __name__ == "__main__":
    main()
