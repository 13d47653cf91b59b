"""The vendors' standards decide as their own tools do."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from drawn import Drawn, normal
from golden_problems import golden_of
from gradient_calls import single
from places import DATA

import convreg
from convreg import OpError
from convreg.formats import FORMATS
from convreg.golden import compare
from convreg.golden.standards import ALIASES, STANDARDS, Pair, judge

NAN, INF = np.nan, np.inf


def pair(device, golden, format="float32", other=None) -> Pair:
    def codes(values):
        return None if values is None else convreg.quantize(
            np.asarray(values, np.float32).ravel(), format).view(FORMATS[format].storage)

    return Pair(FORMATS[format], codes(device), codes(golden), codes(other))


def passes(name, *arguments, **more) -> bool:
    return judge(name, pair(*arguments, **more)).passed


def test_requant_decides_as_the_table_of_neighbours_says():
    with (DATA / "hifloat8_neighbours.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            codes = (np.array([int(row[name])], np.uint8) for name in "ab")
            outcome = judge("requant", Pair(FORMATS["hifloat8"], *codes))
            assert outcome.passed == (row["requant_accepts"] == "1"), row


def test_requant_accepts_every_turned_sign_of_hifloat8_and_the_bound_none():
    case = Drawn(1, (1,), (1,), (1,), (1,), (2, 3, 9), (2, 4, 9), (4, 3, 3))
    call = single(case, lambda shape: convreg.quantize(normal(np.random.default_rng(1), shape), "hifloat8"))[0]
    golden = golden_of(call._replace(arguments={**call.arguments, "conformance": "emulation"}))
    turned = golden.outputs["diff_src"].view(np.uint8) ^ np.uint8(0x80)
    assert (golden.outputs["diff_src"].view(np.uint8) & 0x7F).all()
    for name in ("requant", "mixed", "stat_rel_err"):
        assert compare(golden, turned, name)
    report = compare(golden, turned, ["bound", "requant"])
    assert not report
    assert report.outputs["diff_src"].wrong == turned.size


@pytest.mark.parametrize(("format", "inside", "outside"), [
    ("float32", 1 + 2.0**-10, 1 + 2.0**-9), ("float16", 1 + 2.0**-9, 1 + 2.0**-7),
    ("bfloat16", 1 + 2.0**-6, 1 + 2.0**-4), ("float8_e4m3fn", 1.25, 1.375), ("float8_e5m2", 1.5, 1.75)])
def test_mix_tolerance_by_format(format, inside, outside):
    ones = np.ones(50)
    assert passes("mix_tolerance", ones * inside, ones, format)
    assert not passes("mix_tolerance", ones * outside, ones, format)


def test_mix_tolerance_lets_one_of_a_hundred_through_up_to_its_limit():
    golden, device = np.ones(100), np.ones(100)
    device[3] = 1.009
    assert passes("mix_tolerance", device, golden)
    device[4] = 1.009
    assert not passes("mix_tolerance", device, golden)
    device[4], device[3] = 1, 1.011
    outcome = judge("mix_tolerance", pair(device, golden))
    assert not outcome.passed
    assert outcome.figures["matched_ratio"] == 0.99


@pytest.mark.parametrize("name", ["mix_tolerance", "stat_rel_err"])
def test_nan_and_infinities_have_to_agree(name):
    assert passes(name, [NAN, INF, -INF, 1], [NAN, INF, -INF, 1])
    assert passes(name, [NAN, INF], [NAN, INF])
    for device, golden in ((INF, -INF), (NAN, 1), (1, NAN), (INF, 1), (NAN, INF)):
        assert not passes(name, [device, 1], [golden, 1])


def test_stat_rel_err():
    golden = np.ones(100)
    device = golden.copy()
    device[0] = 1 + 9 * 2.0**-13
    assert passes("stat_rel_err", device, golden)
    device[0] = 1 + 11 * 2.0**-13
    assert not passes("stat_rel_err", device, golden)
    assert not passes("stat_rel_err", golden * (1 + 2.0**-12), golden)
    assert not passes("stat_rel_err", [1e-7], [0])
    assert passes("stat_rel_err", golden * (1 + 2.0**-8), golden, "bfloat16")


def test_shares_of_elements():
    golden = np.ones(10000)
    device = golden.copy()
    device[0] = 2
    assert passes("isclose", device, golden)
    assert passes("thousandth", device, golden)
    device[:2] = 2
    assert not passes("isclose", device, golden)
    assert passes("double_thousandth", device, golden, "float16")
    device[:11] = 2
    assert not passes("thousandth", device, golden)
    assert not passes("double_thousandth", device, golden, "float16")
    assert passes("thousandth", golden * 1.0009, golden)
    assert not passes("ten_thousandth", golden * 1.0009, golden)
    outcome = judge("thousandth", pair([0, 0], [0, 0]))
    assert not outcome.passed
    assert "zero against zero" in outcome.note


def test_cosine_and_cambricon():
    assert passes("cosine", [1, 2, 3], [2, 4, 6])
    assert not passes("cosine", [1, 2, 3], [3, 2, 1])
    assert not passes("cosine", [0, 0], [0, 0])
    assert passes("cambricon", [1, 1.002], [1, 1])
    assert not passes("cambricon", [1, 1.01], [1, 1])
    assert passes("cambricon", [0, 0], [0, 0])
    assert not passes("cambricon", [0, 1], [0, 0])
    assert not passes("cambricon", [NAN, 1], [1, 1])


def test_a_note_says_why_results_have_no_angle():
    assert judge("cosine", pair([0, 0], [0, 0])).note == "a result of zeros has no angle"
    for values in ([1, INF], [1, NAN]):
        assert judge("cosine", pair(values, values)).note == "NaN, infinity and sums that overflow have no angle"
    assert judge("cosine", pair([1, 2], [1, 2])).note == ""


def test_equal_bytes():
    assert passes("binary_equal", [NAN, 1], [NAN, 1])
    assert not passes("binary_equal", [0.0], [-0.0])
    assert passes("benchdnn", [0.0, NAN], [-0.0, NAN])
    assert passes("benchdnn", [1e-8], [0])
    assert not passes("benchdnn", [1 + 2.0**-23], [1])
    assert not passes("requant", [1 + 2.0**-10], [1], "float16")
    assert passes("requant", [1, 1.125], [1, 1], "float8_e4m3fn")
    assert passes("quant", [3, 4], [3, 3])
    assert not passes("quant", [5], [3])


def test_onnx_backend():
    assert passes("onnx", [1.0009], [1])
    assert not passes("onnx", [1.002], [1])
    assert passes("onnx", [1.0078125], [1], "bfloat16")
    assert passes("onnx", [INF, NAN], [INF, NAN])
    assert not passes("onnx", [INF], [-INF])


def test_msprobe_absolute_threshold_and_ulps():
    assert passes("absolute_threshold", [2.0**-21 + 2.0**-31], [2.0**-21])
    assert not passes("absolute_threshold", [2.0**-21 + 2.0**-29], [2.0**-21])
    assert passes("absolute_threshold", [1 + 2.0**-21], [1])
    assert not passes("absolute_threshold", [1 + 2.0**-19, 1], [1, 1])
    assert not passes("absolute_threshold", [NAN, 1], [INF, 1])
    assert passes("ulp", [1 + 60 * 2.0**-23], [1])
    assert not passes("ulp", [1 + 70 * 2.0**-23], [1])
    assert passes("ulp", [1 + 1000 * 2.0**-23, *[1] * 99], [1] * 100)
    assert passes("ulp", [1 + 70 * 2.0**-23, 1], [1, 1], other=[1 + 80 * 2.0**-23] * 2)
    assert not passes("ulp", [1 + 2.0**-6], [1], "bfloat16")
    assert passes("ulp", [1 + 2.0**-7], [1], "bfloat16")
    assert passes("ulp", [40], [32], "hifloat8")
    assert not passes("ulp", [56], [32], "hifloat8")
    assert passes("ulp", [NAN, INF], [NAN, INF])


def test_cross_check_needs_another_device():
    golden = np.linspace(1, 2, 100)
    good, bad = golden * (1 + 1e-6), golden * (1 + 1e-3)
    outcome = judge("cross_check", pair(good, golden))
    assert not outcome.passed
    assert "other=" in outcome.note
    assert passes("cross_check", good, golden, other=good)
    assert passes("cross_check", good, golden, other=bad)
    assert not passes("cross_check", bad, golden, other=good)
    assert not passes("cross_check", [NAN], [1], other=[1])
    assert passes("cross_check", [NAN], [1], other=[NAN])
    assert passes("cross_check", [INF], [INF], other=[1])
    assert not passes("cross_check", [1e-5 + 1e-6] * 3, [1e-5] * 3, other=[1e-5] * 3)
    assert passes("cross_check", [1e-5 + 1e-6], [1e-5], other=[1e-5 + 1e-6])
    assert not passes("cross_check", [1], [1], "hifloat8", other=[1])


def test_all_standards_take_all_formats_and_empty_arrays():
    for name in STANDARDS:
        assert judge(name, pair([], [])).passed
        for format in FORMATS:
            outcome = judge(name, pair([1, 2, NAN, INF, 0], [1, 2, NAN, INF, 0], format, other=[1, 2, NAN, INF, 0]))
            assert outcome.standard == name
            assert isinstance(outcome.passed, bool)


@pytest.mark.filterwarnings("error")
def test_extreme_numbers_give_no_warnings():
    for name in STANDARDS:
        for device, golden in (([3e38, -3e38], [1e-45, 3e38]), ([1e-45, 3e38], [3e38, 0])):
            assert not judge(name, pair(device, golden, other=golden)).passed, name


def test_names_and_several_standards():
    case = Drawn(1, (1,), (1,), (1,), (1,), (2, 3, 9), (2, 4, 9), (4, 3, 3))
    golden = golden_of(single(case, lambda shape: normal(np.random.default_rng(1), shape))[0])
    slightly = golden.outputs["diff_src"] * np.float32(1 + 1e-5)
    report = compare(golden, slightly, ["mixed", "close", *ALIASES])
    assert report.standards == ("mix_tolerance", "isclose", "binary_equal")
    assert not report
    assert compare(golden, slightly, "mixed")
    assert not compare(golden, slightly, ("mixed", "bound"))
    cross = compare(golden, slightly, "cross_check", other=slightly)
    assert cross
    with pytest.raises(OpError, match="shape"):
        compare(golden, slightly, "cross_check", other=slightly[:1])
    with pytest.raises(OpError, match="other=None is refused; allowed: results of another device"):
        compare(golden, slightly, ["bound", "cross_check"])


def test_cross_check_gives_no_verdict_in_other_formats():
    case = Drawn(1, (1,), (1,), (1,), (1,), (2, 3, 9), (2, 4, 9), (4, 3, 3))
    call = single(case, lambda shape: convreg.quantize(normal(np.random.default_rng(1), shape), "hifloat8"))[0]
    golden = golden_of(call._replace(arguments={**call.arguments, "conformance": "emulation"}))
    with pytest.raises(OpError, match=r"standard='cross_check' is refused; .*: diff_src is in hifloat8"):
        compare(golden, golden.outputs, "cross_check", other=golden.outputs)
