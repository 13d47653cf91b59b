"""How much tests draw: less in the quick tests than in `make deep`, which sets CONVREG_TEST_DEEP=1."""

from __future__ import annotations

import os

from hypothesis import settings

DEEP = os.environ.get("CONVREG_TEST_DEEP") == "1"


def drawn(quick: int, deep: int) -> int:
    """The number of draws of the tests that run."""
    return deep if DEEP else quick


def examples(quick: int, deep: int) -> settings:
    """Settings of hypothesis with the number of examples of the tests that run."""
    return settings(max_examples=drawn(quick, deep))
