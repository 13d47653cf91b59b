"""Small forward models with weights, as a framework would export them."""

from __future__ import annotations

import numpy as np
from graphs import value
from onnx import ModelProto, helper, numpy_helper


def classifier(seed: int = 0, *, momentum: float = 0.9, dropout: bool = False, width: int = 4) -> ModelProto:
    """Images [N, 3, 6, 6] to 5 classes: convolutions, a batch normalisation in training mode, a dense layer."""
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)

    weights = {
        "conv1.weight": normal(width, 3, 3, 3), "bn1.weight": 1 + 0.1 * normal(width), "bn1.bias": normal(width),
        "bn1.running_mean": np.zeros(width, np.float32), "bn1.running_var": np.ones(width, np.float32),
        "conv2.weight": normal(6, width, 3, 3), "conv2.bias": normal(6),
        "fc.weight": normal(5, 6), "fc.bias": normal(5),
    }
    nodes = [
        helper.make_node("Conv", ["x", "conv1.weight"], ["c1"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c1", "bn1.weight", "bn1.bias", "bn1.running_mean", "bn1.running_var"],
                         ["b1", "b1_output_1", "b1_output_2"], training_mode=1, momentum=momentum),
        helper.make_node("Relu", ["b1"], ["r1"]),
        helper.make_node("Conv", ["r1", "conv2.weight", "conv2.bias"], ["c2"], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["c2"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        *([helper.make_node("Dropout", ["f", "ratio", "training"], ["d", "mask"])] if dropout else []),
        helper.make_node("Gemm", ["d" if dropout else "f", "fc.weight", "fc.bias"], ["y"], transB=1),
    ]
    if dropout:
        weights |= {"ratio": np.array(0.5, np.float32), "training": np.array(True)}
    return built(nodes, {"x": ["N", 3, 6, 6]}, {"y": ["N", 5]}, weights)


def line(*, dtype: type = np.float32, outputs: int = 1) -> ModelProto:
    """One matrix product: [N, 2] to [N, outputs]."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Add", ["m", "b"], ["y"])]
    weights = {"w": np.arange(2.0 * outputs).reshape(2, outputs).astype(dtype), "b": np.zeros(outputs, dtype)}
    return built(nodes, {"x": ["N", 2]}, {"y": ["N", outputs]}, weights, dtype=dtype)


def built(nodes, inputs, outputs, weights, *, dtype: type = np.float32) -> ModelProto:
    """A model in the versions that exporters write."""
    graph = helper.make_graph(
        list(nodes), "forward", [value(name, shape, dtype) for name, shape in inputs.items()],
        [value(name, shape, dtype) for name, shape in outputs.items()],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()])
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 20)])


def batch_of(count: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Images and labels for `classifier`."""
    rng = np.random.default_rng(seed)
    return {"x": rng.standard_normal((count, 3, 6, 6)).astype(np.float32), "target": rng.integers(0, 5, count)}
