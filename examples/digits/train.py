"""Train the network of training_step.onnx on handwritten digits, once per number format, and draw the curves.

The model holds one step of SGD with momentum; this script feeds it batches and carries parameters and velocities from
one step to the next. Accuracy comes from the inference part, cut out of the same file at ``logits``. For the narrower
formats build_training_step.py makes the same step with the operands of all gradients in that format; every format
starts from the same weights and sees the same batches.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx.utils import Extractor

import convreg
import convreg.onnx
from convreg.numerics import error_of
from convreg.presentation import aligned, picture_format

HERE = Path(__file__).resolve().parent
MODEL = HERE / "training_step.onnx"
HELD_BACK = 0.2
BATCH = 32
LEARNING_RATE = 0.05
FORMATS = ("float32", "bfloat16", "float8_e4m3fn", "hifloat8")
LAYERS = ("conv1", "conv2", "dense")
LOSS_SCALES = [2.0**exponent for exponent in range(17)]
COLOURS = ("black", "tab:blue", "tab:orange", "tab:green", "tab:red", "tab:purple")

Array = np.ndarray[Any, Any]
State = dict[str, Array]


def beside(name: str) -> Any:
    """Import a script of this folder."""
    spec = importlib.util.spec_from_file_location(f"digits_{name}", HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


building = beside("build_training_step")


class Images(NamedTuple):
    images: Array
    labels: Array

    def take(self, rows: Array) -> Images:
        return Images(self.images[rows], self.labels[rows])


def load_digits(rng: np.random.Generator) -> tuple[Images, Images]:
    """Return training and held-back images in random order."""
    with np.load(HERE / "digits.npz") as arrays:
        digits = Images(arrays["images"], arrays["labels"].astype(np.int64))
    order = rng.permutation(len(digits.labels))
    held_back = round(HELD_BACK * len(order))
    return digits.take(order[held_back:]), digits.take(order[:held_back])


def initial_state(model: onnx.ModelProto, rng: np.random.Generator) -> State:
    """Return He-initialised weights; biases and velocities are zero."""
    record = convreg.onnx.StepRecord.of(model)
    shapes = {entry.name: [dim.dim_value for dim in entry.type.tensor_type.shape.dim] for entry in model.graph.input}
    return {name: building.initial(name, rng) if name in record.parameters else np.zeros(shapes[name], np.float32)
            for name in record.state}


def inference_part(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the graph from images and parameters to logits."""
    parameters = convreg.onnx.StepRecord.of(model).parameters
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
    session: convreg.onnx.Session, state: State, data: Images, epochs: int, rng: np.random.Generator,
    loss_scale: float | None = None,
) -> Iterator[float]:
    """Run all steps, with a learning rate that falls along a half cosine; `state` is updated in place.

    Yields the mean loss of each batch.
    """
    batches = batches_of(data)
    for step in range(epochs * batches):
        if step % batches == 0:
            order = rng.permutation(len(data.labels))
        batch = data.take(order[step % batches * BATCH :][:BATCH])
        rate = LEARNING_RATE * 0.5 * (1 + math.cos(math.pi * step / (epochs * batches)))
        batch = batch._replace(images=shifted(batch.images, rng))
        results = run_step(session, state, batch, rate, loss_scale)
        for name in state:
            state[name] = results[f"{name}.next"]
        yield float(results["loss"])


def run_step(
    session: convreg.onnx.Session, state: State, batch: Images, rate: float, loss_scale: float | None
) -> State:
    """Run the model once; only steps in a narrow format have a loss scale."""
    scale = {} if loss_scale is None else {"loss_scale": np.float32(loss_scale)}
    return session.run({"images": batch.images, "target": batch.labels, "learning_rate": np.float32(rate), **scale,
                        **state})


def gradients(session: convreg.onnx.Session, state: State, batch: Images, loss_scale: float | None) -> dict[str, Array]:
    """Return the gradients of the weights: after velocities of zero the new ones are just that."""
    still = {name: np.zeros_like(value) if name.endswith(".velocity") else value for name, value in state.items()}
    results = run_step(session, still, batch, 0.0, loss_scale)
    return {layer: results[f"{layer}.weight.velocity.next"] for layer in LAYERS}


def ratios(
    session: convreg.onnx.Session, exact: convreg.onnx.Session, state: State, batch: Images, loss_scale: float | None
) -> list[float]:
    """Return the signal-to-noise ratio in dB of every layer's gradient, against the float32 step."""
    found, wanted = gradients(session, state, batch, loss_scale), gradients(exact, state, batch, None)
    return [error_of(found[layer], wanted[layer]).snr_db for layer in LAYERS]


