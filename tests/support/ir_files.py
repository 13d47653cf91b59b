"""What stands in a file of OpenVINO IR, and whether its values are those of a model."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import onnx
import pytest
from convreg.tools.onnx_io import export_ir, import_ir

import convreg.onnx


def layers(path: Path, kind: str) -> list[ElementTree.Element]:
    return ElementTree.parse(path).findall(f"layers/layer[@type='{kind}']")


def attributes(path: Path, kind: str) -> dict[str, str]:
    (layer,) = layers(path, kind)
    return layer.find("data").attrib


def check_values(results: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert list(results) == list(expected)
    for name, array in expected.items():
        assert results[name].dtype == array.dtype
        np.testing.assert_array_equal(results[name], array)


def check_again(path: Path, source: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> None:
    """Values after our importer are those of the source."""
    export_ir(source, path)
    again = import_ir(path)
    assert [entry.name for entry in again.graph.input] == list(feeds)
    check_values(convreg.onnx.run(again, feeds), convreg.onnx.run(source, feeds))


def openvino_values(path: Path, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Outputs of an IR model in OpenVINO, in f32; skips where the package is missing."""
    openvino = pytest.importorskip("openvino")
    core = openvino.Core()
    read = core.read_model(path)
    if read.is_dynamic():
        read.reshape({name: list(array.shape) for name, array in feeds.items()})
    compiled = core.compile_model(read, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    results = compiled(feeds)
    return {output.get_any_name(): results[index] for index, output in enumerate(read.outputs)}
