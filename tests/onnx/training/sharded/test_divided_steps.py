"""Divided steps in one process: the bits of the step that is not divided, whatever the shards."""

import numpy as np
import onnx.parser
import pytest
from divided_steps import BODIES, batch, bits, step_of
from exported_models import batch_of, classifier, line
from forward_models import FORWARD, build
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper

import convreg.onnx
from convreg.errors import GraphError, OpError

pytest.importorskip("onnxruntime")

HEADER = '<ir_version: 10, opset_import: ["": 20]>'


def trained(step, batches, engine="onnxruntime", **options):
    trainer = convreg.onnx.Trainer(step, engine=engine, threads=1, **options)
    return trainer, [trainer.step(feeds) for feeds in batches]


def assert_same(found, wanted):
    """Equal state, losses and outputs, bit for bit."""
    (trainer, made), (other, expected) = found, wanted
    assert {name: array.tobytes() for name, array in trainer.state.items()} == {
        name: array.tobytes() for name, array in other.state.items()}
    for one, two in zip(made, expected, strict=True):
        assert one.keys() == two.keys()
        assert all(np.array_equal(one[name], two[name]) for name in one)


ROUNDED = {"one_dimension"}
"""Networks with Elu and Softplus: onnxruntime takes the last elements of an array by other instructions."""


@pytest.mark.parametrize("name", [*FORWARD, *BODIES])
def test_the_state_is_that_of_the_step_that_is_not_divided(name):
    step = step_of(name)
    batches = [batch(name, samples) for samples in (7, 7)]
    wanted = trained(step, batches)
    for shards in (3, 8):
        found = trained(step, batches, shards=shards, statistics="whole")
        if name not in ROUNDED:
            assert_same(found, wanted)
        for key, array in wanted[0].state.items():
            np.testing.assert_allclose(found[0].state[key], array, rtol=1e-4, atol=1e-6, err_msg=key)


@pytest.mark.parametrize("dialect", ["aten", "onednn", "ascend", "onnx"])
def test_every_dialect(dialect):
    step = convreg.onnx.training_step(classifier(), dialect=dialect, optimizer="adam")
    batches = [batch_of(7, number) for number in range(3)]
    assert_same(trained(step, batches, shards=3, statistics="whole"), trained(step, batches))


@pytest.mark.parametrize("options", [
    {"optimizer": "sgd", "weight_decay": 0.1}, {"optimizer": "momentum", "nesterov": True},
    {"optimizer": "adamw", "clip_norm": 0.5}, {"loss_scale": 1024.0, "clip_norm": 0.1},
    {"format": "hifloat8", "forward_format": "hifloat8"}, {"format": "float8_e4m3fn"}, {"format": "bfloat16"},
    {"batch_norm": "frozen"},
], ids=lambda options: " ".join(map(str, options.values())))
def test_optimizers_and_formats(options):
    step = convreg.onnx.training_step(classifier(), **options)
    batches = [batch_of(5, number) for number in range(2)]
    assert_same(trained(step, batches, shards=3, statistics="whole"), trained(step, batches))


def test_squared_differences():
    step = convreg.onnx.training_step(line(outputs=3), loss="mse", optimizer="adam")
    rng = np.random.default_rng(0)
    batches = [{"x": rng.normal(size=(6, 2)).astype(np.float32), "target": rng.normal(size=(6, 3)).astype(np.float32)}
               for _ in range(3)]
    for shards in (1, 4, 6):
        assert_same(trained(step, batches, shards=shards), trained(step, batches))


