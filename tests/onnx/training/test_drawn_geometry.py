"""Gradients of operators with drawn geometry: the adjoint identity of linear ones, differences of the others."""

from __future__ import annotations

import numpy as np
import pytest
from gradient_models import with_loss
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

import convreg.onnx

DRAWN = settings(max_examples=25, deadline=None)


def gradients(nodes, feeds, wrt, constants=None, **options):
    """The weights of the output, and the gradients of the weighted sum."""
    alone = with_loss(nodes, {**feeds, "y.weight": np.ones(())}, ["y"], constants=constants)
    alone.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", 11, None))
    del alone.graph.node[len(nodes):]
    y = convreg.onnx.run(alone, {**feeds, "y.weight": np.ones(())}, engine="reference")["y"]
    feeds = {**feeds, "y.weight": np.random.default_rng(3).normal(size=y.shape)}
    model = with_loss(nodes, feeds, ["y"], constants=constants, **options)
    made = convreg.onnx.run(convreg.onnx.gradient(model, "loss", wrt), feeds, engine="reference")
    return y, feeds["y.weight"], {name: made[f"{name}_grad"] for name in wrt}


def assert_adjoint(nodes, feeds, name="x", constants=None, **options):
    """The node is linear in an operand: the sum of y times weights equals the sum of x times the gradient."""
    y, weights, made = gradients(nodes, feeds, [name], constants, **options)
    assert made[name].shape == feeds[name].shape
    np.testing.assert_allclose((made[name] * feeds[name]).sum(), (y * weights).sum(), rtol=1e-9, atol=1e-9)
    return weights, made[name]


def normal(*shape):
    return np.random.default_rng(sum(shape)).normal(size=shape)


@st.composite
def broadcast_shapes(draw):
    whole = draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    shapes = []
    for _ in range(2):
        start = draw(st.integers(0, len(whole)))
        shapes.append(tuple(extent if draw(st.booleans()) else 1 for extent in whole[start:]))
    return shapes


@DRAWN
@given(broadcast_shapes(), st.booleans())
def test_broadcasting(shapes, is_open):
    feeds = {"a": normal(*shapes[0]), "b": normal(*shapes[1]) + 3}
    y, weights, made = gradients([helper.make_node("Mul", ["a", "b"], ["y"])], feeds, ["a", "b"], open_batch=is_open)
    for name, other in (("a", "b"), ("b", "a")):
        product = weights * feeds[other]
        lead = tuple(range(y.ndim - feeds[name].ndim))
        summed = np.broadcast_to(product, y.shape).sum(lead)
        stretched = tuple(axis for axis, extent in enumerate(feeds[name].shape) if extent == 1)
        np.testing.assert_allclose(made[name], summed.sum(stretched, keepdims=True), rtol=1e-12, atol=1e-12)


@DRAWN
@given(st.data())
def test_slice(data):
    shape = tuple(data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
    axes = data.draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, max_size=len(shape), unique=True))
    bounds = st.integers(-8, 8)
    starts, ends = ([data.draw(bounds) for _ in axes] for _ in range(2))
    steps = [data.draw(st.integers(-3, 3).filter(bool)) for _ in axes]
    constants = {"s": np.array(starts), "e": np.array(ends), "a": np.array(axes), "d": np.array(steps)}
    node = helper.make_node("Slice", ["x", *constants], ["y"])
    _, fixed = assert_adjoint([node], {"x": normal(*shape)}, constants=constants)
    _, weights, made = gradients([node], {"x": normal(*shape), "s": constants["s"], "e": constants["e"],
                                          "d": constants["d"]}, ["x"], {"a": constants["a"]})
    assert weights.size or not made["x"].any()
    np.testing.assert_array_equal(made["x"], fixed)  # bounds that only a run tells


