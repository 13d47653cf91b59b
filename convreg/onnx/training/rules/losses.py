"""Losses over class labels."""

from __future__ import annotations

import numpy as np

from ..rule_registry import gradient_of
from ..step import Step
from ..value import Value


def _weight_of_labels(step: Step, labels: Value) -> tuple[Value | None, Value]:
    """Return the weight of every label, None where all are 1, and the labels with ignored ones replaced by 0."""
    ignored = step.attribute("ignore_index")
    kept = None
    if ignored is not None:
        hit = labels.equal(step.writer.scalar(ignored, labels.dtype))
        labels = hit.where(step.writer.scalar(0, labels.dtype), labels)
        kept = hit.apply("Not", dtype=np.bool_).cast(step.x.dtype)
    if not step.has(2):
        return kept, labels
    weight = step.input(2).apply("Gather", labels, axis=0)
    return (weight if kept is None else weight * kept), labels


def _share(step: Step, g: Value, weight: Value | None, labels: Value) -> Value:
    """Return what each label's term is multiplied by, of the labels' shape or a scalar."""
    reduction = step.attribute("reduction", "mean")
    if reduction == "mean":
        if weight is None:
            return g / step.writer.add("Size", labels).cast(g.dtype)
        g = g / weight.sum(None, keepdims=False)
    return g if weight is None else weight * g


def _one_hot(step: Step, labels: Value) -> Value:
    shape = step.x.shape
    number = shape[1] if shape is not None else None
    known = isinstance(number, int)
    classes = step.writer.constant(np.asarray(number, np.int64)) if known else step.x.extent(1).reshape([])
    kind = step.x.dtype if step.x.dtype.kind == "f" else np.dtype(np.float32)  # OneHot has no bfloat16
    pair = step.writer.constant(np.asarray([0, 1], kind))
    return step.writer.add("OneHot", labels, classes, pair, axis=1, dtype=kind).cast(step.x.dtype)


def _beside_classes(step: Step, share: Value) -> Value:
    """Insert the axis of classes, where the share is one per label."""
    alone = step.attribute("reduction", "mean") != "none" and not step.has(2) and step.attribute("ignore_index") is None
    return share if alone else share.unsqueeze([1])


@gradient_of("SoftmaxCrossEntropyLoss", inputs=(0,))
def softmax_cross_entropy(step: Step) -> Value | None:
    """``(softmax - one-hot) weight g``; a gradient of the log-probabilities passes as through LogSoftmax."""
    logarithm = step.output(1, step.x.dtype, step.x.shape)
    softmax = logarithm.apply("Exp")
    made: Value | None = None
    if step.grads[0] is not None:
        weight, labels = _weight_of_labels(step, step.input(1))
        share = _beside_classes(step, _share(step, step.grads[0], weight, labels))
        made = (softmax - _one_hot(step, labels)) * share
    second = step.grads[1] if len(step.grads) > 1 else None
    if second is not None:
        beside = second - softmax * second.sum([1])
        made = beside if made is None else made + beside
    return made


@gradient_of("NegativeLogLikelihoodLoss", inputs=(0,))
def negative_log_likelihood(step: Step) -> Value:
    """``-one-hot weight g``."""
    weight, labels = _weight_of_labels(step, step.input(1))
    return _one_hot(step, labels) * -_beside_classes(step, _share(step, step.g, weight, labels))
