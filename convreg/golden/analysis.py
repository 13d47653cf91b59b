"""The reference of golden vectors and the bound of their errors. A minimal stand-in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .. import registry
from ..conversion import dequantize
from ..memory import Array

if TYPE_CHECKING:
    from .record import Golden


def reference_of(golden: Golden) -> dict[str, Array]:
    """Return the unrounded results in float64."""
    operator = registry.get(golden.op)
    choice = {} if golden.conformance is None else {"conformance": golden.conformance}
    made = operator.reference(**golden.inputs, **golden.attributes, **choice)
    results = made if isinstance(made, tuple) else (made,)
    return {port.name: array for port, array in zip(operator.spec.outputs, results, strict=True) if array is not None}


def bound_of(golden: Golden) -> dict[str, Array]:
    """Return the distances of the results from the reference."""
    with np.errstate(invalid="ignore"):
        return {name: np.abs(dequantize(golden.outputs[name], dtype=np.float64) - exact)
                for name, exact in golden.reference.items()}
