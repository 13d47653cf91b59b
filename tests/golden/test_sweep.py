"""`convreg.golden.sweep` without a cluster: the files of `layouts.write`, interruptions, what is refused."""

from __future__ import annotations

import resource
import signal
from dataclasses import replace

import pytest
from golden_cases import ascend_case, data_case, files_of, weights_case

from convreg.errors import GraphError, OpError, OpTypeError, UnknownOp
from convreg.golden import layouts, manifest, sweep, sweeping

CASES = [data_case("a b", "bfloat16"), ascend_case("c"), weights_case("d", "float16"),
         ascend_case("e", mask=(True, False, True))]
OF_LAYOUT = {**dict.fromkeys(layouts.LAYOUTS, CASES), "ttk": [CASES[1], CASES[3]],
             "hipdnn": [CASES[0], CASES[2], ascend_case("f", mask=(True, True, False))]}


def written(folder, layout="npz", cases=None, **choices):
    """The files that `layouts.write` makes."""
    cases = OF_LAYOUT[layout] if cases is None else cases
    layouts.write(layout, folder, (case.make(**choices) for case in cases), command="x",
                  **{"seed": 0, "fill": "normal", **choices})
    return files_of(folder)


class Stop:
    """Ends a sweep before a case; the number of the steps that it saw."""

    def __init__(self, step):
        self.step, self.seen = step, []

    def __call__(self, done, total, name):
        self.seen.append((done, total, name))
        if done == self.step and done < total:
            raise KeyboardInterrupt


@pytest.mark.parametrize("layout", layouts.LAYOUTS)
def test_files_are_those_of_write(tmp_path, layout):
    found = sweep(OF_LAYOUT[layout], tmp_path / "swept", layout, command="x")
    assert files_of(tmp_path / "swept") == written(tmp_path / "written", layout)
    assert found == manifest.read(tmp_path / "swept")
    before = files_of(tmp_path / "swept")
    stop = Stop(0)
    assert sweep(OF_LAYOUT[layout], tmp_path / "swept", layout, command="x", progress=stop) == found
    assert not stop.seen
    assert files_of(tmp_path / "swept") == before


def test_seeds_and_fills(tmp_path):
    sweep(CASES, tmp_path / "swept", "bin", command="x", seed=7, fill="integers", threads=2)
    assert files_of(tmp_path / "swept") == written(tmp_path / "written", "bin", seed=7, fill="integers")


@pytest.mark.parametrize("layout", ["npz", "ttk", "hipdnn"])
def test_an_interrupted_sweep_goes_on(tmp_path, layout):
    """With the cases that are missing; until then no file is at its place."""
    folder, cases = tmp_path / "swept", OF_LAYOUT[layout]
    with pytest.raises(KeyboardInterrupt):
        sweep(cases, folder, layout, command="x", progress=Stop(1))
    assert [path.name for path in folder.iterdir()] == [sweeping.WORK]
    stop = Stop(None)
    sweep(cases, folder, layout, command="x", progress=stop)
    assert stop.seen[0] == (0, len(cases) - 1, cases[1].name)
    assert files_of(folder) == written(tmp_path / "written", layout)


def test_a_case_whose_files_are_damaged_is_made_again(tmp_path):
    folder = tmp_path / "swept"
    with pytest.raises(KeyboardInterrupt):
        sweep(CASES, folder, command="x", progress=Stop(2))
    file = next((folder / sweeping.WORK / sweeping.FILES).glob("c.npz"))
    file.write_bytes(file.read_bytes()[:-1])
    stop = Stop(None)
    sweep(CASES, folder, command="x", progress=stop)
    assert [name for _, _, name in stop.seen[:-1]] == ["c", "d", "e"]
    assert files_of(folder) == written(tmp_path / "written")


