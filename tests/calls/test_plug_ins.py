"""Operators of other packages: with roles they are lowered, translated, explained and recorded like our own."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import onnx
import pytest
from convreg.ops import _views
from onnx import helper
from runtimes import onnxruntime_run

import convreg
import convreg.onnx
from convreg import GraphError, OpError, OpTypeError, registry
from convreg.geometry import Axis, Geometry
from convreg.roles import Convolution, Precision
from convreg.spec import Attribute, Call, OpSpec, Plan, Port, Spellings, TensorType

ORDERS = {"channels_first": "NCX", "channels_last": "NXC"}
KERNELS = {"channels_first": "OIX", "channels_last": "XIO"}


def plan(call: Call) -> Plan:
    """The extents of the result are stated; the pad before it is `before`, groups follow from the channels."""
    upstream, taps, stated = call.shape("upstream"), call.shape("taps"), call["size"]
    for name, value, count in (("taps", taps, len(upstream)), ("size", stated, len(upstream)),
                               *((name, call[name], len(upstream) - 2) for name in WINDOW)):
        if value is None or len(value) != count:
            raise call.refuse(name, value and list(value), f"{count} extents or entries")
    if call["order"] == "NXC":
        upstream, stated = (upstream[0], upstream[-1], *upstream[1:-1]), (stated[0], stated[-1], *stated[1:-1])
    if call["taps_order"] == "XIO":
        taps = (taps[-1], taps[-2], *taps[:-2])
    groups = stated[1] // taps[1]
    axes = tuple(Axis(*numbers) for numbers in zip(stated[2:], upstream[2:], taps[2:], call["step"], call["hole"],
                                                   call["before"], strict=True))
    return Plan((TensorType(call["size"], call.tensor("upstream").format),), (call["order"], call["taps_order"]),
                geometry=Geometry(upstream[0], groups, taps[1], taps[0] // groups, axes))


def infer(call: Call) -> tuple[TensorType | None, ...]:
    return (TensorType(call["size"], call.tensor("upstream").format),)


def run(plan, inputs, outputs, kernels, threads) -> None:
    order, taps_order = plan.work
    groups = plan.geometry.groups
    _views.backward_data(kernels, plan.geometry, _views.data(inputs[0], groups, order),
                         _views.weights(inputs[1], groups, taps_order), _views.data(outputs[0], groups, order), threads)


def numbers(name: str, minimum: int) -> Attribute:
    return Attribute(name, "ints", f"{name}, one per spatial axis.", minimum=minimum)


def order(name: str, spelled: dict[str, str]) -> Attribute:
    return Attribute(name, "string", "Axis order.", "channels_first", choices={"*": Spellings(spelled)})


SCATTER = OpSpec(
    vendor="acme",
    name="Scatter",
    since_version=1,
    doc="Gradient of a convolution with respect to its input, as Acme has it.",
    source="Acme's handbook.",
    inputs=(
        Port("upstream", "Gradient of the output.", role="grad_output"),
        Port("taps", "Weights.", role="weight"),
        Port("size", "Shape of the result.", "T2", optional=True, shape=True, attribute=True, role="data_shape"),
    ),
    outputs=(Port("downstream", "Gradient of the input.", role="grad_data"),),
    attributes=(numbers("step", 1), numbers("hole", 1), numbers("before", 0), order("order", ORDERS),
                order("taps_order", KERNELS)),
    types={"T": ("float32", "float16"), "T2": ("int64",)},
    conformances=("acme",),
    plan=plan,
    run=run,
    infer=infer,
    convolution=Convolution(data_layout="order", weight_layout="taps_order"),
)
WINDOW = {"step": [2, 1], "hole": [1, 2], "before": [1, 0]}
SIZE = (2, 6, 9, 7)
LAYOUTS = pytest.mark.parametrize("last", [False, True], ids=["channels first", "channels last"])


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    """The operator, forgotten afterwards."""
    monkeypatch.setattr(registry, "_operators", {name: dict(found) for name, found in registry._operators.items()})
    yield convreg.register(SCATTER)
    del sys.modules["convreg.acme"], convreg.acme


def small(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Numbers whose sums are exact."""
    return rng.integers(-4, 5, shape).astype(np.float32)


