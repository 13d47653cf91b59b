"""Output arrays: checks of those given as ``out=``, and new ones within the memory limit."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ..errors import OpError
from ..formats import FORMATS
from ..memory import Array, is_masked, max_bytes, overlaps_itself, share_memory, span
from ..spec import Call, Plan, Rules, TensorType


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
        if not isinstance(entry, np.ndarray) or is_masked(entry):
            raise call.refuse("out", type(entry).__name__, f"a numpy array for {port.name}, without a mask", rules.kind,
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


class Needs(NamedTuple):
    """What an array for a tensor takes."""

    extents: tuple[int, ...]
    dtype: np.dtype[Any]
    bytes: int


class Room(NamedTuple):
    """What the new outputs of a call take: each one, None where no array is made, and all together."""

    arrays: tuple[Needs | None, ...]
    bytes: int


def allocate(call: Call, plan: Plan, outputs: Sequence[Array | None]) -> tuple[Array | None, ...]:
    """Return the output arrays: those given, and new ones for the rest. At most ``max_bytes`` are allocated."""
    room = check_sizes(call, [tensor if array is None else None
                              for tensor, array in zip(plan.outputs, outputs, strict=True)])
    return tuple([None if tensor is None else array if new is None else new for tensor, array, new in zip(
        plan.outputs, outputs, new_arrays(call, room), strict=True)])


def check_sizes(call: Call, tensors: Sequence[TensorType | None]) -> Room:
    """Return what new arrays for the outputs take; refuse them above ``max_bytes``, or if NumPy cannot make them."""
    arrays = tuple([None if tensor is None else needs(tensor) for tensor in tensors])
    room = Room(arrays, sum(some.bytes for some in arrays if some is not None))
    check_room(call, room)
    return room


def check_room(call: Call, room: Room) -> None:
    """Refuse new arrays above ``max_bytes``, and extents that no array can have."""
    limit = max_bytes(call)
    for port, some in zip(call.spec.outputs, room.arrays, strict=True):
        if some is None:
            continue
        limit -= some.bytes
        if limit < 0:
            raise call.refuse(port.name, list(some.extents), f"outputs of at most {max_bytes(call)} bytes in all, "
                              f"{-limit} fewer than these (CONVREG_MAX_BYTES sets the limit)", "max_bytes")
        if span(some.extents, some.dtype.itemsize) >= 2**63:
            raise call.refuse(port.name, list(some.extents), "extents whose product, without those of 0, is "
                              "less than 2**63 bytes", "max_bytes")


def new_arrays(call: Call, room: Room) -> tuple[Array | None, ...]:
    """Return new arrays of sizes that were checked before, by the limit that holds now."""
    if room.bytes > max_bytes(call):
        check_room(call, room)
    arrays: list[Array | None] = []
    for some in room.arrays:
        try:
            arrays.append(None if some is None else np.empty(some.extents, some.dtype))
        except MemoryError:
            raise _no_memory(call, room, len(arrays)) from None
    return tuple(arrays)


def _no_memory(call: Call, room: Room, place: int) -> OpError:
    some = room.arrays[place]
    assert some is not None
    return call.refuse(call.spec.outputs[place].name, list(some.extents), "a result that fits the memory that is free: "
                       f"it needs {some.bytes} bytes", "memory")


def needs(tensor: TensorType) -> Needs:
    """Return the shape, dtype and bytes of an array for a tensor."""
    dtype = FORMATS[tensor.format].dtype
    return Needs(tensor.extents, dtype, prod(tensor.extents) * dtype.itemsize)
