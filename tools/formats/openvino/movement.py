"""The layers of OpenVINO models that move, cut and join tensors or compute shapes, as standard ONNX nodes."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from convreg import GraphError

from ..builder import Dim
from .step import Kind, Step

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
    held = step.builder.constant_array(step.inputs[1])
    if step.layer.opset < 8 and held is not None and held.size and held.min() < 0:
        raise GraphError(f"an index is {held.min()}; allowed: at least 0, negative ones from opset8 on")
    step.finish("Gather", step.inputs[:2], axis=step.scalar(2))


def _squeeze(step: Step) -> None:
    held = step.builder.constant_array(step.inputs[1]) if len(step.inputs) > 1 else None
    every = len(step.inputs) == 1 or (held is not None and not held.size)  # no axes mean all of extent 1
    step.finish("Squeeze", [step.inputs[0], *([] if every else [step.vector(1)])])


def _unsqueeze(step: Step) -> None:
    step.finish("Unsqueeze", [step.inputs[0], step.vector(1)])


def _slice(step: Step) -> None:
    data, *operands = step.inputs[0], *(step.vector(index) for index in range(1, len(step.inputs)))
    held = [step.builder.constant_array(name) for name in operands]
    known = [[int(entry) for entry in array] for array in held if array is not None]
    shape = step.builder.value(data).shape
    if shape is not None and len(known) == len(operands):
        begin, end, strides = known[:3]
        axes = known[3] if len(known) > 3 else list(range(len(begin)))
        if len({len(begin), len(end), len(strides), len(axes)}) > 1:
            raise GraphError(f"start {begin}, stop {end}, step {strides} and axes {axes} are not of one length")
        if any(not -len(shape) <= axis < len(shape) for axis in axes):
            raise GraphError(f"axes {axes} are not axes of {len(shape)}")
        bounds = [_bounds(first, last, stride, shape[axis])
                  for first, last, stride, axis in zip(begin, end, strides, axes, strict=True)]
        for side in (0, 1):
            if (wanted := [bound[side] for bound in bounds]) != known[side]:
                operands[side] = step.builder.integers(wanted, "bounds")
    starts, stops, steps, *axes_given = operands
    step.finish("Slice", [data, starts, stops, *(axes_given or [""]), steps])


def _strided_slice(step: Step) -> None:
    """Begin, end and stride per axis, with masks that leave a bound open or drop the axis."""
    given = {name: step.numbers(name) for name in (
        "begin_mask", "end_mask", "new_axis_mask", "shrink_axis_mask", "ellipsis_mask")}
    if any(given.pop("ellipsis_mask")):
        raise GraphError("ellipsis_mask is not known to the reader where it is set")
    bounds = [step.constant(1), step.constant(2)]
    count = len(bounds[0])
    bounds.append(step.constant(3) if len(step.inputs) > 3 else [1] * count)
    if not len(bounds[1]) == len(bounds[2]) == count:
        raise GraphError(f"begin, end and strides have {', '.join(str(len(bound)) for bound in bounds)} entries")
    for name in ("new_axis_mask", "shrink_axis_mask"):
        if any(given[name][count:]):
            raise GraphError(f"{name} {given[name]} is set beyond the {count} entries of begin")
    masks = {name: [*mask, *[0] * (count - len(mask))] for name, mask in given.items()}
    new = masks.pop("new_axis_mask")[:count]
    begin, end, strides, open_begin, open_end, dropped = (
        [entry for entry, is_new in zip(entries, new, strict=False) if not is_new]
        for entries in (*bounds, *masks.values()))
    shape = step.builder.value(step.inputs[0]).shape or ()
    for axis, stride in enumerate(strides):
        extent = shape[axis] if axis < len(shape) else None
        if dropped[axis]:
            if isinstance(extent, int) and not -extent <= begin[axis] < extent:
                raise GraphError(f"begin is {begin[axis]} on axis {axis} of {extent} elements, which is dropped")
            begin[axis] = 0 if open_begin[axis] else begin[axis]
            end[axis], strides[axis] = (begin[axis] + 1 or LIMITS.max), 1
        else:
            bound = (None if open_begin[axis] else begin[axis], None if open_end[axis] else end[axis])
            begin[axis], end[axis] = _bounds(*bound, stride, extent)
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


def _bounds(begin: int | None, end: int | None, stride: int, extent: Dim) -> tuple[int, int]:
    """Begin and end of a slice within the axis where its extent is known; None is an open bound.

    Runtimes disagree on bounds in front of the first element and on large ones where the stride is negative.
    """
    forward = stride > 0
    if not isinstance(extent, int):
        opened = (0, LIMITS.max) if forward else (LIMITS.max, LIMITS.min)
        return opened[0] if begin is None else begin, opened[1] if end is None else end
    low, high = (0, extent) if forward else (-1, extent - 1)
    places = [min(max(bound + extent if bound < 0 else bound, low), high) if bound is not None else opened
              for bound, opened in ((begin, low if forward else high), (end, high if forward else low))]
    if not forward:
        places[0] = max(places[0], 0)  # the runtime begins with the first element at the least
    return places[0], LIMITS.min if places[1] < 0 else places[1]


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
    if min(lengths, default=0) < 0:
        raise GraphError(f"lengths {step.constant(2)} do not fit the axis; allowed: at least 0, and -1 once for what "
                         "is left")
    if len(lengths) != len(step.outputs):
        raise GraphError(f"{len(lengths)} lengths for {len(step.outputs)} outputs")
    step.builder.nodes("Split", [step.inputs[0], step.builder.integers(lengths, "lengths")], step.outputs, axis=axis)


def _pad(step: Step) -> None:
    """Pads, and negative ones, which take elements away from what the positive ones have made."""
    mode = step.text("pad_mode", "constant", "constant", "edge", "reflect")
    sides = [step.vector(1), step.vector(2)]
    held = [step.builder.constant_array(side) for side in sides]
    if held[0] is None or held[1] is None:
        pads = step.node("Concat", *sides, axis=0)  # inference follows a constant, but no Concat of two
        step.finish("Pad", [step.inputs[0], pads, *step.inputs[3:]], mode=mode)
        return
    before, after = (np.asarray(side) for side in held)
    shape = step.builder.value(step.inputs[0]).shape
    if shape is not None and not len(shape) == before.size == after.size:
        raise GraphError(f"{before.size} and {after.size} pads for {len(shape)} axes")
    for extent, *pads_of in zip(shape or (), before, after, strict=True) if mode == "reflect" else ():
        if isinstance(extent, int) and max(pads_of) >= extent:
            raise GraphError(f"a reflecting pad is {max(pads_of)} on an axis of {extent} elements; allowed: fewer than "
                             "elements")
    pads = step.builder.constant(np.maximum([*before, *after], 0), "pads")
    operands = [step.inputs[0], pads, *step.inputs[3:]]
    if min(*before, *after, 0) >= 0:
        step.finish("Pad", operands, mode=mode)
        return
    starts = step.builder.integers(np.maximum(-before, 0).tolist(), "starts")
    ends = step.builder.integers([int(end) if end < 0 else LIMITS.max for end in after], "ends")
    step.finish("Slice", [step.node("Pad", *operands, mode=mode), starts, ends])


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
