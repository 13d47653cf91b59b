"""ascend::ConvolutionBackward in 8-bit formats: who takes them, every code through every gradient, one rounding."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import plain_kernels
import pytest
import rounding_model as model

import convreg
from convreg.calls.binding import bind
from convreg.errors import OpError, OpTypeError
from convreg.formats import FORMATS, format_of

function = convreg.ascend.convolution_backward
spec = function.spec

EIGHT_BIT = ("float8_e4m3fn", "float8_e5m2", "hifloat8")
FLOATS = ("float32", "float16", "bfloat16")
LINE = {"stride": [1], "padding": [1], "dilation": [1]}
SHAPES = (2, 4, 6), (2, 3, 6), (4, 3, 3)
TRANSPOSED = (2, 3, 6), (2, 4, 6), (4, 3, 3)


def drawn(shape, format, seed=0):
    """Numbers of a format around one."""
    values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return convreg.quantize(values, format)


def operands(formats, shapes=SHAPES):
    return [drawn(shape, format, seed) for seed, (shape, format) in enumerate(zip(shapes, formats, strict=True))]


def codes(array):
    return array.view(f"u{array.itemsize}")


def names(results):
    return [None if result is None else format_of(result.dtype).name for result in results]


def sums(arrays, **attributes):
    """The three gradients in float32, unrounded, by the plain loops."""
    wide = [convreg.dequantize(array) for array in arrays]
    plan = bind(spec, wide, {**LINE, **attributes}).plan
    outputs = tuple(np.empty(made.extents, np.float32) for made in plan.outputs)
    spec.run(plan, wide, outputs, plain_kernels, 1)
    return outputs


# Who takes them


@pytest.mark.parametrize("formats", list(itertools.product((*FLOATS, *EIGHT_BIT), repeat=3)))
def test_the_published_table(formats):
    """gradOutput and input also hifloat8 and e4m3fn, weight also hifloat8; no bias gradient of an 8-bit gradOutput."""
    grad_output, data, weight = formats
    arrays = operands(formats)
    mask = [True, True, grad_output in FLOATS]
    if "float8_e5m2" in formats or weight == "float8_e4m3fn":
        with pytest.raises(OpTypeError) as caught:
            function(*arrays, **LINE, output_mask=mask)
        assert (caught.value.rule, caught.value.accepted_by) == ("E05", ("emulation",))
        return
    results = function(*arrays, **LINE, output_mask=mask)
    assert names(results) == [data, weight, grad_output if mask[2] else None]


def test_a_refused_bias_gradient_names_the_ways_out():
    arrays = operands(("hifloat8", "float32", "float32"))
    with pytest.raises(OpTypeError, match=r"output_mask=\[True, True, False\].*output_formats.*'emulation'") as caught:
        function(*arrays, **LINE)
    assert (caught.value.argument, caught.value.rule, caught.value.status) == ("gradBias", "E56", None)
    assert names(function(*arrays, **LINE, output_mask=[True, True, False])) == ["float32", "float32", None]
    results = function(*arrays, **LINE, conformance="emulation", output_formats=["", "", "float32"])
    assert names(results) == ["float32"] * 3


@pytest.mark.parametrize("product", ["atlas-a2", "atlas-910"])
@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("format", EIGHT_BIT)
def test_atlas_refuses(product, place, format):
    formats = ["float16"] * 3
    formats[place] = format
    with pytest.raises(OpTypeError) as caught:
        function(*operands(formats), **LINE, conformance=product)
    assert (caught.value.rule, caught.value.status) == ("E05", 161002)


def test_ascend950_computes_one_gradient():
    arrays = operands(("hifloat8",) * 3, TRANSPOSED)
    call = {**LINE, "transposed": True, "conformance": "ascend950"}
    results = function(*arrays, **call, output_mask=[True, False, False])
    assert names(results) == ["hifloat8", None, None]
    expected = function(*arrays, **{**call, "conformance": "emulation"})[0]
    assert np.array_equal(codes(results[0]), codes(expected))
    for mode in range(4):
        again = function(*arrays, **call, output_mask=[True, False, False], cube_math_type=mode)[0]
        assert np.array_equal(codes(again), codes(expected))


# Values


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("formats", [*itertools.product(EIGHT_BIT, repeat=3), ("bfloat16", "hifloat8", "float8_e5m2"),
                                     ("float8_e4m3fn", "float16", "float32")])
def test_every_mixture_is_the_float32_sum_rounded_once(formats, transposed):
    arrays = operands(formats, TRANSPOSED if transposed else SHAPES)
    results = function(*arrays, **LINE, transposed=transposed, conformance="emulation")
    of = formats[1], formats[2], formats[0]
    assert names(results) == list(of)
    exact = sums(arrays, transposed=transposed)
    for result, format, wide in zip(results, of, exact, strict=True):
        expected = codes(wide) if format == "float32" else model.quantized(wide, format, FORMATS[format].rounding)
        assert np.array_equal(codes(result), expected)
    kept = function(*arrays, **LINE, transposed=transposed, conformance="emulation", output_formats=["float32"] * 3)
    wide_bias = exact[2] if formats[0] in EIGHT_BIT else convreg.quantize(exact[2], formats[0])  # the vendor's rule
    for result, wide in zip(kept, (*exact[:2], convreg.dequantize(wide_bias)), strict=True):
        assert np.array_equal(codes(result), codes(wide))


@pytest.mark.parametrize("format", EIGHT_BIT)
def test_every_code_passes_through_every_gradient(format):
    """NaN, infinities, -0 and subnormals times one are what they were; -0 meets the sum's +0 and becomes +0."""
    every = np.arange(256, dtype=np.uint8).view(FORMATS[format].dtype)
    values = FORMATS[format].values
    one = convreg.quantize(np.ones(1), format)
    call = {"stride": [1], "padding": [0], "dilation": [1], "conformance": "emulation"}
    line = every.reshape(1, 1, 256)
    grad_input = function(line, line, one.reshape(1, 1, 1), **call)[0]
    grad_bias = function(every.reshape(1, 256, 1), one.reshape(1, 1, 1), np.tile(one, (256, 1, 1)), **call)[2]
    grad_weight = function(one.reshape(1, 1, 1), every.reshape(1, 256, 1), np.tile(one, (1, 256, 1)), **call)[1]
    for result in (grad_input, grad_weight, grad_bias):
        got = convreg.dequantize(result).ravel()
        assert np.array_equal(got, values, equal_nan=True)
        assert not np.signbit(got[got == 0]).any()


