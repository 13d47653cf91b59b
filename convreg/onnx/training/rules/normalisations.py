"""Normalisations. All are ``x_hat = (x - mean) rstd``, scaled and shifted; they differ in the axes of the mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..batch_norm import is_training, use_batch_statistics
from ..rule_registry import Gradients, gradient_of
from ..step import Step
from ..value import Value


def _per_channel(value: Value, rank: int) -> Value:
    """One number per channel beside channel-first data."""
    return value.reshape([-1, *[1] * (rank - 2)]) if rank > 2 else value


@gradient_of("BatchNormalization", inputs=(0, 1, 2), outputs=(0,), constants=(3, 4))
def batch_normalization(step: Step) -> Gradients:
    """``s rstd (g - mean(g) - x_hat mean(g x_hat))`` over the batch, or with running statistics ``g s rstd``.

    Both are batch normalisations themselves, with other means and scales: one node where arithmetic takes several.
    """
    x, scale, g = step.x, step.input(1), step.g
    rank = step.rank(x)
    axes = [0, *range(2, rank)]
    training = is_training(step.node)
    if training:
        use_batch_statistics(step.node, step.writer)
    mean, variance = step.input(3), step.input(4)
    made: list[Value | None] = [None, None, None]
    total = g.sum(axes, keepdims=False)
    if step.wants(2):
        made[2] = total.cast(scale.dtype)
    if step.wants(1) or (training and step.wants(0)):
        x_hat = _normalised(step, x, None, mean, variance)
        product = (g * x_hat).sum(axes, keepdims=False)
        if step.wants(1):
            made[1] = product.cast(scale.dtype)
    if step.wants(0) and training:
        count = step.count(x, axes)
        rest = g - x_hat * _per_channel(product / count, rank)
        made[0] = _normalised(step, rest, scale, (total / count).cast(mean.dtype), variance)
    elif step.wants(0):
        made[0] = _normalised(step, g, scale, None, variance)
    return made


def _normalised(step: Step, value: Value, scale: Value | None, mean: Value | None, variance: Value) -> Value:
    """``scale (value - mean) / sqrt(variance + epsilon)`` per channel, with the node's epsilon."""
    count = step.extents(step.input(1))
    ones, zeros = (step.writer.constant(np.full(count, number, step.input(1).dtype)) for number in (1, 0))
    middle = step.writer.constant(np.zeros(count, variance.dtype)) if mean is None else mean
    return value.apply("BatchNormalization", ones if scale is None else scale, zeros, middle, variance,
                       epsilon=float(step.attribute("epsilon", 1e-5)))


def _through(x_hat: Value, rstd: Value, gradient: Value, axes: Sequence[int]) -> Value:
    """The gradient of x from that of x_hat."""
    return rstd * (gradient - gradient.mean(axes) - x_hat * (gradient * x_hat).mean(axes))


def _standardised(x: Value, axes: Sequence[int], epsilon: float) -> tuple[Value, Value]:
    """Return x_hat and rstd."""
    centred = x - x.mean(axes)
    rstd = ((centred * centred).mean(axes) + epsilon).apply("Sqrt").apply("Reciprocal")
    return centred * rstd, rstd


@gradient_of("InstanceNormalization")
def instance_normalization(step: Step) -> Gradients:
    """Statistics over the spatial axes of every sample and channel."""
    x, scale, g = step.x, step.input(1), step.g
    rank = step.rank(x)
    space, others = list(range(2, rank)), [0, *range(2, rank)]
    x_hat, rstd = _standardised(x, space, step.attribute("epsilon", 1e-5))
    return [_through(x_hat, rstd, g * _per_channel(scale, rank), space) if step.wants(0) else None,
            (g * x_hat).sum(others, keepdims=False) if step.wants(1) else None,
            g.sum(others, keepdims=False) if step.wants(2) else None]


