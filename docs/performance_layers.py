"""Writes docs/performance-layers.md: `python docs/performance_layers.py`, with convreg and PyTorch installed.

Times every number format of the 38 layers of `convreg bench`, both gradients, beside float32 and PyTorch.
"""

from __future__ import annotations

import argparse
import textwrap
from pathlib import Path

from convreg.tools.bench import formats, run
from convreg.tools.bench.problems import shipped_shapes
from convreg.tools.progress import reporter

PAGE = Path(__file__).with_name("performance-layers.md")
HEAD = """# Performance layer by layer

`python docs/performance_layers.py` writes this page. It runs `convreg bench --formats all`, and [bench.md](bench.md)
explains the protocol. "ms" is convreg's time. "f32 ratio" is the time of convreg's f32 divided by it, and "torch ratio"
is PyTorch's time in the same format divided by it: above 1, convreg is faster.
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
    report = run(shipped_shapes(), peers=("torch",), seconds=parser.parse_args().seconds, together=True,
                 progress=reporter())
    lines = formats.shown(report, as_markdown=True).splitlines()
    PAGE.write_text("\n".join([HEAD, *map(wrapped, lines), ""]), "utf-8")


if __name__ == "__main__":
    main()
