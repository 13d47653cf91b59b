"""The progress of long work, on the standard error. Names of cases come from files, and are shown with escapes."""

from __future__ import annotations

import sys
from collections.abc import Callable

from .errors import printable

Progress = Callable[[int, int, str], None]
"""Called with how many steps are done, of how many, and the one that comes."""


def reporter() -> Progress:
    """Return what shows progress here: a bar on a terminal, lines elsewhere."""
    return bar if sys.stderr.isatty() else lines


def bar(done: int, total: int, what: str) -> None:
    """Draw a progress bar in place of the last one."""
    filled = 24 * done // total
    line = f"[{'#' * filled}{'.' * (24 - filled)}] {done}/{total} {printable(what)}"
    sys.stderr.write(f"\r\x1b[K{line[:110]}" if done < total else "\r\x1b[K")
    sys.stderr.flush()


def lines(done: int, total: int, what: str) -> None:
    """Write a line per call, for output that is not a terminal."""
    if done < total:
        print(f"{done}/{total} {printable(what)}", file=sys.stderr, flush=True)


def note(text: str) -> None:
    """Write a line that stays."""
    print(text, file=sys.stderr, flush=True)
