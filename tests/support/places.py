"""Where the tests, their data and the checkout lie."""

from __future__ import annotations

from pathlib import Path

SUPPORT = Path(__file__).resolve().parent
"""The modules that tests share."""
TESTS = SUPPORT.parent
DATA = TESTS / "data"
ROOT = TESTS.parent
"""The checkout, or the copy of its tests and documents."""
