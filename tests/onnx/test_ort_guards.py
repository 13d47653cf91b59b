"""Nodes on which onnxruntime would end the process or err: computed, or refused, by either engine."""

from __future__ import annotations

import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from ending_nodes import ENDING, ENGINES, loose, zeros
from onnx import TensorProto, helper
from places import SUPPORT

import convreg.onnx
from convreg import GraphError

pytest.importorskip("onnxruntime")

PROGRAM = """
import sys, warnings
import convreg.onnx
from convreg import GraphError
from ending_nodes import ENDING, ENGINES, loose
warnings.simplefilter("error")
for name, (op_type, version, operands, settings) in ENDING.items():
    model, feeds = loose(op_type, version, operands, **settings)
    for engine in ENGINES:
        try:
            result = convreg.onnx.run(model, feeds, engine=engine)["y0"].tolist()
        except GraphError:
            result = "refused"
        print(name, engine, result, sep="|", flush=True)
"""


def test_the_process_goes_on():
    path = [str(SUPPORT), *sys.path]
    done = subprocess.run([sys.executable, "-c", f"import sys; sys.path[:0] = {path}\n{PROGRAM}"], timeout=120,
                          capture_output=True, text=True, check=False)
    rows = [line.split("|") for line in done.stdout.splitlines()]
    assert done.returncode == 0, (rows[-1:], done.stderr[-2000:])
    assert len(rows) == len(ENDING) * len(ENGINES)
    for name, engine, result in rows:
        if name.startswith("Div"):
            least = np.iinfo(name.split()[1]).min
            assert result == str([least, -7, -3]), (name, engine)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("op_type", ["Div", "Mod"])
@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
def test_integers_divide_alike(op_type, dtype, engine):
    """Quotients are cut toward zero; a divisor of 0 is refused."""
    limits = np.iinfo(dtype)
    numbers = [number for number in (0, 1, 2, 3, 7, -1, -2, -7, limits.max, limits.min + 1, limits.min, limits.max // 2)
               if limits.min <= number <= limits.max]
    pairs = [(a, b) for a in numbers for b in numbers if b]
    a, b = (np.array(column, dtype) for column in zip(*pairs, strict=True))
    model, feeds = loose(op_type, 14, [a, b])
    found = convreg.onnx.run(model, feeds, engine=engine)["y0"]
    quotients = [abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1) for x, y in pairs]
    expected = quotients if op_type == "Div" else [x % y for x, y in pairs]
    wrapped = [(number - limits.min) % 2**limits.bits + limits.min for number in expected]
    assert found.dtype == dtype
    assert found.tolist() == wrapped
    reason = "a divisor of 0 among integers is refused" if engine == "onnxruntime" else None
    with pytest.raises(GraphError, match=reason):
        convreg.onnx.run(model, {"x0": a[:2], "x1": np.array([1, 0], dtype)}, engine=engine)


def test_divisions_in_subgraphs_and_between_nodes():
    """Types of values inside are inferred; a constant divisor without -1 needs no rewriting."""
    branch = helper.make_graph(
        [helper.make_node("Mul", ["b", "b"], ["c"]), helper.make_node("Div", ["a", "b"], ["d"]),
         helper.make_node("Add", ["c", "d"], ["e"])], "branch", [], [helper.make_tensor_value_info("e", 7, None)])
    other = helper.make_graph([helper.make_node("Identity", ["a"], ["f"])], "other", [],
                              [helper.make_tensor_value_info("f", 7, None)])
    graph = helper.make_graph(
        [helper.make_node("If", ["go"], ["z"], then_branch=branch, else_branch=other)], "g",
        [helper.make_tensor_value_info("go", 9, []), *(helper.make_tensor_value_info(name, 7, None) for name in "ab")],
        [helper.make_tensor_value_info("z", 7, None)])
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 13)])
    least = np.iinfo(np.int64).min
    for engine in ENGINES:
        found = convreg.onnx.run(model, {"go": True, "a": [least, 9], "b": [-1, 2]}, engine=engine)
        assert found["z"].tolist() == [least + 1, 8]
        assert found.engine == (engine or "onnxruntime")


