"""Operations of oneDNN graphs beside convolutions: computed in float32, rounded once."""

from __future__ import annotations

from math import erf

import ml_dtypes
import numpy as np
import pytest
from convreg.tools.onnx_io import import_graph_json
from model_files import graph, operation, run_graph, tensor, write_graph

import convreg.onnx
from convreg import GraphError

RNG = np.random.default_rng(11)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


UNARY = [
    ("ReLU", {}, lambda x: np.maximum(x, 0)),
    ("Sigmoid", {}, sigmoid),
    ("Tanh", {}, np.tanh),
    ("Square", {}, np.square),
    ("Abs", {}, np.abs),
    ("Exp", {}, np.exp),
    ("Round", {}, np.rint),
    ("LeakyReLU", {"alpha": 0.1}, lambda x: np.where(x >= 0, x, np.float32(0.1) * x)),
    ("Elu", {"alpha": 0.5}, lambda x: np.where(x >= 0, x, 0.5 * (np.exp(x) - 1))),
    ("Clamp", {"min": -1.0, "max": 2.0}, lambda x: np.clip(x, -1, 2)),
    ("Mish", {}, lambda x: x * np.tanh(np.log1p(np.exp(x)))),
    ("GELU", {"mode": "gelu_tanh"}, lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))),
    ("GELU", {}, lambda x: 0.5 * x * (1 + np.vectorize(erf)(x / np.sqrt(2)))),
]


@pytest.mark.parametrize(("kind", "attributes", "expected"), UNARY, ids=lambda v: v if isinstance(v, str) else "")
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
def test_unary_operations_compute_in_float32_and_round_once(tmp_path, kind, attributes, expected, dtype):
    numpy_type = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "f16": np.float16}[dtype]
    x = np.linspace(-4, 4, 60).astype(numpy_type).reshape(3, 20)
    document = graph(operation(1, kind, [tensor(0, x.shape, dtype)], [tensor(1, x.shape, dtype)], **attributes))
    got = run_graph(tmp_path, document, {"0": x})["1"]
    assert got.dtype == numpy_type
    wide = expected(x.astype(np.float64))
    if dtype == "f32":
        np.testing.assert_allclose(got, wide, rtol=2e-6, atol=1e-7)
    else:  # a second rounding on the way would show in some of the sixty
        unequal = got != wide.astype(np.float32).astype(numpy_type)
        assert np.count_nonzero(unequal) <= 1


@pytest.mark.parametrize(("kind", "expected"), [
    ("Add", np.add), ("Subtract", np.subtract), ("Multiply", np.multiply), ("Divide", np.divide),
    ("Maximum", np.maximum), ("Minimum", np.minimum)])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_binary_operations_broadcast(tmp_path, kind, expected, dtype):
    numpy_type = np.float32 if dtype == "f32" else ml_dtypes.bfloat16
    first, second = RNG.standard_normal((2, 3, 4)).astype(numpy_type), RNG.standard_normal((3, 1)).astype(numpy_type)
    document = graph(operation(1, kind, [tensor(0, first.shape, dtype), tensor(1, second.shape, dtype)],
                               [tensor(2, first.shape, dtype)], auto_broadcast="numpy"))
    got = run_graph(tmp_path, document, {"0": first, "1": second})["2"]
    wide = expected(first.astype(np.float32), second.astype(np.float32)).astype(numpy_type)
    np.testing.assert_array_equal(got.astype(np.float32), wide.astype(np.float32))
    document["graph"][0]["attrs"]["auto_broadcast"]["value"] = "none"
    with pytest.raises(GraphError, match="auto_broadcast 'none'"):
        run_graph(tmp_path, document, {})


def test_one_tensor_twice(tmp_path):
    document = graph(operation(1, "Add", [tensor(2**64 - 1, (2,)), tensor(2**64 - 1, (2,))], [tensor(0, (2,))]))
    got = run_graph(tmp_path, document, {str(2**64 - 1): np.array([1, 2], np.float32)})
    assert got["0"].tolist() == [2, 4]


@pytest.mark.parametrize("layout", ["NCX", "NXC"])
def test_channel_vectors_follow_the_layout(tmp_path, layout):
    shape, axis = ((2, 3, 4, 5), 1) if layout == "NCX" else ((2, 4, 5, 3), -1)
    x = RNG.standard_normal(shape).astype(np.float32)
    vectors = [RNG.random(3, np.float32) + 0.5 for _ in range(4)]
    along = [vector.reshape([3 if a == axis % 4 else 1 for a in range(4)]) for vector in vectors]
    document = graph(operation(1, "BiasAdd", [tensor(0, shape), tensor(1, (3,))], [tensor(2, shape)],
                               data_format=layout))
    np.testing.assert_array_equal(run_graph(tmp_path, document, {"0": x, "1": vectors[0]})["2"], x + along[0])
    document = graph(operation(1, "BatchNormInference", [tensor(0, shape), *(tensor(i, (3,)) for i in range(1, 5))],
                               [tensor(5, shape)], data_format=layout, epsilon=0.25))
    got = run_graph(tmp_path, document, {str(i): array for i, array in enumerate([x, *vectors])})["5"]
    gamma, beta, mean, variance = along
    np.testing.assert_array_equal(got, (x - mean) / np.sqrt(variance + np.float32(0.25)) * gamma + beta)


