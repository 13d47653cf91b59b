"""The values of a case's inputs: drawn by a fill, within the range that the source of the case states.

A stated range holds for every fill: each number lies in it, after it is rounded to the operand's format as well. A
range of one number gives a constant. A range without any number of the format gives the number that is nearest to its
low end. Values that the source says must occur are written last, in or out of the range, at places that the seed
decides.

For ``integers`` the magnitudes are chosen so that n max|a| max|b| stays at or below 2**24 units of the last place, n
being the number of terms of the longest sum: float32 then adds every order of terms without an error (the sums of
benchdnn's convolution driver are exact for the same reason). Above 2**24 terms most numbers are 0.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, floor, frexp, inf, isnan, isqrt, nan, prod, sqrt
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .. import registry
from ..calls.arguments import integer
from ..conversion import quantize
from ..formats import FORMATS, Format, format_of
from ..geometry import Geometry
from ..memory import Array, max_bytes
from ..spec import OpSpec, Rules
from .calling import ASK, bound_call
from .data import INTEGERS
from .randomness import Words, integers, kept, normal, places, stream, uniform, words

if TYPE_CHECKING:
    from .record import Case, Operand

BLOCK = 2**18
"""Numbers that are drawn at a time."""

EXACT = 2**24
"""What float32 counts to without an error."""

LARGEST_INTEGER = {"float64": 32, "float32": 32, "float16": 8}
"""Of ``integers`` by format, as in benchdnn; 4 in the others."""


class Range(NamedTuple):
    """The smallest and the largest number of a format that a source allows; `stated` is false where it allows all."""

    low: float
    high: float
    stated: bool


class Size(NamedTuple):
    """How large the integers of a call may be, and which share of them is not 0."""

    largest: int
    share: float


Rule = Callable[[Words, Format, Range, Size], Array]


def _normal(drawn: Words, format: Format, allowed: Range, size: Size) -> Array:
    return uniform(drawn, allowed.low, allowed.high) if allowed.stated else normal(drawn)


def _uniform(drawn: Words, format: Format, allowed: Range, size: Size) -> Array:
    return uniform(drawn, allowed.low, allowed.high) if allowed.stated else uniform(drawn, -1.0, 1.0)


def _integers(drawn: Words, format: Format, allowed: Range, size: Size) -> Array:
    largest = max(1, min(size.largest, LARGEST_INTEGER.get(format.name, 4)))
    step = 1.0 if not allowed.stated else _step(allowed)
    low, high = -largest, largest
    if allowed.stated:
        first, last = ceil(allowed.low / step), floor(allowed.high / step)
        low, high = max(first, -largest), min(last, largest)
        if low > high:  # all of the range is farther from 0
            low, high = (first, min(last, first + 2 * largest)) if first > 0 else (max(first, last - 2 * largest), last)
    found = integers(drawn, low, high)
    if size.share < 1 and low <= 0 <= high:
        found[~kept(drawn, size.share)] = 0
    return found * step


def _step(allowed: Range) -> float:
    """The largest power of two up to 1 of which the range has several multiples; of a far and narrow range, one."""
    _, exponent = frexp(max(abs(allowed.low), abs(allowed.high)))
    step = 2.0 ** max(min(0, exponent - 3), -1074)
    while floor(allowed.high / step) < ceil(allowed.low / step):
        step /= 2
    return step


def _ones(drawn: Words, format: Format, allowed: Range, size: Size) -> Array:
    return np.ones(drawn.size)


FILLS: dict[str, tuple[str, Rule]] = {
    "normal": ("mean 0 and variance 1; in a stated range uniform, as the sources' own tools draw", _normal),
    "uniform": ("in the stated range, else from -1 to 1", _uniform),
    "integers": ("small integers, or small multiples of a power of two in a range below 1: every sum is exact",
                 _integers),
    "ones": ("1, or the number of the stated range that is nearest to it", _ones),
    "special": ("as normal, with both zeros, subnormal, smallest and largest numbers, numbers whose products are ties, "
                "infinities and NaN, each at one place; in a stated range only those that it has", _normal),
}
"""Name -> description and rule."""


def drawn(case: Case, seed: int, fill: str) -> dict[str, Array]:
    """Return the inputs of a case by argument name.

    The numbers depend on the seed, the names of the case and of the argument, and the shape and range of the operand.

    Raises
    ------
    OpError, OpTypeError
        If there is no such fill, the seed is negative, an operand cannot be drawn, or the operator refuses the call.
    """
    if not isinstance(fill, str) or fill not in FILLS:
        raise ASK.refuse("fill", fill, " or ".join(map(repr, FILLS)), wrong_type=not isinstance(fill, str))
    if integer(ASK, Rules(), "seed", seed) < 0:
        raise ASK.refuse("seed", seed, "an integer not below 0")
    size = _size(case)
    return {name: _values(case.name, name, operand, seed, fill, size) for name, operand in case.inputs.items()}


def _size(case: Case) -> Size:
    """Check the call before anything is drawn, and return how large integers keep its sums exact."""
    spec = registry.get(case.op).spec
    shapes = {name: _unwritten(name, operand) for name, operand in case.inputs.items()}
    plan = bound_call(spec, {**shapes, **case.attributes}, case.conformance).plan
    outputs = [port.role for port, made in zip(spec.outputs, plan.outputs, strict=True) if made is not None]
    terms = 1 + max((_terms(spec, plan.geometry, role) for role in outputs), default=0)
    return Size(isqrt(EXACT // terms), 1.0 if terms <= EXACT else sqrt(EXACT / 2 / terms))


def _unwritten(name: str, operand: Operand) -> Array:
    """Return an array of the operand's shape and format that takes no memory, or its values where they are given."""
    if operand.values is not None:
        return np.asarray(operand.values)
    if operand.format not in FORMATS:
        allowed = ", ".join(FORMATS)
        raise ASK.refuse(name, operand.format, f"one of {allowed}; an integer input has given values", wrong_type=True)
    dtype = FORMATS[operand.format].dtype
    if prod(operand.shape) * dtype.itemsize > max_bytes(ASK) or min(operand.shape, default=0) < 0 or \
            len(operand.shape) > 32:
        raise ASK.refuse(name, list(operand.shape), f"at most 32 extents, none below 0, and at most {max_bytes(ASK)} "
                         "bytes (CONVREG_MAX_BYTES sets the limit)", "max_bytes")
    return np.broadcast_to(np.zeros((), dtype), operand.shape)


