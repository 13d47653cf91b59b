"""Layers of drawn geometry, format, layout and dtype against convreg's operators, and against autograd in float64."""

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch import nn  # noqa: E402
from torch_layers import array_of, expected, record  # noqa: E402

import convreg.torch  # noqa: E402

FORMATS = [None, "float32", "bfloat16", "float16", "hifloat8", "float8_e4m3fn", "float8_e5m2"]


@st.composite
def layers(draw):
    """Draw a layer with an input that it takes."""
    torch.manual_seed(draw(st.integers(0, 2**32 - 1)))
    axes = draw(st.integers(1, 3))
    transposed = draw(st.booleans())
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    inputs, outputs = groups * draw(st.integers(1, 3)), groups * draw(st.integers(1, 3))
    kernel = [draw(st.integers(1, 3)) for _ in range(axes)]
    stride = [draw(st.integers(1, 3)) for _ in range(axes)]
    dilation = [draw(st.integers(1, 2)) for _ in range(axes)]
    padding = [draw(st.integers(0, 2)) for _ in range(axes)]
    least = [max(1, d * (k - 1) + 1 - 2 * p) for k, d, p in zip(kernel, dilation, padding, strict=True)]
    extents = [few + draw(st.integers(0, 4)) for few in least]
    common = {"stride": tuple(stride), "padding": tuple(padding), "dilation": tuple(dilation), "groups": groups,
              "bias": draw(st.booleans())}
    if transposed:
        extra = [draw(st.integers(0, s - 1)) for s in stride]
        extents = [max(x, 1 + (2 * p) // s) + 1 for x, p, s in zip(extents, padding, stride, strict=True)]
        layer = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)[axes - 1](
            inputs, outputs, tuple(kernel), output_padding=tuple(extra), **common)
    else:
        layer = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[axes - 1](inputs, outputs, tuple(kernel), **common)
    x = torch.randn(draw(st.integers(1, 3)), inputs, *extents)
    formats = [torch.contiguous_format, *{2: [torch.channels_last], 3: [torch.channels_last_3d]}.get(axes, [])]
    return (layer.to(draw(st.sampled_from([torch.float32, torch.float32, torch.bfloat16])),
                     memory_format=draw(st.sampled_from(formats))) if axes > 1 else layer,
            x.to(memory_format=draw(st.sampled_from(formats))))


@settings(max_examples=150)
@given(layers(), st.tuples(*[st.sampled_from(FORMATS)] * 3), st.booleans(), st.integers(0, 2**32 - 1))
def test_drawn_layers_give_the_bits_of_convregs_operators(drawn, formats, scaled, seed):
    torch.manual_seed(seed)
    layer, x = drawn
    x = (x * 2.0 ** float(torch.randint(-6, 7, ()))).to(layer.weight.dtype)
    x_format, w_format, g_format = formats
    recipe = convreg.torch.Recipe(input=x_format, weight=w_format, grad_output=g_format,
                                  scaling="tensor" if scaled else "none", saturate=True)
    try:
        layer(x)
    except RuntimeError:  # torch takes no such geometry
        with pytest.raises(convreg.OpError):
            convreg.torch.convert(layer, recipe)(x)
        return
    [call] = record(convreg.torch.convert(layer, recipe), x)
    scaled = scaled and any(format not in (None, "float32", "bfloat16") for format in formats)
    truth = expected(call, formats, scaled=scaled, saturate=True)
    assert np.array_equal(array_of(call.output), truth.output)
    assert np.array_equal(array_of(call.input.grad), truth.input)
    assert np.array_equal(array_of(layer.weight.grad), truth.weight)
    assert layer.bias is None or np.array_equal(array_of(layer.bias.grad), truth.bias)


@given(layers(), st.sampled_from(["tensor", "channel"]), st.sampled_from(FORMATS[3:]), st.integers(0, 2**32 - 1))
def test_scaled_gradients_are_near_those_of_float64(drawn, scaling, format, seed):
    torch.manual_seed(seed)
    layer, x = drawn
    layer = layer.float()
    recipe = convreg.torch.Recipe(input=format, weight=format, grad_output=format, scaling=scaling, saturate=True)
    try:
        y = layer(x)
    except RuntimeError:  # torch takes no such geometry
        with pytest.raises(convreg.OpError):
            convreg.torch.convert(layer, recipe)(x)
        return
    gradient = torch.randn_like(y) * 1e-6
    exact = copy.deepcopy(layer).double()
    magnitudes = copy.deepcopy(exact)  # of all positive operands: what rounding errors are relative to
    for parameter in magnitudes.parameters():
        parameter.data.abs_()
    ours, truth, sizes = (
        gradients(module, numbers.to(dtype), gradient_of.to(dtype)) for module, numbers, gradient_of, dtype in (
            (convreg.torch.convert(layer, recipe), x, gradient, torch.float32), (exact, x, gradient, torch.float64),
            (magnitudes, x.abs(), gradient.abs(), torch.float64)))
    bound = {"float16": 2e-3, "hifloat8": 0.3, "float8_e4m3fn": 0.15, "float8_e5m2": 0.3}[format]
    for one, other, size in zip(ours, truth, sizes, strict=True):
        assert float((one - other).norm()) <= bound * float(size.norm())


def gradients(module, x, gradient):
    """Return the gradients of the input and the parameters in float64."""
    x = x.detach().requires_grad_()
    found = torch.autograd.grad(module(x), [x, *module.parameters()], gradient)
    return [tensor.double() for tensor in found]
