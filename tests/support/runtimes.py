"""Models run by other runtimes, in every element type that they carry."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto

onnxruntime = pytest.importorskip("onnxruntime")

BITS = {np.dtype(ml_dtypes.bfloat16): (np.uint16, TensorProto.BFLOAT16),
        np.dtype(ml_dtypes.float8_e4m3fn): (np.uint8, TensorProto.FLOAT8E4M3FN),
        np.dtype(ml_dtypes.float8_e5m2): (np.uint8, TensorProto.FLOAT8E5M2)}


def onnxruntime_run(model: ModelProto, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Outputs of a model in onnxruntime with nothing of ours installed there."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    taken = {value.name for value in session.get_inputs()}
    values = {name: _ort_value(array) for name, array in feeds.items() if name in taken}
    results = session.run_with_ort_values(None, values)
    return {info.name: _array(info, value) for info, value in zip(model.graph.output, results, strict=True)}


def _ort_value(array: np.ndarray) -> onnxruntime.OrtValue:
    if array.dtype in BITS:
        storage, element = BITS[array.dtype]
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(
            np.ascontiguousarray(array).view(storage), element)
    return onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array))


def _array(info: onnx.ValueInfoProto, value: onnxruntime.OrtValue) -> np.ndarray:
    dtype = onnx.helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
    if dtype not in BITS:
        return value.numpy()
    size = int(np.prod(value.shape()))
    if not size:
        return np.empty(value.shape(), dtype)
    raw = (ctypes.c_uint8 * (size * dtype.itemsize)).from_address(value.data_ptr())
    return np.frombuffer(raw, dtype).reshape(value.shape()).copy()


def openvino_run(model: ModelProto, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Outputs of a model in OpenVINO, for the shapes that come, in float32; skips where the package is missing."""
    openvino = pytest.importorskip("openvino")
    core = _core(openvino)
    read = core.read_model(model.SerializeToString())
    if read.is_dynamic():
        read.reshape({name: list(array.shape) for name, array in feeds.items()})
    compiled = core.compile_model(read, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    taken = [name for value in compiled.inputs for name in value.names]
    results = compiled({name: array for name, array in feeds.items() if name in taken})
    return {info.name: results[index] for index, info in enumerate(model.graph.output)}


_CORES: list = []


def _core(openvino):
    if not _CORES:
        _CORES.append(openvino.Core())
    return _CORES[0]
