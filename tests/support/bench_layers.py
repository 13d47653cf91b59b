"""Layers and files for the tests of `convreg bench`."""

from __future__ import annotations

import json

from convreg.tools.bench.check import DTYPES, RESULTS
from graphs import model
from onnx import helper, save_model

FORMATS = [(dtype, result) for dtype in DTYPES for result in RESULTS[dtype]]
"""The number formats that are timed, with those of their results."""
CAUSAL = {"name": "causal", "N": 2, "C_in": 4, "C_out": 6, "spatial_in": [30], "spatial_out": [30], "kernel": [2],
          "pad_begin": [5], "dilation": [5]}
UP = {"name": "up", "N": 1, "C_in": 4, "C_out": 6, "spatial_in": [5, 4], "spatial_out": [10, 8], "kernel": [3, 3],
      "stride": [2, 2], "pad_begin": [1, 1], "pad_end": [1, 1], "output_padding": [1, 1], "groups": 2,
      "transposed": True}


def shapes_file(folder, *entries):
    path = folder / "shapes.json"
    path.write_text(json.dumps(entries))
    return path


def write_model(path, nodes, inputs):
    save_model(model(nodes, inputs, [helper.make_tensor_value_info("out", 1, None)]), str(path))
    return path
