"""Operations of oneDNN graphs that stand beside convolutions, as standard ONNX nodes that compute the same.

The library computes in f32 and rounds once to the output's type, so operands of other types pass through Casts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from onnx import TensorProto, helper

from convreg import GraphError

from ...onednn_dtypes import DATA_TYPES, FLOATS
from ..builder import ModelBuilder
from ..matrix_product import matrix_product
from .graph import LogicalTensor, Operation

QUANTIZED = {"s8": (-128, 127), "u8": (0, 255), "s4": (-8, 7), "u4": (0, 15), "f8_e5m2": None, "f8_e4m3": None}
"""What tensors are quantized to, with the range of the integers."""


def element(tensor: LogicalTensor) -> int:
    """Return the ONNX element type of a tensor."""
    known = DATA_TYPES.get(tensor.dtype)
    if known is None:
        raise GraphError(f"tensor {tensor.id} has dtype {tensor.dtype!r}, which does not define its numbers")
    return helper.np_dtype_to_tensor_dtype(known.dtype)


class Step(NamedTuple):
    """One operation while it is translated: attributes hold defaults where the file is silent."""

    builder: ModelBuilder
    operation: Operation
    attributes: dict[str, Any]

    @property
    def output(self) -> LogicalTensor:
        """The only output."""
        return self.operation.outputs[0]

    def plain(self, index: int) -> str:
        """An input as it is."""
        return self.operation.inputs[index].name

    def float32(self, index: int) -> str:
        """An input in f32."""
        tensor = self.operation.inputs[index]
        if tensor.dtype not in FLOATS:
            raise GraphError(f"input {tensor.id} is {tensor.dtype}; allowed: {', '.join(FLOATS)}")
        if tensor.dtype == "f32":
            return tensor.name
        return self.builder.node("Cast", [tensor.name], to=TensorProto.FLOAT)

    def finish(self, op_type: str, *inputs: str, **attributes: Any) -> None:
        """Add the last node of an f32 computation and round to the output's type."""
        self.deliver(lambda output: self.builder.node(op_type, inputs, output, **attributes))

    def deliver(self, make: Callable[[str | None], str]) -> None:
        """Let `make` add the last nodes of an f32 computation, under a name if it gets one, and round its result."""
        if self.output.dtype not in FLOATS:
            raise GraphError(f"output {self.output.id} is {self.output.dtype}; allowed: {', '.join(FLOATS)}")
        if self.output.dtype == "f32":
            make(self.output.name)
        else:
            self.builder.node("Cast", [make(None)], self.output.name, to=element(self.output))

    def choice(self, name: str, *allowed: str) -> str:
        """A string attribute that must be one of `allowed`."""
        if self.attributes[name] not in allowed:
            raise GraphError(f"{name} is {self.attributes[name]!r}; allowed: {', '.join(map(repr, allowed))}")
        return self.attributes[name]

    def channel_vector(self, name: str, rank: int, axis: int) -> str:
        """A 1-D tensor, reshaped so that it lies along `axis` of a tensor of `rank` axes."""
        others = [other for other in range(rank) if other != axis % rank]
        return self.builder.node("Unsqueeze", [name, self.builder.integers(others, "axes")]) if others else name


class Attribute(NamedTuple):
    """Type of an attribute in the file's words, and its default; without one it is required."""

    type: str
    default: Any = None


class Kind(NamedTuple):
    """How many inputs an operation has, its attributes, its translation."""

    inputs: range
    attributes: dict[str, Attribute]
    build: Callable[[Step], None]


def translate(builder: ModelBuilder, operation: Operation) -> None:
    """Add the nodes of one operation of a kind in `STANDARD`."""
    kind = STANDARD[operation.kind]
    if len(operation.inputs) not in kind.inputs or len(operation.outputs) != 1:
        raise GraphError(f"{len(operation.inputs)} inputs and {len(operation.outputs)} outputs; allowed: "
                         f"{kind.inputs.start} to {kind.inputs.stop - 1} inputs and 1 output")
    attributes = {name: attribute.default for name, attribute in kind.attributes.items()}
    for name, (given, value) in operation.attributes.items():
        if name not in attributes:
            raise GraphError(f"attribute {name!r} is not known to the reader")
        if given != kind.attributes[name].type:
            raise GraphError(f"attribute {name!r} is of type {given}, not {kind.attributes[name].type}")
        attributes[name] = value
    for name, value in attributes.items():
        if value is None:
            raise GraphError(f"attribute {name!r} is missing")
    kind.build(Step(builder, operation, attributes))


