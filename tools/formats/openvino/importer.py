"""From an OpenVINO IR model to an ONNX model: transposed convolutions become convreg nodes, the rest standard ones."""

from __future__ import annotations

from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper

from convreg import GraphError, get
from convreg.errors import shorten
from convreg.files import PathLike, read_bytes
from convreg.guard import guarded

from ..builder import ModelBuilder
from .constants import Constants, refuse_link
from .elements import element
from .ir import Layer, Network, Port, integer, integers, network_of
from .layers import LAYERS
from .package import rewritten
from .step import Step

MAX_RANK = 16
TRANSPOSED = {"ConvolutionBackpropData", "GroupConvolutionBackpropData"}


@guarded("convreg::onnx_io")
def import_ir(xml_path: PathLike, bin_path: PathLike | None = None, *, reader: str = "standard") -> ModelProto:
    """Return the ONNX model of an OpenVINO IR model, version 10 or 11.

    Parameters
    ----------
    xml_path : path-like
        The graph.
    bin_path : path-like, optional
        The constants, by default the file beside `xml_path` with the suffix ``.bin``, which may be a link only within
        the folder; read only if there are any.
    reader : {"standard", "openvino"}
        ``"openvino"``: OpenVINO's package reads the file first and folds constants, such as a computed output_shape.

    Returns
    -------
    onnx.ModelProto
        Checked; inputs are named as the parameters, outputs by their tensors' names.

    Raises
    ------
    GraphError
        If a file is damaged, or has an element that this reader does not know. The message names it.
    """
    if not isinstance(reader, str) or reader not in ("standard", "openvino"):
        raise GraphError(f"reader {shorten(reader)} is not 'standard' or 'openvino'")
    if reader == "openvino":
        if bin_path is None:
            refuse_link(xml_path)
        with TemporaryDirectory() as folder:
            try:
                return import_ir(rewritten(xml_path, bin_path, Path(folder)))
            except GraphError as error:
                raise GraphError(f"{xml_path}: {error}") from error
    return ir_model(xml_path, read_bytes(xml_path), bin_path)


def ir_model(xml_path: PathLike, content: bytes, bin_path: PathLike | None) -> ModelProto:
    """As `import_ir` with the standard reader, with the content of the XML file."""
    try:
        network = network_of(content)
        if bin_path is None:
            bin_path = refuse_link(xml_path)
        return _Import(network, Constants(bin_path)).model()
    except GraphError as error:
        raise GraphError(f"{xml_path}: {error}") from error


