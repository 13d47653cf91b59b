"""Trainer: the state from step to step, checkpoints, the exported model, and what stops a training."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from exported_models import batch_of, built, classifier, line
from onnx import helper, numpy_helper

import convreg.onnx
from convreg.errors import GraphError, OpError
from convreg.onnx.training import safetensors

ENGINES = ["reference", pytest.param("onnxruntime", marks=pytest.mark.skipif(
    not __import__("importlib.util").util.find_spec("onnxruntime"), reason="needs onnxruntime"))]


@pytest.fixture(scope="module")
def step():
    return convreg.onnx.training_step(classifier(), optimizer="adam", learning_rate=0.01)


def trained(step, engine, steps, first=0):
    trainer = convreg.onnx.Trainer(step, engine=engine, threads=1)
    for number in range(first, first + steps):
        trainer.step(batch_of(6, number))
    return trainer


@pytest.mark.parametrize("engine", ENGINES)
def test_steps_equal_runs_of_the_model(step, engine):
    """The carried state changes no bit: the same as feeding every output back by hand."""
    trainer, session = convreg.onnx.Trainer(step, engine=engine), convreg.onnx.Session(step, engine=engine)
    assert trainer.engine == engine
    state: dict = {}
    for number, count in enumerate((6, 6, 3, 6)):  # batches of other sizes too
        feeds = batch_of(count, number)
        wanted = session.run({**feeds, **state})
        found = trainer.step(feeds)
        assert found["loss"] == wanted["loss"]
        assert np.array_equal(found["y"], wanted["y"])
        state = {name: wanted[f"{name}.next"] for name in trainer.record.state}
        assert {name: array.tobytes() for name, array in trainer.state.items()} == {
            name: array.tobytes() for name, array in state.items()}
    assert trainer.steps == 4
    assert trainer.state["step"] == 4


def test_results_are_the_callers_own(step):
    for engine in ("reference", None):
        trainer = convreg.onnx.Trainer(step, engine=engine)
        output = trainer.step(batch_of(6))["y"]
        before, kept = output.copy(), trainer.parameters
        kept["fc.weight"][...] = 7
        trainer.step(batch_of(6, 1))
        assert np.array_equal(output, before)
        assert not np.array_equal(trainer.parameters["fc.weight"], kept["fc.weight"])


@pytest.mark.parametrize("engine", ENGINES)
def test_a_resumed_training_has_the_same_bits(step, engine, tmp_path):
    whole = trained(step, engine, 6)
    trained(step, engine, 4).save(tmp_path / "four.safetensors", {"note": "é"})
    resumed = convreg.onnx.Trainer(step, engine=engine, threads=1)
    resumed.step(batch_of(6, 99))
    assert resumed.load(tmp_path / "four.safetensors") == {"note": "é"}
    assert resumed.steps == 4
    for number in (4, 5):
        resumed.step(batch_of(6, number))
    whole.save(tmp_path / "a")
    resumed.save(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_checkpoints_fit_other_dialects_and_engines(step, tmp_path):
    trained(step, "reference", 2).save(tmp_path / "c")
    other = convreg.onnx.training_step(classifier(), optimizer="adam", dialect="onednn", learning_rate=1.0)
    trainer = convreg.onnx.Trainer(other, engine="reference")
    trainer.load(tmp_path / "c")
    assert trainer.state["step"] == 2


def test_checkpoints_are_read_by_others(step, tmp_path):
    library = pytest.importorskip("safetensors.numpy")
    trainer = trained(step, "reference", 1)
    trainer.save(tmp_path / "c")
    found = library.load_file(tmp_path / "c")
    assert found.keys() == trainer.state.keys()
    assert all(np.array_equal(found[name], array) for name, array in trainer.state.items())
    library.save_file(trainer.state, tmp_path / "d", {"format": "pt"})
    arrays, metadata = safetensors.read(tmp_path / "d")
    assert metadata == {"format": "pt"}
    assert all(np.array_equal(arrays[name], array) and arrays[name].shape == array.shape
               for name, array in trainer.state.items())


@pytest.mark.parametrize(("other", "arguments", "said"), [
    (classifier(width=5), {"optimizer": "adam"}, "'conv1.weight' is float32 of shape"),
    (classifier(), {"optimizer": "momentum"}, "another model or optimizer"),
    (line(), {"loss": "mse"}, "another model or optimizer: it lacks"),
    (classifier(momentum=0.5), {"optimizer": "adam"}, "the forward graph is another one"),
])
def test_a_checkpoint_of_another_model_is_refused(step, tmp_path, other, arguments, said):
    convreg.onnx.Trainer(convreg.onnx.training_step(other, **arguments), engine="reference").save(tmp_path / "c")
    trainer = trained(step, "reference", 1)
    before = trainer.state
    with pytest.raises(GraphError) as caught:
        trainer.load(tmp_path / "c")
    assert said in str(caught.value)
    assert trainer.steps == 1
    assert all(np.array_equal(before[name], array) for name, array in trainer.state.items())


def test_an_adamw_checkpoint_does_not_continue_adam(step, tmp_path):
    trained(convreg.onnx.training_step(classifier(), optimizer="adamw"), "reference", 1).save(tmp_path / "c")
    with pytest.raises(GraphError, match="a checkpoint of optimizer 'adamw'; this step has 'adam'"):
        convreg.onnx.Trainer(step, engine="reference").load(tmp_path / "c")


@pytest.mark.parametrize("options", [{}, {"shards": 2}, {"shards": 2, "statistics": "per_shard"}], ids=str)
def test_a_batch_without_samples_is_refused(step, options):
    trainer = convreg.onnx.Trainer(step, **options)
    with pytest.raises(GraphError, match=r"has the shape \[0\]; allowed: a batch of at least one sample"):
        trainer.step(batch_of(0))
    assert trainer.steps == 0


@pytest.mark.parametrize("engine", ENGINES)
def test_a_loss_that_is_not_finite_stops(step, engine, tmp_path):
    trainer = trained(step, engine, 2)
    trainer.save(tmp_path / "c")
    before = trainer.state
    with pytest.raises(GraphError, match=r"step 3: the loss is nan; .* after step 2"):
        trainer.step({**batch_of(6), "x": np.full((6, 3, 6, 6), np.nan, np.float32)})
    assert all(np.array_equal(before[name], array) for name, array in trainer.state.items())
    trainer.step(batch_of(6, 3))
    trainer.step({**batch_of(6), "learning_rate": np.float32(3e38)})  # the loss is finite, the parameters are not
    with pytest.raises(GraphError, match="not finite; nothing is written"):
        trainer.save(tmp_path / "c")
    assert trainer.load(tmp_path / "c") == {}
    assert trainer.steps == 2


@pytest.mark.parametrize(("change", "said"), [
    ({"learning_rate": np.nan}, "learning_rate=nan"), ({"learning_rate": np.inf}, "learning_rate=inf"),
    ({"learning_rate": -0.5}, "learning_rate=-0.5 is refused; allowed: a finite number, 0 or above"),
    ({"loss_scale": 0.0}, "loss_scale=0.0 is refused; allowed: a finite number above 0"),
    ({"loss_scale": -1.0}, "loss_scale=-1.0"), ({"loss_scale": np.float32(np.nan)}, "loss_scale=nan"),
    ({"loss_scale": np.inf}, "loss_scale=inf"),
])
def test_scalars_that_would_destroy_the_state(change, said):
    trainer = convreg.onnx.Trainer(convreg.onnx.training_step(line(), loss="mse", loss_scale=2.0), engine="reference")
    feeds = {"x": np.ones((3, 2), np.float32), "target": np.ones((3, 1), np.float32)}
    with pytest.raises(GraphError) as caught:
        trainer.step({**feeds, **change})
    assert said in str(caught.value)
    assert trainer.steps == 0
    assert trainer.parameters["w"].tolist() == [[0], [1]]
    trainer.step({**feeds, "learning_rate": 0.0})
    assert trainer.parameters["w"].tolist() == [[0], [1]]


@pytest.mark.parametrize("arguments", [{}, {"shards": 2}])
@pytest.mark.parametrize(("extra", "own"), [((), "forward_loss"), (("forward_loss",), "forward_loss_2")])
def test_an_output_of_the_forward_model_named_loss(arguments, extra, own):
    """The loss of the training is "loss"; the model's own output of that name stays beside it."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"]), *(helper.make_node("Identity", ["y"], [name])
                                                              for name in ("loss", *extra))]
    model = built(nodes, {"x": ["N", 2]}, {name: ["N", 1] for name in ("y", "loss", *extra)},
                  {"w": np.ones((2, 1), np.float32)})
    step = convreg.onnx.training_step(model, loss="mse", learning_rate=0.0)
    feeds = {"x": np.ones((4, 2), np.float32), "target": np.zeros((4, 1), np.float32)}
    trainer = convreg.onnx.Trainer(step, engine="reference", **arguments)
    found = trainer.step(feeds)
    assert list(found) == ["loss", "y", *extra, own]
    assert found["loss"] == 4
    assert (found[own] == 2).all()
    history = convreg.onnx.fit(convreg.onnx.Trainer(step, engine="reference", **arguments), feeds, epochs=2)
    assert history.epochs == [4, 4]


