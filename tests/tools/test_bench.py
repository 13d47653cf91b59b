"""`convreg bench`: that it notices wrong results, its protocol, its algorithms. Nothing here depends on times."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
from bench_layers import FORMATS
from convreg.ops.kernels import threads
from convreg.tools.bench import check as bench_check
from convreg.tools.bench import peers as bench_peers
from convreg.tools.bench import report as bench_report
from convreg.tools.bench import timing as bench_timing
from convreg.tools.bench.check import DTYPES, Case, defect, make_case, narrowed, reference
from convreg.tools.bench.jobs import jobs_of
from convreg.tools.bench.peer import Prepared, Unsupported
from convreg.tools.bench.peers import PEERS, Convreg, open_peers
from convreg.tools.bench.problems import problem_of
from convreg.tools.bench.timing import TURN, checked, measure, run
from convreg.tools.bench.worker import take_turn
from convreg.tools.cli import main

import convreg
from convreg import GraphError
from convreg.layers import DIRECTIONS, LAYOUTS

# ---------------------------------------------------------------------------------------------------------------------
# The check


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_reference_equals_the_plain_loops(problems, direction, layout, monkeypatch):
    monkeypatch.setattr(bench_check, "BLOCK", 100)  # several blocks even for these small layers
    for problem in problems:
        case = make_case(problem, direction, "f32", layout)
        prepared = Convreg(1).prepare(case)
        settings = {name: setting for name, setting in prepared.call.keywords.items() if name != "threads"}
        wanted = prepared.array(prepared.call.func.reference(*prepared.call.args, **settings))
        np.testing.assert_allclose(reference(case), wanted, rtol=1e-12, atol=1e-12, err_msg=problem.name)


def test_a_call_that_is_named_twice_is_timed_once():
    layer = problem_of("mb2ic8ih9oc6kh3ph1")
    once = jobs_of([layer], ["data"], ["f32", "e5m2"], ["ncx"])
    assert jobs_of([layer] * 2, ["data"] * 2, ["f32", "e5m2", "f32"], ["ncx"] * 2) == once
    assert len(once) == 3


@pytest.mark.parametrize(("dtype", "result"), FORMATS)
def test_defects_are_found(dtype, result):
    case = make_case(problem_of("mb2ic8ih9oc6kh3ph1"), "data", dtype, "ncx", result)
    expected = reference(case)
    right = narrowed(expected, result)
    assert defect(case, right, expected) == ""
    assert "allowed" in defect(case, np.roll(right, 1, axis=3), expected)
    assert "error nan" in defect(case, narrowed(np.full(right.shape, np.nan), result), expected)
    wrong = "nan" if result == "e4m3fn" else "inf"
    assert f"error {wrong}" in defect(case, narrowed(np.full(right.shape, np.inf), result), expected)
    assert "shape" in defect(case, right[:, :-1], expected)
    assert "instead of" in defect(case, expected, expected)
    one = right.copy()
    one[1, 7, 8, 8:] = narrowed(np.full(1, 3, np.float32), result)
    assert "at [1, 7, 8, 8]" in defect(case, one, expected)


@pytest.mark.parametrize("dtype", ["e4m3fn", "e5m2", "hifloat8"])
def test_a_result_of_8_bits_is_rounded_once(dtype):
    """The neighbours of the right code are wrong, except where the sum lies between them."""
    case = make_case(problem_of("mb1ic8ih9oc6kh3ph1"), "data", dtype, "ncx", dtype)
    expected = reference(case)
    right = narrowed(expected, dtype)
    above = narrowed(np.asarray(convreg.dequantize(right), np.float64) * 1.2, dtype)
    assert "times the allowed one" in defect(case, above, expected)


def test_sums_beyond_the_largest_number_overflow():
    case = make_case(problem_of("mb1ic8ih9oc6kh3ph1"), "data", "e4m3fn", "ncx")
    expected = np.full(case.result_shape, 463.0)
    assert defect(case, narrowed(expected, "e4m3fn"), expected) == ""
    expected = np.full(case.result_shape, -500.0)
    assert defect(case, narrowed(expected, "e4m3fn"), expected) == ""
    assert "allowed" in defect(case, narrowed(np.full(case.result_shape, 448.0), "e4m3fn"), expected)
    assert "error nan" in defect(case, narrowed(expected, "e4m3fn"), np.full(case.result_shape, 400.0))


@pytest.mark.parametrize("dtype", ["e4m3fn", "e5m2", "hifloat8"])
def test_8_bit_operands_are_timed_with_results_of_their_own_and_in_f32(machine, dtype):
    layer = problem_of("mb1ic3ih5oc4kh3ph1")
    report = run([layer], dtypes=[dtype, "f32"], peers=["f32"], repeat=1, seconds=0)
    assert [(row.direction, row.dtype, row.result) for row in report.rows] == [
        ("data", dtype, dtype), ("weights", dtype, dtype), ("data", dtype, "f32"), ("weights", dtype, "f32"),
        ("data", "f32", "f32"), ("weights", "f32", "f32")]
    assert not any(row.wrong for row in report.rows)
    assert all(row.timings["convreg"].runs for row in report.rows)
    assert [title for title, _ in report.tables()] == [
        f"data gradient, {dtype}, ncx", f"weights gradient, {dtype}, ncx",
        f"data gradient, {dtype}, results in f32, ncx", f"weights gradient, {dtype}, results in f32, ncx",
        "data gradient, f32, ncx", "weights gradient, f32, ncx"]
    document = json.loads(bench_report.as_json(report))
    assert [entry["result"] for entry in document["results"]] == [dtype, dtype, "f32", "f32", "f32", "f32"]
    assert [entry["result"] for entry in document["tables"]] == [dtype, dtype, "f32", "f32", "f32", "f32"]
    assert report.rows[0].bytes < report.rows[2].bytes


@pytest.mark.parametrize("dtype", ["e4m3fn", "e5m2", "hifloat8"])
def test_what_is_timed_is_the_call_of_a_user(dtype):
    layer = problem_of("mb1ic3ih5oc4kh3ph1")
    own, wide = (Convreg(1).prepare(make_case(layer, "data", dtype, "ncx", result)) for result in (dtype, "f32"))
    assert own.call().dtype == DTYPES[dtype]
    assert "output_format" not in own.call.keywords
    assert wide.call().dtype == np.float32


def test_a_missing_tap_is_found():
    case = make_case(problem_of("mb2ic8ih9oc6kh3ph1"), "data", "f32", "ncx")
    operands = {**case.operands, "taps": case.operands["taps"].copy()}
    operands["taps"][5, 3, 2, 2] = 0
    prepared = Convreg(1).prepare(replace(case, operands=operands))
    assert defect(case, prepared.array(prepared.call()), reference(case))


def test_operands_are_the_same_on_every_run():
    problem = problem_of("mb2ic8ih9oc6kh3ph1")
    first, second = (make_case(problem, "forward", "bf16", "nxc").operands for _ in range(2))
    for name, array in first.items():
        np.testing.assert_array_equal(array, second[name])
    assert first["large"].transpose(0, 2, 3, 1).flags.c_contiguous


# ---------------------------------------------------------------------------------------------------------------------
# Peers


@pytest.mark.parametrize("name", PEERS)
def test_peers_compute_what_convreg_does(problems, name):
    opened, absent = open_peers([name], 1)
    if name in absent:
        pytest.skip(absent[name])
    done = 0
    for problem in problems:
        for direction in DIRECTIONS:
            for dtype, layout in (("f32", "ncx"), ("f32", "nxc"), ("bf16", "ncx")):
                case = make_case(problem, direction, dtype, layout)
                try:
                    prepared = opened[name].prepare(case)
                except Unsupported:
                    continue
                assert defect(case, prepared.array(prepared.call()), reference(case)) == "", (problem.name, direction)
                done += 1
    assert done >= len(problems)


class Wrong(Convreg):
    """A library that returns its operands' sum in place of a gradient of the data."""

    def prepare(self, case: Case) -> Prepared:
        if case.direction != "data":
            raise Unsupported("has no such thing")
        return Prepared(lambda: np.full(case.result_shape, 0.5, np.float32), lambda array: array)


