"""Number formats as records: name, width and NumPy dtype. A new format is one more record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np


@dataclass(frozen=True, slots=True)
class Format:
    """A number format that tensors are stored in.

    `dtype` is what users hold; `storage` is the dtype of the bit patterns that kernels read and write
    (memoryviews cannot carry ml_dtypes arrays, so 16-bit formats travel as uint16).
    """

    name: str
    bits: int
    dtype: np.dtype[Any]
    storage: np.dtype[Any]


FORMATS: dict[str, Format] = {
    format.name: format
    for format in (
        Format("float64", 64, np.dtype(np.float64), np.dtype(np.float64)),
        Format("float32", 32, np.dtype(np.float32), np.dtype(np.float32)),
        Format("float16", 16, np.dtype(np.float16), np.dtype(np.uint16)),
        Format("bfloat16", 16, np.dtype(ml_dtypes.bfloat16), np.dtype(np.uint16)),
    )
}

_BY_DTYPE = {format.dtype: format for format in FORMATS.values()}


def format_of(dtype: np.dtype[Any]) -> Format | None:
    """Return the format that arrays of `dtype` hold, or None."""
    return _BY_DTYPE.get(dtype)
