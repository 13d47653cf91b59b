"""Every rule of a gradient: against central differences of the forward model, and against PyTorch, in float64."""

import numpy as np
import pytest
from gradient_models import assert_gradient, weighted, with_loss
from onnx import helper
from rule_cases import CASES, Case

import convreg.onnx
from convreg.onnx.training import rule_registry

WITHOUT_CASE = {"Quantize", "Dequantize", "Celu"}
"""Gradients of the first two are no derivatives: `test_rounding.py` has them. The third is float32 only."""


@pytest.mark.parametrize("case", CASES, ids=str)
def test_rule_against_differences(case: Case):
    feeds = weighted(case.nodes, case.feeds, case.outputs, opset=case.opset, constants=case.constants)
    model = with_loss(case.nodes, feeds, case.outputs, opset=case.opset, constants=case.constants)
    made = convreg.onnx.run(convreg.onnx.gradient(model, "loss", case.asked), feeds, engine="reference")
    for name in case.asked:
        assert_gradient(made[f"{name}_grad"], model, feeds, name, case.tolerance, case.step)


@pytest.mark.parametrize("case", [case for case in CASES if case.torch is not None], ids=str)
def test_rule_against_torch(case: Case):
    torch = pytest.importorskip("torch")
    feeds = weighted(case.nodes, case.feeds, case.outputs, opset=case.opset, constants=case.constants)
    model = with_loss(case.nodes, feeds, case.outputs, opset=case.opset, constants=case.constants)
    made = convreg.onnx.run(convreg.onnx.gradient(model, "loss", case.asked), feeds, engine="reference")
    tensors = {name: torch.tensor(array, requires_grad=name in case.asked) for name, array in case.feeds.items()}
    outputs = case.torch(torch, **tensors)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    loss = sum((output * torch.tensor(feeds[f"{name}.weight"])).sum()
               for name, output in zip(case.outputs, outputs, strict=True))
    for name, gradient in zip(case.asked, torch.autograd.grad(loss, [tensors[name] for name in case.asked]),
                              strict=True):
        expected = gradient.numpy()
        scale = max(1.0, float(np.abs(expected).max()))
        np.testing.assert_allclose(made[f"{name}_grad"], expected, rtol=0, atol=case.torch_tolerance * scale)


def test_every_rule_has_a_case():
    named = {case.op_type for case in CASES}
    assert {entry.op_type for entry in rule_registry.entries() if entry.domain in ("", "convreg")} - named \
        == WITHOUT_CASE


def test_celu_in_float32():
    x = np.linspace(-3, 3, 12, dtype=np.float32)
    nodes = [helper.make_node("Celu", ["x"], ["y"], alpha=1.5)]
    feeds = {"x": x, "y.weight": np.full(12, 2, np.float32)}
    model = with_loss(nodes, feeds, ["y"])
    model.graph.output[0].type.tensor_type.elem_type = 1
    made = convreg.onnx.run(convreg.onnx.gradient(model, "loss", ["x"]), feeds)
    np.testing.assert_allclose(made["x_grad"], 2 * np.where(x > 0, 1, np.exp(x / 1.5)), rtol=1e-5)
