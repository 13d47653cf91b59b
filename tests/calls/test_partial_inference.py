"""Shapes of results while the batch is not known: what the whole call gives, as far as it follows."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import convreg
from convreg.calls.binding import make_call
from convreg.spec import TensorType

onednn = convreg.onednn
LISTS = {"pads_begin": [1], "pads_end": [2], "data_format": "NCX"}


def inferred(function, data, weights, **arguments):
    """The shape of the result with an open batch."""
    spec = function.spec
    conformance = arguments.pop("conformance", spec.conformances[0])
    tensors = tuple(TensorType(shape, "float32") for shape in ((None, *data[1:]), weights))
    call = make_call(spec, conformance, tensors, {}, arguments)
    return spec.infer(call)[0].shape


@pytest.mark.parametrize("mode", ["None", "SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize(("function", "order"), [
    (onednn.convolution, "OIX"), (onednn.conv_transpose, "IOX"), (onednn.conv_transpose_backward_data, "IOX")])
def test_extents(function, order, mode):
    accepted = 0
    for extent, taps, stride, dilation in product((1, 4, 7, 8), (1, 2, 4), (1, 2, 3), (1, 2)):
        data, weights = (2, 3, extent), (3, 3, taps)
        arguments = {**LISTS, "strides": [stride], "dilations": [dilation], "auto_pad": mode, "weights_format": order}
        try:
            whole = function(np.zeros(data, np.float32), np.zeros(weights, np.float32), **arguments).shape
        except convreg.OpError:
            continue
        accepted += 1
        assert inferred(function, data, weights, **arguments) == (None, *whole[1:])
    assert accepted > 30


@pytest.mark.parametrize("weights", [(6, 2, 3), (3, 4, 3)], ids=["library's order", "page's order"])
def test_the_channels_tell_the_order_of_grouped_weights(weights):
    arguments = {**LISTS, "strides": [1], "dilations": [1], "weights_format": "IOX", "groups": 2}
    function = onednn.conv_transpose_backward_data
    assert function(np.zeros((2, 4, 5), np.float32), np.zeros(weights, np.float32), **arguments).shape == (2, 6, 6)
    assert inferred(function, (2, 4, 5), weights, **arguments) == (None, 6, 6)
    assert inferred(function, (2, None, 5), weights, **arguments) == (None, None, 6)
    assert inferred(function, (2, 4, 5), (weights[0], None, 3), **arguments) == (None, None, 6)
    assert inferred(function, (2, "channels", 5), (6, 2, 3), **arguments, conformance="library") == (None, 6, 6)
