"""ascend::ConvolutionBackward: the caller states the formats of the gradients, as the vendor's output tensors do."""

from __future__ import annotations

import numpy as np
import pytest
from ml_dtypes import bfloat16

import convreg

function = convreg.ascend.convolution_backward
ONE = {"stride": [1, 1], "padding": [1, 1], "dilation": [1, 1]}
SHAPES = ((2, 4, 5, 5), (2, 3, 5, 5), (4, 3, 3, 3))


def arrays(*dtypes):
    draw = np.random.default_rng(3)
    return [draw.standard_normal(shape).astype(dtype) for shape, dtype in zip(SHAPES, dtypes, strict=True)]


@pytest.mark.parametrize(("conformance", "dtypes", "formats", "mode"), [
    ("atlas-a2", (bfloat16,) * 3, ("float32", "float16", "float32"), 0),
    ("atlas-a2", (np.float16, np.float16, np.float32), ("bfloat16", "float16", "float32"), 3),
    ("atlas-910", (np.float32,) * 3, ("float16", "float16", "float32"), 1),
    ("atlas-910", (np.float16,) * 3, ("float32", "float32", "float32"), 0),
    ("ascend950", (np.float32, np.float16, bfloat16), ("float16", "bfloat16", "float32"), 0),
])
def test_a_product_writes_the_stated_formats_as_it_writes_a_given_output(conformance, dtypes, formats, mode):
    operands = arrays(*dtypes)
    named = {"float32": np.float32, "float16": np.float16, "bfloat16": bfloat16}
    given = tuple(np.empty(shape, named[name])
                  for shape, name in zip((*SHAPES[1:], (4,)), formats, strict=True))
    call = {**ONE, "conformance": conformance, "cube_math_type": mode}
    function(*operands, **call, out=given)
    for result, wanted in zip(function(*operands, **call, output_formats=formats), given, strict=True):
        assert (result.dtype, result.tobytes()) == (wanted.dtype, wanted.tobytes())


def refusal(conformance, formats, dtypes=(np.float32,) * 3, **call) -> convreg.OpError:
    with pytest.raises(convreg.OpError) as caught:
        function(*arrays(*dtypes), **{**ONE, **call}, conformance=conformance, output_formats=formats)
    return caught.value


def test_stated_formats_have_the_rules_of_given_outputs():
    error = refusal("atlas-a2", ["hifloat8", "", ""])
    assert (error.argument, error.value, error.rule, error.status) == ("gradInput", "hifloat8", "E06", 161002)
    assert error.accepted_by == ("emulation",)
    assert refusal("atlas-910", ["", "", "bfloat16"], cube_math_type=1).rule == "E06"
    for index, (port, rule) in enumerate((("gradInput", "E07"), ("gradWeight", "E08"), ("gradBias", "E09"))):
        formats = [""] * 3
        formats[index] = "float16"
        error = refusal("ascend950", formats)
        assert (error.argument, error.value, error.rule) == (port, "float16", rule)
        assert error.accepted_by == ("atlas-a2", "emulation")
    assert refusal("document", ["float16", "", ""]).accepted_by == ("atlas-a2", "emulation")


def test_a_given_output_in_another_format_than_stated_is_refused():
    out = (np.empty(SHAPES[1], np.float32), None, None)
    for conformance in ("atlas-a2", "emulation"):
        error = refusal(conformance, ["float16", "", ""], out=out)
        assert (error.argument, error.value, error.rule) == ("gradInput", "float32", "E06")


def test_formats_of_gradients_that_are_masked_off_are_not_used():
    call = {**ONE, "conformance": "ascend950", "output_mask": [False, True, False]}
    assert function(*arrays(*(np.float32,) * 3), **call, output_formats=["float16", "", "float16"])[0] is None


def test_a_grouped_weights_gradient_in_float32_on_a2():
    """E55 holds for a stated format as for a given output."""
    draw = np.random.default_rng(4)
    operands = [draw.standard_normal(shape).astype(bfloat16) for shape in
                ((1, 4, 3, 3, 3), (1, 4, 3, 3, 3), (4, 2, 1, 1, 1))]
    call = {"stride": [1] * 3, "padding": [0] * 3, "dilation": [1] * 3, "groups": 2, "conformance": "atlas-a2"}
    assert function(*operands, **call)[1].dtype == bfloat16
    with pytest.raises(convreg.OpError) as caught:
        function(*operands, **call, output_formats=["", "float32", ""])
    assert caught.value.rule == "E55"
