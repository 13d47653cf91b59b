"""The figures that ``convreg bench --json`` wrote, read for a comparison."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Any, NamedTuple

from convreg import GraphError
from convreg.files import PathLike, json_of, read_bytes

from .calls import Job
from .machine import Identity
from .report import OURS


class Key(NamedTuple):
    """What a time belongs to: the layer by name and in words, and the rest of a job."""

    name: str
    direction: str
    dtype: str
    result: str
    layout: str
    layer: str

    @staticmethod
    def of(job: Job) -> Key:
        """Return a job's key."""
        return Key(job.problem.name, job.direction, job.dtype, job.result, job.layout, str(job.problem))


@dataclass(frozen=True)
class Figures:
    """convreg's times in seconds, and where and how they were measured."""

    path: str
    identity: Identity
    threads: int
    repeat: int
    seconds: float
    times: dict[Key, float]
    algorithm: str | None = None
    """The algorithm that all calls were forced to take."""


def read_figures(path: PathLike) -> Figures:
    """Return the figures of a file; results that were wrong are left out.

    Raises
    ------
    GraphError
        If it cannot be read, or is not what ``convreg bench --json`` writes.
    """
    content = read_bytes(path)
    try:
        document = json_of(content)
        machine = document["machine"]
        identity = Identity(_text(machine["processor"]), _whole(machine["processors"]), _text(machine["isa"]))
        times = {key: time for key, time in map(_entry, document["results"]) if time is not None}
        return Figures(str(path), identity, _whole(document["threads"]), _whole(document["repeat"]),
                       _number(document["seconds"]), times, _name(document.get("algorithm")))
    except (ValueError, OverflowError) as error:
        raise GraphError(f"{path}: not a file that `convreg bench --json` wrote: {error}") from None
    except KeyError as error:
        if "reports" in document:
            raise GraphError(f"{path} is refused: it has the figures of several kinds of machines; allowed: those of "
                             "one, as `convreg bench --json` writes without --dask") from None
        raise GraphError(f"{path}: not a file that `convreg bench --json` wrote: key {error} is missing") from None
    except (TypeError, AttributeError):
        raise GraphError(f"{path}: not a file that `convreg bench --json` wrote: a value has "
                         "another type") from None


def _entry(entry: dict[str, Any]) -> tuple[Key, float | None]:
    """Return an object of ``results``; the format of the result is that of the operands unless it is named."""
    names = {"result": entry["dtype"], **entry}
    key = Key(*(_text(names[field]) for field in Key._fields))
    if OURS in entry["wrong"] or OURS not in entry["ms"]:
        return key, None
    milliseconds = _number(entry["ms"][OURS])
    if milliseconds <= 0:
        raise ValueError(f"{key.name} took {milliseconds} ms")
    return key, 1e-3 * milliseconds


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _name(value: Any) -> str | None:
    return None if value is None else _text(value)


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise TypeError
    return value


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not isfinite(value):
        raise TypeError
    return float(value)
