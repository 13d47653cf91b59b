"""`convreg.numerics`: metrics by another route."""

from __future__ import annotations

from math import inf, isnan, log10, sqrt

import numpy as np
import pytest

from convreg import OpError, numerics
from convreg.numerics import binades_of, draw, error_of


def test_error_of_a_known_error():
    exact = np.array([3.0, 0.0, -4.0])
    found = error_of(np.array([3.3, 0.0, -4.0]), exact)
    assert found.snr_db == pytest.approx(10 * log10(25 / 0.09))
    assert found.largest_relative == pytest.approx(0.1)
    assert found.mean_relative == pytest.approx(0.05)
    assert found.cosine == pytest.approx((9.9 + 16) / (5 * sqrt(3.3**2 + 16)))


def test_error_of_random_arrays_element_by_element():
    random = np.random.default_rng(0)
    exact, found = random.standard_normal((2, 3, 5, 7))
    exact[0, 0] = 0
    pairs = [(float(a), float(b)) for a, b in zip(found.ravel(), exact.ravel(), strict=True)]
    relative = [abs(a - b) / abs(b) for a, b in pairs if b]
    error = error_of(found, exact)
    assert error.snr_db == pytest.approx(
        10 * log10(sum(b * b for _, b in pairs) / sum((a - b)**2 for a, b in pairs)))
    assert error.largest_relative == pytest.approx(max(relative))
    assert error.mean_relative == pytest.approx(sum(relative) / len(relative))
    assert error.cosine == pytest.approx(
        sum(a * b for a, b in pairs) / sqrt(sum(a * a for a, _ in pairs) * sum(b * b for _, b in pairs)))


@pytest.mark.parametrize("scale", [2.0**-900, 2.0**-1040, 2.0**900])
def test_error_does_not_depend_on_size(scale):
    exact, found = np.array([1.0, -2.0, 0.5]), np.array([1.25, -2.0, 0.5])
    assert error_of(found * scale, exact * scale) == error_of(found, exact)


def test_error_at_the_edges():
    exact = np.array([1.0, 2.0])
    assert error_of(exact, exact) == numerics.Error(inf, 0.0, 0.0, pytest.approx(1.0))
    broken = error_of(np.array([1.0, np.nan]), exact)
    assert (broken.snr_db, broken.largest_relative, broken.mean_relative) == (-inf, inf, inf)
    assert isnan(broken.cosine)
    nothing = error_of(np.zeros(2), exact)
    assert (nothing.snr_db, nothing.largest_relative, nothing.mean_relative) == (0.0, 1.0, 1.0)
    assert isnan(nothing.cosine)
    from_nothing = error_of(exact, np.zeros(2))
    assert (from_nothing.snr_db, from_nothing.largest_relative, from_nothing.mean_relative) == (-inf, 0.0, 0.0)
    assert error_of(np.zeros(0), np.zeros(0)).snr_db == inf
    for factor in (1e200, 1e-200):  # whose squares are out of range
        assert error_of(exact * factor, exact).cosine == pytest.approx(1.0)
    assert error_of(np.ones(2), np.array([1.0, 2.0**-1074])).largest_relative == inf


@pytest.mark.parametrize(("function", "given", "argument"), [
    (error_of, (np.ones(3, np.float32), np.ones(3)), "array"), (binades_of, (np.ones(3, np.float32),), "values")])
def test_without_memory_the_argument_is_named(monkeypatch, function, given, argument):
    """Conversions of their own call it otherwise."""
    def fail(*args, **kwargs):
        raise MemoryError

    monkeypatch.setattr(np, "empty_like", fail)
    with pytest.raises(OpError, match="fits the memory that is free") as caught:
        function(*given)
    assert (caught.value.op, caught.value.argument, caught.value.rule) == ("convreg::numerics", argument, "memory")


def test_binades():
    values = np.array([[0.0, -0.0, 1.0, 1.999], [-2.0, 0.75, np.inf, np.nan]])
    found = binades_of(values)
    assert found == numerics.Binades({-1: 1, 0: 2, 1: 1}, 2, 2)
    assert found.to_dict() == {"counts": {"-1": 1, "0": 2, "1": 1}, "zeros": 2, "infinite": 2}
    random = draw("lognormal", (1000,), 3)
    expected = {}
    for number in random.tolist():
        exponent = int(abs(number).hex().partition("p")[2])  # of a normal number's only spelling
        expected[exponent] = expected.get(exponent, 0) + 1
    assert binades_of(random).counts == expected
