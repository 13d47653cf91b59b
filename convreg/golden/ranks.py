"""Ranks: the place of every number of a format in the order of its numbers, and distances between them.

The rank of zero is 0, that of the smallest number above zero is 1, and that of a negative number is the negative rank
of its magnitude. Infinity follows the largest number. In a format whose codes are ordered by value, the rank is the
code without its sign. The codes of HiFloat8 are not ordered by value.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from ..errors import Asking, Refusing, UnknownOp
from ..formats import FORMATS, Format, format_of
from ..guard import guarded
from ..memory import Array, array_of, max_bytes

NAN = np.iinfo(np.int64).max
"""The rank of NaN, which is no place, and the distance of NaN from a number: greater than any other distance."""

FARTHEST = NAN - 1
"""The largest distance between numbers that is told apart; only numbers of float64 can be farther apart."""


@guarded("convreg::ulp_distance")
def ulp_distance(a: Any, b: Any, format: str | None = None) -> Array:
    """Count the steps from one number to another within a number format, element by element.

    A step leads from a number to the next one that the format has: 1.0 and the float32 number above it are one step
    apart, in HiFloat8 1.0 and 1.125 are. From the largest number to infinity it is one step, and the smallest numbers
    of both signs are two steps apart, because zero lies between. The two zeros of a format are one number.

    Parameters
    ----------
    a, b : array_like
        Arrays in the same format, of shapes that broadcast: float64, float32, float16, bfloat16, float8_e4m3fn,
        float8_e5m2 or hifloat8 by their dtype, or raw codes as unsigned integers of the format's width.
    format : str, optional
        Name of the format; required for raw codes.

    Returns
    -------
    ndarray of int64
        0 for NaN and NaN, ``2**63 - 1`` for NaN and a number, so that no limit accepts it. Numbers of float64 that are
        farther apart than that get ``2**63 - 2``.

    Raises
    ------
    OpError, OpTypeError
        If the arrays are not in one format, or their shapes do not broadcast.
    UnknownOp
        If there is no such format.

    Notes
    -----
    float32 and the IEEE formats: IEEE 754-2019; float8: OCP 8-bit Floating Point Specification 1.0; hifloat8: arXiv
    2409.16626.

    Examples
    --------
    >>> import numpy as np
    >>> convreg.ulp_distance(np.float32([1, -1]), np.nextafter(np.float32([1, 1]), np.float32(2))).tolist()
    [1, 2130706433]
    >>> codes = np.array([0x6e, 0x6f, 0x80, 0x81], np.uint8)  # largest, infinity, NaN, smallest below zero
    >>> convreg.ulp_distance(codes, codes[::-1].copy(), "hifloat8").tolist()
    [127, 9223372036854775807, 9223372036854775807, 127]
    """
    ask = Asking("convreg::ulp_distance")
    first, known = _codes(ask, "a", a, format)
    second, other = _codes(ask, "b", b, format)
    if known is not other:
        raise ask.refuse("b", other.name, f"{known.name}, as a is", wrong_type=True)
    try:
        shape = np.broadcast_shapes(first.shape, second.shape)
    except ValueError:
        raise ask.refuse("b", list(second.shape), f"a shape that broadcasts with {list(first.shape)}") from None
    size = 1
    for extent in shape:
        size *= extent
    if 8 * size > max_bytes(ask):
        raise ask.refuse("a", list(shape), f"a result of at most {max_bytes(ask)} bytes (CONVREG_MAX_BYTES sets the "
                         "limit)", "max_bytes")
    first, second = (array.astype(array.dtype.newbyteorder("="), copy=False) for array in (first, second))
    return distance(ranks(first, known), ranks(second, known))


def distance(first: Array, second: Array) -> Array:
    """Return the distance between ranks, as `ulp_distance` does."""
    none_first, none_second = first == NAN, second == NAN
    low, high = np.minimum(first, second), np.maximum(first, second)
    with np.errstate(over="ignore"):  # modulo 2**64, in which the difference is exact
        apart = high.astype(np.uint64) - low.astype(np.uint64)
    steps = np.minimum(apart, np.uint64(FARTHEST)).astype(np.int64)
    return np.where(none_first | none_second, np.where(none_first & none_second, 0, NAN), steps)


def ranks(codes: Array, format: Format) -> Array:
    """Return the ranks of codes, which are an array of the format's dtype or of its storage; NaN has `NAN`."""
    codes = codes.view(format.storage)
    if format.bits <= 16:
        return _table(format.name)[codes]
    bits = codes.view(np.int64 if format.bits == 64 else np.int32).astype(np.int64)
    magnitude = bits & (np.int64(2**(format.bits - 1) - 1))
    result = np.where(bits < 0, -magnitude, magnitude)
    result[magnitude > largest(format) + 1] = NAN
    return result


