"""The records of golden vectors: a call with its results, and a call whose inputs are not drawn yet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from numbers import Real
from typing import Any, TypeVar

import numpy as np

from ..errors import shorten
from ..files import PathLike
from ..guard import guarded
from ..memory import Array
from ..once import once
from . import archive
from .analysis import analyse
from .bounds import Analysis
from .calling import ASK, called, check_texts
from .fills import drawn


def _shown(value: Any) -> str:
    """Return a short text for a part of a record: of an array the dtype and the shape."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape}"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{shorten(name)}: {_shown(part)}' for name, part in value.items())}}}"
    return repr(value) if isinstance(value, Operand) else shorten(value)


def _short(record: Any) -> str:
    """Return the text of a record without the numbers of its arrays."""
    parts = [f"{entry.name}={_shown(getattr(record, entry.name))}" for entry in fields(record)]
    return f"{type(record).__name__}({', '.join(parts)})"


@dataclass(frozen=True)
class Operand:
    """An input of a case: its type, and what its values shall be.

    Attributes
    ----------
    shape : tuple of int
    format : str
        A name of `convreg.formats`; an integer dtype's name for an input that states a shape.
    low, high : float, optional
        The closed range of the values, where the source of the case states one.
    occurring : tuple of float
        Values that must occur.
    values : ndarray, optional
        The values, where they are given: nothing is drawn then.
    """

    shape: tuple[int, ...]
    format: str
    low: float | None = None
    high: float | None = None
    occurring: tuple[float, ...] = ()
    values: Array | None = None

    __repr__ = _short

    def __post_init__(self) -> None:
        """Refuse a shape or a format of another type."""
        if not isinstance(self.shape, Sequence) or not all(
                isinstance(extent, int | np.integer) and not isinstance(extent, bool) for extent in self.shape):
            raise ASK.refuse("shape", self.shape, "a tuple of integers", wrong_type=True)
        if not isinstance(self.format, str):
            raise ASK.refuse("format", self.format, "the name of a format", wrong_type=True)
        for argument, value in (("low", self.low), ("high", self.high)):
            if value is not None and not isinstance(value, Real):
                raise ASK.refuse(argument, value, "a number or None", wrong_type=True)
        if not isinstance(self.occurring, Sequence) or not all(isinstance(value, Real) for value in self.occurring):
            raise ASK.refuse("occurring", self.occurring, "a tuple of numbers", wrong_type=True)


def _check_types(record: Case | Golden, mappings: Sequence[str]) -> None:
    """Refuse a record whose parts are none of their types; `mappings` names those that have parts by name."""
    check_texts(name=record.name, op=record.op)
    if record.conformance is not None:
        check_texts(conformance=record.conformance)
    for argument in mappings:
        held = getattr(record, argument)
        if not isinstance(held, Mapping) or not all(isinstance(name, str) for name in held):
            raise ASK.refuse(argument, held, "a mapping from names to values", wrong_type=True)


@dataclass(frozen=True)
class Case:
    """A call whose inputs are not drawn yet.

    Attributes
    ----------
    name : str
    op : str
        Qualified name of the operator.
    inputs : mapping of str to Operand
        By the argument names of the operator's Python function.
    attributes : mapping
        The other arguments of that function, without conformance, out and threads.
    conformance : str, optional
        By default the operator's own.
    fields : mapping of str to str
        The source's own record, for layouts that write it again.
    """

    name: str
    op: str
    inputs: Mapping[str, Operand]
    attributes: Mapping[str, Any]
    conformance: str | None = None
    fields: Mapping[str, str] = field(default_factory=dict)

    __repr__ = _short

    def __post_init__(self) -> None:
        """Refuse a part of another type: whoever reads the record relies on them."""
        _check_types(self, ("inputs", "attributes", "fields"))
        if not all(isinstance(each, Operand) for each in self.inputs.values()):
            raise ASK.refuse("inputs", self.inputs, "a mapping from names to Operand records", wrong_type=True)

    @guarded("convreg::golden")
    def make(self, *, seed: int = 0, fill: str = "normal", threads: int | None = None) -> Golden:
        """Draw the inputs and return the golden vectors.

        Parameters
        ----------
        seed : int
            Not below 0. Equal seeds give equal bytes on every machine, whatever was made before.
        fill : str
            A key of `convreg.golden.FILLS`, which describes each one.
        threads : int, optional
            Number of threads. The results do not depend on it.

        Returns
        -------
        Golden

        Raises
        ------
        OpError, OpTypeError
            What the operator's call raises; or if there is no such fill, or an operand cannot be drawn.
        UnknownOp
            If there is no such operator.
        """
        inputs = drawn(self, seed, fill)
        parts = called(self.op, inputs, self.attributes, self.conformance, threads)
        return Golden(self.name, *parts, self.fields)


