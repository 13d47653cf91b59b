"""The operators, one file each: declaration, vendor rule and kernel call. Importing the package registers them all."""

from __future__ import annotations

import pkgutil
from importlib import import_module

for _module in pkgutil.iter_modules(__path__):
    if not _module.name.startswith("_") and _module.name != "kernels":
        import_module(f"{__name__}.{_module.name}")
