"""Calls to be measured: arrays that are given, or drawn where they are measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .. import registry
from ..calls.arguments import integer, integers
from ..calls.signature import Operator
from ..distributed.sizes import hollow, sizes_of
from ..errors import Asking
from ..formats import FORMATS, format_of
from ..guard import guarded
from ..memory import Array
from ..spec import Rules
from .arguments import name_of
from .distributions import DISTRIBUTIONS, draw

ASK = Asking("convreg::numerics")

PER_OPERAND, PER_RESULT, PER_LARGEST = 24, 28, 48
"""Bytes that `compare` holds at a time: for each element of the operands, of the results, and of the largest array.

Operands stand in float32 and in float64, rounded and again in float32; results in float64, rounded, and as the float32
sums. Metrics and the search for scales work on one array after the other, with several temporary ones of float64.
"""


@dataclass(frozen=True)
class Drawn:
    """An operand that `draw` makes where it is needed: `factor` times numbers of a named distribution, in float32.

    Attributes
    ----------
    distribution : str
        A key of `DISTRIBUTIONS`.
    shape : sequence of int
    seed : int
    factor : float
    """

    distribution: str
    shape: Sequence[int]
    seed: int = 0
    factor: float = 1.0

    @guarded("convreg::numerics")
    def array(self) -> Array:
        """Return the numbers.

        Raises
        ------
        OpError, OpTypeError
            As `draw`, or if the factor is no finite number.
        """
        _checked(self)
        numbers = draw(self.distribution, self.shape, self.seed)
        return numbers if self.factor == 1 else numbers * np.float32(self.factor)


@dataclass(frozen=True, eq=False)
class Case:
    """A call for `sweep`, as `compare` takes it.

    Attributes
    ----------
    op : str or function
    inputs : sequence or mapping
        Operands may be `Drawn`: then they are made where the case is measured, and no array is carried there.
    attributes : mapping
    """

    op: str | Operator
    inputs: Sequence[Any] | Mapping[str, Any]
    attributes: Mapping[str, Any] = field(default_factory=dict)


def arrays_of(inputs: Sequence[Any] | Mapping[str, Any]) -> Sequence[Any] | Mapping[str, Any]:
    """Return the inputs of a case with all arrays drawn."""
    def made(value: Any) -> Any:
        return value.array() if isinstance(value, Drawn) else value

    if isinstance(inputs, Mapping):
        return {name: made(value) for name, value in inputs.items()}
    return [made(value) for value in inputs]


def checked_case(name: Any, case: Any) -> Case:
    """Return a case whose operator is given by its name, so that it can be carried.

    Raises
    ------
    OpError, OpTypeError, UnknownOp
    """
    if not isinstance(name, str) or not name or not name.isprintable():
        raise ASK.refuse("cases", name, "printable names of cases", wrong_type=not isinstance(name, str))
    if isinstance(case, tuple) and len(case) in (2, 3):
        case = Case(*case)
    if not isinstance(case, Case):
        raise ASK.refuse("cases", case, f"a Case, or a tuple of operator, inputs and attributes, for {name!r}",
                         wrong_type=True)
    inputs, attributes = case.inputs, case.attributes
    if isinstance(inputs, str | bytes) or not isinstance(inputs, Sequence | Mapping):
        raise ASK.refuse("inputs", inputs, f"a list or mapping of arrays, for case {name!r}", wrong_type=True)
    if not isinstance(attributes, Mapping) or not all(isinstance(key, str) for key in attributes):
        raise ASK.refuse("attributes", attributes, f"a mapping from names to values, for case {name!r}",
                         wrong_type=True)
    return replace(case, op=registry.resolve(case.op).spec.qualified_name, attributes=dict(attributes),
                   inputs=dict(inputs) if isinstance(inputs, Mapping) else list(inputs))


def bytes_of(case: Case, threads: int | None) -> int:
    """Return the memory that `compare` takes for a case at most, and check the call on the way.

    Raises
    ------
    OpError, OpTypeError
        As the call would, without drawing or computing anything.
    """
    def empty(value: Any) -> Any:
        if isinstance(value, Drawn):
            _checked(value)
            return hollow(value.shape, np.float32)
        known = format_of(value.dtype) if isinstance(value, np.ndarray) else None
        return value if known is None else hollow(value.shape, np.float32)

    inputs = case.inputs
    named = {name: empty(value) for name, value in inputs.items()} if isinstance(inputs, Mapping) else {}
    listed = [] if isinstance(inputs, Mapping) else [empty(value) for value in inputs]
    sizes = sizes_of(registry.resolve(case.op), listed, {**named, **case.attributes}, threads)
    return (PER_OPERAND * sum(sizes.operands) + PER_RESULT * sum(sizes.results) + PER_LARGEST * sizes.largest
            + 2 * sizes.workspace)


def _checked(drawn: Drawn) -> None:
    """Refuse an operand that cannot be drawn, before anything is."""
    name_of(ASK, "distribution", drawn.distribution, DISTRIBUTIONS)
    extents = integers(ASK, Rules(), "shape", drawn.shape)
    if any(extent < 0 for extent in extents) or len(extents) > 32:
        raise ASK.refuse("shape", drawn.shape, "at most 32 extents, none below 0")
    if integer(ASK, Rules(), "seed", drawn.seed) < 0:
        raise ASK.refuse("seed", drawn.seed, "an integer not below 0")
    if isinstance(drawn.factor, bool) or not isinstance(drawn.factor, int | float) or (
            not abs(drawn.factor) <= FORMATS["float64"].largest):
        raise ASK.refuse("factor", drawn.factor, "a finite number")