@pytest.mark.parametrize(("format", "saturated"), [("float8_e4m3fn", 448), ("float8_e5m2", 57344),
                                                   ("hifloat8", 32768)])
def test_overflow(format, saturated):
    large = convreg.quantize(np.full((1, 1, 1), 1e9), format, saturate=True)
    call = {"stride": [1], "padding": [0], "dilation": [1], "conformance": "emulation"}
    for result in function(large, large, large, **call)[:2]:
        assert not np.isfinite(convreg.dequantize(result)).any()
    for result in function(large, large, large, **call, saturate=True):
        assert convreg.dequantize(result).item() == saturated


@pytest.mark.parametrize("rounding", ["nearest_even", "half_away", "toward_zero", "stochastic"])
@pytest.mark.parametrize("saturate", [False, True])
def test_the_last_rounding_is_quantize(rounding, saturate):
    formats = "hifloat8", "float8_e4m3fn", "float8_e5m2"
    arrays = operands(formats)
    chosen = {"rounding": rounding, "saturate": saturate, "seed": 11}
    exact = sums(arrays)
    for threads in (1, 2):
        results = function(*arrays, **LINE, **chosen, conformance="emulation", threads=threads,
                           output_formats=[None, None, "float16"])
        for result, wide, format in zip(results, exact, ("float8_e4m3fn", "float8_e5m2", "float16"), strict=True):
            assert np.array_equal(codes(result), codes(convreg.quantize(wide, format, **chosen)))


def test_rounding_of_wide_operands_is_also_one():
    """A float16 result of float16 operands is rounded from the float32 sum, not from the kernel's float16."""
    arrays = operands(("float16",) * 3)
    results = function(*arrays, **LINE, rounding="toward_zero", conformance="emulation")
    for result, wide in zip(results, sums(arrays), strict=True):
        assert np.array_equal(codes(result), codes(convreg.quantize(wide, "float16", rounding="toward_zero")))


@pytest.mark.parametrize("rounding", [None, "toward_zero", "stochastic"])
@pytest.mark.parametrize("format", ["float32", *EIGHT_BIT])
@pytest.mark.parametrize("kernel", ["float16", "bfloat16"])
def test_another_format_than_the_kernels_is_a_second_rounding(kernel, format, rounding):
    """gradInput and gradBias leave a kernel in the format of 16-bit operands, gradWeight in float32."""
    shapes = (4, 4, 60), (4, 3, 60), (4, 3, 3)
    arrays = operands((kernel,) * 3, shapes)
    chosen = {"rounding": rounding, "seed": 3}
    call = {**LINE, **chosen, "conformance": "emulation", "output_formats": [format] * 3}
    results, exact = function(*arrays, **call), sums(arrays)
    first = convreg.quantize(exact[0], kernel), exact[1], convreg.quantize(exact[2], kernel)
    for result, wide in zip(results, first, strict=True):
        assert np.array_equal(codes(result), codes(convreg.quantize(wide, format, **chosen)))
    assert not np.array_equal(codes(results[0]), codes(convreg.quantize(exact[0], format, **chosen)))
    plain = convreg.aten.convolution_backward(
        *arrays, **call, bias_sizes=[4], transposed=False, output_padding=[0], groups=1, output_mask=[True] * 3)
    for result, wide in zip(plain, exact, strict=True):
        assert np.array_equal(codes(result), codes(convreg.quantize(wide, format, **chosen)))


