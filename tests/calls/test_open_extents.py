"""Calls with open extents: what is known is judged by the rules of the closed call, and nothing is refused beyond."""

from __future__ import annotations

import numpy as np
import pytest
from amounts import examples
from drawn import convolutions
from gradient_calls import forward, single, together
from graphs import data_gradient, model, value
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

import convreg
import convreg.onnx
from convreg import GraphError, OpError
from convreg.calls.binding import check_declared, make_call, plan_of
from convreg.spec import TensorType, snake_case


def small(shape):
    """An array whose shape alone is looked at."""
    return np.broadcast_to(np.float32(0), shape)


class Shaped:
    """The shapes of a call, to be changed and opened one by one."""

    def __init__(self, call, conformance):
        self.spec = convreg.get(call.name).spec
        arguments = dict(call.arguments)
        self.conformance = conformance
        arguments.pop("conformance", None)
        if conformance == "atlas-910":
            arguments["cubeMathType"] = 1  # it has no float32 product
        ports = [port for port in self.spec.vendor_inputs if not port.shape]
        self.shapes = {port.name: list(array.shape) for port, array in zip(ports, call.tensors, strict=False)}
        for port in (port for port in self.spec.shape_ports if port.name in arguments):
            self.shapes[port.name] = list(arguments.pop(port.name))
        names = {snake_case(attribute.name): attribute.name for attribute in self.spec.attributes}
        self.attributes = {names.get(name, name): value for name, value in arguments.items()}

    def places(self):
        """Every extent, as port and index."""
        return [(name, index) for name, shape in self.shapes.items() for index in range(len(shape))]

    def is_batch(self, place):
        """Whether the place is a batch."""
        name, index = place
        stated = self.spec.shape_ports[0].name if self.spec.shape_ports else None
        return index == 0 and name not in ("weight", "weights", "filter", "W", "weights_shape", "bias") and not (
            name == stated and self.spec.vendor == "openvino")

    def call(self, opened=()):
        """The call with some extents unknown."""
        shapes = {name: tuple((None, "a")[(len(name) + index) % 2] if (name, index) in opened else extent
                              for index, extent in enumerate(shape)) for name, shape in self.shapes.items()}
        stated = {port.name: shapes.get(port.name) for port in self.spec.shape_ports}
        tensors = tuple(None if port.shape or port.name not in shapes else TensorType(shapes[port.name], "float32")
                        for port in self.spec.inputs)
        return make_call(self.spec, self.conformance, tensors, stated, self.attributes)

    def inferred(self, opened):
        """Types of the results with some extents unknown."""
        call = self.call(opened)
        check_declared(call)
        return self.spec.infer(call)


def refusal(attempt):
    """The rule and the argument by which an attempt is refused; None if it is not."""
    try:
        attempt()
    except OpError as error:
        return error.rule, error.argument
    return None


@st.composite
def changed_calls(draw, name, conformance, least=0):
    """A call of an operator with up to two extents changed: it fits or it does not."""
    case = draw(convolutions(symmetric=True))
    calls = [*single(case, small), *forward(case, small), *together(case, small, (True,) * 3, draw(st.booleans()))]
    shaped = Shaped(next(call for call in calls if call.name == name), conformance)
    for name_, index in draw(st.lists(st.sampled_from(shaped.places()), min_size=least, max_size=2)):
        shaped.shapes[name_][index] = draw(st.integers(0, 9))
    return shaped


OPERATORS = [(name, conformance) for name in convreg.names() if convreg.get(name).spec.convolves
             for conformance in convreg.get(name).spec.conformances]


@pytest.mark.parametrize(("name", "conformance"), OPERATORS)
def test_what_fits_is_not_refused_with_open_extents(name, conformance):
    seen = []

    @given(changed_calls(name, conformance), st.data())
    @examples(25, 60)
    def keeps(shaped, data):
        try:
            whole = plan_of(shaped.call()).outputs
        except OpError:
            return
        seen.append(shaped)
        opened = data.draw(st.sets(st.sampled_from(shaped.places())))
        for made, tensor in zip(shaped.inferred(opened), whole, strict=True):
            assert (made is None) == (tensor is None)
            for extent, known in zip(made.shape, tensor.shape, strict=True) if made else ():
                assert extent in (None, "a", known)

    keeps()
    assert len(seen) >= 3


@pytest.mark.parametrize(("name", "conformance"), OPERATORS)
def test_what_does_not_fit_is_refused_by_the_same_rule_with_an_open_batch(name, conformance):
    if name.startswith("ascend") and conformance not in ("document", "emulation"):
        pytest.skip("a product may accept anything that is empty: see the test below")
    seen = []

    @given(changed_calls(name, conformance, least=1))
    @examples(40, 100)
    def refuses(shaped):
        batches = {place for place in shaped.places() if shaped.is_batch(place)}
        for name_, index in batches:
            shaped.shapes[name_][index] = 2
        closed, still = refusal(lambda: plan_of(shaped.call())), refusal(lambda: shaped.inferred(batches))
        assert still == closed
        seen.extend([closed] if closed else [])

    refuses()
    assert len(seen) >= 3


