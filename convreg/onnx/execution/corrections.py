"""Standard nodes that onnx's reference implementations compute wrongly: computed here, or refused.

What is right follows ONNX's specification of the version that the model imports. Each entry was found by comparing the
reference implementations with the expected outputs of onnx's backend tests and with onnxruntime.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...errors import GraphError, shorten
from .pooling import average_pool, lp_pool, max_pool

Array = np.ndarray[Any, np.dtype[Any]]
Compute = Callable[..., tuple[Any, ...]]
"""``compute(attributes, outputs, *inputs)``, where `outputs` is the number of outputs that the node lists."""


Judge = Callable[[Mapping[str, Any], int, Sequence[Any]], str | None]
"""``judge(attributes, outputs, inputs)`` returns what of a node would be computed wrongly, or None."""


class Correction(NamedTuple):
    """What replaces or guards a reference implementation for versions of standard ONNX from `first` to `last`."""

    compute: Compute | None = None
    first: int = 1
    last: int = 1 << 30
    refused: Judge | None = None


def correction_of(op_type: str, version: int) -> Correction | None:
    """Return what a standard node of this type needs under a version of the standard operators, or None."""
    return next((entry for entry in CORRECTIONS.get(op_type, ()) if entry.first <= version <= entry.last), None)


def refusal(op_type: str, version: int, reason: str) -> GraphError:
    """Return the exception for a node that this engine does not compute rightly."""
    return GraphError(f"{op_type} of version {version} of standard ONNX with {reason} is refused by the reference "
                      "engine, which would compute it wrongly; engine='onnxruntime' computes it")


# ---------------------------------------------------------------------------------------------------------------------
# Nodes computed here


def _stated(attributes: Mapping[str, Any], name: str, default: Any) -> Any:
    """Return an attribute of a node, or its default where the node leaves it out."""
    return default if attributes.get(name) is None else attributes[name]


def _rows(x: Array, attributes: Mapping[str, Any]) -> Array:
    """Return a tensor as the matrix that Softmax and its relatives worked on before version 13."""
    axis = _stated(attributes, "axis", 1)
    if not -x.ndim <= axis <= x.ndim:
        raise GraphError(f"axis={axis} is refused; allowed: {-x.ndim} to {x.ndim}")
    axis += x.ndim if axis < 0 else 0
    return x.reshape(int(np.prod(x.shape[:axis])), int(np.prod(x.shape[axis:])))


def _softmax(attributes: Mapping[str, Any], outputs: int, x: Array) -> tuple[Any, ...]:
    rows = _rows(x, attributes)
    powers = np.exp(rows - rows.max(1, keepdims=True, initial=-np.inf))
    return ((powers / powers.sum(1, keepdims=True)).astype(x.dtype).reshape(x.shape),)


def _logarithms(x: Array, axis: int) -> Array:
    """Return the logarithms of the softmax along an axis: onnx's are infinite where the softmax underflows."""
    wide = x.astype(np.float32) if x.dtype.itemsize == 2 else x
    wide = wide - wide.max(axis, keepdims=True, initial=-np.inf)
    return wide - np.log(np.exp(wide).sum(axis, keepdims=True))


def _old_log_softmax(attributes: Mapping[str, Any], outputs: int, x: Array) -> tuple[Any, ...]:
    return (_logarithms(_rows(x, attributes), 1).astype(x.dtype).reshape(x.shape),)


def _log_softmax(attributes: Mapping[str, Any], outputs: int, x: Array) -> tuple[Any, ...]:
    return (_logarithms(x, _stated(attributes, "axis", -1)).astype(x.dtype),)


def _softmax_cross_entropy(
    attributes: Mapping[str, Any], outputs: int, x: Array, labels: Array, weight: Array | None = None
) -> tuple[Any, ...]:
    logarithms, classes, ignored = _logarithms(x, 1), x.shape[1], attributes.get("ignore_index")
    kept = np.ones(labels.shape, np.bool_) if ignored is None else labels != ignored
    wrong = labels[kept & ((labels < 0) | (labels >= classes))]
    if wrong.size:
        raise GraphError(f"the label {int(wrong[0])} is refused; allowed: 0 to {classes - 1}"
                         + ("" if ignored is None else f", and {ignored}, which is ignored"))
    places = np.where(kept, labels, 0)
    terms = -np.take_along_axis(logarithms, np.expand_dims(places, 1), 1).squeeze(1)
    share = kept.astype(terms.dtype) if weight is None else np.where(kept, weight[places], 0).astype(terms.dtype)
    loss = np.where(kept, terms, 0) * share
    reduction = attributes.get("reduction") or "mean"
    if reduction != "none":
        loss = np.asarray(loss.sum() / share.sum() if reduction == "mean" else loss.sum())
    return (loss.astype(x.dtype), logarithms.astype(x.dtype))[:outputs]


