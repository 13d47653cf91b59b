"""Fills: equal bytes on every machine, ranges, values that must occur, exact sums, corner values."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from math import inf, nan

import numpy as np
import pytest
from golden_cases import ascend_case, data_case, sha256, weights_case
from hypothesis import given, settings
from hypothesis import strategies as st

import convreg
from convreg import OpError
from convreg.formats import FORMATS
from convreg.golden import FILLS, Case, Operand, fills
from convreg.golden.fills import Size
from convreg.golden.randomness import integers, normal, places, stream, uniform, words

NARROW = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "hifloat8")


def numbers(array: np.ndarray) -> np.ndarray:
    return convreg.dequantize(array, dtype=np.float64)


def quantizing(operand: Operand, name: str = "case") -> Case:
    """A case of one operand of any format and shape."""
    if operand.format in NARROW:
        return Case(name, "nodes::Dequantize", {"x": operand}, {})
    return Case(name, "nodes::Quantize", {"x": operand}, {"format": "bfloat16"})


def drawn(operand: Operand, fill: str = "normal", seed: int = 0, name: str = "case") -> np.ndarray:
    return quantizing(operand, name).make(seed=seed, fill=fill).inputs["x"]


HASHES = {
    ("normal", "float32"): "16596bd0d298014e8a01f9798799c1e0",
    ("normal", "float16"): "e14a56d691a90fe1c5d9ad7879730aec",
    ("normal", "bfloat16"): "3090bc2ce7a49d0e03d49d034850f10f",
    ("normal", "float8_e4m3fn"): "8c6bc29f2a6c38e5dfef4701e7fb255b",
    ("normal", "float8_e5m2"): "54fe598603fee9365c75615961990fec",
    ("normal", "hifloat8"): "0cf442e94d01ab64937ccb9aa123aa8e",
    ("uniform", "float32"): "fb8f55a5ab9548fc2aeb8f3a4fde6ac3",
    ("uniform", "hifloat8"): "15e891c5ded2584915e58033e39ef9b2",
    ("integers", "float32"): "3c01a0ab0fb293ef75a2fbfcb80d2d37",
    ("integers", "hifloat8"): "3180b879ac36e47dbbd915ebf86ab233",
    ("ones", "float32"): "c7f653040c9c8296b123ac3df42a35a8",
    ("ones", "hifloat8"): "8ac220690d79e6e8eae4c1145072b498",
    ("special", "float32"): "b34f185ca5760fb42a2b7d05d1bb9c19",
    ("special", "hifloat8"): "27e6ebc6760181373d0d82dc76eb79f8",
}
"""The first half of the SHA-256, by fill and format."""


@pytest.mark.parametrize(("fill", "format"), HASHES)
def test_bytes_are_the_same_everywhere(fill, format):
    """The values do not depend on NumPy's version, the processor or the instruction set."""
    assert sha256(drawn(Operand((33, 7), format), fill))[:32] == HASHES[fill, format]


def philox(counter: int, key: int) -> list[int]:
    """Philox 4x64 with ten rounds (Salmon and others, SC 2011), in Python's integers."""
    mask = 2**64 - 1
    c0, c1, c2, c3 = (counter >> shift & mask for shift in (0, 64, 128, 192))
    k0, k1 = key & mask, key >> 64
    for _ in range(10):
        first, second = 0xD2E7470EE14C6C93 * c0, 0xCA5A826395121157 * c2
        c0, c1, c2, c3 = second >> 64 ^ c1 ^ k0, second & mask, first >> 64 ^ c3 ^ k1, first & mask
        k0, k1 = k0 + 0x9E3779B97F4A7C15 & mask, k1 + 0xBB67AE8584CAA73B & mask
    return [c0, c1, c2, c3]


