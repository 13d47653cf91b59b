"""`convreg bench --formats`: all number formats of a layer in turns and in one table."""

from __future__ import annotations

import json

import numpy as np
import pytest
from bench_layers import FORMATS
from convreg.tools.bench import formats as bench_formats
from convreg.tools.bench import peers as bench_peers
from convreg.tools.bench import timing as bench_timing
from convreg.tools.bench.check import DTYPES, EIGHT_BIT
from convreg.tools.bench.machine import Machine
from convreg.tools.bench.peer import Prepared, Unsupported
from convreg.tools.bench.problems import problem_of
from convreg.tools.bench.report import Report, Row, Timing, set_rooflines
from convreg.tools.bench.timing import run
from convreg.tools.cli import main

LAYER = "mb2ic4ih6oc6kh3ph1"
QUICK = ("--repeat", "1", "--seconds", "0")
NAMES = [dtype if dtype == result else f"{dtype}, {result} results" for dtype, result in FORMATS]


class Other:
    """A library without 8-bit formats."""

    about = "another library"

    def __init__(self, threads: int) -> None:
        self.own = bench_peers.Convreg(threads)

    def prepare(self, case) -> Prepared:
        if case.dtype in EIGHT_BIT:
            raise Unsupported("has no 8-bit convolution")
        return self.own.prepare(case)


@pytest.fixture
def other(monkeypatch, machine):
    monkeypatch.setitem(bench_peers.PEERS, "torch", Other)


