"""Preparation of forward models: constants, symbols, versions, the mode of batch normalisation, and refusals."""

import numpy as np
import onnx.parser
import pytest
from forward_models import FORWARD, build
from onnx import ModelProto, TensorProto, helper, numpy_helper

import convreg.onnx
from convreg.errors import GraphError
from convreg.onnx.training.batch_norm import running_statistics
from convreg.onnx.training.prepare import prepare
from convreg.onnx.training.reverse_pass import add_gradients, dependent
from convreg.onnx.training.tidy import without_dead_nodes


def parsed(body: str, inputs: str = "float[N,3,8] x", outputs: str = "float y", initial: str = "", opset: int = 20):
    return onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": {opset}, "other": 1]> g ({inputs}) => ({outputs}) {initial} {{ {body} }}')


def op_types(model):
    """The nodes that are left when those that nobody reads are gone."""
    without_dead_nodes(model.graph)
    return [node.op_type for node in model.graph.node]


def test_a_chain_of_shapes_into_pad_is_folded_with_an_open_batch():
    """What torch.onnx.export writes for F.pad of a tensor with an open batch."""
    model = parsed("""
        given = Constant<value_ints=[1, 2]>()
        shape = Shape(x)
        rank = Shape(shape)
        two = Constant<value_ints=[2]>()
        all = Mul(rank, two)
        have = Shape(given)
        rest = Sub(all, have)
        zeros = ConstantOfShape<value = int64[1] {0}>(rest)
        joined = Concat<axis=0>(given, zeros)
        pairs_shape = Constant<value_ints=[-1, 2]>()
        pairs = Reshape(joined, pairs_shape)
        start = Constant<value_ints=[-1]>()
        end = Constant<value_ints=[-9223372036854775807]>()
        axis = Constant<value_ints=[0]>()
        back = Slice(pairs, start, end, axis, start)
        turned = Transpose<perm=[1,0]>(back)
        flat_shape = Constant<value_ints=[-1]>()
        pads = Reshape(turned, flat_shape)
        padded = Pad(x, pads)
        y = ReduceSum<keepdims=0>(padded)""")
    ready = prepare(model)
    assert op_types(ready) == ["Pad", "ReduceSum"]
    folded = next(tensor for tensor in ready.graph.initializer if tensor.name == ready.graph.node[0].input[1])
    assert numpy_helper.to_array(folded).tolist() == [0, 0, 1, 0, 0, 2]
    made = convreg.onnx.run(convreg.onnx.gradient(model, "y", ["x"]), {"x": np.ones((2, 3, 8), np.float32)})
    assert (made["x_grad"] == 1).all()


def test_known_extents_of_a_shape_are_folded_beside_an_open_one():
    model = parsed("""
        shape = Shape(x)
        one = Constant<value_int=1>()
        channels = Gather(shape, one)
        axes = Constant<value_ints=[0]>()
        many = Unsqueeze(channels, axes)
        minus = Constant<value_ints=[-1]>()
        target = Concat<axis=0>(minus, many)
        rows = Reshape(x, target)
        y = ReduceSum<keepdims=0>(rows)""")
    assert op_types(prepare(model)) == ["Reshape", "ReduceSum"]


def test_parameters_are_never_folded():
    model = parsed("t = Transpose(w) m = MatMul(x, t) y = ReduceSum<keepdims=0>(m)", initial="<float[2,8] w = {"
                   + ",".join(["1"] * 16) + "}>")
    assert op_types(prepare(model)) == ["Transpose", "MatMul", "ReduceSum"]
    made = convreg.onnx.run(convreg.onnx.gradient(model, "y", ["w"]), {"x": np.ones((4, 3, 8), np.float32)})
    assert (made["w_grad"] == 12).all()


