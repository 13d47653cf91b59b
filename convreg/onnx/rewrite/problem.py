"""One node of ours as the problem it states: its call planned by the operator's own rule, its values by role.

The shapes come from inference. Every extent must be known but the batch, which no standard form needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from onnx import NodeProto

from ... import registry
from ...calls.binding import asking, judged, make_call, plan_of
from ...errors import GraphError, OpError
from ...formats import format_of
from ...geometry import Geometry
from ...geometry.onednn import split_data
from ...roles import OPERANDS, RESULTS, Precision, Role
from ...spec import Call, OpSpec, Plan, Port, Shape, TensorType
from .. import payload
from ..graph import Declared, Scope, attributes_of, place


@dataclass(frozen=True)
class Problem:
    """A node of ours with everything known about it.

    `names` holds the values of the operands that are there and of the results that are computed; `masked` the outputs
    that are named although the node's attributes mask them off. `batch` is None where only a run will tell. `scales`
    holds the values that operands are multiplied by.
    """

    node: NodeProto
    call: Call
    plan: Plan
    batch: int | None
    names: Mapping[Role, str]
    masked: tuple[tuple[int, str], ...]
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
        return self.plan.geometry

    @property
    def transposed(self) -> bool:
        """Whether grad_output is the large side."""
        return self.spec.convolution.is_transposed(self.call)

    @property
    def precision(self) -> Precision:
        """Roundings that the operator adds."""
        return self.plan.precision

    def stage(self, role: Role) -> str | None:
        """The format in which a result leaves its kernel, None for that of the sums."""
        stages = self.precision.stages
        return stages[self._output(role)] if stages else None

    @property
    def rounds_as_usual(self) -> bool:
        """Whether results are rounded as everyone does, not as `rounding` and `saturate` choose."""
        return self.plan.emulation is None or self.plan.emulation.last.usual

    @property
    def results(self) -> list[Role]:
        """The results that are computed."""
        return [role for role in RESULTS if role in self.names]

    def type_of(self, role: Role) -> TensorType:
        """Shape (with a batch of 1 where it is unknown) and format of an operand or computed result."""
        if role in OPERANDS:
            return self.call.tensor(self.spec.roles[role])
        made = self.plan.outputs[self._output(role)]
        assert made is not None, role
        return made

    def _output(self, role: Role) -> int:
        return [port.role for port in self.spec.outputs].index(role)

    def layout(self, role: Role) -> str:
        """Axis order in which an operand or result is stored."""
        convolution = self.spec.convolution
        if role not in ("weight", "grad_weight"):
            return convolution.data_layout_of(self.call)
        return convolution.weight_layout_of(self.call, self.plan.divided_small)

    def error(self, reason: str) -> GraphError:
        """Return the exception for a problem that cannot be written."""
        return GraphError(f"{self.where}: {reason}")


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
    spec = operator.spec
    if not spec.convolves:
        raise GraphError(f"{place(node)}: the ports of {spec.qualified_name} have no known roles, so the node cannot "
                         "be rewritten")
    try:
        reader = Reader(node, spec, scope)
        call = judged(spec, reader.conformance, reader.call)
    except OpError as error:
        raise GraphError(f"{place(node)}: {error}") from error
    plan = plan_of(call)
    if plan.geometry is None and not any(tensor is not None and 0 in tensor.extents for tensor in call.inputs):
        raise GraphError(f"{place(node)}: the plan of {spec.qualified_name} states no geometry, so the node cannot be "
                         "rewritten")
    names: dict[Role, str] = {}
    for port, name in zip(spec.inputs, node.input, strict=False):
        if name and port.role in OPERANDS:
            names[port.role] = name
    masked = []
    for index, (port, made) in enumerate(zip(spec.outputs, plan.outputs, strict=True)):
        if index < len(node.output) and node.output[index]:
            if made is None:
                masked.append((index, node.output[index]))
            else:
                assert port.role in RESULTS, port.name
                names[port.role] = node.output[index]
    return Problem(node, call, plan, reader.batch, names, tuple(masked), scales=scale_names(plan, node.input))


def scale_names(plan: Plan, inputs: Sequence[str]) -> dict[Role, str]:
    """Return the values among a node's inputs that scale operands, by the role of what they scale."""
    return {} if plan.emulation is None else {scale.role: inputs[scale.place] for scale in plan.emulation.scales}


class Reader:
    """From a node and its scope to a call whose extents are all known."""

    def __init__(self, node: NodeProto, spec: OpSpec, scope: Scope) -> None:
        self.node, self.spec, self.scope = node, spec, scope
        self.attributes = attributes_of(node)
        self.conformance = self.attributes.pop("conformance", None) if len(spec.conformances) > 1 else None
        self._before = asking(spec, spec.conformances[0])
        types = self.attributes.pop(payload.ATTRIBUTE, None) if payload.may_carry(spec) else None
        formats = payload.stated_types(self._before, types)
        self.types = {port.name: format for port, format in zip(spec.inputs, formats, strict=True)}
        self.data_ports = (spec.roles["grad_output"], spec.roles.get("data", ""))
        self.inputs = dict(zip((port.name for port in spec.inputs), node.input, strict=False))
        shapes = [self._declared(self.inputs.get(port, "")).shape for port in self.data_ports]
        rank = len(shapes[0] or ())
        shapes += [tuple(value) for port in spec.shape_ports if port.role != "weight_shape"
                   and isinstance(value := self.attributes.get(port.name), list) and len(value) == rank]
        self.batch = next((shape[0] for shape in shapes if shape and isinstance(shape[0], int)), None)

    def call(self, conformance: str) -> Call:
        """Return the planned call under a conformance."""
        stated = {port.name: self.stated(port) for port in self.spec.shape_ports}
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

    def stated(self, port: Port) -> Shape | None:
        """The shape that an input states is, after inference, the shape of the output."""
        if not self.inputs.get(port.name):
            return None
        of: Role = "grad_weight" if port.role == "weight_shape" else "grad_data"
        made = zip(self.spec.outputs, self.node.output, strict=False)
        shape = self._declared(next((name for output, name in made if output.role == of), "")).shape
        if port.role == "data_extents":
            stated = {attribute.name: attribute.default for attribute in self.spec.attributes} | self.attributes
            layout = self.spec.convolution.data_layout_of(stated)
            return self._extents(port.name, None if shape is None else split_data(shape, layout)[2], False)
        return self._extents(port.name, shape, port.role == "data_shape")

    def _extents(self, port: str, shape: Shape | None, is_data: bool) -> tuple[int, ...]:
        """Return a shape whose extents are known, with a batch of 1 where it is not."""
        if shape and is_data and not isinstance(shape[0], int):
            shape = (1 if self.batch is None else self.batch, *shape[1:])
        if shape is None or not all(isinstance(extent, int) for extent in shape):
            known = "nothing" if shape is None else [extent if extent is not None else "?" for extent in shape]
            raise GraphError(f"{place(self.node)}: every extent of {port} but the batch must be known before the graph "
                             f"runs; inference finds {known}")
        return shape
