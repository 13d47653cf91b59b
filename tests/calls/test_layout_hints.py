"""Tensors in another order of axes than the attributes say: the error names the orders that fit, and no wrong ones."""

from __future__ import annotations

import numpy as np
import pytest
from graphs import data_gradient, model, value

import convreg
import convreg.onnx
from convreg import GraphError, OpError

X, Y = np.ones((2, 3, 8, 9), np.float32), np.ones((2, 5, 7, 6), np.float32)
W = np.ones((5, 3, 2, 4), np.float32)
WINDOW = {"strides": [1, 1], "pads_begin": [0, 0], "pads_end": [0, 0], "dilations": [1, 1]}
CALLS = {
    "onednn::Convolution": (X, W),
    "onednn::ConvolutionBackwardData": (Y, W, X.shape),
    "onednn::ConvolutionBackwardWeights": (X, Y, W.shape),
    "onednn::ConvTranspose": (Y, W),
    "onednn::ConvTransposeBackwardData": (X, W),
    "onednn::ConvTransposeBackwardWeights": (Y, X, W.shape),
    "openvino::ConvolutionBackpropData": (Y, W),
}
CASES = [(name, conformance) for name in CALLS for conformance in convreg.get(name).spec.conformances]


def names_of(name: str) -> tuple[str, str]:
    """The attribute of the weights, and its value for channels before space."""
    attribute = "filter_format" if name.startswith("openvino") else "weights_format"
    return attribute, "IOX" if "Transpose" in name else "OIX"


def refusal(name: str, conformance: str, *args, **kwargs) -> OpError:
    chosen = {"conformance": conformance} if len(convreg.get(name).spec.conformances) > 1 else {}
    with pytest.raises(OpError) as caught:
        convreg.get(name)(*(args or CALLS[name]), **WINDOW, **kwargs, **chosen)
    return caught.value


@pytest.mark.parametrize(("name", "conformance"), CASES)
def test_both_defaults_beside_channels_first(name, conformance):
    attribute, order = names_of(name)
    error = refusal(name, conformance)
    assert f"with data_format='NCX' and {attribute}='{order}' the shapes agree" in str(error)
    chosen = {"conformance": conformance} if len(convreg.get(name).spec.conformances) > 1 else {}
    convreg.get(name)(*CALLS[name], **WINDOW, **chosen, data_format="NCX", **{attribute: order})


@pytest.mark.parametrize(("name", "conformance"), CASES)
def test_one_of_the_two(name, conformance):
    attribute, order = names_of(name)
    error = refusal(name, conformance, **{attribute: order})
    assert "with data_format='NCX' the shapes agree" in str(error)
    other = {"OIX": "XIO", "IOX": "XOI"}[order]
    arrays = [array.transpose(0, 2, 3, 1) if array.shape != W.shape else array
              for array in CALLS[name] if isinstance(array, np.ndarray)]
    shape = [[*(shape if shape == W.shape else (shape[0], *shape[2:], shape[1]))]
             for shape in CALLS[name] if isinstance(shape, tuple)]
    if "Weights" not in name:
        error = refusal(name, conformance, *arrays, *shape, data_format="NXC", **{attribute: other})
        assert f"with {attribute}='{order}' the shapes agree" in str(error)


def test_three_channels_and_a_kernel_of_three():
    """Data in the other order alone would fit too, with the channels for taps."""
    error = refusal("onednn::Convolution", "library", X, np.ones((5, 3, 3, 3), np.float32))
    assert "with data_format='NCX' and weights_format='OIX' the shapes agree" in str(error)


@pytest.mark.parametrize("name", CALLS)
def test_no_hint_where_no_order_fits(name):
    _, second, *rest = CALLS[name]
    error = refusal(name, convreg.get(name).spec.conformances[0], np.ones((2, 11, 8, 9), np.float32), second, *rest)
    assert "the shapes agree" not in str(error)


def test_no_hint_where_the_mistake_is_another():
    ncx = {"data_format": "NCX", "weights_format": "OIX"}
    bias = np.ones(4, np.float32)
    for error in (
        refusal("onednn::Convolution", "library", X, W, bias, **ncx),
        refusal("onednn::Convolution", "library", np.ones((2, 11, 8, 9), np.float32), W, **ncx),
        refusal("onednn::Convolution", "library", X[0], W[0]),
        refusal("onednn::Convolution", "library", X, W, groups=7),
        refusal("openvino::GroupConvolutionBackpropData", "openvino", X, W[None]),
    ):
        assert "the shapes agree" not in str(error)


def test_what_was_given_is_kept_where_it_fits():
    square = np.ones((3, 3, 3, 3), np.float32)
    error = refusal("onednn::Convolution", "library", X, square, weights_format="XIO")
    assert "with data_format='NCX' the shapes agree" in str(error)


def test_the_hint_is_an_error_of_the_same_kind_and_row():
    error = refusal("onednn::Convolution", "library", X, W)
    assert (error.rule, error.argument) == ("R27", "data_format")
    error = refusal("openvino::ConvolutionBackpropData", "document", Y, W, data_format="NXC", filter_format="XIO")
    assert (error.rule, error.argument) == ("R22", "output_delta")
    assert "with data_format='NCX' and filter_format='OIX' the shapes agree" in str(error)


def test_nodes_have_the_hint_too():
    node = data_gradient(["dy", "w"], dst_shape=list(X.shape))
    kept = [attribute for attribute in node.attribute if "format" not in attribute.name]
    del node.attribute[:]
    node.attribute.extend(kept)
    made = model([node], [value("dy", (2, 5, 8, 9)), value("w", (5, 3, 3, 3))], [value("dx", X.shape)])
    with pytest.raises(GraphError, match="with data_format='NCX' and weights_format='OIX' the shapes agree"):
        convreg.onnx.check(made)
