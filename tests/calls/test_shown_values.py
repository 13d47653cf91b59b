"""An error shows the argument and the value as the caller gave them, and the row that is meant."""

from __future__ import annotations

import numpy as np
import pytest

import convreg

F = np.float32
onednn, openvino, ascend = convreg.onednn, convreg.openvino, convreg.ascend
ONE = {"strides": [1], "pads_begin": [0], "pads_end": [0], "dilations": [1]}
TD, TW = onednn.conv_transpose_backward_data, onednn.conv_transpose_backward_weights
BW = onednn.convolution_backward_weights


def refusal(function, *args, **kwargs) -> convreg.OpError:
    with pytest.raises(convreg.OpError) as caught:
        function(*args, **kwargs)
    return caught.value


@pytest.mark.parametrize(("name", "value", "allowed"), [
    ("strides", [1.5], "an integer in each entry"), ("dilations", [True], "an integer in each entry"),
    ("pads_end", [[0]], "an integer in each entry"), ("pads_begin", [2**70], "a 64-bit integer in each entry"),
    ("dst_shape", [1.0, 1, 5], "an integer in each entry"),
])
def test_a_wrong_entry_shows_the_whole_list(name, value, allowed):
    call = {**ONE, "dst_shape": [1, 1, 5], "data_format": "NCX", "weights_format": "OIX", name: value}
    error = refusal(onednn.convolution_backward_data, np.ones((1, 2, 3), F), np.ones((2, 1, 3), F), **call)
    assert (error.argument, error.value, error.allowed, error.rule) == (name, value, allowed, "R2")
    assert isinstance(error, TypeError)


def test_a_wrong_entry_of_booleans_and_of_strings():
    arrays = np.ones((1, 2, 3), F), np.ones((1, 1, 5), F), np.ones((2, 1, 3), F)
    call = {"stride": [1], "padding": [0], "dilation": [1]}
    error = refusal(ascend.convolution_backward, *arrays, **call, output_mask=[True, None, True])
    assert (error.argument, error.value, error.allowed) == (
        "outputMask", [True, None, True], "a boolean in each entry")
    error = refusal(ascend.convolution_backward, *arrays, **call, conformance="emulation", output_formats=["", 8, ""])
    assert (error.argument, error.value, error.allowed) == ("outputFormats", ["", 8, ""], "a string in each entry")


@pytest.mark.parametrize("weights_format", ["IOX", "XOI"])
def test_groups_that_do_not_divide_grouped_weights_of_the_page(weights_format):
    """The page's order has all large channels in the weights: there is no zero extent where groups exceed them."""
    shape = (4, 3, 2) if weights_format == "IOX" else (2, 3, 4)
    error = refusal(TD, np.ones((1, 3, 9), F), np.ones(shape, F), **ONE, groups=5, data_format="NCX",
                    weights_format=weights_format)
    assert (error.argument, error.value, error.rule) == ("groups", 5, "R23")
    assert error.allowed == "a divisor of the 3 channels of diff_dst"


@pytest.mark.parametrize(("function", "given"), [(BW, "XIO"), (TW, "XOI")])
@pytest.mark.parametrize("stated", [True, False])
def test_empty_weights_are_shown_as_stated(function, given, stated):
    shape = [0, 2, 3]
    call = {"weights_shape": shape} if stated else {"out": np.empty(shape, F)}
    error = refusal(function, np.ones((1, 4, 2), F), np.ones((1, 4, 2), F), **ONE, **call, weights_format=given)
    assert (error.argument, error.rule) == ("weights_shape" if stated else "diff_weights", "R28")
    assert error.value == shape


def test_empty_weights_are_shown_in_their_own_order():
    error = refusal(onednn.convolution, np.ones((1, 4, 2), F), np.ones((0, 2, 3), F), **ONE)
    assert (error.argument, error.value, error.rule) == ("weights", [0, 2, 3], "R28")


def test_only_weights_in_the_order_of_the_page_are_said_to_be_so_r24():
    src, diff_dst, call = np.ones((1, 6, 4), F), np.ones((1, 4, 4), F), {**ONE, "data_format": "NCX", "groups": 2}
    error = refusal(TW, src, diff_dst, [3, 4, 1], **call, weights_format="IOX")
    assert (error.argument, error.value, error.rule) == ("weights_shape", [3, 4, 1], "R24")
    error = refusal(TW, src, diff_dst, [6, 4, 1], **call, weights_format="IOX")
    assert (error.argument, error.value, error.rule) == ("diff_dst", 4, "R22")


@pytest.mark.parametrize("conformance", ["document", "openvino"])
def test_groups_that_do_not_divide_have_a_row_of_their_own(conformance):
    error = refusal(openvino.convolution_backprop_data, np.ones((1, 4, 3), F), np.ones((4, 2, 1), F), **ONE,
                    data_format="NCX", filter_format="OIX", groups=3, conformance=conformance)
    assert (error.argument, error.value, error.rule) == ("groups", 3, "R23")


@pytest.mark.parametrize("name", ["pads_begin", "pads_end"])
def test_an_empty_list_of_pads_r34(name):
    call = {**ONE, name: []}
    arrays = np.ones((1, 3, 4), F), np.ones((1, 2, 4), F)
    assert refusal(openvino.convolution_backprop_data, *arrays, **call).rule == "R34"
    assert openvino.convolution_backprop_data(*arrays, **call, conformance="openvino").shape == (1, 3, 2)