class _Import:
    """One import: `names` holds the tensor behind each output port."""

    def __init__(self, network: Network, constants: Constants) -> None:
        self.network, self.constants = network, constants
        self.builder = ModelBuilder(network.name)
        self.layers = {layer.id: layer for layer in network.layers}
        self.names: dict[Port, str] = {}
        self.consumed = {port for layer in network.layers for port in layer.inputs}
        self.blobs: dict[tuple[Any, ...], str] = {}

    def model(self) -> ModelProto:
        """Translate every layer."""
        for layer in self.network.layers:
            if layer.type == "Parameter":
                with self.builder.origin(str(layer), layer.name):
                    self._parameter(layer)
        results = [layer for layer in self.network.layers if layer.type == "Result"]
        outputs = self._reserve_results(results)
        for layer in self.network.ordered:
            if layer.type not in ("Parameter", "Result"):
                with self.builder.origin(str(layer), layer.name):
                    self._layer(layer)
        for result in results:
            if result.id not in outputs:
                source = result.inputs[0]
                outputs[result.id] = self.builder.node(
                    "Identity", [self.names[source]], self.builder.reserve(self._result_name(result)))
        if not outputs:
            raise GraphError("the model has no Result")
        return self.builder.model(outputs[result.id] for result in results)

    def _parameter(self, layer: Layer) -> None:
        port = _only_output(layer)
        _check_attributes(layer, "shape", "element_type")
        text = _attribute(layer, "shape")
        texts = text.split(",") if text.strip() else []
        shape = [_extent(entry.strip(), f"{layer.name}_{axis}") for axis, entry in enumerate(texts)]
        _check_size(shape)
        kind = element(_attribute(layer, "element_type"))
        self.names[Port(layer.id, port)] = self.builder.input(layer.name, kind, shape)

    def _reserve_results(self, results: list[Layer]) -> dict[int, str]:
        """Give tensors that leave the model the names of their results; return those that need no node for it."""
        outputs: dict[int, str] = {}
        for result in results:
            if len(result.inputs) != 1:
                raise GraphError(f"{result} has {len(result.inputs)} inputs; allowed: 1")
            if any(Port(result.id, port) in self.consumed for port in result.outputs):
                raise GraphError(f"{result} is read by another layer; allowed: layers that are no Result")
            source = result.inputs[0]
            if source not in self.names and self.layers[source.layer].type != "Const":
                self.names[source] = outputs[result.id] = self.builder.reserve(self._result_name(result))
        return outputs

    def _result_name(self, result: Layer) -> str:
        """The tensor's name, else, as the runtime does for old files, the name of the layer that makes it."""
        source = result.inputs[0]
        maker = self.layers[source.layer]
        several = f"{maker.name}.{list(maker.outputs).index(source.port)}" if len(maker.outputs) > 1 else maker.name
        return (*result.result_names, *maker.outputs[source.port], several)[0]

    def _layer(self, layer: Layer) -> None:
        if layer.type == "Const":
            self.names[Port(layer.id, _only_output(layer))] = self._constant(layer)
            return
        for index, port in enumerate(layer.outputs):
            stem = layer.name if len(layer.outputs) == 1 else f"{layer.name}.{index}"
            if Port(layer.id, port) not in self.names:
                self.names[Port(layer.id, port)] = self.builder.reserve(stem)
        inputs = [self.names[port] for port in layer.inputs]
        if layer.type in TRANSPOSED:
            self._transposed(layer, inputs)
            return
        if layer.type not in LAYERS:
            raise GraphError("this type of layer is not known to the reader")
        kind = LAYERS[layer.type]
        _check_attributes(layer, *kind.attributes)
        used = any(Port(layer.id, port) in self.consumed for port in list(layer.outputs)[1:])
        outputs = [self.names[Port(layer.id, port)] for port in layer.outputs]
        if len(inputs) not in kind.inputs or not outputs or (len(outputs) > 1 and not kind.several):
            raise GraphError(f"{len(inputs)} inputs and {len(outputs)} outputs do not fit this type of layer")
        kind.build(Step(self.builder, layer, tuple(inputs), tuple(outputs), used))

    def _constant(self, layer: Layer) -> str:
        _check_attributes(layer, "element_type", "shape", "offset", "size")
        kind, shape = element(_attribute(layer, "element_type")), integers(_attribute(layer, "shape"), "'shape'")
        offset, size = (integer(_attribute(layer, name), repr(name)) for name in ("offset", "size"))
        if any(extent < 0 for extent in shape):
            raise GraphError(f"shape {shape} has a negative extent")
        _check_size(shape)
        needed = prod(shape) * helper.tensor_dtype_to_np_dtype(kind).itemsize
        if size != needed:
            raise GraphError(f"size is {size}, but shape {shape} of {layer.attributes['element_type']} needs "
                             f"{needed} bytes")
        key = (kind, tuple(shape), offset)
        if key not in self.blobs:
            data = self.constants.slice(offset, size)
            if kind == TensorProto.BOOL:
                data = (np.frombuffer(data, np.uint8) != 0).tobytes()
            self.blobs[key] = self.builder.constant(TensorProto(data_type=kind, dims=shape, raw_data=data), layer.name)
        return self.blobs[key]

    def _transposed(self, layer: Layer, inputs: list[str]) -> None:
        """Add the node of a transposed convolution; its rules are the runtime's."""
        spec = get(f"openvino::{layer.type}").spec
        if not 2 <= len(inputs) <= 3:
            raise GraphError(f"{len(inputs)} inputs; allowed: 2 or 3")
        lists = ("strides", "dilations", "pads_begin", "pads_end", "output_padding")
        _check_attributes(layer, *lists, "auto_pad")
        # An empty list is the runtime's neutral value, which is also what it takes for a missing attribute.
        attributes: dict[str, Any] = {name: integers(layer.attributes.get(name, ""), repr(name)) for name in lists}
        attributes["auto_pad"] = layer.attributes.get("auto_pad", "explicit").lower()
        if not spec.convolution.has_group_axis:
            attributes |= {"data_format": "NCX", "filter_format": "OIX", "conformance": "openvino"}
        if len(inputs) == 3:
            inputs[2] = self._shape_operand(inputs[2], layer)
        self.builder.operator(spec, inputs, self.names[Port(layer.id, _only_output(layer))], attributes)

    def _shape_operand(self, name: str, layer: Layer) -> str:
        """A stated shape as int64, folded where it is constant; what is no integer is left for the rules to refuse."""
        kind = self.builder.value(name).element
        if helper.tensor_dtype_to_np_dtype(kind).kind not in "iu":
            return name
        array = self.builder.constant_array(name)
        if array is not None:
            return self.builder.constant(array.astype(np.int64), f"{layer.name}_output_shape")
        if kind == TensorProto.INT64:
            return name
        return self.builder.node("Cast", [name], to=TensorProto.INT64)


def _only_output(layer: Layer) -> int:
    if len(layer.outputs) != 1:
        raise GraphError(f"{len(layer.outputs)} outputs; allowed: 1")
    return next(iter(layer.outputs))


def _attribute(layer: Layer, name: str) -> str:
    if name not in layer.attributes:
        raise GraphError(f"attribute {name!r} is missing")
    return layer.attributes[name]


def _check_attributes(layer: Layer, *known: str) -> None:
    for name in layer.attributes:
        if name not in known:
            raise GraphError(f"attribute {name!r} is not known to the reader; known: {', '.join(known) or 'none'}")


def _extent(text: str, symbol: str) -> int | str:
    """An extent of a parameter: a number, or a symbol for ``?``, ``-1`` and intervals, also half-open ones."""
    if text in ("?", "-1"):
        return symbol
    low, dots, high = text.partition("..")
    if dots:
        bounds = [integer(bound, f"a bound of {shorten(text)}") for bound in (low, high) if bound.strip()]
        if any(bound < 0 for bound in bounds) or bounds != sorted(bounds):
            raise GraphError(f"the interval {shorten(text)} holds no extent; allowed: bounds of at least 0, the lower "
                             "one first")
        return symbol
    extent = integer(text, "an extent")
    if extent < 0:
        raise GraphError(f"extent {extent} is negative")
    return extent


def _check_size(shape: list[Any]) -> None:
    if len(shape) > MAX_RANK:
        raise GraphError(f"{len(shape)} axes; allowed: at most {MAX_RANK}")
    if prod(extent or 1 for extent in shape if isinstance(extent, int)) >= 2**62:
        raise GraphError(f"shape {shape} has more elements than 64-bit positions can reach")
