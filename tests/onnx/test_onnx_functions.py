"""Bodies attached to our nodes: any runtime runs the file, and ours still prefers its kernels."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from drawn import convolutions, dyadic, normal
from gradient_calls import forward, single, together
from graphs import data_gradient, model, value
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, inliner
from onnx.reference import ReferenceEvaluator
from releases import not_before
from runtimes import onnxruntime_run, openvino_run

import convreg
import convreg.onnx
from convreg import GraphError
from convreg.formats import FORMATS

SEEDS = st.integers(0, 2**32 - 1)
LAYOUTS = st.tuples(st.sampled_from(["NCX", "NXC"]), st.sampled_from(["OIX", "XIO"]))
MASKS = st.tuples(st.booleans(), st.booleans(), st.booleans()).filter(any)
DY, W = value("dy", [1, 4, 8, 8]), value("w", [4, 3, 3, 3])


def attached(made: onnx.ModelProto) -> onnx.ModelProto:
    """The model with bodies, checked; its nodes are the same but for their overload."""
    result = convreg.onnx.attach_functions(made)
    onnx.checker.check_model(result, full_check=True)
    assert len(result.graph.node) == len(made.graph.node)
    for old, new in zip(made.graph.node, result.graph.node, strict=True):
        assert (old.domain, old.op_type, old.input, old.output) == (new.domain, new.op_type, new.input, new.output)
        assert {entry.name for entry in old.attribute} == {entry.name for entry in new.attribute}
    return result


def agree(call, run=onnxruntime_run) -> None:
    made = call.model
    results = run(attached(made), call.feeds)
    for name, expected in convreg.onnx.run(made, call.feeds).items():
        assert results[name].dtype == expected.dtype
        np.testing.assert_array_equal(results[name], expected, err_msg=str(call))


def filler(seed, make=dyadic, dtype=np.float32):
    rng = np.random.default_rng(seed)
    return lambda shape: make(rng, shape, dtype)


@settings(max_examples=40)
@given(convolutions(), SEEDS, LAYOUTS)
def test_single_gradients(case, seed, layouts):
    for call in (*single(case, filler(seed), layouts), *forward(case, filler(seed))):
        agree(call)


@settings(max_examples=25)
@given(convolutions(symmetric=True), SEEDS, MASKS, st.booleans(), st.sampled_from(["float32", "float16", "bfloat16"]))
def test_gradients_together(case, seed, mask, transposed, name):
    for call in together(case, filler(seed, dtype=FORMATS[name].dtype), mask, transposed):
        agree(call)


@settings(max_examples=8)
@given(convolutions(), SEEDS, LAYOUTS)
def test_openvino_after_inlining(case, seed, layouts):
    for call in single(case, filler(seed), layouts):
        agree(call, lambda made, feeds: openvino_run(inliner.inline_local_functions(made), feeds))


@settings(max_examples=15)
@given(convolutions().filter(lambda case: case.groups == 1), SEEDS, LAYOUTS)
def test_onnxs_own_evaluator(case, seed, layouts):
    """Without groups: onnx's ConvTranspose fails with them."""
    def run(made, feeds):
        return dict(zip([entry.name for entry in made.graph.output], ReferenceEvaluator(made).run(None, feeds),
                        strict=True))

    for call in single(case, filler(seed), layouts):
        agree(call, run)


@settings(max_examples=15)
@given(convolutions(), SEEDS)
def test_our_kernels_go_before_the_bodies(case, seed):
    """Normal numbers: other orders of summation would show."""
    for call in single(case, filler(seed, normal)):
        expected = convreg.get(call.name)(*call.tensors, **call.arguments)
        (result,) = convreg.onnx.run(attached(call.model), call.feeds).values()
        np.testing.assert_array_equal(result, expected)


def several() -> onnx.ModelProto:
    """Three nodes that share two bodies, one of them in a branch."""
    branches = [helper.make_graph([data_gradient(["dy", "w"], f"{name}_dx", name, dst_shape=[1, 3, 8, 8])], name, [],
                                  [value(f"{name}_dx", [1, 3, 8, 8])]) for name in ("left", "right")]
    return model(
        [helper.make_node("If", ["which"], ["chosen"], then_branch=branches[0], else_branch=branches[1]),
         data_gradient(["dy", "w"], "strided", "strided", dst_shape=[1, 3, 16, 16], strides=[2, 2])],
        [DY, W, value("which", [], bool)], [value("chosen", [1, 3, 8, 8]), value("strided", [1, 3, 16, 16])])


@not_before("onnxruntime", (1, 27), "ignores overloads of functions")
def test_equal_nodes_share_a_body_and_overloads_tell_others_apart():
    made = several()
    made.ir_version = 8
    result = attached(made)
    keys = [(function.domain, function.name, function.overload) for function in result.functions]
    assert keys == [("convreg.onednn", "ConvolutionBackwardData", overload) for overload in ("", "1")]
    assert result.ir_version == 10
    assert result.graph.node[1].overload == "1"
    fill = filler(8)
    feeds = {"dy": fill((1, 4, 8, 8)), "w": fill((4, 3, 3, 3)), "which": np.array(True)}
    expected = convreg.onnx.run(made, feeds)
    for name, array in onnxruntime_run(result, feeds).items():
        np.testing.assert_array_equal(array, expected[name])
    for name, array in openvino_run(inliner.inline_local_functions(result), feeds).items():
        np.testing.assert_array_equal(array, expected[name])


def test_one_body_needs_no_overload():
    made = model([data_gradient(["dy", "w"], dst_shape=[1, 3, 8, 8])], [DY, W], [value("dx", [None] * 4)])
    made.ir_version = 8
    result = attached(made)
    assert result.ir_version == 8
    assert [function.overload for function in result.functions] == [""]
    assert list(result.functions[0].attribute) == [entry.name for entry in made.graph.node[0].attribute]


def test_attaching_twice_changes_nothing():
    once = attached(several())
    assert convreg.onnx.attach_functions(once) == once


def test_lowering_takes_the_bodies_away():
    result = convreg.onnx.lower(attached(several()))
    assert not result.functions
    onnx.checker.check_model(result, full_check=True)


@pytest.mark.parametrize("batch", [0, 2])
def test_one_body_for_any_batch(batch):
    made = model([data_gradient(["dy", "w", "s"]), helper.make_node("Shape", ["x"], ["s"])][::-1],
                 [value("dy", ["N", 4, 8, 8]), W, value("x", ["N", 3, 8, 8])], [value("dx", [None] * 4)])
    fill = filler(9)
    feeds = {"dy": fill((batch, 4, 8, 8)), "w": fill((4, 3, 3, 3)), "x": fill((batch, 3, 8, 8))}
    np.testing.assert_array_equal(onnxruntime_run(attached(made), feeds)["dx"], convreg.onnx.run(made, feeds)["dx"])


def test_unknown_extents_are_named():
    made = model([data_gradient(["dy", "w"], dst_shape=[1, 3, 8, 8])], [value("dy", [1, 4, None, 8]), W],
                 [value("dx", [None] * 4)])
    with pytest.raises(GraphError, match="node 'gradient': every extent of diff_dst but the batch must be known"):
        convreg.onnx.attach_functions(made)
