"""Nodes on onnx's ReferenceEvaluator: ours and the standard convolutions on our kernels, all others as bundled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from onnx import FunctionProto, GraphProto, ModelProto, NodeProto
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpFunction, OpRun, RefAttrName

from ... import registry
from ...calls.binding import asking
from ...calls.execution import execute
from ...errors import GraphError, OpError, add_note, shorten
from ...spec import OpSpec
from .. import payload
from ..graph import empty, place, sentence, used_names
from ..standard import STANDARD
from ..team import team
from .corrections import Correction, correction_of, refusal
from .loop import Loop
from .operands import check_operands


class ObservedCall(NamedTuple):
    """What a node computes when it runs: a call in the vendor's names, as `calls.execution.execute` takes it."""

    node: NodeProto
    spec: OpSpec
    inputs: Sequence[Any]
    attributes: dict[str, Any]
    conformance: str | None
    wanted: tuple[bool, ...]


Observer = Callable[[ObservedCall], None]


class SpecNode(OpRun):
    """A node executed by its declaration; absent attributes take the declaration's defaults."""

    op_schema = None  # else onnx takes defaults from the schema of that name in whatever domain
    observer: Observer | None = None

    def __init__(self, onnx_node: NodeProto, run_params: dict[str, Any], schema: Any = None) -> None:
        super().__init__(onnx_node, run_params, schema)
        self.spec = self._find()
        self.attributes = {name: getattr(self, name) for name in self.attributes_names_}
        self.wanted = tuple(index < len(self.output) and self.output[index] != "" for index in range(self.arity))

    @property
    def arity(self) -> int:
        """Number of outputs that the declaration has."""
        return len(self.spec.outputs)

    def _find(self) -> OpSpec:
        key = self.onnx_node.domain, self.onnx_node.op_type
        if key in STANDARD:
            return STANDARD[key]
        version = self.run_params["opsets"][self.onnx_node.domain]
        operator = registry.find_node(*key, version)
        if operator is None:
            raise GraphError(f"{place(self.onnx_node)}: version {version} of {self.onnx_node.domain}, which the model "
                             f"imports, has no {self.onnx_node.op_type} yet")
        return operator.spec

    def run(self, *args: Any, linked_attributes: dict[str, Any] | None = None, **_: Any) -> tuple[Any, ...]:
        """Compute the outputs; unlike onnx's own, errors of ours pass through as they are."""
        return self._run(*args, **(linked_attributes or {}))

    def _run(self, *args: Any, **linked: Any) -> tuple[Any, ...]:
        ports = self.spec.inputs
        if len(args) > len(ports):
            raise GraphError(f"{len(args)} inputs; {self.spec.qualified_name} has {len(ports)}")
        attributes = {
            name: linked[value.name] if isinstance(value, RefAttrName) else value
            for name, value in self.attributes.items() if not isinstance(value, RefAttrName) or value.name in linked
        }
        conformance = attributes.pop("conformance", None) if len(self.spec.conformances) > 1 else None
        inputs: Sequence[Any] = (*args, *(None,) * (len(ports) - len(args)))
        if payload.may_carry(self.spec):
            before = asking(self.spec, self.spec.conformances[0])
            inputs = payload.read(before, attributes.pop(payload.ATTRIBUTE, None), inputs)
        if self.observer is not None:
            self.observer(ObservedCall(self.onnx_node, self.spec, inputs, attributes, conformance, self.wanted))
        result = execute(self.spec, inputs, attributes, conformance=conformance, wanted=self.wanted,
                         threads=team() or None)
        results: Any = (result,) if self.arity == 1 else result
        return tuple(
            payload.written(empty(self.spec, port, inputs) if named and value is None else value)
            for port, named, value in zip(self.spec.outputs, self.wanted, results, strict=True)
        )


class Runner(Protocol):
    """Runs a graph: all of one, or a part."""

    def run(self, output_names: Any, feeds: dict[str, Any]) -> list[Any]:
        """Return the outputs, all of them for None."""


def node_classes(observer: Observer | None = None) -> list[type[OpRun]]:
    """Return one class per operator for ``ReferenceEvaluator(model, new_ops=...)``; `observer` sees every call."""
    body = {} if observer is None else {"observer": staticmethod(observer)}
    keys = [*STANDARD, *dict.fromkeys((spec.onnx_domain, spec.name) for spec in registry.specs())]
    return [Loop, *(type(name, (SpecNode,), {"op_domain": domain, **body}) for domain, name in keys)]


