"""Powers of two that numbers are multiplied by before `quantize` rounds them."""

from __future__ import annotations

import numpy as np
import pytest

import convreg
from convreg import OpError


def codes(array: np.ndarray) -> np.ndarray:
    return array.view(f"u{array.itemsize}")


@pytest.mark.parametrize("rounding", [None, "toward_zero", "stochastic"])
@pytest.mark.parametrize("source", ["float64", "float32", "bfloat16", "hifloat8"])
@pytest.mark.parametrize("target", ["hifloat8", "float8_e4m3fn", "bfloat16", "float32"])
def test_scales_multiply_before_the_rounding(target, source, rounding, isa):
    rng = np.random.default_rng(7)
    plain = rng.standard_normal((3, 5, 7, 29)) * 2.0 ** rng.integers(-9, 9, (3, 5, 7, 29))
    base = plain if source == "float64" else convreg.quantize(plain, source)
    for given in (base, base.transpose(0, 2, 3, 1), base[:, ::-1, ::2], base[0, 0, 0, 0]):
        wide = given if source == "float64" else convreg.dequantize(given)
        for shape in ((), (*given.shape[1:2], 1, 1), given.shape):
            if len(shape) > given.ndim:
                continue
            scale = 2.0 ** rng.integers(-9, 9, shape)
            got = convreg.quantize(given, target, rounding=rounding, seed=3, scale=scale)
            product = (wide * scale).astype(wide.dtype)
            expected = convreg.quantize(product, target, rounding=rounding, seed=3)
            assert got.shape == given.shape
            np.testing.assert_array_equal(codes(got), codes(expected))


def test_scales_may_be_integers_of_any_size():
    x = np.array([2.0**-69, 2.0**-70], np.float32)
    for scale in (2**70, [2**70, 2**70], 2.0**70):
        assert convreg.quantize(x, "float8_e5m2", scale=scale).astype(np.float32).tolist() == [2.0, 1.0]


def test_scales_do_not_depend_on_threads():
    x = np.random.default_rng(8).standard_normal((4, 64, 40, 40)).astype(np.float32)
    scale = 2.0 ** np.arange(-32, 32).reshape(64, 1, 1)
    one, two = (convreg.quantize(x, "hifloat8", scale=scale, threads=threads) for threads in (1, 2))
    np.testing.assert_array_equal(codes(one), codes(two))


def test_products_of_float64_are_float64():
    """Out of range they are infinite or zero, as in every rounding, and no warning says so."""
    x = np.array([1.7e308, -1.7e308, 1 / 3, 2.0**-1074])
    largest = np.finfo(np.float64).max
    for rounding in ("nearest_even", "toward_zero"):
        got = convreg.quantize(x, "float64", rounding=rounding, scale=2)
        np.testing.assert_array_equal(got, [np.inf, -np.inf, 2 / 3, 2.0**-1073])
    np.testing.assert_array_equal(convreg.quantize(x, "float64", scale=2, saturate=True),
                                  [largest, -largest, 2 / 3, 2.0**-1073])
    assert convreg.quantize(x, "float64", scale=2.0**-126)[3] == 0


def test_products_of_narrower_numbers_are_float32():
    x = np.float32([3e38, -3e38, 1.5])
    largest = np.finfo(np.float64).max
    np.testing.assert_array_equal(convreg.quantize(x, "float64", scale=4), [np.inf, -np.inf, 6])
    np.testing.assert_array_equal(convreg.quantize(x, "float64", scale=4, saturate=True), [largest, -largest, 6])
    assert convreg.quantize(x, "bfloat16", scale=4, rounding="toward_zero")[0] == np.inf


@pytest.mark.parametrize("scale", [
    2**53 + 1, 2**60 + 1, np.uint64(2**63 + 1), np.int64(-2**63), [2, 2**60 + 1], np.longdouble(2) ** 2000,
    np.nextafter(np.longdouble(2), np.longdouble(3)), np.nextafter(2.0, 3.0), 2.0**-127, 0, np.inf])
def test_what_only_rounds_to_a_power_is_refused(scale):
    with pytest.raises(OpError, match="powers of two from") as caught:
        convreg.quantize([1.0, 1.0], "float32", scale=scale)
    assert caught.value.argument == "scale"


@pytest.mark.parametrize("scale", [2**53, np.uint64(2**63), 2**127, 2.0**127, 2.0**-126, np.longdouble(2)])
def test_powers_of_every_type_are_taken(scale):
    assert convreg.quantize(1.0, "float64", scale=scale) == float(scale)