def missing(threads):
    raise ImportError("nobody has it")


def test_a_wrong_peer_is_marked(monkeypatch, machine):
    monkeypatch.setattr(bench_peers, "PEERS", {"wrong": Wrong, "twin": Convreg, "absent": missing})
    monkeypatch.setattr(bench_timing, "PEERS", bench_peers.PEERS)
    report = run([problem_of("mb1ic3ih5oc4kh3ph1")], peers=["wrong", "twin", "absent"], repeat=2, seconds=0)
    data, weights = report.rows
    assert [*data.wrong] == ["wrong"]
    assert data.ratio("wrong") is None
    assert data.ratio("twin") > 0
    assert weights.unsupported == {"wrong": "has no such thing"}
    assert report.absent == {"absent": "nobody has it"}
    assert [*data.timings] == ["convreg", "wrong", "twin"]
    shown = bench_report.text(report)
    assert "wrong is wrong: error" in shown
    assert "wrong does not compute these: has no such thing" in shown
    assert "absent is not measured: nobody has it" in shown
    assert "worst against twin" in shown
    assert "worst against wrong" not in shown


def test_wrong_results_of_ours_end_with_an_error(monkeypatch, machine, capsys):
    monkeypatch.setattr(bench_peers, "Convreg", Wrong)
    assert main(["bench", "mb1ic3ih5oc4kh3ph1", "--peers", "none", "--dir", "BWD_D", "--repeat", "1"]) == 1
    out, error = capsys.readouterr()
    assert "convreg is wrong" in out
    assert "results of convreg are wrong" in error


