"""Arrays from one number format to another: `quantize` and `dequantize`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

import convreg.ops.kernels.convert as convert

from .errors import Asking, UnknownOp
from .formats import FORMATS, Format, format_of, formats
from .guard import guarded, thread_count
from .memory import Array, array_of, is_masked, max_bytes, overlaps_itself, share_memory, span
from .ops.kernels import Arithmetic, check_isa
from .ops.kernels.threads import run
from .roles import Precision

WIDE = ("float32", "float64", "float16", "bfloat16")
"""Formats that `dequantize` writes."""

_FIRST: ContextVar[int] = ContextVar("convreg first element", default=0)


@contextmanager
def numbered_from(first: int) -> Iterator[None]:
    """Round stochastically in a ``with`` block as if the first element of every array had this number.

    A part of an array then has the bits of the whole.
    """
    token = _FIRST.set(first)
    try:
        yield
    finally:
        _FIRST.reset(token)


@guarded("convreg::quantize")
def quantize(
    x: ArrayLike,
    format: str,
    *,
    rounding: str | None = None,
    saturate: bool = False,
    seed: int | None = None,
    scale: ArrayLike | None = None,
    out: Array | None = None,
    threads: int | None = None,
) -> Array:
    """Round every number of an array, or its product with a power of two, to a format, once.

    Parameters
    ----------
    x : array_like
        float64, float32, float16, bfloat16, any other format of `convreg.formats`, or integers up to 2**53; any shape
        and strides. Masked arrays are refused.
    format : str
        A name of `convreg.formats`. The result of ``"hf32"`` is stored as float32.
    rounding : str, optional
        By default the format's own: ``"half_away"`` for hifloat8 and hf32, else ``"nearest_even"``.

        * ``"nearest_even"``: ties go to the even code (IEEE 754's roundTiesToEven)
        * ``"half_away"``: ties go away from zero (roundTiesToAway)
        * ``"toward_zero"``: finite numbers never become infinite (roundTowardZero)
        * ``"stochastic"``: at random; the probabilities make the mean exact, to 2**-32 of a step
        * ``"hybrid"``, for hifloat8 only: half_away for binary exponents from -3 to 3. Elsewhere the magnitude is
          rounded up if the top discarded bits reach a threshold. From float32 the top 14 bits are compared with the
          last 14 bits of the number, so numbers that hifloat8 represents exactly are rounded up too. From narrower
          formats the top two bits are compared with the last bit followed by a 1. float64 is truncated to float32
    saturate : bool
        If false, a number that is too large becomes infinity, or NaN in float8_e4m3fn, which has no infinity. If true,
        such a number and infinity become the largest finite number. NaN stays NaN; with saturation it becomes 0 in
        hifloat8, as in Ascend's vector cast.
    seed : int, optional
        Seed of stochastic rounding, below 2**64. By default the operating system gives a new one. A result depends on
        the seed, the value and its row-major index in `x`. It does not depend on threads or memory layout.
    scale : array_like, optional
        Powers of two from 2**-126 to 2**127 that numbers are multiplied by before they are rounded: one number, or an
        array that broadcasts to the shape of `x`, such as (C, 1, 1) for one per channel. Products are float64 for
        float64 numbers, else float32. Products below the normal numbers of that format are rounded twice, to nearest
        first; those beyond its largest number are infinite before they are rounded.
    out : ndarray, optional
        Array for the result: the shape of `x`, the format's dtype, any strides, no memory shared with `x`.
    threads : int, optional
        Number of threads. The result does not depend on it.

    Returns
    -------
    ndarray
        `out`, or a new array of the format's dtype in the memory order of `x`.

    Raises
    ------
    OpError, OpTypeError
        If an argument is refused.
    UnknownOp
        If there is no such format.

    Notes
    -----
    float8_e4m3fn and float8_e5m2: OCP 8-bit Floating Point Specification 1.0; hifloat8: arXiv 2409.16626.

    Examples
    --------
    >>> codes = convreg.quantize([1.0, 1.0625, 40960.0], "hifloat8")
    >>> codes.view("uint8").tolist()
    [8, 9, 111]
    >>> convreg.dequantize(codes).tolist()
    [1.0, 1.125, inf]
    """
    ask = _Asking("convreg::quantize")
    target = ask.format(format, formats())
    rule = target.rounding if rounding is None else rounding
    if not isinstance(rule, str) or rule not in target.roundings:
        raise ask.refuse("rounding", rounding, " or ".join(map(repr, target.roundings)))
    if saturate is not True and saturate is not False and not isinstance(saturate, np.bool_):
        raise ask.refuse("saturate", saturate, "True or False", wrong_type=True)
    number = _seed(ask, seed) if rule == "stochastic" or seed is not None else 0
    source = ask.numbers(x)
    factors = None if scale is None else ask.powers("scale", scale, source.shape)
    return ask.convert("x", source, ask.known(source), target, rule, bool(saturate), number, out, threads, factors)


@guarded("convreg::dequantize")
def dequantize(
    codes: ArrayLike,
    format: str | None = None,
    *,
    dtype: DTypeLike = np.float32,
    out: Array | None = None,
    threads: int | None = None,
) -> Array:
    """Return the numbers that an array of codes represents, exactly.

    Parameters
    ----------
    codes : array_like
        An array of a format's dtype (``convreg.hifloat8``, ml_dtypes, en_dtypes), or raw codes: unsigned integers of
        its width, or what `numpy.load` returns for such arrays. Any shape and strides.
    format : str, optional
        Name of the format; required for raw codes.
    dtype : dtype
        float32 or float64; for 8-bit formats also float16 or bfloat16, which represent all their numbers. Numbers
        of float64 need float64: the default is refused, because only `quantize` rounds.
    out : ndarray, optional
        Array for the result: the shape of `codes`, of type `dtype`, any strides, no memory shared with `codes`.
    threads : int, optional
        Number of threads. The result does not depend on it.

    Returns
    -------
    ndarray
        `out`, or a new array in the memory order of `codes`.

    Raises
    ------
    OpError, OpTypeError
        If an argument is refused.
    UnknownOp
        If there is no such format.
    """
    ask = _Asking("convreg::dequantize")
    array = ask.array("codes", codes)
    stated = None if format is None else ask.format(format, FORMATS)
    held = format_of(array.dtype)
    source = stated or held
    if source is None:
        allowed = "an array of " + ", ".join(FORMATS) + ", or raw codes and a format"
        if array.dtype.kind == "u":
            raise ask.refuse("format", None, "the name of the format that the codes are in", wrong_type=True)
        raise ask.refuse("codes", str(array.dtype), allowed, wrong_type=True)
    raw = np.dtype(f"u{source.dtype.itemsize}")
    if held is not source and array.dtype not in (raw, _unnamed(source)):
        raise ask.refuse("codes", str(array.dtype), f"{source.dtype} or {raw}, the codes of {source.name}",
                         wrong_type=True)
    try:
        target = None if dtype is None else format_of(np.dtype(dtype))
    except Exception:  # NumPy raises whatever the reader of such a description meets
        target = None
    wide = WIDE if source.bits == 8 else ("float64",) if source.bits == 64 else ("float32", "float64")
    if target is None or target.name not in (*wide, source.name):
        raise ask.refuse("dtype", dtype, " or ".join(wide), wrong_type=True)
    return ask.convert("codes", array, source, target, "nearest_even", False, 0, out, threads)


def round_operand(array: Array, precision: Precision, threads: int = 0) -> Array:
    """Return an operand of products as the multiplier reads it.

    HF32 represents all numbers of the narrower formats exactly.
    """
    if precision.operands == "hf32":
        return _hf32(array, precision.dropped) if array.dtype == np.float32 else array
    if precision.operands is None or array.dtype == FORMATS[precision.operands].dtype:
        return array
    return quantize(array, precision.operands, threads=threads or None)


def _hf32(array: Array, dropped: int) -> Array:
    """Round float32 to HF32 as Ascend's golden model does: half a unit added to the bits, then truncated."""
    half, kept = np.uint32(1 << (dropped - 1)), np.uint32(2**32 - (1 << dropped))
    rounded = ((array.view(np.uint32) + half) & kept).view(np.float32)
    return np.where(np.isnan(array), array, rounded)  # a carry must not turn NaN into a number


def write_converted(
    read: Array, write: Array, source: str, target: str, rounding: str, saturate: bool, seed: int,
    scale: Array | None, threads: int,
) -> None:
    """Write stored numbers in another format, along the memory of what is written where the order does not count."""
    if rounding != "stochastic" and not (read.flags.c_contiguous and write.flags.c_contiguous):
        order = sorted(range(read.ndim), key=lambda axis: -abs(write.strides[axis]))
        read, write = read.transpose(order), write.transpose(order)
        scale = None if scale is None else scale.transpose(order)
    run(convert.convert, (read, write), threads, {
        "source_format": source, "target_format": target, "rounding": rounding, "saturate": saturate, "seed": seed,
        "scale": scale, "number": _FIRST.get()})


class _Asking(Asking):
    """A call of one of the two, as its errors name it."""

    def format(self, name: Any, known: Mapping[str, Format]) -> Format:
        if not isinstance(name, str):
            raise self.refuse("format", name, "the name of a format: " + ", ".join(known), wrong_type=True)
        if name not in known:
            raise UnknownOp(name, known, what="format")
        return known[name]

    def array(self, argument: str, value: Any) -> Array:
        try:
            array = array_of(value)
        except Exception as error:  # __array__ of foreign objects may raise anything
            raise self.refuse(argument, type(value).__name__, f"a value that numpy.asarray accepts ({error})",
                              wrong_type=True) from None
        if array.dtype.isnative:
            return array
        self.check_copy(argument, array, array.itemsize)
        return array.astype(array.dtype.newbyteorder("="))

    def check_copy(self, argument: str, array: Array, itemsize: int) -> None:
        """Refuse an array whose copy would take more bytes than results may, as a large view of few numbers does."""
        if array.size * itemsize > max_bytes(self):
            raise self.refuse(argument, list(array.shape), f"an array whose copy takes at most {max_bytes(self)} "
                              "bytes (CONVREG_MAX_BYTES sets the limit)", "max_bytes")
        if span(array.shape, itemsize) >= 2**63:
            raise self.refuse(argument, list(array.shape), "extents that an array can have: without those of 0, they "
                              "make less than 2**63 bytes", "max_bytes")

    def numbers(self, value: Any) -> Array:
        """Return an array of a known format; integers become float64, which holds those let through."""
        array = self.array("x", value)
        if array.dtype.kind in "iu":
            self.check_copy("x", array, 8)
            if array.size and max(abs(int(array.max())), abs(int(array.min()))) > 2**53:
                raise self.refuse("x", str(array.dtype), "integers up to 2**53: larger ones would be rounded twice")
            return array.astype(np.float64)
        return array

    def known(self, array: Array) -> Format:
        format = format_of(array.dtype)
        if format is None:
            allowed = "an array of " + ", ".join(FORMATS) + " or integers"
            raise self.refuse("x", str(array.dtype), allowed, wrong_type=True)
        return format

    def powers(self, argument: str, value: Any, shape: tuple[int, ...]) -> Array:
        """Return powers of two as float32, broadcast to a shape."""
        given = self.array(argument, value)
        if given.dtype.kind == "O" and all(isinstance(n, int) and n > 0 and n & (n - 1) == 0 for n in given.flat):
            for n in given.flat:  # integers of more than 64 bits
                if n.bit_length() > 128:
                    raise self.refuse(argument, f"2**{n.bit_length() - 1}", "powers of two from 2**-126 to 2**127")
            given = given.astype(np.float64)
        if given.dtype.kind not in "iuf":
            raise self.refuse(argument, str(given.dtype), "powers of two", wrong_type=True)
        with np.errstate(all="ignore"):
            factors = given.astype(np.float32)
            wrong = (np.frexp(factors)[0] != 0.5) | (factors < 2.0**-126)
            if given.dtype.kind == "f":
                wrong |= factors != given
            else:  # NumPy would compare integers as float64, which rounds those beyond 2**53
                wrong |= given & (given - 1) != 0
        if wrong.any():
            raise self.refuse(argument, given[wrong].flat[0].item(), "powers of two from 2**-126 to 2**127")
        try:
            return np.broadcast_to(factors, shape)
        except ValueError:
            raise self.refuse(argument, list(given.shape), f"a number or a shape that broadcasts to {list(shape)}"
                              ) from None

    def convert(
        self, argument: str, array: Array, source: Format, target: Format, rounding: str, saturate: bool, seed: int,
        out: Any, threads: Any, scale: Array | None = None,
    ) -> Array:
        check_isa()
        count = thread_count(self, threads)
        written = self.output(argument, array, target) if out is None else self.given(argument, array, target, out)
        read, write = array.view(source.storage), np.asarray(written).view(target.storage)
        if source.name == target.name == "float64":
            with np.errstate(all="ignore"), Arithmetic():
                np.copyto(write, read) if scale is None else np.multiply(read, scale, out=write)
        else:
            write_converted(read, write, source.name, target.name, rounding, saturate, seed, scale, count)
        if saturate and target.name == "float64":  # kernels only widen to it
            infinite = np.isinf(write)
            write[infinite] = np.copysign(target.largest, write[infinite])
        return written

    def output(self, argument: str, array: Array, target: Format) -> Array:
        self.check_copy(argument, array, target.dtype.itemsize)
        try:
            return np.empty_like(array, target.dtype, order="K", subok=False)
        except MemoryError:
            needed = array.size * target.dtype.itemsize
            raise self.refuse(argument, list(array.shape), f"an array whose result fits the memory that is free: it "
                              f"needs {needed} bytes", "memory") from None

    def given(self, argument: str, array: Array, target: Format, out: Any) -> Array:
        if not isinstance(out, np.ndarray) or is_masked(out):
            raise self.refuse("out", type(out).__name__, "a numpy array, without a mask", wrong_type=True)
        if out.shape != array.shape:
            raise self.refuse("out", list(out.shape), f"shape {list(array.shape)}")
        held = format_of(out.dtype)
        if held is None or held.dtype != target.dtype:
            raise self.refuse("out", str(out.dtype), str(target.dtype), wrong_type=True)
        if not out.flags.writeable:
            raise self.refuse("out", "read-only array", "a writable array")
        if np.may_share_memory(out, array) and share_memory(out, array):
            raise self.refuse("out", f"memory of {argument}", f"memory that {argument} does not use")
        if overlaps_itself(out):
            raise self.refuse("out", f"strides {out.strides}", "an array whose elements do not overlap")
        return out


def _unnamed(format: Format) -> np.dtype[Any]:
    """Return the dtype of arrays of a format that come from NumPy's files, which cannot name it."""
    return np.dtype((np.void, format.storage.itemsize))


def _seed(ask: _Asking, seed: Any) -> int:
    if seed is None:
        return int.from_bytes(os.urandom(8), "little")
    allowed = "an integer from 0 to 2**64 - 1, or None"
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise ask.refuse("seed", seed, allowed, wrong_type=True)
    if not 0 <= seed < 2**64:
        raise ask.refuse("seed", seed, allowed)
    return int(seed)