def test_the_words_are_those_of_philox():
    """The block of counter 0 is a known answer of Random123; streams begin with counter 1."""
    assert philox(0, 0) == [0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B]
    key = int.from_bytes(hashlib.sha256(b'["convreg.golden", 1, 7, "case", "x"]').digest()[:16], "little")
    assert words(stream(7, "case", "x"), 8).tolist() == [*philox(1, key), *philox(2, key)]
    first, second = stream("a", 1), stream("a", 1)
    assert words(first, 5).tolist() == [*words(second, 2).tolist(), *words(second, 3).tolist()]
    assert stream("a", 1).random_raw() != stream("a", 2).random_raw() != stream("b", 1).random_raw()


def test_values_do_not_depend_on_what_was_made_before():
    first = ascend_case().make(seed=3)
    ascend_case("other").make(seed=3)
    again = ascend_case().make(seed=3, threads=1)
    for name, array in first.inputs.items():
        assert array.tobytes() == again.inputs[name].tobytes()
    for other in (ascend_case("other").make(seed=3), ascend_case().make(seed=4),
                  ascend_case().make(seed=3, fill="uniform")):
        assert all(array.tobytes() != other.inputs[name].tobytes() for name, array in first.inputs.items())
    longer = drawn(Operand((2**19,), "float32"))  # more than a block
    np.testing.assert_array_equal(longer[:1000], drawn(Operand((1000,), "float32")))


