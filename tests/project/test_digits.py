"""The demo: its graph is what its script writes, its gradients are right in every format, and training it works."""

import importlib.util
import sys

import numpy as np
import onnx
import pytest
from graphs import checked_shapes
from places import ROOT

import convreg.onnx
from convreg.formats import FORMATS
from convreg.numerics import error_of

FOLDER = ROOT / "examples" / "digits"


def script(name):
    spec = importlib.util.spec_from_file_location(f"digits_{name}", FOLDER / f"{name}.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


train, building = script("train"), script("build_training_step")
NARROW = ("bfloat16", "float8_e4m3fn", "hifloat8")


@pytest.fixture(scope="module")
def model():
    return onnx.load(train.MODEL)


@pytest.fixture(scope="module")
def session(model):
    return convreg.onnx.Session(model)


def test_script_reproduces_the_saved_graph(model):
    assert building.build() == model


def test_graph_passes_every_check(model):
    shapes = checked_shapes(model)
    assert shapes["conv1.weight_grad"] == [16, 1, 3, 3]
    assert shapes["dense.weight_grad"] == [512, 10]
    assert all(node.name for node in model.graph.node)


def test_step_is_made_from_the_forward_graph(model):
    """The forward graph has no gradient; those of the convolutions are nodes of oneDNN's operators."""
    assert not any(node.domain for node in building.forward().graph.node)
    assert [node.domain for node in model.graph.node if node.op_type == "Conv"] == ["", ""]
    made = sorted(node.op_type for node in model.graph.node if node.domain)
    assert made == ["ConvolutionBackwardData", *["ConvolutionBackwardWeights"] * 2]
    assert convreg.onnx.StepRecord.of(model).parameters == list(building.PARAMETERS)


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
    """One step from a random state; after velocities of zero and with rate 1 the new ones are the gradients."""
    rng = np.random.default_rng(7)
    images, labels = train.load_digits(rng)[0].take(np.arange(6))
    state = train.initial_state(model, rng)
    for name in state:
        if name.endswith(".bias"):
            state[name] = rng.normal(0, 0.1, state[name].shape).astype(np.float32)
    results = session.run({"images": images, "target": labels, "learning_rate": 1.0, **state})
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
    feeds = {"images": images, "target": labels, "learning_rate": 0.5, **state}
    gradient = session.run(feeds)["conv2.weight.velocity.next"]
    velocity = rng.standard_normal(gradient.shape).astype(np.float32)
    results = session.run({**feeds, "conv2.weight.velocity": velocity})
    expected = np.float32(building.MOMENTUM) * velocity + gradient
    np.testing.assert_array_equal(results["conv2.weight.velocity.next"], expected)
    np.testing.assert_array_equal(results["conv2.weight.next"], state["conv2.weight"] - np.float32(0.5) * expected)


def test_inference_part_agrees_with_the_training_step(model, session):
    rng = np.random.default_rng(5)
    training, _ = train.load_digits(rng)
    data = training.take(np.arange(50))
    state = train.initial_state(model, rng)
    feeds = {"images": data.images, "target": data.labels, "learning_rate": 0.0, **state}
    inference = convreg.onnx.Session(train.inference_part(model))
    logits = session.run(feeds)["logits"]
    made = inference.run({"images": data.images, **{name: state[name] for name in building.PARAMETERS}})["logits"]
    np.testing.assert_allclose(made, logits, rtol=1e-4, atol=1e-5)  # onnxruntime's convolutions and ours
    assert train.accuracy(inference, state, data) == np.mean(logits.argmax(axis=1) == data.labels)


def trained(model, session, epochs, images):
    rng = np.random.default_rng(0)
    training, held_back = train.load_digits(rng)
    state = train.initial_state(model, rng)
    losses = list(train.train(session, state, training.take(np.arange(images)), epochs, rng))
    return losses, state, held_back


def test_short_training_lowers_the_loss_and_repeats_itself(model, session):
    losses, state, _ = trained(model, session, 4, 200)
    assert len(losses) == 4 * 7
    assert np.mean(losses[-7:]) < 0.6 * np.mean(losses[:7])
    again, same, _ = trained(model, session, 4, 200)
    assert again == losses
    assert all(np.array_equal(state[name], same[name]) for name in state)


@pytest.mark.slow
def test_training_recognises_96_percent(model, session):
    _, state, held_back = trained(model, session, 15, 1438)
    inference = convreg.onnx.Session(train.inference_part(model))
    assert len(held_back.labels) == 359
    assert train.accuracy(inference, state, held_back) >= 0.96


# ---------------------------------------------------------------------------------------------------------------------
# Narrow formats


def prepared(format, *, forward_in_format=False, images=32):
    """The step in a format, a state with biases, and a batch."""
    step = building.build(format, forward_in_format=forward_in_format)
    rng = np.random.default_rng(9)
    batch = train.load_digits(rng)[0].take(np.arange(images))
    state = train.initial_state(step, rng)
    for name in state:
        if name.endswith(".bias"):
            state[name] = rng.normal(0, 0.1, state[name].shape).astype(np.float32)
    return step, state, batch


def intermediate(step, names, state, batch, loss_scale):
    """Values inside the step."""
    whole = onnx.ModelProto()
    whole.CopyFrom(convreg.onnx.infer_shapes(step))
    known = {value.name: value for value in whole.graph.value_info}
    whole.graph.output.extend(known[name] for name in names)
    feeds = {"images": batch.images, "target": batch.labels, "learning_rate": 0.0, "loss_scale": loss_scale, **state}
    results = convreg.onnx.run(whole, feeds, engine="reference")
    return [results[name] for name in names]


def rounded(array, format):
    return convreg.dequantize(convreg.quantize(array, format, saturate=True))


@pytest.mark.parametrize("forward_in_format", [False, True])
@pytest.mark.parametrize("format", [*NARROW, "float16", "float8_e5m2"])
def test_narrow_graphs_pass_every_check(format, forward_in_format):
    step = building.build(format, forward_in_format=forward_in_format)
    convreg.onnx.check(step)
    makers = {name: node for node in step.graph.node for name in node.output}
    gradients = [node for node in step.graph.node if node.op_type == "ConvolutionBackward"]
    assert len(gradients) == 2
    for node in gradients:
        assert [makers[name].op_type for name in node.input] == ["Dequantize"] * 3
    forward = [node.input[0] for node in step.graph.node if node.op_type == "Conv"]
    assert [makers[name].op_type == "Dequantize" for name in forward] == [forward_in_format] * 2


@pytest.mark.parametrize("loss_scale", [1.0, 64.0])
@pytest.mark.parametrize("format", NARROW)
def test_narrow_gradients_of_a_convolution_from_rounded_operands(format, loss_scale):
    """Bit for bit what convreg's own operator makes of the rounded operands; unscaled afterwards."""
    step, state, batch = prepared(format)
    [node] = [node for node in step.graph.node if node.op_type == "ConvolutionBackward" and node.output[0]]
    incoming, data, weight, *found = intermediate(step, [*node.input, *node.output], state, batch,
                                                  np.float32(loss_scale))
    assert np.array_equal(weight, rounded(state["conv2.weight"], format))
    assert np.array_equal(incoming, rounded(incoming, format))
    wanted = convreg.ascend.convolution_backward(incoming, data, weight, stride=[2, 2], padding=[1, 1],
                                                 dilation=[1, 1])
    assert all(np.array_equal(array, expected) for array, expected in zip(found, wanted, strict=True))
    session = convreg.onnx.Session(step, engine="reference")
    results = train.run_step(session, state, batch, 0.0, loss_scale)
    assert np.array_equal(results["conv2.weight.velocity.next"], wanted[1] / np.float32(loss_scale))


@pytest.mark.parametrize("format", NARROW)
def test_narrow_gradients_of_the_dense_layer_and_the_next_state(format):
    step, state, batch = prepared(format)
    scale = np.float32(16)
    [features] = intermediate(step, ["features"], state, batch, scale)
    results = train.run_step(convreg.onnx.Session(step, engine="reference"), state, batch, 0.5, 16.0)
    logits = results["logits"]
    softmax = np.exp(logits - logits.max(1, keepdims=True))
    errors = (softmax / softmax.sum(1, keepdims=True) - np.eye(10)[batch.labels]) / len(batch.labels) * scale
    wanted = rounded(features, format).astype(np.float64).T @ rounded(errors.astype(np.float32), format) / scale
    found = results["dense.weight.velocity.next"]
    assert error_of(found, wanted).snr_db > 40  # a few of the errors are rounded to a neighbour
    np.testing.assert_array_equal(results["dense.weight.next"], state["dense.weight"] - np.float32(0.5) * found)


def test_bfloat16_needs_no_loss_scale():
    """A power of two changes no bit of a gradient that does not leave the range."""
    step, state, batch = prepared("bfloat16")
    session = convreg.onnx.Session(step)
    found = [train.run_step(session, state, batch, 0.1, scale) for scale in (1.0, 2.0**20)]
    assert all(np.array_equal(found[0][name], found[1][name]) for name in found[0])


@pytest.mark.parametrize(("format", "forward_in_format", "low", "high"), [
    ("bfloat16", False, 45, 60), ("float8_e4m3fn", False, 15, 35), ("hifloat8", False, 15, 35),
    ("bfloat16", True, 20, 60), ("hifloat8", True, 5, 35),  # masks of ReLU flip
])
def test_loss_scales_and_errors(model, session, format, forward_in_format, low, high):
    step, state, batch = prepared(format, forward_in_format=forward_in_format)
    narrow = convreg.onnx.Session(step)
    scale = train.best_loss_scale(narrow, session, state, batch)
    best = train.ratios(narrow, session, state, batch, scale)
    assert low < min(best) <= max(best) < high
    assert min(best) >= min(train.ratios(narrow, session, state, batch, 1.0))
    if format == "float8_e4m3fn":
        assert scale > 1
        assert min(best) > 5 + min(train.ratios(narrow, session, state, batch, 1.0))


@pytest.mark.parametrize("format", NARROW)
def test_short_training_in_a_narrow_format_lowers_the_loss(format):
    rng = np.random.default_rng(0)
    step = building.build(format)
    training, _ = train.load_digits(rng)
    state = train.initial_state(step, rng)
    data = training.take(np.arange(200))
    losses = list(train.train(convreg.onnx.Session(step), state, data, 4, rng, 16.0))
    assert np.mean(losses[-7:]) < 0.6 * np.mean(losses[:7])


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
    assert "float32: epoch 1 of 1" in shown.err
    assert "held-back accuracy" in shown.out
    rows = [line.split() for line in shown.out.splitlines() if line.startswith(tuple(FORMATS))]
    assert [row[0] for row in rows] == ["float32", "bfloat16", "float8_e4m3fn", "float8_e4m3fn", "hifloat8", "hifloat8"]
    assert [row[1] for row in rows[:3]] == ["-", "1", "1"]
    assert all(float(row[1]) > 1 for row in (rows[3], rows[5]))
    assert rows[0][4:7] == ["-"] * 3
    for unscaled, scaled in (rows[2:4], rows[4:6]):
        assert sum(map(float, scaled[4:7])) > sum(map(float, unscaled[4:7]))


def test_one_format_with_the_forward_pass_in_it(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    train.main(["--epochs", "1", "--picture", str(tmp_path / "digits.png"), "--formats", "hifloat8",
                "--forward-in-format", "--loss-scale", "32"])
    shown = capsys.readouterr()
    assert "forward pass in the format" in shown.out
    assert "hifloat8, loss scale 32: epoch 1 of 1" in shown.err
    assert (tmp_path / "digits.png").stat().st_size > 10_000


def test_unknown_formats_are_refused(capsys):
    with pytest.raises(SystemExit):
        train.main(["--formats", "float32,float8"])
    assert "no gradients in float8; allowed: " in capsys.readouterr().err


@pytest.mark.parametrize(("arguments", "message"), [
    (["--epochs", "0"], "--epochs takes numbers from 1 on"), (["--seed", "-1"], "--seed from 0 on"),
    (["--loss-scale", "-3"], "--loss-scale takes finite numbers"), (["--loss-scale", "nan"], "--loss-scale takes")])
def test_numbers_that_train_nothing_are_refused(arguments, message, capsys):
    with pytest.raises(SystemExit):
        train.main(arguments)
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(("picture", "message"), [
    ("missing/digits.png", "--picture='.*missing/digits.png' is refused: No such file"),
    ("digits.foo", "--picture='.*digits.foo' is refused: it has the suffix '.foo'")])
def test_a_picture_that_cannot_be_written_is_refused_before_the_training(picture, message, tmp_path, capsys):
    with pytest.raises(SystemExit, match=message):
        train.main(["--epochs", "1", "--picture", str(tmp_path / picture)])
    assert "epoch" not in capsys.readouterr().err


@pytest.mark.slow
def test_training_in_8_bits_recognises_96_percent(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    train.main(["--picture", str(tmp_path / "digits.png")])
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith(tuple(FORMATS))]
    assert len(rows) == 6
    assert all(float(row[2].rstrip("%")) >= 96 for row in rows)
