"""`convreg.numerics`: scales, rows against the operators' own low precision, reports."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from math import inf

import ml_dtypes
import numpy as np
import pytest
from drawn import Drawn
from gradient_calls import single, together

import convreg
from convreg import numerics
from convreg.errors import GraphError, OpError, OpTypeError, UnknownOp
from convreg.formats import FORMATS
from convreg.numerics import Rounding, best_exponent, binades_of, compare, draw, error_of

LAYER = {"stride": [1, 1], "padding": [1, 1], "dilation": [1, 1]}
EIGHT_BIT = ("float8_e4m3fn", "float8_e5m2", "hifloat8")


def operands(scale=1.0):
    shapes = (2, 8, 6, 6), (2, 4, 6, 6), (8, 4, 3, 3)
    return [draw("normal", shape, seed) * np.float32(scale) for seed, shape in enumerate(shapes)]


# ---------------------------------------------------------------------------------------------------------------------
# Scales


@pytest.mark.parametrize("format", EIGHT_BIT)
def test_a_shift_is_undone(format):
    values = draw("normal", (4096,))
    how = Rounding(FORMATS[format])
    best = best_exponent(values, how)
    for shift in (-30, 30):
        moved = np.ldexp(values, shift)
        exponent = best_exponent(moved, how)
        assert exponent == best - shift or format == "float8_e5m2"  # may have several equal ones
        ratios = [error_of(how.of(array, chosen), array).snr_db for array, chosen in
                  ((moved, exponent), (moved, 0), (values, best))]
        assert ratios[0] == pytest.approx(ratios[2])
        assert ratios[0] > ratios[1] + 5


@pytest.mark.parametrize("saturate", [False, True])
@pytest.mark.parametrize("format", [*EIGHT_BIT, "float16"])
@pytest.mark.parametrize("distribution", numerics.DISTRIBUTIONS)
def test_no_other_power_of_two_is_better(distribution, format, saturate):
    values = draw(distribution, (500,), 1)
    how = Rounding(FORMATS[format], saturate=saturate)
    ratios = {exponent: error_of(how.of(values, exponent), values).snr_db for exponent in range(-30, 50)}
    assert ratios[best_exponent(values, how)] == max(ratios.values())


def test_no_scale_where_none_helps():
    assert best_exponent(np.zeros(3), Rounding(FORMATS["float8_e4m3fn"])) == 0
    assert best_exponent(draw("lognormal", (100,)), Rounding(FORMATS["bfloat16"])) == 0
    assert best_exponent(np.array([1.0, 2.0, -3.5]), Rounding(FORMATS["float8_e4m3fn"])) == 0
    tiny = np.full(3, 2.0**-140)
    assert Rounding(FORMATS["bfloat16"]).of(tiny, best_exponent(tiny, Rounding(FORMATS["bfloat16"]))).tolist() == [
        2.0**-140] * 3


def test_rounding_at_a_scale():
    how = Rounding("float8_e4m3fn")
    assert how == Rounding(FORMATS["float8_e4m3fn"]) == Rounding("bfloat16")._replace(format="float8_e4m3fn")
    with pytest.raises(convreg.UnknownOp, match="no format named 'float8'; did you mean"):
        Rounding("float8")
    assert how.of(np.array([2.0**-30 * 1.06, 0.0]), 30).tolist() == [2.0**-30, 0.0]
    assert how.of(np.array([2.0**-30])).tolist() == [0.0]
    clipped = how._replace(saturate=True)
    values = np.array([448.0, 464.0, 465.0, 1.0])
    assert clipped.of(values).tolist() == [448.0, 448.0, 448.0, 1.0]
    assert clipped.lost(values, clipped.of(values), 0).tolist() == [False, False, True, False]
    cut = how._replace(rounding="toward_zero")
    assert cut.lost(values, cut.of(values), 0).tolist() == [False, False, True, False]


# ---------------------------------------------------------------------------------------------------------------------
# compare


@pytest.mark.parametrize("format", ["bfloat16", "float16", *EIGHT_BIT])
def test_rows_are_those_of_the_operator_on_operands_of_that_format(format):
    """ascend::ConvolutionBackward takes them all: the same gradients, and metrics of them from scratch."""
    arrays = operands(2.0**-4)
    exact = convreg.ascend.convolution_backward.reference(*arrays, **LAYER)
    rounded = [convreg.quantize(array, format) for array in arrays]
    results = convreg.ascend.convolution_backward(*rounded, **LAYER, conformance="emulation")
    found = compare("ascend::ConvolutionBackward", arrays, LAYER, formats=[format], scaled=False)
    assert [row.output for row in found.rows] == ["gradInput", "gradWeight", "gradBias"]
    for row, result, wanted in zip(found.rows, results, exact, strict=True):
        wide = convreg.dequantize(result, dtype=np.float64)
        assert (row.format, row.result, row.scaled, row.exponent) == (format, format, False, 0)
        assert row.error == error_of(wide, wanted)
        assert row.flushed == np.mean(wide[wanted != 0] == 0)
        assert row.saturated == np.mean(~np.isfinite(wide))
        assert row.binades == binades_of(wide)
        assert found.exact[row.output] == binades_of(wanted)
        for operand, array, held in zip(row.operands, arrays, rounded, strict=True):
            assert operand.exponent == 0
            assert operand.error == error_of(convreg.dequantize(held), array)


def test_results_in_float32():
    arrays = operands()
    rounded = [convreg.quantize(array, "hifloat8") for array in arrays]
    results = convreg.ascend.convolution_backward(*rounded, **LAYER, conformance="emulation",
                                                  output_formats=["float32"] * 3)
    exact = convreg.ascend.convolution_backward.reference(*arrays, **LAYER)
    found = compare("ascend::ConvolutionBackward", arrays, LAYER, formats=["hifloat8"], result="float32", scaled=False)
    assert [row.error for row in found.rows] == [error_of(*pair) for pair in zip(results, exact, strict=True)]
    assert {row.result for row in found.rows} == {"float32"}
    for rounding in ("hybrid", "stochastic"):  # applies to the operands: sums have nothing to round
        rounded = [convreg.quantize(array, "hifloat8", rounding=rounding, seed=seed)
                   for seed, array in enumerate(arrays)]
        results = convreg.ascend.convolution_backward(*rounded, **LAYER, conformance="emulation",
                                                      output_formats=["float32"] * 3)
        found = compare("ascend::ConvolutionBackward", arrays, LAYER, formats=["hifloat8"], result="float32",
                        rounding=rounding, scaled=False)
        assert [row.error for row in found.rows] == [error_of(*pair) for pair in zip(results, exact, strict=True)]


def test_hf32_is_what_the_vendor_rounds_operands_to():
    arrays = operands()
    results = convreg.ascend.convolution_backward(*arrays, **LAYER, cube_math_type=1)
    exact = convreg.ascend.convolution_backward.reference(*arrays, **LAYER)
    found = compare("ascend::ConvolutionBackward", arrays, LAYER, formats=["hf32"], scaled=False)
    for row, result, wanted in zip(found.rows[:2], results, exact, strict=False):  # the bias gradient is not rounded
        assert (row.result, row.error) == ("float32", error_of(result, wanted))


def test_scaled_rows_are_the_operator_on_scaled_operands():
    arrays = operands(2.0**-9)
    found = compare("ascend::ConvolutionBackward", arrays, LAYER, formats=["float8_e4m3fn"])
    row = found.row("gradWeight", "float8_e4m3fn", scaled=True)
    exponents = [operand.exponent for operand in row.operands]
    codes = [convreg.quantize(np.ldexp(array, exponent), "float8_e4m3fn")
             for array, exponent in zip(arrays, exponents, strict=True)]
    sums = convreg.ascend.convolution_backward(*codes, **LAYER, conformance="emulation",
                                               output_formats=["float32"] * 3)[1]
    shift = row.exponent - exponents[0] - exponents[1]
    back = np.ldexp(convreg.dequantize(convreg.quantize(np.ldexp(sums, shift), "float8_e4m3fn"), dtype=np.float64),
                    -row.exponent)
    assert row.error == error_of(back, convreg.ascend.convolution_backward.reference(*arrays, **LAYER)[1])


def test_formats_stand_in_their_order():
    found = compare("aten::convolution_backward", operands(), {
        "bias_sizes": [8], "stride": [1], "padding": [1], "dilation": [1], "transposed": False, "output_padding": [0],
        "groups": 1, "output_mask": [True, True, False]})
    for output in ("grad_input", "grad_weight"):
        ratios = [found.row(output, format, scaled=True).error.snr_db for format in
                  ("float32", "hf32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")]
        assert ratios == sorted(ratios, reverse=True)
        assert ratios[0] > 120
        assert all(better > worse + 4 for better, worse in pairwise(ratios))


def test_operands_out_of_range():
    arrays = operands()
    arrays[0] = np.ldexp(arrays[0], -30)
    found = compare("ascend::ConvolutionBackward", arrays, LAYER, formats=["float8_e4m3fn"])
    plain, scaled = (found.row("gradInput", "float8_e4m3fn", scaled=flag) for flag in (False, True))
    assert (plain.flushed, plain.operands[0].flushed, plain.error.snr_db) == (1.0, 1.0, 0.0)
    assert scaled.error.snr_db > 20
    assert scaled.operands[0].exponent >= 30
    arrays[0] = np.ldexp(arrays[0], 45)
    for saturate, lowest in ((False, -inf), (True, 0)):
        found = compare("ascend::ConvolutionBackward", arrays, LAYER, formats=["float8_e4m3fn"], saturate=saturate)
        plain, scaled = (found.row("gradInput", "float8_e4m3fn", scaled=flag) for flag in (False, True))
        assert plain.operands[0].saturated > 0.9
        assert plain.saturated > 0.8
        assert (plain.error.snr_db == lowest) == (not saturate)
        assert (plain.binades.infinite > 0) == (not saturate)
        assert scaled.error.snr_db > 20
        assert scaled.saturated == 0


def test_roundings_and_seeds():
    arrays = operands()
    call = ("ascend::ConvolutionBackward", arrays, LAYER)
    chosen = {"formats": ["float8_e5m2"], "scaled": False, "rounding": "stochastic"}
    rows = [compare(*call, **chosen, seed=seed).rows for seed in (1, 1, 2)]
    assert rows[0] == rows[1] != rows[2]
    held = convreg.quantize(arrays[1], "float8_e5m2", rounding="stochastic", seed=2)
    assert rows[0][0].operands[1].error == error_of(convreg.dequantize(held), arrays[1])


EVERY_CALL = Drawn(2, (2,), (1,), (1,), (1,), (2, 4, 7), (2, 6, 4), (6, 2, 3))


def drawn(shape):
    return draw("normal", shape, sum(shape))


@pytest.mark.parametrize("call", [*single(EVERY_CALL, drawn), *together(EVERY_CALL, drawn, (True, True, True), False)],
                         ids=lambda call: call.name)
def test_every_operator(call):
    function = convreg.get(call.name)
    results, exact = (function(*call.tensors, **call.arguments),
                      function.reference(*call.tensors, **call.arguments))
    found = compare(call.name, call.tensors, call.arguments, formats=["float32", "float8_e4m3fn"])
    several = (results, exact) if isinstance(results, tuple) else ((results,), (exact,))
    for port, result, wanted in zip(function.spec.outputs, *several, strict=True):
        assert found.row(port.name, "float32").error == error_of(result, wanted)
        assert 10 < found.row(port.name, "float8_e4m3fn", scaled=True).error.snr_db < 50


def test_other_arrays():
    """Lists, float64 beyond float32's precision, narrower formats, arguments by name."""
    dy, weights = operands()[0], operands()[2]
    call = {"dst_shape": [2, 4, 6, 6], "strides": [1, 1], "pads_begin": [1, 1], "pads_end": [1, 1],
            "dilations": [1, 1], "data_format": "NCX", "weights_format": "OIX"}
    first = compare("onednn::ConvolutionBackwardData", (dy, weights), call, formats=["bfloat16"])
    by_name = compare(convreg.onednn.convolution_backward_data, {"diff_dst": dy, "weights": weights, **call},
                      formats=["bfloat16"])
    assert first == by_name
    narrow = compare("onednn::ConvolutionBackwardData", (dy.astype(ml_dtypes.bfloat16), weights), call,
                     formats=["bfloat16"], scaled=False)
    assert narrow.rows[0].operands[0].error.snr_db == inf
    assert narrow.rows[0].operands[1].error.snr_db < inf
    wide = dy.astype(np.float64) * (1 + 2.0**-30)
    in_float32 = compare("onednn::ConvolutionBackwardData", (wide, weights), call, formats=["float32"], scaled=False)
    assert 150 < in_float32.rows[0].operands[0].error.snr_db < inf
    assert compare("onednn::ConvolutionBackwardData", (dy.tolist(), weights), call, formats=["bfloat16"]) == first