@pytest.mark.parametrize("name", [name for name, conformance in OPERATORS if conformance == "emulation"])
def test_scales_and_the_last_rounding_are_judged_with_an_open_batch(name):
    spec, seen = convreg.get(name).spec, []
    (format_name,) = (attribute.name for attribute in spec.attributes if attribute.name.startswith("output")
                      and attribute.name.lower().rstrip("s").endswith("format"))

    @given(convolutions(symmetric=True), st.data())
    @examples(25, 60)
    def judges(case, data):
        calls = [*single(case, small), *forward(case, small), *together(case, small, (True,) * 3, False)]
        shaped = Shaped(next(call for call in calls if call.name == name), "emulation")
        batches = {place for place in shaped.places() if shaped.is_batch(place)}
        channels = sorted({extent for shape in shaped.shapes.values() for extent in shape})
        port = data.draw(st.sampled_from([port for port in spec.scale_ports if port.scales in shaped.shapes]))
        shaped.shapes[port.name] = list(data.draw(st.sampled_from(
            [(), (1,), (1, 1), (2, 2), (11,), *((extent,) for extent in channels)])))
        chosen = data.draw(st.sampled_from(["hifloat8", "float16"]))
        shaped.attributes |= {"rounding": "hybrid", format_name: chosen if len(spec.outputs) == 1 else
                              [chosen] * len(spec.outputs)}
        closed, still = refusal(lambda: plan_of(shaped.call())), refusal(lambda: shaped.inferred(batches))
        assert still == closed
        seen.append(closed)

    judges()
    assert {None, ("geometry", "rounding")} < {*seen}
    assert any(found is not None and found[1].lower().endswith("scale") for found in seen)


def test_nothing_is_refused_for_scales_of_unknown_shapes():
    """Nor for tensors of an unknown rank."""
    spec = convreg.aten.convolution_backward.spec
    attributes = {"stride": [1], "padding": [0], "dilation": [1], "transposed": False, "output_padding": [0],
                  "groups": 1, "output_mask": [True] * 3}
    for data, scale in ((None, (5,)), ((None, None, 7), (5,)), ((2, 3, 7), None), ((2, 3, 7), (None,)),
                        ((2, 3, 7), ("C",)), ((2,), (5,))):
        tensors = (TensorType(None, "float32"), TensorType(data, "float32"), TensorType((4, 3, 2), "float32"),
                   None, TensorType(scale, "float32"))
        assert len(spec.infer(make_call(spec, "emulation", tensors, {}, attributes))) == 3
    with pytest.raises(OpError, match="input_scale"):
        spec.infer(make_call(spec, "emulation", (*tensors[:1], TensorType((None, 3, None), "float32"), *tensors[2:]),
                             {}, attributes))


ASCEND = convreg.ascend.convolution_backward.spec


def ascend_inferred(conformance="ascend950", shapes=((None, 4, 8, 8), (None, 3, 8, 8), (4, 3, 3, 3)), **attributes):
    """Types of Ascend's gradients, by default of a call that fits."""
    attributes = {"stride": [1, 1], "padding": [1, 1], "dilation": [1, 1], "biasSizes": [4], **attributes}
    return ASCEND.infer(make_call(ASCEND, conformance, tuple(TensorType(shape, "float32") for shape in shapes), {},
                                  attributes))


@pytest.mark.parametrize("conformance", ["document", "ascend950", "atlas-a2"])
@pytest.mark.parametrize(("rule", "changes"), [
    ("E19", {"stride": [0, 1]}), ("E25", {"groups": 0}), ("E33", {"stride": [1]}), ("E35", {"padding": [1] * 3}),
    ("E17", {"shapes": ((None, 4), (None, 3, 8, 8), (4, 3, 3, 3))}), ("E24", {"outputPadding": [1, 0]}),
    ("E38", {"shapes": ((None, 4, 8, 8), (None, 5, 8, 8), (4, 3, 3, 3))}),
    ("E39", {"shapes": ((None, 4, 8, 8), (None, 6, 8, 8), (4, 3, 3, 3))}),
    ("E37", {"shapes": ((None, 5, 8, 8), (None, 3, 8, 8), (4, 3, 3, 3)), "biasSizes": None}),
])
def test_ascend_refuses_what_is_known_and_does_not_fit(conformance, rule, changes):
    """With an open batch; the last call is refused with an empty one too, for its bias."""
    assert [made.shape for made in ascend_inferred(conformance)] == [(None, 3, 8, 8), (4, 3, 3, 3), (4,)]
    with pytest.raises(OpError) as caught:
        ascend_inferred(conformance, **changes)
    assert caught.value.rule == rule


