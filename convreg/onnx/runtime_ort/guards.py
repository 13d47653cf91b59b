"""Nodes on which onnxruntime would end the process, or that it computes wrongly: guarded or rewritten in standard ones.

The guarded model computes what ONNX says. Where a node would end the process, a guard before it fails instead, so that
onnxruntime raises. Odd extents, indices and numbers found these in onnxruntime 1.23 to 1.32; there may be others:

- Div of the smallest int32 or int64 by -1; Mod likewise before 1.32,
- Div and Mod of integers by 0 before 1.25,
- GRU, LSTM, RoiAlign, and Unique along an axis, of a tensor without elements,
- Resize and Upsample with another number of scales than axes, if the rank is known only when the node runs.

Cast and CastLike without saturation are wrong: some numbers beyond the range of float8_e4m3fn become 448, and of
float8_e5m2 NaN.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from ...errors import GraphError
from ..graph import graphs_of, nodes_of, place
from ..schema.whole_inference import inferred

PREFIX = "convreg.guard."
"""Names of the values that guards make begin so; ONNX gives them no meaning."""

NON_EMPTY = {"GRU": 0, "LSTM": 0, "RoiAlign": 0, "Unique": 0}
"""By operator, the input that must have elements."""

SCALED = {"Resize", "Upsample"}
SIGNED = {TensorProto.INT32, TensorProto.INT64}
"""The signed types of which -1 may not divide; onnxruntime divides narrower ones in int32, where nothing overflows."""

DIVIDES = {"Div", "Mod"}
CASTS = {"Cast", "CastLike"}
LAST_FINITE: dict[int, float] = {TensorProto.FLOAT8E4M3FN: 464.0,
                                 TensorProto.FLOAT8E5M2: float(np.nextafter(np.float32(61440), np.float32(0)))}
"""The largest float32 that rounds to a finite number. onnxruntime's Cast is right up to there, and of infinity."""

INTEGERS = {TensorProto.INT8, TensorProto.INT16, TensorProto.INT32, TensorProto.INT64,
            TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64}

CASTLIKE = 15
"""The version of the standard operators from which constants can take the type of a value that inference misses."""

Scope = Mapping[str, "Known"]


class Known:
    """What is known of a value: its element type (0 if unknown), its shape, and its elements if it is constant."""

    def __init__(self, value: ValueInfoProto | None = None, constant: TensorProto | None = None) -> None:
        self.constant = constant
        self.element = 0
        self.dims: list[int | None] | None = None
        if constant is not None:
            self.element, self.dims = constant.data_type, [*constant.dims]
        elif value is not None and value.type.HasField("tensor_type"):
            tensor = value.type.tensor_type
            self.element = tensor.elem_type
            if tensor.HasField("shape"):
                self.dims = [dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim]

    @property
    def has_elements(self) -> bool:
        """Whether all extents are known and none is 0."""
        return self.dims is not None and all(self.dims)

    def may_hold(self, number: int) -> bool:
        """Whether an element may equal a number."""
        return self.constant is None or bool((numpy_helper.to_array(self.constant) == number).any())


UNKNOWN = Known()


def guarded_nodes(model: ModelProto) -> tuple[ModelProto, dict[str, str]]:
    """Return a model on which onnxruntime raises where it would end the process.

    Parameters
    ----------
    model : onnx.ModelProto

    Returns
    -------
    tuple
        The model, itself where it needs no guard, and by the name of each guard the sentence to raise when it fails.

    Raises
    ------
    GraphError
        If a node cannot be guarded.
    """
    if not any(is_guarded(node) for node in nodes_of(model)):
        return model, {}
    copy = _with_known_types(model)
    reasons: dict[str, str] = {}
    _guard(copy.graph, ChainMap(), _version(copy), reasons)
    for function in copy.functions:
        _guard(function, ChainMap(), _version(function), reasons)
    return copy, reasons


def _with_known_types(model: ModelProto) -> ModelProto:
    """Return a copy with the types and shapes that inference finds."""
    try:
        return inferred(model, strict=False)
    except GraphError:  # onnxruntime would end the process, for its inference is the same
        raise
    except Exception:  # onnxruntime refuses what inference refuses
        copy = ModelProto()
        copy.CopyFrom(model)
        return copy


def is_guarded(node: NodeProto) -> bool:
    """Whether some nodes like this one need a guard."""
    if node.domain not in ("", "ai.onnx"):
        return False
    return node.op_type in {*DIVIDES, *NON_EMPTY, *SCALED} or (node.op_type in CASTS and not _saturates(node))


