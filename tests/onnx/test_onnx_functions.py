"""Bodies attached to our nodes: any runtime runs the file, and ours still prefers its kernels."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from amounts import examples
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


@examples(15, 40)
@given(convolutions(), SEEDS, LAYOUTS)
def test_single_gradients(case, seed, layouts):
    for call in (*single(case, filler(seed), layouts), *forward(case, filler(seed))):
        agree(call)


@examples(12, 25)
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


def without_meaning(made: onnx.ModelProto) -> onnx.ModelProto:
    """The model with bodies that compute zeros, so that results show whether a kernel or a body ran."""
    for function in made.functions:
        del function.node[:]
        function.node.extend(helper.make_node("Sub", ["x", "x"], [name]) for name in function.output if name)
    return made


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize(("op_type", "domain", "attributes"), [
    ("convolution_backward", "convreg.aten", {
        "stride": [1, 1], "padding": [0, 0], "dilation": [1, 1], "transposed": 0, "output_padding": [0, 0],
        "groups": 1, "output_mask": [1, 0, 0]}),
    ("ConvGrad", "com.microsoft", {"kernel_shape": [3, 3]})])
def test_onnxruntime_runs_nodes_with_bodies_on_our_kernels(op_type, domain, attributes, inside):
    pytest.importorskip("onnxruntime")
    node = helper.make_node(op_type, ["dy", "x", "w"], ["dx", "", ""], domain=domain, **attributes)
    outputs = [value("dx", [1, 1, 4, 4])]
    inputs = [value("dy", [1, 2, 2, 2]), value("x", [1, 1, 4, 4]), value("w", [2, 1, 3, 3])]
    if inside:
        node = helper.make_node("If", ["which"], ["dx"], then_branch=helper.make_graph([node], "yes", [], outputs),
                                else_branch=helper.make_graph([helper.make_node("Neg", ["x"], ["dx"])], "no", [],
                                                              outputs))
        inputs.append(value("which", [], bool))
    made = model([node], inputs, outputs)
    session = convreg.onnx.Session(without_meaning(attached(made)), engine="onnxruntime")
    assert (session.engine, session.engine_note) == ("onnxruntime", "")
    fill = filler(3)
    feeds = {"dy": fill((1, 2, 2, 2)), "x": fill((1, 1, 4, 4)), "w": fill((2, 1, 3, 3)), "which": np.array(True)}
    feeds = {name: feeds[name] for name in session.inputs}
    np.testing.assert_array_equal(session.run(feeds)["dx"], convreg.onnx.run(made, feeds, engine="reference")["dx"])


def calls(*functions: onnx.FunctionProto, imports=(("local", 1),)) -> onnx.ModelProto:
    """Functions of one input and one output, called one after the other by a model that imports what is said."""
    nodes = [helper.make_node(function.name, [f"v{index}"], [f"v{index + 1}"], domain="local")
             for index, function in enumerate(functions)]
    made = model(nodes, [value("v0", [1, 2, 4, 4])], [value(f"v{len(nodes)}", [1, 2, 4, 4])], functions=functions)
    del made.opset_import[:]
    made.opset_import.extend(helper.make_opsetid(*entry) for entry in imports)
    return made


def relu(name: str, version: int) -> onnx.FunctionProto:
    return helper.make_function("local", name, ["a"], ["b"], [helper.make_node("Relu", ["a"], ["b"])],
                                [helper.make_opsetid("", version)])


def through_weights(name: str, *imports: tuple[str, int]) -> onnx.FunctionProto:
    """A data gradient whose weights are a constant."""
    nodes = [helper.make_node("Constant", [], ["w"], value=onnx.numpy_helper.from_array(np.ones((2, 2, 3, 3), "f"))),
             data_gradient(["a", "w"], "b", dst_shape=[1, 2, 4, 4])]
    return helper.make_function("local", name, ["a"], ["b"], nodes, [helper.make_opsetid(*entry) for entry in imports])


@pytest.mark.parametrize("engine", ["onnxruntime", "reference"])
def test_a_function_may_import_what_the_model_does_not(engine):
    pytest.importorskip("onnxruntime")
    x = filler(4)((1, 2, 4, 4))
    both = calls(relu("F", 20), through_weights("G", ("", 20), ("convreg.onednn", 1)))
    convreg.onnx.check(both)
    expected = convreg.onnx.run(convreg.onnx.lower(both), {"v0": x}, engine="onnxruntime")["v2"]
    np.testing.assert_array_equal(convreg.onnx.run(both, {"v0": x}, engine=engine)["v2"], expected)
    assert [entry.domain for entry in both.opset_import] == ["local"]  # the caller's model is left as it was
    twice = convreg.onnx.gradient(calls(relu("F", 20), relu("G", 20)), "v2", ["v0"])
    results = convreg.onnx.run(twice, {"v0": x}, engine=engine)
    np.testing.assert_array_equal(results["v0_grad"], (x > 0).astype(np.float32))


def test_functions_that_import_other_versions_are_named():
    made = calls(relu("F", 20), through_weights("G", ("", 18), ("convreg.onednn", 1)))
    with pytest.raises(GraphError, match="function local::G has convreg nodes and cannot be inlined: function "
                                         "local::G imports version 18 of domain '', and function local::F imports "
                                         "version 20"):
        convreg.onnx.lower(made)
    x = filler(4)((1, 2, 4, 4))
    assert convreg.onnx.run(made, {"v0": x}, engine="reference")["v2"].shape == x.shape
