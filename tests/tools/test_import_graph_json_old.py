"""oneDNN graphs with the kinds, attribute names and weight orders of old releases."""

from __future__ import annotations

import numpy as np
import pytest
from model_files import NCX, TWELVE, graph, operation, run_graph, tensor

import convreg
from convreg import GraphError

RNG = np.random.default_rng(11)


DY, W = np.array([[[1, 2, 3]]], np.float32), np.array([[[1, 10, 100]]], np.float32)
FULL = [1, 10, 102, 20, 203, 30, 300]


@pytest.mark.parametrize(
    ("kind", "mode", "shape_name", "expected"),
    [
        ("ConvolutionBackwardData", "SAME_UPPER", "dst_shape", FULL[:6]),
        ("ConvolutionBackwardData", "SAME_LOWER", "dst_shape", FULL[1:]),
        ("ConvolutionBackpropData", "SAME_UPPER", "output_shape", FULL[1:]),
        ("ConvolutionBackpropData", "same_lower", "output_shape", FULL[:6]),
        ("ConvolutionBackpropData", "same_upper", "", FULL[1:]),
    ],
)
@pytest.mark.parametrize("stated", ["attribute", "twelve zeros", "output"])
def test_old_data_gradient_keeps_the_old_meaning_of_same(tmp_path, kind, mode, shape_name, expected, stated):
    attributes = {**NCX, "strides": [2], "auto_pad": mode}
    attributes["filter_format" if "Backprop" in kind else "weights_format"] = "OIX"
    if shape_name and stated != "output":
        attributes[shape_name] = [1, 1, 6] if stated == "attribute" else TWELVE
    document = graph(operation(1, kind, [tensor(0, (1, 1, 3)), tensor(1, (1, 1, 3))], [tensor(2, (1, 1, 6))],
                               output_padding=TWELVE, **attributes))
    assert run_graph(tmp_path, document, {"0": DY, "1": W})["2"].tolist() == [[expected]]


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER", "same_upper", "same_lower", "VALID", "none"])
@pytest.mark.parametrize("kind", ["ConvolutionBackpropFilters", "ConvTransposeBackpropData",
                                  "ConvTransposeBackpropFilters"])
def test_other_old_gradients(tmp_path, kind, mode):
    """Pads of SAME by the old formula: total 1 for X=6, Y=3, K=3, stride 2, its odd element at the other end."""
    explicit = mode in ("VALID", "none")
    large, small = (1, 1, 7 if explicit else 6), (1, 1, 3)
    x, y, w = (np.arange(1, shape[2] + 1, dtype=np.float32).reshape(shape) for shape in (large, small, (1, 1, 3)))
    weights_format = "OIX" if kind.startswith("Convolution") else "IOX"
    attributes = {**NCX, "strides": [2], "auto_pad": mode, "filter_format": weights_format}
    begin, end = {"upper": (1, 0), "lower": (0, 1)}.get(mode.lower()[5:], (0, 0))
    arguments = {"strides": [2], "pads_begin": [begin], "pads_end": [end], "dilations": [1], "data_format": "NCX",
                 "weights_format": weights_format}
    if kind == "ConvolutionBackpropFilters":
        operands, shapes, attributes["filter_shape"] = (x, y), (large, small, (1, 1, 3)), [1, 1, 3]
        expected = convreg.onednn.convolution_backward_weights(x, y, (1, 1, 3), **arguments)
    elif kind == "ConvTransposeBackpropData":
        operands, shapes, attributes["output_padding"] = (x, w), (large, (1, 1, 3), small), TWELVE
        expected = convreg.onednn.conv_transpose_backward_data(x, w, **arguments)
    else:
        operands, shapes = (y, x), (small, large, (1, 1, 3))
        expected = convreg.onednn.conv_transpose_backward_weights(y, x, (1, 1, 3), **arguments)
    document = graph(operation(1, kind, [tensor(0, shapes[0]), tensor(1, shapes[1])], [tensor(2, shapes[2])],
                               **attributes))
    got = run_graph(tmp_path, document, dict(zip(("0", "1"), operands, strict=True)))["2"]
    np.testing.assert_array_equal(got, expected)


