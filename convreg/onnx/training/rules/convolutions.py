"""Conv and ConvTranspose: one aten::convolution_backward node each, which other dialects are written from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ....geometry import effective, reach
from ....geometry.standard import conv_pads, conv_transpose_window
from ..rounding import rounded
from ..rule_registry import Gradients, gradient_of
from ..step import Step
from ..value import Value

DOMAIN = "convreg.aten"


class _Window(NamedTuple):
    """Attributes of a convolution per spatial axis."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]

    @property
    def effective(self) -> tuple[int, ...]:
        """Extents of the kernel with its dilation."""
        return tuple(effective(taps, step) for taps, step in zip(self.kernel, self.dilation, strict=True))


def _window(step: Step) -> _Window:
    weight = step.input(1)
    axes = range(2, step.rank(weight))
    ones = [1] * len(axes)
    kernel = step.attribute("kernel_shape") or step.extents(weight, axes)
    return _Window(tuple(kernel), tuple(step.attribute("strides") or ones), tuple(step.attribute("dilations") or ones))


def _backward(
    step: Step, window: _Window, g: Value, x: Value, *, padding: Sequence[int], extra: Sequence[int], transposed: bool,
    bias: bool,
) -> list[Value | None]:
    """The gradients of data, weights and bias that are wanted, in one node."""
    mask = [step.wants(0), step.wants(1), bias and step.wants(2)]
    weight, group = step.input(1), step.attribute("group", 1)
    if not any(mask):
        return [None, None, None]
    operands = [rounded(step, g), rounded(step, x), rounded(step, weight)]
    [channels] = step.extents(weight, [1 if transposed else 0])
    made = iter(step.writer.add_many(
        "convolution_backward", operands, mask, domain=DOMAIN,
        dtypes=[value.dtype for value, wanted in zip((x, weight, g), mask, strict=True) if wanted],
        bias_sizes=[channels * group if transposed else channels], stride=window.stride, padding=list(padding),
        dilation=window.dilation, transposed=int(transposed), output_padding=list(extra), groups=group,
        output_mask=[int(wanted) for wanted in mask]))
    return [next(made) if wanted else None for wanted in mask]


def resized(value: Value, begin: Sequence[int], end: Sequence[int]) -> Value:
    """Add zeros around the spatial axes; negative numbers crop."""
    writer, count = value.writer, len(begin)
    if any(entry < 0 for entry in (*begin, *end)):
        starts = [max(-entry, 0) for entry in begin]
        ends = [entry if entry < 0 else 2**62 for entry in end]
        value = value.apply("Slice", writer.integers(starts), writer.integers(ends),
                            writer.integers(range(2, count + 2)))
    pads = [0, 0, *(max(entry, 0) for entry in begin), 0, 0, *(max(entry, 0) for entry in end)]
    return value.apply("Pad", writer.integers(pads)) if any(pads) else value


def _bias(step: Step) -> Value:
    return step.g.sum([0, *range(2, step.rank(step.y))], keepdims=False)


@gradient_of("Conv")
def conv(step: Step) -> Gradients:
    """The gradients that `aten::convolution_backward` computes; unequal pads are a Pad before it."""
    window = _window(step)
    mode, count = step.attribute("auto_pad", "NOTSET"), len(window.kernel)
    needs_extents = mode.startswith("SAME")
    large = step.extents(step.x, range(2, count + 2)) if needs_extents else [0] * count
    pads = conv_pads(mode, tuple(large), window.effective, window.stride, step.attribute("pads"))
    padding = [max(min(begin, end), 0) for begin, end in pads]
    begin = [pair[0] - shared for pair, shared in zip(pads, padding, strict=True)]
    end = [pair[1] - shared for pair, shared in zip(pads, padding, strict=True)]
    if not any((*begin, *end)):
        return _backward(step, window, step.g, step.x, padding=padding, extra=[0] * count, transposed=False, bias=True)
    made = _backward(step, window, step.g, resized(step.x, begin, end), padding=padding, extra=[0] * count,
                     transposed=False, bias=True)
    if made[0] is not None:
        made[0] = resized(made[0], [-entry for entry in begin], [-entry for entry in end])
    return made


@gradient_of("ConvTranspose")
def conv_transpose(step: Step) -> Gradients:
    """The gradients that `aten::convolution_backward` computes; for unequal pads ``g`` is padded first."""
    window = _window(step)
    mode, count, stated = step.attribute("auto_pad", "NOTSET"), len(window.kernel), step.attribute("output_shape")
    extra = tuple(step.attribute("output_padding") or [0] * count)
    known = stated is not None or mode.startswith("SAME")
    small = step.extents(step.x, range(2, count + 2)) if known else [1] * count
    output_shape = None if stated is None else tuple(stated)[-count:]
    large = conv_transpose_window(mode, tuple(small), window.effective, window.stride, step.attribute("pads"), extra,
                                  output_shape)
    full = [reach(extent, taps, stride) for extent, taps, stride in
            zip(small, window.effective, window.stride, strict=True)]
    before = [begin for begin, _ in large]
    after = [whole - begin - extent for whole, (begin, extent) in zip(full, large, strict=True)]
    beyond = [begin - end for begin, end in zip(before, after, strict=True)]
    limits = [max(pair) for pair in zip(window.stride, window.dilation, strict=True)]
    if all(begin >= 0 and 0 <= more < most for begin, more, most in zip(before, beyond, limits, strict=True)):
        return _backward(step, window, step.g, step.x, padding=before, extra=beyond, transposed=True, bias=True)
    made = _backward(step, window, resized(step.g, before, after), step.x, padding=[0] * count, extra=[0] * count,
                     transposed=True, bias=False)
    return [*made[:2], _bias(step) if step.wants(2) else None]
