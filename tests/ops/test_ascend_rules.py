"""ascend::ConvolutionBackward: every numbered rule, what the published page refuses, and given outputs."""

from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import pytest
from places import DATA, ROOT

import convreg
from convreg.calls.binding import plan_of
from convreg.calls.execution import execute
from convreg.errors import OpError, OpTypeError
from convreg.spec import Call, TensorType

function = convreg.ascend.convolution_backward
spec = function.spec

UNSAYABLE = {"E16", "E18", "E43", "E59", "E60", "E61"}
"""Rules that no call can break; `docs/conformance-ascend.md` says why."""
PLAIN = ((2, 6, 4, 4), (2, 4, 7, 6), (6, 4, 3, 2))

def operand(shape, format="float32"):
    """Small multiples of 1/4, exact in every format, and so are their sums."""
    return ((5 * np.arange(np.prod(shape)) % 7 - 3) / 4).reshape(shape).astype(np.float32).astype(np.dtype(format))


def call(conformance="atlas-a2", *, out=None, shapes=PLAIN, formats=("float32",) * 3, **attributes):
    """A legal 2-D call, changed where the test says."""
    operands = [operand(shape, format) for shape, format in zip(shapes, formats, strict=True)]
    given = {"stride": [2, 1], "padding": [1, 0], "dilation": [1, 2], **attributes}
    return function(*operands, **given, conformance=conformance, out=out)


DEEP = {"shapes": ((1, 6, 3, 5, 4), (1, 4, 4, 5, 4), (6, 2, 2, 3, 1)), "groups": 2, "stride": [1, 1, 1],
        "padding": [0, 1, 0], "dilation": [1, 1, 1]}
EMPTY = {"shapes": ((0, 6, 5, 5), (0, 4, 5, 5), (6, 4, 3, 3)), "bias_sizes": [6], "stride": [1, 1], "padding": [1, 1],
         "dilation": [1, 1]}
LINE = {"shapes": ((2, 6, 5), (2, 4, 9), (6, 4, 3)), "stride": [2], "padding": [1], "dilation": [1]}
TRANSPOSED_DEEP = {"shapes": ((1, 2, 3, 6, 2), (1, 4, 2, 3, 2), (4, 2, 2, 3, 1)), "stride": [1, 2, 1],
                   "padding": [0, 1, 0], "dilation": [1, 1, 1], "transposed": True}
NULLS = ("E01", "E02", "E03", "E04")


def test_the_calls_below_are_legal_until_changed():
    for product in ("atlas-a2", "ascend950"):
        for arguments in ({}, DEEP, EMPTY, LINE, {**TRANSPOSED_DEEP, "output_padding": [0, 1, 0]}):
            call(product, **arguments)


