"""Schemas say what the declarations say, all of it and nothing else."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import onnx
import pytest
from onnx import defs

import convreg
import convreg.onnx
from convreg import registry
from convreg.calls.text import formats_of
from convreg.onnx.graph import attribute_value
from convreg.onnx.schema.schemas import tensor_types

SPECS = [pytest.param(spec, id=spec.qualified_name) for spec in registry.specs()]
Option = defs.OpSchema.FormalParameterOption
KINDS = {"int": "INT", "ints": "INTS", "bool": "INT", "bools": "INTS", "string": "STRING", "strings": "STRINGS"}


@pytest.mark.parametrize("spec", SPECS)
def test_schema_is_registered(spec):
    schema = defs.get_schema(spec.name, spec.since_version, spec.onnx_domain)
    assert schema.has_type_and_shape_inference_function
    assert schema.since_version == spec.since_version
    assert spec.doc in schema.doc
    assert spec.source in schema.doc


@pytest.mark.parametrize("spec", SPECS)
def test_ports(spec):
    schema = defs.get_schema(spec.name, spec.since_version, spec.onnx_domain)
    for ports, formals in ((spec.inputs, schema.inputs), (spec.outputs, schema.outputs)):
        assert [formal.name for formal in formals] == [port.name for port in ports]
        for port, formal in zip(ports, formals, strict=True):
            assert formal.option == (Option.Optional if port.optional else Option.Single)
            assert formal.type_str == port.type
            assert formal.description == port.doc
            expected = ({"tensor(int32)", "tensor(int64)"} if port.shape
                        else set(tensor_types(formats_of(spec, port.type))))
            assert set(formal.types) == expected
    assert schema.min_output == (0 if spec.outputs[0].optional else 1)


def test_names_of_element_types():
    assert tensor_types(["float64", "float32", "float16", "bfloat16"]) == [
        "tensor(double)", "tensor(float)", "tensor(float16)", "tensor(bfloat16)"]
    assert tensor_types(["float8_e4m3fn", "float8_e5m2", "hifloat8"]) == [
        "tensor(float8e4m3fn)", "tensor(float8e5m2)", "tensor(uint8)"]


@pytest.mark.parametrize("spec", SPECS)
def test_attributes_and_defaults(spec):
    schema = defs.get_schema(spec.name, spec.since_version, spec.onnx_domain)
    names = {attribute.name for attribute in spec.attributes}
    names |= {port.name for port in spec.shape_ports if port.attribute}
    if any("hifloat8" in formats_of(spec, port.type) for port in spec.inputs):
        names.add("operand_types")
    if len(spec.conformances) > 1:
        names.add("conformance")
        assert attribute_value(schema.attributes["conformance"].default_value) == spec.conformances[0]
    assert schema.attributes.keys() == names
    for attribute in spec.attributes:
        made = schema.attributes[attribute.name]
        assert made.required == attribute.required
        assert made.description == attribute.doc
        assert made.type.name == KINDS[attribute.kind]
        if attribute.required or attribute.default is None:
            assert made.default_value.type == onnx.AttributeProto.UNDEFINED
        else:
            default = attribute_value(made.default_value)
            given = attribute.default
            assert default == (list(map(int, given)) if isinstance(given, tuple) else given)


def test_registering_again_changes_nothing():
    before = len(defs.get_all_schemas_with_history())
    convreg.onnx.register_schemas()
    convreg.onnx.register_schemas()
    assert len(defs.get_all_schemas_with_history()) == before


def test_later_operators_get_schemas_before_use(monkeypatch):
    monkeypatch.setattr(registry, "_operators", {name: dict(found) for name, found in registry._operators.items()})
    spec = replace(convreg.onednn.convolution.spec, vendor="later", name="Late", doc="Convolution, registered late.")
    convreg.register(spec)
    assert not defs.has("Late", "convreg.later")
    node = onnx.helper.make_node("Late", ["x", "w"], ["y"], domain="convreg.later", strides=[1], pads_begin=[0],
                                 pads_end=[0], dilations=[1])
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph([node], "g", [value("x", 1, [1, 5, 2]), value("w", 1, [3, 2, 4])],
                                   [value("y", 1, None)])
    model = onnx.helper.make_model(graph, ir_version=10, opset_imports=[onnx.helper.make_opsetid("convreg.later", 1)])
    inferred = convreg.onnx.infer_shapes(model)
    assert [dim.dim_value for dim in inferred.graph.output[0].type.tensor_type.shape.dim] == [1, 3, 4]
    replaced = replace(spec, doc="Convolution, registered anew.")
    convreg.register(replaced, replace=True)
    convreg.onnx.register_schemas()
    assert replaced.doc in defs.get_schema("Late", 1, "convreg.later").doc
    defs.deregister_schema("Late", 1, "convreg.later")


def test_foreign_schema_of_conv_grad_is_left_alone():
    script = (
        "import onnx.defs as d, onnx.reference\n"
        "d.register_schema(d.OpSchema('ConvGrad', 'com.microsoft', 1, 'theirs'))\n"
        "import convreg.onnx\n"
        "assert d.get_schema('ConvGrad', 1, 'com.microsoft').doc == 'theirs'\n"
        "assert d.has('ConvolutionBackwardData', 'convreg.onednn')\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True, timeout=120)


def test_importing_convreg_does_not_import_onnx():
    script = "import sys, convreg; assert 'onnx' not in sys.modules; convreg.onnx.run; assert 'onnx' in sys.modules"
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True, timeout=120)