@pytest.mark.parametrize(("changes", "kind", "words"), [
    ({"op": "ascend::ConvolutionForward"}, UnknownOp, "ConvolutionBackward"),
    ({"op": "nodes::Quantize", "inputs": [np.ones(3)], "attributes": {}}, OpTypeError, "float32 results"),
    ({"formats": ["bfloat"]}, UnknownOp, "bfloat16"),
    ({"formats": ["float64"]}, OpError, "formats='float64' is refused; allowed: .* or hf32"),
    ({"formats": ["float32", "bfloat"]}, UnknownOp, "bfloat16"),
    ({"formats": []}, OpError, "at least one"),
    ({"result": "hf32"}, OpError, "result='hf32'"),
    ({"rounding": "hybrid", "formats": ["bfloat16"]}, OpError, "rounding='hybrid'"),
    ({"rounding": "up", "formats": ["hifloat8"], "result": "float32"}, OpError, "rounding='up'"),
    ({"rounding": "hybrid", "formats": ["hifloat8"], "result": "float16"}, OpError, "rounding='hybrid'"),
    ({"seed": -1}, OpError, "seed"),
    ({"inputs": [np.full((2, 8, 6, 6), np.nan), *operands()[1:]]}, OpError, "finite"),
    ({"inputs": [np.ones((2, 8, 6, 6), int), *operands()[1:]]}, OpTypeError, "int64"),
    ({"inputs": operands()[:2]}, OpTypeError, "weight"),
    ({"attributes": {**LAYER, "out": (None, None, None)}}, OpError, "out"),
    ({"attributes": {**LAYER, "conformance": "everyone's"}}, OpError, "conformance"),
    ({"attributes": {**LAYER, "stride": [0, 1]}}, OpError, "stride"),
    ({"attributes": {**LAYER, "conformance": "emulation", "output_formats": ["bfloat16"] * 3}}, OpTypeError,
     "float32 results"),
    ({"attributes": {**LAYER, "output_mask": [False] * 3}}, OpError, "allowed: a call with a result"),
])
def test_refusals(changes, kind, words, monkeypatch):
    """Before anything is computed."""
    monkeypatch.setattr("convreg.numerics.comparison.exact_results", None)
    call = {"op": "ascend::ConvolutionBackward", "inputs": operands(), "attributes": LAYER, **changes}
    with pytest.raises(kind, match=words):
        compare(**call)