def cells(out: str, start: str) -> list[list[str]]:
    """The cells of the Markdown rows that begin with a word."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in out.splitlines()]
    return [line for line in lines if line[0] == start]


def test_all_formats_in_one_table(other, tmp_path, capsys):
    figures = tmp_path / "figures.json"
    assert main(["bench", LAYER, "--formats", "all", *QUICK, "--markdown", "--json", str(figures)]) == 0
    out = capsys.readouterr().out
    assert [line for line in out.splitlines() if line.startswith("###")] == [
        "### Data gradient, ncx", "### Weights gradient, ncx"]
    assert "* f32: convreg in f32, timed in turns" in out
    assert "roofline" not in out
    assert [row[1] for row in cells(out, LAYER)] == NAMES * 2
    assert cells(out, "shape")[0] == ["shape", "format", "ms", "algorithm", "f32 ratio", "torch ratio"]
    for row in cells(out, LAYER):
        assert float(row[2]) > 0
        assert (row[4] == "-") == (row[1] == "f32")
        assert (row[5] == "-") == (row[1].split(",")[0] in EIGHT_BIT)
    for name in NAMES:
        for summary, row in zip(cells(out, name), [row for row in cells(out, LAYER) if row[1] == name], strict=True):
            assert summary[1:3] == ["1", row[2]]
            assert summary[3:] == [cell for ratio in row[4:] for cell in
                                   ([ratio, ratio, LAYER] if ratio != "-" else ["-", "-", "-"])]
    assert out.count(f"torch does not compute {', '.join(EIGHT_BIT)}: has no 8-bit convolution") == 2
    written = json.loads(figures.read_text())
    assert {(row["direction"], row["dtype"], row["result"]) for row in written["results"]} == {
        (direction, *names) for direction in ("data", "weights") for names in FORMATS}
    for direction in ("data", "weights"):
        rows = [row for row in written["results"] if row["direction"] == direction]
        own, = [row["ms"]["convreg"] for row in rows if row["dtype"] == "f32"]
        assert all(row["ms"].get("f32", own) == own for row in rows)
        assert all(row["ratio"]["f32"] == pytest.approx(own / row["ms"]["convreg"]) for row in rows
                   if row["dtype"] != "f32")


def test_f32_is_measured_beside_the_formats_that_are_named(machine, capsys):
    assert main(["bench", LAYER, "--formats", "hifloat8,bf16", "--peers", "none", "--dir", "FWD", "--layout",
                 "ncx,nxc", *QUICK]) == 0
    out = capsys.readouterr().out
    assert "forward, ncx" in out
    assert "forward, nxc" in out
    rows = [line.split() for line in out.splitlines() if line.startswith(LAYER)]
    assert [row[1] for row in rows] == ["f32", "hifloat8", "hifloat8,", "bf16"] * 2
    assert "torch" not in out


def test_calls_of_a_layer_take_turns(machine, monkeypatch):
    order = []
    measure = bench_timing.measure

    def noted(turns, repeat, seconds):
        order.append(list(turns))
        return measure(turns, repeat, seconds)

    monkeypatch.setattr(bench_timing, "measure", noted)
    report = run([problem_of(LAYER), problem_of("mb1ic3ih5oc4kh3ph1")], directions=("data",), dtypes=("e4m3fn",),
                 peers=("f32",), repeat=3, seconds=0, together=True)
    assert order == [[(0, "convreg"), (1, "convreg"), (2, "convreg")]] * 2
    assert [(row.dtype, row.result) for row in report.rows] == [("f32", "f32"), ("e4m3fn", "e4m3fn"),
                                                               ("e4m3fn", "f32")] * 2
    assert all(row.timings["convreg"].runs >= 3 for row in report.rows)
    assert report.others == ["f32"]


def test_operands_and_results_are_in_the_format(machine, monkeypatch):
    seen = []
    prepare = bench_peers.Convreg.prepare

    def noted(self, case):
        prepared = prepare(self, case)
        seen.append(({array.dtype for array in case.operands.values()}, prepared.array(prepared.call()).dtype))
        return prepared

    monkeypatch.setattr(bench_peers.Convreg, "prepare", noted)
    run([problem_of(LAYER)], directions=("weights",), repeat=1, seconds=0, peers=(), together=True)
    assert seen == [({DTYPES[dtype]}, DTYPES[result]) for dtype, result in FORMATS]


def made_up(name: str, dtype: str, **milliseconds: float) -> Row:
    return Row(name, "data", dtype, "ncx", "a layer", 8.0, 6.0, 10**8,
               timings={peer: Timing(1e-3 * time, 7) for peer, time in milliseconds.items()}, algorithm="gathered")


def test_means_worst_layers_and_wrong_results():
    rows = [made_up("one", "f32", convreg=4, torch=8), made_up("one", "f16", convreg=8, f32=4, torch=4),
            made_up("two", "f32", convreg=4), made_up("two", "f16", convreg=2, f32=4, torch=8),
            made_up("three", "f32", convreg=1, torch=1), made_up("three", "f16", convreg=1, f32=1, torch=1)]
    rows[2].unsupported["torch"] = "has no such padding"
    rows[5].wrong["convreg"] = "error 3"
    peaks = {"f32": (100.0, "x"), "f16": (100.0, "x")}
    machine = set_rooflines(Machine("a processor", 2, "generic", peaks, 10.0), rows)
    report = Report(machine, 2, 5, 0.5, dict.fromkeys(["convreg", "f32", "torch"], "a library"), {}, [], rows,
                    together=True)
    out = bench_formats.shown(report, as_markdown=True)
    assert cells(out, "f32") == [["f32", "3", "2.52", "-", "-", "-", "1.41", "1.00", "three"]]
    assert cells(out, "f16") == [["f16", "2", "4.00", "1.00", "0.50", "one", "1.41", "0.50", "one"]]
    assert cells(out, "three")[1][2] == "wrong"
    assert "three, f16: convreg is wrong: error 3" in out
    assert "torch does not compute two in f32: has no such padding" in out
    plain = bench_formats.shown(report, as_markdown=False)
    assert "data gradient, ncx\nshape " in plain
    assert np.all([line in plain.splitlines() for line in out.splitlines() if line.startswith("three, f16")])


@pytest.mark.parametrize(("arguments", "words"), [
    (["--formats", "fp8"], "no number format named 'fp8'; allowed: all, f32"),
    (["--formats", ""], "--formats='' is refused"),
    (["--formats", "all", "--dtype", "f32"], "--dtype is refused beside --formats"),
    (["--formats", "all", "--against", "."], "--against is refused beside --formats"),
])
def test_refusals(capsys, arguments, words):
    assert main(["bench", LAYER, *arguments]) == 1
    assert words in capsys.readouterr().err
