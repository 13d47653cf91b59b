"""Scales that are powers of two, so that multiplying an operand by them rounds nothing."""

from __future__ import annotations

import numpy as np
from emulated_calls import wide

import convreg
from convreg.calls.binding import bind
from convreg.calls.signature import reader_of
from convreg.geometry import Geometry

POWERS = 2.0 ** np.arange(-3, 4)


def data_scale(call, array, rng):
    """One number per channel of data or a bias, and how it lies beside them."""
    axis = array.ndim - 1 if call.arguments.get("data_format") == "NXC" or array.ndim == 1 else 1
    scale = rng.choice(POWERS, array.shape[axis]).astype(np.float32)
    return scale, scale.reshape([-1 if i == axis else 1 for i in range(array.ndim)])


def geometry(call) -> Geometry:
    spec = convreg.get(call.name).spec
    tensors, attributes, conformance, _, _ = reader_of(spec)(call.tensors, dict(call.arguments))
    return bind(spec, tensors, attributes, conformance=conformance).plan.integers


def weight_scale(call, rng):
    """One number per forward output channel of the weights, and how it lies beside the weights."""
    spec = convreg.get(call.name).spec
    found, array = geometry(call), call.tensors[[port.name for port in spec.inputs].index(spec.roles["weight"])]
    of_large = spec.convolution.is_transposed(call.arguments) != spec.convolution.forward
    count = found.groups * (found.large_channels if of_large else found.small_channels)
    scale = rng.choice(POWERS, count).astype(np.float32)
    if call.name.endswith("GroupConvolutionBackpropData"):
        return scale, scale.reshape(found.groups, -1, *[1] * (array.ndim - 2))
    small_first = (scale.reshape(-1, 1) if not of_large else
                   np.repeat(scale.reshape(found.groups, -1), found.small_channels, 0))
    beside = small_first.reshape(*small_first.shape, *[1] * (array.ndim - 2))
    names = [call.arguments.get(name) for name in ("weights_format", "filter_format")]
    if {"XIO", "XOI"} & {*names}:
        beside = np.moveaxis(beside, (0, 1), (-1, -2))
    return scale, beside


def drawn_scales(call, rng, choose):
    """Scales of a call and its operands as float32 with the scales multiplied in, exactly for powers of two."""
    spec = convreg.get(call.name).spec
    ports = [port.name for port in spec.inputs if not port.shape and not port.scales]
    scales, operands = [], []
    for port, array in zip(ports, call.tensors, strict=True):
        kind = choose(port)
        if kind == "none":
            scale, beside = None, np.float32(1)
        elif kind == "tensor":
            scale = beside = np.float32(rng.choice(POWERS))
            scale = scale.reshape(rng.choice([0, 1]) * (1,))
        elif port == spec.roles.get("weight"):
            scale, beside = weight_scale(call, rng)
        else:
            scale, beside = data_scale(call, array, rng)
        scales.append(scale)
        operands.append(wide(array) * beside)
    return tuple(scales), operands
