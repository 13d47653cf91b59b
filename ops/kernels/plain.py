"""The plain loops of `reference.pyx`, called as the engine's kernels are: on the default threads, also after a fork."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from . import reference
from .threads import run


def _compute(kernel: Callable[..., None], *arrays: Any, threads: int = 0, **settings: Any) -> None:
    run(kernel, arrays, threads, settings)


forward = partial(_compute, reference.forward)
backward_data = partial(_compute, reference.backward_data)
backward_weights = partial(_compute, reference.backward_weights)
bias_sum = partial(_compute, reference.bias_sum)
