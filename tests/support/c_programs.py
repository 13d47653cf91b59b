"""Programs that include a header of the kernels."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from places import ROOT

CORE = ROOT / "ops" / "kernels" / "core"


def compiled(folder: Path, text: str) -> str:
    """The path of a program that finds the headers of the core, compiled in a folder."""
    compiler = shutil.which(os.environ.get("CC", "cc").split()[-1])
    if not CORE.is_dir() or compiler is None:
        pytest.skip("needs the source checkout and a C compiler")
    source, program = folder / "program.c", folder / "program"
    source.write_text(text)
    subprocess.run([compiler, "-I", str(CORE), "-o", str(program), str(source), "-lm"], check=True, timeout=60)
    return str(program)
