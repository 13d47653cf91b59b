"""Nodes of standard ONNX as kinds of oneDNN Graph.

The library computes in f32 and rounds once to the output's type, as a session of convreg does for one node.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from onnx import NodeProto

from convreg import GraphError

from ...onednn_dtypes import DATA_TYPES, FLOATS
from ..view import View, check_bounds, explicit_window

ELEMENT_NAMES = {str(known.dtype): name for name, known in DATA_TYPES.items() if name not in ("s4", "u4")}
"""The files' names for NumPy's element types; integers of four bits are read, not written."""


class Written(NamedTuple):
    """An operation as it will stand in the file; attributes are (type, value)."""

    kind: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, tuple[str, Any]]


class Operation(NamedTuple):
    """One standard node while it is written."""

    model: View
    node: NodeProto
    attributes: dict[str, Any]

    def written(self, kind: str, *inputs: str, **attributes: tuple[str, Any]) -> Written:
        """The operation of one output whose operands are the named tensors, by default all that the node has."""
        names = list(inputs or filter(None, self.node.input))
        for name in (*names, self.node.output[0]):
            dtype = str(self.model.dtype(name))
            if ELEMENT_NAMES.get(dtype) not in FLOATS:
                raise GraphError(f"tensor {name!r} is {dtype}; allowed: float32, bfloat16, float16")
        return Written(kind, names, [self.node.output[0]], attributes)


Build = Callable[[Operation], Written]


def _same(kind: str) -> Build:
    return lambda operation: operation.written(kind)


def _binary(kind: str) -> Build:
    def build(operation: Operation) -> Written:
        if len(operation.node.input) != 2:
            raise GraphError(f"{len(operation.node.input)} inputs; allowed: 2")
        return operation.written(kind, auto_broadcast=("string", "numpy"))

    return build


def _clip(operation: Operation) -> Written:
    bounds = []
    for index, neutral in ((1, -np.inf), (2, np.inf)):
        given = len(operation.node.input) > index and operation.node.input[index]
        array = operation.model.array(operation.node.input[index]) if given else np.array(neutral)
        if array is None or not np.isfinite(array.astype(np.float64)).all():
            raise GraphError("both bounds must be constant and finite")
        check_bounds([array])
        bounds.append(float(array))
    return operation.written("Clamp", operation.node.input[0], min=("f32", bounds[0]), max=("f32", bounds[1]))


def _cast(operation: Operation) -> Written:
    return operation.written("TypeCast")


def _reshaped(operation: Operation) -> Written:
    """Write a node that keeps the order of elements; the result's shape is written as far as it is known."""
    output = operation.model.shape(operation.node.output[0])
    shape = list(output or ())
    unknown = [axis for axis, extent in enumerate(shape) if not isinstance(extent, int)]
    if output is None or len(unknown) > 1 or (unknown and 0 in shape):
        raise GraphError("the shape of the result is not known")
    return operation.written("StaticReshape", operation.node.input[0], special_zero=("bool", 0), shape=(
        "s64[]", [extent if isinstance(extent, int) else -1 for extent in shape]))


def _transpose(operation: Operation) -> Written:
    rank = operation.model.rank(operation.node.input[0])
    order = operation.attributes.get("perm", list(range(rank))[::-1])
    return operation.written("StaticTranspose", order=("s64[]", list(order)))


def _concat(operation: Operation) -> Written:
    return operation.written("Concat", axis=("s64", operation.attributes["axis"]))


def _gelu(operation: Operation) -> Written:
    mode = operation.attributes.get("approximate", "none")
    return operation.written("GELU", mode=("string", "gelu_tanh" if mode == "tanh" else "gelu_erf"))


def _alpha(kind: str, default: float) -> Build:
    return lambda operation: operation.written(kind, alpha=("f32", operation.attributes.get("alpha", default)))


def _soft_max(kind: str) -> Build:
    return lambda operation: operation.written(kind, axis=("s64", operation.attributes.get("axis", -1)))


def _reduction(kind: str) -> Build:
    def build(operation: Operation) -> Written:
        axes = operation.model.axes(operation.node, operation.attributes)
        if not axes and operation.attributes.get("noop_with_empty_axes", 0):
            raise GraphError("it reduces no axis, which has no kind in oneDNN graphs")
        axes = axes or list(range(operation.model.rank(operation.node.input[0])))
        return operation.written(kind, operation.node.input[0], axes=("s64[]", axes),
                                 keep_dims=("bool", operation.attributes.get("keepdims", 1)))

    return build


def _matmul(operation: Operation) -> Written:
    return operation.written("MatMul", transpose_a=("bool", 0), transpose_b=("bool", 0))


def _gemm(operation: Operation) -> Written:
    if any(operation.attributes.get(name, 1.0) != 1 for name in ("alpha", "beta")):
        raise GraphError("alpha and beta must be 1: MatMul has no factors")
    return operation.written("MatMul", transpose_a=("bool", operation.attributes.get("transA", 0)),
                             transpose_b=("bool", operation.attributes.get("transB", 0)))


def _convolution(kind: str, weights_format: str) -> Build:
    def build(operation: Operation) -> Written:
        attributes = operation.attributes
        if attributes.get("auto_pad", "NOTSET") != "NOTSET" or "output_shape" in attributes:
            raise GraphError("auto_pad and output_shape of standard nodes are not written; allowed: explicit pads")
        rank = operation.model.rank(operation.node.input[0]) - 2
        window = explicit_window(attributes, rank, transposed=kind == "ConvTranspose")
        words = {"data_format": "NCX", "weights_format": weights_format, "auto_pad": "None"}
        return operation.written(kind, **{name: ("s64[]", value) for name, value in window.items()}, **{
            name: ("string", value) for name, value in words.items()}, groups=("s64", attributes.get("group", 1)))

    return build


KINDS: dict[str, Build] = {
    **{name: _same(kind) for name, kind in {
        "Abs": "Abs", "Exp": "Exp", "HardSwish": "HardSwish", "Log": "Log", "Mish": "Mish", "Relu": "ReLU",
        "Round": "Round", "Sigmoid": "Sigmoid", "Sqrt": "Sqrt", "Tanh": "Tanh",
    }.items()},
    **{name: _binary(kind) for name, kind in {
        "Add": "Add", "Div": "Divide", "Max": "Maximum", "Min": "Minimum", "Mul": "Multiply", "Sub": "Subtract",
    }.items()},
    **{name: _reduction(name) for name in ("ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum")},
    "Cast": _cast,
    "Clip": _clip,
    "Concat": _concat,
    "Conv": _convolution("Convolution", "OIX"),
    "ConvTranspose": _convolution("ConvTranspose", "IOX"),
    "Elu": _alpha("Elu", 1.0),
    "Flatten": _reshaped,
    "Gelu": _gelu,
    "Gemm": _gemm,
    "Identity": _reshaped,
    "LeakyRelu": _alpha("LeakyReLU", 0.01),
    "LogSoftmax": _soft_max("LogSoftmax"),
    "MatMul": _matmul,
    "Reshape": _reshaped,
    "Softmax": _soft_max("SoftMax"),
    "Squeeze": _reshaped,
    "Transpose": _transpose,
    "Unsqueeze": _reshaped,
}
"""How standard nodes are written, by their types."""
