"""ONNX's own Conv and ConvTranspose: the pads of every auto_pad mode, and com.microsoft ConvGrad on top of Conv's.

Source: ONNX operator specification, Conv and ConvTranspose; where text and practice differ, what ONNX Runtime computes.
"""

from __future__ import annotations

from typing import NamedTuple

from ..errors import Refusing
from ..spec import Call, Shape
from . import Geometry, effective, halves, ints, known, reach
from .aten import Convolved, build, check_fit, check_output_padding, check_sizes, shapes_of


def conv_pads(
    mode: str, large: tuple[int, ...], kernel: tuple[int, ...], stride: tuple[int, ...], given: tuple[int, ...] | None
) -> tuple[tuple[int, int], ...]:
    """Return (begin, end) per axis of a Conv; `kernel` holds effective extents, `given` is begins then ends."""
    count = len(large)
    if mode == "NOTSET":
        flat = given or (0,) * (2 * count)
        return tuple(zip(flat[:count], flat[count:], strict=True))
    if mode == "VALID":
        return ((0, 0),) * count
    totals = (max((-(-x // s) - 1) * s + k - x, 0) for x, k, s in zip(large, kernel, stride, strict=True))
    return tuple(halves(total, odd_at_begin=mode == "SAME_LOWER") for total in totals)


def conv_transpose_window(
    mode: str,
    small: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    given: tuple[int, ...] | None,
    extra: tuple[int, ...],
    output_shape: tuple[int, ...] | None,
) -> tuple[tuple[int, int], ...]:
    """Return (begin, extent) of the large side per axis of a ConvTranspose.

    With `output_shape` pads are derived whatever the mode, the odd element at the end for SAME_UPPER only; without it
    SAME gives ``stride * small`` elements, or what a kernel shorter than the stride reaches.
    """
    count = len(small)
    flat = given or (0,) * (2 * count)
    window = []
    for index, (y, k, s, more) in enumerate(zip(small, kernel, stride, extra, strict=True)):
        full = reach(y, k, s)
        if output_shape is not None:
            total = max(full + more - output_shape[index], 0)
            window.append((halves(total, odd_at_begin=mode != "SAME_UPPER")[0], output_shape[index]))
        elif mode.startswith("SAME"):
            total = max(k - s + more, 0)
            window.append((halves(total, odd_at_begin=mode == "SAME_LOWER")[0], full + more - total))
        else:
            begin, end = (0, 0) if mode == "VALID" else (flat[index], flat[count + index])
            window.append((begin, full + more - begin - end))
    return tuple(window)


class Settings(NamedTuple):
    """The attributes that Conv, ConvTranspose and ConvGrad share, per axis.

    `kernel` has effective extents, None where W's is not known; `pads` is begins then ends or None.
    """

    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    kernel: Shape
    pads: tuple[int, ...] | None


def settings(call: Call, weight: Shape) -> Settings:
    """Return the shared attributes with ONNX's defaults, refused where they do not fit each other or what W is."""
    taps, count = weight[2:], len(weight) - 2
    stride, dilation = ints(call["strides"], count, 1), ints(call["dilations"], count, 1)
    for name, value in (("strides", stride), ("dilations", dilation)):
        if len(value) != count:
            raise call.refuse(name, list(value), f"one entry per spatial axis ({count})")
    stated = call["kernel_shape"]
    if stated is not None and (len(stated) != count or any(
            known(own) and own != entry for own, entry in zip(taps, stated, strict=True))):
        raise call.refuse("kernel_shape", list(stated), f"W's {list(taps)}")
    given = call["pads"]
    if given is not None and len(given) != 2 * count:
        raise call.refuse("pads", list(given), f"{2 * count} entries, begins then ends")
    if given is not None and any(given) and call["auto_pad"] != "NOTSET":
        raise call.refuse("pads", list(given), f"no pads beside auto_pad={call['auto_pad']}")
    kernel = tuple(effective(own, d) if known(own) else None for own, d in zip(taps, dilation, strict=True))
    return Settings(stride, dilation, kernel, given)


def operands(call: Call) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shapes of X and W, refused where they are not of one rank from 3 to 5."""
    data, weight = call.shape("X"), call.shape("W")
    if len(data) != len(weight) or not 3 <= len(data) <= 5:
        raise call.refuse("rank", [len(data), len(weight)], "X and W of equal rank: 3, 4 or 5")
    return data, weight


def check_bias(call: Call, channels: int) -> None:
    """Refuse a B that is not one value per output channel."""
    if call.has("B") and call.shape("B") != (channels,):
        raise call.refuse("B", list(call.shape("B")), f"shape [{channels}]")


def conv(call: Call) -> tuple[Geometry, tuple[int, ...]]:
    """Geometry of Conv and the shape of Y, its small side."""
    data, weight = operands(call)
    given = settings(call, weight)
    pads = conv_pads(call["auto_pad"], data[2:], given.kernel, given.stride, given.pads)
    extents = tuple((x + begin + end - k) // s + 1
                    for x, (begin, end), k, s in zip(data[2:], pads, given.kernel, given.stride, strict=True))
    shapes = Convolved(data, (data[0], weight[0], *extents), weight)
    check_fit(call, shapes, call["group"], ("X", "Y"))
    check_sizes(call, shapes, given.stride, pads, given.dilation)
    check_bias(call, weight[0])
    geometry = build(shapes, call["group"], given.stride, tuple(begin for begin, _ in pads), given.dilation)
    return geometry.checked(call), shapes.small


def check_window(
    ask: Refusing, given: Settings, window: tuple[tuple[int, int], ...], extra: tuple[int, ...], data: tuple[int, ...]
) -> None:
    """Refuse pads, an output_padding and a result that no ConvTranspose has; `data` is the shape of X."""
    for argument, values in (("pads", given.pads or ()), ("output_padding", extra)):
        if any(value < 0 for value in values):
            raise ask.refuse(argument, list(values), "entries at least 0", "geometry")
    check_output_padding(ask, extra, given.stride, given.dilation)
    extents = [extent for _, extent in window]
    if any(extent < 1 for extent in extents):
        raise ask.refuse("X", list(data), f"sizes whose result {extents} is positive", "geometry")


def conv_transpose(call: Call) -> tuple[Geometry, tuple[int, ...]]:
    """Geometry of ConvTranspose and the shape of Y, its large side.

    An output_shape beyond what the kernel reaches is filled with zeros (and the bias) at the end.
    """
    data, weight = operands(call)
    given, count = settings(call, weight), len(data) - 2
    extra, stated = ints(call["output_padding"], count, 0), call["output_shape"]
    for name, value in (("output_padding", extra), ("output_shape", stated)):
        if value is not None and len(value) != count:
            raise call.refuse(name, list(value), f"one entry per spatial axis ({count})")
    window = conv_transpose_window(call["auto_pad"], data[2:], given.kernel, given.stride, given.pads, extra, stated)
    check_window(call, given, window, extra, data)
    extents = tuple(extent for _, extent in window)
    shapes = Convolved((data[0], weight[1] * call["group"], *extents), data, weight)
    check_fit(call, shapes, call["group"], ("Y", "X"))
    check_bias(call, shapes.large[1])
    geometry = build(shapes, call["group"], given.stride, tuple(begin for begin, _ in window), given.dilation)
    return geometry.checked(call), shapes.large


def conv_grad(call: Call) -> Geometry | None:
    """Geometry of com.microsoft ConvGrad: a forward Conv's attributes and pads, with the shapes checked.

    It is None where an extent is not known; what is known is checked.
    """
    shapes = shapes_of(call, ("dY", "X", "W"), False)
    if shapes is None:
        return None
    check_fit(call, shapes, call["group"], ("X", "dY"))
    given = settings(call, shapes.weight)
    # Any number stands for an open extent: sizes along its axis are not checked.
    extents, kernel = (tuple(number if known(number) else 1 for number in numbers)
                       for numbers in (shapes.large[2:], given.kernel))
    pads = conv_pads(call["auto_pad"], extents, kernel, given.stride, given.pads)
    check_sizes(call, shapes, given.stride, pads, given.dilation)
    if not shapes.known:
        return None
    return build(shapes, call["group"], given.stride, tuple(begin for begin, _ in pads), given.dilation).checked(call)
