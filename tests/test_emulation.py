"""Conformance "emulation": any formats at every operand, chosen ones for the results, and scales, in every operator."""

from __future__ import annotations

import itertools

import numpy as np
import onnx.inliner
import pytest
from convreg.ops.kernels import direct
from drawn import Drawn, convolutions
from gradient_calls import GradientCall, forward, single, together
from hypothesis import given, settings
from hypothesis import strategies as st

import convreg
import convreg.onnx
from convreg.binding import bind
from convreg.derive import reader_of
from convreg.errors import GraphError, OpError, OpTypeError
from convreg.formats import FORMATS, format_of
from convreg.geometry import Geometry
from convreg.roles import geometry_of, roles_of

EIGHT_BIT = ("float8_e4m3fn", "float8_e5m2", "hifloat8")
SIX = ("float32", "float16", "bfloat16", *EIGHT_BIT)
NAMES = [name for name in convreg.names() if name.split("::")[0] in ("onednn", "openvino", "aten")]
EMULATED = [*NAMES, "ascend::ConvolutionBackward"]


def codes(array):
    return array.view(f"u{array.itemsize}")


def wide(array, dtype=np.float32):
    return convreg.dequantize(array, dtype=dtype)


def same(result, expected):
    """Equal bits, any NaN for any NaN."""
    assert result.dtype == expected.dtype
    assert result.shape == expected.shape
    numbers = wide(expected)
    alike = (codes(result) == codes(expected)) | (np.isnan(wide(result)) & np.isnan(numbers))
    assert alike.all(), (result[~alike], expected[~alike])


def several(results):
    return results if isinstance(results, tuple) else (results,)


def calls(case, make, layouts=("NCX", "OIX"), mask=(True, True, True), transposed=False):
    """A call of every operator that has the conformance, by name."""
    found = [*single(case, make, layouts), *forward(case, make), *together(case, make, mask, transposed)]
    return {call.name: call._replace(arguments={**call.arguments, "conformance": "emulation"})
            for call in found if call.name in EMULATED}


def line(name, formats=(), make=np.ones):
    """A small call of one operator."""
    call = calls(CASE, lambda shape: make(shape).astype(np.float32))[name]
    given = [convreg.quantize(array, format) for array, format in zip(call.tensors, formats, strict=False)]
    return call._replace(tensors=(*given, *call.tensors[len(given):]))


def run(call: GradientCall, **more):
    return several(convreg.get(call.name)(*call.tensors, **{**call.arguments, **more}))


def float32(call: GradientCall):
    """The results of the same call on decoded operands, by the default rules."""
    arguments = {name: value for name, value in call.arguments.items() if name != "conformance"}
    return several(convreg.get(call.name)(*map(wide, call.tensors), **arguments))


def formats_argument(name, *formats):
    """How a call of an operator chooses the formats of its results."""
    spec = convreg.get(name).spec
    if len(spec.outputs) == 1:
        return {"output_format": formats[0]}
    return {"output_formats": list(formats) if len(formats) == 3 else [formats[0]] * 3}


def sources(name):
    """Positions of the operands whose formats the results have."""
    spec, roles = convreg.get(name).spec, roles_of(convreg.get(name).spec)
    ports = [port.name for port in spec.inputs]
    if len(spec.outputs) == 3:
        return [ports.index(roles.port(role)) for role in ("data", "weight", "grad_output")]
    return [ports.index(roles.grad_output)]


@st.composite
def emulated_calls(draw, names=EMULATED, formats=SIX, special=True):
    """A call of some operator with operands in drawn formats; `special` draws any code at all."""
    transposed = draw(st.booleans())
    case = draw(convolutions(symmetric=True))
    seed, raw = draw(st.integers(0, 2**32 - 1)), special and draw(st.booleans())
    rng = np.random.default_rng(seed)

    def make(shape):
        format = FORMATS[draw(st.sampled_from(formats))]
        if raw and format.bits == 8:
            return rng.integers(0, 256, shape, np.uint8).view(format.dtype)
        return convreg.quantize(rng.standard_normal(shape), format.name)

    layouts = draw(st.sampled_from([("NCX", "OIX"), ("NXC", "XIO"), ("NCX", "XIO")]))
    return calls(case, make, layouts, transposed=transposed)[draw(st.sampled_from(names))]


