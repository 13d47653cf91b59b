"""The verb `convreg bench`: its options, its files and its messages."""

from __future__ import annotations

import json
import sys
from functools import partial

import numpy as np
import pytest
from bench_layers import FORMATS, write_model
from convreg.tools.bench.check import DTYPES
from convreg.tools.bench.problems import Problem, problem_of
from convreg.tools.bench.timing import run
from convreg.tools.cli import main
from graphs import data_gradient, value
from onnx import helper

import convreg
from convreg import progress
from convreg.layers import DIRECTIONS, LAYOUTS
from convreg.presentation import PLOT_FORMATS


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


def test_number_formats_as_the_other_verbs_name_them(machine, capsys):
    arguments = ["bench", "mb1ic3ih5oc4kh3ph1", "--dir", "data", "--peers", "none", "--repeat", "1", "--seconds", "0"]
    assert main([*arguments, "--dtype", "bfloat16,bf16,float8_e5m2"]) == 0
    out = capsys.readouterr().out
    assert out.count("data gradient, bf16, ncx") == 1
    assert "data gradient, e5m2" in out
    assert main([*arguments, "--formats", "bfloat16"]) == 0
    assert "bfloat16" not in capsys.readouterr().out


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
    problem = problem_of("mb1ic3ih5oc4kh3ph1nlayer")
    run([problem, Problem("own", problem.geometry, directions=("weights",))], peers=(), repeat=1, seconds=0,
              progress=lambda *step: seen.append(step))
    assert seen == [(0, 3, "peak and bandwidth"), (0, 3, "layer data f32 ncx"), (1, 3, "layer weights f32 ncx"),
                    (2, 3, "own weights f32 ncx"), (3, 3, "")]
    progress.bar(1, 3, "layer")
    progress.lines(1, 3, "layer")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "[########................] 1/3 layer" in captured.err


@pytest.mark.parametrize("show", [progress.bar, progress.lines])
def test_progress_shows_names_with_escapes(capsys, show):
    """Files choose the names of cases, and a terminal obeys control characters."""
    show(1, 3, "a\x1b[2Jb\nc\ud800")
    assert capsys.readouterr().err.removeprefix("\r\x1b[K").rstrip("\n").endswith(r"1/3 a\x1b[2Jb\nc\ud800")
