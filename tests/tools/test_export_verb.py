"""`convreg export` and `export_model`: the suffix chooses the format, and a failure leaves nothing."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from convreg.tools.cli import main
from convreg.tools.onnx_io import export_model, import_graph_json, import_ir
from drawn import dyadic, normal
from graphs import data_gradient, model, value
from onnx import helper

import convreg.onnx

RNG = np.random.default_rng(9)


def gradient() -> onnx.ModelProto:
    nodes = [data_gradient(["dy", "w"], "g", dst_shape=[1, 3, 5, 5]), helper.make_node("Relu", ["g"], ["dx"])]
    return model(nodes, [value("dy", (1, 2, 5, 5))], [value("dx", (1, 3, 5, 5))], {"w": normal(RNG, (2, 3, 3, 3))})


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(gradient().SerializeToString())
    return path


def test_command(saved, capsys):
    for suffix in (".xml", ".json"):
        assert main(["export", str(saved), "-o", str(saved.with_suffix(suffix))]) == 0
    assert capsys.readouterr().out.count("written") == 2
    dy = dyadic(RNG, (1, 2, 5, 5))
    result = convreg.onnx.run(import_ir(saved.with_suffix(".xml")), {"dy": dy})["dx"]
    np.testing.assert_array_equal(result, convreg.onnx.run(saved, {"dy": dy})["dx"])
    assert len(import_graph_json(saved.with_suffix(".json")).graph.node) == 2


@pytest.mark.parametrize(("arguments", "message"), [
    (["-o", "out.pb"], "suffix"), (["-o", "out.npz"], ".xml or .json"),
    (["-o", "missing/out.json"], "cannot be written")])
def test_command_fails_with_one_message_and_no_file(saved, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(saved.parent)
    assert main(["export", str(saved), *arguments]) == 1
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.err.count("\n") == 1
    assert [path.name for path in saved.parent.iterdir()] == ["model.onnx"]


def test_python_entry(tmp_path):
    export_model(gradient(), tmp_path / "g.xml")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["g.bin", "g.xml"]
