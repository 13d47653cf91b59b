"""The exact result and the error that rounding can make, against loops over single elements."""

from __future__ import annotations

import sys
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from drawn import Drawn, convolutions, normal
from golden_problems import golden_of
from gradient_calls import GradientCall, forward, single, together
from hypothesis import given, settings

import convreg
from convreg import OpError, registry
from convreg.golden import Golden, analysis, compare, ranks
from convreg.golden.arithmetic import Arithmetic

CASE = Drawn(2, (2, 1), (1, 2), (1, 2), (1, 2), (2, 4, 6, 5), (2, 6, 3, 5), (6, 2, 4, 3))


def rng():
    return np.random.default_rng(3)


def make(shape):
    return normal(rng(), shape)


def within(golden: Golden, **choices) -> None:
    report = compare(golden, golden.outputs, **choices)
    assert report, report


def loops(case: Drawn, large, small, weights):
    """Every product of a convolution: indices of the large side, the small side and the weights."""
    cg, mg = case.large[1] // case.groups, case.small[1] // case.groups
    for n, g, m, c in product(range(case.large[0]), range(case.groups), range(mg), range(cg)):
        for y in np.ndindex(*case.small[2:]):
            for t in np.ndindex(*case.weights[2:]):
                x = tuple(p * s - b + k * d for p, s, b, k, d in zip(
                    y, case.stride, case.begin, t, case.dilation, strict=True))
                if all(0 <= p < extent for p, extent in zip(x, case.large[2:], strict=True)):
                    yield (n, g * cg + c, *x), (n, g * mg + m, *y), (g * mg + m, c, *t)


