"""The three kernels of convolution and the bias sum, on 6-D strided views of stored numbers."""

from __future__ import annotations

import numpy as np

from . import direct
from .threads import default_threads, team

openmp: bool = direct.OPENMP

_NO_BIAS = np.empty(0)


def _bias(bias):
    return _NO_BIAS if bias is None else bias.astype(np.float64)


def _widened(codes, format):
    """The float32 values of an array of stored numbers."""
    if format == "float16":
        return codes.view(np.float16).astype(np.float32)
    if format == "bfloat16":
        return (codes.astype(np.uint32) << 16).view(np.float32)
    return codes


def _alike(first, second, formats):
    """Both operands in one format."""
    if formats[0] == formats[1]:
        return first, second, formats
    return _widened(first, formats[0]), _widened(second, formats[1]), ("float32", "float32", formats[2])


def forward(large, taps, small, *, stride, dilation, begin, formats, bias=None, threads=0):
    """Write small."""
    large, taps, formats = _alike(large, taps, formats)
    direct.forward(
        large, taps, small,
        stride=stride, dilation=dilation, begin=begin, formats=formats, bias=_bias(bias), threads=team(threads),
    )


def backward_data(small, taps, large, *, stride, dilation, begin, formats, bias=None, threads=0):
    """Write large."""
    small, taps, formats = _alike(small, taps, formats)
    direct.backward_data(
        small, taps, large,
        stride=stride, dilation=dilation, begin=begin, formats=formats, bias=_bias(bias), threads=team(threads),
    )


def backward_weights(large, small, taps, *, stride, dilation, begin, formats, threads=0):
    """Write taps."""
    large, small, formats = _alike(large, small, formats)
    direct.backward_weights(
        large, small, taps, stride=stride, dilation=dilation, begin=begin, formats=formats, threads=team(threads)
    )


_ONE = {"float32": np.float32(1), "float64": np.float64(1), "float16": np.uint16(0x3C00), "bfloat16": np.uint16(0x3F80)}


def bias_sum(small, bias, *, formats, threads=0):
    """Write bias: the weights' gradient of a single tap against ones."""
    N, G, M, *Y = small.shape
    ones = np.broadcast_to(_ONE[formats[0]], (N, G, 1, *Y))
    backward_weights(
        ones, small, bias.reshape(G, M, 1, 1, 1, 1),
        stride=(1, 1, 1), dilation=(1, 1, 1), begin=(0, 0, 0), formats=(formats[0], *formats), threads=threads,
    )


__all__ = ["backward_data", "backward_weights", "bias_sum", "default_threads", "forward", "openmp"]
