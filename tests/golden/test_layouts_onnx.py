"""Folders of onnx's backend tests: they run, and name every tensor in its place."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from golden_cases import ascend_case, data_case, weights_case
from onnx import TensorProto, numpy_helper

import convreg
import convreg.onnx
from convreg import GraphError
from convreg.golden import layouts

SCALED = replace(data_case("scaled", "float8_e4m3fn", scales=[[1.0, 2, 4, 8], 0.5], output_format="float32"),
                 conformance="emulation")


def tensors(folder, kind) -> list[TensorProto]:
    found = []
    while (path := folder / "test_data_set_0" / f"{kind}_{len(found)}.pb").is_file():
        found.append(TensorProto.FromString(path.read_bytes()))
    return found


@pytest.mark.parametrize("case", [
    data_case(), data_case(format="bfloat16"), weights_case(format="float16"), SCALED,
    ascend_case(format="hifloat8", mask=(True, False, True), conformance="emulation")], ids=lambda case: case.name)
def test_the_case_runs(tmp_path, case):
    """As onnx's runner does it: inputs and outputs in the order of the graph."""
    golden = case.make()
    layouts.write("onnx", tmp_path / "root", [golden])
    folder = tmp_path / "root" / case.name
    model = onnx.load(folder / "model.onnx")
    convreg.onnx.check(model)
    inputs, outputs = (tensors(folder, kind) for kind in ("input", "output"))
    assert [tensor.name for tensor in inputs] == [value.name for value in model.graph.input]
    assert [tensor.name for tensor in outputs] == [value.name for value in model.graph.output] == list(golden.outputs)
    assert not model.graph.initializer
    results = convreg.onnx.run(model, {tensor.name: numpy_helper.to_array(tensor) for tensor in inputs})
    for tensor in outputs:
        expected = numpy_helper.to_array(tensor)
        assert results[tensor.name].tobytes() == expected.tobytes() == golden.outputs[tensor.name].tobytes()


def test_results_are_tensors(tmp_path):
    golden = ascend_case(format="bfloat16", mask=(True, False, True)).make()
    layouts.write("onnx", tmp_path / "root", [golden])
    for place, many in (("ascend/test_data_set_0", False), ("ascend", False), ("", True)):
        (tmp_path / "root" / "manifest.json").unlink(missing_ok=True)
        found = layouts.read_results(golden, tmp_path / "root" / place, "onnx", many=many)
        for name, array in golden.outputs.items():
            np.testing.assert_array_equal(found[name], array, strict=True)


def test_tensors_that_do_not_fit(tmp_path):
    golden, path = data_case().make(), tmp_path / "output_0.pb"
    tensor = numpy_helper.from_array(golden.outputs["diff_src"], "diff_src")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="/etc/passwd")
    for content, message in (
            (numpy_helper.from_array(np.zeros(3, np.float32)).SerializeToString(), r"shape \[3\]"),
            (numpy_helper.from_array(np.zeros(3)).SerializeToString(), "dtype float64; needed: float32"),
            (tensor.SerializeToString(), "in another file"), (b"\xff\xff", "not a tensor of ONNX")):
        path.write_bytes(content)
        with pytest.raises(GraphError, match=message) as caught:
            layouts.read_results(golden, tmp_path)
        assert str(caught.value).count(str(path)) == 1


def test_a_tensor_that_protobuf_cannot_hold(tmp_path, monkeypatch):
    from convreg.golden.layouts import onnx as module

    monkeypatch.setattr(module, "LIMIT", 100)
    with pytest.raises(GraphError, match="a tensor has 960 bytes; needed: at most 100"):
        layouts.write("onnx", tmp_path / "root", [data_case().make()])
    assert not list(tmp_path.iterdir())