@dataclass(frozen=True, eq=False)
class Golden:
    """A call with its inputs and results.

    Attributes
    ----------
    name : str
        The name of the case, empty where it has none.
    op : str
        Qualified name of the operator.
    attributes : mapping
        Keyword arguments of the operator's Python function, without conformance, out and threads.
    conformance : str or None
        The rules of the call; None stands for the operator's default.
    inputs : mapping of str to ndarray
        By the argument names of the Python function, each in its format. Optional inputs that are absent are left out.
    outputs : mapping of str to ndarray
        By the vendor's names of the outputs, each in its format. Outputs that are masked off are left out.
    fields : mapping of str to str
        The source's own record, as in `Case`.
    """

    name: str
    op: str
    attributes: Mapping[str, Any]
    conformance: str | None
    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]
    fields: Mapping[str, str] = field(default_factory=dict)

    __repr__ = _short

    def __post_init__(self) -> None:
        """Refuse a part of another type."""
        _check_types(self, ("attributes", "inputs", "outputs", "fields"))

    @guarded("convreg::golden")
    def save(self, path: PathLike) -> None:
        """Write everything to an .npz file, the reference and the bound too; equal vectors give equal bytes.

        Parameters
        ----------
        path : path-like
            The .npz file.

        Raises
        ------
        GraphError
            If the file cannot be written. Nothing is written then.
        """
        archive.save(self, path)

    @once
    def reference(self) -> dict[str, Array]:
        """The same call without any rounding, by output: float64 in the output's shape.

        Where the operator rounds its operands first, such as to HF32, these are the results of rounded operands.

        Raises
        ------
        OpError, OpTypeError
            If the operator refuses the call, or its outputs have no roles.
        """
        return {name: found.reference.reshape(found.shape) for name, found in self.analysis.items()}

    @once
    def bound(self) -> dict[str, Array]:
        """The largest difference from `reference` that rounding can make, by output and element: float64.

        It holds for every order of the summation in float32 (float64 for float64 operands). It is infinite where a
        partial sum may overflow, and 0 where the reference is infinite or NaN, because the result has to be the same.

        Raises
        ------
        OpError, OpTypeError
            As `reference`.
        """
        return {name: found.bound() for name, found in self.analysis.items()}

    @once
    @guarded("convreg::golden")
    def analysis(self) -> dict[str, Analysis]:
        """What `reference`, `bound` and `convreg.golden.compare` have in common, by output."""
        return analyse(self)


Record = TypeVar("Record", Case, Golden)


def checked(argument: str, records: Any, kind: type[Record]) -> Iterator[Record]:
    """Refuse what is no iterable; return an iterator that refuses what is no record of a kind, and keeps none."""
    allowed = f"{kind.__name__} records"
    if not isinstance(records, Iterable):
        raise ASK.refuse(argument, records, allowed, wrong_type=True)

    def one(record: Any) -> Record:
        if not isinstance(record, kind):
            raise ASK.refuse(argument, record, allowed, wrong_type=True)
        return record

    return map(one, records)