def _terms(spec: OpSpec, geometry: Geometry | None, role: str) -> int:
    """Return the number of terms of the longest sums of an output, at least; borders make them shorter."""
    if geometry is None or not role:
        return 0
    positions = geometry.batch * prod(axis.small for axis in geometry.axes)
    if role == "grad_weight":
        return positions
    if role == "grad_bias":
        return max(positions, geometry.batch * prod(axis.large for axis in geometry.axes))
    return max(geometry.small_channels, geometry.large_channels) * prod(axis.taps for axis in geometry.axes)


def _values(case: str, name: str, operand: Operand, seed: int, fill: str, size: Size) -> Array:
    if operand.values is not None:
        return _given(name, operand)
    format = FORMATS[operand.format]
    allowed = _range(name, operand, format)
    source = stream(seed, case, name, fill)
    result = np.empty(operand.shape, format.dtype)
    flat = result.reshape(-1)
    if allowed.stated and not allowed.low < allowed.high:
        flat[...] = quantize(np.array([allowed.low]), format.name)
    else:
        _draw(flat, FILLS[fill][1], source, format, allowed, size)
    where = stream(seed, case, name, fill, "places")
    if fill == "special":
        _place(flat, _special(format, allowed, where, flat.size), where)
    occurring = quantize(np.array(operand.occurring, np.float64), format.name)
    if occurring.size > flat.size > 0:
        raise ASK.refuse(name, f"{occurring.size} values that must occur", f"at most {flat.size}, the size of the "
                         "operand")
    _place(flat, occurring, where)
    return result