def test_old_weights_gradient_with_the_shape_in_the_middle(tmp_path):
    x, dy = RNG.integers(-3, 4, (2, 2, 5)).astype(np.float32), RNG.integers(-3, 4, (2, 4, 3)).astype(np.float32)
    document = graph(operation(1, "ConvolutionBackpropFilters",
                               [tensor(0, x.shape), tensor(1, (3,), "s32"), tensor(2, dy.shape)],
                               [tensor(3, (4, 2, 3))], **NCX, filter_format="OIX"))
    got = run_graph(tmp_path, document, {"0": x, "1": np.array([4, 2, 3], np.int32), "2": dy})["3"]
    expected = convreg.onednn.convolution_backward_weights(x, dy, (4, 2, 3), **NCX, weights_format="OIX")
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("mode", ["same_upper", "SAME_LOWER"])
def test_old_weights_gradient_with_a_shape_input_and_same_pads(tmp_path, mode):
    """The old formula needs the taps: the output tensor has them where an input states the shape."""
    x, dy = RNG.integers(-3, 4, (2, 2, 6)).astype(np.float32), RNG.integers(-3, 4, (2, 4, 3)).astype(np.float32)
    document = graph(operation(1, "ConvolutionBackpropFilters",
                               [tensor(0, x.shape), tensor(1, dy.shape), tensor(2, (3,), "s32")],
                               [tensor(3, (4, 2, 3))], **{**NCX, "strides": [2]}, auto_pad=mode, filter_format="OIX"))
    got = run_graph(tmp_path, document, {"0": x, "1": dy, "2": np.array([4, 2, 3], np.int32)})["3"]
    begin = [int(mode == "same_upper")]
    arguments = {**NCX, "strides": [2], "pads_begin": begin, "pads_end": [1 - begin[0]]}
    expected = convreg.onednn.convolution_backward_weights(x, dy, (4, 2, 3), **arguments, weights_format="OIX")
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("claimed", [(1, 1, 5), (1, 6), (1, 1, None)])
def test_the_producer_of_a_tensor_says_its_shape(tmp_path, claimed):
    """Some files describe a tensor in another way where it is read; SAME pads need the extents that it has."""
    x, dy = np.arange(-2, 4, dtype=np.float32).reshape(1, 1, 6), DY
    claimed = [-2**63 if extent is None else extent for extent in claimed]
    document = graph(
        operation(1, "Abs", [tensor(0, x.shape)], [tensor(1, x.shape)]),
        operation(2, "ConvolutionBackpropFilters", [tensor(1, claimed), tensor(2, dy.shape)], [tensor(3, (1, 1, 3))],
                  **{**NCX, "strides": [2]}, auto_pad="same_lower", filter_format="OIX"))
    got = run_graph(tmp_path, document, {"0": x, "2": dy})["3"]
    arguments = {**NCX, "strides": [2], "pads_end": [1], "weights_format": "OIX"}
    np.testing.assert_array_equal(got, convreg.onednn.convolution_backward_weights(abs(x), dy, (1, 1, 3), **arguments))


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("kind", ["ConvTranspose", "ConvTransposeBackpropData", "ConvTransposeBackpropFilters"])
def test_oldest_order_of_transposed_weights(tmp_path, kind, last):
    """OIX meant (OC/g, IC, X) and XIO (X, IC, OC/g) there: today's IOX and XOI with the channel axes exchanged."""
    src, dst = RNG.integers(-3, 4, (2, 4, 3)).astype(np.float32), RNG.integers(-3, 4, (2, 6, 5)).astype(np.float32)
    iox = RNG.integers(-3, 4, (4, 3, 3)).astype(np.float32)
    arguments = {**NCX, "groups": 2, "weights_format": "IOX"}
    old = iox.transpose(2, 0, 1) if last else iox.transpose(1, 0, 2)
    attributes = {**NCX, "groups": 2, "filter_format": "XIO" if last else "OIX"}
    if kind == "ConvTranspose":
        operands, expected = (src, old), convreg.onednn.conv_transpose(src, iox, **arguments)
    elif kind == "ConvTransposeBackpropData":
        operands = (dst, old)
        expected = convreg.onednn.conv_transpose_backward_data(dst, iox, **arguments)
    else:
        operands = (src, dst)
        expected = convreg.onednn.conv_transpose_backward_weights(src, dst, (4, 3, 3), **arguments)
        expected = expected.transpose(2, 0, 1) if last else expected.transpose(1, 0, 2)
    document = graph(operation(1, kind, [tensor(i, a.shape) for i, a in enumerate(operands)],
                               [tensor(2, expected.shape)], **attributes))
    got = run_graph(tmp_path, document, {str(i): a for i, a in enumerate(operands)})["2"]
    np.testing.assert_array_equal(got, expected)


def test_current_names_with_transposed_family_formats_are_refused(tmp_path):
    document = graph(operation(1, "ConvTranspose", [tensor(0, (1, 2, 3)), tensor(1, (2, 2, 3))], [tensor(2, (1, 2, 5))],
                               **NCX, weights_format="OIX"))
    with pytest.raises(GraphError, match="R6"):
        run_graph(tmp_path, document, {})
