"""Conformance "emulation": any formats at operands, chosen ones for results, in every operator; what it refuses."""

from __future__ import annotations

import itertools

import numpy as np
import plain_kernels
import pytest
from emulated_calls import (
    CASE,
    EIGHT_BIT,
    EMULATED,
    NAMES,
    SIX,
    codes,
    emulated_calls,
    float32,
    formats_argument,
    line,
    run,
    same,
    several,
    sources,
    wide,
)
from hypothesis import given, settings

import convreg
import convreg.onnx
from convreg.calls.binding import bind
from convreg.calls.signature import reader_of
from convreg.errors import OpError, OpTypeError
from convreg.formats import FORMATS, format_of


@settings(max_examples=150)
@given(emulated_calls(NAMES))
def test_a_result_is_the_float32_result_of_the_decoded_operands(call):
    """Products of narrow numbers are exact, so wide operands make no difference; NaN, infinities, -0 flow alike."""
    expected = float32(call)
    for result, exact in zip(run(call, **formats_argument(call.name, "float32")), expected, strict=True):
        same(result, exact)
    for result, exact, place in zip(run(call), expected, sources(call.name), strict=True):
        format = format_of(call.tensors[place].dtype).name
        same(result, convreg.quantize(exact, format))


@pytest.mark.parametrize("formats", [*[(name,) * 3 for name in SIX], *itertools.permutations(EIGHT_BIT)])
@pytest.mark.parametrize("name", EMULATED)
def test_threads_strides_and_plain_loops(name, formats):
    """The same bits on any number of threads, into outputs of any strides, and by the kernels that define them."""
    rng = np.random.default_rng(5)
    call = line(name, formats, rng.standard_normal)
    expected = run(call, threads=1)
    for result, plain in zip(run(call, threads=3), expected, strict=True):
        same(result, plain)
    out = tuple(np.zeros((*plain.shape, 2), codes(plain).dtype).view(plain.dtype)[..., ::-1, 0] for plain in expected)
    for result, target, plain in zip(run(call, out=out if len(out) > 1 else out[0]), out, expected, strict=True):
        assert result is target
        same(np.ascontiguousarray(result), plain)
    operator = convreg.get(name)
    tensors, attributes, conformance, _, _ = reader_of(operator.spec)(call.tensors, dict(call.arguments))
    bound = bind(operator.spec, tensors, attributes, conformance=conformance)
    referee = tuple(np.empty(plain.shape, plain.dtype) for plain in expected)
    mixed = len({array.dtype for array in call.tensors}) > 1  # which the plain loops leave to others to decode
    inputs = [wide(array) if mixed and array is not None else array for array in bound.inputs]
    operator.spec.run(bound.plan, inputs, referee, plain_kernels, 1)
    for result, plain in zip(referee, expected, strict=True):
        same(result, plain)


@pytest.mark.parametrize("name", EMULATED)
@pytest.mark.parametrize("format", EIGHT_BIT)
def test_overflow_and_the_chosen_rounding(name, format):
    """`rounding`, `saturate` and `seed` are those of `convreg.quantize`, in the result's own order of elements."""
    call = line(name, (format,) * 3, lambda shape: np.random.default_rng(1).standard_normal(shape) * 40)
    exact = run(call, **formats_argument(name, "float32"))
    for chosen in ({"rounding": "toward_zero"}, {"rounding": "stochastic", "seed": 3}, {"saturate": True},
                   {"rounding": "half_away", "saturate": True}):
        for result, sums in zip(run(call, **chosen), exact, strict=True):
            same(result, convreg.quantize(sums, format, **chosen))
    large = call._replace(tensors=tuple(convreg.quantize(np.full(array.shape, 1e9), format, saturate=True)
                                        for array in call.tensors))
    for saturate in (False, True):
        for result in run(large, saturate=saturate):
            assert (np.abs(wide(result)) == FORMATS[format].largest).any() == saturate


