"""Where wrong elements lie, in words, and what kind of error it looks like."""

from __future__ import annotations

import numpy as np
import pytest
from drawn import Drawn, normal
from golden_problems import golden_of
from gradient_calls import forward, single, together

import convreg
from convreg.golden import compare
from convreg.golden.axes import Axis
from convreg.golden.where import where

DATA = (Axis("batch item", "batch"), Axis("channel", "channel", 2), Axis("row", "space"), Axis("column", "space"))
WEIGHTS = (Axis("output channel", "channel", 2), Axis("input channel", "channel"), Axis("tap row", "tap"),
           Axis("tap column", "tap"))
CASE = Drawn(2, (1, 1), (1, 1), (1, 1), (1, 1), (2, 6, 9, 8), (2, 8, 9, 8), (8, 3, 3, 3))


def make(shape):
    return normal(np.random.default_rng(5), shape)


@pytest.mark.parametrize(("index", "told"), [
    (np.s_[1], "in batch item 1: all"),
    (np.s_[:, 5], "in the last channel (5)"),
    (np.s_[:, 3:], "in group 1 (channels 3 to 5)"),
    (np.s_[:, 4:], "in the last 2 channels (from 4 on)"),
    (np.s_[:, 2], "in channel 2"),
    (np.s_[:, :, 0], "in the first row (0)"),
    (np.s_[:, :, -2:], "in the last 2 rows (from 7 on)"),
    (np.s_[..., 1::2], "in every 2nd column, from 1 on"),
    (np.s_[..., ::3], "in every 3rd column, from 0 on"),
    (np.s_[:, :, ::4], "in every 4th row, from 0 on"),
    (np.s_[..., [2, 3, 6, 7]], "in columns whose number modulo 4 is 2 and 3"),
    (np.s_[:, :, [0, 1, -1]], "in the first 2 rows and the last row"),
    (np.s_[1, :, 4], "in row 4 of batch item 1"),
    (np.s_[0, 1, 2, 3], "in a single element: batch item 0, channel 1, row 2, column 3"),
    (np.s_[...], "in the whole output"),
    (np.s_[:, :, 2:5], "in rows 2 to 4"),
])
def test_sets_of_indices(index, told):
    wrong = np.zeros((2, 6, 9, 8), bool)
    wrong[index] = True
    assert where(wrong, DATA).text.startswith(told)


@pytest.mark.parametrize(("step", "told"), [(11, "11th"), (12, "12th"), (21, "21st"), (22, "22nd"), (33, "33rd")])
def test_long_steps(step, told):
    wrong = np.zeros((2, 6, 9, 3 * step), bool)
    wrong[..., ::step] = True
    assert where(wrong, DATA).text.startswith(f"in every {told} column, from 0 on")


def test_frames_runs_and_no_pattern():
    wrong = np.ones((2, 6, 9, 8), bool)
    wrong[:, :, 1:-1, 1:] = False
    found = where(wrong, DATA)
    assert found.text.startswith("at the borders (the first row, the last row and the first column): all 276")
    assert not found.everywhere
    wrong = np.zeros((2, 6, 9, 8), bool)
    wrong.reshape(-1)[500:] = True
    assert where(wrong, DATA).text.startswith("from element 500 in memory order to the end")
    wrong.reshape(-1)[:] = np.random.default_rng(0).random(864) < 0.1
    assert where(wrong, DATA).text.startswith("scattered over the output: ")
    wrong.reshape(-1)[:] = np.random.default_rng(0).random(864) < 0.9
    assert where(wrong, DATA) == (f"in nearly the whole output: {100 * wrong.mean():.3g} % of the elements", True)
    nearly = np.ones((2, 6, 90, 80), bool)
    nearly[0, 3, 50, 40] = nearly[1, 2, 7, 9] = False
    assert where(nearly, DATA).text == "in nearly the whole output: 99.9 % of the elements"


def test_a_tap_of_weights():
    wrong = np.zeros((8, 3, 3, 3), bool)
    wrong[:, :, 0, 2] = True
    assert where(wrong, WEIGHTS).text.startswith("in tap (0, 2): all 24")
    wrong[:, 1:] = False
    assert where(wrong, WEIGHTS).text.startswith("in tap (0, 2) of the first input channel (0)")


def test_missing_elements_of_a_set_are_tolerated():
    wrong = np.zeros((2, 6, 9, 8), bool)
    wrong[:, :, 0] = True
    wrong[0, 3, 0, 4] = False
    assert where(wrong, DATA).text == "in the first row (0): 95 of the 96 elements there"


@pytest.mark.parametrize(("layouts", "expected"), [
    (("NCX", "OIX"), {"onednn::ConvolutionBackwardData": ["batch item", "channel", "row", "column"],
                      "onednn::ConvolutionBackwardWeights": ["output channel", "input channel", "tap row",
                                                             "tap column"]}),
    (("NXC", "XIO"), {"onednn::ConvolutionBackwardData": ["batch item", "row", "column", "channel"],
                      "onednn::ConvTransposeBackwardData": ["batch item", "row", "column", "channel"],
                      "onednn::ConvTransposeBackwardWeights": ["tap row", "tap column", "output channel",
                                                               "input channel"],
                      "openvino::ConvolutionBackpropData": ["batch item", "row", "column", "channel"]})])
def test_axes_have_the_names_of_their_layout(layouts, expected):
    for call in single(CASE, make, layouts):
        if call.name in expected:
            (found,) = golden_of(call).analysis.values()
            assert [axis.name for axis in found.axes] == expected[call.name]
            grouped = {axis.name: axis.groups for axis in found.axes if axis.groups > 1}
            assert len(grouped) == 1, grouped
            assert all(found.shape[place] % axis.groups == 0 for place, axis in enumerate(found.axes))


