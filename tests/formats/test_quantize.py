"""Rounding to formats: every boundary in every rounding, against other libraries, and free of layout and threads."""

from __future__ import annotations

import csv
from functools import cache

import ml_dtypes
import numpy as np
import pytest
import rounding_model as model
from convreg.ops.kernels import reference
from places import DATA
from rounding_model import FORMATS, NARROW, PLAIN_ROUNDINGS, as_float64, boundaries, spread

import convreg
from convreg import OpError, OpTypeError, UnknownOp
from convreg.conversion import round_operand
from convreg.roles import Precision


def codes(array: np.ndarray) -> np.ndarray:
    return array.view(f"u{array.itemsize}")


@pytest.mark.parametrize("saturate", [False, True])
@pytest.mark.parametrize("rounding", PLAIN_ROUNDINGS)
@pytest.mark.parametrize("name", NARROW)
def test_every_boundary(name, rounding, saturate, isa):
    for points in (boundaries(name), spread(20000), as_float64(spread(20000)),
                   boundaries(name, np.float64)):
        got = convreg.quantize(points, name, rounding=rounding, saturate=saturate)
        assert got.dtype == FORMATS[name].dtype
        np.testing.assert_array_equal(codes(got), model.quantized(points, name, rounding, saturate))


@pytest.mark.parametrize("name", NARROW)
def test_codes_survive_decoding_and_encoding(name):
    every = np.arange(2 ** FORMATS[name].bits).astype(FORMATS[name].storage)
    number = ~np.isnan(FORMATS[name].values)
    for dtype in (np.float32, np.float64):
        values = convreg.dequantize(every, name, dtype=dtype)
        assert values.dtype == dtype
        np.testing.assert_array_equal(values, FORMATS[name].values)
        for rounding in (*PLAIN_ROUNDINGS, "stochastic"):
            again = codes(convreg.quantize(values, name, rounding=rounding, seed=0))
            np.testing.assert_array_equal(again[number], every[number])
            assert np.isnan(FORMATS[name].values[again[~number]]).all()


def rows(name: str) -> list[dict[str, str]]:
    with (DATA / name).open() as file:
        return list(csv.DictReader(file))


def test_hifloat8_tables():
    table = rows("hifloat8_decode.csv")
    expected = np.array([float.fromhex(row["value_hex"]) for row in table])
    got = convreg.dequantize(np.array([int(row["code"]) for row in table], np.uint8), "hifloat8", dtype=np.float64)
    np.testing.assert_array_equal(got, expected)
    table = rows("hifloat8_encode.csv")
    values = np.array([int(row["f32_bits"], 16) for row in table], np.uint32).view(np.float32)
    for column, saturate in (("code", False), ("code_saturate", True)):
        got = codes(convreg.quantize(values, "hifloat8", saturate=saturate))
        np.testing.assert_array_equal(got, [int(row[column]) for row in table])


@pytest.mark.parametrize("name", NARROW[:4])
def test_defaults_agree_with_numpy_and_ml_dtypes(name):
    dtype = FORMATS[name].dtype
    every = np.arange(65536).astype(np.uint16)
    for x in (every.view(np.float16), every.view(ml_dtypes.bfloat16), spread(300000), boundaries(name)):
        with np.errstate(over="ignore", invalid="ignore"):
            expected = x.astype(np.float32).astype(dtype)
            decoded = expected.astype(np.float32)
        got, number = convreg.quantize(x, name), ~np.isnan(decoded)
        np.testing.assert_array_equal(codes(got)[number], codes(expected)[number])
        assert np.isnan(got[~number].astype(np.float32)).all()
        np.testing.assert_array_equal(convreg.dequantize(got), decoded)


def test_hifloat8_agrees_with_en_dtypes():
    other = np.dtype(pytest.importorskip("en_dtypes").hifloat8)
    for x in (np.arange(65536).astype(np.uint16).view(np.float16), spread(300000), boundaries("hifloat8")):
        with np.errstate(invalid="ignore"):  # signalling NaN
            expected = x.astype(other)
        np.testing.assert_array_equal(codes(convreg.quantize(x, "hifloat8")), expected.view(np.uint8))
        np.testing.assert_array_equal(convreg.dequantize(expected), expected.astype(np.float32))
        out = np.empty(x.shape, other)
        assert convreg.quantize(x, "hifloat8", out=out) is out
        np.testing.assert_array_equal(out.view(np.uint8), expected.view(np.uint8))


