"""The limits of the machine: its measured peak rate per number format and its memory bandwidth."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from convreg.ops.kernels.threads import available

import convreg

from .check import make_case
from .peer import Peer, Unsupported
from .problems import problem_of

IDEAL = "mb1ic1024ih48oc1024kh1"
"""A layer that is one large matrix product and nothing else."""

COPY_BYTES = 2**27
REPETITIONS = 5

# numpy's library reads its number of threads once, when it is loaded, so it has a process of its own.
_MATMUL = """
import time, numpy
a = b = numpy.ones((1536, 1536), numpy.float32)
best = 1e9
for _ in range(6):
    start = time.perf_counter()
    a @ b
    best = min(best, time.perf_counter() - start)
print(2 * 1536 ** 3 / best)
"""
_THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS",
                     "VECLIB_MAXIMUM_THREADS")


class Identity(NamedTuple):
    """What distinguishes machines whose times must not be compared."""

    processor: str
    processors: int
    isa: str


def identity() -> Identity:
    """Return the processor, the number of processors that may be used, and the instruction set."""
    return Identity(_processor(), available(), str(convreg.capabilities()["isa"]))


@dataclass(frozen=True)
class Machine:
    """Rates in GFLOP/s by number format with who reached them, and bandwidth in GB/s."""

    processor: str
    processors: int
    isa: str
    peaks: Mapping[str, tuple[float, str]]
    bandwidth: float


def measure_machine(dtypes: Iterable[str], peers: Mapping[str, Peer], threads: int) -> Machine:
    """Measure the peak as the best rate of numpy's matrix product and of every library on the ideal layer."""
    peaks = {}
    for dtype in dtypes:
        rates = {f"{name} on {IDEAL}": rate for name, peer in peers.items() if (rate := _ideal(peer, dtype))}
        if dtype == "f32":
            rates["numpy.matmul"] = _matmul(threads)
        best = max(rates, key=lambda name: rates[name])
        peaks[dtype] = rates[best], best
    return Machine(*identity(), peaks, _bandwidth(threads))


def _ideal(peer: Peer, dtype: str) -> float:
    case = make_case(problem_of(IDEAL), "data", dtype, "ncx")
    try:
        call = peer.prepare(case).call
    except Unsupported:
        return 0.0
    return case.problem.gflop / best_of(call, REPETITIONS)


def best_of(call: Any, repetitions: int) -> float:
    """Return the shortest time of a call in seconds, after one that does not count."""
    call()
    times = []
    for _ in range(repetitions):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def _matmul(threads: int) -> float:
    environment = {**os.environ, **dict.fromkeys(_THREAD_VARIABLES, str(threads))}
    done = subprocess.run([sys.executable, "-c", _MATMUL], env=environment, capture_output=True, text=True, check=False)
    return float(done.stdout) / 1e9 if done.returncode == 0 else 0.0


def _bandwidth(threads: int) -> float:
    """GB/s of an array copy, bytes read and bytes written counted."""
    source, target = (np.ones(COPY_BYTES // 8) for _ in range(2))
    parts = [*zip(np.array_split(target, threads), np.array_split(source, threads), strict=True)]
    with ThreadPoolExecutor(threads) as pool:
        seconds = best_of(lambda: [*pool.map(lambda pair: np.copyto(*pair), parts)], REPETITIONS)
    return 2 * COPY_BYTES / seconds / 1e9


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text("utf-8", "replace").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
