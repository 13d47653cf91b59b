"""Every operator and format on arrays anywhere in memory: the same bits as on contiguous ones, nothing else written.

CONVREG_DRAWN_CALLS is the number of drawn calls, CONVREG_DRAWN_SEED their seed. CONVREG_TEST_ISA names the instruction
sets; without it they are all that this machine has.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import drawn_layouts
import pytest
from amounts import drawn
from drawn_layouts import check_call
from places import SUPPORT

CALLS = int(os.environ.get("CONVREG_DRAWN_CALLS", drawn(1400, 2000)))
SEED = int(os.environ.get("CONVREG_DRAWN_SEED", "0"))
CHUNKS = 20


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_calls_on_drawn_layouts(chunk):
    for number in range(chunk, CALLS, CHUNKS):
        check_call(SEED, number)


@pytest.mark.parametrize("error", [RuntimeError("lost"), AssertionError("wrong"), MemoryError()])
def test_failures_say_how_to_repeat_them(monkeypatch, error):
    def fail(*args):
        raise error

    monkeypatch.setattr(drawn_layouts, "check_places", fail)
    with pytest.raises(AssertionError, match=r"python tests/support/drawn_layouts\.py 0 7"):
        check_call(0, 7)


def test_crashes_say_how_to_repeat_them():
    program = ("import faulthandler, drawn_layouts; faulthandler.enable(); "
               "drawn_layouts.check_places = lambda *args: faulthandler._sigabrt(); drawn_layouts.check_call(0, 7)")
    root = Path(drawn_layouts.convreg.__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join([str(SUPPORT), str(root)])})
    assert done.returncode < 0
    assert "python tests/support/drawn_layouts.py 0 7" in done.stderr
