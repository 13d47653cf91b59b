"""Golden vectors of calls: what they hold, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from drawn import normal
from golden_cases import LISTS, ascend_case, data_case

import convreg
from convreg import OpError, OpTypeError, UnknownOp
from convreg.golden import Golden, Operand, make

RNG = np.random.default_rng(4)
DY, W = normal(RNG, (2, 4, 5, 6)), normal(RNG, (4, 3, 3, 3))
NAME = "onednn::ConvolutionBackwardData"
CALL = {**LISTS, "groups": 2, "dst_shape": [2, 6, 10, 8]}


def test_a_call_with_its_results():
    golden = make(NAME, [DY, W], **CALL, name="one")
    assert isinstance(golden, Golden)
    assert (golden.name, golden.op, golden.conformance) == ("one", NAME, None)
    assert golden.inputs == {"diff_dst": DY, "weights": W}
    assert golden.attributes == CALL
    assert list(golden.outputs) == ["diff_src"]
    np.testing.assert_array_equal(golden.outputs["diff_src"], convreg.onednn.conv_transpose(
        DY, W, **{**LISTS, "weights_format": "IOX"}, groups=2, output_padding=[1, 0]), strict=True)


def test_inputs_by_name_an_operator_and_plain_attributes():
    """Arrays and NumPy's numbers among the attributes become what JSON has; a shape given as an array is an input."""
    stated = {**LISTS, "strides": np.array([2, 1]), "groups": np.int64(2)}
    golden = make(convreg.get(NAME), {"weights": W, "diff_dst": DY, "dst_shape": np.int32([2, 6, 10, 8])}, **stated)
    assert list(golden.inputs) == ["diff_dst", "weights", "dst_shape"]
    assert golden.attributes == {**LISTS, "groups": 2}
    assert type(golden.attributes["groups"]) is int
    listed = make(NAME, [DY, W, [2, 6, 10, 8]], **LISTS, groups=2)
    assert listed.attributes == CALL
    np.testing.assert_array_equal(golden.outputs["diff_src"], listed.outputs["diff_src"])


def test_masked_outputs_are_left_out():
    golden = ascend_case(mask=(True, False, True)).make()
    assert list(golden.outputs) == ["gradInput", "gradBias"]


def test_scales_and_a_conformance():
    scales = (np.float32([1, 2, 4, 8]), None)
    golden = make(NAME, [DY.astype(np.float16), W], conformance="emulation", scales=scales, **CALL)
    assert golden.attributes["scales"] == [[1, 2, 4, 8], None]
    again = make(golden.op, golden.inputs, conformance=golden.conformance, **golden.attributes)
    np.testing.assert_array_equal(again.outputs["diff_src"], golden.outputs["diff_src"], strict=True)


def test_conversions():
    golden = make("nodes::Quantize", [DY], format="hifloat8")
    assert golden.outputs["y"].tobytes() == convreg.quantize(DY, "hifloat8").tobytes()


@pytest.mark.parametrize(("change", "error", "message"), [
    ({"op": "onednn::Convolve"}, UnknownOp, "no operator named"),
    ({"inputs": [DY]}, OpTypeError, "weights=None"),
    ({"inputs": [DY, W, None, None]}, OpTypeError, "at most 3"),
    ({"inputs": {"diff_dst": DY, "weight": W}}, OpTypeError, "inputs='weight'"),
    ({"inputs": "ab"}, OpTypeError, "a mapping by argument name"),
    ({"inputs": DY}, OpTypeError, "a mapping by argument name"),
    ({"groups": 3}, OpError, "groups=3"),
    ({"stride": [1, 1]}, OpTypeError, "stride=[1, 1]"),
    ({"out": np.zeros(3)}, OpTypeError, "out='given'"),
    ({"conformance": "libary"}, OpError, "conformance='libary'"),
    ({"threads": 0}, OpError, "threads=0"),
    ({"weights": W}, OpTypeError, "given twice"),
    ({"name": 3}, OpTypeError, "name=3"),
    ({"conformance": "emulation", "output_format": "hifloat8", "rounding": "stochastic"}, OpError, "seed=None"),
])
def test_refusals(change, error, message):
    call = {"op": NAME, "inputs": [DY, W], **CALL, **change}
    with pytest.raises(error) as caught:
        make(call.pop("op"), call.pop("inputs"), **call)
    assert message in str(caught.value)


@pytest.mark.parametrize(("part", "value"), [
    ("name", 3), ("inputs", None), ("inputs", {"weights": (4, 3, 3, 3)}), ("attributes", None), ("attributes", {1: 2}),
    ("fields", []), ("op", None), ("conformance", [])])
def test_cases_of_other_types_are_refused(part, value):
    with pytest.raises(OpTypeError, match=f"convreg::golden: {part}="):
        replace(data_case(), **{part: value})
    if part != "inputs" or value is None:
        with pytest.raises(OpTypeError, match=f"convreg::golden: {part}="):
            replace(data_case().make(), **{part: value})


@pytest.mark.parametrize(("part", "value"), [("shape", None), ("shape", [1.5]), ("shape", "ab"), ("format", 3),
                                            ("low", "a"), ("high", []), ("occurring", 3), ("occurring", ["inf"])])
def test_operands_of_other_types_are_refused(part, value):
    with pytest.raises(OpTypeError, match=f"convreg::golden: {part}="):
        Operand(**{"shape": (1, 2), "format": "float32", part: value})


def test_a_case_refuses_what_the_operator_does():
    with pytest.raises(OpError, match="groups=3"):
        data_case(groups=3).make()
    with pytest.raises(UnknownOp):
        data_case().make.__wrapped__(data_case().__class__("x", "none::Such", {}, {}))
    with pytest.raises(OpTypeError, match="seeds"):
        data_case().make(seeds=1)
    for conformance in (None, "document"):
        with pytest.raises(OpTypeError, match="conformance='given' is refused"):
            replace(data_case(conformance="library"), conformance=conformance).make()


def test_texts_of_records_hold_no_numbers_of_arrays():
    case = replace(ascend_case(), fields={"row": "7" * 5000})
    golden = case.make()
    text = repr(golden)
    assert text.startswith("Golden(name=")
    for name, array in (*golden.inputs.items(), *golden.outputs.items()):
        assert f"{name!r}: {array.dtype} {array.shape}" in text
    values = np.ones((30, 40), np.float32)
    operand = Operand((30, 40), "float32", values=values)
    assert repr(operand) == ("Operand(shape=(30, 40), format='float32', low=None, high=None, occurring=(), "
                             "values=float32 (30, 40))")
    held = replace(case, inputs={**case.inputs, "bias": operand}, attributes={**case.attributes, "scale": values})
    assert repr(operand) in repr(held)
    assert "'scale': float32 (30, 40)" in repr(held)
    assert all("1.," not in text and len(text) < 2000 for text in (text, repr(held), repr([golden])))
