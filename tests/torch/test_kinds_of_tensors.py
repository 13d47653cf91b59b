"""Layers on what is no plain tensor: subclasses, nested tensors, other devices for the bias or the seed, no tensor."""

import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import convreg.torch  # noqa: E402
from convreg.errors import OpError, OpTypeError  # noqa: E402

STOCHASTIC = convreg.torch.recipe("hifloat8", rounding="stochastic")


class Named(torch.Tensor):
    """A subclass that keeps torch's own dispatch."""


def nested(layout):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls them a prototype
        return torch.nested.nested_tensor([torch.randn(2, 4), torch.randn(3, 4)], layout=layout)


@pytest.mark.parametrize(("input", "said"), [
    (None, "NoneType"), (np.ones((1, 4), np.float32), "ndarray"), ([[1.0] * 4], "list"),
    (nested(torch.strided), "nested"), (nested(torch.jagged), "jagged")])
def test_inputs_that_no_layer_takes_are_named(input, said):
    layer = convreg.torch.convert(nn.Linear(4, 3), "hifloat8")
    with pytest.raises(OpTypeError, match=said) as caught:
        layer(input)
    assert caught.value.argument == "input"


@pytest.mark.parametrize("kind", ["meta", "vmap", "sparse"])
def test_a_bias_of_another_kind_is_refused(kind):
    x, w, bias = torch.randn(1, 4, 5, 5), torch.randn(6, 4, 3, 3), torch.randn(6)
    calls = {"meta": lambda: F.conv2d(x, w, bias.to("meta")), "sparse": lambda: F.conv2d(x, w, bias.to_sparse()),
             "vmap": lambda: torch.vmap(lambda bias: F.conv2d(x, w, bias))(bias[None])}
    with convreg.torch.emulate("hifloat8"), pytest.raises(OpError, match=kind):
        calls[kind]()


@pytest.mark.parametrize("kind", ["meta", "sparse"])
def test_seeds_and_scales_of_another_kind_are_named(kind):
    def other(tensor):
        return tensor.to("meta") if kind == "meta" else tensor[None].to_sparse()

    x, w, geometry = torch.randn(1, 4, 5, 5), torch.randn(6, 4, 3, 3), ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    with pytest.raises(OpTypeError, match=kind) as caught:
        torch.ops.convreg.convolution(x, w, None, *geometry, recipe=STOCHASTIC.text, seed=other(torch.tensor(1)))
    assert (caught.value.argument, "int64" in caught.value.allowed) == ("seed", True)
    for name in ("input_scale", "weight_scale"):
        with pytest.raises(OpTypeError, match=kind) as caught:
            torch.ops.convreg.convolution_backward(
                torch.randn(1, 6, 3, 3), x, w, None, *geometry, [True, True, True], **{name: other(torch.tensor(1.0))})
        assert (caught.value.argument, "float32" in caught.value.allowed) == (name, True)


@pytest.mark.parametrize("recipe", ["hifloat8", STOCHASTIC, convreg.torch.recipe("fp8_hybrid", scaling="channel")])
def test_the_default_device_does_not_matter(recipe):
    """Seeds came from the generator of the default device; on "meta" the output was memory that nothing wrote."""
    layer, x = convreg.torch.convert(nn.Conv2d(4, 6, 3), recipe), torch.randn(2, 4, 5, 5)

    def run():
        torch.manual_seed(0)
        layer.zero_grad()
        y = layer(x)
        y.square().sum().backward()
        return y, layer.weight.grad

    truth = run()
    with torch.device("meta"):
        assert all(map(torch.equal, run(), truth))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("recipe", ["float32", "hifloat8", convreg.torch.recipe("hifloat8", rounding="stochastic",
                                                                                seed=1)])
def test_tensors_can_be_resized_after_a_call(recipe, dtype):
    """Sharded training frees the memory of parameters so."""
    layer = convreg.torch.convert(nn.Conv2d(4, 6, 3).to(dtype), recipe)
    x, gradient = torch.randn(2, 4, 5, 5, dtype=dtype, requires_grad=True), torch.randn(2, 6, 3, 3, dtype=dtype)
    with convreg.torch.observe(layer):
        output = layer(x)
        output.backward(gradient)
    for tensor in (x, layer.weight, layer.bias, gradient, output, x.grad, layer.weight.grad, layer.bias.grad):
        assert tensor.untyped_storage().resizable()


@pytest.mark.parametrize("layer", [nn.Conv2d(4, 6, 3), nn.Linear(5, 3), nn.ConvTranspose1d(4, 6, 3)])
def test_subclasses_are_seen_and_kept(layer):
    converted = convreg.torch.convert(layer, "hifloat8")
    plain = torch.randn(4, 5) if isinstance(layer, nn.ConvTranspose1d) else torch.randn(2, 4, 5, 5)
    plain.requires_grad_()
    truth = torch.autograd.grad(converted(plain).square().sum(), [plain, converted.weight])
    subclass = plain.detach().as_subclass(Named).requires_grad_()
    output = converted(subclass)
    assert type(output) is type(layer(subclass)) is Named
    assert all(map(torch.equal, torch.autograd.grad(output.square().sum(), [subclass, converted.weight]), truth))
