"""What kind of error wrong elements look like: true causes are told, and no false ones."""

from __future__ import annotations

import numpy as np
import pytest
from drawn import Drawn, normal
from golden_problems import golden_of
from gradient_calls import single

import convreg
from convreg.formats import FORMATS
from convreg.golden import Golden, compare

CASE = Drawn(1, (1, 1), (1, 1), (1, 1), (1, 1), (2, 4, 9, 8), (2, 6, 9, 8), (6, 4, 3, 3))
SIX = ("float32", "bfloat16", "float16", "hifloat8", "float8_e4m3fn", "float8_e5m2")


def normals(shape):
    return normal(np.random.default_rng(5), shape)


def made(values=normals, format="float32", *, place=0, dy=1.0, **more) -> Golden:
    """A gradient of data whose result is in a format; `values` draws operands, and `dy` multiplies the first one."""
    call = single(CASE, lambda shape: np.float32(values(shape)))[place]
    first, second = call.tensors
    return golden_of(call._replace(tensors=(first * np.float32(dy), second), arguments={
        **call.arguments, "conformance": "emulation", "output_format": format, **more}))


def judged(golden: Golden, result):
    """The report on a result, or on float64 numbers that are in the result's format."""
    ((name, held),) = golden.outputs.items()
    codes = convreg.quantize(result, FORMATS[convreg.golden.data.format_name(held)].name)
    report = compare(golden, {name: codes}).outputs[name]
    assert report.wrong
    return report


def numbers(golden: Golden) -> np.ndarray:
    (held,) = golden.outputs.values()
    return convreg.dequantize(held, dtype=np.float64)


def scattered(values: np.ndarray, count: int, change: float) -> np.ndarray:
    flat = values.copy().reshape(-1)
    flat[np.random.default_rng(3).choice(flat.size, count, replace=False)] += change
    return flat.reshape(values.shape)


@pytest.mark.parametrize("format", SIX)
def test_flushed_subnormal_numbers_do_not_look_unwritten(format):
    smallest = FORMATS[format].smallest_normal
    golden = made(format=format, dy=0.1 * smallest)
    for sign in (1.0, 0.0):
        kept = numbers(golden)
        flushed = np.where(np.abs(kept) < smallest, np.copysign(0, kept) * sign, kept)
        found = judged(golden, flushed)
        assert found.causes == ("zero, where the exact results are subnormal numbers",)
        assert not found.unwritten
    missing = made(format=format)
    holes = np.where(np.random.default_rng(1).random(numbers(missing).shape) < 0.3, 0, numbers(missing))
    assert "never written, or all terms of their sums are missing" in judged(missing, holes).unwritten


def test_nan_of_padding_times_infinity_does_not_look_unwritten():
    def infinite(shape):
        values = normals(shape)
        values.reshape(-1)[0] = np.inf
        return values

    golden = made(infinite)
    for nan in (0x7FC00000, 0xFFC00000):
        result = golden.outputs["diff_src"].copy()
        result[:, :, -1] = np.uint32(nan).view(np.float32)
        found = judged(golden, result)
        assert not found.unwritten
        assert found.causes == ("NaN, where the exact results are numbers",)
        result = golden.outputs["diff_src"].copy()
        result[np.isinf(result)] = np.nan
        assert judged(golden, result).causes == ("NaN, where the exact results are infinite",)
        finite = made()
        result = finite.outputs["diff_src"].copy()
        result[:, :, -1] = np.uint32(nan).view(np.float32)
        assert "they look never written" in judged(finite, result).unwritten


