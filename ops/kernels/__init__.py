"""The three kernels of convolution and the bias sum.

Every operand is a 6-D view, any strides, of stored numbers in one axis order: n batch, g group, c channel of the large
side, m channel of the small side (both within the group), x and y positions, t tap. Three spatial axes always; those
that an operator lacks have extent 1, stride 1, dilation 1, begin 0. Per axis x = y*stride - begin + t*dilation.

    large (N, G, C, X0, X1, X2)     small (N, G, M, Y0, Y1, Y2)     taps (G, M, C, K0, K1, K2)

    forward(large, taps, small)             small[n,g,m,y] = SUM over t, c   large[n,g,c,x] * taps[g,m,c,t]   (+ bias)
    backward_data(small, taps, large)       large[n,g,c,x] = SUM over t, m   small[n,g,m,y] * taps[g,m,c,t]   (+ bias)
    backward_weights(large, small, taps)    taps[g,m,c,t]  = SUM over n, y   large[n,g,c,x] * small[n,g,m,y]
    bias_sum(small, bias)                   bias[g*M + m]  = SUM over n, y   small[n,g,m,y]

The last array is written. `formats` names the format of each array in the order of the arguments: "float32" and
"float64" are stored as such, "float16" and "bfloat16" as uint16 codes, "float8_e4m3fn", "float8_e5m2" and "hifloat8"
as uint8 codes. Formats mix freely, except that float64 stands alone. `bias` holds values, one per channel of the
result, added to the finished sum before its one rounding. `threads=0` means the default; results do not depend on it.

The caller has checked shapes, formats and that the written array overlaps none that is read. The kernels release the
GIL, and any number of Python threads may call them. `direct.pyx` defines the results to the bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import direct
from .threads import default_threads, run

Array = NDArray[Any]
Triple = tuple[int, int, int]

openmp: bool = direct.OPENMP


def forward(
    large: Array,
    taps: Array,
    small: Array,
    *,
    stride: Triple,
    dilation: Triple,
    begin: Triple,
    formats: tuple[str, str, str],
    bias: Array | None = None,
    threads: int = 0,
) -> None:
    """Write small, one value for each window of large; `bias` has G*M values."""
    geometry = {"stride": stride, "dilation": dilation, "begin": begin}
    large, taps, formats = _in_one_format(large, taps, formats, threads)
    run(direct.forward, large, taps, small, **geometry, formats=formats, bias=bias, threads=threads)


def backward_data(
    small: Array,
    taps: Array,
    large: Array,
    *,
    stride: Triple,
    dilation: Triple,
    begin: Triple,
    formats: tuple[str, str, str],
    bias: Array | None = None,
    threads: int = 0,
) -> None:
    """Write large, the gradient of `forward` with respect to it; `bias` has G*C values."""
    geometry = {"stride": stride, "dilation": dilation, "begin": begin}
    small, taps, formats = _in_one_format(small, taps, formats, threads)
    run(direct.backward_data, small, taps, large, **geometry, formats=formats, bias=bias, threads=threads)


def backward_weights(
    large: Array,
    small: Array,
    taps: Array,
    *,
    stride: Triple,
    dilation: Triple,
    begin: Triple,
    formats: tuple[str, str, str],
    threads: int = 0,
) -> None:
    """Write taps, the gradient of `forward` with respect to them."""
    geometry = {"stride": stride, "dilation": dilation, "begin": begin}
    large, small, formats = _in_one_format(large, small, formats, threads)
    run(direct.backward_weights, large, small, taps, **geometry, formats=formats, threads=threads)


def bias_sum(small: Array, bias: Array, *, formats: tuple[str, str], threads: int = 0) -> None:
    """Write bias, a 1-D view of stored numbers, the gradient of `forward` with respect to its bias."""
    run(direct.bias_sum, small, bias, formats=formats, threads=threads)


def _in_one_format(
    first: Array, second: Array, formats: tuple[str, str, str], threads: int
) -> tuple[Array, Array, tuple[str, str, str]]:
    """Both operands of a `direct` kernel as it takes them: where their formats differ, as float32 values."""
    if formats[0] == formats[1]:
        return first, second, formats
    if "float64" in formats:
        raise TypeError(direct.MIXED)
    return (
        _decoded(first, formats[0], threads),
        _decoded(second, formats[1], threads),
        ("float32", "float32", formats[2]),
    )


def _decoded(stored: Array, format: str, threads: int) -> Array:
    if format == "float32":
        return stored
    values = np.empty(stored.shape, np.float32)
    run(direct.decode, stored, values, format=format, threads=threads)
    return values


__all__ = ["backward_data", "backward_weights", "bias_sum", "default_threads", "forward", "openmp"]
