"""One ONNX node while it is written as layers of an OpenVINO model: its operands, and the layers that it adds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from onnx import NodeProto, TensorProto, helper

from convreg import GraphError

from ..view import View
from .document import Document
from .ir import Port


class Writing(NamedTuple):
    """One node while it is written."""

    document: Document
    view: View
    node: NodeProto
    attributes: dict[str, Any]
    port_of: Callable[[str], Port]

    def has(self, index: int) -> bool:
        """Whether an input is there."""
        return index < len(self.node.input) and bool(self.node.input[index])

    def name(self, index: int) -> str:
        """The name of an input; refused where it is left out."""
        if not self.has(index):
            raise GraphError(f"input {index} is missing")
        return self.node.input[index]

    def port(self, index: int) -> Port:
        """The port that makes an input."""
        return self.port_of(self.name(index))

    @property
    def ports(self) -> list[Port]:
        """The ports of all inputs."""
        return [self.port(index) for index in range(len(self.node.input))]

    @property
    def element(self) -> int:
        """Element type of the first input."""
        return self.view.element(self.name(0))

    def layers(self, kind: str, *inputs: Port, elements: Sequence[int], opset: str = "opset1", **data: Any
               ) -> list[Port]:
        """Add a layer with outputs of the given element types."""
        stem = self.node.name or next(name for name in self.node.output if name)
        written = {name.replace("exclude_pad", "exclude-pad"): _text(value) for name, value in data.items()}
        return self.document.layer(kind, list(inputs), elements, name=stem, opset=opset, data=written)

    def layer(self, kind: str, *inputs: Port, element: int | None = None, opset: str = "opset1", **data: Any) -> Port:
        """Add a layer with one output, of the first input's element type unless given."""
        return self.layers(kind, *inputs, elements=[self.element if element is None else element], opset=opset,
                           **data)[0]

    def constant(self, values: Any, element: int) -> Port:
        """Add a constant of an element type."""
        array = np.asarray(values).astype(helper.tensor_dtype_to_np_dtype(element))
        return self.document.constant(element, array, f"{self.node.name or self.node.output[0]}/constant")

    def ints(self, values: Any) -> Port:
        """Add an int64 constant, a list or a single integer."""
        return self.constant(values, TensorProto.INT64)

    def integers(self, index: int, what: str) -> list[int]:
        """The integers of an input that must be a constant."""
        return self.view.integers(self.name(index), what)

    def axes(self) -> list[int] | None:
        """Axes from the second input or from the attribute of older versions; None where neither is there."""
        return self.view.axes(self.node, self.attributes)

    def reshaped(self, index: int, shape: Sequence[int]) -> Port:
        """An input in another shape: a constant is written so."""
        name, array = self.name(index), self.view.array(self.name(index))
        if array is not None:
            return self.document.constant(self.view.element(name), array.reshape(shape), f"{name}/shaped")
        return self.layer("Reshape", self.port(index), self.ints(shape), element=self.view.element(name),
                          special_zero=False)

    def allow(self, name: str, *allowed: Any) -> Any:
        """An attribute that must be one of `allowed`, the first of which is the default."""
        value = self.attributes.get(name, allowed[0])
        if value not in allowed:
            raise GraphError(f"{name} is {value!r}; allowed: {', '.join(map(repr, allowed))}")
        return value


Build = Callable[[Writing], "Port | list[Port]"]


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ", ".join(str(int(entry)) for entry in value)
    return repr(value) if isinstance(value, float) else str(value)
