"""Gradients of forward models, and whole steps of training, as ONNX graphs."""

from __future__ import annotations

from .epochs import History, fit
from .gradients import gradient
from .initial import initial_values
from .record import StepRecord
from .rule_registry import gradient_of
from .step_model import training_step
from .trainer import Trainer

__all__ = ["History", "StepRecord", "Trainer", "fit", "gradient", "gradient_of", "initial_values", "training_step"]
