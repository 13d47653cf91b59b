"""onnx's backend tests of nodes on both engines, under every version of the standard operators that takes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from backend_suite import Case, difference, older_cases, own_cases

import convreg.onnx
from convreg import GraphError, OpError

pytest.importorskip("onnxruntime")

QUICK = ("softmax", "logsoftmax", "hardmax", "lrn", "lpnormalization", "maxpool")
"""Modules of onnx's backend tests."""

KNOWN = {
    **{f"test_attention_4d_with_past_and_present_qk_matmul_bias_{rank}d_mask_causal":
       "onnxruntime returns masked scores as the least float32, onnx as -inf" for rank in (3, 4)},
    **{f"test_resize_downsample_scales_{mode}_align_corners":
       "onnx takes the length before it is cut to a whole number, onnxruntime after" for mode in ("linear", "cubic")},
    "test_maxunpool_export_with_output_shape": "onnxruntime places the values as in the shape without output_shape",
    "test_if_opt": "the output is optional: onnx's evaluator returns a sequence of the stated tensor",
    **{f"test_training_dropout{name}": "the mask is random" for name in ("", "_default", "_mask", "_default_mask")},
}
"""Tests whose results differ, and why."""


def results_of(case: Case, engine: str) -> list[Any] | None:
    """Return the outputs, None where the engine refuses the model."""
    try:
        return [*convreg.onnx.run(case.model, case.feeds, engine=engine).values()]
    except (GraphError, OpError):
        return None


def findings(cases: Iterable[Case]) -> tuple[list[str], int]:
    """Return a line for each wrong result, and how many results were compared."""
    wrong, compared = [], 0
    for own in cases:
        for case in (own, *older_cases(own)):
            found = {engine: results_of(case, engine) for engine in ("onnxruntime", "reference")}
            pairs = [(engine, results, case.expected) for engine, results in found.items()] if case.expected else [
                ("reference", found["reference"], found["onnxruntime"])]
            for engine, results, expected in pairs:
                if results is None or expected is None:
                    continue
                compared += 1
                reason = difference(results, expected)
                if reason and own.name not in KNOWN:
                    wrong.append(f"{case.name}, {engine}: {reason}")
    return wrong, compared


def test_tests_of_what_onnx_has_wrong():
    wrong, compared = findings(own_cases(QUICK))
    assert not wrong, "\n".join(wrong)
    assert compared > 100


@pytest.mark.slow
def test_the_whole_suite():
    wrong, compared = findings(own_cases())
    assert not wrong, "\n".join(wrong)
    assert compared > 3000