def test_normal_numbers():
    values = normal(words(stream("normal"), 2**20))
    assert abs(values.mean()) < 0.004
    assert abs(values.var() - 1) < 0.006
    assert abs((values**4).mean() - 2.96) < 0.04
    extremes = normal(np.array([0, 2**64 - 1], np.uint64))
    np.testing.assert_allclose(extremes, [-7.048, 7.048], atol=1e-3)
    ordered = np.sort(values)[[2**20 * share // 100 for share in (2, 16, 50, 84, 98)]]
    np.testing.assert_allclose(ordered, [-2.054, -0.994, 0, 0.994, 2.054], atol=0.02)  # of the normal distribution


def test_other_numbers():
    few = np.array([0, 2**63, 2**64 - 1], np.uint64)
    assert uniform(few, -3, 5).tolist() == [-3, 1, 5 - 2.0**-50]
    assert integers(few, -2, 2).tolist() == [-2, 0, 2]
    found = places(stream("places"), 7, 7)
    assert sorted(found) == list(range(7))
    assert len(set(places(stream("places"), 1000, 40))) == 40


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("format", [*NARROW, "float32", "float64"])
def test_every_fill_in_every_format(fill, format):
    shape, size = (2, 3, 5), Size(8, 1.0)
    array = fills._values("case", "x", Operand(shape, format), 0, fill, size)
    assert array.dtype == FORMATS[format].dtype
    assert array.shape == shape
    if fill != "special":
        assert np.isfinite(numbers(array)).all()


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([*NARROW, "float32"]), st.sampled_from(list(FILLS)),
       st.floats(-100, 100, width=32), st.floats(0, 50, width=32))
def test_a_range_holds_for_every_fill(format, fill, low, width):
    """Every number lies in the range, after rounding too, unless the format has none there."""
    operand = Operand((40,), format, low, low + width)
    values = numbers(drawn(operand, fill))
    known = FORMATS[format].values if FORMATS[format].bits <= 16 else np.float32([low])
    if ((known >= low) & (known <= low + width)).any():
        assert values.min() >= low
        assert values.max() <= low + width
    else:
        assert len(set(values.tolist())) == 1


@pytest.mark.parametrize(("low", "high", "expected"), [
    (0.1, 0.1, np.float32(0.1)), (0, 0, 0), (inf, inf, inf), (-inf, -inf, -inf),
    (1e300, 1e301, np.finfo(np.float32).max), (16777217, 16777217, 16777216)])
def test_a_range_of_one_number_is_a_constant(low, high, expected):
    for fill in FILLS:
        assert set(drawn(Operand((9,), "float32", low, high), fill).tolist()) == {float(expected)}


def test_a_range_of_nan():
    assert np.isnan(numbers(drawn(Operand((5,), "hifloat8", nan, nan)))).all()


def test_an_infinite_range_takes_finite_numbers():
    values = numbers(drawn(Operand((500,), "float16", -inf, inf)))
    assert np.isfinite(values).all()
    assert values.min() < -50000
    assert values.max() > 50000


@pytest.mark.parametrize("fill", FILLS)
def test_values_that_must_occur(fill):
    """They stand at places that the seed decides, in the range or not, and are rounded to the format."""
    occurring = (inf, nan, 0.5, -3.0, 0.1)
    operand = Operand((4, 5), "bfloat16", -0.25, 0.25, occurring)
    array = drawn(operand, fill)
    values = numbers(array)
    wanted = numbers(convreg.quantize(np.array(occurring), "bfloat16"))
    for value in wanted:
        assert np.isnan(values).any() if np.isnan(value) else (values == value).any()
    others = values[~(np.isnan(values) | np.isin(values, wanted))]
    assert abs(others).max(initial=0) <= 0.25
    assert drawn(replace(operand, occurring=occurring[:1]), fill, seed=1).tobytes() != \
        drawn(replace(operand, occurring=occurring[:1]), fill, seed=2).tobytes()
    with pytest.raises(OpError, match="at most 4"):
        drawn(replace(operand, shape=(2, 2)), fill)
    assert drawn(replace(operand, shape=(0, 2)), fill).shape == (0, 2)


@pytest.mark.parametrize("format", [*NARROW, "float32"])
@pytest.mark.parametrize("case", [data_case, weights_case, ascend_case])
def test_integers_make_exact_sums(case, format):
    """The float32 result is the float64 one rounded once, in whatever order it is summed."""
    made = case(format=format)
    made = replace(made, conformance="emulation", attributes=dict(made.attributes))
    golden = made.make(fill="integers")
    operator = convreg.get(golden.op)
    wide = operator.reference(**golden.inputs, **golden.attributes, conformance="emulation")
    wide = wide if isinstance(wide, tuple) else (wide,)
    magnitudes = operator.reference(**{name: convreg.quantize(abs(numbers(array)), format)
                                       for name, array in golden.inputs.items()}, **golden.attributes,
                                    conformance="emulation")
    magnitudes = magnitudes if isinstance(magnitudes, tuple) else (magnitudes,)
    for exact, whole, array in zip(wide, magnitudes, golden.outputs.values(), strict=True):
        assert (exact == np.rint(exact)).all()
        assert whole.max() <= 2**24
        assert array.tobytes() == convreg.quantize(exact, convreg.formats()[format].name).tobytes()
    values = numbers(next(iter(golden.inputs.values())))
    assert abs(values).max() == {"float32": 32, "float16": 8}.get(format, 4)
    assert len(np.unique(values)) > 6


@pytest.mark.parametrize(("spatial", "largest"), [(2**8, 32), (2**18, 7), (2**22, 1), (2**26, 1)])
def test_long_sums_take_smaller_integers(spatial, largest):
    """n max|a| max|b| stays below 2**24; beyond that most numbers are 0. The sizes are planned, not drawn."""
    case = Case("long", "onednn::ConvolutionBackwardWeights", {
        "src": Operand((1, 1, spatial), "float32"), "diff_dst": Operand((1, 1, spatial), "float32")}, {
        "strides": [1], "pads_begin": [0], "pads_end": [0], "dilations": [1], "data_format": "NCX",
        "weights_format": "OIX", "weights_shape": [1, 1, 1]})
    size = fills._size(case)
    everything = fills.Range(-inf, inf, False)
    values = fills.FILLS["integers"][1](words(stream("x"), 4096), FORMATS["float32"], everything, size)
    assert abs(values).max() == largest
    assert (values != 0).mean() ** 2 * spatial * largest**2 <= 2**24


def test_integers_in_a_small_range_are_multiples_of_a_power_of_two():
    values = numbers(drawn(Operand((300,), "bfloat16", -0.1, 0.1), "integers"))
    assert set(values * 64) == {-4, -3, -2, -1, 0, 1, 2, 3, 4}
    assert set(numbers(drawn(Operand((300,), "float32", 0, 1), "integers")) * 4) == {0, 1, 2, 3, 4}
    assert set(numbers(drawn(Operand((300,), "float32", 5.2, 5.8), "integers"))) == {5.5}
    assert set(numbers(drawn(Operand((300,), "float32", 100, 900), "integers"))) == set(range(100, 165))
    assert set(numbers(drawn(Operand((300,), "bfloat16", -900, -100), "integers"))) <= set(range(-109, -99))


def test_corner_values():
    for format in [*NARROW, "float32"]:
        array, known = drawn(Operand((500,), format), "special"), FORMATS[format]
        values = numbers(array)
        assert np.isnan(values).sum() == 1
        assert np.isinf(values).sum() == (0 if known.infinity is None else 2)
        for value in (known.largest, -known.largest, known.smallest, -known.smallest, known.smallest_normal,
                      1 + 2.0**-known.mantissa, 1.5):
            assert (values == value).any()
        zeros = values[values == 0]
        assert np.signbit(zeros).any() == known.negative_zero
        assert (~np.signbit(zeros)).any()


def test_corner_values_of_small_operands_and_ranges():
    """At most a quarter of an operand; another case has other ones. In a range only what lies there."""
    found = [drawn(Operand((8,), "float16"), "special", name=str(name)) for name in range(20)]
    assert len({array.tobytes() for array in found}) == 20
    assert all(np.isnan(array).sum() <= 1 for array in found)
    values = numbers(drawn(Operand((200,), "float16", 0, 2), "special"))
    assert set(values) >= {0, 2.0**-24, 2.0**-14, 1.5, 1 + 2.0**-10}
    assert values.min() >= 0
    assert values.max() <= 2


def test_given_values_are_taken():
    values = np.float32([[1.0, 2.7]])
    assert drawn(Operand((1, 2), "float32", values=values)).tolist() == values.tolist()
    rounded = drawn(Operand((1, 2), "float8_e5m2", values=values))
    assert numbers(rounded).tolist() == [[1.0, 2.5]]
    case = replace(data_case(), attributes={name: value for name, value in data_case().attributes.items()
                                            if name != "dst_shape"})
    case = replace(case, inputs={**case.inputs, "dst_shape": Operand((4,), "int32", values=np.array([2, 6, 10, 8]))})
    golden = case.make()
    assert golden.inputs["dst_shape"].dtype == np.int32
    assert golden.outputs["diff_src"].tobytes() == data_case().make().outputs["diff_src"].tobytes()


@pytest.mark.parametrize(("operand", "options", "message"), [
    (Operand((2,), "float32"), {"fill": "gauss"}, "fill='gauss'"),
    (Operand((2,), "float32"), {"fill": None}, "fill=None"),
    (Operand((2,), "float32"), {"seed": -1}, "seed=-1"),
    (Operand((2,), "float32"), {"seed": 1.5}, "seed=1.5"),
    (Operand((2,), "float31"), {}, "x='float31'"),
    (Operand((2,), "int32"), {}, "x='int32'"),
    (Operand((2,), "hf32"), {}, "x='hf32'"),
    (Operand((2,), "float32", 1.0), {}, "x=[1.0, None]"),
    (Operand((2,), "float32", 2.0, 1.0), {}, "x=[2.0, 1.0]"),
    (Operand((2**50,), "float32"), {}, "CONVREG_MAX_BYTES"),
    (Operand((-1,), "float32"), {}, "none below 0"),
    (Operand((3,), "float32", values=np.zeros(2, np.float32)), {}, "values of shape [3]"),
])
def test_refusals(operand, options, message):
    with pytest.raises(OpError) as caught:
        quantizing(operand).make(**options)
    assert message in str(caught.value)
