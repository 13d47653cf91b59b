"""ascend::ConvolutionBackward: vendor and derived cases, statuses and values, under the products of their origin."""

from __future__ import annotations

import json

import ml_dtypes  # noqa: F401 (registers the dtype names)
import numpy as np
import pytest
from places import DATA, ROOT

import convreg
from convreg.calls.arguments import tensor_type
from convreg.calls.binding import plan_of
from convreg.calls.execution import execute
from convreg.errors import OpError
from convreg.formats import FORMATS, format_of
from convreg.geometry import aten
from convreg.spec import Call, TensorType

CASES = json.loads((DATA / "ascend_examples.json").read_text())["cases"]
REASONS = (ROOT / "docs" / "conformance-ascend.md").read_text()
function = convreg.ascend.convolution_backward
spec = function.spec
NO_SCALES = (None,) * len(spec.scale_ports)

PRODUCTS = {"950": "ascend950", "A2": "atlas-a2", "910": "atlas-910"}
INPUTS = ("gradOutput", "input", "weight")
OUTPUTS = ("gradInput", "gradWeight", "gradBias")
FILLS = {"gradOutput": (7, 3, 11, 5), "input": (5, 1, 13, 6), "weight": (3, 2, 7, 3)}

UNSAYABLE = {"E04", "E16", "E18"}
"""Rules that no Python call can break; `docs/conformance-ascend.md` says why."""
IMPOSSIBLE = {"test_Conv2DBackward_Fp16_keep_dtype_pad4dim", "aclnnConvolutionBackward_3DDW_padW256",
              "aclnnConvolutionBackward_3DDW_ShrinkBaseBlock"}
"""Accepted by the vendor's status check although no convolution has these sizes."""
HARDWARE_LIMITS = {"Conv3d_bp_input_exceed_l1_size", "conv3d_dw_v2_exceed_l1_size",
                   "Conv3d_bp_filter_no_support_dma_flag", "conv3d_transpose_input_size_dtype_unsupported_float16",
                   "conv_stdit_01_hifp8"}
"""Refused by the vendor's tiling, computed here."""
ASYMMETRIC_3D = {"Conv3d_bp_input_dilation"}


def cases(*, level="aclnn"):
    return [pytest.param(case, id=case["name"]) for case in CASES
            if case["level"] == level and case.get("rule") not in UNSAYABLE
            and case["attrs"].get("outputPadding", 0) is not None]


def dtype_of(name):
    """The dtype of a case's format; types that are no format keep NumPy's."""
    return FORMATS[name].dtype if name in FORMATS else np.dtype(name)


def filled(fill, name, shape, dtype):
    """The operand a case describes; where values do not matter, one zero seen everywhere."""
    if fill == "ones":
        return np.ones(shape, dtype)
    if fill != "mod":
        return np.broadcast_to(np.zeros((), dtype), shape)
    a, b, m, o = FILLS[name]
    flat = ((a * np.arange(np.prod(shape)) + b) % m - o) / 8
    values = flat.reshape(shape).astype(np.float32)
    return convreg.quantize(values, "hifloat8") if dtype == convreg.hifloat8 else values.astype(dtype)


def tensor(shapes, dtypes, name):
    return None if shapes.get(name) is None else TensorType(tuple(shapes[name]), dtypes[name])


def call_of(case):
    """The call of a case without arrays."""
    attrs = {**{a.name: a.default for a in spec.attributes if not a.only}, **case["attrs"]}
    values = tuple((name, tuple(value) if isinstance(value, list) else value) for name, value in attrs.items())
    return Call(spec, PRODUCTS[case["product"]],
                (*(tensor(case["input_shapes"], case["dtypes"], name) for name in INPUTS), *NO_SCALES), values,
                tuple(tensor(case["output_shapes"], case["dtypes"], name) for name in OUTPUTS), (True,) * 3)


def arguments(case):
    """Operands, keyword arguments and given outputs of a case."""
    operands = [None if case["input_shapes"][name] is None else
                filled(case.get("fill"), name, case["input_shapes"][name], dtype_of(case["dtypes"][name]))
                for name in INPUTS]
    attributes = dict(case["attrs"])
    out = tuple(None if case["output_shapes"][name] is None else
                marked(case["output_shapes"][name], dtype_of(case["dtypes"][name])) if case["expect"] == "ok" else
                np.empty(case["output_shapes"][name], dtype_of(case["dtypes"][name])) for name in OUTPUTS)
    return operands, attributes, out


def marked(shape, dtype):
    """An array that shows whether it was written."""
    array = np.empty(shape, dtype)
    array.view(np.uint8 if dtype.itemsize == 1 else dtype)[...] = 3
    return array


def run_case(case):
    operands, attributes, out = arguments(case)
    return execute(spec, operands, attributes, conformance=PRODUCTS[case["product"]], out=out), out