@gradient_of("GroupNormalization")
def group_normalization(step: Step) -> Gradients:
    """Statistics over the channels of a group and space; the scale is per channel."""
    x, scale, g = step.x, step.input(1), step.g
    groups = step.attribute("num_groups")
    [channels] = step.extents(x, [1])
    grouped, of_scale = [0, groups, channels // groups, -1], [1, groups, channels // groups, 1]
    x_hat, rstd = _standardised(x.reshape(grouped), [2, 3], step.attribute("epsilon", 1e-5))
    g = g.reshape(grouped)
    made: list[Value | None] = [None, None, None]
    if step.wants(0):
        made[0] = _through(x_hat, rstd, g * scale.reshape(of_scale), [2, 3]).reshaped_like(x)
    for index, gradient in ((1, g * x_hat), (2, g)):
        if step.wants(index):
            made[index] = gradient.sum([0, 3], keepdims=False).reshape([-1])
    return made


def _layer(step: Step, axes: Sequence[int]) -> tuple[Value, Value]:
    """Return x_hat and rstd of a LayerNormalization, which makes both itself in float32."""
    x, scale, epsilon = step.x, step.input(1), float(step.attribute("epsilon", 1e-5))
    if x.dtype != np.float32 or scale.shape is None or not all(isinstance(extent, int) for extent in scale.shape):
        return _standardised(x, axes, epsilon)
    ones = step.writer.constant(np.ones(step.extents(scale), x.dtype))
    x_hat, rstd = step.writer.add_many("LayerNormalization", [x, ones], [True, False, True], axis=axes[0],
                                       epsilon=epsilon)
    return x_hat, rstd


@gradient_of("LayerNormalization")
def layer_normalization(step: Step) -> Gradients:
    """Statistics over the axes from `axis` on; scale and bias may broadcast."""
    x, scale, g = step.x, step.input(1), step.g
    rank = step.rank(x)
    axes = list(range(step.attribute("axis", -1) % rank, rank))
    x_hat, rstd = _layer(step, axes)
    return [_through(x_hat, rstd, g * scale, axes) if step.wants(0) else None,
            step.summed(g * x_hat, 1) if step.wants(1) else None,
            step.summed(g, 2) if step.wants(2) else None]


@gradient_of("LpNormalization")
def lp_normalization(step: Step) -> Value:
    """``(g - d sum(g y)) / norm``, where d is y for the norm of squares and sign(x) for that of magnitudes."""
    x, axes, order = step.x, [step.attribute("axis", -1)], step.attribute("p", 2)
    norm = x.apply("ReduceL2" if order == 2 else "ReduceL1", step.writer.integers(axes), keepdims=1)
    direction = step.y if order == 2 else x.apply("Sign")
    return (norm > 0).where((step.g - direction * (step.g * step.y).sum(axes)) / norm, 0)


@gradient_of("LRN")
def local_response_normalization(step: Step) -> Value:
    """``g d^-beta - x 2 alpha beta / size S(g x d^(-beta-1))``, S the sum over channels whose window has the own."""
    x, size, beta = step.x, step.attribute("size"), float(step.attribute("beta", 0.75))
    share = float(step.attribute("alpha", 1e-4)) / size
    [channels] = step.extents(x, [1])
    distance = np.arange(channels)[None, :] - np.arange(channels)[:, None]  # of the element read from the result
    window = ((distance >= -((size - 1) // 2)) & (distance <= size // 2)).astype(x.dtype)

    def summed(matrix: np.ndarray[Any, Any], value: Value) -> Value:
        rows = step.writer.constant(np.ascontiguousarray(matrix)).apply("MatMul", value.reshape([0, channels, -1]))
        return rows.reshaped_like(x)

    d = summed(window, x * x) * share + float(step.attribute("bias", 1.0))
    scaled = step.g * d ** -beta
    return scaled - x * summed(window.T, scaled * x / d) * (2 * beta * share)
