"""The reader of OpenVINO IR (versions 10 and 11): from an XML and a bin file to checked layers in topological order.

Uses the standard library alone. A document type declaration, and with it any entity, is refused before it is read.
Nothing here knows what a layer computes; `importer` does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any, NamedTuple
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from convreg import GraphError
from convreg.files import reason

VERSIONS = ("10", "11")
MAX_DEPTH = 64
IGNORED = {"rt_info", "meta_data", "quantization_parameters"}
"""Children of a model that do not affect its computation."""
_INTEGER = re.compile(r"[+-]?[0-9]+")
_OPSET = re.compile(r"opset([1-9]|1[0-6])")


class Port(NamedTuple):
    """One output of one layer."""

    layer: int
    port: int


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer: `inputs` are the ports it reads, in order; `outputs` has the tensor names of each port by its id.

    Shapes that a file states of outputs are not kept: they may be wrong.
    """

    id: int
    name: str
    type: str
    opset: int
    attributes: Mapping[str, str]
    inputs: tuple[Port, ...]
    outputs: Mapping[int, tuple[str, ...]]
    result_names: tuple[str, ...]

    def __str__(self) -> str:
        return f"layer {self.id} ({self.type}) {self.name!r}"


class Network(NamedTuple):
    """Layers in the order of the file, which is that of parameters and results, and in topological order."""

    name: str
    layers: tuple[Layer, ...]
    ordered: tuple[Layer, ...]


def network_of(content: bytes) -> Network:
    """Return the layers in the content of an XML file.

    Raises
    ------
    GraphError
        If the file is damaged or of another version; the message names the place.
    """
    return _network(parsed(content))


def parsed(content: bytes) -> Element:
    """Return the root element of an XML document without a document type declaration."""
    builder, depth = TreeBuilder(), 0
    parser = expat.ParserCreate()
    parser.buffer_text = True

    def refuse(*_: Any) -> None:
        raise GraphError("a document type declaration is refused: model files need none, and it can exhaust memory")

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > MAX_DEPTH:
            raise GraphError(f"elements are nested more than {MAX_DEPTH} deep")
        builder.start(tag, attributes)

    def end(tag: str) -> None:
        nonlocal depth
        depth -= 1
        builder.end(tag)

    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = builder.data
    try:
        parser.Parse(content, True)
        return builder.close()
    except (expat.ExpatError, ValueError, LookupError) as error:
        if isinstance(error, GraphError):
            raise
        raise GraphError(f"not an XML document: {reason(error)}") from None


def integer(text: str, where: str) -> int:
    """Return a 64-bit integer written in decimal."""
    decimal = _INTEGER.fullmatch(text.strip())
    if decimal and len(decimal[0]) <= 20 and -(2**63) <= int(decimal[0]) < 2**63:
        return int(decimal[0])
    raise GraphError(f"{where} is {_shown(text)}, not an integer{' of 64 bits' if decimal else ''}")


def integers(text: str, where: str) -> list[int]:
    """Return a comma-separated list of integers; nothing but blanks is the empty list."""
    return [integer(part, where) for part in text.split(",")] if text.strip() else []


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")


def _required(element: Element, name: str, where: str) -> str:
    value = element.get(name)
    if value is None:
        raise GraphError(f"{where} has no attribute {name!r}")
    return value


def _children(element: Element, *known: str, where: str) -> dict[str, list[Element]]:
    found: dict[str, list[Element]] = {name: [] for name in known}
    for child in element:
        if child.tag not in found:
            raise GraphError(f"{where} has an element <{child.tag}>, which is not known to the reader")
        found[child.tag].append(child)
    return found


def _single(found: dict[str, list[Element]], name: str, where: str) -> Element | None:
    if len(found[name]) > 1:
        raise GraphError(f"{where} has {len(found[name])} elements <{name}>")
    return found[name][0] if found[name] else None


