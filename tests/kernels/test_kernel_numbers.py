"""The number formats of the kernels: every code decoded, every boundary rounded."""

from __future__ import annotations

import numpy as np
import pytest
from convreg.ops.kernels import reference
from kernel_cases import CODES, STORED


def decoded(codes: np.ndarray, name: str) -> np.ndarray:
    values = np.empty((1, 1, 1, 1, 1, codes.size), np.float32)
    reference.decode(codes.reshape(values.shape), values, format=name)
    return values.ravel()


def encoded(values: np.ndarray, name: str, dtype) -> np.ndarray:
    codes = np.empty((1, 1, 1, 1, 1, values.size), dtype)
    reference.encode(values.reshape(codes.shape), codes, format=name)
    return codes.ravel()


def boundaries(values: np.ndarray) -> np.ndarray:
    """Every value, every midpoint of neighbours, and the floats beside each, both signs, and the specials."""
    ordered = np.unique(np.abs(values[np.isfinite(values)])).astype(np.float64)
    step = ordered[-1] - ordered[-2]
    middle = np.concatenate([(ordered[1:] + ordered[:-1]) / 2, [ordered[-1] + step / 2]])
    points = np.concatenate([ordered, middle, [2**-149, 2**-126, 3e38]]).astype(np.float32)
    up, down = (np.nextafter(points, np.float32(end)) for end in (np.inf, -np.inf))
    points = np.concatenate([points, up, down])
    return np.concatenate([points, -points, np.array([np.inf, -np.inf, 0.0, -0.0], np.float32)])


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_codes_mean_what_numpy_says(name):
    dtype = np.dtype(STORED[name])
    codes = np.arange(256**dtype.itemsize, dtype=CODES[dtype.itemsize])
    with np.errstate(invalid="ignore"):  # processors differ in what they say of a signalling NaN
        expected = codes.view(dtype).astype(np.float32)
    number = ~np.isnan(expected)
    values = decoded(codes, name)
    np.testing.assert_array_equal(values.view(np.uint32)[number], expected.view(np.uint32)[number])
    assert np.isnan(values[~number]).all()
    np.testing.assert_array_equal(encoded(values[number], name, codes.dtype), codes[number])
    assert np.isnan(decoded(encoded(values[~number], name, codes.dtype), name)).all()
    points = boundaries(expected)
    with np.errstate(over="ignore"):
        rounded = points.astype(dtype)
    got = encoded(points, name, codes.dtype)
    number = ~np.isnan(rounded.astype(np.float32))
    np.testing.assert_array_equal(got[number], rounded.view(codes.dtype)[number])
    assert np.isnan(decoded(got[~number], name)).all()


def hifloat8_values() -> np.ndarray:
    """The 256 values by the format's table: prefix, width of the exponent field, width of the mantissa."""
    values = np.zeros(256)
    for code in range(1, 128):
        for prefix, shift, width, mantissa in ((3, 5, 4, 1), (2, 5, 3, 2), (1, 5, 2, 3), (1, 4, 1, 3), (1, 3, 0, 3)):
            if code >> shift == prefix:
                field = code >> mantissa & (1 << width) - 1
                magnitude = (1 << width - 1) + field % (1 << width - 1) if width else 0
                exponent = -magnitude if width and field >> width - 1 else magnitude
                values[code] = 2.0**exponent * (1 + (code & (1 << mantissa) - 1) / 2**mantissa)
                break
        else:
            values[code] = 2.0 ** (code - 23)
    values[0x6F] = np.inf
    values[128:] = -values[:128]
    values[0x80] = np.nan
    return values.astype(np.float32)


def test_hifloat8_is_its_table_and_rounds_half_away():
    values = hifloat8_values()
    np.testing.assert_array_equal(decoded(np.arange(256, dtype=np.uint8), "hifloat8"), values)
    np.testing.assert_array_equal(encoded(values, "hifloat8", np.uint8), np.arange(256))
    points = boundaries(values)
    ordered = np.unique(values[np.isfinite(values) & (values >= 0)])
    middle = np.append((ordered[1:] + ordered[:-1]) / 2, 40960)
    nearest = np.append(ordered, np.inf)[np.searchsorted(middle, np.abs(points), side="right")]
    got = encoded(points, "hifloat8", np.uint8)
    np.testing.assert_array_equal(decoded(got, "hifloat8"), np.copysign(nearest, points))
    assert (got[nearest == 0] == 0).all()