def test_a_loss_of_the_model_beside_an_output_named_loss():
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("ReduceMean", ["m"], ["cost"], keepdims=0),
             helper.make_node("Neg", ["cost"], ["loss"])]
    model = built(nodes, {"x": ["N", 2]}, {"cost": [], "loss": []}, {"w": np.ones((2, 1), np.float32)})
    trainer = convreg.onnx.Trainer(convreg.onnx.training_step(model, loss=None, output="cost"), engine="reference")
    assert trainer.step({"x": [[1.0, 2.0]]}) == {"loss": 3, "forward_loss": -3}


@pytest.mark.parametrize(("change", "said"), [
    ({"shuffle": "x"}, "shuffle='x' is refused; allowed: True or False"), ({"shuffle": 1}, "shuffle=1"),
    ({"resume": "no", "checkpoint": "c"}, "resume='no' is refused; allowed: True or False"),
    ({"progress": 3}, "progress=3 is refused; allowed: a callable, or None"),
    ({"checkpoint": []}, "checkpoint=[] is refused: the path [] is a list"),
    ({"checkpoint": ""}, "checkpoint='' is refused: the path '' is empty"),
])
def test_arguments_of_fit(change, said):
    trainer = convreg.onnx.Trainer(convreg.onnx.training_step(line(), loss="mse"), engine="reference")
    with pytest.raises(GraphError) as caught:
        convreg.onnx.fit(trainer, {"x": np.ones((3, 2), np.float32), "target": np.ones((3, 1), np.float32)}, epochs=1,
                         **change)
    assert said in str(caught.value)
    assert trainer.steps == 0
    with pytest.raises(GraphError, match=r"trainer=None is refused; allowed: a convreg\.onnx\.Trainer"):
        convreg.onnx.fit(None, {}, epochs=1)


