"""The records say what the codes mean, and HiFloat8 arrays know what they hold."""

from __future__ import annotations

import copy
import pickle
import re
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from model_files import arrays_of
from places import ROOT
from rounding_model import NARROW

import convreg
from convreg import OpTypeError
from convreg.formats import FORMATS, OPERAND_ROUNDINGS, ROUNDINGS, format_of

PAGE = ROOT / "docs" / "formats.md"


def test_formats_prints_every_record():
    table = convreg.formats()
    assert list(table) == ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "hifloat8",
                           "hf32"]
    assert len(table) == len(FORMATS) + len(OPERAND_ROUNDINGS)
    lines = repr(table).splitlines()
    assert [line.split()[0] for line in lines] == ["format", *table]
    starts = [match.start() for match in re.finditer(r"(?<=  )\S", lines[0])]
    assert all(line[start - 1] == " " != line[start] for line in lines for start in starts)
    assert table["hifloat8"] is FORMATS["hifloat8"]
    with pytest.raises(KeyError):
        _ = table["float4"]


@pytest.mark.parametrize("name", NARROW)
def test_limits_are_those_of_the_codes(name):
    record = FORMATS[name]
    values = record.values
    assert values.size == 2**record.bits
    finite = np.unique(np.abs(values[np.isfinite(values)]).astype(np.float64))
    assert (record.largest, record.smallest) == (finite[-1], finite[1])
    assert record.nan in record.nan_codes
    assert (record.infinity is None) == (not np.isinf(values).any())
    if record.infinity is not None:
        assert values[record.infinity] == np.inf
    zeros = np.flatnonzero(values == 0)
    assert zeros.tolist() == ([0, 1 << (record.bits - 1)] if record.negative_zero else [0])
    unsigned = values[: values.size // 2].astype(np.float64)  # NaN is quiet, so that no warning comes
    one = np.flatnonzero(unsigned == 1)[0]
    assert unsigned[one + 1] == 1 + 2.0**-record.mantissa
    with pytest.raises(ValueError, match="assignment"):
        values[0] = 1


@pytest.mark.parametrize("record", convreg.formats().values(), ids=str)
def test_records_are_complete(record):
    assert record.bits == 8 * record.storage.itemsize == 8 * record.dtype.itemsize
    assert record.rounding in record.roundings
    assert record.practices
    assert all(practice.rounding in ROUNDINGS and practice.source for practice in record.practices)
    assert record.smallest <= record.smallest_normal < 1 < record.largest
    if record.name not in ("hifloat8", "hf32"):
        info = ml_dtypes.finfo(record.dtype)
        assert record.largest == float(info.max)
        assert record.smallest_normal == float(info.smallest_normal)
        assert record.smallest == float(info.smallest_subnormal)
        assert record.mantissa == info.nmant
        assert record.layout == f"1 {info.bits - 1 - info.nmant} {info.nmant}, bias {1 - info.minexp}"
    special = np.array([np.inf, np.nan]).astype(np.float32)
    if record.name in OPERAND_ROUNDINGS or record.name == "float32":
        assert special.view(np.uint32).tolist() == [record.infinity, record.nan]


def test_wide_formats_list_no_codes():
    with pytest.raises(ValueError, match=r"2\*\*32 codes"):
        _ = FORMATS["float32"].values


def test_format_of_a_dtype():
    for record in FORMATS.values():
        assert format_of(record.dtype) is record
    for dtype in (np.uint8, np.int32, [("other", np.uint8)], [("hifloat8", np.int8)], "U1"):
        assert format_of(np.dtype(dtype)) is None


def test_en_dtypes_is_taken_and_never_imported():
    en_dtypes = pytest.importorskip("en_dtypes")
    assert format_of(np.dtype(en_dtypes.hifloat8)) is FORMATS["hifloat8"]
    program = "import sys, convreg; convreg.quantize([1.0], 'hifloat8'); assert 'en_dtypes' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_hifloat8_array_knows_what_it_holds(tmp_path):
    array = convreg.quantize(np.linspace(-9, 9, 24).reshape(4, 6), "hifloat8")
    raw = array.view(np.uint8)
    assert raw.shape == array.shape
    np.testing.assert_array_equal(raw.view(convreg.hifloat8), array)
    values = convreg.dequantize(array)
    np.testing.assert_array_equal(convreg.dequantize(raw, "hifloat8"), values)
    for part in (np.s_[1:, ::-2], np.s_[2], np.s_[..., 3], np.s_[1, 1], [0, 2]):
        np.testing.assert_array_equal(convreg.dequantize(array[part]), values[part])
    for other in (array.copy(), array.T.copy().T, pickle.loads(pickle.dumps(array)), copy.deepcopy(array),
                  np.concatenate([array[:1], array[1:]]), np.where(values > -99, array, array)):
        assert other.dtype == convreg.hifloat8
        np.testing.assert_array_equal(convreg.dequantize(other), values)
    np.save(tmp_path / "one.npy", array)
    np.savez(tmp_path / "many.npz", a=array, b=array[0, 0])
    file = arrays_of(tmp_path / "many.npz")
    for other in (np.load(tmp_path / "one.npy"), np.load(tmp_path / "one.npy", mmap_mode="r"), file["a"]):
        assert other.dtype == np.dtype("V1")  # no registered dtype has a name in NumPy's files
        np.testing.assert_array_equal(convreg.dequantize(other, "hifloat8"), values)
    assert file["b"].shape == ()


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "hifloat8"])
def test_operators_that_do_not_declare_a_format_refuse_it_by_name(name):
    x = convreg.quantize(np.ones((1, 4, 4, 2)), name)
    for function in (convreg.onednn.convolution_backward_data, convreg.onednn.convolution):
        with pytest.raises(OpTypeError, match=name):
            function(x, x, strides=[1, 1], pads_begin=[0, 0], pads_end=[0, 0], dilations=[1, 1])