def _saturates(node: NodeProto) -> bool:
    return all(attribute.i for attribute in node.attribute if attribute.name == "saturate")


def _version(holder: ModelProto | FunctionProto) -> int:
    return next((entry.version for entry in holder.opset_import if entry.domain in ("", "ai.onnx")), 1)


def _guard(holder: GraphProto | FunctionProto, outer: Scope, version: int, reasons: dict[str, str]) -> None:
    own: dict[str, Known] = {}
    scope: Scope = ChainMap(own, outer)  # type: ignore[arg-type]  # a mapping that is only read
    if isinstance(holder, GraphProto):
        own.update((value.name, Known(value)) for value in (*holder.value_info, *holder.output, *holder.input))
        given = {value.name for value in holder.input}
        own.update((tensor.name, Known(constant=tensor)) for tensor in holder.initializer if tensor.name not in given)
    else:
        own.update((value.name, Known(value)) for value in holder.value_info)
    nodes: list[NodeProto] = []
    for node in holder.node:
        for inner in graphs_of(node):
            _guard(inner, scope, version, reasons)
        if node.op_type == "Constant" and node.domain in ("", "ai.onnx") and node.attribute[:1]:
            own[node.output[0]] = _constant(node)
        if not is_guarded(node):
            nodes.append(node)
            continue
        writer = Writer(node, version, reasons)
        writer.write({name: scope.get(name, UNKNOWN) for name in node.input})
        nodes += writer.nodes
    del holder.node[:]
    holder.node.extend(nodes)


def _constant(node: NodeProto) -> Known:
    attribute = node.attribute[0]
    if attribute.name == "value":
        return Known(constant=attribute.t)
    if attribute.name in ("value_int", "value_ints"):
        numbers = helper.get_attribute_value(attribute)
        return Known(constant=numpy_helper.from_array(np.asarray(numbers, np.int64)))
    return UNKNOWN


def _all_counted(node: NodeProto, operands: Sequence[Known]) -> bool:
    """Whether the input's axes and the scales are counted before the node runs: onnxruntime then compares them."""
    named = [operand for name, operand in zip(node.input, operands, strict=True) if name]
    return all(operand.dims is not None for operand in named) and all(operand.has_elements or operand.dims == [0]
                                                                     for operand in named[1:])


