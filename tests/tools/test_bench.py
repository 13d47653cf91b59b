"""`convreg bench`: that it notices wrong results, its protocol and its output. Nothing here depends on times."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
from bench_layers import CAUSAL, UP, shapes_file, write_model
from convreg.ops.kernels import threads
from convreg.tools import progress
from convreg.tools.bench import check as bench_check
from convreg.tools.bench import peers as bench_peers
from convreg.tools.bench import report as bench_report
from convreg.tools.bench import timing as bench_timing
from convreg.tools.bench.check import DTYPES, LAYOUTS, RESULTS, Case, defect, make_case, narrowed, reference
from convreg.tools.bench.machine import Machine
from convreg.tools.bench.peer import Prepared, Unsupported
from convreg.tools.bench.peers import PEERS, Convreg, open_peers
from convreg.tools.bench.problems import DIRECTIONS, Problem, parse_descriptor, read_shapes
from convreg.tools.bench.timing import TURN, checked, measure, run
from convreg.tools.bench.worker import take_turn
from convreg.tools.cli import main
from graphs import data_gradient, value
from onnx import helper

import convreg
from convreg import GraphError
from convreg.presentation import PLOT_FORMATS

MACHINE = Machine("a processor", 2, "generic", dict.fromkeys(DTYPES, (100.0, "somebody")), 10.0)

@pytest.fixture
def machine(monkeypatch):
    """A machine that needs no measuring."""
    monkeypatch.setattr(bench_timing, "measure_machine", lambda *_: MACHINE)


@pytest.fixture
def problems(tmp_path):
    """Layers that need every branch of the peers: strides with a rest, groups, 1-D to 3-D, one-sided padding."""
    descriptors = ["mb2ic8ih9oc6kh3ph1", "g2mb2ic4ih10oc6kh3ph1sh2dh1", "g4mb2ic4iw19oc4kw3sw2", "mb1ic4id5oc6kd3pd1",
                   "ic8ih8iw9oc16kh1kw1sh2sw2"]
    return [*map(parse_descriptor, descriptors), parse_descriptor("mb1ic4ih5oc8kh4sh2ph1", transposed=True),
            *read_shapes(shapes_file(tmp_path, CAUSAL, UP))]


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


FORMATS = [(dtype, result) for dtype in DTYPES for result in RESULTS[dtype]]


@pytest.mark.parametrize(("dtype", "result"), FORMATS)
def test_defects_are_found(dtype, result):
    case = make_case(parse_descriptor("mb2ic8ih9oc6kh3ph1"), "data", dtype, "ncx", result)
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
    case = make_case(parse_descriptor("mb1ic8ih9oc6kh3ph1"), "data", dtype, "ncx", dtype)
    expected = reference(case)
    right = narrowed(expected, dtype)
    above = narrowed(np.asarray(convreg.dequantize(right), np.float64) * 1.2, dtype)
    assert "times the allowed one" in defect(case, above, expected)


def test_sums_beyond_the_largest_number_overflow():
    case = make_case(parse_descriptor("mb1ic8ih9oc6kh3ph1"), "data", "e4m3fn", "ncx")
    expected = np.full(case.result_shape, 463.0)
    assert defect(case, narrowed(expected, "e4m3fn"), expected) == ""
    expected = np.full(case.result_shape, -500.0)
    assert defect(case, narrowed(expected, "e4m3fn"), expected) == ""
    assert "allowed" in defect(case, narrowed(np.full(case.result_shape, 448.0), "e4m3fn"), expected)
    assert "error nan" in defect(case, narrowed(expected, "e4m3fn"), np.full(case.result_shape, 400.0))


@pytest.mark.parametrize("dtype", ["e4m3fn", "e5m2", "hifloat8"])
def test_8_bit_operands_are_timed_with_results_of_their_own_and_in_f32(machine, dtype):
    layer = parse_descriptor("mb1ic3ih5oc4kh3ph1")
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
    layer = parse_descriptor("mb1ic3ih5oc4kh3ph1")
    own, wide = (Convreg(1).prepare(make_case(layer, "data", dtype, "ncx", result)) for result in (dtype, "f32"))
    assert own.call().dtype == DTYPES[dtype]
    assert "output_format" not in own.call.keywords
    assert wide.call().dtype == np.float32


def test_a_missing_tap_is_found():
    case = make_case(parse_descriptor("mb2ic8ih9oc6kh3ph1"), "data", "f32", "ncx")
    operands = {**case.operands, "taps": case.operands["taps"].copy()}
    operands["taps"][5, 3, 2, 2] = 0
    prepared = Convreg(1).prepare(replace(case, operands=operands))
    assert defect(case, prepared.array(prepared.call()), reference(case))


def test_operands_are_the_same_on_every_run():
    problem = parse_descriptor("mb2ic8ih9oc6kh3ph1")
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
    report = run([parse_descriptor("mb1ic3ih5oc4kh3ph1")], peers=["wrong", "twin", "absent"], repeat=2, seconds=0)
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
    layers = [parse_descriptor("mb1ic3ih5oc4kh3ph1")]
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
    case = make_case(parse_descriptor("mb1ic3ih5oc4kh3ph1"), "data", "f32", "ncx")
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
    problems = [parse_descriptor("mb1ic3ih5oc4kh3ph1"), parse_descriptor("g8mb1ic8ih5oc8kh3ph1")]
    report = run(problems, peers=["f32"], repeat=1, seconds=0, threads=1)
    assert [row.algorithm for row in report.rows] == [
        fitting(problem, direction)[0] for direction in ("data", "weights") for problem in problems]


def test_algorithms_of_parts_are_joined(monkeypatch):
    choices = [SimpleNamespace(name=name) for name in ("two", "one", "two")]
    monkeypatch.setattr(convreg, "algorithm", lambda *_, **__: choices)
    assert Convreg(1).prepare(make_case(parse_descriptor("ic3ih5oc4kh3"), "data", "f32", "ncx")).algorithm == "two+one"


def test_a_forced_algorithm_computes_what_it_fits(machine, monkeypatch, capsys, tmp_path):
    dense, depthwise = parse_descriptor("mb1ic3ih5oc4kh3ph1ndense"), parse_descriptor("g8mb1ic8ih5oc8kh3ph1nsplit")
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
    layer = parse_descriptor("mb1ic3ih5oc4kh3ph1")
    (row,) = run([layer], directions=["data"], dtypes=["bf16"], peers=[], repeat=1, seconds=0, threads=1,
                 algorithm="reference").rows
    assert row.algorithm == "reference"
    assert {*seen} == {"reference"}
    seen.clear()
    peers, _ = open_peers(["f32"], 1)
    checked(make_case(layer, "data", "bf16", "ncx"), np.zeros(layer.shapes.large), peers, row)
    assert seen == []


def test_a_forced_algorithm_that_fits_nothing(machine, capsys):
    layer = parse_descriptor("mb1ic3ih5oc4kh3ph1nlayer")
    name = next(name for name in convreg.algorithm_names()
                if not name.startswith("weights_") and name not in ("reference", *fitting(layer, "data")))
    assert main(["bench", "mb1ic3ih5oc4kh3ph1nlayer", "--dir", "BWD_D", "--algorithm", name, "--peers", "none",
                 "--repeat", "1", "--seconds", "0", "--threads", "1"]) == 0
    assert "\nconvreg does not compute these: onednn::ConvolutionBackwardData: " in capsys.readouterr().out


def test_a_call_that_is_refused_later_is_not_computed(machine, monkeypatch):
    """An algorithm fits by its estimate, and the call refuses it all the same."""
    monkeypatch.setattr(convreg, "algorithm", lambda *_, **__: [SimpleNamespace(name="any")])
    layer = parse_descriptor("mb1ic3ih5oc4kh3ph1")
    name = next(name for name in convreg.algorithm_names() if "depthwise" in name)
    (row,) = run([layer], directions=["data"], peers=[], repeat=1, seconds=0, threads=1, algorithm=name).rows
    assert (row.algorithm, row.timings) == ("", {})
    assert "does not fit" in row.unsupported["convreg"]


# ---------------------------------------------------------------------------------------------------------------------
# End to end


def test_convreg_alone_with_every_output(tmp_path, capsys):
    figures = tmp_path / "figures.json"
    assert main(["bench", "g2mb2_ic4ih6oc6kh3ph1", "--peers", "none", "--dir=BWD_D,BWD_W,FWD", "--dtype",
                 ",".join(DTYPES), "--layout", "ncx,nxc", "--repeat", "2", "--seconds", "0", "--threads", "1", "--json",
                 str(figures), "--markdown"]) == 0
    out, error = capsys.readouterr()
    assert out.count("### ") == 54  # three directions, two layouts, and f32 results beside 8-bit ones
    assert "threads of every library: 1" in out
    assert "| g2mb2_ic4ih6oc6kh3ph1 | 1.56e-05 |" in out
    assert "54" in error.splitlines()[0]
    written = json.loads(figures.read_text())
    assert written["machine"]["peaks"].keys() == DTYPES.keys()
    assert written["machine"]["bandwidth"] > 0
    assert len(written["results"]) == 54
    assert {(row["direction"], row["dtype"], row["result"], row["layout"]) for row in written["results"]} == {
        (direction, *formats, layout) for direction in DIRECTIONS for formats in FORMATS for layout in LAYOUTS}
    for row in written["results"]:
        assert row["ms"]["convreg"] > 0
        assert row["runs"]["convreg"] >= 2
        assert row["roofline_ms"] > 0
        assert (row["wrong"], row["unsupported"], row["ratio"]) == ({}, {}, {})
        assert {*row["algorithm"].split("+")} <= {*convreg.algorithm_names()}
        assert row["gflops"]["convreg"] == pytest.approx(row["gflop"] / row["ms"]["convreg"] * 1e3)
        assert row["roofline"]["convreg"] == pytest.approx(row["roofline_ms"] / row["ms"]["convreg"])
    assert len(written["tables"]) == 54
    for row, table in zip(written["results"], written["tables"], strict=True):
        assert [row[key] for key in ("direction", "dtype", "result", "layout")] == [
            table[key] for key in ("direction", "dtype", "result", "layout")]
        assert table["geometric_mean"]["ms"]["convreg"] == pytest.approx(row["ms"]["convreg"])


def test_deconvolutions_and_names(machine, tmp_path, capsys):
    assert main(["bench", "mb1ic4ih5oc2kh4sh2ph1nup", "mb1ic4ih3oc2kh2ndown", "--deconv", "--only", "u*", "--peers",
                 "none", "--repeat", "1", "--seconds", "0"]) == 0
    out = capsys.readouterr().out
    assert "data gradient, f32, ncx" in out
    assert "weights gradient, f32, ncx" in out
    assert "\nup " in out
    assert "down" not in out


def test_a_model_is_timed_in_the_directions_it_has(machine, tmp_path, capsys):
    path = write_model(tmp_path / "net.onnx", [data_gradient(["dy", "w"], "out", dst_shape=[1, 3, 5, 5])],
                       [value("dy", [1, 2, 5, 5]), value("w", [2, 3, 3, 3])])
    assert main(["bench", "--model", str(path), "--peers", "none", "--repeat", "1", "--seconds", "0"]) == 0
    out = capsys.readouterr().out
    assert "data gradient" in out
    assert "forward, f32" not in out


def test_a_model_is_timed_in_its_own_format_unless_told_otherwise(machine, tmp_path, capsys):
    nodes = [data_gradient(["dy", "w"], "half", dst_shape=[1, 3, 5, 5], name="narrow"),
             helper.make_node("Conv", ["x", "v", "b"], ["y"], name="wide"),
             helper.make_node("Cast", ["y"], ["out"], to=1)]
    narrow, wide = (partial(value, dtype=dtype) for dtype in (np.float16, np.float64))
    path = write_model(tmp_path / "net.onnx", nodes, [
        narrow("dy", [1, 2, 5, 5]), narrow("w", [2, 3, 3, 3]), wide("x", [1, 3, 5, 5]), wide("v", [2, 3, 3, 3]),
        wide("b", [2])])
    arguments = ["bench", "--model", str(path), "--peers", "none", "--repeat", "1", "--seconds", "0"]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "data gradient, f16, ncx" in out
    assert "forward, f32, ncx" in out
    assert "data gradient, f32" not in out
    assert "\nthe model computes in float64, timed in f32, because that format cannot be timed: wide\n" in out
    assert "\nthe model has a bias; the timed call has none: wide\n" in out
    assert "float16" not in out
    assert main([*arguments, "--dtype", "bf16"]) == 0
    out = capsys.readouterr().out
    assert "data gradient, bf16, ncx" in out
    assert "the model computes in float16, timed in bf16: narrow\n" in out
    assert main([*arguments, "--only", "narrow"]) == 0
    assert "the model" not in capsys.readouterr().out


@pytest.mark.parametrize("format", PLOT_FORMATS)
def test_plot(machine, tmp_path, capsys, format):
    pytest.importorskip("matplotlib")
    path = tmp_path / f"bench.{format}"
    assert main(["bench", "mb1ic3ih5oc4kh3ph1", "--peers", "none", "--repeat", "1", "--seconds", "0", "--plot",
                 str(path)]) == 0
    assert path.stat().st_size > 1000


def test_plot_without_matplotlib(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["bench", "--plot", str(tmp_path / "bench.png")]) == 1
    assert "convreg[bench]" in capsys.readouterr().err


def test_directions_and_number_formats_as_benchdnn_names_them(machine, capsys):
    arguments = ["bench", "mb1ic3ih5oc4kh3ph1", "--peers", "none", "--repeat", "1", "--seconds", "0"]
    assert main([*arguments, "--dir=bwd_dw,Data", "--dt=bf16"]) == 0
    out = capsys.readouterr().out
    assert out.count("data gradient, bf16, ncx") == out.count("weights gradient, bf16, ncx") == 1
    assert "bias" not in out
    assert main([*arguments, "--dir=fwd_b,BWD_WB,bwd_wb"]) == 0
    out = capsys.readouterr().out
    assert "forward, f32, ncx" in out
    assert out.count("\nFWD_B is timed without its bias\n") == out.count("\nBWD_WB is timed without its bias\n") == 1


@pytest.mark.parametrize("option", ["--mb=4", "--thr=1", "--dty=f32", "--cfg=f32"])
def test_unknown_options_show_the_usage_of_the_verb(capsys, option):
    with pytest.raises(SystemExit) as caught:
        main(["bench", "mb1ic3ih5oc4kh3ph1", option])
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("usage: convreg bench")
    assert f"unrecognized arguments: {option}" in error


@pytest.mark.parametrize(("arguments", "words"), [
    (["--peers", "tosch"], "did you mean 'torch'"), (["--dir", "BWD"], "no direction named 'BWD'"),
    (["--dtype", "f8"], "no number format"), (["--layout", "nchw"], "no layout"), (["--only", "resnet51"], "no layer"),
    (["--shapes", "nowhere.json"], "cannot be read"), (["--model", "nowhere.onnx"], "no such file"),
    (["--threads", "0"], "threads=0 is refused; allowed: 1"), (["--threads", "1000000"], "threads=1000000 is refused"),
    (["--repeat", "0"], "at least 1"), (["--seconds", "nan"], "a finite number, at least 0"),
    (["--seconds", "1e400"], "seconds=inf is refused; allowed: a finite number"),
    (["--deconv"], "descriptors"), (["ic3oc4ih5kh3", "--shapes", "x"], "one of them"),
    (["--plot", "bench.gif"], "--plot='bench.gif' is refused: it has the suffix '.gif'"),
    (["--plot", "bench"], "no suffix, and the suffix must name the picture's format; allowed: .png, .svg, .pdf"),
    (["--plot", ""], "--plot='' is refused: it has no suffix"), (["--json", ""], "--json='' is refused: the path ''"),
    (["--json", "no/where.json"], "--json='no/where.json' is refused: No such file or directory; allowed: a file"),
    (["--plot", "no/where.png"], "--plot='no/where.png' is refused: No such file or directory"),
    (["--json", "."], "--json='.' is refused: not a regular file"), (["--json", "x\0"], "is refused: embedded null"),
    (["--dir", ""], "--dir='' is refused; allowed: one or more of FWD,"),
    (["--dtype", ","], "--dtype='' is refused; allowed: one or more of f32,"), (["--layout", ""], "--layout='' is"),
    (["--peers", ""], "--peers='' is refused; allowed: one or more of torch, onnxruntime, openvino, onednn, f32, none"),
    (["--peers", "none,torch"], "--peers='none,torch' is refused: none excludes other names"),
    (["--peers", "nine"], "did you mean 'none'"), (["--dtype", "f64"], "float64 is not timed; allowed: f32, bf16,"),
    (["--dtype", "f32,Double"], "'Double' is refused: float64 is not timed"), (["--dir", "bwd_dq"], "'BWD_D'"),
    (["mb99999ic99999ih9999oc9kh1"], "do not fit"),
    (["--algorithm", "referense"], "no algorithm named 'referense'; allowed: reference, "),
    (["--algorithm", "referense"], "(did you mean 'reference'?)"),
    (["--algorithm", ""], "no algorithm named ''; allowed: reference, "),
])
def test_bad_arguments(tmp_path, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(tmp_path)
    assert main(["bench", *arguments]) == 1
    out, error = capsys.readouterr()
    assert out == ""
    assert words in error
    assert error.count("\n") == 1


def test_progress_goes_to_the_standard_error(machine, capsys):
    seen = []
    problem = parse_descriptor("mb1ic3ih5oc4kh3ph1nlayer")
    run([problem, Problem("own", problem.geometry, directions=("weights",))], peers=(), repeat=1, seconds=0,
              progress=lambda *step: seen.append(step))
    assert seen == [(0, 3, "peak and bandwidth"), (0, 3, "layer data f32 ncx"), (1, 3, "layer weights f32 ncx"),
                    (2, 3, "own weights f32 ncx"), (3, 3, "")]
    progress.bar(1, 3, "layer")
    progress.lines(1, 3, "layer")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "[########................] 1/3 layer" in captured.err
