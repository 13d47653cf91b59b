"""Files of other frameworks, written for tests: OpenVINO models and serialized oneDNN graphs."""

from __future__ import annotations

import json
from math import prod
from pathlib import Path
from xml.sax.saxutils import quoteattr

import numpy as np
from convreg.tools.onnx_io import import_graph_json

import convreg.onnx

ELEMENTS = {np.dtype(np.float32): "f32", np.dtype(np.float16): "f16", np.dtype(np.float64): "f64",
            np.dtype(np.int64): "i64", np.dtype(np.int32): "i32", np.dtype(np.uint8): "u8", np.dtype(bool): "boolean"}
NCX = {"strides": [1], "pads_begin": [0], "pads_end": [0], "dilations": [1], "data_format": "NCX", "groups": 1}
TWELVE = [0] * 12
"""How the library writes a list that was not given."""


class IR:
    """An OpenVINO model under construction; values are (layer, port)."""

    def __init__(self, version: int = 11) -> None:
        self.version, self.layers, self.edges, self.blob = version, [], [], b"\0"  # offsets are never aligned

    def parameter(self, name: str, shape: str, element: str = "f32") -> tuple[int, int]:
        return self.layer("Parameter", [], name=name, shape=shape, element_type=element)

    def constant(self, value, element: str = "") -> tuple[int, int]:
        array = np.asarray(value)
        offset, self.blob = len(self.blob), self.blob + array.tobytes()
        return self.layer("Const", [], element_type=element or ELEMENTS[array.dtype],
                          shape=", ".join(map(str, array.shape)), offset=offset, size=array.nbytes)

    def layer(self, kind, inputs, outputs=1, *, opset="opset1", name="", names="", **attributes):
        number = len(self.layers)
        data = "".join(f" {key.replace('exclude_pad', 'exclude-pad')}={quoteattr(str(value))}"
                       for key, value in attributes.items())
        ins = "".join(f'<port id="{index}" precision="FP32"/>' for index in range(len(inputs)))
        outs = "".join(f'<port id="{len(inputs) + index}" precision="FP32" names={quoteattr(names)}/>'
                       for index in range(outputs))
        self.layers.append(
            f'<layer id="{number}" name={quoteattr(name or f"{kind}_{number}")} type="{kind}" version="{opset}">'
            f"<data{data}/><input>{ins}</input><output>{outs}</output></layer>")
        for index, (layer, port) in enumerate(inputs):
            self.edges.append(f'<edge from-layer="{layer}" from-port="{port}" to-layer="{number}" to-port="{index}"/>')
        made = [(number, len(inputs) + index) for index in range(outputs)]
        return made[0] if outputs == 1 else made

    def result(self, value, output_names: str = "") -> None:
        number = len(self.layers)
        names = f" output_names={quoteattr(output_names)}" if output_names else ""
        self.layers.append(f'<layer id="{number}" name="Result_{number}" type="Result" version="opset1"{names}>'
                           '<input><port id="0" precision="FP32"/></input></layer>')
        self.edges.append(f'<edge from-layer="{value[0]}" from-port="{value[1]}" to-layer="{number}" to-port="0"/>')

    def xml(self) -> str:
        layers, edges = "".join(self.layers), "".join(self.edges)
        return (f'<?xml version="1.0"?><net name="test" version="{self.version}"><layers>{layers}</layers>'
                f"<edges>{edges}</edges><rt_info/></net>")

    def write(self, folder: Path) -> Path:
        path = folder / "model.xml"
        path.write_text(self.xml())
        (folder / "model.bin").write_bytes(self.blob)
        return path


def tensor(number: int, shape, dtype: str = "f32") -> dict:
    strides = [prod(max(extent, 1) for extent in shape[axis + 1:]) for axis in range(len(shape))]
    return {"id": number, "dtype": dtype, "shape": list(shape), "stride": strides, "layout_type": "strided",
            "property_type": "undef"}


def attribute(value) -> dict:
    kinds = {bool: "bool", int: "s64", float: "f32", str: "string"}
    if not isinstance(value, list):
        return {"type": kinds[type(value)], "value": int(value) if isinstance(value, bool) else value}
    return {"type": "f32[]" if value and isinstance(value[0], float) else "s64[]", "value": value}


def operation(number: int, kind: str, inputs: list[dict], outputs: list[dict], **attributes) -> dict:
    attrs = {name: attribute(value) for name, value in attributes.items()}
    return {"id": number, "name": f"op{number}", "kind": kind, "attrs": attrs, "inputs": inputs, "outputs": outputs}


def graph(*operations: dict, **members) -> dict:
    return {"version": "3.0.0", "engine_kind": "cpu", "fpmath_mode": "strict", **members, "graph": list(operations)}


def write_graph(folder: Path, document: dict) -> Path:
    path = folder / "graph.json"
    path.write_text(json.dumps(document))
    return path


def run_graph(folder: Path, document: dict, feeds: dict, **options) -> dict[str, np.ndarray]:
    """Import a oneDNN graph and run it."""
    model = import_graph_json(write_graph(folder, document), **options)
    assert model.ir_version == 10
    return convreg.onnx.run(model, feeds, engine="reference")


def arrays_of(path) -> dict[str, np.ndarray]:
    """The arrays of an .npz file, which is closed again: an open one is a warning wherever it is collected."""
    with np.load(path, allow_pickle=False) as file:
        return dict(file)
