"""The example of somebody's kernel: the planted bug is found and located, and the repaired kernel passes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
from places import ROOT

EXAMPLE = ROOT / "examples" / "kernel_check" / "check.py"


def run(*arguments, **environment):
    return subprocess.run([sys.executable, EXAMPLE, *arguments], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(ROOT), **environment})


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_bug_is_found_and_repaired():
    made = run()
    assert (made.returncode, made.stderr) == (1, "")
    lines = made.stdout.splitlines()
    assert lines[0] == "FAIL  onednn::ConvolutionBackwardData kernel.c: 132 of 594 elements of diff_src are wrong"
    where = next(line for line in lines if line.split()[0] == "where")
    assert where.endswith("in the last 2 rows (from 7 on): all 132 elements there")
    made = run("--fixed")
    assert (made.returncode, made.stderr) == (0, "")
    assert made.stdout.startswith("PASS  onednn::ConvolutionBackwardData kernel.c: 1 output, 594 elements")


def test_a_missing_compiler_is_named(tmp_path):
    made = run(PATH=str(tmp_path))
    assert (made.returncode, made.stderr) == (1, "check.py compiles kernel.c with cc, which is not on the path\n")


def test_an_option_that_does_not_exist_is_refused():
    """Ignored, it would look like a repair that did not help."""
    made = run("--fxied")
    assert (made.returncode, made.stdout) == (2, "")
    assert "unrecognized arguments: --fxied" in made.stderr
    assert "--fixed" in run("--help").stdout


def test_the_example_is_short():
    """A kernel developer reads it in a minute."""
    assert len([line for line in EXAMPLE.read_text("utf-8").splitlines() if line.strip()]) <= 45
