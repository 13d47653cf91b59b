"""The layers of OpenVINO models that stand beside transposed convolutions, as standard ONNX nodes of the same meaning.

Source: the operation pages of OpenVINO's sets opset1 to opset16; a variant without an exact counterpart is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from convreg import GraphError

from ..matrix_product import matrix_product
from .elements import ELEMENTS, FLOAT8, INTEGER8, element
from .movement import MOVEMENT
from .pooling import average_pool, max_pool
from .step import Kind, Step
from .windows import convolution_window


def _same(op_type: str) -> Kind:
    return Kind(range(1, 2), (), lambda step: step.finish(op_type, step.inputs))


def _binary(op_type: str) -> Kind:
    def build(step: Step) -> None:
        _check_broadcast(step)
        step.finish(op_type, step.inputs)

    return Kind(range(2, 3), ("auto_broadcast",), build)


def _arithmetic(op_type: str) -> Kind:
    def build(step: Step) -> None:
        _check_broadcast(step)
        _saturated(step, op_type, step.inputs)

    return Kind(range(2, 3), ("auto_broadcast",), build)


def _check_broadcast(step: Step) -> None:
    """Refuse shapes that differ where nothing is to be broadcast."""
    if step.text("auto_broadcast", "numpy", "numpy", "none") == "none":
        shapes = [step.builder.value(name).shape for name in step.inputs]
        first, *others = [shape for shape in shapes if shape is not None] or [()]
        for other in others:
            if len(first) != len(other) or any(isinstance(x, int) and isinstance(y, int) and x != y
                                               for x, y in zip(first, other, strict=True)):
                raise GraphError(f"shapes {list(first)} and {list(other)} differ with auto_broadcast 'none'")


def _saturated(step: Step, op_type: str, inputs: Sequence[str], kinds: Sequence[int] = INTEGER8) -> None:
    """An arithmetic layer; 8-bit results saturate, as the runtime's do, and are found in 32 bits.

    `kinds` are those of which a result can leave the range.
    """
    kind = step.builder.value(step.inputs[0]).element
    if kind not in kinds:
        step.finish(op_type, inputs)
        return
    _narrowed(step, step.node(op_type, *_widened(step, inputs)))


def _widened(step: Step, inputs: Sequence[str]) -> list[str]:
    return [step.node("Cast", name, to=TensorProto.INT32) for name in inputs]


def _narrowed(step: Step, wide: str) -> None:
    """Finish with 32-bit integers in the range of the first input's type."""
    kind = step.builder.value(step.inputs[0]).element
    limits = np.iinfo(helper.tensor_dtype_to_np_dtype(kind))
    bounds = [step.builder.constant(np.array(limit, np.int32), "limit") for limit in (limits.min, limits.max)]
    step.finish("Cast", [step.node("Clip", wide, *bounds)], to=kind)


_SIGNED = (TensorProto.INT8,)
"""Of -128 alone there is no negative, quotient by -1 or absolute value."""


def _signed(op_type: str) -> Kind:
    return Kind(range(1, 2), (), lambda step: _saturated(step, op_type, step.inputs, _SIGNED))


def _select(step: Step) -> None:
    _check_broadcast(step)
    step.finish("Where", step.inputs)


def _not_equal(step: Step) -> None:
    _check_broadcast(step)
    step.finish("Not", [step.node("Equal", *step.inputs)])


def _reduction(op_type: str) -> Kind:
    def build(step: Step) -> None:
        axes = _distinct(step, step.vector(1))
        keep = int(step.flag("keep_dims", False))
        step.finish(op_type, [step.inputs[0], axes], keepdims=keep, noop_with_empty_axes=1)

    return Kind(range(2, 3), ("keep_dims",), build)


def _distinct(step: Step, axes: str) -> str:
    """Axes of which none occurs twice, as far as they are constant."""
    held, shape = step.builder.constant_array(axes), step.builder.value(step.inputs[0]).shape
    if held is None or shape is None:
        return axes
    places = [int(axis) % len(shape) if -len(shape) <= axis < len(shape) else int(axis) for axis in held]
    return axes if len({*places}) == len(places) else step.builder.integers([*dict.fromkeys(places)], "axes")


def _is_integral(step: Step) -> bool:
    return helper.tensor_dtype_to_np_dtype(step.builder.value(step.inputs[0]).element).kind in "iu"