def test_draws():
    for name in numerics.DISTRIBUTIONS:
        array = draw(name, (3, 1000), 5)
        assert (array.shape, array.dtype) == ((3, 1000), np.float32)
        assert np.array_equal(array, draw(name, (3, 1000), 5))
        assert not np.array_equal(array, draw(name, (3, 1000), 6))
        assert isinstance(draw(name, ()), np.ndarray)
    exponents = np.log(np.abs(draw("lognormal", (100_000,))))
    assert np.mean(exponents) == pytest.approx(-16 * np.log(2), abs=0.03)
    assert np.std(exponents) == pytest.approx(2, abs=0.03)
    assert draw("relu", (1000,)).min() == 0
    with pytest.raises(OpError, match="'normal' or"):
        draw("gauss", (3,))
    with pytest.raises(OpError, match="seed"):
        draw("normal", (3,), -1)


# ---------------------------------------------------------------------------------------------------------------------
# Reports


def test_tables():
    arrays = operands()
    arrays[0] = np.ldexp(arrays[0], -30)
    found = compare("ascend::ConvolutionBackward", arrays, {**LAYER, "output_mask": [True, False, False]},
                    formats=["bfloat16", "float8_e4m3fn"])
    lines = [line.split() for line in found.table().splitlines()]
    assert lines[0][:5] == ["gradient", "format", "scaled", "by", "SNR"]
    assert [line[:2] for line in lines[2:]] == [
        ["gradInput", "bfloat16"], ["gradInput", "float8_e4m3fn"], ["gradInput", "float8_e4m3fn"]]
    assert lines[3][2:] == ["-", "0.0", "1", "1", "nan", "100.0%", "0"]
    assert lines[4][3:5] == [">", str(found.row("gradInput", "float8_e4m3fn", scaled=True).exponent)]
    markdown = found.table(markdown=True).splitlines()
    assert markdown[1] == "|---|---|---|---:|---:|---:|---:|---:|---:|"
    assert str(found).startswith("ascend::ConvolutionBackward: gradOutput [2, 8, 6, 6], input [2, 4, 6, 6], weight ")
    assert "gradOutput  float8_e4m3fn  -" in found.operands_table()
    with pytest.raises(KeyError):
        found.row("gradWeight", "bfloat16")


