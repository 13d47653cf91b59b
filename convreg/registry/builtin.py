"""The operators of `ops/`, which register when they are imported: importing this module registers them all."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from .. import ops
from . import registered

for _module in iter_modules(ops.__path__):
    if not _module.name.startswith("_") and _module.name != "kernels":
        import_module(f"{ops.__name__}.{_module.name}")

OPERATORS = tuple(registered())
"""These operators, without those of plug-ins."""
