"""Nodes of one dialect as nodes of another: pads explicit, layouts and groups rearranged by standard nodes around."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from onnx import ModelProto, TensorProto

from ...calls.binding import make_call, plan_of
from ...errors import GraphError, OpError, shorten
from ...geometry import Geometry
from ...guard import guarded
from ...roles import OPERANDS, RESULTS, Role
from ...spec import Shape, TensorType
from ..model.files import Source, opened_flat
from . import parts
from .builder import Builder, Names
from .conversion import Conversion
from .lower import (
    check_formats,
    compute_format,
    deliver,
    operand,
    rewrite,
    rounding_stage,
    write_masked,
    write_result,
    write_standard,
)
from .problem import Problem
from .targets import TARGETS, Statement, Wish


@guarded("convreg::onnx")
def translate(source: Source, to: str, *, rest: Literal["error", "lower"] = "error") -> ModelProto:
    """Return the model with the gradient nodes of other dialects rewritten to those of one.

    Parameters
    ----------
    source : onnx.ModelProto or path
    to : {"ascend", "onednn", "openvino", "aten", "onnx"}
        The dialect; "onnx" is `lower`.
    rest : {"error", "lower"}
        The treatment of gradient nodes that the dialect cannot express: an error, or standard ONNX. Quantize and
        Dequantize belong to no dialect: they stay unchanged with "error", and become standard ONNX with "lower".

    Returns
    -------
    onnx.ModelProto
        Nodes of the dialect stay unchanged, except that openvino's get the form that OpenVINO itself has. Bias
        gradients become ReduceSum if the dialect has none. oneDNN's forward operators become standard nodes in other
        dialects. Every new node has explicit pads, a conformance and channel-first layouts. Its geometry by the
        dialect's own rule equals that of the old node.

    Raises
    ------
    GraphError
        If the dialect is unknown or cannot express a node (the message names the rule that refuses and the dialects
        that accept it), or as in `lower`.

    Notes
    -----
    If a dialect's pads cannot express a window, the new node computes what the kernel reaches, with Pad and Slice
    around it. Operands that the dialect requires and the gradient does not depend on are zeros. If formats differ or
    operands are rounded first, the new node computes in float32 between Casts.
    """
    for name, value in (("to", to), ("rest", rest)):
        if not isinstance(value, str):
            raise GraphError(f"{name}={shorten(value)} is refused; allowed: the name as a str")
    if to not in (*TARGETS, "onnx"):
        raise GraphError(f"no dialect {to!r} to translate to; allowed: {', '.join([*TARGETS, 'onnx'])}")
    if rest not in ("error", "lower"):
        raise GraphError(f"rest={rest!r}; allowed: 'error' or 'lower'")
    return translated(opened_flat(source), to, rest)


def translated(flat: ModelProto, to: str, rest: str = "error") -> ModelProto:
    """Return what `translate` returns, for what `opened_flat` returned or a model that was made of that.

    Raises
    ------
    GraphError
        As `translate`.
    """
    if to == "onnx":
        return rewrite(flat, write_standard)

    keeps = TARGETS[to].keeps

    def write(problem: Problem | Conversion, builder: Builder) -> bool:
        if isinstance(problem, Conversion):
            return rest == "lower" and write_standard(problem, builder)
        if keeps is not None and problem.spec.vendor == to and keeps(problem):
            return False
        if problem.spec.convolution.forward:
            return write_standard(problem, builder)
        try:
            _write(problem, builder, to)
        except _Unstated as error:
            if rest == "error":
                raise problem.error(f"{to} cannot express it: {error}; {_others(problem, to)}") from error
            builder.reset()
            write_standard(problem, builder)
        return True

    return rewrite(flat, write, to if keeps is None else None)


class _Unstated(Exception):
    """A dialect has no node for a gradient."""


def _others(problem: Problem, to: str) -> str:
    """Say which dialects would state a problem."""
    found = []
    for name in TARGETS:
        if name != to:
            try:
                _write(problem, Builder(Names(), ""), name)
                found.append(name)
            except _Unstated:
                continue
    try:
        write_standard(problem, Builder(Names(), ""))
        found.append("onnx")
    except GraphError:
        pass
    return " or ".join(map(repr, found)) + " can" if found else "no other dialect can"


def _write(problem: Problem, builder: Builder, to: str) -> None:
    """Write a problem in a dialect or raise `_Unstated`."""
    try:
        for role in problem.results:
            check_formats(problem, role)
    except GraphError as error:
        raise _Unstated(str(error).removeprefix(f"{problem.where}: ")) from error
    write_masked(problem, builder)
    geometry = problem.geometry
    alone: list[Role] = ["grad_bias"] if "grad_bias" in problem.results else []
    if geometry is None or not parts.touches(geometry):
        alone = problem.results
    together = [role for role in problem.results if role not in alone]
    target = TARGETS[to]
    if geometry is not None and target.together and alone == ["grad_bias"] and problem.precision.operands is None:
        together, alone = problem.results, []
    for role in alone:
        write_result(problem, builder, role)
    for results in [tuple(together)] if target.together else [(role,) for role in together]:
        if not results:
            continue
        if target.standard_forward and problem.transposed and results == ("grad_data",):
            write_result(problem, builder, "grad_data")
            continue
        assert geometry is not None
        _write_together(problem, builder, to, geometry, results)


def _write_together(problem: Problem, builder: Builder, to: str, geometry: Geometry, results: tuple[Role, ...]) -> None:
    """Write results that one node makes: as they are, or over what the kernel reaches."""
    refusals = []
    for exact in dict.fromkeys((geometry, _reached(geometry))):
        apart = exact != geometry and problem.transposed  # cropping must not change the sum of a bias gradient
        made = tuple(role for role in results if not (apart and role == "grad_bias"))
        for statement in TARGETS[to].statements(Wish(exact, problem.transposed, made)):
            node = _Node(problem, statement, exact, made)
            try:
                node.check()
            except OpError as error:
                refusals.append(error)
                continue
            node.write(builder)
            if made != results:
                write_result(problem, builder, "grad_bias")
            return
    kind: dict[Role, str] = {"grad_data": "data", "grad_weight": "weights"}
    raise _Unstated(str(refusals[0]) if refusals else
                    f"it has no gradient with respect to {' and '.join(kind[role] for role in results)}")


def _reached(geometry: Geometry) -> Geometry:
    """The geometry whose large side is exactly what the small side's positions touch."""
    return replace(geometry, axes=tuple(axis._replace(large=axis.reach, begin=0) for axis in geometry.axes))