def test_hybrid_rounding_is_for_hifloat8_results():
    arrays = operands(("hifloat8",) * 3)
    results = function(*arrays, **LINE, rounding="hybrid", conformance="emulation", output_formats=["", "", "float32"])
    for result, wide in zip(results[:2], sums(arrays), strict=False):
        assert np.array_equal(codes(result), codes(convreg.quantize(wide, "hifloat8", rounding="hybrid")))
    with pytest.raises(OpError, match="gradBias in float16") as caught:
        function(*arrays, **LINE, rounding="hybrid", conformance="emulation", output_formats=["", "", "float16"])
    assert caught.value.argument == "rounding"


@pytest.mark.parametrize(("arguments", "argument"), [
    ({"rounding": "up"}, "rounding"), ({"seed": -1}, "seed"), ({"seed": 0.5}, "seed"), ({"saturate": 2}, "saturate"),
    ({"output_formats": ["int8", "", ""]}, "outputFormats"),
])
def test_refused_roundings(arguments, argument):
    with pytest.raises(OpError) as caught:
        function(*operands(("hifloat8",) * 3), **LINE, **arguments, conformance="emulation")
    assert caught.value.argument == argument


def test_roundings_are_for_emulation():
    for arguments in ({"rounding": "half_away"}, {"saturate": True}, {"seed": 1}):
        with pytest.raises(OpTypeError) as caught:
            function(*operands(("float16",) * 3), **LINE, **arguments)
        assert caught.value.accepted_by == ("emulation",)


def test_given_outputs_of_an_8_bit_format_take_any_strides():
    arrays = operands(("hifloat8",) * 3)
    plain = function(*arrays, **LINE, conformance="emulation")
    for chosen in ({}, {"saturate": True}):
        out = tuple(np.zeros((*result.shape[:-1], 2 * result.shape[-1]), np.uint8).view(convreg.hifloat8)[..., ::-2]
                    for result in plain)
        results = function(*arrays, **LINE, **chosen, conformance="emulation", out=out)
        for result, given, expected in zip(results, out, plain, strict=True):
            assert result is given
            assert np.array_equal(codes(np.ascontiguousarray(given)), codes(expected))


def test_strided_operands():
    arrays = operands(("hifloat8", "float8_e5m2", "hifloat8"))
    twice = [np.repeat(array, 2, axis=-1)[..., ::2] for array in arrays]
    for result, expected in zip(function(*twice, **LINE, conformance="emulation"),
                                function(*arrays, **LINE, conformance="emulation"), strict=True):
        assert np.array_equal(codes(result), codes(expected))


def test_cube_math_type_rounds_only_what_is_wider():
    """HF32 and float16 hold every 8-bit number: operands of 8 bits beside a float32 one stay, the latter is rounded."""
    arrays = operands(("float8_e4m3fn", "hifloat8", "float32"))
    rounded = [*arrays[:2], convreg.quantize(arrays[2], "hf32")]
    got = function(*arrays, **LINE, cube_math_type=3, conformance="emulation")
    expected = function(*rounded, **LINE, conformance="emulation")
    assert np.array_equal(codes(got[0]), codes(expected[0]))
    narrow = operands(("float8_e4m3fn",) * 3)
    for mode in range(4):
        for got, expected in zip(function(*narrow, **LINE, cube_math_type=mode, conformance="emulation"),
                                 function(*narrow, **LINE, conformance="emulation"), strict=True):
            assert np.array_equal(codes(got), codes(expected))


def test_the_reference_reads_codes_as_numbers():
    arrays = operands(("hifloat8", "float8_e4m3fn", "float8_e5m2"))
    wide = [convreg.dequantize(array, dtype=np.float64) for array in arrays]
    got = function.reference(*arrays, **LINE, conformance="emulation")
    expected = function.reference(*(array.astype(np.float32) for array in wide), **LINE, conformance="emulation")
    for result, exact in zip(got, expected, strict=True):
        assert result.dtype == np.float64
        assert np.array_equal(result, exact)


def test_foreign_hifloat8_arrays():
    en_dtypes = pytest.importorskip("en_dtypes")
    arrays = operands(("hifloat8",) * 3)
    foreign = [array.view(np.uint8).view(en_dtypes.hifloat8) for array in arrays]
    for result, expected in zip(function(*foreign, **LINE, conformance="emulation"),
                                function(*arrays, **LINE, conformance="emulation"), strict=True):
        assert np.array_equal(codes(result), codes(expected))


def test_ml_dtypes_arrays_come_back_as_ml_dtypes_arrays():
    results = function(*operands(("float8_e5m2",) * 3), **LINE, conformance="emulation")
    assert {result.dtype for result in results} == {np.dtype(ml_dtypes.float8_e5m2)}
