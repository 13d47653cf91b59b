"""What the rule of a gradient gets: a node, the gradients of its outputs, and the means to write nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from onnx import NodeProto

from ...errors import GraphError
from ..graph import attribute_value, place
from .value import Value, Writer

Array = np.ndarray[Any, np.dtype[Any]]


class Step:
    """One node that a gradient passes backwards.

    Attributes
    ----------
    node : onnx.NodeProto
        The node of the forward graph. A rule may name further outputs of it (`output`).
    writer : Writer
        Appends nodes.
    opset : int
        The version of the node's domain.
    grads : tuple of Value or None
        The gradients of the outputs, in their order; None where an output has none.
    wanted : tuple of bool
        Per input, whether its gradient is asked for. A rule need not compute others.
    format : str or None
        The number format to which the operands of products are rounded.
    """

    def __init__(
        self, node: NodeProto, writer: Writer, opset: int, grads: Sequence[Value | None], wanted: Sequence[bool],
        constants: Mapping[str, Array], format: str | None = None,
    ) -> None:
        self.node, self.writer, self.opset = node, writer, opset
        self.grads, self.wanted, self.format = tuple(grads), tuple(wanted), format
        self._constants = constants
        self._attributes = {proto.name: proto for proto in node.attribute}

    def error(self, reason: str) -> GraphError:
        """Return the exception for a node whose gradient cannot be written."""
        return GraphError(f"{place(self.node)}: {reason}")

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return the value of an attribute, or the default where the node does not state it."""
        return attribute_value(self._attributes[name]) if name in self._attributes else default

    @property
    def g(self) -> Value:
        """The gradient of the first output.

        Raises
        ------
        GraphError
            If only another output has a gradient, which the rules of most operators do not expect.
        """
        if self.grads[0] is None:
            raise self.error("a gradient arrives at another output than the first, for which the rule of "
                             f"{self.node.op_type} has no formula")
        return self.grads[0]

    @property
    def x(self) -> Value:
        """The first input."""
        return self.input(0)

    @property
    def y(self) -> Value:
        """The first output."""
        return self.output(0)

    def has(self, index: int) -> bool:
        """Whether the node has an input at this place."""
        return index < len(self.node.input) and self.node.input[index] != ""

    def wants(self, index: int) -> bool:
        """Whether the gradient of an input is asked for."""
        return index < len(self.wanted) and self.wanted[index]

    def input(self, index: int) -> Value:
        """Return an input; the node must have it."""
        if not self.has(index):
            raise self.error(f"input {index} is missing")
        return self.writer.value(self.node.input[index])

    def inputs(self) -> list[Value | None]:
        """Return all inputs, None where one is left out."""
        return [self.writer.value(name) if name else None for name in self.node.input]

    def output(self, index: int, dtype: Any = None, shape: tuple[int | str | None, ...] | None = None) -> Value:
        """Return an output; where the node leaves it out it is added, with the type that is given."""
        while len(self.node.output) <= index:
            self.node.output.append("")
        if not self.node.output[index]:
            self.node.output[index] = self.writer.names.fresh(f"{self.node.output[0]}/output_{index}")
            self.writer.know(self.node.output[index], np.dtype(dtype), shape)
        return self.writer.value(self.node.output[index])

    def constant(self, index: int) -> Array | None:
        """Return the value of an input that is a constant of the graph, None where it is missing or computed."""
        return self._constants.get(self.node.input[index]) if self.has(index) else None

    def rank(self, value: Value) -> int:
        """Return the number of axes.

        Raises
        ------
        GraphError
            If inference does not find it.
        """
        if value.shape is None:
            raise self.error(f"the rank of {value.name!r} must be known, and inference finds no shape; a value_info "
                             "entry for it would tell")
        return len(value.shape)

    def extents(self, value: Value, axes: Sequence[int] | None = None) -> list[int]:
        """Return the extents along some axes, or all.

        Raises
        ------
        GraphError
            If one of them is not known before the graph runs.
        """
        rank = self.rank(value)
        shape = value.shape or ()
        found = []
        for axis in range(rank) if axes is None else axes:
            extent = shape[axis]
            if not isinstance(extent, int):
                known = [entry if entry is not None else "?" for entry in shape]
                raise self.error(f"the extent of {value.name!r} along axis {axis} must be known before the graph runs; "
                                 f"inference finds {known}; fix the dimensions of the model's inputs other than the "
                                 "batch")
            found.append(extent)
        return found

    def count(self, value: Value, axes: Sequence[int]) -> Value | float:
        """Return the number of elements along some axes, as a number or, if only a run will tell, as a value."""
        shape = value.shape
        if shape is not None and all(isinstance(shape[axis], int) for axis in axes):
            return float(prod(extent for axis in axes if isinstance(extent := shape[axis], int)))
        total: Value | None = None
        known = 1
        for axis in axes:
            if shape is not None and isinstance(extent := shape[axis], int):
                known *= extent
                continue
            length = value.extent(axis)
            total = length if total is None else total * length
        assert total is not None
        total = total.reshape([]).cast(value.dtype)
        return total * float(known)

    def summed(self, g: Value, index: int) -> Value:
        """Sum a gradient of the first output's shape to the shape of an input: undoes broadcasting."""
        x, y = self.input(index), self.y
        if x.name == y.name:
            return g
        if x.shape is None or y.shape is None:
            return self.summed_at_run(g, x, y)
        lead = len(y.shape) - len(x.shape)
        others = [entry.shape for place, entry in enumerate(self.inputs()) if entry is not None and place != index]
        axes = []
        for axis, (own, made) in enumerate(zip(x.shape, y.shape[lead:], strict=True), lead):
            if own == made and own is not None:
                continue
            if own == 1:
                axes.append(axis)
            elif not isinstance(own, int) and not _is_one_elsewhere(others, axis - len(y.shape)):
                return self.summed_at_run(g, x, y)
        if not lead and not axes:
            return g
        if lead and not axes:
            return g.sum(range(lead), keepdims=False)
        total = g.sum([*range(lead), *axes])
        return total.reshaped_like(x) if lead else total

    def summed_at_run(self, g: Value, x: Value, y: Value) -> Value:
        """Sum a gradient of y's shape to the shape of x, which the graph compares when it runs."""
        writer = self.writer
        own, made = x.extents(), y.extents()
        if x.shape is None or y.shape is None or len(x.shape) != len(y.shape):
            lead = made.extent(0) - own.extent(0)
            own = writer.concat([writer.integers([1]).expand(lead), own])
        stretched = own.equal(made).apply("Not", dtype=np.bool_)
        axes = writer.add("NonZero", stretched).reshape([-1])
        return writer.add("ReduceSum", g, axes, keepdims=1, noop_with_empty_axes=1).reshape(x.extents())


def _is_one_elsewhere(shapes: Sequence[tuple[int | str | None, ...] | None], axis: int) -> bool:
    """Whether all other operands have the extent 1 along an axis, counted from the end, so that nothing is stretched
    along it by them."""
    return all(shape is not None and (len(shape) < -axis or shape[axis] == 1) for shape in shapes)
