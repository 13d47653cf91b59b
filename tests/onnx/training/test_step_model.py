"""Step models: names, metadata, the same step on every engine and in every dialect, refusals."""

from __future__ import annotations

import json
import subprocess
import sys

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import pytest
from exported_models import batch_of, built, classifier, line
from onnx import helper, numpy_helper

import convreg.onnx
from convreg.errors import GraphError, OpTypeError
from convreg.onnx.model import files

DIALECTS = ("aten", "onednn", "ascend", "onnx")
PARAMETERS = ["conv1.weight", "bn1.weight", "bn1.bias", "conv2.weight", "conv2.bias", "fc.weight", "fc.bias"]
STATISTICS = ["bn1.running_mean", "bn1.running_var"]


def names(values):
    return [value.name for value in values]


def test_names_and_metadata():
    step = convreg.onnx.training_step(classifier(), optimizer="adam", loss_scale=8, learning_rate=0.25)
    convreg.onnx.check(step)
    onnx.checker.check_model(step, full_check=True)
    state = [name + suffix for name in PARAMETERS for suffix in ("", ".moment1", ".moment2")]
    assert names(step.graph.input) == ["x", "target", "learning_rate", "loss_scale", "step", *state, *STATISTICS]
    assert names(step.graph.output) == ["loss", "y", *(f"{name}.next" for name in ["step", *state, *STATISTICS])]
    held = {tensor.name: numpy_helper.to_array(tensor) for tensor in step.graph.initializer}
    forward = {tensor.name: numpy_helper.to_array(tensor) for tensor in classifier().graph.initializer}
    assert all(np.array_equal(held[name], forward[name]) for name in [*PARAMETERS, *STATISTICS])
    assert held["learning_rate"] == 0.25
    assert held["loss_scale"] == 8
    assert {name: (held[name].shape, held[name].dtype) for name in ("step",)} == {"step": ((), np.dtype(np.int64))}
    made = {name for node in step.graph.node for name in node.output}
    assert {f"{name}_grad" for name in PARAMETERS} <= made
    entries = {entry.key: entry.value for entry in step.metadata_props}
    record = json.loads(entries["convreg.step"])
    assert record["parameters"] == PARAMETERS
    assert record["statistics"] == STATISTICS
    assert record["state"] == {name: f"{name}.next" for name in ["step", *state, *STATISTICS]}
    assert record["settings"]["betas"] == [0.9, 0.999]
    assert (record["data"], record["target"], record["loss"], record["outputs"]) == (["x"], "target", "loss", ["y"])


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_model_is_checked_at_the_entry_and_at_the_end(monkeypatch, dialect):
    """Not in between: every check of a whole model takes about a tenth of the time."""
    checked, by_onnx = [], []
    messages, checker = files.check_messages, onnx.checker.check_model
    monkeypatch.setattr(files, "check_messages", lambda root: checked.append(root) or messages(root))
    monkeypatch.setattr(onnx.checker, "check_model", lambda model: by_onnx.append(model) or checker(model))
    given = classifier()
    step = convreg.onnx.training_step(given, dialect=dialect)
    assert len(checked) == 2
    assert checked[0] is given
    assert checked[1] is step
    assert len(by_onnx) == 2
    assert by_onnx[1] is step


def test_weights_in_constant_nodes_are_no_parameters_and_the_error_says_so():
    weight = numpy_helper.from_array(np.ones((2, 3), np.float32))
    nodes = [helper.make_node("Constant", [], ["w"], value=weight), helper.make_node("MatMul", ["x", "w"], ["y"])]
    with pytest.raises(GraphError, match=r"no floating-point initializer.*Constant nodes such as that of 'w' are not "
                                         "trained; allowed: weights as initializers"):
        convreg.onnx.training_step(built(nodes, {"x": ["N", 2]}, {"y": ["N", 3]}, {}))


