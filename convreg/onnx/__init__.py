"""ONNX graphs whose nodes are convreg operators: schemas, checks, execution, and single calls as models."""

from __future__ import annotations

from .export import NodeCall, call_of, node_model
from .models import check, infer_shapes, load
from .ort import ort_library
from .schemas import register_schemas, schema_of
from .session import Session, run

register_schemas()

__all__ = [
    "NodeCall",
    "Session",
    "call_of",
    "check",
    "infer_shapes",
    "load",
    "node_model",
    "ort_library",
    "register_schemas",
    "run",
    "schema_of",
]
