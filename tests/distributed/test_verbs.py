"""`--dask` and `--results` of the command line."""

import json
import signal
import subprocess
import sys
import time
from dataclasses import asdict

import pytest

pytest.importorskip("distributed")

from convreg.tools.bench import problems, run_on, sweeping
from convreg.tools.cli import main
from golden_cases import files_of
from places import ROOT

from convreg.errors import GraphError
from convreg.golden import sweeping as golden_sweeping

pytestmark = pytest.mark.xdist_group("cluster")
LAYER = "mb2_ic3ih9_oc4_kh3sh2ph1_nlayer"


def address(cluster, workers=2):
    return cluster(workers).scheduler.address


def test_golden(cluster, tmp_path, capsys):
    for folder, more in (("here", []), ("cluster", ["--dask", address(cluster)])):
        assert main(["golden", LAYER, "-o", str(tmp_path / folder), *more]) == 0
        assert capsys.readouterr().out == f"{tmp_path / folder}: 2 cases, layout npz\n"
    assert files_of(tmp_path / "here") == files_of(tmp_path / "cluster")
    before = files_of(tmp_path / "cluster")
    assert main(["golden", LAYER, "-o", str(tmp_path / "cluster"), "--dask", address(cluster)]) == 0
    assert files_of(tmp_path / "cluster") == before


def test_golden_goes_on_without_a_cluster(tmp_path, capsys, monkeypatch):
    """After the process was killed."""
    write = golden_sweeping._write
    written = []

    def stop(contents, root):
        if written:
            raise KeyboardInterrupt
        written.append(root)
        write(contents, root)

    monkeypatch.setattr(golden_sweeping, "_write", stop)
    assert main(["golden", LAYER, "-o", str(tmp_path / "root"), "--dask", "local:1"]) == 130
    monkeypatch.undo()
    assert [path.name for path in (tmp_path / "root").iterdir()] == [golden_sweeping.WORK]
    assert main(["golden", LAYER, "-o", str(tmp_path / "root")]) == 0
    assert main(["golden", LAYER, "-o", str(tmp_path / "whole")]) == 0
    assert files_of(tmp_path / "root") == files_of(tmp_path / "whole")


def test_numerics(cluster, tmp_path, capsys):
    shown = []
    for more in ([], ["--dask", address(cluster), "--results", str(tmp_path / "results.jsonl")]):
        assert main(["numerics", LAYER, "mb1_ic2ih5_oc3_kh3_nother", "--formats", "hifloat8", *more]) == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]
    lines = (tmp_path / "results.jsonl").read_text().splitlines()
    assert {json.loads(line)["case"] for line in lines[1:]} == {
        f"{name} {direction}" for name in ("layer", "other") for direction in ("data", "weights")}
    assert main(["numerics", LAYER, LAYER]) == 1
    assert "'layer data' is named twice" in capsys.readouterr().err


