"""From a serialized oneDNN graph to an ONNX model: convolutions become convreg nodes, the rest standard ones.

A node of a current kind follows the library that wrote the file (conformance ``"library"``); nodes of the kinds that
oneDNN Graph had before version 1 keep the meaning that ``auto_pad`` had in that specification.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from onnx import ModelProto

from convreg import GraphError, OpSpec, get
from convreg.calls.arguments import UNSET_SHAPE
from convreg.files import PathLike, read_bytes
from convreg.geometry import effective
from convreg.geometry.onednn import SPATIAL_LISTS, same_from_small, split_data, split_weights
from convreg.guard import guarded
from convreg.onnx.rewrite.builder import Names

from ..builder import ModelBuilder
from .graph import Graph, LogicalTensor, Operation, graph_of
from .standard import STANDARD, element, translate

CONVOLUTIONS = {
    "Convolution": "onednn::Convolution",
    "ConvTranspose": "onednn::ConvTranspose",
    "ConvolutionBackwardData": "onednn::ConvolutionBackwardData",
    "ConvolutionBackwardWeights": "onednn::ConvolutionBackwardWeights",
    "ConvTransposeBackwardData": "onednn::ConvTransposeBackwardData",
    "ConvTransposeBackwardWeights": "onednn::ConvTransposeBackwardWeights",
    "ConvolutionBackpropData": "openvino::ConvolutionBackpropData",
    "ConvolutionBackpropFilters": "onednn::ConvolutionBackwardWeights",
    "ConvTransposeBackpropData": "onednn::ConvTransposeBackwardData",
    "ConvTransposeBackpropFilters": "onednn::ConvTransposeBackwardWeights",
}
"""The operator behind each kind, old kinds last."""
RENAMED = {"filter_format": "weights_format", "filter_shape": "weights_shape", "output_shape": "dst_shape"}
"""Old names of attributes; ConvolutionBackpropData keeps them."""
AUTO_PAD = {"none": "None", "same_upper": "SAME_UPPER", "same_lower": "SAME_LOWER", "valid": "VALID"}
TYPES = {"ints": "s64[]", "int": "s64", "string": "string", "bool": "bool"}
"""The file's names for the kinds of attributes."""


@guarded("convreg::onnx_io")
def import_graph_json(path: PathLike, *, lenient: bool = False) -> ModelProto:
    """Return the ONNX model of a graph that oneDNN's Graph API serialized, as its benchdnn reads it.

    Parameters
    ----------
    path : path-like
        The JSON file.
    lenient : bool
        Whether a negative ``pads_end`` of a data gradient with a stated shape is read as 0. Otherwise it is refused
        (rule R7). Old libraries wrote such values; they do not affect the result.

    Returns
    -------
    onnx.ModelProto
        Checked; tensors are named by their ids, inputs and outputs ordered as the file's ports say.

    Raises
    ------
    GraphError
        If the file is damaged, or has an element that this reader does not know. The message names it.
    """
    return graph_model(path, read_bytes(path), lenient=lenient)


def graph_model(path: PathLike, content: bytes, *, lenient: bool) -> ModelProto:
    """As `import_graph_json`, with the content of the file."""
    try:
        return _model(graph_of(content), lenient)
    except GraphError as error:
        raise GraphError(f"{path}: {error}") from error


def _model(graph: Graph, lenient: bool) -> ModelProto:
    builder = ModelBuilder("onednn_graph")
    for tensor in graph.inputs:
        symbols = [f"d{tensor.id}_{axis}" if extent is None else extent for axis, extent in enumerate(tensor.shape)]
        builder.input(tensor.name, element(tensor), symbols)
    for operation in graph.operations:
        for tensor in operation.outputs:
            builder.reserve(tensor.name)
    names, of = Names(), {}
    for operation in sorted(graph.operations, key=lambda operation: not operation.name):  # given names come first
        of[operation.id] = names.fresh(operation.name or f"{operation.kind}_{operation.id}")
    for operation in graph.operations:
        with builder.origin(str(operation), of[operation.id]):
            if operation.kind in CONVOLUTIONS:
                _convolution(builder, operation, lenient)
            elif operation.kind in STANDARD:
                translate(builder, operation)
            else:
                raise GraphError("this kind of operation is not known to the reader")
            for tensor in operation.outputs:
                builder.declare(tensor.name, element(tensor), tensor.shape)
    return builder.model(tensor.name for tensor in graph.outputs)


