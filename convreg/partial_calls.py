"""Calls whose sums over the batch are taken apart: the pieces of a sum, and the kernel calls that sum some of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

import numpy as np

from .calls.arguments import tensor_value
from .calls.binding import Bound, asking, bind
from .calls.pieces import Cut, CutOf, PieceSums, Sum
from .calls.recording import Recorder
from .calls.signature import Arguments, Operator, reader_of
from .errors import Asking, OpError
from .formats import FORMATS
from .guard import failure, thread_count
from .memory import Array
from .ops import kernels
from .recorded import record
from .registry import get, resolve
from .roles import Role
from .spec import OpSpec, TensorType

BATCHED: tuple[Role, ...] = ("grad_output", "data", "number")
"""Roles of the inputs that have the batch as their first axis."""
SUMMED: tuple[Role, ...] = ("grad_weight", "grad_bias")
"""Roles of the results that are sums over the batch."""

REDUCTION = "convreg::distributed::Reduction"


def check_pieces(ask: Asking, pieces: Any, count: int) -> None:
    """Refuse what is no range of pieces of a sum that has so many."""
    if not isinstance(pieces, range) or pieces.step != 1 or not 0 <= pieces.start < pieces.stop <= count:
        raise ask.refuse("pieces", pieces, f"a range of step 1, not empty, within range(0, {count})")


@dataclass(frozen=True)
class Reduction:
    """How one result of a call is summed over the batch.

    Attributes
    ----------
    output : str
        The vendor's name of the result.
    batch : int
        The number of samples.
    pieces : int
        The number of pieces that the sum is cut into.
    length : int
        Positions of a piece. A sample has `positions` of them, so pieces need not begin with a sample.
    positions : int
        Positions of the small side in a sample.
    bytes : int
        Of one partial sum.
    """

    output: str
    batch: int
    pieces: int
    length: int
    positions: int
    bytes: int

    def samples(self, pieces: range) -> range:
        """Return the samples of the batch that some pieces need.

        Parameters
        ----------
        pieces : range
            Pieces that follow one another.

        Raises
        ------
        OpError
            If they are none of the sum.
        """
        check_pieces(Asking(REDUCTION), pieces, self.pieces)
        return Cut(self.batch, self.positions, self.pieces, self.length).samples(pieces.start, pieces.stop)

    def ranges(self, parts: int) -> list[range]:
        """Divide the pieces into at most so many ranges of about the same length, none empty.

        Raises
        ------
        OpError
            If `parts` is no positive integer.
        """
        if isinstance(parts, bool) or not isinstance(parts, int | np.integer) or parts < 1:
            raise Asking(REDUCTION).refuse("parts", parts, "a positive integer")
        parts = min(int(parts), self.pieces)
        edges = [self.pieces * part // parts for part in range(parts + 1)]
        return [range(first, end) for first, end in pairwise(edges)]


class Named(NamedTuple):
    """An operator as other processes find their own: by name and version, or itself if it is not registered."""

    operator: str | Operator
    version: int

    @classmethod
    def of(cls, operator: Operator) -> Named:
        """Return what stands for an operator."""
        spec = operator.spec
        try:
            registered = get(spec.qualified_name, version=spec.since_version).spec is spec
        except OpError:
            registered = False
        return cls(spec.qualified_name if registered else operator, spec.since_version)

    def found(self) -> Operator:
        """Return the operator in this process."""
        return get(self.operator, version=self.version) if isinstance(self.operator, str) else self.operator


class Hollow(NamedTuple):
    """Shape and dtype of an operand whose numbers nobody reads: unlike an array of zeros it is small in a pickle."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def array(self) -> Array:
        """Return zeros without memory."""
        return np.broadcast_to(np.zeros((), self.dtype), self.shape)


def bound_to(spec: OpSpec, arguments: Arguments) -> Bound:
    """Check a call whose operands may be hollow."""
    tensors = [value.array() if isinstance(value, Hollow) else value for value in arguments.tensors]
    return bind(spec, tensors, arguments.attributes, conformance=arguments.conformance)