def test_weights_before_a_branch_are_refused_by_the_name_of_the_branch():
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 20]> g (float[N,2] x, bool c) => (float[N,2] y)
        <float[2,2] w = {1, 2, 3, 4}, float[2] b = {0, 0}> {
            h = MatMul(x, w)
            s = Add(h, b)
            y = If(c) <then_branch = yes () => (float[N,2] p) { p = Relu(s) },
                       else_branch = no () => (float[N,2] q) { q = Neg(h) }>
        }""")
    with pytest.raises(GraphError, match=r"If node that makes 'y': no gradient passes operators with subgraphs"):
        convreg.onnx.training_step(model)


def test_height_and_width_may_stay_open():
    """The nodes of the dialect "aten" stay as the rules write them; others need the extents for their pads."""
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((4, 2, 3, 3)).astype(np.float32), "b": np.zeros(4, np.float32),
               "v": rng.standard_normal((4, 3, 2, 2)).astype(np.float32)}
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
             helper.make_node("Relu", ["c"], ["r"]),
             helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
             helper.make_node("ConvTranspose", ["p", "v"], ["y"], strides=[2, 2])]

    def model(*space):
        return built(nodes, {"x": ["N", 2, *space]}, {"y": ["N", 3, *space]}, weights)

    step = convreg.onnx.training_step(model("H", "W"), learning_rate=1)
    for space in ((4, 6), (8, 4)):
        feeds = {"x": rng.standard_normal((2, 2, *space)).astype(np.float32),
                 "target": rng.integers(3, size=(2, *space))}
        wanted = convreg.onnx.run(convreg.onnx.training_step(model(*space), learning_rate=1), feeds)
        made = convreg.onnx.run(step, feeds)
        for name in weights:
            np.testing.assert_allclose(made[f"{name}.next"], wanted[f"{name}.next"], rtol=1e-5, atol=1e-6)
    with pytest.raises(GraphError, match="every extent of grad_output but the batch must be known"):
        convreg.onnx.training_step(model("H", "W"), dialect="onednn")


def test_taken_names_get_a_number():
    weights = {"loss": np.ones((2, 1), np.float32), "loss.velocity": np.ones(1, np.float32)}
    nodes = [helper.make_node("MatMul", ["target", "loss"], ["learning_rate"]),
             helper.make_node("Add", ["learning_rate", "loss.velocity"], ["step"])]
    step = convreg.onnx.training_step(built(nodes, {"target": ["N", 2]}, {"step": ["N", 1]}, weights), loss="mse",
                                      optimizer="momentum")
    trainer = convreg.onnx.Trainer(step, engine="reference")
    assert trainer.record.target == "target_2"
    found = trainer.step({"target": np.ones((1, 2)).astype(np.float32), "target_2": np.ones((1, 1), np.float32)})
    assert found["loss"] == 4
    assert set(trainer.parameters) == {"loss", "loss.velocity"}


def test_every_dialect_and_engine_makes_the_same_step():
    results = {}
    for dialect in DIALECTS:
        step = convreg.onnx.training_step(classifier(), optimizer="momentum", dialect=dialect, weight_decay=0.1)
        domains = {node.domain for node in step.graph.node} - {""}
        assert domains == (set() if dialect == "onnx" else {f"convreg.{dialect}"})
        results[dialect, "reference"] = convreg.onnx.run(step, batch_of(6), engine="reference")
        if _has_onnxruntime():
            results[dialect, "onnxruntime"] = convreg.onnx.run(step, batch_of(6), engine="onnxruntime")
    first = results["aten", "reference"]
    for found in results.values():
        assert list(found) == list(first)
        for name, wanted in first.items():
            np.testing.assert_allclose(found[name], wanted, rtol=1e-5, atol=2e-6, err_msg=name)


def _has_onnxruntime():
    try:
        import onnxruntime  # noqa: F401
    except ImportError:
        return False
    return True


def test_lowered_steps_train_in_a_plain_onnxruntime():
    """With nothing of convreg's, from the file alone."""
    onnxruntime = pytest.importorskip("onnxruntime")
    step = convreg.onnx.training_step(classifier(), optimizer="adam", dialect="onnx", learning_rate=0.01)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # it warns of every default value
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(step.SerializeToString(), options, providers=["CPUExecutionProvider"])
    assert names(session.get_inputs()) == ["x", "target"]
    trainer = convreg.onnx.Trainer(step, engine="reference")
    made = names(session.get_outputs())
    feeds = {}
    losses = []
    for _ in range(5):
        found = dict(zip(made, session.run(None, {**batch_of(6), **feeds}), strict=True))
        feeds = {name.removesuffix(".next"): array for name, array in found.items() if name.endswith(".next")}
        losses.append(found["loss"])
        assert found["loss"] == pytest.approx(trainer.step(batch_of(6))["loss"], rel=1e-5)
    assert losses[-1] < losses[0]
    assert feeds["step"] == 5


