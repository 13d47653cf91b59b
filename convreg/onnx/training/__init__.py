"""Gradients of forward models, and whole steps of training, as ONNX graphs."""

from __future__ import annotations

from .gradients import gradient
from .rule_registry import gradient_of
from .step_model import training_step
from .trainer import Trainer

__all__ = ["Trainer", "gradient", "gradient_of", "training_step"]
