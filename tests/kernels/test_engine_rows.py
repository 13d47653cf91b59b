"""How the engine lays out rows, positions and blocks: bit for bit the plain loops, with every instruction set."""

from __future__ import annotations

import random

import numpy as np
import pytest
from engine_cases import LAID_OUT, case_of
from engine_comparison import SETS, check_gradient, drawn_operands, in_some_layout, ordinary_operands


@pytest.mark.usefixtures("guarded_workspace")
@pytest.mark.parametrize("number_format", ["float32", "bfloat16"])
@pytest.mark.parametrize(("batch", "rows", "axes"), [
    (2, 48, [(5, 3, 3, 1, 1, 0), (5, 5, 3, 1, 1, 1), (5, 5, 5, 1, 1, 2)]),
    (2, 33, [(4, 2, 3, 2, 1, 1), (7, 4, 3, 2, 1, 1), (6, 3, 3, 2, 1, 1)]),
    (2, 40, [(9, 9, 5, 1, 1, 2), (8, 8, 5, 1, 1, 2)]), (1, 80, [(12, 12, 3, 1, 1, 1), (17, 17, 3, 1, 1, 1)]),
    (2, 16, [(5, 5, 3, 1, 1, 1), (38, 36, 3, 1, 1, 0)]), (1, 16, [(3, 3, 2, 1, 1, 0), (26, 26, 7, 1, 1, 3)]),
    (1, 100, [(14, 7, 7, 2, 1, 3), (13, 7, 7, 2, 1, 3)]),
], ids=["planes of all images", "classes together", "lines of all images", "panels of unlike width", "long lines",
        "edges", "weights of classes packed together"])
def test_positions_as_rows(batch, rows, axes, number_format):
    """Boxes, and panels that threads share or take alone, also of several products together, and tiles of a line."""
    case = case_of(batch, 1, rows, 20, axes)
    arrays = drawn_operands(case, 0, number_format)
    check_gradient(case, arrays, number_format, ["rows_are_positions"], (1, 2, 3, 5))


@pytest.mark.usefixtures("guarded_workspace")
@pytest.mark.parametrize("number_format", ["bfloat16", "hifloat8"])
@pytest.mark.parametrize(("taps", "stride"), [(2, 1), (2, 2), (3, 2), (3, 3), (4, 2), (4, 4), (5, 4)])
def test_weights_near_one_another(taps, stride, number_format):
    """Rows of weights 2 to 5 elements apart, of which a class of the stride has one tap or two."""
    case = case_of(2, 1, 41, 35, [(7 * stride + taps, 8, taps, stride, 1, 0)])
    arrays = drawn_operands(case, taps, number_format)
    check_gradient(case, arrays, number_format, ["rows_are_positions", "gathered"])


