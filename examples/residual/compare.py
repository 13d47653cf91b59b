"""Run two training steps in every engine, compare results and times, and translate one step between all dialects.

The steps are this folder's residual block and the network of ../digits. Every engine gets the same inputs. The largest
difference from ``convreg.onnx.run``, relative to the largest element of each output, must be float32 rounding. The
translations use inputs whose sums are exact in any order, so the bits of their results must be equal.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import inliner

import convreg.onnx

HERE = Path(__file__).resolve().parent
MODELS = {"digits": HERE.parent / "digits" / "training_step.onnx", "residual": HERE / "training_step.onnx"}
ROUNDING = 1e-5
"""Allowed difference between two orders of summation, a multiple of what float32 rounds (6e-8)."""
TOURS = (("onednn", "ascend", "aten", "onednn"), ("onednn", "openvino", "onednn"), ("onnx",))
TURN = 0.05
"""Seconds of one turn of an engine: threads of the engine before it still spin during the first few calls."""

Array = np.ndarray[Any, Any]
Feeds = dict[str, Array]
Runner = Callable[[Feeds], Feeds]


class Absent(Exception):
    """A runtime that is not installed."""


def inputs_of(model: onnx.ModelProto, batch: int, rng: np.random.Generator, *, exact: bool = False) -> Feeds:
    """Return an input for each that the model declares.

    Integers are below 10, as labels are. Floats are normal, and divided by the root of the number of terms that a
    kernel's taps are summed over; exact ones are -1/2, 0 and 1/2. Scalars (learning rate, momentum) are large and
    velocities zero, so that what leaves the update is the gradient and not the parameter.
    """
    feeds = {}
    for value in model.graph.input:
        tensor = value.type.tensor_type
        shape = [dim.dim_value or batch for dim in tensor.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        if dtype.kind in "iu":
            array: Array = rng.integers(0, 10, shape)
        elif not shape:
            array = np.array(1024)
        elif value.name.endswith(".velocity"):
            array = np.zeros(shape)
        elif exact:
            array = rng.choice([-0.5, 0, 0.5], shape, p=[0.2, 0.6, 0.2])
        else:
            array = rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]) if value.name.endswith(".weight") else 1)
        feeds[value.name] = np.asarray(array, dtype)
    return feeds


def installed(package: str) -> Any:
    """Return a package, or raise `Absent`."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        raise Absent(package) from error


def reference(model: onnx.ModelProto, feeds: Feeds) -> Runner:
    """convreg's own session."""
    return convreg.onnx.Session(model, engine="reference").run


def with_library(model: onnx.ModelProto, feeds: Feeds) -> Runner:
    """onnxruntime with convreg's operator library."""
    installed("onnxruntime")
    return convreg.onnx.Session(model, engine="onnxruntime").run


def lowered(model: onnx.ModelProto, feeds: Feeds) -> Runner:
    """Standard ONNX in an onnxruntime without anything of convreg's."""
    return plain_onnxruntime(convreg.onnx.lower(model))


def with_functions(model: onnx.ModelProto, feeds: Feeds) -> Runner:
    """Nodes with bodies in an onnxruntime without anything of convreg's."""
    return plain_onnxruntime(convreg.onnx.attach_functions(model))


