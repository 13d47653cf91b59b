"""ONNX graphs whose nodes are convreg operators: schemas, checks, execution, and single calls as models."""

from __future__ import annotations

from .models import check, infer_shapes, load
from .schemas import register_schemas, schema_of
from .session import Session, run

register_schemas()

__all__ = [
    "Session",
    "check",
    "infer_shapes",
    "load",
    "register_schemas",
    "run",
    "schema_of",
]
