"""How many examples hypothesis draws: fewer in the quick tests than in `make deep`, which sets CONVREG_TEST_DEEP=1."""

from __future__ import annotations

import os

from hypothesis import settings

DEEP = os.environ.get("CONVREG_TEST_DEEP") == "1"


def examples(quick: int, deep: int) -> settings:
    """Settings with the number of examples of the tests that run."""
    return settings(max_examples=deep if DEEP else quick)
