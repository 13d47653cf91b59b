"""The kernel calls of one call of an operator, recorded and not computed."""

from __future__ import annotations

from typing import Any

from .calls.binding import bind
from .calls.outputs import allocate
from .calls.recording import Recorder
from .calls.signature import Operator, reader_of
from .errors import OpError
from .guard import failure, thread_count
from .ops import kernels
from .registry import resolve


def record(operator: str | Operator, args: tuple[Any, ...], kwargs: dict[str, Any], recorder: Recorder) -> None:
    """Check a call and allocate its results as the call would, and give its kernel calls to a recorder.

    Raises
    ------
    OpError
        As the call would.
    """
    function = resolve(operator)
    tensors, attributes, conformance, out, threads = reader_of(function.spec)(args, kwargs)
    bound = bind(function.spec, tensors, attributes, conformance=conformance, out=out)
    workers = thread_count(bound.call, threads) or kernels.default_threads()
    outputs = allocate(bound.call, bound.plan, bound.outputs)
    try:
        function.spec.run(bound.plan, bound.inputs, outputs, recorder, workers)
    except (OverflowError, MemoryError, OpError) as error:
        raise failure(bound.call, error) from None
