"""Gradients of forward models as ONNX graphs."""

from __future__ import annotations

from .gradients import gradient
from .rule_registry import gradient_of

__all__ = ["gradient", "gradient_of"]