CASE = Drawn(2, (2,), (1,), (1,), (1,), (3, 4, 8), (3, 6, 5), (6, 2, 2))
"""One axis, two groups, four large and six small channels, two taps."""


# Values


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
    operator.spec.run(bound.plan, inputs, referee, direct, 1)
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


# Scales


POWERS = 2.0 ** np.arange(-3, 4)


def data_scale(call, array, rng):
    """One number per channel of data or a bias, and how it lies beside them."""
    axis = array.ndim - 1 if call.arguments.get("data_format") == "NXC" or array.ndim == 1 else 1
    scale = rng.choice(POWERS, array.shape[axis]).astype(np.float32)
    return scale, scale.reshape([-1 if i == axis else 1 for i in range(array.ndim)])


def geometry(call) -> Geometry:
    spec = convreg.get(call.name).spec
    tensors, attributes, conformance, _, _ = reader_of(spec)(call.tensors, dict(call.arguments))
    return geometry_of(bind(spec, tensors, attributes, conformance=conformance).plan)


def weight_scale(call, rng):
    """One number per forward output channel of the weights, and how it lies beside the weights."""
    spec, roles = convreg.get(call.name).spec, roles_of(convreg.get(call.name).spec)
    found, array = geometry(call), call.tensors[[port.name for port in spec.inputs].index(roles.weight)]
    transposed = call.arguments.get("transposed") if roles.transposed is None else roles.transposed
    of_large = transposed != roles.forward
    count = found.groups * (found.large_channels if of_large else found.small_channels)
    scale = rng.choice(POWERS, count).astype(np.float32)
    if call.name.endswith("GroupConvolutionBackpropData"):
        return scale, scale.reshape(found.groups, -1, *[1] * (array.ndim - 2))
    small_first = (scale.reshape(-1, 1) if not of_large else
                   np.repeat(scale.reshape(found.groups, -1), found.small_channels, 0))
    beside = small_first.reshape(*small_first.shape, *[1] * (array.ndim - 2))
    names = [call.arguments.get(name) for name in ("weights_format", "filter_format")]
    if {"XIO", "XOI"} & {*names}:
        beside = np.moveaxis(beside, (0, 1), (-1, -2))
    return scale, beside


def drawn_scales(call, rng, choose):
    """Scales of a call and its operands as float32 with the scales multiplied in, exactly for powers of two."""
    spec, roles = convreg.get(call.name).spec, roles_of(convreg.get(call.name).spec)
    ports = [port.name for port in spec.inputs if not port.shape and not port.scales]
    scales, operands = [], []
    for port, array in zip(ports, call.tensors, strict=True):
        kind = choose(port)
        if kind == "none":
            scale, beside = None, np.float32(1)
        elif kind == "tensor":
            scale = beside = np.float32(rng.choice(POWERS))
            scale = scale.reshape(rng.choice([0, 1]) * (1,))
        elif port == roles.weight:
            scale, beside = weight_scale(call, rng)
        else:
            scale, beside = data_scale(call, array, rng)
        scales.append(scale)
        operands.append(wide(array) * beside)
    return tuple(scales), operands


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
    with pytest.raises(OpTypeError, match="a tuple of 2, one scale each of diff_dst, weights") as caught:
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


# Graphs


def model_of(call, **more):
    return convreg.onnx.node_model(call.name, *call.tensors, **{**call.arguments, **more}, as_inputs=True)


@pytest.mark.parametrize("engine", ["reference", "onnxruntime"])
@pytest.mark.parametrize("formats", [("hifloat8",) * 3, ("float8_e5m2", "float8_e4m3fn", "float32"),
                                     ("bfloat16", "hifloat8", "float16")])
