"""What a run of the benchmark times: layers, directions, number formats and layouts, checked before anything runs."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from math import prod

from convreg.ops.kernels.threads import team

import convreg
from convreg import GraphError
from convreg.calls.binding import asking
from convreg.errors import near_misses
from convreg.layers import DIRECTIONS, LAYOUTS
from convreg.memory import max_bytes

from .calls import Job
from .check import DTYPES, RESULTS
from .nodes import results_of
from .problems import Problem

WIDE = ("f64", "float64", "fp64", "double")
"""Names that resemble narrow formats, for which a hint would be misleading."""


def jobs_of(problems: Sequence[Problem], directions: Sequence[str], dtypes: Sequence[str] | None,
            layouts: Sequence[str]) -> list[Job]:
    """Return one job per layer, direction, number format, format of results and layout; `run` has the rules.

    Equal jobs count as one.

    Raises
    ------
    GraphError
        If a name is outside the allowed ones, a layer does not fit into memory, or nothing is left to time.
    """
    for name in dtypes or ():
        if name.lower() in WIDE:
            raise GraphError(f"number format {name!r} is refused: float64 is not timed; allowed: {', '.join(DTYPES)}")
    for values, allowed, what in ((directions, DIRECTIONS, "direction"), (dtypes or (), DTYPES, "number format"),
                                  (layouts, LAYOUTS, "layout")):
        for value in values:
            one_of(value, allowed, what)
    own = dict.fromkeys(problem.dtype or "f32" for problem in problems)
    formats = own if dtypes is None else dtypes
    jobs = [*dict.fromkeys(
        Job(problem, direction, dtype, layout, result) for layout in layouts for dtype in formats
        for result in RESULTS[dtype] for direction in directions for problem in problems
        if direction in (problem.directions or directions)
        and (dtypes is not None or dtype == (problem.dtype or "f32")) and result in results_of(problem, dtype))]
    if not jobs:
        raise GraphError("nothing to time: no layer has one of the directions " + ", ".join(directions))
    for problem in dict.fromkeys(job.problem for job in jobs):
        _refuse_beyond_memory(problem)
    return jobs


def refuse_endless(repeat: int, seconds: float) -> None:
    """Raise unless a call runs at least once and for a finite time.

    Raises
    ------
    GraphError
        It names the number.
    """
    if repeat < 1:
        raise GraphError(f"repeat={repeat} is refused; allowed: an integer, at least 1")
    if not 0 <= seconds < float("inf"):
        raise GraphError(f"seconds={seconds} is refused; allowed: a finite number, at least 0")


def started(threads: int | None) -> int:
    """Return the number of threads that convreg starts for a requested number.

    Raises
    ------
    GraphError
        If convreg starts fewer than that here.
    """
    if threads is None:
        return team(0)
    most = team(sys.maxsize)
    if not 1 <= threads <= most:
        raise GraphError(f"threads={threads} is refused; allowed: 1{f' to {most}' if most > 1 else ''}, "
                         "the threads that convreg starts here")
    return threads


def _refuse_beyond_memory(problem: Problem) -> None:
    """Refuse what cannot be measured here: three tensors, and the result again in float64."""
    spec = convreg.onednn.convolution.spec
    limit = max_bytes(asking(spec, spec.conformances[0]))
    sizes = [*map(prod, problem.shapes)]
    if 4 * sum(sizes) + 8 * max(sizes) > limit:
        raise GraphError(f"{problem.name}: tensors of {sizes} elements do not fit into {limit} bytes")


def one_of(value: str, allowed: Iterable[str], what: str) -> None:
    """Raise unless a name is an allowed one.

    Raises
    ------
    GraphError
        It lists the allowed names and may suggest one.
    """
    known = list(allowed)
    if value not in known:
        near = near_misses(value, known)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise GraphError(f"no {what} named {value!r}; allowed: {', '.join(known)}{hint}")
