"""The examples of a page: its Python blocks and its commands, run one after another."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from typing import NamedTuple

from convreg.tools import cli
from places import ROOT

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


class Step(NamedTuple):
    """A Python block or a command of the page, and what it prints there."""

    source: str
    printed: str
    is_command: bool


def steps_of(page: str) -> list[Step]:
    """Return the page's Python blocks and its commands behind ``$``, in order.

    The output of a Python block is the text block that follows it without another block in between.
    """
    steps: list[Step] = []
    blocks = BLOCK.findall(page)
    for place, (language, text) in enumerate(blocks):
        if language == "python":
            following, printed = blocks[place + 1] if place + 1 < len(blocks) else ("", "")
            steps.append(Step(text, printed if following == "text" else "", False))
        elif language == "console":
            for command in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
                line, _, printed = command.partition("\n")
                steps.append(Step(line, printed, True))
    return steps


def run(step: Step, names: dict[str, object]) -> tuple[str, int]:
    """Run a step in the current folder and return what it prints and its exit status; `names` are Python's."""
    printed, status = io.StringIO(), 0
    if not step.is_command:
        with contextlib.redirect_stdout(printed):
            exec(compile(step.source, "page", "exec"), names)
        return printed.getvalue(), status
    program, *arguments = shlex.split(step.source)
    if program == "python":
        made = subprocess.run([sys.executable, *arguments], capture_output=True, text=True,
                              env={**os.environ, "PYTHONPATH": str(ROOT)})
        return made.stdout, made.returncode
    assert program == "convreg"
    with contextlib.redirect_stdout(printed):
        status = cli.main(arguments)
    return printed.getvalue(), status