@pytest.mark.parametrize(("scale", "mode"), [(1.1, "half_pixel"), (1.0, "half_pixel"), (1.0, "tf_crop_and_resize")])
def test_a_resize_that_mixes_samples_is_not_divided(scale, mode):
    """Four samples remain four, and the second one contains some of the first."""
    model = onnx.parser.parse_model(f'''{HEADER} f (float[N,2,4,4] x) => (float[N,3] y)
        <float[8] roi = {{0.1, 0, 0, 0, 0.9, 1, 1, 1}}, float[4] scales = {{{scale}, 1, 1, 1}}> {{
            r = Resize<mode="linear", coordinate_transformation_mode="{mode}">(x, roi, scales)
            c = Conv<kernel_shape=[3,3]>(r, w)
            flat = Flatten(c)
            y = MatMul(flat, v)
        }}''')
    drawn = np.random.default_rng(0)
    model.graph.initializer.extend(
        numpy_helper.from_array(drawn.standard_normal(shape).astype(np.float32), name)
        for name, shape in {"w": (2, 2, 3, 3), "v": (8, 3)}.items())
    step = convreg.onnx.training_step(model, optimizer="sgd", learning_rate=0.1)
    batches = [{"x": drawn.standard_normal((4, 2, 4, 4)).astype(np.float32), "target": np.array([0, 1, 2, 0])}]
    # onnxruntime has no kernel for it
    assert_same(trained(step, batches, engine="reference", shards=2, statistics="whole"),
                trained(step, batches, engine="reference"))


def test_a_constant_with_a_row_for_every_sample():
    """A model of a fixed batch may add something to each of its samples, and its channels may be as many."""
    model = onnx.parser.parse_model(f"""{HEADER}
        fixed (float[4,4] x) => (float[4,4] y) {{
            h = MatMul(x, w)
            a = Add(h, places)
            b = Add(a, channels)
            y = Mul(b, scale)
        }}""")
    rng = np.random.default_rng(0)
    for name, shape in (("w", (4, 4)), ("places", (4, 4)), ("channels", (4,)), ("scale", (4, 1))):
        model.graph.initializer.append(onnx.numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name))
    step = convreg.onnx.training_step(model, loss="mse", wrt=["w", "scale"])
    feeds = {name: rng.normal(size=(4, 4)).astype(np.float32) for name in ("x", "target")}
    for shards in (1, 2, 4):
        assert_same(trained(step, [feeds, feeds], shards=shards), trained(step, [feeds, feeds]))


@settings(max_examples=12)
@given(samples=st.lists(st.integers(1, 9), min_size=1, max_size=2), shards=st.integers(1, 12),
       name=st.sampled_from(["places", "axes of the batch", "embedding"]))
def test_drawn_batches_and_shards(samples, shards, name):
    step = STEPS.setdefault(name, step_of(name))
    batches = [batch(name, count, shards) for count in samples if count > 1 or name != "axes of the batch"]
    assert_same(trained(step, batches, shards=shards), trained(step, batches))


STEPS: dict = {}


@pytest.mark.parametrize("ratio", [0.5, 0.2, 0.0])
def test_masks_are_those_of_the_step_that_is_not_divided(ratio):
    model = classifier(dropout=True)
    next(tensor for tensor in model.graph.initializer if tensor.name == "ratio").CopyFrom(
        onnx.numpy_helper.from_array(np.array(ratio, np.float32), "ratio"))
    step = convreg.onnx.training_step(model, seed=5)
    batches = [batch_of(count, number) for number, count in enumerate((6, 6, 5, 6, 1))]
    assert_same(trained(step, batches, shards=4, statistics="whole"), trained(step, batches))


def test_without_a_batch_norm_the_samples_meet_once():
    """Only the loss, the dense layer's gradients and sums run on more than one shard's samples."""
    name = "unet"
    trainer, _ = trained(step_of(name), [batch(name, 8)], shards=4)
    report = trainer.last_step
    assert {stage.stage for stage in report.stages} == {0, 1}
    assert {stage.kind: stage.tasks for stage in report.stages}["shard"] == 4
    assert report.shards == 4
    assert report.seconds > 0
    assert "4 shards" in str(report)


# ---------------------------------------------------------------------------------------------------------------------
# Statistics


@pytest.mark.parametrize("name", ["residual", "group_norm"])
def test_synchronous_statistics_do_not_depend_on_the_shards(name):
    step = step_of(name, learning_rate=0.01)
    batches = [batch(name, samples) for samples in (7, 7, 4)]
    first = trained(step, batches, shards=1)
    for shards in (2, 3, 7):
        assert_same(trained(step, batches, shards=shards), first)
    for one, two in zip(first[1], trained(step, batches)[1], strict=True):
        np.testing.assert_allclose(one["loss"], two["loss"], rtol=1e-4)


