"""ONNX schemas derived from the declarations; registered, they make onnx's checker and inference know our nodes."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Iterable
from typing import Any

import onnx.reference.op_run  # noqa: F401  first of all: on import it refuses schemas of one name in two domains
from onnx import AttributeProto, ModelProto, TensorProto, defs, helper

from ... import registry
from ...calls.text import formats_of
from ...errors import GraphError, UnknownOp, shorten
from ...guard import guarded
from ...spec import Attribute, Kind, OpSpec, Port
from .. import payload
from ..graph import nodes_of
from .inference import inference_of

KINDS = {
    "int": AttributeProto.INT,
    "ints": AttributeProto.INTS,
    "bool": AttributeProto.INT,
    "bools": AttributeProto.INTS,
    "string": AttributeProto.STRING,
    "strings": AttributeProto.STRINGS,
}
"""How each kind of attribute is written in a node; booleans are 0 and 1."""

SHAPE_TYPES = ["tensor(int32)", "tensor(int64)"]
"""Element types of an input that states a shape: what ONNX's Shape gives, and what oneDNN's graphs carry."""

_lock = threading.Lock()
_known: dict[tuple[str, str, int], OpSpec | None] = {}


@guarded("convreg::onnx")
def register_schemas() -> None:
    """Register the schema of every operator that has none yet. Repeated calls are cheap.

    A schema that other code registered for the same name, domain and version stays.
    """
    with _lock:
        for spec in registry.specs():
            key = (spec.onnx_domain, spec.name, spec.since_version)
            if key in _known and _known[key] in (None, spec):
                continue
            if key in _known:
                defs.deregister_schema(spec.name, spec.since_version, spec.onnx_domain)
            elif _is_registered(spec):
                _known[key] = None
                continue
            defs.register_schema(schema_of(spec))
            _known[key] = spec


@atexit.register
def _forget_schemas() -> None:
    """Take our schemas out again while Python still runs: older onnx would hang on their functions when it unloads."""
    with _lock:
        for spec in _known.values():
            if spec is not None and _is_registered(spec):
                defs.deregister_schema(spec.name, spec.since_version, spec.onnx_domain)
        _known.clear()


def _is_registered(spec: OpSpec) -> bool:
    if not defs.has(spec.name, spec.since_version, spec.onnx_domain):
        return False
    return defs.get_schema(spec.name, spec.since_version, spec.onnx_domain).since_version == spec.since_version


@guarded("convreg::onnx")
def schema_of(spec: OpSpec) -> defs.OpSchema:
    """Return the schema that a declaration describes.

    Parameters
    ----------
    spec : OpSpec
        The declaration.

    Returns
    -------
    onnx.defs.OpSchema
        Type and shape inference use the rule that runs the operator. A port that may also be an attribute is an
        optional input and an INTS attribute of that name. ``conformance`` is an attribute if there is a choice.
    """
    if not isinstance(spec, OpSpec):
        raise GraphError(f"spec={shorten(spec)} is refused; allowed: the declaration of an operator")
    ports = spec.inputs + spec.outputs
    variables = {port.type: SHAPE_TYPES if port.shape else tensor_types(formats_of(spec, port.type)) for port in ports}
    attributes = [_attribute(attribute) for attribute in spec.attributes]
    attributes += [defs.OpSchema.Attribute(port.name, defs.OpSchema.AttrType.INTS, port.doc, required=False)
                   for port in spec.shape_ports if port.attribute]
    if payload.may_carry(spec):
        attributes.append(defs.OpSchema.Attribute(
            payload.ATTRIBUTE, defs.OpSchema.AttrType.STRINGS, "Formats of the inputs in their order; an empty name "
            "means the element type. A format that ONNX lacks is stored as uint8.", required=False))
    if len(spec.conformances) > 1:
        attributes.append(defs.OpSchema.Attribute(
            "conformance", helper.make_attribute("conformance", spec.conformances[0]),
            "The rules that hold: " + ", ".join(spec.conformances) + "."))
    schema = defs.OpSchema(
        spec.name, spec.onnx_domain, spec.since_version, f"{spec.doc}\n\nSource: {spec.source}",
        inputs=[_parameter(port) for port in spec.inputs],
        outputs=[_parameter(port) for port in spec.outputs],
        type_constraints=[(variable, types, "") for variable, types in variables.items()],
        attributes=attributes,
    )
    schema.set_type_and_shape_inference_function(inference_of(spec))
    return schema


def tensor_types(formats: Iterable[str]) -> list[str]:
    """Return number formats as ONNX schemas name them, such as ``tensor(float)``; those onnx lacks are bytes."""
    return [f"tensor({TensorProto.DataType.Name(payload.element_of(format)).lower()})" for format in formats]


def _parameter(port: Port) -> defs.OpSchema.FormalParameter:
    option = defs.OpSchema.FormalParameterOption
    return defs.OpSchema.FormalParameter(
        port.name, port.type, port.doc, param_option=option.Optional if port.optional else option.Single)


def _attribute(attribute: Attribute) -> defs.OpSchema.Attribute:
    if attribute.required or attribute.default is None:
        kind = AttributeProto.AttributeType.Name(KINDS[attribute.kind])
        return defs.OpSchema.Attribute(
            attribute.name, getattr(defs.OpSchema.AttrType, kind), attribute.doc, required=attribute.required)
    default = attribute_proto(attribute.name, attribute.default, attribute.kind)
    return defs.OpSchema.Attribute(attribute.name, default, attribute.doc)


def attribute_proto(name: str, value: Any, kind: Kind) -> AttributeProto:
    """Return a node's attribute; booleans become 0 and 1, and an empty list keeps its kind."""
    match kind:
        case "int" | "bool":
            value = int(value)
        case "ints" | "bools":
            value = [int(entry) for entry in value]
        case "strings":
            value = [entry or "" for entry in value]
    return helper.make_attribute(name, value, attr_type=KINDS[kind])


def know_nodes(model: ModelProto) -> None:
    """Make onnx know every operator that a model uses; a node nobody declares yet calls for the plug-ins."""
    for domain, op_type in {(node.domain, node.op_type) for node in nodes_of(model)}:
        if domain and not defs.has(op_type, domain) and registry.find_node(domain, op_type) is None:
            try:
                registry.get(f"{domain}::{op_type}")
            except UnknownOp:
                continue  # another runtime's operator, or a local function
    register_schemas()