@pytest.mark.parametrize("transposed", [False, True])
def test_axes_of_weights_that_belong_to_either_direction(transposed):
    golden = golden_of(together(CASE, make, (True, True, True), transposed)[0])
    names = [axis.name for axis in golden.analysis["grad_weight"].axes[:2]]
    assert names == (["input channel", "output channel"] if transposed else ["output channel", "input channel"])
    assert [axis.name for axis in golden.analysis["grad_bias"].axes] == ["channel"]


def test_axes_of_all_operators_are_named():
    for call in [*forward(CASE, make), *single(CASE, make), *together(CASE, make, (True, True, True), False)]:
        for found in golden_of(call).analysis.values():
            assert all(axis.kind for axis in found.axes)
            assert len(found.axes) == len(found.shape)


GOLDEN = golden_of(single(CASE, make)[0])
HONEST = GOLDEN.outputs["diff_src"]


def told(change, golden=GOLDEN):
    result = next(iter(golden.outputs.values())).copy()
    changed = change(result)
    return next(iter(compare(golden, result if changed is None else changed).outputs.values()))


def test_kinds_of_errors():
    assert told(lambda result: -result).causes == ("the sign of the result is turned",)
    assert told(lambda result: result * np.float32(0.5)).causes == ("the exact result times 1/2",)
    assert told(lambda result: result * np.float32(3)).causes == ("the exact result times 3",)
    assert told(lambda result: result * np.float32(1 / 9)).causes == ("the exact result times 1/9",)
    several = np.uint32(0x7FC00000) + np.arange(HONEST.size, dtype=np.uint32).reshape(HONEST.shape) % 1000
    assert told(lambda result: several.view(np.float32)).causes == ("NaN, where the exact results are numbers",)
    assert told(lambda result: result + np.float32(1)).causes == ()
    halves = told(lambda result: convreg.dequantize(convreg.quantize(result, "bfloat16")))
    assert halves.causes == ("consistent with a rounding to bfloat16 before the last one",)
    assert halves.where.startswith("in ")


def test_kinds_of_errors_in_narrow_formats():
    call = single(CASE, lambda shape: convreg.quantize(make(shape), "bfloat16"))[0]
    golden = golden_of(call)
    exact = golden.reference["diff_src"]
    truncated = told(lambda result: convreg.quantize(exact, "bfloat16", rounding="toward_zero"), golden)
    assert truncated.causes == ("consistent with a last rounding toward zero",)
    call = call._replace(arguments={**call.arguments, "conformance": "emulation", "output_format": "float8_e5m2"})
    golden = golden_of(call._replace(tensors=(call.tensors[0], convreg.quantize(make(CASE.weights) * 1e5, "bfloat16"))))
    capped = convreg.dequantize(golden.outputs["diff_src"])
    assert np.isinf(capped).sum() > 8
    found = told(lambda result: convreg.quantize(np.clip(capped, -57344, 57344), "float8_e5m2"), golden)
    assert found.causes == ("the largest number of the format, where infinity is due",)


@pytest.mark.parametrize(("pattern", "shown"), [
    (0xCDCDCDCD, "0xcdcdcdcd"), (0xDEADBEEF, "0xdeadbeef"), (0x7FC00000, "(nan)"), (0xAAAAAAAA, "0xaaaaaaaa"),
    (0, "0x00000000 (0)"), (0x40490FDB, "one value")])
def test_elements_never_written(pattern, shown):
    def change(result):
        result.reshape(-1)[700:] = np.uint32(pattern).view(np.float32)

    found = told(change)
    assert shown in found.unwritten
    assert "in one run to the end: they look never written" in found.unwritten
    assert found.causes == ()


def test_written_elements_are_not_taken_for_a_fill():
    assert told(lambda result: -result).unwritten == ""
    call = single(CASE, lambda shape: convreg.quantize(make(shape), "hifloat8"))[0]
    golden = golden_of(call._replace(arguments={**call.arguments, "conformance": "emulation"}))
    turned = golden.outputs["diff_src"].view(np.uint8) ^ 0x80
    assert told(lambda result: turned, golden).unwritten == ""

    def stale(result):
        result.view(np.uint8).reshape(-1)[300:] = 0xAA

    assert "0xaa" in told(stale, golden).unwritten


@pytest.mark.parametrize("layouts", [("NCX", "OIX"), ("NXC", "XIO")])
@pytest.mark.parametrize("place", [0, 1, 4])
@pytest.mark.parametrize(("turn", "words"), [
    (lambda array, taps: np.flip(array, taps), "the result for reversed taps"),
    (lambda array, taps: np.swapaxes(array, *taps), "the result for exchanged tap rows and columns")])
def test_turned_kernels(layouts, place, turn, words):
    call = single(CASE, make, layouts)[place]
    golden = golden_of(call)
    taps = (2, 3) if layouts[1] == "OIX" else (0, 1)
    if place == 1:
        assert told(lambda result: np.ascontiguousarray(turn(result, taps)), golden).causes == (words,)
    else:
        other = call._replace(tensors=(call.tensors[0], np.ascontiguousarray(turn(call.tensors[1], taps))))
        (result,) = golden_of(other).outputs.values()
        assert told(lambda _: result, golden).causes == (words,)


def test_long_axes_take_no_longer():
    wrong = np.random.default_rng(0).random((1, 2, 500_000)) < 0.3
    assert where(wrong, (DATA[0], DATA[1], Axis("position", "space"))).everywhere
