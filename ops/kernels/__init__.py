"""The three kernels of convolution and the bias sum.

Every operand is a 6-D view, any strides, of stored numbers in one axis order: n batch, g group, c channel of the large
side, m channel of the small side (both within the group), x and y positions, t tap. Three spatial axes always; those
that an operator lacks have extent 1, stride 1, dilation 1, begin 0. Per axis x = y*stride - begin + t*dilation.

    large (N, G, C, X0, X1, X2)     small (N, G, M, Y0, Y1, Y2)     taps (G, M, C, K0, K1, K2)

    forward(large, taps, small)             small[n,g,m,y] = SUM over t, c   large[n,g,c,x] * taps[g,m,c,t]   (+ bias)
    backward_data(small, taps, large)       large[n,g,c,x] = SUM over t, m   small[n,g,m,y] * taps[g,m,c,t]   (+ bias)
    backward_weights(large, small, taps)    taps[g,m,c,t]  = SUM over n, y   large[n,g,c,x] * small[n,g,m,y]
    bias_sum(small, bias)                   bias[g*M + m]  = SUM over n, y   small[n,g,m,y]

The last array is written. `window` is the relation of positions, and names the format of each array in the order of
the arguments: "float32" and "float64" are stored as such, "float16" and "bfloat16" as uint16 codes, "float8_e4m3fn",
"float8_e5m2" and "hifloat8" as uint8 codes. Formats mix freely, except that float64 mixes with no other. `bias` holds
values, one per channel of the result, added to the finished sum before its one rounding. `threads=0` means the default;
results do not depend on it.

The caller has checked shapes, formats and that the written array overlaps none that is read. The kernels release the
GIL, and any number of Python threads may call them. `reference.pyx` defines the results to the bit.
`engine/engine.pyx` computes the same bits fast, and every call goes there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

# With full names: in a checkout without compiled modules the ModuleNotFoundError names them.
import convreg.ops.kernels.engine as engine
import convreg.ops.kernels.reference as reference
import convreg.ops.kernels.teams as teams
import numpy as np
from numpy.typing import NDArray

from convreg.errors import Asking
from convreg.geometry import Window

from .threads import default_threads, run

Array = NDArray[Any]

Subtree = tuple[int, int, int]
"""A subtree of a sum over a larger batch: the position of its first piece among those of the small side that is given,
the number of its pieces, and their length in positions (`core/reduction.h`)."""

openmp: bool = teams.OPENMP

Arithmetic = teams.Arithmetic
"""A context in which NumPy computes as kernels do: rounding to nearest even, subnormal numbers kept."""

FORCED: ContextVar[str | None] = ContextVar("convreg algorithm", default=None)
"""The algorithm that calls of this thread or task must take; `forced_for` tells which kernels it applies to."""


def capabilities() -> dict[str, Any]:
    """Return the instruction set in use and why, those usable here and compiled, rates, trials, threads, and OpenMP."""
    check_isa()
    return {
        "isa": engine.isa(),
        "reason": engine.reason(),
        "usable": engine.usable(),
        "compiled": engine.compiled(),
        "rates": engine.rates(),
        "trials": engine.trials(),
        "threads": default_threads(),
        "openmp": openmp,
    }


def check_isa() -> None:
    """Refuse to compute where ``CONVREG_ISA`` names an instruction set that this build does not have.

    Raises
    ------
    OpError
    """
    if engine.unknown_isa is not None:
        raise Asking("convreg").refuse("CONVREG_ISA", engine.unknown_isa, " or ".join(map(repr, engine.compiled())))


def forward(
    large: Array, taps: Array, small: Array, window: Window, *, bias: Array | None = None, threads: int = 0
) -> None:
    """Write small, one value for each window of large; `bias` has G*M values."""
    _compute(engine.forward, (large, taps, small), window, bias, threads)


def backward_data(
    small: Array, taps: Array, large: Array, window: Window, *, bias: Array | None = None, threads: int = 0
) -> None:
    """Write large, the gradient of `forward` with respect to it; `bias` has G*C values."""
    _compute(engine.backward_data, (small, taps, large), window, bias, threads)


def backward_weights(
    large: Array, small: Array, taps: Array, window: Window, *, threads: int = 0, subtree: Subtree | None = None
) -> None:
    """Write taps, the gradient of `forward` with respect to them, or the sum of a subtree of a larger sum."""
    _compute(engine.backward_weights, (large, small, taps), window, None, threads, subtree)


def bias_sum(
    small: Array, bias: Array, *, formats: tuple[str, str], threads: int = 0, subtree: Subtree | None = None
) -> None:
    """Write bias, a 1-D view of stored numbers, the gradient of `forward` with respect to its bias, or of a subtree."""
    operands, window = bias_gradient(small, bias, formats)
    settings = window.keywords if subtree is None else {**window.keywords, "subtree": subtree}
    run_anywhere(engine.backward_weights, operands, threads, settings)


def bias_gradient(
    small: Array, bias: Array, formats: tuple[str, str]
) -> tuple[tuple[Array, Array, Array], Window]:
    """Return the call of `backward_weights` that sums small: a large side of ones, small, a single tap."""
    ones, window, extents = _summing(small.shape, small.dtype, formats)
    return (ones, small, bias.reshape(extents)), window


@lru_cache(maxsize=4096)
def _summing(
    shape: tuple[int, ...], dtype: np.dtype[Any], formats: tuple[str, str]
) -> tuple[Array, Window, tuple[int, ...]]:
    """Return ones in the shape of a large side, the relation of positions, and the extents of the bias as taps."""
    N, G, M, *Y = shape
    one = _one(formats[0], dtype)
    ones = np.ndarray((N, G, 1, *Y), one.dtype, one, strides=(0,) * 6)
    return ones, Window((1, 1, 1), (1, 1, 1), (0, 0, 0), (formats[0], *formats)), (G, M, 1, 1, 1, 1)


@lru_cache(maxsize=16)
def _one(format: str, dtype: np.dtype[Any]) -> Array:
    """Return the number 1 as it is stored."""
    one = np.empty((1, 1, 1, 1, 1, 1), dtype)
    reference.encode(np.ones(one.shape, np.float32), one, format=format)
    one.flags.writeable = False
    return one


def implementation(kernel: str, formats: tuple[str, str, str]) -> Callable[..., None]:
    """Return the compiled function of a kernel, which takes aligned arrays and a resolved number of threads."""
    check_isa()
    _check_formats(formats)
    return getattr(engine, kernel)


def _check_formats(formats: tuple[str, str, str]) -> None:
    if "float64" in formats and len({*formats}) > 1:
        raise TypeError(reference.MIXED)


def forced_for(kernel: str) -> str | None:
    """Return the algorithm that a kernel must take, None for a free choice."""
    name = FORCED.get()
    if name is None or (name != "reference" and name.startswith("weights_") != (kernel == "backward_weights")):
        return None
    return name


@contextmanager
def choosing_freely() -> Iterator[None]:
    """Let float64 references choose, whatever algorithm the caller forces; only the plain loops still apply to them."""
    token = FORCED.set("reference" if FORCED.get() == "reference" else None)
    try:
        yield
    finally:
        FORCED.reset(token)


def choices(
    kernel: str, arrays: tuple[Array, Array, Array], settings: dict[str, Any], forced: str | None
) -> list[tuple[str, str, int, float, list[tuple[str, str, str, float, int, float | None]]]]:
    """Return what ``engine.choices`` does for arrays at any address; ``settings`` are the keywords of a call.

    Raises
    ------
    OverflowError
        If the forced algorithm does not fit.
    """
    check_isa()
    if forced == "reference":
        loops = forced, "reference.pyx", "multiply-adds", 0.0, 0, None
        return [(forced, "multiply-adds", settings["threads"], 0.0, [loops])]
    found: list[Any] = engine.choices(kernel, *map(aligned, arrays), **settings, algorithm=forced)
    return found


def _compute(
    compute: Callable[..., None], arrays: tuple[Array, Array, Array], window: Window, bias: Array | None, threads: int,
    subtree: Subtree | None = None,
) -> None:
    if engine.unknown_isa is not None:
        check_isa()
    if "float64" in window.formats:
        _check_formats(window.formats)
    settings = window.keywords if bias is None else {**window.keywords, "bias": bias}
    if subtree is not None:
        settings = {**settings, "subtree": subtree}
    if FORCED.get() is not None:
        settings = {**settings, "algorithm": forced_for(compute.__name__)}
    first, second, result = arrays
    if first.flags.aligned and second.flags.aligned and result.flags.aligned:
        run(compute, arrays, threads, settings)
    else:
        run_anywhere(compute, arrays, threads, settings)


def run_anywhere(
    compute: Callable[..., None], arrays: tuple[Array, Array, Array], threads: int, settings: dict[str, Any]
) -> None:
    """Run a compiled function on arrays at any address; the last one is written, if misaligned through a copy."""
    first, second, result = arrays
    target = result if result.flags.aligned else np.empty(result.shape, result.dtype)
    run(compute, (aligned(first), aligned(second), target), threads, settings)
    if target is not result:
        result[...] = target


def aligned(array: Array) -> Array:
    """Return the array, or an aligned copy of its numbers, each once where the array repeats them by strides of 0."""
    if array.flags.aligned:
        return array
    once = array[tuple(slice(None) if stride else slice(1) for stride in array.strides)]
    return np.broadcast_to(once.copy(), array.shape)


__all__ = ["backward_data", "backward_weights", "bias_sum", "capabilities", "default_threads", "forward", "openmp"]
