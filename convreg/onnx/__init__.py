"""ONNX graphs whose nodes are convreg operators: schemas, checks, execution, and single calls as models."""

from __future__ import annotations

from .explanation import explain_nodes
from .export import NodeCall, call_of, node_model
from .functions import attach_functions
from .lowering import lower
from .models import check, infer_shapes, load
from .ort import ort_library
from .recorded import gradient_calls
from .schemas import register_schemas, schema_of
from .session import Session, run
from .translation import translate

register_schemas()

__all__ = [
    "NodeCall",
    "Session",
    "attach_functions",
    "call_of",
    "check",
    "explain_nodes",
    "gradient_calls",
    "infer_shapes",
    "load",
    "lower",
    "node_model",
    "ort_library",
    "register_schemas",
    "run",
    "schema_of",
    "translate",
]
