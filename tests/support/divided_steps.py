"""Step models and batches for tests of divided steps."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import onnx.parser
from forward_models import FORWARD, build
from onnx import ModelProto, numpy_helper

import convreg.onnx

HEADER = '<ir_version: 10, opset_import: ["": 20]>'

BODIES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "axes of the batch": ("float[N,6] x, int64[N] target", """
        turned = Transpose<perm=[1,0]>(x)
        left = MatMul(w1, turned)
        back = Transpose<perm=[1,0]>(left)
        first = Slice(back, zero, one, zero)
        middle = ReduceMean<keepdims=1>(back, zero)
        last = CumSum(back, axis)
        joined = Concat<axis=0>(first, middle, last)
        chosen = Slice(joined, two, far, zero)
        added = Add(chosen, back)
        best = Softmax<axis=0>(added)
        logits = MatMul(best, w2)""",
        {"w1": (4, 6), "w2": (4, 5), "zero": [0], "one": [1], "two": [2], "far": [2**62], "axis": 0}),
    "embedding": ("int64[N,3] x, int64[N] target", """
        rows = Gather(table, x)
        flat = Reshape(rows, shape)
        half = MatMul(flat, w1)
        bent = Tanh(half)
        stacked = Reshape(bent, pairs)
        wide = Mul(stacked, w2)
        again = Reshape(wide, shape2)
        logits = Gemm(again, w3)""",
        {"table": (7, 4), "w1": (12, 6), "w2": (3,), "w3": (6, 5), "shape": [0, 12], "pairs": [-1, 3],
         "shape2": [-1, 6]}),
    "places": ("float[N,2,8,8] x, int64[N] target", """
        c1 = Conv<pads=[1,1,1,1]>(x, w1)
        p1 = MaxPool<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]>(c1)
        u1 = ConvTranspose<strides=[2,2]>(p1, w2, b2)
        p2 = MaxPool<kernel_shape=[2,2], strides=[2,2]>(u1)
        a2 = AveragePool<kernel_shape=[2,2], pads=[1,1,1,1], count_include_pad=1>(p2)
        m2 = GlobalMaxPool(a2)
        f2 = Flatten(m2)
        logits = Gemm<transB=1>(f2, w3, b3)""",
        {"w1": (3, 2, 3, 3), "w2": (3, 4, 2, 2), "b2": (4,), "w3": (5, 4), "b3": (5,)}),
    "places of rows": ("float[N,4,6,6] x, int64[N] target", """
        apart = Reshape(x, halves)
        c1 = Conv(apart, w1)
        p1 = MaxPool<kernel_shape=[2,2], strides=[1,1]>(c1)
        again = Reshape(p1, whole)
        flat = Flatten(again)
        logits = MatMul(flat, w2)""",
        {"w1": (3, 2, 2, 2), "w2": (96, 5), "halves": [-1, 2, 6, 6], "whole": [-1, 6, 4, 4]}),
    "squeezed": ("float[N,2,8,8] x, int64[N] target", """
        c1 = Conv(x, w1)
        p1 = GlobalAveragePool(c1)
        logits = Squeeze(p1)""",
        {"w1": (5, 2, 3, 3)}),
    "batch norm of rows": ("float[N,6] x, int64[N] target", """
        h1 = MatMul(x, w1)
        n1, m1, v1 = BatchNormalization<training_mode=1>(h1, s, b, mean, variance)
        r1 = Relu(n1)
        logits = MatMul(r1, w2)""",
        {"w1": (6, 4), "s": (4,), "b": (4,), "mean": np.zeros(4, np.float32), "variance": np.ones(4, np.float32),
         "w2": (4, 5)}),
}
"""Inputs, body and parameters of further networks to `logits`; shapes of parameters, or their values."""


def step_of(name: str, **options: Any) -> ModelProto:
    """Return a step of one of the networks here or in `forward_models`."""
    options = {"optimizer": "momentum", "learning_rate": 0.05, **options}
    if name in FORWARD:
        return convreg.onnx.training_step(build(name)[0], loss=None, **options)
    inputs, body, values = BODIES[name]
    data = inputs.split(", int64[N] target")[0]
    rng = np.random.default_rng(0)
    model = onnx.parser.parse_model(f"{HEADER} net ({data}) => (float[N,5] logits) {{ {body} }}")
    for key, value in values.items():
        array = rng.normal(size=value).astype(np.float32) if isinstance(value, tuple) else np.asarray(value)
        model.graph.initializer.append(numpy_helper.from_array(array, key))
    return convreg.onnx.training_step(model, **options)


def batch(name: str, samples: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Return a batch for a step of `step_of`."""
    rng = np.random.default_rng([samples, seed])
    if name in FORWARD:
        feeds = build(name)[1]
        return {"x": rng.normal(size=(samples, *feeds["x"].shape[1:])).astype(np.float32),
                "target": rng.integers(0, 5, size=(samples, *feeds["target"].shape[1:]))}
    shape = {"places": (2, 8, 8), "embedding": (3,), "places of rows": (4, 6, 6), "squeezed": (2, 8, 8)}.get(name, (6,))
    x = rng.integers(0, 7, (samples, *shape)) if name == "embedding" else rng.normal(size=(samples, *shape))
    return {"x": x if name == "embedding" else x.astype(np.float32), "target": rng.integers(0, 5, samples)}


def bits(trainer: convreg.onnx.Trainer) -> str:
    """Return a hash of everything that a trainer carries."""
    digest = hashlib.sha256()
    for name, array in sorted(trainer.state.items()):
        digest.update(name.encode() + array.tobytes())
    return digest.hexdigest()