def test_json_holds_infinities_as_words():
    found = compare("ascend::ConvolutionBackward", [array * 2.0**20 for array in operands()], LAYER,
                    formats=["float8_e4m3fn"])
    read = json.loads(found.to_json(), parse_constant=pytest.fail)
    row = read["rows"][0]
    assert (row["error"]["snr_db"], row["error"]["cosine"]) == ("-inf", "nan")
    assert float(row["error"]["snr_db"]) == -inf
    assert row["saturated"] == found.rows[0].saturated
    assert sum(read["exact"]["gradInput"]["counts"].values()) + read["exact"]["gradInput"]["zeros"] == 2 * 4 * 36
    assert read["shapes"]["weight"] == [8, 4, 3, 3]


@pytest.mark.parametrize("format", ["png", "svg"])
def test_picture(tmp_path, format):
    pytest.importorskip("matplotlib")
    arrays = operands()
    arrays[0] = arrays[0] * np.float32(2.0**20)
    path = tmp_path / f"errors.{format}"
    compare("ascend::ConvolutionBackward", arrays, LAYER).plot(str(path))
    assert path.stat().st_size > 10_000
    if format == "svg":
        text = path.read_text()
        assert "gradWeight" in text or "<path" in text


def test_a_picture_is_written_as_a_whole(monkeypatch, tmp_path):
    figure = pytest.importorskip("matplotlib.figure")

    def breaks(self, file, **_):
        stream = file if hasattr(file, "write") else open(file, "wb")  # noqa: SIM115
        stream.write(b"half")
        stream.flush()
        raise MemoryError

    found = compare("ascend::ConvolutionBackward", operands(), LAYER)
    monkeypatch.setattr(figure.Figure, "savefig", breaks)
    with pytest.raises(OpError):
        found.plot(str(tmp_path / "errors.png"))
    assert not list(tmp_path.iterdir())


def test_picture_without_matplotlib(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    found = compare("ascend::ConvolutionBackward", operands(), LAYER, formats=["bfloat16"])
    with pytest.raises(GraphError, match="matplotlib"):
        found.plot(str(tmp_path / "errors.png"))
    assert list(tmp_path.iterdir()) == []


def test_the_import_is_light():
    code = "import sys, convreg.numerics; print(sorted({'onnx', 'matplotlib'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
