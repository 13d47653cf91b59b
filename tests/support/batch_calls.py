"""Calls of operators with a weights or bias gradient whose sums over the batch have several pieces."""

from __future__ import annotations

import random

import ml_dtypes
import numpy as np
from gradient_calls import single, together
from hypothesis import strategies as st
from memory_layouts import Placed, draw_layout

import convreg

FORMATS = (np.float32, np.float64, np.float16, ml_dtypes.bfloat16, convreg.hifloat8, ml_dtypes.float8_e4m3fn)
LAYER = {"strides": (1, 1), "pads_begin": (1, 1), "pads_end": (1, 1), "dilations": (1, 1), "data_format": "NCX",
         "weights_format": "OIX"}
WEIGHTS = "onednn::ConvolutionBackwardWeights"


class Planes:
    """A convolution with planes so large that its sums have several pieces; the attributes are those of `Drawn`."""

    def __init__(self, draw) -> None:
        self.groups = draw(st.sampled_from([1, 1, 2, 9]))
        count = draw(st.integers(1, 3))
        longest = {1: 12000, 2: 120, 3: 24}[count]
        taps = tuple(draw(st.integers(1, 3)) for _ in range(count))
        self.stride = tuple(draw(st.integers(1, 2)) for _ in taps)
        self.dilation = tuple(draw(st.integers(1, 2)) for _ in taps)
        self.begin = self.end = tuple(draw(st.integers(0, 1)) for _ in taps)
        kernels = [(k - 1) * d + 1 for k, d in zip(taps, self.dilation, strict=True)]
        extents = [draw(st.integers(longest // 2, longest)) for _ in taps]
        small = [(x + 2 * p - k) // s + 1
                 for x, p, k, s in zip(extents, self.begin, kernels, self.stride, strict=True)]
        batch, large_channels = draw(st.integers(1, 5)), draw(st.sampled_from([1, 1, 2, 5]))
        small_channels = draw(st.sampled_from([1, 2, 9, 17])) if self.groups < 9 else draw(st.sampled_from([1, 2]))
        self.large = (batch, self.groups * large_channels, *extents)
        self.small = (batch, self.groups * small_channels, *small)
        self.weights = (self.groups * small_channels, large_channels, *taps)

    @property
    def attributes(self) -> dict:
        return {"strides": self.stride, "dilations": self.dilation, "pads_begin": self.begin, "pads_end": self.end}


@st.composite
def gradient_calls(draw):
    """A call of an operator with a weights or bias gradient, its operands in drawn places in memory."""
    case, rng = Planes(draw), random.Random(draw(st.integers(0, 2**32)))
    numbers = np.random.default_rng(rng.randrange(2**32))
    layouts = rng.choice([("NCX", "OIX"), ("NXC", "XIO"), ("NCX", "XIO"), ("NXC", "OIX")])

    def make(shape):
        return numbers.standard_normal(shape, np.float32)

    mask = rng.choice([(True, True, True), (False, True, False), (False, False, True)])
    calls = [*single(case, make, layouts), *together(case, make, mask, rng.random() < 0.4)]
    calls = [call for call in calls if any(role in convreg.get(call.name).spec.roles
                                           for role in ("grad_weight", "grad_bias"))]
    call = rng.choice(calls)
    arguments, format = dict(call.arguments), rng.choice(FORMATS)
    if "emulation" in convreg.get(call.name).spec.conformances and format != np.float64:
        arguments["conformance"] = "emulation"
    else:
        format = np.float32
    tensors = []
    for array in call.tensors:
        place = Placed(draw_layout(rng, array.shape, np.dtype(format).itemsize), array.shape, np.dtype(format))
        place.view[...] = array.astype(format)
        tensors.append(place.view)
    return call.name, tensors, arguments


def results_of(name, tensors, arguments):
    """The results of the one call by the vendor's names."""
    made = convreg.get(name)(*tensors, **arguments)
    ports = [port.name for port in convreg.get(name).spec.outputs]
    return dict(zip(ports, made if isinstance(made, tuple) else (made,), strict=True))


def layer(batch=4, dtype=np.float32):
    gen = np.random.default_rng(0)
    return [gen.standard_normal((batch, channels, 64, 64)).astype(dtype) for channels in (16, 24)]


def call_of(batch=4, dtype=np.float32):
    return WEIGHTS, layer(batch, dtype), {**LAYER, "weights_shape": (24, 16, 3, 3)}
