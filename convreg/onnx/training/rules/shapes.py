"""Operators that move elements as they are, and conversions of the element type."""

from __future__ import annotations

import numpy as np

from ..rule_registry import Gradients, gradient_of
from ..step import Step
from ..value import Value


def _same_elements(step: Step) -> Value:
    return step.g.reshaped_like(step.x)


@gradient_of("Identity")
def identity(step: Step) -> Value:
    """``g``."""
    return step.g


@gradient_of("Reshape")
def reshape(step: Step) -> Value:
    """``g`` in the input's shape."""
    return _same_elements(step)


@gradient_of("Flatten")
def flatten(step: Step) -> Value:
    """``g`` in the input's shape."""
    return _same_elements(step)


@gradient_of("Squeeze")
def squeeze(step: Step) -> Value:
    """``g`` in the input's shape."""
    return _same_elements(step)


@gradient_of("Unsqueeze")
def unsqueeze(step: Step) -> Value:
    """``g`` in the input's shape."""
    return _same_elements(step)


@gradient_of("Transpose")
def transpose(step: Step) -> Value:
    """``g`` under the inverse permutation."""
    order = step.attribute("perm")
    if order is None:
        return step.writer.add("Transpose", step.g)
    return step.g.transpose([int(axis) for axis in np.argsort(order)])


@gradient_of("Expand")
def expand(step: Step) -> Value:
    """``g`` summed over what was repeated."""
    return step.summed(step.g, 0)


@gradient_of("Cast")
def cast(step: Step) -> Value:
    """``g`` in the input's element type."""
    return step.g.cast(step.x.dtype)


@gradient_of("CastLike", inputs=(0,), constants=(1,))
def cast_like(step: Step) -> Value:
    """``g`` in the input's element type."""
    return step.g.cast(step.x.dtype)


@gradient_of("Concat")
def concat(step: Step) -> Gradients:
    """The parts of ``g``."""
    axis, inputs = step.attribute("axis", 0), step.inputs()
    if len(inputs) == 1:
        return [step.g]
    sizes = [value.extent(_from_front(step, axis, value)) for value in inputs if value is not None]
    lengths = [value.shape for value in sizes]
    assert all(length == (1,) or length is None for length in lengths)
    known = [value.shape[axis] if value is not None and value.shape is not None else None for value in inputs]
    split = (step.writer.integers([extent for extent in known if isinstance(extent, int)])
             if all(isinstance(extent, int) for extent in known) else step.writer.concat(sizes))
    parts = step.writer.add_many("Split", [step.g, split], len(inputs), axis=axis)
    return [part if wanted else None for part, wanted in zip(parts, step.wanted, strict=True)]


def _from_front(step: Step, axis: int, value: Value) -> int:
    return axis + step.rank(value) if axis < 0 else axis


@gradient_of("Split")
def split(step: Step) -> Value:
    """The gradients of the parts joined, zeros where a part has none."""
    parts = []
    for index, g in enumerate(step.grads):
        if g is None:
            like = step.output(index, step.x.dtype)
            g = step.writer.scalar(0, step.x.dtype).expand(like.extents())
        parts.append(g)
    return step.writer.concat(parts, axis=step.attribute("axis", 0))
