"""New nodes of a graph, written as arithmetic on values; a node that would compute what another does is that other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

from ...errors import GraphError
from ..graph import Declared
from ..rewrite.builder import Names

INT64 = np.dtype(np.int64)
BOOL = np.dtype(np.bool_)
COMPARISONS = {"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Not", "And", "Or", "IsNaN"}
INTEGERS = {"Shape", "Size", "NonZero", "ArgMax", "ArgMin"}


@dataclass(frozen=True)
class Value:
    """A value of the graph that is being extended. Arithmetic with values and numbers appends nodes.

    A number takes the element type of the value beside it.
    """

    writer: Writer
    name: str

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type."""
        return self.writer.dtype_of(self.name)

    @property
    def shape(self) -> tuple[int | str | None, ...] | None:
        """The extents as far as inference knows them: numbers, symbols, None; None for an unknown rank."""
        return self.writer.shape_of(self.name)

    def _with(self, op_type: str, other: Value | float, *, swapped: bool = False) -> Value:
        beside = other if isinstance(other, Value) else self.writer.scalar(other, self.dtype)
        pair = (beside, self) if swapped else (self, beside)
        return self.writer.add(op_type, *pair)

    def __add__(self, other: Value | float) -> Value:
        return self._with("Add", other)

    def __radd__(self, other: float) -> Value:
        return self._with("Add", other, swapped=True)

    def __sub__(self, other: Value | float) -> Value:
        return self._with("Sub", other)

    def __rsub__(self, other: float) -> Value:
        return self._with("Sub", other, swapped=True)

    def __mul__(self, other: Value | float) -> Value:
        return self if isinstance(other, int | float) and other == 1 else self._with("Mul", other)

    def __rmul__(self, other: float) -> Value:
        return self * other

    def __truediv__(self, other: Value | float) -> Value:
        return self if isinstance(other, int | float) and other == 1 else self._with("Div", other)

    def __rtruediv__(self, other: float) -> Value:
        return self._with("Div", other, swapped=True)

    def __pow__(self, other: Value | float) -> Value:
        return self._with("Pow", other)

    def __neg__(self) -> Value:
        return self.writer.add("Neg", self)

    def __gt__(self, other: Value | float) -> Value:
        return self._with("Greater", other)

    def __lt__(self, other: Value | float) -> Value:
        return self._with("Less", other)

    def __ge__(self, other: Value | float) -> Value:
        return self._with("GreaterOrEqual", other)

    def __le__(self, other: Value | float) -> Value:
        return self._with("LessOrEqual", other)

    def equal(self, other: Value | float) -> Value:
        """Compare element by element."""
        return self._with("Equal", other)

    def where(self, yes: Value | float, no: Value | float) -> Value:
        """Choose element by element under this condition; one of the two is a value."""
        like = yes if isinstance(yes, Value) else no
        assert isinstance(like, Value)
        chosen = [entry if isinstance(entry, Value) else self.writer.scalar(entry, like.dtype) for entry in (yes, no)]
        return self.writer.add("Where", self, *chosen, dtype=like.dtype)

    def only(self, condition: Value) -> Value:
        """Keep what a condition selects, zeros elsewhere: a product, which runtimes compute faster than Where."""
        return self * condition.cast(self.dtype)

    def cast(self, dtype: Any) -> Value:
        """Convert to another element type."""
        target = np.dtype(dtype)
        if target == self.dtype:
            return self
        return self.writer.add("Cast", self, dtype=target, to=helper.np_dtype_to_tensor_dtype(target))

    def apply(self, op_type: str, *others: Value, **attributes: Any) -> Value:
        """Append any standard node whose first input is this value and whose output has its element type."""
        return self.writer.add(op_type, self, *others, **attributes)

    def sum(self, axes: Sequence[int] | None, *, keepdims: bool = True) -> Value:
        """Sum over axes; None means all."""
        return self._reduced("ReduceSum", axes, keepdims)

    def mean(self, axes: Sequence[int] | None, *, keepdims: bool = True) -> Value:
        """Mean over axes; None means all."""
        return self._reduced("ReduceMean", axes, keepdims)

    def _reduced(self, op_type: str, axes: Sequence[int] | None, keepdims: bool) -> Value:
        if axes is not None and not axes:
            return self
        along = () if axes is None else (self.writer.integers(axes),)
        return self.writer.add(op_type, self, *along, keepdims=int(keepdims))

    def transpose(self, order: Sequence[int]) -> Value:
        """Permute axes."""
        return self if list(order) == sorted(order) else self.writer.add("Transpose", self, perm=list(order))

    def reshape(self, shape: Value | Sequence[int]) -> Value:
        """Give another shape: a value, or numbers of which one may be -1."""
        return self.writer.add("Reshape", self, shape if isinstance(shape, Value) else self.writer.integers(shape))

    def unsqueeze(self, axes: Sequence[int]) -> Value:
        """Insert axes of extent 1."""
        return self.writer.add("Unsqueeze", self, self.writer.integers(axes)) if axes else self

    def expand(self, shape: Value | Sequence[int]) -> Value:
        """Repeat along axes of extent 1 and new leading ones."""
        return self.writer.add("Expand", self, shape if isinstance(shape, Value) else self.writer.integers(shape))

    def extents(self) -> Value:
        """The shape as a value of int64: a constant where every extent is known."""
        shape = self.shape
        if shape is not None and all(isinstance(extent, int) for extent in shape):
            return self.writer.integers([extent for extent in shape if isinstance(extent, int)])
        return self.writer.add("Shape", self)

    def reshaped_like(self, other: Value) -> Value:
        """Reshape to the shape of another value; one open extent needs no node that reads it."""
        shape = other.shape
        if shape is not None and shape == self.shape and None not in shape:
            return self
        if shape is not None:
            known = [extent for extent in shape if isinstance(extent, int)]
            if len(shape) - len(known) == 1 and 0 not in known:
                return self.reshape([extent if isinstance(extent, int) else -1 for extent in shape])
        return self.reshape(other.extents())

    def extent(self, axis: int) -> Value:
        """One extent as a value of int64 and shape [1]."""
        shape = self.shape
        if shape is not None and isinstance(known := shape[axis], int):
            return self.writer.integers([known])
        attributes: dict[str, Any] = {"start": axis} if axis == -1 else {"start": axis, "end": axis + 1}
        return self.writer.add("Shape", self, **attributes)


