"""The algorithms of the kernels: which one computes a call, what it was chosen over, and calls that name one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from .calls.recording import Recorder
from .calls.signature import Operator
from .errors import Asking, near_misses
from .guard import guarded
from .memory import Array
from .ops import kernels
from .partial_calls import record_call
from .presentation import aligned

ALGORITHM = "convreg::algorithm"


@dataclass(frozen=True)
class Candidate:
    """An algorithm that fits a call, with one of the units that may multiply in it.

    `cycles` is an estimate for all threads together; it orders algorithms and predicts no time. `workspace` is in
    bytes. `source` is the file of the algorithm in ``ops/kernels/engine``. `seconds` is the shortest time of the
    calls of this process that ran the algorithm on trial, or None. `unit` is "multiply-adds", "dot products" or
    "matrix unit"; an algorithm that fits with two of them is listed twice.
    """

    name: str
    cycles: float
    workspace: int
    source: str
    seconds: float | None = None
    unit: str = "multiply-adds"


@dataclass(frozen=True)
class Choice:
    """The algorithm for one kernel of a call, or for a part of it if the kernel divides it.

    `kernel` is forward, backward_data, backward_weights or bias_sum. `name` is the algorithm with the lowest estimate,
    or the fastest one once the calls of this process have tried several. `unit` is what multiplies in it, as of a
    `Candidate`. `candidates` are all algorithms that fit, the cheapest first.
    """

    kernel: str
    name: str
    unit: str
    isa: str
    threads: int
    products: float
    candidates: tuple[Candidate, ...]

    def __str__(self) -> str:
        """Return the choice and its candidates as a table."""
        lines = [["algorithm", "unit", "Mcycles", "ms", "KiB", "file"]]
        for one in self.candidates:
            taken = "-" if one.seconds is None else f"{one.seconds * 1e3:.3f}"
            lines.append([one.name, one.unit, f"{one.cycles / 1e6:.3f}", taken, f"{one.workspace / 1024:.0f}",
                          one.source])
        title = f"{self.kernel}: {self.name} ({self.unit}, {self.isa}, threads: {self.threads})"
        return "\n".join([title, *aligned(lines, words=2)])


class _Choices(Recorder):
    """Asks the engine which algorithm each call would take."""

    def __init__(self) -> None:
        self.found: list[Choice] = []
        self.kernel = ""

    def bias_sum(self, small: Array, bias: Array, *, formats: tuple[str, str], **settings: Any) -> None:
        self.kernel = "bias_sum"
        super().bias_sum(small, bias, formats=formats, **settings)
        self.kernel = ""

    def note(self, kernel: str, operands: tuple[Array, Array, Array], settings: dict[str, Any]) -> None:
        forced = None if self.kernel else kernels.forced_for(kernel)
        found = kernels.choices(kernel, operands, settings, forced)
        for name, unit, threads, products, fitting in found:
            candidates = sorted((Candidate(one, cycles, workspace, source, seconds, multiplying)
                                 for one, source, multiplying, cycles, workspace, seconds in fitting),
                                key=lambda one: one.cycles)
            self._add(Choice(self.kernel or kernel, name, unit, kernels.engine.isa(), threads, products,
                             tuple(candidates)))

    def _add(self, choice: Choice) -> None:
        """Keep one choice of those that are alike: of the largest part, with the products of all."""
        for index, other in enumerate(self.found):
            if (other.kernel, other.name, other.unit) == (choice.kernel, choice.name, choice.unit):
                largest = max(other, choice, key=lambda one: one.products)
                self.found[index] = replace(largest, products=other.products + choice.products)
                return
        self.found.append(choice)


@guarded(ALGORITHM)
def algorithm(operator: str | Operator, *args: Any, **kwargs: Any) -> list[Choice]:
    """Return the algorithm that computes a call and what it was chosen over, without computing anything.

    Parameters
    ----------
    operator : str or function
        As for `get`, or the function itself.
    *args, **kwargs
        The arguments of the call, or with ``pieces=`` those of `convreg.distributed.partial`. The strides of its
        arrays matter, their values do not.

    Returns
    -------
    list of Choice
        One for each kernel of the call, in the order of the computation. A kernel has several if it divides the call
        and the parts have different algorithms. The list is empty if the result has no elements. ``print(choice)``
        shows a table.

    Raises
    ------
    OpError
        As the call would.

    Notes
    -----
    The estimates depend on shapes, strides, formats, the instruction set and the number of threads. Calls that come
    again try the algorithms near the lowest estimate and then take the fastest, unless ``CONVREG_TRIALS=0``. The bits
    of the result depend on the values, the shapes and the formats alone. In bfloat16 and the 8-bit formats a call
    whose sums may become subnormal, or that has infinite numbers beside padding, is computed again with multiply-adds.
    """
    recorder = _Choices()
    record_call(ALGORITHM, operator, args, kwargs, recorder)
    return recorder.found


@guarded("convreg::force_algorithm")
@contextmanager
def force_algorithm(name: str) -> Iterator[None]:
    """Compute with a named algorithm in a ``with`` block; calls that it does not fit are refused.

    Parameters
    ----------
    name : str
        A name of `algorithm_names`. Those that begin with "weights_" apply to weights gradients, "reference" to all
        kernels, and the others to forward convolutions and data gradients. Kernels that a name does not apply to
        choose freely, as bias gradients do.

    Raises
    ------
    OpError
        For an unknown name. In the block, a call that the algorithm does not fit raises it too.

    Notes
    -----
    The block applies to calls of its thread or task. Nodes inside onnxruntime choose freely.
    """
    known = algorithm_names()
    ask = Asking("convreg::force_algorithm")
    if not isinstance(name, str):
        raise ask.refuse("name", name, " or ".join(map(repr, known)), wrong_type=True)
    if name not in known:
        near = near_misses(name, known)
        hint = f"did you mean {' or '.join(near)}? " if near else ""
        raise ask.refuse("name", name, hint + " or ".join(map(repr, known)))
    token = kernels.FORCED.set(name)
    try:
        yield
    finally:
        kernels.FORCED.reset(token)


@guarded("convreg::algorithm_names")
def algorithm_names() -> list[str]:
    """Return the names of all algorithms. "reference" is the plain loops that define the bits.

    Returns
    -------
    list of str
        Each is an argument of `force_algorithm`.
    """
    return list(kernels.engine.algorithm_names())
