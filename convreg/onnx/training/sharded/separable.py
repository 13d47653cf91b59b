"""Which nodes compute rows of their results from the same rows of their operands, by kind of operator.

A node that no rule speaks for runs on whole operands. So a missing rule costs time and never a bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import NodeProto

from ...graph import attributes_of
from .specialised import Known
from .splits import Change, Rule, Split

ELEMENTWISE = frozenset((
    "Abs", "Acos", "Acosh", "Add", "And", "Asin", "Asinh", "Atan", "Atanh", "BitShift", "BitwiseAnd", "BitwiseNot",
    "BitwiseOr", "BitwiseXor", "Cast", "CastLike", "Ceil", "Celu", "Clip", "Cos", "Cosh", "Div", "Elu", "Equal", "Erf",
    "Exp", "Floor", "Gelu", "Greater", "GreaterOrEqual", "HardSigmoid", "HardSwish", "Identity", "IsInf", "IsNaN",
    "LeakyRelu", "Less", "LessOrEqual", "Log", "Max", "Mean", "Min", "Mish", "Mod", "Mul", "Neg", "Not", "Or", "PRelu",
    "Pow", "Reciprocal", "Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign",
    "Sqrt", "Sub", "Sum", "Swish", "Tan", "Tanh", "ThresholdedRelu", "Where", "Xor"))
SAMPLEWISE = frozenset((
    "AveragePool", "BatchNormalization", "Conv", "ConvTranspose", "DepthToSpace", "GlobalAveragePool", "GlobalLpPool",
    "GlobalMaxPool", "GroupNormalization", "InstanceNormalization", "LRN", "LpPool", "SpaceToDepth"))
"""Operators whose first input has the samples along axis 0; their other inputs are weights and numbers."""
ALONG_ONE_AXIS: Mapping[str, int] = {"ArgMax": 0, "ArgMin": 0, "Hardmax": -1, "LogSoftmax": -1, "LpNormalization": -1,
                                     "Softmax": -1, "TopK": -1}
"""Operators that mix elements along one axis, with the default of their attribute `axis`."""
REDUCTIONS = frozenset((
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSum", "ReduceSumSquare"))


def _made(node: NodeProto) -> tuple[str, ...]:
    return tuple(name for name in node.output if name)


def _first(node: NodeProto, *rows: int) -> tuple[bool, ...]:
    """Rows of the inputs at these places, by default of the first one alone."""
    return tuple(index in (rows or (0,)) for index in range(len(node.input)))


def elementwise(known: Known, node: NodeProto) -> Split | None:
    """Operands of the result's rank and first extent have rows; what is broadcast along axis 0 is whole."""
    shape = known.shape(node.output[0])
    if not shape:
        return None
    reads = []
    for name in node.input:
        own = known.shape(name) if name else ()
        if own is None:
            return None
        reads.append(len(own) == len(shape) and own[0] == shape[0])
    return Split(tuple(reads), _made(node))


def samplewise(known: Known, node: NodeProto) -> Split | None:
    """A sample of the result needs that sample of the first operand, and all of the others."""
    if node.op_type == "BatchNormalization" and (attributes_of(node).get("training_mode") or len(_made(node)) > 1):
        return None
    if known.shape(node.input[0]) is None or known.shape(node.output[0]) is None:
        return None
    return Split(_first(node), _made(node))


def along_one_axis(known: Known, node: NodeProto) -> Split | None:
    """Rows are independent of each other unless the axis is the one of the rows."""
    shape = known.shape(node.input[0])
    if not shape:
        return None
    axis = attributes_of(node).get("axis", ALONG_ONE_AXIS[node.op_type])
    return None if axis % len(shape) == 0 else Split(_first(node), _made(node))


def cumulative(known: Known, node: NodeProto) -> Split | None:
    """CumSum has its axis as an input."""
    shape, axis = known.shape(node.input[0]), known.value(node.input[1])
    if not shape or axis is None or int(axis.reshape(-1)[0]) % len(shape) == 0:
        return None
    return Split(_first(node), _made(node))


def layer_norm(known: Known, node: NodeProto) -> Split | None:
    """The statistics are those of a row; scale and bias are whole."""
    shape = known.shape(node.input[0])
    if not shape or attributes_of(node).get("axis", -1) % len(shape) == 0:
        return None
    for name in node.input[1:]:
        own = known.shape(name) if name else ()
        if own is None or (len(own) == len(shape) and own[0] != 1):
            return None
    return Split(_first(node), _made(node))


def reduced_axes(known: Known, node: NodeProto) -> tuple[int, ...] | None:
    """Return the axes of a reduction, counted from the front; None where only a run tells."""
    shape = known.shape(node.input[0])
    if shape is None:
        return None
    axes: Any = attributes_of(node).get("axes")
    if len(node.input) > 1 and node.input[1]:
        axes = known.value(node.input[1])
        if axes is None:
            return None
    if axes is None or not len(axes):
        return () if attributes_of(node).get("noop_with_empty_axes") else tuple(range(len(shape)))
    return tuple(sorted(int(axis) % len(shape) for axis in axes))


