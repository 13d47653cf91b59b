"""`convreg train-step` and `convreg train`: files in, files out, continuation, and one sentence for what is wrong."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import onnx
import pytest
from convreg.tools.cli import main, parser_of
from exported_models import batch_of, classifier

import convreg.onnx


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("training")
    onnx.save(classifier(), made / "forward.onnx")
    np.savez(made / "data.npz", **batch_of(40))
    assert main(["train-step", str(made / "forward.onnx"), "-o", str(made / "step.onnx"), "--optimizer", "adam",
                 "--betas", "0.8", "0.99", "--learning-rate", "0.01"]) == 0
    return made


def test_every_option_is_explained(capsys):
    """The verbs take most of their options and the words on them from the functions that they call."""
    for command in parser_of()._subparsers._group_actions[0].choices.values():
        assert len(command.complete()._actions) > 1 or command.prog in ("convreg list", "convreg capabilities")
        unexplained = [action.dest for action in command._actions if not action.help]
        assert unexplained == [], command.prog
        texts = [action.help for action in command._actions]
        assert len(texts) == len(set(texts)), command.prog


def test_names_are_printed_with_escapes(tmp_path, capsys):
    model = classifier()
    for value in model.graph.input:
        if value.name == "x":
            value.name = "a\x1b[31mb"
    for node in model.graph.node:
        node.input[:] = ["a\x1b[31mb" if name == "x" else name for name in node.input]
    onnx.save(model, tmp_path / "forward.onnx")
    assert main(["train-step", str(tmp_path / "forward.onnx"), "-o", str(tmp_path / "step.onnx")]) == 0
    assert r"takes a\x1b[31mb, target; " in capsys.readouterr().out


def train(folder, output, *options):
    return main(["train", str(folder / "step.onnx"), "--data", str(folder / "data.npz"), "-o", str(output),
                 "--batch", "16", "--engine", "reference", *map(str, options)])


def test_step_has_what_the_options_say(folder, tmp_path, capsys):
    settings = convreg.onnx.StepRecord.of(convreg.onnx.load(folder / "step.onnx")).settings
    assert (settings["optimizer"], settings["betas"], settings["dialect"]) == ("adam", [0.8, 0.99], "aten")
    out = tmp_path / "other.onnx"
    assert main(["train-step", str(folder / "forward.onnx"), "-o", str(out), "--optimizer", "momentum", "--nesterov",
                 "--wrt", "fc.weight", "--wrt", "conv2.weight", "--dialect", "onednn", "--format", "bfloat16",
                 "--no-defaults", "--clip-norm", "1.5", "--batch-norm", "frozen"]) == 0
    assert "takes x, target; outside standard ONNX: convreg.onednn::ConvolutionBackwardWeights" in (
        capsys.readouterr().out)
    step = convreg.onnx.load(out)
    record = convreg.onnx.StepRecord.of(step)
    assert record.parameters == ["conv2.weight", "fc.weight"] or record.parameters == ["fc.weight", "conv2.weight"]
    assert record.settings["nesterov"] is True
    assert record.settings["clip_norm"] == 1.5
    assert len(step.training_info) == 1


def test_training_writes_model_picture_and_checkpoint(folder, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    assert train(folder, tmp_path / "t.onnx", "--epochs", 3, "--plot", tmp_path / "loss.png", "--checkpoint",
                 tmp_path / "c.safetensors", "--schedule", "cosine", "--threads", 1) == 0
    shown = capsys.readouterr()
    assert [line.partition(":")[0] for line in shown.out.splitlines()[:3]] == ["epoch 1", "epoch 2", "epoch 3"]
    assert "trained in 9 steps; engine: reference" in shown.out
    assert shown.err.count("\n") == 3  # one line an epoch where the output is no terminal
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")
    trained = convreg.onnx.load(tmp_path / "t.onnx")
    convreg.onnx.check(trained)
    assert convreg.onnx.run(trained, {"x": batch_of(2)["x"]})["y"].shape == (2, 5)


def test_a_continued_training_makes_the_same_files(folder, tmp_path, capsys):
    assert train(folder, tmp_path / "a.onnx", "--epochs", 4, "--checkpoint", tmp_path / "a") == 0
    whole = capsys.readouterr().out.splitlines()
    assert train(folder, tmp_path / "b.onnx", "--epochs", 2, "--checkpoint", tmp_path / "b") == 0
    capsys.readouterr()
    assert train(folder, tmp_path / "b.onnx", "--epochs", 4, "--checkpoint", tmp_path / "b", "--resume") == 0
    assert capsys.readouterr().out.splitlines()[:4] == whole[:4]
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_interrupted_inside_an_epoch(folder, tmp_path):
    """From a checkpoint of step 4 of 3 steps an epoch."""
    data = batch_of(40)
    step = convreg.onnx.load(folder / "step.onnx")
    settings = {"epochs": 3, "batch": 16, "seed": 5, "every": 2}
    whole = convreg.onnx.Trainer(step, engine="reference")
    losses = convreg.onnx.fit(whole, data, checkpoint=tmp_path / "a", **settings)

    class Interrupted(Exception):
        pass

    def stop(done, total, what):
        if done == 5:
            raise Interrupted

    with pytest.raises(Interrupted):
        convreg.onnx.fit(convreg.onnx.Trainer(step, engine="reference"), data, checkpoint=tmp_path / "b",
                         progress=stop, **settings)
    resumed = convreg.onnx.Trainer(step, engine="reference")
    assert convreg.onnx.fit(resumed, data, checkpoint=tmp_path / "b", resume=True, **settings) == losses
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_loss_that_is_not_finite_keeps_the_checkpoint(folder, tmp_path, capsys):
    data = batch_of(40)
    data["x"][20:] = np.nan
    np.savez(tmp_path / "bad.npz", **data)
    code = main(["train", str(folder / "step.onnx"), "--data", str(tmp_path / "bad.npz"),
                 "-o", str(tmp_path / "t.onnx"), "--epochs", "2", "--batch", "10", "--no-shuffle",
                 "--checkpoint", str(tmp_path / "c"), "--every", "1",
                 "--engine", "reference"])
    assert code == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert "step 3: the loss is nan" in said
    assert said.endswith(f"{tmp_path / 'c'} holds the state after step 2")
    assert not (tmp_path / "t.onnx").exists()
    trainer = convreg.onnx.Trainer(folder / "step.onnx", engine="reference")
    trainer.load(tmp_path / "c")
    assert trainer.steps == 2


@pytest.mark.parametrize(("options", "said"), [
    (["--epochs", 0], "epochs=0 is refused"), (["--epochs", 1, "--resume"], "resume is refused without a checkpoint"),
    (["--epochs", 1, "--plot", ""], "--plot='' is refused: it has no suffix"),
    (["--epochs", 1, "--every", 2], "every is refused without a checkpoint"),
    (["--epochs", 1, "--plot", "loss.bmp"], "--plot='loss.bmp' is refused: it has the suffix '.bmp'"),
    (["--epochs", 1, "--learning-rate", "-1"], "learning_rate=-1.0"), (["--epochs", 1, "--threads", 0], "threads=0"),
    (["--epochs", 1, "--checkpoint", "/no/such/folder/c"], "checkpoint='/no/such/folder/c' is refused"),
    (["--epochs", 1, "--checkpoint", "none.safetensors", "--resume"], "none.safetensors: cannot be read"),
])
def test_refusals(folder, tmp_path, capsys, monkeypatch, options, said):
    monkeypatch.chdir(tmp_path)
    assert train(folder, tmp_path / "t.onnx", *options) == 1
    found = capsys.readouterr()
    assert said in found.err
    assert not (tmp_path / "t.onnx").exists()


@pytest.mark.parametrize(("change", "said"), [
    ({"target": None}, "the data lacks 'target'"), ({"y": np.ones(40)}, "the entry 'y' is none of x, target"),
    ({"target": np.zeros(39, np.int64)}, "different numbers of samples: x 40, target 39"),
    ({"target": np.full(40, 9)}, "has the label 9; the output has 5 classes"),
    ({"x": np.float32(1)}, "as a single number"),
    ({"x": np.zeros((0, 3, 6, 6), np.float32), "target": np.zeros(0, int)}, "no samples"),
    ({"x": np.zeros((40, 3, 6, 6))}, "not float64"),
])
def test_data_that_does_not_fit(folder, tmp_path, capsys, change, said):
    np.savez(tmp_path / "d.npz", **{name: array for name, array in {**batch_of(40), **change}.items()
                                    if array is not None})
    assert main(["train", str(folder / "step.onnx"), "--data", str(tmp_path / "d.npz"), "-o", str(tmp_path / "t.onnx"),
                 "--epochs", "1"]) == 1
    assert said in capsys.readouterr().err


def test_resuming_another_training_is_refused(folder, tmp_path, capsys):
    assert train(folder, tmp_path / "t.onnx", "--epochs", 1, "--checkpoint", tmp_path / "c") == 0
    for options, said in ((["--seed", 1], "had seed=0; resuming it with seed=1 is refused"),
                          (["--schedule", "cosine"], "schedule='constant'"),
                          (["--no-shuffle"], "shuffle=True")):
        assert train(folder, tmp_path / "u.onnx", "--epochs", 2, "--checkpoint", tmp_path / "c", "--resume",
                     *options) == 1
        assert said in capsys.readouterr().err
    convreg.onnx.Trainer(folder / "step.onnx", engine="reference").save(tmp_path / "c")
    assert train(folder, tmp_path / "u.onnx", "--epochs", 2, "--checkpoint", tmp_path / "c", "--resume") == 1
    assert "holds no training over epochs" in capsys.readouterr().err


def test_a_step_is_not_made_of_everything(folder, tmp_path, capsys):
    assert main(["train-step", str(folder / "forward.onnx"), "-o", str(tmp_path / "s.onnx"), "--loss", "none"]) == 1
    assert "of one element" in capsys.readouterr().err
    assert not (tmp_path / "s.onnx").exists()
    with pytest.raises(SystemExit):
        main(["train-step", str(folder / "forward.onnx"), "-o", "s.onnx", "--optimizer", "rmsprop"])
    assert "invalid choice: 'rmsprop'" in capsys.readouterr().err


def test_verbs_work_without_docstrings():
    """Help texts come from docstrings, which python -OO removes."""
    done = subprocess.run([sys.executable, "-OO", "-m", "convreg.tools", "train", "--help"], capture_output=True,
                          text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--schedule {constant,cosine}" in done.stdout
    assert "train-step" in parser_of().format_help()
