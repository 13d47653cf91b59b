"""oneDNN's data types: their names in serialized graphs and in benchdnn, and their numbers in the C interface."""

from __future__ import annotations

from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from convreg.formats import FORMATS


class DataType(NamedTuple):
    """NumPy's dtype of a data type, and its number in the C interface for those that the benchmark passes."""

    dtype: np.dtype[Any]
    number: int | None = None


DATA_TYPES = {
    "f32": DataType(FORMATS["float32"].dtype, 3),
    "bf16": DataType(FORMATS["bfloat16"].dtype, 2),
    "f16": DataType(FORMATS["float16"].dtype, 1),
    "s32": DataType(np.dtype(np.int32)),
    "s8": DataType(np.dtype(np.int8)),
    "u8": DataType(np.dtype(np.uint8)),
    "boolean": DataType(np.dtype(np.bool_)),
    "s64": DataType(np.dtype(np.int64)),
    "f8_e5m2": DataType(FORMATS["float8_e5m2"].dtype),
    "f8_e4m3": DataType(FORMATS["float8_e4m3fn"].dtype),
    "s4": DataType(np.dtype(ml_dtypes.int4)),
    "u4": DataType(np.dtype(ml_dtypes.uint4)),
}
FLOATS = ("f32", "bf16", "f16")
"""The types in which convolutions and most other operations compute."""
