"""An ONNX model grown node by node, each inferred and checked as it is added, so that an error names its origin."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnx.defs
import onnx.shape_inference
from onnx import NodeProto, TensorProto, TypeProto, helper, numpy_helper

import convreg.onnx
from convreg import GraphError, OpError, OpSpec, __version__
from convreg.onnx.export import IR_VERSION, OPSET
from convreg.onnx.graph import sentence
from convreg.onnx.rewrite.builder import Names
from convreg.onnx.schema.onnx_faults import STEPS, check_node, check_slice
from convreg.onnx.schema.schemas import attribute_proto, register_schemas
from convreg.spec import Kind

FOLDED_ELEMENTS = 64
"""Shape inference is shown the values of constants up to this size: stated shapes, axes and the like."""

Dim = int | str | None


class Value(NamedTuple):
    """Element type of a tensor and its shape: extents, symbols, None where unknown; None for an unknown rank."""

    element: int
    shape: tuple[Dim, ...] | None

    @property
    def rank(self) -> int:
        """Number of axes; refused where unknown."""
        if self.shape is None:
            raise GraphError("the rank of an input is not known")
        return len(self.shape)

    def static(self, what: str) -> tuple[int, ...]:
        """The shape where all extents are known; refused elsewhere, naming `what`."""
        if self.shape is None or not all(isinstance(extent, int) for extent in self.shape):
            raise GraphError(f"the shape of {what} is not known")
        return self.shape  # type: ignore[return-value]


class ModelBuilder:
    """A growing model; nodes are added in topological order."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._nodes: list[NodeProto] = []
        self._inputs: dict[str, TypeProto] = {}
        self._constants: dict[str, TensorProto] = {}
        self._known: dict[str, TensorProto] = {}
        self._types: dict[str, TypeProto] = {}
        self._tensor_names = Names(first=1)
        self._domains: dict[str, int] = {"": OPSET}
        self._origin = ""
        self._node_names = Names()
        register_schemas()

    @contextmanager
    def origin(self, text: str, name: str) -> Iterator[None]:
        """Name the nodes added in the block after `name`, and let errors raised there begin with `text`."""
        self._origin = name
        try:
            yield
        except (GraphError, OpError) as error:
            raise GraphError(f"{text}: {error}") from error
        finally:
            self._origin = ""

    def reserve(self, name: str) -> str:
        """Keep a name for a tensor that a node will produce, or return a variant where it is taken."""
        return self._tensor_names.fresh(name or "tensor")

    def input(self, name: str, element: int, shape: Sequence[Dim]) -> str:
        """Add a graph input; its name must be free."""
        if name in self._tensor_names:
            raise GraphError(f"two inputs are called {name!r}")
        self.reserve(name)
        self._types[name] = self._inputs[name] = helper.make_tensor_type_proto(element, shape)
        return name

    def constant(self, value: TensorProto | np.ndarray[Any, Any], stem: str) -> str:
        """Add an initializer under a name derived from `stem`."""
        name = self.reserve(stem)
        tensor = value if isinstance(value, TensorProto) else numpy_helper.from_array(value)
        tensor.name = name
        self._constants[name] = self._known[name] = tensor
        self._types[name] = helper.make_tensor_type_proto(tensor.data_type, list(tensor.dims))
        return name

    def integers(self, values: Sequence[int], stem: str) -> str:
        """Add a 1-D int64 constant."""
        if any(not -(2**63) <= value < 2**63 for value in values):
            raise GraphError(f"{stem} {list(values)} leave the range of 64-bit integers")
        return self.constant(np.array(values, np.int64), stem)

    def node(self, op_type: str, inputs: Sequence[str], output: str | None = None, **attributes: Any) -> str:
        """Add a node of standard ONNX with one output and return its name, a fresh one unless given."""
        if output is not None:
            return self.nodes(op_type, inputs, [output], **attributes)[0]
        output = self.reserve(f"{op_type}_{len(self._nodes)}")
        self._add(helper.make_node(op_type, inputs, [output], name=self._on_the_way(op_type), **attributes), OPSET)
        return output

    def nodes(self, op_type: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> list[str]:
        """Add a node of standard ONNX with several outputs."""
        node = helper.make_node(op_type, inputs, outputs, name=self._final(op_type), **attributes)
        self._add(node, OPSET)
        return list(outputs)

    def operator(self, spec: OpSpec, inputs: Sequence[str], output: str, attributes: dict[str, Any]) -> str:
        """Add a node of a convreg operator with one output; its own rules check it as far as shapes are known."""
        kinds: dict[str, Kind] = {attribute.name: attribute.kind for attribute in spec.attributes}
        kinds |= {port.name: "ints" for port in spec.shape_ports}
        kinds["conformance"] = "string"
        node = helper.make_node(spec.name, inputs, [output], name=self._final(spec.name), domain=spec.onnx_domain)
        node.attribute.extend(attribute_proto(name, value, kinds[name]) for name, value in attributes.items())
        self._add(node, spec.since_version)
        return output

    def value(self, name: str) -> Value:
        """Element type and shape of a tensor, as far as inference knows them."""
        return _value(self._types[name])

    def constant_array(self, name: str) -> np.ndarray[Any, Any] | None:
        """The value of an initializer or of a copy of one, or None for a computed tensor."""
        return numpy_helper.to_array(self._known[name]) if name in self._known else None

    def declare(self, name: str, element: int, shape: Sequence[int | None]) -> None:
        """Compare a produced tensor with what the file says of it and take over what only the file knows."""
        known = self.value(name)
        if known.element != element:
            raise GraphError(f"tensor {name} is {TensorProto.DataType.Name(known.element)}, the file says "
                             f"{TensorProto.DataType.Name(element)}")
        if known.shape is not None and len(known.shape) != len(shape):
            raise GraphError(f"tensor {name} has rank {len(known.shape)}, the file says {len(shape)}")
        merged: list[Dim] = []
        for axis, said in enumerate(shape):
            have = None if known.shape is None else known.shape[axis]
            if isinstance(have, int) and said is not None and have != said:
                raise GraphError(f"tensor {name} has shape {list(known.shape or ())}, the file says {list(shape)}")
            merged.append(have if isinstance(have, int) or said is None else said)
        self._types[name] = helper.make_tensor_type_proto(known.element, merged)

    def model(self, outputs: Iterable[str]) -> onnx.ModelProto:
        """Return the finished model, checked in full.

        Raises
        ------
        GraphError
            If the checker refuses it.
        """
        graph = helper.make_graph(
            self._nodes, self._name or "graph",
            [onnx.ValueInfoProto(name=name, type=kind) for name, kind in self._inputs.items()], [],
            initializer=self._used_constants())
        for name in outputs:
            graph.output.append(onnx.ValueInfoProto(name=name, type=self._types[name]))
        model = helper.make_model(
            graph, ir_version=IR_VERSION, producer_name="convreg", producer_version=__version__,
            opset_imports=[helper.make_opsetid(domain, version) for domain, version in self._domains.items()])
        self._complete_outputs(model)
        convreg.onnx.check(model)
        return model

    def _final(self, op_type: str) -> str:
        """Name of a node that makes an output of its origin: the origin's, numbered from the second node on."""
        return self._node_names.fresh(self._origin or op_type)

    def _on_the_way(self, op_type: str) -> str:
        """Name of a node whose output only its origin reads."""
        return self._node_names.fresh(f"{self._origin}/{op_type}" if self._origin else op_type)

    def _used_constants(self) -> list[TensorProto]:
        used = {name for node in self._nodes for name in node.input}
        return [tensor for name, tensor in self._constants.items() if name in used]

    def _complete_outputs(self, model: onnx.ModelProto) -> None:
        """Replace unknown extents of outputs by what whole-graph inference finds, else by symbols."""
        outputs = model.graph.output
        if all(all(isinstance(extent, int) for extent in _value(output.type).shape or (None,)) for output in outputs):
            return
        inferred = convreg.onnx.infer_shapes(model).graph.output
        for output, found in zip(outputs, inferred, strict=True):
            shape = _value(found.type).shape
            if shape is None:
                raise GraphError(f"the rank of output {output.name} cannot be inferred")
            symbols = [f"{output.name}_{axis}" if extent is None or str(extent).startswith("unk__") else extent
                       for axis, extent in enumerate(shape)]
            output.type.CopyFrom(helper.make_tensor_type_proto(found.type.tensor_type.elem_type, symbols))

    def _add(self, node: NodeProto, version: int) -> None:
        """Infer a node's outputs, which checks it, and append it."""
        self._domains[node.domain] = max(version, self._domains.get(node.domain, 0))
        opsets = [helper.make_opsetid(name, number) for name, number in self._domains.items()]
        present = {name: self._types[name] for name in node.input if name}
        small = {name: tensor for name in present if (tensor := self._known.get(name)) is not None
                 and prod(tensor.dims) <= FOLDED_ELEMENTS}
        check_node(node)
        if node.op_type == "Slice":
            steps = self._known.get(node.input[STEPS]) if len(node.input) > STEPS else None
            check_slice(self.value(node.input[0]).shape or (), steps, node.name)
        schema = onnx.defs.get_schema(node.op_type, version, node.domain)
        try:
            types = onnx.shape_inference.infer_node_outputs(
                schema, node, present, small, opset_imports=opsets, ir_version=IR_VERSION)
        except (GraphError, OpError):
            raise
        except Exception as error:  # onnx raises classes of its own
            raise GraphError(sentence(error)) from error
        self._nodes.append(node)
        if node.op_type == "Identity" and node.input[0] in self._known:
            self._known[node.output[0]] = self._known[node.input[0]]
        for name in node.output:
            self._types[name] = types.get(name, TypeProto())


def _value(kind: TypeProto) -> Value:
    tensor = kind.tensor_type
    if not tensor.HasField("shape"):
        return Value(tensor.elem_type, None)
    return Value(tensor.elem_type, tuple(
        dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None for dim in tensor.shape.dim))
