"""What the functions here are given, checked: arrays of numbers, and names from a list."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ..conversion import dequantize
from ..errors import OpError, Refusing
from ..formats import format_of
from ..memory import Array, array_of, max_bytes


def numbers(ask: Refusing, argument: str, value: Any) -> Array:
    """Return an array of any number format, or what `numpy.asarray` makes real numbers of, as float64.

    Raises
    ------
    OpError, OpTypeError
    """
    try:
        array = array_of(value)
        check_size(ask, argument, array)
        known = format_of(array.dtype)
        if known is None and array.dtype.kind not in "biuf":
            raise TypeError
        return array.astype(np.float64) if known is None else dequantize(array, dtype=np.float64)
    except MemoryError:
        raise
    except OpError as error:  # dequantize calls what it is given `codes`
        raise ask.refuse(argument, error.value, error.allowed, error.rule) from None
    except Exception:  # __array__ of foreign objects may raise anything
        raise ask.refuse(argument, value, "an array of numbers", "arguments", wrong_type=True) from None


def check_size(ask: Refusing, argument: str, array: Array) -> None:
    """Refuse an array that takes more than ``max_bytes`` in float64."""
    if array.size * 8 > max_bytes(ask):
        raise ask.refuse(argument, list(array.shape), f"an array of at most {max_bytes(ask)} bytes in float64",
                         "max_bytes")


def name_of(ask: Refusing, argument: str, value: Any, known: Iterable[str]) -> str:
    """Return a name that is one of those known.

    Raises
    ------
    OpError
    """
    names = list(known)
    if not isinstance(value, str) or value not in names:
        raise ask.refuse(argument, value, " or ".join(map(repr, names)), "arguments",
                         wrong_type=not isinstance(value, str))
    return value
