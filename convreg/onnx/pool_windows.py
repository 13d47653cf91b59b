"""Where the windows of MaxPool, AveragePool and LpPool lie along each axis, as numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..errors import GraphError
from ..geometry import effective


class Placed(NamedTuple):
    """Windows along one axis as numbers: taps, their distance, that of windows, their count, and the pads."""

    taps: int
    dilation: int
    stride: int
    windows: int
    begin: int
    end: int


def placed(shape: Sequence[int | str | None], attributes: Mapping[str, Any]) -> list[Placed | None]:
    """Return the windows of each spatial axis as numbers, None where the extent is not known.

    Raises
    ------
    GraphError
        If an attribute has another number of entries than the axes need, or no window fits.
    """
    rank = len(shape)
    kernel, strides, dilations = ([*given] if (given := attributes.get(name)) else [1] * rank
                                  for name in ("kernel_shape", "strides", "dilations"))
    pads = [*(attributes.get("pads") or [0] * (2 * rank))]
    if not (len(kernel) == len(strides) == len(dilations) == rank and len(pads) == 2 * rank):
        raise GraphError(f"kernel_shape, strides, dilations and pads do not fit {rank} spatial axes")
    if min([*kernel, *strides, *dilations], default=1) < 1 or min(pads, default=0) < 0:
        raise GraphError("kernel_shape, strides and dilations are positive, pads are not negative")
    found: list[Placed | None] = []
    for axis, extent in enumerate(shape):
        numbers = kernel[axis], dilations[axis], strides[axis]
        span = effective(kernel[axis], dilations[axis])
        found.append(Placed(*numbers, *_counted(axis, extent, span, strides[axis], (pads[axis], pads[rank + axis]),
                                                attributes)) if isinstance(extent, int) else None)
    return found


def _counted(
    axis: int, extent: int, span: int, stride: int, pads: tuple[int, int], attributes: Mapping[str, Any]
) -> tuple[int, int, int]:
    """Return how many windows an axis has, and its padding before and after."""
    mode, (begin, end) = attributes.get("auto_pad") or "NOTSET", pads
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        count = -(-extent // stride)
        total = (count - 1) * stride + span - extent
        if total < 0:
            raise GraphError(f"auto_pad={mode!r} with a stride of {stride} and a window of {span} would need "
                             "negative padding; allowed: strides that are not longer than the window, or pads")
        begin = total // 2 if mode == "SAME_UPPER" else total - total // 2
        return count, begin, total - begin
    if mode != "NOTSET":
        begin = end = 0
    room = extent + begin + end - span
    count = (-(-room // stride) if attributes.get("ceil_mode") else room // stride) + 1
    if attributes.get("ceil_mode") and (count - 1) * stride >= extent + begin:
        count -= 1  # a window may not start in the padding at the end
    if count < 0:
        raise GraphError(f"spatial axis {axis} of extent {extent} and its pads are shorter than a window of {span}")
    return count, begin, end
