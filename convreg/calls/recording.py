"""Kernel calls that are recorded and not computed: what an operator would compute."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from ..geometry import Window
from ..memory import Array
from ..ops import kernels
from ..ops.kernels import bias_gradient


class Recorder(ABC):
    """Stands in for the module of kernels, with the same four functions; `note` gets each call."""

    @abstractmethod
    def note(self, kernel: str, operands: tuple[Array, Array, Array], settings: dict[str, Any]) -> None:
        """Take one call: the kernel's name, its operands in its order (the last is written) and its keywords."""

    def forward(self, large: Array, taps: Array, small: Array, window: Window, **settings: Any) -> None:
        """Note a convolution."""
        self.note("forward", (large, taps, small), {**window.keywords, **settings})

    def backward_data(self, small: Array, taps: Array, large: Array, window: Window, **settings: Any) -> None:
        """Note a data gradient."""
        self.note("backward_data", (small, taps, large), {**window.keywords, **settings})

    def backward_weights(self, large: Array, small: Array, taps: Array, window: Window, **settings: Any) -> None:
        """Note a weights gradient."""
        self.note("backward_weights", (large, small, taps), {**window.keywords, **settings})

    def bias_sum(self, small: Array, bias: Array, *, formats: tuple[str, str], **settings: Any) -> None:
        """Note a bias gradient as the weights gradient that computes it."""
        operands, window = bias_gradient(small, bias, formats)
        self.note_ones(operands[0])
        self.note("backward_weights", operands, {**window.keywords, **settings})

    def note_ones(self, ones: Array) -> None:  # noqa: B027 - most recorders do not care
        """Take the large side of ones that a bias gradient is computed with, ahead of the call."""


class Fitting(Recorder):
    """Refuses a call if an algorithm that the caller forces does not fit one of its kernels."""

    def bias_sum(self, small: Array, bias: Array, *, formats: tuple[str, str], **settings: Any) -> None:
        """Accept a bias gradient, which chooses freely."""

    def note(self, kernel: str, operands: tuple[Array, Array, Array], settings: dict[str, Any]) -> None:
        """Raise OverflowError if the algorithm does not fit."""
        kernels.choices(kernel, operands, settings, kernels.forced_for(kernel))