def plain_onnxruntime(model: onnx.ModelProto) -> Runner:
    """A session that knows standard ONNX."""
    onnxruntime = installed("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # else a warning for every default value of the step's inputs
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    return lambda feeds: dict(zip(names, session.run(None, feeds), strict=True))


def openvino_inlined(model: onnx.ModelProto, feeds: Feeds) -> Runner:
    """OpenVINO, which takes functions after inlining, and the shapes of `feeds` before it compiles."""
    core = installed("openvino").Core()
    read = core.read_model(inliner.inline_local_functions(convreg.onnx.attach_functions(model)).SerializeToString())
    read.reshape({name: list(array.shape) for name, array in feeds.items()})
    compiled = core.compile_model(read, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    names = [value.name for value in model.graph.output]
    return lambda feeds: dict(zip(names, compiled(feeds).to_tuple(), strict=True))


WAYS: dict[str, Callable[[onnx.ModelProto, Feeds], Runner]] = {
    "convreg.onnx.run": reference,
    "onnxruntime with the library": with_library,
    "onnxruntime, lowered": lowered,
    "onnxruntime, functions": with_functions,
    "OpenVINO, functions inlined": openvino_inlined,
}


def difference(results: Feeds, expected: Feeds) -> float:
    """Return the largest difference, relative to the largest element of its output."""
    assert results.keys() == expected.keys()
    found = []
    for name, array in expected.items():
        assert results[name].shape == array.shape, name
        assert results[name].dtype == array.dtype, name
        apart = np.abs(results[name].astype(np.float64) - array.astype(np.float64)).max()
        found.append(apart / max(np.abs(array).max(), np.finfo(np.float32).tiny))
    return float(np.max(found))  # NaN if there is one, which Python's max would lose


def runners(model: onnx.ModelProto, feeds: Feeds) -> Iterator[tuple[str, Runner]]:
    """Make a model ready in each way whose runtime is installed."""
    for name, way in WAYS.items():
        try:
            yield name, way(model, feeds)
        except Absent as error:
            print(f"{name}: skipped, {error} is not installed", file=sys.stderr)


def compare(model: onnx.ModelProto, feeds: Feeds, rounds: int) -> dict[str, tuple[float, float]]:
    """Return each way's difference from the first one and its shortest time in seconds; the ways take turns."""
    ready = dict(runners(model, feeds))
    expected = ready["convreg.onnx.run"](feeds)
    found = {}
    for name, run in ready.items():
        apart = difference(run(feeds), expected)
        if not apart <= ROUNDING:
            sys.exit(f"{name}: results differ by {apart:.1e} of their largest element; allowed: {ROUNDING:.0e}")
        found[name] = apart
    shortest = dict.fromkeys(ready, np.inf)
    for _ in range(rounds):
        for name, run in ready.items():
            begin = now = time.perf_counter()
            while now < begin + TURN:
                before = now
                run(feeds)
                now = time.perf_counter()
                shortest[name] = min(shortest[name], now - before)
    return {name: (found[name], shortest[name]) for name in ready}


def tour(model: onnx.ModelProto, feeds: Feeds) -> Iterator[str]:
    """Translate from dialect to dialect, and say of each station that its results are equal bits."""
    expected = convreg.onnx.run(model, feeds, engine="reference")
    for stations in TOURS:
        stage = model
        for to in stations:
            stage = convreg.onnx.translate(stage, to, rest="lower" if to == "openvino" else "error")
            results = convreg.onnx.run(stage, feeds, engine="reference")
            for name, array in expected.items():
                if results[name].tobytes() != array.tobytes():
                    sys.exit(f"{' -> '.join(stations)}: {name} differs in {to}")
            yield f"{to} ({sum(entry.domain.startswith('convreg.') for entry in stage.graph.node)} nodes)"


def resident() -> int:
    """Return this process's resident memory in bytes."""
    pages = Path("/proc/self/statm")
    if not pages.exists():
        sys.exit("--steps reads the resident memory from /proc, which this system lacks")
    import resource

    return int(pages.read_text().split()[1]) * resource.getpagesize()


def walk(model: onnx.ModelProto, steps: int) -> tuple[int, int]:
    """Train with batches of 1 to 8 in onnxruntime; return resident memory after a tenth of the steps and at the end."""
    rng = np.random.default_rng(2)
    batches = [inputs_of(model, size, rng) for size in range(1, 9)]
    carried = [value.name.removesuffix(".next") for value in model.graph.output if value.name.endswith(".next")]
    state = {name: batches[0][name] for name in carried}
    run = with_library(model, batches[0])
    for step in range(steps):
        results = run({**batches[step % len(batches)], "learning_rate": np.array(0.05, np.float32), **state})
        state = {name: results[f"{name}.next"] for name in carried}
        if step == steps // 10:  # allocators and caches have taken what they take
            settled = resident()
    if not np.isfinite(results["loss"]):
        sys.exit(f"the loss is {results['loss']} after {steps} steps")
    return settled, resident()


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=20, help="turns of each way; its shortest run counts")
    parser.add_argument("--steps", type=int, default=0, help="also take so many steps and watch the memory")
    options = parser.parse_args(arguments)
    if min(options.batch, options.rounds) < 1 or options.steps < 0:
        parser.error("--batch and --rounds take numbers from 1 on, --steps from 0 on")

    rng = np.random.default_rng(0)
    models = {name: convreg.onnx.load(path) for name, path in MODELS.items()}
    found = {name: compare(model, inputs_of(model, options.batch, rng), options.rounds)
             for name, model in models.items()}
    print("| way | " + " | ".join(f"{name}, ms | difference" for name in found) + " |")
    print("|---" * (1 + 2 * len(found)) + "|")
    for way in found["residual"]:
        cells = [f"{seconds * 1e3:.2f} | {apart:.1e}" for apart, seconds in (column[way] for column in found.values())]
        print(f"| {way} | " + " | ".join(cells) + " |")

    exact = inputs_of(models["residual"], 4, rng, exact=True)
    print("equal bits in: " + ", ".join(tour(models["residual"], exact)))
    if options.steps > 0:
        try:
            settled, end = walk(models["residual"], options.steps)
        except Absent as error:
            sys.exit(f"--steps needs {error}, which is not installed")
        print(f"{options.steps} steps in onnxruntime: resident memory {settled / 2**20:.2f} MiB after a "
              f"tenth, {end / 2**20:.2f} MiB at the end")


if __name__ == "__main__":
    main()
