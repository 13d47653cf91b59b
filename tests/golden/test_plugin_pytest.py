"""The fixture of `pytest_convreg`, in runs of pytest of their own."""

from __future__ import annotations

import os
import subprocess
import sys

from places import ROOT

TEST = """
import sys
import numpy as np

STARTED = "numpy" in sys.modules or "convreg" in sys.modules
CALL = {"strides": [1], "pads_begin": [0], "pads_end": [0], "dilations": [1], "data_format": "NCX",
        "weights_format": "OIX"}
DY, W = np.arange(6, dtype=np.float32).reshape(1, 2, 3), np.ones((2, 1, 2), np.float32)
DX = np.array([[[3, 8, 12, 7]]], np.float32)

def test_right(assert_gradient):
    report = assert_gradient("onednn::ConvolutionBackwardData", [DY, W, [1, 1, 4]], DX, **CALL)
    assert report.passed

def test_wrong(assert_gradient):
    assert_gradient("onednn::ConvolutionBackwardData", [DY, W, [1, 1, 4]], DX + 1, **CALL)

def test_how_the_kernel_computes(assert_gradient):
    assert_gradient("onednn::ConvolutionBackwardData", [DY, W, [1, 1, 4]], {"diff_src": DX}, accumulator="float16",
                    standard=["bound", "mixed"], conformance="library", **CALL)

def test_standard_alone_decides(assert_gradient):
    assert_gradient("onednn::ConvolutionBackwardData", [DY, W, [1, 1, 4]], 1.5 * DX, standard="cosine", **CALL)

def test_standard_and_bound(assert_gradient):
    assert_gradient("onednn::ConvolutionBackwardData", [DY, W, [1, 1, 4]], 1.5 * DX, standard=["bound", "cosine"],
                    **CALL)

def test_light():
    assert not STARTED
"""


def run(folder, *arguments):
    """Run pytest in a folder of its own, with warnings as errors."""
    (folder / "test_kernel.py").write_text(TEST)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run([sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", *arguments],
                          cwd=folder, env=environment, capture_output=True, text=True)


def test_fixture(tmp_path):
    made = run(tmp_path, "-p", "pytest_convreg", "-k", "not light")
    assert made.returncode == 1
    assert "2 failed, 3 passed" in made.stdout
    assert "FAILED test_kernel.py::test_standard_and_bound" in made.stdout
    assert "FAIL  onednn::ConvolutionBackwardData: 4 of 4 elements of diff_src are wrong" in made.stdout
    assert "def check" not in made.stdout, "the report stands for the inside of the fixture"


def test_nothing_is_imported_at_the_start():
    code = ("import sys, pytest_convreg\n"
            "assert not {'convreg', 'numpy', 'onnx', 'ml_dtypes'} & set(sys.modules)")
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_without_the_plug_in_there_is_no_fixture(tmp_path):
    made = run(tmp_path, "-k", "right")
    assert "fixture 'assert_gradient' not found" in made.stdout
