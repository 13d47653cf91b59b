"""Nodes of standard ONNX as layers of an OpenVINO model with the same meaning.

Source: the operation pages of OpenVINO's sets opset1 to opset8; a variant without an exact counterpart is refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, numpy_helper

from convreg import GraphError
from convreg.calls.binding import make_call, plan_of
from convreg.formats import format_of
from convreg.onnx.graph import attributes_of
from convreg.onnx.standard import CONV, CONV_TRANSPOSE
from convreg.spec import OpSpec, TensorType

from ..view import View, explicit_window
from .elementwise import binary, cast, clip, leaky, power, same, slopes, variadic, wrapping
from .ir import Port
from .writing import Build, Writing


def _transpose(step: Writing) -> Port:
    order = step.attributes.get("perm", list(range(step.view.rank(step.name(0))))[::-1])
    return step.layer("Transpose", step.port(0), step.ints(order))


def _reshape(step: Writing) -> Port:
    return step.layer("Reshape", step.port(0), step.port(1), special_zero=not step.attributes.get("allowzero", 0))


def _flatten(step: Writing) -> Port:
    rank, axis = step.view.rank(step.name(0)), step.attributes.get("axis", 1)
    axis = axis + rank if axis < 0 else axis
    if axis == 1:
        return step.layer("Reshape", step.port(0), step.ints([0, -1]), special_zero=True)
    shape = step.view.static(step.name(0))
    flat = [int(np.prod(part, dtype=np.int64)) for part in (shape[:axis], shape[axis:])]
    return step.layer("Reshape", step.port(0), step.ints(flat), special_zero=False)


def _slice(step: Writing) -> Port:
    starts = step.view.shape(step.name(1))
    count = starts[0] if starts and isinstance(starts[0], int) else None
    if count is None and not step.has(4):
        raise GraphError("the number of axes is not known")
    steps = step.port(4) if step.has(4) else step.constant([1] * (count or 0), step.view.element(step.name(1)))
    axes = [step.port(3)] if step.has(3) else []
    return step.layer("Slice", step.port(0), step.port(1), step.port(2), steps, *axes, opset="opset8")


def _pad(step: Writing) -> Port:
    mode = step.allow("mode", "constant", "edge", "reflect")
    pads, rank = step.integers(1, "pads"), step.view.rank(step.name(0))
    axes = step.integers(3, "axes") if step.has(3) else range(rank)
    sides = [[0] * rank, [0] * rank]
    for index, axis in enumerate(axes):
        sides[0][axis], sides[1][axis] = pads[index], pads[index + len(axes)]
    begin, end = (step.ints(side) for side in sides)
    value = step.port(2) if step.has(2) else step.constant(0, step.element)
    if step.has(2) and step.view.rank(step.name(2)):
        value = step.reshaped(2, [])
    return step.layer("Pad", step.port(0), begin, end, *([value] if mode == "constant" else []), pad_mode=mode,
                      opset="opset12" if min(pads, default=0) < 0 else "opset1")


def _reduction(kind: str) -> Build:
    def build(step: Writing) -> Port:
        axes, rank = step.axes(), step.view.rank(step.name(0))
        if not rank or (not axes and step.attributes.get("noop_with_empty_axes", 0)):
            return step.port(0)
        if step.element == TensorProto.BOOL:
            raise GraphError("the elements are truth values; allowed: numbers")
        axes = axes or list(range(rank))
        return step.layer(kind, step.port(0), step.ints(axes), keep_dims=bool(step.attributes.get("keepdims", 1)))

    return build


def _squeeze(step: Writing) -> Port:
    axes = step.axes()
    return step.layer("Squeeze", step.port(0), *([] if axes is None else [step.ints(axes)]))


def _unsqueeze(step: Writing) -> Port:
    return step.layer("Unsqueeze", step.port(0), step.ints(step.axes() or []))


def _concat(step: Writing) -> Port:
    return step.layer("Concat", *step.ports, axis=step.attributes["axis"])


def _gemm(step: Writing) -> Port:
    alpha, beta = step.attributes.get("alpha", 1.0), step.attributes.get("beta", 1.0)
    value = step.layer("MatMul", step.port(0), step.port(1), transpose_a=bool(step.attributes.get("transA", 0)),
                       transpose_b=bool(step.attributes.get("transB", 0)))

    def scaled(port: Port, factor: float) -> Port:
        if factor == 1:
            return port
        return step.layer("Multiply", port, step.constant(factor, step.element), auto_broadcast="numpy")

    value = scaled(value, alpha)
    return step.layer("Add", value, scaled(step.port(2), beta), auto_broadcast="numpy") if step.has(2) else value


def _shape(step: Writing) -> Port:
    value = step.layer("ShapeOf", step.port(0), element=TensorProto.INT64, opset="opset3", output_type="i64")
    if "start" not in step.attributes and "end" not in step.attributes:
        return value
    bounds = (step.ints([entry]) for entry in (
        step.attributes.get("start", 0), step.attributes.get("end", np.iinfo(np.int64).max), 1))
    return step.layer("Slice", value, *bounds, element=TensorProto.INT64, opset="opset8")


def _size(step: Writing) -> Port:
    shape = step.layer("ShapeOf", step.port(0), element=TensorProto.INT64, opset="opset3", output_type="i64")
    return step.layer("ReduceProd", shape, step.ints([0]), element=TensorProto.INT64, keep_dims=False)


def _batch_norm(step: Writing) -> Port:
    step.allow("training_mode", 0)
    return step.layer("BatchNormInference", *step.ports, opset="opset5", epsilon=step.attributes.get("epsilon", 1e-5))


def _split(step: Writing) -> list[Port]:
    """By the lengths of the results, whichever way they were stated."""
    axis = step.attributes.get("axis", 0)
    lengths = [(step.view.shape(name) or ())[axis] for name in step.node.output]
    if not all(isinstance(length, int) for length in lengths):
        raise GraphError("the lengths of the parts are not known")
    return step.layers("VariadicSplit", step.port(0), step.ints(axis), step.ints(lengths),
                       elements=[step.element] * len(lengths))


def _gather(step: Writing) -> Port:
    return step.layer("Gather", step.port(0), step.port(1), step.ints(step.attributes.get("axis", 0)), opset="opset8",
                      batch_dims=0)


def _expand(step: Writing) -> Port:
    return step.layer("Broadcast", step.port(0), step.port(1), opset="opset3", mode="bidirectional")


def _constant_of_shape(step: Writing) -> Port:
    proto = step.attributes.get("value")
    element = TensorProto.FLOAT if proto is None else proto.data_type
    values = np.zeros(1, np.float32) if proto is None else numpy_helper.to_array(proto)
    if step.view.shape(step.name(0)) == (0,):  # Broadcast makes no scalars
        return step.constant(values.reshape(()), element)
    return step.layer("Broadcast", step.constant(values, element), step.port(0), element=element, opset="opset3",
                      mode="numpy")


def _where(step: Writing) -> Port:
    return step.layer("Select", *step.ports, element=step.view.element(step.name(1)), auto_broadcast="numpy")


def _arg_max(step: Writing) -> Port:
    """The first of equal values, as TopK orders them when it sorts by value."""
    step.allow("select_last_index", 0)
    axis, kept = step.attributes.get("axis", 0), step.attributes.get("keepdims", 1)
    one = step.constant(1, TensorProto.INT64)
    _, places = step.layers("TopK", step.port(0), one, elements=[step.element, TensorProto.INT64], opset="opset11",
                            axis=axis, mode="max", sort="value", index_element_type="i64", stable=True)
    return places if kept else step.layer("Squeeze", places, step.ints([axis]), element=TensorProto.INT64)


def _top_k(step: Writing) -> list[Port]:
    step.allow("sorted", 1, 0)
    mode = "max" if step.attributes.get("largest", 1) else "min"
    held = step.view.array(step.name(1))
    count = step.reshaped(1, []) if held is None else step.ints(held.reshape(()))
    return step.layers("TopK", step.port(0), count, elements=[step.element, TensorProto.INT64],
                       opset="opset11", axis=step.attributes.get("axis", -1), mode=mode, sort="value",
                       index_element_type="i64", stable=True)


def _one_hot(step: Writing) -> Port:
    off_on = step.view.array(step.name(2))
    if off_on is None:
        raise GraphError("the values of OneHot must be constant")
    depth = step.integers(1, "depth")[0]
    element = step.view.element(step.name(2))
    off, on = (step.constant(entry, element) for entry in off_on)
    indices, kind = step.port(0), step.element
    if kind not in (TensorProto.INT32, TensorProto.INT64):
        kind = TensorProto.INT64
        indices = step.layer("Convert", indices, element=kind, destination_type="i64")
    # The layer knows no places counted from the end, which is what negative indices are here.
    shifted = step.layer("Add", indices, step.constant(depth, kind), element=kind, auto_broadcast="numpy")
    negative = step.layer("Less", indices, step.constant(0, kind), element=TensorProto.BOOL, auto_broadcast="numpy")
    indices = step.layer("Select", negative, shifted, indices, element=kind, auto_broadcast="numpy")
    return _hot(step, indices, depth, on, off, element, step.attributes.get("axis", -1))


def _hot(step: Writing, indices: Port, depth: int, on: Port, off: Port, element: int, axis: int) -> Port:
    return step.layer("OneHot", indices, step.ints(depth), on, off, element=element, axis=axis)


def _cross_entropy(step: Writing) -> list[Port]:
    """Minus the logarithm of the probability that the scores give to the label, and all these logarithms."""
    reduction = step.allow("reduction", "mean", "sum", "none")
    if step.has(2) or "ignore_index" in step.attributes:
        raise GraphError("weights and ignore_index have no counterpart here")
    classes = step.view.shape(step.name(0))
    if classes is None or not isinstance(classes[1], int):
        raise GraphError("the number of classes is not known")
    logs = step.layer("LogSoftmax", step.port(0), opset="opset5", axis=1)
    one, zero = step.constant(1, step.element), step.constant(0, step.element)
    chosen = _hot(step, step.port(1), classes[1], one, zero, step.element, 1)
    found = step.layer("ReduceSum", step.layer("Multiply", logs, chosen, auto_broadcast="numpy"), step.ints([1]),
                       keep_dims=False)
    loss = step.layer("Negative", found)
    if reduction != "none":
        axes = list(range(len(classes) - 1))
        loss = step.layer(f"Reduce{reduction.title()}", loss, step.ints(axes), keep_dims=False)
    return [loss, logs]


def _window(step: Writing, spec: OpSpec) -> dict[str, Any]:
    """Explicit strides, pads and dilations; automatic ones are resolved by the operator's rule."""
    rank = step.view.rank(step.name(0)) - 2
    mode = step.attributes.get("auto_pad", "NOTSET")
    if mode == "NOTSET" and "output_shape" not in step.attributes:
        return explicit_window(step.attributes, rank, transposed=spec is CONV_TRANSPOSE)
    shapes = [step.view.shape(step.node.input[index]) for index in (0, 1)]
    shapes[0] = None if shapes[0] is None else (1, *shapes[0][1:])
    for shape in shapes:
        if shape is None or not all(isinstance(extent, int) for extent in shape):
            raise GraphError(f"auto_pad {mode!r} can only be resolved if all extents are known")
    known = format_of(step.view.dtype(step.name(0)))
    tensors = tuple(TensorType(shape, known.name if known else "") for shape in shapes)
    call = make_call(spec, "onnx", (*tensors, None), {}, step.attributes)
    geometry = plan_of(call).integers
    return geometry.explicit | ({"output_padding": geometry.output_padding} if spec is CONV_TRANSPOSE else {})