def check_expected(expected, result):
    assert list(result.shape) == expected["shape"]
    flat = convreg.dequantize(result, dtype=np.float64).ravel()
    name = format_of(result.dtype).name
    rounded = lambda values: convreg.dequantize(  # noqa: E731
        convreg.quantize(np.asarray(values, np.float32), name), dtype=np.float64)
    if "constant" in expected:
        assert np.array_equal(flat, np.broadcast_to(rounded(expected["constant"]), flat.shape))
    if "values" in expected:
        assert np.array_equal(flat, rounded(np.ravel(expected["values"])))
    for index, value in expected.get("sample", {}).items():
        assert flat[int(index)] == rounded(value)
    if "sum" in expected and result.dtype == np.float32:
        assert flat.sum() == expected["sum"]
        assert np.abs(flat).sum() == expected["abs_sum"]


@pytest.mark.parametrize("case", cases())
def test_interface_case(case):
    name = case["name"]
    if case["expect"] == "ok" and name not in IMPOSSIBLE:
        if "expected" not in case:
            made = plan_of(call_of(case)).outputs
            wanted = [tensor(case["output_shapes"], case["dtypes"], port) if asked else None
                      for port, asked in zip(OUTPUTS, case["attrs"]["outputMask"], strict=True)]
            assert list(made) == wanted
            return
        results, out = run_case(case)
        for port, result, given, asked in zip(OUTPUTS, results, out, case["attrs"]["outputMask"], strict=True):
            if not asked:
                assert result is None
                assert given is None or np.array_equal(given, marked(given.shape, given.dtype))
                continue
            assert result is given
            check_expected(case["expected"][port], result)
        return
    if name in IMPOSSIBLE:
        with pytest.raises(OpError) as caught:
            plan_of(call_of(case))
        assert name in REASONS
    else:
        with pytest.raises(OpError) as caught:
            run_case(case)
    assert caught.value.rule == case.get("rule", "geometry")
    assert caught.value.status == (case["status_code"] if "rule" in case else 161002)


# Kernel level: shapes are NCDHW, pads six numbers; the transposed forward operator computes a gradInput.


def kernel_call(case):
    """Operands and attributes of a kernel-level case; a flat depth is dropped where pads are asymmetric."""
    attrs, shapes = case["attrs"], case["input_shapes"]
    pads, flat = attrs["pads6_front_back_top_bottom_left_right"], 0
    padding = pads[::2]
    if pads[::2] != pads[1::2]:
        flat, padding = 1, pads[2:]
        assert pads[:2] == [0, 0]
        assert all(shape[2] == 1 for shape in shapes.values())
    name = case["dtypes"]["all_inputs"]
    dtype = dtype_of("float16" if name == "unspecified" else name)
    operands = [filled(case.get("fill"), port, shapes[port][:2] + shapes[port][2 + flat:], dtype) for port in INPUTS]
    port = "gradWeight" if case["group"] == "kernel_dw" else "gradInput"
    written = case["dtypes"]["kernel_output"] or ("float32" if port == "gradWeight" else None)
    return port, operands, {
        "stride": attrs["stride"][flat:], "padding": padding, "dilation": attrs["dilation"][flat:],
        "groups": attrs["groups"], "cubeMathType": 3 if attrs["hf32"] else 0,
        "outputMask": [port == name for name in OUTPUTS],
        "outputFormats": [written if port == name else None for name in OUTPUTS],
    }


@pytest.mark.parametrize("case", [case for case in cases(level="kernel") if case.id not in ASYMMETRIC_3D])
def test_kernel_case(case):
    port, operands, attributes = kernel_call(case)
    name = case["name"]
    if name in HARDWARE_LIMITS or name in IMPOSSIBLE:
        assert name in REASONS
    if (case["expect"] != "ok" and name not in HARDWARE_LIMITS) or name in IMPOSSIBLE:
        with pytest.raises(OpError):
            execute(spec, operands, attributes, conformance="emulation")
        return
    if "expected" in case:
        results = execute(spec, operands, attributes, conformance="emulation")
        check_expected(case["expected"][port], results[OUTPUTS.index(port)])
        return
    values = {**{a.name: a.default for a in spec.attributes}, **attributes}
    made = plan_of(Call(
        spec, "emulation",
        (*map(tensor_type, operands), *NO_SCALES),
        tuple((key, tuple(entry or "" if key == "outputFormats" else entry for entry in value)
               if isinstance(value, list) else value) for key, value in values.items()),
        (None,) * 3, (True,) * 3)).outputs[OUTPUTS.index(port)]
    assert made.shape == operands[2 if port == "gradWeight" else 1].shape


@pytest.mark.parametrize("case", [case for case in cases(level="kernel") if case.id in ASYMMETRIC_3D])
def test_kernel_case_beyond_the_interface(case):
    assert case["name"] in REASONS
    attrs = case["attrs"]
    pads = attrs["pads6_front_back_top_bottom_left_right"]
    shapes = aten.roles(*(tuple(case["input_shapes"][name]) for name in INPUTS), False)
    blank = Call(spec, "document", (None,) * 3, (), (None,) * 3, ())
    aten.check_sizes(blank, shapes, attrs["stride"], tuple(zip(pads[::2], pads[1::2], strict=True)), attrs["dilation"])


def test_every_named_exception_is_a_case():
    names = {case["name"] for case in CASES}
    assert names >= IMPOSSIBLE | HARDWARE_LIMITS | ASYMMETRIC_3D
