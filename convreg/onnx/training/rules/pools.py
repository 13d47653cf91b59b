"""Pooling over windows."""

from __future__ import annotations

import numpy as np

from ..rule_registry import gradient_of
from ..step import Step
from ..value import Value


@gradient_of("MaxPool")
def max_pool(step: Step) -> Value:
    """``g`` added at the element that the window took: the first of those that tie."""
    if step.attribute("storage_order", 0):
        raise step.error("storage_order=1 is refused; allowed: 0, so that indices count in the order of the elements")
    x, indices = step.x, step.output(1, np.int64, step.y.shape)
    flat = step.writer.integers([-1])
    total = x.shape
    if total is not None and all(isinstance(extent, int) for extent in total):
        size = step.writer.integers([int(np.prod(np.asarray(total, np.int64)))])
    else:
        size = step.writer.add("Size", x).reshape([1])
    zeros = step.writer.scalar(0, x.dtype).expand(size)
    made = zeros.apply("ScatterElements", indices.reshape(flat), step.g.reshape(flat), axis=0, reduction="add")
    return made.reshaped_like(x)