def reduction(known: Known, node: NodeProto) -> Split | None:
    """Reductions over other axes than that of the rows."""
    axes = reduced_axes(known, node)
    return None if axes is None or 0 in axes or not known.shape(node.input[0]) else Split(_first(node), _made(node))


def same_order(known: Known, node: NodeProto) -> Split | None:
    """Reshapes: the elements of a sample stay together as long as both first extents are multiples of the batch."""
    before, after = known.shape(node.input[0]), known.shape(node.output[0])
    if not before or not after or 0 in after:
        return None
    if node.op_type != "Reshape":
        return Split(_first(node), _made(node))
    if known.value(node.input[1]) is None:
        return None
    each = known.per_sample(node.output[0])
    return Split(_first(node), _made(node), lambda samples: Change(
        {"allowzero": 0}, {1: np.array([each * samples, *after[1:]], np.int64)}))


def expand(known: Known, node: NodeProto) -> Split | None:
    """The rows are there already, and other axes are repeated."""
    before, after = known.shape(node.input[0]), known.shape(node.output[0])
    if not before or not after or len(before) != len(after) or before[0] != after[0]:
        return None
    if known.value(node.input[1]) is None:
        return None
    each = known.per_sample(node.output[0])
    return Split(_first(node), _made(node), lambda samples: Change(
        {}, {1: np.array([each * samples, *after[1:]], np.int64)}))


def transpose(known: Known, node: NodeProto) -> Split | None:
    """Axis 0 stays where it is."""
    order = attributes_of(node).get("perm")
    return Split(_first(node), _made(node)) if order and order[0] == 0 else None


def concat(known: Known, node: NodeProto) -> Split | None:
    """Parts of rows are joined."""
    shape = known.shape(node.output[0])
    if not shape or attributes_of(node)["axis"] % len(shape) == 0:
        return None
    return Split((True,) * len(node.input), _made(node))


def split(known: Known, node: NodeProto) -> Split | None:
    """Rows are taken apart."""
    shape = known.shape(node.input[0])
    return Split(_first(node), _made(node)) if shape and attributes_of(node).get("axis", 0) % len(shape) else None


def slice_(known: Known, node: NodeProto) -> Split | None:
    """Elements are taken from every row, and all rows are."""
    shape = known.shape(node.input[0])
    bounds = [known.value(name) if name else None for name in (*node.input[1:], *[""] * (5 - len(node.input)))]
    if not shape or any(name and bound is None for name, bound in zip(node.input[1:], bounds, strict=False)):
        return None
    starts, ends, axes, steps = bounds
    if starts is None or ends is None:
        return None
    along = list(range(len(starts))) if axes is None else [int(axis) % len(shape) for axis in axes]
    for place, axis in enumerate(along):
        step = 1 if steps is None else int(steps[place])
        if axis == 0 and not (int(starts[place]) == 0 and int(ends[place]) >= shape[0] and step == 1):
            return None
    return Split(_first(node), _made(node))


def pad(known: Known, node: NodeProto) -> Split | None:
    """Nothing is added along axis 0."""
    shape, pads = known.shape(node.input[0]), known.value(node.input[1])
    if not shape or pads is None:
        return None
    along = list(range(len(shape)))
    if len(node.input) > 3 and node.input[3]:
        axes = known.value(node.input[3])
        if axes is None:
            return None
        along = [int(axis) % len(shape) for axis in axes]
    count = len(along)
    if any(axis == 0 and (pads[place] or pads[count + place]) for place, axis in enumerate(along)):
        return None
    return Split(_first(node), _made(node))


def tile(known: Known, node: NodeProto) -> Split | None:
    """Axis 0 is not repeated."""
    repeats = known.value(node.input[1])
    return Split(_first(node), _made(node)) if repeats is not None and len(repeats) and repeats[0] == 1 else None


def resize(known: Known, node: NodeProto) -> Split | None:
    """Axis 0 keeps its extent; sizes that state it state that of the shard."""
    before, after = known.shape(node.input[0]), known.shape(node.output[0])
    if not before or not after or before[0] != after[0]:
        return None
    for name in node.input[1:]:
        if name and known.value(name) is None:
            return None
    attributes = attributes_of(node)
    axes = attributes.get("axes")
    if axes is not None:
        return None if 0 in [axis % len(before) for axis in axes] else Split(_first(node), _made(node))
    if attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        return None
    if len(node.input) > 3 and node.input[3]:
        if attributes.get("keep_aspect_ratio_policy", "stretch") != "stretch":
            return None
        each = known.per_sample(node.output[0])
        return Split(_first(node), _made(node), lambda samples: Change(
            {}, {3: np.array([each * samples, *after[1:]], np.int64)}))
    scales = known.value(node.input[2 if len(node.input) > 2 else 1])
    # A scale near 1 may keep the extent of axis 0 and yet mix its elements.
    return Split(_first(node), _made(node)) if scales is not None and scales.size and scales[0] == 1 else None


