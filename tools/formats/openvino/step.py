"""One layer of an OpenVINO model while it is translated: its operands, and its attributes out of their text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isnan, nan
from typing import Any, NamedTuple

import numpy as np
from onnx import TensorProto, helper

from convreg import GraphError

from ..builder import ModelBuilder
from .ir import Layer, integer, integers


class Step(NamedTuple):
    """One layer while it is translated."""

    builder: ModelBuilder
    layer: Layer
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    used_beyond_first: bool
    """Whether something reads an output other than the first."""

    def finish(self, op_type: str, inputs: Sequence[str], **attributes: Any) -> None:
        """Add the node that makes the first output."""
        self.builder.node(op_type, inputs, self.outputs[0], **attributes)

    def node(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """Add a node on the way."""
        return self.builder.node(op_type, inputs, **attributes)

    def text(self, name: str, default: str, *allowed: str) -> str:
        """A string attribute, in lower case; without `allowed` the default is all that is taken."""
        value = self.layer.attributes.get(name, default).lower()
        if value not in (allowed or (default,)):
            raise GraphError(f"{name} is {value!r}; allowed: {', '.join(map(repr, allowed or (default,)))}")
        return value

    def flag(self, name: str, default: bool) -> bool:
        """A boolean attribute."""
        return self.text(name, str(default).lower(), "true", "false", "1", "0") in ("true", "1")

    def number(self, name: str, default: int | None = None) -> int:
        """An integer attribute."""
        if name not in self.layer.attributes and default is not None:
            return default
        return integer(self._given(name), repr(name))

    def real(self, name: str) -> float:
        """A floating-point attribute."""
        text = self._given(name)
        try:
            value = float(text)
        except ValueError:
            value = nan
        if isnan(value):
            raise GraphError(f"{name} is {text!r}, not a number")
        return value

    def numbers(self, name: str) -> list[int]:
        """A list of integers, empty where the attribute is missing."""
        return integers(self.layer.attributes.get(name, ""), repr(name))

    def _given(self, name: str) -> str:
        if name not in self.layer.attributes:
            raise GraphError(f"attribute {name!r} is missing")
        return self.layer.attributes[name]

    def constant(self, index: int) -> list[int]:
        """The integers of an input that must be a constant."""
        array = self.builder.constant_array(self.inputs[index])
        if array is None or array.dtype.kind not in "iu" or array.ndim > 1:
            raise GraphError(f"input {index} must be a constant list of integers")
        return array.reshape(-1).tolist()

    def scalar(self, index: int) -> int:
        """The integer of an input that must be a constant."""
        values = self.constant(index)
        if len(values) != 1:
            raise GraphError(f"input {index} must be one integer, not {len(values)}")
        return values[0]

    def int64(self, index: int) -> str:
        """An integer input as int64, which ONNX wants for shapes and axes."""
        name = self.inputs[index]
        kind = self.builder.value(name).element
        if kind == TensorProto.INT64:
            return name
        if helper.tensor_dtype_to_np_dtype(kind).kind not in "iu":
            raise GraphError(f"input {index} is {TensorProto.DataType.Name(kind)}; allowed: integers")
        array = self.builder.constant_array(name)
        if array is not None:
            return self.builder.constant(array.astype(np.int64), f"{name}_int64")
        return self.node("Cast", name, to=TensorProto.INT64)

    def vector(self, index: int) -> str:
        """An integer input as a 1-D int64 tensor; scalars are taken for a list of one."""
        name = self.int64(index)
        rank = self.builder.value(name).rank
        if rank > 1:
            raise GraphError(f"input {index} has {rank} axes; allowed: a list of integers, or one")
        if rank:
            return name
        array = self.builder.constant_array(name)
        if array is not None:
            return self.builder.integers(array.reshape(1).tolist(), f"{name}_list")
        return self.node("Reshape", name, self.builder.integers([1], "one"))

    def rank(self, index: int) -> int:
        """Number of axes of an input."""
        return self.builder.value(self.inputs[index]).rank


class Kind(NamedTuple):
    """Numbers of inputs a layer may have, its attributes, its translation, and whether it may have several outputs."""

    inputs: range
    attributes: tuple[str, ...]
    build: Callable[[Step], None]
    several: bool = False
