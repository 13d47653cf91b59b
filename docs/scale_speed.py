"""Measures a numerics sweep on a cluster beside one process: `python docs/scale_speed.py`.

Both compare the same layers in all formats, in turns: one process with as many threads as there are workers, and a
cluster of so many processes with one thread each. The workers are started, and have imported convreg, before the clock
starts. Prints the table of docs/scale.md: the shortest time of each, and the first over the second, which is the
throughput of the cluster over that of the process. Needs dask and distributed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

from convreg.distributed.cluster import Cluster
from convreg.errors import Asking
from convreg.numerics import Case, Drawn, sweep

LISTS = {"strides": [1, 1], "pads_begin": [1, 1], "pads_end": [1, 1], "dilations": [1, 1], "data_format": "NCX",
         "weights_format": "OIX"}
SHAPES = ((8, 64, 28), (8, 128, 14), (16, 32, 28), (4, 96, 21))
"""Batch, channels and extent of layers with a 3x3 kernel."""


def layers(count: int) -> dict[str, Case]:
    """Both gradients of layers, with operands that are drawn where they are needed."""
    cases = {}
    for number in range(count):
        batch, channels, extent = SHAPES[number // 2 % len(SHAPES)]
        image, taps = (batch, channels, extent, extent), (channels, channels, 3, 3)
        gradient = Drawn("lognormal", image, number)
        if number % 2:
            cases[f"layer {number} weights"] = Case(
                "onednn::ConvolutionBackwardWeights", [Drawn("relu", image, number + 1), gradient, taps], LISTS)
        else:
            cases[f"layer {number} data"] = Case(
                "onednn::ConvolutionBackwardData", [gradient, Drawn("normal", taps, number, 0.05), image], LISTS)
    return cases


def seconds(run: Callable[[], dict[str, Any]]) -> tuple[float, dict[str, Any]]:
    """Return how long a sweep takes, and its results."""
    begin = time.perf_counter()
    found = run()
    return time.perf_counter() - begin, found


def main() -> None:
    """Measure both in turns and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=24)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    cases, few = layers(options.cases), layers(2 * options.workers)
    best = dict.fromkeys(("process", "cluster"), float("inf"))
    with Cluster(f"local:{options.workers}", Asking("convreg::numerics")) as reached:
        client = reached.client
        sweep(few, client=client, formats=["bfloat16"])  # imports
        for _ in range(options.repeat):
            taken, here = seconds(lambda: sweep(cases, threads=options.workers))
            best["process"] = min(best["process"], taken)
            taken, there = seconds(lambda: sweep(cases, client=client, threads=1))
            best["cluster"] = min(best["cluster"], taken)
            if [found.to_json() for found in here.values()] != [found.to_json() for found in there.values()]:
                raise SystemExit("the results differ")
    print("| | seconds | cases a second |\n|---|---:|---:|")
    for name, words in (("process", f"one process, {options.workers} threads"),
                        ("cluster", f"{options.workers} workers, one thread each")):
        print(f"| {words} | {best[name]:.2f} | {options.cases / best[name]:.2f} |")
    print(f"| the cluster's throughput over the process's | | {best['process'] / best['cluster']:.2f} |")


if __name__ == "__main__":
    main()