@pytest.mark.parametrize(("rule", "product", "arguments"), [
    ("E02", "atlas-910", {"padding": None}),
    ("E03", "atlas-a2", {"output_mask": [True, True]}),
    ("E03", "ascend950", {"output_mask": [True] * 4}),
    ("E03", "atlas-a2", {"output_mask": [True, True], "formats": ("float64",) * 3}),
    ("E05", "atlas-910", {"formats": ("bfloat16",) * 3}),
    ("E05", "atlas-a2", {"formats": ("float8_e4m3fn",) * 3}),
    ("E05", "ascend950", {"formats": ("float8_e5m2",) * 3}),
    ("E05", "ascend950", {"formats": ("float8_e4m3fn",) * 3, **TRANSPOSED_DEEP}),
    ("E06", "atlas-910", {"formats": ("float16",) * 3, "out": (np.empty(PLAIN[1], ml_dtypes.bfloat16), None, None)}),
    ("E06", "ascend950", {"out": (None, None, np.empty(6, np.int32)), "output_mask": [True, True, False]}),
    ("E07", "ascend950", {"out": (np.empty((2, 4, 7, 6), np.float16), None, None)}),
    ("E07", "ascend950", {"out": (np.empty((2, 4, 7, 6), np.float16), None, None), "output_mask": [False, True, True]}),
    ("E08", "ascend950", {"out": (None, np.empty((6, 4, 3, 2), np.float16), None)}),
    ("E09", "ascend950", {"out": (None, None, np.empty(6, np.float16))}),
    ("E10", "ascend950", {"formats": ("float8_e4m3fn",) * 3}),
    ("E13", "ascend950", {"formats": ("float8_e4m3fn",) * 3, "output_mask": [False, True, False]}),
    ("E57", "ascend950", {"formats": ("float8_e4m3fn",) * 3, "output_mask": [True, False, False]}),
    ("E17", "atlas-a2", {"shapes": ((2, 6), (2, 4), (6, 4))}),
    ("E17", "atlas-910", {"formats": ("float16",) * 3, "out": (np.empty((), np.float16), None, None)}),
    ("E19", "atlas-a2", {"stride": [2, 0], "padding": [-1, 0]}),
    ("E20", "atlas-a2", {"padding": [1, -1], "dilation": [0, 1]}),
    ("E21", "ascend950", {"dilation": [1, -2], "output_padding": [1, 0]}),
    ("E22", "atlas-a2", {"transposed": True, "output_padding": [-1, 0]}),
    ("E23", "atlas-a2", {**TRANSPOSED_DEEP, "output_padding": [0, 2, 0]}),
    ("E24", "atlas-a2", {"output_padding": [0, 0, 0, 1], "groups": 0}),
    ("E25", "atlas-a2", {"groups": 0, "cube_math_type": 4}),
    ("E26", "ascend950", {"cube_math_type": 4}),
    ("E26", "atlas-910", {"cube_math_type": -1}),
    ("E27", "atlas-910", {"cube_math_type": 0}),
    ("E27", "atlas-910", {"cube_math_type": 3, "formats": ("float16", "float32", "float16")}),
    ("E31", "atlas-a2", {"out": (None, np.empty((6, 4, 3, 3), np.float32), None)}),
    ("E31", "ascend950", {"out": (None, np.empty((6, 4, 2, 3), np.float32), None), "output_mask": [True, False, True]}),
    ("E32", "atlas-a2", {"out": (None, None, np.empty((1, 6), np.float32))}),
    ("E33", "atlas-a2", {"stride": [2]}),
    ("E33", "ascend950", {**LINE, "stride": [2, 1]}),
    ("E34", "atlas-a2", {"dilation": [1, 2, 1], "padding": [1]}),
    ("E35", "atlas-a2", {"padding": [1]}),
    ("E35", "ascend950", {**LINE, "padding": [1, 1]}),
    ("E35", "atlas-a2", {**DEEP, "padding": [0, 0, 1, 1, 0, 0]}),
    ("E36", "atlas-a2", {"output_padding": [0]}),
    ("E36", "ascend950", {**DEEP, "output_padding": [0, 0, 0, 0]}),
    ("E37", "atlas-910", {"shapes": ((2, 6, 4, 4), (2, 4, 7, 6), (5, 4, 3, 2)), "formats": ("float16",) * 3}),
    ("E38", "atlas-a2", {"shapes": ((2, 6, 4, 4), (2, 4, 7, 6), (6, 3, 3, 2))}),
    ("E39", "ascend950", {"groups": 2}),
    ("E40", "atlas-a2", {"shapes": ((2, 9, 4, 4), (2, 6, 7, 6), (9, 1, 3, 2)), "groups": 6}),
    ("E41", "atlas-a2", {**DEEP, "dilation": [4, 1, 1]}),
    ("E42", "ascend950", {**DEEP, "stride": [1, 1, 2]}),
    ("E44", "atlas-a2", {**EMPTY, "bias_sizes": None}),
    ("E45", "ascend950", {**EMPTY, "bias_sizes": [6, 1]}),
    ("E46", "atlas-a2", {**EMPTY, "bias_sizes": [4]}),
    ("E46", "atlas-910", {**EMPTY, "bias_sizes": [4], "formats": ("float16",) * 3,
                          "shapes": ((1, 6, 5, 5), (0, 4, 5, 5), (6, 4, 3, 3))}),
    ("E29", "atlas-910", {**EMPTY, "formats": ("float16",) * 3}),
    ("E47", "ascend950", {**EMPTY, "shapes": ((1, 6, 5, 5), (1, 4, 0, 5), (6, 4, 3, 3))}),
    ("E48", "atlas-a2", {**EMPTY, "stride": [1]}),
    ("E48", "ascend950", {**EMPTY, "output_padding": [0]}),
    ("E49", "atlas-a2", {**EMPTY, "groups": 4}),
    ("E50", "atlas-a2", {**EMPTY, "groups": 2}),
    ("E50", "ascend950", {**EMPTY, "shapes": ((0, 6, 5, 5), (0, 0, 5, 5), (6, 4, 3, 3))}),
    ("E51", "ascend950", {**EMPTY, "transposed": True, "bias_sizes": [4]}),
    ("E52", "atlas-a2", {**EMPTY, "dilation": [4, 1]}),
    ("E52", "atlas-a2", {**EMPTY, "padding": [0, 9, 1, 1], "dilation": [3, 1]}),
    ("E53", "atlas-910", {**DEEP, "formats": ("float16",) * 3}),
    ("E54", "atlas-a2", {**DEEP, "cube_math_type": 2}),
    ("E55", "atlas-a2", {**DEEP, "formats": ("float16",) * 3,
                         "out": (None, np.empty((6, 2, 2, 3, 1), np.float32), None)}),
    ("geometry", "atlas-a2", {"shapes": ((3, 6, 4, 4), (2, 4, 7, 6), (6, 4, 3, 2))}),
    ("geometry", "ascend950", {"shapes": ((2, 6, 4, 5), (2, 4, 7, 6), (6, 4, 3, 2))}),
    ("geometry", "ascend950", {"shapes": ((2, 9, 4, 4), (2, 8, 7, 6), (9, 4, 3, 2)), "groups": 2}),
    ("geometry", "atlas-a2", {"shapes": ((2, 9, 4, 4), (2, 8, 7, 6), (9, 4, 3, 2)), "groups": 2}),
    ("E40", "atlas-a2", {"shapes": ((2, 3, 4, 4), (2, 6, 7, 6), (3, 1, 3, 2)), "groups": 6}),
    ("geometry", "atlas-a2", {**TRANSPOSED_DEEP, "output_padding": [0, 0, 0]}),
    ("geometry", "ascend950", {"shapes": ((2, 6, 12, 6), (2, 4, 6, 6), (4, 6, 2, 1)), "transposed": True,
                               "padding": [0, 0], "output_padding": [0, 0, 1, 1]}),
])
def test_rule_of_a_product(rule, product, arguments):
    with pytest.raises(OpError) as caught:
        call(product, **arguments)
    expected = 161001 if rule in NULLS else 561103 if rule in ("E56", "E57", "E58") else 161002
    assert (caught.value.rule, caught.value.status) == (rule, expected)