def values_of(places: Array, format: Format) -> Array:
    """Return the numbers at ranks as float64: infinite beyond the largest number, NaN at `NAN`."""
    last = largest(format)
    inside = np.clip(np.where(places == NAN, 0, places), -last, last)
    if format.bits <= 16:
        values = _positive(format.name)[np.abs(inside)]
    else:
        unsigned = np.abs(inside).astype(format.storage.str.replace("f", "u"))
        values = unsigned.view(format.storage).astype(np.float64)
    values = np.copysign(values, inside)
    beyond = np.abs(np.where(places == NAN, 0, places)) > last
    values[beyond] = np.copysign(np.inf, places[beyond])
    values[places == NAN] = np.nan
    return values


@lru_cache(maxsize=16)
def largest(format: Format) -> int:
    """Return the rank of the largest finite number; that of infinity, or of an overflow without one, is the next."""
    if format.bits > 16:
        assert format.infinity is not None
        return format.infinity - 1
    values = _positive(format.name)
    return int(np.flatnonzero(np.isfinite(values))[-1])


def _numbers(name: str) -> Array:
    """Return the number of every code as float64."""
    return FORMATS[name].values.astype(np.float64)


@lru_cache(maxsize=16)
def _positive(name: str) -> Array:
    """Return the numbers from zero up, infinity included, as float64."""
    values = _numbers(name)
    return np.unique(np.abs(values[~np.isnan(values)]))


@lru_cache(maxsize=16)
def _table(name: str) -> Array:
    """Return the rank of every code of a format of up to 16 bits."""
    values = _numbers(name)
    nan = np.isnan(values)
    known = np.where(nan, 0, values)
    table = np.searchsorted(_positive(name), np.abs(known)).astype(np.int64)
    table = np.where(nan, NAN, np.where(known < 0, -table, table))
    table.flags.writeable = False
    return table


def _codes(ask: Refusing, argument: str, value: Any, stated: str | None) -> tuple[Array, Format]:
    """Return an array whose dtype or stated format is known, in any byte order, and that format. It is no copy."""
    if stated is not None and not isinstance(stated, str):
        raise ask.refuse("format", stated, "the name of a format: " + ", ".join(FORMATS), "arguments", wrong_type=True)
    if stated is not None and stated not in FORMATS:
        raise UnknownOp(stated, FORMATS, what="format")
    try:
        array = array_of(value)
    except Exception as error:  # __array__ of foreign objects may raise anything
        raise ask.refuse(argument, type(value).__name__, f"a value that numpy.asarray accepts ({error})", "arguments",
                         wrong_type=True) from None
    dtype = array.dtype if array.dtype.isnative else array.dtype.newbyteorder("=")
    held, chosen = format_of(dtype), None if stated is None else FORMATS[stated]
    if chosen is not None and (held is chosen or dtype == np.dtype(f"u{chosen.dtype.itemsize}")):
        return array, chosen
    if chosen is None and held is not None:
        return array, held
    allowed = f"an array of {', '.join(FORMATS)}, or raw codes and their format" if chosen is None else \
        f"{chosen.dtype} or {np.dtype(f'u{chosen.dtype.itemsize}')}, the codes of {chosen.name}"
    raise ask.refuse(argument, str(array.dtype), allowed, "arguments", wrong_type=True)
