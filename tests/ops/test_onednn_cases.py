"""Vendor cases of oneDNN Graph: values, shapes, pads and refusals, each under the conformance of its origin."""

from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import pytest
from places import DATA

import convreg
from convreg.calls.arguments import attribute_values
from convreg.calls.binding import plan_of
from convreg.spec import Call, TensorType, by_conformance

CASES = json.loads((DATA / "onednn_graph.json").read_text())["cases"]
DTYPES = {"f32": np.dtype(np.float32), "bf16": np.dtype(ml_dtypes.bfloat16), "f16": np.dtype(np.float16),
          "f64": np.dtype(np.float64), "s8": np.dtype(np.int8), "s32": np.dtype(np.int32), "s64": np.dtype(np.int64)}


def of(*categories: str) -> list:
    return [pytest.param(case, id=case["id"]) for case in CASES if case["category"] in categories]


def operator(case: dict):
    old = case["op"] == "ConvolutionBackpropData"
    found = convreg.get(("openvino::" if old else "onednn::") + case["op"])
    # the old operation's published rule is "document"; the released library is the origin of the others
    choice = found.spec.conformances
    return found, ({} if len(choice) == 1 else {"conformance": "document" if old else "library"})


def array(tensor: dict) -> np.ndarray:
    values = tensor.get("values")
    dtype = DTYPES[tensor["dtype"]]
    if values is None:
        return np.zeros(tensor["shape"], dtype)
    return np.array(values, np.float64).reshape(tensor["shape"]).astype(dtype)


def call(case: dict, **extra):
    """Call the operator as the case says; a shape input is said instead of the attribute that repeats it."""
    function, conformance = operator(case)
    stating = [port.name for port in function.spec.shape_ports]
    if len(case["inputs"]) > 2 and stating:
        attributes = {name: value for name, value in case["attrs"].items() if name not in stating}
    else:
        attributes = case["attrs"]
        if stating and stating[0] not in attributes and case["category"] not in ("error", "constraint"):
            extra.setdefault("out", np.empty_like(array(case["output"])))
    return function(*map(array, case["inputs"]), **attributes, **conformance, **extra)


@pytest.mark.parametrize("case", of("numeric", "vendor_defect"))
def test_values_are_exact(case):
    result = call(case)
    expected = array(case["output"])
    assert result.dtype == expected.dtype
    assert result.shape == expected.shape
    np.testing.assert_array_equal(result.astype(np.float64), expected.astype(np.float64))


@pytest.mark.parametrize("case", of("numeric", "vendor_defect"))
def test_values_into_a_given_output(case):
    out = np.full_like(array(case["output"]), 7)
    assert call(case, out=out) is out
    np.testing.assert_array_equal(out.astype(np.float64), array(case["output"]).astype(np.float64))


def planned(case: dict, conformance: str | None = None):
    """Plan a case without its arrays, which may be large."""
    function, chosen = operator(case)
    spec = function.spec
    types = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}
    ports = dict(zip([port.name for port in spec.inputs], case["inputs"], strict=False))
    inputs = tuple(
        TensorType(tuple(ports[port.name]["shape"]), types[ports[port.name]["dtype"]])
        if port.name in ports and not port.shape else None for port in spec.inputs)
    conformance = conformance or chosen.get("conformance", spec.conformances[0])
    asking = Call(spec, conformance, inputs, (), (None,), (True,))
    values = attribute_values(asking, by_conformance(spec.rules, conformance), case["attrs"])
    for port in spec.shape_ports:
        values.setdefault(port.name, None)
    return plan_of(Call(spec, conformance, inputs, tuple(values.items()), (None,), (True,), frozenset(case["attrs"])))


@pytest.mark.parametrize("case", of("shape-inference", "benchmark-input"))
def test_shapes_and_pads(case):
    expect = case["expect"]
    if not expect.get("execution_consistent", True):
        with pytest.raises(convreg.OpError) as refused:
            planned(case)
        assert refused.value.rule in ("R25", "R26", "R32")
        return
    plan = planned(case)
    assert plan.outputs[0].shape == tuple(case["output"]["shape"])
    begins = expect.get("effective_pads_begin", expect.get("inferred_pads_begin"))
    if "pads_by_specification_formula" in expect:  # the old operation follows the published formula, not the library
        begins = expect["pads_by_specification_formula"]["begin"]
    if begins is not None:
        assert [axis.begin for axis in plan.integers.axes] == begins


@pytest.mark.parametrize("case", of("error", "vendor_lenient"))
def test_refusals_name_the_rule(case):
    extra = {"out": array(case["output"])} if "output" in case else {}
    if case["expect"]["rule_id"] == "R9":  # the nearest that a Python call can say
        extra = {"out": (np.zeros(1), np.zeros(1))}
    with pytest.raises(convreg.OpError) as refused:
        call(case, **extra)
    assert refused.value.rule == case["expect"]["rule_id"], str(refused.value)
    assert refused.value.op.endswith("::" + case["op"])


@pytest.mark.parametrize("case", of("schema"))
def test_declarations_agree_with_the_schema(case):
    function, conformance = operator(case)
    spec, expect = function.spec, case["expect"]
    chosen = conformance.get("conformance", spec.conformances[0])
    attributes = [a for a in spec.attributes if not a.only or chosen in a.only]
    stating = [port.name for port in spec.shape_ports if port.attribute]
    assert len(attributes) + len(stating) == expect["number_of_attributes"]
    assert sorted(a.name for a in attributes if a.required) == sorted(expect["required"])
    inputs = [port for port in spec.inputs if not port.only or chosen in port.only]
    required = sum(not port.optional for port in inputs)
    assert sorted({required, len(inputs)}) == expect["number_of_inputs"]
    for name, default in expect["optional_with_defaults"].items():
        if name in stating or default == [0] * 12:
            continue
        ours = spec.attribute(name).default
        assert str(ours).lower() == str(default).lower()


@pytest.mark.parametrize("case", of("constraint"))
def test_constraints(case):
    known = {"out": np.zeros(case["output"]["shape"], np.float32)}
    if case["expect"]["status"] == "constraint_violation":  # nothing states the shape
        with pytest.raises(convreg.OpError) as refused:
            call(case)
        assert refused.value.rule == "R17"
    elif len(case["inputs"]) == 3:  # the case gives the shape input no values: those of the attribute
        stated = case["attrs"].get("dst_shape") or case["attrs"]["weights_shape"]
        case = {**case, "inputs": [*case["inputs"][:2], {**case["inputs"][2], "values": stated}]}
        assert list(call(case).shape) == stated
    else:
        assert call(case, **known) is known["out"]


@pytest.mark.parametrize("case", of("unsupported"))
def test_shape_tensors_that_no_vendor_backend_runs(case):
    """The library accepts the node and runs it nowhere; here it runs, if the tensor is 1-D as the page says."""
    stated = case["attrs"]["dst_shape"]
    tensor = {**case["inputs"][2], "values": stated}
    with pytest.raises(convreg.OpError) as refused:
        call({**case, "inputs": [*case["inputs"][:2], tensor]})
    assert refused.value.rule == "R18"
    flat = {**tensor, "shape": [len(stated)]}
    assert list(call({**case, "inputs": [*case["inputs"][:2], flat]}).shape) == stated