@pytest.mark.usefixtures("guarded_workspace")
@pytest.mark.parametrize("number_format", LAID_OUT)
@pytest.mark.parametrize("taps", [(1, 17), (5, 5), (6, 6), (7, 7)], ids=str)
def test_weights_far_from_one_another(taps, number_format):
    """More than 16 taps of each channel, those of one result after those of another: four panels, of which threads take
    several in turns and ask for the next, in the order of memory and in another."""
    case = case_of(2, 1, 100, 150, [(9, 5, taps[0], 2, 1, taps[0] // 2), (9, 5, taps[1], 2, 1, taps[1] // 2)])
    arrays = drawn_operands(case, sum(taps), number_format)
    elsewhere = arrays | {"taps": in_some_layout(random.Random(taps[1]), arrays["taps"])}
    check_gradient(case, arrays, number_format, ["rows_are_positions"], (1, 2, 3), "forward", places=[elsewhere])


@pytest.mark.usefixtures("guarded_workspace")
@pytest.mark.parametrize("number_format", LAID_OUT)
@pytest.mark.parametrize("axes", [
    [(12, 6, 1, 2, 1, 0), (120, 60, 1, 2, 1, 0)], [(64, 16, 15, 4, 4, 28)], [(8, 8, 3, 1, 1, 1), (210, 70, 3, 3, 3, 3)],
    [(6, 4, 1, 2, 1, 1), (4, 2, 1, 2, 1, 0), (12, 6, 3, 2, 2, 2)], [(9, 5, 1, 2, 1, 0), (11, 6, 1, 2, 1, 0)],
    [(7, 3, 2, 3, 3, 1), (10, 5, 3, 2, 1, 1)],
], ids=["single taps", "a dilated line", "lines of some vectors", "volumes", "no whole cells", "one axis"])
def test_positions_that_no_tap_reaches(axes, number_format):
    """Zeros, or biases, between results of one class of the stride, or in classes of their own."""
    case = case_of(2, 1, 37, 40, axes)
    arrays = drawn_operands(case, len(axes), number_format)
    bias = np.linspace(-2, 2, 37, dtype=np.float32)
    apart = arrays | {"large": np.repeat(arrays["large"], 2, 5)[..., ::2]}
    elsewhere = arrays | {"large": in_some_layout(random.Random(axes[0][0]), arrays["large"])}
    check_gradient(case, arrays, number_format, ["rows_are_positions", "gathered"], (1, 3), bias=bias,
                   places=[apart, elsewhere])


@pytest.mark.usefixtures("guarded_workspace")
@pytest.mark.parametrize("number_format", LAID_OUT)
@pytest.mark.parametrize("stride", [2, 3, 4, 5, 6])
def test_positions_apart(stride, number_format):
    """Every second to sixth number of a line, a vector at a time and fewer."""
    case = case_of(2, 1, 21, 40, [(3, 3, 1, 1, 1, 0), (18 * stride + 1, 19, 3, stride, 1, 1)])
    arrays = drawn_operands(case, stride, number_format)
    check_gradient(case, arrays, number_format, ["laid_out", "gathered"], kernel="forward")


@pytest.mark.usefixtures("guarded_workspace")
@pytest.mark.parametrize("number_format", LAID_OUT)
@pytest.mark.parametrize("axes", [
    [(30, 30, 3, 1, 1, 1), (6, 6, 3, 1, 1, 1), (37, 37, 3, 1, 1, 1)], [(20, 20, 3, 1, 1, 1), (35, 33, 5, 1, 1, 1)],
    [(12, 12, 1, 1, 1, 0), (33, 33, 1, 1, 1, 0)], [(100, 98, 3, 1, 1, 0)],
], ids=str)
def test_blocks_that_follow_one_another(axes, number_format):
    """Blocks of images and groups, and planes of volumes, that a thread lays out while it computes the block before
    them: lines that end inside a vector, with zeros around them, and planes whose lines are one."""
    case = case_of(2, 2, 19, 21, axes)
    arrays = drawn_operands(case, len(axes), number_format)
    check_gradient(case, arrays, number_format, ["laid_out"], threads=(1, 2))


@pytest.mark.usefixtures("guarded_workspace")
@pytest.mark.parametrize("number_format", ["bfloat16", "hifloat8"])
@pytest.mark.parametrize(("batch", "groups", "axes"), [
    (2, 1, [(20, 20, 3, 1, 1, 1), (24, 24, 3, 1, 1, 1)]), (2, 2, [(13, 13, 5, 1, 1, 2), (21, 21, 3, 1, 1, 1)]),
    (2, 1, [(29, 15, 5, 2, 1, 2), (27, 27, 1, 1, 1, 0)]), (1, 1, [(23, 19, 3, 1, 2, 0), (66, 33, 4, 2, 1, 1)]),
    (3, 1, [(5, 5, 3, 1, 1, 1), (9, 9, 3, 1, 1, 1), (16, 16, 3, 1, 1, 1)]),
    (1, 1, [(700, 700, 16, 1, 1, 8)]), (5, 2, [(90, 90, 7, 1, 1, 3)]), (2, 1, [(200, 100, 9, 2, 1, 4)]),
    (9, 1, [(7, 7, 3, 1, 1, 1), (3, 3, 3, 1, 1, 1)]), (9, 1, [(5, 3, 3, 2, 1, 1), (4, 2, 3, 2, 1, 1)]),
    (2, 1, [(9, 9, 3, 1, 1, 1), (40, 14, 3, 3, 1, 1)]), (3, 1, [(13, 4, 5, 3, 1, 1), (270, 34, 9, 8, 1, 4)]),
    (2, 1, [(190, 21, 3, 9, 1, 0)]),
    (3, 1, [(12, 12, 3, 1, 1, 1), (64, 64, 3, 1, 1, 1)]), (2, 1, [(13, 12, 5, 1, 1, 1), (100, 100, 5, 1, 1, 2)]),
    (2, 1, [(9, 9, 7, 1, 1, 3), (96, 96, 7, 1, 1, 3)]), (2, 1, [(17, 9, 5, 2, 1, 2), (149, 75, 5, 2, 1, 2)]),
    (2, 1, [(3, 3, 3, 1, 1, 1), (9, 9, 3, 1, 2, 2), (70, 70, 5, 1, 3, 6)]),
    (2, 1, [(9, 9, 3, 1, 1, 1), (130, 65, 6, 2, 1, 2)]),
], ids=["whole planes", "parts of planes", "two strides", "dilated", "volumes", "a line", "short lines", "strided line",
        "many parts", "strided parts", "apart", "far apart", "farther apart", "lines of blocks", "long lines",
        "many taps", "strided long lines", "dilated long lines", "two residues"])
def test_rows_of_blocks(batch, groups, axes, number_format):
    """Weights gradients whose blocks of positions go on from line to line: taps that share what they meet, blocks at
    the end of a plane, a piece that ends inside a block, row tiles of one tap and of several."""
    for c, m in ((37, 20), (16, 40), (9, 19)):
        case = case_of(batch, groups, c, m, axes)
        for arrays in (ordinary_operands(case, number_format), drawn_operands(case, c, number_format)):
            check_gradient(case, arrays, number_format, ["weights_product"], (1, 3), kernel="backward_weights")


@pytest.mark.usefixtures("guarded_workspace")
@pytest.mark.parametrize("number_format", ["bfloat16", "hifloat8"])
@pytest.mark.parametrize(("batch", "groups", "axes"), [
    (5, 1, [(14, 14, 3, 1, 1, 1), (14, 14, 3, 1, 1, 1)]), (4, 2, [(10, 10, 5, 1, 1, 2), (11, 11, 3, 1, 1, 1)]),
    (5, 1, [(27, 14, 5, 2, 1, 2), (14, 14, 3, 1, 1, 1)]), (5, 1, [(20, 10, 4, 2, 1, 1), (20, 10, 4, 2, 1, 1)]),
    (4, 1, [(14, 14, 3, 1, 2, 2), (12, 12, 3, 1, 1, 1)]), (8, 1, [(8, 8, 3, 1, 1, 1), (4, 4, 3, 1, 1, 1)]),
    (2, 1, [(4, 4, 3, 1, 1, 1), (14, 14, 3, 1, 1, 1), (10, 10, 3, 1, 1, 1)]),
    (2, 1, [(200, 100, 9, 2, 1, 4)]), (7, 1, [(106, 106, 11, 1, 1, 5)]),
    (3, 1, [(31, 10, 9, 3, 1, 4), (22, 22, 3, 1, 1, 1)]),
], ids=["planes", "more taps", "a stride", "strides", "dilated", "small planes", "volumes", "strided lines", "lines",
        "three residues"])
def test_blocks_in_which_planes_end(batch, groups, axes, number_format):
    """Weights gradients whose taps share lines: blocks that go on behind a gap, and panels of one to three vectors."""
    for c, m in ((9, 52), (20, 70), (37, 100)):
        case = case_of(batch, groups, c, m, axes)
        for arrays in (ordinary_operands(case, number_format), drawn_operands(case, c, number_format)):
            check_gradient(case, arrays, number_format, ["weights_product"], (1, 2), kernel="backward_weights")


@pytest.mark.usefixtures("guarded_workspace")
@pytest.mark.parametrize("number_format", ["bfloat16", "hifloat8"])
@pytest.mark.parametrize(("batch", "groups", "axes"), [
    (12, 1, [(5, 5, 3, 1, 1, 1), (5, 5, 3, 1, 1, 1), (7, 7, 3, 1, 1, 1)]),
    (4, 2, [(12, 12, 3, 1, 1, 1), (4, 4, 3, 1, 1, 1), (14, 14, 3, 1, 1, 1)]),
    (4, 1, [(9, 5, 5, 2, 1, 2), (5, 5, 3, 1, 1, 1), (7, 7, 3, 1, 1, 1)]),
    (5, 1, [(12, 12, 3, 1, 2, 2), (3, 3, 2, 1, 1, 0), (7, 7, 1, 1, 1, 0)]),
    (5, 1, [(4, 4, 3, 1, 1, 1), (4, 4, 3, 1, 1, 1), (4, 4, 3, 1, 1, 1)]),
    (34, 1, [(3, 3, 3, 1, 1, 1), (3, 3, 3, 1, 1, 1), (11, 11, 3, 1, 1, 1)]),
    (5, 1, [(10, 10, 4, 1, 1, 3), (7, 3, 3, 2, 1, 0), (15, 8, 3, 2, 1, 1)]),
    (3, 1, [(50, 50, 9, 1, 1, 4), (1, 1, 1, 1, 1, 0), (6, 5, 2, 1, 1, 0)]),
    (2, 1, [(7, 5, 3, 1, 1, 0), (33, 33, 3, 1, 1, 1), (31, 31, 1, 1, 1, 0)]),
], ids=["odd volumes", "even volumes", "a stride", "dilated", "whole blocks", "more ends than patches", "strides",
        "planes of one line", "large planes"])
def test_volumes_whose_taps_share_planes(batch, groups, axes, number_format):
    """Weights gradients whose taps meet the same planes: blocks in which an image ends after an odd number of
    positions, and chunks of several images, parts of one, and parts of a plane."""
    for c, m in ((37, 16), (20, 40)):
        case = case_of(batch, groups, c, m, axes)
        for arrays in (ordinary_operands(case, number_format), drawn_operands(case, c, number_format)):
            check_gradient(case, arrays, number_format, ["weights_product"], (1, 2), kernel="backward_weights")


@pytest.mark.usefixtures("guarded_workspace")
@pytest.mark.parametrize("number_format", LAID_OUT)
@pytest.mark.parametrize("axis", [(401, 98, 10, 4, 1, 0), (200, 200, 9, 1, 1, 4), (5000, 999, 8, 5, 1, 0)], ids=str)
def test_first_layers_of_sound(axis, number_format):
    """Taps as lanes beside rows that are decoded for a tile at a time, with and without zeros around lines."""
    for c, m in ((1, 70), (3, 9)):
        case = case_of(2, 1, c, m, [axis])
        for arrays in (ordinary_operands(case, number_format), drawn_operands(case, c, number_format)):
            check_gradient(case, arrays, number_format, ["weights_tap_lanes"], (1, 3), kernel="backward_weights")


@pytest.mark.usefixtures("guarded_workspace")
@pytest.mark.parametrize("number_format", LAID_OUT)
@pytest.mark.parametrize("axes", [
    [(23, 23, 1, 1, 1, 0), (37, 37, 1, 1, 1, 0)], [(5, 5, 1, 1, 1, 0), (9, 9, 1, 1, 1, 0), (16, 16, 1, 1, 1, 0)],
    [(9001, 9001, 1, 1, 1, 0)], [(31, 16, 1, 2, 1, 0), (40, 40, 1, 1, 1, 0)],
    [(20, 20, 1, 1, 1, 0), (41, 21, 1, 2, 1, 0)], [(14, 16, 1, 1, 1, 1), (50, 50, 1, 1, 1, 0)],
    [(24, 22, 1, 1, 1, 0), (36, 33, 1, 1, 1, 0)],
], ids=["planes", "volumes", "a line in parts", "strided lines", "strides", "edges", "within planes"])
def test_single_taps_of_few_channels(axes, number_format):
    """Numbers that one tap meets: read where they lie, lines of a channel laid out as one, some channels at a time."""
    for c, m in ((37, 2), (70, 5), (3, 8)):
        case = case_of(2, 1, c, m, axes)
        arrays = drawn_operands(case, c, number_format)
        apart = arrays | {"large": np.repeat(arrays["large"], 2, 5)[..., ::2]}
        elsewhere = arrays | {"large": in_some_layout(random.Random(c), arrays["large"])}
        check_gradient(case, arrays, number_format, ["weights_few_channels"], (1, 3), "backward_weights",
                       places=[apart, elsewhere])


@pytest.mark.usefixtures("guarded_workspace")
@pytest.mark.parametrize("number_format", LAID_OUT)
@pytest.mark.parametrize("axes", [
    [(9, 9, 1, 1, 1, 0), (37, 37, 1, 1, 1, 0)], [(5, 5, 1, 1, 1, 0), (4, 4, 1, 1, 1, 0), (7, 7, 1, 1, 1, 0)],
    [(11, 10, 1, 1, 1, 0), (13, 13, 1, 1, 1, 0)], [(1, 1, 1, 1, 1, 0)],
], ids=["planes", "volumes", "within planes", "one position"])
def test_single_taps_of_channels_that_fill_no_vectors(axes, number_format):
    """Weights gradients whose lanes are channels of the other side, where those fill more of their vectors."""
    for c, m in ((64, 24), (70, 9), (33, 17)):
        case = case_of(2, 2, c, m, axes)
        arrays = drawn_operands(case, c, number_format)
        layouts = [{side: in_some_layout(random.Random(seed), arrays[side]) for side in arrays} for seed in range(2)]
        check_gradient(case, arrays, number_format, ["weights_product"], (1, 3), "backward_weights",
                       places=[arrays | elsewhere for elsewhere in layouts])


@pytest.mark.parametrize("number_format", ["float32", "bfloat16"])
@pytest.mark.parametrize("repeated", [1, 2, 5], ids=["sums", "results", "taps"])
def test_weights_that_repeat(repeated, number_format):
    """Views with a stride of 0 along the channels of the sum, those of the result, or the taps of a line."""
    case = case_of(2, 1, 40, 20, [(8, 4, 4, 2, 1, 1), (8, 4, 4, 2, 1, 1)])
    arrays = drawn_operands(case, repeated, number_format)
    arrays["taps"] = np.broadcast_to(arrays["taps"].take([0], repeated), case.taps)
    check_gradient(case, arrays, number_format, ["rows_are_positions", "gathered"])


@pytest.mark.usefixtures("guarded_workspace")
@pytest.mark.parametrize("number_format", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "hifloat8"])
@pytest.mark.parametrize("rows", [
    (9, 9, 3, 1, 1, 1), (12, 6, 5, 2, 1, 2), (11, 9, 3, 1, 3, 2), (5, 8, 7, 1, 1, 5), (7, 7, 1, 1, 1, 0),
], ids=["three taps", "a stride", "dilated", "few lines", "one tap"])
@pytest.mark.parametrize("taps", [1, 2, 3, 5, 9])
def test_lines_that_are_decoded_as_they_are_met(taps, rows, number_format):
    """Weights gradients of depthwise layers in pairs: lines of one unit and of several, more numbers than have masks,
    taps that go beyond both ends, and two channels on either side."""
    if "avx512bf16" not in SETS:
        pytest.skip("no instruction set with dot products is usable or named")
    for width, begin in ((17, 0), (32, taps // 2), (33, taps - 1), (48, taps // 2), (62, 0), (64, taps + 3), (97, 1),
                         (1100, 2)):
        inner = (max(1, width + taps - 1 - 2 * begin), width, taps, 1, 1, begin)
        for c, m in ((1, 1), (1, 2), (2, 1)):
            case = case_of(2 if width < 100 else 1, 2, c, m, [rows, inner])
            for arrays in (ordinary_operands(case, number_format), drawn_operands(case, width, number_format)):
                check_gradient(case, arrays, number_format, ["weights_few_pairs"], (1, 3), kernel="backward_weights",
                               sets=("avx512bf16",))
