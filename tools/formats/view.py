"""A model as the writers of other formats see it: checked, with what inference knows and the values of constants."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

import convreg.onnx
from convreg import GraphError
from convreg.memory import Array
from convreg.once import once
from convreg.onnx.graph import Scope, attribute_value, place, scope_of
from convreg.onnx.model.checks import check_opened
from convreg.onnx.model.tensor_data import array_of
from convreg.onnx.rewrite.builder import replaced
from convreg.onnx.rewrite.lower import OLDEST_OPSET
from convreg.spec import Shape


@dataclass(frozen=True)
class View:
    """Nodes in order, without those that make constants; `inputs` leaves out initializers.

    `origins` has the node of the caller's model that a node stands in for, by the latter's name.
    """

    name: str
    nodes: tuple[NodeProto, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, TensorProto]
    scope: Scope
    versions: Mapping[str, int]
    origins: Mapping[str, NodeProto] = field(default_factory=dict)

    @once
    def makers(self) -> dict[str, NodeProto]:
        """The node that makes each computed value."""
        return {name: node for node in self.nodes for name in node.output if name}

    @once
    def readers(self) -> dict[str, list[NodeProto]]:
        """The nodes that read each value."""
        found: dict[str, list[NodeProto]] = {}
        for node in self.nodes:
            for name in dict.fromkeys(node.input):
                found.setdefault(name, []).append(node)
        return found

    def dtype(self, value: str) -> np.dtype[Any]:
        """Element type of a value."""
        known = self.scope.get(value)
        if known is None or known.dtype is None:
            raise GraphError(f"the element type of {value!r} is not known")
        return known.dtype

    def element(self, value: str) -> int:
        """ONNX's number of a value's element type."""
        return helper.np_dtype_to_tensor_dtype(self.dtype(value))

    def shape(self, value: str) -> Shape | None:
        """Extents of a value: numbers, symbols, None where unknown; None for an unknown rank."""
        known = self.scope.get(value)
        return None if known is None else known.shape

    def rank(self, value: str) -> int:
        """Number of axes of a value; refused where unknown."""
        shape = self.shape(value)
        if shape is None:
            raise GraphError(f"the rank of {value!r} is not known")
        return len(shape)

    def static(self, value: str) -> tuple[int, ...]:
        """Shape of a value; refused where an extent is unknown."""
        shape = self.shape(value)
        if shape is None or not all(isinstance(extent, int) for extent in shape):
            raise GraphError(f"the shape of {value!r} is not known before the graph runs")
        return shape

    def array(self, value: str) -> Array | None:
        """Value of a constant, None for a computed one."""
        return array_of(self.constants[value]) if value in self.constants else None

    def integers(self, value: str, what: str) -> list[int]:
        """Entries of a value that must be constant."""
        array = self.array(value)
        if array is None:
            raise GraphError(f"{what} must be constant")
        return [int(entry) for entry in array.reshape(-1)]

    def axes(self, node: NodeProto, attributes: Mapping[str, Any]) -> list[int] | None:
        """Axes from a node's second input or the attribute of older versions; None where neither is there."""
        if len(node.input) > 1 and node.input[1]:
            return self.integers(node.input[1], "axes")
        return attributes.get("axes")

    def refusal(self, node: NodeProto, error: Exception, why: str = "") -> GraphError:
        """Return an error with the words that find a node, unless they are there, and the node it stands in for."""
        text, words = str(error), f"{place(node)}: "
        text = text if text.startswith(words) else words + text
        origin = self.origins.get(node.name)
        if origin is None:
            return GraphError(text)
        reason = why or "the format has no operation for it, and one of the nodes that stand in for it is refused"
        return GraphError(f"{place(origin)}: {reason} ({text})")


def explicit_window(attributes: Mapping[str, Any], rank: int, *, transposed: bool) -> dict[str, list[int]]:
    """Return the window that a Conv or ConvTranspose states with explicit pads, in the words of the other formats."""
    pads = attributes.get("pads", [0] * 2 * rank)
    window = {"strides": attributes.get("strides", [1] * rank), "pads_begin": pads[:rank], "pads_end": pads[rank:],
              "dilations": attributes.get("dilations", [1] * rank)}
    if transposed:
        window["output_padding"] = attributes.get("output_padding", [0] * rank)
    return {name: list(value) for name, value in window.items()}


def check_bounds(bounds: Iterable[Array | None]) -> None:
    """Refuse constant bounds of Clip that are no scalars."""
    for bound in bounds:
        if bound is not None and bound.ndim:
            raise GraphError(f"a bound has shape {list(bound.shape)}; allowed: scalars")


def view(model: ModelProto, before: ModelProto | None = None) -> View:
    """Check a model and return what it holds.

    Parameters
    ----------
    model : onnx.ModelProto
    before : onnx.ModelProto, optional
        The caller's model, if `model` is a translation of it.

    Raises
    ------
    GraphError
        If the model fails a check, is sparse, or imports a version of standard ONNX before 13.
    """
    check_opened(model)
    versions = {entry.domain: entry.version for entry in model.opset_import}
    if versions.get("", OLDEST_OPSET) < OLDEST_OPSET:
        raise GraphError(f"the model imports version {versions['']} of standard ONNX; writing it needs {OLDEST_OPSET} "
                         "or later; onnx.version_converter can convert it")
    graph = model.graph
    if graph.sparse_initializer:
        raise GraphError(f"initializer {graph.sparse_initializer[0].values.name!r} is sparse; allowed: dense ones")
    constants = {tensor.name: tensor for tensor in graph.initializer}
    nodes = []
    for node in graph.node:
        if node.op_type == "Constant" and node.domain == "":
            constants[node.output[0]] = _constant(node)
        else:
            nodes.append(node)
    return View(graph.name, tuple(nodes), tuple(value.name for value in graph.input if value.name not in constants),
                tuple(value.name for value in graph.output), constants,
                scope_of(convreg.onnx.infer_shapes(model).graph), versions,
                {} if before is None else replaced(before.graph.node, graph.node))


def _constant(node: NodeProto) -> TensorProto:
    """The tensor of a Constant node, whichever attribute holds it."""
    proto = node.attribute[0]
    if proto.name == "value":
        return proto.t
    if proto.name in ("value_int", "value_ints", "value_float", "value_floats"):
        dtype = np.int64 if "int" in proto.name else np.float32
        return numpy_helper.from_array(np.array(attribute_value(proto), dtype))
    raise GraphError(f"{place(node)}: attribute {proto.name!r} is not a dense tensor of numbers")