def _draw(flat: Array, rule: Rule, source: np.random.Philox, format: Format, allowed: Range, size: Size) -> None:
    for start in range(0, flat.size, BLOCK):
        part = flat[start:start + BLOCK]
        numbers = rule(words(source, part.size), format, allowed, size)
        quantize(np.clip(numbers, allowed.low, allowed.high), format.name, out=part)


def _given(name: str, operand: Operand) -> Array:
    """Return given values in the operand's format."""
    values = np.asarray(operand.values)
    if values.shape != tuple(operand.shape):
        raise ASK.refuse(name, list(values.shape), f"values of shape {list(operand.shape)}")
    if operand.format in INTEGERS and values.dtype.kind in "iu":
        return values.astype(INTEGERS[operand.format])
    if operand.format not in FORMATS:
        raise ASK.refuse(name, operand.format, f"one of {', '.join([*FORMATS, *INTEGERS])}", wrong_type=True)
    format = FORMATS[operand.format]
    return values if format_of(values.dtype) is format else quantize(values, format.name)


def _range(name: str, operand: Operand, format: Format) -> Range:
    """Return the numbers of the format that an operand may have."""
    low, high = operand.low, operand.high
    if low is None and high is None:
        return Range(-inf, inf, False)
    if low is None or high is None or low > high:
        raise ASK.refuse(name, [low, high], "a range of two numbers, the lower one first")
    if isnan(low) or isnan(high) or low == high:
        value = float(_number(nan if isnan(low) or isnan(high) else low, format))
        return Range(value, value, True)
    low, high = (min(max(end, -format.largest), format.largest) for end in (low, high))
    first, last = _inside(low, high, format)
    if first > last:
        first = last = float(_number(low, format))
    return Range(first, last, True)


def _number(value: float, format: Format) -> np.float64:
    """Return the number that a value becomes in a format."""
    codes = quantize(np.array([value], np.float64), format.name)
    return np.float64(_numbers(codes, format)[0])


def _numbers(codes: Array, format: Format) -> Array:
    if format.bits > 16:
        return codes.astype(np.float64)
    return format.values[codes.view(format.storage)].astype(np.float64)


def _inside(low: float, high: float, format: Format) -> tuple[float, float]:
    """Return the smallest number of the format from `low` on and the largest one up to `high`."""
    if format.bits <= 16:
        known = np.sort(format.values[np.isfinite(format.values)].astype(np.float64))
        below, above = int(np.searchsorted(known, low)), int(np.searchsorted(known, high, side="right")) - 1
        return float(known[min(below, known.size - 1)]), float(known[max(above, 0)])
    first, last = (format.dtype.type(value) for value in (low, high))
    if first < low:
        first = np.nextafter(first, format.dtype.type(inf))
    if last > high:
        last = np.nextafter(last, format.dtype.type(-inf))
    return float(first), float(last)


def _special(format: Format, allowed: Range, source: np.random.Philox, size: int) -> Array:
    """Return the codes of the corner values that a range allows; of a small operand as many as a quarter of it."""
    step, tiny = 2.0**-format.mantissa, format.smallest
    magnitudes = [0.0, tiny, format.smallest_normal - tiny, format.smallest_normal, 1 + step, 1.5, 1 + 3 * step,
                  format.largest, *([] if format.infinity is None else [inf])]
    values = [*(sign * value for value in magnitudes for sign in (1, -1)), nan]
    chosen = [value for value in values if not allowed.stated or allowed.low <= value <= allowed.high]
    codes = quantize(np.array(chosen, np.float64), format.name)
    first: dict[int, int] = {}  # of equal codes
    for place, code in enumerate(codes.view(f"u{format.bits // 8}").tolist()):
        first.setdefault(code, place)
    codes = codes[np.array(list(first.values()), np.intp)]
    turn = int(words(source, 1)[0]) % max(codes.size, 1)
    return np.roll(codes, -turn)[:max(1, size // 4)]


def _place(flat: Array, values: Array, source: np.random.Philox) -> None:
    """Write values at different places."""
    if flat.size and values.size:
        flat[places(source, flat.size, values.size)] = values