@pytest.mark.parametrize(("product", "shapes", "exempt"), [
    ("atlas-910", ((0, 2, 3), (0, 1, 5), (2, 1, 3)), False), ("atlas-a2", ((0, 2, 3), (1, 1, 5), (2, 1, 3)), True)])
def test_e29_states_when_an_empty_operand_is_allowed(product, shapes, exempt):
    operands = [np.ones(shape, np.float16) for shape in shapes]
    with pytest.raises(OpError) as caught:
        function(*operands, stride=[1], padding=[0], dilation=[1], bias_sizes=[2], conformance=product)
    assert caught.value.rule == "E29"
    assert ("unless input or weight is empty too" in caught.value.allowed) is exempt


@pytest.mark.parametrize("product", ["ascend950", "atlas-a2", "atlas-910"])
def test_null_tensors(product):
    for index in range(3):
        operands = [np.ones((2, 2, 3, 3), np.float16)] * 3
        operands[index] = None
        with pytest.raises(OpTypeError) as caught:
            function(*operands, stride=None, padding=None, dilation=None, conformance=product)
        assert (caught.value.rule, caught.value.status) == ("E01", 161001)


def test_null_output_of_a_graph_node():
    """E04: a blank output is not computed, unless the node's own outputMask asks for it."""
    operands = [operand(shape) for shape in PLAIN]
    attributes = {"stride": [2, 1], "padding": [1, 0], "dilation": [1, 2]}
    only_weight = (False, True, False)
    results = execute(spec, operands, attributes, conformance="atlas-a2", wanted=only_weight)
    assert [result is not None for result in results] == [False, True, False]
    attributes["outputMask"] = [True, True, False]
    with pytest.raises(OpError) as caught:
        execute(spec, operands, attributes, conformance="atlas-a2", wanted=only_weight)
    assert (caught.value.rule, caught.value.status) == ("E04", 161001)