@settings(max_examples=15)
@given(case=convolutions(axes=(1, 2), max_batch=2))
def test_sums_magnitudes_and_terms_are_those_of_single_products(case):
    calls = {call.name: call for call in single(case, make, ("NCX", "OIX"))}
    data, weights = calls["onednn::ConvolutionBackwardData"], calls["onednn::ConvolutionBackwardWeights"]
    (dy, w), (x, _) = data.tensors, weights.tensors
    for call, left, right, place in ((data, dy, w, 0), (weights, x, dy, 2)):
        found = next(iter(analysis.analyse(golden_of(call)).values()))
        s, magnitude, n = (np.zeros(found.shape) for _ in range(3))
        for large, small, taps in loops(case, x, dy, w):
            index = (large, small, taps)[place]
            a, b = (left[small], right[taps]) if place == 0 else (left[large], right[small])
            s[index] += float(a) * float(b)
            magnitude[index] += abs(float(a) * float(b))
            n[index] += 1
        np.testing.assert_allclose(found.reference.reshape(found.shape), s, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(found.magnitude.reshape(found.shape), magnitude, rtol=1e-12)
        np.testing.assert_array_equal(found.terms.reshape(found.shape), n)


def test_the_bound_is_at_least_that_of_the_theory_and_hardly_more():
    golden = golden_of(single(CASE, make)[0])
    found = next(iter(golden.analysis.values()))
    u = Fraction(1, 2**24)
    for n, magnitude, error in zip(found.terms.tolist(), found.magnitude.tolist(), found.error().tolist(), strict=True):
        n = int(n)
        least = ((1 + u)**n - 1) * Fraction(magnitude)
        gamma = n * u / (1 - n * u) * Fraction(magnitude)
        assert least <= Fraction(error) <= gamma * (1 + Fraction(1, 2**20)) + Fraction(1, 2**140)


def test_reference_and_bound_are_of_the_output_s_shape_and_hold():
    golden = golden_of(single(CASE, make)[1])
    for name, output in golden.outputs.items():
        reference, bound = golden.reference[name], golden.bound[name]
        assert reference.shape == bound.shape == output.shape
        assert (np.abs(output - reference) <= bound).all()
        assert golden.bound is golden.bound


SYMMETRIC = Drawn(1, (1, 1), (1, 1), (1, 1), (1, 1), (2, 3, 5, 4), (2, 4, 5, 4), (4, 3, 3, 3))


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("mask", [(True, True, True), (False, True, False), (False, False, True)])
def test_masked_outputs_and_bias_gradients(transposed, mask):
    for call in together(SYMMETRIC, make, mask, transposed)[:2]:
        arguments = dict(call.arguments)
        if call.name.startswith("ascend"):
            arguments["bias_sizes"] = None
        golden = golden_of(call._replace(arguments=arguments))
        assert set(golden.reference) == set(golden.outputs)
        within(golden)
    bias = [name for name in golden.outputs if name.endswith("ias")]
    for name in bias:
        found = golden.analysis[name]
        assert not found.products
        assert (found.terms == 2 * 5 * 4).all()
        sums = found.error() / found.magnitude
        assert (sums < 39.5 * 2.0**-24).all()  # one rounding fewer than terms


@pytest.mark.parametrize(("conformance", "mode"), [
    ("ascend950", 1), ("ascend950", 3), ("atlas-a2", 1), ("atlas-910", 1), ("ascend950", 2), (None, 1), (None, 2)])
def test_operands_that_the_operator_rounds_are_rounded_in_the_reference(conformance, mode):
    call = together(SYMMETRIC, make, (True, True, True), False)[1]
    arguments = {**call.arguments, "cube_math_type": mode, "bias_sizes": None}
    if conformance:
        arguments["conformance"] = conformance
    golden = golden_of(call._replace(arguments=arguments))
    within(golden)
    dy, x, w = call.tensors
    dropped = 10 if conformance == "ascend950" else 11
    if mode == 2 or conformance == "atlas-910":
        dy, w = (convreg.dequantize(convreg.quantize(array, "float16")) for array in (dy, w))
    else:
        dy, w = (round_to(array, dropped) for array in (dy, w))
    plain = convreg.ascend.convolution_backward.reference(dy, x, w, **{**call.arguments, "bias_sizes": None})
    np.testing.assert_allclose(golden.reference["gradInput"], plain[0], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(golden.reference["gradBias"], call.tensors[0].sum((0, 2, 3), np.float64), rtol=1e-9)
    unrounded = convreg.ascend.convolution_backward(*call.tensors, **{**call.arguments, "bias_sizes": None})[0]
    assert not compare(golden, {**golden.outputs, "gradInput": unrounded})


def round_to(array, kept):
    mantissa, exponent = np.frexp(array.astype(np.float64))
    scaled = np.ldexp(mantissa, kept + 1)
    return np.ldexp(np.copysign(np.floor(np.abs(scaled) + 0.5), scaled), exponent - kept - 1).astype(np.float32)


def test_a_bias_is_a_term_and_all_that_is_left_where_there_are_no_products():
    lonely = replace(CASE, begin=(8, 2), end=(8, 2), small=(2, 6, 10, 5))
    for call in forward(lonely, make):
        golden = golden_of(call)
        within(golden)
        found = next(iter(golden.analysis.values()))
        empty = found.terms == 0
        if empty.any():
            assert (found.error()[empty] == 0).all()
            wrong = {name: array + np.float32(1e-6) for name, array in golden.outputs.items()}
            assert not compare(golden, wrong)
    assert empty.any() or (golden_of(forward(lonely, make)[0]).analysis["dst"].terms == 0).any()


@pytest.mark.parametrize("format", ["float32", "bfloat16", "float16", "hifloat8"])
def test_integers_leave_one_result(format):
    call = single(CASE, lambda shape: convreg.quantize(rng().integers(-4, 5, shape).astype(np.float32), format),
                  ("NCX", "OIX"))[0]
    if format == "hifloat8":
        call = call._replace(arguments={**call.arguments, "conformance": "emulation", "output_format": "float32"})
    golden = golden_of(call)
    found = golden.analysis["diff_src"]
    assert (found.error() == 0).all()
    ends = replace(found, arithmetic=Arithmetic(ties="rule")).ends()
    np.testing.assert_array_equal(ends.low, ends.high)
    np.testing.assert_array_equal(ends.low, ranks.ranks(golden.outputs["diff_src"].ravel(), found.format))


def test_a_tie_may_go_either_way_unless_the_rule_is_asked_for():
    dy, w = np.float32([[[1 + 2.0**-9]]]), np.float32([[[1 + 2.0**-9]]])  # (1 + 2**-9)**2 is no tie
    tie = np.array([[[257]]], np.float32)  # between 256 and 258 in bfloat16
    arguments = {"strides": [1], "pads_begin": [0], "pads_end": [0], "dilations": [1], "dst_shape": [1, 1, 1],
                 "data_format": "NCX", "weights_format": "OIX", "conformance": "emulation",
                 "output_format": "bfloat16"}
    golden = golden_of(GradientCall("onednn::ConvolutionBackwardData", (tie, np.ones_like(w)), arguments))
    for value in (256, 258):
        assert compare(golden, convreg.quantize(np.full((1, 1, 1), value, np.float32), "bfloat16"))
    below = convreg.quantize(np.full((1, 1, 1), 258, np.float32), "bfloat16")
    assert not compare(golden, below, ties="rule")
    golden = golden_of(GradientCall("onednn::ConvolutionBackwardData", (dy, w), arguments))
    assert golden.analysis["diff_src"].ends().low == golden.analysis["diff_src"].ends().high


@pytest.mark.parametrize("output", ["float32", "float16", "bfloat16", "hifloat8", "float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("choice", [{}, {"saturate": True}, {"rounding": "toward_zero"}, {"rounding": "half_away"},
                                    {"rounding": "stochastic", "seed": 5}])
def test_roundings_of_results_are_those_of_the_call(output, choice):
    call = single(CASE, lambda shape: make(shape) * 7)[0]
    within(golden_of(call._replace(arguments={
        **call.arguments, **choice, "conformance": "emulation", "output_format": output})))


def test_hybrid_rounding_may_go_either_way():
    call = single(CASE, lambda shape: make(shape) * 7)[0]
    within(golden_of(call._replace(arguments={
        **call.arguments, "rounding": "hybrid", "conformance": "emulation", "output_format": "hifloat8"})))


@pytest.mark.parametrize("powers", [True, False])
def test_scales_cost_one_rounding_each_unless_they_are_powers_of_two(powers):
    call = single(CASE, make, ("NCX", "OIX"))[0]
    one, many = (np.float32(0.5), 2.0**np.arange(-3, 3)) if powers else (np.float32(0.7), np.linspace(0.3, 3, 6))
    dy, w = call.tensors
    golden = golden_of(call._replace(arguments={
        **call.arguments, "conformance": "emulation", "scales": (one, np.float32(many))}))
    assert golden.analysis["diff_src"].factors == (0 if powers else 2)
    within(golden)
    scaled = golden_of(call._replace(tensors=(dy * one, w * np.float32(many).reshape(-1, 1, 1, 1))))
    assert compare(golden, scaled.outputs)  # a kernel that scales both operands first


@pytest.mark.parametrize("format", ["float32", "hifloat8", "float8_e4m3fn"])
@pytest.mark.parametrize("scales", [
    (2.0, None), (None, 2.0**-3), (np.float32([2, 4, 0.5, 1]), 4.0), (1.0, np.float32([1, 2, 4, 8]))])
def test_sums_of_integers_are_exact_under_scales_that_are_powers_of_two(format, scales):
    call = single(CASE, lambda shape: convreg.quantize(rng().integers(-4, 5, shape).astype(np.float32), format),
                  ("NCX", "OIX"))[0]
    channels = CASE.small[1]
    scales = [None if each is None else np.float32(np.resize(each, channels) if np.ndim(each) else each)
              for each in scales]
    golden = golden_of(call._replace(arguments={
        **call.arguments, "conformance": "emulation", "output_format": "float32", "scales": scales}))
    assert golden.analysis["diff_src"].error().max() == 0
    within(golden)
    result = golden.outputs["diff_src"]
    assert not compare(golden, np.nextafter(result, np.float32(np.inf)))


@pytest.mark.parametrize(("dy", "w", "scale"), [
    (3 * 2.0**-76, 2.0**-75, 2.0**10), (1e30, 1e20, 2.0**-60), (1e30, 1e20, 1e-18), (2.0**100, 2.0**100, 2.0**-90)])
def test_sums_underflow_and_overflow_before_they_are_scaled(dy, w, scale):
    golden = convreg.golden.make(
        "onednn::ConvolutionBackwardData", [np.full((1, 2, 4), dy, np.float32), np.full((2, 3, 1), w, np.float32),
                                            [1, 3, 4]], strides=[1], pads_begin=[0], pads_end=[0], dilations=[1],
        data_format="NCX", weights_format="OIX", conformance="emulation", scales=[scale, None])
    within(golden)
    scaled_first = np.full((1, 3, 4), 2 * (np.float64(dy) * scale) * w, np.float32)
    assert compare(golden, scaled_first)


def test_conversions_have_no_error():
    x = normal(rng(), (40,)) * 100
    function = convreg.get("nodes::Quantize")
    for choice in ({}, {"format": "bfloat16"}, {"saturate": True}, {"rounding": "hybrid"}):
        golden = Golden("", "nodes::Quantize", choice, None, {"x": x}, {"y": function(x, **choice)})
        within(golden)
        codes = golden.outputs["y"].view(f"u{golden.outputs['y'].itemsize}").copy()
        codes[7] ^= 1
        assert compare(golden, codes).outputs["y"].wrong == 1
    golden = Golden("", "nodes::Quantize", {"rounding": "stochastic"}, None, {"x": x},
                    {"y": function(x, rounding="stochastic", seed=1)})
    within(golden)
    assert compare(golden, function(x, rounding="stochastic", seed=2))
    assert not compare(golden, function(2 * x))
    codes = function(x)
    made = convreg.get("nodes::Dequantize")(codes, np.float32(0.3))
    golden = Golden("", "nodes::Dequantize", {}, None, {"x": codes, "scale": np.float32(0.3)}, {"y": made})
    within(golden)
    assert not compare(golden, np.nextafter(made, np.float32(np.inf)))


def one_by_one(dy, w, **more):
    arguments = {"strides": [1], "pads_begin": [0], "pads_end": [0], "dilations": [1], "data_format": "NCX",
                 "weights_format": "OIX", "dst_shape": [dy.shape[0], w.shape[1], dy.shape[2]], **more}
    return golden_of(GradientCall("onednn::ConvolutionBackwardData", (dy, w), arguments))


def test_narrower_accumulators_and_parts_are_judged_by_their_own_error():
    dy, w = normal(rng(), (1, 64, 9)), normal(rng(), (64, 2, 1))
    golden = one_by_one(dy, w)
    for format in ("bfloat16", "float16"):
        sums = np.zeros((1, 2, 9), np.float32)
        for channel in range(64):
            sums = rounded(sums + dy[:, channel:channel + 1] * w[channel].reshape(1, 2, 1), format)
        assert not compare(golden, sums)
        assert compare(golden, sums, accumulator=format)
        halves = [sum_of(dy, w, range(start, start + 16)) for start in (0, 16, 32, 48)]
        whole = halves[0]
        for half in halves[1:]:
            whole = rounded(whole + rounded(half, format), format)
        assert not compare(golden, whole)
        assert compare(golden, whole, parts=(format, 7))
    first = {name: convreg.quantize(array, "hf32") for name, array in (("dy", dy), ("w", w))}
    other = one_by_one(first["dy"], first["w"]).outputs
    assert not compare(golden, other)
    assert compare(golden, other, operands="hf32")
    assert compare(golden, other, operands=2.0**-12)
    assert not compare(golden, other, operands="float16")


def rounded(values, format):
    return convreg.dequantize(convreg.quantize(values, format))


def sum_of(dy, w, channels):
    return sum(dy[:, channel:channel + 1] * w[channel].reshape(1, 2, 1) for channel in channels)


def test_flushing_to_zero_is_an_option():
    dy = (normal(rng(), (1, 8, 9)) * 2.0**-70).astype(np.float32)
    w = (normal(rng(), (8, 2, 1)) * 2.0**-58).astype(np.float32)
    w[3] = 2.0**-130
    golden = one_by_one(dy, w)
    flushed = np.zeros((1, 2, 9), np.float32)
    normal_w = np.where(np.abs(w) < 2.0**-126, 0, w)
    for channel in range(8):
        product_ = dy[:, channel:channel + 1] * normal_w[channel].reshape(1, 2, 1)
        flushed += np.where(np.abs(product_) < 2.0**-126, 0, product_)
        flushed[np.abs(flushed) < 2.0**-126] = 0
    assert not compare(golden, flushed)
    assert compare(golden, flushed, flush_to_zero=True)
    within(golden)


def test_float64_is_judged_by_its_own_accumulator():
    dy, x, w = (rng().standard_normal(shape) for shape in (SYMMETRIC.small, SYMMETRIC.large, SYMMETRIC.weights))
    call = together(SYMMETRIC, make, (True, True, True), False)[0]
    golden = golden_of(call._replace(tensors=(dy, x, w)))
    within(golden)
    assert not compare(golden, {name: array * (1 + 1e-13) for name, array in golden.outputs.items()})


def test_partial_sums_that_may_overflow_may_be_infinite_or_nan():
    dy = np.float32([[[3e38], [3e38], [-3e38], [-3e38]]]).reshape(1, 4, 1)
    golden = one_by_one(dy, np.ones((4, 1, 1), np.float32))
    for value in (0, np.inf, -np.inf, np.nan):
        assert compare(golden, np.full((1, 1, 1), value, np.float32))
    assert np.isinf(golden.bound["diff_src"]).all()
    golden = one_by_one(np.abs(dy), np.ones((4, 1, 1), np.float32))
    assert compare(golden, np.full((1, 1, 1), np.inf, np.float32))
    for value in (np.nan, 3e38, -np.inf):
        assert not compare(golden, np.full((1, 1, 1), value, np.float32))


def test_an_infinite_operand_beside_sums_that_overflow_may_give_nan():
    dy = np.float32([-3e38, -3e38, np.inf]).reshape(1, 3, 1)
    w = np.ones((3, 1, 1), np.float32)
    golden = one_by_one(dy, w)
    within(golden)
    for value in (np.inf, np.nan):  # of which the order of the sum decides
        assert compare(golden, np.full((1, 1, 1), value, np.float32))
    for value in (-np.inf, 3e38):
        assert not compare(golden, np.full((1, 1, 1), value, np.float32))
    within(one_by_one(dy, w, conformance="emulation", output_format="hifloat8", saturate=True))
    assert not compare(one_by_one(dy, w / 8), np.full((1, 1, 1), np.nan, np.float32))


@pytest.mark.parametrize(("format", "code"), [("float16", 0x7c01), ("bfloat16", 0x7f81), ("float8_e5m2", 0x7d)])
def test_signalling_nan_among_the_operands(format, code):
    dy, w = (convreg.quantize(np.ones(shape), format) for shape in ((1, 1, 3), (1, 1, 1)))
    dy.view(f"u{dy.itemsize}")[0, 0, 1] = code
    within(one_by_one(dy, w, conformance="emulation"))


def test_operators_without_roles_are_refused(monkeypatch):
    spec = convreg.get("onednn::ConvolutionBackwardData").spec
    monkeypatch.setattr(registry, "_operators", {name: dict(found) for name, found in registry._operators.items()})
    convreg.register(replace(spec, vendor="acme", inputs=tuple(replace(port, role="") for port in spec.inputs),
                             outputs=tuple(replace(port, role="") for port in spec.outputs)))
    call = single(CASE, make)[0]
    try:
        golden = golden_of(call._replace(name="acme::ConvolutionBackwardData"))
        with pytest.raises(OpError, match="roles, which diff_src lacks"):
            _ = golden.bound
    finally:
        del sys.modules["convreg.acme"], convreg.acme


def test_plug_ins_with_roles_are_analysed(monkeypatch):
    spec = convreg.get("onednn::ConvolutionBackwardData").spec
    monkeypatch.setattr(registry, "_operators", {name: dict(found) for name, found in registry._operators.items()})
    convreg.register(replace(spec, vendor="acme"))
    try:
        call = single(CASE, make, ("NCX", "OIX"))[0]
        within(golden_of(call._replace(name="acme::ConvolutionBackwardData")))
    finally:
        del sys.modules["convreg.acme"], convreg.acme


def test_every_operator_is_within_its_own_bound():
    for layouts in (("NCX", "OIX"), ("NXC", "XIO")):
        for call in [*single(CASE, make, layouts), *forward(CASE, make), *together(
                SYMMETRIC, make, (True, True, True), False)]:
            within(golden_of(call))


def test_memory_is_bounded(monkeypatch):
    golden = golden_of(single(CASE, make, ("NCX", "OIX"))[0])
    monkeypatch.setenv("CONVREG_MAX_BYTES", "5000")
    with pytest.raises(OpError, match="CONVREG_MAX_BYTES"):
        _ = golden.reference
