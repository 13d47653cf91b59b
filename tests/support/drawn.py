"""Hypothesis strategies for convolution geometry, and arrays whose sums are exact in every format."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st


@dataclass(frozen=True)
class Drawn:
    """A convolution that fits: shapes are channel-first, weights (small, large/groups, taps)."""

    groups: int
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    begin: tuple[int, ...]
    end: tuple[int, ...]
    large: tuple[int, ...]
    small: tuple[int, ...]
    weights: tuple[int, ...]

    @property
    def attributes(self) -> dict:
        """Attributes in oneDNN's and OpenVINO's names."""
        return {"strides": self.stride, "dilations": self.dilation, "pads_begin": self.begin, "pads_end": self.end}


@st.composite
def convolutions(draw, *, symmetric: bool = False, max_batch: int = 2, axes: tuple[int, int] = (1, 3)) -> Drawn:
    """A legal convolution of one to three axes."""
    count = draw(st.integers(*axes))
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    per_group = st.integers(1, 3)
    large_channels, small_channels = draw(per_group), draw(per_group)
    batch = draw(st.integers(1, max_batch))
    large, small, taps, stride, dilation, begin, end = [], [], [], [], [], [], []
    for _ in range(count):
        k, s, d = draw(st.integers(1, 4)), draw(st.integers(1, 3)), draw(st.integers(1, 2))
        pb = draw(st.integers(0, 3))
        pe = pb if symmetric else draw(st.integers(0, 3))
        kernel = (k - 1) * d + 1
        x = draw(st.integers(max(1, kernel - pb - pe), max(1, kernel - pb - pe) + 5))
        large.append(x)
        small.append((x + pb + pe - kernel) // s + 1)
        for values, value in ((taps, k), (stride, s), (dilation, d), (begin, pb), (end, pe)):
            values.append(value)
    return Drawn(
        groups, tuple(stride), tuple(dilation), tuple(begin), tuple(end),
        (batch, groups * large_channels, *large), (batch, groups * small_channels, *small),
        (groups * small_channels, large_channels, *taps),
    )


def dyadic(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype | type = np.float32) -> np.ndarray:
    """Small multiples of 1/4: their products and sums are exact in float32."""
    return (rng.integers(-8, 9, shape) / 4).astype(dtype)


def normal(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype | type = np.float32) -> np.ndarray:
    """Standard normal numbers."""
    return rng.standard_normal(shape).astype(dtype)


def to_layout(array: np.ndarray, layout: str) -> np.ndarray:
    """Channel-first data or small-first weights in another layout, as a contiguous array."""
    if layout == "NXC":
        array = np.moveaxis(array, 1, -1)
    elif layout in ("XIO", "XOI"):
        array = np.moveaxis(array, (0, 1), (-1, -2))
    return np.ascontiguousarray(array)
