"""Reports: one screen whose first line is the verdict, and the same as JSON."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from drawn import Drawn, normal
from golden_problems import golden_of
from gradient_calls import single, together
from places import ROOT

from convreg.golden import Golden, compare

CASE = Drawn(1, (1, 1), (1, 1), (1, 1), (1, 1), (2, 3, 5, 4), (2, 4, 5, 4), (4, 3, 3, 3))


def make(shape):
    return normal(np.random.default_rng(7), shape)


@pytest.fixture
def golden() -> Golden:
    return golden_of(together(CASE, make, (True, True, True), False)[0], "case 7")


def spoiled(golden: Golden) -> dict[str, np.ndarray]:
    outputs = {name: array.copy() for name, array in golden.outputs.items()}
    outputs["grad_input"][:, :, 0] *= 2
    outputs["grad_weight"][1, 2, 0, 0] = np.nan
    return outputs


def test_the_first_line_is_the_verdict(golden):
    assert str(compare(golden, golden.outputs)).splitlines()[0] == (
        "PASS  aten::convolution_backward case 7: 3 outputs, 232 elements, all within the error that rounding can make")
    assert str(compare(golden, spoiled(golden))).splitlines()[0] == (
        "FAIL  aten::convolution_backward case 7: 24 of 120 elements of grad_input are wrong; 1 of 108 elements of "
        "grad_weight are wrong")
    assert str(compare(golden, spoiled(golden), "mixed")).splitlines()[0] == (
        "FAIL  aten::convolution_backward case 7: grad_input, grad_weight of 3 outputs (by mix_tolerance)")


def test_the_verdict_is_one_line_whatever_the_name():
    golden = golden_of(together(CASE, make, (True, True, True), False)[0], "a\x1b[2J\nb")
    verdict = compare(golden, golden.outputs).verdict
    assert verdict.startswith(r"PASS  aten::convolution_backward a\x1b[2J\nb: 3 outputs")
    assert verdict.isprintable()


def test_what_supports_it_fits_a_screen(golden):
    report = compare(golden, spoiled(golden), ["bound", "mixed", "stat_rel_err"], accumulator="bfloat16",
                     parts=("float32", 3), flush_to_zero=True, operands=1e-3, ties="rule")
    text = str(report)
    assert len(text.splitlines()) <= 40
    for part in ("grad_weight  float32 4x3x3x3: FAIL, 1 of 108 elements outside the bound", "in a single element: ",
                 "output channel 1, input channel 2, tap row 0, tap column 0", "in the first row (0): ",
                 "expected ", "NaN 1 (golden 0)", "mix_tolerance: FAIL", "SNR -inf dB", "grad_bias  float32 4: pass",
                 "judged for sums in bfloat16, 3 parts stored in float32, operands rounded by at most 0.001, "
                 "subnormal numbers flushed to zero, ties rounded by the vendor's rule"):
        assert part in text, part


def test_elements_name_what_is_there_and_what_is_allowed(golden):
    found = compare(golden, spoiled(golden)).outputs["grad_input"]
    assert found.first.index == (0, 0, 0, 0)
    assert found.first.expected == golden.outputs["grad_input"][0, 0, 0, 0]
    assert found.first.got == 2 * found.first.expected
    assert found.first.low <= found.first.expected <= found.first.high
    assert found.first.steps > 1
    assert found.worst.steps >= found.first.steps
    nan = compare(golden, spoiled(golden)).outputs["grad_weight"]
    assert nan.first.steps is None
    assert nan.first.index == (1, 2, 0, 0)
    assert nan.nan == (1, 0)


def test_figures(golden):
    outputs = dict(golden.outputs)
    outputs["grad_bias"] = np.nextafter(outputs["grad_bias"], np.float32(np.inf))
    found = compare(golden, outputs).outputs["grad_bias"]
    assert (found.steps.largest, found.steps.mean, found.steps.above_0, found.steps.above_1) == (1, 1, 1, 0)
    exact = golden.reference["grad_bias"]
    noise = ((outputs["grad_bias"] - exact)**2).sum()
    assert found.snr_db == pytest.approx(10 * np.log10((exact**2).sum() / noise))


def test_json_has_everything(golden):
    report = compare(golden, spoiled(golden), ["bound", "mixed"])
    found = json.loads(report.to_json())
    assert found["passed"] is False
    assert found["verdict"] == str(report).splitlines()[0]
    assert found["outputs"]["grad_weight"]["first"]["got"] == "nan"
    assert found["outputs"]["grad_weight"]["snr_db"] == "-inf"
    assert found["outputs"]["grad_input"]["wrong"] == 24
    assert found["outputs"]["grad_input"]["standards"][0]["standard"] == "mix_tolerance"
    assert set(found["outputs"]) == set(golden.outputs)


def test_the_page_has_a_row_for_every_key(golden):
    page = (ROOT / "docs" / "verdict.md").read_text(encoding="utf-8")
    part = page[page.index("## The report as JSON"):page.index("## The bound")]
    found = compare(golden, spoiled(golden), ["bound", "mixed"]).to_dict()
    output = found["outputs"]["grad_input"]
    keys = {*found, *output, *output["first"], *output["steps"], *output["standards"][0]}
    assert keys | {"cases", "without_verdict"} <= set(re.findall(r"`(\w+)`", part))


def test_a_report_is_true_if_it_passed(golden):
    assert compare(golden, golden.outputs)
    assert not compare(golden, spoiled(golden))


def test_the_report_of_the_documents_is_what_comes_out():
    case = Drawn(1, (1, 1), (1, 1), (1, 1), (1, 1), (2, 16, 14, 14), (2, 8, 14, 14), (8, 16, 3, 3))
    call = single(case, lambda shape: normal(np.random.default_rng(0), shape))[0]
    fewer = call.tensors[1].copy()
    fewer[:, :, 2] = 0
    golden, other = golden_of(call), golden_of(call._replace(tensors=(call.tensors[0], fewer)))
    results = golden.outputs["diff_src"].copy()
    results[:, :, -1] = other.outputs["diff_src"][:, :, -1]
    page = (ROOT / "docs" / "verdict.md").read_text(encoding="utf-8")
    assert f"```text\n{compare(golden, results, ['bound', 'mixed', 'cosine'])}\n```" in page
