"""Vendor cases of OpenVINO's ConvolutionBackpropData and its grouped sibling, under the runtime's rule."""

from __future__ import annotations

import json

import numpy as np
import pytest
from places import DATA

import convreg
from convreg.calls.binding import make_call
from convreg.formats import FORMATS
from convreg.spec import TensorType

CASES = json.loads((DATA / "openvino_backprop.json").read_text())["cases"]
TYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16", "i64": "int64"}
LISTS = ("strides", "pads_begin", "pads_end", "dilations")


def of(kind: str) -> list:
    return [pytest.param(case, id=case["id"]) for case in CASES if case["kind"] == kind]


def operator(case: dict):
    found = convreg.get("openvino::" + case["op"])
    if case["op"].startswith("Group"):
        return found, {}
    return found, {"conformance": "openvino", "data_format": "NCX", "filter_format": "OIX"}


def attributes(case: dict) -> dict:
    """The case's attributes; lists it leaves empty stay empty, which the runtime reads as neutral."""
    return {**{name: [] for name in LISTS}, **case["attrs"]}


def typed_values() -> list:
    """Every value case in f32, and in the narrower formats where the case says that its values hold there too."""
    return [
        pytest.param(case, dtype, id=f"{case['id']}-{dtype}") for case in CASES if case["kind"] == "value"
        for short, dtype in TYPES.items()
        if dtype == "float32" or (dtype in FORMATS and case["tolerance"] == 0
                                  and short in case.get("also_valid_for_types", []))
    ]


@pytest.mark.parametrize(("case", "dtype"), typed_values())
def test_values(case, dtype):
    function, extra = operator(case)
    kind = FORMATS[dtype].dtype
    data, weights = (np.array(case["inputs"][name]["values"], np.float32).reshape(case["inputs"][name]["shape"])
                     .astype(kind) for name in ("data", "filter"))
    stated = case["inputs"]["output_shape"]
    result = function(data, weights, stated and stated["values"], **attributes(case), **extra)
    expected = np.array(case["expected"]["values"], np.float64).reshape(case["expected"]["shape"])
    assert result.shape == expected.shape
    np.testing.assert_allclose(result.astype(np.float64), expected, rtol=0, atol=case["tolerance"])


def dims(shape) -> tuple | None:
    """Unknown and interval extents are both unknown to ONNX."""
    return None if shape == "dynamic_rank" else tuple(d if isinstance(d, int) else None for d in shape)


def inferred(case: dict) -> TensorType:
    function, extra = operator(case)
    spec = function.spec
    tensors = tuple(TensorType(dims(case["inputs"][name]["shape"]), TYPES[case["inputs"][name]["dtype"]])
                    for name in ("data", "filter"))
    chosen = extra.pop("conformance", spec.conformances[0])
    stated = case["inputs"]["output_shape"]
    shape = None
    if stated is not None:
        kind = stated["kind"]
        shape = (tuple(stated["values"]) if kind == "constant"
                 else (None,) * stated["shape"][0] if kind == "runtime" else dims(stated["of_shape"]))
    call = make_call(spec, chosen, (*tensors, None), {"output_shape": shape}, {**attributes(case), **extra})
    call.check_formats()
    (made,) = spec.infer(call)
    return made


@pytest.mark.parametrize("case", of("shape"))
def test_shape_inference(case):
    made = inferred(case)
    assert made.format == TYPES[case["expected"]["dtype"]]
    expected = case["expected"]["shape"]
    if expected == "dynamic_rank":
        assert made.shape is None
        return
    assert len(made.shape) == len(expected)
    for ours, theirs in zip(made.shape, expected, strict=True):
        assert ours == theirs if isinstance(theirs, int) else ours is None


def refuse(case: dict) -> None:
    """Call with zeros, or infer where a rank is unknown."""
    tensors = [case["inputs"][name] for name in ("data", "filter")]
    if any(tensor["shape"] == "dynamic_rank" for tensor in tensors):
        inferred(case)
    function, extra = operator(case)
    stated = case["inputs"]["output_shape"]
    arrays = [np.zeros(tensor["shape"], TYPES[tensor["dtype"]]) for tensor in tensors]
    function(*arrays, stated and stated["values"], **attributes(case), **extra)


@pytest.mark.parametrize("case", of("shape_error"))
def test_refusals(case):
    with pytest.raises(convreg.OpError) as refused:
        refuse(case)
    assert refused.value.rule in [str(n) for n in range(1, 27)]