@dataclass
class _Node:
    """A convolution on its way to a node: operands and attributes by the operator's own names."""

    kind: str
    spec: OpSpec
    inputs: list[LogicalTensor]
    output: LogicalTensor
    attributes: dict[str, Any]

    @property
    def shape_port(self) -> str | None:
        """Name of the input or attribute that states the output's shape."""
        return next((port.name for port in self.spec.shape_ports), None)

    def layout(self, name: str) -> str:
        """Value of a format attribute, the default included."""
        return self.attributes.get(name, self.spec.attribute(name).default)


def _convolution(builder: ModelBuilder, operation: Operation, lenient: bool) -> None:
    """Add the node of one operation of the convolution family."""
    kind = operation.kind
    spec = get(CONVOLUTIONS[kind]).spec
    most, least = len(spec.vendor_inputs), sum(not port.optional for port in spec.inputs)
    if not least <= len(operation.inputs) <= most:
        raise GraphError(f"{len(operation.inputs)} inputs; allowed: {least}{f' or {most}' if most > least else ''} "
                         "[rule R8]")
    if len(operation.outputs) != 1:
        raise GraphError(f"{len(operation.outputs)} outputs; allowed: 1 [rule R9]")
    node = _Node(kind, spec, list(operation.inputs), operation.outputs[0], _attributes(operation))
    if kind.endswith("Filters") and len(node.inputs) == 3 and node.inputs[1].dtype == "s32":
        node.inputs[1:] = node.inputs[:0:-1]  # early revisions had filter_shape in the middle
    if len(spec.conformances) > 1:
        # The old data gradient follows its own page, and only pages know output_padding of the transposed one.
        by_page = kind == "ConvolutionBackpropData" or (kind == "ConvTransposeBackpropData"
                                                        and "output_padding" in node.attributes)
        node.attributes["conformance"] = "document" if by_page else "library"
    _state_shape(node)
    of_input = kind in ("ConvolutionBackwardData", "ConvolutionBackpropData")
    pads = node.attributes.get("pads_end", [])
    if of_input and node.shape_port in node.attributes and min(pads, default=0) < 0:
        if not lenient:
            raise GraphError(f"pads_end={pads} is refused; allowed: entries at least 0 [rule R7], or lenient=True "
                             "(`convreg import --lenient`), which reads negative ones as 0")
        node.attributes["pads_end"] = [max(pad, 0) for pad in pads]
    swapped = kind.startswith("ConvTranspose") and "filter_format" in operation.attributes and \
        node.layout("weights_format") in ("OIX", "XIO")
    names = [tensor.name for tensor in node.inputs]
    if swapped:
        _read_swapped(builder, node, names)
    if "Backprop" in kind and kind != "ConvolutionBackpropData":
        _resolve_same(node)
    if swapped and node.shape_port is not None:
        made = builder.operator(spec, names, builder.reserve(f"{node.output.name}_weights"), node.attributes)
        builder.node("Transpose", [made], node.output.name, perm=_swap(node, len(node.output.shape)))
    else:
        builder.operator(spec, names, node.output.name, node.attributes)


def _attributes(operation: Operation) -> dict[str, Any]:
    """Return the attributes that are set, under the names and spellings of the operator they go to."""
    spec = get(CONVOLUTIONS[operation.kind]).spec
    types = {attribute.name: TYPES[attribute.kind] for attribute in spec.attributes}
    types |= {port.name: "s64[]" for port in spec.shape_ports}
    renamed = {new: old for old, new in RENAMED.items()} if operation.kind == "ConvolutionBackpropData" else RENAMED
    attributes: dict[str, Any] = {}
    for name, (kind, value) in operation.attributes.items():
        current = renamed.get(name, name)
        if current not in types:
            raise GraphError(f"attribute {name!r} is not one of this operation's [rule R3]")
        if kind != types[current]:
            raise GraphError(f"attribute {name!r} is of type {kind}, not {types[current]} [rule R2]")
        if current in attributes:
            raise GraphError(f"attribute {current!r} is given twice, once by its old name")
        if "Backprop" in operation.kind and current == "auto_pad":
            value = AUTO_PAD.get(value.lower(), value)  # both spellings were in use then
        if value != list(UNSET_SHAPE):  # how the library writes a list that was not given
            attributes[current] = value
    for attribute in spec.attributes:
        if attribute.required and attribute.name not in attributes:
            raise GraphError(f"attribute {attribute.name!r} is missing [rule R1]")
    return attributes


