"""The layers of an ONNX model: every node that convreg's kernels compute, of any vendor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from onnx import AttributeProto, ModelProto, NodeProto, TypeProto, helper, numpy_helper

import convreg
from convreg import GraphError, OpError, registry
from convreg.calls.binding import Bound, asking, bind
from convreg.calls.recording import Recorder
from convreg.files import PathLike
from convreg.formats import FORMATS
from convreg.geometry import Axis, Geometry
from convreg.memory import Array
from convreg.onnx import payload
from convreg.onnx.graph import attribute_value, dims_of, place
from convreg.onnx.standard import STANDARD
from convreg.spec import OpSpec

from .nodes import dtype_of
from .problems import Node, Problem

ROUNDINGS = ("rounding", "saturate", "cubeMathType")
"""Attributes that round operands or results in another way than kernels."""
NEUTRAL = Axis(large=1, small=1, taps=1, stride=1, dilation=1, begin=0)


class Noted(NamedTuple):
    """A kernel call: direction, geometry, and the number formats of its operands and its result."""

    direction: str
    geometry: Geometry
    formats: tuple[str, str, str]


class Convolutions(Recorder):
    """Records which convolutions an operator computes."""

    ORDER: ClassVar = {"forward": ("forward", 0, 1, 2), "backward_data": ("data", 2, 1, 0),
                       "backward_weights": ("weights", 0, 2, 1)}
    """Kernel -> direction, and where among its operands the large side, taps and small side stand."""

    def __init__(self) -> None:
        self.calls: list[Noted] = []
        self.extras: list[str] = []

    def bias_sum(self, small: Array, bias: Array, **settings: Any) -> None:
        """Keep that there is a bias gradient: it is no convolution."""
        self.extras.append("a bias gradient")

    def note(self, kernel: str, operands: tuple[Array, Array, Array], settings: dict[str, Any]) -> None:
        """Keep direction, geometry and number formats, and that a bias is added."""
        direction, *places = self.ORDER[kernel]
        large, taps, small = (operands[place] for place in places)
        axes = list(map(Axis, large.shape[3:], small.shape[3:], taps.shape[3:], settings["stride"],
                        settings["dilation"], settings["begin"]))
        while len(axes) > 1 and axes[0] == NEUTRAL:
            del axes[0]
        batch, groups, channels = large.shape[:3]
        geometry = Geometry(batch, groups, channels, small.shape[2], tuple(axes))
        self.calls.append(Noted(direction, geometry, settings["formats"]))
        if settings.get("bias") is not None:
            self.extras.append("a bias")


def read_model(path: PathLike) -> tuple[list[Problem], list[str]]:
    """Return the layers of an ONNX model's main graph, and a sentence on each one that is left out.

    Parameters
    ----------
    path : path
        A model with Conv, ConvTranspose or gradient nodes of any domain that convreg knows.

    Raises
    ------
    GraphError
        If the file is no model, or holds no such node with known shapes.
    """
    model = convreg.onnx.infer_shapes(convreg.onnx.load(path))
    types = {value.name: value.type for value in (*model.graph.input, *model.graph.value_info, *model.graph.output)}
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    constants |= {node.output[0]: numpy_helper.to_array(attribute.t) if attribute.name == "value" else
                  np.array(attribute.ints) for node in model.graph.node
                  if node.op_type == "Constant" and node.domain in ("", "ai.onnx")
                  for attribute in node.attribute if attribute.name in ("value", "value_ints")}
    problems: list[Problem] = []
    notes: list[str] = []
    for node in model.graph.node:
        spec = _spec(model, node)
        if spec is None:
            continue
        try:
            found = _calls(spec, node, types, constants)
        except (_Unknown, OpError) as reason:
            notes.append(f"{place(node)} is left out: {reason}")
            continue
        stem = node.name or next(name for name in node.output if name)
        problems += [Problem(stem, noted.geometry, directions=(noted.direction,), dtype=dtype_of(described),
                             node=described) for noted, described in found]
        if not found:
            notes.append(f"{place(node)} is left out: it computes no convolution")
    if not problems:
        raise GraphError(". ".join([f"{path}: no convolution or gradient node with known shapes", *notes]))
    return problems, notes


class _Unknown(Exception):
    """An operand whose shape or value is only known when the model runs."""


def _spec(model: ModelProto, node: NodeProto) -> OpSpec | None:
    """Return the declaration of a node's operator if convreg has one."""
    domain = "" if node.domain == "ai.onnx" else node.domain
    if (domain, node.op_type) in STANDARD:
        return STANDARD[domain, node.op_type]
    versions = {opset.domain: opset.version for opset in model.opset_import}
    operator = registry.find_node(domain, node.op_type, versions.get(domain))
    return operator.spec if operator is not None else None