class Noted(Convreg):
    """Notes how many threads it is to run on."""

    asked: ClassVar[list[int]] = []

    def __init__(self, threads):
        super().__init__(threads)
        self.asked.append(threads)


def test_every_library_gets_the_threads_that_convreg_runs_on(monkeypatch, machine):
    monkeypatch.setattr(bench_peers, "PEERS", {"noted": Noted})
    monkeypatch.setattr(bench_timing, "PEERS", bench_peers.PEERS)
    monkeypatch.setattr(Noted, "asked", [])
    monkeypatch.setattr(threads, "_MOST", 3)
    layers = [problem_of("mb1ic3ih5oc4kh3ph1")]
    for default, wanted in ((2, 2), (64, 3)):
        monkeypatch.setattr(threads, "_DEFAULT", default)
        report = run(layers, directions=["data"], peers=["noted"], repeat=1, seconds=0)
        assert report.threads == (wanted if threads.OPENMP else 1)
        assert Noted.asked[-1] == report.threads
    most = "1 to 3" if threads.OPENMP else "1"
    for refused in (0, 4, 10**6):
        with pytest.raises(GraphError, match=f"threads={refused} is refused; allowed: {most}, "):
            run(layers, peers=(), threads=refused)
    monkeypatch.setattr(threads, "OPENMP", False)
    assert run(layers, directions=["data"], peers=(), repeat=1, seconds=0).threads == 1
    with pytest.raises(GraphError, match="threads=2 is refused; allowed: 1, "):
        run(layers, peers=(), threads=2)


def test_libraries_that_would_run_on_fewer_threads_are_left_out(monkeypatch):
    case = make_case(problem_of("mb1ic3ih5oc4kh3ph1"), "data", "f32", "ncx")
    more = (os.cpu_count() or 1) + 1
    _, absent = open_peers(["onednn"], more)
    if hasattr(os, "sched_getaffinity"):
        assert "one thread per processor" in absent["onednn"]
    opened, absent = open_peers(["openvino"], more)
    if not absent:
        with pytest.raises(Unsupported, match=f"threads, not {more}"):
            opened["openvino"].prepare(case)


# ---------------------------------------------------------------------------------------------------------------------
# The protocol, on a clock of its own


class Clock:
    def __init__(self, monkeypatch):
        self.now, self.log = 0.0, []
        monkeypatch.setattr(bench_timing.time, "perf_counter", lambda: self.now)
        monkeypatch.setattr(bench_timing.time, "sleep", lambda seconds: None)

    def call(self, name, *seconds):
        times = iter(seconds * 1000)

        def run():
            self.log.append(name)
            self.now += next(times)

        return partial(take_turn, run)


def test_peers_take_turns_and_the_shortest_run_counts(monkeypatch):
    clock = Clock(monkeypatch)
    timings = measure({"a": clock.call("a", 0.5, 0.25), "b": clock.call("b", 1.0, 2.0)}, repeat=5, seconds=0.0)
    assert clock.log == ["a", "b"] * 2  # both are slow for what they may take
    clock.log.clear()
    timings = measure({"a": clock.call("a", 0.5, 0.25), "b": clock.call("b", 1.0, 2.0)}, repeat=5, seconds=1.0)
    assert clock.log == ["a", "b"] * 5
    assert {name: timing.seconds for name, timing in timings.items()} == {"a": 0.25, "b": 1.0}
    assert {timing.runs for timing in timings.values()} == {5}


def test_a_slow_peer_stops_early_and_short_calls_repeat(monkeypatch):
    clock = Clock(monkeypatch)
    timings = measure({"a": clock.call("a", 0.125), "slow": clock.call("slow", 8.0)}, repeat=5, seconds=1.0)
    assert timings["slow"].runs == 2
    assert timings["a"].runs == 8
    clock.log.clear()
    measure({"a": clock.call("a", TURN / 4), "b": clock.call("b", TURN)}, repeat=1, seconds=0.0)
    assert clock.log == ["a"] * 4 + ["b"]


# ---------------------------------------------------------------------------------------------------------------------
# Algorithms