def test_contradicting_symbols_are_dropped():
    model = parsed("r = Relu(x) y = ReduceSum<keepdims=0>(r)")
    model.graph.value_info.append(helper.make_tensor_value_info("r", TensorProto.FLOAT, ["N", "N", 8]))
    made = convreg.onnx.run(convreg.onnx.gradient(model, "y", ["x"]), {"x": np.ones((2, 3, 8), np.float32)})
    assert made["x_grad"].shape == (2, 3, 8)


def test_older_versions_are_converted():
    model = parsed("m = ReduceMean<axes=[2], keepdims=0>(x) y = ReduceSum<keepdims=0>(m)", opset=13)
    del model.opset_import[1:]
    made = convreg.onnx.gradient(model, "y", ["x"])
    assert made.opset_import[0].version == 18
    assert np.allclose(convreg.onnx.run(made, {"x": np.ones((2, 3, 8), np.float32)})["x_grad"], 1 / 8)


def test_a_converted_model_keeps_what_is_noted_about_it():
    model = parsed("s = MatMul(x, w) y = ReduceSum<keepdims=0>(s)", "float[N,8] x", "float y",
                   "<float[8,1] w = {1,2,3,4,5,6,7,8}>", opset=13)
    del model.opset_import[1:]
    graph = model.graph
    for noted in (graph, graph.input[0], graph.output[0], graph.initializer[0], graph.node[0]):
        noted.doc_string = "words"
        noted.metadata_props.add(key="of", value="it")
    graph.quantization_annotation.add(tensor_name="x")
    made = prepare(model).graph
    assert made.quantization_annotation == graph.quantization_annotation
    assert [entry.name for entry in made.initializer[:1]] == ["w"]
    assert made.node[0].op_type == "MatMul"
    for noted in (made, made.input[0], made.output[0], made.initializer[0], made.node[0]):
        assert noted.doc_string == "words"
        assert [(entry.key, entry.value) for entry in noted.metadata_props] == [("of", "it")]


def old_batch_norm(outputs: str, opset: int, more: str = "") -> ModelProto:
    model = parsed(f"{outputs} = BatchNormalization<momentum=0.75>(x, s, b, mean, var) {more}", "float[N,2,3] x",
                   "float[N,2,3] y", "<float[2] s = {1,2}, float[2] b = {0,1}, float[2] mean = {0,1}, "
                   "float[2] var = {1,2}>", opset)
    del model.opset_import[1:]
    return model


@pytest.mark.parametrize("opset", [7, 9, 13])
@pytest.mark.parametrize("outputs", ["y, m, v", "y, m, v, saved_m, saved_v"])
def test_outputs_state_the_mode_of_older_batch_normalisations(outputs, opset):
    """Before version 14 a node with further outputs is one in training; torch.onnx.export writes all five."""
    step = convreg.onnx.training_step(old_batch_norm(outputs, opset), loss="mse")
    assert convreg.onnx.StepRecord.of(step).statistics == ["mean", "var"]
    x = np.random.default_rng(0).standard_normal((4, 2, 3)).astype(np.float32)
    done = convreg.onnx.run(step, {"x": x, "target": np.zeros_like(x)})
    mean, variance = x.mean((0, 2)), x.var((0, 2))
    scaled = (x - mean[:, None]) / np.sqrt(variance + 1e-5)[:, None]
    np.testing.assert_allclose(done["y"], scaled * [[1], [2]] + [[0], [1]], atol=1e-5)
    np.testing.assert_allclose(done["mean.next"], 0.75 * np.array([0, 1]) + 0.25 * mean, atol=1e-6)
    np.testing.assert_allclose(done["var.next"], 0.75 * np.array([1, 2]) + 0.25 * variance, atol=1e-6)
    exported = convreg.onnx.Trainer(step, engine="reference").export()
    [node] = exported.graph.node
    assert list(node.output) == ["y"]


def test_an_older_batch_normalisation_of_one_output_is_frozen():
    step = convreg.onnx.training_step(old_batch_norm("y", 13), loss="mse")
    assert convreg.onnx.StepRecord.of(step).statistics == []