def _hardmax(attributes: Mapping[str, Any], outputs: int, x: Array) -> tuple[Any, ...]:
    rows = _rows(x, attributes)
    made = np.zeros_like(rows)
    if rows.size:
        made[np.arange(len(rows)), rows.argmax(1)] = 1
    return (made.reshape(x.shape),)


def _batch_normalization(
    attributes: Mapping[str, Any], outputs: int, x: Array, scale: Array, bias: Array, mean: Array, variance: Array
) -> tuple[Any, ...]:
    shape = (-1, *[1] * (x.ndim - 2))
    scale, bias, mean, variance = (value.reshape(shape) for value in (scale, bias, mean, variance))
    epsilon = np.asarray(attributes.get("epsilon", 1e-5), variance.dtype)
    return ((scale * (x - mean) / np.sqrt(variance + epsilon) + bias).astype(x.dtype),)


def _local_response_normalization(attributes: Mapping[str, Any], outputs: int, x: Array) -> tuple[Any, ...]:
    size, channels = attributes["size"], x.shape[1]
    squares = np.square(x, dtype=np.float64 if x.dtype == np.float64 else np.float32)
    sums = np.zeros_like(squares)
    for channel in range(channels):
        first, last = channel - (size - 1) // 2, channel + size // 2
        sums[:, channel] = squares[:, max(first, 0): last + 1].sum(1)
    alpha, beta, bias = (attributes.get(name, default) for name, default in
                         (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0)))
    return ((x / (bias + alpha / size * sums) ** beta).astype(x.dtype),)


def _lp_normalization(attributes: Mapping[str, Any], outputs: int, x: Array) -> tuple[Any, ...]:
    axis, p = _stated(attributes, "axis", -1), _stated(attributes, "p", 2)
    if p not in (1, 2):
        raise GraphError(f"p={p} is refused; allowed: 1 or 2")
    norm = np.abs(x).sum(axis, keepdims=True) if p == 1 else np.sqrt(np.square(x).sum(axis, keepdims=True))
    return (np.where(norm == 0, 0, x / np.where(norm == 0, 1, norm)).astype(x.dtype),)


def _gather_elements(attributes: Mapping[str, Any], outputs: int, x: Array, indices: Array) -> tuple[Any, ...]:
    """Take elements at indices that may be fewer than the data along every axis."""
    if indices.ndim != x.ndim or not x.ndim:
        raise GraphError(f"indices have {indices.ndim} axes and the data {x.ndim}; allowed: equal numbers from 1 on")
    axis = range(x.ndim)[_stated(attributes, "axis", 0)]
    data = x[tuple(slice(None if place == axis else extent) for place, extent in enumerate(indices.shape))]
    return (np.take_along_axis(data, indices, axis),)


def _global_max_pool(attributes: Mapping[str, Any], outputs: int, x: Array) -> tuple[Any, ...]:
    return (x.max(tuple(range(2, x.ndim)), keepdims=True),)


def _reduce_sum_square(
    attributes: Mapping[str, Any], outputs: int, x: Array, axes: Array | None = None
) -> tuple[Any, ...]:
    stated = attributes.get("axes") if axes is None else axes
    along = None if stated is None or not len(stated) else tuple(int(axis) for axis in stated)
    if along is None and attributes.get("noop_with_empty_axes"):
        return (np.square(x),)
    return (np.square(x).sum(along, dtype=x.dtype, keepdims=bool(attributes.get("keepdims", 1))),)


def _slice(
    attributes: Mapping[str, Any], outputs: int, x: Array, starts: Array, ends: Array, axes: Array | None = None,
    steps: Array | None = None,
) -> tuple[Any, ...]:
    """Clamp as the specification says; a start below the axis with a negative step is 0, where Python takes nothing."""
    count = len(starts)
    along = range(count) if axes is None else [int(axis) for axis in axes]
    by = [1] * count if steps is None else [int(step) for step in steps]
    if not count == len(ends) == len(along) == len(by):
        raise GraphError(f"{count} starts, {len(ends)} ends, {len(along)} axes and {len(by)} steps are refused; "
                         "allowed: as many of each")
    places = [slice(None)] * x.ndim
    for axis, start, end, step in zip(along, map(int, starts), map(int, ends), by, strict=True):
        if not -x.ndim <= axis < x.ndim or step == 0:
            raise GraphError(f"axis {axis} with step {step} is refused; allowed: {-x.ndim} to {x.ndim - 1}, no step 0")
        extent = x.shape[axis]
        start, end = (bound + extent if bound < 0 else bound for bound in (start, end))
        if step > 0:
            places[axis] = slice(min(max(start, 0), extent), min(max(end, 0), extent), step)
        else:
            last = min(max(end, -1), extent - 1)
            places[axis] = slice(min(max(start, 0), extent - 1), last if last >= 0 else None, step)
            if not extent:
                places[axis] = slice(0, 0)
    return (x[tuple(places)],)


