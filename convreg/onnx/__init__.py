"""ONNX graphs whose nodes are convreg operators: schemas, checks, execution, and single calls as models."""

from __future__ import annotations

from .execution.session import Session, run
from .explanation import explain_nodes
from .export import NodeCall, call_of, node_model
from .model.checks import check, infer_shapes
from .model.files import load
from .recorded import gradient_calls
from .rewrite.functions import attach_functions
from .rewrite.lower import lower
from .rewrite.translate import translate
from .runtime_ort.nodes import ort_library
from .schema.schemas import register_schemas, schema_of
from .training import History, StepRecord, Trainer, fit, gradient, gradient_of, initial_values, training_step

register_schemas()

__all__ = [
    "History",
    "NodeCall",
    "Session",
    "StepRecord",
    "Trainer",
    "attach_functions",
    "call_of",
    "check",
    "explain_nodes",
    "fit",
    "gradient",
    "gradient_calls",
    "gradient_of",
    "infer_shapes",
    "initial_values",
    "load",
    "lower",
    "node_model",
    "ort_library",
    "register_schemas",
    "run",
    "schema_of",
    "training_step",
    "translate",
]
