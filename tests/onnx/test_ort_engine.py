"""Sessions whose engine is onnxruntime: parts, types, other people's domains, and what is refused."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from drawn import normal
from graphs import data_gradient, value
from onnx import TensorProto, helper
from ort_sessions import (
    DY,
    DY_3X3,
    FREE,
    PYTORCH,
    RNG,
    W_3X3,
    W,
    X,
    expected_of,
    feeds_of,
    model,
    older,
    same,
    session,
    shaped,
)
from places import SUPPORT

import convreg
import convreg.onnx
from convreg import GraphError, OpError, OpTypeError
from convreg.onnx import Session

onnxruntime = pytest.importorskip("onnxruntime")


def test_what_onnxruntime_cannot_express_runs_on_our_executor():
    """It shows lists of strings to no kernel, and fixes output types before it knows attributes."""
    tensors = dict(zip(("dy", "x", "w"), (normal(RNG, shape) for shape in (DY, X, W)), strict=True))
    node = helper.make_node("ConvolutionBackward", [*tensors], ["dx"], domain="convreg.ascend", **PYTORCH,
                            conformance="emulation", outputFormats=["float16", "", ""])
    made = model([node, helper.make_node("Cast", ["dx"], ["y"], to=TensorProto.FLOAT)],
                 [value(name, array.shape) for name, array in tensors.items()], [value("y", X)])
    with pytest.raises(Exception, match="outputFormats"):
        session(made)
    running = Session(made, engine="onnxruntime")
    assert [type(part.runner).__name__ for part in running._runner.parts] == ["Evaluator", "OnOrt"]
    same([*running.run(tensors).values()], Session(made).run(tensors)["y"])


def test_hifloat8_runs_in_onnxruntime_where_a_shape_is_an_attribute():
    """The list of formats then names more inputs than the node has."""
    dy, w = (convreg.quantize(normal(RNG, shape), "hifloat8") for shape in ((1, 2, 3), (2, 1, 2)))
    call = {"strides": [1], "pads_begin": [0], "pads_end": [0], "dilations": [1], "data_format": "NCX",
            "weights_format": "OIX", "conformance": "emulation"}
    made = older(convreg.onnx.node_model("onednn::ConvolutionBackwardData", dy, w, [1, 1, 4], as_inputs=True, **call))
    [node] = made.graph.node
    [stated] = [attribute.strings for attribute in node.attribute if attribute.name == "operand_types"]
    assert len(stated) > len(node.input)
    running = Session(made, engine="onnxruntime")
    assert (running.engine, running.engine_note) == ("onnxruntime", "")
    found = running.run({"diff_dst": dy, "weights": w})["diff_src"]
    assert found.tobytes() == convreg.onednn.convolution_backward_data(dy, w, [1, 1, 4], **call).tobytes()
    held = Session(older(convreg.onnx.node_model("onednn::ConvolutionBackwardData", dy, w, [1, 1, 4], **call)),
                   engine="onnxruntime")  # the operands are initializers
    assert (held.engine, held.engine_note) == ("onnxruntime", "")
    assert held.run({})["diff_src"].tobytes() == found.tobytes()


def test_digits_training_steps_agree(request):
    path = request.config.rootpath / "examples" / "digits" / "training_step.onnx"
    made = older(convreg.onnx.load(path))
    rng = np.random.default_rng(3)
    shapes = {entry.name: [dim.dim_value for dim in entry.type.tensor_type.shape.dim] for entry in made.graph.input}
    state = {name: np.zeros(shape, np.float32) if name.endswith("velocity") else normal(rng, tuple(shape)) / 10
             for name, shape in shapes.items() if "." in name}
    engines = {engine: Session(made, engine=engine) for engine in ("reference", "onnxruntime")}
    assert len(engines["onnxruntime"]._runner.parts) == 1
    states = dict.fromkeys(engines, state)
    for _ in range(8):
        batch = {"images": rng.integers(0, 17, (32, 8, 8), dtype=np.uint8), "target": rng.integers(0, 10, 32),
                 "learning_rate": np.float32(0.05)}
        results = {engine: running.run({**batch, **states[engine]}) for engine, running in engines.items()}
        states = {engine: {name.removesuffix(".next"): array for name, array in result.items()
                           if name.endswith(".next")} for engine, result in results.items()}
        for name, array in results["reference"].items():
            np.testing.assert_allclose(results["onnxruntime"][name], array, rtol=2e-4, atol=2e-6)


BF16 = np.dtype(ml_dtypes.bfloat16)


@pytest.mark.parametrize(("dtype", "gradient", "parts"), [
    (BF16, data_gradient(["r", "w"], dst_shape=[1, 3, 6, 6]), "OnOrt Evaluator OnOrt"),
    (np.dtype(np.float64), helper.make_node("ConvTranspose", ["r", "w"], ["dx"], pads=[1, 1, 1, 1]),
     "OnOrt Evaluator OnOrt Evaluator OnOrt"),
], ids=["bfloat16", "float64"])
def test_parts_without_a_kernel_run_on_ours(dtype, gradient, parts):
    """Conv in bfloat16 or float64, Relu in bfloat16: our executor; the rest: as few sessions as possible."""
    nodes = [
        helper.make_node("Cast", ["x"], ["xc"], to=helper.np_dtype_to_tensor_dtype(dtype)),
        helper.make_node("Conv", ["xc", "w"], ["y"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["y"], ["r"]),
        gradient,
        helper.make_node("Transpose", ["dx"], ["t"], perm=[0, 1, 3, 2]),
        helper.make_node("Cast", ["t"], ["f"], to=TensorProto.FLOAT),
    ]
    made = model(nodes, [value("x", ["N", 3, 6, 6]), value("w", [4, 3, 3, 3], dtype)],
                 [value("f", [1, 3, 6, 6]), value("t", [1, 3, 6, 6], dtype)])
    feeds = {"x": normal(RNG, (1, 3, 6, 6)), "w": normal(RNG, (4, 3, 3, 3), dtype)}
    running = Session(made, engine="onnxruntime")
    assert [type(part.runner).__name__ for part in running._runner.parts] == parts.split()
    wanted = Session(made).run(feeds)
    for _ in range(2):
        results = running.run(feeds)
        assert [*results] == ["f", "t"]
        same([*results.values()], tuple(wanted.values()))


def test_parts_with_initializers_subgraphs_and_passed_values():
    """Overridable constants, a branch that reads around itself, and outputs that no node makes."""
    branch = helper.make_graph([helper.make_node("Mul", ["a", "two"], ["b"])], "then", [], [value("b")])
    other = helper.make_graph([helper.make_node("Neg", ["a"], ["c"])], "else", [], [value("c")])
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"]), helper.make_node("Cast", ["y"], ["a"], to=TensorProto.FLOAT),
             helper.make_node("If", ["flag"], ["z"], then_branch=branch, else_branch=other)]
    held = {"w": normal(RNG, (2, 1, 1, 1), np.float64), "two": np.float32(2), "kept": np.float32(7)}
    made = model(nodes, [value("x", [1, 1, 4], np.float64), value("flag", [], np.bool_), value("two", [])],
                 [value("z", [1, 2, 4]), value("kept", []), value("x", [1, 1, 4], np.float64)],
                 {**held, "w": held["w"][..., 0]})
    running, plain = Session(made, engine="onnxruntime"), Session(made)
    assert len(running._runner.parts) == 2
    for extra in ({}, {"two": np.float32(3)}):
        for flag in (True, False):
            feeds = {"x": normal(RNG, (1, 1, 4), np.float64), "flag": np.array(flag), **extra}
            same([*running.run(feeds).values()], tuple(plain.run(feeds).values()))


def test_conv_grad_of_microsoft():
    """Our library must not hide what onnxruntime has in that domain: its fusions live there."""
    tensors = dict(zip(("dy", "x", "w"), (normal(RNG, shape) for shape in (DY, X, W)), strict=True))
    nodes = [helper.make_node("ConvGrad", [*tensors], ["dx", "", "db"], domain="com.microsoft", strides=[2, 2],
                              pads=[1, 1, 1, 1], group=2),
             helper.make_node("Conv", ["x", "w"], ["y"], strides=[2, 2], pads=[1, 1, 1, 1], group=2),
             helper.make_node("Relu", ["y"], ["r"])]
    made = model(nodes, [value(name, array.shape) for name, array in tensors.items()],
                 [value("dx"), value("db"), value("r")])
    running = Session(made, engine="onnxruntime")
    assert len(running._runner.parts) == 1
    dx, _, db = convreg.microsoft.conv_grad(*tensors.values(), strides=[2, 2], pads=[1, 1, 1, 1], group=2)
    results = running.run(tensors)
    same([results["dx"], results["db"]], (dx, db))
    np.testing.assert_allclose(results["r"], Session(made).run(tensors)["r"], rtol=1e-5, atol=1e-5)


def test_wrong_types_are_refused_by_both():
    made = model([data_gradient(["dy", "w"], dst_shape=[1, 3, 8, 8])],
                 [FREE["dy"], value("w", [4, 3, 3, 3], np.float16)], [value("dx")])
    with pytest.raises(Exception, match="ConvolutionBackwardData"):
        session(made)
    with pytest.raises(OpTypeError, match="float32, as diff_dst is"):
        convreg.onnx.run(made, {"dy": DY_3X3, "w": W_3X3.astype(np.float16)}, engine="onnxruntime")


@pytest.mark.parametrize("engine", ["ort", "", 1, [], True, "Reference"])
def test_unknown_engine(engine):
    with pytest.raises(GraphError, match=r"allowed: 'onnxruntime' or 'reference', or None for the default"):
        Session(shaped(), engine=engine)


class Unprintable:
    def __repr__(self):
        raise RuntimeError

    __eq__ = None


@pytest.mark.parametrize("engine", [np.ones(3), np.array("reference"), ["reference"], {}, b"reference", Unprintable()])
def test_engines_of_other_types(engine):
    for call in (lambda: Session(shaped(), engine=engine), lambda: convreg.onnx.run(shaped(), {}, engine=engine)):
        with pytest.raises(GraphError, match=r"engine=.* is refused; allowed: 'onnxruntime' or 'reference', or None"):
            call()


@pytest.mark.parametrize("observer", [np.ones(3), "print", 5, [], Unprintable()])
def test_observers_are_functions(observer):
    with pytest.raises(GraphError, match=r"observer=.* is refused; allowed: a function of one ObservedCall, or None"):
        Session(shaped(), observer=observer)


def test_without_onnxruntime(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(GraphError, match="needs the onnxruntime package"):
        Session(shaped(), engine="onnxruntime")
    for engine in (None, "reference"):
        running = Session(shaped(), engine=engine)
        assert running.engine == "reference"
        assert ("pip install onnxruntime" in running.engine_note) == (engine is None)
        results = running.run(feeds_of(1, 8))
        assert results.engine == "reference"
        same([*results.values()], expected_of(feeds_of(1, 8)))


def test_the_package_is_imported_when_a_session_needs_it():
    program = ("import sys, warnings\nwarnings.simplefilter('error')\nimport convreg.onnx\n"
               "assert 'onnxruntime' not in sys.modules\n"
               "sys.path.insert(0, sys.argv[1])\nfrom ort_sessions import shaped, feeds_of\n"
               "convreg.onnx.Session(shaped(), engine='reference')\n"
               "assert 'onnxruntime' not in sys.modules\n"
               "print(convreg.onnx.run(shaped(), feeds_of(1, 8)).engine)\n")
    done = subprocess.run([sys.executable, "-c", program, str(SUPPORT)], capture_output=True, text=True,
                          timeout=120, check=False)
    assert (done.stdout, done.stderr) == ("onnxruntime\n", "")


def test_a_package_that_fails_to_import(monkeypatch, tmp_path):
    """As one does that was compiled for another NumPy."""
    (tmp_path / "onnxruntime.py").write_text("raise AttributeError('_ARRAY_API not found')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "onnxruntime")
    running = Session(shaped())
    assert (running.engine, "_ARRAY_API not found" in running.engine_note) == ("reference", True)


def test_the_default_engine():
    running = Session(shaped())
    assert (running.engine, running.engine_note) == ("onnxruntime", "")
    results = running.run(feeds_of(1, 8))
    assert results.engine == "onnxruntime"
    again = pickle.loads(pickle.dumps(results))
    assert (type(again), again.engine, [*again]) == (type(results), "onnxruntime", ["dx"])
    same([*results.values()], expected_of(feeds_of(1, 8)))
    watched = Session(shaped(), observer=lambda call: None)
    assert (watched.engine, watched.engine_note) == ("reference", "onnxruntime has no observer")


def test_engines_of_models_that_onnxruntime_does_not_take():
    newer = shaped()
    newer.opset_import[0].version = 1000
    newer.graph.node.append(helper.make_node("Relu", ["dx"], ["z"]))
    newer.graph.output.append(value("z", [None] * 4))
    running = Session(newer)
    assert running.engine == "reference"
    assert running.engine_note.startswith(f"onnxruntime {onnxruntime.__version__}: ")
    assert [*running.run(feeds_of(1, 8))] == ["dx", "z"]
    future = shaped()
    future.ir_version = 1000
    assert Session(future).engine == "onnxruntime"
    exact = model([helper.make_node("Conv", ["x", "w"], ["y"])], [value("x", [1, 1, 4], np.float64),
                                                                  value("w", [1, 1, 2], np.float64)], [value("y")])
    running = Session(exact)
    assert (running.engine, running.engine_note) == ("reference", "onnxruntime has no kernel for Conv")
    exact.graph.node.append(helper.make_node("Cast", ["y"], ["z"], to=TensorProto.FLOAT))
    exact.graph.output.append(value("z", [None] * 3))
    running = Session(exact)
    assert running.engine == "onnxruntime"
    assert running.engine_note == "the reference engine runs Conv, for which onnxruntime has no kernel"
    odd = model([helper.make_node("LRN", ["x"], ["y"], size=2)], [value("x", [1, 2, 1, 1])], [value("y")])
    running = Session(odd)
    assert running.run({"x": np.ones((1, 2, 1, 1), np.float32)}).engine == "reference"
    assert re.fullmatch(r"onnxruntime refuses LRN \(.*size_ % 2.*\)", running.engine_note)
    odd.graph.node.append(helper.make_node("Neg", ["y"], ["z"]))
    odd.graph.output.append(value("z"))
    assert re.fullmatch(r"the reference engine runs LRN, which onnxruntime refuses \(.*size_ % 2.*\)",
                        Session(odd).engine_note)
    odd.graph.node.append(helper.make_node("LRN", ["d"], ["e"], size=3))
    odd.graph.input.append(value("d", [1, 2, 1, 1], np.float64))
    odd.graph.output.append(value("e", dtype=np.float64))
    assert re.fullmatch(r"the reference engine runs LRN, for which onnxruntime has no kernel; "
                        r"the reference engine runs LRN, which onnxruntime refuses \(.*size_ % 2.*\)",
                        Session(odd).engine_note)


def test_runs_that_onnxruntime_refuses():
    """Dilation beside SAME pads: onnxruntime finds out when it runs."""
    made = model([helper.make_node("Conv", ["x", "w"], ["y"], auto_pad="SAME_UPPER", dilations=[2])],
                 [value("x", ["N", "C", "L"]), value("w", ["M", "C", "K"])], [value("y", [None] * 3)])
    running, feeds = Session(made), {"x": normal(RNG, (1, 2, 9)), "w": normal(RNG, (3, 2, 3))}
    results = running.run(feeds)
    assert (running.engine, results.engine) == ("onnxruntime", "reference")
    same([*results.values()], Session(made, engine="reference").run(feeds)["y"])
    with pytest.raises(GraphError, match="onnxruntime"):
        Session(made, engine="onnxruntime").run(feeds)
    texts = []
    for engine in (None, "reference"):
        with pytest.raises(OpError) as caught:
            convreg.onnx.run(made, {**feeds, "w": normal(RNG, (3, 2, 30))[..., :0]}, engine=engine)
        texts.append([str(caught.value), *caught.value.__notes__])
    assert texts[0] == texts[1]


@pytest.mark.parametrize("feeds", [
    None, {}, [], {"dy": 1}, {**feeds_of(1, 8), "z": 1}, {**feeds_of(1, 8), "w": "text"},
    {**feeds_of(1, 8), "w": W_3X3.astype(np.float64)}, {**feeds_of(1, 8), "w": W_3X3[0]},
    {**feeds_of(1, 8), "s": np.array([1, 3, 9, 8])}, {**feeds_of(1, 8), "dy": DY_3X3[:, :0]},
    {**feeds_of(1, 8), 3: DY_3X3}, {**feeds_of(1, 8), "w": None},
])
def test_bad_inputs_are_refused_alike(feeds):
    refusals = []
    for engine in (None, "onnxruntime", "reference"):
        with pytest.raises((GraphError, OpError)) as caught:
            convreg.onnx.run(shaped(), feeds, engine=engine)
        refusals.append((type(caught.value), str(caught.value)))
    assert len({*refusals}) == 1


def test_unknown_attributes_are_refused_alike():
    made = model([data_gradient(["dy", "w"], dst_shape=[1, 3, 8, 8], stride=[1, 1])], [FREE["dy"], FREE["w"]],
                 [value("dx")])
    for engine in (None, "onnxruntime", "reference"):
        with pytest.raises(OpError, match="strides"):
            convreg.onnx.run(made, {"dy": DY_3X3, "w": W_3X3}, engine=engine)


def test_a_blank_bias_of_layer_normalization():
    """onnxruntime 1.32 crashes on it where the mean is asked for."""
    made = model([helper.make_node("LayerNormalization", ["x", "scale", ""], ["y", "mean", "inverse"])],
                 [value("x", [2, 4]), value("scale", [4])], [value("y"), value("mean"), value("inverse")])
    feeds = {"x": normal(RNG, (2, 4)), "scale": np.ones(4, np.float32)}
    for name, array in convreg.onnx.run(made, feeds, engine="onnxruntime").items():
        np.testing.assert_allclose(convreg.onnx.run(made, feeds, engine="reference")[name], array, rtol=1e-3, atol=1e-5)


def test_values_of_other_kinds():
    """Strings, sequences, no elements, no nodes, no inputs."""
    text = model([helper.make_node("Identity", ["x"], ["y"])], [value("x", [None], object)],
                 [value("y", [None], object)])
    many = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None)
    listed = model([helper.make_node("SequenceAt", ["s", "i"], ["y"])], [many, value("i", [], np.int64)], [value("y")])
    empty = model([helper.make_node("Relu", ["x"], ["y"])], [value("x", [0, None])], [value("y", [0, None])])
    bare = model([], [value("x", [2])], [value("x", [2])])
    constant = model([helper.make_node("Neg", ["c"], ["y"])], [], [value("y", [])], {"c": np.float32(3)})
    for engine in (None, "onnxruntime", "reference"):
        assert convreg.onnx.run(text, {"x": ["a", "b"]}, engine=engine)["y"].tolist() == ["a", "b"]
        assert convreg.onnx.run(text, {"x": np.array(["a", "b"])}, engine=engine)["y"].tolist() == ["a", "b"]
        arrays = [np.ones(2, np.float32), np.zeros(3, np.float32)]
        assert convreg.onnx.run(listed, {"s": arrays, "i": 1}, engine=engine)["y"].tolist() == [0, 0, 0]
        assert convreg.onnx.run(empty, {"x": np.empty((0, 3), np.float32)}, engine=engine)["y"].shape == (0, 3)
        assert convreg.onnx.run(bare, {"x": [1, 2]}, engine=engine)["x"].tolist() == [1, 2]
        assert convreg.onnx.run(constant, {}, engine=engine)["y"] == -3


def test_operator_sets_newer_than_onnxruntime():
    made = shaped()
    made.graph.node.append(helper.make_node("Relu", ["dx"], ["z"]))
    made.graph.output.append(value("z", [None] * 4))
    made.opset_import[0].version = 1000
    with pytest.raises(GraphError, match=f"onnxruntime {onnxruntime.__version__}: "):
        Session(made, engine="onnxruntime")


@pytest.mark.parametrize("engine", ["reference", "onnxruntime", None])
def test_output_that_is_an_input(engine):
    """Nothing makes the node's output, so no part of the graph has the graph's output."""
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])
    model = helper.make_model(helper.make_graph([helper.make_node("Relu", ["x"], [""])], "g", [value], [value]),
                              ir_version=10, opset_imports=[helper.make_opsetid("", 22)])
    assert convreg.onnx.run(model, {"x": np.ones(4, np.float32)}, engine=engine)["x"].tolist() == [1] * 4
