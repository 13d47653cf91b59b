"""The operands and the clock of a timed call, and the process in which `convreg bench --against` times one build.

``python worker.py`` reads one JSON object a line and answers each with one: which build to import, which call to
prepare, how long to run it. It needs nothing of the build but its oneDNN functions, so that older builds can be timed.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple


class Turn(NamedTuple):
    """Some runs of a call one after the other: the shortest and all of them in seconds, and their number."""

    best: float
    spent: float
    runs: int


def take_turn(call: Callable[[], Any], seconds: float) -> Turn:
    """Run a call once, and again until this time has passed; the garbage collector waits."""
    best, spent, runs = float("inf"), 0.0, 0
    collecting = gc.isenabled()
    gc.disable()
    try:
        while not runs or spent < seconds:
            start = time.perf_counter()
            call()
            taken = time.perf_counter() - start
            best, spent, runs = min(best, taken), spent + taken, runs + 1
    finally:
        if collecting:
            gc.enable()
    return Turn(best, spent, runs)


def uniform(shape: Sequence[int], seed: int, format: str, quantize: Callable[..., Any]) -> Any:
    """Return an array in [-1, 1), rounded to a number format; `quantize` is convreg's, for a format NumPy lacks."""
    import ml_dtypes  # noqa: F401  its formats get names in NumPy
    import numpy as np

    values = np.random.default_rng(seed).random(tuple(shape), np.float32)
    values *= 2
    values -= 1
    return quantize(values, format) if format == "hifloat8" else values.astype(format, copy=False)


class Worker:
    """What the process holds: a build, and the call that it prepared last."""

    build: Any = None
    call: Callable[[], Any]

    def open(self, folder: str) -> dict[str, Any]:
        """Import the build in a folder and return its instruction set."""
        import ml_dtypes  # noqa: F401  both builds use the packages of this Python, not those of the folder
        import numpy  # noqa: F401

        sys.path.insert(0, folder)
        import convreg

        sys.path.remove(folder)
        found = Path(str(convreg.__file__)).resolve()
        if Path(folder).resolve() not in found.parents:
            raise ImportError(f"convreg is imported from {found}")
        self.build = convreg
        known: dict[str, Any] = getattr(convreg, "capabilities", dict)()
        return {"isa": str(known.get("isa", "unknown"))}

    def prepare(self, function: str, operands: list[dict[str, Any]], settings: dict[str, Any]) -> dict[str, Any]:
        """Make the operands, run the call once and return a hash of the result's bytes."""
        self.call = int  # the last call's operands are freed first
        arrays = [uniform(quantize=self._quantize, **operand) for operand in operands]
        operator = getattr(self.build.onednn, function)
        self.call = lambda: operator(*arrays, **settings)
        return {"digest": hashlib.sha256(self.call().tobytes()).hexdigest()}

    def _quantize(self, values: Any, format: str) -> Any:
        return self.build.quantize(values, format)

    def turn(self, seconds: float) -> dict[str, Any]:
        """Run the call for a while."""
        return take_turn(self.call, seconds)._asdict()


def serve() -> None:
    """Answer requests until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    own = Path(__file__).resolve().parent
    sys.path[:] = [path for path in sys.path if Path(path).resolve() != own]  # modules here are no top-level ones
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)  # what the build prints is no answer
        worker = Worker()
        for line in sys.stdin:
            request = json.loads(line)
            try:
                answer = getattr(worker, request.pop("do"))(**request)
            except Exception as error:  # of a build that may raise anything
                answer = {"error": f"{type(error).__name__}: {error}"}
            print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    serve()