def test_shapes_and_casts(tmp_path):
    x = RNG.standard_normal((2, 3, 4)).astype(np.float32)
    document = graph(
        operation(1, "StaticReshape", [tensor(0, (2, 3, 4))], [tensor(1, (2, 12))], shape=[0, -1], special_zero=True),
        operation(2, "StaticTranspose", [tensor(1, (2, 12))], [tensor(2, (12, 2))], order=[-1, 0]),
        operation(3, "TypeCast", [tensor(2, (12, 2))], [tensor(3, (12, 2), "bf16")]),
        operation(4, "TypeCast", [tensor(3, (12, 2), "bf16")], [tensor(4, (12, 2))]),
        operation(5, "Concat", [tensor(4, (12, 2)), tensor(2, (12, 2))], [tensor(5, (12, 4))], axis=1))
    flat = x.reshape(2, 12).T
    expected = np.concatenate([flat.astype(ml_dtypes.bfloat16).astype(np.float32), flat], 1)
    np.testing.assert_array_equal(run_graph(tmp_path, document, {"0": x})["5"], expected)


@pytest.mark.parametrize("zero_point", [0, 3])
@pytest.mark.parametrize("per_channel", [False, True])
def test_integer_quantization_rounds_after_the_zero_point(tmp_path, per_channel, zero_point):
    x = np.arange(-40, 40, dtype=np.float32).reshape(2, 2, 20) / 4
    scales, zps = ([0.5, 2.0], [zero_point, zero_point]) if per_channel else ([0.5], [zero_point])
    attributes = {"qtype": "per_channel" if per_channel else "per_tensor", "axis": 1, "scales": scales, "zps": zps}
    document = graph(
        operation(1, "Quantize", [tensor(0, x.shape)], [tensor(1, x.shape, "u8")], **attributes),
        operation(2, "Dequantize", [tensor(1, x.shape, "u8")], [tensor(2, x.shape)], **attributes),
        output_ports=[1, 2])
    results = run_graph(tmp_path, document, {"0": x})
    scale = np.array(scales).reshape((2, 1) if per_channel else ())
    expected = np.clip(np.rint(x / scale + zero_point), 0, 255)
    np.testing.assert_array_equal(results["1"], expected)
    np.testing.assert_array_equal(results["2"], (expected - zero_point) * scale)


def test_float8_quantization(tmp_path):
    x = np.array([0.1, -3.3, 1000, 17], np.float32)
    document = graph(
        operation(1, "Quantize", [tensor(0, (4,))], [tensor(1, (4,), "f8_e4m3")], scales=[0.5], axis=0),
        operation(2, "Dequantize", [tensor(1, (4,), "f8_e4m3")], [tensor(2, (4,))], scales=[0.5], axis=0))
    expected = np.clip(x / 0.5, -448, 448).astype(ml_dtypes.float8_e4m3fn).astype(np.float32) * 0.5
    np.testing.assert_array_equal(run_graph(tmp_path, document, {"0": x})["2"], expected)


def matmul(x, w, made, **attributes):
    return graph(operation(0, "MatMul", [tensor(0, x.shape), tensor(1, w.shape)], [tensor(2, made)], **attributes))


def test_matmul_at_the_default_of_accumulation_mode(tmp_path):
    x, w = (RNG.integers(-4, 5, shape).astype(np.float32) for shape in ((2, 3), (3, 4)))
    got = run_graph(tmp_path, matmul(x, w, (2, 4), accumulation_mode="strict"), {"0": x, "1": w})
    np.testing.assert_array_equal(got["2"], x @ w)
    for mode in ("relaxed", "any", "f32", "f16", "s32", "Strict", ""):
        with pytest.raises(GraphError, match=f"accumulation_mode is '{mode}'; allowed: 'strict'"):
            run_graph(tmp_path, matmul(x, w, (2, 4), accumulation_mode=mode), {"0": x, "1": w})
    with pytest.raises(GraphError, match="attribute 'accumulation_mode' is of type s64, not string"):
        run_graph(tmp_path, matmul(x, w, (2, 4), accumulation_mode=0), {"0": x, "1": w})
    other = operation(0, "Abs", [tensor(0, (2, 3))], [tensor(1, (2, 3))], accumulation_mode="strict")
    with pytest.raises(GraphError, match="attribute 'accumulation_mode' is not known"):
        run_graph(tmp_path, graph(other), {"0": x})


def test_a_vector_times_transposed_matrices(tmp_path):
    pytest.importorskip("onnxruntime")
    matrices, vector = (RNG.integers(-4, 5, shape).astype(np.float32) for shape in ((3, 4, 2), (4,)))
    made = import_graph_json(write_graph(tmp_path, matmul(matrices, vector, (3, 2), transpose_a=True)))
    for engine in ("reference", "onnxruntime"):
        got = convreg.onnx.run(made, {"0": matrices, "1": vector}, engine=engine)
        np.testing.assert_array_equal(got["2"], matrices.swapaxes(1, 2) @ vector)
