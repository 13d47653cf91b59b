"""The writer of serialized oneDNN graphs: the JSON files that benchdnn's graph driver reads.

Nodes of oneDNN keep their layouts and get explicit pads and a stated shape, judged by the library's rules; standard
nodes become the kinds that oneDNN Graph has. Source of the format: the same as `graph_json`'s.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import prod
from typing import Any

from onnx import NodeProto

import convreg.onnx
from convreg import GraphError, OpError, registry
from convreg.calls.binding import make_call, plan_of
from convreg.files import PathLike, write_atomically
from convreg.geometry import Geometry
from convreg.guard import guarded
from convreg.onnx.graph import attributes_of, flattened
from convreg.onnx.model.files import Source, opened
from convreg.onnx.rewrite.problem import Problem, problem_of
from convreg.spec import Shape

from ..view import View, view
from .graph import MAX_RANK, UNKNOWN_EXTENTS
from .kinds import ELEMENT_NAMES, KINDS, Operation, Written

VENDOR = "convreg.onednn"
OTHERS = {spec.onnx_domain for spec in registry.specs()} - {VENDOR}
LIBRARY = "3.14.0"
"""The release whose format and rules the files follow."""


@guarded("convreg::onnx_io")
def export_graph_json(source: Source, path: PathLike) -> dict[str, int]:
    """Write a model as a serialized oneDNN graph.

    Parameters
    ----------
    source : onnx.ModelProto or path
        Gradients of other dialects are translated to oneDNN's first. Every extent must be known where an operation
        states a shape.
    path : path-like
        The JSON file.

    Returns
    -------
    dict
        Tensor name -> id. The format holds no values: constants are inputs of property ``constant``.

    Raises
    ------
    GraphError
        If the model holds a node or element type that oneDNN graphs have no kind for; the message names it. Nothing is
        written then.
    """
    model = before = flattened(opened(source))
    if any(node.domain in OTHERS for node in model.graph.node):
        model = convreg.onnx.translate(model, "onednn", rest="lower")
    writer = _Writer(view(model, before))
    document = writer.document()
    content = json.dumps(document, indent=1, allow_nan=False).encode()
    write_atomically(path, lambda file: file.write(content))
    return writer.ids


class _Writer:
    """One export: tensors are numbered as they are met."""

    def __init__(self, model: View) -> None:
        self.model = model
        self.ids: dict[str, int] = {}
        self.aliases: dict[str, str] = {}

    def document(self) -> dict[str, Any]:
        """Return the whole object, keys in the order in which the library writes them."""
        for name in self.model.inputs:
            self._id(name)
        operations: list[dict[str, Any]] = []
        for node in self.model.nodes:
            if node.op_type == "Identity" and not node.domain and node.output[0] not in self.model.outputs:
                self.aliases[node.output[0]] = self._origin(node.input[0])
                continue
            try:
                written = self._written(node)
                tensors = [[self._tensor(name) for name in names] for names in (written.inputs, written.outputs)]
            except (GraphError, OpError) as error:
                raise self.model.refusal(node, error, self._why(node)) from error
            operations.append({
                "id": len(operations), "name": node.name or written.kind, "kind": written.kind,
                "attrs": {name: {"type": kind, "value": value} for name, (kind, value) in written.attributes.items()},
                "inputs": tensors[0], "outputs": tensors[1]})
        if not operations:
            raise GraphError("the model has no operation, and a oneDNN graph needs one")
        produced = {tensor["id"] for operation in operations for tensor in operation["outputs"]}
        free = {tensor["id"]: None for operation in operations for tensor in operation["inputs"]
                if tensor["id"] not in produced}
        for name in self.model.outputs:
            if self.ids.get(name) not in produced:
                raise GraphError(f"output {name!r} is an input or a constant, which oneDNN graphs cannot return")
        self.ids = {name: number for name, number in self.ids.items() if number in produced or number in free}
        return {
            "version": LIBRARY, "engine_kind": "cpu", "fpmath_mode": "strict", "fpmath_mode_apply_to_int": "false",
            "input_ports": sorted(free), "output_ports": [self.ids[name] for name in self.model.outputs],
            "graph": operations}

    def _why(self, node: NodeProto) -> str:
        """The reason for which the node of the caller's model was not translated to one of oneDNN's, if it is known."""
        origin = self.model.origins.get(node.name)
        problem = None if origin is None else problem_of(origin, self.model.scope, None)
        return "" if problem is None or problem.batch is not None else "the batch must be known before the graph runs"

    def _origin(self, name: str) -> str:
        return self.aliases.get(name, name)

    def _id(self, name: str) -> int:
        return self.ids.setdefault(name, len(self.ids))

    def _tensor(self, name: str) -> dict[str, Any]:
        """The description of one use of a tensor."""
        name = self._origin(name)
        dtype = str(self.model.dtype(name))
        if dtype not in ELEMENT_NAMES:
            raise GraphError(f"tensor {name!r} is {dtype}; oneDNN graphs have {', '.join(ELEMENT_NAMES)}")
        shape = self.model.shape(name)
        if shape is None or len(shape) > MAX_RANK:
            raise GraphError(f"the rank of tensor {name!r} is not known or above {MAX_RANK}")
        constant = name in self.model.constants
        return {"id": self._id(name), "dtype": ELEMENT_NAMES[dtype], **_layout(shape),
                "property_type": "constant" if constant else "variable" if name in self.model.inputs else "undef"}

    def _written(self, node: NodeProto) -> Written:
        if node.domain == VENDOR:
            return self._convolution(node)
        if node.domain != "" or node.op_type not in KINDS:
            raise GraphError(f"{node.domain or 'standard'}::{node.op_type} has no kind in oneDNN graphs here; known: "
                             f"{', '.join(sorted(KINDS))}")
        if len([name for name in node.output if name]) > 1:
            raise GraphError("only one output can be written")
        return KINDS[node.op_type](Operation(self.model, node, attributes_of(node)))

    def _convolution(self, node: NodeProto) -> Written:
        """An operation of oneDNN's convolution family, by the library's rules."""
        problem = problem_of(node, self.model.scope, self.model.versions.get(VENDOR))
        if problem is None:
            raise GraphError(f"{node.domain} has no operator {node.op_type}")
        if problem.plan.emulation is not None:
            raise GraphError("conformance 'emulation' has number formats and scales that oneDNN graphs lack")
        if problem.batch is None:
            raise GraphError("the batch must be known before the graph runs")
        geometry = problem.geometry
        if geometry is None:
            raise GraphError("its result does not depend on its operands, because one of them is empty")
        if problem.layout("weight").startswith("page"):
            raise GraphError("the weights are in the order of the page, (IC/g, OC, X), which the library does not read")
        attributes = {name: problem.call[name] for name in ("data_format", "weights_format")}
        attributes |= {"groups": geometry.groups, "auto_pad": "None", **_window(problem, geometry)}
        stated = problem.spec.shape_ports
        made = problem.plan.outputs[0]
        assert made is not None
        shape = {port.name: list(made.extents) for port in stated}
        self._judge(problem, {**attributes}, shape)
        kinds: Mapping[str, str] = {"data_format": "string", "weights_format": "string", "groups": "s64",
                                    "auto_pad": "string"}
        operands = [name for port, name in zip(problem.spec.inputs, node.input, strict=False) if name and
                    not port.shape]
        return Written(node.op_type, operands, [node.output[0]], {
            name: (kinds.get(name, "s64[]"), value) for name, value in {**attributes, **shape}.items()})

    def _judge(self, problem: Problem, attributes: dict[str, Any], shape: dict[str, list[int]]) -> None:
        """Let the library's rules plan what is written, and compare with what is meant."""
        spec = problem.spec
        conformance = "library" if "library" in spec.conformances else spec.conformances[0]
        tensors = tuple(None if port.shape else problem.call.tensor(port.name) if problem.call.has(port.name) else None
                        for port in spec.inputs)
        stated: dict[str, Shape | None] = {name: tuple(extents) for name, extents in shape.items()}
        call = make_call(spec, conformance, tensors, stated, attributes)
        if plan_of(call).geometry != problem.geometry:
            raise GraphError("the library's rules give another result")


def _window(problem: Problem, geometry: Geometry) -> dict[str, list[int]]:
    """Explicit pads; what they leave over is output_padding where the operation has it."""
    arranged = problem.spec.convolution
    makes_large_side = arranged.forward and not arranged.is_transposed(problem.call)  # no shape of which is stated
    return geometry.explicit | ({"output_padding": geometry.output_padding} if makes_large_side else {})


def _layout(shape: Shape) -> dict[str, Any]:
    """Shape and dense strides; zero extents count as one, and with an unknown extent no stride is known."""
    if not all(isinstance(extent, int) for extent in shape):
        return {"shape": [extent if isinstance(extent, int) else UNKNOWN_EXTENTS[0] for extent in shape],
                "stride": [UNKNOWN_EXTENTS[0]], "layout_type": "undef"}
    extents = [max(int(extent), 1) for extent in shape]
    return {"shape": list(shape), "stride": [prod(extents[axis + 1:]) for axis in range(len(extents))],
            "layout_type": "strided"}
