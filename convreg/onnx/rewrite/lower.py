"""convreg's nodes rewritten to standard ONNX, which any runtime can run."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, numpy_helper

from ... import registry
from ...errors import GraphError
from ...formats import FORMATS
from ...geometry import Geometry
from ...guard import guarded
from ...roles import Role
from ..graph import Scope, contradiction, empty, graphs_of, nodes_of, scope_of
from ..model.checks import types_of
from ..model.files import Source, opened_flat
from . import parts
from .builder import Builder, Names, prefix_of
from .conversion import CASTS, Conversion, conversion_of, write_conversion
from .problem import Problem, problem_of

OLDEST_OPSET = 13
"""The first version of standard ONNX in which every node written here has the form it is written in."""

Write = Callable[[Problem | Conversion, Builder], bool]
"""Write nodes that stand in for one node of ours and return True, or leave it alone and return False."""


@guarded("convreg::onnx")
def lower(source: Source) -> ModelProto:
    """Return the model with every convreg node rewritten to standard ONNX.

    Parameters
    ----------
    source : onnx.ModelProto or path
        Local functions with convreg nodes are inlined. Functions that `attach_functions` added are removed.

    Returns
    -------
    onnx.ModelProto
        Inputs and outputs keep their names, types and shapes. 16-bit and 8-bit floats are computed in float32 and
        rounded once. float64 stays float64, for which onnxruntime has no Conv. Pads are explicit. Outputs that are
        not named or are masked off by the node's attributes are not computed.

    Raises
    ------
    GraphError
        If a node needs an extent that is unknown before the graph runs (the batch is not needed), if its operator's
        rules refuse it, or if no standard operator computes the same.

    Notes
    -----
    Gradients with respect to data become ConvTranspose or Conv, those with respect to weights a Conv whose kernel is
    the other operand, bias gradients ReduceSum; Quantize and Dequantize become Cast, with Div and Mul for a scale.
    """
    return rewrite(opened_flat(source), write_standard)


def rewrite(flat: ModelProto, write: Write, kept: str | None = None) -> ModelProto:
    """Return a copy of what `opened_flat` returned in which `write` has replaced nodes of ours, at every level.

    All nodes of the vendor `kept` stay, so that nothing needs to be known of their extents.
    """
    model = ModelProto()
    model.CopyFrom(flat)
    imports = {entry.domain: entry.version for entry in model.opset_import}
    if not any(_is_ours(node, imports) for node in nodes_of(model)):
        return model
    for function in model.functions:
        if any(_is_ours(node, imports) for node in function.node):
            raise GraphError(f"function {function.domain}::{function.name} has convreg nodes and cannot be inlined: "
                             + (contradiction(model) or "an operator has its name"))
    standard = imports.get("")
    if standard is None:
        model.opset_import.add(domain="", version=22)
    elif standard < OLDEST_OPSET:
        raise GraphError(f"the model imports version {standard} of standard ONNX; rewriting needs {OLDEST_OPSET} or "
                         "later; onnx.version_converter can convert it")
    _rewrite_graph(model.graph, types_of(model).graph, None, imports, write, kept, Names.of(model))
    _clean(model)
    return model


def _is_ours(node: NodeProto, imports: dict[str, int]) -> bool:
    return registry.find_node(node.domain, node.op_type, imports.get(node.domain)) is not None


def _rewrite_graph(
    graph: GraphProto, inferred: GraphProto, outer: Scope | None, imports: dict[str, int], write: Write,
    kept: str | None, names: Names,
) -> None:
    """Replace nodes; `inferred` is the same graph with everything that inference found."""
    scope = scope_of(inferred, outer)
    nodes: list[NodeProto] = []
    for node, twin in zip(graph.node, inferred.node, strict=True):
        for inner, known in zip(graphs_of(node), graphs_of(twin), strict=True):
            _rewrite_graph(inner, known, scope, imports, write, kept, names)
        version = imports.get(node.domain)
        operator = None if kept is None else registry.find_node(node.domain, node.op_type, version)
        if operator is not None and operator.spec.vendor == kept:
            nodes.append(node)
            continue
        stated = conversion_of(node, scope, version) or problem_of(node, scope, version)
        builder = Builder(names, prefix_of(node))
        nodes.extend(builder.nodes if stated is not None and write(stated, builder) else [node])
    del graph.node[:]
    graph.node.extend(nodes)


def _clean(model: ModelProto) -> None:
    """Drop functions that nothing calls any more, import what is used, and no domain of ours beyond that."""
    called = {(node.domain, node.op_type, node.overload) for node in nodes_of(model)}
    kept = [function for function in model.functions if (function.domain, function.name, function.overload) in called]
    del model.functions[:]
    model.functions.extend(kept)
    used = {node.domain for node in nodes_of(model)}
    ours = {spec.onnx_domain: spec.since_version for spec in registry.specs()}
    imports = [entry for entry in model.opset_import if entry.domain not in ours or entry.domain in used]
    del model.opset_import[:]
    model.opset_import.extend(imports)
    for domain in sorted(used & ours.keys() - {entry.domain for entry in imports}):
        model.opset_import.add(domain=domain, version=ours[domain])


def write_standard(problem: Problem | Conversion, builder: Builder) -> bool:
    """Write a node of ours in standard ONNX."""
    if isinstance(problem, Conversion):
        return write_conversion(problem, builder)
    write_masked(problem, builder)
    for role in problem.results:
        write_result(problem, builder, role)
    return True


def write_masked(problem: Problem, builder: Builder) -> None:
    """Give outputs that are masked off but named what executing them gives: no elements."""
    formats = [None if tensor is None else np.empty(0, FORMATS[tensor.format].dtype) for tensor in problem.call.inputs]
    for index, name in problem.masked:
        array = empty(problem.spec, problem.spec.outputs[index], formats)
        builder.finish(builder.add_node("Constant", [], 1, value=numpy_helper.from_array(array))[0], name)


def write_result(problem: Problem, builder: Builder, role: Role) -> None:
    """Compute one result in the compute format, round it, and give it its layout and name."""
    geometry, made = problem.geometry, problem.type_of(role)
    check_formats(problem, role)
    wide = compute_format(problem)
    if geometry is None:
        value = builder.zeros(made.extents, wide, None if problem.batch is not None or role != "grad_data" else
                              problem.names["grad_output"])
    else:
        value = COMPUTE[role](problem, builder, geometry, wide)
    stage = rounding_stage(problem, role)
    deliver(problem, builder, role, builder.cast(value, wide, stage), stage)


def deliver(problem: Problem, builder: Builder, role: Role, value: str, format: str) -> None:
    """Give a result, made in `format`, its own format, layout and name."""
    value = builder.cast(value, format, problem.type_of(role).format)
    builder.finish(to_layout(builder, value, problem, role), problem.names[role])


def _grad_data(problem: Problem, builder: Builder, geometry: Geometry, wide: str) -> str:
    bias = None
    if "bias" in problem.names:
        bias = builder.cast(problem.names["bias"], problem.type_of("bias").format, wide)
        bias = scaled(builder, bias, problem, "bias", wide)
    if not parts.touches(geometry):
        shape = (parts.small_shape if problem.transposed else parts.large_shape)(geometry)
        zeros = builder.zeros(shape, wide, None if problem.batch is not None else problem.names["grad_output"])
        return parts.add_bias(builder, geometry, zeros, bias)
    kernel = parts.forward if problem.transposed else parts.backward_data
    return kernel(builder, geometry, operand(problem, builder, "grad_output", wide),
                  operand(problem, builder, "weight", wide), bias)


def _grad_weight(problem: Problem, builder: Builder, geometry: Geometry, wide: str) -> str:
    if not parts.touches(geometry):
        return builder.zeros(parts.weight_shape(geometry), wide)
    sides = [operand(problem, builder, role, wide) for role in
             (("grad_output", "data") if problem.transposed else ("data", "grad_output"))]
    return parts.backward_weights(builder, geometry, *sides, open_batch=problem.batch is None)


def _grad_bias(problem: Problem, builder: Builder, geometry: Geometry, wide: str) -> str:
    shape = problem.type_of("grad_output").extents
    if 0 in shape:
        return builder.zeros(shape[1:2], wide)
    value = operand(problem, builder, "grad_output", wide, rounded=False)
    return parts.bias_sum(builder, value, len(shape))


COMPUTE: dict[Role, Callable[[Problem, Builder, Geometry, str], str]] = {
    "grad_data": _grad_data, "grad_weight": _grad_weight, "grad_bias": _grad_bias}


def compute_format(problem: Problem) -> str:
    """The format that sums are made in."""
    formats = [tensor.format for tensor in problem.call.inputs if tensor is not None]
    return "float64" if "float64" in formats else "float32"


def rounding_stage(problem: Problem, role: Role) -> str:
    """The format that a result passes through on its way to its own."""
    return problem.stage(role) or compute_format(problem)


def check_formats(problem: Problem, role: Role) -> None:
    """Refuse number formats and roundings that no standard operator has."""
    formats = [problem.type_of(role).format]
    formats += [tensor.format for tensor in problem.call.inputs if tensor is not None]
    for name in formats:
        if name not in CASTS:
            raise problem.error(f"{name} has no element type in ONNX, so no standard operator converts it; "
                                f"allowed: {', '.join(CASTS)}")
    if not problem.rounds_as_usual:
        raise problem.error("no standard operator has rounding and saturate; allowed: neither of them")
    precision = problem.precision
    if precision.operands is not None and precision.operands not in CASTS and role != "grad_bias":
        raise problem.error(f"{precision.cause or 'the plan'} rounds float32 operands to {precision.operands.upper()} "
                            "here, which no standard operator does"
                            + (f"; allowed: {precision.allowed}" if precision.allowed else ""))


def operand(problem: Problem, builder: Builder, role: Role, format: str, *, rounded: bool = True) -> str:
    """Return an operand channel-first, weights small side first, in a format that holds its values."""
    value, own = problem.names[role], problem.type_of(role).format
    narrow = problem.precision.operands
    if rounded and narrow is not None:
        value, own = builder.cast(value, own, narrow), narrow
    value = from_layout(builder, builder.cast(value, own, format), problem, role)
    return scaled(builder, value, problem, role, format)


def scaled(builder: Builder, value: str, problem: Problem, role: Role, format: str) -> str:
    """Multiply an operand, channel-first or small side first, by its scale before anything is summed."""
    if role not in problem.scales:
        return value
    scale, geometry = next(entry for entry in problem.plan.emulation.scales if entry.role == role), problem.geometry
    assert geometry is not None
    factor = builder.cast(problem.scales[role], problem.call.tensor(scale.port).format, format)
    ones = [1] * len(geometry.axes)
    if scale.along is None:
        return builder.add("Mul", value, builder.reshape(factor, [1]))
    if role != "weight":
        return builder.add("Mul", value, factor if role == "bias" else builder.reshape(factor, [-1, *ones]))
    if scale.along == "small":
        return builder.add("Mul", value, builder.reshape(factor, [-1, 1, *ones]))
    shape = parts.weight_shape(geometry)  # the large side's channels are those of a group
    apart = builder.reshape(value, [geometry.groups, geometry.small_channels, *shape[1:]])
    beside = builder.reshape(factor, [geometry.groups, 1, geometry.large_channels, *ones])
    return builder.reshape(builder.add("Mul", apart, beside), shape)


def from_layout(builder: Builder, value: str, problem: Problem, role: Role) -> str:
    """Reorder an operand as stored to channel-first data or weights with the small side first."""
    layout, geometry = problem.layout(role), problem.geometry
    assert geometry is not None
    rank = len(geometry.axes) + 2
    if layout == "NXC":
        return builder.transpose(value, [0, rank - 1, *range(1, rank - 1)])
    if layout.endswith("XIO"):
        value = builder.transpose(value, [rank - 1, rank - 2, *range(rank - 2)])
    shape = parts.weight_shape(geometry)
    if layout.startswith("page"):
        value = builder.reshape(value, [geometry.small_channels, geometry.groups, *shape[1:]])
        value = builder.transpose(value, [1, 0, *range(2, rank + 1)])
    return builder.reshape(value, shape) if layout.startswith("page") or layout == "GOIX" else value


def to_layout(builder: Builder, value: str, problem: Problem, role: Role) -> str:
    """Reorder a result to the layout it is stored in."""
    if role == "grad_bias":
        return value
    layout, rank = problem.layout(role), len(problem.type_of(role).extents)
    if layout == "NXC":
        return builder.transpose(value, [0, *range(2, rank), 1])
    return builder.transpose(value, [*range(2, rank), 1, 0]) if layout == "XIO" else value
