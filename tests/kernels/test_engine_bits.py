"""The engine against the plain loops, bit for bit: any geometry, layout, format, number of threads, instruction set and
algorithm that fits."""

from __future__ import annotations

import random

import numpy as np
import pytest
from amounts import drawn
from convreg.ops import kernels
from convreg.ops.kernels import engine, reference
from drawn_algorithms import NEED_DOT_PRODUCTS, check_algorithm
from engine_cases import DRAWS, DTYPES, LAID_OUT, LARGER, OPERANDS, STORED, case_of, multiplications
from engine_comparison import (
    SETS,
    SPECIALS,
    by_plain_loops,
    check_bits,
    compare,
    compare_all,
    drawn_values,
    each_instruction_set,
)
from kernel_cases import Case, bits

FLOAT64 = dict.fromkeys(("large", "small", "taps"), "float64")
NEED_VECTORS = ("depthwise_ncx", "weights_depthwise_ncx", "depthwise_planes", "weights_depthwise_planes")
NEED_AVX512 = ("rows_are_lines",)
TRIES = 3000  # drawn calls for each that an algorithm fits; one in 1,300 fits the rarest


@pytest.mark.usefixtures("guarded_workspace")
@pytest.mark.parametrize(("kind", "seed"), [
    (kind, seed) for kind, draw in DRAWS.items() for seed in range(drawn(draw.seeds * 2 // 3, draw.seeds))])
def test_drawn_calls(kind, seed):
    draw, rng = DRAWS[kind], random.Random(seed)
    for _ in range(draw.calls):
        case = draw.case(rng)
        if multiplications(case) <= draw.most:
            compare_all(case, draw.drawn_formats(rng), rng, draw.kernels, draw.exact)


@pytest.mark.usefixtures("guarded_workspace")
@pytest.mark.parametrize(("kind", "seed"), [(kind, seed) for kind in DRAWS for seed in range(2)])
def test_drawn_calls_in_float64(kind, seed):
    draw, rng = DRAWS[kind], random.Random(1000 + seed)
    for _ in range(draw.calls):
        case = draw.case(rng)
        if multiplications(case) <= min(draw.most, 3e6):
            compare_all(case, FLOAT64, rng, draw.kernels)


@pytest.mark.usefixtures("guarded_workspace")
@pytest.mark.parametrize(("calls", "seed"), [(drawn(25, 40), 0), pytest.param(1500, 1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("algorithm", engine.algorithm_names()[1:])
def test_drawn_calls_of_each_algorithm(algorithm, calls, seed):
    """Also those that the engine would not choose; operands and results anywhere in memory."""
    if algorithm in NEED_VECTORS and {*SETS} <= {"generic"}:
        pytest.skip("neither AVX-512 nor AVX2 is usable or named")
    if algorithm in NEED_AVX512 and {*SETS} <= {"generic", "avx2"}:
        pytest.skip("AVX-512 is not usable or named")
    if algorithm in NEED_DOT_PRODUCTS and "avx512bf16" not in SETS:
        pytest.skip("no instruction set with dot products is usable or named")
    assert check_algorithm(algorithm, calls, TRIES * calls, seed) == calls


@pytest.mark.usefixtures("guarded_workspace")
@pytest.mark.parametrize(("calls", "seed"), [(drawn(40, 60), 0), pytest.param(1500, 1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("algorithm", [
    "rows_are_positions", "rows_are_lines", "patches", "weights_product", *NEED_DOT_PRODUCTS])
def test_drawn_calls_in_pairs(algorithm, calls, seed):
    """Other draws seldom meet dot products and enough channels at once."""
    if "avx512bf16" not in SETS:
        pytest.skip("no instruction set with dot products is usable or named")
    assert check_algorithm(algorithm, calls, TRIES * calls, seed, "avx512bf16") == calls


@pytest.mark.parametrize("axes", [
    [(1501, 1500, 4, 1, 1, 1)], [(5000, 2500, 3, 2, 1, 0)], [(3, 3, 1, 1, 1, 0), (30, 1030, 2, 1, 1, 1000)],
])
def test_long_lines_of_few_channels_in_float64(axes):
    """Lines laid out in stretches, some of which meet no input."""
    compare_all(case_of(3, 2, 4, 5, axes), FLOAT64, random.Random(0), ("backward_weights",))


def test_many_pieces_of_one_sum_in_float64():
    """More threads than tiles: blocks of pieces wait to be joined."""
    for c, m in ((1, 1), (3, 9), (1, 30)):
        compare_all(case_of(3, 1, c, m, [(230, 230, 1, 1, 1, 0), (231, 230, 2, 1, 1, 0)]), FLOAT64, random.Random(0),
                    ("backward_weights",))


@pytest.mark.parametrize("empty", ["batch", "c", "m", "x", "y", "k"])
def test_nothing_to_sum_in_float64(empty):
    """The results that are left are zeros, or their bias."""
    extent = {name: 0 if name == empty else 1 for name in "xyk"}
    axis = (7 * extent["x"], 7 * extent["y"], 3 * extent["k"], 1, 1, 1)
    case = case_of(0 if empty == "batch" else 2, 2, 0 if empty == "c" else 9, 0 if empty == "m" else 10, [axis])
    for seed in range(3):
        compare_all(case, FLOAT64, random.Random(seed), tuple(OPERANDS))


def test_workspace_in_float64_is_bounded(isa):
    for case in (Case((40, 1, 3000, 1, 60, 60), (40, 1, 700, 1, 60, 60), (1, 700, 3000, 1, 5, 5), begin=(0, 2, 2)),
                 Case((9, 900, 8, 1, 1, 99999), (9, 900, 5, 1, 1, 99999), (900, 5, 8, 1, 1, 77), begin=(0, 0, 38))):
        arrays = {name: np.broadcast_to(np.float64(0), getattr(case, name)) for name in FLOAT64}
        for kernel, names in OPERANDS.items():
            for threads in (1, 7):
                needed = engine.workspace_bytes(
                    kernel, *[arrays[name] for name in names], **case.window, formats=("float64",) * 3, threads=threads)
                assert 0 < needed <= threads * ((6 if kernel == "backward_weights" else 2) << 20)


@pytest.mark.usefixtures("guarded_workspace")
@pytest.mark.parametrize("number_format", LAID_OUT)
@pytest.mark.parametrize(("x", "y", "k", "stride", "dilation", "begin"), [
    (4, 4, 3, 1, 2, 2), (7, 7, 3, 1, 6, 6), (33, 33, 3, 1, 2, 2), (30, 16, 9, 1, 3, 5), (19, 40, 5, 1, 4, 16),
    (41, 21, 5, 2, 3, 6), (9, 50, 2, 1, 40, 41), (70, 24, 4, 3, 2, 0), (6, 3, 11, 2, 1, 5),
    (5, 3, 3, 2, 1, 1), (2, 2, 3, 1, 2, 2),
])
def test_depthwise_planes_of_dilated_taps(number_format, x, y, k, stride, dilation, begin):
    """Taps that meet all, some or none of a vector's outputs, in either order, and residues of strided gradients."""
    if {*SETS} <= {"generic"}:
        pytest.skip("neither AVX-512 nor AVX2 is usable or named")
    case = case_of(2, 37, 1, 1, [(6, 6, 3, 1, 1, 1), (x, y, k, stride, dilation, begin)])
    rng = random.Random(0)
    arrays = {name: drawn_values(rng, getattr(case, name), number_format) for name in ("large", "small", "taps")}
    for kernel in ("backward_data", "forward")[: 2 if stride == 1 else 1]:
        operands, formats = [arrays[name] for name in OPERANDS[kernel]], (number_format,) * 3
        expected = by_plain_loops(kernel, case, operands, formats)
        for isa in each_instruction_set():
            if isa != "generic":
                for threads in (1, 3):
                    got = np.full_like(operands[2], 7)
                    getattr(engine, kernel)(*operands[:2], got, **case.window, formats=formats, threads=threads,
                                            algorithm="depthwise_planes")
                    check_bits(got, expected, number_format, kernel, isa, threads)


@pytest.mark.usefixtures("guarded_workspace")
@pytest.mark.parametrize("number_format", LAID_OUT)
@pytest.mark.parametrize("channels", [1, 21])
@pytest.mark.parametrize("axes", [
    *([(3, 2, 2, 1, 1, 0), (19 * stride + 5, 18, stride + 1, stride, 1, stride // 3)] for stride in (4, 8, 16)),
    [(90, 90, 3, 1, 1, 1)], [(500, 498, 3, 1, 1, 0)], [(70, 40, 3, 1, 2, -13)], [(60, 150, 2, 1, 1, 50)],
    [(50, 2, 32, 16, 1, 8), (336, 20, 32, 16, 1, 8)],
], ids=str)
def test_blocks_that_are_laid_out(axes, channels, number_format):
    """Residues of lines together; single lines of all channels, maybe all outside; blocks of few positions."""
    case = case_of(1, 2, channels, 3, axes)
    rng = random.Random(0)
    arrays = {name: drawn_values(rng, getattr(case, name), number_format) for name in ("large", "small", "taps")}
    operands, formats = [arrays[name] for name in OPERANDS["forward"]], (number_format,) * 3
    expected = by_plain_loops("forward", case, operands, formats)
    for isa in each_instruction_set():
        for threads in (1, 3):
            got = np.full_like(operands[2], 7)
            engine.forward(*operands[:2], got, **case.window, formats=formats, threads=threads, algorithm="laid_out")
            check_bits(got, expected, number_format, "forward", isa, threads)


@pytest.mark.usefixtures("guarded_workspace")
@pytest.mark.parametrize("number_format", LAID_OUT)
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_stride_classes_that_alternate(channels, number_format):
    """Results of two classes, which alternate along a line, leave a tile together: lines of even and odd length, of one
    number and of several tiles, with a bias and without."""
    rng = random.Random(channels)
    for width in (1, 2, 31, 32, 33, 65, 96, 97, 195):
        case = case_of(2, 1, channels, 20, [(7, 4, 3, 2, 1, 1), (width, (width + 1) // 2, 3, 2, 1, 1)])
        arrays = {name: drawn_values(rng, getattr(case, name), number_format) for name in ("large", "small", "taps")}
        operands, formats = [arrays[name] for name in OPERANDS["backward_data"]], (number_format,) * 3
        bias = drawn_values(rng, (channels,), "float32") if width % 3 else None
        expected = by_plain_loops("backward_data", case, operands, formats, bias)
        for isa in each_instruction_set():
            got = np.full_like(operands[2], 7)
            engine.backward_data(*operands[:2], got, **case.window, formats=formats, bias=bias, threads=2,
                                 algorithm="laid_out")
            check_bits(got, expected, number_format, isa, width)


@pytest.mark.parametrize("seed", range(3))
def test_small_volumes(seed):
    """Blocks of several short planes, residues apart: what overruns a line must meet only what is written later."""
    rng = random.Random(seed)
    for _ in range(30):
        s, y = ([rng.choice(some) for _ in range(3)] for some in ([1, 2, 2, 3], [1, 2, 3, 4]))
        k, b = [rng.randint(1, 3) for _ in range(3)], [rng.choice([0, 0, 1]) for _ in range(3)]
        x = [max(1, (y[i] - 1) * s[i] - b[i] + k[i]) for i in range(3)]
        batch, c, m = rng.choice([1, 2]), rng.choice([1, 2, 3]), rng.choice([1, 2, 3])
        case = Case((batch, 1, c, *x), (batch, 1, m, *y), (1, m, c, *k), tuple(s), (1, 1, 1), tuple(b))
        formats = dict.fromkeys(("large", "small", "taps"), rng.choice(["float32", "float32", "bfloat16"]))
        arrays = {name: drawn_values(rng, getattr(case, name), formats[name]) for name in formats}
        for kernel in OPERANDS:
            compare(kernel, case, arrays, formats, rng)


@pytest.mark.parametrize("name", LARGER)
@pytest.mark.parametrize("number_format", ["float32", "bfloat16", "float64"])
def test_larger_calls(name, number_format):
    rng = random.Random(name)
    case = LARGER[name]
    assert np.prod(case.small) * np.prod(case.taps) / (case.taps[0] * case.taps[1]) > 1e6
    formats = dict.fromkeys(("large", "small", "taps"), number_format)
    expected = dict.fromkeys(OPERANDS)
    for layout in (range(6), (0, 3, 4, 5, 1, 2)):
        arrays = {}
        for operand in formats:
            values = np.random.default_rng(1).standard_normal(getattr(case, operand)).astype(STORED[number_format])
            arrays[operand] = np.ascontiguousarray(bits(values).transpose(layout)).transpose(np.argsort(list(layout)))
        for kernel in OPERANDS:
            expected[kernel] = compare(kernel, case, arrays, formats, rng, expected=expected[kernel])


@pytest.mark.usefixtures("guarded_workspace")
@pytest.mark.parametrize("number_format", ["float16", "hifloat8"])
@pytest.mark.parametrize("case", [
    Case((5, 1, 16, 1, 60, 60), (5, 1, 9, 1, 60, 60), (1, 9, 16, 1, 3, 3), begin=(0, 1, 1)),
    Case((6, 1, 16, 1, 72, 72), (6, 1, 9, 1, 36, 36), (1, 9, 16, 1, 1, 1), stride=(1, 2, 2)),
    Case((4, 1, 17, 1, 71, 65), (4, 1, 9, 1, 24, 32), (1, 9, 17, 1, 2, 3), stride=(1, 3, 2), dilation=(1, 2, 1),
         begin=(0, 1, 2)),
    Case((1, 1, 12, 9, 40, 50), (1, 1, 9, 9, 40, 50), (1, 9, 12, 3, 3, 3), begin=(1, 1, 1)),
    Case((2, 2, 12, 6, 50, 41), (2, 2, 9, 3, 50, 41), (2, 9, 12, 2, 1, 1), stride=(2, 1, 1), begin=(1, 0, 0)),
    Case((3, 1, 16, 1, 1, 9000), (3, 1, 9, 1, 1, 3000), (1, 9, 16, 1, 1, 5), stride=(1, 1, 3), begin=(0, 0, 1)),
], ids=str)
def test_large_sides_beyond_the_rings_of_a_task(case, number_format):
    """Weights gradients that convert the large side once: rings pass their end in the middle of a line."""
    rng, formats = random.Random(0), dict.fromkeys(("large", "small", "taps"), number_format)
    arrays = {name: drawn_values(rng, getattr(case, name), number_format) for name in formats}
    expected = None
    for layout in (range(6), (0, 3, 4, 5, 1, 2)):
        laid = {name: np.ascontiguousarray(array.transpose(layout)).transpose(np.argsort(list(layout)))
                for name, array in arrays.items()}
        expected = compare("backward_weights", case, laid, formats, rng, expected=expected)


def test_rows_that_fill_the_sums_of_a_task(isa):
    """So many that parts of them which just fit are uneven."""
    case = Case((1, 1, 140, 1, 1, 700), (1, 1, 8192, 1, 1, 700), (1, 8192, 140, 1, 1, 1))
    rng = np.random.default_rng(0)
    large, taps = (rng.integers(-2, 3, shape).astype(np.float32) for shape in (case.large, case.taps))
    got = np.empty(case.small, np.float32)
    engine.forward(large, taps, got, **case.window, formats=("float32",) * 3, threads=2)
    assert np.array_equal(got[0, 0, :, 0, 0], taps.reshape(8192, 140) @ large.reshape(140, 700))


def test_taps_at_one_place():
    """Weights whose kernel axes have a stride of 0, as np.broadcast_to makes them."""
    case = LARGER["many channels, small planes"]
    rng = np.random.default_rng(0)
    arrays = {name: rng.standard_normal(getattr(case, name), dtype=np.float32) for name in ("large", "small", "taps")}
    arrays["taps"] = np.broadcast_to(arrays["taps"][..., :1], case.taps)
    for kernel in ("forward", "backward_data"):
        compare(kernel, case, arrays, dict.fromkeys(arrays, "float32"), random.Random(0))


def test_weights_packed_in_passes(isa):
    """More weights than a workspace holds, few positions: the taps are taken in turns, the sums kept between."""
    case = Case((1, 1, 3800, 1, 10, 10), (1, 1, 48, 1, 10, 10), (1, 48, 3800, 1, 3, 3), begin=(0, 1, 1))
    rng = np.random.default_rng(0)
    large, taps = (rng.standard_normal(shape, dtype=np.float32) for shape in (case.large, case.taps))
    call = case.window | {"formats": ("float32",) * 3}
    expected, got = (np.empty(case.small, np.float32) for _ in range(2))
    reference.forward(large, taps, expected, **call)
    assert engine.workspace_bytes("forward", large, taps, got, **call) < 8 << 20
    for threads in (1, 2):
        engine.forward(large, taps, got, **call, threads=threads)
        assert np.array_equal(bits(got), bits(expected))


@pytest.mark.usefixtures("guarded_workspace")
@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("batch", [3, 5, 7])
def test_pieces_that_do_not_come_out_even(isa, name, batch):
    """First layers: pieces that every thread gets are summed with all rows, the last ones in parts of the rows."""
    case = Case((batch, 1, 3, 1, 66, 66), (batch, 1, 20, 1, 64, 64), (1, 20, 3, 1, 3, 3))
    rng = np.random.default_rng(batch)
    large, small = (rng.standard_normal(shape).astype(DTYPES[name]) for shape in (case.large, case.small))
    call = case.window | {"formats": (name, name, "float32")}
    expected, got = (np.empty(case.taps, np.float32) for _ in range(2))
    large, small = (bits(array) if name != "float32" else array for array in (large, small))
    reference.backward_weights(large, small, expected, **call)
    for threads in (1, 2, 3, 4):
        engine.backward_weights(large, small, got, **call, threads=threads)
        assert np.array_equal(bits(got), bits(expected))


@pytest.mark.parametrize("special", [None, *SPECIALS])
def test_weights_of_taps_far_apart(special):
    """Sums in blocks whose lines of the large side, framed for all taps, would not fit a workspace."""
    case = Case((2, 1, 3, 1, 5, 20002), (2, 1, 20, 1, 6, 4), (1, 20, 3, 1, 2, 2), (1, 1, 1), (1, 1, 20000), (0, 1, 1))
    rng = np.random.default_rng(0)
    large, small = (rng.standard_normal(shape).astype(DTYPES["bfloat16"]) for shape in (case.large, case.small))
    if special is not None:
        small[0, 0, 2, 0, 0, 0] = special
    arrays = {"large": bits(large), "small": bits(small), "taps": np.empty(case.taps, np.float32)}
    formats = {"large": "bfloat16", "small": "bfloat16", "taps": "float32"}
    call = case.window | {"formats": tuple(formats.values())}
    assert engine.workspace_bytes("backward_weights", *arrays.values(), **call) < 1 << 20
    compare("backward_weights", case, arrays, formats, random.Random(0))


@pytest.mark.parametrize("number_format", ["float32", "float64"])
def test_special_values_stay_out_of_the_padding(number_format):
    case = Case((1, 1, 3, 1, 9, 9), (1, 1, 4, 1, 9, 9), (1, 4, 3, 1, 5, 5), begin=(0, 2, 2))
    formats = dict.fromkeys(("large", "small", "taps"), number_format)
    for special in SPECIALS:
        arrays = {name: np.ones(getattr(case, name), STORED[number_format]) for name in formats}
        arrays["taps"][0, 1, 2, 0, 0, 0] = special
        arrays["small"][0, 0, 2, 0, 0, 0] = special
        for kernel in OPERANDS:
            compare(kernel, case, arrays, formats, random.Random(0))


@pytest.mark.parametrize(("number_format", "tiny"), [("float32", -1e-30), ("float64", -1e-200)])
def test_sums_that_underflow_are_plus_zero(number_format, tiny):
    case = Case((1, 1, 1, 1, 1, 40), (1, 1, 1, 1, 1, 40), (1, 1, 1, 1, 1, 3), begin=(0, 0, 1))
    formats = dict.fromkeys(("large", "small", "taps"), number_format)
    arrays = {name: np.full(getattr(case, name), tiny, STORED[number_format]) for name in formats}
    arrays["taps"] = -arrays["taps"]
    for kernel in OPERANDS:
        compare(kernel, case, arrays, formats, random.Random(0))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("channels", [7, 40])
def test_bfloat16_near_the_subnormals(channels, seed):
    """Products and sums on both sides of 2**-126, where dot-product and matrix instructions flush."""
    gen = np.random.default_rng(seed)
    case = Case((2, 1, channels, 1, 3, 21), (2, 1, 20, 1, 3, 21), (1, 20, channels, 1, 1, 3), begin=(0, 0, 1))
    first = int(gen.integers(-140, -30))
    second = int(gen.integers(-156, -66)) - first
    formats = {"large": "bfloat16", "small": "bfloat16", "taps": "bfloat16"}
    arrays = {"large": gen.standard_normal(case.large) * 2.0**first}
    arrays |= {name: gen.integers(-8, 8, getattr(case, name)) * 2.0**second for name in ("small", "taps")}
    arrays = {name: bits(a.astype(np.float32).astype(DTYPES["bfloat16"])) for name, a in arrays.items()}
    for kernel in OPERANDS:
        compare(kernel, case, arrays, formats, random.Random(seed))


@pytest.mark.parametrize("seed", range(20))
def test_depthwise_bfloat16_near_the_subnormals(seed):
    """The same with neighbouring taps in pairs, also beside something infinite."""
    gen = np.random.default_rng(seed)
    case = Case((2, 20, 1, 1, 6, 21), (2, 20, 1, 1, 6, 21), (20, 1, 1, 1, 3, 3), begin=(0, 1, 1))
    first = int(gen.integers(-140, -30))
    second = int(gen.integers(-156, -66)) - first
    formats = {"large": "bfloat16", "small": "bfloat16", "taps": "bfloat16"}
    arrays = {"large": gen.standard_normal(case.large) * 2.0**first}
    arrays |= {name: gen.integers(-8, 8, getattr(case, name)) * 2.0**second for name in ("small", "taps")}
    if seed % 4 == 0:
        arrays[("large", "small", "taps")[seed // 4 % 3]].flat[seed] = np.inf
    arrays = {name: bits(a.astype(np.float32).astype(DTYPES["bfloat16"])) for name, a in arrays.items()}
    for kernel in OPERANDS:
        compare(kernel, case, arrays, formats, random.Random(seed))


def test_the_fastest_set_runs_unless_named(isa):
    """Only the set with dot products is ever passed over: for the next, which differs from it in nothing else."""
    engine.use_isa("")
    chosen, rates, best = engine.isa(), engine.rates(), engine.usable()[0]
    assert chosen == (best if best != "avx512bf16" or rates["ratio"] >= 0.85 else "avx512")
    if best == "avx512bf16":
        assert f"{rates['ratio']:.2f} times" in engine.reason()
    engine.use_isa(isa)
    assert engine.isa() == isa
    assert engine.reason() == f"the best usable set that is not better than {isa}, which is named"


def test_rates_of_dot_products_are_measured_once(isa):
    rates = engine.rates()
    assert bool(rates) == bool({"amx", "avx512bf16"} & {*engine.usable()})
    if rates:
        assert rates.keys() == {"multiply_adds", "dot_products", "ratio", "per_cycle"}
        assert 0 < rates["multiply_adds"] < 2000
        assert rates["ratio"] == pytest.approx(rates["dot_products"] / rates["multiply_adds"])
        assert 0.1 < rates["ratio"] < 10
        assert 0.1 < rates["per_cycle"] < 3
    assert engine.rates() == rates


def test_capabilities_tell_what_runs(isa):
    have = kernels.capabilities()
    assert (have["isa"], have["reason"], have["rates"]) == (isa, engine.reason(), engine.rates())
    assert have["compiled"][-1] == "generic"
    with pytest.raises(ValueError, match="no instruction set 'mmx'"):
        engine.use_isa("mmx")
