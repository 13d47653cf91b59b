"""The engine beside the plain loops, bit for bit: drawn numbers in drawn layouts, on every instruction set."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Iterator, Sequence

import numpy as np
from convreg.ops import kernels
from convreg.ops.kernels import engine, reference
from engine_cases import DTYPES, OPERANDS
from kernel_cases import Case

SPECIALS = [np.inf, -np.inf, np.nan]
THREADS = (1, 3)
NAMED = os.environ.get("CONVREG_TEST_ISA", "").split(",")
SETS = [name for name in engine.usable() if name in NAMED] or engine.usable()
"""The instruction sets that results are compared on: all that this machine has, or those of them in the variable."""


def each_instruction_set(sets: Sequence[str] = SETS) -> Iterator[str]:
    """Switch to one set after the other, in the end back to the set of before."""
    before = engine.isa()
    try:
        for name in sets:
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
    return stored_as(name, values)


def stored_as(name: str, values: np.ndarray) -> np.ndarray:
    """Numbers in a format, as codes of those that NumPy has no type for."""
    if name == "float64":
        return values
    with np.errstate(over="ignore"):
        values = values.astype(np.float32)
    if name == "float32":
        return values
    codes = np.empty(values.shape, f"u{np.dtype(DTYPES[name]).itemsize}")
    reference.encode(values, codes, format=name)
    return codes


def some_layout(rng: random.Random, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array without values in some order in memory: channels last, any order, gaps, backwards, inside others."""
    order = rng.choice([range(6), range(6), (0, 3, 4, 5, 1, 2), (0, 3, 4, 5, 1, 2), rng.sample(range(6), 6)])
    gap = rng.choice([1, 1, 1, 2])
    back = rng.choice([1, 1, 1, -1])
    room = rng.choice([0, 0, 0, 1, 3])
    memory = np.empty([shape[i] * gap + room for i in order], dtype)
    memory = memory[tuple(slice(shape[i] * gap) for i in order)][(slice(None, None, gap * back),) * 6]
    return memory.transpose(np.argsort(list(order)))


def in_some_layout(rng: random.Random, array: np.ndarray) -> np.ndarray:
    """The same numbers in another order in memory."""
    moved = some_layout(rng, array.shape, array.dtype)
    moved[...] = array
    return moved


def as_referee_takes(array: np.ndarray, name: str) -> np.ndarray:
    """The values of stored numbers; the plain loops read aligned arrays only."""
    array = kernels.aligned(array)
    if name in ("float32", "float64"):
        return array
    values = np.empty(array.shape, np.float32)
    reference.decode(array, values, format=name)
    return values


def operands_as_referee_takes(arrays: Sequence[np.ndarray], names: Sequence[str]) -> tuple[list[np.ndarray], str]:
    """The values of both in one format: bfloat16 if it has them all, since it tells how sums are taken, or float32."""
    if {*names} == {"bfloat16"}:
        return [np.require(array, requirements=["C", "A"]) for array in arrays], "bfloat16"
    values = [as_referee_takes(array, name) for array, name in zip(arrays, names, strict=True)]
    if "float64" in names:
        return values, "float64"
    if not {"float32", "float16"}.isdisjoint(names):
        return values, "float32"
    for i, exact in enumerate(values):
        values[i] = np.empty(exact.shape, np.uint16)
        reference.encode(exact, values[i], format="bfloat16")
    return values, "bfloat16"


def by_plain_loops(
    kernel: str, case: Case, arrays: Sequence[np.ndarray], formats: Sequence[str], bias=None, subtree=None
) -> np.ndarray:
    """The plain loops' result in the format of the result, for arrays and formats in the kernel's order."""
    more = {name: value for name, value in {"bias": bias, "subtree": subtree}.items() if value is not None}
    expected = np.zeros_like(arrays[2])
    operands, name = operands_as_referee_takes(arrays[:2], formats[:2])
    getattr(reference, kernel)(
        *operands, expected, **case.window, formats=(name, name, formats[2]), threads=2, **more)
    return expected


def check_bits(got: np.ndarray, expected: np.ndarray, number_format: str, *where: object) -> None:
    """Equal bits as the plain loops' result, any NaN for any NaN."""
    stored = f"u{got.itemsize}"
    if np.array_equal(got.view(stored), expected.view(stored)):
        return
    values, wanted = (as_referee_takes(array, number_format) for array in (got, expected))
    number = f"u{values.itemsize}"
    different = values.view(number) != wanted.view(number)
    different &= ~(np.isnan(values) & np.isnan(wanted))
    assert not different.any(), (*where, np.argwhere(different)[:3], values[different][:3], wanted[different][:3])


