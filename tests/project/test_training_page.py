"""The ten minutes of docs/training.md: every block runs as it stands."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys

import pytest
from places import ROOT

PAGE = ROOT / "docs" / "training.md"


def blocks():
    """The code of the first part of the page, in its order."""
    part = PAGE.read_text("utf-8").partition("## Ten minutes")[2].partition("## In Python")[0]
    return re.findall(r"```(\w+)\n(.*?)```", part, re.DOTALL)


def test_blocks_are_found():
    assert [kind for kind, _ in blocks()] == ["python", "sh", "python", "sh", "python"]


@pytest.mark.slow
def test_the_page_runs(tmp_path):
    for package in ("torch", "onnxscript", "onnxruntime", "matplotlib"):
        pytest.importorskip(package)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    for kind, code in blocks():
        if kind == "python":
            command = [sys.executable, "-W", "ignore", "-c", code]
        else:
            words = shlex.split(code.replace("\\\n", " "))
            assert words[0] == "convreg"
            command = [sys.executable, "-m", "convreg.tools", *words[1:]]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    recognised = re.search(r"([\d.]+)% of the held-back images", done.stdout)
    assert recognised is not None
    assert float(recognised[1]) > 90
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")
