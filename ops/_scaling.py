"""Common parts of the two conversion nodes: the formats, and a scale that is an ordinary input."""

from __future__ import annotations

import numpy as np

from convreg.geometry import known
from convreg.roles import Role
from convreg.spec import Call, Port

from ._views import Array

NARROW = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "hifloat8")
SOURCE = "OCP 8-bit Floating Point Specification 1.0; hifloat8: arXiv 2409.16626; the scale as in QuantizeLinear and " \
         "DequantizeLinear of ONNX."


def scale_port(doc: str, role: Role) -> Port:
    """The optional second input."""
    return Port("scale", doc + "; one number or any shape that broadcasts to that of x.", "T2", optional=True,
                role=role)


def check_scale(call: Call) -> None:
    """Refuse a scale that does not broadcast to x, as far as shapes are known."""
    shape, scale = call.tensor("x").shape, call.tensor("scale").shape if call.has("scale") else None
    if shape is None or scale is None:
        return
    fits = len(scale) <= len(shape) and all(
        extent == 1 or not known(extent, full) or extent == full
        for extent, full in zip(reversed(scale), reversed(shape), strict=False))
    if not fits:
        raise call.refuse("scale", list(scale), f"a shape that broadcasts to {list(shape)}")


def divided(values: Array, scale: Array | None) -> Array:
    """Values over the scale, as IEEE 754 divides."""
    with np.errstate(all="ignore"):
        return values if scale is None else np.divide(values, scale)


def multiplied(values: Array, scale: Array, out: Array) -> None:
    """Values times the scale."""
    with np.errstate(all="ignore"):
        np.multiply(values, scale, out=out)
