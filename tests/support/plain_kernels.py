"""The plain loops of `reference.pyx`, called as `convreg.ops.kernels` is: on the default threads, also after a fork."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from convreg.ops.kernels import reference
from convreg.ops.kernels.threads import run

from convreg.geometry import Window


def _compute(
    kernel: Callable[..., None], first: Any, second: Any, result: Any, window: Window, *, bias: Any = None,
    threads: int = 0,
) -> None:
    settings = window.keywords if bias is None else {**window.keywords, "bias": bias}
    run(kernel, (first, second, result), threads, settings)


forward = partial(_compute, reference.forward)
backward_data = partial(_compute, reference.backward_data)
backward_weights = partial(_compute, reference.backward_weights)


def bias_sum(small: Any, bias: Any, *, formats: tuple[str, str], threads: int = 0) -> None:
    """Write bias, the sums of small over batch and space."""
    run(reference.bias_sum, (small, bias), threads, {"formats": formats})
