"""Writes docs/performance-layers.md: `python docs/performance_layers.py`, with convreg and PyTorch installed.

Times the 38 layers of `convreg bench` in float32 and bfloat16 beside PyTorch: both gradients and the forward pass.
"""

from __future__ import annotations

import argparse
import textwrap
from pathlib import Path

from convreg.tools.bench import run
from convreg.tools.bench.problems import shipped_shapes
from convreg.tools.bench.report import markdown

from convreg.progress import reporter

PAGE = Path(__file__).with_name("performance-layers.md")
HEAD = """# Performance layer by layer

`python docs/performance_layers.py` writes this page, and [bench.md](bench.md) explains the protocol. "ms" is convreg's
time. "torch ratio" is PyTorch's time divided by it: above 1, convreg is faster.
"""


def wrapped(line: str) -> str:
    """Return a line of prose as lines of at most 120 characters; tables and headings as they are."""
    if line.startswith(("|", "#")):
        return line
    return textwrap.fill(line, 120, subsequent_indent="  " if line.startswith("* ") else "", break_long_words=False)


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=0.1, help="the time per call (default 0.1)")
    report = run(shipped_shapes(), directions=("data", "weights", "forward"), dtypes=("f32", "bf16"), peers=("torch",),
                 seconds=parser.parse_args().seconds, progress=reporter())
    lines = markdown(report).splitlines()
    PAGE.write_text("\n".join([HEAD, *map(wrapped, lines), ""]), "utf-8")


if __name__ == "__main__":
    main()
