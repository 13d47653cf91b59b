"""The layers of OpenVINO models that stand beside transposed convolutions, as standard ONNX nodes of the same meaning.

Source: the operation pages of OpenVINO's sets opset1 to opset16; a variant without an exact counterpart is refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper

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


def _group_convolution(step: Step) -> None:
    """The filter carries the groups as an axis of its own; ONNX folds them into the output channels."""
    data, filter_name = step.inputs
    shape = step.builder.value(filter_name).static("the filter")
    if len(shape) < 4:
        raise GraphError(f"the filter has {len(shape)} axes; allowed: at least 4, groups first")
    groups, outputs, *rest = shape
    _check_channels(step, groups, rest[0])
    folded = step.node("Reshape", filter_name, step.builder.integers([groups * outputs, *rest], "filter_shape"))
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
    **{name: _reduction(name) for name in ("ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum")},
    "AvgPool": Kind(range(1, 2), (*_POOL, "exclude-pad"), _average_pool),
    "BatchNormInference": Kind(range(5, 6), ("epsilon",), _batch_norm),
    "Clamp": Kind(range(1, 2), ("min", "max"), _clamp),
    "Convert": Kind(range(1, 2), ("destination_type",), _convert),
    "Convolution": Kind(range(2, 3), _WINDOW, _convolution),
    "Divide": Kind(range(2, 3), ("auto_broadcast", "m_pythondiv"), _divide),
    "Elu": Kind(range(1, 2), ("alpha",), lambda step: step.finish("Elu", step.inputs, alpha=step.real("alpha"))),
    "Gelu": Kind(range(1, 2), ("approximation_mode",), _gelu),
    "GroupConvolution": Kind(range(2, 3), _WINDOW, _group_convolution),
    "HSigmoid": Kind(range(1, 2), (), lambda step: step.finish("HardSigmoid", step.inputs, alpha=1 / 6, beta=0.5)),
    "MatMul": Kind(range(2, 3), ("transpose_a", "transpose_b"), _matmul),
    "MaxPool": Kind(range(1, 2), (*_POOL, "dilations", "index_element_type", "axis"), _max_pool, several=True),
    "PReLU": Kind(range(2, 3), (), _prelu),
    "PRelu": Kind(range(2, 3), (), _prelu),
    "SoftMax": Kind(range(1, 2), ("axis",),
                    lambda step: step.finish("Softmax", step.inputs, axis=step.number("axis", 1))),
    "SquaredDifference": Kind(range(2, 3), ("auto_broadcast",), _squared_difference),
    "Swish": Kind(range(1, 3), (), _swish),
    **MOVEMENT,
}
"""The types known, by the names that files use."""