def test_initial_values_apart(tmp_path):
    """All inputs have to be given then, and a plain onnxruntime says nothing; the Trainer makes the same steps."""
    step, apart = (convreg.onnx.training_step(classifier(), optimizer="adam", dialect="onnx", defaults=defaults,
                                              loss_scale=2.0) for defaults in (True, False))
    onnx.checker.check_model(apart, full_check=True)
    values = convreg.onnx.initial_values(apart)
    assert values.keys() == {value.name for value in apart.graph.input} - {"x", "target"}
    assert values.keys() == convreg.onnx.initial_values(step).keys()
    with pytest.raises(GraphError, match="missing input 'learning_rate'"):
        convreg.onnx.run(apart, batch_of(6))
    wanted = convreg.onnx.run(step, batch_of(6), engine="reference")
    found = convreg.onnx.run(apart, {**batch_of(6), **values}, engine="reference")
    assert all(np.array_equal(found[name], array) for name, array in wanted.items())
    trainers = [convreg.onnx.Trainer(model, engine="reference") for model in (step, apart)]
    assert all(trainer.step(batch_of(6))["loss"] == wanted["loss"] for trainer in trainers)
    assert all(np.array_equal(trainers[0].state[name], array) for name, array in trainers[1].state.items())
    assert [tensor.name for tensor in trainers[1].export().graph.initializer]
    with pytest.raises(GraphError, match="defaults=1"):
        convreg.onnx.training_step(line(), defaults=1)
    pytest.importorskip("onnxruntime")
    onnx.save(apart, tmp_path / "step.onnx")
    script = f"import onnxruntime; onnxruntime.InferenceSession({str(tmp_path / 'step.onnx')!r})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_batch_norm_modes():
    trained = convreg.onnx.training_step(classifier())
    frozen = convreg.onnx.training_step(classifier(), batch_norm="frozen")
    assert "bn1.running_mean" in names(trained.graph.input)
    assert "bn1.running_mean" not in names(frozen.graph.input)
    assert "bn1.running_mean.next" not in names(frozen.graph.output)
    folded = built([helper.make_node("Conv", ["x", "w"], ["y"])], {"x": ["N", 1, 3, 3]}, {"y": ["N", 2, 1, 1]},
                   {"w": np.ones((2, 1, 3, 3), np.float32)})
    with pytest.raises(GraphError, match="no BatchNormalization; exporters fold"):
        convreg.onnx.training_step(folded, loss="mse", batch_norm="train")


def test_running_statistics_are_those_of_onnx():
    step = convreg.onnx.training_step(classifier(momentum=0.75))
    feeds = batch_of(5)
    found = convreg.onnx.run(step, feeds, engine="reference")
    weight = numpy_helper.to_array(classifier().graph.initializer[0])
    conv = convreg.onednn.convolution(feeds["x"], weight, strides=[1, 1], pads_begin=[1, 1], pads_end=[1, 1],
                                      dilations=[1, 1], data_format="NCX", weights_format="OIX")
    np.testing.assert_allclose(found["bn1.running_mean.next"], 0.25 * conv.mean((0, 2, 3)), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found["bn1.running_var.next"], 0.75 + 0.25 * conv.var((0, 2, 3)), rtol=1e-4)


def test_chosen_parameters_and_outputs():
    step = convreg.onnx.training_step(classifier(), wrt=["fc.weight"])
    assert convreg.onnx.StepRecord.of(step).parameters == ["fc.weight"]
    assert not any(node.domain for node in step.graph.node)
    two = line(outputs=2)
    two.graph.output.append(helper.make_tensor_value_info("m", 1, ["N", 2]))
    record = convreg.onnx.StepRecord.of(convreg.onnx.training_step(two, loss="mse", output="m"))
    assert record.parameters == ["w"]
    assert record.outputs == ["y", "m"]


def test_a_model_that_makes_its_loss():
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("ReduceMean", ["m"], ["y"], keepdims=0)]
    model = built(nodes, {"x": ["N", 2]}, {"y": []}, {"w": np.ones((2, 1), np.float32)})
    trainer = convreg.onnx.Trainer(convreg.onnx.training_step(model, loss=None, learning_rate=1), engine="reference")
    assert trainer.step({"x": [[1.0, 2.0]]}) == {"loss": 3}
    assert trainer.parameters["w"].tolist() == [[0], [-1]]


@pytest.mark.parametrize("loss", ["softmax_cross_entropy", "mse"])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_outputs_have_a_loss(dtype, loss):
    """Of a model whose parameters are float32."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    model = line(outputs=3)
    model.graph.node.append(helper.make_node("Cast", ["y"], ["narrow"], to=kind))
    model.graph.output.append(helper.make_tensor_value_info("narrow", kind, ["N", 3]))
    target = {"softmax_cross_entropy": np.array([0, 1, 2, 0]), "mse": np.zeros((4, 3), dtype)}[loss]
    feeds = {"x": np.ones((4, 2), np.float32), "target": target}
    found, wanted = (convreg.onnx.run(
        convreg.onnx.training_step(model, loss=loss, output=output, learning_rate=1.0),
        feeds if output == "narrow" or loss != "mse" else {**feeds, "target": np.zeros((4, 3), np.float32)},
        engine="reference") for output in ("narrow", "y"))
    assert found["loss"].dtype == dtype
    np.testing.assert_allclose(found["w.next"], wanted["w.next"], rtol=0.02, atol=0.02)


@pytest.mark.parametrize("opset", [9, 17])
def test_weights_that_are_inputs_too(opset):
    """Version 3 of the format lists them there; the step's inputs are those that have to be given."""
    model = line()
    model.ir_version, model.opset_import[0].version = 3, opset
    model.graph.input.extend(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
                             for tensor in model.graph.initializer)
    convreg.onnx.check(model)
    trainer = convreg.onnx.Trainer(convreg.onnx.training_step(model, loss="mse", learning_rate=0.25),
                                   engine="reference")
    assert trainer.record.data == ["x"]
    feeds = {"x": np.ones((1, 2), np.float32), "target": np.zeros((1, 1), np.float32)}
    assert trainer.step(feeds)["loss"] == 1
    assert trainer.parameters["w"].tolist() == [[-0.5], [0.5]]
    exported = trainer.export()
    convreg.onnx.check(exported)
    assert names(exported.graph.input) == ["x"]
    assert exported.opset_import[0].version == opset