def test_fit_refuses_masked_data():
    trainer = convreg.onnx.Trainer(convreg.onnx.training_step(line(), loss="mse"), engine="reference")
    data = {"x": np.ma.ones((3, 2), np.float32), "target": np.ones((3, 1), np.float32)}
    with pytest.raises(GraphError, match=r"'x' as MaskedArray .its mask would be dropped"):
        convreg.onnx.fit(trainer, data, epochs=1)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("change", "said"), [
    ({"target": np.array([0, 1, 2, 3, 4, 5])}, "the target 'target' has the label 5; the output has 5 classes"),
    ({"target": np.array([0, 1, 2, 3, 4, -1])}, "label -1"), ({"target": np.zeros(5, np.int64)}, "not of shape [5]"),
    ({"target": np.zeros(6)}, "not float64"), ({"target": None}, "target"), ({"x": np.zeros((6, 3, 6, 6))}, "float64"),
    ({"x": np.zeros((6, 2, 6, 6), np.float32)}, "shape [6, 2, 6, 6]"), ({"y": 1}, "unknown input 'y'"),
    ({"conv1.weight": 1}, "unknown input 'conv1.weight'"), ({"learning_rate": "fast"}, "learning_rate"),
])
def test_inputs_that_do_not_fit(step, engine, change, said):
    trainer = convreg.onnx.Trainer(step, engine=engine)
    with pytest.raises(GraphError) as caught:
        trainer.step({**batch_of(6), **change})
    assert said in str(caught.value)
    assert trainer.steps == 0
    for missing in ("x", "target"):
        with pytest.raises(GraphError, match=f"missing input '{missing}'"):
            trainer.step({name: array for name, array in batch_of(6).items() if name != missing})
    with pytest.raises(GraphError, match="a mapping"):
        trainer.step([1])