@pytest.mark.parametrize(("rule", "changes", "formats"), [
    ("E11", {}, ("hifloat8", "hifloat8", "float32")),
    ("E12", {"outputMask": (False, True, False)}, ("hifloat8", "float32", "hifloat8")),
    ("E14", {"outputMask": (True, True, False), "outputPadding": (0, 1, 0)}, ("hifloat8",) * 3),
    ("E15", {"outputMask": (True, True, False), "groups": 2}, ("hifloat8",) * 3),
    ("E56", {"outputMask": (True, False, True)}, ("hifloat8",) * 3),
    ("E57", {"outputMask": (True, False, False), "transposed": False}, ("hifloat8",) * 3),
    ("E58", {"outputMask": (True, True, False)}, ("hifloat8",) * 3),
])
def test_rule_about_8_bit_formats(rule, changes, formats):
    attributes = {"biasSizes": None, "stride": (1, 2, 1), "padding": (0, 1, 0), "dilation": (1, 1, 1),
                  "transposed": True, "outputPadding": None, "groups": 1, "outputMask": (True, True, True),
                  "cubeMathType": 0, **changes}
    shapes = ((1, 2, 3, 5, 2), (1, 4, 2, 3, 2), (4, 2, 2, 3, 1))
    if rule == "E57":
        shapes = (shapes[1], shapes[0], shapes[2])
    with pytest.raises(OpError) as caught:
        plan_of(Call(spec, "ascend950", (*map(TensorType, shapes, formats), None, None, None),
                     tuple(attributes.items()), (None,) * 3, (True,) * 3))
    assert (caught.value.rule, caught.value.status) == (rule, 561103 if rule > "E55" else 161002)


def test_every_rule_has_a_test_or_a_reason():
    cases = json.loads((DATA / "ascend_examples.json").read_text())["cases"]
    tested = {case.get("rule") for case in cases}
    tested |= {mark.args[1][index][0] for test in (test_rule_of_a_product, test_rule_about_8_bit_formats)
               for mark in test.pytestmark for index in range(len(mark.args[1]))}
    everything = {f"E{row:02}" for row in range(1, 62)}
    assert everything - tested <= UNSAYABLE
    reasons = (ROOT / "docs" / "conformance-ascend.md").read_text()
    assert all(rule in reasons for rule in UNSAYABLE | {"E02", "E04"})


def test_products_do_not_limit_the_groups():
    """The page's limit of 65535 is none of the interface's checks."""
    shapes = ((1, 65536, 1), (1, 65536, 1), (65536, 1, 1))
    arguments = {"shapes": shapes, "groups": 65536, "stride": [1], "padding": [0], "dilation": [1]}
    for product in ("atlas-a2", "ascend950"):
        assert [result.shape for result in call(product, **arguments)] == [*shapes[1:], (65536,)]
    most = {**arguments, "shapes": ((1, 65535, 1), (1, 65535, 1), (65535, 1, 1)), "groups": 65535}
    assert call("document", **most)[2].shape == (65535,)  # the page's limit itself is allowed


# "document": the published page


