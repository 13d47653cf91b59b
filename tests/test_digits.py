"""The demo: its graph is what its script writes, its gradients are right, and training it works."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import convreg.onnx

FOLDER = Path(__file__).resolve().parents[1] / "examples" / "digits"


def script(name):
    spec = importlib.util.spec_from_file_location(f"digits_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


train = script("train")


@pytest.fixture(scope="module")
def model():
    return onnx.load(train.MODEL)


@pytest.fixture(scope="module")
def session(model):
    return convreg.onnx.Session(model)


def test_script_reproduces_the_saved_graph(model):
    assert script("build_training_step").build() == model


def test_graph_passes_every_check(model):
    convreg.onnx.check(model)
    onnx.checker.check_model(model, full_check=True)
    inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    shapes = {value.name: [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
              for value in inferred.graph.value_info}
    assert shapes["relu1.gradient"] == ["batch", 16, 8, 8]
    assert shapes["conv1.weight.gradient"] == [16, 1, 3, 3]
    assert all(node.name for node in model.graph.node)


def test_gradients_of_convolutions_are_convreg_nodes(model):
    made = {name: node for node in model.graph.node for name in node.output}
    forward = [node for node in model.graph.node if node.op_type == "Conv"]
    assert [node.domain for node in forward] == ["", ""]
    for name in ("conv1.weight.gradient", "conv1.bias.gradient", "conv2.weight.gradient", "relu1.gradient"):
        assert made[name].domain.startswith("convreg.")


def loss_in_float64(images, labels, state):
    """The forward pass, written once more in float64."""
    values = images[:, None] / 16
    for layer, stride in (("conv1", 1), ("conv2", 2)):
        padded = np.pad(values, ((0, 0), (0, 0), (1, 1), (1, 1)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))[:, :, ::stride, ::stride]
        sums = np.einsum("nchwrs,mcrs->nmhw", windows, state[f"{layer}.weight"], optimize=True)
        values = np.maximum(sums + state[f"{layer}.bias"][:, None, None], 0)
    logits = values.reshape(len(values), -1) @ state["dense.weight"] + state["dense.bias"]
    log_sums = np.log(np.exp(logits).sum(axis=1))
    return np.mean(log_sums - logits[np.arange(len(labels)), labels])


@pytest.fixture(scope="module")
def one_step(model, session):
    """One step from a random state; with no momentum and rate 1 the new velocities are the gradients."""
    rng = np.random.default_rng(7)
    images, labels = train.load_digits(rng)[0].take(np.arange(6))
    state = train.initial_state(model, rng)
    for name in state:
        if name.endswith(".bias"):
            state[name] = rng.normal(0, 0.1, state[name].shape).astype(np.float32)
    results = session.run({"images": images, "labels": labels, "learning_rate": 1.0, "momentum": 0.0, **state})
    wide = {name: value.astype(np.float64) for name, value in state.items() if not name.endswith(".velocity")}
    return images, labels, wide, results


def difference_quotient(images, labels, state, direction, step=1e-6):
    """Central difference of the loss along `direction`, a mapping from parameter to array."""
    ahead, behind = ({name: value + sign * step * direction.get(name, 0) for name, value in state.items()}
                     for sign in (1, -1))
    return (loss_in_float64(images, labels, ahead) - loss_in_float64(images, labels, behind)) / (2 * step)


def test_loss_equals_float64(one_step):
    images, labels, state, results = one_step
    assert results["loss"] == pytest.approx(loss_in_float64(images, labels, state), rel=1e-5)


@pytest.mark.parametrize("layer", ["conv1", "conv2", "dense"])
@pytest.mark.parametrize("kind", ["weight", "bias"])
def test_gradients_equal_finite_differences(one_step, layer, kind):
    images, labels, state, results = one_step
    name = f"{layer}.{kind}"
    gradient = results[f"{name}.velocity.next"].astype(np.float64)
    np.testing.assert_array_equal(results[f"{name}.next"], (state[name] - gradient).astype(np.float32))
    along = difference_quotient(images, labels, state, {name: gradient})
    assert np.sum(gradient**2) == pytest.approx(along, rel=1e-4)
    scale = np.abs(gradient).max()
    for flat in np.random.default_rng(1).choice(gradient.size, min(20, gradient.size), replace=False):
        one = np.zeros(gradient.size)
        one[flat] = 1
        expected = difference_quotient(images, labels, state, {name: one.reshape(gradient.shape)})
        assert gradient.flat[flat] == pytest.approx(expected, rel=1e-4, abs=1e-5 * scale)


def test_momentum(model, session):
    rng = np.random.default_rng(3)
    images, labels = train.load_digits(rng)[0].take(np.arange(4))
    state = train.initial_state(model, rng)
    feeds = {"images": images, "labels": labels, "learning_rate": 0.5, **state}
    gradient = session.run({**feeds, "momentum": 0.0})["conv2.weight.velocity.next"]
    velocity = rng.standard_normal(gradient.shape).astype(np.float32)
    results = session.run({**feeds, "momentum": 0.75, "conv2.weight.velocity": velocity})
    expected = np.float32(0.75) * velocity + gradient
    np.testing.assert_array_equal(results["conv2.weight.velocity.next"], expected)
    np.testing.assert_array_equal(results["conv2.weight.next"], state["conv2.weight"] - np.float32(0.5) * expected)


def test_inference_part_agrees_with_the_training_step(model, session):
    rng = np.random.default_rng(5)
    training, _ = train.load_digits(rng)
    data = training.take(np.arange(50))
    state = train.initial_state(model, rng)
    feeds = {"images": data.images, "labels": data.labels, "learning_rate": 0.0, "momentum": 0.0, **state}
    inference = convreg.onnx.Session(train.inference_part(model))
    assert train.accuracy(inference, state, data) == session.run(feeds)["correct"] / 50


def trained(model, session, epochs, images):
    rng = np.random.default_rng(0)
    training, held_back = train.load_digits(rng)
    state = train.initial_state(model, rng)
    steps = list(train.train(session, state, training.take(np.arange(images)), epochs, rng))
    return steps, state, held_back


def test_short_training_lowers_the_loss_and_repeats_itself(model, session):
    steps, state, _ = trained(model, session, 4, 200)
    losses = [step.loss for step in steps]
    assert len(losses) == 4 * 7
    assert np.mean(losses[-7:]) < 0.6 * np.mean(losses[:7])
    again, same, _ = trained(model, session, 4, 200)
    assert again == steps
    assert all(np.array_equal(state[name], same[name]) for name in state)


@pytest.mark.slow
def test_training_recognises_96_percent(model, session):
    _, state, held_back = trained(model, session, 15, 1438)
    inference = convreg.onnx.Session(train.inference_part(model))
    assert len(held_back.labels) == 359
    assert train.accuracy(inference, state, held_back) >= 0.96


def test_held_back_images_are_not_trained_on():
    training, held_back = train.load_digits(np.random.default_rng(0))
    with np.load(FOLDER / "digits.npz") as arrays:
        everything = sorted(image.tobytes() for image in arrays["images"])
    parts = [image.tobytes() for data in (training, held_back) for image in data.images]
    assert sorted(parts) == everything
    assert abs(len(held_back.labels) / len(everything) - 0.2) < 0.001


def test_missing_matplotlib_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(SystemExit, match="matplotlib, which is not installed"):
        train.main(["--epochs", "1"])


def test_picture_and_table(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    train.main(["--epochs", "1", "--picture", str(tmp_path / "digits.png")])
    shown = capsys.readouterr()
    assert (tmp_path / "digits.png").read_bytes().startswith(b"\x89PNG")
    assert "epoch 1 of 1" in shown.err
    assert "held-back accuracy" in shown.out