def test_stochastic_rounding_numbers_elements_in_the_order_of_the_result():
    rng = np.random.default_rng(3)
    dy, w = rng.standard_normal((2, 5, 6)).astype("f4"), rng.standard_normal((3, 4, 6)).astype("f4")
    call = {"strides": [1], "pads_begin": [1], "pads_end": [1], "dilations": [1], "conformance": "emulation"}
    exact = convreg.onednn.convolution_backward_data(dy, w, [2, 5, 4], **call)
    chosen = {"rounding": "stochastic", "seed": 9}
    result = convreg.onednn.convolution_backward_data(dy, w, [2, 5, 4], **call, **chosen, output_format="hifloat8")
    same(result, convreg.quantize(exact, "hifloat8", **chosen))


@pytest.mark.parametrize("name", EMULATED)
def test_the_reference_rounds_nothing(name):
    call = line(name, ("hifloat8", "float8_e5m2", "float8_e4m3fn"), np.random.default_rng(2).standard_normal)
    operator = convreg.get(name)
    results = several(operator.reference(*call.tensors, **call.arguments, saturate=True))
    exact = several(operator.reference(*map(wide, call.tensors), **call.arguments))
    for result, expected in zip(results, exact, strict=True):
        assert result.dtype == np.float64
        assert np.array_equal(result, expected)


def test_geometry_is_that_of_the_default_rule():
    """SAME pads, spellings and orders of weights as under the operator's first conformance, not another one's."""
    rng = np.random.default_rng(7)
    lists = {"strides": [2], "pads_begin": [0], "pads_end": [0], "dilations": [1], "data_format": "NCX"}
    dy, w = rng.standard_normal((1, 2, 3)).astype("f4"), rng.standard_normal((2, 1, 3)).astype("f4")
    same_pads = {**lists, "weights_format": "OIX", "dst_shape": [1, 1, 6]}
    document, emulation = (convreg.onednn.convolution_backward_data(
        dy, w, **same_pads, auto_pad="Same_Upper", conformance=name) for name in ("document", "emulation"))
    library = convreg.onednn.convolution_backward_data(dy, w, **same_pads, auto_pad="SAME_UPPER", conformance="library")
    same(emulation, document)
    assert not np.array_equal(emulation, library)
    x, page_order = rng.standard_normal((1, 6, 5)).astype("f4"), rng.standard_normal((2, 6, 2)).astype("f4")
    document, emulation = (convreg.onednn.conv_transpose_backward_data(
        x, page_order, **lists, weights_format="IOX", groups=3, output_padding=[1], conformance=name)
        for name in ("document", "emulation"))
    same(emulation, document)
    window = {"strides": [1], "pads_begin": [0], "pads_end": [-2], "dilations": [1]}  # legal in the runtime alone
    grouped = dy, w.reshape(2, 1, 1, 3)
    same(convreg.openvino.group_convolution_backprop_data(*grouped, **window, conformance="emulation"),
         convreg.openvino.group_convolution_backprop_data(*grouped, **window))


# Refusals


@pytest.mark.parametrize("name", NAMES)
def test_other_conformances_refuse_and_say_who_would_not(name):
    operator = convreg.get(name)
    narrow = line(name, ("hifloat8",) * 3)
    plain = line(name)
    for conformance in operator.spec.conformances[:-1]:
        for call, more in ((narrow, {}), (plain, {"saturate": True}), (plain, {"rounding": "half_away"}),
                           (plain, {"scales": (np.float32(2), *[None] * (len(operator.spec.scale_ports) - 1))}),
                           (plain, formats_argument(name, "float16")), (plain, {"seed": 1})):
            with pytest.raises(OpTypeError) as caught:
                run(call, **{**more, "conformance": conformance})
            assert caught.value.accepted_by == ("emulation",)
            assert "accepted under conformance='emulation'" in str(caught.value)
    mixed = line(name, ("float32", "float16", "float32"))
    with pytest.raises(OpTypeError) as caught:
        run(mixed, conformance=operator.spec.conformances[0])
    assert caught.value.accepted_by == ("emulation",)


def test_what_the_default_rule_refuses_emulation_refuses_alike():
    call = line("onednn::ConvolutionBackwardData")
    for conformance in ("document", "emulation"):
        with pytest.raises(OpError) as caught:
            run(call, strides=[0], conformance=conformance)
        assert (caught.value.rule, caught.value.accepted_by) == ("R29", ())


