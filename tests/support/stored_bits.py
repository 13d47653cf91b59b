"""Calls whose results have the same bits on every machine, and SHA-256 of them as `tests/data/bits.json` stores them.

A call is drawn from a seed by Python's generator, its numbers by a hash function, neither of which depends on the
machine or on NumPy's version. Algorithms are forced where they fit a call: some need AVX-512, and elsewhere another one
must give the same bits. To store the bits anew after a change of the calls, on a machine with AVX-512:

    PYTHONPATH=.:tests/support python tests/support/stored_bits.py
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
from math import prod

import numpy as np
from convreg.ops import kernels
from convreg.ops.kernels import engine, reference
from drawn import Drawn
from drawn_algorithms import KINDS, drawn_formats
from engine_cases import DTYPES, OPERANDS, multiplications
from gradient_calls import forward, single, together
from places import DATA
from valid_calls import several

import convreg
from convreg.geometry import Window

PATH = DATA / "bits.json"
CALLS = 6
"""For each algorithm, and for the engine's own choice."""

CHOSEN = "chosen"
"""In place of the name of an algorithm: what the engine chooses."""

LAYER = Drawn(groups=2, stride=(2, 1), dilation=(1, 2), begin=(1, 1), end=(1, 1),
              large=(2, 6, 7, 6), small=(2, 4, 4, 4), weights=(4, 3, 3, 3))
"""For the operators."""


def numbers(key: str, shape: tuple[int, ...]) -> np.ndarray:
    """Finite float64 numbers of both signs and of eight magnitudes, the same wherever the key is."""
    codes = np.frombuffer(hashlib.shake_128(key.encode()).digest(8 * prod(shape)), "<u8").reshape(shape)
    return ((codes >> np.uint64(11)).astype(np.float64) * 2.0**-53 - 0.5) * 0.5 ** (codes & np.uint64(7)).astype(int)


def in_format(values: np.ndarray, name: str) -> np.ndarray:
    """Numbers as a kernel takes them."""
    if name == "float64":
        return values
    values = values.astype(np.float32)
    if name == "float32":
        return values
    codes = np.empty(values.shape, f"u{np.dtype(DTYPES[name]).itemsize}")
    reference.encode(values, codes, format=name)
    return codes


def digest(*arrays: np.ndarray) -> str:
    """SHA-256 of shapes and bits."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(f"{array.shape} {array.itemsize} ".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def _fits(kernel: str, operands: tuple[np.ndarray, ...], settings: dict, algorithm: str) -> bool:
    try:
        return bool(kernels.choices(kernel, operands, settings, algorithm))
    except OverflowError:
        return False


def kernel_bits(algorithm: str, seed: int, *, or_another: bool = False) -> str | None:
    """SHA-256 of the result of a drawn call; where the algorithm does not fit it, None or what another one gives."""
    rng = random.Random(f"{algorithm} {seed}")
    kernel = rng.choice(sorted(OPERANDS)) if algorithm == CHOSEN else "backward_weights" if algorithm.startswith(
        "weights_") else rng.choice(["backward_data", "forward"])
    case = rng.choice(KINDS)(rng)
    while not 0 < multiplications(case) <= 3e5:
        case = rng.choice(KINDS)(rng)
    formats = drawn_formats(rng, rng.random() < 0.25)
    first, second, result = (
        in_format(numbers(f"{algorithm} {seed} {side}", getattr(case, side)), name)
        for side, name in zip(OPERANDS[kernel], formats, strict=True))
    result = np.zeros_like(result)
    settings = {**case.window, "formats": formats, "threads": 2}
    forced = algorithm != CHOSEN and _fits(kernel, (first, second, result), settings, algorithm)
    if not forced and algorithm != CHOSEN and not or_another:
        return None
    with convreg.force_algorithm(algorithm) if forced else contextlib.nullcontext():
        getattr(kernels, kernel)(first, second, result, Window(*case.window.values(), formats), threads=2)
    return digest(result)


def kernel_calls(algorithm: str) -> dict[str, str]:
    """SHA-256 by seed of the first calls that an algorithm fits."""
    found: dict[str, str] = {}
    seed = 0
    while len(found) < CALLS:
        result = kernel_bits(algorithm, seed)
        if result is not None:
            found[str(seed)] = result
        seed += 1
    return found


def operator_bits(number_format: str) -> dict[str, str]:
    """SHA-256 by operator of the results of one layer."""
    def operand(shape: tuple[int, ...]) -> np.ndarray:
        return convreg.quantize(numbers(f"layer {shape}", shape), number_format)

    calls = [*single(LAYER, operand), *forward(LAYER, operand), *together(LAYER, operand, (True, True, True), False)]
    return {call.name: digest(*several(convreg.get(call.name)(*call.tensors, **call.arguments))) for call in calls}


def conversion_bits(name: str) -> dict[str, str]:
    """SHA-256 by rounding of codes of a format, and of their values."""
    x = (numbers(name, (40, 100)) * 2.0 ** np.arange(-60, 40)).astype(np.float32)
    found = {}
    for rounding in convreg.formats()[name].roundings:
        codes = convreg.quantize(x, name, rounding=rounding, seed=1)
        finite = np.nan_to_num(convreg.dequantize(codes), nan=0)  # which bits a NaN has is nobody's promise
        found[rounding] = digest(codes, finite)
    return found


def all_bits() -> dict[str, dict[str, dict[str, str]]]:
    """All that is stored."""
    return {
        "kernels": {name: kernel_calls(name) for name in (CHOSEN, *engine.algorithm_names())},
        "operators": {name: operator_bits(name) for name in ("float32", "bfloat16", "float16")},
        "conversions": {name: conversion_bits(name) for name in convreg.formats() if "64" not in name},
    }


if __name__ == "__main__":
    PATH.write_text(json.dumps(all_bits(), indent=1) + "\n")