def test_synchronous_statistics_in_float64():
    """Rounding alone separates the trees' sums from the reference engine's."""
    step = convreg.onnx.training_step(build("residual", np.float64)[0], loss=None, learning_rate=0.01)
    feeds = batch("residual", 5)
    feeds["x"] = feeds["x"].astype(np.float64)
    states = []
    for options in ({}, {"shards": 3}, {"shards": 2}):
        trainer = convreg.onnx.Trainer(step, engine="reference", threads=1, **options)
        trainer.step(feeds)
        states.append(trainer.state)
    for name, array in states[0].items():
        np.testing.assert_allclose(states[1][name], array, rtol=1e-12, atol=1e-14, err_msg=name)
        assert states[1][name].tobytes() == states[2][name].tobytes()


def test_synchronous_statistics_are_those_of_the_batch():
    step = convreg.onnx.training_step(classifier(), learning_rate=1.0)
    (trainer, made), (other, wanted) = (trained(step, [batch_of(7)], **options) for options in ({"shards": 3}, {}))
    for name, array in other.state.items():
        np.testing.assert_allclose(trainer.state[name], array, rtol=1e-5, atol=1e-6, err_msg=name)
    np.testing.assert_allclose(made[0]["y"], wanted[0]["y"], rtol=1e-5, atol=1e-6)


def test_no_shard_is_gathered_for_synchronous_statistics():
    """Whole operands are the logits and rows of the dense layer, not the images between convolutions."""
    trainer, _ = trained(convreg.onnx.training_step(classifier(width=16)), [batch_of(16)], shards=4)
    largest = max(stage.made for stage in trainer.last_step.stages if stage.kind == "join")
    assert largest <= 4 * (16 * 3 * 9 + 6 * 16 * 9 + 6 + 4 * 16)
    whole = [stage for stage in trainer.last_step.stages if stage.kind == "whole"]
    assert sum(stage.made for stage in whole) < 4096


def test_statistics_of_shards_are_averages_of_steps_with_the_shards():
    step = convreg.onnx.training_step(classifier(), learning_rate=1.0)
    feeds = batch_of(7)
    before = convreg.onnx.Trainer(step).state
    wanted = {name: np.zeros(array.shape) for name, array in before.items()}
    loss, outputs = 0.0, []
    for first, end in ((0, 2), (2, 4), (4, 7)):
        alone, [made] = trained(step, [{name: array[first:end] for name, array in feeds.items()}])
        for name, array in alone.state.items():
            wanted[name] += (array.astype(np.float64) - before[name]) * (end - first) / 7
        loss += float(made["loss"]) * (end - first) / 7
        outputs.append(made["y"])
    trainer, [made] = trained(step, [feeds], shards=3, statistics="per_shard")
    for name, array in trainer.state.items():
        np.testing.assert_allclose(array - before[name], wanted[name], atol=1e-6, err_msg=name)
    assert made["loss"] == pytest.approx(loss, rel=1e-6)
    assert np.array_equal(made["y"], np.concatenate(outputs))


def test_one_shard_with_its_own_statistics_is_the_step_that_is_not_divided():
    step = convreg.onnx.training_step(classifier(dropout=True), optimizer="adam", seed=2)
    batches = [batch_of(5, number) for number in range(2)]
    assert_same(trained(step, batches, shards=1, statistics="per_shard"), trained(step, batches))


def test_a_shard_of_one_sample_keeps_its_batch_in_squeeze():
    """Without statistics of a batch, such shards differ from the whole step in the rounding of averages alone."""
    step = step_of("squeezed")
    batches = [batch("squeezed", 3)]
    trainer, [made] = trained(step, batches, shards=2, statistics="per_shard")
    whole, [due] = trained(step, batches)
    assert made["logits"].shape == (3, 5)
    np.testing.assert_allclose(made["logits"], due["logits"], rtol=1e-6)
    for name, array in trainer.state.items():
        np.testing.assert_allclose(array, whole.state[name], atol=1e-6, err_msg=name)