def _convolution(kind: str, spec: OpSpec) -> Build:
    def build(step: Writing) -> Port:
        groups, window = step.attributes.get("group", 1), _window(step, spec)
        apart = _grouped_filter(step.view, step.node)
        if apart is not None:
            weights = step.port_of(apart)
        else:
            weights = step.reshaped(1, _grouped(step, groups)) if groups > 1 else step.port(1)
        value = step.layer(f"Group{kind}" if groups > 1 else kind, step.port(0), weights, auto_pad="explicit",
                           **window)
        if not step.has(2):
            return value
        bias = step.reshaped(2, [1, -1, *[1] * (step.view.rank(step.name(0)) - 2)])
        return step.layer("Add", value, bias, auto_broadcast="numpy")

    return build


def _grouped(step: Writing, groups: int) -> list[int]:
    """Shape of the weights with the groups as an axis of their own; one extent may be left for the run to tell."""
    first, *rest = step.view.shape(step.name(1)) or (None,)
    open_extents = [extent for extent in rest if not isinstance(extent, int)]
    if not isinstance(first, int) or len(open_extents) > 1:
        raise GraphError(f"the shape of the weights {step.name(1)!r} is not known before the graph runs")
    return [groups, first // groups, *(extent if isinstance(extent, int) else -1 for extent in rest)]


def _grouped_filter(view: View, node: NodeProto) -> str | None:
    """Return the value whose axis of groups a Reshape folds for a convolution, None if there is no such Reshape."""
    if node.op_type not in ("Conv", "ConvTranspose") or node.domain != "":
        return None
    groups, made = attributes_of(node).get("group", 1), view.makers.get(node.input[1])
    if groups <= 1 or made is None or made.op_type != "Reshape" or made.domain != "":
        return None
    apart, folded, stated = view.shape(made.input[0]), view.shape(node.input[1]), view.array(made.input[1])
    if apart is None or folded is None or len(apart) != len(folded) + 1 or apart[0] != groups:
        return None
    extents = [extent if isinstance(extent, int) else -1 for extent in apart[1:]]
    if -1 not in extents:
        return made.input[0] if folded == (groups * extents[0], *extents[1:]) else None
    # The -1 in the new shape stands for the one extent that only a run will tell.
    as_stated = stated is not None and stated.tolist() == [groups * extents[0], *extents[1:]]
    return made.input[0] if as_stated and extents.count(-1) == 1 and 0 not in extents else None


def is_folded(view: View, node: NodeProto) -> bool:
    """Whether a node is a Reshape that no layer reads, because convolutions take the filter with the groups apart."""
    made = node.output[0]
    if node.op_type != "Reshape" or node.domain != "" or made in view.outputs:
        return False
    readers = view.readers.get(made, [])
    return bool(readers) and all(
        [place for place, name in enumerate(reader.input) if name == made] == [1]
        and _grouped_filter(view, reader) is not None for reader in readers)


def _pool(kind: str) -> Build:
    def build(step: Writing) -> Port:
        step.allow("ceil_mode", 0)
        step.allow("auto_pad", "NOTSET")
        kernel = list(step.attributes["kernel_shape"])
        if any(entry != 1 for entry in step.attributes.get("dilations", ())):
            raise GraphError("dilations of pooling are not written")
        if len([name for name in step.node.output if name]) > 1:
            raise GraphError("the second output, the indices, is not written")
        pads = list(step.attributes.get("pads", [0] * 2 * len(kernel)))
        excluded = not step.attributes.get("count_include_pad", 0)
        extra: dict[str, Any] = {} if kind == "MaxPool" else {"exclude_pad": excluded}
        return step.layer(kind, step.port(0), strides=step.attributes.get("strides", [1] * len(kernel)),
                          pads_begin=pads[: len(kernel)], pads_end=pads[len(kernel):], kernel=kernel,
                          rounding_type="floor", auto_pad="explicit", **extra)

    return build


def _global_average(step: Writing) -> Port:
    return step.layer("ReduceMean", step.port(0), step.ints(range(2, step.view.rank(step.name(0)))), keep_dims=True)


STANDARD: dict[str, Build] = {
    **{name: same(kind) for name, kind in {
        "Ceil": "Ceiling", "Cos": "Cos", "Erf": "Erf", "Exp": "Exp", "Floor": "Floor", "Log": "Log",
        "Relu": "ReLU", "Sigmoid": "Sigmoid", "Sign": "Sign", "Sin": "Sin", "Sqrt": "Sqrt",
        "Tanh": "Tanh",
    }.items()},
    **{name: same(kind, "opset4") for name, kind in {
        "HardSwish": "HSwish", "Mish": "Mish", "Softplus": "SoftPlus"}.items()},
    **{name: wrapping(kind, auto_broadcast="numpy") for name, kind in {
        "Add": "Add", "Mul": "Multiply", "Sub": "Subtract"}.items()},
    **{name: binary(kind, truth=True) for name, kind in {
        "Equal": "Equal", "Greater": "Greater", "GreaterOrEqual": "GreaterEqual", "Less": "Less",
        "LessOrEqual": "LessEqual", "And": "LogicalAnd", "Or": "LogicalOr", "Xor": "LogicalXor"}.items()},
    **{f"Reduce{name}": _reduction(f"Reduce{name}") for name in ("Max", "Mean", "Min", "Prod", "Sum")},
    "Abs": wrapping("Abs"),
    "ArgMax": _arg_max,
    "AveragePool": _pool("AvgPool"),
    "BatchNormalization": _batch_norm,
    "Cast": cast,
    "Clip": clip,
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "Conv": _convolution("Convolution", CONV),
    "ConvTranspose": _convolution("ConvolutionBackpropData", CONV_TRANSPOSE),
    "Div": wrapping("Divide", auto_broadcast="numpy", m_pythondiv=False),
    "Elu": lambda step: step.layer("Elu", step.port(0), alpha=step.attributes.get("alpha", 1.0)),
    "Expand": _expand,
    "Flatten": _flatten,
    "Gather": _gather,
    "Gelu": lambda step: step.layer(
        "Gelu", step.port(0), opset="opset7",
        approximation_mode="TANH" if step.allow("approximate", "none", "tanh") == "tanh" else "ERF"),
    "Gemm": _gemm,
    "GlobalAveragePool": _global_average,
    "Identity": lambda step: step.port(0),
    "LeakyRelu": leaky,
    "LogSoftmax": lambda step: step.layer("LogSoftmax", step.port(0), opset="opset5",
                                          axis=step.attributes.get("axis", -1)),
    "MatMul": lambda step: step.layer("MatMul", step.port(0), step.port(1), transpose_a=False, transpose_b=False),
    "Max": variadic("Maximum"),
    "MaxPool": _pool("MaxPool"),
    "Min": variadic("Minimum"),
    "Neg": wrapping("Negative"),
    "Not": lambda step: step.layer("LogicalNot", step.port(0)),
    "OneHot": _one_hot,
    "Pad": _pad,
    "Pow": power,
    "PRelu": slopes,
    "Reshape": _reshape,
    "Shape": _shape,
    "Size": _size,
    "Slice": _slice,
    "Softmax": lambda step: step.layer("SoftMax", step.port(0), opset="opset8", axis=step.attributes.get("axis", -1)),
    "SoftmaxCrossEntropyLoss": _cross_entropy,
    "Split": _split,
    "Squeeze": _squeeze,
    "TopK": _top_k,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
    "Where": _where,
}
"""The nodes of standard ONNX that can be written, by their types."""
