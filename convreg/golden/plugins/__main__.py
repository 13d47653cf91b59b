"""``python -m convreg.golden.plugins`` prints the path of the plug-in for the Ascend operator test kit."""

from __future__ import annotations

from . import ttk_plugin

print(ttk_plugin())
