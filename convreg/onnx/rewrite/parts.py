"""The kernels in standard ONNX: Conv, ConvTranspose and the nodes that prepare their operands.

Operands and results are channel-first, weights (small side, large side per group, taps); pads are explicit and never
negative, so that every runtime takes them.
"""

from __future__ import annotations

from ...geometry import Geometry
from .builder import Builder, Extents


def large_shape(geometry: Geometry) -> Extents:
    """Shape of the large side."""
    return (geometry.batch, geometry.groups * geometry.large_channels, *(axis.large for axis in geometry.axes))


def small_shape(geometry: Geometry) -> Extents:
    """Shape of the small side."""
    return (geometry.batch, geometry.groups * geometry.small_channels, *(axis.small for axis in geometry.axes))


def weight_shape(geometry: Geometry) -> Extents:
    """Shape of the weights."""
    return (geometry.groups * geometry.small_channels, geometry.large_channels, *(axis.taps for axis in geometry.axes))


def touches(geometry: Geometry) -> bool:
    """Whether any tap of any position meets the large side; otherwise sums are empty."""
    inside = all(axis.begin < axis.reach and axis.begin + axis.large > 0 for axis in geometry.axes)
    return inside and 0 not in (*large_shape(geometry), *small_shape(geometry), *weight_shape(geometry))


def _pads(geometry: Geometry) -> tuple[list[int], list[int]]:
    """Padding of the large side, before and after, that makes it exactly what is reached."""
    return [axis.begin for axis in geometry.axes], [axis.end for axis in geometry.axes]


def to_reach(builder: Builder, geometry: Geometry, large: str) -> str:
    """Pad and crop the large side to exactly what is reached."""
    return builder.resize(large, *_pads(geometry), large_shape(geometry)[2:])


def from_reach(builder: Builder, geometry: Geometry, full: str) -> str:
    """Crop and pad what is reached to the large side."""
    begin, end = _pads(geometry)
    return builder.resize(full, [-entry for entry in begin], [-entry for entry in end], [
        axis.reach for axis in geometry.axes])


def _cropped(builder: Builder, geometry: Geometry, large: str, steps: list[int]) -> tuple[str, Extents, list[int]]:
    """Crop the large side where it is not reached, but for what a step of the Conv leaves over by itself.

    Returns the value, its spatial extents, and the pads, none negative, that are left to do.
    """
    begin, end = _pads(geometry)
    end = [0 if -step < entry < 0 else entry for entry, step in zip(end, steps, strict=True)]
    cut = [min(entry, 0) for entry in begin], [min(entry, 0) for entry in end]
    value = builder.resize(large, *cut, large_shape(geometry)[2:])
    kept = tuple(axis.large + sum(both) for axis, *both in zip(geometry.axes, *cut, strict=True))
    return value, kept, [max(entry, 0) for entry in (*begin, *end)]


def _spatial(geometry: Geometry) -> dict[str, list[int]]:
    return {"strides": [axis.stride for axis in geometry.axes], "dilations": [axis.dilation for axis in geometry.axes]}


def forward(builder: Builder, geometry: Geometry, large: str, weight: str, bias: str | None) -> str:
    """Large side to small side: one Conv."""
    value, _, pads = _cropped(builder, geometry, large, [axis.stride for axis in geometry.axes])
    inputs = (value, weight) if bias is None else (value, weight, bias)
    return builder.add("Conv", *inputs, **_spatial(geometry), pads=pads, group=geometry.groups)


def backward_data(builder: Builder, geometry: Geometry, small: str, weight: str, bias: str | None) -> str:
    """Small side to large side: one ConvTranspose, and a Pad where the large side goes beyond what is reached."""
    front, back = [], []
    pads_begin, pads_end, extra = [], [], []
    for axis in geometry.axes:
        end = axis.end
        pads_begin.append(max(axis.begin, 0))
        pads_end.append(max(end, 0))
        front.append(max(-axis.begin, 0))
        absorbed = -end if 0 < -end < axis.stride else 0
        extra.append(absorbed)
        back.append(max(-end, 0) - absorbed)
    padded = any((*front, *back))
    inputs = (small, weight) if bias is None or padded else (small, weight, bias)
    value = builder.add("ConvTranspose", *inputs, **_spatial(geometry), pads=[*pads_begin, *pads_end],
                        group=geometry.groups, **({"output_padding": extra} if any(extra) else {}))
    if padded:
        value = builder.resize(value, front, back, [])
        value = add_bias(builder, geometry, value, bias)
    return value


def backward_weights(builder: Builder, geometry: Geometry, large: str, small: str, *, open_batch: bool) -> str:
    """Large and small side to weights: a Conv whose batch is the channels and whose kernel is the small side.

    Its channels are the batch, of which onnxruntime needs one (with none it never returns); where the batch is open,
    both sides get a sample of zeros more.
    """
    if open_batch:
        sample = builder.constant([*[0] * (len(geometry.axes) + 2), 1, *[0] * (len(geometry.axes) + 1)])
        large, small = builder.add("Pad", large, sample), builder.add("Pad", small, sample)
    groups, channels = geometry.groups, geometry.large_channels
    value, kept, pads = _cropped(builder, geometry, large, [axis.dilation for axis in geometry.axes])
    count = len(geometry.axes)
    space = range(2, count + 2)
    if groups == 1:
        value = builder.transpose(value, [1, 0, *space])
    else:
        value = builder.reshape(value, [0, groups, channels, *kept])
        value = builder.transpose(value, [2, 1, 0, *range(3, count + 3)])
        value = builder.reshape(value, [channels, -1, *kept])
    kernel = builder.transpose(small, [1, 0, *space])
    spatial = _spatial(geometry)
    made = builder.add("Conv", value, kernel, strides=spatial["dilations"], dilations=spatial["strides"], pads=pads,
                       group=groups)
    return builder.transpose(made, [1, 0, *space])


def add_bias(builder: Builder, geometry: Geometry, value: str, bias: str | None) -> str:
    """Add one number per channel where there is a bias."""
    if bias is None:
        return value
    return builder.add("Add", value, builder.reshape(bias, [1, -1, *[1] * len(geometry.axes)]))


def bias_sum(builder: Builder, value: str, rank: int) -> str:
    """Sum over all axes but the channels."""
    return builder.add("ReduceSum", value, builder.constant([0, *range(2, rank)]), keepdims=0)