@pytest.mark.parametrize("name", NARROW[:4])
def test_roundings_agree_with_gfloat(name):
    gfloat = pytest.importorskip("gfloat")
    formats = pytest.importorskip("gfloat.formats")
    info = {"float16": formats.format_info_binary16, "bfloat16": formats.format_info_bfloat16,
            "float8_e4m3fn": formats.format_info_ocp_e4m3, "float8_e5m2": formats.format_info_ocp_e5m2}[name]
    points = boundaries(name)
    points = np.concatenate([points[:: max(1, points.size // 900)], boundaries(name)[-10:], spread(300)])
    points = points[np.abs(points) >= 2.0**-126]  # NaN out: it has no value to compare
    words = model.philox(7, 0, points.size)
    modes = {"nearest_even": gfloat.RoundMode.TiesToEven, "half_away": gfloat.RoundMode.TiesToAway,
             "toward_zero": gfloat.RoundMode.TowardZero, "stochastic": gfloat.RoundMode.Stochastic}
    for rounding, mode in modes.items():
        for saturate in (False, True):
            got = convreg.dequantize(convreg.quantize(points, name, rounding=rounding, saturate=saturate, seed=7))
            random = [{"srbits": 2**32 - 1 - int(word), "srnumbits": 32} if rounding == "stochastic" else {}
                      for word in words]
            expected = [gfloat.round_float(info, float(x), mode, saturate, **more)
                        for x, more in zip(points, random, strict=True)]
            np.testing.assert_array_equal(got, np.array(expected, np.float64))


@pytest.mark.parametrize("name", NARROW)
def test_kernels_store_what_quantize_returns(name):
    x = np.concatenate([spread(50000), boundaries(name)])
    stored = np.empty((1, 1, 1, 1, 1, x.size), FORMATS[name].storage)
    reference.encode(x.reshape(stored.shape), stored, format=name)
    np.testing.assert_array_equal(codes(convreg.quantize(x, name)), stored.ravel())


def test_float64_is_rounded_once():
    """Just below a tie or a limit in float64, at it in float32."""
    x = np.array([1.0625 - 2.0**-40, 40960 - 1e-9, 1.5 * 2.0**-16 - 2.0**-60])
    np.testing.assert_array_equal(codes(convreg.quantize(x, "hifloat8")), [0x08, 0x6E, 0x07])
    x = np.array([1 + 2.0**-8 + 2.0**-40, 1 + 2.0**-8, 1 + 2.0**-8 - 2.0**-40])
    np.testing.assert_array_equal(codes(convreg.quantize(x, "bfloat16")), [0x3F81, 0x3F80, 0x3F80])
    assert codes(convreg.quantize(464 + 1e-9, "float8_e4m3fn")) == 0x7F
    np.testing.assert_array_equal(convreg.quantize([1e300, -1e300, 2.0**-1074, -0.0], "float8_e5m2").astype(float),
                                  [np.inf, -np.inf, 0, -0.0])


def test_float64_to_float32(isa):
    rng = np.random.default_rng(3)
    x = np.concatenate([rng.integers(0, 2**64, 20000, dtype=np.uint64).view(np.float64),
                        rng.standard_normal(20000) * 2.0 ** rng.integers(-160, 130, 20000),
                        np.array([np.inf, -np.inf, 0.0, -0.0, 2.0**128 - 2.0**103, 2.0**128 - 2.0**102, 2.0**-150])])
    with np.errstate(over="ignore", invalid="ignore"):
        nearest = x.astype(np.float32)
        np.testing.assert_array_equal(convreg.quantize(x, "float32"), nearest)
        cut = np.where(np.abs(nearest.astype(np.float64)) > np.abs(x), np.nextafter(nearest, np.float32(0)), nearest)
    np.testing.assert_array_equal(convreg.quantize(x, "float32", rounding="toward_zero"), cut)
    np.testing.assert_array_equal(np.signbit(convreg.quantize(x, "float32")), np.signbit(x))
    ties = np.array([1 + 2.0**-24, -1 - 2.0**-24, 2.0**-150])
    np.testing.assert_array_equal(convreg.quantize(ties, "float32", rounding="half_away"),
                                  [1 + 2.0**-23, -1 - 2.0**-23, 2.0**-149])
    np.testing.assert_array_equal(convreg.quantize([np.inf, -1e300, np.nan], "float32", saturate=True),
                                  [FORMATS["float32"].largest, -FORMATS["float32"].largest, np.nan])


@pytest.mark.parametrize("source", FORMATS)
@pytest.mark.parametrize("target", convreg.formats())
def test_saturation_leaves_no_infinity(source, target):
    given = convreg.quantize([np.inf, -np.inf, 1.5, np.nan], source)
    largest, infinite = convreg.formats()[target].largest, np.isinf(as_float64(given))
    for rounding in PLAIN_ROUNDINGS:
        got = as_float64(convreg.quantize(given, target, rounding=rounding, saturate=True))
        np.testing.assert_array_equal(got[infinite], np.array([largest, -largest, 1.5, np.nan])[infinite])
        np.testing.assert_array_equal(got[2:], [1.5, 0 if target == "hifloat8" else np.nan])


@cache
def hybrid_numbers(dtype: type) -> tuple[np.ndarray, dict[bool, np.ndarray]]:
    """Numbers, all of 16-bit formats, and their codes by the rule without and with saturation."""
    if dtype == np.float32:
        drawn = np.ldexp(1 + np.random.default_rng(2).random(4000, np.float32), np.arange(4000) % 42 - 25)
        x = np.concatenate([boundaries("hifloat8"), drawn])
    else:
        x = np.arange(65536).astype(np.uint16).view(dtype)
    return x, {saturate: model.hybrid(x, saturate) for saturate in (False, True)}


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_hybrid_is_the_papers_rule(dtype, isa):
    x, expected = hybrid_numbers(dtype)
    for saturate in (False, True):
        got = codes(convreg.quantize(x, "hifloat8", rounding="hybrid", saturate=saturate))
        np.testing.assert_array_equal(got, expected[saturate])
    if dtype == np.float32:  # float64 is cut to float32, exactly where that rule looks
        np.testing.assert_array_equal(
            codes(convreg.quantize(as_float64(x), "hifloat8", rounding="hybrid")), expected[False])
    assert codes(convreg.quantize(dtype(16), "hifloat8", rounding="hybrid")) == (0x41 if dtype == np.float32 else 0x40)


def test_random_words_are_philox():
    """Known answer of the reference implementation: key 0, counter 0."""
    np.testing.assert_array_equal(model.philox(0, 0, 4), [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8])


@pytest.mark.parametrize("name", NARROW)
def test_stochastic_compares_the_fraction_with_a_random_word(name, isa):
    seed = 2**63 + 12345
    for x in (boundaries(name), spread(5001)):
        x = x[np.isfinite(x)]
        _, fraction = model.neighbours(x, name)
        up = model.philox(seed, 0, x.size) < np.floor(fraction * 2.0**32)
        got = convreg.quantize(x, name, rounding="stochastic", seed=seed)
        np.testing.assert_array_equal(codes(got), model.quantized(x, name, "stochastic", up=up))


@pytest.mark.parametrize("source", [np.float32, np.float64])
@pytest.mark.parametrize("name", NARROW)
def test_stochastic_is_unbiased(name, source):
    values = model.grid(name).values
    count = 40000
    for at in (0, 3, values.size // 2, values.size - 3):
        for share in (0.1, 0.5, 0.77):
            low, high = values[at], values[at + 1]
            x = source(low + (high - low) * share)
            if source is np.float64:
                x = np.nextafter(x, np.inf)
            got = convreg.dequantize(convreg.quantize(np.full(count, x), name, rounding="stochastic", seed=at + 1))
            assert set(np.unique(got)) <= {np.float32(low), np.float32(high)}
            exact = (float(x) - low) / (high - low)
            error = np.mean(got > np.float32(low)) - exact
            assert abs(error) < 4.5 * np.sqrt(exact * (1 - exact) / count)


def test_stochastic_float64_uses_its_last_bits():
    """A float64 between two float32 neighbours goes to either."""
    x = np.full(100000, 1 + 2.0**-25)
    got = convreg.quantize(x, "float32", rounding="stochastic", seed=5)
    assert set(np.unique(got)) == {np.float32(1), np.float32(1 + 2.0**-23)}
    assert abs(np.mean(got > 1) - 0.25) < 0.01


@pytest.mark.parametrize("rounding", ["nearest_even", "stochastic"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_layout_and_threads_do_not_show(dtype, rounding, isa):
    rng = np.random.default_rng(1)
    x = (rng.standard_normal((7, 33, 41, 29)) * 100).astype(dtype)
    whole = convreg.quantize(x, "hifloat8", rounding=rounding, seed=9, threads=1)
    swapped = np.empty(x.shape, x.dtype.newbyteorder("S"))
    swapped[...] = x
    crooked = np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(dtype).reshape(x.shape)
    roomy = np.zeros((7, 66, 41, 58), dtype)[:, ::2, :, ::2]
    roomy[...] = x
    layouts = [x, np.asfortranarray(x), x[::-1][::-1], swapped, crooked, roomy,
               np.ascontiguousarray(x.transpose(2, 0, 3, 1)).transpose(1, 3, 0, 2)]
    for layout in layouts:
        assert np.array_equal(layout, x)
        for threads in (1, 2, 7):
            got = convreg.quantize(layout, "hifloat8", rounding=rounding, seed=9, threads=threads)
            np.testing.assert_array_equal(got, whole)
        out = np.zeros((7, 33, 29, 82), convreg.hifloat8).transpose(0, 1, 3, 2)[:, :, ::-2]
        assert convreg.quantize(layout, "hifloat8", rounding=rounding, seed=9, out=out) is out
        np.testing.assert_array_equal(out, whole)
    np.testing.assert_array_equal(convreg.dequantize(whole[::-1, 5:, ::3]), convreg.dequantize(whole)[::-1, 5:, ::3])
    part = convreg.quantize(x[3:], "hifloat8", rounding=rounding, seed=9)
    assert np.array_equal(part, whole[3:]) == (rounding != "stochastic")  # numbers count from the array's own start


def test_many_axes_and_repeated_elements():
    x = np.arange(2.0**10, dtype=np.float32).reshape((2,) * 10)
    mixed = x.transpose(3, 1, 4, 0, 5, 9, 2, 6, 8, 7)[..., ::-1]
    np.testing.assert_array_equal(convreg.quantize(mixed, "bfloat16"), mixed.astype(ml_dtypes.bfloat16))
    wide = np.broadcast_to(np.float32([1, 2, 3]), (50, 3))
    np.testing.assert_array_equal(convreg.quantize(wide, "float16"), wide)


def test_result_keeps_the_memory_order_of_its_source():
    x = np.zeros((5, 6, 7), np.float32, order="F")
    assert convreg.quantize(x, "hifloat8").flags.f_contiguous
    assert convreg.dequantize(convreg.quantize(x.transpose(1, 0, 2), "hifloat8")).strides == (20, 4, 120)


def test_empty_and_scalar():
    for value in (1.5, np.float32(1.5), np.array(1.5), 1):
        got = convreg.quantize(value, "hifloat8")
        assert isinstance(got, np.ndarray)
        assert got.shape == ()
        assert got.dtype == convreg.hifloat8
        back = convreg.dequantize(got)
        assert isinstance(back, np.ndarray)
        assert back.shape == ()
        assert back == float(value)
        assert convreg.dequantize(got[()]) == back  # an element is a numpy.void
    for shape in ((0,), (3, 0, 2)):
        assert convreg.quantize(np.zeros(shape), "float8_e5m2", rounding="stochastic").shape == shape
        assert convreg.dequantize(np.zeros(shape, np.uint8), "hifloat8").shape == shape
    assert convreg.quantize([], "hifloat8").shape == (0,)


def test_sources():
    numbers = [-3, 0, 1, 2, 384]
    for x in (numbers, np.array(numbers, np.int16), np.array(numbers, ml_dtypes.bfloat16), np.float64(numbers)):
        np.testing.assert_array_equal(convreg.quantize(x, "float8_e4m3fn").astype(float), numbers)
    small = convreg.quantize(numbers, "float8_e4m3fn")
    np.testing.assert_array_equal(convreg.dequantize(convreg.quantize(small, "hifloat8"), dtype="float64"), numbers)
    np.testing.assert_array_equal(convreg.quantize(convreg.quantize(small, "hifloat8"), "float64"), numbers)
    for dtype in (np.float16, ml_dtypes.bfloat16):
        values = convreg.dequantize(np.arange(256).astype(np.uint8), "hifloat8", dtype=dtype)
        np.testing.assert_array_equal(values.astype(np.float32), FORMATS["hifloat8"].values)


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "hf32"])
def test_raw_codes_of_every_format_are_read(name):
    numbers = convreg.quantize([[1, -3, 0.5], [0, 2, 448]], name)
    dtype = np.float64 if name == "float64" else np.float32
    expected = as_float64(numbers)
    for raw in (codes(numbers), codes(numbers).T.copy().T, numbers.view(f"V{numbers.itemsize}")):
        np.testing.assert_array_equal(convreg.dequantize(raw, name, dtype=dtype), expected)
    with pytest.raises(OpTypeError, match=f"or uint{8 * numbers.itemsize}, the codes of {name}"):
        convreg.dequantize(codes(numbers).astype(np.int64), name, dtype=dtype)


def test_hybrid_takes_8_bit_sources_for_float16():
    every = np.arange(256).astype(np.uint8)
    for name in NARROW[2:]:
        got = convreg.quantize(every.view(FORMATS[name].dtype), "hifloat8", rounding="hybrid")
        np.testing.assert_array_equal(codes(got), model.hybrid(convreg.dequantize(every, name, dtype=np.float16)))


def test_hf32_rounds_and_stays_float32():
    x = np.concatenate([spread(100000), np.float32([np.inf, -np.inf, 0, -0.0, 1e-44])])
    got = convreg.quantize(x, "hf32")
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, round_operand(x, Precision("hf32", dropped=12)))
    np.testing.assert_array_equal(np.signbit(got), np.signbit(x))


def test_two_runs_without_a_seed_differ():
    x = np.random.default_rng(0).standard_normal(1000)
    first, second = (codes(convreg.quantize(x, "hifloat8", rounding="stochastic")) for _ in range(2))
    assert (first != second).any()


X = np.ones((2, 3), np.float32)
H = np.ones((2, 3), np.uint8).view(convreg.hifloat8)


@pytest.mark.parametrize(("argument", "arguments", "kind"), [
    ("rounding", {"format": "hifloat8", "rounding": "up"}, OpError),
    ("rounding", {"format": "hifloat8", "rounding": ["hybrid"]}, OpError),
    ("rounding", {"format": "bfloat16", "rounding": "hybrid"}, OpError),
    ("saturate", {"format": "hifloat8", "saturate": "yes"}, OpTypeError),
    ("seed", {"format": "hifloat8", "seed": -1}, OpError),
    ("seed", {"format": "hifloat8", "seed": 2**64}, OpError),
    ("seed", {"format": "hifloat8", "seed": 1.5}, OpTypeError),
    ("scale", {"format": "hifloat8", "scale": 3}, OpError),
    ("scale", {"format": "hifloat8", "scale": -2.0}, OpError),
    ("scale", {"format": "hifloat8", "scale": [1, 2, np.nan]}, OpError),
    ("scale", {"format": "hifloat8", "scale": 2.0**128}, OpError),
    ("scale", {"format": "hifloat8", "scale": 2**128}, OpError),
    ("scale", {"format": "hifloat8", "scale": 2**70 + 1}, OpTypeError),
    ("scale", {"format": "hifloat8", "scale": 2**5000}, OpError),
    ("scale", {"format": "hifloat8", "scale": [1, 2]}, OpError),
    ("scale", {"format": "hifloat8", "scale": np.ones((2, 2, 3))}, OpError),
    ("scale", {"format": "hifloat8", "scale": "two"}, OpTypeError),
    ("threads", {"format": "hifloat8", "threads": 0}, OpError),
    ("threads", {"format": "hifloat8", "threads": "two"}, OpTypeError),
    ("format", {"format": np.float32}, OpTypeError),
    ("format", {"format": None}, OpTypeError),
    ("x", {"format": "hifloat8", "x": np.array([1j])}, OpTypeError),
    ("x", {"format": "hifloat8", "x": np.array([True])}, OpTypeError),
    ("x", {"format": "hifloat8", "x": ["one"]}, OpTypeError),
    ("x", {"format": "hifloat8", "x": [[1], [1, 2]]}, OpTypeError),
    ("x", {"format": "hifloat8", "x": [2**53 + 1]}, OpError),
    ("out", {"format": "hifloat8", "out": [0]}, OpTypeError),
    ("out", {"format": "hifloat8", "out": np.empty((3, 2), convreg.hifloat8)}, OpError),
    ("out", {"format": "hifloat8", "out": np.empty((2, 3), np.uint8)}, OpTypeError),
    ("out", {"format": "bfloat16", "out": np.empty((2, 3), np.float16)}, OpTypeError),
    ("out", {"format": "hf32", "out": X}, OpError),
    ("out", {"format": "hifloat8", "out": np.broadcast_to(H[:1], (2, 3))}, OpError),
    ("out", {"format": "float32", "x": X.astype(np.float64), "out": np.lib.stride_tricks.as_strided(
        np.empty(4, np.float32), (2, 3), (4, 4))}, OpError),
])
def test_quantize_refuses(argument, arguments, kind):
    with pytest.raises(kind) as caught:
        convreg.quantize(**{"x": X, **arguments})
    assert type(caught.value) is kind
    assert (caught.value.op, caught.value.argument) == ("convreg::quantize", argument)


@pytest.mark.parametrize(("argument", "arguments", "kind"), [
    ("format", {"codes": H.view(np.uint8)}, OpTypeError),
    ("codes", {"codes": X, "format": "hifloat8"}, OpTypeError),
    ("codes", {"codes": H, "format": "float8_e5m2"}, OpTypeError),
    ("codes", {"codes": np.array(["a"])}, OpTypeError),
    ("dtype", {"codes": H, "dtype": np.int32}, OpTypeError),
    ("dtype", {"codes": H, "dtype": "no such type"}, OpTypeError),
    ("dtype", {"codes": H, "dtype": None}, OpTypeError),
    ("dtype", {"codes": X.astype(np.float16), "dtype": ml_dtypes.bfloat16}, OpTypeError),
    ("dtype", {"codes": X.astype(np.float64)}, OpTypeError),
    ("dtype", {"codes": X.astype(np.float64), "dtype": np.float32}, OpTypeError),
    ("out", {"codes": H, "out": np.empty((2, 3))}, OpTypeError),
    ("out", {"codes": H, "out": np.empty((2,), np.float32)}, OpError),
])
def test_dequantize_refuses(argument, arguments, kind):
    with pytest.raises(kind) as caught:
        convreg.dequantize(**arguments)
    assert type(caught.value) is kind
    assert (caught.value.op, caught.value.argument) == ("convreg::dequantize", argument)


def test_unknown_formats_name_what_comes_near():
    with pytest.raises(UnknownOp, match="no format named 'hifloat'; did you mean hifloat8"):
        convreg.quantize(X, "hifloat")
    with pytest.raises(UnknownOp, match="float8_e4m3fn"):
        convreg.dequantize(H.view(np.uint8), "float8_e4m3")


def test_memory_limit(monkeypatch):
    monkeypatch.setenv("CONVREG_MAX_BYTES", "100")
    with pytest.raises(OpError, match="at most 100 bytes"):
        convreg.dequantize(np.zeros(26, np.uint8), "hifloat8")
    assert convreg.dequantize(np.zeros(25, np.uint8), "hifloat8").size == 25