def fitting(problem, direction):
    """The names of the algorithms that fit a layer: the chosen one, then the others."""
    call = Convreg(1).prepare(make_case(problem, direction, "f32", "ncx")).call
    (choice,) = convreg.algorithm(call.func, *call.args, **call.keywords)
    return [choice.name, *(one.name for one in choice.candidates if one.name != choice.name)]


def test_each_result_names_the_algorithm_that_computes_it(machine):
    problems = [problem_of("mb1ic3ih5oc4kh3ph1"), problem_of("g8mb1ic8ih5oc8kh3ph1")]
    report = run(problems, peers=["f32"], repeat=1, seconds=0, threads=1)
    assert [row.algorithm for row in report.rows] == [
        fitting(problem, direction)[0] for direction in ("data", "weights") for problem in problems]


def test_algorithms_of_parts_are_joined(monkeypatch):
    choices = [SimpleNamespace(name=name) for name in ("two", "one", "two")]
    monkeypatch.setattr(convreg, "algorithm", lambda *_, **__: choices)
    assert Convreg(1).prepare(make_case(problem_of("ic3ih5oc4kh3"), "data", "f32", "ncx")).algorithm() == "two+one"


def test_a_forced_algorithm_computes_what_it_fits(machine, monkeypatch, capsys, tmp_path):
    dense, depthwise = problem_of("mb1ic3ih5oc4kh3ph1ndense"), problem_of("g8mb1ic8ih5oc8kh3ph1nsplit")
    name = next(name for name in fitting(depthwise, "data") if name not in fitting(dense, "data"))
    assert main(["bench", "mb1ic3ih5oc4kh3ph1ndense", "g8mb1ic8ih5oc8kh3ph1nsplit", "--algorithm", name, "--peers",
                 "f32", "--dtype", "bf16", "--repeat", "1", "--seconds", "0", "--threads", "1", "--json",
                 str(tmp_path / "figures.json")]) == 0
    out = capsys.readouterr().out
    assert f", algorithm {name} forced\n" in out
    assert (f'\nconvreg does not compute dense: onednn::ConvolutionBackwardData: inputs="a call that the algorithm '
            f"'{name}' does not fit\" is refused; allowed: the algorithms that fit it: ") in out
    written = json.loads((tmp_path / "figures.json").read_text())
    assert written["algorithm"] == name
    refused, forced, *weights = written["results"]
    assert (refused["algorithm"], [*refused["ms"]], [*refused["unsupported"]]) == ("", ["f32"], ["convreg"])
    assert (forced["algorithm"], [*forced["ms"]], forced["unsupported"]) == (name, ["convreg", "f32"], {})
    assert all(row["algorithm"].startswith("weights_") for row in weights)  # the name does not apply to them


def test_only_convregs_own_calls_are_forced(machine, monkeypatch):
    seen = []
    real = convreg.force_algorithm
    monkeypatch.setattr(convreg, "force_algorithm", lambda name: seen.append(name) or real(name))
    layer = problem_of("mb1ic3ih5oc4kh3ph1")
    (row,) = run([layer], directions=["data"], dtypes=["bf16"], peers=[], repeat=1, seconds=0, threads=1,
                 algorithm="reference").rows
    assert row.algorithm == "reference"
    assert {*seen} == {"reference"}
    seen.clear()
    peers, _ = open_peers(["f32"], 1)
    checked(make_case(layer, "data", "bf16", "ncx"), np.zeros(layer.shapes.large), peers, row)
    assert seen == []


def test_a_forced_algorithm_that_fits_nothing(machine, capsys):
    layer = problem_of("mb1ic3ih5oc4kh3ph1nlayer")
    name = next(name for name in convreg.algorithm_names()
                if not name.startswith("weights_") and name not in ("reference", *fitting(layer, "data")))
    assert main(["bench", "mb1ic3ih5oc4kh3ph1nlayer", "--dir", "BWD_D", "--algorithm", name, "--peers", "none",
                 "--repeat", "1", "--seconds", "0", "--threads", "1"]) == 0
    assert "\nconvreg does not compute these: onednn::ConvolutionBackwardData: " in capsys.readouterr().out


def test_a_call_that_is_refused_later_is_not_computed(machine, monkeypatch):
    """An algorithm fits by its estimate, and the call refuses it all the same."""
    monkeypatch.setattr(convreg, "algorithm", lambda *_, **__: [SimpleNamespace(name="any")])
    layer = problem_of("mb1ic3ih5oc4kh3ph1")
    name = next(name for name in convreg.algorithm_names() if "depthwise" in name)
    (row,) = run([layer], directions=["data"], peers=[], repeat=1, seconds=0, threads=1, algorithm=name).rows
    assert (row.algorithm, row.timings) == ("", {})
    assert "does not fit" in row.unsupported["convreg"]
