"""Whether the tests run on an emulated machine, as `.ci/aarch64` says."""

from __future__ import annotations

import os

import pytest

EMULATED = os.environ.get("CONVREG_TEST_EMULATED") == "1"

not_emulated = pytest.mark.skipif(EMULATED, reason="measures what an emulator changes: memory, processes or time")
