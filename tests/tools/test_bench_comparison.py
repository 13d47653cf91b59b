"""`convreg bench --against`: its arithmetic on given times, its tables and its refusals. No test depends on times."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys

import pytest
from bench_layers import UP, shapes_file, write_model
from convreg.tools.bench import comparison as bench_comparison
from convreg.tools.bench.builds import OWN, Build
from convreg.tools.bench.calls import Job
from convreg.tools.bench.check import DTYPES, RESULTS, make_case
from convreg.tools.bench.comparison import Compared, Comparison, Pair, compare, judge, shown
from convreg.tools.bench.figures import Key, read_figures
from convreg.tools.bench.machine import identity
from convreg.tools.bench.peer import Prepared, Unsupported
from convreg.tools.bench.peers import Convreg
from convreg.tools.bench.problems import problem_of, read_shapes
from convreg.tools.bench.report import Timing
from convreg.tools.cli import main
from graphs import value
from onnx import helper

from convreg import GraphError
from convreg.layers import DIRECTIONS

LAYER = "mb1ic3ih5oc4kh3ph1"


def job(name="layer", direction="data", dtype="f32", layout="ncx", result=None):
    return Job(problem_of(f"{LAYER}n{name}"), direction, dtype, layout, result or dtype)


class Given:
    """Times per call in milliseconds before and now, those of the second measurement last; None: not computed."""

    def __init__(self, **times):
        self.times, self.asked = times, []

    def __call__(self, job, seconds):
        self.asked.append((job.problem.name, seconds))
        pair = self.times[job.problem.name].pop(0)
        if pair is None:
            raise Unsupported("has no such thing")
        return Pair(*(1e-3 * time for time in pair))


# ---------------------------------------------------------------------------------------------------------------------
# The arithmetic, on given times


def test_only_what_is_too_slow_twice_in_a_row_is_lost():
    times = Given(same=[(10, 10)], near=[(95, 100)], faster=[(20, 10)], noise=[(10, 20), (10, 10.5)],
                  slower=[(94, 100), (47, 50)])
    rows, remarks = judge([job(name) for name in times.times], times, 0.5)
    assert remarks == []
    assert times.asked == [("same", 0.5), ("near", 0.5), ("faster", 0.5), ("noise", 0.5), ("slower", 0.5),
                           ("noise", 1.5), ("slower", 1.5)]
    assert [row.twice for row in rows] == [False, False, False, True, True]
    assert [row.times.ratio for row in rows] == pytest.approx([1, 0.95, 2, 10 / 10.5, 0.94])
    comparison = Comparison(2, [], rows)
    assert [row.job.problem.name for row in comparison.lost] == ["slower"]
    with pytest.raises(GraphError, match=r"1 of 5 calls lost more than 5% twice in a row: slower data f32 ncx \(ratio"):
        comparison.raise_if_lost()
    Comparison(2, [], rows[:4]).raise_if_lost()


def test_calls_that_are_not_computed_are_listed_and_each_call_is_measured_once():
    times = Given(a=[(1, 1)], b=[None], c=[(1, 2), None])
    seen = []
    rows, remarks = judge([job("a"), job("b"), job("a"), job("c")], times, 1.0, lambda *step: seen.append(step))
    assert [(row.job.problem.name, row.lost) for row in rows] == [("a", False), ("c", False)]
    assert remarks == ["not compared: b data f32 ncx, c data f32 ncx: has no such thing"]
    assert seen == [(0, 3, "a data f32 ncx"), (1, 3, "b data f32 ncx"), (2, 3, "c data f32 ncx"), (3, 3, ""),
                    (0, 1, "c data f32 ncx again"), (1, 1, "")]


def test_wrong_results_come_before_lost_speed():
    with pytest.raises(GraphError, match="results of convreg are wrong: layer data f32 ncx"):
        Comparison(1, [], [Compared(job(), Pair(1, 2), True)], wrong=["layer data f32 ncx"]).raise_if_lost()


def test_tables_have_the_geometric_means_of_each_direction_and_format():
    rows = [Compared(job("a"), Pair(0.008, 0.002)), Compared(job("b"), Pair(0.002, 0.002)),
            Compared(job("a", "weights", "bf16"), Pair(0.009, 0.01), True),
            Compared(job("a", dtype="e5m2", result="f32"), Pair(0.001, 0.002))]
    comparison = Comparison(2, ["before: a", "now: b"], rows, ["a remark"])
    lines = shown(comparison).splitlines()
    assert lines[:2] == ["before: a", "now: b"]
    assert {"data gradient, f32, ncx, 2 threads", "weights gradient, bf16, ncx, 2 threads",
            "data gradient, e5m2, results in f32, ncx, 2 threads"} < {*lines}
    cells = [line.split() for line in lines]
    assert ["shape", "before", "ms", "now", "ms", "ratio", "measured"] in cells
    assert ["a", "8.00", "2.00", "4.000", "once"] in cells
    assert ["geometric", "mean", "4.00", "2.00", "2.000"] in cells
    assert ["a", "9.00", "10.0", "0.900", "twice"] in cells
    assert ["geometric", "mean", "1.00", "2.00", "0.500"] in cells
    assert lines[-2:] == ["a remark", "lost more than 5% twice in a row: a weights bf16 ncx, ratio 0.900"]
    marked = shown(Comparison(1, ["before: a"], rows[:2]), as_markdown=True)
    assert "### Data gradient, f32, ncx, 1 thread\n\n| shape | before ms | now ms | ratio | measured |\n" in marked
    assert marked.startswith("* before: a\n")
    assert marked.endswith("* no call lost more than 5% twice in a row")


# ---------------------------------------------------------------------------------------------------------------------
# Figures of an earlier time


def figures(folder, *entries, **changes):
    """Write what `--json` writes, as far as it is read."""
    here = identity()
    document = {"machine": here._asdict(), "threads": 1, "repeat": 5, "seconds": 0.5, "results": list(entries)}
    path = folder / "before.json"
    path.write_text(json.dumps(document | changes))
    return path


def entry(job, ms=1.0, **changes):
    return {**Key.of(job)._asdict(), "ms": {"convreg": ms, "torch": 2.0}, "wrong": {}} | changes


@pytest.fixture
def times(monkeypatch):
    """The time in seconds of every call now, in place of a measurement."""
    given = {"seconds": 0.001}

    def measure(turns, repeat, seconds):
        return {name: Timing(given["seconds"], repeat) for name in turns}

    monkeypatch.setattr(bench_comparison, "measure", measure)
    return given


def test_calls_are_matched_with_those_of_the_file(tmp_path, times):
    one, two, narrow = job("one"), job("two"), job("one", dtype="bf16")
    path = figures(tmp_path, entry(one, 2.0), entry(two, layer="another"), entry(job("one", "weights")),
                   entry(narrow, 3.0, result=None) | {"result": "f32"})
    comparison = compare([one, two, narrow], str(path), threads=1, repeat=1, seconds=0)
    assert [(row.job.problem.name, row.times, row.twice) for row in comparison.rows] == [
        ("one", Pair(0.002, 0.001), False)]
    assert comparison.remarks == [
        f"without a time in {path}: two data f32 ncx, one data bf16 ncx",
        f"only in {path}: two data f32 ncx, one weights f32 ncx, one data bf16 ncx"]
    comparison.raise_if_lost()
    times["seconds"] = 0.0025
    slower = compare([one], str(path), threads=1, repeat=1, seconds=0)
    assert [(row.twice, row.lost, row.times.ratio) for row in slower.rows] == [(True, True, pytest.approx(0.8))]


def test_a_file_of_an_older_version_and_wrong_results_then_and_now(tmp_path, times, monkeypatch):
    old = entry(job("old"), 4)
    del old["result"]
    path = figures(tmp_path, old, entry(job("bad"), wrong={"convreg": "error"}), entry(job("none"), ms=1) | {"ms": {}})
    assert [key.name for key in read_figures(path).times] == ["old"]
    monkeypatch.setattr(Convreg, "prepare", lambda self, case: Prepared(
        lambda: case.operands["taps"], lambda array: array))
    comparison = compare([job("old"), job("bad")], str(path), threads=1, repeat=1, seconds=0)
    assert comparison.rows == []
    assert comparison.wrong == ["old data f32 ncx"]
    assert comparison.remarks[0].startswith("not compared: old data f32 ncx: the result is wrong: shape")


def test_another_instruction_set_is_a_warning(tmp_path, times):
    path = figures(tmp_path, entry(job()), machine=identity()._asdict() | {"isa": "abacus"})
    comparison = compare([job()], str(path), threads=1, repeat=1, seconds=0)
    assert comparison.remarks == [f"warning: the instruction set was abacus, now it is {identity().isa}"]


def test_figures_of_a_forced_algorithm_are_a_warning(tmp_path, times):
    path = figures(tmp_path, entry(job()), algorithm="gathered")
    comparison = compare([job()], path, threads=1, repeat=1, seconds=0)
    assert comparison.remarks == ["warning: the algorithm gathered was forced, now convreg chooses"]


@pytest.mark.parametrize(("changes", "message"), [
    ({"threads": 2}, "its number of threads is 2, here it is 1; allowed: figures of the same machine and number"),
    ({"machine": identity()._asdict() | {"processor": "Z80"}}, "its processor is 'Z80', here it is"),
    ({"machine": identity()._asdict() | {"processors": 10**6}}, "its number of processors is 1000000, here"),
    ({"machine": {}}, "not a file that `convreg bench --json` wrote: key 'processor' is missing"),
    ({"reports": [], "machine": {}}, "several kinds of machines; allowed: those of one"),
    ({"machine": 3}, "a value has another type"), ({"threads": "2"}, "a value has another type"),
    ({"results": [3]}, "a value has another type"), ({"results": [entry(job(), "fast")]}, "has another type"),
    ({"results": [entry(job(), 0)]}, "layer took 0.0 ms"), ({"results": [entry(job(), 10**400)]}, "not a file"),
    ({"results": [entry(job(), float("nan"))]}, "NaN is not a JSON number"),
    ({"results": []}, "nothing was compared. without a time in"),
    ({"results": [entry(job(), name=3)]}, "a value has another type"),
])
def test_files_that_are_refused(tmp_path, changes, message):
    path = figures(tmp_path, **changes)
    with pytest.raises(GraphError) as caught:
        compare([job()], str(path), threads=1, repeat=1, seconds=0)
    assert message in str(caught.value)
    assert "before.json" in str(caught.value)


# ---------------------------------------------------------------------------------------------------------------------
# Other builds


def test_a_worker_computes_what_this_process_does(tmp_path):
    """Every direction, number format and layout, plain and transposed: the request describes the call of `Convreg`."""
    layers = [problem_of("g2mb2ic4ih10oc6kh3ph1sh2dh1"), *read_shapes(shapes_file(tmp_path, UP))]
    with Build(OWN) as build:
        for layer in layers:
            for direction in DIRECTIONS:
                for dtype, layout in [*((dtype, "ncx") for dtype in DTYPES), ("f32", "nxc"), ("bf16", "nxc")]:
                    case = make_case(layer, direction, dtype, layout, RESULTS[dtype][-1])
                    result = Convreg(1).prepare(case).call()
                    digest = build.prepare(Job(layer, direction, dtype, layout, case.result), 1)
                    assert digest == hashlib.sha256(result.tobytes()).hexdigest(), (layer.name, direction, dtype)
        assert build.turn(0).runs == 1
        turn = build.turn(1e-3)
        assert turn.best <= turn.spent / turn.runs


def test_the_same_checkout_end_to_end(capsys):
    status = main(["bench", f"{LAYER}ntiny", "--against", str(OWN), "--dir", "BWD_W", "--dtype", "f32,e5m2", "--repeat",
                   "2", "--seconds", "0", "--threads", "1"])
    out, error = capsys.readouterr()
    assert status in (0, 1)  # the times decide
    lines = out.splitlines()
    assert lines[0] == f"before: the build in {OWN}, instruction set {identity().isa}"
    assert lines[1] == f"now: the build in {OWN}, instruction set {identity().isa}"
    assert [line for line in lines if "gradient" in line] == [
        f"weights gradient, {formats}, ncx, 1 thread" for formats in ("f32", "e5m2", "e5m2, results in f32")]
    assert sum(line.startswith("tiny ") for line in lines) == 3
    assert sum(line.startswith("geometric mean ") for line in lines) == 3
    assert "results differ" not in out
    assert "0/3 tiny weights f32 ncx\n" in error


def test_a_model_says_how_its_nodes_differ_from_what_is_timed(tmp_path, capsys):
    path = write_model(tmp_path / "net.onnx", [helper.make_node("Conv", ["x", "w", "b"], ["out"], name="biased")],
                       [value("x", [1, 3, 5, 5]), value("w", [2, 3, 3, 3]), value("b", [2])])
    assert main(["bench", "--model", str(path), "--against", str(OWN), "--repeat", "1", "--seconds", "0"]) in (0, 1)
    out = capsys.readouterr().out
    assert "\nthe model has a bias; the timed call has none: biased\n" in out
    assert "forward, f32, ncx" in out


def test_figures_of_this_machine_end_to_end(tmp_path, monkeypatch, capsys):
    arguments = [f"{LAYER}ntiny", "--dir", "BWD_D", "--repeat", "1", "--seconds", "0", "--threads", "1"]
    monkeypatch.setattr("convreg.tools.bench.machine._bandwidth", lambda threads: 10.0)
    monkeypatch.setattr("convreg.tools.bench.machine._matmul", lambda threads: 100.0)
    assert main(["bench", *arguments, "--peers", "none", "--json", str(tmp_path / "before.json")]) == 0
    capsys.readouterr()
    assert main(["bench", *arguments, "--peers", "none", "--against", str(tmp_path / "before.json")]) in (0, 1)
    out = capsys.readouterr().out
    assert f"before: {tmp_path / 'before.json'}, at least 1 runs in 0.0 seconds" in out
    assert "data gradient, f32, ncx, 1 thread" in out


def test_builds_whose_results_differ_and_builds_without_an_operator(monkeypatch, tmp_path):
    real = Build.prepare
    monkeypatch.setattr(Build, "prepare", lambda self, job, threads: real(self, job, threads) + str(id(self)))
    comparison = compare([job()], str(OWN), threads=1, repeat=1, seconds=0)
    assert "results differ from those before: layer data f32 ncx" in comparison.remarks
    monkeypatch.setattr(Build, "prepare", real)
    with pytest.raises(GraphError, match=r"nothing was compared\. not compared: layer data f32 ncx: AttributeError"):
        compare([job()], made_up_build(tmp_path, "onednn = None\ncapabilities = dict"), threads=1, repeat=1, seconds=0)


def made_up_build(folder, text):
    package = folder / "build" / "convreg"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(text)
    return str(folder / "build")


@pytest.mark.parametrize(("text", "message"), [
    ("raise ImportError('kernels are\\nmissing')", "cannot be imported: ImportError: kernels are"),
    ("from . import nothing", "cannot be imported: ImportError: cannot import name 'nothing'"),
    ("x = (", "cannot be imported: SyntaxError"), ("import os; os._exit(3)", "ended with status 3"),
    ("raise SystemExit(4)", "ended with status 4"),
    ("import os; os.kill(os.getpid(), 9)", "was ended by signal 9"),
    ("__file__ = '/nowhere'", "ImportError: convreg is"),
    ("def capabilities(): raise ValueError('no')", "cannot be imported: ValueError: no"),
])
def test_builds_that_fail(tmp_path, capsys, text, message):
    if "kill" in text and sys.platform == "win32":
        pytest.skip("no signals")
    folder = made_up_build(tmp_path, f"print('hello')\n{text}\n")
    assert main(["bench", LAYER, "--against", folder]) == 1
    out, error = capsys.readouterr()
    assert out == ""
    assert message in error
    assert folder in error
    assert error.count("\n") == 1


def test_a_build_that_dies_later(tmp_path):
    text = """
