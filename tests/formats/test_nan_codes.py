"""NaN in results: its sign and payload are free in formats with many, and formats of 8 bits store one code."""

from __future__ import annotations

import numpy as np
import pytest
from valid_calls import VALID, several

import convreg
from convreg.formats import FORMATS

EIGHT_BIT = ("float8_e4m3fn", "float8_e5m2", "hifloat8")
PAYLOADS = np.array([0x7FC00000, 0xFFC00000, 0x7F800001, 0xFF800001, 0x7FFFFFFF, 0xFFFFFFFF, 0x7FA5A5A5, 0xFFD00D00],
                    np.uint32)
NARROW = {"float16": [0x7E00, 0xFE00, 0x7C01, 0xFC01, 0x7FFF, 0xFFFF], "bfloat16": [0x7FC0, 0xFFC0, 0x7F81, 0xFF81],
          "float8_e4m3fn": [0x7F, 0xFF], "float8_e5m2": [0x7D, 0x7E, 0x7F, 0xFD, 0xFE, 0xFF], "hifloat8": [0x80],
          "float64": [0x7FF8 << 48, 0xFFF8 << 48, (0x7FF << 52) + 1, (0xFFF << 52) + 1]}
EMULATED = [name for name in VALID if "emulation" in convreg.get(name).spec.conformances]


@pytest.mark.parametrize("name", EIGHT_BIT)
@pytest.mark.parametrize("rounding", FORMATS["hifloat8"].roundings)
def test_quantize(isa, name, rounding):
    """Blocks and rests of blocks, contiguous and strided, of every source format."""
    if rounding not in FORMATS[name].roundings:
        return
    sources = {"float32": PAYLOADS.view(np.float32), **{
        source: np.array(codes, f"u{FORMATS[source].dtype.itemsize}").view(FORMATS[source].dtype)
        for source, codes in NARROW.items()}}
    for array in sources.values():
        for x in (array, array[:1], np.tile(array, 37), np.tile(array, 37)[::-2]):
            codes = convreg.quantize(x, name, rounding=rounding, seed=1).view(np.uint8)
            assert set(codes.tolist()) == {FORMATS[name].nan}, codes


def test_what_e4m3fn_cannot_hold_is_the_same_nan(isa):
    """Too large, infinite, of either sign; with saturation it is the largest number of that sign."""
    x = np.tile(np.float32([np.inf, -np.inf, 1e9, -1e9, 465, -465]), 9)
    assert set(convreg.quantize(x, "float8_e4m3fn").view(np.uint8).tolist()) == {0x7F}
    assert set(convreg.quantize(x, "float8_e4m3fn", saturate=True).view(np.uint8).tolist()) == {0x7E, 0xFE}
    assert convreg.quantize([-np.inf], "float8_e5m2").view(np.uint8).tolist() == [0xFC]


@pytest.mark.parametrize("format", EIGHT_BIT)
@pytest.mark.parametrize("name", EMULATED)
def test_operators(isa, name, format):
    """A NaN of either sign in any operand, and infinity times zero, whose sign is the processor's."""
    call = VALID[name]
    outputs = len(convreg.get(name).spec.outputs)
    arguments = {**call.arguments, "conformance": "emulation"}
    arguments |= {"output_format": format} if outputs == 1 else {"output_formats": [format] * outputs}
    for index in range(len(call.tensors)):
        for special in (*PAYLOADS[:4].view(np.float32), np.float32(np.inf)):
            tensors = [array.copy() for array in call.tensors]
            tensors[index].flat[::5] = special
            for result in several(convreg.get(name)(*tensors, **arguments)):
                nan = np.isnan(convreg.dequantize(result))
                assert set(result.view(np.uint8)[nan].tolist()) <= {FORMATS[format].nan}


@pytest.mark.parametrize("format", EIGHT_BIT[:2])
def test_narrow_operands_with_negative_nan(isa, format):
    """Codes in, codes out: the vector paths that take 8-bit operands."""
    call = VALID["onednn::ConvolutionBackwardData"]
    tensors = [convreg.quantize(array, format) for array in call.tensors]
    tensors[0].view(np.uint8).flat[::7] = 0xFF
    result = convreg.get(call.name)(*tensors, **{**call.arguments, "conformance": "emulation"})
    nan = np.isnan(convreg.dequantize(result))
    assert nan.any()
    assert set(result.view(np.uint8)[nan].tolist()) == {FORMATS[format].nan}