def test_guards_say_what_is_refused():
    model, feeds = loose("GRU", 14, [zeros(0, 2, 4), zeros(1, 9, 4), zeros(1, 9, 3)], hidden_size=3, outputs=2)
    with pytest.raises(GraphError, match="the GRU node that makes 'y0': an input without elements is refused"):
        convreg.onnx.run(model, feeds, engine="onnxruntime")
    feeds["x0"] = zeros(2, 2, 4)
    assert convreg.onnx.run(model, feeds, engine="onnxruntime")["y0"].shape == (2, 1, 2, 3)


@pytest.mark.parametrize("engine", [None, "onnxruntime"])
def test_refusals_of_nodes_that_only_onnxruntime_has(engine):
    model, feeds = loose("MaxRoiPool", 1, [zeros(1, 2, 8, 8), zeros(1, 4)], pooled_shape=[2, 2])
    with pytest.raises(GraphError, match=r"onnxruntime: .*MaxRoiPool"):
        convreg.onnx.run(model, feeds, engine=engine)


def test_floats_divide_as_they_are():
    model, feeds = loose("Div", 14, [np.array([1, -1, 0], np.float32), np.array([0, -1, 0], np.float32)])
    for engine in ENGINES:
        np.testing.assert_array_equal(convreg.onnx.run(model, feeds, engine=engine)["y0"], [np.inf, 1, np.nan])


def test_values_whose_type_inference_misses_divide():
    """onnx infers nothing of other people's operators; onnxruntime has this one."""
    graph = helper.make_graph(
        [helper.make_node("QuickGelu", ["a"], ["b"], domain="com.microsoft"),
         helper.make_node("Div", ["b", "b"], ["c"])],
        "g", [helper.make_tensor_value_info("a", TensorProto.FLOAT, [3])], [helper.make_empty_tensor_value_info("c")])
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 15),
                                                                  helper.make_opsetid("com.microsoft", 1)])
    found = convreg.onnx.run(model, {"a": [1, 0, 2]}, engine="onnxruntime")["c"]
    np.testing.assert_array_equal(found, [1, np.nan, 1])  # floating-point numbers may be divided by 0


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("op_type", ["Cast", "CastLike"])
@pytest.mark.parametrize(("target", "expected"), [
    (ml_dtypes.float8_e4m3fn, [0.1015625, 448, 448, *[np.nan] * 9]),
    (ml_dtypes.float8_e5m2, [0.09375, 448, 448, 448, 512, -512, 57344, *[np.inf] * 3, -np.inf, np.nan])])
@pytest.mark.parametrize("source", [np.float16, np.float32, np.float64, np.int32, ml_dtypes.float8_e5m2])
def test_casts_without_saturation(source, target, expected, op_type, engine):
    """onnxruntime makes 448 of 480 in float8_e4m3fn, and NaN of 61440 to 65535 in float8_e5m2."""
    numbers = np.array([0.1, 448, 464, 465, 480, -490, 61424, 61440, 65000, np.inf, -np.inf, np.nan])
    with np.errstate(over="ignore", invalid="ignore"):
        x = numbers.astype(source)
        expected = numbers.astype(source).astype(np.float32).astype(target) if source not in (
            np.float32, np.float64) else np.array(expected, target)
    more = {"to": helper.np_dtype_to_tensor_dtype(np.dtype(target))} if op_type == "Cast" else {}
    operands = [x] if op_type == "Cast" else [x, np.zeros(1, target)]
    model, feeds = loose(op_type, 19, operands, constants=(1,), saturate=0, **more)
    found = convreg.onnx.run(model, feeds, engine=engine)
    assert found.engine == (engine or "onnxruntime")
    np.testing.assert_array_equal(found["y0"].astype(np.float32), expected.astype(np.float32))
