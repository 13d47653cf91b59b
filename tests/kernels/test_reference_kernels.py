"""The plain-loop kernels: against the relation, and against their definition to the bit."""

from __future__ import annotations

import kernel_cases as reference
import ml_dtypes
import numpy as np
import pytest
from convreg.ops import kernels
from convreg.ops.kernels import reference as plain_loops
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import STORED, Case, bits, call, cases, drawn_arrays, windowed

SEEDS = st.integers(0, 2**32 - 1)
FORWARD, BACKWARD_WEIGHTS = windowed(kernels.forward), windowed(kernels.backward_weights)


def check(case: Case, large, small, taps, name: str, result: str, compare) -> None:
    """The three kernels and the bias sum on one set of operands."""
    formats = (name, name, result)
    exact = [a.astype(np.float64) for a in (large, small, taps)]
    compare(call(plain_loops.forward, case, large, taps, case.small, formats),
            reference.forward(case, exact[0], exact[2]))
    compare(call(plain_loops.backward_data, case, small, taps, case.large, formats),
            reference.backward_data(case, exact[1], exact[2]))
    compare(call(plain_loops.backward_weights, case, large, small, case.taps, formats),
            reference.backward_weights(case, exact[0], exact[1]))
    bias = np.full(case.small[1] * case.small[2], 9, STORED[result])
    plain_loops.bias_sum(bits(small), bits(bias), formats=(name, result))
    compare(bias, exact[1].sum(axis=(0, 3, 4, 5)).ravel())


# ---------------------------------------------------------------------------------------------------------------------
# What they compute


@settings(max_examples=150)
@given(cases(), SEEDS)
def test_kernels_follow_the_relation(case, seed):
    def close(got, expected):
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)

    check(case, *drawn_arrays(case, seed), "float64", "float64", close)


@given(cases(smallest=0), SEEDS)
def test_empty_extents_give_empty_results_or_zeros(case, seed):
    def close(got, expected):
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)

    check(case, *drawn_arrays(case, seed), "float64", "float64", close)


@pytest.mark.parametrize("result", [n for n in STORED if n != "float64"])
@pytest.mark.parametrize("name", [n for n in STORED if n != "float64"])
def test_every_pair_of_formats(name, result):
    """Small integers: every product and sum is exact, so the one rounding of the result is all that shows."""
    case = Case((2, 2, 3, 1, 5, 6), (2, 2, 2, 1, 3, 4), (2, 2, 3, 1, 2, 3), (1, 2, 1), (1, 1, 2), (0, 1, -1))
    rng = np.random.default_rng(7)
    operands = [rng.integers(-3, 4, shape).astype(STORED[name]) for shape in (case.large, case.small, case.taps)]

    def equal(got, expected):
        np.testing.assert_array_equal(got, expected.astype(np.float32).astype(STORED[result]))

    check(case, *operands, name, result, equal)


@given(cases(), SEEDS, st.tuples(*[st.sampled_from([-2, -1, 1, 3])] * 6))
def test_any_strides(case, seed, steps):
    """Views with gaps and backward axes, read-only operands; the gaps of the result stay as they were."""
    large, _, taps = drawn_arrays(case, seed)

    def strided(values):
        room = np.full([n * abs(s) for n, s in zip(values.shape, steps, strict=True)], np.nan)
        view = room[tuple(slice(None, None, s) for s in steps)]
        view[...] = values
        return room, view

    (_, large), (_, taps) = strided(large), strided(taps)
    large.flags.writeable = taps.flags.writeable = False
    room, result = strided(np.zeros(case.small))
    plain_loops.forward(large, taps, result, **case.window, formats=("float64",) * 3, threads=2)
    np.testing.assert_allclose(result, reference.forward(case, large, taps), rtol=1e-12, atol=1e-12)
    assert np.isnan(room).sum() == room.size - result.size


@given(cases(), SEEDS)
def test_gradients_are_adjoint(case, seed):
    large, small, taps = drawn_arrays(case, seed)
    formats = ("float64",) * 3
    products = [
        np.vdot(call(plain_loops.forward, case, large, taps, case.small, formats), small),
        np.vdot(call(plain_loops.backward_data, case, small, taps, case.large, formats), large),
        np.vdot(call(plain_loops.backward_weights, case, large, small, case.taps, formats), taps),
    ]
    scale = np.vdot(reference.forward(case, abs(large), abs(taps)), abs(small)) + 1
    np.testing.assert_allclose(products, products[0], rtol=0, atol=1e-13 * scale)