@pytest.mark.parametrize("format", SIX)
def test_numbers_in_place_of_nan_do_not_look_unwritten(format):
    """A kernel that takes NaN as zero, or whose maximum drops it, has written these elements."""

    def with_nan(shape):
        values = normals(shape)
        values.reshape(-1)[values.size // 2] = np.nan
        return values

    golden = made(with_nan, format)
    right = numbers(golden)
    assert np.isnan(right).any()
    for number, shown in ((0, "0"), (1, "1"), (np.inf, "inf")):
        if np.isfinite(number) or FORMATS[format].infinity is not None:
            found = judged(golden, np.where(np.isnan(right), number, right))
            assert (found.causes, found.unwritten) == ((f"{shown}, where the exact results are NaN",), "")
    drawn = np.random.default_rng(1).choice([-1.0, 0.5, 2.0], right.shape)
    assert judged(golden, np.where(np.isnan(right), drawn, right)).causes == (
        "numbers, where the exact results are NaN",)
    holes = right.copy()  # zeros elsewhere too: these elements are missing
    holes[0, 0] = 0
    assert "never written" in judged(golden, np.where(np.isnan(right), 0, holes)).unwritten


@pytest.mark.parametrize("place", [0, 1])
def test_elements_that_are_wrong_for_another_reason_are_no_reversed_taps(place):
    """With equal operands the taps are symmetric, so reversed ones explain all results but the wrong ones."""
    call = single(Drawn(1, (1, 1), (1, 1), (2, 2), (2, 2), (2, 8, 9, 9), (2, 8, 9, 9), (8, 8, 5, 5)), np.ones)[place]
    golden = golden_of(call._replace(tensors=tuple(np.float32(each) for each in call.tensors)))
    for count in (9, 12):
        assert judged(golden, scattered(numbers(golden), count, 3.0)).causes == ()


@pytest.mark.parametrize("format", SIX)
def test_a_last_rounding_toward_zero_is_no_factor(format):
    golden = made(format=format)
    truncated = convreg.quantize(golden.reference["diff_src"], format, rounding="toward_zero")
    if format == "float32":
        assert compare(golden, truncated)
        return
    report = compare(golden, truncated).outputs["diff_src"]
    assert report.causes == ("consistent with a last rounding toward zero",)


@pytest.mark.parametrize("format", ["float32", "bfloat16", "float8_e5m2"])
def test_roundings_of_strided_gradients(format):
    """Half of the rows have no terms, and are right by any rounding."""
    case = Drawn(1, (2, 1), (1, 1), (0, 0), (0, 0), (2, 4, 19, 9), (2, 6, 10, 9), (6, 4, 1, 1))
    draws = np.random.default_rng(8)
    call = single(case, lambda shape: np.float32(normal(draws, shape)))[0]
    golden = golden_of(call._replace(arguments={
        **call.arguments, "conformance": "emulation", "output_format": format}))
    exact = golden.reference["diff_src"]
    if format != "float8_e5m2":
        found = judged(golden, convreg.dequantize(convreg.quantize(exact, "float16")))
        assert "every 2nd row" in found.where
        assert found.causes == ("consistent with a rounding to float16 before the last one",)
    if format != "float32":
        found = compare(golden, convreg.quantize(exact, format, rounding="toward_zero")).outputs["diff_src"]
        assert found.causes == ("consistent with a last rounding toward zero",)


@pytest.mark.parametrize("format", SIX)
@pytest.mark.parametrize(("factor", "shown"), [(2, "2"), (0.5, "1/2"), (4, "4")])
def test_factors_in_all_formats(format, factor, shown):
    golden = made(format=format)
    assert judged(golden, factor * golden.reference["diff_src"]).causes == (f"the exact result times {shown}",)
    assert judged(golden, -golden.reference["diff_src"]).causes == ("the sign of the result is turned",)


@pytest.mark.parametrize(("format", "due"), [
    ("float16", "infinity"), ("float8_e5m2", "infinity"), ("hifloat8", "infinity"), ("float8_e4m3fn", "NaN")])
def test_saturation_and_overflow_are_told_apart(format, due):
    largest = FORMATS[format].largest
    for saturate in (False, True):
        golden = made(format=format, dy=largest, saturate=saturate)
        other = convreg.quantize(golden.reference["diff_src"], format, saturate=not saturate)
        ((name, _),) = golden.outputs.items()
        found = compare(golden, other).outputs[name]
        assert found.wrong > 8
        assert found.causes == ((f"{due}, where the largest number of the format is due",) if saturate else
                                (f"the largest number of the format, where {due} is due",))
        assert not found.unwritten


def test_infinities_in_other_places_are_no_turned_signs():
    golden = made(format="float8_e5m2", dy=2.0**30)
    codes = golden.outputs["diff_src"].view(np.uint8).copy().reshape(-1)
    places = np.random.default_rng(9).choice(codes.size, 60, replace=False)
    codes[places] = codes[np.roll(places, 1)]
    assert np.isinf(numbers(golden)).all()
    assert compare(golden, codes.reshape(golden.outputs["diff_src"].shape)).outputs["diff_src"].causes == ()


@pytest.mark.parametrize("format", SIX)
def test_results_without_their_signs(format):
    golden = made(format=format)
    exact = golden.reference["diff_src"]
    assert judged(golden, np.abs(exact)).causes == ("the exact result without its sign",)
    found = judged(golden, np.maximum(exact, 0))
    assert found.causes == ("zero, where the exact results are negative",)
    assert not found.unwritten
    low = made(lambda shape: np.abs(normals(shape)), format, dy=-1.0)
    assert judged(low, np.abs(low.reference["diff_src"])).causes == ("the sign of the result is turned",)


def test_a_sign_before_zero_is_nan_in_hifloat8():
    golden = made(format="hifloat8", dy=2.0**-24)
    codes = golden.outputs["diff_src"].view(np.uint8).copy()
    codes[(codes == 0) & (golden.reference["diff_src"] < 0)] = 0x80
    found = compare(golden, codes).outputs["diff_src"]
    assert found.wrong > 8
    assert found.causes == ("NaN, where numbers below zero round to zero: the format has no -0",)
    assert not found.unwritten


@pytest.mark.parametrize("format", SIX)
def test_results_limited_to_a_range_do_not_look_unwritten(format):
    golden = made(format=format)
    for low, high in ((-1, 1), (-8, 2), (-np.inf, 0), (-1, np.inf)):
        assert not judged(golden, np.clip(golden.reference["diff_src"], low, high)).unwritten
    holes = numbers(golden)
    holes[:, 1][holes[:, 1] < -1] = -1  # as memory that was filled with -1 where negative results were due
    assert "(-1), one value" in judged(golden, holes).unwritten


@pytest.mark.parametrize("format", SIX)
def test_zeros_among_zeros_do_not_look_unwritten(format):
    draws = np.random.default_rng(7)
    golden = made(lambda shape: normal(draws, shape) * (draws.random(shape) < 0.1), format)
    assert (numbers(golden) == 0).mean() > 0.3
    assert not judged(golden, np.roll(numbers(golden), 1, axis=3)).unwritten
    holes = numbers(golden)
    holes[:, :, -3:] = 0
    found = judged(golden, holes)
    assert "never written" in found.unwritten or "zero, where the exact results are not" in found.causes


@pytest.mark.parametrize("format", SIX)
def test_one_value_says_nothing_where_one_is_due(format):
    golden = made(np.ones, format)
    found = judged(golden, numbers(golden) * 2)
    assert not found.unwritten
    assert found.causes == ("the exact result times 2",)


@pytest.mark.parametrize("format", ["float32", "float16"])
@pytest.mark.parametrize("scale", [2.0**-10, 1.0, 2.0**8])
def test_results_in_other_places_are_not_consistent_with_narrow_sums(format, scale):
    """Far from 1 a narrow accumulator underflows or overflows, and would explain everything."""
    golden = made(format=format, dy=scale)
    shuffled = np.random.default_rng(2).permutation(numbers(golden).reshape(-1)).reshape(golden.outputs[
        "diff_src"].shape)
    assert judged(golden, shuffled).causes == ()


def test_sums_of_float64_operands_that_are_kept_in_float32():
    arrays = [normals(shape) for shape in ((2, 6, 9, 8), (2, 4, 9, 8), (6, 4, 3, 3))]
    layer = {"bias_sizes": [6], "stride": [1, 1], "padding": [1, 1], "dilation": [1, 1], "transposed": False,
             "output_padding": [0, 0], "groups": 1, "output_mask": [True, False, False]}
    golden = convreg.golden.make("aten::convolution_backward", [np.float64(array) for array in arrays], **layer)
    narrow = convreg.aten.convolution_backward(*(np.float32(array) for array in arrays), **layer)[0]
    assert judged(golden, np.float64(narrow)).causes == ("consistent with sums kept in float32 precision",)


def test_sums_that_are_rounded_toward_zero():
    golden = made(lambda shape: np.abs(normals(shape)))
    with_truncation = convreg.golden.bounds.with_arithmetic(golden.analysis, convreg.golden.arithmetic.Arithmetic(
        accumulator="truncating"))["diff_src"].error().reshape(golden.reference["diff_src"].shape)
    report = compare(golden, np.float32(golden.reference["diff_src"] - 0.8 * with_truncation)).outputs["diff_src"]
    assert report.causes == ("consistent with sums rounded toward zero",)


@pytest.mark.parametrize("order", [(0, 2, 3, 1), (3, 2, 1, 0), (1, 0, 2, 3)])
@pytest.mark.parametrize("place", [0, 1])
def test_another_order_of_axes(order, place):
    golden = made(format="bfloat16", place=place)
    ((name, held),) = golden.outputs.items()
    names = [golden.analysis[name].axes[axis].name for axis in order]
    found = judged(golden, convreg.dequantize(held).transpose(order).reshape(held.shape))
    assert found.causes == ("the result with its axes in the order " + ", ".join(names),)
    few = scattered(numbers(golden), 9, 3.0)
    assert judged(golden, few).causes == ()


@pytest.mark.parametrize("format", ["float32", "float16", "bfloat16"])
def test_another_order_of_bytes(format):
    golden = made(format=format)
    (held,) = golden.outputs.values()
    storage = np.dtype(f"u{held.itemsize}")
    report = compare(golden, held.view(storage).byteswap().view(held.dtype)).outputs["diff_src"]
    assert report.causes == ("the result with the bytes of each number in the opposite order",)


@pytest.mark.parametrize("layouts", [("NCX", "OIX"), ("NXC", "XIO")])
@pytest.mark.parametrize("place", [0, 1])
def test_exchanged_channels_of_weights(layouts, place):
    case = Drawn(1, (1, 1), (1, 1), (1, 1), (1, 1), (2, 5, 9, 8), (2, 5, 9, 8), (5, 5, 3, 3))
    draws = np.random.default_rng(6)
    call = single(case, lambda shape: np.float32(normal(draws, shape)), layouts)[place]
    golden = golden_of(call)
    axes = (0, 1) if layouts[1] == "OIX" else (2, 3)
    if place == 1:
        result = np.swapaxes(golden.outputs["diff_weights"], *axes)
    else:
        (result,) = golden_of(call._replace(tensors=(
            call.tensors[0], np.ascontiguousarray(np.swapaxes(call.tensors[1], *axes))))).outputs.values()
    (report,) = compare(golden, result).outputs.values()
    assert report.causes == ("the result for exchanged input and output channels",)


@pytest.mark.parametrize(("format", "rule", "shown"), [
    ("hifloat8", "toward_zero", "toward zero"), ("hifloat8", "nearest_even", "to nearest, ties to even"),
    ("float8_e4m3fn", "toward_zero", "toward zero"), ("bfloat16", "half_away", "to nearest, ties away from zero")])
def test_conversions_by_another_rule(format, rule, shown):
    half = convreg.dequantize(convreg.quantize(normals((16, 32)), format), dtype=np.float64)
    step = np.float64(2) ** (np.frexp(half)[1] - 2 - FORMATS[format].mantissa)
    ties = np.float32(half + np.random.default_rng(4).choice([1, 1.5], half.shape) * np.copysign(step, half))
    golden = convreg.golden.make("nodes::Quantize", [ties], format=format)
    report = compare(golden, convreg.quantize(ties, format, rounding=rule)).outputs["y"]
    assert report.wrong >= 8
    assert report.causes == (f"consistent with a last rounding {shown}",)


def test_conversions_of_another_kind():
    x = normals((16, 32)) * np.float32(100)
    golden = convreg.golden.make("nodes::Quantize", [x, np.float32(2)], format="float8_e4m3fn")
    assert compare(golden, convreg.quantize(x * np.float32(2), "float8_e4m3fn", saturate=True)).outputs["y"].wrong
    small = convreg.golden.make("nodes::Quantize", [x / np.float32(64), np.float32(2)], format="float8_e4m3fn")
    twice = compare(small, convreg.quantize(x / np.float32(32), "float8_e4m3fn")).outputs["y"]
    assert twice.causes == ("the exact result times 4",)
    turned = golden.outputs["y"].T.reshape(16, 32)
    assert compare(golden, turned).outputs["y"].causes == ("the result with its axes in the order axis 1, axis 0",)


def test_positions_on_axes_without_names():
    x = normals((16, 32))
    golden = convreg.golden.make("nodes::Quantize", [x], format="hifloat8")
    result = golden.outputs["y"].view(np.uint8).copy()
    result[3, [2, 9]] ^= 0x41
    assert compare(golden, result).outputs["y"].where.startswith("in axis 1 positions 2 and 9 of axis 0 position 3")


def test_the_ratio_of_signal_to_noise_leaves_out_overflows():
    golden = made(format="float8_e4m3fn", dy=100.0)
    assert np.isnan(numbers(golden)).any()
    report = compare(golden, golden.outputs).outputs["diff_src"]
    assert report.wrong == 0
    assert 20 < report.snr_db < 40
    result = golden.outputs["diff_src"].view(np.uint8).copy()
    result[np.isfinite(numbers(golden))] = 0x7F
    assert compare(golden, result).outputs["diff_src"].snr_db == -np.inf