def _state_shape(node: _Node) -> None:
    """Return the output's shape from the file's description of the tensor if no input or attribute states it."""
    name = node.shape_port
    if name is None or len(node.inputs) == 3 or name in node.attributes:
        return
    if node.output.static_shape is not None:
        node.attributes[name] = list(node.output.static_shape)
    elif node.kind != "ConvolutionBackpropData":  # which has a natural size
        raise GraphError(f"neither an input nor {name} nor the output tensor states the output's shape [rule R17]")


def _swap(node: _Node, rank: int) -> list[int]:
    """Permutation that exchanges the two channel axes of transposed weights, IOX or XOI being the format in force."""
    axes = list(range(rank))
    first = 0 if node.layout("weights_format") == "IOX" else rank - 2
    axes[first: first + 2] = axes[first + 1], axes[first]
    return axes


def _read_swapped(builder: ModelBuilder, node: _Node, names: list[str]) -> None:
    """Reorder weights that the oldest files call OIX or XIO, (OC/g, IC, X) or (X, IC, OC/g), to today's order."""
    node.attributes["weights_format"] = {"OIX": "IOX", "XIO": "XOI"}[node.attributes["weights_format"]]
    if node.shape_port is None:
        rank = len(node.inputs[1].shape)
        if rank < 3:
            raise GraphError(f"weights of rank {rank} have no spatial axis [rule R16]")
        names[1] = builder.node("Transpose", [names[1]], perm=_swap(node, rank))
        shape = node.inputs[1].shape
        node.inputs[1] = LogicalTensor(node.inputs[1].id, node.inputs[1].dtype,
                                       tuple(shape[axis] for axis in _swap(node, rank)))
    elif node.shape_port in node.attributes and len(node.attributes[node.shape_port]) >= 3:
        stated = node.attributes[node.shape_port]
        node.attributes[node.shape_port] = [stated[axis] for axis in _swap(node, len(stated))]
    else:
        raise GraphError("weights in the oldest files' order need a shape that the file itself states")


def _resolve_same(node: _Node) -> None:
    """Replace SAME pads of an old kind by explicit ones, found from the small side as that specification did."""
    mode = node.attributes.get("auto_pad")
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        return
    roles = node.spec.roles
    tensors = dict(zip(node.spec.input_names, node.inputs, strict=False)) | {node.spec.outputs[0].name: node.output}
    large, small = (tensors[roles["data" if "data" in roles else "grad_data"]].static_shape,
                    tensors[roles["grad_output"]].static_shape)
    if node.spec.convolution.is_transposed(node.attributes):
        large, small = small, large
    weights = (tensors[roles["weight"]].static_shape if "weight" in roles else  # an input may state the result's shape
               node.attributes.get(node.shape_port or "", node.output.static_shape))
    if large is None or small is None or weights is None:
        raise GraphError(f"auto_pad {mode!r} of this old kind can only be resolved if all extents are known")
    layout, count = node.layout("data_format"), len(large) - 2
    lists = [node.attributes.get(name, ()) for name in SPATIAL_LISTS]
    if count < 1 or not len(small) == len(weights) == count + 2 or any(len(entries) != count for entries in lists):
        return  # the operator refuses it, by its own rules
    strides, _, _, dilations = lists
    taps = split_weights(tuple(weights), node.layout("weights_format"))[2]
    extra = node.attributes.get("output_padding", [0] * count)
    pads = [
        same_from_small(x, y, effective(k, d), s, more, upper=mode == "SAME_UPPER")
        for x, y, k, d, s, more in zip(split_data(large, layout)[2], split_data(small, layout)[2], taps, dilations,
                                       strides, extra, strict=True)
    ]
    node.attributes["auto_pad"] = "None"
    node.attributes["pads_begin"], node.attributes["pads_end"] = (list(side) for side in zip(*pads, strict=True))