def test_saved_statistics_that_are_read_are_refused():
    model = old_batch_norm("z, m, v, saved_m, saved_v", 13, "a = ReduceSum(saved_m) y = Add(z, a)")
    with pytest.raises(GraphError, match=r"BatchNormalization node that makes 'z'.*'saved_m' is a saved statistic"):
        prepare(model)


@pytest.mark.parametrize("dtype", ["float16", "float", "double"])
@pytest.mark.parametrize(("node", "wanted"), [
    ("Clip<min=1.0, max=6.0>", [0, 0, 0, 4, 0]), ("Clip<max=6.0>", [-2, 0, 2, 4, 0]), ("Clip", [-2, 0, 2, 4, 6]),
    ("Pad<pads=[0, 1, 0, 1], value=2.0>", [-2, 0, 2, 4, 6]), ("Pad<pads=[0, 1, 0, 1]>", [-2, 0, 2, 4, 6]),
])
def test_bounds_that_were_attributes_have_the_type_of_the_data(node, wanted, dtype):
    """Clip and Pad below version 11: onnx's converter makes float32 constants of their numbers."""
    model = parsed(f"s = Mul(x, x) r = {node}(s) y = ReduceSum<keepdims=0>(r)", f"{dtype}[1,5] x", f"{dtype} y",
                   opset=10)
    del model.opset_import[1:]
    kind = {"float16": np.float16, "float": np.float32, "double": np.float64}[dtype]
    feeds = {"x": np.array([[-1, 0, 1, 2, 3]], kind)}
    made = convreg.onnx.run(convreg.onnx.gradient(model, "y", ["x"]), feeds)
    assert made["x_grad"].dtype == kind
    assert made["x_grad"].tolist() == [wanted]
    assert made["y"] == convreg.onnx.run(model, feeds)["y"]


@pytest.mark.parametrize(("mode", "wanted"), [
    ("nearest", [0, 0, 0, 1, 1, 2, 2, 2, 3, 3]), ("linear", [0, 0.4, 0.8, 1.2, 1.6, 2, 2.4, 2.8, 3, 3])])
@pytest.mark.parametrize(("node", "opset"), [
    ("Upsample<mode='{}', scales=[1.0, 1.0, 2.5]>(x)", 7), ("Upsample<mode='{}'>(x, scales)", 9),
    ("Resize<mode='{}'>(x, scales)", 10)])
def test_older_resampling_starts_at_the_first_element(node, opset, mode, wanted):
    """Before version 11; from then on the default is the middle of elements, which onnx's converter overlooks."""
    model = parsed("r = " + node.format(mode).replace("'", '"') + " y = ReduceSum<keepdims=0>(r)", "float[1,1,4] x",
                   "float y, float[1,1,10] r", "<float[3] scales = {1.0, 1.0, 2.5}>" if opset > 8 else "", opset)
    del model.opset_import[1:]
    feeds = {"x": np.arange(4, dtype=np.float32).reshape(1, 1, 4)}
    made = convreg.onnx.run(convreg.onnx.gradient(model, "y", ["x"]), feeds)
    np.testing.assert_allclose(made["r"].ravel(), wanted, atol=1e-6)
    units = [convreg.onnx.run(convreg.onnx.gradient(model, "y", ["x"]), {"x": unit.reshape(1, 1, 4)})["y"]
             for unit in np.eye(4, dtype=np.float32)]
    np.testing.assert_allclose(made["x_grad"].ravel(), units, atol=1e-6)