def gather(known: Known, node: NodeProto) -> Split | None:
    """Elements of rows are taken, or rows of a whole table by indices that have rows (an embedding)."""
    data, indices = known.shape(node.input[0]), known.shape(node.input[1])
    if not data or indices is None:
        return None
    if attributes_of(node).get("axis", 0) % len(data):
        return Split(_first(node), _made(node))
    return Split(_first(node, 1), _made(node)) if indices else None


def gather_elements(known: Known, node: NodeProto) -> Split | None:
    """Elements are taken from the same rows."""
    data, indices = known.shape(node.input[0]), known.shape(node.input[1])
    if not data or not indices or data[0] != indices[0] or attributes_of(node).get("axis", 0) % len(data) == 0:
        return None
    return Split(_first(node, 0, 1), _made(node))


def gather_nd(known: Known, node: NodeProto) -> Split | None:
    """With batch axes elements are taken from the same rows, without them from a whole table."""
    data, indices = known.shape(node.input[0]), known.shape(node.input[1])
    if not data or not indices or len(indices) < 2:
        return None
    if attributes_of(node).get("batch_dims", 0):
        return Split(_first(node, 0, 1), _made(node))
    return Split(_first(node, 1), _made(node))


def one_hot(known: Known, node: NodeProto) -> Split | None:
    """The new axis comes behind axis 0."""
    shape = known.shape(node.output[0])
    if not shape or len(shape) < 2 or attributes_of(node).get("axis", -1) % len(shape) == 0:
        return None
    return Split(_first(node), _made(node))


def grid_sample(known: Known, node: NodeProto) -> Split | None:
    """Images and places have the same samples."""
    return Split(_first(node, 0, 1), _made(node))


def matmul(known: Known, node: NodeProto) -> Split | None:
    """Rows of the left operand, or stacked matrices of both."""
    a, b, made = (known.shape(name) for name in (*node.input, node.output[0]))
    if not a or not b or not made:
        return None
    if len(b) <= 2:
        return Split((True, False), _made(node)) if len(a) >= 2 else None
    if len(a) < 2 or len(made) < 3:
        return None
    reads = tuple(len(own) == len(made) and own[0] == made[0] for own in (a, b))
    return Split(reads, _made(node))


def gemm(known: Known, node: NodeProto) -> Split | None:
    """Rows of the left operand, unless that is transposed."""
    made = known.shape(node.output[0])
    if attributes_of(node).get("transA") or not made:
        return None
    reads = [True, False]
    if len(node.input) > 2:
        added = known.shape(node.input[2]) if node.input[2] else ()
        if added is None:
            return None
        reads.append(len(added) == 2 and added[0] == made[0])
    return Split(tuple(reads), _made(node))


def log_probabilities(known: Known, node: NodeProto) -> Split | None:
    """The second result of SoftmaxCrossEntropyLoss, where the loss itself is read elsewhere."""
    if len(node.output) < 2 or node.output[0] not in known.unread:
        return None
    return Split(_first(node, 0, 1), (node.output[1],))


def quantize_linear(known: Known, node: NodeProto) -> Split | None:
    """One scale for all, or one per entry of another axis than that of the rows."""
    shape, scale = known.shape(node.input[0]), known.shape(node.input[1])
    if not shape or scale is None or len(scale) > 1:
        return None
    if scale and attributes_of(node).get("axis", 1) % len(shape) == 0:
        return None
    return Split(_first(node), _made(node))


def _table() -> dict[tuple[str, str], Rule]:
    table: dict[str, Rule] = {
        **dict.fromkeys(ELEMENTWISE, elementwise), **dict.fromkeys(SAMPLEWISE, samplewise),
        **dict.fromkeys(ALONG_ONE_AXIS, along_one_axis), **dict.fromkeys(REDUCTIONS, reduction),
        **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze"), same_order),
        **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), quantize_linear),
        "CumSum": cumulative, "LayerNormalization": layer_norm, "Expand": expand, "Transpose": transpose,
        "Concat": concat, "Split": split, "Slice": slice_, "Pad": pad, "Tile": tile, "Resize": resize,
        "Gather": gather, "GatherElements": gather_elements, "GatherND": gather_nd, "OneHot": one_hot,
        "GridSample": grid_sample, "MatMul": matmul, "Gemm": gemm, "SoftmaxCrossEntropyLoss": log_probabilities,
    }
    return {("", name): rule for name, rule in table.items()}


STANDARD_RULES: Mapping[tuple[str, str], Rule] = _table()
