"""One node of ours as the problem it states: its call planned by the operator's own rule, its values by role.

The shapes come from inference. Every extent must be known but the batch, which no standard form needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from onnx import GraphProto, NodeProto

from .. import registry
from ..calls.binding import asking, judged, make_call, plan_of
from ..errors import GraphError, OpError
from ..formats import format_of
from ..geometry import Geometry
from ..geometry.onednn import split_data
from ..roles import OPERANDS, RESULTS, Role, Roles, data_layout, geometry_of, is_transposed, roles_of, weight_layout
from ..spec import Call, OpSpec, Plan, Port, Shape, TensorType
from . import payload
from .execution import place
from .inference import attribute_value, dtype_of
from .session import Declared

DATA_SHAPES = ("dst_shape", "output_shape")
"""Ports and attributes that state the shape of data, batch first."""

Scope = Mapping[str, Declared]
"""What is known of the values that a graph's nodes may read."""


@dataclass(frozen=True)
class Precision:
    """Roundings beyond the one at the end: of the operands ("hf32", "float16"), and of grad_data on its way out."""

    operands: str | None = None
    written: str | None = None


@dataclass(frozen=True)
class Problem:
    """A node of ours with everything known about it.

    `names` holds the values of the operands that are there and of the results that are computed; `masked` the outputs
    that are named although the node's attributes mask them off. `batch` is None where only a run will tell. Where it
    is not `rounded`, everything is float64. `scales` holds the values that operands are multiplied by.
    """

    node: NodeProto
    call: Call
    plan: Plan
    roles: Roles
    batch: int | None
    names: Mapping[Role, str]
    masked: tuple[tuple[int, str], ...]
    rounded: bool = True
    scales: Mapping[Role, str] = field(default_factory=dict)

    @property
    def spec(self) -> OpSpec:
        """The operator."""
        return self.call.spec

    @property
    def where(self) -> str:
        """Words that find the node."""
        return place(self.node)

    @property
    def geometry(self) -> Geometry | None:
        """The integers; None where an empty tensor leaves nothing but zeros."""
        return geometry_of(self.plan)

    @property
    def transposed(self) -> bool:
        """Whether grad_output is the large side."""
        return is_transposed(self.call, self.roles)

    @property
    def precision(self) -> Precision:
        """Roundings that the operator adds; only Ascend's does."""
        if self.spec.vendor != "ascend" or not self.rounded:
            return Precision()
        stated = self.plan.work.precision
        return Precision(stated.operands, stated.written)

    @property
    def rounds_as_usual(self) -> bool:
        """Whether results are rounded as everyone does, not as `rounding` and `saturate` choose."""
        return not self.rounded or self.plan.emulation is None or self.plan.emulation.last.usual

    @property
    def results(self) -> list[Role]:
        """The results that are computed."""
        return [role for role in RESULTS if role in self.names]

    def type_of(self, role: Role) -> TensorType:
        """Shape (with a batch of 1 where it is unknown) and format of an operand or computed result."""
        port = self.roles.port(role)
        if role in OPERANDS:
            return self.call.tensor(port)
        made = self.plan.outputs[[output.name for output in self.spec.outputs].index(port)]
        assert made is not None, port
        return made

    def layout(self, role: Role) -> str:
        """Axis order in which an operand or result is stored."""
        if role in ("weight", "grad_weight"):
            return weight_layout(self.call, self.plan)
        return data_layout(self.call)

    def error(self, reason: str) -> GraphError:
        """Return the exception for a problem that cannot be written."""
        return GraphError(f"{self.where}: {reason}")


def widened(problem: Problem) -> Problem:
    """Return the same problem over float64 operands, with float64 results and no roundings."""
    def wide(tensors: tuple[TensorType | None, ...]) -> tuple[TensorType | None, ...]:
        return tuple(None if tensor is None else tensor._replace(format="float64") for tensor in tensors)

    return replace(problem, call=replace(problem.call, inputs=wide(problem.call.inputs)),
                   plan=replace(problem.plan, outputs=wide(problem.plan.outputs)), rounded=False)


def scope_of(graph: GraphProto, outer: Scope | None = None) -> Scope:
    """Return what an inferred graph states of its values, on top of those around it."""
    known = dict(outer or {})
    for tensor in graph.initializer:
        known[tensor.name] = Declared(tensor.name, dtype_of(tensor.data_type), tuple(tensor.dims))
    for value in (*graph.input, *graph.value_info, *graph.output):
        known[value.name] = Declared.of(value)
    return known