def _calls(
    spec: OpSpec, node: NodeProto, types: dict[str, TypeProto], constants: dict[str, Array]
) -> list[tuple[Noted, Node]]:
    """Run a node on operands without memory of their own and return the kernel calls it makes."""
    names: Sequence[str] = [*node.input, *[""] * (len(spec.inputs) - len(node.input))]
    inputs: Sequence[Any] = [_operand(name, port.shape, types, constants) if name else None
                             for name, port in zip(names, spec.inputs, strict=True)]
    attributes = {attribute.name: attribute_value(attribute) for attribute in node.attribute
                  if attribute.type != AttributeProto.UNDEFINED}
    conformance = attributes.pop("conformance", None) if len(spec.conformances) > 1 else None
    if payload.may_carry(spec):
        before = asking(spec, spec.conformances[0])
        inputs = payload.read(before, attributes.pop(payload.ATTRIBUTE, None), inputs)
    wanted = tuple(index < len(node.output) and node.output[index] != "" for index in range(len(spec.outputs)))
    bound = bind(spec, inputs, attributes, conformance=conformance, wanted=wanted)
    # memory of their own, which takes none before it is written: an emulated last rounding writes
    outputs = tuple(None if made is None else np.empty(made.extents, FORMATS[made.format].dtype)
                    for made in bound.plan.outputs)
    recorder = Convolutions()
    spec.run(bound.plan, bound.inputs, outputs, recorder, 0)
    layouts = _layouts(bound)
    extras = (*dict.fromkeys(recorder.extras), *_emulated(bound))
    return [(noted, Node(tuple(dict.fromkeys(noted.formats[:2])), noted.formats[2], layouts, extras))
            for noted in recorder.calls]


def _layouts(bound: Bound) -> tuple[str, str]:
    """Return the orders of data and weights; groups as an axis of their own change nothing in memory."""
    arranged = bound.call.spec.convolution
    weights = arranged.weight_layout_of(bound.call, bound.plan.divided_small)
    return arranged.data_layout_of(bound.call), "OIX" if weights == "GOIX" else weights


def _emulated(bound: Bound) -> Iterator[str]:
    """Yield what a call does to operands and results outside the kernels."""
    call = bound.call
    if any(call.has(port.name) for port in call.spec.scale_ports):
        yield "scales"
    if any(call.declares(name) and call[name] for name in ROUNDINGS):
        yield "roundings of its own"


def _operand(name: str, states_shape: bool, types: dict[str, TypeProto], constants: dict[str, Array]) -> Array:
    if name in constants:
        array = constants[name]
        return array if states_shape else _hollow(array.shape, array.dtype)
    if states_shape:
        raise _Unknown(f"the value of {name!r} is computed by the model")
    kind = types.get(name)
    if kind is None or not kind.tensor_type.HasField("shape"):
        raise _Unknown(f"the shape of {name!r} is not known")
    shape = dims_of(kind.tensor_type.shape)
    if not all(isinstance(extent, int) for extent in shape):
        raise _Unknown(f"{name!r} has the shape {list(shape)}, which is not all numbers")
    return _hollow(shape, helper.tensor_dtype_to_np_dtype(kind.tensor_type.elem_type))


def _hollow(shape: tuple[int, ...], dtype: Any) -> Array:
    """Return an array of that shape which takes no memory: every element is the same one, and may be a scale."""
    return np.broadcast_to(np.ones((), dtype), shape)
