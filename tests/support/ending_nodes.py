"""Nodes on which onnxruntime would end the process."""

from __future__ import annotations

import numpy as np
from onnx import helper, numpy_helper

ENGINES = (None, "onnxruntime", "reference")


def loose(op_type: str, version: int, operands: list, *, constants=(), outputs: int = 1, **attributes):
    """A model of one node whose inputs have no declared shape, and what to feed it."""
    names = ["" if array is None else f"x{index}" for index, array in enumerate(operands)]
    made = [f"y{index}" for index in range(outputs)]
    given = {name: array for name, array in zip(names, operands, strict=True) if name}
    graph = helper.make_graph(
        [helper.make_node(op_type, names, made, **attributes)], "one",
        [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), None)
         for index, (name, array) in enumerate(given.items()) if index not in constants],
        [helper.make_empty_tensor_value_info(name) for name in made],
        [numpy_helper.from_array(array, name) for index, (name, array) in enumerate(given.items())
         if index in constants])
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", version)])
    return model, {name: array for index, (name, array) in enumerate(given.items()) if index not in constants}


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


ENDING = {
    **{f"Div {dtype} {version} {constants}": ("Div", version, [np.array([np.iinfo(dtype).min, 7, -7], dtype),
                                                               np.array([-1, -1, 2], dtype)], {"constants": constants})
       for dtype in ("int8", "int16", "int32", "int64") for version in (7, 13, 14) for constants in ((), (1,), (0, 1))
       if version == 14 or dtype in ("int32", "int64")},
    **{f"Mod {dtype}": ("Mod", 13, [np.array([np.iinfo(dtype).min, 7], dtype), np.array([-1, 2], dtype)], {})
       for dtype in ("int32", "int64")},
    "Unique": ("Unique", 11, [zeros(3, 0)], {"axis": 0, "outputs": 4}),
    "GRU, no steps": ("GRU", 14, [zeros(0, 2, 4), zeros(1, 9, 4), zeros(1, 9, 3)], {"hidden_size": 3, "outputs": 2}),
    "LSTM, no rows": ("LSTM", 14, [zeros(3, 0, 4), zeros(1, 12, 4), zeros(1, 12, 3)], {"hidden_size": 3, "outputs": 2}),
    "Resize 11": ("Resize", 11, [zeros(1, 1, 3, 3), zeros(0), zeros(2) + 1], {}),
    "Resize 13": ("Resize", 13, [zeros(1, 1, 3, 3), zeros(0), zeros(2) + 1], {"constants": (2,)}),
    "Upsample": ("Upsample", 9, [zeros(1, 1, 3, 3), zeros(3) + 1], {}),
    "RoiAlign": ("RoiAlign", 16, [zeros(1, 2, 0, 8), zeros(2, 4), np.array([0, 0])], {"constants": (0, 1, 2)}),
    "Einsum": ("Einsum", 12, [zeros(3, 4)], {"equation": "......->..."}),
}
