"""Golden vectors inside other tools.

    ttk_plugin          path of the file for the Ascend operator test kit's ``--plugin``; ``python -m
                        convreg.golden.plugins`` prints it
    exchange            what that file asks convreg, in its own process or through another interpreter

The fixture for pytest is the package `pytest_convreg`: pytest loads it at every start, so that it must not import
convreg before a test uses it.
"""

from __future__ import annotations

from pathlib import Path


def ttk_plugin() -> Path:
    """Return the path of the TestSpec file: ``python -m ttk aclnn -i cases.csv --plugin PATH``."""
    return Path(__file__).resolve().with_name("ttk_testspec.py")
