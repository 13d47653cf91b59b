"""ONNX's own Conv and ConvTranspose: the pads of every auto_pad mode, and com.microsoft ConvGrad on top of Conv's.

Source: ONNX operator specification, Conv and ConvTranspose; where text and practice differ, what ONNX Runtime computes.
"""

from __future__ import annotations

from ..spec import Call
from . import Geometry, effective, halves
from .aten import Convolved, build, check_fit, check_sizes


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
        full = s * (y - 1) + k
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


def conv_grad(call: Call) -> Geometry:
    """Geometry of com.microsoft ConvGrad: a forward Conv's attributes and pads, with the shapes checked."""
    shapes = Convolved(call.shape("X"), call.shape("dY"), call.shape("W"))
    check_fit(call, shapes, call["group"], ("X", "dY"))
    count = len(shapes.large) - 2
    stride, dilation = (call[name] if call[name] is not None else (1,) * count for name in ("strides", "dilations"))
    for name, value in (("strides", stride), ("dilations", dilation)):
        if len(value) != count:
            raise call.refuse(name, list(value), f"{count} entries")
    if call["kernel_shape"] not in (None, shapes.weight[2:]):
        raise call.refuse("kernel_shape", list(call["kernel_shape"]), f"W's {list(shapes.weight[2:])}")
    given = call["pads"]
    if given is not None and len(given) != 2 * count:
        raise call.refuse("pads", list(given), f"{2 * count} entries, begins then ends")
    if given is not None and any(given) and call["auto_pad"] != "NOTSET":
        raise call.refuse("pads", list(given), f"no pads beside auto_pad={call['auto_pad']}")
    kernel = tuple(effective(k, d) for k, d in zip(shapes.weight[2:], dilation, strict=True))
    pads = conv_pads(call["auto_pad"], shapes.large[2:], kernel, stride, given)
    check_sizes(call, shapes, stride, pads, dilation)
    return build(shapes, call["group"], stride, tuple(begin for begin, _ in pads), dilation).checked(call)