class Parts:
    """A call that is computed for parts of its batch.

    Parameters
    ----------
    ask : Asking
        What raises the exceptions.
    function : Operator
    arguments : Arguments
        Those of the call; their batch may be a part of `batch`. Tensors need a shape and a dtype only, unless pieces
        are summed.
    batch : int or None
        The samples of the whole batch, None if the arguments have them all.

    Attributes
    ----------
    places : list of int
        The inputs that have the batch as their first axis.
    bound : Bound
        The call, with arrays that have no memory in place of the operands.
    """

    def __init__(self, ask: Asking, function: Operator, arguments: Arguments, batch: int | None = None) -> None:
        self.ask, self.function = ask, function
        self.spec: OpSpec = function.spec
        if arguments.out is not None:
            raise ask.refuse("out", "given", "nothing: parts return new arrays", wrong_type=True)
        default = self.spec.conformances[0]
        call, rules = asking(self.spec, default), self.spec.rules_under(default)
        self.arguments = arguments._replace(tensors=[
            value if value is None or port.shape or isinstance(getattr(value, "dtype", None), np.dtype)
            else tensor_value(call, rules, port, value)
            for port, value in zip(self.spec.inputs, arguments.tensors, strict=True)])
        roles = self.spec.roles
        self.places = [self.spec.input_names.index(roles[role]) for role in BATCHED if role in roles]
        self.bound = self.bind(self._hollow(None))
        present = [value for place in self.places if (value := self.arguments.tensors[place]) is not None]
        if not present[0].shape:
            raise ask.refuse(self.spec.inputs[self.places[0]].name, "a tensor without axes", "one whose first axis is "
                             "the batch")
        self.given = int(present[0].shape[0])
        self.batch = self.given if batch is None else self._checked(batch)

    @classmethod
    def of(
        cls, ask: Asking, operator: str | Operator, args: tuple[Any, ...], kwargs: dict[str, Any],
        batch: int | None = None,
    ) -> Parts:
        """Return the parts of a call in Python's arguments, refused if the call has no sum over the batch."""
        function = resolve(operator)
        if not any(role in function.spec.roles for role in SUMMED):
            raise ask.refuse("op", function.spec.qualified_name, "an operator with a weights or bias gradient, the "
                             "sums over the batch")
        return cls(ask, function, reader_of(function.spec)(args, dict(kwargs)), batch)

    def _checked(self, batch: Any) -> int:
        if isinstance(batch, bool) or not isinstance(batch, int | np.integer) or batch < self.given:
            raise self.ask.refuse("batch", batch, f"the samples of the whole batch, at least the {self.given} given")
        return int(batch)

    def bind(self, tensors: list[Any]) -> Bound:
        """Check the call with other tensors in place of its own."""
        return bound_to(self.spec, self.arguments._replace(tensors=tensors))

    def _hollow(self, samples: int | None) -> list[Any]:
        """Return `Hollow` in place of the operands; scales and shapes stay."""
        def hollow(place: int, value: Any) -> Any:
            port = self.spec.inputs[place]
            if value is None or port.shape or port.scales:
                return value
            shape = tuple(value.shape)
            if samples is not None and place in self.places:
                shape = (samples, *shape[1:])
            return Hollow(shape, value.dtype)

        return [hollow(place, value) for place, value in enumerate(self.arguments.tensors)]

    def sample(self) -> Arguments:
        """Return the call for a batch of one sample, whose operands are hollow, to deliver results with."""
        return self.arguments._replace(tensors=self._hollow(1))

    def made(self) -> dict[str, TensorType]:
        """Return the results that the call computes, by name."""
        return {port.name: made for port, made in zip(self.spec.outputs, self.bound.plan.outputs, strict=True)
                if made is not None}

    def computed(self) -> list[str]:
        """Return the results that are summed over the batch, without those that the call leaves out."""
        return [name for role in SUMMED if (name := self.spec.roles.get(role, "")) in self.made()]

    def output(self, of: Any) -> str:
        """Return the result that is meant."""
        computed = self.computed()
        if of is None and len(computed) == 1:
            return computed[0]
        if not isinstance(of, str) or of not in computed:
            results = " or ".join(map(repr, computed))
            raise self.ask.refuse("of", of, results or "a call that computes a weights or bias gradient")
        return of

    def cut(self, output: str) -> Cut:
        """Return how a result is cut."""
        recorder = CutOf(self.batch)
        run_for(self.bind(self.sample().tensors), output, recorder, 1)
        return recorder.cut or Cut(self.batch, 0, 1, 0)

    def size(self, output: str) -> int:
        """Return how many numbers a result has."""
        return prod(self.made()[output].extents)

    def reduction(self, output: str) -> Reduction:
        """Describe how a result is summed."""
        cut = self.cut(output)
        wide = any(array is not None and array.dtype == np.float64 for array in self.bound.inputs)
        return Reduction(output, self.batch, cut.pieces, cut.length, cut.positions,
                         self.size(output) * (8 if wide else 4))

    def sums(self, output: str, pieces: Any, start: Any, compute: Any) -> list[Sum]:
        """Sum some pieces of a result with the module of kernels, or note what would be computed."""
        cut = self.cut(output)
        check_pieces(self.ask, pieces, cut.pieces)
        needed = cut.samples(pieces.start, pieces.stop)
        if start is None:
            start = 0 if self.given == self.batch else needed.start
        if isinstance(start, bool) or not isinstance(start, int | np.integer) or not (
                0 <= start <= needed.start and needed.stop <= start + self.given):
            raise self.ask.refuse("start", start, f"the first sample of the operands, whose {self.given} samples of a "
                                  f"batch of {self.batch} include {needed.start} to {needed.stop - 1}")
        tensors = list(self.arguments.tensors)
        for place in self.places:
            if tensors[place] is not None:
                tensors[place] = tensors[place][needed.start - start:needed.stop - start]
        bound = self.bind(tensors)
        summing = PieceSums(compute, self.batch, pieces, needed.start)
        threads = thread_count(bound.call, self.arguments.threads) or kernels.default_threads()
        run_for(bound, output, summing, threads)
        return summing.sums


def run_for(bound: Bound, output: str, compute: Any, threads: int) -> Array:
    """Run a call for one of its results, whose array is returned."""
    made = tuple(made if port.name == output else None
                 for port, made in zip(bound.call.spec.outputs, bound.plan.outputs, strict=True))
    outputs = tuple(None if one is None else np.zeros(one.extents, FORMATS[one.format].dtype) for one in made)
    try:
        bound.call.spec.run(replace(bound.plan, outputs=made), bound.inputs, outputs, compute, threads)
    except (OverflowError, MemoryError, OpError) as error:
        raise failure(bound.call, error) from None
    return next(array for array in outputs if array is not None)


def record_call(
    asking: str, op: str | Operator, args: tuple[Any, ...], kwargs: dict[str, Any], recorder: Recorder
) -> None:
    """Give the kernel calls of a call, or with ``pieces=`` of a `partial` call, to a recorder."""
    if "pieces" not in kwargs:
        record(op, args, kwargs, recorder)
        return
    own = {name: kwargs.pop(name, None) for name in ("pieces", "of", "batch", "start")}
    parts = Parts.of(Asking(asking), op, args, kwargs, own["batch"])
    parts.sums(parts.output(own["of"]), own["pieces"], own["start"], recorder)