def call(*, last: bool):
    """Inputs and attributes: two groups, a stride and a dilation, elements that no position reaches."""
    rng = np.random.default_rng(1)
    dy, w = small(rng, 2, 4, 5, 3), small(rng, 4, 3, 3, 3)
    if not last:
        return dy, w, {**WINDOW, "size": SIZE}
    places = {"order": "channels_last", "taps_order": "channels_last", "size": (2, 9, 7, 6)}
    return dy.transpose(0, 2, 3, 1).copy(), w.transpose(2, 3, 1, 0).copy(), {**WINDOW, **places}


def scatter_model(*, last: bool) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    dy, w, attributes = call(last=last)
    return (convreg.onnx.node_model("acme::Scatter", dy, w, **attributes, as_inputs=True), {"upstream": dy, "taps": w})


@LAYOUTS
def test_it_runs(last):
    dy, w, attributes = call(last=last)
    made = convreg.acme.scatter(dy, w, **attributes)
    layouts = {"data_format": "NXC", "weights_format": "XIO"} if last else {
        "data_format": "NCX", "weights_format": "OIX"}
    expected = convreg.onednn.convolution_backward_data(
        dy, w, attributes["size"], strides=[2, 1], dilations=[1, 2], pads_begin=[1, 0], pads_end=[1, 0], groups=2,
        **layouts)
    np.testing.assert_array_equal(made, expected)


@LAYOUTS
@pytest.mark.parametrize("run", [onnxruntime_run, convreg.onnx.run])
def test_it_is_lowered(last, run):
    made, feeds = scatter_model(last=last)
    lowered = convreg.onnx.lower(made)
    assert {node.domain for node in lowered.graph.node} == {""}
    expected = convreg.onnx.run(made, feeds)["downstream"]
    np.testing.assert_array_equal(run(lowered, feeds)["downstream"], expected)


def test_it_gets_a_function():
    made, feeds = scatter_model(last=True)
    whole = convreg.onnx.attach_functions(made)
    assert [function.name for function in whole.functions] == ["Scatter"]
    plain = onnx.inliner.inline_local_functions(whole)
    np.testing.assert_array_equal(onnxruntime_run(plain, feeds)["downstream"],
                                  convreg.onnx.run(made, feeds)["downstream"])


@LAYOUTS
@pytest.mark.parametrize(("to", "operator"), [
    ("onednn", "ConvolutionBackwardData"), ("openvino", "GroupConvolutionBackpropData"),
    ("aten", "convolution_backward"), ("ascend", "ConvolutionBackward"),
])
def test_it_is_translated(last, to, operator):
    made, feeds = scatter_model(last=last)
    translated = convreg.onnx.translate(made, to=to)
    assert [node.op_type for node in translated.graph.node if node.domain] == [operator]
    np.testing.assert_array_equal(convreg.onnx.run(translated, feeds)["downstream"],
                                  convreg.onnx.run(made, feeds)["downstream"])


@LAYOUTS
def test_it_is_explained(last):
    dy, w, attributes = call(last=last)
    told = convreg.explain("acme::Scatter", dy.shape, w.shape, **attributes)["acme"]
    assert told.begin == (1, 0)
    assert told.end == (1, 0)
    (from_node,) = convreg.onnx.explain_nodes(scatter_model(last=last)[0]).values()
    assert from_node["acme"] == told


def test_a_shape_that_is_an_input_is_read_from_the_result():
    dy, w, attributes = call(last=False)
    attributes["size"] = np.array(SIZE)
    made = convreg.onnx.node_model("acme::Scatter", dy, w, **attributes, as_inputs=["upstream"])
    lowered = convreg.onnx.lower(made)
    np.testing.assert_array_equal(onnxruntime_run(lowered, {"upstream": dy})["downstream"],
                                  convreg.onnx.run(made, {"upstream": dy})["downstream"])


