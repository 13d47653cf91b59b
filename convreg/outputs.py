"""Output arrays: checks of those given as ``out=``, and new ones within the memory limit."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from .errors import Refusing
from .formats import FORMATS
from .spec import Call, Plan, Rules, TensorType

Array = np.ndarray[Any, np.dtype[Any]]


def output_values(call: Call, rules: Rules, out: Any) -> tuple[Array | None, ...]:
    """Return the arrays given as ``out=``, one entry per output."""
    count = len(call.spec.outputs)
    if out is None:
        return (None,) * count
    entries = (out,) if count == 1 and not isinstance(out, tuple) else out
    if not isinstance(entries, tuple | list) or len(entries) != count:
        raise call.refuse("out", type(out).__name__, f"a tuple of {count}" if count > 1 else "an array", rules.outputs,
                          wrong_type=True)
    for port, entry in zip(call.spec.outputs, entries, strict=True):
        if entry is None:
            continue
        if not isinstance(entry, np.ndarray):
            raise call.refuse("out", type(entry).__name__, f"a numpy array for {port.name}", rules.kind,
                              wrong_type=True)
        if not entry.flags.writeable:
            raise call.refuse("out", "read-only array", f"a writable array for {port.name}", "arguments")
        if not entry.dtype.isnative:
            raise call.refuse("out", entry.dtype.str, "native byte order", rules.output_format, wrong_type=True)
    return tuple(entries)


def check_overlap(call: Call, inputs: Sequence[Array | None], outputs: Sequence[Array | None], plan: Plan) -> None:
    """Refuse outputs that share memory with an input, another output or themselves."""
    written = [(port.name, array) for port, array, made in zip(call.spec.outputs, outputs, plan.outputs, strict=True)
               if array is not None and made is not None]
    for index, (name, array) in enumerate(written):
        others = [(port.name, other) for port, other in zip(call.spec.inputs, inputs, strict=True) if other is not None]
        for other_name, other in others + written[:index]:
            if np.may_share_memory(array, other) and share_memory(array, other):
                raise call.refuse("out", name, f"memory of its own (it overlaps {other_name})", "arguments")
        if overlaps_itself(array):
            raise call.refuse("out", f"strides {array.strides}", "an array whose elements do not overlap", "arguments")


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


def allocate(call: Call, plan: Plan, outputs: Sequence[Array | None]) -> tuple[Array | None, ...]:
    """Return the output arrays: those given, and new ones for the rest. At most ``max_bytes`` are allocated."""
    needed = check_sizes(call, [tensor if array is None else None
                                for tensor, array in zip(plan.outputs, outputs, strict=True)])
    return tuple([None if tensor is None else array if some is None else _fresh(call, port.name, some)
                  for port, tensor, array, some in zip(call.spec.outputs, plan.outputs, outputs, needed, strict=True)])


class Needs(NamedTuple):
    """What an array for a tensor takes; `span` is what its extents would take if those of 0 were 1."""

    extents: tuple[int, ...]
    dtype: np.dtype[Any]
    bytes: int
    span: int


def check_sizes(call: Call, tensors: Sequence[TensorType | None]) -> list[Needs | None]:
    """Return what fresh arrays for the outputs take; refuse them above ``max_bytes``, or if NumPy cannot make them."""
    limit = max_bytes(call)
    needed = [None if tensor is None else needs(tensor) for tensor in tensors]
    for port, some in zip(call.spec.outputs, needed, strict=True):
        if some is None:
            continue
        limit -= some.bytes
        if limit < 0:
            raise call.refuse(port.name, list(some.extents), f"outputs of at most {max_bytes(call)} bytes in all, "
                              f"{-limit} fewer than these (CONVREG_MAX_BYTES sets the limit)", "max_bytes")
        if some.span >= 2**63:
            raise call.refuse(port.name, list(some.extents), "extents whose product, without those of 0, is "
                              "less than 2**63 bytes", "max_bytes")
    return needed


def _fresh(call: Call, name: str, some: Needs) -> Array:
    try:
        return np.empty(some.extents, some.dtype)
    except MemoryError:
        raise call.refuse(name, list(some.extents), f"a result that fits the memory that is free: it needs "
                          f"{some.bytes} bytes", "memory") from None


@lru_cache(maxsize=4096)
def needs(tensor: TensorType) -> Needs:
    """Return the shape, dtype and bytes of an array for a tensor."""
    dtype = FORMATS[tensor.format].dtype
    return Needs(tensor.extents, dtype, prod(tensor.extents) * dtype.itemsize, span(tensor.extents, dtype.itemsize))


def span(extents: Sequence[int], itemsize: int) -> int:
    """Return the bytes that an array would take if its extents of 0 were 1, which NumPy bounds."""
    return prod([extent or 1 for extent in extents]) * itemsize


def max_bytes(call: Refusing) -> int:
    """Return the largest total of new outputs: CONVREG_MAX_BYTES, else the physical memory."""
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