def best_loss_scale(
    session: convreg.onnx.Session, exact: convreg.onnx.Session, state: State, batch: Images
) -> float:
    """Return the power of two with which the worst layer's gradient is best on one batch."""
    return max(LOSS_SCALES, key=lambda scale: min(ratios(session, exact, state, batch, scale)))


@dataclass
class Run:
    """One training: its format, the loss scale (None in float32), and what was measured on the way."""

    format: str
    loss_scale: float | None
    step_losses: list[float] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)
    snr: list[list[float]] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def label(self) -> str:
        """Format and loss scale."""
        return self.format if self.loss_scale in (None, 1) else f"{self.format}, loss scale {self.loss_scale:g}"

    def losses(self, epochs: int) -> Array:
        """Mean loss of every epoch."""
        return np.array(self.step_losses).reshape(epochs, -1).mean(axis=1)


def train_format(run: Run, options: argparse.Namespace, models: dict[str, onnx.ModelProto]) -> None:
    """Train from the seed's weights on the seed's batches, and measure after every epoch."""
    rng, probe = np.random.default_rng(options.seed), np.random.default_rng(options.seed + 1)
    model = models[run.format]
    session, inference = convreg.onnx.Session(model), convreg.onnx.Session(inference_part(model))
    exact = convreg.onnx.Session(models["float32"])
    training, held_back = load_digits(rng)
    state = initial_state(model, rng)
    if run.loss_scale == 0:
        run.loss_scale = best_loss_scale(session, exact, state, training.take(np.arange(BATCH)))
    run.accuracies.append(accuracy(inference, state, held_back))
    begin = time.perf_counter()
    for step_loss in train(session, state, training, options.epochs, rng, run.loss_scale):
        run.step_losses.append(step_loss)
        run.seconds, measured = time.perf_counter() - begin, time.perf_counter()
        epoch, rest = divmod(len(run.step_losses), batches_of(training))
        if not rest:
            run.accuracies.append(accuracy(inference, state, held_back))
            if run.loss_scale is not None:
                batch = training.take(probe.choice(len(training.labels), BATCH, replace=False))
                run.snr.append(ratios(session, exact, state, batch, run.loss_scale))
            loss = np.mean(run.step_losses[-batches_of(training):])
            show_progress(epoch, options.epochs, f"{run.label}: epoch {epoch} of {options.epochs}, loss {loss:.3f}, "
                                                 f"held-back accuracy {run.accuracies[-1]:.1%}")
        begin += time.perf_counter() - measured


def show_progress(done: int, total: int, text: str) -> None:
    """Draw a bar, on a terminal over the one before."""
    filled = 30 * done // total
    terminal = sys.stderr.isatty()
    print(f"{chr(13) + chr(27) + '[K' if terminal else ''}[{'#' * filled}{'.' * (30 - filled)}] {text}",
          end="" if terminal and done < total else "\n", file=sys.stderr, flush=True)


def draw(path: Path, epochs: int, runs: list[Run], title: str) -> None:
    """Write loss, accuracy and gradient errors as a picture."""
    from matplotlib.figure import Figure

    formats = list(dict.fromkeys(run.format for run in runs))
    figure = Figure(figsize=(13, 4.2), layout="constrained")
    losses, accuracies, errors = figure.subplots(1, 3)
    narrow = [run for run in runs if run.snr]
    width = 0.8 / max(1, len(narrow))
    for run in runs:
        plain = run.loss_scale == 1 and any(other.format == run.format and other is not run for other in runs)
        colour = COLOURS[formats.index(run.format) % len(COLOURS)]
        style: dict[str, Any] = {"color": colour, "linestyle": ":" if plain else "-", "linewidth": 1.4}
        losses.plot(np.arange(epochs) + 0.5, run.losses(epochs), label=run.label, **style)
        accuracies.plot(np.arange(1, epochs + 1), 100 * np.array(run.accuracies[1:]), marker="o", markersize=3, **style)
        if run.snr:
            place = narrow.index(run) - (len(narrow) - 1) / 2
            errors.bar(np.arange(len(LAYERS)) + place * width, np.median(run.snr, axis=0), 0.9 * width,
                       facecolor="white" if plain else colour, edgecolor=colour, hatch="///" if plain else "")
    losses.set(xlabel="epoch", ylabel="mean cross-entropy of an epoch", title="Training loss", yscale="log")
    accuracies.set(xlabel="epoch", ylabel="recognised (%)", title="Held-back images", ylim=(84, 100.4))
    for axes in (losses, accuracies):
        axes.locator_params(axis="x", integer=True)
    errors.set(ylabel="median signal-to-noise ratio (dB)", title="Weight gradients against float32")
    errors.set_xticks(range(len(LAYERS)), LAYERS)
    for axes in (losses, accuracies, errors):
        axes.grid(alpha=0.3)
        axes.set_axisbelow(True)
        axes.title.set_fontsize(11)
    figure.legend(*losses.get_legend_handles_labels(), loc="outside lower center", ncols=len(runs), frameon=False,
                  title=title)
    figure.savefig(path, dpi=90)


