"""Masked arrays are refused wherever numbers are read or written: nothing here leaves numbers out."""

from __future__ import annotations

import numpy as np
import pytest
from graphs import data_gradient, model, value
from valid_calls import VALID, several

import convreg
import convreg.onnx
from convreg import GraphError, OpTypeError

CODES = convreg.quantize(np.ones(3, np.float32), "bfloat16")


@pytest.mark.parametrize("name", VALID)
@pytest.mark.parametrize("mask", [False, True])
def test_operands(name, mask):
    """Also after a call that is alike but for the mask, and where nothing is masked."""
    call, operator = VALID[name], convreg.get(name)
    for place, tensor in enumerate(call.tensors):
        operator(*call.tensors, **call.arguments)
        tensors = [*call.tensors]
        tensors[place] = np.ma.array(tensor, mask=np.full(tensor.shape, mask))
        with pytest.raises(OpTypeError, match=f"{operator.spec.inputs[place].name}='MaskedArray'.*mask"):
            operator(*tensors, **call.arguments)


@pytest.mark.parametrize("name", VALID)
def test_results(name):
    call, operator = VALID[name], convreg.get(name)
    made = several(operator(*call.tensors, **call.arguments))
    for place, array in enumerate(made):
        out = [None] * len(made)
        out[place] = np.ma.array(array)
        with pytest.raises(OpTypeError, match=r"out='MaskedArray'.*without a mask"):
            operator(*call.tensors, **call.arguments, out=tuple(out) if len(out) > 1 else out[0])


@pytest.mark.parametrize(("argument", "attempt"), [
    ("x", lambda: convreg.quantize(np.ma.array([1.0]), "bfloat16")),
    ("scale", lambda: convreg.quantize([1.0], "bfloat16", scale=np.ma.array([1.0]))),
    ("out", lambda: convreg.quantize(np.ones(3, np.float32), "bfloat16", out=np.ma.array(CODES))),
    ("codes", lambda: convreg.dequantize(np.ma.array(CODES))),
])
def test_conversions(argument, attempt):
    with pytest.raises(OpTypeError, match=f"{argument}='MaskedArray'.*mask"):
        attempt()


def test_inputs_of_a_model():
    made = model([data_gradient(["dy", "w"], dst_shape=[1, 3, 8, 8])], [value("dy", [1, 4, 8, 8]),
                 value("w", [4, 3, 3, 3])], [value("dx", [1, 3, 8, 8])])
    with pytest.raises(GraphError, match=r"input dy.*MaskedArray.*mask would be dropped"):
        convreg.onnx.run(made, {"dy": np.ma.ones((1, 4, 8, 8), np.float32), "w": np.ones((4, 3, 3, 3), np.float32)})
