"""Every operator and format on arrays anywhere in memory: the same bits as on contiguous ones, nothing else written.

CONVREG_DRAWN_CALLS says how many calls are drawn, CONVREG_DRAWN_SEED from which seed.
"""

from __future__ import annotations

import os

import pytest
from drawn_layouts import check_call

CALLS = int(os.environ.get("CONVREG_DRAWN_CALLS", "2000"))
SEED = int(os.environ.get("CONVREG_DRAWN_SEED", "0"))
CHUNKS = 20


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_calls_on_drawn_layouts(chunk):
    for number in range(chunk, CALLS, CHUNKS):
        check_call(SEED, number)
