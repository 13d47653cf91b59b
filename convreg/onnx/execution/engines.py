"""Which engine runs a model: the one that the caller names, else onnxruntime where it is installed and able."""

from __future__ import annotations

from typing import NamedTuple

from onnx import ModelProto

from ...errors import GraphError, shorten
from ..graph import sentence
from .evaluator import Evaluator, Observer, Runner, node_classes

ENGINES = ("onnxruntime", "reference")


class Choice(NamedTuple):
    """What runs a model.

    `engine` is the name of the engine; `note` says what else runs nodes, or why onnxruntime does not, and may be empty.
    """

    runner: Runner
    engine: str
    note: str


def choose(model: ModelProto, engine: str | None, observer: Observer | None) -> Choice:
    """Return what runs a model under the engine that was asked for, None for the default.

    Raises
    ------
    GraphError
        If there is no such engine, or it cannot run the model.
    """
    if engine is not None and not (isinstance(engine, str) and engine in ENGINES):
        raise GraphError(f"engine={shorten(engine)} is refused; allowed: {' or '.join(map(repr, ENGINES))}, or None "
                         "for the default")
    if observer is not None and not callable(observer):
        raise GraphError(f"observer={shorten(observer)} is refused; allowed: a function of one ObservedCall, or None")
    if observer is not None and engine == "onnxruntime":
        raise GraphError(f"engine={engine!r} has no observer; allowed: engine='reference'")
    if engine == "reference":
        return Choice(reference(model, observer), "reference", "")
    if observer is not None:
        return Choice(reference(model, observer), "reference", "onnxruntime has no observer")
    if engine == "onnxruntime":
        return _in_onnxruntime(model)
    try:
        return _in_onnxruntime(model)
    except Exception as error:  # whatever the package raises when it is imported or given the model
        reason = sentence(error)
    return Choice(reference(model), "reference", reason)


def reference(model: ModelProto, observer: Observer | None = None) -> Runner:
    """Return the reference engine with a model."""
    return Evaluator(model, new_ops=node_classes(observer))


def _in_onnxruntime(model: ModelProto) -> Choice:
    from .partition import Partition  # onnxruntime may be absent

    partition = Partition(model)
    if not partition.elsewhere:
        return Choice(partition, "onnxruntime", "")
    shown = {key: f"{key[0]} ({count} times)" if count > 1 else key[0] for key, count in partition.elsewhere.items()}
    lacking = ", ".join(kind for (_, reason), kind in shown.items() if not reason)
    refused = [(kind, reason) for (_, reason), kind in shown.items() if reason]
    if all(isinstance(part.runner, Evaluator) for part in partition.parts):
        notes = [f"onnxruntime has no kernel for {lacking}"] if lacking else []
        notes += [f"onnxruntime refuses {kind} ({reason})" for kind, reason in refused]
        return Choice(partition, "reference", "; ".join(notes))
    notes = [f"the reference engine runs {lacking}, for which onnxruntime has no kernel"] if lacking else []
    notes += [f"the reference engine runs {kind}, which onnxruntime refuses ({reason})" for kind, reason in refused]
    return Choice(partition, "onnxruntime", "; ".join(notes))
