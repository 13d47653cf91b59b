"""Kernel calls noted instead of made: what an operator would compute, and what memory that would take."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from .binding import bind
from .derive import Operator, kernels, reader_of, thread_count
from .outputs import Array, allocate
from .registry import resolve


class Recorder(ABC):
    """Stands in for the module of kernels, with the same four functions; `note` gets each call."""

    @abstractmethod
    def note(self, kernel: str, operands: tuple[Array, Array, Array], settings: dict[str, Any]) -> None:
        """Take one call: the kernel's name, its operands in its order (the last is written) and its keywords."""

    def forward(self, large: Array, taps: Array, small: Array, **settings: Any) -> None:
        """Note a convolution."""
        self.note("forward", (large, taps, small), settings)

    def backward_data(self, small: Array, taps: Array, large: Array, **settings: Any) -> None:
        """Note a data gradient."""
        self.note("backward_data", (small, taps, large), settings)

    def backward_weights(self, large: Array, small: Array, taps: Array, **settings: Any) -> None:
        """Note a weights gradient."""
        self.note("backward_weights", (large, small, taps), settings)

    def bias_sum(self, small: Array, bias: Array, *, formats: tuple[str, str], threads: int = 0) -> None:
        """Note a bias gradient as the weights gradient that computes it."""
        operands = kernels().bias_operands(small, bias, formats[0])
        self.note_ones(operands[0])
        self.note("backward_weights", operands,
                  {**kernels().BIAS_GEOMETRY, "formats": (formats[0], *formats), "threads": threads})

    def note_ones(self, ones: Array) -> None:  # noqa: B027 - most recorders do not care
        """Take the large side of ones that a bias gradient is computed with, ahead of the call."""


class _Workspace(Recorder):
    """Asks the engine what each call would allocate."""

    largest = 0

    def note(self, kernel: str, operands: tuple[Array, Array, Array], settings: dict[str, Any]) -> None:
        settings = {name: value for name, value in settings.items() if name != "bias"}
        self.largest = max(self.largest, kernels().engine.workspace_bytes(kernel, *operands, **settings))


def workspace_bytes(operator: str | Operator, *args: Any, **kwargs: Any) -> int:
    """Return the bytes that a call's kernels would allocate beyond inputs and outputs; nothing is computed.

    Parameters
    ----------
    operator : str or function
        As for `get`, or the function itself.
    *args, **kwargs
        The arguments of the call; the values of its arrays do not matter, their strides do.

    Returns
    -------
    int
        For all threads together. Operands that an operator itself converts, as Ascend's roundings ask, come on top.

    Raises
    ------
    OpError
        As the call would.
    """
    function = resolve(operator)
    tensors, attributes, conformance, out, threads = reader_of(function.spec)(args, kwargs)
    bound = bind(function.spec, tensors, attributes, conformance=conformance, out=out)
    workers = thread_count(bound.call, threads) or kernels().default_threads()
    outputs = allocate(bound.call, bound.plan, bound.outputs)
    recorder = _Workspace()
    function.spec.run(bound.plan, bound.inputs, outputs, recorder, workers)
    return recorder.largest