def test_labels_of_any_integer_type(step):
    losses = {trained_loss(step, dtype) for dtype in (np.int64, np.int32, np.uint8, list)}
    assert len(losses) == 1


def trained_loss(step, dtype):
    feeds = batch_of(6)
    feeds["target"] = feeds["target"].tolist() if dtype is list else feeds["target"].astype(dtype)
    return convreg.onnx.Trainer(step, engine="reference").step(feeds)["loss"]


def test_targets_that_would_broadcast_are_refused():
    model = line()
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].Clear()
    trainer = convreg.onnx.Trainer(convreg.onnx.training_step(model, loss="mse"), engine="reference")
    with pytest.raises(GraphError, match=r"the target 'target' has the shape \[1, 1\]; the output has \[3, 1\]"):
        trainer.step({"x": np.ones((3, 2), np.float32), "target": np.ones((1, 1), np.float32)})
    assert trainer.steps == 0


def test_exported_models_infer():
    """Running statistics, Dropout passes its input, stochastic depth keeps everything."""
    weights = {"w": np.eye(3, dtype=np.float32), "scale": np.ones(3, np.float32), "shift": np.zeros(3, np.float32),
               "mean": np.zeros(3, np.float32), "var": np.ones(3, np.float32), "ratio": np.float32(0.5),
               "on": np.array(True), "keep": np.float32(0.75)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("BatchNormalization", ["m", "scale", "shift", "mean", "var"], ["b", "b1", "b2"],
                         training_mode=1),
        helper.make_node("Dropout", ["b", "ratio", "on"], ["d", "mask"]),
        helper.make_node("RandomUniformLike", ["d"], ["u"]), helper.make_node("Less", ["u", "keep"], ["hit"]),
        helper.make_node("Cast", ["hit"], ["noise"], to=1), helper.make_node("Div", ["noise", "keep"], ["scaled"]),
        helper.make_node("Mul", ["d", "scaled"], ["y"]),
    ]
    model = built(nodes, {"x": ["N", 3]}, {"y": ["N", 3]}, weights)
    trainer = convreg.onnx.Trainer(convreg.onnx.training_step(model, loss="mse"), engine="reference")
    rng = np.random.default_rng(0)
    x = rng.standard_normal((8, 3)).astype(np.float32)
    for _ in range(3):
        trainer.step({"x": x, "target": x})
    exported = trainer.export()
    onnx.checker.check_model(exported, full_check=True)
    assert [value.name for value in exported.graph.input] == ["x"]
    assert [value.name for value in exported.graph.output] == ["y"]
    assert {node.op_type for node in exported.graph.node}.isdisjoint({"RandomUniformLike", "Less"})
    state = trainer.state
    normal = (x @ state["w"] - state["mean"]) / np.sqrt(state["var"] + 1e-5)
    wanted = normal * state["scale"] + state["shift"]
    for _ in range(2):
        np.testing.assert_allclose(convreg.onnx.run(exported, {"x": x})["y"], wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("arguments", [{"dialect": "onnx"}, {"format": "hifloat8", "forward_format": "hifloat8"}])
def test_exported_models_are_the_forward_ones(arguments):
    """Of standard nodes alone, whatever dialect and format the step has; only the weights changed."""
    trainer = trained(convreg.onnx.training_step(classifier(), learning_rate=0.1, **arguments), "reference", 1)
    exported = trainer.export()
    assert [node.op_type for node in exported.graph.node] == [
        "Conv", "BatchNormalization", "Relu", "Conv", "GlobalAveragePool", "Flatten", "Gemm"]
    held = {tensor.name: numpy_helper.to_array(tensor) for tensor in exported.graph.initializer}
    state = trainer.state
    assert held.keys() == state.keys()
    assert all(np.array_equal(held[name], state[name]) for name in held)


@pytest.mark.parametrize("defaults", [True, False])
def test_exported_models_keep_the_metadata_of_the_forward_model(defaults):
    model = classifier()
    model.metadata_props.add(key="license", value="MIT")
    model.graph.metadata_props.add(key="task", value="digits")
    for tensor in model.graph.initializer:
        tensor.doc_string = f"about {tensor.name}"
        tensor.metadata_props.add(key="of", value=tensor.name)
    trainer = trained(convreg.onnx.training_step(model, learning_rate=0.1, defaults=defaults), "reference", 1)
    exported = trainer.export()
    assert exported.metadata_props == model.metadata_props
    assert exported.graph.metadata_props == model.graph.metadata_props
    assert {tensor.name: (tensor.doc_string, [(entry.key, entry.value) for entry in tensor.metadata_props])
            for tensor in exported.graph.initializer} == {
        tensor.name: (f"about {tensor.name}", [("of", tensor.name)]) for tensor in model.graph.initializer}


def test_frozen_weights_are_exported_too():
    trainer = trained(convreg.onnx.training_step(classifier(), wrt=["fc.bias"], batch_norm="frozen"), "reference", 1)
    held = {tensor.name: numpy_helper.to_array(tensor) for tensor in trainer.export().graph.initializer}
    for tensor in classifier().graph.initializer:
        assert np.array_equal(held[tensor.name], numpy_helper.to_array(tensor)) == (tensor.name != "fc.bias")


def test_models_that_are_no_steps(step):
    with pytest.raises(GraphError, match=r"no metadata 'convreg.step'"):
        convreg.onnx.Trainer(classifier())
    for key, value, said in (("convreg.step", "[]", "another version"), ("convreg.step", "{", "not JSON"),
                             ("convreg.forward", "!!", "damaged"), ("convreg.forward", "AAAA", "damaged")):
        damaged = onnx.ModelProto()
        damaged.CopyFrom(step)
        for entry in damaged.metadata_props:
            if entry.key == key:
                entry.value = value
        with pytest.raises(GraphError, match=said):
            convreg.onnx.Trainer(damaged, engine="reference").export()


@pytest.mark.parametrize(("change", "said"), [
    ({"loss": "y2"}, "the output 'y2'"), ({"parameters": ["q"]}, "the input 'q'"), ({"state": {}}, "what 'conv1"),
    ({"data": "x"}, "data='x'"), ({"target": 3}, "target=3"), ({"state": {"conv1.weight": 2}}, "state="),
])
def test_metadata_that_contradicts_the_graph(step, change, said):
    damaged = onnx.ModelProto()
    damaged.CopyFrom(step)
    for entry in damaged.metadata_props:
        if entry.key == "convreg.step":
            entry.value = json.dumps({**json.loads(entry.value), **change})
    with pytest.raises(GraphError) as caught:
        convreg.onnx.Trainer(damaged, engine="reference")
    assert said in str(caught.value)


def test_engines_and_threads_are_checked(step):
    with pytest.raises(GraphError, match="engine='torch'"):
        convreg.onnx.Trainer(step, engine="torch")
    for threads in (0, -1, 1.5, True, "2"):
        with pytest.raises(OpError, match="threads"):
            convreg.onnx.Trainer(step, threads=threads)
