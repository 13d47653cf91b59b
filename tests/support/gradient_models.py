"""Models of single nodes under a loss with random weights, and their gradients by central differences in float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

import convreg.onnx

Arrays = dict[str, np.ndarray]


def with_loss(nodes: Sequence[NodeProto], feeds: Mapping[str, Any], outputs: Sequence[str], *, opset: int = 20,
              constants: Mapping[str, Any] | None = None, open_batch: bool = False) -> ModelProto:
    """The nodes, and the loss: the sum over all elements of the outputs, each times an input ``<output>.weight``.

    With `open_batch` the first extent of every input of rank 2 and more is a symbol, the same for equal numbers.
    """
    products = [helper.make_node("Mul", [name, f"{name}.weight"], [f"{name}.product"]) for name in outputs]
    sums = [helper.make_node("ReduceSum", [f"{name}.product"], [f"{name}.sum"], keepdims=0) for name in outputs]
    total = helper.make_node("Sum", [f"{name}.sum" for name in outputs], ["loss"])

    def shape(array: np.ndarray) -> list[Any]:
        return [f"n{array.shape[0]}", *array.shape[1:]] if open_batch and array.ndim > 1 else list(array.shape)

    inputs = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), shape(array))
              for name, array in feeds.items()]
    held = [numpy_helper.from_array(np.asarray(array), name) for name, array in (constants or {}).items()]
    graph = helper.make_graph([*nodes, *products, *sums, total], "rule", inputs,
                              [helper.make_tensor_value_info("loss", TensorProto.DOUBLE, [])], held)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("convreg", 1)]
    return helper.make_model(graph, ir_version=10, opset_imports=imports)


def weighted(nodes: Sequence[NodeProto], feeds: Mapping[str, np.ndarray], outputs: Sequence[str], *, opset: int = 20,
             constants: Mapping[str, Any] | None = None, seed: int = 0) -> Arrays:
    """The feeds with random weights for every output; a run of the nodes alone tells the shapes."""
    alone = helper.make_model(helper.make_graph(
        list(nodes), "alone",
        [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
         for name, array in feeds.items()],
        [helper.make_tensor_value_info(name, TensorProto.DOUBLE, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in (constants or {}).items()]),
        ir_version=10, opset_imports=[helper.make_opsetid("", opset)])
    made = convreg.onnx.run(alone, dict(feeds), engine="reference")
    rng = np.random.default_rng(seed)
    return {**feeds, **{f"{name}.weight": rng.normal(size=made[name].shape) for name in outputs}}


def differences(model: ModelProto, feeds: Mapping[str, np.ndarray], name: str, step: float = 1e-6,
                most: int = 12, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Central differences of the loss by some elements of an input, and along one random direction.

    Returns the places with the derivatives by them as rows ``(place, derivative)``, then the direction and its
    derivative as one row ``(*direction, derivative)``.
    """
    session = convreg.onnx.Session(model, engine="reference")
    rng = np.random.default_rng(seed)
    flat = feeds[name].ravel()
    places = rng.permutation(flat.size)[:most]

    def along(direction: np.ndarray) -> float:
        ends = []
        for sign in (1, -1):
            moved = (flat + sign * step * direction).reshape(feeds[name].shape)
            ends.append(float(session.run({**feeds, name: moved})["loss"]))
        return (ends[0] - ends[1]) / (2 * step)

    units = np.eye(flat.size)[places] if flat.size <= 4096 else np.stack(
        [np.bincount([place], minlength=flat.size) for place in places]).astype(float)
    rows = np.array([[place, along(unit)] for place, unit in zip(places, units, strict=True)])
    direction = rng.normal(size=flat.size)
    return rows, np.array([*direction, along(direction)])


def assert_gradient(gradient: np.ndarray, model: ModelProto, feeds: Mapping[str, np.ndarray], name: str,
                    tolerance: float = 1e-6, step: float = 1e-6, most: int = 12) -> None:
    """Compare the gradient of the loss with differences of the forward model."""
    assert gradient.shape == feeds[name].shape
    assert gradient.dtype == feeds[name].dtype
    rows, directed = differences(model, feeds, name, step, most)
    scale = max(1.0, float(np.abs(gradient).max(initial=0)))
    np.testing.assert_allclose(gradient.ravel()[rows[:, 0].astype(int)], rows[:, 1], rtol=0, atol=tolerance * scale)
    norm = scale * np.sqrt(gradient.size)
    np.testing.assert_allclose(gradient.ravel() @ directed[:-1], directed[-1], rtol=0, atol=tolerance * norm)