def results_table(runs: list[Run], epochs: int) -> list[str]:
    """Return a line per run: loss scale, accuracy, loss, and the median error of every layer's gradient."""
    cells = [["gradients in", "loss scale", "accuracy", "loss", *(f"{layer} dB" for layer in LAYERS), "ms a step"]]
    for run in runs:
        snr = [f"{ratio:.1f}" for ratio in np.median(run.snr, axis=0)] if run.snr else ["-"] * len(LAYERS)
        cells.append([
            run.format, "-" if run.loss_scale is None else f"{run.loss_scale:g}", f"{run.accuracies[-1]:.1%}",
            f"{run.losses(epochs)[-1]:.3f}", *snr, f"{1000 * run.seconds / len(run.step_losses):.1f}"])
    return aligned(cells)


def runs_of(options: argparse.Namespace) -> list[Run]:
    """Return what to train: 8-bit formats without a loss scale, and with the given or (0) the best one."""
    runs = []
    for name in options.formats:
        bits = convreg.formats()[name].bits
        scales: list[float | None] = [None] if name == "float32" else [1.0] if bits > 8 else [1.0, options.loss_scale]
        runs += [Run(name, scale) for scale in dict.fromkeys(scales)]
    return runs


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--picture", type=Path, default=Path("digits.png"))
    parser.add_argument("--formats", type=lambda text: text.split(","), default=list(FORMATS), metavar="NAME,...",
                        help=f"formats of the gradients (default {','.join(FORMATS)})")
    parser.add_argument("--forward-in-format", action="store_true",
                        help="round the operands of the forward pass too (default: forward in float32)")
    parser.add_argument("--loss-scale", type=float, default=0, metavar="S",
                        help="of 8-bit formats beside 1 (default: the power of two that suits the first batch best)")
    options = parser.parse_args(arguments)
    known = [name for name, format in convreg.formats().items() if format.bits <= 16] + ["float32"]
    if unknown := [name for name in options.formats if name not in known]:
        parser.error(f"no gradients in {', '.join(unknown)}; allowed: {', '.join(known)}")
    if options.epochs < 1 or options.seed < 0:
        parser.error("--epochs takes numbers from 1 on, --seed from 0 on")
    if not 0 <= options.loss_scale < math.inf:
        parser.error("--loss-scale takes finite numbers from 0 on; 0 means the default")
    try:
        picture_format(str(options.picture), "demo", "--picture")  # before the work, not after it
    except convreg.GraphError as error:
        sys.exit(f"train.py draws its curves: {error}")

    models = {name: building.build(name, forward_in_format=options.forward_in_format) for name in options.formats}
    models["float32"] = onnx.load(MODEL)
    runs = runs_of(options)
    for run in runs:
        train_format(run, options, models)
    title = f"forward pass in {'the format' if options.forward_in_format else 'float32'}, gradients in"
    draw(options.picture, options.epochs, runs, title)

    training, held_back = load_digits(np.random.default_rng(options.seed))
    parameters = sum(value.size for name, value in initial_state(models["float32"], np.random.default_rng()).items()
                     if not name.endswith(".velocity"))
    print("\n".join([title.split(",")[0], *results_table(runs, options.epochs), ""]))
    rows = {
        "parameters": f"{parameters:,}",
        "images": f"{len(training.labels):,} to train, {len(held_back.labels)} held back",
        "steps": f"{len(runs[0].step_losses):,} of {BATCH} images",
        "time": f"{sum(run.seconds for run in runs):.1f} s",
        "held-back accuracy": f"{runs[0].accuracies[-1]:.1%} with gradients in {runs[0].format}",
        "picture": str(options.picture),
    }
    for name, value in rows.items():
        print(f"{name:<20}{value}")


if __name__ == "__main__":
    main()