@DRAWN
@given(st.data())
def test_pad(data):
    shape = (2, *data.draw(st.lists(st.integers(3, 5), min_size=1, max_size=2)))
    mode = data.draw(st.sampled_from(["constant", "reflect", "edge", "wrap"]))
    pads = [[0, *(data.draw(st.integers(0, 2)) for _ in shape[1:])] for _ in range(2)]
    node = helper.make_node("Pad", ["x", "p"], ["y"], mode=mode)
    assert_adjoint([node], {"x": normal(*shape)}, constants={"p": np.array([*pads[0], *pads[1]])}, open_batch=True)


@DRAWN
@given(st.data())
def test_gather(data):
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    count = tuple(data.draw(st.lists(st.integers(1, 3), max_size=2)))
    size = int(np.prod(count)) if count else 1
    places = [data.draw(st.integers(-shape[axis], shape[axis] - 1)) for _ in range(size)]
    node = helper.make_node("Gather", ["x", "i"], ["y"], axis=axis)
    assert_adjoint([node], {"x": normal(*shape)}, constants={"i": np.array(places).reshape(count)})


@DRAWN
@given(st.data())
def test_pools(data):
    axes = data.draw(st.integers(1, 2))
    taps = [data.draw(st.integers(1, 3)) for _ in range(axes)]
    begin, end = ([data.draw(st.integers(0, tap - 1)) for tap in taps] for _ in range(2))
    options = {"kernel_shape": taps, "strides": [data.draw(st.integers(1, tap)) for tap in taps],
               "pads": [*begin, *end], "ceil_mode": data.draw(st.integers(0, 1))}
    feeds = {"x": normal(2, 2, *(data.draw(st.integers(3, 6)) for _ in range(axes)))}
    include = data.draw(st.integers(0, 1))
    average = helper.make_node("AveragePool", ["x"], ["y"], count_include_pad=include, **options)
    assert_adjoint([average], feeds, open_batch=True)
    assert_adjoint([helper.make_node("MaxPool", ["x"], ["y"], **options)], feeds, open_batch=True)  # linear piecewise


@pytest.mark.parametrize("version", [18, 21, 22])
@pytest.mark.parametrize("op_type", ["AveragePool", "MaxPool"])
def test_pools_without_windows_in_the_padding_at_the_end(op_type, version):
    """The number of windows decides what a mean divides by; onnx infers one too many before version 22."""
    nodes = [helper.make_node(op_type, ["x"], ["p"], kernel_shape=[2], strides=[2], pads=[1, 1], ceil_mode=1),
             helper.make_node("GlobalAveragePool", ["p"], ["y"])]
    x = np.arange(5.0).reshape(1, 1, 5)
    _, _, made = gradients(nodes, {"x": x}, ["x"], opset=version)
    _, weights, _ = gradients(nodes, {"x": x}, ["x"], opset=22)
    share = [1, 0.5, 0.5, 0.5, 0.5] if op_type == "AveragePool" else [1, 0, 1, 0, 1]
    np.testing.assert_allclose(made["x"].ravel(), weights.ravel() * share / 3, rtol=1e-12)


@DRAWN
@given(st.data())
def test_convolutions(data):
    axes, groups = data.draw(st.integers(1, 2)), data.draw(st.integers(1, 2))
    taps = [data.draw(st.integers(1, 3)) for _ in range(axes)]
    options = {name: [data.draw(st.integers(1, 2)) for _ in range(axes)] for name in ("strides", "dilations")}
    pads = [data.draw(st.integers(0, 2)) for _ in range(2 * axes)]
    extents = [data.draw(st.integers(5, 7)) for _ in range(axes)]
    feeds = {"x": normal(2, 2 * groups, *extents), "w": normal(2 * groups, 2, *taps)}
    for op_type in ("Conv", "ConvTranspose"):
        node = helper.make_node(op_type, ["x", "w"], ["y"], pads=pads, group=groups, **options)
        y, weights, made = gradients([node], feeds, ["x", "w"])
        for name in ("x", "w"):
            np.testing.assert_allclose((made[name] * feeds[name]).sum(), (y * weights).sum(), rtol=1e-9, atol=1e-9)