def test_bias_joins_the_finished_sum_before_the_rounding():
    """1 + 2**-11 rounds to 1 in float16, 1 + 2**-11 + 2**-12 does not."""
    case = Case((1, 2, 1, 1, 1, 2), (1, 2, 1, 1, 1, 2), (2, 1, 1, 1, 1, 1))
    large = np.full(case.large, 1 + 2**-11, np.float32)
    taps = np.ones(case.taps, np.float32)
    bias = np.array([0, 2**-12], np.float32)
    for kernel in (plain_loops.forward, plain_loops.backward_data):
        got = call(kernel, case, large, taps, case.small, ("float32", "float32", "float16"), bias=bias)
        np.testing.assert_array_equal(got[0, :, 0, 0, 0], [[1, 1], [1 + 2**-10] * 2])


def test_infinity_over_padding_adds_nothing():
    """Every kernel skips what lies outside, and lets through what lies inside."""
    case = Case((1, 1, 1, 1, 1, 3), (1, 1, 1, 1, 1, 3), (1, 1, 1, 1, 1, 3), begin=(0, 0, 1))
    ones, formats = np.ones(case.large, np.float32), ("float32",) * 3
    edge = np.array([np.inf, 1, 1], np.float32).reshape(case.taps)
    np.testing.assert_array_equal(
        call(plain_loops.forward, case, ones, edge, case.small, formats).ravel(), [2, np.inf, np.inf])
    np.testing.assert_array_equal(
        call(plain_loops.backward_data, case, ones, edge, case.large, formats).ravel(), [np.inf, np.inf, 2])
    np.testing.assert_array_equal(
        call(plain_loops.backward_weights, case, ones, edge, case.taps, formats).ravel(), [2, np.inf, np.inf])
    zeros = np.zeros(case.large, np.float32)
    np.testing.assert_array_equal(
        call(plain_loops.forward, case, zeros, edge, case.small, formats).ravel(), [0, np.nan, np.nan])


# ---------------------------------------------------------------------------------------------------------------------
# To the bit


@settings(max_examples=25)
@given(cases(), SEEDS, st.sampled_from([np.float32, np.float64]))
def test_sums_run_in_the_stated_order(case, seed, dtype):
    large, small, taps = drawn_arrays(case, seed, dtype)
    formats = (np.dtype(dtype).name,) * 3
    np.testing.assert_array_equal(
        call(plain_loops.forward, case, large, taps, case.small, formats), reference.ordered_forward(case, large, taps))
    np.testing.assert_array_equal(
        call(plain_loops.backward_data, case, small, taps, case.large, formats),
        reference.ordered_backward_data(case, small, taps))
    np.testing.assert_array_equal(
        call(plain_loops.backward_weights, case, large, small, case.taps, formats),
        reference.ordered_backward_weights(case, large, small))


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float16", "float32"])
@pytest.mark.parametrize(("channels", "rows"), [(15, 8), (16, 7), (16, 8), (21, 9), (32, 8), (33, 8), (49, 8), (70, 8)])
def test_wide_sums_are_taken_in_blocks(channels, rows, name):
    """Of formats within bfloat16, where there are 16 channels to sum and 8 to compute, all others in one chain."""
    blocks = channels >= 16 and rows >= 8 and name not in ("float16", "float32")
    formats = (name, name, "float32")
    case = Case((1, 1, channels, 1, 1, 4), (1, 1, rows, 1, 1, 4), (1, rows, channels, 1, 1, 3), begin=(0, 0, 1))
    large, _, taps = (a.astype(STORED[name]) for a in drawn_arrays(case, channels))
    values = [a.astype(np.float32) for a in (large, taps)]
    np.testing.assert_array_equal(
        call(plain_loops.forward, case, large, taps, case.small, formats),
        reference.ordered_forward(case, *values, blocks))
    case = Case((1, 1, rows, 1, 1, 4), (1, 1, channels, 1, 1, 4), (1, channels, rows, 1, 1, 3), begin=(0, 0, 1))
    _, small, taps = (a.astype(STORED[name]) for a in drawn_arrays(case, channels))
    values = [a.astype(np.float32) for a in (small, taps)]
    np.testing.assert_array_equal(
        call(plain_loops.backward_data, case, small, taps, case.large, formats),
        reference.ordered_backward_data(case, *values, blocks))


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float16"])
@pytest.mark.parametrize(("batch", "large_channels", "channels", "rows", "columns", "taps"), [
    (1, 2, 9, 1, 40, 3), (3, 2, 9, 5, 7, 3), (2, 2, 10, 4, 16, 1), (2, 2, 8, 5, 7, 3), (1, 1, 9, 1, 4129, 1)])
