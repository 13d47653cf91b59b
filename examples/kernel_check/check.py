"""Checks somebody's C kernel: compiles it, runs it on golden vectors, and prints what is wrong and where."""

import argparse
import ctypes
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from convreg import golden

BATCH, CHANNELS, FILTERS, STRIDE, PADDING = 2, 3, 4, 2, 1
SOURCE = Path(__file__).parent / "kernel.c"


def compiled(folder, *flags):
    """Compile the kernel to a library and return its function."""
    library = Path(folder) / "kernel.so"
    if shutil.which("cc") is None:
        sys.exit("check.py compiles kernel.c with cc, which is not on the path")
    subprocess.run(["cc", "-O2", "-ffp-contract=off", "-shared", "-fPIC", *flags, "-o", library, SOURCE], check=True)
    return ctypes.CDLL(str(library)).data_gradient


def main(fixed):
    """Compare the kernel with golden vectors and return the exit status."""
    draw = np.random.default_rng(0)
    dy = draw.standard_normal((BATCH, FILTERS, 5, 6), np.float32)
    w = draw.standard_normal((FILTERS, CHANNELS, 3, 3), np.float32)
    vectors = golden.make(
        "onednn::ConvolutionBackwardData", [dy, w, [BATCH, CHANNELS, 9, 11]], name="kernel.c",
        strides=[STRIDE] * 2, pads_begin=[PADDING] * 2, pads_end=[PADDING] * 2, dilations=[1, 1],
        data_format="NCX", weights_format="OIX")
    dx = np.full((BATCH, CHANNELS, 9, 11), np.nan, np.float32)
    with tempfile.TemporaryDirectory() as folder:
        kernel = compiled(folder, *(["-DFIXED"] if fixed else []))
        pointers = (ctypes.c_void_p(array.ctypes.data) for array in (dy, w, dx))
        kernel(*pointers, *dx.shape, *dy.shape[1:], *w.shape[2:], STRIDE, PADDING)
    report = golden.compare(vectors, dx)
    print(report)
    return 0 if report else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true", help="compile the kernel without its bug")
    sys.exit(main(parser.parse_args().fixed))
