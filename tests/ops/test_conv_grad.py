"""microsoft::ConvGrad: the padding modes of Conv, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
from drawn import normal

import convreg

DY, X, W = (2, 4, 3), (2, 4, 6), (4, 2, 4)


def gradients(dy=DY, x=X, w=W, **attributes):
    rng = np.random.default_rng(0)
    tensors = [normal(rng, shape) for shape in (dy, x, w)]
    return convreg.microsoft.conv_grad(*tensors, **{"strides": [2], "group": 2, **attributes})


@pytest.mark.parametrize(("mode", "dilation", "pads", "extent"), [
    ("SAME_UPPER", 1, [1, 1], 6), ("SAME_UPPER", 2, [2, 3], 6), ("SAME_LOWER", 2, [3, 2], 6),
    ("SAME_UPPER", 1, [1, 2], 5), ("SAME_LOWER", 1, [2, 1], 5), ("VALID", 1, [0, 0], 8), ("NOTSET", 1, [0, 0], 8)])
def test_modes_are_the_pads_of_conv(mode, dilation, pads, extent):
    sizes = {"x": (2, 4, extent), "dilations": [dilation]}
    for named, explicit in zip(gradients(**sizes, auto_pad=mode), gradients(**sizes, pads=pads), strict=True):
        np.testing.assert_array_equal(named, explicit)


@pytest.mark.parametrize(("changes", "argument"), [
    ({"kernel_shape": [3]}, "kernel_shape"), ({"kernel_shape": [4, 4]}, "kernel_shape"), ({"pads": [1]}, "pads"),
    ({"pads": [1, 1], "auto_pad": "VALID"}, "pads"), ({"pads": [-1, 3]}, "pads"), ({"strides": [2, 2]}, "strides"),
    ({"dilations": [0]}, "dilations"), ({"auto_pad": "same_upper"}, "auto_pad"), ({"group": 1}, "X"),
    ({"pads": [1, 1], "dy": (2, 4, 4)}, "spatial axis 0"), ({"pads": [1, 1], "dy": (1, 4, 3)}, "batch"),
], ids=str)
def test_refusals_name_the_argument(changes, argument):
    with pytest.raises(convreg.OpError) as refused:
        gradients(**changes)
    assert refused.value.argument == argument
