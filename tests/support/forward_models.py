"""Small forward models of many kinds, written in ONNX's text form, with random parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import onnx.parser
from onnx import ModelProto, numpy_helper


class Forward(NamedTuple):
    """A network: the body of a graph from x (float or double, named T) to `logits`, or to a loss if it says so.

    `parameters` are shapes by name; `fixed` values are parameters that are not trained.
    """

    x: tuple[int, ...]
    body: str
    parameters: dict[str, tuple[int, ...]]
    fixed: Mapping[str, Any] = MappingProxyType({})



def norm(name: str, count: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}_s": (count,), f"{name}_b": (count,)}


HEAD = """
    pooled = GlobalAveragePool(last)
    flat = Flatten(pooled)
    logits = Gemm<transB=1>(flat, fc_w, fc_b)
"""


def head(channels: int) -> dict[str, tuple[int, ...]]:
    return {"fc_w": (5, channels), "fc_b": (5,)}


FORWARD = {
    "residual": Forward((3, 3, 12, 12), """
        c1 = Conv<pads=[1,1,1,1]>(x, w1, b1)
        n1 = BatchNormalization<training_mode=1, epsilon=0.001>(c1, n1_s, n1_b, mean, variance)
        r1 = Relu(n1)
        p1 = MaxPool<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]>(r1)
        c2 = Conv<pads=[1,1,1,1]>(p1, w2)
        n2, mean2, variance2 = BatchNormalization<training_mode=1>(c2, n2_s, n2_b, mean, variance)
        short = Conv<strides=[1,1]>(p1, w3)
        joined = Add(n2, short)
        last = Relu(joined)""" + HEAD,
        {"w1": (6, 3, 3, 3), "b1": (6,), "w2": (6, 6, 3, 3), "w3": (6, 6, 1, 1), **norm("n1", 6), **norm("n2", 6),
         **head(6)}, {"mean": np.zeros(6), "variance": np.ones(6)}),
    "depthwise": Forward((2, 4, 9, 9), """
        c1 = Conv<group=4, strides=[2,2], pads=[1,1,1,1]>(x, w1)
        a1 = HardSwish(c1)
        s0 = ReduceMean<keepdims=1>(a1, space)
        s1 = Conv(s0, se1, sb1)
        s2 = Relu(s1)
        s3 = Conv(s2, se2, sb2)
        gate = HardSigmoid<alpha=0.25>(s3)
        scaled = Mul(a1, gate)
        c2 = Conv(scaled, w2, b2)
        six = Constant<value_float=6.0>()
        six_like = CastLike(six, x)
        zero = Constant<value_float=0.0>()
        zero_like = CastLike(zero, x)
        last = Clip(c2, zero_like, six_like)""" + HEAD,
        {"w1": (4, 1, 3, 3), "se1": (2, 4, 1, 1), "sb1": (2,), "se2": (4, 2, 1, 1), "sb2": (4,), "w2": (6, 4, 1, 1),
         "b2": (6,), **head(6)}, {"space": np.array([2, 3])}),
    "unet": Forward((2, 2, 8, 12), """
        d1 = Conv<pads=[1,1,1,1]>(x, w1, b1)
        e1 = Relu(d1)
        e2 = MaxPool<kernel_shape=[2,2], strides=[2,2]>(e1)
        e3 = Conv<pads=[1,1,1,1]>(e2, w2)
        e4 = LeakyRelu<alpha=0.1>(e3)
        e5 = AveragePool<kernel_shape=[2,2], strides=[2,2]>(e4)
        u1 = ConvTranspose<strides=[2,2]>(e5, w3, b3)
        j1 = Concat<axis=1>(u1, e4)
        u2 = Resize<mode="linear", coordinate_transformation_mode="half_pixel", axes=[2,3]>(j1, , , sizes)
        j2 = Concat<axis=1>(u2, e1)
        maps = Conv<pads=[1,1,1,1]>(j2, w4)
        logits = Reshape(maps, flat_shape)""",
        {"w1": (3, 2, 3, 3), "b1": (3,), "w2": (4, 3, 3, 3), "w3": (4, 3, 2, 2), "b3": (3,), "w4": (5, 10, 3, 3)},
        {"sizes": np.array([8, 12]), "flat_shape": np.array([0, 5, -1])}),
    "convnext": Forward((2, 3, 8, 8), """
        c1 = Conv<strides=[2,2]>(x, w1, b1)
        c2 = Conv<group=4, pads=[1,1,1,1]>(c1, w2)
        t1 = Transpose<perm=[0,2,3,1]>(c2)
        n1 = LayerNormalization<axis=-1, epsilon=0.001>(t1, n1_s, n1_b)
        m1 = MatMul(n1, f1)
        a1 = Add(m1, fb1)
        g1 = Gelu<approximate="tanh">(a1)
        m2 = MatMul(g1, f2)
        s1 = Mul(m2, gamma)
        t2 = Transpose<perm=[0,3,1,2]>(s1)
        last = Add(t2, c1)""" + HEAD,
        {"w1": (4, 3, 2, 2), "b1": (4,), "w2": (4, 1, 3, 3), **norm("n1", 4), "f1": (4, 8), "fb1": (8,), "f2": (8, 4),
         "gamma": (4,), **head(4)}),
    "one_dimension": Forward((3, 4, 17), """
        p0 = Pad<mode="reflect">(x, pads)
        c1 = Conv<group=2, dilations=[2], strides=[2], pads=[1,2]>(p0, w1, b1)
        a1 = Elu<alpha=1.2>(c1)
        c2 = Conv<auto_pad="SAME_UPPER", strides=[2]>(a1, w2)
        a2 = Softplus(c2)
        last = MaxPool<kernel_shape=[2]>(a2)""" + HEAD,
        {"w1": (6, 2, 3), "b1": (6,), "w2": (6, 6, 3), **head(6)}, {"pads": np.array([0, 0, 2, 0, 0, 1])}),
    "three_dimensions": Forward((2, 2, 5, 4, 6), """
        c1 = Conv<group=2, dilations=[2,1,1], pads=[2,1,1,2,1,1]>(x, w1, b1)
        a1 = Tanh(c1)
        last = ConvTranspose<strides=[2,1,2], output_padding=[1,0,0]>(a1, w2)""" + HEAD,
        {"w1": (4, 1, 3, 3, 3), "b1": (4,), "w2": (4, 3, 2, 2, 2), **head(3)}),
    "group_norm": Forward((2, 4, 6, 6), """
        c1 = Conv<pads=[1,1,1,1]>(x, w1)
        r1 = Reshape(c1, grouped)
        i1 = InstanceNormalization<epsilon=0.001>(r1, ones, zeros)
        r2 = Shape(c1)
        r3 = Reshape(i1, r2)
        m1 = Mul(r3, n1_s)
        n1 = Add(m1, n1_b)
        s1 = Sigmoid(n1)
        last = Mul(n1, s1)""" + HEAD,
        {"w1": (4, 4, 3, 3), "n1_s": (4, 1, 1), "n1_b": (4, 1, 1), **head(4)},
        {"grouped": np.array([0, 2, -1]), "ones": np.ones(2), "zeros": np.zeros(2)}),
    "attention_gate": Forward((2, 3, 4, 4), """
        c1 = Conv(x, w1)
        places = Reshape(c1, rows)
        keys = Transpose<perm=[0,2,1]>(places)
        q = MatMul(keys, wq)
        k = MatMul(keys, wk)
        kt = Transpose<perm=[0,2,1]>(k)
        scores = MatMul(q, kt)
        weights = Softmax<axis=-1>(scores)
        mixed = MatMul(weights, keys)
        back = Transpose<perm=[0,2,1]>(mixed)
        shape = Shape(c1)
        image = Reshape(back, shape)
        g0 = Conv(x, wg, bg)
        gate = Sigmoid(g0)
        last = Mul(image, gate)""" + HEAD,
        {"w1": (4, 3, 1, 1), "wq": (4, 3), "wk": (4, 3), "wg": (1, 3, 1, 1), "bg": (1,), **head(4)},
        {"rows": np.array([0, 4, -1])}),
    "branches": Forward((2, 4, 7, 7), """
        a, b = Split<axis=1>(x, parts)
        c1 = Conv<pads=[1,1,1,1]>(a, w1)
        c2 = Conv<pads=[2,2,2,2], dilations=[2,2]>(b, w2)
        s1 = Slice(c1, from_, to, axes, steps)
        s2 = Slice(c2, from_, to, axes, steps)
        j1 = Concat<axis=1>(s1, s2, s1)
        best = ReduceMax<keepdims=1>(j1, axes)
        last = Sub(j1, best)""" + HEAD,
        {"w1": (3, 2, 3, 3), "w2": (2, 2, 3, 3), **head(8)},
        {"parts": np.array([2, 2]), "from_": np.array([0, -1]), "to": np.array([6, -100]), "axes": np.array([2, 3]),
         "steps": np.array([1, -2])}),
    "shared": Forward((2, 3, 6, 6), """
        c1 = Conv<pads=[1,1,1,1]>(x, w1, b1)
        a1 = Relu(c1)
        c2 = Conv<pads=[1,1,1,1]>(a1, w1, b1)
        a2 = Relu(c2)
        scale = ReduceMean<keepdims=1>(w1, every)
        last = Mul(a2, scale)""" + HEAD,
        {"w1": (3, 3, 3, 3), "b1": (3,), **head(3)}, {"every": np.array([0, 1, 2, 3])}),
}
"""Networks by name."""


def build(name: str, dtype: Any = np.float32, seed: int = 0) -> tuple[ModelProto, dict[str, np.ndarray]]:
    """Return a network with the mean cross-entropy of its logits, an open batch, and inputs for it."""
    network = FORWARD[name]
    kind = {"float32": "float", "float64": "double"}[np.dtype(dtype).name]
    rng = np.random.default_rng(seed)
    dims = ", ".join(map(str, network.x[1:]))
    body = network.body
    x = rng.normal(size=network.x).astype(dtype)
    spatial = math.prod(network.x[2:]) if "flat_shape" in network.fixed else None
    labels = f"batch, {spatial}" if spatial else "batch"
    model = onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["": 20]>
        {name} ({kind}[batch, {dims}] x, int64[{labels}] target) => ({kind} loss) {{
            {body}
            loss = SoftmaxCrossEntropyLoss(logits, target)
        }}""")
    for index, node in enumerate(model.graph.node):
        node.name = f"node{index}_{node.op_type}"
    for parameter, shape in network.parameters.items():
        fan = math.prod(shape[1:]) if len(shape) > 1 else 1
        value = rng.normal(size=shape) / math.sqrt(fan) if len(shape) > 1 else rng.uniform(0.5, 1.5, size=shape)
        model.graph.initializer.append(numpy_helper.from_array(value.astype(dtype), parameter))
    for parameter, value in network.fixed.items():
        array = np.asarray(value)
        model.graph.initializer.append(numpy_helper.from_array(
            array.astype(dtype) if array.dtype.kind == "f" else array, parameter))
    shape = (network.x[0], spatial) if spatial else (network.x[0],)
    return model, {"x": x, "target": rng.integers(0, 5, size=shape)}


