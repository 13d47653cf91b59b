"""How much a model file may grow while it is read, checked and inlined. A small file must not take all memory.

The limits hold for what a file makes of itself: calls of functions, tensors that share bytes, records of inference.
What the nodes of a model compute is not limited here.
"""

from __future__ import annotations

from ..errors import GraphError

PROTOBUF_BYTES = 2**31 - 1
"""The largest message that protobuf reads or writes."""

ADDED_NODES, ADDED_BYTES = 100_000, 2**28
"""What inlining the functions of a model may add to it."""

NESTING = 100
"""Messages inside messages; protobuf reads no deeper ones from files."""

CALL_DEPTH = 100
"""Functions that may be open at once: a function that calls a function is two."""

SHARED_FACTOR, SHARED_BYTES = 4, 2**26
"""Tensors that take their bytes from files may share them, as tied weights do: all tensors together may hold as many
bytes as the files times the factor, and always `SHARED_BYTES`."""

PROPAGATED = 64
"""Elements of a value that shape inference follows one by one; shapes have fewer."""


class Shared:
    """Counts the bytes that tensors take from files, and refuses what is far more than the files have."""

    def __init__(self, most: int | None = None) -> None:
        self._files: dict[str, int] = {}
        self._taken, self._most = 0, most

    def take(self, file: str, size: int, count: int, where: str) -> None:
        """Note that a tensor takes `count` bytes of a file of `size` bytes.

        Raises
        ------
        GraphError
            If all tensors so far take too much; the message begins with `where`.
        """
        self._files[file] = size
        self._taken += count
        held = sum(self._files.values())
        allowed = max(SHARED_FACTOR * held, SHARED_BYTES)
        if self._taken > allowed:
            raise GraphError(f"{where}: the tensors so far take {self._taken} bytes out of files of {held} bytes; "
                             f"allowed: {allowed} bytes")
        if self._most is not None and self._taken > self._most:
            raise GraphError(f"{where}: the tensors so far take {self._taken} bytes; allowed: {self._most}")
