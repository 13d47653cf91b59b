"""Drawn calls of the kernels that take a named algorithm, compared with the plain loops bit for bit.

Operands and results lie in drawn places in memory, with canaries around them; the values of operands may be repeated by
strides of 0. The guards between the buffers of a workspace are those of `engine.guard_workspace`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from math import prod
from typing import NamedTuple

import numpy as np
from convreg.ops import kernels
from convreg.ops.kernels import engine
from drawn_sizes import TEAM, drawn_case
from engine_cases import DRAWS, OPERANDS, STORED, case_of, multiplications
from engine_comparison import SETS, by_plain_loops, check_bits, drawn_values
from kernel_cases import Case, bits
from memory_layouts import Placed, draw_layout

import convreg
from convreg.geometry import Window

THREADS = (1, 2, 3, 7)
SMALL, LARGE = 3e5, 4e6  # products of numbers, at most
NEED_DOT_PRODUCTS = ("weights_few_pairs", "weights_tap_pairs")
WITHIN_BFLOAT16 = ("bfloat16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "hifloat8")
FEW_CHANNELS = 8         # of the small side in a group, whose sums over positions go by lines
LARGE_SHARE = 0.15       # of the calls, with enough products for several threads


def any_extents(rng: random.Random) -> Case:
    """Extents about the edges of blocks, prime groups, strides to 5, dilations to 4, windows that begin inside."""
    drawn = drawn_case(rng, symmetric=False)
    axes = list(zip(drawn.large[2:], drawn.small[2:], drawn.weights[2:], drawn.stride, drawn.dilation, drawn.begin,
                    strict=True))
    return case_of(drawn.large[0], drawn.groups, drawn.weights[1], drawn.weights[0] // drawn.groups, axes)


KINDS: tuple[Callable[[random.Random], Case], ...] = (any_extents,) * 6 + tuple(
    draw.case for name, draw in DRAWS.items() if name != "empty")


class Operand(NamedTuple):
    """An array in a drawn place, which may repeat its values by strides of 0."""

    place: Placed
    format: str
    view: np.ndarray

    def fill(self, rng: random.Random) -> None:
        self.place.view[...] = drawn_values(rng, self.place.shape, self.format)

    def intact(self, values: np.ndarray) -> bool:
        """Whether nothing but the operand's own elements differs from canaries, and those are the values."""
        return self.place.stray_bytes(values) == 0


def drawn_operand(
    rng: random.Random, shape: tuple[int, ...], format: str, repeated: float, style: str | None
) -> Operand:
    """Return an operand without values."""
    axes = [rng.random() < 0.3 for _ in shape] if rng.random() < repeated else [False] * len(shape)
    once = tuple(1 if again else extent for again, extent in zip(axes, shape, strict=True))
    dtype = bits(np.empty(0, STORED[format])).dtype
    place = Placed(draw_layout(rng, once, dtype.itemsize, style), once, dtype)
    return Operand(place, format, np.broadcast_to(place.view, shape))


class DrawnKernelCall(NamedTuple):
    """A call of a kernel without values."""

    kernel: str
    case: Case
    isa: str
    threads: int
    operands: tuple[Operand, ...]
    subtree: tuple[int, int, int] | None = None

    @property
    def formats(self) -> tuple[str, ...]:
        return tuple(operand.format for operand in self.operands)

    @property
    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        first, second, result = self.operands
        return first.view, second.view, result.place.view

    def __str__(self) -> str:
        layouts = "; ".join(str(operand.place.layout) for operand in self.operands)
        part = "" if self.subtree is None else f", subtree {self.subtree}"
        return f"{self.kernel} {self.case}, {self.formats}, {self.isa}, {self.threads} threads, {layouts}{part}"

    @property
    def more(self) -> dict:
        """The keyword of a part of a weights gradient."""
        return {} if self.subtree is None else {"subtree": self.subtree}

    def fits(self, algorithm: str) -> bool:
        """Whether the call has work and all of it can take the algorithm."""
        settings = {**self.case.window, "formats": self.formats, "threads": self.threads, **self.more}
        try:
            parts = kernels.choices(self.kernel, self.arrays, settings, algorithm)
        except OverflowError:
            return False
        assert {part[0] for part in parts} <= {algorithm}, f"{self}: {parts} in place of {algorithm}"
        return bool(parts)


def drawn_formats(rng: random.Random, wide: bool) -> tuple[str, str, str]:
    """Formats of a kernel's arrays: all alike, operands alike, or any mixture."""
    if wide:
        return ("float64",) * 3
    names = [name for name in STORED if name != "float64"]
    first = rng.choice(["float32", "bfloat16", *names])
    mixed = rng.random()
    return (first, first if mixed < 0.7 else rng.choice(names), first if mixed < 0.4 else rng.choice(names))


