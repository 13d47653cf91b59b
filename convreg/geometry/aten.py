"""PyTorch's convolution arguments, which Ascend's ConvolutionBackward shares, and ONNX Conv's for ConvGrad.

The weight is ``(Cout, Cin/groups, k...)``, transposed ``(Cin, Cout/groups, k...)``; data is channel-first.
Source: PyTorch ``aten.convolution_backward``; Ascend document ``aclnnConvolutionBackward``.
"""

from __future__ import annotations

from typing import NamedTuple

from ..errors import Refusing
from ..spec import Call, Shape
from . import Axis, Geometry, effective, known, reach


class Convolved(NamedTuple):
    """Shapes by role: a transposed convolution is the same relation with input and gradient exchanged.

    The checks also take shapes with unknown extents and refuse nothing for them; `build` takes numbers only.
    """

    large: Shape
    small: Shape
    weight: Shape

    @property
    def known(self) -> bool:
        """Whether all extents are numbers."""
        return known(*self.large, *self.small, *self.weight)


def roles(grad_output: Shape, data: Shape, weight: Shape, transposed: bool) -> Convolved:
    """Return the shapes as large side, small side and weight."""
    return Convolved(grad_output, data, weight) if transposed else Convolved(data, grad_output, weight)


def expanded(ask: Refusing, name: str, value: tuple[int, ...], count: int) -> tuple[int, ...]:
    """Return a list with one entry per axis; a single entry stands for all, as in PyTorch."""
    if len(value) == 1:
        return value * count
    if len(value) != count:
        raise ask.refuse(name, list(value), f"1 or {count} entries", "geometry")
    return value


def build(
    shapes: Convolved,
    groups: int,
    stride: tuple[int, ...],
    begin: tuple[int, ...],
    dilation: tuple[int, ...],
) -> Geometry:
    """Return the geometry of shapes that have been checked."""
    large, small, weight = shapes
    axes = tuple(Axis(*sizes) for sizes in zip(large[2:], small[2:], weight[2:], stride, dilation, begin, strict=True))
    return Geometry(large[0], groups, large[1] // groups if groups else 0, small[1] // groups if groups else 0, axes)


def channel_vector(shape: Shape | None) -> Shape:
    """Shape of a bias or its gradient: one entry per channel of a tensor that may be unknown."""
    return (shape[1] if shape is not None and len(shape) > 1 else None,)


def shapes_of(call: Call, names: tuple[str, str, str], transposed: bool) -> Convolved | None:
    """Shapes of gradient, input and weight by role; None where a rank is unknown."""
    grad_output, data, weight = (call.tensor(name).shape for name in names)
    return None if grad_output is None or data is None or weight is None else roles(grad_output, data, weight,
                                                                                    transposed)


def check_fit(call: Call, shapes: Convolved, groups: int, names: tuple[str, str]) -> None:
    """Refuse ranks, batches, channels and groups that contradict each other; `names` are the large and small port."""
    large, small, weight = shapes
    if not len(large) == len(small) == len(weight):
        raise call.refuse("rank", [len(large), len(small), len(weight)], "tensors of equal rank")
    if not 3 <= len(large) <= 5:
        raise call.refuse("rank", len(large), "3, 4 or 5: batch, channels and one to three spatial axes")
    if known(large[0], small[0]) and large[0] != small[0]:
        raise call.refuse("batch", [large[0], small[0]], f"equal batch sizes of {names[0]} and {names[1]}")
    if 0 in weight[2:]:
        raise call.refuse("weight", list(weight), "no zero extent in space")
    if known(large[1], weight[1]) and large[1] != weight[1] * groups:
        raise call.refuse(names[0], large[1], f"{weight[1] * groups} channels (weight has {weight[1]} per group, "
                          f"groups={groups})")
    if known(small[1], weight[0]) and small[1] != weight[0]:
        raise call.refuse(names[1], small[1], f"{weight[0]} channels, as the weight has")
    channels = small[1] if known(small[1]) else weight[0]
    if known(channels) and channels % groups:
        raise call.refuse("groups", groups, f"a divisor of the {channels} channels of {names[1]}")


def check_sizes(
    call: Call,
    shapes: Convolved,
    stride: tuple[int, ...],
    pads: tuple[tuple[int, int], ...],
    dilation: tuple[int, ...],
    extra: tuple[int, ...] | None = None,
) -> None:
    """Refuse known spatial sizes that break the relation; `extra` is the output padding of a transposed convolution."""
    for index, (x, y, k, s, (begin, end), d) in enumerate(
        zip(shapes.large[2:], shapes.small[2:], shapes.weight[2:], stride, pads, dilation, strict=True)
    ):
        if not known(k, y if extra is not None else x):
            continue
        kernel = effective(k, d)
        if extra is not None:
            fits = reach(y, kernel, s) - begin - end + extra[index]
            if (known(x) and x != fits) or fits < 1:
                raise call.refuse(f"spatial axis {index}", x, f"{fits} = {s}*({y}-1) + {kernel} - {begin} - {end} + "
                                  f"{extra[index]}, and at least 1")
            continue
        room = x + begin + end - kernel
        if room < 0:
            raise call.refuse(f"spatial axis {index}", x, f"a padded extent of at least the kernel's {kernel}")
        if known(y) and y != room // s + 1:
            raise call.refuse(f"spatial axis {index}", y,
                              f"{room // s + 1} = ({x} + {begin} + {end} - {kernel}) // {s} + 1")


def check_output_padding(
    ask: Refusing, extra: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...]
) -> None:
    """Refuse an output_padding that no transposed convolution of PyTorch and ONNX Runtime has."""
    for s, d, more in zip(stride, dilation, extra, strict=True):
        if more >= max(s, d):
            raise ask.refuse("output_padding", list(extra), f"entries below max(stride, dilation) = {max(s, d)}",
                             "geometry")


def backward(call: Call, shapes: Convolved) -> Geometry | None:
    """Geometry of ``aten.convolution_backward`` under PyTorch's rules; None where an extent is not known."""
    transposed, groups = call["transposed"], call["groups"]
    check_fit(call, shapes, groups, ("grad_output", "input") if transposed else ("input", "grad_output"))
    count = len(shapes.large) - 2
    stride, padding, dilation, extra = (
        expanded(call, name, call[name], count) for name in ("stride", "padding", "dilation", "output_padding"))
    if transposed:
        check_output_padding(call, extra, stride, dilation)
    elif any(extra):
        raise call.refuse("output_padding", list(extra), "zeros unless transposed")
    pads = tuple((p, p) for p in padding)
    check_sizes(call, shapes, stride, pads, dilation, extra if transposed else None)
    channels, sizes = (shapes.large if transposed else shapes.small)[1], call["bias_sizes"]
    if call["output_mask"][2] and sizes is not None and (sizes != (channels,) if known(channels) else len(sizes) != 1):
        raise call.refuse("bias_sizes", list(sizes), f"[{channels}] or None")
    return build(shapes, groups, stride, padding, dilation).checked(call) if shapes.known else None
