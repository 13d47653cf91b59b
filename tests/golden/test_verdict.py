"""The verdict: honest results of other kernels pass, planted bugs fail, and what is not comparable gets no verdict."""

from __future__ import annotations

import csv
from collections import Counter
from importlib.util import find_spec

import ml_dtypes
import numpy as np
import pytest
from drawn import Drawn, normal
from golden_problems import DATA, Problem, draw_problem, golden_of, planted, summed, tree
from gradient_calls import GradientCall, forward, single, together
from places import DATA as FOLDER
from runtimes import onnxruntime_run

import convreg
import convreg.onnx
from convreg import OpError, OpTypeError
from convreg.golden import Golden, compare, ranks

SIX = ("float32", "bfloat16", "float16", "hifloat8", "float8_e4m3fn", "float8_e5m2")
CASE = Drawn(1, (1, 1), (1, 1), (1, 1), (1, 1), (2, 3, 5, 4), (2, 4, 5, 4), (4, 3, 3, 3))


def make(shape):
    return normal(np.random.default_rng(7), shape)


def products(dy, format="float32", w=1.0, **more) -> Golden:
    """Golden vectors whose exact results are dy times w, one by one."""
    dy = (np.asarray(dy, np.float32) if isinstance(dy, list) else dy).reshape(-1, 1, 1)
    arguments = {"strides": [1], "pads_begin": [0], "pads_end": [0], "dilations": [1], "data_format": "NCX",
                 "weights_format": "OIX", "dst_shape": list(dy.shape), "conformance": "emulation",
                 "output_format": format, **more}
    weights = np.full((1, 1, 1), w, np.float32)
    return golden_of(GradientCall("onednn::ConvolutionBackwardData", (dy, weights), arguments))


def numbers(values, format="float32"):
    return convreg.quantize(np.asarray(values, np.float32).reshape(-1, 1, 1), format)


def tell(report, problem: Problem) -> str:
    return f"{problem.name} {problem.case}\n{report}"


@pytest.mark.parametrize("format", SIX)
def test_other_orders_of_summation_pass_and_planted_bugs_fail(format):
    rng = np.random.default_rng(11)
    made, found = Counter(), Counter()
    for _ in range(12):
        problem = draw_problem(rng, format)
        honest = problem.honest
        for values in (summed(problem, problem.case), summed(problem, problem.case, backwards=True), tree(problem)):
            report = compare(problem.golden, problem.rounded(values))
            assert report, tell(report, problem)
        for bug, result in planted(problem).items():
            if convreg.ulp_distance(result, honest).any():
                made[bug] += 1
                found[bug] += not compare(problem.golden, result)
    assert made.total() > 60
    assert found.total() >= 0.99 * made.total(), {bug: (found[bug], made[bug]) for bug in made}


def test_onnxruntime_passes():
    rng = np.random.default_rng(13)
    calls = [draw_problem(rng, "float32").call for _ in range(8)]
    calls += [*forward(CASE, make), *together(CASE, make, (True, True, True), False)[:1]]
    for call in calls:
        golden = golden_of(call)
        results = onnxruntime_run(convreg.onnx.lower(call.model), call.feeds)
        report = compare(golden, {name: results[name] for name in golden.outputs})
        assert report, (call, str(report))


def torch_gradients(problem: Problem, torch) -> np.ndarray:
    """The same gradient by PyTorch, in the format of the problem."""
    case, held = problem.case, problem.operands
    dtype = {"float32": torch.float32, "bfloat16": torch.bfloat16}[problem.format]
    tensors = {name: torch.from_numpy(np.ascontiguousarray(array)).to(dtype) for name, array in held.items()}
    pads = tuple(max(b, e) for b, e in zip(case.begin, case.end, strict=True))
    assert pads == case.begin == case.end
    masks = (problem.name == DATA, problem.name != DATA, False)
    found = torch.ops.aten.convolution_backward(
        tensors["small"], tensors.get("large", torch.zeros(case.large, dtype=dtype)),
        tensors.get("weights", torch.zeros(case.weights, dtype=dtype)), None, list(case.stride), list(case.begin),
        list(case.dilation), False, [0] * len(case.stride), case.groups, list(masks))
    return problem.rounded(found[0 if problem.name == DATA else 1].float().numpy())