def test_wide_weights_take_positions_in_blocks(batch, large_channels, channels, rows, columns, taps, name):
    """From a piece's first position on, in the padding too; where the small side has more than 8 channels."""
    blocks = channels > 8 and name != "float16"
    case = Case((batch, 1, large_channels, 1, rows, columns), (batch, 1, channels, 1, rows, columns),
                (1, channels, large_channels, 1, 1, taps), begin=(0, 0, taps // 2))
    large, small, _ = (a.astype(STORED[name]) for a in drawn_arrays(case, columns))
    values = [a.astype(np.float32) for a in (large, small)]
    np.testing.assert_array_equal(
        call(plain_loops.backward_weights, case, large, small, case.taps, (name, name, "float32")),
        reference.ordered_backward_weights(case, *values, blocks))


@pytest.mark.parametrize(("batch", "rows", "columns"), [(1, 1, 4096), (1, 1, 4097), (2, 3, 2048), (3, 11, 745)])
def test_long_sums_are_cut_by_the_shape(batch, rows, columns):
    """1, 1, 3 and 7 pieces: lines are not divided where channels are few."""
    case = Case((batch, 1, 1, 1, rows, columns), (batch, 1, 1, 1, rows, columns), (1, 1, 1, 1, 1, 1))
    large, small, _ = drawn_arrays(case, columns)
    formats = ("float64",) * 3
    np.testing.assert_array_equal(
        call(plain_loops.backward_weights, case, large, small, case.taps, formats),
        reference.ordered_backward_weights(case, large, small))
    bias = np.full(1, 9.0)
    plain_loops.bias_sum(small, bias, formats=formats[:2])
    assert bias == reference.ordered_backward_weights(case, np.ones(case.large), small).item()


@pytest.mark.parametrize(("channels", "expected"), [(9, 1), (2048, 1 + 2**-23)])
def test_many_sums_get_fewer_pieces(channels, expected):
    """Three pieces of 4096 positions, or two of 6144, whose border then parts the 1 from what it would swallow."""
    case = Case((1, 1, channels, 1, 1, 3), (1, 1, channels, 1, 1, 12288), (1, channels, channels, 1, 1, 1),
                begin=(0, 0, 6143))
    large = np.broadcast_to(np.array([1, 2**-24, 2**-24], np.float32), case.large)
    small = np.broadcast_to(np.float32(1), case.small)
    got = call(plain_loops.backward_weights, case, large, small, case.taps, ("float32",) * 3)
    assert (got == np.float32(expected)).all()


# ---------------------------------------------------------------------------------------------------------------------
# Through the front door


def test_operands_of_different_formats_meet_exactly():
    case = Case((1, 1, 2, 1, 1, 8), (1, 1, 3, 1, 1, 6), (1, 3, 2, 1, 1, 3))
    large, small, taps = drawn_arrays(case, 5)
    wide = [a.astype(t).astype(np.float32) for a, t in ((large, np.float16), (taps, ml_dtypes.bfloat16),
                                                         (small, ml_dtypes.float8_e5m2))]
    mixed = call(FORWARD, case, large.astype(np.float16), taps.astype(ml_dtypes.bfloat16), case.small,
                 ("float16", "bfloat16", "float32"))
    np.testing.assert_array_equal(mixed, call(FORWARD, case, wide[0], wide[1], case.small, ("float32",) * 3))
    mixed = call(BACKWARD_WEIGHTS, case, large.astype(np.float16), small.astype(ml_dtypes.float8_e5m2),
                 case.taps, ("float16", "float8_e5m2", "float32"))
    np.testing.assert_array_equal(
        mixed, call(BACKWARD_WEIGHTS, case, wide[0], wide[2], case.taps, ("float32",) * 3))


@pytest.mark.parametrize("formats", [("float64", "float32", "float64"), ("float64", "float64", "float32"),
                                     ("float32", "float32", "float64")])
def test_float64_stands_alone(formats):
    case = Case((1,) * 6, (1,) * 6, (1,) * 6)
    large, taps = (np.ones(case.large, STORED[name]) for name in formats[:2])
    with pytest.raises(TypeError):
        call(FORWARD, case, large, taps, case.small, formats)
