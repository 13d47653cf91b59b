"""Standard Conv and ConvTranspose on our kernels give what ONNX Runtime gives."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from amounts import examples
from drawn import dyadic
from graphs import model, value
from hypothesis import assume, given
from hypothesis import strategies as st
from onnx import ModelProto, helper
from releases import not_before

import convreg
import convreg.onnx
from convreg import GraphError, OpError
from convreg.calls.binding import make_call, plan_of
from convreg.onnx.standard import CONV_TRANSPOSE
from convreg.spec import TensorType

MODES = ["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"]
onnxruntime = pytest.importorskip("onnxruntime")
onnxruntime.set_default_logger_severity(4)


def one_node(op_type: str, operands: dict, attributes: dict) -> ModelProto:
    """A graph of one node; its output's rank is known, its extents are not."""
    inputs = [value(name, array.shape, array.dtype) for name, array in operands.items()]
    first = operands["X"]
    return model([helper.make_node(op_type, list(operands), ["Y"], **attributes)], inputs,
                 [value("Y", [None] * first.ndim, first.dtype)])


def by_onnxruntime(made: ModelProto, operands: dict) -> np.ndarray | None:
    """What ONNX Runtime computes, or None where it refuses."""
    try:
        session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
        return session.run(None, operands)[0]
    except Exception:  # its exceptions have no common base class
        return None


@st.composite
def cases(draw, transposed: bool):
    """Operands and attributes of a Conv or ConvTranspose, most of them legal."""
    count = draw(st.integers(1, 3))
    group = draw(st.sampled_from([1, 1, 2, 3]))
    per_axis = {name: [draw(values) for _ in range(count)] for name, values in {
        "taps": st.integers(1, 4), "strides": st.integers(1, 3), "dilations": st.integers(1, 2),
        "extent": st.integers(1, 8)}.items()}
    mode = draw(st.sampled_from([*MODES, None]))
    attributes = {"strides": per_axis["strides"], "dilations": per_axis["dilations"], "group": group}
    if mode is not None:
        attributes["auto_pad"] = mode
    if mode in ("NOTSET", None) and draw(st.booleans()):
        attributes["pads"] = [draw(st.integers(0, 3)) for _ in range(2 * count)]
    if draw(st.booleans()):
        attributes["kernel_shape"] = per_axis["taps"]
    for name in ("strides", "dilations", "group"):
        if draw(st.integers(0, 5)) == 0 and name != "group":
            del attributes[name]
    inner, outer = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    weight = (group * inner, outer, *per_axis["taps"])
    channels = group * inner if transposed else group * outer
    if transposed:
        strides = attributes.get("strides", [1] * count)
        dilations = attributes.get("dilations", [1] * count)
        if draw(st.booleans()):
            attributes["output_padding"] = [draw(st.integers(0, s - 1)) for s in strides]
        if draw(st.integers(0, 2)) == 0:
            reach = [s * (y - 1) + (k - 1) * d + 1 for s, y, k, d in
                     zip(strides, per_axis["extent"], per_axis["taps"], dilations, strict=True)]
            attributes["output_shape"] = [draw(st.integers(1, full + 1)) for full in reach]
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    operands = {"X": dyadic(rng, (draw(st.integers(1, 2)), channels, *per_axis["extent"])), "W": dyadic(rng, weight)}
    if draw(st.booleans()):
        operands["B"] = dyadic(rng, (group * outer if transposed else weight[0],))
    return operands, attributes


def compare(op_type: str, case: tuple) -> None:
    """Equal to the bit, for the sums are exact; what only we accept or refuse is looked at elsewhere."""
    operands, attributes = case
    made = one_node(op_type, operands, attributes)
    expected = by_onnxruntime(made, operands)
    assume(expected is not None)
    np.testing.assert_array_equal(convreg.onnx.run(made, operands, engine="reference")["Y"], expected)


@given(cases(transposed=False))
@examples(100, 300)
def test_conv(case):
    compare("Conv", case)