def symmetric(rng: np.random.Generator, format: str) -> Problem:
    while True:
        problem = draw_problem(rng, format)
        if problem.case.begin == problem.case.end:
            return problem


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
@pytest.mark.parametrize("format", ["float32", "bfloat16"])
def test_torch_passes(format):
    import torch

    rng = np.random.default_rng(17)
    for _ in range(10):
        problem = symmetric(rng, format)
        report = compare(problem.golden, torch_gradients(problem, torch))
        assert report, tell(report, problem)


@pytest.mark.slow
def test_hundreds_of_problems(capsys):
    """Counts of false alarms and found bugs over problems, formats and producers; they are printed."""
    torch = __import__("torch") if find_spec("torch") else None
    rng = np.random.default_rng(2026)
    alarms, honest, elements, made, found = (Counter() for _ in range(5))

    def judged(producer, problem, result):
        report = compare(problem.golden, result)
        honest[producer] += 1
        elements[producer] += result.size
        alarms[producer] += not report

    for format in SIX:
        for number in range(250):
            problem = draw_problem(rng, format, channels=24 if number % 5 == 0 else 6)
            judged(f"tap after tap, {format}", problem, problem.honest)
            judged(f"backwards, {format}", problem, problem.rounded(summed(problem, problem.case, backwards=True)))
            judged(f"tree, {format}", problem, problem.rounded(tree(problem)))
            judged(f"convreg, {format}", problem, problem.golden.outputs[problem.output])
            if format == "float32":
                results = onnxruntime_run(convreg.onnx.lower(problem.call.model), problem.call.feeds)
                judged("onnxruntime, float32", problem, results[problem.output])
            if torch and format in ("float32", "bfloat16"):
                even = symmetric(rng, format)
                judged(f"torch, {format}", even, torch_gradients(even, torch))
            reference = problem.honest
            for bug, result in planted(problem).items():
                if convreg.ulp_distance(result, reference).any():
                    made[format, bug] += 1
                    found[format, bug] += not compare(problem.golden, result)
    with capsys.disabled():
        print()
        for producer in honest:
            print(f"{producer:29}{alarms[producer]} alarms of {honest[producer]} ({elements[producer]} elements)")
        for format in SIX:
            mine = [key for key in made if key[0] == format]
            missed = {key[1]: f"{found[key]} of {made[key]}" for key in mine if found[key] < made[key]}
            counts = [sum(counter[key] for key in mine) for counter in (found, made)]
            print(f"{format:16}found {counts[0]} of {counts[1]} bugs {missed}")
    assert not alarms.total()
    assert found.total() >= 0.99 * made.total()