def _divide(step: Step) -> None:
    _check_broadcast(step)
    is_narrow = step.builder.value(step.inputs[0]).element in _SIGNED
    numerator, denominator = _widened(step, step.inputs) if is_narrow else step.inputs
    if step.flag("m_pythondiv", True) and _is_integral(step):  # rounds down, ONNX toward zero
        numerator = step.node("Sub", numerator, step.node("Mod", numerator, denominator))
    if is_narrow:
        _narrowed(step, step.node("Div", numerator, denominator))
    else:
        step.finish("Div", [numerator, denominator])


def _squared_difference(step: Step) -> None:
    _check_broadcast(step)
    kind = step.builder.value(step.inputs[0]).element
    if kind in INTEGER8:
        raise GraphError(f"{TensorProto.DataType.Name(kind)} is not known to the reader here")
    difference = step.node("Sub", *step.inputs)
    step.finish("Mul", [difference, difference])


def _convert(step: Step) -> None:
    kind = element(step.text("destination_type", "", *ELEMENTS))
    array = step.builder.constant_array(step.inputs[0])
    target = helper.tensor_dtype_to_np_dtype(kind)
    if array is not None and array.dtype.kind in "iu" and target.kind in "iu":  # a stated shape stays visible
        step.finish("Identity", [step.builder.constant(array.astype(target), f"{step.inputs[0]}_converted")])
    else:  # what is beyond the range of f8e4m3 becomes NaN, of f8e5m2 infinity
        step.finish("Cast", step.inputs, to=kind, **({"saturate": 0} if kind in FLOAT8 else {}))


def _clamp(step: Step) -> None:
    dtype = helper.tensor_dtype_to_np_dtype(step.builder.value(step.inputs[0]).element)
    low, high = step.real("min"), step.real("max")
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        if dtype.itemsize == 1 and not all(np.isinf(bound) or bound.is_integer() for bound in (low, high)):
            raise GraphError(f"min {low} and max {high} for {dtype}; allowed for 8-bit integers: whole numbers")
        low, high = max(np.ceil(low), limits.min), min(np.floor(high), limits.max)
    if low > high:
        raise GraphError(f"min {low} is above max {high}")
    with np.errstate(over="ignore"):  # beyond the type's range is no bound
        bounds = [step.builder.constant(np.array(bound).astype(dtype), "bound") for bound in (low, high)]
    step.finish("Clip", [step.inputs[0], *bounds])


def _prelu(step: Step) -> None:
    data, slope = step.inputs
    shape, rank = step.builder.value(slope).static("the slope"), step.rank(0)
    if len(shape) == 1 and shape != (1,) and rank > 2:
        channels = (step.builder.value(data).shape or ())[1]
        if not isinstance(channels, int):
            raise GraphError("the number of channels is not known, so a list of slopes may mean the last axis")
    if len(shape) == 1 and shape != (1,) and rank > 2 and shape[0] == channels:  # one slope per channel
        slope = step.node("Unsqueeze", slope, step.builder.integers(range(1, rank - 1), "axes"))
    step.finish("PRelu", [data, slope])


def _soft_max(step: Step) -> None:
    if step.layer.opset >= 8:
        axis = step.number("axis", 1)
    else:
        axis = step.number("axis")  # the page and the runtime disagree on the default
        if axis < 0:
            raise GraphError(f"axis is {axis}; allowed: at least 0, negative ones from opset8 on")
    step.finish("Softmax", step.inputs, axis=axis)


def _swish(step: Step) -> None:
    scaled = step.node("Mul", *step.inputs) if len(step.inputs) == 2 else step.inputs[0]
    step.finish("Mul", [step.inputs[0], step.node("Sigmoid", scaled)])


def _gelu(step: Step) -> None:
    mode = step.text("approximation_mode", "erf", "erf", "tanh")
    step.finish("Gelu", step.inputs, approximate="tanh" if mode == "tanh" else "none")


def _batch_norm(step: Step) -> None:
    if step.layer.opset >= 5:
        data, scale, bias, mean, variance = step.inputs
    else:
        scale, bias, data, mean, variance = step.inputs
    step.finish("BatchNormalization", [data, scale, bias, mean, variance], epsilon=step.real("epsilon"))


def _check_channels(step: Step, groups: int, per_group: Any) -> None:
    """Refuse a filter for another number of channels, which ONNX's own inference lets through."""
    shape = step.builder.value(step.inputs[0]).shape
    channels = shape[1] if shape is not None and len(shape) > 1 else None
    if isinstance(channels, int) and isinstance(per_group, int) and channels != groups * per_group:
        raise GraphError(f"the data has {channels} channels, the filter {groups * per_group}")


