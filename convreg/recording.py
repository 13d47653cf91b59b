"""Kernel calls that are recorded and not computed: what an operator would compute, and the memory it needs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from .binding import bind
from .derive import Operator, kernels, reader_of, thread_count
from .errors import OpError
from .guard import failure, guarded
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


@guarded("convreg::workspace_bytes")
def workspace_bytes(operator: str | Operator, *args: Any, **kwargs: Any) -> int:
    """Return the bytes that a call allocates beyond its inputs and outputs, without computing anything.

    Parameters
    ----------
    operator : str or function
        As for `get`, or the function itself.
    *args, **kwargs
        The arguments of the call. The strides of its arrays matter, their values do not.

    Returns
    -------
    int
        The sum over all threads. It does not include operands that the operator converts first, such as Ascend's
        roundings.

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
    try:
        function.spec.run(bound.plan, bound.inputs, outputs, recorder, workers)
    except (OverflowError, MemoryError, OpError) as error:
        raise failure(bound.call, error) from None
    return recorder.largest