class Writer:
    """Writes the nodes that stand for one node."""

    def __init__(self, node: NodeProto, version: int, reasons: dict[str, str]) -> None:
        self.nodes: list[NodeProto] = []
        self._node, self._version, self._reasons = node, version, reasons
        self._stem = f"{PREFIX}{len(reasons)}.{next((name for name in node.output if name), '')}."

    def write(self, known: Scope) -> None:
        """Write the node, and what guards it if that is needed."""
        node, kind = self._node, self._node.op_type
        operands = [known.get(name, UNKNOWN) for name in node.input]
        if kind in DIVIDES and len(operands) == 2 and self._divides(operands[0], operands[1]):
            return
        if kind in NON_EMPTY and operands and not operands[0].has_elements and (
                kind != "Unique" or self._states("axis")):
            self._guarded(self._is_empty(node.input[0]), "an input without elements")
        elif kind in CASTS:
            self._cast(operands)
        elif kind in SCALED and not self._states("axes") and not _all_counted(node, operands):
            self._scaled()
        self.nodes.append(node)

    def _states(self, name: str) -> bool:
        return any(attribute.name == name for attribute in self._node.attribute)

    def _divides(self, dividend: Known, divisor: Known) -> bool:
        """Guard a division of integers by 0; write one by -1 with another divisor, and return whether that was done."""
        element = dividend.element or divisor.element
        if element and element not in INTEGERS:
            return False
        negates = (not element or element in SIGNED) and divisor.may_hold(-1)
        vanishes = divisor.may_hold(0)
        if (negates or vanishes) and not element and self._version < CASTLIKE:
            raise GraphError(f"{place(self._node)}: onnxruntime divides values whose type inference does not find; "
                             "the reference engine divides them")
        if vanishes:
            self._guarded(self._zeros_among(self._node.input[1], element), "a divisor of 0 among integers")
        if negates:
            self._negated(element)
        return negates

    def _zeros_among(self, name: str, element: int) -> str:
        """Return how many zeros an array of integers has, and 0 for floating-point numbers of unknown type."""
        def is_zero(value: str) -> str:  # not every type has a kernel of Equal
            return self._add("Equal", self._add("Cast", value, to=TensorProto.DOUBLE),
                             self._number(0, TensorProto.DOUBLE))

        flags = is_zero(name)
        if not element:  # one half is no integer
            half = self._value(helper.make_tensor("", TensorProto.DOUBLE, [], [0.5]))
            flags = self._add("And", flags, is_zero(self._add("CastLike", half, name)))
        return self._add("ReduceSum", self._add("Cast", flags, to=TensorProto.INT64), keepdims=0)

    def _negated(self, element: int) -> None:
        """Write a division in which 1 stands for a divisor of -1; the quotient is then negated, the rest remains 0."""
        a, b = self._node.input
        least = self._add("Equal", b, self._number(-1, element, b))
        if not element:  # of an unsigned type, -1 is the largest number
            least = self._add("And", least, self._add("Less", b, self._number(0, element, b)))
        flag = self._add("Cast", least, to=element) if element else self._add("CastLike", least, b)
        twice = self._add("Add", flag, flag)
        divisor = self._add("Add", b, twice)
        if self._node.op_type == "Mod":
            self._node.input[1] = divisor
            self.nodes.append(self._node)
            return
        quotient = self._add("Div", a, divisor)
        sign = self._add("Sub", self._number(1, element, b), twice)
        self.nodes.append(helper.make_node("Mul", [quotient, sign], [self._node.output[0]], name=self._node.name))

    def _cast(self, operands: Sequence[Known]) -> None:
        """Make infinite what is beyond the range of an 8-bit float, unless it is one already."""
        target = operands[1].element if len(operands) > 1 else next(
            (attribute.i for attribute in self._node.attribute if attribute.name == "to"), 0)
        source = operands[0].element
        if target not in LAST_FINITE or source in LAST_FINITE:
            return
        kind = source if source in (TensorProto.FLOAT, TensorProto.DOUBLE) else TensorProto.FLOAT
        value = self._node.input[0]
        if kind != source:  # not every type has kernels of Greater and Where
            value = self._add("Cast", value, to=kind)
        for compare, sign in (("Greater", 1), ("Less", -1)):
            bound, infinity = (self._value(helper.make_tensor("", kind, [], [sign * number]))
                               for number in (LAST_FINITE[target], np.inf))
            value = self._add("Where", self._add(compare, value, bound), infinity, value)
        self._node.input[0] = value

    def _scaled(self) -> None:
        x, *others = self._node.input
        axes = self._add("Size", self._add("Shape", x))
        flags = []
        resizes = self._node.op_type == "Resize" and self._version > 10
        for name in others[1:2] if resizes else others[:1]:
            if name:
                count = self._add("Size", name)
                excess = self._add("Mul", count, self._add("Sub", count, axes))  # none at all is allowed
                flags.append(self._add("Not", self._add("Equal", excess, self._number(0, TensorProto.INT64))))
        stated = next((len(attribute.floats) for attribute in self._node.attribute if attribute.name == "scales"), None)
        if stated is not None:
            equal = self._add("Equal", axes, self._number(stated, TensorProto.INT64))
            flags.append(self._add("Not", equal))
        for flag in flags:
            self._guarded(flag, "another number of scales than the input has axes")

    def _is_empty(self, name: str) -> str:
        return self._add("Equal", self._add("Size", name), self._number(0, TensorProto.INT64))

    def _guarded(self, flag: str, reason: str) -> None:
        """Make the node read its first input by way of a node that fails where a flag is set."""
        index = self._add("Cast", flag, to=TensorProto.INT64)
        name = f"{self._stem}{len(self.nodes)}"
        self._reasons[name] = f"{place(self._node)}: {reason} is refused, since onnxruntime would end the process"
        zeros = self._vector_of_zero()
        zero = f"{name}.zero"
        self.nodes.append(helper.make_node("Gather", [zeros, index], [zero], name=name))
        x = self._node.input[0]
        shape = self._add("Add", self._add("Shape", x), zero)
        self._node.input[0] = self._add("Reshape", x, shape)

    def _vector_of_zero(self) -> str:
        return self._value(numpy_helper.from_array(np.zeros(1, np.int64)))

    def _number(self, number: int, element: int, like: str = "") -> str:
        if element:
            return self._value(helper.make_tensor("", element, [], [number]))
        return self._add("CastLike", self._number(number, TensorProto.INT64), like)

    def _value(self, tensor: TensorProto) -> str:
        return self._add("Constant", value=tensor)

    def _add(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        made = f"{self._stem}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [made], **attributes))
        return made


def reason_of(error: Exception, reasons: Mapping[str, str]) -> str | None:
    """Return the sentence of the guard that failed, if that is what an exception of onnxruntime says."""
    text = str(error)
    return next((reason for name, reason in reasons.items() if f"'{name}'" in text), None)

