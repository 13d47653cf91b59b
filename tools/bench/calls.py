"""The call that a user of convreg makes for a layer: the oneDNN function, its operands and its attributes."""

from __future__ import annotations

from typing import Any, NamedTuple

from convreg.spec import snake_case

from .check import EIGHT_BIT, FORMAT_NAMES, recipe
from .peer import Unsupported
from .problems import Problem


class Job(NamedTuple):
    """What is to be timed: a layer, a direction, the format of the operands, the layout, the format of the result."""

    problem: Problem
    direction: str
    dtype: str
    layout: str
    result: str

    @property
    def words(self) -> str:
        """Name, direction, number format and layout."""
        return " ".join((self.problem.name, *self[1:4]))


class Call(NamedTuple):
    """A function of ``convreg.onednn``, the names of its operands in order, and its attributes."""

    function: str
    operands: tuple[str, ...]
    settings: dict[str, Any]


def user_call(job: Job) -> Call:
    """Return the call that a user makes, or raise `Unsupported`."""
    problem, direction, dtype, layout, result_format = job
    if any(axis.begin < 0 for axis in problem.geometry.axes):
        raise Unsupported("negative padding")
    operator, operands, settings = problem.call(direction, layout)
    if dtype in EIGHT_BIT:
        settings["conformance"] = "emulation"
    if result_format != dtype:
        settings["output_format"] = FORMAT_NAMES[result_format]
    return Call(snake_case(operator), operands, settings)


def request(job: Job, threads: int) -> dict[str, Any]:
    """Return the call as JSON for a worker process, operands included, or raise `Unsupported`."""
    function, operands, settings = user_call(job)
    return {"do": "prepare", "function": function, "settings": {**settings, "threads": threads},
            "operands": [recipe(job.problem, name, job.dtype, job.layout) for name in operands]}