@pytest.mark.parametrize("name", EMULATED)
def test_nodes_equal_calls(name, formats, engine):
    """Types follow from the rules, and scales are the node's last inputs."""
    if engine == "onnxruntime":
        pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(12)
    call = line(name, formats, rng.standard_normal)
    spec = convreg.get(name).spec
    scales = (None, rng.uniform(1, 2, ()).astype(np.float32), *[None] * (len(spec.scale_ports) - 2))
    for more in ({}, {"scales": scales}, {"scales": scales, **formats_argument(name, "float32")}):
        model = model_of(call, **more)
        convreg.onnx.check(model)
        expected = run(call, **more)
        held = {value.name: value.type.tensor_type.elem_type for value in model.graph.output}
        inferred = convreg.onnx.infer_shapes(model).graph.output
        assert {value.name: value.type.tensor_type.elem_type for value in inferred} == held
        feeds = call.feeds | {port.name: scale for port, scale in zip(spec.scale_ports, scales, strict=True)
                              if scale is not None and "scales" in more}
        assert {value.name for value in model.graph.input} == set(feeds)
        results = convreg.onnx.run(model, feeds, engine=engine)
        for result, plain in zip(results.values(), expected, strict=True):
            same(result, plain)
        again = convreg.onnx.call_of(model, feeds)
        for result, plain in zip(several(again.operator(*again.inputs, **again.attributes)), expected, strict=True):
            same(result, plain)


@pytest.mark.parametrize("engine", ["reference", "onnxruntime"])
def test_nodes_judge_scales_when_they_run(engine):
    if engine == "onnxruntime":
        pytest.importorskip("onnxruntime")
    call = line("onednn::ConvolutionBackwardData", ("float8_e5m2", "hifloat8"))
    session = convreg.onnx.Session(model_of(call, scales=(np.ones(6, np.float32), None)), engine=engine)
    plain = run(call)[0]
    for _ in range(2):
        same(session.run({**call.feeds, "diff_dst_scale": np.ones(6, np.float32)})["diff_src"], plain)
        with pytest.raises(OpError, match=r"diff_dst_scale=0\.0 is refused; allowed: finite numbers above zero"):
            session.run({**call.feeds, "diff_dst_scale": np.zeros(6, np.float32)})


def test_scales_of_the_wrong_length_are_refused_before_a_graph_runs():
    call = line("onednn::ConvolutionBackwardWeights", ("float8_e5m2", "hifloat8"))
    model = model_of(call, scales=(np.ones(4, np.float32), None))
    model.graph.input[2].type.tensor_type.shape.dim[0].dim_value = 5
    with pytest.raises(GraphError, match="src_scale"):
        convreg.onnx.check(model)
    model.graph.node[0].attribute.remove(next(a for a in model.graph.node[0].attribute if a.name == "conformance"))
    with pytest.raises(GraphError):
        convreg.onnx.check(model)


def standard_forms(model):
    """A model in standard nodes, with functions for its nodes, and in another dialect's nodes."""
    yield convreg.onnx.lower(model)
    functions = convreg.onnx.attach_functions(model)
    yield onnx.inliner.inline_local_functions(functions)
    yield convreg.onnx.translate(model, "aten", rest="lower")


@pytest.mark.parametrize("name", EMULATED)
@pytest.mark.parametrize("transposed", [False, True])
def test_standard_forms_take_8_bit_floats_and_scales(name, transposed):
    """Sums of theirs are float32 as ours; scales multiply their operands there."""
    rng = np.random.default_rng(13)
    formats = itertools.cycle(("float8_e5m2", "float8_e4m3fn", "bfloat16"))
    call = calls(CASE, lambda shape: convreg.quantize(rng.standard_normal(shape), next(formats)),
                 transposed=transposed)[name]
    scales, _ = drawn_scales(call, rng, lambda port: "tensor" if port == "input" else "channel")
    chosen = {"scales": scales, **formats_argument(name, "float32")}
    model, expected = model_of(call, **chosen), run(call, **chosen)
    ports = convreg.get(name).spec.scale_ports
    feeds = call.feeds | {port.name: scale for port, scale in zip(ports, scales, strict=True)}
    for made in standard_forms(model):
        for result, exact in zip(convreg.onnx.run(made, feeds).values(), expected, strict=True):
            assert result.dtype == np.float32
            np.testing.assert_allclose(result, exact, rtol=1e-5, atol=1e-4)


