"""The engine beside the plain loops, bit for bit: drawn numbers in drawn layouts, on every instruction set."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import numpy as np
from convreg.ops.kernels import engine, reference
from engine_cases import DTYPES, OPERANDS
from kernel_cases import Case

SPECIALS = [np.inf, -np.inf, np.nan]
THREADS = (1, 3)
NAMED = os.environ.get("CONVREG_TEST_ISA", "").split(",")
SETS = [name for name in engine.usable() if name in NAMED] or engine.usable()
"""The instruction sets that results are compared on: all that this machine has, or those of them in the variable."""


def each_instruction_set() -> Iterator[str]:
    """Switch to one set after the other, in the end back to the set of before."""
    before = engine.isa()
    try:
        for name in SETS:
            engine.use_isa(name)
            yield name
    finally:
        engine.use_isa(before)


def drawn_values(rng: random.Random, shape: tuple[int, ...], name: str) -> np.ndarray:
    """Stored numbers of one magnitude or of many, dense or sparse, some infinite or NaN."""
    gen = np.random.default_rng(rng.getrandbits(32))
    values = gen.standard_normal(shape) * 2.0 ** rng.choice([0, 0, 0, -40, 40])
    if rng.random() < 0.15:
        values *= gen.random(shape) < 0.3
    if rng.random() < 0.15:
        values *= 2.0 ** gen.integers(-60, 20, shape)
    if rng.random() < 0.2:
        values = np.where(gen.random(shape) < 0.01, gen.choice(SPECIALS, shape), values)
    if name == "float64":
        return values
    with np.errstate(over="ignore"):
        values = values.astype(np.float32)
    if name == "float32":
        return values
    codes = np.empty(shape, f"u{np.dtype(DTYPES[name]).itemsize}")
    reference.encode(values, codes, format=name)
    return codes


def in_some_layout(rng: random.Random, array: np.ndarray) -> np.ndarray:
    """The same numbers in another order in memory: channels last, any order, with gaps, backwards, inside others."""
    order = rng.choice([range(6), range(6), (0, 3, 4, 5, 1, 2), (0, 3, 4, 5, 1, 2), rng.sample(range(6), 6)])
    gap = rng.choice([1, 1, 1, 2])
    back = rng.choice([1, 1, 1, -1])
    room = rng.choice([0, 0, 0, 1, 3])
    memory = np.empty([array.shape[i] * gap + room for i in order], array.dtype)
    memory = memory[tuple(slice(array.shape[i] * gap) for i in order)][(slice(None, None, gap * back),) * 6]
    moved = memory.transpose(np.argsort(list(order)))
    moved[...] = array
    return moved


def as_referee_takes(array: np.ndarray, name: str) -> np.ndarray:
    if name == "float64":
        return array
    values = np.empty(array.shape, np.float32)
    reference.decode(array, values, format=name)
    return values


def operands_as_referee_takes(arrays: list[np.ndarray], names: list[str]) -> tuple[list[np.ndarray], str]:
    """The values of both in one format: bfloat16 if it has them all, since it tells how sums are taken, or float32."""
    values = [as_referee_takes(array, name) for array, name in zip(arrays, names, strict=True)]
    if "float64" in names:
        return values, "float64"
    if not {"float32", "float16"}.isdisjoint(names):
        return values, "float32"
    for i, exact in enumerate(values):
        values[i] = np.empty(exact.shape, np.uint16)
        reference.encode(exact, values[i], format="bfloat16")
    return values, "bfloat16"


def compare(kernel: str, case: Case, arrays: dict, formats: dict, layouts: random.Random, bias=None) -> None:
    """One call of the plain loops, then the engine's on every instruction set and number of threads."""
    first, second, result = OPERANDS[kernel]
    more = {} if bias is None else {"bias": bias}
    expected = np.zeros_like(arrays[result])
    operands, name = operands_as_referee_takes([arrays[first], arrays[second]], [formats[first], formats[second]])
    getattr(reference, kernel)(
        *operands, expected, **case.window, formats=(name, name, formats[result]), threads=2, **more)
    expected_values = as_referee_takes(expected, formats[result])
    for isa in each_instruction_set():
        for threads in THREADS:
            got = in_some_layout(layouts, np.full_like(arrays[result], 7))
            getattr(engine, kernel)(
                arrays[first], arrays[second], got, **case.window, formats=tuple(formats[n] for n in OPERANDS[kernel]),
                threads=threads, **more,
            )
            values = as_referee_takes(got, formats[result])
            number = f"u{values.itemsize}"
            different = values.view(number) != expected_values.view(number)
            different &= ~(np.isnan(values) & np.isnan(expected_values))
            assert not different.any(), (
                kernel, case, formats, isa, threads, np.argwhere(different)[:3], values[different][:3],
                expected_values[different][:3])


def compare_all(
    case: Case, formats: dict[str, str], rng: random.Random, only: tuple[str, ...], exact: float = 0
) -> None:
    """These kernels on drawn numbers, each operand in some layout, now and then with a bias; results in a format of the
    operands, or as often as `exact` tells in float32."""
    arrays = {name: in_some_layout(rng, drawn_values(rng, getattr(case, name), formats[name])) for name in formats}
    for kernel in only:
        channels = {"forward": case.small, "backward_data": case.large}.get(kernel, ())[1:3]
        wide = "float64" if "float64" in formats.values() else "float32"
        bias = drawn_values(rng, (int(np.prod(channels)),), wide) if channels and rng.random() < 0.4 else None
        if rng.random() < exact:
            result = OPERANDS[kernel][2]
            room = np.empty(getattr(case, result), np.float32)
            compare(kernel, case, arrays | {result: room}, formats | {result: "float32"}, rng, bias)
        else:
            compare(kernel, case, arrays, formats, rng, bias)