class _Node:
    """A statement about a problem: `geometry` is the problem's, or the one that `_reached` makes of it."""

    def __init__(self, problem: Problem, statement: Statement, geometry: Geometry, results: tuple[Role, ...]) -> None:
        self.problem, self.statement, self.geometry, self.results = problem, statement, geometry, results
        self.format, self.uniform = _format(problem, results)
        self.by_port = {port: role for role, port in statement.spec.roles.items() if role in (*OPERANDS, *RESULTS)}

    def check(self) -> None:
        """Plan the statement as the target's operator would; raises `OpError` where its rule refuses."""
        statement, spec = self.statement, self.statement.spec
        tensors = tuple(TensorType(self._shape(self.by_port[port.name]), self.format) if port.name in self.by_port
                        else None for port in spec.inputs)
        stated: dict[str, Shape | None] = {port.name: statement.shape for port in spec.shape_ports}
        call = make_call(spec, statement.conformance, tensors, stated, statement.attributes, wanted=self._wanted())
        assert plan_of(call).geometry == self.geometry, statement

    def write(self, builder: Builder) -> None:
        """Append the node with what its operands and results need around it."""
        statement, spec = self.statement, self.statement.spec
        attributes = {name: [int(entry) if isinstance(entry, bool) else entry for entry in value]
                      if isinstance(value, list) else int(value) if isinstance(value, bool) else value
                      for name, value in statement.attributes.items()}
        if len(spec.conformances) > 1:
            attributes["conformance"] = statement.conformance
        inputs = []
        for port in spec.vendor_inputs:
            if not port.shape:
                inputs.append(self._operand(builder, self.by_port[port.name]))
            elif port.attribute and not self._open_batch(statement.shape):
                attributes[port.name] = statement.shape
            else:
                inputs.append(self._shape_input(builder))
        made = builder.add_node(spec.name, inputs, self._wanted(), domain=spec.onnx_domain, **attributes)
        for port, value in zip(spec.outputs, made, strict=False):
            if value:
                self._deliver(builder, self.by_port[port.name], value)

    def _wanted(self) -> tuple[bool, ...]:
        return tuple(self.by_port[port.name] in self.results for port in self.statement.spec.outputs)

    def _shape(self, role: Role) -> tuple[int, ...]:
        if role != "weight":
            is_large = (role == "grad_output") == self.problem.transposed
            return parts.large_shape(self.geometry) if is_large else parts.small_shape(self.geometry)
        shape = parts.weight_shape(self.geometry)
        grouped = self.statement.spec.convolution.has_group_axis
        return (self.geometry.groups, self.geometry.small_channels, *shape[1:]) if grouped else shape

    def _open_batch(self, shape: tuple[int, ...] | None) -> bool:
        """Whether a stated shape holds a batch that only a run will tell."""
        return self.problem.batch is None and shape == parts.large_shape(self.geometry)

    def _shape_input(self, builder: Builder) -> str:
        shape = self.statement.shape
        assert shape is not None
        if not self._open_batch(shape):
            return builder.constant(shape)
        # the library's rules take int32 only
        return builder.add("Cast", builder.extents(shape, self.problem.names["grad_output"]), to=TensorProto.INT32)

    def _operand(self, builder: Builder, role: Role) -> str:
        problem, shape = self.problem, self._shape(role)
        if role not in problem.names:  # its shape is all that the results depend on
            open_batch = role == "data" and problem.batch is None
            return builder.zeros(shape, self.format, problem.names["grad_output"] if open_batch else None)
        value = operand(problem, builder, role, self.format)
        if role == "weight":
            return builder.reshape(value, shape) if len(shape) > len(self.geometry.axes) + 2 else value
        is_large = (role == "grad_output") == problem.transposed
        assert problem.geometry is not None
        return parts.to_reach(builder, problem.geometry, value) if is_large and self._shifted else value

    def _deliver(self, builder: Builder, role: Role, value: str) -> None:
        problem = self.problem
        assert problem.geometry is not None
        if role == "grad_data" and not problem.transposed and self._shifted:
            value = parts.from_reach(builder, problem.geometry, value)
        stage = self.format if self.uniform else rounding_stage(problem, role)
        deliver(problem, builder, role, builder.cast(value, self.format, stage), stage)

    @property
    def _shifted(self) -> bool:
        return self.geometry != self.problem.geometry


def _format(problem: Problem, results: tuple[Role, ...]) -> tuple[str, bool]:
    """Return the format of a new node, and whether all that it touches is in it, so that nothing is converted."""
    operands = [role for role in OPERANDS if role in problem.names]
    formats = {problem.type_of(role).format for role in (*operands, *results)}
    if len(formats) == 1 and problem.precision.operands is None and not problem.scales:
        return formats.pop(), True
    return compute_format(problem), False
