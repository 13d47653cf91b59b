"""Number formats as records: layout, limits, specials, and how vendors round to them.

A new format needs one more record here and its codec in C: a function of `ops/kernels/numbers/numbers.h` that decodes,
and a line of `ops/kernels/numbers/encode.h` that encodes under every rounding. Everything else reads the record.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np

from ._hifloat8 import connect, hifloat8
from .errors import Asking, UnknownOp, shorten
from .guard import guarded

HIFLOAT8_IN_FILES = np.dtype([("hifloat8", "V1"), ("codes", "V0")])
"""What arrays of HiFloat8 are in the files that convreg writes: NumPy's files cannot name a registered dtype.

NumPy casts a structure with two fields, one of them empty, to no other type, so nobody takes the codes for numbers.
"""

_FORMER_HIFLOAT8 = np.dtype([("hifloat8", np.uint8)])
"""The dtype in the files of earlier versions."""

ROUNDINGS = ("nearest_even", "half_away", "toward_zero", "stochastic", "hybrid")
"""The roundings of `quantize`; "hybrid" exists for HiFloat8 only."""


@dataclass(frozen=True, slots=True)
class Practice:
    """How other software converts to a format.

    Attributes
    ----------
    who : str
        The library, standard or unit of hardware.
    rounding : str
        One of `ROUNDINGS`.
    saturate : bool
        Whether what is too large becomes the largest finite number.
    source : str
        Where that is written, or what was run.
    """

    who: str
    rounding: str
    saturate: bool
    source: str


@dataclass(frozen=True, slots=True)
class Format:
    """A number format.

    Attributes
    ----------
    name : str
    bits : int
    dtype : numpy.dtype
        What users hold.
    storage : numpy.dtype
        What kernels read and write: memoryviews cannot carry ml_dtypes arrays, so codes travel as unsigned integers.
    layout : str
        Sign, exponent and mantissa, from the highest bit down.
    mantissa : int
        Mantissa bits of the most precise numbers, without the implied one.
    largest, smallest_normal, smallest : float
        Largest finite number; smallest with full exponent range; smallest above zero.
    infinity, nan : int or None
        Code of +infinity, and of the NaN that conversions write.
    negative_zero : bool
    rounding : str
        What conversions here do unless told otherwise.
    practices : tuple of Practice
        What others do.
    """

    name: str
    bits: int
    dtype: np.dtype[Any]
    storage: np.dtype[Any]
    layout: str
    mantissa: int
    largest: float
    smallest_normal: float
    smallest: float
    infinity: int | None
    nan: int
    negative_zero: bool = True
    rounding: str = "nearest_even"
    practices: tuple[Practice, ...] = ()

    @property
    def roundings(self) -> tuple[str, ...]:
        """The roundings that the format has."""
        return ROUNDINGS if self.name == "hifloat8" else ROUNDINGS[:-1]

    @property
    def values(self) -> np.ndarray[Any, np.dtype[np.float32]]:
        """The number of every code, in the order of the codes; for formats of up to 16 bits."""
        if self.bits > 16:
            raise Asking("convreg::formats").refuse(
                "values", f"the 2**{self.bits} codes of {self.name}", "a format of at most 16 bits")
        return _values(self.name)

    @property
    def nan_codes(self) -> tuple[int, ...]:
        """The codes that are NaN; for formats of up to 16 bits."""
        return tuple(np.flatnonzero(np.isnan(self.values)).tolist())

    def __str__(self) -> str:
        """A row of the table."""
        infinity = "none" if self.infinity is None else f"0x{self.infinity:02x}"
        return (f"{self.name:14}{self.bits:<6}{self.layout:23}{self.largest:<14.7g}{self.smallest_normal:<14.7g}"
                f"{self.smallest:<14.7g}{infinity:20}{f'0x{self.nan:02x}':20}{'yes' if self.negative_zero else 'no':5}"
                f"{self.rounding}")


_HEADER = (f"{'format':14}bits  {'layout':23}{'largest':14}{'normal from':14}{'smallest':14}{'infinity':20}{'NaN':20}"
           f"{'-0':5}rounding")


@lru_cache
def _values(name: str) -> np.ndarray[Any, np.dtype[np.float32]]:
    import convreg.ops.kernels.convert as convert  # compiled, and not needed for the records

    from .ops.kernels import check_isa

    check_isa()
    values = np.empty(2 ** FORMATS[name].bits, np.float32)
    codes = np.arange(values.size).astype(FORMATS[name].storage)
    convert.convert(codes, values, source_format=name, target_format="float32", rounding="nearest_even",
                    saturate=False, seed=0, threads=1)
    values[np.isnan(values)] = np.nan  # some processors report every conversion of a signalling NaN
    values.flags.writeable = False
    return values


_IEEE = Practice("IEEE 754", "nearest_even", False, "IEEE 754-2019, 4.3.1 and 7.4")
_ML_DTYPES = Practice("ml_dtypes", "nearest_even", False, "ml_dtypes 0.6.0, run")
_ASCEND_CAST = Practice("Ascend, CAST_RINT", "nearest_even", False, "AscendC documentation of Cast")
_ONNX_CAST = Practice("ONNX Cast", "nearest_even", True, "ONNX operator Cast, saturate=1 unless set to 0")
_HIFLOAT8 = "arXiv 2409.16626"

FORMATS: dict[str, Format] = {
    format.name: format
    for format in (
        Format("float64", 64, np.dtype(np.float64), np.dtype(np.float64), "1 11 52, bias 1023", 52,
               float(np.finfo(np.float64).max), 2.0**-1022, 2.0**-1074, 0x7FF << 52, 0xFFF << 51, practices=(_IEEE,)),
        Format("float32", 32, np.dtype(np.float32), np.dtype(np.float32), "1 8 23, bias 127", 23,
               float(np.finfo(np.float32).max), 2.0**-126, 2.0**-149, 0x7F800000, 0x7FC00000, practices=(_IEEE,)),
        Format("float16", 16, np.dtype(np.float16), np.dtype(np.uint16), "1 5 10, bias 15", 10,
               65504.0, 2.0**-14, 2.0**-24, 0x7C00, 0x7E00, practices=(_IEEE, _ASCEND_CAST)),
        Format("bfloat16", 16, np.dtype(ml_dtypes.bfloat16), np.dtype(np.uint16), "1 8 7, bias 127", 7,
               float(ml_dtypes.finfo(ml_dtypes.bfloat16).max), 2.0**-126, 2.0**-133, 0x7F80, 0x7FC0,
               practices=(_ML_DTYPES, _ASCEND_CAST)),
        Format("float8_e4m3fn", 8, np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(np.uint8), "1 4 3, bias 7", 3,
               448.0, 2.0**-6, 2.0**-9, None, 0x7F, practices=(
                   _ML_DTYPES, _ONNX_CAST,
                   Practice("PyTorch .to()", "nearest_even", True, "torch 2.13, run"),
                   Practice("Ascend, convolution", "nearest_even", False, "golden data of ops-nn, by ml_dtypes"),
                   Practice("Ascend, quantisation", "nearest_even", True, "quantisation operators of ops-nn"))),
        Format("float8_e5m2", 8, np.dtype(ml_dtypes.float8_e5m2), np.dtype(np.uint8), "1 5 2, bias 15", 2,
               57344.0, 2.0**-14, 2.0**-16, 0x7C, 0x7E, practices=(
                   _ML_DTYPES, _ONNX_CAST,
                   Practice("PyTorch .to()", "nearest_even", False, "torch 2.13, run"),
                   Practice("Ascend, quantisation", "nearest_even", True, "quantisation operators of ops-nn"))),
        Format("hifloat8", 8, np.dtype(hifloat8), np.dtype(np.uint8), "1, dot, 0-4, 3-1 or 0", 3,
               32768.0, 2.0**-15, 2.0**-22, 0x6F, 0x80, negative_zero=False, rounding="half_away", practices=(
                   Practice("paper, forward pass", "half_away", False, _HIFLOAT8),
                   Practice("paper, backward pass", "hybrid", False, _HIFLOAT8 + ", beside half_away"),
                   Practice("en_dtypes", "half_away", False, "en_dtypes 0.0.4, run"),
                   Practice("Ascend, convolution", "half_away", False, "golden data of ops-nn, by en_dtypes"),
                   Practice("Ascend, CAST_ROUND", "half_away", True, "AscendC documentation of Cast; NaN becomes 0"),
                   Practice("Ascend, CAST_HYBRID", "hybrid", True, "AscendC documentation of Cast; NaN becomes 0"))),
    )
}
"""The formats that tensors are stored in."""

OPERAND_ROUNDINGS: dict[str, Format] = {
    "hf32": Format(
        "hf32", 32, np.dtype(np.float32), np.dtype(np.float32), "1 8 11, bias 127", 11,
        (2 - 2.0**-11) * 2.0**127, 2.0**-126, 2.0**-137, 0x7F800000, 0x7FC00000, rounding="half_away", practices=(
            Practice("Ascend A2, cubeMathType 1", "half_away", False, "golden model of aclnnConvolutionBackward"),)),
}
"""Formats that no array is stored in: operands are rounded to them and keep their dtype."""

_BY_DTYPE = {**{format.dtype: format for format in FORMATS.values()},
             **dict.fromkeys((HIFLOAT8_IN_FILES, _FORMER_HIFLOAT8), FORMATS["hifloat8"])}

# Casts between hifloat8 and the types of other packages; en_dtypes is no requirement, so it is not imported here.
for _package in (ml_dtypes, sys.modules.get("en_dtypes")):
    for _type in vars(_package).values() if _package else ():
        if isinstance(_type, type) and issubclass(_type, np.generic) and np.can_cast(_type, np.float32):
            connect(_type)


def format_of(dtype: np.dtype[Any]) -> Format | None:
    """Return the format of arrays of `dtype`, or None. en_dtypes.hifloat8 is known if that package is imported."""
    known = _BY_DTYPE.get(dtype)
    if known is None and "en_dtypes" in sys.modules and dtype == sys.modules["en_dtypes"].hifloat8:
        return FORMATS["hifloat8"]
    return known


class FormatTable(dict[str, Format]):
    """Formats by name; prints as a table."""

    def __missing__(self, name: Any) -> Format:
        """Raise `UnknownOp`, which lists similar names."""
        raise UnknownOp(name if isinstance(name, str) else shorten(name), self, what="format")

    def __repr__(self) -> str:
        """The table."""
        return "\n".join([_HEADER, *map(str, self.values())])


@guarded("convreg::formats")
def formats() -> FormatTable:
    """Return the number formats that `quantize` knows.

    Returns
    -------
    dict of str to Format
        It prints as a table. Tensors can be stored in all of them except ``"hf32"``.
    """
    return FormatTable(FORMATS | OPERAND_ROUNDINGS)