def _unary(op_type: str) -> Kind:
    return Kind(range(1, 2), {}, lambda step: step.finish(op_type, step.float32(0)))


def _binary(op_type: str) -> Kind:
    def build(step: Step) -> None:
        first, second = step.operation.inputs
        if step.choice("auto_broadcast", "numpy", "none") == "none" and first.shape != second.shape:
            raise GraphError(f"shapes {list(first.shape)} and {list(second.shape)} differ with auto_broadcast 'none'")
        step.finish(op_type, step.float32(0), step.float32(1))

    return Kind(range(2, 3), {"auto_broadcast": Attribute("string", "numpy")}, build)


def _relu(step: Step) -> None:
    """In f32, for which every runtime has a kernel, and back: exact, and the output has the input's type."""
    source = step.operation.inputs[0]
    if source.dtype == "f32":
        step.builder.node("Relu", [step.float32(0)], step.output.name)
    else:
        made = step.builder.node("Relu", [step.float32(0)])
        step.builder.node("Cast", [made], step.output.name, to=element(source))


def _square(step: Step) -> None:
    value = step.float32(0)
    step.finish("Mul", value, value)


def _gelu(step: Step) -> None:
    mode = step.choice("mode", "gelu_erf", "gelu_tanh")
    step.finish("Gelu", step.float32(0), approximate="tanh" if mode == "gelu_tanh" else "none")


def _clamp(step: Step) -> None:
    low, high = (step.builder.constant(np.array(step.attributes[name], np.float32), name) for name in ("min", "max"))
    step.finish("Clip", step.float32(0), low, high)


def _bias_add(step: Step) -> None:
    data, bias = step.operation.inputs
    axis = 1 if step.choice("data_format", "NXC", "NCX") == "NCX" else -1
    if len(bias.shape) != 1 or len(data.shape) < 2:
        raise GraphError(f"data has {len(data.shape)} axes and bias {len(bias.shape)}; allowed: at least 2, and 1")
    if None not in (data.shape[axis], bias.shape[0]) and data.shape[axis] != bias.shape[0]:
        raise GraphError(f"bias has {bias.shape[0]} elements for {data.shape[axis]} channels")
    step.finish("Add", step.float32(0), step.channel_vector(step.float32(1), len(data.shape), axis))


def _batch_norm(step: Step) -> None:
    rank = len(step.operation.inputs[0].shape)
    axis = 1 if step.choice("data_format", "NXC", "NCX") == "NCX" else -1
    if rank < 2 or any(len(tensor.shape) != 1 for tensor in step.operation.inputs[1:]):
        raise GraphError("needs data of at least 2 axes and four vectors")
    node = step.builder.node
    gamma, beta, mean, variance = (step.channel_vector(step.float32(index), rank, axis) for index in range(1, 5))
    epsilon = step.builder.constant(np.array(step.attributes["epsilon"], np.float32), "epsilon")
    deviation = node("Sqrt", [node("Add", [variance, epsilon])])
    normal = node("Div", [node("Sub", [step.float32(0), mean]), deviation])
    step.finish("Add", node("Mul", [normal, gamma]), beta)


def _reduction(kind: str) -> Kind:
    def build(step: Step) -> None:
        axes, rank = step.attributes["axes"], len(step.operation.inputs[0].shape)
        if not axes or len({axis % rank for axis in axes if -rank <= axis < rank}) != len(axes):
            raise GraphError(f"axes {axes} are not distinct axes of a tensor of rank {rank}")
        step.finish(kind, step.float32(0), step.builder.integers(axes, "axes"),
                    keepdims=int(step.attributes["keep_dims"]))

    return Kind(range(1, 2), {"axes": Attribute("s64[]", []), "keep_dims": Attribute("bool", False)}, build)


def _soft_max(op_type: str, axis: int, **more: Attribute) -> Kind:
    def build(step: Step) -> None:
        if more:
            step.choice("mode", "none")
        step.finish(op_type, step.float32(0), axis=step.attributes["axis"])

    return Kind(range(1, 2), {"axis": Attribute("s64", axis), **more}, build)


