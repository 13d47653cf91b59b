"""The memory that a call needs beyond its inputs and outputs."""

from __future__ import annotations

from typing import Any

from .calls.recording import Recorder
from .calls.signature import Operator
from .guard import guarded
from .memory import Array
from .ops import kernels
from .partial_calls import record_call

WORKSPACE = "convreg::workspace_bytes"


class _Workspace(Recorder):
    """Asks the engine what each call would allocate."""

    largest = 0

    def note(self, kernel: str, operands: tuple[Array, Array, Array], settings: dict[str, Any]) -> None:
        kernels.check_isa()  # the call would be refused
        self.largest = max(self.largest, kernels.engine.workspace_bytes(kernel, *operands, **settings))


@guarded(WORKSPACE)
def workspace_bytes(operator: str | Operator, *args: Any, **kwargs: Any) -> int:
    """Return the bytes that a call needs beyond its inputs and outputs, without computing anything.

    Parameters
    ----------
    operator : str or function
        As for `get`, or the function itself.
    *args, **kwargs
        The arguments of the call, or with ``pieces=`` those of `convreg.distributed.partial`. The strides of its
        arrays matter, their values do not.

    Returns
    -------
    int
        The sum over all threads, of the algorithm that needs most among those that the call may try. It does not
        include operands that the operator converts first, such as Ascend's roundings.

    Raises
    ------
    OpError
        As the call would.
    """
    recorder = _Workspace()
    record_call(WORKSPACE, operator, args, kwargs, recorder)
    return recorder.largest
