"""ascend::ConvolutionBackward: the rounding points, against independent arithmetic, and agreement with PyTorch."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import convreg

function = convreg.ascend.convolution_backward

RNG = np.random.default_rng(20260822)


def hf32(values, mantissa):
    """HF32 by arithmetic: half away from zero to so many explicit mantissa bits."""
    fraction, exponent = np.frexp(np.abs(values.astype(np.float64)))
    scale = 2.0 ** (mantissa + 1)
    return np.copysign(np.ldexp(np.floor(fraction * scale + 0.5) / scale, exponent), values)


def pointwise(dy, x, w, conformance, **attributes):
    """One product per gradInput and gradWeight element: a single channel, tap and position."""
    operands = dy.reshape(1, 1, -1), x.reshape(1, 1, -1), w.reshape(1, 1, 1)
    return function(*operands, stride=[1], padding=[0], dilation=[1], conformance=conformance, **attributes)


@pytest.mark.parametrize(("conformance", "mantissa"), [("document", 11), ("emulation", 11), ("atlas-a2", 11),
                                                       ("ascend950", 10)])
@pytest.mark.parametrize("mode", [1, 3])
def test_hf32_rounds_operands(conformance, mantissa, mode):
    dy = np.ldexp(RNG.standard_normal(500), RNG.integers(-30, 30, 500)).astype(np.float32)
    dy[:4] = [1 + 2.0**-11, 1 + 2.0**-12, -1 - 2.0**-12, 1 + 2.0**-12 - 2.0**-23]
    w = np.float32([np.pi])
    grad_input, _, grad_bias = pointwise(dy, dy, w, conformance, cube_math_type=mode)
    assert np.array_equal(grad_input.ravel(), (hf32(dy, mantissa) * hf32(w, mantissa)).astype(np.float32))
    assert not np.array_equal(grad_input.ravel(), dy * w)
    assert np.array_equal(grad_bias, pointwise(dy, dy, w, conformance)[2])
    x = RNG.standard_normal(1).astype(np.float32)
    grad_weight = pointwise(dy[:1], x, w, conformance, cube_math_type=mode)[1]
    assert grad_weight.item() == np.float32(hf32(dy[:1], mantissa)[0] * hf32(x, mantissa)[0])


def test_hf32_keeps_nan_and_infinity():
    bits = np.array([0x7F800001, 0x7FFFFFFF, 0xFFFFFFFF, 0x7F800000, 0xFF800000, 0x7F7FFFFF], np.uint32)
    dy = bits.view(np.float32)
    one = np.ones(1, np.float32)
    result = pointwise(dy, dy, one, "document", cube_math_type=3, output_mask=[True, False, False])[0]
    assert np.isnan(result.ravel()[:3]).all()
    assert list(result.ravel()[3:]) == [np.inf, -np.inf, np.inf]


@pytest.mark.parametrize("format", ["float16", "bfloat16"])
def test_hf32_leaves_narrow_formats_alone(format):
    dy = RNG.standard_normal(100).astype(np.dtype(format))
    w = np.asarray([1.5], np.dtype(format))
    plain, rounded = (pointwise(dy, dy, w, "document", cube_math_type=mode)[0] for mode in (0, 3))
    assert np.array_equal(plain, rounded)


@pytest.mark.parametrize(("conformance", "mode"), [("document", 2), ("ascend950", 2), ("atlas-a2", 2), ("atlas-910", 2),
                                                   ("atlas-910", 1)])
def test_float16_operands_of_float32_tensors(conformance, mode):
    """gradInput passes through float16; gradWeight is a float32 sum of float16 products; the bias is untouched."""
    dy, x, w = (RNG.standard_normal(size).astype(np.float32) for size in (300, 300, 1))
    grad_input, grad_weight, grad_bias = pointwise(dy, x, w, conformance, cube_math_type=mode)
    dy16, x16, w16 = (array.astype(np.float16).astype(np.float64) for array in (dy, x, w))
    through = (dy16 * w16).astype(np.float32).astype(np.float16).astype(np.float32)
    assert grad_input.dtype == np.float32
    assert np.array_equal(grad_input.ravel(), through)
    assert grad_weight.item() == pytest.approx((dy16 * x16).sum(), rel=1e-5)
    assert float(np.float16(grad_weight.item())) != grad_weight.item()
    assert grad_bias.item() == pytest.approx(dy.astype(np.float64).sum(), rel=1e-5)


def test_float16_overflow_is_infinite_in_grad_input_alone():
    dy, x, w = (np.asarray([value], np.float32) for value in (300, 300, 300))
    grad_input, grad_weight, grad_bias = pointwise(dy, x, w, "document", cube_math_type=2)
    assert (grad_input.item(), grad_weight.item(), grad_bias.item()) == (np.inf, 90000, 300)
    grad_input, grad_weight, grad_bias = pointwise(dy * 300, x, w / 300, "document", cube_math_type=2)
    assert (grad_input.item(), grad_weight.item(), grad_bias.item()) == (np.inf, np.inf, 90000)


def test_bfloat16_with_float16_operands():
    dy, x, w = (RNG.standard_normal(size).astype(ml_dtypes.bfloat16) * 3 for size in (200, 200, 1))
    grad_input = pointwise(dy, x, w, "atlas-a2", cube_math_type=2)[0]
    through = (dy.astype(np.float64) * w.astype(np.float64)).astype(np.float32).astype(np.float16)
    assert grad_input.dtype == ml_dtypes.bfloat16
    assert np.array_equal(grad_input.ravel(), through.astype(np.float32).astype(ml_dtypes.bfloat16))
    tiny = np.asarray([2.0**-30], ml_dtypes.bfloat16)
    assert pointwise(tiny, tiny, tiny, "document", cube_math_type=2)[1].item() == 0


def test_mixed_formats_meet_in_float32():
    """float16 with bfloat16 promotes to float32: gradInput is rounded once, from the float32 sum."""
    dy = RNG.standard_normal((1, 3, 50)).astype(ml_dtypes.bfloat16)
    x = RNG.standard_normal((1, 1, 50)).astype(np.float16)
    w = RNG.standard_normal((3, 1, 1)).astype(ml_dtypes.bfloat16)
    gradients = function(dy, x, w, stride=[1], padding=[0], dilation=[1])
    assert [array.dtype for array in gradients] == [np.float16, ml_dtypes.bfloat16, ml_dtypes.bfloat16]
    wide = np.zeros((1, 1, 50), np.float32)
    for channel in range(3):  # products of bfloat16 are exact in float64, each step rounds once as a fused one does
        term = dy[:, channel:channel + 1].astype(np.float64) * w[channel].astype(np.float64)
        wide = (wide + term).astype(np.float32)
    assert np.array_equal(gradients[0], wide.astype(np.float16))


def test_promotion_decides_over_all_three_operands():
    """A float32 input, though no term of gradInput, keeps gradInput of a float16 pair in float32."""
    dy, w = (RNG.standard_normal(size).astype(np.float16) for size in (100, 1))
    for format, through in (("float16", np.float16), ("float32", np.float32)):
        out = np.empty((1, 1, 100), np.float32), None, None
        pointwise(dy, dy.astype(format), w, "atlas-a2", out=out)
        exact = (dy.astype(np.float64) * w.astype(np.float64)).astype(np.float32)
        assert np.array_equal(out[0].ravel(), exact.astype(through).astype(np.float32))


def test_grad_input_of_a_narrow_format_passes_through_it():
    """On A2 a float32 gradInput of float16 tensors holds float16 values; gradWeight holds the float32 sum."""
    dy, x, w = (RNG.standard_normal(size).astype(np.float16) for size in (100, 100, 1))
    out = np.empty((1, 1, 100), np.float32), np.empty((1, 1, 1), np.float32), np.empty(1, np.float32)
    results = pointwise(dy, x, w, "atlas-a2", out=out)
    assert all(result is given for result, given in zip(results, out, strict=True))
    exact = (dy.astype(np.float64) * w.astype(np.float64)).astype(np.float32)
    assert np.array_equal(out[0].ravel(), exact.astype(np.float16).astype(np.float32))
    assert float(np.float16(out[1].item())) != out[1].item()
    assert float(np.float16(out[2].item())) == out[2].item()  # the bias leaves in gradOutput's format
    emulated = pointwise(dy, x, w, "emulation", output_formats=["float32"] * 3)
    assert all(np.array_equal(result, given) for result, given in zip(emulated, out, strict=True))


def test_the_float64_reference_rounds_nothing():
    dy, x, w = (RNG.standard_normal(size).astype(np.float32) for size in ((1, 1, 20), (1, 1, 20), (1, 1, 1)))
    exact = function.reference(dy, x, w, stride=[1], padding=[0], dilation=[1], cube_math_type=2)
    assert np.array_equal(exact[0], dy.astype(np.float64) * w.astype(np.float64))
    assert exact[1].item() == pytest.approx((dy.astype(np.float64) * x).sum(), rel=1e-12)


@pytest.mark.parametrize("arguments", [
    {},
    {"padding": [2, 1], "shapes": ((2, 6, 5, 6), (2, 4, 7, 6), (6, 4, 3, 2))},
    {"shapes": ((2, 6, 3, 4), (2, 4, 7, 6), (6, 2, 3, 2)), "groups": 2, "padding": [0, 0]},
    {"shapes": ((2, 6, 5), (2, 4, 9), (6, 4, 3)), "stride": [2], "padding": [1], "dilation": [1]},
    {"shapes": ((1, 6, 3, 5, 4), (1, 4, 4, 5, 4), (6, 2, 2, 3, 1)), "groups": 2, "stride": [1, 1, 1],
     "padding": [0, 1, 0], "dilation": [1, 1, 1]},
    {"shapes": ((1, 2, 3, 6, 2), (1, 4, 2, 3, 2), (4, 2, 2, 3, 1)), "stride": [1, 2, 1], "padding": [0, 1, 0],
     "dilation": [1, 1, 1], "transposed": True, "output_padding": [0, 1, 0]},
    {"shapes": ((2, 6, 6, 8), (2, 4, 3, 5), (4, 3, 3, 2)), "groups": 2, "transposed": True, "stride": [2, 2],
     "padding": [1, 1], "dilation": [1, 1], "output_padding": [1, 0]},
])
def test_agrees_with_aten(arguments):
    torch = pytest.importorskip("torch")
    arguments = {"stride": [2, 1], "padding": [1, 0], "dilation": [1, 2],
                 "shapes": ((2, 6, 4, 4), (2, 4, 7, 6), (6, 4, 3, 2)), **arguments}
    shapes = arguments.pop("shapes")
    operands = [RNG.standard_normal(shape).astype(np.float32) for shape in shapes]
    count = len(shapes[0]) - 2
    expected = torch.ops.aten.convolution_backward(
        *(torch.from_numpy(array) for array in operands), [shapes[0][1]], arguments["stride"], arguments["padding"],
        arguments["dilation"], arguments.get("transposed", False), arguments.get("output_padding", [0] * count),
        arguments.get("groups", 1), [True] * 3)
    for conformance in ("document", "atlas-a2"):
        for result, theirs in zip(function(*operands, **arguments, conformance=conformance), expected, strict=True):
            np.testing.assert_allclose(result, theirs.numpy(), rtol=2e-5, atol=2e-5)