def _matmul(step: Step) -> None:
    step.choice("accumulation_mode", "strict")
    operands = [step.float32(index) for index in (0, 1)]
    transposed = [step.attributes[name] for name in ("transpose_a", "transpose_b")]
    if len(step.operation.inputs) == 2:
        step.deliver(lambda output: matrix_product(step.builder, operands, transposed, output))
    else:
        step.finish("Add", matrix_product(step.builder, operands, transposed), step.float32(2))


def _reshape(step: Step) -> None:
    shape = step.attributes["shape"]
    literal = not step.attributes["special_zero"] and 0 in shape
    if literal and -1 in shape:
        raise GraphError(f"shape {shape} has both -1 and an extent of 0, so the -1 is undefined")
    step.builder.node("Reshape", [step.plain(0), step.builder.integers(shape, "shape")], step.output.name,
                      allowzero=int(literal))


def _transpose(step: Step) -> None:
    order, rank = step.attributes["order"], len(step.operation.inputs[0].shape)
    if sorted(axis % rank if -rank <= axis < rank else -1 for axis in order) != list(range(rank)):
        raise GraphError(f"order {order} is not a permutation of {rank} axes")
    if order:
        step.builder.node("Transpose", [step.plain(0)], step.output.name, perm=[axis % rank for axis in order])
    else:
        step.builder.node("Identity", [step.plain(0)], step.output.name)


def _concat(step: Step) -> None:
    step.builder.node("Concat", [tensor.name for tensor in step.operation.inputs], step.output.name,
                      axis=step.attributes["axis"])


def _type_cast(step: Step) -> None:
    for tensor in (step.operation.inputs[0], step.output):
        if tensor.dtype not in FLOATS:
            raise GraphError(f"tensor {tensor.id} is {tensor.dtype}; allowed: {', '.join(FLOATS)}")
    step.builder.node("Cast", [step.plain(0)], step.output.name, to=element(step.output))


class _Scaling(NamedTuple):
    """Checked quantization parameters; `axis` is None for one scale for all."""

    scales: np.ndarray[Any, Any]
    zero_points: np.ndarray[Any, Any]
    axis: int | None


def _scaling(step: Step, quantized: LogicalTensor) -> _Scaling:
    if quantized.dtype not in QUANTIZED:
        raise GraphError(f"tensor {quantized.id} is {quantized.dtype}; allowed: {', '.join(QUANTIZED)}")
    scales, zero_points = step.attributes["scales"], step.attributes["zps"] or [0] * len(step.attributes["scales"])
    per_channel = step.choice("qtype", "per_tensor", "per_channel") == "per_channel"
    shape, axis = quantized.shape, step.attributes["axis"]
    if per_channel and not -len(shape) <= axis < len(shape):
        raise GraphError(f"axis is {axis} for a tensor of {len(shape)} axes")
    count = shape[axis] if per_channel else 1
    if len(zero_points) != len(scales) or count not in (None, len(scales)) or not scales:
        raise GraphError(f"{len(scales)} scales and {len(zero_points)} zero points where {count} are needed")
    if min(scales) <= 0:
        raise GraphError(f"scale {min(scales)} is not positive")
    limits = QUANTIZED[quantized.dtype] or (0, 0)
    if min(zero_points) < limits[0] or max(zero_points) > limits[1]:
        raise GraphError(f"zero points {zero_points} lie outside {limits[0]} to {limits[1]}, the range of "
                         f"{quantized.dtype}")
    listed, offsets = np.array(scales, np.float32), np.array(zero_points, np.int64)
    return _Scaling(listed, offsets, axis % len(shape)) if per_channel else _Scaling(listed[0], offsets[0], None)


def _dequantize(step: Step) -> None:
    source = step.operation.inputs[0]
    scales, zero_points, axis = _scaling(step, source)
    operands = [source.name, step.builder.constant(np.asarray(scales), "scale")]
    if np.any(zero_points):
        operands.append(_typed(step, zero_points, source))
    if step.output.dtype != "f32":
        raise GraphError(f"output {step.output.id} is {step.output.dtype}; allowed: f32")
    step.builder.node("DequantizeLinear", operands, step.output.name, **({} if axis is None else {"axis": axis}))