def test_no_standard_form_of_chosen_roundings():
    call = line("onednn::ConvolutionBackwardData", ("float8_e5m2", "float8_e4m3fn"))
    with pytest.raises(GraphError, match="rounding"):
        convreg.onnx.lower(model_of(call, rounding="toward_zero"))


def test_golden_vectors_of_scaled_calls():
    golden = pytest.importorskip("convreg.tools.golden").golden
    rng = np.random.default_rng(15)
    call = line("onednn::ConvolutionBackwardWeights", ("hifloat8", "float8_e5m2"), rng.standard_normal)
    scales = (rng.uniform(1, 2, 4).astype(np.float32), None)
    taken = convreg.onnx.NodeCall(convreg.get(call.name), call.tensors, {**call.arguments, "scales": scales})
    arrays = golden(taken)
    exact = convreg.get(call.name).reference(*call.tensors, **call.arguments, scales=scales)
    np.testing.assert_allclose(arrays["f64_diff_weights"], exact, rtol=1e-12)
    assert np.array_equal(arrays["in_src_scale"], scales[0])


def test_explanations_show_the_conformance_where_it_differs():
    shapes = (CASE.small, CASE.weights, CASE.large)
    lists = {**CASE.attributes, "groups": 2, "data_format": "NCX", "weights_format": "OIX"}
    alike = convreg.explain("ConvolutionBackwardData", *shapes, **lists)
    assert [reading.conformance for reading in alike.readings] == ["document", "library"]
    (told,) = convreg.onnx.explain_nodes(model_of(line("onednn::ConvolutionBackwardData"), scales=(
        np.ones(6, np.float32), np.float32(2)))).values()
    assert [reading.accepted for reading in told.readings] == [False, False, True]
    narrow = convreg.explain("ConvolutionBackwardData", *shapes, **lists, dtypes="hifloat8")
    assert [reading.accepted for reading in narrow.readings] == [False, False, True]
    assert narrow["emulation"].outputs[0].format == "hifloat8"


def test_files_of_vendors_have_no_such_conformance(tmp_path):
    exporting = pytest.importorskip("convreg.tools.onnx_io")
    for name, suffix, more in (("onednn::ConvolutionBackwardData", ".json", {"output_format": "bfloat16"}),
                               ("openvino::GroupConvolutionBackpropData", ".xml", {"output_format": "bfloat16"})):
        path = tmp_path / f"model{suffix}"
        with pytest.raises(GraphError, match="'emulation'"):
            exporting.export_model(model_of(line(name), **more), path)
        assert not path.exists()


def test_calls_recorded_from_a_model_keep_their_scales():
    """Measured as any other: the scale belongs to the call, the formats are those asked for."""
    rng = np.random.default_rng(14)
    call = line("aten::convolution_backward", ("float32",) * 3, rng.standard_normal)
    scales = (rng.uniform(1, 2, 6).astype(np.float32), None, None)
    feeds = call.feeds | {"grad_output_scale": scales[0]}
    (found,) = convreg.onnx.gradient_calls(model_of(call, scales=scales), feeds).values()
    for result, plain in zip(found.operator(*found.inputs, **found.attributes), run(call, scales=scales), strict=True):
        same(result, plain)
    told = convreg.numerics.compare(found.operator, found.inputs, found.attributes, formats=["float32"], scaled=False)
    assert told.operator == call.name
    assert all(row.error.snr_db > 120 for row in told.rows)
    assert list(told.shapes) == ["grad_output", "input", "weight"]