def _convolution(step: Step) -> None:
    shape = step.builder.value(step.inputs[1]).shape
    _check_channels(step, 1, shape[1] if shape is not None and len(shape) > 1 else None)
    step.finish("Conv", step.inputs, **convolution_window(step, (None,) if shape is None else shape[2:]))


def _fake_quantize(step: Step) -> None:
    """Round to one of `levels` places from the low to the high input bound, then stretch to the output bounds."""
    _check_broadcast(step)
    data, low, high, out_low, out_high = step.inputs
    node, dtype = step.node, helper.tensor_dtype_to_np_dtype(step.builder.value(data).element)
    levels = step.number("levels")
    if levels < 2:
        raise GraphError(f"levels is {levels}; allowed: at least 2")
    lowest, highest = (step.builder.constant_array(name) for name in (low, high))
    if lowest is not None and highest is not None and np.any(np.greater(lowest, highest)):
        raise GraphError("an input_low is above its input_high; allowed: at most equal")
    steps = step.builder.constant(np.array(levels - 1).astype(dtype), "steps")
    place = node("Round", node("Mul", node("Div", node("Sub", data, low), node("Sub", high, low)), steps))
    value = node("Add", node("Mul", node("Div", place, steps), node("Sub", out_high, out_low)), out_low)
    value = node("Where", node("Greater", data, node("Max", low, high)), out_high, value)
    step.finish("Where", [node("LessOrEqual", data, node("Min", low, high)), out_low, value])


def _group_convolution(step: Step) -> None:
    """The filter carries the groups as an axis of its own; ONNX folds them into the output channels."""
    data, filter_name = step.inputs
    filter_value = step.builder.value(filter_name)
    if filter_value.rank < 4:
        raise GraphError(f"the filter has {filter_value.rank} axes; allowed: at least 4, groups first")
    groups, outputs, *rest = filter_value.shape or ()
    if not isinstance(groups, int) or not isinstance(outputs, int):
        raise GraphError("the numbers of groups and of output channels are not known")
    extents = [extent if isinstance(extent, int) else -1 for extent in rest]
    if extents.count(-1) > 1 or (-1 in extents and 0 in (groups, outputs, *extents)):
        raise GraphError("the shape of the filter is not known")
    _check_channels(step, groups, rest[0])
    folded = step.node("Reshape", filter_name, step.builder.integers([groups * outputs, *extents], "filter_shape"))
    step.finish("Conv", [data, folded], group=groups, **convolution_window(step, rest[1:]))


def _one_hot(step: Step) -> None:
    """Indices outside of the range are all off; ONNX counts negative ones from the end, so these get out of it."""
    indices, depth = step.int64(0), step.int64(1)  # for few combinations of other types do runtimes have kernels
    if step.text("negative_indices_mode", "ignore_negative", "ignore_negative", "normalize") == "ignore_negative":
        zero = step.node("Sub", depth, depth)
        indices = step.node("Where", step.node("Less", indices, zero), depth, indices)
    held = [step.builder.constant_array(step.inputs[index]) for index in (3, 2)]
    if any(value is None for value in held):
        axes = step.builder.integers([0], "axes")
        off_on = step.node("Concat", *(step.node("Unsqueeze", step.inputs[index], axes) for index in (3, 2)), axis=0)
    else:
        off_on = step.builder.constant(np.stack(held), "off_on")  # type: ignore[arg-type]
    step.finish("OneHot", [indices, depth, off_on], axis=step.number("axis", -1))


def _top_k(step: Step) -> None:
    """Equal values in the order of their places, which OpenVINO promises where `stable` is set."""
    mode, sort = step.text("mode", "", "max", "min"), step.text("sort", "", "value", "none", "index")
    step.flag("stable", False)
    count = step.vector(1)
    held = step.builder.constant_array(count)
    if sort == "index" and (held is None or held.tolist() != [1]):
        raise GraphError("sort is 'index'; allowed: 'value' or 'none', or one element")
    kind = element(step.text("index_element_type", "i32", "i32", "i64"))
    values, *places = step.outputs
    whole = kind == TensorProto.INT64 and places
    made = [values, places[0] if whole else step.builder.reserve(f"{values}_places")]
    step.builder.nodes("TopK", [step.inputs[0], count], made, axis=step.number("axis"), largest=int(mode == "max"))
    if places and not whole:
        step.builder.node("Cast", made[1:], places[0], to=kind)