def unchosen(rng: random.Random, kernel: str, operands: Sequence[np.ndarray], call: dict) -> str | None:
    """An algorithm that fits and that the engine would not choose for all of a call, if there is one; not the plain
    loops."""
    chosen = {part[0] for part in engine.choices(kernel, *operands, **call)}
    names = [name for name in engine.algorithm_names()[1:]
             if chosen and {name} != chosen and name.startswith("weights_") == (kernel == "backward_weights")]
    for name in rng.sample(names, len(names)):
        with contextlib.suppress(OverflowError):  # it does not fit
            engine.choices(kernel, *operands, **call, algorithm=name)
            return name
    return None


def counts_of_threads(isa: str, counts: Sequence[int], one: int) -> Sequence[int]:
    """The numbers of threads that a comparison takes. The set without vectors is slow: it takes one of them."""
    return (one,) if isa == "generic" else counts


def compare(
    kernel: str, case: Case, arrays: dict, formats: dict, layouts: random.Random, bias=None, expected=None
) -> np.ndarray:
    """One call of the plain loops, then the engine's on every instruction set and number of threads with the algorithm
    of its choice; on every instruction set also with one that it would not choose. Return what the plain loops compute;
    `expected` is what they computed of the same numbers in another layout."""
    order = OPERANDS[kernel]
    first, second, result = (arrays[name] for name in order)
    more = {} if bias is None else {"bias": bias}
    if expected is None:
        expected = by_plain_loops(kernel, case, (first, second, result), [formats[name] for name in order], bias)
    rng = random.Random(f"{kernel} {case}")
    for isa in each_instruction_set():
        twice = rng.choice(THREADS)
        for threads in counts_of_threads(isa, THREADS, twice):
            got = some_layout(layouts, result.shape, result.dtype)
            call = {**case.window, "formats": tuple(formats[name] for name in order), "threads": threads}
            other = unchosen(rng, kernel, (first, second, got), call) if threads == twice else None
            for algorithm in (None,) if other is None else (None, other):
                got[...] = 7
                getattr(engine, kernel)(first, second, got, **call, **more, algorithm=algorithm)
                check_bits(got, expected, formats[order[2]], kernel, case, formats, isa, threads, algorithm)
    return expected


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


def drawn_operands(case: Case, seed: int, number_format: str) -> dict[str, np.ndarray]:
    rng = random.Random(seed)
    return {name: drawn_values(rng, getattr(case, name), number_format) for name in ("large", "small", "taps")}


def ordinary_operands(case: Case, number_format: str) -> dict[str, np.ndarray]:
    """Numbers near 1: no sum of products of these in pairs is subnormal or infinite."""
    gen = np.random.default_rng(0)
    return {name: stored_as(number_format, gen.uniform(0.5, 2, shape) * gen.choice([-1, 1], shape))
            for name in ("large", "small", "taps") for shape in [getattr(case, name)]}


def check_gradient(
    case: Case, arrays: dict[str, np.ndarray], number_format: str, algorithms: Sequence[str],
    threads: Sequence[int] = (2,), kernel: str = "backward_data", bias: np.ndarray | None = None,
    sets: Sequence[str] = SETS, places: Sequence[dict[str, np.ndarray]] = (),
) -> None:
    """Compare what some algorithms compute with the plain loops, on every instruction set or on those named. `places`
    are the same numbers in other layouts, each compared too."""
    order, formats = OPERANDS[kernel], (number_format,) * 3
    more = {} if bias is None else {"bias": bias}
    expected = by_plain_loops(kernel, case, [arrays[name] for name in order], formats, bias)
    rng = random.Random(f"{kernel} {case} {number_format}")
    for isa in each_instruction_set(sets):
        for number, placed in enumerate((arrays, *places)):
            first, second, result = (placed[name] for name in order)
            for algorithm in algorithms:
                for count in counts_of_threads(isa, threads, rng.choice(threads)):
                    got = np.full_like(result, 7)
                    getattr(engine, kernel)(first, second, got, **case.window, formats=formats, threads=count,
                                            algorithm=algorithm, **more)
                    check_bits(got, expected, number_format, isa, f"{algorithm} {count}, place {number}")