def test_an_ascend_product_is_not_refused_what_it_accepts_with_an_empty_batch():
    shapes = (None, 5, 8, 8), (None, 3, 8, 8), (4, 3, 3, 3)
    empty = tuple(np.zeros((extents[0] or 0, *extents[1:]), np.float32) for extents in shapes)
    arguments = {"stride": [1, 1], "padding": [1, 1], "dilation": [1, 1], "bias_sizes": [5]}
    assert not convreg.ascend.convolution_backward(*empty, **arguments, conformance="ascend950")[1].any()
    assert ascend_inferred(shapes=shapes, biasSizes=[5])[1].shape == (4, 3, 3, 3)
    with pytest.raises(OpError, match="E37"):
        ascend_inferred("document", shapes=shapes, biasSizes=[5])
    with pytest.raises(OpError, match="E28"):
        ascend_inferred("document", shapes=((None, 4, 8), *shapes[1:]))


@pytest.mark.parametrize("place", [(0, 2), (1, 2), (2, 2), (0, 0)], ids=["dY", "X", "W", "batch"])
@pytest.mark.parametrize(("argument", "changes"), [
    ("strides", {"strides": [1]}), ("dilations", {"dilations": [1] * 3}), ("pads", {"pads": [1, 1]}),
    ("pads", {"pads": [0, 0, 0, 1], "auto_pad": "VALID"}), ("kernel_shape", {"kernel_shape": [3, 2]}),
    ("kernel_shape", {"kernel_shape": [3]}), ("spatial axis 1", {"pads": [0, 0, 0, 2]}),
    ("spatial axis 1", {"auto_pad": "SAME_UPPER", "pads": [0] * 4}), ("", {"kernel_shape": [3, 3]}),
    ("", {"auto_pad": "VALID"})])
def test_conv_grad_judges_what_is_known(place, argument, changes):
    """The batch or spatial axis 0 is open; what is wrong concerns the lists or the other axis."""
    spec = convreg.microsoft.conv_grad.spec
    fits = 8 if changes.get("auto_pad") == "SAME_UPPER" else 6  # on axis 0 everything fits
    closed = [[2, 4, fits, 6], [2, 3, 8, 8], [4, 3, 3, 3]]
    opened = [extents[:] for extents in closed]
    opened[place[0]][place[1]] = None
    for shapes in (closed, opened):
        tensors = tuple(TensorType(tuple(extents), "float32") for extents in shapes)
        call = make_call(spec, "onnxruntime", tensors, {}, changes)
        refused = refusal(lambda call=call: spec.infer(call))
        assert refused == (("geometry", argument) if argument else None)


@pytest.mark.parametrize(("operator", "shapes", "attributes", "argument"), [
    ("quantize", [(None, 3)], {"format": "float8_e5m2", "rounding": "hybrid"}, "rounding"),
    ("quantize", [None], {"format": "float8_e5m2", "rounding": "hybrid"}, "rounding"),
    ("quantize", [(None, 3), (2,)], {}, "scale"), ("quantize", [(None, 3), (1, 1, 1)], {}, "scale"),
    ("dequantize", [("N", 3), ("N", 2)], {}, "scale"), ("dequantize", [(4, None), (3, None)], {}, "scale"),
    ("quantize", [(None, 3), (3,)], {"rounding": "hybrid"}, None), ("dequantize", [None, (7,)], {}, None),
    ("dequantize", [(None, 3), ("N", "C")], {}, None), ("quantize", [(4, 3), None], {}, None)])
def test_conversions_judge_what_is_known(operator, shapes, attributes, argument):
    function = convreg.get(f"nodes::{operator.capitalize()}")
    call = make_call(function.spec, "document", tuple(TensorType(shape, "float32") for shape in shapes), {}, attributes)
    assert refusal(lambda: function.spec.infer(call)) == (("geometry", argument) if argument else None)


@pytest.mark.parametrize(("grad", "rule"), [(["N", 5, 8, 8], "R22"), (["N", 4, 9, 8], "R25"), (["N", 4, 8, 8], "")])
def test_check_refuses_a_model_with_an_open_batch(grad, rule):
    shape = helper.make_node("Shape", ["x"], ["shape"])
    made = model([shape, data_gradient(["dy", "w", "shape"])],
                 [value("x", ["N", 3, 8, 8]), value("dy", grad), value("w", [4, 3, 3, 3])],
                 [value("dx", ["N", 3, None, None])])
    if not rule:
        convreg.onnx.check(made)
        return
    with pytest.raises(GraphError, match=rf"\[rule {rule}\].*gradient"):
        convreg.onnx.check(made)
