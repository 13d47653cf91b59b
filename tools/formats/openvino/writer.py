"""The writer of OpenVINO IR, version 11: an XML and a bin file, made with the standard library.

Transposed convolutions of ours are written with explicit pads, whatever their ``auto_pad`` was, because the pads that a
file states are what the runtime uses only then.
"""

from __future__ import annotations

import re
from typing import Any

from onnx import NodeProto

import convreg.onnx
from convreg import GraphError, OpError, registry
from convreg.files import PathLike, write_together
from convreg.geometry import Geometry
from convreg.guard import guarded
from convreg.onnx.graph import attributes_of, flattened, place
from convreg.onnx.model.files import Source, opened
from convreg.onnx.model.tensor_data import array_of
from convreg.onnx.rewrite.problem import problem_of
from convreg.paths import path_of

from ..view import View, view
from .document import Document
from .elements import element_name
from .ir import Port
from .standard import STANDARD, is_folded
from .writing import Writing

VENDOR = "convreg.openvino"
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@guarded("convreg::onnx_io")
def export_ir(source: Source, path: PathLike) -> None:
    """Write a model as OpenVINO IR, version 11.

    Parameters
    ----------
    source : onnx.ModelProto or path
        Gradients that OpenVINO does not have as operations are written in standard ones, as
        ``convreg.onnx.translate(source, "openvino", rest="lower")`` does.
    path : path-like
        The XML file, with the suffix ``.xml``; the constants go beside it with the suffix ``.bin``.

    Raises
    ------
    GraphError
        If the model holds a node or element type that has no counterpart; the message names it. Nothing is written
        then.
    """
    target = path_of(path)
    if target.suffix != ".xml":
        raise GraphError(f"{target}: an OpenVINO model is an .xml file with a .bin file beside it")
    model = before = flattened(opened(source))
    if any(map(_is_elsewhere, model.graph.node)):
        model = convreg.onnx.translate(model, "openvino", rest="lower")
    document = _document(view(model, before))
    text, blob = document.xml(), bytes(document.blob)
    if _NOT_XML.search(text.decode("utf-8")):
        raise GraphError(f"{target}: a name holds a character that XML does not allow")
    write_together([(target.with_suffix(".bin"), lambda file: file.write(blob)),
                    (target, lambda file: file.write(text))])


def _is_elsewhere(node: NodeProto) -> bool:
    """Whether a node of ours is not yet what an OpenVINO model has."""
    operator = registry.find_node(node.domain, node.op_type)
    if operator is None or node.domain != VENDOR:
        return operator is not None
    stated = attributes_of(node)
    return not operator.spec.convolution.has_group_axis and not (
        stated.get("conformance") == "openvino" and stated.get("groups", 1) == 1
        and stated.get("data_format") == "NCX" and stated.get("filter_format") == "OIX")


def _document(model: View) -> Document:
    document = Document(model.name or "model")
    ports: dict[str, Port] = {}
    for name in model.inputs:
        shape = model.shape(name)
        if shape is None:
            raise GraphError(f"the rank of input {name!r} is not known")
        ports[name] = document.parameter(name, model.element(name), shape)
        document.name(ports[name], name)

    def port_of(name: str) -> Port:
        if name not in ports:  # constants are written where they are used, so that what becomes an attribute is not
            tensor = model.constants[name]
            ports[name] = document.constant(tensor.data_type, array_of(tensor), name)
            document.name(ports[name], name)
        return ports[name]

    for node in model.nodes:
        if is_folded(model, node):
            continue
        step = Writing(document, model, node, attributes_of(node), port_of)
        try:
            made = _node(step)
        except (GraphError, OpError) as error:
            raise model.refusal(node, error) from error
        for output, port in zip(node.output, made, strict=False):
            if output:
                ports[output] = port
                document.describe(port, model.element(output), model.shape(output))
                document.name(port, output)
        if len(made) < len([output for output in node.output if output]):
            raise GraphError(f"{place(node)}: only its first {len(made)} outputs can be written")
    parameters = {ports[name] for name in model.inputs}
    for name in model.outputs:
        port, element = port_of(name), model.element(name)
        if port in parameters:  # the runtime would let the output's name replace the input's
            (port,) = document.layer("Convert", [port], [element], name=name,
                                     data={"destination_type": element_name(element)})
            document.describe(port, element, model.shape(name))
        document.result(port, name)
    return document


def _node(step: Writing) -> list[Port]:
    node = step.node
    if node.domain == VENDOR:
        return [_transposed(step)]
    if node.domain != "" or node.op_type not in STANDARD:
        known = ", ".join(sorted(STANDARD))
        raise GraphError(f"{node.domain or 'standard'}::{node.op_type} has no OpenVINO layer here; known: {known}")
    made = STANDARD[node.op_type](step)
    return made if isinstance(made, list) else [made]


def _transposed(step: Writing) -> Port:
    """A transposed convolution of ours: one group takes the plain operation, which alone compiles in every release."""
    operator = registry.find_node(VENDOR, step.node.op_type)
    if operator is None:
        raise GraphError(f"{VENDOR} has no operator {step.node.op_type}")
    data, filter_ = step.port(0), step.port(1)
    grouped = operator.spec.convolution.has_group_axis
    shape = step.view.shape(step.node.input[1])
    if grouped and (shape is None or not isinstance(shape[0], int)):
        raise GraphError("the number of groups is not known")
    if grouped and shape is not None and shape[0] == 1:
        filter_ = step.reshaped(1, step.view.static(step.node.input[1])[1:])
        grouped = False
    window, stated = _window(step)
    return step.layer("GroupConvolutionBackpropData" if grouped else "ConvolutionBackpropData", data, filter_, *stated,
                      auto_pad="explicit", **window)


def _window(step: Writing) -> tuple[dict[str, Any], list[Port]]:
    """Explicit attributes of a node, and its stated shape where only a run will tell what to make of it."""
    if step.attributes.get("conformance") == "emulation":
        raise GraphError("conformance 'emulation' has number formats and scales that OpenVINO lacks")
    problem, mode = None, step.attributes.get("auto_pad", "explicit").lower()
    centred = mode.startswith("same") and step.has(2)  # without a stated shape these modes pad nothing
    try:
        problem = problem_of(step.node, step.view.scope, step.view.versions.get(VENDOR))
    except GraphError:
        if centred:
            raise
    if problem is not None and problem.geometry is not None:
        return _explicit(problem.geometry), []
    rank = step.view.rank(step.node.input[0]) - 2
    neutral = {"strides": 1, "pads_begin": 0, "pads_end": 0, "dilations": 1, "output_padding": 0}
    unread = ("pads_begin", "pads_end") if mode != "explicit" else ()
    window = {name: [value] * rank if name in unread else list(step.attributes.get(name) or [value] * rank)
              for name, value in neutral.items()}
    if problem is not None:  # an empty tensor, whose result is zeros of a known shape
        return window, [step.ints(list(problem.plan.outputs[0].extents[2:]))]  # type: ignore[union-attr]
    if not step.has(2):
        return window, []
    constant = step.view.array(step.node.input[2])
    return window, [step.port(2) if constant is None else step.ints(constant.tolist())]


def _explicit(geometry: Geometry) -> dict[str, list[int]]:
    """Explicit attributes of a transposed convolution; output_padding has no upper bound, so no shape is stated."""
    return {**geometry.explicit, "output_padding": geometry.output_padding}
