"""Scales of operands under conformance "emulation", per tensor and per channel."""

from __future__ import annotations

import numpy as np
import pytest
from drawn_scales import drawn_scales
from emulated_calls import (
    EIGHT_BIT,
    EMULATED,
    emulated_calls,
    float32,
    formats_argument,
    line,
    run,
    same,
    several,
    wide,
)
from hypothesis import given, settings
from hypothesis import strategies as st

import convreg
import convreg.onnx


@settings(max_examples=250)
@given(emulated_calls(formats=EIGHT_BIT, special=False), st.data())
def test_scales_that_are_powers_of_two_equal_scaled_operands(call, data):
    """In every operator, layout and grouping, any mixture of scales per tensor and per channel is exact."""
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    scales, operands = drawn_scales(call, rng, lambda _: data.draw(st.sampled_from(["none", "tensor", "channel"])))
    expected = float32(call._replace(tensors=tuple(operands)))
    for result, exact in zip(run(call, scales=scales, **formats_argument(call.name, "float32")), expected, strict=True):
        assert np.array_equal(result, exact)
    reference = several(convreg.get(call.name).reference(*call.tensors, **call.arguments, scales=scales))
    for result, exact in zip(reference, expected, strict=True):
        np.testing.assert_allclose(result, exact, rtol=1e-4, atol=1e-4)


def test_where_scales_are_applied():
    """Kept channels after the float32 sum, summed ones before the products, each rounded to float32 once."""
    rng = np.random.default_rng(11)
    call = line("aten::convolution_backward", ("float8_e5m2", "float8_e4m3fn", "hifloat8"), rng.standard_normal)
    a, b, c = (rng.uniform(0.5, 2, count).astype(np.float32) for count in (6, 4, 6))
    plain, bare = run(call, output_formats=["float32"] * 3), call.tensors
    results = run(call, scales=(a, b, c), output_formats=["float32"] * 3)
    dy, w = wide(bare[0]) * a.reshape(1, 6, 1), wide(bare[2]) * c.reshape(6, 1, 1)
    same(results[0], run(call._replace(tensors=(dy, bare[1], w)), output_formats=["float32"] * 3)[0])
    beside = a.astype(float).reshape(6, 1, 1) * np.repeat(b.astype(float).reshape(2, 2), 3, 0).reshape(6, 2, 1)
    same(results[1], (plain[1] * beside).astype(np.float32))
    same(results[2], (plain[2].astype(float) * a).astype(np.float32))
    whole = run(call, scales=(np.float32(0.3), None, [0.7]), output_formats=["float32"] * 3)
    same(whole[0], (plain[0].astype(float) * np.float32(0.3).item() * np.float32(0.7).item()).astype(np.float32))


@pytest.mark.parametrize("name", EMULATED)
@pytest.mark.parametrize("format", ["float16", *EIGHT_BIT])
def test_a_scaled_sum_is_rounded_like_any_other(name, format):
    rng = np.random.default_rng(4)
    call = line(name, ("float8_e5m2", "hifloat8", "float8_e4m3fn"), rng.standard_normal)
    count = len(convreg.get(name).spec.scale_ports)
    scales = tuple(rng.uniform(0.1, 3, 1).astype(np.float32) for _ in range(count))
    exact = run(call, scales=scales, **formats_argument(name, "float32"))
    for chosen in ({}, {"rounding": "stochastic", "seed": 5}, {"saturate": True}):
        for result, sums in zip(run(call, scales=scales, **formats_argument(name, format), **chosen), exact,
                                strict=True):
            same(result, convreg.quantize(sums, format, **chosen))


@pytest.mark.parametrize("name", ["onednn::Convolution", "onednn::ConvTranspose"])
def test_a_bias_is_scaled_and_added_after_the_scaled_sum(name):
    rng = np.random.default_rng(6)
    call = line(name, ("hifloat8", "hifloat8", "float8_e5m2"), rng.standard_normal)
    sums = run(call._replace(tensors=call.tensors[:2]), output_format="float32")[0]
    scale, own = np.float32(0.37), np.float32(1.9)
    bias = (wide(call.tensors[2]) * own).reshape(1, -1, 1)
    got = run(call, scales=(scale, None, own), output_format="float32")[0]
    same(got, (sums.astype(float) * scale.item()).astype(np.float32) + bias)


def test_scales_and_operand_roundings_of_ascend():
    """cubeMathType rounds what is stored; the scale comes after it."""
    rng = np.random.default_rng(8)
    call = line("ascend::ConvolutionBackward", ("float32", "float32", "float32"), rng.standard_normal)
    rounded = call._replace(tensors=tuple(convreg.quantize(array, "hf32") for array in call.tensors))
    scales = (np.float32(0.3), np.float32(0.7), rng.uniform(0.5, 2, 6).astype(np.float32))
    for result, expected in zip(run(call, scales=scales, cube_math_type=3)[:2], run(rounded, scales=scales)[:2],
                                strict=True):
        same(result, expected)
