"""OpenVINO's names of element types, and ONNX's numbers for them."""

from __future__ import annotations

from onnx import TensorProto

from convreg import GraphError

ELEMENTS = {
    "f64": TensorProto.DOUBLE, "f32": TensorProto.FLOAT, "f16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16,
    "i64": TensorProto.INT64, "i32": TensorProto.INT32, "i16": TensorProto.INT16, "i8": TensorProto.INT8,
    "u64": TensorProto.UINT64, "u32": TensorProto.UINT32, "u16": TensorProto.UINT16, "u8": TensorProto.UINT8,
    "boolean": TensorProto.BOOL, "f8e4m3": TensorProto.FLOAT8E4M3FN, "f8e5m2": TensorProto.FLOAT8E5M2,
}
FLOAT8 = (TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E5M2)
INTEGER8 = (TensorProto.INT8, TensorProto.UINT8)
NAMES: dict[int, str] = {number: name for name, number in ELEMENTS.items()}


def element(name: str) -> int:
    """Return the ONNX element type of an OpenVINO one."""
    if name not in ELEMENTS:
        raise GraphError(f"element type {name!r} is not known to the reader; known: {', '.join(ELEMENTS)}")
    return ELEMENTS[name]


def element_name(element: int) -> str:
    """Return OpenVINO's name of an ONNX element type."""
    if element not in NAMES:
        raise GraphError(f"element type {TensorProto.DataType.Name(element)} has no name in OpenVINO models here; "
                         f"known: {', '.join(NAMES.values())}")
    return NAMES[element]