# ---------------------------------------------------------------------------------------------------------------------
# Everything else that a trainer does


def test_checkpoints_and_the_exported_model(tmp_path):
    step = convreg.onnx.training_step(classifier(), optimizer="adam")
    whole, _ = trained(step, [batch_of(6, number) for number in range(4)], shards=3)
    part, _ = trained(step, [batch_of(6, number) for number in range(2)], shards=3)
    part.save(tmp_path / "two")
    resumed = convreg.onnx.Trainer(step, engine="onnxruntime", threads=1, shards=3)
    resumed.load(tmp_path / "two")
    for number in (2, 3):
        resumed.step(batch_of(6, number))
    assert bits(resumed) == bits(whole)
    x = batch_of(3)["x"]
    assert np.array_equal(*(convreg.onnx.run(trainer.export(), {"x": x})["y"] for trainer in (whole, resumed)))


def test_training_over_epochs():
    rng = np.random.default_rng(0)
    data = {"x": rng.normal(size=(20, 3, 6, 6)).astype(np.float32), "target": rng.integers(0, 5, 20)}
    histories = [convreg.onnx.fit(convreg.onnx.Trainer(
        convreg.onnx.training_step(classifier()), engine="onnxruntime", threads=1, **options), data, epochs=2, batch=8)
        for options in ({}, {"shards": 3, "statistics": "whole"})]
    assert histories[0].epochs == histories[1].epochs


def test_the_reference_engine():
    step = convreg.onnx.training_step(classifier(), optimizer="adam")
    first, second = (convreg.onnx.Trainer(step, engine="reference", shards=shards) for shards in (1, 3))
    for trainer in (first, second):
        assert trainer.engine == "reference"
        trainer.step(batch_of(5))
    assert bits(first) == bits(second)


@pytest.mark.parametrize("options", [
    {"shards": 0}, {"shards": True}, {"shards": 2.5}, {"shards": 2, "statistics": "local"},
    {"statistics": "synchronous"}, {"shards": 2, "statistics": 3},
], ids=str)
def test_wrong_arguments(options):
    with pytest.raises(OpError, match="Trainer"):
        convreg.onnx.Trainer(convreg.onnx.training_step(classifier()), **options)


def test_an_error_names_the_samples_and_leaves_the_state():
    model = onnx.parser.parse_model(f"""{HEADER}
        pick (float[N,4] x, int64[N,1] place) => (float loss) <float[4,4] w = {{{','.join(map(str, range(16)))}}}> {{
            y = MatMul(x, w)
            z = GatherElements<axis=1>(y, place)
            loss = ReduceSum<keepdims=0>(z)
        }}""")
    trainer = convreg.onnx.Trainer(convreg.onnx.training_step(model, loss=None), shards=3, engine="onnxruntime")
    feeds = {"x": np.ones((6, 4), np.float32), "place": np.zeros((6, 1), np.int64)}
    trainer.step(feeds)
    before = bits(trainer)
    with pytest.raises(GraphError, match="samples 4 to 5 of the batch"):
        trainer.step({**feeds, "place": np.array([[0]] * 5 + [[9]])})
    with pytest.raises(GraphError, match="the loss is inf"):
        trainer.step({**feeds, "x": np.full((6, 4), 3e38, np.float32)})
    assert bits(trainer) == before
    assert trainer.steps == 1


def test_numbers_drawn_from_the_batch_are_refused():
    model = onnx.parser.parse_model(f"""{HEADER}
        coin (float[N,4] x) => (float[N,4] y) <float[4,4] w = {{{','.join(map(str, range(16)))}}}> {{
            h = MatMul(x, w)
            p = Sigmoid(h)
            c = Bernoulli(p)
            y = Mul(c, h)
        }}""")
    trainer = convreg.onnx.Trainer(convreg.onnx.training_step(model, loss="mse"), shards=2)
    with pytest.raises(GraphError, match=r"Bernoulli.* draws random numbers"):
        trainer.step({"x": np.ones((4, 4), np.float32), "target": np.ones((4, 4), np.float32)})
