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


@pytest.mark.parametrize(("rule", "changes"), [
    ("R14", {"strides": [1, 1]}), ("R14", {"dilations": [1, 1]}), ("R34", {"pads_begin": []}),
    ("R15", {"second": (3, 2, 3, 3)}), ("R16", {"first": (None, 3), "second": (3, 2)}), ("R18", {"stated": (2, 2)}),
    ("R18", {"stated": (None, None)}), ("R19", {"stated": (None, 2, -6)}),
])
@pytest.mark.parametrize("function", [onednn.convolution_backward_data, onednn.convolution_backward_weights,
                                      onednn.conv_transpose_backward_weights])
def test_gradients_refuse_what_is_known_and_does_not_fit(function, rule, changes):
    """Ranks and lists need no extent."""
    spec, order = function.spec, "OIX" if function.spec.name.startswith("Convolution") else "IOX"

    def shape_of(first=(None, 3, None), second=(3, 3, 3), stated=(None, 3, None), **attributes):
        tensors = (TensorType(first, "float32"), TensorType(second, "float32"), None)
        attributes = {**LISTS, "strides": [1], "dilations": [1], "weights_format": order, **attributes}
        call = make_call(spec, spec.conformances[0], tensors, {spec.shape_ports[0].name: stated}, attributes)
        return spec.infer(call)[0].shape

    assert shape_of() == (None, 3, None)
    assert shape_of(first=None, stated=None) == (None,) * 3
    assert shape_of(first=None, second=None) == (None, 3, None)
    with pytest.raises(convreg.OpError) as caught:
        shape_of(**changes)
    assert caught.value.rule == rule


CBD, GROUP = convreg.openvino.convolution_backprop_data, convreg.openvino.group_convolution_backprop_data
CHANNEL_FIRST = {"data_format": "NCX", "filter_format": "OIX"}


def openvino_inferred(function, data, weights, stated=None, conformance="openvino", **attributes):
    """The shape that inference finds for an operation of OpenVINO."""
    spec = function.spec
    lists = {"strides": [], "pads_begin": [], "pads_end": [], "dilations": []}
    if conformance == "document":
        lists = {"strides": [1], "pads_begin": [0], "pads_end": [0], "dilations": [1]}
    attributes = {**lists, **(CHANNEL_FIRST if function is CBD else {}), **attributes}
    tensors = (TensorType(data, "float32"), TensorType(weights, "float32"), None)
    return spec.infer(make_call(spec, conformance, tensors, {"output_shape": stated}, attributes))[0].shape


@pytest.mark.parametrize(("rule", "function", "data", "weights", "more"), [
    ("1", CBD, (None, 3, 5), (2, 1, 3), {}),
    ("1", CBD, (None, 3, None), (2, None, None), {}),
    ("2", CBD, (None, 2, 5), (2, 1, 3, 3), {}),
    ("15", CBD, (None, 2, None), (2, 1, 3), {"stated": (1, 1, 5)}),
    ("15", CBD, (None, 2, None), (2, 1, 3), {"stated": (5, None)}),
    ("17", CBD, (None, 2, None), (2, 1, 3), {"stated": (-1,)}),
    ("22", GROUP, (None, 3, None), (2, 2, 1, 3), {}),
    ("22", GROUP, (None, 3, None), (None, 2, 1, None), {}),
    ("26", CBD, (None, None, None), (0, 1, 3), {}),
    ("26", GROUP, (None, 4, None), (None, 0, 1, 3), {}),
    ("R18", CBD, (None, 2, None), (2, 1, 3), {"stated": (5, 5), "conformance": "document"}),
    ("R22", CBD, (None, 3, None), (2, 1, 3), {"conformance": "document"}),
    ("R23", CBD, (None, None, None), (3, 1, 3), {"conformance": "document", "groups": 2}),
])
def test_openvino_refuses_what_is_known_and_does_not_fit(rule, function, data, weights, more):
    """The runtime refuses these when a model is read, whatever other extents are open."""
    with pytest.raises(convreg.OpError) as caught:
        openvino_inferred(function, data, weights, **more)
    assert caught.value.rule == rule


def test_openvino_leaves_open_what_is_not_known():
    assert openvino_inferred(CBD, (None, 2, None), (2, 1, 3)) == (None, 1, None)
    assert openvino_inferred(CBD, (None, 2, 4), (2, 1, 3), (None,)) == (None, 1, None)
    assert openvino_inferred(CBD, (None, 2, 4), (2, 1, 3), (None,) * 3) == (None, 1, None)  # of unknown length
    assert openvino_inferred(CBD, (None, 2, None), (2, 1, 3), (7,)) == (None, 1, 7)
    assert openvino_inferred(CBD, (4, 2, None), (2, 1, 3), (4, 1, 7), "document") == (4, 1, 7)
    assert openvino_inferred(GROUP, (None, 6, None), (None, 2, 1, 3)) == (None, 3, None)
    assert openvino_inferred(GROUP, (None, "channels", None), (None, 2, 1, 3)) == (None, None, None)
    assert openvino_inferred(GROUP, (None, 6, None), (None, None, 1, 3)) == (None, None, None)
