"""An OpenVINO model under construction: layers, edges and constants, and the XML text that states them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

import numpy as np

from convreg.onnx.rewrite.builder import Names
from convreg.spec import Shape

from .elements import element_name
from .ir import Port

PRECISIONS = {"f64": "FP64", "f32": "FP32", "f16": "FP16", "bf16": "BF16", "boolean": "BOOL"}
"""What ports call the element types that they do not merely write in capitals."""


class Document:
    """A growing model; `blob` is the content of the bin file. Equal constants are written once."""

    def __init__(self, name: str) -> None:
        self.blob = bytearray()
        self._net = ElementTree.Element("net", name=name, version="11")
        self._layers = ElementTree.SubElement(self._net, "layers")
        self._edges = ElementTree.SubElement(self._net, "edges")
        self._outputs: dict[Port, ElementTree.Element] = {}
        self._names: dict[Port, str] = {}
        self._layer_names = Names(first=1)
        self._offsets: dict[bytes, int] = {}

    def parameter(self, name: str, element: int, shape: Shape) -> Port:
        """Add an input of the model."""
        extents = ",".join(str(extent) if isinstance(extent, int) else "?" for extent in shape)
        data = {"shape": extents, "element_type": element_name(element)}
        (port,) = self.layer("Parameter", [], [element], name=name, data=data)
        self.describe(port, element, shape)
        return port

    def constant(self, element: int, array: np.ndarray[Any, Any], stem: str) -> Port:
        """Add a constant."""
        content = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes()
        if content not in self._offsets:
            self._offsets[content] = len(self.blob)
            self.blob += content
        data = {"element_type": element_name(element), "shape": ", ".join(map(str, array.shape)),
                "offset": str(self._offsets[content]), "size": str(len(content))}
        (port,) = self.layer("Const", [], [element], name=stem, data=data)
        self.describe(port, element, array.shape)
        return port

    def layer(self, kind: str, inputs: Sequence[Port], outputs: Sequence[int], *, name: str, opset: str = "opset1",
              data: dict[str, str]) -> list[Port]:
        """Add a layer whose outputs have the given element types; its ports are numbered through."""
        number = len(self._layers)
        layer = ElementTree.SubElement(self._layers, "layer", id=str(number), name=self._layer_names.fresh(name),
                                       type=kind, version=opset)
        if data:
            ElementTree.SubElement(layer, "data", data)
        if inputs:
            holder = ElementTree.SubElement(layer, "input")
            for index, port in enumerate(inputs):
                copy = ElementTree.SubElement(holder, "port", id=str(index))
                copy.set("precision", self._outputs[port].get("precision", ""))
                ElementTree.SubElement(self._edges, "edge", {
                    "from-layer": str(port.layer), "from-port": str(port.port), "to-layer": str(number),
                    "to-port": str(index)})
        holder = ElementTree.SubElement(layer, "output") if outputs else layer
        made = [Port(number, len(inputs) + index) for index in range(len(outputs))]
        for port, element in zip(made, outputs, strict=True):
            text = element_name(element)
            self._outputs[port] = ElementTree.SubElement(
                holder, "port", id=str(port.port), precision=PRECISIONS.get(text, text.upper()))
        return made

    def describe(self, port: Port, element: int, shape: Shape | None) -> None:
        """State what is known of an output."""
        made = self._outputs[port]
        text = element_name(element)
        made.set("precision", PRECISIONS.get(text, text.upper()))
        if not len(made):
            for extent in shape or ():
                ElementTree.SubElement(made, "dim").text = str(extent if isinstance(extent, int) else -1)

    def name(self, port: Port, name: str) -> None:
        """Give an output its tensor name, unless it has one."""
        self._names.setdefault(port, name)

    def result(self, port: Port, name: str) -> None:
        """Add an output of the model."""
        self.layer("Result", [port], [], name=f"{name}/result", data={})
        self._layers[-1].set("output_names", _escaped(name))

    def xml(self) -> bytes:
        """Return the text of the XML file."""
        for port, name in self._names.items():
            self._outputs[port].set("names", _escaped(name))
        ElementTree.SubElement(self._net, "rt_info")
        ElementTree.indent(self._net, "\t")
        text: bytes = ElementTree.tostring(self._net, encoding="utf-8", xml_declaration=True)
        return text


def _escaped(name: str) -> str:
    """A tensor name where a list of them may stand."""
    return name.replace(",", "\\,")