def _network(root: Element) -> Network:
    if root.tag != "net":
        raise GraphError(f"the root element is <{root.tag}>, not the <net> of an OpenVINO model")
    version = _required(root, "version", "<net>")
    if version not in VERSIONS:
        raise GraphError(f"IR version {_shown(version)} is not known; allowed: {' and '.join(VERSIONS)}")
    found = _children(root, "layers", "edges", *sorted(IGNORED), where="<net>")
    layers, edges = _single(found, "layers", "<net>"), _single(found, "edges", "<net>")
    if layers is None or not len(layers):
        raise GraphError("<net> has no layers")
    elements: dict[int, Element] = {}
    for element in _children(layers, "layer", where="<layers>")["layer"]:
        number = integer(_required(element, "id", "a <layer>"), "'id' of a <layer>")
        if number in elements:
            raise GraphError(f"layer id {number} occurs twice")
        elements[number] = element
    sources = _edges([] if edges is None else _children(edges, "edge", where="<edges>")["edge"])
    unconnected = {number: _layer(number, element, sources.pop(number, {})) for number, element in elements.items()}
    if sources:
        raise GraphError(f"an edge leads to layer {min(sources)}, which does not exist")
    for layer in unconnected.values():
        for port in layer.inputs:
            if port.layer not in unconnected:
                raise GraphError(f"an edge comes from layer {port.layer}, which does not exist")
            if port.port not in unconnected[port.layer].outputs:
                raise GraphError(f"an edge comes from port {port.port} of {unconnected[port.layer]}, "
                                 "which has no such output")
    return Network(root.get("name", ""), tuple(unconnected.values()), tuple(_ordered(unconnected)))


def _edges(elements: list[Element]) -> dict[int, dict[int, Port]]:
    """Return what is connected to each input port of each layer."""
    sources: dict[int, dict[int, Port]] = {}
    for element in elements:
        origin, out, target, into = (
            integer(_required(element, name, "an <edge>"), f"{name!r} of an <edge>")
            for name in ("from-layer", "from-port", "to-layer", "to-port")
        )
        connected = sources.setdefault(target, {})
        if into in connected:
            raise GraphError(f"two edges lead to port {into} of layer {target}")
        connected[into] = Port(origin, out)
    return sources


def _layer(number: int, element: Element, sources: dict[int, Port]) -> Layer:
    kind = _required(element, "type", f"layer {number}")
    where = f"layer {number} ({kind})"
    opset = _OPSET.fullmatch(_required(element, "version", where))
    if opset is None:
        raise GraphError(f"{where} is of the operation set {_shown(element.get('version', ''))}, "
                         "which is not known; allowed: opset1 to opset16")
    found = _children(element, "data", "input", "output", "rt_info", where=where)
    data, inputs, outputs = (_single(found, name, where) for name in ("data", "input", "output"))
    expected = [] if inputs is None else [_port(port, where) for port in inputs]
    if len(set(expected)) < len(expected):
        raise GraphError(f"{where} has two input ports of one id")
    for into in sources:
        if into not in expected:
            raise GraphError(f"an edge leads to port {into} of {where}, which has no such input")
    for into in expected:
        if into not in sources:
            raise GraphError(f"nothing is connected to input port {into} of {where}")
    made: dict[int, tuple[str, ...]] = {}
    for port in () if outputs is None else outputs:
        out = _port(port, where)
        if out in made or out in expected:
            raise GraphError(f"{where} has two ports {out}")
        for dim in port:
            if dim.tag == "dim":
                integer(dim.text or "", f"a <dim> of {where}")
        made[out] = _names(port.get("names", ""))
    return Layer(number, element.get("name") or f"{kind}_{number}", kind, int(opset[1]),
                 {} if data is None else dict(data.attrib), tuple(sources[into] for into in expected), made,
                 _names(element.get("output_names", "")))


def _port(element: Element, where: str) -> int:
    if element.tag != "port":
        raise GraphError(f"{where} has an element <{element.tag}> where only ports are known")
    return integer(_required(element, "id", f"a port of {where}"), f"'id' of a port of {where}")


def _names(text: str) -> tuple[str, ...]:
    """Split a list of tensor names; a comma within a name is escaped."""
    return tuple(name.replace("\\,", ",") for name in re.split(r"(?<!\\),", text) if name)


def _ordered(layers: dict[int, Layer]) -> list[Layer]:
    sorter = TopologicalSorter({layer.id: [port.layer for port in layer.inputs] for layer in layers.values()})
    try:
        return [layers[number] for number in sorter.static_order()]
    except CycleError as error:
        raise GraphError(f"layers {', '.join(map(str, error.args[1]))} form a cycle") from None
