"""The layers of OpenVINO models that move, cut and join tensors or compute shapes, as standard ONNX nodes."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from convreg import GraphError

from .openvino_step import Kind, Step

LIMITS = np.iinfo(np.int64)


def _concat(step: Step) -> None:
    step.finish("Concat", step.inputs, axis=step.number("axis"))


def _reshape(step: Step) -> None:
    target = step.vector(1)
    step.finish("Reshape", [step.inputs[0], target], allowzero=int(not step.flag("special_zero", False)))


def _transpose(step: Step) -> None:
    order = step.constant(1)
    step.finish("Transpose", [step.inputs[0]], **({"perm": order} if order else {}))


def _broadcast(step: Step) -> None:
    step.text("mode", "numpy", "numpy", "bidirectional")
    step.finish("Expand", [step.inputs[0], step.vector(1)])


def _shape_of(step: Step) -> None:
    if step.text("output_type", "i64", "i64", "i32") == "i64":
        step.finish("Shape", step.inputs)
    else:
        step.finish("Cast", [step.node("Shape", *step.inputs)], to=TensorProto.INT32)


def _gather(step: Step) -> None:
    if step.number("batch_dims", 0):
        raise GraphError(f"batch_dims is {step.number('batch_dims')}; allowed: 0")
    step.finish("Gather", step.inputs[:2], axis=step.scalar(2))


def _squeeze(step: Step) -> None:
    step.finish("Squeeze", [step.inputs[0], *([step.vector(1)] if len(step.inputs) > 1 else [])])


def _unsqueeze(step: Step) -> None:
    step.finish("Unsqueeze", [step.inputs[0], step.vector(1)])


def _slice(step: Step) -> None:
    data, starts, stops, steps = step.inputs[0], *(step.vector(index) for index in (1, 2, 3))
    axes = step.vector(4) if len(step.inputs) > 4 else ""
    step.finish("Slice", [data, starts, stops, axes, steps])


def _strided_slice(step: Step) -> None:
    """Begin, end and stride per axis, with masks that leave a bound open or drop the axis."""
    if any(step.numbers("ellipsis_mask")):
        raise GraphError("ellipsis_mask is not known to the reader where it is set")
    bounds = [step.constant(1), step.constant(2)]
    count = len(bounds[0])
    bounds.append(step.constant(3) if len(step.inputs) > 3 else [1] * count)
    if not len(bounds[1]) == len(bounds[2]) == count:
        raise GraphError(f"begin, end and strides have {', '.join(str(len(bound)) for bound in bounds)} entries")
    masks = [[*mask, *[0] * (count - len(mask))] for mask in map(step.numbers, (
        "new_axis_mask", "begin_mask", "end_mask", "shrink_axis_mask"))]
    new = masks.pop(0)[:count]
    begin, end, strides, open_begin, open_end, dropped = (
        [entry for entry, is_new in zip(entries, new, strict=False) if not is_new] for entries in (*bounds, *masks))
    for axis, stride in enumerate(strides):
        if dropped[axis]:
            end[axis], strides[axis] = (begin[axis] + 1 or LIMITS.max), 1
            continue
        if open_begin[axis]:
            begin[axis] = 0 if stride > 0 else LIMITS.max
        if open_end[axis]:
            end[axis] = LIMITS.max if stride > 0 else LIMITS.min
    integers = step.builder.integers
    operands = [step.inputs[0], integers(begin, "begin"), integers(end, "end"), integers(range(len(begin)), "axes"),
                integers(strides, "strides")]
    axes = [axis for axis in range(len(begin)) if dropped[axis]]
    if axes and any(new):
        raise GraphError("new_axis_mask beside shrink_axis_mask is not known to the reader")
    if axes:
        step.finish("Squeeze", [step.node("Slice", *operands), integers(axes, "axes")])
    elif any(new):
        places = [place for place, is_new in enumerate(new) if is_new]
        step.finish("Unsqueeze", [step.node("Slice", *operands), integers(places, "axes")])
    else:
        step.finish("Slice", operands)


def _split(step: Step) -> None:
    count = step.number("num_splits")
    if count != len(step.outputs):
        raise GraphError(f"num_splits is {count} for {len(step.outputs)} outputs")
    axis = step.scalar(1)
    shape = step.builder.value(step.inputs[0]).shape
    extent = shape[axis] if shape is not None and -len(shape) <= axis < len(shape) else None
    if isinstance(extent, int) and extent % count:
        raise GraphError(f"{extent} elements cannot be split into {count} equal parts")
    step.builder.nodes("Split", [step.inputs[0]], step.outputs, axis=axis, num_outputs=count)


def _variadic_split(step: Step) -> None:
    axis, lengths = step.scalar(1), step.constant(2)
    if -1 in lengths:
        shape = step.builder.value(step.inputs[0]).static("the data")
        if not -len(shape) <= axis < len(shape):
            raise GraphError(f"axis is {axis} for a tensor of {len(shape)} axes")
        lengths[lengths.index(-1)] = shape[axis] - sum(lengths) - 1
    if len(lengths) != len(step.outputs):
        raise GraphError(f"{len(lengths)} lengths for {len(step.outputs)} outputs")
    step.builder.nodes("Split", [step.inputs[0], step.builder.integers(lengths, "lengths")], step.outputs, axis=axis)


def _pad(step: Step) -> None:
    mode = step.text("pad_mode", "constant", "constant", "edge", "reflect")
    data, sides = step.inputs[0], [step.vector(1), step.vector(2)]
    held = [step.builder.constant_array(side) for side in sides]
    if held[0] is None or held[1] is None:
        pads = step.node("Concat", *sides, axis=0)
    else:  # inference follows a constant, but no Concat of two
        before, after = (np.asarray(side) for side in held)
        if min(*before, *after, 0) < 0:
            data = _cropped(step, data, np.minimum(before, 0), np.minimum(after, 0))
        pads = step.builder.constant(np.maximum([*before, *after], 0), "pads")
    step.finish("Pad", [data, pads, *step.inputs[3:]], mode=mode)


def _cropped(step: Step, data: str, before: np.ndarray, after: np.ndarray) -> str:
    """What negative pads leave: few runtimes take them."""
    ends = [int(end) or LIMITS.max for end in after]
    return step.node("Slice", data, step.builder.integers((-before).tolist(), "starts"),
                     step.builder.integers(ends, "ends"))


def _tile(step: Step) -> None:
    """Repeats may be more or fewer than axes: the shorter list gets ones in front."""
    repeats, rank = step.constant(1), step.rank(0)
    data = step.inputs[0]
    if len(repeats) > rank:
        data = step.node("Unsqueeze", data, step.builder.integers(range(len(repeats) - rank), "axes"))
    repeats = [1] * (rank - len(repeats)) + repeats
    step.finish("Tile", [data, step.builder.integers(repeats, "repeats")])


MOVEMENT = {
    "Broadcast": Kind(range(2, 3), ("mode",), _broadcast),
    "Concat": Kind(range(1, 1025), ("axis",), _concat),
    "Gather": Kind(range(3, 4), ("batch_dims",), _gather),
    "Pad": Kind(range(3, 5), ("pad_mode",), _pad),
    "Reshape": Kind(range(2, 3), ("special_zero",), _reshape),
    "ShapeOf": Kind(range(1, 2), ("output_type",), _shape_of),
    "Slice": Kind(range(4, 6), (), _slice),
    "Split": Kind(range(2, 3), ("num_splits",), _split, several=True),
    "Squeeze": Kind(range(1, 3), (), _squeeze),
    "StridedSlice": Kind(range(3, 5), ("begin_mask", "end_mask", "new_axis_mask", "shrink_axis_mask", "ellipsis_mask"),
                         _strided_slice),
    "Tile": Kind(range(2, 3), (), _tile),
    "Transpose": Kind(range(2, 3), (), _transpose),
    "Unsqueeze": Kind(range(2, 3), (), _unsqueeze),
    "VariadicSplit": Kind(range(3, 4), (), _variadic_split, several=True),
}
"""The types known, by the names that files use."""
