"""Weights gradients with few channels: every algorithm that fits a layer gives the bits of the plain loops."""

from __future__ import annotations

import random

import numpy as np
import pytest
from convreg.ops import kernels
from convreg.ops.kernels import engine
from engine_cases import STORED, case_of
from engine_comparison import by_plain_loops, check_bits, counts_of_threads, each_instruction_set
from kernel_cases import Case, bits

import convreg
from convreg.geometry import Window

WEIGHTS = [name for name in engine.algorithm_names() if name.startswith("weights_")]


def layer(width: int, rows: int, plane: int, step: int, taps: int, batch: int = 3) -> Case:
    """Two groups, with a padding that keeps the plane if the step is 1; lines are one position shorter than planes."""
    axes = [(step * (plane - i), plane - i, taps, step, 1, taps // 2) for i in range(2)]
    return case_of(batch, 2, width, rows, axes)


CHANNELS = ((3, 4), (4, 3), (8, 5), (9, 9), (16, 12), (24, 10))
PLANES = ((7, 1), (8, 2), (15, 1), (16, 2), (29, 1))
LAYERS = {
    **{f"{width} on {plane}, step {step}": layer(width, rows, plane, step, 3)
       for width, rows in CHANNELS for plane, step in PLANES},
    "long lines": layer(4, 4, 50, 1, 5, 1), "long lines, step 2": layer(5, 8, 36, 2, 4, 2),
    "wide": layer(40, 20, 10, 1, 3, 2), "several pieces": layer(4, 4, 40, 1, 3, 6),
    "several pieces of rows": layer(10, 9, 40, 1, 2, 6),
    "one position": case_of(5, 2, 7, 11, [(4, 1, 4, 1, 1, 0), (3, 1, 3, 1, 1, 0)]),
    "many channels to three": case_of(1, 1, 40, 3, [(26, 20, 7, 1, 1, 0), (29, 23, 7, 1, 1, 0)]),
    "many channels to three, padded": case_of(2, 1, 41, 3, [(20, 20, 7, 1, 1, 3), (17, 17, 7, 1, 1, 3)]),
    "many channels to four, several pieces": case_of(6, 1, 52, 4, [(40, 40, 3, 1, 1, 1), (33, 33, 3, 1, 1, 1)]),
    "many channels to two, one tap": case_of(2, 1, 24, 2, [(15, 15, 1, 1, 1, 0), (18, 17, 1, 1, 1, 0)]),
    "nine channels of one group": case_of(2, 1, 8, 9, [(20, 20, 3, 1, 1, 1), (17, 17, 3, 1, 1, 1)]),
    "first layer": case_of(2, 1, 3, 20, [(31, 16, 3, 2, 1, 1), (29, 15, 3, 2, 1, 1)]),
    "first layer, step 4": case_of(2, 1, 4, 20, [(40, 10, 8, 4, 1, 2), (132, 33, 8, 4, 1, 2)]),
    "first layer of short lines, step 4": case_of(2, 1, 2, 36, [(60, 15, 5, 4, 1, 2), (52, 13, 4, 4, 1, 1)]),
    **{f"first layer, lines of two parts, step {step}":
       case_of(2, 1, 3, 20, [(9 * step, 9, 5, step, 1, 2), (47 * step, 47, 6, step, 1, 2)]) for step in (1, 2, 4)},
    **{f"first layer, lines of which a part is padding, step {step}":
       case_of(2, 1, 3, 20, [(9 * step, 9, 5, step, 1, 2), (23 * step, 61, 6, step, 1, 37 * step + 1)])
       for step in (1, 2, 4)},
    "patches of 4": case_of(2, 1, 3, 24, [(32, 8, 4, 4, 1, 0), (68, 17, 4, 4, 1, 0)]),
    "patches of 4, some outside": case_of(2, 1, 3, 24, [(30, 8, 4, 4, 1, 1), (66, 17, 4, 4, 1, 2)]),
    "patches of 8 and 16": case_of(3, 1, 2, 36, [(39, 5, 8, 8, 1, 0), (45, 3, 16, 16, 1, 2)]),
    "first layers, small volumes": case_of(2, 1, 3, 20, [(6, 6, 3, 1, 1, 1), (14, 7, 5, 2, 1, 2), (16, 8, 3, 2, 1, 1)]),
    "first layer of many small images": case_of(40, 1, 3, 10, [(12, 6, 5, 2, 1, 2), (10, 5, 5, 2, 1, 2)]),
    "first layer of volumes": case_of(1, 1, 2, 20, [(9, 5, 7, 2, 1, 3), (12, 6, 7, 2, 2, 5), (20, 10, 3, 2, 1, 1)]),
    "one tap, step 2": case_of(3, 2, 40, 20, [(39, 20, 1, 2, 1, 0), (75, 38, 1, 2, 1, 0)]),
    "one tap, step 2, some outside": case_of(2, 1, 20, 33, [(18, 10, 1, 2, 1, 1), (132, 67, 1, 2, 1, 3)]),
    "one tap on a long line, step 2": case_of(2, 1, 24, 70, [(1801, 901, 1, 2, 1, 0)]),
    "waveform": case_of(3, 1, 1, 20, [(340, 43, 16, 8, 1, 4)]),
    "waveform of two channels": case_of(2, 1, 2, 33, [(200, 99, 7, 2, 1, 3)]),
    "strided line": case_of(2, 1, 24, 40, [(520, 64, 16, 8, 1, 4)]),
    **{f"strided line, dilation {dilation}": case_of(images, 1, 16, 48, [(2 * count, count, 8, 2, dilation, 7)])
       for images, count, dilation in ((16, 64, 2), (40, 12, 8), (9, 100, 4), (30, 37, 6))},
    **{f"{count} positions on a line, step {step}": case_of(3, 1, 12, 20, [(step * count, count, step + 2, step, 1, 1)])
       for count, step in ((45, 3), (33, 5), (100, 6), (31, 7), (40, 9), (97, 10), (20, 11), (64, 12), (33, 13))},
    **{f"short lines of {count}, step {step}, padding {begin}":
       case_of(4, 1, 18, 20, [(9, 4, 3, 2, 1, 0), (9, 5, 2, 2, 1, begin), (step * count + 4, count, 3, step, 1, begin)])
       for count, step, begin in (
           (7, 2, 0), (16, 2, 1), (4, 8, 0), (8, 4, 1), (10, 3, 0), (6, 1, 0), (1, 2, 0), (2, 16, 1), (11, 3, 1))},
    "images of volumes": case_of(13, 1, 24, 40, [(2, 2, 3, 1, 1, 1), (4, 4, 3, 1, 1, 1), (5, 5, 3, 1, 1, 1)]),
    "images of volumes, step 2": case_of(9, 1, 12, 40, [(7, 4, 3, 2, 1, 1)] * 3),
    "small planes of whole blocks": case_of(5, 1, 24, 40, [(8, 8, 3, 1, 1, 1), (8, 8, 5, 1, 1, 2)]),
    "depthwise 3x3": case_of(2, 5, 1, 1, [(9, 9, 3, 1, 1, 1), (37, 37, 3, 1, 1, 1)]),
    "depthwise 5x5": case_of(1, 2, 1, 1, [(8, 6, 5, 1, 1, 1), (50, 50, 5, 1, 1, 2)]),
    "depthwise 2x4": case_of(2, 3, 1, 2, [(8, 7, 2, 1, 1, 0), (34, 40, 4, 1, 1, 4)]),
    "rows in parts": case_of(5, 1, 90, 100, [(12, 12, 3, 1, 1, 1)] * 2),
    "rows in parts, two groups": case_of(3, 2, 70, 100, [(24, 12, 3, 2, 1, 1)] * 2),
    "rows in many parts": case_of(2, 1, 130, 240, [(15, 15, 3, 1, 1, 1)] * 2),
    "one position, many images": case_of(40, 1, 20, 30, [(4, 1, 4, 1, 1, 0), (4, 1, 4, 1, 1, 0)]),
}
FORMATS = ("float32", "bfloat16", "float8_e4m3fn", "float16")


def check_layer(case: Case, name: str, special: float | None, seed: int) -> None:
    rng, formats = random.Random(seed), (name,) * 3
    gen = np.random.default_rng(seed)
    operands = [bits(gen.standard_normal(getattr(case, side)).astype(STORED[name])) for side in ("large", "small")]
    if special is not None:
        side = rng.choice(operands).reshape(-1)
        side[rng.randrange(side.size)] = bits(np.array([special], np.float32).astype(STORED[name]))[0]
    if name == "float32":
        operands = [operand.view(np.float32) for operand in operands]
    arrays = (*operands, np.zeros(case.taps, operands[0].dtype))
    expected = by_plain_loops("backward_weights", case, arrays, formats, None, None)
    for isa in each_instruction_set():
        compared = 0
        some = [(each, count) for each in WEIGHTS for count in counts_of_threads(isa, (1, 3), rng.choice((1, 3)))]
        for algorithm, threads in some:
            arrays[2].fill(7)
            settings = {**case.window, "formats": formats, "threads": threads}
            try:
                kernels.choices("backward_weights", arrays, settings, algorithm)
            except OverflowError:
                continue
            with convreg.force_algorithm(algorithm):
                kernels.backward_weights(*arrays, Window(*case.window.values(), formats), threads=threads)
            check_bits(arrays[2], expected, name, algorithm, f"{case} {isa} {threads}")
            compared += 1
        assert compared, f"no algorithm fits {case} with {isa}"


@pytest.mark.usefixtures("guarded_workspace")
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("which", LAYERS)
def test_layers(which, name):
    check_layer(LAYERS[which], name, None, 0)


@pytest.mark.parametrize("name", ["bfloat16", "float32"])
@pytest.mark.parametrize("special", [np.inf, np.nan, 1e-40])
@pytest.mark.parametrize("which", [
    "4 on 7, step 1", "8 on 16, step 2", "9 on 15, step 1", "16 on 8, step 2", "one position",
    "many channels to three, padded", "first layer", "one tap, step 2, some outside", "waveform", "depthwise 3x3",
    "depthwise 5x5", "rows in parts, two groups"])
def test_special_numbers(which, special, name):
    """Pairs do not do, or what is infinite must not meet zeros: sums are computed again in another way."""
    for seed in range(1 if "rows in parts" in which else 4):  # the rows take some seconds
        check_layer(LAYERS[which], name, special, seed)
