"""How the kernel that is judged computes, as far as its author states it: accumulator, parts, operands, subnormals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ..errors import Refusing, UnknownOp
from ..formats import FORMATS, formats


class Accumulator(NamedTuple):
    """The arithmetic of sums.

    `unit` is its unit roundoff, `digits` the binary digits of its numbers, `underflow` the largest error of a product
    that underflows, and `largest` its largest number.
    """

    unit: float
    digits: int
    underflow: float
    largest: float


def _of(format: str, unit: float | None = None, underflow: float | None = None) -> Accumulator:
    known = FORMATS[format]
    return Accumulator(2.0**-(known.mantissa + 1) if unit is None else unit, known.mantissa + 1,
                       known.smallest / 2 if underflow is None else underflow, known.largest)


ACCUMULATORS: Mapping[str, Accumulator] = {
    "float32": _of("float32"),
    "truncating": _of("float32", 2.0**-23, 2.0**-149),
    "float16": _of("float16"),
    "bfloat16": _of("bfloat16"),
    "float64": _of("float64", underflow=2.0**-1074),
}
"""Accumulators by name: "truncating" is float32 whose operations round toward zero."""

SMALLEST_NORMAL = FORMATS["float32"].smallest_normal
"""Below this, numbers count as zero where subnormal numbers are flushed."""

TIES = ("both", "rule")


class Arithmetic(NamedTuple):
    """The choices of `convreg.golden.compare` that widen or narrow the bound.

    Attributes
    ----------
    accumulator : str or None
        A name of `ACCUMULATORS`; None is float64 for float64 operands and float32 for all others.
    parts : (str, int) or None
        Format in which parts of a sum are stored, and their number.
    operands : str, float or None
        Format to which the kernel rounds the operands of products first, or the largest relative error of a rounding
        that is not known to the bit.
    flush_to_zero : bool
        Whether numbers below the normal range of float32 count as zero.
    ties : str
        "both": the exact value in the middle between two numbers may round to either. "rule": as the vendor rounds.
    """

    accumulator: str | None = None
    parts: tuple[str, int] | None = None
    operands: str | float | None = None
    flush_to_zero: bool = False
    ties: str = "both"

    def accumulator_for(self, wide: bool) -> Accumulator:
        """Return the accumulator, of float64 operands if `wide`."""
        return ACCUMULATORS[self.accumulator or ("float64" if wide else "float32")]

    @property
    def rounded_operands(self) -> str | None:
        """The format that operands are rounded to, where it is named."""
        return self.operands if isinstance(self.operands, str) else None

    @property
    def operand_unit(self) -> float:
        """The relative error of a rounding of operands that is only bounded."""
        return 0.0 if self.operands is None or isinstance(self.operands, str) else float(self.operands)


USUAL = Arithmetic()


def arithmetic(
    ask: Refusing, accumulator: Any, parts: Any, operands: Any, flush_to_zero: Any, ties: Any
) -> Arithmetic:
    """Return checked choices.

    Raises
    ------
    OpError, OpTypeError, UnknownOp
    """
    if accumulator is not None and (not isinstance(accumulator, str) or accumulator not in ACCUMULATORS):
        raise ask.refuse("accumulator", accumulator, " or ".join(map(repr, ACCUMULATORS)) + " or None", "arguments")
    if parts is not None:
        if not isinstance(parts, tuple | list) or len(parts) != 2:
            raise ask.refuse("parts", parts, "a pair of a format and a number of parts, or None", "arguments")
        format, count = parts
        if not isinstance(format, str) or format not in FORMATS or FORMATS[format].bits < 16:
            raise ask.refuse("parts", format, " or ".join(map(repr, WIDE_PARTS)) + " as format", "arguments")
        if isinstance(count, bool) or not isinstance(count, int | np.integer) or not 0 < count < 2**31:
            raise ask.refuse("parts", count, "a positive number of parts", "arguments")
        parts = (format, int(count))
    if isinstance(operands, str):
        known = formats()
        if operands not in known:
            raise UnknownOp(operands, known, what="format")
    elif operands is not None:
        if isinstance(operands, bool) or not isinstance(operands, float | int | np.floating) or not 0 <= operands < 1:
            raise ask.refuse("operands", operands, "the name of a format, a relative error from 0 to 1, or None",
                             "arguments")
        operands = float(operands)
    if not isinstance(flush_to_zero, bool | np.bool_):
        raise ask.refuse("flush_to_zero", flush_to_zero, "True or False", "arguments", wrong_type=True)
    if not isinstance(ties, str) or ties not in TIES:
        raise ask.refuse("ties", ties, " or ".join(map(repr, TIES)), "arguments")
    return Arithmetic(accumulator, parts, operands, bool(flush_to_zero), ties)


WIDE_PARTS = tuple(name for name, format in FORMATS.items() if format.bits >= 16)
"""The formats that parts of sums are stored in."""
