"""What a process does for a unit: it opens the model once, runs it, sums and joins, and says of which samples an error
is."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from threading import Lock
from typing import Any

import numpy as np
from onnx import ModelProto

from ....errors import GraphError, OpError, add_note
from ...execution.engines import choose
from ...execution.evaluator import Runner
from ...team import threads_of_nodes
from .sums import Total
from .units import Item, Items, Program, Unit, gathered, taken

MOST_OPEN = 512
"""The largest number of models that a process keeps open."""

_open: OrderedDict[tuple[str, str, str], tuple[Runner, list[str]]] = OrderedDict()
_opening = Lock()


def compute(program: Program, name: str, threads: int | None, given: list[Items]) -> tuple[dict[Item, Any], ...]:
    """Compute a unit and return its groups of results.

    Parameters
    ----------
    program : Program
    name : str
        Of the unit.
    threads : int or None
        Of convreg's kernels, None for their default. Standard nodes run on one thread: libraries cut sums by threads.
    given : list of mappings
        The pieces of values that the unit reads.

    Raises
    ------
    GraphError, OpError
        What a node or an operator raises, with the samples.
    """
    unit = program.units[name]
    try:
        return _computed(program, unit, threads, {item: value for items in given for item, value in items.items()})
    except OpError as error:
        add_note(error, f"in {unit.words} of the batch")
        raise
    except GraphError as error:
        if not unit.model:
            raise
        raise GraphError(f"{unit.words} of the batch: {error}") from error


def _computed(
    program: Program, unit: Unit, threads: int | None, given: dict[Item, Any]
) -> tuple[dict[Item, Any], ...]:
    made: dict[str, Any] = {}
    if unit.model:
        runner, outputs = opened(program, unit.model)
        feeds = {name: gathered(items, given) for name, items in unit.reads.items()}
        with threads_of_nodes(threads or 0):
            made = dict(zip(outputs, runner.run(None, feeds), strict=True))
    parts: dict[Item, Any] = {}
    for piece in unit.pieces:
        rows = {value: gathered(items, _own(items, made, unit, given)) for value, items in piece.rows.items()}
        total = program.totals[piece.total]
        assert isinstance(total, Total)
        try:
            parts[Item(piece.total, piece.first, piece.end)] = total.part(
                rows, range(piece.first, piece.end), threads)
        except OpError as error:
            add_note(error, f"in {total.what}")
            raise
    for joined in unit.joins:
        made[joined.total] = program.totals[joined.total].whole([given[item] for item in joined.parts], threads)
    return tuple({item: parts[item] if item in parts else taken(np.asarray(made[item.value]), item, unit.samples)
                  for item in group} for group in unit.groups)


def _own(items: tuple[Item, ...], made: Mapping[str, Any], unit: Unit, given: dict[Item, Any]) -> dict[Item, Any]:
    """The pieces that are given, and those that the unit made itself."""
    return {item: given[item] if item in given else taken(np.asarray(made[item.value]), item, unit.samples)
            for item in items}


def opened(program: Program, name: str) -> tuple[Runner, list[str]]:
    """Return what runs a model of a program, and the names of its outputs; a process opens it once."""
    key = program.digest, program.engine, name
    with _opening:
        if key in _open:
            _open.move_to_end(key)
            return _open[key]
        check_runtime(program)
        model = ModelProto.FromString(program.models[name])
        with threads_of_nodes(1):
            found = choose(model, program.engine, None).runner, [value.name for value in model.graph.output]
        _open[key] = found
        while len(_open) > MOST_OPEN:
            _open.popitem(last=False)
        return found


def check_runtime(program: Program) -> None:
    """Refuse another version of onnxruntime than the client's: its bits may be others."""
    if program.runtime and runtime_version(program.engine) != program.runtime:
        raise GraphError(f"a worker has onnxruntime {runtime_version(program.engine) or 'not installed'}; allowed: "
                         f"{program.runtime}, the version of the client")


def runtime_version(engine: str) -> str:
    """Return the version of onnxruntime here, empty without it or under the reference engine."""
    if engine != "onnxruntime":
        return ""
    try:
        import onnxruntime
    except ImportError:
        return ""
    return str(onnxruntime.__version__)
