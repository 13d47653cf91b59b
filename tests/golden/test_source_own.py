"""convreg's own file of cases: what is written is read again, and what is refused."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest
import vendor_tables as tables
from hypothesis import given
from hypothesis import strategies as st
from plain_gradients import filled, outcome

import convreg
from convreg import GraphError, OpTypeError
from convreg.formats import FORMATS
from convreg.golden import Case, Operand, cases, write_cases

CASE = {
    "name": "layer", "op": "onednn::ConvolutionBackwardData", "conformance": "library",
    "inputs": {"diff_dst": {"shape": [1, 2, 3], "format": "bfloat16", "range": [-1, "inf"], "occurring": ["nan", 0]},
               "weights": {"shape": [2, 1, 2], "format": "bfloat16", "values": [1, -0.5, "inf", "-inf"]}},
    "attributes": {"dst_shape": [1, 1, 4], "strides": [1], "pads_begin": [0], "pads_end": [0], "dilations": [1],
                   "data_format": "NCX", "weights_format": "OIX"}}


@pytest.fixture
def read(tmp_path):
    """Read a document of one case, or any text."""
    def cases_of(case=None, text=None, version=1):
        document = {"format": "convreg golden cases", "version": version, "cases": [case]}
        path = tmp_path / "own.json"
        path.write_text(json.dumps(document) if text is None else text)
        return list(cases(path))

    return cases_of


def same(first: Operand, second: Operand) -> bool:
    """Whether operands are equal, their values bit for bit."""
    if (first.values is None) != (second.values is None):
        return False
    equal = str((*vars(first).values(),)[:5]) == str((*vars(second).values(),)[:5])
    return equal and (first.values is None or (
        first.values.dtype == second.values.dtype and first.values.tobytes() == second.values.tobytes()))


def test_case_is_read(read):
    (case,) = read(CASE)
    assert (case.name, case.op, case.conformance) == ("layer", "onednn::ConvolutionBackwardData", "library")
    assert same(case.inputs["diff_dst"], Operand((1, 2, 3), "bfloat16", -1, float("inf"), (float("nan"), 0)))
    weights = np.array([1, -0.5, np.inf, -np.inf]).astype(FORMATS["bfloat16"].dtype).reshape(2, 1, 2)
    assert case.inputs["weights"].values.tobytes() == weights.tobytes()
    assert outcome(case, filled(case))["diff_src"].shape == (1, 1, 4)


def test_tables_survive_the_way_there_and_back(tmp_path):
    for name, text in {**tables.ttk_tables(), "atk.json": tables.atk_table()}.items():
        (tmp_path / name).write_text(text)
        there = list(cases(tmp_path / name))
        write_cases(there, tmp_path / "own.json")
        for first, second in zip(there, cases(tmp_path / "own.json"), strict=True):
            assert vars(first) | {"inputs": 0} == vars(second) | {"inputs": 0}
            assert all(same(first.inputs[key], second.inputs[key]) for key in first.inputs)
            assert list(first.inputs) == list(second.inputs)


@given(format=st.sampled_from(sorted(FORMATS)), count=st.integers(0, 70), data=st.data())
def test_values_keep_their_bits(tmp_path_factory, format, count, data):
    """Numbers, NaN with any payload, infinities and both zeros, few or many."""
    known = FORMATS[format]
    codes = data.draw(st.lists(st.integers(0, 2**known.bits - 1), min_size=count, max_size=count))
    values = np.array(codes, known.storage if known.bits < 32 else f"u{known.bits // 8}").view(known.dtype)
    case = Case("", "nodes::Quantize", {"x": Operand(values.shape, format, values=values)}, {})
    path = tmp_path_factory.mktemp("own") / "own.json"
    write_cases([case], path)
    (back,) = cases(path)
    assert same(case.inputs["x"], back.inputs["x"])


def test_shape_inputs_and_scales(tmp_path):
    values = np.array([1, 1, 4], np.int32)
    inputs = {"diff_dst": Operand((1, 2, 3), "float32"), "weights": Operand((2, 1, 2), "float32"),
              "dst_shape": Operand((3,), "int32", values=values)}
    attributes = {key: value for key, value in CASE["attributes"].items() if key != "dst_shape"}
    attributes["scales"] = (np.array([0.5, 2], np.float32), None)
    write_cases([Case("", CASE["op"], inputs, attributes, "emulation")], tmp_path / "own.json")
    (case,) = cases(tmp_path / "own.json")
    assert same(case.inputs["dst_shape"], inputs["dst_shape"])
    assert case.attributes["scales"] == [[0.5, 2], None]


def test_every_operator_has_a_case(read):
    """The names of inputs and attributes are those of the Python functions."""
    for operator in convreg.operators():
        case = {"op": operator.spec.qualified_name, "inputs": {}, "attributes": {}}
        assert read(case)[0].op == operator.spec.qualified_name


def test_what_json_lacks_is_refused(tmp_path):
    case = Case("", CASE["op"], {}, {"strides": {1}})
    with pytest.raises(GraphError, match=r"attribute 'strides' is \{1\}; needed: what JSON has"):
        write_cases([case], tmp_path / "own.json")
    assert not (tmp_path / "own.json").exists()
    with pytest.raises(convreg.OpTypeError, match="convreg::golden: path"):
        write_cases([case])


def put(*path, value):
    case = copy.deepcopy(CASE)
    inner = case
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return case


@pytest.mark.parametrize(("case", "words"), [
    (3, "case 0 is 3; needed: an object"), ({}, "no operator named ''"), (put("op", value=5), "no operator named '5'"),
    (put("op", value="onednn::Convolutoin"), "did you mean onednn::Convolution"),
    (put("name", value=1), "'name' is 1; needed: a string"), (put("inputs", value=[]), "'inputs' is []"),
    (put("attributes", value=None), "'attributes' is None"), (put("fields", value={"a": 1}), "needed: strings"),
    (put("more", value=1), "key 'more' is refused"), (put("conformance", value="lib"), "needed: document or library"),
    (put("conformance", value=["library"]), "conformance ['library'] is refused"),
    (put("inputs", "weight", value={}), "inputs: key 'weight' is refused (did you mean 'weights'?)"),
    (put("attributes", "threads", value=1), "attributes: key 'threads' is refused"),
    (put("attributes", "stride", value=1), "did you mean 'strides'?"), (put("inputs", "weights", value=1), "is 1"),
    (put("inputs", "weights", "shape", value=[-1]), "[-1] is no shape"),
    (put("inputs", "weights", "shape", value=[2**31]), "up to 8 integers of at least 0 and below 2147483648"),
    (put("inputs", "weights", "shape", value=[2, 1]), "has 4 entries; needed: a list of 2 numbers"),
    (put("inputs", "weights", "format", value="int8"), "format 'int8' is refused"),
    (put("inputs", "weights", "values", value=[1, 2, 3, 0.1]), "the value 0.1 is not in bfloat16"),
    (put("inputs", "weights", "values", value=[1, 2, 3, 1e39]), "is not in bfloat16"),
    (put("inputs", "weights", "values", value=[1, 2, 3, None]), "None is no number"),
    (put("inputs", "weights", "values", value=[1, 2, 3, "4"]), "'4' is no number"),
    (put("inputs", "weights", "values", value=[1, 2, 3, True]), "True is no number"),
    (put("inputs", "weights", "values", value=[1, 2, 3, 10**30]), "is no number"),
    (put("inputs", "weights", "bytes", value="AA=="), "'values' and 'bytes'"),
    (put("inputs", "diff_dst", "bytes", value="AA=="), "'bytes' holds 1 bytes; needed: 12"),
    (put("inputs", "diff_dst", "bytes", value="?"), "needed: base64 text"),
    (put("inputs", "diff_dst", "bytes", value=5), "needed: base64 text"),
    (put("inputs", "diff_dst", "range", value=[1, 0]), "holds no value"),
    (put("inputs", "diff_dst", "range", value=[0]), "has 1 entries; needed: a list of 2 numbers"),
    (put("inputs", "diff_dst", "range", value=["nan", 0]), "holds no value"),
    (put("inputs", "dst_shape", value={"shape": [1], "format": "int32", "values": [0.5]}), "needed: integers"),
    (put("inputs", "dst_shape", value={"shape": [1], "format": "int32", "values": [2**40]}), "needed: integers"),
    (put("inputs", "dst_shape", value={"shape": [1], "format": "int32", "values": ["inf"]}), "needed: integers"),
])
def test_refusals(read, case, words):
    with pytest.raises(GraphError, match=r"own.json, case 0") as error:
        read(case)
    assert words in str(error.value)


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_other_versions_are_refused(read, version):
    with pytest.raises(GraphError, match="needed: version 1 with a list of cases"):
        read(CASE, version=version)


def test_cases_that_are_no_list(read):
    with pytest.raises(GraphError, match="a list of cases"):
        read(text='{"format": "convreg golden cases", "version": 1, "cases": {}}')


@pytest.mark.parametrize("cases", [None, [3]])
def test_only_cases_are_written(tmp_path, cases):
    with pytest.raises(OpTypeError, match="cases="):
        write_cases(cases, tmp_path / "cases.json")
    assert not list(tmp_path.iterdir())