def _matmul(step: Step) -> None:
    transposed = [step.flag(name, False) for name in ("transpose_a", "transpose_b")]
    matrix_product(step.builder, step.inputs, transposed, step.outputs[0])


_WINDOW = ("strides", "dilations", "pads_begin", "pads_end", "auto_pad")
_POOL = ("strides", "pads_begin", "pads_end", "kernel", "rounding_type", "auto_pad")
LAYERS = {
    **{name: _same(op_type) for name, op_type in {
        "Ceiling": "Ceil", "Cos": "Cos", "Erf": "Erf", "Exp": "Exp", "Floor": "Floor",
        "HSwish": "HardSwish", "Log": "Log", "LogicalNot": "Not", "Mish": "Mish", "ReLU": "Relu", "Relu": "Relu",
        "Sigmoid": "Sigmoid", "Sign": "Sign", "Sin": "Sin", "SoftPlus": "Softplus", "Sqrt": "Sqrt", "Tanh": "Tanh",
    }.items()},
    **{name: _binary(op_type) for name, op_type in {
        "Maximum": "Max", "Minimum": "Min", "Power": "Pow",
    }.items()},
    **{name: _arithmetic(op_type) for name, op_type in {"Add": "Add", "Multiply": "Mul", "Subtract": "Sub"}.items()},
    **{name: _binary(op_type) for name, op_type in {
        "Equal": "Equal", "Greater": "Greater", "GreaterEqual": "GreaterOrEqual", "Less": "Less",
        "LessEqual": "LessOrEqual", "LogicalAnd": "And", "LogicalOr": "Or", "LogicalXor": "Xor",
    }.items()},
    **{f"Reduce{name}": _reduction(f"Reduce{name}") for name in ("L1", "L2", "Max", "Mean", "Min", "Prod", "Sum")},
    "Abs": _signed("Abs"),
    "AvgPool": Kind(range(1, 2), (*_POOL, "exclude-pad"), average_pool),
    "BatchNormInference": Kind(range(5, 6), ("epsilon",), _batch_norm),
    "Clamp": Kind(range(1, 2), ("min", "max"), _clamp),
    "Convert": Kind(range(1, 2), ("destination_type",), _convert),
    "Convolution": Kind(range(2, 3), _WINDOW, _convolution),
    "Divide": Kind(range(2, 3), ("auto_broadcast", "m_pythondiv"), _divide),
    "Elu": Kind(range(1, 2), ("alpha",), lambda step: step.finish("Elu", step.inputs, alpha=step.real("alpha"))),
    "FakeQuantize": Kind(range(5, 6), ("levels", "auto_broadcast"), _fake_quantize),
    "Gelu": Kind(range(1, 2), ("approximation_mode",), _gelu),
    "GroupConvolution": Kind(range(2, 3), _WINDOW, _group_convolution),
    "HSigmoid": Kind(range(1, 2), (), lambda step: step.finish("HardSigmoid", step.inputs, alpha=1 / 6, beta=0.5)),
    "LogSoftmax": Kind(range(1, 2), ("axis",),
                       lambda step: step.finish("LogSoftmax", step.inputs, axis=step.number("axis", 1))),
    "MatMul": Kind(range(2, 3), ("transpose_a", "transpose_b"), _matmul),
    "MaxPool": Kind(range(1, 2), (*_POOL, "dilations", "index_element_type", "axis"), max_pool, several=True),
    "Negative": _signed("Neg"),
    "NotEqual": Kind(range(2, 3), ("auto_broadcast",), _not_equal),
    "OneHot": Kind(range(4, 5), ("axis", "negative_indices_mode"), _one_hot),
    "PReLU": Kind(range(2, 3), (), _prelu),
    "PRelu": Kind(range(2, 3), (), _prelu),
    "Select": Kind(range(3, 4), ("auto_broadcast",), _select),
    "SoftMax": Kind(range(1, 2), ("axis",), _soft_max),
    "SquaredDifference": Kind(range(2, 3), ("auto_broadcast",), _squared_difference),
    "Swish": Kind(range(1, 3), (), _swish),
    "TopK": Kind(range(2, 3), ("axis", "mode", "sort", "index_element_type", "stable"), _top_k, several=True),
    **MOVEMENT,
}
"""The types known, by the names that files use."""
