"""The three gradients of a convolution in PyTorch's arrangement, shared by the aten, microsoft and ascend operators."""

from __future__ import annotations

from types import ModuleType
from typing import NamedTuple

from convreg.geometry import Geometry

from . import _views
from ._views import Array

FORMATS = ("float32", "float64", "bfloat16", "float16")
"""The number formats of PyTorch's convolutions, and of ONNX's."""


class Gradients(NamedTuple):
    """The output arrays, None where not computed."""

    input: Array | None
    weight: Array | None
    bias: Array | None


def run(
    geometry: Geometry, transposed: bool, grad_output: Array, data: Array, weight: Array, outputs: Gradients,
    kernels: ModuleType, threads: int,
) -> None:
    """Fill the gradients asked for; a transposed convolution exchanges the large and small side."""
    groups = geometry.groups
    dy = _views.data(grad_output, groups)
    if outputs.input is not None:
        compute = _views.forward if transposed else _views.backward_data
        compute(kernels, geometry, dy, _views.weights(weight, groups), _views.data(outputs.input, groups), threads)
    if outputs.weight is not None:
        x = _views.data(data, groups)
        large, small = (dy, x) if transposed else (x, dy)
        _views.backward_weights(kernels, geometry, large, small, _views.weights(outputs.weight, groups), threads)
    if outputs.bias is not None:
        _views.bias_sum(kernels, dy, _views.vector(outputs.bias), threads)