@pytest.mark.parametrize(("rule", "arguments"), [
    ("E02", {"stride": None}),
    ("E03", {"output_mask": [True]}),
    ("E05", {"formats": ("float64", "float32", "float32")}),
    ("E05", {"formats": ("float32", "int32", "float32")}),
    ("E07", {"out": (np.empty((2, 4, 7, 6), np.float16), None, None)}),
    ("E08", {"out": (None, np.empty((6, 4, 3, 2), np.float16), None)}),
    ("E09", {"out": (None, None, np.empty(6, np.float16))}),
    ("E17", {"shapes": ((2, 6), (2, 4), (6, 4))}),
    ("E19", {"stride": [0, 1]}),
    ("E20", {"padding": [-1, 1]}),
    ("E21", {"dilation": [0, 1]}),
    ("E22", {"transposed": True, "output_padding": [-1, 0]}),
    ("E23", {"transposed": True, "output_padding": [2, 0]}),
    ("E24", {"output_padding": [1, 0]}),
    ("E25", {"groups": 0}),
    ("geometry", {"groups": 65536}),
    ("E26", {"cube_math_type": 4}),
    ("E28", {"shapes": ((2, 6, 4, 4), (2, 4, 7, 6), (6, 4, 3))}),
    ("E30", {"out": (np.empty((2, 4, 7, 5), np.float32), None, None)}),
    ("E31", {"out": (None, np.empty((6, 4, 3, 3), np.float32), None)}),
    ("E32", {"out": (None, None, np.empty(7, np.float32))}),
    ("E33", {"stride": [2]}),
    ("E34", {"dilation": [1]}),
    ("E35", {"padding": [1, 1, 1]}),
    ("E36", {"output_padding": [0, 0, 0]}),
    ("E37", {"shapes": ((2, 6, 4, 4), (2, 4, 7, 6), (5, 4, 3, 2))}),
    ("E38", {"shapes": ((2, 6, 4, 4), (2, 4, 7, 6), (6, 3, 3, 2))}),
    ("E39", {"groups": 2}),
    ("E38", {"shapes": ((2, 6, 4, 4), (2, 4, 7, 6), (6, 0, 3, 2))}),
    ("E39", {"shapes": ((2, 6, 4, 4), (2, 0, 7, 6), (6, 4, 3, 2))}),
    ("E45", {"bias_sizes": [6, 1]}),
    ("E46", {"bias_sizes": [7]}),
    ("geometry", {"shapes": ((3, 6, 4, 4), (2, 4, 7, 6), (6, 4, 3, 2))}),
    ("geometry", {"shapes": ((2, 6, 4, 5), (2, 4, 7, 6), (6, 4, 3, 2))}),
    ("geometry", {"shapes": ((2, 9, 4, 4), (2, 8, 7, 6), (9, 4, 3, 2)), "groups": 2}),
    ("geometry", {"dilation": [9, 1]}),
    ("geometry", {"shapes": ((2, 6, 4, 4), (2, 4, 7, 6), (6, 4, 0, 2))}),
])
@pytest.mark.parametrize("conformance", ["document", "emulation"])
def test_rule_of_the_document(rule, arguments, conformance):
    if conformance == "emulation" and rule in ("E07", "E08", "E09"):
        rule = "E06"
    with pytest.raises(OpError) as caught:
        call(conformance, **arguments)
    assert (caught.value.rule, caught.value.status) == (rule, None)


def test_an_error_names_who_would_accept():
    with pytest.raises(OpError) as caught:
        call("atlas-910")
    assert caught.value.accepted_by == ("document", "ascend950", "atlas-a2", "emulation")
    with pytest.raises(OpError) as caught:
        call("document", bias_sizes=[1])
    assert set(caught.value.accepted_by) == {"ascend950", "atlas-a2"}


def test_empty_batch_under_every_conformance():
    for conformance in ("document", "ascend950", "atlas-a2", "emulation"):
        grad_input, grad_weight, grad_bias = call(conformance, **EMPTY)
        assert grad_input.shape == (0, 4, 5, 5)
        assert grad_weight.shape == (6, 4, 3, 3)
        assert not grad_weight.any()
        assert not grad_bias.any()


def test_empty_channels_leave_a_bias_gradient():
    """The page's formula sums gradOutput; a product writes zeros whenever a tensor is empty."""
    arguments = {"shapes": ((2, 6, 5, 5), (2, 0, 5, 5), (6, 0, 3, 3)), "stride": [1, 1], "padding": [1, 1],
                 "dilation": [1, 1], "bias_sizes": [6]}
    summed = operand((2, 6, 5, 5)).sum((0, 2, 3))
    assert np.array_equal(call("document", **arguments)[2], summed)
    assert not call("atlas-a2", **arguments)[2].any()


