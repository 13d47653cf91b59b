"""Declarations that contradict themselves or each other are refused when they are registered, and name the field."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import helper

import convreg
import convreg.onnx
from convreg import GraphError, OpError, OpTypeError, registry
from convreg.geometry import Geometry
from convreg.spec import REQUIRED, Attribute, OpSpec, Plan, Port, Rules, Spellings, TensorType


def plan(call):
    return Plan((call.tensor("x"),), call["factor"])


def run(plan, inputs, outputs, kernels, threads):
    outputs[0][...] = inputs[0] * plan.work


X, SIZE, Y = Port("x", "Numbers."), Port("size", "A shape.", "I", optional=True, shape=True), Port("y", "Products.")
FACTOR = Attribute("factor", "int", "The factor.", 2, minimum=0)
TIMES = OpSpec(
    vendor="acme", name="Times", since_version=1, doc="Numbers times a factor.", source="Acme's handbook.",
    inputs=(X, SIZE), outputs=(Y,), attributes=(FACTOR,), types={"T": ("float32",), "I": ("int64",)},
    conformances=("document", "library"), plan=plan, run=run, infer=lambda call: (call.tensor("x"),))
SCALE = Port("factors", "Scale of x.", "T", optional=True, scales="x")


@pytest.fixture(autouse=True)
def forgotten(monkeypatch):
    """A registry whose changes are forgotten."""
    monkeypatch.setattr(registry, "_operators", {name: dict(found) for name, found in registry._operators.items()})
    yield
    sys.modules.pop("convreg.acme", None)
    vars(convreg).pop("acme", None)


def attribute(kind="int", default=REQUIRED, **fields):
    return {"attributes": (FACTOR, Attribute("k", kind, "One more.", default, **fields))}


def inputs(**fields):
    return {"inputs": (replace(X, **fields), SIZE)}


def types(**declared):
    return {"types": {**TIMES.types, **declared}}


WORDS = {"*": Spellings({"near": "near"})}


@pytest.mark.parametrize(("change", "told"), [
    ({"name": "__class__"}, "name='__class__'.*begins with a letter"),
    ({"name": "Lambda"}, "name='Lambda'.*no keyword of Python, as 'lambda'"),
    ({"since_version": 2**40}, r"2\*\*31 - 1"),
    ({"doc": ""}, "doc=''.*not empty"),
    ({"source": " "}, "source=' '.*not empty"),
    ({"domain": "my domain"}, "domain='my domain'.*white space"),
    ({"domain": "ai.onnx"}, "domain='ai.onnx'"),
    ({"domain": "ai.onnx.ml"}, "domain='ai.onnx.ml'"),
    ({"positional_attributes": "yes"}, "positional_attributes='yes'.*True or False"),
    ({"ordered_checks": 1}, "ordered_checks=1"),
    ({"plan": lambda: None}, r"plan=.*a function of \(call\)"),
    ({"run": lambda plan: None}, r"run=.*a function of \(plan, inputs, outputs, kernels, threads\)"),
    ({"infer": None}, r"infer=None.*a function of \(call\)"),
    ({"conformances": ("document", "document")}, "conformances=.*differ from each other"),
    ({"conformances": ("*",)}, "conformances=.*differ from each other"),
    ({"extends": ["library"]}, "extends="),
    ({"extends": {"other": "library"}}, "extends=.*document, library"),
    ({"extends": {"library": "other"}}, "extends=.*document, library"),
    ({"extends": {"library": "library"}}, "extends=.*extends none"),
    ({"uniform": "library"}, "uniform='library'.*a tuple"),
    ({"uniform": ("other",)}, r"uniform=\('other',\).*document, library"),
    ({"rules": "E01"}, "rules='E01'.*Rules"),
    ({"rules": {"document": Rules()}}, "rules=.*an entry for 'library'"),
    ({"statuses": {"other": {"geometry": 1}}}, "statuses=.*document, library"),
    (attribute(default="2"), "default of k is '2'.*int, None or REQUIRED"),
    (attribute(default=True), "default of k is True"),
    (attribute(default=2**63), "default of k is .*64-bit"),
    (attribute(default=-1, minimum=0), "default of k is -1.*within the bounds under 'document': minimum 0"),
    (attribute("ints", [1]), r"default of k is \[1\].*a tuple of int"),
    (attribute("bool", 3), "default of k is 3"),
    (attribute("string", "far", choices=WORDS), "default of k is 'far'.*'near'"),
    (attribute("string", choices={"document": WORDS["*"]}), "choices of k=.*an entry for 'library'"),
    (attribute("string", choices=["near"]), r"choices of k is \['near'\].*a mapping"),
    (attribute("string", choices={"*": ["near"]}), "choices of k=.*Spellings"),
    (attribute("string", choices={"*": Spellings(["near"])}), "choices of k is .*strings to strings"),
    (attribute("string", choices={"*": Spellings({"Near": "near"}, False)}), "choices of k is .*lower case.*'Near'"),
    (attribute("int", choices=WORDS), "choices of k is .*None for an attribute of kind int"),
    (attribute("float"), "kind of k is 'float'.*int or ints or bool"),
    (attribute(minimum="0"), "minimum of k='0'.*an integer"),
    (attribute(maximum="9"), "maximum of k is '9'"),
    (attribute(minimum=5, maximum=2), "maximum of k is 2.*at least the minimum 5"),
    (attribute(minimum={"document": 0}), "minimum of k=.*an entry for 'library'"),
    (attribute("string", minimum=0), "minimum of k is 0.*None for an attribute of kind string"),
    (attribute(only="library"), "only of k is 'library'.*a tuple"),
    (attribute(only=("other",)), r"only of k is \('other',\).*document, library"),
    (attribute(rule=3), "rule of k=3.*name of a rule"),
    (attribute("ints", unset=[0]), r"unset of k is \[0\]"),
    ({"attributes": (replace(FACTOR, doc=None),)}, "doc of factor is None.*str"),
    ({"attributes": (FACTOR, Attribute("operand_types", "int", "Codes."))}, "'operand_types'.*differ from"),
    (inputs(doc=None), "doc of x is None"),
    (inputs(type=["T"]), r"type of x is \['T'\]"),
    (inputs(optional="no"), "optional of x is 'no'"),
    (inputs(attribute=True), "attribute of x is True.*shape=True and optional=True"),
    (inputs(like="x"), "like of x is 'x'.*none for an input"),
    (inputs(only=("other",)), r"only of x is \('other',\)"),
    ({"inputs": (SIZE, X)}, r"inputs=\['size', 'x'\].*required inputs before optional"),
    ({"inputs": (X, replace(SCALE, scales="w"), SIZE)}, "scales of factors is 'w'.*one of the inputs x"),
    ({"inputs": (X, SCALE, SIZE)}, r"inputs=\['factors', 'size'\].*after all the rest"),
    ({"inputs": (X, SIZE, replace(SCALE, optional=False))}, "optional of factors is False"),
    ({"inputs": (X, SIZE, SCALE, replace(SCALE, name="more"))}, r"inputs=\['x', 'x'\].*one scale for each"),
    ({"outputs": (replace(Y, shape=True),)}, "shape of y is True.*none for an output"),
    ({"outputs": (replace(Y, scales="x"),)}, "scales of y is 'x'.*none for an output"),
    ({"outputs": (replace(Y, like="w"),)}, "like of y is 'w'.*one of the inputs x"),
    ({"positional_attributes": True, **attribute()}, "positional_attributes=True.*size is optional.*k after it"),
    (types(T={"document": ("float32",)}), "types=.*an entry for 'library'"),
    (types(T=()), "types=.*tuples of float64, float32"),
    (types(T=(["float32"],)), "types=.*tuples of float64, float32"),
    (types(I=("float32",)), "types=.*tuples of int32, int64"),
    (types(Z=("float32",)), "types='Z'.*the types of ports: T, I"),
    ({"types": {"T": ("float32",)}}, "types=.*an entry for I, the type of size"),
    (inputs(type="I"), "types='x'.*another type"),
])
def test_wrong_declarations_are_refused(change, told):
    with pytest.raises(OpError, match=told) as refused:
        convreg.register(replace(TIMES, **change))
    assert refused.value.op == "convreg::register"
    assert "acme" not in vars(convreg)
    assert refused.value.argument


@pytest.mark.parametrize(("change", "told"), [
    ({"name": "times"}, "name='times'.*whose function is not times: that is the function of acme::Times"),
    ({"vendor": "bolt", "domain": "convreg.acme"}, "domain='convreg.acme'.*its node Times is acme::Times"),
    ({"since_version": 2, "domain": "elsewhere"}, "domain='elsewhere'.*convreg.acme, the domain of version 1"),
])
def test_an_operator_takes_neither_the_function_nor_the_node_of_another(change, told):
    first = convreg.register(TIMES)
    with pytest.raises(OpError, match=told):
        convreg.register(replace(TIMES, **change))
    assert convreg.acme.times is first
    assert convreg.get("acme::Times") is registry.find_node("convreg.acme", "Times") is first


def test_what_is_derived_from_a_declaration_runs():
    """The declaration that the cases above change is a right one, with and without a scale."""
    times = convreg.register(TIMES)
    np.testing.assert_array_equal(times(np.ones(3, np.float32), factor=3), [3, 3, 3])
    scaled = convreg.register(replace(TIMES, name="Scaled", inputs=(X, SIZE, SCALE)))
    assert "1 float32 scales; None means no scale. For x: Scale of x.\n" in scaled.__doc__


@pytest.mark.parametrize(("made", "told"), [
    (None, "plan=None.*returns a Plan"),
    (Plan(()), r"plan=\(\).*for each output: y"),
    (Plan((TensorType((3,), "int8"),)), "plan=.*for each output: y"),
    (Plan(("y",)), "plan=.*for each output: y"),
    (Plan((TensorType((3,), "float32"),), geometry=(3, 3)), r"plan=\(3, 3\).*a Geometry or None"),
])
def test_plans_that_fit_no_output_are_refused(made, told):
    times = convreg.register(replace(TIMES, plan=lambda call: made))
    with pytest.raises(OpTypeError, match=told):
        times(np.ones(3, np.float32))


def test_a_plan_may_have_no_spatial_axes():
    """As that of a linear layer."""
    times = convreg.register(replace(TIMES, plan=lambda call: replace(plan(call), geometry=Geometry(3, 1, 1, 1, ()))))
    np.testing.assert_array_equal(times(np.ones(3, np.float32)), [2, 2, 2])


def test_inferred_types_that_fit_no_output_are_refused():
    convreg.register(replace(TIMES, infer=lambda call: None))
    value = helper.make_tensor_value_info
    model = helper.make_model(
        helper.make_graph([helper.make_node("Times", ["x"], ["y"], domain="convreg.acme")], "g",
                          [value("x", onnx.TensorProto.FLOAT, ["n"])], [value("y", onnx.TensorProto.FLOAT, ["n"])]),
        ir_version=10, opset_imports=[helper.make_opsetid("", 22), helper.make_opsetid("convreg.acme", 1)])
    with pytest.raises(GraphError, match=r"acme::Times: infer=None.*for each output: y.*in node Times"):
        convreg.onnx.check(model)
