"""The geometry of a call: PyTorch's arguments to the windows and extents of the kernels, and the shapes of results.

A linear layer is a convolution without spatial axes: its input is (N, F), its weight (O, F). The kernels compute it as
a convolution with one tap over the N rows as positions of one image.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

from torch import Tensor, channels_last, channels_last_3d, contiguous_format, memory_format

from ..errors import Asking
from ..geometry import Axis, Geometry, aten
from ..memory import Array
from .bridge import asking

Shape = tuple[int, ...]


class Problem(NamedTuple):
    """The integers of a call, and the 6-D extents in which the kernels see its tensors."""

    geometry: Geometry
    output: Shape
    linear: bool
    input_extents: Shape
    weight_extents: Shape
    output_extents: Shape

    def data(self, array: Array, extents: Shape) -> Array:
        """Return the kernels' view of the input, the output or their gradients."""
        return (array.T if self.linear else array).reshape(extents)

    def weights(self, array: Array) -> Array:
        """Return the kernels' view of the weight or its gradient."""
        return array.reshape(self.weight_extents)


class Arguments(NamedTuple):
    """What a call states besides its tensors."""

    stride: Shape
    padding: Shape
    dilation: Shape
    transposed: bool
    output_padding: Shape
    groups: int


@lru_cache(maxsize=4096)
def problem(op: str, layer: str, input: Shape, weight: Shape, arguments: Arguments) -> Problem:
    """Return the problem of a forward convolution, transposed or not.

    Raises
    ------
    OpError
        If shapes and arguments contradict each other.
    """
    ask = asking(op, layer)
    if len(weight) == 2 and len(input) == 2:
        return _linear(ask, input, weight, arguments)
    if len(input) != len(weight) or not 3 <= len(input) <= 5:
        raise ask.refuse("input", list(input), "batch, channels and one to three spatial axes, as many as the weight "
                         f"{list(weight)} has; or (N, F) with a weight (O, F)", "geometry")
    count = len(input) - 2
    stride, padding, dilation, extra = (aten.expanded(ask, name, getattr(arguments, name), count) for name in (
        "stride", "padding", "dilation", "output_padding"))
    groups = arguments.groups
    for name, values, least in (("stride", stride, 1), ("padding", padding, 0), ("dilation", dilation, 1),
                                ("output_padding", extra, 0)):
        if min(values) < least:
            raise ask.refuse(name, list(values), f"integers from {least} on", "geometry")
    if groups < 1:
        raise ask.refuse("groups", groups, "an integer from 1 on", "geometry")
    transposed = arguments.transposed
    expected = weight[0] if transposed else weight[1] * groups
    if input[1] != expected:
        raise ask.refuse("input", list(input), f"{expected} channels, as the weight {list(weight)} has with "
                         f"groups={groups}", "geometry")
    if weight[0] % groups:
        raise ask.refuse("groups", groups, f"a divisor of the weight's {weight[0]} channels", "geometry")
    output = output_shape(input, weight, Arguments(stride, padding, dilation, transposed, extra, groups))
    if min(output[2:]) < 1:
        raise ask.refuse("input", list(input), f"spatial extents that give an output; these give {list(output[2:])}",
                         "geometry")
    if transposed:
        aten.check_output_padding(ask, extra, stride, dilation)
    shapes = aten.Convolved(output, input, weight) if transposed else aten.Convolved(input, output, weight)
    geometry = aten.build(shapes, groups, stride, padding, dilation).checked(ask)
    return Problem(geometry, output, False, _data_extents(input, groups), _weight_extents(weight, groups),
                   _data_extents(output, groups))


def _linear(ask: Asking, input: Shape, weight: Shape, arguments: Arguments) -> Problem:
    if arguments.transposed or arguments.groups != 1:
        raise ask.refuse("transposed, groups", [arguments.transposed, arguments.groups], "False and 1 with a weight "
                         "(O, F)", "geometry")
    for name in ("stride", "padding", "dilation", "output_padding"):
        if values := getattr(arguments, name):
            raise ask.refuse(name, list(values), "[] with a weight (O, F), which has no spatial axis", "geometry")
    if input[1] != weight[1]:
        raise ask.refuse("input", list(input), f"{weight[1]} features, as the weight {list(weight)} has", "geometry")
    rows, features = input
    axis = Axis(rows, rows, 1, 1, 1, 0)
    geometry = Geometry(1, 1, features, weight[0], (axis,)).checked(ask)
    return Problem(geometry, (rows, weight[0]), True, (1, 1, features, 1, 1, rows), (1, weight[0], features, 1, 1, 1),
                   (1, 1, weight[0], 1, 1, rows))


def _data_extents(shape: Shape, groups: int) -> Shape:
    batch, channels, *spatial = shape
    return (batch, groups, channels // groups, *(1,) * (3 - len(spatial)), *spatial)


def _weight_extents(shape: Shape, groups: int) -> Shape:
    small, large, *taps = shape
    return (groups, small // groups, large, *(1,) * (3 - len(taps)), *taps)


def output_shape(input: Sequence[Any], weight: Sequence[Any], arguments: Arguments) -> tuple[Any, ...]:
    """Return the shape of the output by plain arithmetic, which symbolic sizes take part in."""
    if len(weight) == 2:
        return (input[0], weight[0])
    count = len(input) - 2
    stride, padding, dilation, extra = (
        tuple(values) * count if len(values) == 1 else tuple(values)
        for values in (arguments.stride, arguments.padding, arguments.dilation, arguments.output_padding))
    if arguments.transposed:
        spatial = [(x - 1) * s - 2 * p + d * (k - 1) + more + 1 for x, k, s, p, d, more in zip(
            input[2:], weight[2:], stride, padding, dilation, extra, strict=True)]
        return (input[0], weight[1] * arguments.groups, *spatial)
    return (input[0], weight[0], *((x + 2 * p - d * (k - 1) - 1) // s + 1 for x, k, s, p, d in zip(
        input[2:], weight[2:], stride, padding, dilation, strict=True)))


def layout(*tensors: Tensor) -> memory_format:
    """Return the memory format of a result: channels last if one of the tensors is, as in torch."""
    last = {4: channels_last, 5: channels_last_3d}.get(tensors[0].dim())
    if last is not None and any(_channels_last(tensor) for tensor in tensors):
        return last
    return contiguous_format


def _channels_last(tensor: Tensor) -> bool:
    """Whether strides tell that channels are innermost; a contiguous tensor of one position tells nothing."""
    strides, extents = tensor.stride(), tensor.shape
    return bool(strides[1] == 1 and (prod(extents[2:]) > 1 or strides[-1] != 1))
