"""The memory that a call needs beyond its inputs and outputs."""

from __future__ import annotations

from typing import Any

from .calls.binding import bind
from .calls.outputs import allocate
from .calls.recording import Recorder
from .calls.signature import Operator, reader_of
from .errors import OpError
from .guard import failure, guarded, thread_count
from .memory import Array
from .ops import kernels
from .registry import resolve


class _Workspace(Recorder):
    """Asks the engine what each call would allocate."""

    largest = 0

    def note(self, kernel: str, operands: tuple[Array, Array, Array], settings: dict[str, Any]) -> None:
        settings = {name: value for name, value in settings.items() if name != "bias"}
        self.largest = max(self.largest, kernels.engine.workspace_bytes(kernel, *operands, **settings))


@guarded("convreg::workspace_bytes")
def workspace_bytes(operator: str | Operator, *args: Any, **kwargs: Any) -> int:
    """Return the bytes that a call allocates beyond its inputs and outputs, without computing anything.

    Parameters
    ----------
    operator : str or function
        As for `get`, or the function itself.
    *args, **kwargs
        The arguments of the call. The strides of its arrays matter, their values do not.

    Returns
    -------
    int
        The sum over all threads. It does not include operands that the operator converts first, such as Ascend's
        roundings.

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
    recorder = _Workspace()
    try:
        function.spec.run(bound.plan, bound.inputs, outputs, recorder, workers)
    except (OverflowError, MemoryError, OpError) as error:
        raise failure(bound.call, error) from None
    return recorder.largest