_error_function = np.vectorize(math.erf, otypes=[np.float64])


def _erf(attributes: Mapping[str, Any], outputs: int, x: Array) -> tuple[Any, ...]:
    """Keep the precision of float64, which onnx rounds to float32."""
    return (_error_function(x).astype(x.dtype),)


def _mean(attributes: Mapping[str, Any], outputs: int, *operands: Array) -> tuple[Any, ...]:
    """Broadcast all operands; onnx gives the sum the shape of the first. Numbers of 16 bits are summed in float32."""
    kind = operands[0].dtype
    wide = [operand.astype(np.float32) if kind.itemsize == 2 else operand for operand in operands]
    return ((sum(wide[1:], wide[0]) / len(wide)).astype(kind),)


def _pad(
    attributes: Mapping[str, Any], outputs: int, x: Array, pads: Array | None = None, constant: Array | None = None,
    axes: Array | None = None,
) -> tuple[Any, ...]:
    """Crop by negative pads first, then pad; NumPy pads only."""
    stated = attributes.get("pads") if pads is None else pads
    if stated is None:
        raise GraphError("pads are missing; allowed: two for each axis")
    along = range(x.ndim) if axes is None else [int(axis) for axis in axes]
    if len(stated) != 2 * len(along) or not all(-x.ndim <= axis < x.ndim for axis in along):
        raise GraphError(f"{len(stated)} pads of axes {[*along]} are refused; allowed: two for each of {x.ndim} axes")
    widths, places = [(0, 0)] * x.ndim, [slice(None)] * x.ndim
    for axis, before, after in zip(along, map(int, stated[: len(along)]), map(int, stated[len(along):]), strict=True):
        first, last = max(-before, 0), x.shape[axis] - max(-after, 0)
        if last < first:
            raise GraphError(f"pads of {before} and {after} are refused for an axis of {x.shape[axis]} elements; "
                             "allowed: pads that take away no more elements than there are")
        places[axis], widths[axis] = slice(first, last), (max(before, 0), max(after, 0))
    if x.ndim == 0:
        return (x,)
    mode: Any = attributes.get("mode") or "constant"
    nothing = "" if x.dtype.kind in "OU" else 0
    filling = {"constant_values": attributes.get("value", nothing) if constant is None else constant}
    padded: Array = np.pad(x[tuple(places)], widths, mode, **(filling if mode == "constant" else {}))
    return (padded.astype(x.dtype),)


# ---------------------------------------------------------------------------------------------------------------------
# Nodes refused


def _training(attributes: Mapping[str, Any], outputs: int, inputs: Sequence[Any]) -> str | None:
    if outputs > 1:
        return f"{outputs} outputs"
    return "spatial=0" if attributes.get("spatial") == 0 else None


def _oldest_training(attributes: Mapping[str, Any], outputs: int, inputs: Sequence[Any]) -> str | None:
    return _training(attributes, outputs, inputs) if attributes.get("is_test") else "is_test=0"