def problem_of(node: NodeProto, scope: Scope, version: int | None) -> Problem | None:
    """Return what a node of ours states; None for a node of others.

    Parameters
    ----------
    node : onnx.NodeProto
    scope : mapping
        What inference found of the values around the node.
    version : int or None
        The version that the model imports of the node's domain.

    Raises
    ------
    GraphError
        If the operator's rules refuse the node, or it needs an extent that only a run will tell.
    """
    operator = registry.find_node(node.domain, node.op_type, version)
    if operator is None:
        return None
    spec, roles = operator.spec, roles_of(operator.spec)
    if roles is None:
        raise GraphError(f"{place(node)}: the ports of {spec.qualified_name} have no known roles, so the node cannot "
                         "be rewritten")
    try:
        reader = Reader(node, spec, roles, scope)
        call = judged(spec, reader.conformance, reader.call)
    except OpError as error:
        raise GraphError(f"{place(node)}: {error}") from error
    plan = plan_of(call)
    names: dict[Role, str] = {}
    for role in OPERANDS:
        index = next((i for i, port in enumerate(spec.inputs) if port.name == roles.port(role)), len(node.input))
        if index < len(node.input) and node.input[index]:
            names[role] = node.input[index]
    masked = []
    for index, (port, made) in enumerate(zip(spec.outputs, plan.outputs, strict=True)):
        if index < len(node.output) and node.output[index]:
            if made is None:
                masked.append((index, node.output[index]))
            else:
                names[next(role for role in RESULTS if roles.port(role) == port.name)] = node.output[index]
    return Problem(node, call, plan, roles, reader.batch, names, tuple(masked), scales=scale_names(plan, node.input))


def scale_names(plan: Plan, inputs: Sequence[str]) -> dict[Role, str]:
    """Return the values among a node's inputs that scale operands, by the role of what they scale."""
    return {} if plan.emulation is None else {scale.role: inputs[scale.place] for scale in plan.emulation.scales}


class Reader:
    """From a node and its scope to a call whose extents are all known."""

    def __init__(self, node: NodeProto, spec: OpSpec, roles: Roles, scope: Scope) -> None:
        self.node, self.spec, self.scope = node, spec, scope
        self.attributes = {proto.name: attribute_value(proto) for proto in node.attribute}
        self.conformance = self.attributes.pop("conformance", None) if len(spec.conformances) > 1 else None
        self._before = asking(spec, spec.conformances[0])
        types = self.attributes.pop(payload.ATTRIBUTE, None) if payload.may_carry(spec) else None
        formats = payload.stated_types(self._before, types)
        self.types = {port.name: format for port, format in zip(spec.inputs, formats, strict=True)}
        self.data_ports = (roles.grad_output, roles.data)
        self.inputs = dict(zip((port.name for port in spec.inputs), node.input, strict=False))
        shapes = [self._declared(self.inputs.get(port, "")).shape for port in self.data_ports]
        rank = len(shapes[0] or ())
        shapes += [tuple(value) for name, value in self.attributes.items()
                   if name in DATA_SHAPES and isinstance(value, list) and len(value) == rank]
        self.batch = next((shape[0] for shape in shapes if shape and isinstance(shape[0], int)), None)

    def call(self, conformance: str) -> Call:
        """Return the planned call under a conformance."""
        stated = {port.name: self.stated(port.name) for port in self.spec.shape_ports}
        tensors = tuple(None if port.shape else self.tensor(port) for port in self.spec.inputs)
        wanted = tuple(index < len(self.node.output) and self.node.output[index] != "" for index in
                       range(len(self.spec.outputs)))
        call = make_call(self.spec, conformance, tensors, stated, self.attributes, wanted=wanted)
        plan_of(call)
        return call

    def _declared(self, name: str) -> Declared:
        return self.scope.get(name, Declared(name, None, None))

    def tensor(self, port: Port) -> TensorType | None:
        """Shape and format of an input, None where it is left out."""
        name = self.inputs.get(port.name, "")
        if not name:
            if not port.optional:
                raise GraphError(f"{place(self.node)}: {port.name} is missing")
            return None
        declared = self._declared(name)
        if declared.dtype is None:
            raise GraphError(f"{place(self.node)}: the element type of {port.name} ({name!r}) is not known")
        format = format_of(declared.dtype)
        shape = self._extents(port.name, declared.shape, port.name in self.data_ports)
        held = TensorType(shape, format.name if format else str(declared.dtype))
        return payload.typed(self._before, port.name, held, self.types[port.name])

    def stated(self, port: str) -> Shape | None:
        """The shape that an input states is, after inference, the shape of the output."""
        if not self.inputs.get(port):
            return None
        shape = self._declared(next((name for name in self.node.output if name), "")).shape
        if port == "output_shape":
            layout = "NCX"
            if any(attribute.name == "data_format" for attribute in self.spec.attributes):
                layout = self.attributes.get("data_format", self.spec.attribute("data_format").default)
            return self._extents(port, None if shape is None else split_data(shape, layout)[2], False)
        return self._extents(port, shape, port in DATA_SHAPES)

    def _extents(self, port: str, shape: Shape | None, is_data: bool) -> tuple[int, ...]:
        """Return a shape whose extents are known, with a batch of 1 where it is not."""
        if shape and is_data and not isinstance(shape[0], int):
            shape = (1 if self.batch is None else self.batch, *shape[1:])
        if shape is None or not all(isinstance(extent, int) for extent in shape):
            known = "nothing" if shape is None else [extent if extent is not None else "?" for extent in shape]
            raise GraphError(f"{place(self.node)}: every extent of {port} but the batch must be known before the graph "
                             f"runs; inference finds {known}")
        return shape
