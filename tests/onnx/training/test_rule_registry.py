"""Rules of other people: decorators, entry points, refusals."""

import importlib.metadata

import numpy as np
import onnx.parser
import pytest

import convreg.onnx
from convreg.errors import OpError, OpTypeError
from convreg.onnx import gradient_of
from convreg.onnx.training import rule_registry


def model(op_type):
    return onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["": 20]>
        g (float[3] x) => (float y) {{ a = {op_type}(x) y = ReduceSum<keepdims=0>(a) }}""")


def shrink(step):
    """``g`` where the magnitude of x exceeds the default of the node."""
    return step.g.only(step.x.apply("Abs") > 0.5)


def test_a_rule_can_be_added(rules):
    assert gradient_of("Shrink")(shrink) is shrink
    made = convreg.onnx.run(convreg.onnx.gradient(model("Shrink"), "y", ["x"]), {"x": [0.0, 0.75, -0.75]})
    assert made["x_grad"].tolist() == [0, 1, 1]


def test_a_rule_can_be_replaced_only_if_asked(rules):
    with pytest.raises(OpError, match="an operator without a rule, or replace=True"):
        gradient_of("Relu")(shrink)
    gradient_of("Relu", replace=True)(lambda step: step.g * 7)
    made = convreg.onnx.run(convreg.onnx.gradient(model("Relu"), "y", ["x"]), {"x": [0.0, 0.5, -0.5]})
    assert made["x_grad"].tolist() == [7, 7, 7]


class Point:
    """An entry point of an installed package."""

    def __init__(self, name, load):
        self.name, self.load = name, load


def test_plug_ins_register_when_a_rule_is_missed(rules, monkeypatch):
    def load():
        gradient_of("Shrink")(shrink)
        return rule_registry

    def broken():
        raise RuntimeError("not today")

    def points(group):
        assert group == "convreg.gradients"
        return [Point("broken", broken), Point("good", load)]

    monkeypatch.setattr(rule_registry, "entry_points", points)
    convreg.onnx.gradient(model("Relu"), "y", ["x"])
    with pytest.warns(RuntimeWarning, match="plug-in 'broken' is skipped: RuntimeError: not today"):
        convreg.onnx.gradient(model("Shrink"), "y", ["x"])
    assert importlib.metadata.entry_points is not points


@pytest.mark.parametrize(("arguments", "options", "error"), [
    ((3,), {}, OpTypeError), (("",), {}, OpError), (("A",), {"domain": 3}, OpTypeError),
    (("A",), {"inputs": [-1]}, OpError), (("A",), {"outputs": ["x"]}, OpError), (("A",), {"unknown": 1}, OpTypeError),
    (("A",), {"inputs": 0}, OpTypeError), (("A",), {"constants": {1}}, OpTypeError),
    (("A",), {"replace": np.ones(2)}, OpTypeError)])
def test_wrong_arguments_are_refused(rules, arguments, options, error):
    with pytest.raises(error):
        gradient_of(*arguments, **options)
    with pytest.raises(OpTypeError, match="a function of one Step"):
        gradient_of("A")(3)


def test_a_gradient_at_an_input_without_one_is_refused(rules):
    gradient_of("Shrink", inputs=[])(shrink)
    with pytest.raises(convreg.errors.GraphError, match=r"Shrink node that makes 'a'.*no gradient for input 0 \('x'\)"):
        convreg.onnx.gradient(model("Shrink"), "y", ["x"])


@pytest.mark.parametrize("use", [lambda made: convreg.onnx.gradient(made, "y", ["w"]),
                                 lambda made: convreg.onnx.training_step(made, loss=None)], ids=["gradient", "step"])
def test_what_a_rule_writes_is_checked(rules, use):
    """onnx's inference never returns from some wrong equations, so nodes of rules are looked at before."""
    gradient_of("Shrink")(lambda step: step.g.apply("Einsum", equation="i->i->i"))
    made = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 20]>
        g (float[3] x) => (float y) <float[3] w = {1, 2, 3}>
        { a = Mul(x, w) b = Shrink(a) y = ReduceSum<keepdims=0>(b) }""")
    with pytest.raises(convreg.errors.GraphError, match=r"Einsum node .*: equation='i->i->i' is refused"):
        use(made)