class Writer:
    """Appends nodes, constants and what is known of the values that they make."""

    def __init__(self, names: Names, scope: dict[str, Declared]) -> None:
        self.names, self.scope = names, scope
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []
        self.prefix = "gradient"
        self._known: dict[tuple[Any, ...], list[str]] = {}
        self._keys: dict[str, tuple[Any, ...]] = {}
        self._makers: dict[str, NodeProto] = {}
        self._readers: dict[str, dict[int, NodeProto]] = {}
        self._named: set[str] = set()

    def value(self, name: str) -> Value:
        """Return a value of the graph by its name."""
        return Value(self, name)

    def dtype_of(self, name: str) -> np.dtype[Any]:
        """Return the element type of a value.

        Raises
        ------
        GraphError
            If inference does not find it.
        """
        declared = self.scope.get(name)
        if declared is None or declared.dtype is None:
            raise GraphError(f"the element type of {name!r} is not known; a value_info entry for it would tell")
        return declared.dtype

    def shape_of(self, name: str) -> tuple[int | str | None, ...] | None:
        """Return what is known of a value's shape."""
        declared = self.scope.get(name)
        return None if declared is None else declared.shape

    def know(self, name: str, dtype: np.dtype[Any], shape: tuple[int | str | None, ...] | None) -> None:
        """State the type of a value."""
        self.scope[name] = Declared(name, dtype, shape)

    def add(
        self, op_type: str, *inputs: Value | None, dtype: Any = None, domain: str = "", **attributes: Any
    ) -> Value:
        """Append a node with one output. Its element type is that of the first input unless `dtype` states it."""
        return self.add_many(op_type, inputs, 1, dtypes=None if dtype is None else [dtype], domain=domain,
                             **attributes)[0]

    def add_many(
        self, op_type: str, inputs: Sequence[Value | None], outputs: int | Sequence[bool], *,
        dtypes: Sequence[Any] | None = None, domain: str = "", **attributes: Any,
    ) -> list[Value]:
        """Append a node; `outputs` is their number, or says which of them are there. Returns those that are."""
        names = ["" if value is None else value.name for value in inputs]
        while names and not names[-1]:
            names.pop()
        present = [True] * outputs if isinstance(outputs, int) else list(outputs)
        while len(present) > 1 and not present[-1]:
            present.pop()
        key = (domain, op_type, tuple(names), tuple(present),
               tuple(sorted((name, repr(value)) for name, value in attributes.items())))
        if key not in self._known:
            kinds = dtypes or [_result_dtype(op_type, inputs)] * sum(present)
            name = self.names.fresh(f"{self.prefix}/{op_type}")
            made = [self.names.fresh(f"{name}:{index}") if here else "" for index, here in enumerate(present)]
            self._append(helper.make_node(op_type, names, made, name=name, domain=domain, **attributes))
            self._known[key] = [name for name in made if name]
            self._keys.update(dict.fromkeys(self._known[key], key))
            for output, kind in zip(self._known[key], kinds, strict=True):
                self.know(output, np.dtype(kind), None)
        return [Value(self, name) for name in self._known[key]]

    def _append(self, node: NodeProto) -> None:
        self.nodes.append(node)
        self._index(node)

    def _index(self, node: NodeProto) -> None:
        """Note what a node makes and reads under the names of now."""
        self._makers.update(dict.fromkeys(node.output, node))
        for name in node.input:
            self._readers.setdefault(name, {})[id(node)] = node

    def taken(self) -> list[NodeProto]:
        """Return the nodes and keep none of them: `named` leaves the names of what they make."""
        nodes, self.nodes = self.nodes, []
        self._makers.clear()
        return nodes

    def constant(self, array: Any) -> Value:
        """Return a constant; equal ones are one."""
        array = np.asarray(array)
        key = ("constant", array.dtype.str, array.dtype.name, array.shape, array.tobytes())
        if key not in self._known:
            name = self.names.fresh(_constant_name(array))
            self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name))
            self._known[key] = [name]
            self.know(name, array.dtype, array.shape)
        return Value(self, self._known[key][0])

    def scalar(self, number: float, dtype: np.dtype[Any]) -> Value:
        """Return a number of an element type, of shape ()."""
        return self.constant(np.asarray(number, dtype))

    def integers(self, numbers: Iterable[int]) -> Value:
        """Return a vector of int64, such as a shape or axes."""
        return self.constant(np.asarray(list(numbers), np.int64))

    def concat(self, values: Sequence[Value], axis: int = 0) -> Value:
        """Join values along an axis."""
        return values[0] if len(values) == 1 else self.add("Concat", *values, axis=axis)

    def named(self, value: Value, name: str) -> Value:
        """Give a new value a name that is free, or that nothing makes any more."""
        maker = self._makers.get(value.name)
        if maker is None or value.name in self._named:
            self._append(helper.make_node("Identity", [value.name], [name], name=self.names.fresh(
                f"{self.prefix}/Identity")))
        else:
            for node in (maker, *self._readers.pop(value.name, {}).values()):
                for names in (node.input, node.output):
                    for index, used in enumerate(names):
                        if used == value.name:
                            names[index] = name
                self._index(node)
            key = self._keys.pop(value.name, None)
            if key is not None:
                self._known[key] = [name if made == value.name else made for made in self._known[key]]
                self._keys[name] = key
        self._named.add(name)
        self.know(name, value.dtype, value.shape)
        return Value(self, name)

    def remember(self, node: NodeProto) -> None:
        """Note a node of the graph, so that a new node equal to it becomes it."""
        if node.op_type in INTEGERS and len(node.output) == 1:
            attributes = tuple(sorted((proto.name, repr(helper.get_attribute_value(proto)))
                                      for proto in node.attribute))
            self._known.setdefault(("", node.op_type, tuple(node.input), (True,), attributes), [node.output[0]])


def _result_dtype(op_type: str, inputs: Sequence[Value | None]) -> Any:
    if op_type in COMPARISONS:
        return BOOL
    if op_type in INTEGERS:
        return INT64
    first = next(value for value in inputs if value is not None)
    return first.dtype


def _constant_name(array: np.ndarray[Any, Any]) -> str:
    """Such as ``const_1.0`` or ``const_0_2_3``: what a viewer shows says what it is."""
    if array.size > 4:
        return f"const_{'x'.join(map(str, array.shape))}"
    return "const_" + "_".join(f"{float(entry):g}" if array.dtype.kind not in "iub" else str(int(entry))
                               for entry in array.ravel()) if array.size else "const_empty"


