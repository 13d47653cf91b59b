"""The example examples/torch_formats, shortened, and the speed measurement of docs/, with few turns."""

import importlib.util
import json
import math
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from places import ROOT

torch = pytest.importorskip("torch")
pytest.importorskip("matplotlib")

pytestmark = pytest.mark.filterwarnings("ignore:.*VariableFunctionsClass.*")


def script(path):
    spec = importlib.util.spec_from_file_location(f"torch_{path.stem}", path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_the_example_trains_in_every_recipe(tmp_path, monkeypatch, capsys):
    train = script(ROOT / "examples" / "torch_formats" / "train.py")
    runs = []
    monkeypatch.setattr(train, "draw", lambda path, made, draw=train.draw: (runs.extend(made), draw(path, made)))
    train.main(["--epochs", "2", "--images", "192", "--every", "3", "--recipes",
                "float32,bfloat16,hifloat8,fp8_hybrid,hifloat8+channel", "--picture", str(tmp_path / "all.png"),
                "--layers", str(tmp_path / "layers")])
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed[3:8]] == [run.recipe for run in runs]
    exact = runs[0]
    for run in runs:
        assert len(run.losses) == 12
        assert len(run.accuracies) == 2
        assert len(run.seen.layers) == 10
        assert sorted({record.step for record in run.seen.records}) == [0, 3, 6, 9]
        np.testing.assert_allclose(run.losses[0], exact.losses[0], rtol=0.05)
        assert np.mean(run.losses[-3:]) < np.mean(run.losses[:3])
        assert run.ratio("stem", "weight") == math.inf if run is exact else 15 < run.ratio("stem", "weight") < 80
        held = json.loads((tmp_path / "layers" / f"{run.recipe}.json").read_text())
        assert len(held["records"]) == len(run.seen) == 4 * 10 * 3
    for name in ("all.png", "layers/hifloat8.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("arguments", "message"), [
    (["--recipes", "hifloat9"], "no recipe named 'hifloat9'"), (["--recipes", "hifloat8+row"], "scaling='row'")])
def test_the_example_refuses_unknown_recipes(arguments, message):
    train = script(ROOT / "examples" / "torch_formats" / "train.py")
    with pytest.raises(SystemExit, match=message):
        train.main(arguments)


def test_the_example_refuses_before_it_trains(tmp_path, capsys, monkeypatch):
    train = script(ROOT / "examples" / "torch_formats" / "train.py")
    monkeypatch.setattr(train, "train", lambda *arguments: pytest.fail("it trains"))
    for arguments in (["--images", "0"], ["--images", "31"], ["--images", "1439"], ["--epochs", "0"], ["--seed", "-1"],
                      ["--seed", str(2**63)]):
        with pytest.raises(SystemExit):
            train.main(arguments)
        assert "--images from 32 to 1438" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        train.main(["--recipes", "float32,float64", "--picture", str(tmp_path / "a.png")])
    assert "float64 is for modules of float64" in capsys.readouterr().err
    for name in ("missing/formats.png", "formats.foo"):
        with pytest.raises(SystemExit, match=f"--picture='.*{name}' is refused"):
            train.main(["--picture", str(tmp_path / name)])
    (tmp_path / "taken").write_text("")
    with pytest.raises(SystemExit, match="taken"):
        train.main(["--picture", str(tmp_path / "a.png"), "--layers", str(tmp_path / "taken")])


def test_the_picture_shows_every_recipe(tmp_path, monkeypatch):
    """Also more recipes than there are colours."""
    figure = pytest.importorskip("matplotlib.figure")
    train = script(ROOT / "examples" / "torch_formats" / "train.py")
    names = [f"recipe {number}" for number in range(len(train.COLOURS) + 1)]
    runs = [train.Run(name, [1.0], [0.5], seen=SimpleNamespace(layers=())) for name in names]
    shown = []
    monkeypatch.setattr(figure.Figure, "legend", lambda self, handles, labels, **_: shown.extend(labels))
    train.draw(tmp_path / "a.png", runs)
    assert shown == names


@pytest.mark.slow
def test_the_speed_of_a_step_is_measured(capsys, monkeypatch):
    speed = script(ROOT / "docs" / "torch_speed.py")
    monkeypatch.setattr(sys, "argv", ["torch_speed.py", "--batch", "1", "--seconds", "0", "--rounds", "1",
                                      "--threads", str(torch.get_num_threads())])
    speed.main()
    _, _, *rows, _, last = capsys.readouterr().out.splitlines()
    assert [row.split("  ")[0] for row in rows][:6] == [
        "torch float32", "torch float32, channels last", "convreg hifloat8", "convreg hifloat8, channels last",
        "convreg bfloat16", "convreg fp8_hybrid"]
    assert float(rows[0].split()[-1]) == 1.0
    assert last.startswith("1 rounds, batch 1")
