"""The residual block's training step: written by its script, right, and the same in every engine and dialect."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from graphs import checked_shapes
from places import ROOT

import convreg.onnx

FOLDER = ROOT / "examples" / "residual"


def script(name):
    spec = importlib.util.spec_from_file_location(f"residual_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


building, comparing = script("build_training_step"), script("compare")


@pytest.fixture(scope="module")
def model():
    return onnx.load(building.MODEL)


@pytest.fixture(scope="module")
def feeds(model):
    return comparing.inputs_of(model, 3, np.random.default_rng(11))


@pytest.fixture(scope="module")
def results(model, feeds):
    return convreg.onnx.run(model, feeds)


def test_script_reproduces_the_saved_graph(model):
    assert building.build() == model


def test_graph_passes_every_check(model):
    shapes = checked_shapes(model)
    assert shapes["x.gradient.down"] == shapes["x.gradient.shortcut"] == ["batch", 8, 16, 16]
    assert shapes["relu2.gradient"] == shapes["relu1.gradient"] == ["batch", 16, 8, 8]
    assert all(shapes[f"{name}.gradient"] == list(shape) for name, shape in building.PARAMETERS.items())
    assert {node.domain for node in model.graph.node} == building.DOMAINS.keys()


def convolution(x, weight, stride, pad, groups=1):
    """Convolution in float64."""
    taps = weight.shape[2:]
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, taps, axis=(2, 3))[:, :, ::stride, ::stride]
    parts = zip(np.split(windows, groups, axis=1), np.split(weight, groups), strict=True)
    return np.concatenate([np.einsum("nchwrs,mcrs->nmhw", *part, optimize=True) for part in parts], axis=1)


def loss_in_float64(values):
    """The forward pass, written once more in float64."""
    down = convolution(values["x"], values["down.weight"], 2, 1) + values["down.bias"][:, None, None]
    grouped = convolution(np.maximum(down, 0), values["grouped.weight"], 1, 1, groups=4)
    shortcut = convolution(values["x"], values["shortcut.weight"], 2, 0)
    relu2 = np.maximum(grouped + values["grouped.bias"][:, None, None] + shortcut, 0)
    scattered = np.zeros((len(relu2), 8, 18, 18))
    for row in range(4):
        for column in range(4):
            scattered[:, :, row:row + 15:2, column:column + 15:2] += np.einsum(
                "nihw,io->nohw", relu2, values["up.weight"][:, :, row, column])
    return np.mean((scattered[:, :, 1:-1, 1:-1] - values["target"]) ** 2)


def test_loss_equals_float64(feeds, results):
    wide = {name: array.astype(np.float64) for name, array in feeds.items()}
    assert results["loss"] == pytest.approx(loss_in_float64(wide), rel=1e-5)


@pytest.mark.parametrize("name", ["x", *building.PARAMETERS])
def test_gradients_equal_finite_differences(feeds, results, name):
    wide = {key: array.astype(np.float64) for key, array in feeds.items()}
    if name == "x":
        gradient = results["x.gradient"].astype(np.float64)
    else:
        gradient = (wide[name] - results[f"{name}.next"]) / wide["learning_rate"]
    scale = np.abs(gradient).max()
    assert scale > 0

    def slope(direction, step=1e-6):
        ahead, behind = (loss_in_float64({**wide, name: wide[name] + sign * step * direction}) for sign in (1, -1))
        return (ahead - behind) / (2 * step)

    assert np.sum(gradient**2) / scale == pytest.approx(slope(gradient / scale), rel=1e-4)
    for flat in np.random.default_rng(1).choice(gradient.size, min(20, gradient.size), replace=False):
        one = np.zeros(gradient.size)
        one[flat] = 1
        assert gradient.flat[flat] == pytest.approx(slope(one.reshape(gradient.shape)), rel=1e-4, abs=1e-5 * scale)


@pytest.mark.parametrize("name", ["digits", "residual"])
@pytest.mark.parametrize("way", [way for way in comparing.WAYS if way != "convreg.onnx.run"])
def test_engines_agree(name, way):
    pytest.importorskip("openvino" if way.startswith("OpenVINO") else "onnxruntime")
    model = onnx.load(comparing.MODELS[name])
    feeds = comparing.inputs_of(model, 5, np.random.default_rng(3))
    found = comparing.WAYS[way](model, feeds)(feeds)
    assert comparing.difference(found, convreg.onnx.run(model, feeds)) <= comparing.ROUNDING


def test_what_leaves_the_digits_step_is_its_gradients():
    """Else a wrong gradient would hide behind its parameter."""
    model = onnx.load(comparing.MODELS["digits"])
    feeds = comparing.inputs_of(model, 5, np.random.default_rng(3))
    found = convreg.onnx.run(model, feeds)
    for name in (entry for entry in feeds if entry.endswith((".weight", ".bias"))):
        assert np.abs(found[f"{name}.next"]).max() > 3 * np.abs(feeds[name]).max()


def test_a_difference_is_seen(results):
    wrong = {**results, "y": results["y"].copy()}
    wrong["y"].flat[7] += 1e-3 * np.abs(results["y"]).max()
    assert comparing.difference(results, results) == 0
    assert comparing.difference(wrong, results) == pytest.approx(1e-3, rel=1e-3)
    wrong["y"].flat[7] = np.nan
    assert not comparing.difference(wrong, results) <= comparing.ROUNDING


def test_tour_through_the_dialects_is_bit_equal(model):
    feeds = comparing.inputs_of(model, 2, np.random.default_rng(5), exact=True)
    stations = list(comparing.tour(model, feeds))
    assert [station.split()[0] for station in stations] == [to for tour in comparing.TOURS for to in tour]
    assert stations[-1] == "onnx (0 nodes)"
    assert all(any(array.ravel()) for array in convreg.onnx.run(model, feeds).values())


def test_tour_of_any_numbers_is_bit_equal_where_no_sum_changes_hands(model, feeds, monkeypatch):
    """In oneDNN bias gradients are ReduceSum, and stay so; OpenVINO is left out, whose weights gradients are a Conv."""
    monkeypatch.setattr(comparing, "TOURS", comparing.TOURS[:1])
    start = convreg.onnx.translate(model, "onednn")
    assert len(list(comparing.tour(start, feeds))) == 4


def test_tour_notices_a_changed_bit(model, feeds, monkeypatch):
    def translate(source, to, rest):
        changed = onnx.ModelProto()
        changed.CopyFrom(source)
        changed.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(
            np.nextafter(np.float32(2), np.float32(3), dtype=np.float32), "two"))
        return changed

    monkeypatch.setattr(convreg.onnx, "translate", translate)
    with pytest.raises(SystemExit, match=r"onednn -> ascend .*: .* differs in onednn"):
        list(comparing.tour(model, feeds))


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident memory is read from /proc")
def test_steps_in_onnxruntime_leak_nothing(model):
    pytest.importorskip("onnxruntime")
    settled, end = comparing.walk(model, 500)
    assert end - settled < 2**20


def test_absent_runtimes_are_skipped_with_a_word(model, feeds, monkeypatch, capsys):
    for package in ("onnxruntime", "openvino"):
        monkeypatch.setitem(sys.modules, package, None)
    assert [name for name, _ in comparing.runners(model, feeds)] == ["convreg.onnx.run"]
    said = capsys.readouterr().err
    assert "onnxruntime, lowered: skipped, onnxruntime is not installed" in said
    assert "OpenVINO, functions inlined: skipped, openvino is not installed" in said


def test_table(capsys):
    comparing.main(["--batch", "2", "--rounds", "1"])
    shown = capsys.readouterr().out
    assert "| convreg.onnx.run |" in shown
    assert "equal bits in: onednn (8 nodes), ascend (8 nodes)" in shown


def test_steps_without_onnxruntime_are_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    monkeypatch.setattr(comparing, "compare", lambda *given: {"convreg.onnx.run": (0.0, 0.0)})
    with pytest.raises(SystemExit, match="--steps needs onnxruntime, which is not installed"):
        comparing.main(["--steps", "1"])


@pytest.mark.parametrize("name", ["digits", "residual"])
def test_scripts_write_the_file_that_is_named(name, tmp_path):
    path = FOLDER.parent / name / "build_training_step.py"
    for arguments, written in ((["--help"], []), (["step.onnx"], ["step.onnx"])):
        subprocess.run([sys.executable, path, *arguments], cwd=tmp_path, check=True, capture_output=True)
        assert [file.name for file in tmp_path.iterdir()] == written
    assert onnx.load(tmp_path / "step.onnx") == onnx.load(path.with_name("training_step.onnx"))


@pytest.mark.parametrize("arguments", [["--batch", "0"], ["--rounds", "0"], ["--steps", "-1"]])
def test_numbers_that_measure_nothing_are_refused(arguments, capsys, monkeypatch):
    monkeypatch.setattr(comparing, "compare", lambda *given: pytest.fail("it measures"))
    with pytest.raises(SystemExit):
        comparing.main(arguments)
    assert "--batch and --rounds take numbers from 1 on" in capsys.readouterr().err
