"""OpenVINO's poolings as ONNX nodes with explicit pads that round down, which every runtime computes alike.

Sizes and values are those of OpenVINO's processor plug-in, measured with version 2026.4.1: automatic pads come first,
then the number of windows is rounded. A mean that counts pads counts all taps of a window that reaches beyond them, but
without any pads only those inside the data.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
from onnx import helper

from convreg import GraphError

from .step import Step
from .windows import Window, auto_pad, pads_of, stated_windows


def max_pool(step: Step) -> None:
    """Add the nodes of a MaxPool layer; what stands in pads is the lowest number."""
    if step.used_beyond_first:
        raise GraphError("the second output, the indices, is not known to the reader")
    stated = _padded(step)
    if stated is None:
        _finish_automatic(step, "MaxPool")
        return
    windows = _rounded_down(step, stated)
    dilations = [window.dilation for window in windows]
    attributes = {"dilations": dilations} if max(dilations) > 1 else {}
    # In a dilated window all taps may miss the data.
    if any(window.is_empty_somewhere for window in windows) or (attributes and any(pads_of(windows))):
        dtype = _dtype(step)
        lowest = np.iinfo(dtype).min if dtype.kind in "iu" else ml_dtypes.finfo(dtype).min
        _finish(step, "MaxPool", _with_pads(step, windows, np.array(lowest, dtype)), windows, [], **attributes)
    else:
        _finish(step, "MaxPool", step.inputs[0], windows, pads_of(windows), **attributes)


def average_pool(step: Step) -> None:
    """Add the nodes of an AvgPool layer; pads count as zeros or not at all."""
    excluded = step.flag("exclude-pad", False)
    stated = _padded(step)
    if stated is None:
        _finish_automatic(step, "AveragePool", count_include_pad=int(not excluded))
        return
    windows = _rounded_down(step, stated)
    excluded = excluded or not any(pads_of(stated))
    empty = any(window.is_empty_somewhere for window in windows)
    if excluded and (empty or any(window.is_empty_somewhere for window in stated)):
        raise GraphError("a window lies in the pads as a whole, and pads do not count")
    data, pads = step.inputs[0], pads_of(windows)
    if empty:
        data, pads = _with_pads(step, windows, np.zeros((), _dtype(step))), []
    _finish(step, "AveragePool", data, windows, pads, count_include_pad=int(not excluded))


def _dtype(step: Step) -> np.dtype[Any]:
    return helper.tensor_dtype_to_np_dtype(step.builder.value(step.inputs[0]).element)


def _padded(step: Step) -> list[Window] | None:
    """The axes with the stated or the automatic pads; None where these depend on extents that are not known."""
    windows, mode = stated_windows(step, step.numbers("kernel")), auto_pad(step)
    if not (mode.startswith("same") and any(window.is_open for window in windows)):
        return [window.padded(mode) for window in windows]
    if any(window.dilation > 1 or window.kernel < window.stride for window in windows):
        raise GraphError(f"auto_pad is {mode!r}, and the extents of the data are not known; allowed here: strides up "
                         "to the kernel's size and no dilations")
    return None


def _rounded_down(step: Step, windows: Sequence[Window]) -> list[Window]:
    """The axes with the pads of a node that rounds down."""
    rounding = _rounding(step)
    return [window.rounded_down(rounding) for window in windows]


def _rounding(step: Step) -> str:
    return step.text("rounding_type", "floor", "floor", "ceil", "ceil_torch")


def _with_pads(step: Step, windows: Sequence[Window], value: np.ndarray[Any, Any]) -> str:
    """The data with its pads, all of which hold `value`."""
    pads = [0, 0, *(window.begin for window in windows), 0, 0, *(window.end for window in windows)]
    return step.node("Pad", step.inputs[0], step.builder.integers(pads, "pads"), step.builder.constant(value, "fill"))


def _finish(step: Step, op_type: str, data: str, windows: Sequence[Window], pads: list[int], **attributes: Any) -> None:
    if any(pads):
        attributes["pads"] = pads
    step.finish(op_type, [data], kernel_shape=[window.kernel for window in windows],
                strides=[window.stride for window in windows], **attributes)


def _finish_automatic(step: Step, op_type: str, **attributes: Any) -> None:
    """A pooling whose windows end where the data with its pads do, so that nothing is rounded."""
    _rounding(step)
    step.finish(op_type, step.inputs, kernel_shape=step.numbers("kernel"), strides=step.numbers("strides"),
                auto_pad=auto_pad(step).upper(), **attributes)