import os
class onednn:
    @staticmethod
    def convolution_backward_data(*operands, **settings):
        os._exit(7)
"""
    with pytest.raises(GraphError, match=r"the process of the build in .*build ended with status 7$"):
        compare([job()], made_up_build(tmp_path, text), threads=1, repeat=1, seconds=0)


@pytest.mark.parametrize(("arguments", "words"), [
    (["--against", ""], "the path '' is empty"), (["--against", "nowhere"], "nowhere: cannot be read: No such file"),
    (["--against", "text.json"], "text.json: not a file that `convreg bench --json` wrote: Expecting value"),
    (["--against", "list.json"], "not a file that `convreg bench --json` wrote"),
    (["--against", "deep.json"], "not a file that `convreg bench --json` wrote"),
    (["--against", "."], "is refused: it holds no convreg/__init__.py; allowed: a checkout with compiled modules"),
    (["--against", "x\0"], "cannot be read: embedded null"), (["--against", "/dev/null"], "not a regular file"),
    (["--against", ".", "--json", "x.json"], "--json is refused beside --against"),
    (["--against", ".", "--plot", "x.png"], "--plot is refused beside --against"),
    (["--against", ".", "--peers", "torch"], "--peers is refused beside --against"),
    (["--against", ".", "--algorithm", "reference"], "--algorithm is refused beside --against"),
    (["--against", ".", "--repeat", "0"], "repeat=0 is refused"),
    (["--against", ".", "--seconds", "nan"], "seconds=nan is refused"),
    (["--against", ".", "--threads", "0"], "threads=0 is refused"), (["--against", ".", "--dtype", "f8"], "no number"),
])
def test_bad_arguments(tmp_path, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.json").write_text("no figures")
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    if "x.png" in arguments:
        pytest.importorskip("matplotlib")
    assert main(["bench", LAYER, *arguments]) == 1
    out, error = capsys.readouterr()
    assert out == ""
    assert words in error
    assert error.count("\n") == 1


def test_a_build_that_is_installed_in_a_folder_with_other_packages(tmp_path):
    """The folder's packages are not imported in place of those of this Python."""
    site = tmp_path / "site-packages"
    (site / "numpy").mkdir(parents=True)
    (site / "numpy" / "__init__.py").write_text("raise ImportError('of another Python')")
    for folder, target in (("convreg", "convreg"), ("ops", "convreg/ops"), ("convreg.libs", "convreg.libs")):
        if (OWN / folder).is_dir():
            shutil.copytree(OWN / folder, site / target, dirs_exist_ok=True,
                            ignore=shutil.ignore_patterns("__pycache__", "*.pyx", "*.pxi", "*.c", "*.h"))
    with Build(site) as build:
        assert build.isa == identity().isa
        assert build.prepare(job(), 1)