def drawn_kernel_call(rng: random.Random, algorithm: str, in_pairs: bool = False) -> DrawnKernelCall:
    """Return a call, of a kernel that the algorithm's name applies to, which it may not fit; maybe one in pairs."""
    weights = algorithm.startswith("weights_")
    kernel = "backward_weights" if weights else rng.choice(["forward", "backward_data"])
    large = rng.random() < LARGE_SHARE
    case = rng.choice(KINDS)(rng)
    while not 0 < multiplications(case) <= (LARGE if large else SMALL):
        case = rng.choice(KINDS)(rng)
    if large and TEAM / 50 < multiplications(case) <= TEAM:
        batch = case.large[0] * (TEAM // multiplications(case) + 1)
        case = Case((batch, *case.large[1:]), (batch, *case.small[1:]), *_rest(case))
    formats = drawn_formats(rng, rng.random() < 0.25 and not in_pairs)
    if in_pairs:
        formats = (rng.choice(WITHIN_BFLOAT16), rng.choice(WITHIN_BFLOAT16), formats[2])
    style = "channels last" if rng.random() < 0.2 else None
    operands = tuple(drawn_operand(rng, getattr(case, side), format, 0 if last else 0.15, style)
                     for side, format, last in zip(OPERANDS[kernel], formats, (False, False, True), strict=True))
    subtree = drawn_subtree(rng, case) if weights and rng.random() < 0.4 else None
    return DrawnKernelCall(kernel, case, rng.choice(SETS), rng.choice(THREADS), operands, subtree)


def drawn_subtree(rng: random.Random, case: Case) -> tuple[int, int, int]:
    """Pieces of any length that begin anywhere; sums of few channels go by lines (`core/reduction.h`)."""
    positions = case.small[0] * prod(case.small[3:])
    unit = case.small[5] if case.small[2] <= FEW_CHANNELS else 1
    lines = positions // unit
    return rng.randint(0, lines) * unit, rng.randint(1, 9), rng.randint(1, lines) * unit


def _rest(case: Case) -> tuple:
    return case.taps, case.stride, case.dilation, case.begin


def check_forced(rng: random.Random, call: DrawnKernelCall, algorithm: str) -> None:
    """Run a call with an algorithm that fits it and with the plain loops."""
    first, second, result = call.operands
    first.fill(rng)
    second.fill(rng)
    read = [operand.place.view.copy() for operand in (first, second)]
    channels = {"forward": call.case.small, "backward_data": call.case.large}.get(call.kernel, ())[1:3]
    bias = None
    if channels and rng.random() < 0.4:
        bias = drawn_values(rng, (prod(channels),), "float64" if "float64" in call.formats else "float32")
    expected = by_plain_loops(call.kernel, call.case, call.arrays, call.formats, bias, call.subtree)
    more = call.more if bias is None else {"bias": bias}
    with convreg.force_algorithm(algorithm):
        getattr(kernels, call.kernel)(*call.arrays, Window(*call.case.window.values(), call.formats),
                                      threads=call.threads, **more)
    check_bits(result.view, expected, result.format, algorithm, str(call))
    assert result.intact(result.place.view.copy()), f"{algorithm}: bytes around the result were written: {call}"
    for operand, values in zip((first, second), read, strict=True):
        assert operand.intact(values), f"{algorithm}: an operand was written: {call}"


def check_algorithm(algorithm: str, calls: int, tries: int, seed: int = 0, isa: str | None = None) -> int:
    """Check so many calls that an algorithm fits, of at most so many drawn ones; return the number of those checked.

    With a named instruction set, and for algorithms of dot products, the operands are those that may be multiplied in
    pairs. Every other call takes the tiles of processors whose multiply-adds wait for loads.
    """
    rng, checked = random.Random(f"{algorithm} {seed}"), 0
    in_pairs = isa is not None or algorithm in NEED_DOT_PRODUCTS
    before = engine.isa()
    try:
        for _ in range(tries):
            call = drawn_kernel_call(rng, algorithm, in_pairs)
            if isa is not None:
                call = call._replace(isa=isa)
            engine.use_isa(call.isa)
            engine.assume_loads_wait(checked % 2 == 0)
            if call.fits(algorithm):
                check_forced(rng, call, algorithm)
                checked += 1
                if checked == calls:
                    break
    finally:
        engine.use_isa(before)
        engine.assume_loads_wait(None)
    return checked
