"""The layers of OpenVINO models that stand beside transposed convolutions, as standard ONNX nodes of the same meaning.

Source: the operation pages of OpenVINO's sets opset1 to opset16; a variant without an exact counterpart is refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper

from convreg import GraphError

from .openvino_movement import MOVEMENT
from .openvino_step import ELEMENTS, Kind, Step, element


def _same(op_type: str) -> Kind:
    return Kind(range(1, 2), (), lambda step: step.finish(op_type, step.inputs))


def _binary(op_type: str) -> Kind:
    def build(step: Step) -> None:
        step.text("auto_broadcast", "numpy", "numpy", "none")
        step.finish(op_type, step.inputs)

    return Kind(range(2, 3), ("auto_broadcast",), build)


def _select(step: Step) -> None:
    step.text("auto_broadcast", "numpy", "numpy", "none")
    step.finish("Where", step.inputs)


def _not_equal(step: Step) -> None:
    step.text("auto_broadcast", "numpy", "numpy", "none")
    step.finish("Not", [step.node("Equal", *step.inputs)])


def _reduction(op_type: str) -> Kind:
    def build(step: Step) -> None:
        axes = step.vector(1)
        keep = int(step.flag("keep_dims", False))
        step.finish(op_type, [step.inputs[0], axes], keepdims=keep, noop_with_empty_axes=1)

    return Kind(range(2, 3), ("keep_dims",), build)


def _is_integral(step: Step) -> bool:
    return helper.tensor_dtype_to_np_dtype(step.builder.value(step.inputs[0]).element).kind in "iu"


def _divide(step: Step) -> None:
    step.text("auto_broadcast", "numpy", "numpy", "none")
    numerator, denominator = step.inputs
    if step.flag("m_pythondiv", True) and _is_integral(step):  # rounds down, ONNX toward zero
        numerator = step.node("Sub", numerator, step.node("Mod", numerator, denominator))
    step.finish("Div", [numerator, denominator])


def _squared_difference(step: Step) -> None:
    step.text("auto_broadcast", "numpy", "numpy", "none")
    difference = step.node("Sub", *step.inputs)
    step.finish("Mul", [difference, difference])


def _convert(step: Step) -> None:
    kind = element(step.text("destination_type", "", *ELEMENTS))
    array = step.builder.constant_array(step.inputs[0])
    target = helper.tensor_dtype_to_np_dtype(kind)
    if array is not None and array.dtype.kind in "iu" and target.kind in "iu":  # a stated shape stays visible
        step.finish("Identity", [step.builder.constant(array.astype(target), f"{step.inputs[0]}_converted")])
    else:
        step.finish("Cast", step.inputs, to=kind)


def _clamp(step: Step) -> None:
    dtype = helper.tensor_dtype_to_np_dtype(step.builder.value(step.inputs[0]).element)
    low, high = step.real("min"), step.real("max")
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        low, high = max(np.ceil(low), limits.min), min(np.floor(high), limits.max)
    if low > high:
        raise GraphError(f"min {low} is above max {high}")
    with np.errstate(over="ignore"):  # beyond the type's range is no bound
        bounds = [step.builder.constant(np.array(bound).astype(dtype), "bound") for bound in (low, high)]
    step.finish("Clip", [step.inputs[0], *bounds])


def _prelu(step: Step) -> None:
    data, slope = step.inputs
    shape = step.builder.value(slope).static("the slope")
    if len(shape) == 1 and shape != (1,) and step.rank(0) > 2:  # one slope per channel
        slope = step.node("Unsqueeze", slope, step.builder.integers(range(1, step.rank(0) - 1), "axes"))
    step.finish("PRelu", [data, slope])


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
    step.finish("Conv", step.inputs, **step.window())


def _fake_quantize(step: Step) -> None:
    """Round to one of `levels` places from the low to the high input bound, then stretch to the output bounds."""
    step.text("auto_broadcast", "numpy", "numpy", "none")
    data, low, high, out_low, out_high = step.inputs
    node, dtype = step.node, helper.tensor_dtype_to_np_dtype(step.builder.value(data).element)
    levels = step.number("levels")
    if levels < 2:
        raise GraphError(f"levels is {levels}; allowed: at least 2")
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
    step.finish("Conv", [data, folded], group=groups, **step.window())


def _pool(step: Step, op_type: str, **attributes: int) -> None:
    kernel, window = step.numbers("kernel"), step.window()
    count = step.rank(0) - 2
    lengths = {len(kernel), *(len(window.get(name, kernel)) for name in ("strides", "dilations"))}
    if count < 1 or lengths != {count} or len(window.get("pads", kernel * 2)) != 2 * count:
        raise GraphError(f"kernel {kernel} and window {window} do not have an entry per spatial axis ({count})")
    if step.text("rounding_type", "floor", "floor", "ceil", "ceil_torch") != "floor":
        # The frameworks disagree on a last window that starts in the padding; without a remainder there is none.
        spatial = step.builder.value(step.inputs[0]).static("the input of a pooling that rounds up")[2:]
        strides, dilations = (window.get(name, [1] * count) for name in ("strides", "dilations"))
        pads = window.get("pads", [0] * 2 * count)
        if min(strides) < 1:
            raise GraphError(f"strides {strides} are not positive")
        rooms = [x + before + after - (k - 1) * d - 1 for x, k, d, before, after in
                 zip(spatial, kernel, dilations, pads[:count], pads[count:], strict=True)]
        if "auto_pad" not in window and any(room % s for room, s in zip(rooms, strides, strict=True)):
            raise GraphError(f"rounding_type {step.layer.attributes['rounding_type']!r} has no exact counterpart for "
                             "these sizes")
    step.finish(op_type, step.inputs, kernel_shape=kernel, **window, **attributes)


def _max_pool(step: Step) -> None:
    if step.used_beyond_first:
        raise GraphError("the second output, the indices, is not known to the reader")
    _pool(step, "MaxPool")


def _average_pool(step: Step) -> None:
    _pool(step, "AveragePool", count_include_pad=int(not step.flag("exclude-pad", False)))


def _one_hot(step: Step) -> None:
    """Indices outside of the range are all off; ONNX counts negative ones from the end, so these get out of it."""
    if step.text("negative_indices_mode", "ignore_negative", "ignore_negative", "normalize") == "normalize":
        indices = step.inputs[0]
    else:
        depth = step.node("Cast", step.inputs[1], to=step.builder.value(step.inputs[0]).element)
        zero = step.node("Sub", depth, depth)
        indices = step.node("Where", step.node("Less", step.inputs[0], zero), depth, step.inputs[0])
    axes = step.builder.integers([0], "axes")
    off_on = [step.node("Unsqueeze", step.inputs[index], axes) for index in (3, 2)]
    step.finish("OneHot", [indices, step.inputs[1], step.node("Concat", *off_on, axis=0)], axis=step.number("axis", -1))


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
    operands = list(step.inputs)
    for index, name in enumerate(("transpose_a", "transpose_b")):
        rank = step.rank(index)
        if step.flag(name, False) and rank > 1:
            axes = [*range(rank - 2), rank - 1, rank - 2]
            operands[index] = step.node("Transpose", operands[index], perm=axes)
    step.finish("MatMul", operands)


_WINDOW = ("strides", "dilations", "pads_begin", "pads_end", "auto_pad")
_POOL = ("strides", "pads_begin", "pads_end", "kernel", "rounding_type", "auto_pad")
LAYERS = {
    **{name: _same(op_type) for name, op_type in {
        "Abs": "Abs", "Ceiling": "Ceil", "Cos": "Cos", "Erf": "Erf", "Exp": "Exp", "Floor": "Floor",
        "HSwish": "HardSwish", "Log": "Log", "LogicalNot": "Not", "Mish": "Mish", "Negative": "Neg", "ReLU": "Relu",
        "Relu": "Relu",
        "Sigmoid": "Sigmoid", "Sign": "Sign", "Sin": "Sin", "SoftPlus": "Softplus", "Sqrt": "Sqrt", "Tanh": "Tanh",
    }.items()},
    **{name: _binary(op_type) for name, op_type in {
        "Add": "Add", "Maximum": "Max", "Minimum": "Min", "Multiply": "Mul", "Power": "Pow", "Subtract": "Sub",
    }.items()},
    **{name: _binary(op_type) for name, op_type in {
        "Equal": "Equal", "Greater": "Greater", "GreaterEqual": "GreaterOrEqual", "Less": "Less",
        "LessEqual": "LessOrEqual", "LogicalAnd": "And", "LogicalOr": "Or", "LogicalXor": "Xor",
    }.items()},
    **{f"Reduce{name}": _reduction(f"Reduce{name}") for name in ("L1", "L2", "Max", "Mean", "Min", "Prod", "Sum")},
    "AvgPool": Kind(range(1, 2), (*_POOL, "exclude-pad"), _average_pool),
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
    "MaxPool": Kind(range(1, 2), (*_POOL, "dilations", "index_element_type", "axis"), _max_pool, several=True),
    "NotEqual": Kind(range(2, 3), ("auto_broadcast",), _not_equal),
    "OneHot": Kind(range(4, 5), ("axis", "negative_indices_mode"), _one_hot),
    "PReLU": Kind(range(2, 3), (), _prelu),
    "PRelu": Kind(range(2, 3), (), _prelu),
    "Select": Kind(range(3, 4), ("auto_broadcast",), _select),
    "SoftMax": Kind(range(1, 2), ("axis",),
                    lambda step: step.finish("Softmax", step.inputs, axis=step.number("axis", 1))),
    "SquaredDifference": Kind(range(2, 3), ("auto_broadcast",), _squared_difference),
    "Swish": Kind(range(1, 3), (), _swish),
    "TopK": Kind(range(2, 3), ("axis", "mode", "sort", "index_element_type", "stable"), _top_k, several=True),
    **MOVEMENT,
}
"""The types known, by the names that files use."""