def test_numerics_of_several_layers_by_a_pattern(cluster, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("convreg.tools.numerics.shipped_shapes", lambda: [
        problems.problem_of(f"mb1_ic2ih5_oc3_kh3_nnet_{number}") for number in range(3)])
    assert main(["numerics", "net_[01]", "--formats", "bfloat16", "--unscaled", "--dask", address(cluster)]) == 0
    out = capsys.readouterr().out
    assert "net_0 data" in out
    assert "net_1 weights" in out
    assert "net_2" not in out


@pytest.mark.parametrize("verb", [["golden", LAYER, "-o", "root"], ["numerics", LAYER], ["bench", LAYER]])
def test_clusters_that_are_not_there(tmp_path, monkeypatch, capsys, verb):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("convreg.distributed.cluster.SECONDS", 0.3)
    assert main([*verb, "--dask", "tcp://127.0.0.1:9"]) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert "client='tcp://127.0.0.1:9' is refused; allowed: the address of a scheduler that answers" in error
    assert main([*verb, "--dask", "here"]) == 1
    assert "local:N" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------------------------------------------------------------
# bench


@pytest.fixture
def quick(monkeypatch):
    """The settings of short measurements in this process."""
    return {"peers": (), "repeat": 1, "seconds": 0.0, "threads": 1}


@pytest.mark.slow
def test_bench_records_its_machines(cluster, tmp_path, capsys):
    results, figures = tmp_path / "results.jsonl", tmp_path / "figures.json"
    command = ["bench", LAYER, "--peers", "none", "--repeat", "1", "--seconds", "0", "--threads", "1", "--dtype",
               "f32,hifloat8", "--results", str(results), "--json", str(figures)]
    assert main([*command, "--dask", address(cluster)]) == 0
    lines = [json.loads(line) for line in results.read_text().splitlines()[1:]]
    assert len(lines) == 6  # two directions; f32, and results of two formats
    for line in lines:
        machine = line["result"]["machine"]
        assert line["case"].endswith(f" on {machine['processor']}, {machine['processors']}, {machine['isa']}")
    first = json.loads(figures.read_text())
    assert len(first["results"]) == 6
    assert all(row["ms"]["convreg"] > 0 for row in first["results"])
    capsys.readouterr()
    assert main(command) == 0  # nothing is timed again
    assert len(results.read_text().splitlines()) == 7
    assert json.loads(figures.read_text()) == first
    assert main([*command, "--against", "before.json"]) == 1
    assert "--json is refused beside --against" in capsys.readouterr().err


def test_bench_of_several_kinds_of_machines(tmp_path, quick, monkeypatch):
    """Results of machines that are not in the cluster now are reported too."""
    layer = [problems.problem_of(LAYER)]
    run_on(layer, path=tmp_path / "file", **quick)
    _, *lines = (tmp_path / "file").read_text().splitlines()
    other = json.loads(lines[0])
    other["result"]["machine"]["isa"] = "generic"  # of no machine that runs the tests
    other["case"] = other["case"].replace(other["case"].rpartition(" ")[2], "generic")
    with (tmp_path / "file").open("a") as file:
        file.write(json.dumps(other) + "\n")
    reports = run_on(layer, path=tmp_path / "file", **quick)
    assert sorted(len(report.rows) for report in reports) == [1, 2]
    half = next(report for report in reports if report.machine.isa == "generic")
    assert "1 of 2 calls are not timed on this machine yet" in half.notes


def test_bench_formats_together(cluster, quick):
    (report,) = run_on([problems.problem_of(LAYER)], cluster(1), together=True, dtypes=["bf16"],
                       directions=["data"], **quick)
    assert {row.dtype for row in report.rows} == {"f32", "bf16"}
    assert next(row for row in report.rows if row.dtype == "bf16").ratio("f32") > 0


def test_one_measurement_at_a_time(tmp_path, monkeypatch):
    """The lock of a host holds another process back."""
    monkeypatch.setattr(sweeping.tempfile, "tempdir", str(tmp_path))
    code = ("import sys, tempfile; tempfile.tempdir = sys.argv[1]\n"
            "from convreg.tools.bench.sweeping import _quiet\n"
            "with _quiet(): print('held', flush=True)\n")
    with sweeping._quiet():
        waiting = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, cwd=ROOT)
        time.sleep(1)
        assert waiting.poll() is None
    assert waiting.communicate(timeout=30)[0] == b"held\n"


def test_rows_survive_the_file(quick):
    timed = sweeping.timed_alone(None, _jobs(), ("f32",), (), 1, 1, 0.0, None)
    back = sweeping._from_json(json.loads(json.dumps(sweeping._as_json("x", timed))))
    assert asdict(back.machine) == asdict(timed.machine)
    assert back.rows == timed.rows


def _jobs():
    from convreg.tools.bench.jobs import jobs_of

    return jobs_of([problems.problem_of(LAYER)], ["data"], None, ["ncx"])


@pytest.mark.parametrize("changes", [{"repeat": 2}, {"threads": 2}, {"together": True}])
def test_files_of_other_benchmarks(tmp_path, quick, changes):
    run_on([problems.problem_of(LAYER)], path=tmp_path / "file", directions=["data"], **quick)
    with pytest.raises(GraphError, match=f"holds a sweep with {next(iter(changes))}="):
        run_on([problems.problem_of(LAYER)], path=tmp_path / "file", directions=["data"], **{**quick, **changes})


@pytest.mark.slow
def test_a_verb_that_is_killed_goes_on(tmp_path):
    """The processes of the cluster end with it."""
    layers = [f"mb4_ic16ih{size}_oc16_kh3ph1_n{size}" for size in (31, 32)]
    command = [sys.executable, "-m", "tools", "numerics", *layers, "--unscaled", "--dask", "local:2", "--results",
               str(tmp_path / "file")]
    running = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not ((tmp_path / "file").exists() and len((tmp_path / "file").read_text().splitlines()) > 1):
        time.sleep(0.02)
        if running.poll() is not None:
            break
    running.send_signal(signal.SIGKILL)
    running.wait()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert len((tmp_path / "file").read_text().splitlines()) == 5
    assert done.stdout.count("onednn::") == 4
