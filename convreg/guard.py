"""Guards for public functions: wrong arguments and a lack of memory raise exceptions of ours, not Python's own."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np

from .errors import Asking, OpError, OpTypeError, Refusing, near_misses

OURS = "convreg::"
"""What the names of functions that are no operators begin with in exceptions."""
THREADS = "a positive integer below 2**31, or None"
"""What may be said of the number of threads."""

P = ParamSpec("P")
R = TypeVar("R")


def guarded(op: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator for a public function that is not an operator; `op` is its name in exceptions.

    A call that the signature does not allow raises `OpTypeError`. A failed allocation raises `OpError`. What another
    function of convreg raises on the way names this one, which the user called.
    """
    ask = Asking(op)

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return function(*args, **kwargs)
            except MemoryError as error:
                raise no_memory(ask, error) from None
            except OpError as error:
                if error.op == op or not error.op.startswith(OURS):
                    raise
                raise ask.refuse(error.argument, error.value, error.allowed, error.rule,
                                 wrong_type=isinstance(error, OpTypeError)) from None
            except TypeError:
                wrong = _mismatch(ask, inspect.signature(function), args, kwargs)
                if wrong is None:
                    raise
                raise wrong from None

        return call

    return decorate


def _mismatch(
    ask: Asking, signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> OpError | None:
    """Return the exception for arguments that a signature does not allow, None for arguments that it allows."""
    try:
        signature.bind(*args, **kwargs)
        return None
    except TypeError:
        pass
    parameters = {name: parameter for name, parameter in signature.parameters.items() if name != "self"}
    args = args[len(signature.parameters) - len(parameters):]
    positional = [name for name, parameter in parameters.items()
                  if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)]
    if len(args) > len(positional) and not any(p.kind is p.VAR_POSITIONAL for p in parameters.values()):
        allowed = f"at most {len(positional)}: {', '.join(positional)}" if positional else "no positional arguments"
        return ask.refuse("arguments", f"{len(args)} positional", allowed, wrong_type=True)
    for name in kwargs:
        if name in positional[:len(args)]:
            return ask.refuse(name, "given twice", "one value", wrong_type=True)
        if name not in parameters and not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
            near = near_misses(name, parameters)
            hint = f"did you mean {' or '.join(near)}? " if near else ""
            known = f"{hint}one of {', '.join(parameters)}" if parameters else "no arguments"
            return ask.refuse(name, "given", known, wrong_type=True)
    by_keyword = [name for name, parameter in parameters.items() if parameter.kind is parameter.KEYWORD_ONLY]
    missing = next(name for name in (*positional[len(args):], *by_keyword)
                   if name not in kwargs and parameters[name].default is inspect.Parameter.empty)
    return ask.refuse(missing, None, "a value: it is required", wrong_type=True)


def failure(call: Refusing, error: OverflowError | MemoryError | OpError) -> OpError:
    """Return the exception of an operator's call for what a step of its computation raised.

    Steps use `convreg.quantize` and `convreg.dequantize`, which the user has not called: their exceptions get the name
    of the operator.
    """
    if isinstance(error, OverflowError):
        has, allowed = error.args if len(error.args) == 2 else (str(error), "numbers below 2**63")
        return call.refuse("inputs", has, allowed, "arguments")
    if isinstance(error, MemoryError):
        return no_memory(call, error)
    if not error.op.startswith(OURS):
        return error
    return call.refuse("inputs", error.value, error.allowed, error.rule, wrong_type=isinstance(error, OpTypeError))


def no_memory(call: Refusing, error: MemoryError) -> OpError:
    """Return the exception for an allocation that failed outside of results."""
    return call.refuse("inputs", str(error) or "Unable to allocate the workspace",
                       "inputs for which the memory that is free suffices", "memory")


def thread_count(call: Refusing, threads: int | None) -> int:
    """Return the number of threads for the kernels; 0 is their default."""
    if threads is None:
        return 0
    if isinstance(threads, bool) or not isinstance(threads, int | np.integer):
        raise call.refuse("threads", threads, THREADS, "arguments", wrong_type=True)
    if not 0 < threads < 2**31:
        raise call.refuse("threads", threads, THREADS, "arguments")
    return int(threads)
