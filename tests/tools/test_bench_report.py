"""The arithmetic of `convreg bench`'s report, on made-up times."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from io import BytesIO

import pytest
from convreg.tools.bench import comparison, formats
from convreg.tools.bench import report as bench_report
from convreg.tools.bench.calls import Job
from convreg.tools.bench.machine import Machine
from convreg.tools.bench.problems import Problem, problem_of
from convreg.tools.bench.report import Report, Row, Timing

PEAKS = {"f32": (100.0, "somebody"), "bf16": (100.0, "somebody")}


def made_up_row(name, gflop_inside, size, **milliseconds):
    return Row(name, "data", "f32", "ncx", "a layer", 8.0, gflop_inside, size,
               timings={peer: Timing(1e-3 * time, 7) for peer, time in milliseconds.items()})


@pytest.fixture
def made_up_report():
    """A peak of 100 GFLOP/s that one library beats, 10 GB/s, and a wrong result that is faster than all others."""
    rows = [made_up_row("computes", 6.0, 10**8, convreg=40.0, fast=20.0, wrong=1.0),
            made_up_row("copies", 6.0, 5 * 10**8, convreg=160.0, fast=320.0, wrong=320.0)]
    rows[0].wrong["wrong"] = "error"
    rows[0].algorithm = "laid_out+gathered"
    rows[1].unsupported["idle"] = "has no such thing"
    machine = bench_report.set_rooflines(Machine("a processor", 2, "generic", PEAKS, 10.0), rows)
    peers = dict.fromkeys(["convreg", "fast", "wrong", "idle"], "a library")
    return Report(machine, 2, 5, 0.5, peers, {}, [], rows)


def test_the_peak_is_raised_by_who_beats_it(made_up_report):
    assert made_up_report.machine.peaks["f32"] == (pytest.approx(300.0), "fast on computes, data")
    assert made_up_report.machine.peaks["bf16"] == (100.0, "somebody")
    computes, copies = made_up_report.rows
    assert computes.roofline_seconds == pytest.approx(0.02)  # 6 GFLOP at 300 GFLOP/s; its bytes take 10 ms
    assert copies.roofline_seconds == pytest.approx(0.05)  # 0.5 GB at 10 GB/s


def test_rates_shares_and_ratios(made_up_report):
    computes, copies = made_up_report.rows
    peers, others = made_up_report.peers, made_up_report.others
    assert [*map(computes.rate, peers)] == [pytest.approx(200), pytest.approx(400), None, None]
    assert [*map(computes.share, peers)] == [pytest.approx(0.5), pytest.approx(1), None, None]
    assert [*map(copies.share, peers)] == [
        pytest.approx(0.3125), pytest.approx(0.15625), pytest.approx(0.15625), None]
    assert [*map(computes.ratio, others)] == [pytest.approx(0.5), None, None]
    assert [*map(copies.ratio, others)] == [pytest.approx(2), pytest.approx(2), None]


def test_means_and_worst_ratios(made_up_report):
    assert bench_report.geometric_mean([2.0, 8.0]) == pytest.approx(4)
    assert bench_report.geometric_mean([0.25]) == pytest.approx(0.25)
    summary = bench_report.summarize(made_up_report, made_up_report.rows)
    assert summary.seconds == pytest.approx({"convreg": 0.08, "fast": 0.08, "wrong": 0.32})
    assert summary.rate == pytest.approx({"convreg": 100, "fast": 100, "wrong": 25})
    assert summary.share == pytest.approx({"convreg": (0.5 * 0.3125)**0.5, "fast": 0.15625**0.5, "wrong": 0.15625})
    assert summary.ratio == pytest.approx({"fast": 1, "wrong": 2})
    assert summary.worst == {"fast": (pytest.approx(0.5), "computes"), "wrong": (pytest.approx(2), "copies")}
    shown = [line.split() for line in bench_report.text(made_up_report).splitlines()]
    assert ["computes", "8", "40.0", "200.0", "50%", "laid_out+gathered", "0.50", "wrong", "-"] in shown
    assert ["copies", "8", "160", "50.0", "31%", "-", "2.00", "2.00", "-"] in shown
    assert ["shape", "GFLOP", "ms", "GFLOP/s", "roofline", "algorithm", "fast", "ratio"] in [line[:8] for line in shown]
    assert "| computes | 8 | 40.0 | 200.0 | 50% | laid_out+gathered | 0.50 |" in bench_report.markdown(made_up_report)
    assert ["geometric", "mean", "80.0", "100.0", "40%", "1.00", "2.00", "-"] in shown
    assert ["worst", "ratio", "0.50", "2.00", "-"] in shown
    assert ["worst", "against", "fast:", "0.50", "on", "computes"] in shown


NAME = "layer $\\frac{$ \x1b[31m\n|x"
SHOWN = r"layer $\frac{$ \x1b[31m\n|x"


def test_names_are_shown_with_escapes(made_up_report):
    made_up_report.rows[0].name = NAME
    made_up_report.rows[1].wrong["convreg"] = f"as in {NAME}"
    report = replace(made_up_report, notes=[f"{NAME} is left out"])
    for shown in (bench_report.text, bench_report.markdown, partial(formats.shown, as_markdown=False),
                  partial(formats.shown, as_markdown=True)):
        lines = shown(report).splitlines()
        assert all(line.isprintable() for line in lines)
        assert any(f"{SHOWN} is left out" in line for line in lines)
        assert any(line.startswith((SHOWN, "| " + SHOWN.replace("|", r"\|"))) for line in lines)
        assert any(line.endswith(f"convreg is wrong: as in {SHOWN}") for line in lines)
    job = Job(Problem(NAME, problem_of("mb1_ic8ih8oc8oh8kh3ph1").geometry), "data", "f32", "ncx", "f32")
    compared = comparison.Comparison(1, [NAME], [comparison.Compared(job, comparison.Pair(2.0, 1.0))], [NAME])
    for as_markdown in (False, True):
        assert all(map(str.isprintable, comparison.shown(compared, as_markdown=as_markdown).splitlines()))


def test_a_picture_takes_any_name(made_up_report):
    pytest.importorskip("matplotlib")
    made_up_report.rows[0].name = NAME
    picture = BytesIO()
    bench_report.plot(made_up_report, picture, "png")
    assert picture.getvalue().startswith(b"\x89PNG")


def test_json_has_what_the_tables_show(made_up_report):
    written = json.loads(bench_report.as_json(made_up_report))
    computes = written["results"][0]
    assert [row["algorithm"] for row in written["results"]] == ["laid_out+gathered", ""]
    assert written["algorithm"] is None
    assert computes["ms"] == pytest.approx({"convreg": 40, "fast": 20, "wrong": 1})
    assert computes["runs"] == {"convreg": 7, "fast": 7, "wrong": 7}
    assert computes["roofline_ms"] == pytest.approx(20)
    assert computes["gflops"] == pytest.approx({"convreg": 200, "fast": 400})
    assert computes["roofline"] == pytest.approx({"convreg": 0.5, "fast": 1})
    assert computes["ratio"] == pytest.approx({"fast": 0.5})
    assert computes["wrong"] == {"wrong": "error"}
    (table,) = written["tables"]
    assert [table.pop(key) for key in ("direction", "dtype", "layout")] == ["data", "f32", "ncx"]
    assert table["geometric_mean"]["ms"] == pytest.approx({"convreg": 80, "fast": 80, "wrong": 320})
    assert table["geometric_mean"]["gflops"] == pytest.approx({"convreg": 100, "fast": 100, "wrong": 25})
    assert table["geometric_mean"]["roofline"]["wrong"] == pytest.approx(0.15625)
    assert table["geometric_mean"]["ratio"] == pytest.approx({"fast": 1, "wrong": 2})
    assert table["worst_ratio"] == {"fast": {"ratio": pytest.approx(0.5), "name": "computes"},
                                    "wrong": {"ratio": pytest.approx(2), "name": "copies"}}
