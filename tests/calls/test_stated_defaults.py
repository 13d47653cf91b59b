"""A default that a call or node states is accepted: it asks for nothing else than leaving it out."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper
from valid_calls import VALID, several

import convreg
import convreg.onnx
from convreg.calls.signature import signature_of
from convreg.onnx.schema.schemas import KINDS, attribute_proto
from convreg.spec import snake_case

CALLS = [pytest.param(name, conformance, id=f"{name} {conformance}")
         for name in VALID for conformance in convreg.get(name).spec.conformances]


def defaults(spec):
    """Every attribute that has a default, by name."""
    return {attribute.name: attribute for attribute in spec.attributes if not attribute.required}


def arguments(name, conformance):
    """What the call states, under a conformance of choice."""
    stated = {key: value for key, value in VALID[name].arguments.items() if key != "conformance"}
    return stated | ({"conformance": conformance} if len(convreg.get(name).spec.conformances) > 1 else {})


@pytest.mark.parametrize(("name", "conformance"), CALLS)
def test_in_calls(name, conformance):
    """One at a time, as the signature writes it, and None."""
    operator, tensors = convreg.get(name), VALID[name].tensors
    given = arguments(name, conformance)
    expected = outcome(operator, tensors, given)
    for parameter in [*signature_of(operator.spec).parameters.values()][len(tensors):]:
        if parameter.default is parameter.empty or parameter.name in given:
            continue
        for stated in {parameter.default, None} if parameter.name != "conformance" else {None}:
            assert outcome(operator, tensors, {**given, parameter.name: stated}) == expected, (parameter.name, stated)


def outcome(operator, tensors, given):
    """The bits of the results, or the rule that refuses."""
    try:
        return [None if array is None else array.tobytes() for array in several(operator(*tensors, **given))]
    except convreg.OpError as error:
        return error.rule


@pytest.mark.parametrize(("name", "conformance"), CALLS)
def test_in_nodes(name, conformance):
    spec = convreg.get(name).spec
    given = arguments(name, conformance)
    if isinstance(outcome(convreg.get(name), VALID[name].tensors, given), str):
        pytest.skip("another conformance's call")
    model = convreg.onnx.node_model(name, *VALID[name].tensors, **given)
    expected = convreg.onnx.run(model)
    stated = {attribute.name for attribute in model.graph.node[0].attribute}
    for attribute in defaults(spec).values():
        if attribute.default is None or attribute.name in stated:
            continue
        other = onnx.ModelProto()
        other.CopyFrom(model)
        other.graph.node[0].attribute.append(attribute_proto(attribute.name, attribute.default, attribute.kind))
        convreg.onnx.check(other)
        assert lowered(other) == lowered(model)
        for output, array in convreg.onnx.run(other).items():
            np.testing.assert_array_equal(array.view(np.uint8), expected[output].view(np.uint8))


def lowered(model):
    """The operators of the model in standard ONNX, or that there is none."""
    try:
        return [node.op_type for node in convreg.onnx.lower(model).graph.node]
    except convreg.GraphError:
        return None


@pytest.mark.parametrize("name", VALID)
def test_exporters_leave_out_what_the_conformance_has_not(name):
    call, spec = VALID[name], convreg.get(name).spec
    foreign = {snake_case(attribute.name): attribute.default for attribute in spec.attributes
               if attribute.only and spec.conformances[0] not in attribute.only}
    model = convreg.onnx.node_model(name, *call.tensors, **{**call.arguments, **foreign})
    names = {attribute.name for attribute in model.graph.node[0].attribute}
    assert not names & {attribute.name for attribute in spec.attributes if snake_case(attribute.name) in foreign}
    convreg.onnx.check(model)


def test_any_other_value_is_refused():
    call = VALID["onednn::Convolution"]
    for stated in ({"saturate": True}, {"rounding": "half_away"}, {"seed": 0}, {"output_format": "float32"},
                   {"saturate": "no"}):
        with pytest.raises(convreg.OpTypeError) as caught:
            convreg.onednn.convolution(*call.tensors, **call.arguments, **stated)
        assert caught.value.argument in stated


def test_every_kind_of_attribute_can_be_stated():
    assert {attribute.kind for operator in convreg.operators() for attribute in operator.spec.attributes} == {*KINDS}
    assert helper.get_attribute_value(attribute_proto("a", False, "bool")) == 0


@pytest.mark.parametrize("name", ["aten::convolution_backward", "ascend::ConvolutionBackward"])
def test_lists_of_empty_names(name):
    """They ask for the default format of every result."""
    operator, call = convreg.get(name), VALID[name]
    expected = outcome(operator, call.tensors, call.arguments)
    for stated in (["", "", ""], (None, None, None)):
        assert outcome(operator, call.tensors, {**call.arguments, "output_formats": stated}) == expected
    for stated in ([""], ["", "", "float32"]):
        assert isinstance(outcome(operator, call.tensors, {**call.arguments, "output_formats": stated}), str)