def _recurrent(*standard: str) -> Judge:
    def refused(attributes: Mapping[str, Any], outputs: int, inputs: Sequence[Any]) -> str | None:
        activations = [*(attributes.get("activations") or ())]
        if activations and activations != [*standard] * (len(activations) // len(standard)):
            return f"activations={activations}"
        for name in ("activation_alpha", "activation_beta", "clip", "input_forget"):
            if attributes.get(name):
                return f"{name}={attributes[name]}"
        steps = np.shape(inputs[0])[1 if attributes.get("layout") else 0]
        if len(inputs) > 4 and inputs[4] is not None and np.any(inputs[4] != steps):
            return f"sequence_lens={np.asarray(inputs[4]).tolist()}"
        return None

    return refused


def _not_two_spatial_axes(attributes: Mapping[str, Any], outputs: int, inputs: Sequence[Any]) -> str | None:
    return None if np.ndim(inputs[0]) == 4 else f"an input of {np.ndim(inputs[0])} axes"


def _cubic_border(attributes: Mapping[str, Any], outputs: int, inputs: Sequence[Any]) -> str | None:
    cubic = attributes.get("mode") in ("cubic", "bicubic") and attributes.get("padding_mode") == "border"
    return f"mode={attributes['mode']!r} and padding_mode='border'" if cubic else None


def _dilated_same(attributes: Mapping[str, Any], outputs: int, inputs: Sequence[Any]) -> str | None:
    mode, dilations = attributes.get("auto_pad"), [*(attributes.get("dilations") or ())]
    dilated = mode in ("SAME_UPPER", "SAME_LOWER") and any(dilation != 1 for dilation in dilations)
    return f"auto_pad={mode!r} and dilations={dilations}" if dilated else None


def _scales_alone(attributes: Mapping[str, Any], outputs: int, inputs: Sequence[Any]) -> str | None:
    return "scales as its second input"


def _whole_pixels(attributes: Mapping[str, Any], outputs: int, inputs: Sequence[Any]) -> str | None:
    return "regions whose corners are whole pixels"


def _stated_axis(attributes: Mapping[str, Any], outputs: int, inputs: Sequence[Any]) -> str | None:
    axis = attributes.get("axis")
    return None if axis is None else f"axis={axis}"


def _few_elements(attributes: Mapping[str, Any], outputs: int, inputs: Sequence[Any]) -> str | None:
    axis, extents = attributes.get("axis", -1), np.shape(inputs[0])
    count = attributes["k"] if len(inputs) == 1 else int(np.ravel(inputs[1])[0])
    if -len(extents) <= axis < len(extents) and not 0 <= count <= extents[axis]:
        raise GraphError(f"k={count} is refused; allowed: 0 to {extents[axis]}, the extent of axis {axis}")
    return None


def _whole_split(attributes: Mapping[str, Any], outputs: int, inputs: Sequence[Any]) -> str | None:
    sizes = attributes.get("split") if len(inputs) < 2 or inputs[1] is None else np.ravel(inputs[1])
    axis, extents = attributes.get("axis", 0), np.shape(inputs[0])
    if not -len(extents) <= axis < len(extents):
        raise GraphError(f"axis={axis} is refused; allowed: {-len(extents)} to {len(extents) - 1}")
    parts = None if sizes is None else [int(size) for size in sizes]
    if parts is not None and (len(parts) != outputs or min(parts, default=0) < 0 or sum(parts) != extents[axis]):
        raise GraphError(f"split={shorten(parts)} is refused; allowed: one size for each of {outputs} outputs, with a "
                         f"sum of {extents[axis]}, the extent of axis {axis}")
    return None


def _zero_divisor(attributes: Mapping[str, Any], outputs: int, inputs: Sequence[Any]) -> str | None:
    if len(inputs) == 2 and np.asarray(inputs[1]).dtype.kind in "iu" and not np.all(inputs[1]):
        raise GraphError("a divisor of 0 is refused; allowed: integers other than 0")
    return None


def _old_division(attributes: Mapping[str, Any], outputs: int, inputs: Sequence[Any]) -> str | None:
    return _stated_axis(attributes, outputs, inputs) or _zero_divisor(attributes, outputs, inputs)


CORRECTIONS: dict[str, tuple[Correction, ...]] = {
    "Softmax": (Correction(_softmax, last=12),),
    "LogSoftmax": (Correction(_old_log_softmax, last=12), Correction(_log_softmax, 13)),
    "SoftmaxCrossEntropyLoss": (Correction(_softmax_cross_entropy),),
    "Hardmax": (Correction(_hardmax, last=12),),
    "BatchNormalization": (Correction(_batch_normalization, last=6, refused=_oldest_training),
                           Correction(_batch_normalization, 7, 13, _training)),
    "GatherElements": (Correction(_gather_elements),),
    "LRN": (Correction(_local_response_normalization),),
    "LpNormalization": (Correction(_lp_normalization),),
    "MaxPool": (Correction(max_pool, refused=_dilated_same),),
    "AveragePool": (Correction(average_pool, refused=_dilated_same),),
    "LpPool": (Correction(lp_pool, 2, refused=_dilated_same),),
    "GlobalMaxPool": (Correction(_global_max_pool),),
    "Slice": (Correction(_slice, 10),),
    "Split": (Correction(refused=_whole_split),),
    "ReduceSumSquare": (Correction(_reduce_sum_square),),
    "Erf": (Correction(_erf),),
    "Mean": (Correction(_mean, 8),),
    "Pad": (Correction(_pad, 2),),
    "Resize": (Correction(refused=_scales_alone, last=10),),
    "TopK": (Correction(refused=_few_elements),),
    "Div": (Correction(refused=_old_division, last=6), Correction(refused=_zero_divisor, first=7)),
    "Mod": (Correction(refused=_zero_divisor),),
    "RNN": (Correction(refused=_recurrent("Tanh")),),
    "GRU": (Correction(refused=_recurrent("Sigmoid", "Tanh")),),
    "LSTM": (Correction(refused=_recurrent("Sigmoid", "Tanh", "Tanh")),),
    "QLinearConv": (Correction(refused=_not_two_spatial_axes),),
    "GridSample": (Correction(refused=_cubic_border),),
    "RoiAlign": (Correction(refused=_whole_pixels, last=15),),
    **{name: (Correction(refused=_stated_axis, last=6),) for name in (
        "Add", "Sub", "Mul", "Pow", "And", "Or", "Xor", "Equal", "Greater", "Less")},
}
"""By operator, the versions that onnx's implementation has wrong."""
