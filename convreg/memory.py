"""Memory of arrays: how much new ones may take, whether two share some, and arrays of what others made."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any

import ml_dtypes
import numpy as np

from .errors import Refusing

Array = np.ndarray[Any, np.dtype[Any]]


_VIEWED = {"bfloat16": ("int16", ml_dtypes.bfloat16), "float8_e4m3fn": ("uint8", ml_dtypes.float8_e4m3fn),
           "float8_e5m2": ("uint8", ml_dtypes.float8_e5m2)}
"""PyTorch's dtypes that NumPy does not take: the dtype to view tensors as, and the one to view their arrays as."""


def array_of(value: Any) -> Array:
    """Return `numpy.asarray(value)`, also for PyTorch's tensors in bfloat16 and FP8, which NumPy refuses.

    Raises
    ------
    TypeError
        For a masked array: operators and conversions have no numbers that are left out.
    Exception
        What ``__array__`` of the value raises.
    """
    if is_masked(value):
        raise TypeError("its mask would be dropped; use its method filled, or its attribute data")
    try:
        return np.asarray(value)
    except TypeError:
        torch = sys.modules.get("torch")
        if torch is None or not isinstance(value, torch.Tensor):
            raise
        viewed = _VIEWED.get(str(value.dtype).removeprefix("torch."))
        if viewed is None:
            raise
        array: Array = value.view(getattr(torch, viewed[0])).numpy().view(viewed[1])
        return array


def is_masked(value: Any) -> bool:
    """Whether a value is a masked array of NumPy, whatever its mask."""
    return type(value) is not np.ndarray and isinstance(value, np.ndarray) and isinstance(value, np.ma.MaskedArray)


def share_memory(first: Array, second: Array) -> bool:
    """Whether two arrays share an element; undecidable cases count as shared."""
    try:
        return np.shares_memory(first, second, max_work=100_000)  # type: ignore[arg-type]
    except (np.exceptions.TooHardError, OverflowError):
        return True


def overlaps_itself(array: Array) -> bool:
    """Whether strides may reach one byte twice: each axis must step over all that the smaller ones span."""
    if not array.size:
        return False
    span = array.itemsize
    for stride, extent in sorted((abs(stride), extent) for stride, extent in
                                 zip(array.strides, array.shape, strict=True) if extent > 1):
        if stride < span:
            return True
        span += stride * (extent - 1)
    return False


def span(extents: Sequence[int], itemsize: int) -> int:
    """Return the bytes that an array would take if its extents of 0 were 1, which NumPy bounds."""
    return prod([extent or 1 for extent in extents]) * itemsize


_LIMIT_KEY = os.environ.encodekey("CONVREG_MAX_BYTES")


def max_bytes(call: Refusing) -> int:
    """Return the largest total of new outputs: CONVREG_MAX_BYTES, else the physical memory."""
    variables = getattr(os.environ, "_data", None)  # to ask for a variable that is not set takes ten times as long
    if variables is not None and _LIMIT_KEY not in variables:
        return physical_memory()
    text = os.environ.get("CONVREG_MAX_BYTES", "").strip()
    if not text:
        return physical_memory()
    if not re.fullmatch("[0-9]+", text):
        raise call.refuse("CONVREG_MAX_BYTES", text, "a number of bytes", "arguments")
    return int(text) if len(text) < 100 else sys.maxsize


@lru_cache(maxsize=1)
def physical_memory() -> int:
    """Return the bytes of the machine's memory."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
