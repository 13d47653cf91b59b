"""aten::convolution_backward refuses what PyTorch refuses."""

from __future__ import annotations

import numpy as np
import pytest

import convreg

LEGAL = {"bias_sizes": [2], "stride": [1], "padding": [1], "dilation": [1], "transposed": False, "output_padding": [0],
         "groups": 1, "output_mask": [True, True, True]}
SHAPES = ((1, 2, 5), (1, 2, 5), (2, 2, 3))


def refusal(shapes=SHAPES, **changes):
    with pytest.raises(convreg.OpError) as refused:
        convreg.aten.convolution_backward(*(np.ones(shape, np.float32) for shape in shapes), **{**LEGAL, **changes})
    return refused.value


@pytest.mark.parametrize("extra", [[1], [7]])
def test_output_padding_is_for_transposed_convolutions(extra):
    error = refusal(output_padding=extra)
    assert error.argument == "output_padding"
    assert error.value == extra
    assert "transposed" in error.allowed


@pytest.mark.parametrize(("shapes", "changes", "argument"), [
    (((1, 2, 7), (1, 2, 5), (2, 2, 0)), {"padding": [0]}, "weight"),
    (((1, 2, 0), (1, 2, 1), (2, 2, 2)), {"transposed": True}, "spatial axis 0"),
], ids=["no taps", "no elements"])
def test_sizes_that_no_convolution_has(shapes, changes, argument):
    assert refusal(shapes, **changes).argument == argument


WRONG = [{"output_padding": [1]}, {"output_padding": [-1]}, {"output_padding": [0, 0]}, {"stride": [0]},
         {"padding": [-1]}, {"dilation": [0]}, {"groups": 0}, {"groups": 3}, {"stride": [1, 1]},
         {"transposed": True, "output_padding": [1]}]


@pytest.mark.parametrize("changes", WRONG, ids=str)
def test_pytorch_refuses_them_too(changes):
    torch = pytest.importorskip("torch")
    assert changes.keys() & {refusal(**changes).argument} or "groups" in changes
    arguments = {**LEGAL, **changes}
    with pytest.raises((RuntimeError, ValueError)):
        torch.ops.aten.convolution_backward(*(torch.ones(shape) for shape in SHAPES), *arguments.values())