@pytest.mark.parametrize(("scale", "value", "kind"), [
    (np.float32(0), 0, OpError), (-1.5, -1.5, OpError), (np.float32("nan"), None, OpError), (1e39, np.inf, OpError),
    (np.ones(5, np.float32), [5], OpError), (np.ones((6, 1), np.float32), [6, 1], OpError),
    (np.float64(1), "float64", OpTypeError), ("big", None, OpTypeError),
    (np.ones(6, np.float16), "float16", OpTypeError),
])
@pytest.mark.parametrize("name", ["onednn::ConvolutionBackwardData", "ascend::ConvolutionBackward"])
def test_refused_scales(name, scale, value, kind):
    call = line(name, ("hifloat8",) * 3)
    spec = convreg.get(name).spec
    with pytest.raises(kind) as caught:
        run(call, scales=(scale, *[None] * (len(spec.scale_ports) - 1)))
    error = caught.value
    assert (error.op, error.argument) == (name, spec.scale_ports[0].name)
    assert value is None or error.value == value
    assert error.allowed


def test_a_failed_scale_writes_nothing():
    call = line("onednn::ConvolutionBackwardData", ("hifloat8",) * 2)
    out = np.full(CASE.large, 7, np.uint8).view(convreg.hifloat8)
    with pytest.raises(OpError):
        run(call, scales=(None, -1), out=out)
    assert (codes(out) == 7).all()


@pytest.mark.parametrize("scales", [(1,), 1, "ab", np.ones(2), {"weights": 1}, (1, 1, 1)])
def test_scales_are_one_per_operand(scales):
    with pytest.raises(OpTypeError, match="a tuple of 2: one scale or None for each of diff_dst, weights") as caught:
        run(line("onednn::ConvolutionBackwardData"), scales=scales)
    assert caught.value.argument == "scales"


def test_a_vector_for_the_input_channels_of_weights_is_refused():
    with pytest.raises(OpError, match=r"\[6\] for one number per output channel.*, not per input channel"):
        run(line("onednn::ConvolutionBackwardData"), scales=(None, np.ones(4, np.float32)))
    with pytest.raises(OpError, match=r"\[4\] for one number per output channel.*, not per input channel"):
        run(line("onednn::ConvTransposeBackwardData"), scales=(None, np.ones(6, np.float32)))


@pytest.mark.parametrize(("name", "more", "argument"), [
    ("onednn::ConvolutionBackwardData", {"output_format": "int8"}, "output_format"),
    ("onednn::ConvolutionBackwardData", {"output_format": "float64"}, "output_format"),
    ("onednn::ConvolutionBackwardData", {"output_format": ["float32"]}, "output_format"),
    ("aten::convolution_backward", {"output_formats": ["float32"]}, "output_formats"),
    ("aten::convolution_backward", {"output_formats": ["float64", "", ""]}, "output_formats"),
    ("aten::convolution_backward", {"rounding": "hybrid"}, "rounding"),
    ("onednn::ConvTranspose", {"rounding": "up"}, "rounding"), ("onednn::ConvTranspose", {"seed": -1}, "seed"),
    ("openvino::ConvolutionBackpropData", {"saturate": 2}, "saturate"),
])
def test_refused_choices(name, more, argument):
    with pytest.raises(OpError) as caught:
        run(line(name, ("float8_e5m2",) * 3), **more)
    assert (caught.value.op, caught.value.argument) == (name, argument)


def test_float64_stands_alone():
    call = line("aten::convolution_backward", ("float64",) * 3, np.random.default_rng(0).standard_normal)
    plain = float64 = run(call)
    assert {result.dtype for result in float64} == {np.dtype(np.float64)}
    for result, exact in zip(run(call, output_formats=["hifloat8", "float32", ""], rounding="toward_zero"), plain,
                             strict=True):
        same(result, convreg.quantize(exact, format_of(result.dtype).name, rounding="toward_zero"))
    scaled = run(call, scales=(np.float32(0.3), None, None))
    np.testing.assert_allclose(scaled[0], plain[0] * np.float32(0.3).item(), rtol=1e-15)
    for place in range(3):
        tensors = [*call.tensors]
        tensors[place] = tensors[place].astype(np.float32)
        with pytest.raises(OpTypeError, match="float"):
            run(call._replace(tensors=tuple(tensors)))
    with pytest.raises(OpTypeError):
        run(line("onednn::ConvolutionBackwardData", ("float64",) * 2))