def test_an_end_that_is_interrupted(tmp_path, monkeypatch):
    """While the files move to their places, with the manifest last."""
    folder, moved = tmp_path / "swept", []
    rename = sweeping.os.rename

    def stop(source, target):
        if len(moved) == 2:
            raise KeyboardInterrupt
        moved.append(target)
        rename(source, target)

    monkeypatch.setattr(sweeping.os, "rename", stop)
    with pytest.raises(KeyboardInterrupt):
        sweep(CASES, folder, command="x")
    monkeypatch.undo()
    assert not (folder / manifest.NAME).exists()
    seen = Stop(None)
    sweep(CASES, folder, command="x", progress=seen)
    assert seen.seen == [(0, 0, "")]
    assert files_of(folder) == written(tmp_path / "written")


@pytest.mark.parametrize("changes", [{"seed": 1}, {"fill": "ones"}, {"command": "y"}, {"layout": "bin"}])
@pytest.mark.parametrize("step", [2, None])
def test_folders_of_other_sweeps(tmp_path, changes, step):
    """Interrupted or whole."""
    folder, stop = tmp_path / "swept", Stop(step)
    if step is None:
        sweep(CASES, folder, command="x", progress=stop)
    else:
        with pytest.raises(KeyboardInterrupt):
            sweep(CASES, folder, command="x", progress=stop)
    before = files_of(folder)
    with pytest.raises(GraphError, match=f"holds .*{next(iter(changes))}="):
        sweep(CASES, **{"folder": folder, "command": "x", **changes})
    with pytest.raises(GraphError, match=r"another call|other cases"):
        sweep([replace(CASES[0], inputs=data_case("a b", "float16").inputs), *CASES[1:]], folder, command="x")
    assert files_of(folder) == before


def test_folders_that_hold_something(tmp_path):
    (tmp_path / "mine.txt").write_text("x")
    with pytest.raises(GraphError, match=r"holds 'mine\.txt'; needed: a new or empty folder, or one that the same"):
        sweep(CASES, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    with pytest.raises(GraphError, match=r"mine\.txt: cannot be made"):
        sweep(CASES, tmp_path / "mine.txt")


@pytest.mark.parametrize(("cases", "choices", "error"), [
    ([*CASES, replace(CASES[1], name="bad", attributes={})], {}, OpTypeError),
    ([*CASES, replace(CASES[1], name="bad", op="none")], {}, UnknownOp),
    ([*CASES, CASES[0]], {}, GraphError), (CASES, {"seed": -1}, OpError), (CASES, {"fill": "none"}, OpError),
    (CASES, {"layout": "none"}, GraphError), (CASES, {"threads": 0}, OpError), (CASES, {"client": 3}, OpTypeError),
    (CASES, {"layout": "ttk"}, GraphError), (3, {}, OpTypeError), ([3], {}, OpTypeError),
    (CASES, {"seed": "x"}, OpTypeError), (CASES, {"fill": 3}, OpTypeError), (CASES, {"command": 3}, OpTypeError)])
def test_what_is_refused_leaves_no_folder(tmp_path, cases, choices, error):
    if "client" in choices:
        pytest.importorskip("distributed")
    with pytest.raises(error):
        sweep(cases, tmp_path / "new" / "folder", **choices)
    assert not (tmp_path / "new").exists()


def test_a_full_disk_keeps_what_is_done(tmp_path):
    """Nothing half written: the folder has whole files, and the sweep goes on when there is room."""
    folder = tmp_path / "swept"
    large = data_case("large", dst_shape=[2, 6, 10, 8])
    cases = [ascend_case("small", mask=(False, False, True)), large, CASES[1]]
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    sweep(cases[:1], tmp_path / "one", "bin")
    room = max(len(content) for content in files_of(tmp_path / "one").values())
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
    try:
        with pytest.raises(GraphError, match=r"large/[a-z_]+\.bin: cannot be written: File too large"):
            sweep(cases, folder, "bin", command="x")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert not (folder / manifest.NAME).exists()
    stop = Stop(None)
    sweep(cases, folder, "bin", command="x", progress=stop)
    assert stop.seen[0][1] == 2
    assert files_of(folder) == written(tmp_path / "written", "bin", cases)


def test_a_folder_whose_name_is_too_long():
    with pytest.raises(GraphError, match="cannot be made: File name too long"):
        sweep([data_case()], "x" * 1000)