@not_before("onnxruntime", (1, 29), "leaves elements of ConvTranspose unwritten")
@given(cases(transposed=True))
@examples(100, 300)
def test_conv_transpose(case):
    compare("ConvTranspose", case)


@pytest.mark.parametrize("transposed", [False, True])
def test_what_is_refused(transposed):
    """Whatever we refuse ONNX Runtime refuses too."""
    op_type = "ConvTranspose" if transposed else "Conv"

    @given(cases(transposed))
    def refuse_alike(case):
        operands, attributes = case
        made = one_node(op_type, operands, attributes)
        try:
            convreg.onnx.run(made, operands, engine="reference")
        except convreg.OpError:
            assert by_onnxruntime(made, operands) is None

    refuse_alike()


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64, np.float32])
@pytest.mark.parametrize("op_type", ["Conv", "ConvTranspose"])
def test_element_types(op_type, dtype):
    rng = np.random.default_rng(3)
    operands = {"X": dyadic(rng, (2, 4, 5, 6)), "W": dyadic(rng, (4, 2, 3, 3)), "B": dyadic(rng, (4,))}
    attributes = {"group": 2, "pads": [1, 0, 1, 2], "strides": [2, 1]}
    exact = convreg.onnx.run(one_node(op_type, operands, attributes), operands, engine="reference")["Y"]
    narrow = {name: array.astype(dtype) for name, array in operands.items()}
    result = convreg.onnx.run(one_node(op_type, narrow, attributes), narrow, engine="reference")["Y"]
    assert result.dtype == dtype
    np.testing.assert_array_equal(result.astype(np.float64), exact.astype(dtype).astype(np.float64))


@pytest.mark.parametrize(("mode", "expected"), [
    ("SAME_UPPER", [1, 10, 102, 20, 203, 30]), ("SAME_LOWER", [10, 102, 20, 203, 30, 300]),
    ("NOTSET", [10, 102, 20, 203, 30, 300]),
])
def test_where_the_odd_element_goes_with_output_shape(mode, expected):
    operands = {"X": np.array([[[1, 2, 3]]], np.float32), "W": np.array([[[1, 10, 100]]], np.float32)}
    made = one_node("ConvTranspose", operands, {"strides": [2], "auto_pad": mode, "output_shape": [6]})
    assert convreg.onnx.run(made, operands, engine="reference")["Y"].ravel().tolist() == expected


def test_output_shape_beyond_the_kernel_is_zeros_and_bias():
    operands = {"X": np.ones((1, 1, 2), np.float32), "W": np.ones((1, 1, 2), np.float32),
                "B": np.array([5], np.float32)}
    made = one_node("ConvTranspose", operands, {"output_shape": [6]})
    assert convreg.onnx.run(made, operands, engine="reference")["Y"].ravel().tolist() == [6, 7, 6, 5, 5, 5]


def test_sizes_beyond_64_bits():
    tensors = TensorType((2**20, 2, 2**40), "float32"), TensorType((2, 2**10, 1), "float32"), None
    with pytest.raises(convreg.OpError, match="elements of the large side"):
        plan_of(make_call(CONV_TRANSPOSE, "onnx", tensors, {}, {}))


def test_empty_batch():
    operands = {"X": np.zeros((0, 2, 4), np.float32), "W": np.ones((3, 2, 2), np.float32)}
    assert convreg.onnx.run(one_node("Conv", operands, {}), operands)["Y"].shape == (0, 3, 3)