@pytest.mark.parametrize("format", ["bfloat16", "float8_e4m3fn", "hifloat8"])
@pytest.mark.parametrize("forward", [False, True])
def test_narrow_formats(format, forward):
    step = convreg.onnx.training_step(classifier(), format=format, forward_format=format if forward else None,
                                      loss_scale=64)
    wide = convreg.onnx.training_step(classifier(), loss_scale=64)
    feeds = batch_of(16)
    found, wanted = (convreg.onnx.run(made, feeds, engine="reference") for made in (step, wide))
    assert (found["loss"] == wanted["loss"]) == (not forward)
    before = numpy_helper.to_array(classifier().graph.initializer[0]).astype(np.float64)
    one, other = ((results["conv1.weight.next"] - before).ravel() for results in (found, wanted))
    assert not np.array_equal(one, other)
    assert one @ other / np.sqrt((one @ one) * (other @ other)) > 0.9


def test_seeds_are_written():
    step = convreg.onnx.training_step(classifier(dropout=True), seed=7)
    [dropout] = [node for node in step.graph.node if node.op_type == "Dropout"]
    assert [proto.i for proto in dropout.attribute if proto.name == "seed"] == [7]


@pytest.mark.parametrize(("make", "arguments", "said"), [
    (classifier, {"loss": "l1"}, "loss='l1' is refused"),
    (classifier, {"loss": None}, "of one element"),
    (classifier, {"dialect": "openvino"}, "allowed: 'aten', 'onednn', 'ascend', 'onnx'"),
    (classifier, {"format": "float9"}, "format='float9'"),
    (classifier, {"forward_format": "float9"}, "forward_format='float9'"),
    (classifier, {"output": "z"}, "allowed: y"),
    (classifier, {"wrt": "fc.weight"}, "a sequence of names"),
    (classifier, {"wrt": []}, "wrt is empty"),
    (classifier, {"wrt": ["fc.weigth"]}, "did you mean 'fc.weight'"),
    (classifier, {"wrt": ["bn1.running_mean"]}, "running statistic"),
    (classifier, {"batch_norm": "off"}, "batch_norm='off'"),
    (lambda: line(dtype=np.float16), {"loss": "mse"}, "is float16; allowed: float32 and float64"),
    (lambda: line(dtype=ml_dtypes.bfloat16), {"loss": "mse"}, "is bfloat16; allowed: float32 and float64"),
    (lambda: built([helper.make_node("Cast", ["x"], ["y"], to=1)], {"x": ["N", 2]}, {"y": ["N", 2]},
                   {"unused": np.ones(1, np.int8)}), {}, "no floating-point initializer with one axis or more"),
    (lambda: built([helper.make_node("ReduceMax", ["w"], ["y"], keepdims=0)], {}, {"y": []},
                   {"w": np.ones(3, np.float32)}), {},
     "needs an output of shape [batch, classes, ...]"),
    (lambda: built([helper.make_node("ArgMax", ["x"], ["y"])], {"x": ["N", 2]}, {}, {}), {}, "no output"),
    (lambda: 3, {}, "not int"), (lambda: "no such file.onnx", {}, "no such file"),
])
def test_refusals(make, arguments, said):
    with pytest.raises(GraphError) as caught:
        convreg.onnx.training_step(make(), **arguments)
    assert said in str(caught.value)


def test_unknown_arguments_are_refused():
    with pytest.raises(OpTypeError, match="did you mean optimizer"):
        convreg.onnx.training_step(line(), optimiser="sgd")


def test_integer_outputs_have_no_loss():
    model = line()
    model.graph.node.append(helper.make_node("ArgMax", ["y"], ["a"]))
    model.graph.output.append(helper.make_tensor_value_info("a", 7, None))
    with pytest.raises(GraphError, match="'a' is int64; allowed for a loss: float16, bfloat16, float32, float64"):
        convreg.onnx.training_step(model, output="a")


def test_steps_need_no_torch():
    """In a process of its own, so that no other test has imported it."""
    script = "import sys, convreg.onnx; convreg.onnx.training_step; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