def corner_inputs(name: str) -> np.ndarray:
    """The numbers of the page's columns: largest, half a step above, the float after that, infinity, NaN, -0."""
    tie = np.float32({"float16": 65520, "bfloat16": 2.0**128 - 2.0**119, "float8_e4m3fn": 464, "float8_e5m2": 61440,
                      "hifloat8": 40960}[name])
    after = np.nextafter(tie, np.float32(np.inf))
    return np.array([FORMATS[name].largest, tie, after, np.inf, np.nan, -0.0], np.float32)


def corner_row(numbers: np.ndarray) -> list[str]:
    return [f"{float(number):.9g}" for number in numbers]


def corner_tables() -> dict[tuple[str, str], list[str]]:
    """Rows of the page by format and converter."""
    if not PAGE.exists():
        pytest.skip("only in a checkout")
    tables, name = {}, ""
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip().strip("`") for cell in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) == 8 and cells[0] in FORMATS:
            name = cells[0]
            tables[name, cells[1]] = cells[2:]
    return tables


@pytest.mark.parametrize("name", NARROW)
def test_page_has_our_corners(name):
    tables = corner_tables()
    x = corner_inputs(name)
    for saturate in (False, True):
        row = convreg.dequantize(convreg.quantize(x, name, saturate=saturate))
        assert tables[name, f"convreg, saturate={saturate}"] == corner_row(row)
    assert tables[name, "input"] == corner_row(x)


@pytest.mark.parametrize("name", NARROW)
def test_page_has_the_corners_of_ml_dtypes(name):
    x = corner_inputs(name)
    if name == "hifloat8":
        dtype, package = pytest.importorskip("en_dtypes").hifloat8, "en_dtypes"
    else:
        dtype, package = FORMATS[name].dtype, "NumPy" if name == "float16" else "ml_dtypes"
    with np.errstate(over="ignore"):
        assert corner_tables()[name, package] == corner_row(x.astype(dtype).astype(np.float32))


@pytest.mark.parametrize("name", NARROW[:4])
def test_page_has_the_corners_of_pytorch(name):
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(corner_inputs(name))
    assert corner_tables()[name, "PyTorch"] == corner_row(x.to(getattr(torch, name)).float().numpy())


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("saturate", [0, 1])
def test_page_has_the_corners_of_onnx_cast(name, saturate):
    from onnx import TensorProto, helper
    from onnx.reference import ReferenceEvaluator

    element = {"float8_e4m3fn": TensorProto.FLOAT8E4M3FN, "float8_e5m2": TensorProto.FLOAT8E5M2}[name]
    graph = helper.make_graph(
        [helper.make_node("Cast", ["x"], ["y"], to=element, saturate=saturate)], "cast",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])],
        [helper.make_tensor_value_info("y", element, ["n"])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    x = corner_inputs(name)
    (got,) = ReferenceEvaluator(model).run(None, {"x": x})
    assert corner_tables()[name, f"ONNX Cast, saturate={saturate}"] == corner_row(got.astype(np.float32))


def test_page_has_the_table_of_records():
    corner_tables()
    assert repr(convreg.formats()) in PAGE.read_text()


@pytest.mark.parametrize("name", FORMATS)
def test_limits_are_those_of_the_numbers(name):
    record, info = FORMATS[name], convreg.finfo(name)
    for other in (record.dtype, record.dtype.type, np.zeros(2, record.dtype), np.zeros((), record.dtype)[()]):
        assert repr(convreg.finfo(other)) == repr(info)
    assert (info.dtype, info.bits, info.nmant) == (record.dtype, record.bits, record.mantissa)
    one, two, zero = (record.dtype.type(number) for number in (1, 2, 0))
    for limit, number in (
            (info.max, record.largest), (info.min, -record.largest), (info.smallest_normal, record.smallest_normal),
            (info.tiny, record.smallest_normal), (info.smallest_subnormal, record.smallest),
            (info.eps, float(np.nextafter(one, two)) - 1), (info.epsneg, 1 - float(np.nextafter(one, zero)))):
        assert float(limit) == number
        assert type(limit) is record.dtype.type
    assert (2.0**info.machep, 2.0**info.negep) == (float(info.eps), float(info.epsneg))
    assert 2.0 ** (info.maxexp - 1) <= record.largest < 2 * 2.0 ** (info.maxexp - 1)
    assert 2.0**info.minexp == record.smallest_normal
    assert str(info)


@pytest.mark.parametrize("dtype", [
    None, "hf32", "int8", "nope", np.int32, np.complex64, 3, 3.0, [1.0], object(), np.zeros(2, int), np.dtype("V1")])
def test_limits_of_other_types_are_refused(dtype):
    with pytest.raises(OpTypeError, match=r"convreg::finfo: dtype=.* is refused; allowed: a dtype or the name of"):
        convreg.finfo(dtype)