@pytest.mark.parametrize(("op_type", "shapes", "attributes", "argument"), [
    ("Conv", [(1, 3, 8, 8), (4, 2, 3, 3)], {}, "X"),
    ("Conv", [(1, 3, 8, 8), (4, 3, 3)], {}, "rank"),
    ("Conv", [(1, 3), (4, 3)], {}, "rank"),
    ("Conv", [(1, 4, 8), (3, 2, 3)], {"group": 2}, "groups"),
    ("Conv", [(1, 3, 2), (4, 3, 3)], {}, "spatial axis 0"),
    ("Conv", [(1, 3, 8), (4, 3, 3), (3,)], {}, "B"),
    ("Conv", [(1, 3, 8), (4, 3, 3)], {"strides": [1, 1]}, "strides"),
    ("Conv", [(1, 3, 8), (4, 3, 3)], {"strides": [0]}, "strides"),
    ("Conv", [(1, 3, 8), (4, 3, 3)], {"pads": [1]}, "pads"),
    ("Conv", [(1, 3, 8), (4, 3, 3)], {"pads": [-1, 0]}, "pads"),
    ("Conv", [(1, 3, 8), (4, 3, 3)], {"pads": [1, 1], "auto_pad": "SAME_UPPER"}, "pads"),
    ("Conv", [(1, 3, 8), (4, 3, 3)], {"kernel_shape": [2]}, "kernel_shape"),
    ("Conv", [(1, 3, 8), (4, 3, 3)], {"auto_pad": "same_upper"}, "auto_pad"),
    ("Conv", [(1, 3, 8), (4, 3, 3)], {"groups": 1}, "groups"),
    ("ConvTranspose", [(1, 3, 8), (4, 3, 3)], {}, "X"),
    ("ConvTranspose", [(1, 4, 8), (4, 3, 3)], {"output_padding": [1]}, "output_padding"),
    ("ConvTranspose", [(1, 4, 8), (4, 3, 3)], {"output_padding": [0, 0]}, "output_padding"),
    ("ConvTranspose", [(1, 4, 8), (4, 3, 3)], {"output_shape": [0]}, "output_shape"),
    ("ConvTranspose", [(1, 4, 8), (4, 3, 3)], {"output_shape": [1, 3, 9]}, "output_shape"),
    ("ConvTranspose", [(1, 4, 1), (4, 3, 1)], {"pads": [1, 1]}, "X"),
    ("ConvTranspose", [(1, 4, 8), (4, 3, 3), (4,)], {}, "B"),
])
def test_bad_calls(op_type, shapes, attributes, argument):
    operands = {name: np.zeros(shape, np.float32) for name, shape in zip("XWB", shapes, strict=False)}
    with pytest.raises(convreg.OpError) as caught:
        convreg.onnx.run(one_node(op_type, operands, attributes), operands, engine="reference")
    assert caught.value.op == f"onnx::{op_type}"
    assert caught.value.argument == argument
    assert caught.value.__notes__ == [f"in the {op_type} node that makes 'Y'"]


@pytest.mark.parametrize(("op_type", "shapes", "attributes", "message"), [
    ("Conv", [("n", 4, 5), (2, 3, 3)], {}, "4 channels and W requires 3"),
    ("Conv", [("n", 4, "x"), (2, 3, 3)], {}, "4 channels and W requires 3"),
    ("Conv", [(1, 4, 5), (3, 2, 3)], {"group": 2}, "group"),
    ("Conv", [("n", 4, 5), (2, 4, 3), (3,)], {}, "B="),
    ("ConvTranspose", [("n", 4, 5), (3, 4, 3)], {}, "4 channels and W requires 3"),
    ("ConvTranspose", [("n", 4, 5), (4, 3, 3)], {"output_padding": [2]}, "output_padding"),
])
def test_check_refuses_what_a_run_would(op_type, shapes, attributes, message):
    names = ["X", "W", "B"][:len(shapes)]
    made = model([helper.make_node(op_type, names, ["Y"], **attributes)],
                 [value(name, shape) for name, shape in zip(names, shapes, strict=True)], [value("Y", [None] * 3)])
    with pytest.raises(GraphError, match=message):
        convreg.onnx.check(made)
    arrays = {name: np.ones([{"n": 1, "x": 5}.get(extent, extent) for extent in shape], np.float32)
              for name, shape in zip(names, shapes, strict=True)}
    with pytest.raises((GraphError, OpError)):
        convreg.onnx.run(made, arrays, engine="reference")
