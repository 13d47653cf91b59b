"""The windows of OpenVINO's convolutions and poolings, with automatic pads resolved.

ONNX has these pads too, but its runtimes disagree on them where a stride exceeds the kernel or a kernel is dilated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from convreg import GraphError
from convreg.geometry import effective, reach
from convreg.geometry.onednn import same_from_large

from ..builder import Dim
from .step import Step


class Window(NamedTuple):
    """One spatial axis: the kernel's entries, the pads, and the extent of the data, None where it is not known."""

    kernel: int
    stride: int
    dilation: int
    begin: int
    end: int
    extent: int | None

    @property
    def effective(self) -> int:
        """Extent that the kernel covers."""
        return effective(self.kernel, self.dilation)

    def padded(self, mode: str) -> Window:
        """The same with the pads that this `auto_pad` means."""
        if mode == "explicit":
            return self
        if mode == "valid":
            return self._replace(begin=0, end=0)
        begin, end = same_from_large(self.extent or 0, self.effective, self.stride, upper=mode == "same_upper")
        return self._replace(begin=begin, end=end)

    @property
    def is_open(self) -> bool:
        """Whether "same" pads depend on an extent that is not known."""
        return self.extent is None and self.stride > 1

    def rounded_down(self, rounding: str) -> Window:
        """The same with the end pad that gives as many windows, rounded down, as `rounding` gives here."""
        if self.extent is None:
            if rounding != "floor" and self.stride > 1:
                raise GraphError(f"rounding_type is {rounding!r}, and the extents of the data are not known; allowed: "
                                 "'floor'")
            return self
        room = self.extent + self.begin + self.end - self.effective
        if room < 0:
            raise GraphError(f"the kernel covers {self.effective} elements of an axis, which has "
                             f"{room + self.effective} with its pads")
        steps = room // self.stride if rounding == "floor" else -(-room // self.stride)
        if rounding == "ceil_torch" and steps * self.stride >= self.extent + self.begin:
            steps -= 1  # no window starts behind the data
        return self._replace(end=max(reach(steps + 1, self.effective, self.stride) - self.extent - self.begin, 0))

    @property
    def is_empty_somewhere(self) -> bool:
        """Whether a window of neighbouring elements lies in the pads as a whole, which few runtimes allow."""
        return max(self.begin, self.end) >= self.kernel


def auto_pad(step: Step) -> str:
    """Return how the pads of a layer are found."""
    return step.text("auto_pad", "explicit", "explicit", "valid", "same_upper", "same_lower")


def stated_windows(step: Step, kernel: Sequence[int]) -> list[Window]:
    """Return the spatial axes of a layer's first input, with the stated pads."""
    value = step.builder.value(step.inputs[0])
    count = value.rank - 2
    lists = [list(kernel)]
    for name, neutral in (("strides", 1), ("dilations", 1), ("pads_begin", 0), ("pads_end", 0)):
        lists.append(step.numbers(name) or [neutral] * count)
    if count < 1 or any(len(entries) != count for entries in lists):
        raise GraphError(f"kernel {lists[0]}, strides {lists[1]}, dilations {lists[2]} and pads {lists[3]}, {lists[4]} "
                         f"do not have an entry per spatial axis ({count})")
    for name, entries in zip(("kernel", "strides", "dilations"), lists, strict=False):
        if min(entries) < 1:
            raise GraphError(f"{name} {entries} are not positive")
    if min(*lists[3], *lists[4]) < 0:
        raise GraphError(f"pads {lists[3]}, {lists[4]} are negative")
    extents = [extent if isinstance(extent, int) else None for extent in (value.shape or ())[2:]]
    return [Window(*entries) for entries in zip(*lists, extents, strict=True)]


def pads_of(windows: Sequence[Window]) -> list[int]:
    """Return the pads as ONNX has them."""
    return [window.begin for window in windows] + [window.end for window in windows]


def convolution_window(step: Step, taps: Sequence[Dim]) -> dict[str, Any]:
    """Return the ONNX attributes for the window of a convolution whose filter has these extents."""
    known, mode = [tap for tap in taps if isinstance(tap, int)], auto_pad(step)
    if len(known) == len(taps):
        windows = stated_windows(step, known)
        if not (mode.startswith("same") and any(window.is_open for window in windows)):
            return {"strides": [window.stride for window in windows],
                    "dilations": [window.dilation for window in windows],
                    "pads": pads_of([window.padded(mode) for window in windows])}
    given = {name: numbers for name in ("strides", "dilations") if (numbers := step.numbers(name))}
    if mode != "explicit":
        return {**given, "auto_pad": mode.upper()}
    pads = step.numbers("pads_begin") + step.numbers("pads_end")
    return {**given, "pads": pads} if pads else given