def test_all_gradients_with_a_mask_and_a_direction_that_attributes_choose():
    convreg.register(replace(convreg.aten.convolution_backward.spec, vendor="acme", name="All"))
    rng = np.random.default_rng(2)
    arguments = {"bias_sizes": [2], "stride": [2], "padding": [1], "dilation": [1], "transposed": True,
                 "output_padding": [0], "groups": 1, "output_mask": [True, False, True]}
    made = convreg.onnx.node_model("acme::All", small(rng, 2, 2, 7), small(rng, 2, 3, 4), small(rng, 3, 2, 3),
                                   **arguments)
    expected = convreg.onnx.run(made)
    for other in (convreg.onnx.lower(made), convreg.onnx.translate(made, to="aten")):
        for name, array in convreg.onnx.run(other).items():
            np.testing.assert_array_equal(array, expected[name])
    (found,) = convreg.onnx.gradient_calls(made).values()
    assert found.operator.spec.qualified_name == "acme::All"
    assert found.attributes["output_mask"] == [True, False, True]
    assert found.operator(*found.inputs, **found.attributes)[1] is None


def test_without_roles_it_runs_and_is_not_rewritten():
    bare = replace(SCATTER, inputs=tuple(replace(port, role="") for port in SCATTER.inputs),
                   outputs=tuple(replace(port, role="") for port in SCATTER.outputs), convolution=Convolution())
    convreg.register(bare, replace=True)
    made, feeds = scatter_model(last=False)
    assert convreg.onnx.run(made, feeds)["downstream"].shape == SIZE
    for rewrite, to in ((convreg.onnx.lower, {}), (convreg.onnx.attach_functions, {}),
                        (convreg.onnx.translate, {"to": "aten"})):
        with pytest.raises(GraphError, match="the ports of acme::Scatter have no known roles"):
            rewrite(made, **to)


@pytest.mark.parametrize(("change", "told"), [
    ({"step": [0, 1]}, "step=.* entries at least 1"),
    ({"step": [2]}, "step=.*2 extents or entries"),
    ({"size": None}, "size=None"),
])
def test_the_rules_of_a_plug_in_refuse_by_name(change, told):
    dy, w, attributes = call(last=False)
    with pytest.raises(OpError, match=f"acme::Scatter: {told}"):
        convreg.acme.scatter(dy, w, **{**attributes, **change})


@pytest.mark.parametrize(("field", "value"), [("stride", 0), ("stride", -1), ("dilation", 0)])
def test_a_plan_whose_windows_have_no_step_is_refused(field, value):
    """Kernels would leave results unwritten."""
    def stepless(call: Call) -> Plan:
        made = plan(call)
        axes = (made.geometry.axes[0]._replace(**{field: value}), *made.geometry.axes[1:])
        return replace(made, geometry=replace(made.geometry, axes=axes))

    convreg.register(replace(SCATTER, plan=stepless), replace=True)
    dy, w, attributes = call(last=False)
    with pytest.raises(OpError, match=f"acme::Scatter: {field}={value} is refused; allowed: integers from 1 on"):
        convreg.acme.scatter(dy, w, **attributes)


@pytest.mark.parametrize(("change", "told"), [
    ({"geometry": None}, "the plan of acme::Scatter states no geometry"),
    ({"precision": Precision("hf32", cause="mode")}, "mode rounds float32 operands to HF32 here, which no standard"),
])
def test_plans_that_no_standard_node_states(change, told):
    convreg.register(replace(SCATTER, plan=lambda call: replace(plan(call), **change)), replace=True)
    with pytest.raises(GraphError, match=told):
        convreg.onnx.lower(scatter_model(last=False)[0])


def test_a_plan_with_roundings_is_lowered_with_them():
    """Operands through float16, the result through float16 as well."""
    stated = Precision("float16", ("float16",))
    convreg.register(replace(SCATTER, plan=lambda call: replace(plan(call), precision=stated)), replace=True)
    lowered = convreg.onnx.lower(scatter_model(last=False)[0])
    assert [node.attribute[0].i for node in lowered.graph.node if node.op_type == "Cast"].count(
        onnx.TensorProto.FLOAT16) == 3


def ports(field: str, *roles: str) -> dict[str, tuple[Port, ...]]:
    return {field: tuple(replace(port, role=role) for port, role in zip(getattr(SCATTER, field), roles, strict=True))}