def neighbour_rows():
    with (FOLDER / "hifloat8_neighbours.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_every_wrong_hifloat8_neighbour_is_refused():
    rows = neighbour_rows()
    a, b = (np.array([int(row[name]) for row in rows], np.uint8) for name in "ab")
    golden = products(a.view(convreg.hifloat8), "hifloat8")
    np.testing.assert_array_equal(golden.outputs["diff_src"].view(np.uint8).ravel(), a)
    assert compare(golden, a.reshape(-1, 1, 1))
    report = compare(golden, b.reshape(-1, 1, 1)).outputs["diff_src"]
    assert report.wrong == len(rows) == 846


def test_every_true_hifloat8_neighbour_is_judged_by_value():
    """A value between two neighbours becomes the nearer one, and either one from the middle."""
    values = np.unique(convreg.dequantize(np.arange(256, dtype=np.uint8), "hifloat8"))
    values = values[np.isfinite(values)].astype(np.float64)
    low, high = values[:-1], values[1:]
    for share in (0.25, 0.5, 0.75):
        exact = (low + (high - low) * share).astype(np.float32)
        golden = products(exact, "hifloat8")
        assert bool(compare(golden, numbers(low, "hifloat8"))) == (share <= 0.5)
        assert bool(compare(golden, numbers(high, "hifloat8"))) == (share >= 0.5)
        found = compare(golden, numbers(low, "hifloat8")).outputs["diff_src"]
        assert found.wrong == (0 if share <= 0.5 else low.size)


NAN, INF = np.nan, np.inf


@pytest.mark.parametrize(("exact", "right", "wrong"), [
    (0.0, [0.0, -0.0], [1e-45, NAN]),
    (-0.0, [0.0, -0.0], [INF]),
    (NAN, [NAN, -NAN], [0.0, INF]),
    (INF, [INF], [-INF, NAN, 3e38]),
    (-INF, [-INF], [INF, NAN, -3e38]),
    (3.4028234e38, [3.4028234e38], [INF, NAN]),
])
def test_special_values(exact, right, wrong):
    golden = products([exact], "float32")
    for value in right:
        assert compare(golden, numbers([value])), value
    for value in wrong:
        assert not compare(golden, numbers([value])), value


@pytest.mark.parametrize(("format", "saturate", "right", "wrong"), [
    ("float8_e4m3fn", False, [0x7F, 0xFF], [0x7E]), ("float8_e4m3fn", True, [0x7E], [0x7F]),
    ("float8_e5m2", False, [0x7C], [0x7B, 0x7E]), ("hifloat8", False, [0x6F], [0x6E, 0x80, 0xEF]),
    ("hifloat8", True, [0x6E], [0x6F]), ("float16", False, [0x7C00], [0x7BFF])])
def test_overflow_of_the_output(format, saturate, right, wrong):
    for exact in (1e30, INF):
        golden = products([exact], format, saturate=saturate)
        storage = np.uint16 if format == "float16" else np.uint8
        for code in right:
            assert compare(golden, np.full((1, 1, 1), code, storage)), code
        for code in wrong:
            assert not compare(golden, np.full((1, 1, 1), code, storage)), code


def test_a_tiny_negative_number_that_becomes_nan_is_found():
    golden = products([-1e-9, -3e-7], "hifloat8")
    assert compare(golden, np.array([0x00, 0x81], np.uint8).reshape(-1, 1, 1))
    assert compare(golden, np.array([0x80, 0x81], np.uint8).reshape(-1, 1, 1)).outputs["diff_src"].wrong == 1


def test_possible_but_unlikely_results_are_counted_and_pass():
    dy = np.float32(np.random.default_rng(0).random((1, 4096, 3)))
    call = GradientCall("onednn::ConvolutionBackwardData", (dy, np.ones((4096, 1, 1), np.float32)), {
        "strides": [1], "pads_begin": [0], "pads_end": [0], "dilations": [1], "data_format": "NCX",
        "weights_format": "OIX", "dst_shape": [1, 1, 3]})
    golden = golden_of(call)
    exact, bound = golden.reference["diff_src"], golden.bound["diff_src"]
    report = compare(golden, (exact + 0.5 * bound).astype(np.float32))
    assert report.outputs["diff_src"].unlikely == 3
    assert report
    assert "possible, but unlikely" in str(report)
    assert compare(golden, golden.outputs).outputs["diff_src"].unlikely == 0
    assert not compare(golden, (exact + 1.5 * bound).astype(np.float32))


def test_codes_and_any_memory_order_are_taken():
    call = single(CASE, lambda shape: make(shape).astype(ml_dtypes.bfloat16))[0]
    golden = golden_of(call)
    output = golden.outputs["diff_src"]
    for results in (output, {"diff_src": output}, output.view(np.uint16), np.asfortranarray(output),
                    output.view(np.uint16).astype(">u2")):
        assert compare(golden, results)
    wide = golden_of(single(CASE, make)[0])
    assert compare(wide, wide.outputs["diff_src"].astype(">f4"))


def test_masked_outputs_need_no_result():
    golden = golden_of(together(CASE, make, (True, False, True), False)[0])
    assert compare(golden, golden.outputs)
    assert compare(golden, {**golden.outputs, "grad_weight": None})
    with pytest.raises(OpError, match="grad_weight"):
        compare(golden, {**golden.outputs, "grad_weight": make(CASE.weights)})


def test_empty_outputs_pass():
    golden = products(np.zeros((0,), np.float32))
    assert compare(golden, np.zeros((0, 1, 1), np.float32), ["bound", "mixed", "stat_rel_err", "cosine", "requant"])


GOLDEN = golden_of(together(CASE, make, (True, True, True), False)[0])
OUTPUTS = GOLDEN.outputs
NARROW = golden_of(single(CASE, lambda shape: make(shape).astype(ml_dtypes.bfloat16))[0])


@pytest.mark.parametrize(("golden", "results", "told"), [
    (GOLDEN, {name: OUTPUTS[name] for name in ("grad_input", "grad_weight")}, "grad_bias='no array'.*float32 in shape"),
    (GOLDEN, {**OUTPUTS, "grad_inptu": OUTPUTS["grad_input"]}, "did you mean grad_input"),
    (GOLDEN, {**OUTPUTS, 3: OUTPUTS["grad_input"]}, "results=3"),
    (GOLDEN, {**OUTPUTS, "grad_bias": OUTPUTS["grad_bias"][:2]}, r"grad_bias='shape \[2\]'.*shape \[4\]"),
    (GOLDEN, {**OUTPUTS, "grad_bias": OUTPUTS["grad_bias"].astype(np.float64)}, "grad_bias='float64'.*float32"),
    (GOLDEN, {**OUTPUTS, "grad_bias": OUTPUTS["grad_bias"].view(np.uint32)}, "uint32"),
    (GOLDEN, OUTPUTS["grad_input"], "a mapping with an array for each of grad_input"),
    (NARROW, make(NARROW.outputs["diff_src"].shape), "bfloat16, or its codes as uint16"),
    (NARROW, NARROW.outputs["diff_src"].view(np.int16), "int16"),
    (NARROW, "result.bin", "<U10"),
    ("golden", OUTPUTS, "a Golden, as make and load return"),
])
def test_what_is_not_comparable_gets_no_verdict(golden, results, told):
    with pytest.raises((OpError, OpTypeError), match=told):
        compare(golden, results)


@pytest.mark.parametrize(("choices", "told"), [
    ({"standard": "bounds"}, "mix_tolerance"), ({"standard": []}, "standard"), ({"standard": [3]}, "standard=3"),
    ({"accumulator": "float8"}, "truncating"), ({"parts": "bfloat16"}, "a pair"), ({"parts": ("hifloat8", 2)}, "parts"),
    ({"parts": ("bfloat16", 0)}, "positive number"), ({"operands": "hf64"}, "hf32"), ({"operands": 1.5}, "operands"),
    ({"flush_to_zero": 1}, "True or False"), ({"ties": "up"}, "rule"), ({"threads": 0}, "threads"),
    ({"tolerance": 1}, "tolerance"), ({"other": {"grad_input": None}}, "grad_input"),
])
def test_wrong_arguments(choices, told):
    with pytest.raises((OpError, KeyError), match=told):
        compare(GOLDEN, OUTPUTS, **choices)


def test_a_golden_that_is_not_that_of_its_call_is_refused():
    def changed(**outputs):
        return Golden("", GOLDEN.op, GOLDEN.attributes, None, GOLDEN.inputs, {**OUTPUTS, **outputs})

    for golden in (changed(grad_bias=OUTPUTS["grad_bias"][:2]), changed(other=OUTPUTS["grad_bias"]),
                   changed(grad_bias=OUTPUTS["grad_bias"].astype(np.float64))):
        with pytest.raises(OpError):
            compare(golden, golden.outputs)
    masked = Golden("", GOLDEN.op, {**GOLDEN.attributes, "output_mask": (True, True, False)}, None, GOLDEN.inputs,
                    OUTPUTS)
    with pytest.raises(OpError, match="grad_bias"):
        compare(masked, OUTPUTS)
    report = compare(changed(grad_bias=2 * OUTPUTS["grad_bias"]), OUTPUTS)
    assert report
    assert report.outputs["grad_bias"].golden_outside == 4
    assert "golden result lie outside" in str(report)


def test_a_kernel_that_overwrites_its_inputs_is_told():
    golden = golden_of(single(CASE, make)[0])
    for array in golden.inputs.values():
        array[...] = 0
    text = str(compare(golden, np.zeros_like(golden.outputs["diff_src"])))
    assert "lie outside the bound: another program made it, or the inputs have changed since" in text


def test_results_do_not_depend_on_blocks(monkeypatch):
    problem = draw_problem(np.random.default_rng(3), "float32", "normal")
    wrong = next(iter(planted(problem).values()))
    whole = compare(problem.golden, wrong).to_dict()
    monkeypatch.setattr("convreg.golden.bounds.BLOCK", 7)
    again = compare(problem.golden, wrong).to_dict()
    for record in (whole, again):
        for output in record["outputs"].values():
            output["snr_db"] = output["steps"]["mean"] = 0  # sums of blocks
    assert whole == again


def test_nan_has_no_rank():
    assert ranks.ranks(np.float32([np.nan]), convreg.formats()["float32"])[0] == ranks.NAN
