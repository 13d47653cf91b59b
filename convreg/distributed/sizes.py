"""How large the arrays and the workspace of a call are, from shapes and formats alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ..calls.binding import bind
from ..calls.signature import Operator, reader_of
from ..memory import Array
from ..workspace import workspace_bytes


class Sizes(NamedTuple):
    """Elements of the operands and of the results, and the bytes of the workspace."""

    operands: tuple[int, ...]
    results: tuple[int, ...]
    workspace: int

    @property
    def largest(self) -> int:
        """Elements of the largest array."""
        return max((*self.operands, *self.results), default=0)


def hollow(shape: Sequence[int], dtype: Any) -> Array:
    """Return an array of zeros that takes no memory."""
    return np.broadcast_to(np.zeros((), dtype), tuple(shape))


def sizes_of(operator: Operator, inputs: Sequence[Any], named: Mapping[str, Any], threads: int | None) -> Sizes:
    """Return the sizes of a call, which is checked on the way; only shapes and dtypes of its arrays matter.

    Raises
    ------
    OpError, OpTypeError
        As the call.
    """
    spec = operator.spec
    given = reader_of(spec)(tuple(inputs), dict(named))
    bound = bind(spec, given.tensors, given.attributes, conformance=given.conformance)
    workspace = workspace_bytes(operator, *inputs, **{**named, "threads": threads})
    return Sizes(tuple(array.size for array in bound.inputs if array is not None),
                 tuple(prod(made.extents) for made in bound.plan.outputs if made is not None), workspace)