@pytest.mark.parametrize(("change", "told"), [
    (ports("inputs", "gradient", "weight", "data_shape"), "role 'gradient' of upstream.*grad_output, data, weight"),
    (ports("inputs", 3, "weight", "data_shape"), "role 3 of upstream.*or none"),
    (ports("inputs", "weight", "weight", "data_shape"), "role 'weight' of taps.*upstream has it already"),
    (ports("inputs", "grad_data", "weight", "data_shape"), "role 'grad_data' of upstream.* for an input"),
    (ports("outputs", "grad_output"), "role 'grad_output' of downstream.*grad_data or grad_weight.* for an output"),
    (ports("inputs", "grad_output", "weight", "data"), "role 'data' of size.* for an input that states a shape"),
    (ports("inputs", "grad_output", "data_shape", "data_shape"), "role 'data_shape' of taps.* for an input"),
    (ports("inputs", "grad_output", "", "data_shape"), "role '' of taps.* because other ports have roles"),
    (ports("inputs", "grad_output", "weight", ""), "role '' of size.*data_shape or data_extents"),
    (ports("outputs", ""), "role '' of downstream.* because other ports have roles"),
    (ports("outputs", "grad_weight"), "role 'grad_weight' of downstream.*the role data beside it"),
    (ports("inputs", "data", "weight", "data_shape"), "role 'data' of upstream.*the role grad_output beside it"),
    (ports("inputs", "grad_output", "number", "data_shape"), "role 'number' of taps.*the role converted beside it"),
    (ports("inputs", "number", "factor", "data_shape") | ports("outputs", "grad_data"), "role 'number' of upstream"),
    ({"convolution": "OIX"}, "a Convolution"),
    ({"convolution": Convolution(transposed="mirrored")}, "transposed='mirrored'.*an attribute of kind bool"),
    ({"convolution": Convolution(transposed=None)}, "transposed=None"),
    ({"convolution": Convolution(forward=1)}, "forward=1"),
    ({"convolution": Convolution(mask="step")}, "mask='step'.*an attribute of kind bools"),
    ({"convolution": Convolution(data_layout="NHWC")}, "data_layout='NHWC'.*NCX, NXC or the name of an attribute"),
    ({"convolution": Convolution(data_layout=["NCX"])}, "data_layout=.*NCX, NXC or the name of an attribute"),
    ({"convolution": Convolution(weight_layout="order")}, "weight_layout='order'.*OIX, IOX"),
])
def test_wrong_roles_are_refused(change, told):
    with pytest.raises(OpError, match=told) as refused:
        convreg.register(replace(SCATTER, name="Wrong", **change))
    assert refused.value.op == "convreg::register"
    assert "acme::Wrong" not in convreg.names()


def test_a_conversion_has_its_own_roles():
    """Halves become float32: read exactly, multiplied by a factor."""
    spec = replace(convreg.nodes.dequantize.spec, vendor="acme", name="All", domain="")
    convreg.register(spec)
    node = helper.make_node("All", ["x", "factor"], ["y"], domain="convreg.acme")
    value = helper.make_tensor_value_info
    made = helper.make_model(
        helper.make_graph([node], "g", [value("x", onnx.TensorProto.FLOAT16, ["n"]), value("factor", 1, [])],
                          [value("y", 1, None)]),
        ir_version=10, opset_imports=[helper.make_opsetid("", 22), helper.make_opsetid("convreg.acme", 1)])
    lowered = convreg.onnx.lower(made)
    assert [node.op_type for node in lowered.graph.node] == ["Cast", "Mul"]
    feeds = {"x": np.array([1, -3], np.float16), "factor": np.float32(0.5)}
    inlined = onnx.inliner.inline_local_functions(convreg.onnx.attach_functions(made))
    for other in (lowered, inlined):
        np.testing.assert_array_equal(onnxruntime_run(other, feeds)["y"], convreg.onnx.run(made, feeds)["y"])


def test_roles_of_the_wrong_kind_are_type_errors():
    with pytest.raises(OpTypeError):
        convreg.register(replace(SCATTER, name="Wrong", convolution=None))