# Given outputs and inferred ones


def test_output_formats_of_a_product_follow_given_outputs():
    out = (np.empty((2, 4, 7, 6), ml_dtypes.bfloat16), None, None)
    results = call("atlas-a2", formats=("float16",) * 3, out=out)
    assert [result.dtype for result in results] == [ml_dtypes.bfloat16, np.float16, np.float16]
    results = call("emulation", output_formats=(None, "bfloat16", ""))
    assert [result.dtype for result in results] == [np.float32, ml_dtypes.bfloat16, np.float32]
    with pytest.raises(OpTypeError):
        call("emulation", output_formats=("float64", None, None))
    with pytest.raises(OpError):
        call("emulation", output_formats=("float16",))
    with pytest.raises(OpTypeError):
        call("document", output_formats=("float16",) * 3)


def test_given_outputs_take_any_strides():
    plain = call("document", cube_math_type=2)
    out = tuple(np.full((*result.shape[:-1], 2 * result.shape[-1]), 9, result.dtype)[..., ::-2] for result in plain)
    for result, given, expected in zip(call("document", cube_math_type=2, out=out), out, plain, strict=True):
        assert result is given
        assert np.array_equal(given, expected)
        assert np.all(given.base[..., ::2] == 9) or given.base.ndim == 1


def test_masked_off_outputs_stay_untouched():
    out = (np.full((2, 4, 7, 6), 5, np.float32), None, np.full(6, 5, np.float32))
    for conformance in ("document", "atlas-a2", "ascend950"):
        results = call(conformance, out=out, output_mask=[False, True, False])
        assert [result is not None for result in results] == [False, True, False]
        assert all(np.all(given == 5) for given in (out[0], out[2]))
    assert call("atlas-a2", output_mask=[False] * 3) == (None, None, None)


def test_inference_follows_the_operands():
    values = tuple({"biasSizes": None, "stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "transposed": False,
                    "outputPadding": None, "groups": 1, "outputMask": (True, True, True), "cubeMathType": 0,
                    "outputFormats": ("", "float32", ""), "rounding": None, "saturate": True, "seed": 0}.items())
    operands = (TensorType(("N", 6, None, None), "float16"), TensorType(("N", 4, "H", "W"), "float16"),
                TensorType((6, 4, 3, 3), "bfloat16"), None, None, None)
    inferred = spec.infer(Call(spec, "emulation", operands, values, (None,) * 3, (True, True, True)))
    assert inferred == (operands[1], TensorType((6, 4, 3, 3), "float32"), TensorType((6,), "float16"))
    blind = (*(TensorType(None, "float32") for _ in range(3)), None, None, None)
    inferred = spec.infer(Call(spec, "document", blind, values, (None,) * 3, (True, False, True)))
    assert inferred == (TensorType(None, "float32"), None, TensorType((None,), "float32"))


def test_a_node_states_output_formats_and_leaves_outputs_blank():
    onnx = pytest.importorskip("onnx")
    import convreg.onnx

    operands = dict(zip(("dy", "x", "w"), map(operand, PLAIN), strict=True))
    values = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, array.shape)
              for name, array in operands.items()]
    node = onnx.helper.make_node("ConvolutionBackward", list(operands), ["", "gw"], domain="convreg.ascend",
                                 conformance="emulation", outputFormats=["", "float16", ""], stride=[2, 1],
                                 padding=[1, 0], dilation=[1, 2])
    result = onnx.helper.make_tensor_value_info("gw", onnx.TensorProto.FLOAT16, PLAIN[2])
    model = onnx.helper.make_model(
        onnx.helper.make_graph([node], "gradients", values, [result]), ir_version=10,
        opset_imports=[onnx.helper.make_opsetid("", 21), onnx.helper.make_opsetid("convreg.ascend", 1)])
    convreg.onnx.check(model)
    computed = convreg.onnx.run(model, operands)["gw"]
    assert computed.dtype == np.float16
    assert np.array_equal(computed, call("emulation", output_formats=["", "float16", ""])[1])
