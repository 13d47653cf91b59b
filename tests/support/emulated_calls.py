"""Calls of every operator under conformance "emulation", and the float32 calls they stand for."""

from __future__ import annotations

import numpy as np
from drawn import Drawn, convolutions
from gradient_calls import GradientCall, forward, single, together
from hypothesis import strategies as st

import convreg
import convreg.onnx
from convreg.formats import FORMATS

EIGHT_BIT = ("float8_e4m3fn", "float8_e5m2", "hifloat8")
SIX = ("float32", "float16", "bfloat16", *EIGHT_BIT)
NAMES = [name for name in convreg.names() if name.split("::")[0] in ("onednn", "openvino", "aten")]
EMULATED = [*NAMES, "ascend::ConvolutionBackward"]


def codes(array):
    return array.view(f"u{array.itemsize}")


def wide(array, dtype=np.float32):
    return convreg.dequantize(array, dtype=dtype)


def same(result, expected):
    """Equal bits, any NaN for any NaN."""
    assert result.dtype == expected.dtype
    assert result.shape == expected.shape
    unknown = np.isnan(wide(result, np.float64)) & np.isnan(wide(expected, np.float64))
    alike = (codes(result) == codes(expected)) | unknown
    assert alike.all(), (result[~alike], expected[~alike])


def several(results):
    return results if isinstance(results, tuple) else (results,)


def calls(case, make, layouts=("NCX", "OIX"), mask=(True, True, True), transposed=False):
    """A call of every operator that has the conformance, by name."""
    found = [*single(case, make, layouts), *forward(case, make), *together(case, make, mask, transposed)]
    return {call.name: call._replace(arguments={**call.arguments, "conformance": "emulation"})
            for call in found if call.name in EMULATED}


def line(name, formats=(), make=np.ones):
    """A small call of one operator."""
    call = calls(CASE, lambda shape: make(shape).astype(np.float32))[name]
    given = [convreg.quantize(array, format) for array, format in zip(call.tensors, formats, strict=False)]
    return call._replace(tensors=(*given, *call.tensors[len(given):]))


def run(call: GradientCall, **more):
    return several(convreg.get(call.name)(*call.tensors, **{**call.arguments, **more}))


def float32(call: GradientCall):
    """The results of the same call on decoded operands, by the default rules."""
    arguments = {name: value for name, value in call.arguments.items() if name != "conformance"}
    return several(convreg.get(call.name)(*map(wide, call.tensors), **arguments))


def formats_argument(name, *formats):
    """How a call of an operator chooses the formats of its results."""
    spec = convreg.get(name).spec
    if len(spec.outputs) == 1:
        return {"output_format": formats[0]}
    return {"output_formats": list(formats) if len(formats) == 3 else [formats[0]] * 3}


def sources(name):
    """Positions of the operands whose formats the results have."""
    spec = convreg.get(name).spec
    ports = [port.name for port in spec.inputs]
    if len(spec.outputs) == 3:
        return [ports.index(spec.roles[role]) for role in ("data", "weight", "grad_output")]
    return [ports.index(spec.roles["grad_output"])]


@st.composite
def emulated_calls(draw, names=EMULATED, formats=SIX, special=True):
    """A call of some operator with operands in drawn formats; `special` draws any code at all."""
    transposed = draw(st.booleans())
    case = draw(convolutions(symmetric=True))
    seed, raw = draw(st.integers(0, 2**32 - 1)), special and draw(st.booleans())
    rng = np.random.default_rng(seed)

    def make(shape):
        format = FORMATS[draw(st.sampled_from(formats))]
        if raw and format.bits == 8:
            return rng.integers(0, 256, shape, np.uint8).view(format.dtype)
        return convreg.quantize(rng.standard_normal(shape), format.name)

    layouts = draw(st.sampled_from([("NCX", "OIX"), ("NXC", "XIO"), ("NCX", "XIO")]))
    return calls(case, make, layouts, transposed=transposed)[draw(st.sampled_from(names))]


CASE = Drawn(2, (2,), (1,), (1,), (1,), (3, 4, 8), (3, 6, 5), (6, 2, 2))
"""One axis, two groups, four large and six small channels, two taps."""