class Evaluator(ReferenceEvaluator):
    """onnx's evaluator with our nodes at every level; errors name the node, values go after their last use."""

    def __init__(self, proto: Any, **kwargs: Any) -> None:
        if kwargs.get("new_ops") is None:  # it hands them down to subgraphs, but not to functions
            kwargs["new_ops"] = node_classes()
        check_texts(proto.graph if isinstance(proto, ModelProto) else proto)
        super().__init__(proto, **kwargs)
        self._reads = [used_names(node.onnx_node) for node in self.rt_nodes_]
        for node in self.rt_nodes_:
            if not isinstance(node, SpecNode | OpFunction):
                check_operands(node.onnx_node, node.run_params["opsets"].get(node.domain, 0))
        self._corrections = [self._correction(node) for node in self.rt_nodes_]
        self._uses = dict(Counter(name for names in (*self._reads, self.output_names) for name in names))

    def run(
        self, output_names: Any, feed_inputs: dict[str, Any], attributes: dict[str, Any] | None = None,
        intermediate: bool = False, check_shape_annotations: bool | None = None, _bindings: Any = None,
    ) -> Any:
        """Execute the graph or function; `intermediate` returns every value by name. Annotations are not checked."""
        values: dict[str, Any] = {"": None, **self.rt_inits_, **feed_inputs}
        left = self._uses.copy()
        for name in output_names or ():
            left[name] = left.get(name, 0) + 1
        for node, correction, reads in zip(self.rt_nodes_, self._corrections, self._reads, strict=True):
            for name, value in zip(node.output, self._compute(node, correction, values, attributes), strict=False):
                if name and (intermediate or left.get(name)):
                    values[name] = value
            for name in () if intermediate else reads:
                left[name] -= 1
                if not left[name] and name:
                    values.pop(name, None)
        if intermediate:
            return values
        for name in output_names or self.output_names:
            if name not in values:
                raise GraphError(f"no node makes the output {name!r}")
        return [values[name] for name in output_names or self.output_names]

    def _correction(self, node: OpRun) -> Correction | None:
        if isinstance(node, SpecNode) or node.domain not in ("", "ai.onnx"):
            return None
        return correction_of(node.op_type, node.run_params["opsets"][node.domain])

    def _compute(
        self, node: OpRun, correction: Correction | None, values: dict[str, Any], attributes: dict[str, Any] | None
    ) -> tuple[Any, ...]:
        for name in node.input:
            if name not in values:
                raise GraphError(f"{place(node.onnx_node)}: no earlier node makes its input {name!r}")
        extra: dict[str, Any] = {"linked_attributes": attributes} if node.has_linked_attribute and attributes else {}
        if node.need_context():
            extra["context"] = values
        inputs = [values[name] for name in node.input]
        try:
            if correction is not None:
                stated = attributes_of(node, attributes)
                reason = correction.refused and correction.refused(stated, len(node.output), inputs)
                if reason:
                    raise refusal(node.op_type, node.run_params["opsets"][node.domain], reason)
                if correction.compute is not None:
                    return correction.compute(stated, len(node.output), *inputs)
            with np.errstate(all="ignore"):  # overflow, NaN and division by zero are results, as in onnxruntime
                return node.run(*inputs, **extra)
        except OpError as error:
            add_note(error, f"in {place(node.onnx_node)}")
            raise
        except Exception as error:  # the bundled operators raise anything
            if isinstance(error.__cause__, OpError):  # an operator with a subgraph wraps a TypeError in another
                add_note(error.__cause__, f"in {place(node.onnx_node)}")
                raise error.__cause__ from None
            raise GraphError(f"{place(node.onnx_node)}: {sentence(error)}") from error


def check_texts(holder: GraphProto | FunctionProto | NodeProto) -> None:
    """Refuse attributes whose text is not UTF-8: onnx's evaluator would not say where they stand."""
    for node in [holder] if isinstance(holder, NodeProto) else holder.node:
        for attribute in node.attribute:
            for text in (attribute.s, *attribute.strings):
                try:
                    text.decode()
                except UnicodeDecodeError as error:
                    raise GraphError(f"{place(node)}: attribute {attribute.name}={shorten(text)} is refused; allowed: "
                                     "text in UTF-8") from error


def attributes_of(node: OpRun, linked: dict[str, Any] | None) -> dict[str, Any]:
    """Return the attributes that a standard node states, the enclosing function's in place of references to them."""
    found = {attribute.name: getattr(node, attribute.name) for attribute in node.onnx_node.attribute}
    return {name: (linked or {}).get(value.name) if isinstance(value, RefAttrName) else value
            for name, value in found.items()}