def _quantize(step: Step) -> None:
    scales, zero_points, axis = _scaling(step, step.output)
    node, constant = step.builder.node, step.builder.constant
    value, scale = step.float32(0), constant(np.asarray(scales), "scale")
    if not np.any(zero_points):
        node("QuantizeLinear", [value, scale, _typed(step, zero_points, step.output)], step.output.name,
             **({} if axis is None else {"axis": axis}))
        return
    # QuantizeLinear rounds before it adds the zero point, which differs at ties; the library adds first.
    zero_point = constant(np.asarray(zero_points, np.float32), "zero_point")
    if axis is not None:
        scale, zero_point = (step.channel_vector(name, len(step.output.shape), axis) for name in (scale, zero_point))
    limits = [constant(np.array(limit, np.float32), "limit") for limit in QUANTIZED[step.output.dtype] or ()]
    rounded = node("Round", [node("Add", [node("Div", [value, scale]), zero_point])])
    node("Cast", [node("Clip", [rounded, *limits])], step.output.name, to=element(step.output))


def _typed(step: Step, values: np.ndarray[Any, Any], tensor: LogicalTensor) -> str:
    """Zero points as a constant of the quantized type."""
    dtype = helper.tensor_dtype_to_np_dtype(element(tensor))
    return step.builder.constant(np.asarray(values).astype(dtype), "zero_point")


_SCALING = {"qtype": Attribute("string", "per_tensor"), "axis": Attribute("s64", 1), "scales": Attribute("f32[]"),
            "zps": Attribute("s64[]", [])}
_FORMAT = Attribute("string", "NXC")
STANDARD = {
    **{kind: _unary(op_type) for kind, op_type in {
        "Abs": "Abs", "Exp": "Exp", "HardSwish": "HardSwish", "Log": "Log", "Mish": "Mish", "Round": "Round",
        "Sigmoid": "Sigmoid", "Sqrt": "Sqrt", "Tanh": "Tanh",
    }.items()},
    **{kind: _binary(op_type) for kind, op_type in {
        "Add": "Add", "Divide": "Div", "Maximum": "Max", "Minimum": "Min", "Multiply": "Mul", "Subtract": "Sub",
    }.items()},
    "BatchNormInference": Kind(range(5, 6), {"epsilon": Attribute("f32"), "data_format": _FORMAT}, _batch_norm),
    "BiasAdd": Kind(range(2, 3), {"data_format": _FORMAT}, _bias_add),
    "Clamp": Kind(range(1, 2), {"min": Attribute("f32"), "max": Attribute("f32")}, _clamp),
    "Concat": Kind(range(1, 65), {"axis": Attribute("s64")}, _concat),
    "Dequantize": Kind(range(1, 2), _SCALING, _dequantize),
    "Elu": Kind(range(1, 2), {"alpha": Attribute("f32")},
                lambda step: step.finish("Elu", step.float32(0), alpha=step.attributes["alpha"])),
    "GELU": Kind(range(1, 2), {"mode": Attribute("string", "gelu_erf")}, _gelu),
    "LeakyReLU": Kind(range(1, 2), {"alpha": Attribute("f32")},
                      lambda step: step.finish("LeakyRelu", step.float32(0), alpha=step.attributes["alpha"])),
    "LogSoftmax": _soft_max("LogSoftmax", -1),
    "MatMul": Kind(range(2, 4), {
        "transpose_a": Attribute("bool", False), "transpose_b": Attribute("bool", False),
        "accumulation_mode": Attribute("string", "strict")}, _matmul),
    "Quantize": Kind(range(1, 2), _SCALING, _quantize),
    "ReLU": Kind(range(1, 2), {}, _relu),
    **{kind: _reduction(kind) for kind in ("ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum")},
    "SoftMax": _soft_max("Softmax", 1, mode=Attribute("string", "none")),
    "Square": Kind(range(1, 2), {}, _square),
    "StaticReshape": Kind(range(1, 2), {"shape": Attribute("s64[]"), "special_zero": Attribute("bool")}, _reshape),
    "StaticTranspose": Kind(range(1, 2), {"order": Attribute("s64[]")}, _transpose),
    "TypeCast": Kind(range(1, 2), {}, _type_cast),
}
"""The kinds known, by name."""