def test_group_normalisation_keeps_the_shape():
    """onnx's inference leaves it open, and an output must have one."""
    model = parsed("a = GroupNormalization<num_groups=2>(x, s, b) c = Neg(a) "
                   "y = GroupNormalization<num_groups=1>(c, s, b)", "float[N,4,3] x", "float y",
                   "<float[4] s = {1,2,3,4}, float[4] b = {0,0,0,0}>", opset=21)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    step = convreg.onnx.gradient(model, "y", ["x", "c"])
    assert [[dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
            for value in step.graph.output] == [["N", 4, 3]] * 3
    made = convreg.onnx.run(step, {"x": np.arange(24, dtype=np.float32).reshape(2, 4, 3)})
    assert all(array.shape == (2, 4, 3) for array in made.values())


@pytest.mark.parametrize(("declared", "wrt", "said"), [
    (False, ["x"], "output 'y' has no shape"),
    (True, ["x", "r"], "output 'r_grad' has no shape"),
])
def test_outputs_of_unknown_rank_are_refused_by_name(declared, wrt, said):
    model = parsed("r = Reshape(x, shape) y = Neg(r)", "float[N,3,8] x, int64[R] shape", "float[A,B] y")
    if not declared:
        model.graph.output[0].type.tensor_type.ClearField("shape")
    with pytest.raises(GraphError, match=said):
        convreg.onnx.gradient(model, "y", wrt)


def test_local_functions_are_inlined():
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 20, "local": 1]>
        g (float[N,3] x) => (float y) { s = local.square(x) y = ReduceSum<keepdims=0>(s) }
        <domain: "local", opset_import: ["": 20]> square (a) => (b) { b = Mul(a, a) }""")
    made = convreg.onnx.run(convreg.onnx.gradient(model, "y", ["x"]), {"x": [[1, 2, 3]]})
    assert made["x_grad"].tolist() == [[2, 4, 6]]


@pytest.mark.parametrize("engine", ["reference", "onnxruntime"])
def test_running_statistics_are_updated_in_turn(engine):
    if engine == "onnxruntime":
        pytest.importorskip("onnxruntime")
    model, feeds = build("residual")
    ready = prepare(model)
    updated = running_statistics(ready)
    assert set(updated) == {"mean", "variance"}
    whole, gradients = add_gradients(ready, "loss", ["w1"])
    assert gradients == {"w1": "w1_grad"}
    for name, rank in (("c1", 4), ("c2", 4), *((name, 1) for name in updated.values())):
        whole.graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [None] * rank))
    convreg.onnx.check(whole)
    session = convreg.onnx.Session(whole, engine=engine)
    for _ in range(2):  # a runtime must not write over what it read
        made = session.run(feeds)
        mean, variance = np.zeros(6), np.ones(6)
        for name in ("c1", "c2"):
            mean = 0.9 * mean + 0.1 * made[name].mean((0, 2, 3))
            variance = 0.9 * variance + 0.1 * made[name].var((0, 2, 3))
        np.testing.assert_allclose(made[updated["mean"]], mean, atol=1e-6)
        np.testing.assert_allclose(made[updated["variance"]], variance, atol=1e-5)


def test_frozen_statistics_stay():
    model, feeds = build("residual")
    frozen = prepare(model, batch_norm="frozen")
    assert running_statistics(frozen) == {}
    assert all(len(node.output) == 1 for node in frozen.graph.node if node.op_type == "BatchNormalization")
    both = [convreg.onnx.run(convreg.onnx.gradient(model, "loss", ["n1_s"], batch_norm=mode), feeds)["n1_s_grad"]
            for mode in ("frozen", "train")]
    assert not np.allclose(*both)
    again = convreg.onnx.gradient(frozen, "loss", ["n1_s"], batch_norm="train")
    np.testing.assert_array_equal(convreg.onnx.run(again, feeds)["n1_s_grad"], both[1])


def test_a_folded_batch_normalisation_is_refused_for_training():
    model, _ = build("shared")
    with pytest.raises(GraphError, match=r"no BatchNormalization.*fold it into Conv.*as_exported"):
        convreg.onnx.gradient(model, "loss", ["w1"], batch_norm="train")


def test_parameters_that_reach_the_loss_are_found():
    model, _ = build("residual")
    expected = set(FORWARD["residual"].parameters) | {"x"}
    assert set(dependent(prepare(model), "loss")) == expected




@pytest.mark.parametrize(("body", "message"), [
    ("s = other.Unheard(x) y = ReduceSum<keepdims=0>(s)",
     "other::Unheard node that makes 's': Unheard of domain 'other' has no rule"),
    ("s = GlobalLpPool(x) y = ReduceSum<keepdims=0>(s)",
     "GlobalLpPool node that makes 's'.*has no rule.*gradient_of.*Relu"),
    ("a = ArgMax(x) b = Cast<to=1>(a) y = ReduceSum<keepdims=0>(b)", "'y' depends on none of .*'x'"),
    ("r = Round(x) y = ReduceSum<keepdims=0>(r)", "'y' depends on none of .*'x'"),
    ("c = Constant<value_float=1.0>() t = Cast<to=9>(c) i = If(t) <then_branch = t1 () => (float[N,3,8] a) "
     "{ a = Identity(x) }, else_branch = e1 () => (float[N,3,8] b) { b = Neg(x) }> y = ReduceSum<keepdims=0>(i)",
     "If node that makes 'i'.*subgraphs.*no If, Loop or Scan"),
])
def test_refusals_name_the_node(body, message):
    model = parsed(body)
    with pytest.raises(GraphError, match=message):
        convreg.onnx.gradient(model, "y", ["x"])


@pytest.mark.parametrize(("body", "inputs", "message"), [
    ('s = Einsum<equation="ii->i">(x)', "float[3,3] x", "'s': operand 0 has a letter twice"),
    ('s = Einsum<equation="ij,j->i">(x, c)', "float[2,3] x, float[1] c",
     "operand 1 may be stretched along an axis, which is 1 there and 3 elsewhere; allowed: equal extents"),
    ('s = Einsum<equation="ij,j->i">(x, c)', "float[2,N] x, float[1] c", "may be stretched.*1 there and 'N' elsewhere"),
    ('i = Constant<value_ints=[1]>() s = ScatterElements<reduction="mul">(x, i, x)', "float[1] x",
     "reduction='mul' has no gradient here; allowed: 'none', 'add'"),
])
def test_forms_that_a_rule_does_not_know_are_refused(body, inputs, message):
    with pytest.raises(GraphError, match=message):
        convreg.onnx.gradient(parsed(f"{body} y = ReduceSum<keepdims=0>(s)", inputs), "y", ["x"])


def test_second_derivatives_pass_the_standard_form_of_a_gradient_node():
    model = parsed("c = Conv(x, w) t = Tanh(c) y = ReduceSum<keepdims=0>(t)", "double[1,1,4] x", "double y",
                   "<double[1,1,2] w = {0.5, -1.5}>")
    first = convreg.onnx.gradient(model, "y", ["x"])
    with pytest.raises(GraphError, match=r"convolution_backward.*no rule.*onnx\.lower writes it in standard ONNX"):
        convreg.onnx.gradient(first, "x_grad", ["x"])
    second = convreg.onnx.gradient(convreg.onnx.lower(first), "x_grad", ["x"])
    x = np.array([[[0.3, -0.2, 0.9, 0.1]]])

    def total(moved):
        return convreg.onnx.run(first, {"x": moved}, engine="reference")["x_grad"].sum()

    wanted = [(total(x + 1e-5 * unit) - total(x - 1e-5 * unit)) / 2e-5 for unit in np.eye(4)]
    made = convreg.onnx.run(second, {"x": x}, engine="reference")[second.graph.output[-1].name]
    np.testing.assert_allclose(made.ravel(), wanted, atol=1e-8)


def test_a_value_beside_the_way_has_no_gradient():
    model = parsed("z = Relu(x) y = ReduceSum<keepdims=0>(x)")
    for wrt in (["z"], ["x", "z"]):
        with pytest.raises(GraphError, match=r"'y' (depends on none of|does not depend on) .*'z'"):
            convreg.onnx.gradient(model, "y", wrt)


def test_names_are_checked():
    model = parsed("r = Relu(x) y = ReduceSum<keepdims=0>(r)")
    for y, wrt, message in (("Y", ["x"], "names no value.*did you mean 'y'"), ("y", ["q"], "wrt='q' names no value"),
                            ("y", [], "wrt is empty"), ("y", "x", "a sequence of names"), (3, ["x"], "y=3 is refused"),
                            ("y", [3], "wrt=3 is refused"), ("y", 3, "wrt=3 is refused; allowed: a sequence of names"),
                            ("y", None, "wrt=None is refused; allowed: a sequence of names")):
        with pytest.raises(GraphError, match=message):
            convreg.onnx.gradient(model, y, wrt)
    with pytest.raises(GraphError, match=r"format='int3' is refused.*hifloat8"):
        convreg.onnx.gradient(model, "y", ["x"], format="int3")
    for option in ("format", "forward_format", "batch_norm"):
        with pytest.raises(GraphError, match=f"{option}=array"):
            convreg.onnx.gradient(model, "y", ["x"], **{option: np.array(["a", "b"])})
    with pytest.raises(GraphError, match="batch_norm='no' is refused"):
        convreg.onnx.gradient(model, "y", ["x"], batch_norm="no")


def test_models_that_are_not_float_are_refused():
    model = parsed("y = ReduceSum<keepdims=0>(x)", "int64[N] x", "int64 y")
    with pytest.raises(GraphError, match="y='y' is int64; allowed: floating-point"):
        convreg.onnx.gradient(model, "y", ["x"])


def test_unknown_extents_are_refused_where_a_rule_needs_them():
    model = parsed("p = Pad<mode=\"reflect\">(x, pads) y = ReduceSum<keepdims=0>(p)", "float[N,3,L] x",
                   initial="<int64[6] pads = {0,0,1,0,0,1}>")
    with pytest.raises(GraphError, match=r"Pad node that makes 'p'.*'x' along axis 2 must be known.*fix the"):
        convreg.onnx.gradient(model, "y", ["x"])


@pytest.mark.parametrize("space", [(6, 6), (7, 8)])
@pytest.mark.parametrize("node", [
    "AveragePool<kernel_shape=[2, 3], strides=[2, 3]>(x)", "Resize<mode=\"nearest\">(x, , scales)",
    "Resize<mode=\"nearest\", coordinate_transformation_mode=\"asymmetric\", nearest_mode=\"floor\">(x, , scales)"])
def test_pools_apart_and_whole_factors_need_no_extents(node, space):
    def gradient(*extents):
        shape = ",".join(map(str, extents))
        model = parsed(f"p = {node} q = Sin(p) y = ReduceSum<keepdims=0>(q)", f"double[N,2,{shape}] x", "double y",
                       "<float[4] scales = {1.0, 1.0, 3.0, 2.0}>")
        return convreg.onnx.gradient(model, "y", ["x"])

    feeds = {"x": np.random.default_rng(0).normal(size=(2, 2, *space))}
    made, wanted = (convreg.onnx.run(model, feeds, engine="reference")["x_grad"]
                    for model in (gradient("H", "W"), gradient(*space)))
    np.testing.assert_allclose(made, wanted, atol=1e-12)


def test_the_model_that_is_given_stays_as_it_is():
    model, _ = build("residual")
    before = model.SerializeToString(deterministic=True)
    made = convreg.onnx.gradient(model, "loss", ["w1"])
    assert model.SerializeToString(deterministic=True) == before
    assert isinstance(made, ModelProto)
    convreg.onnx.check(made)
    assert [value.name for value in made.graph.output] == ["loss", "w1_grad"]
    assert next(tensor for tensor in made.graph.initializer if tensor.name == "w1").dims == [6, 3, 3, 3]
