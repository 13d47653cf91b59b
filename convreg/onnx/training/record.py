"""What a step model says of itself: the JSON document in its metadata, and the names of its values.

A parameter ``P`` and its states ``P.velocity`` (momentum), ``P.moment1`` and ``P.moment2`` (Adam), the count of steps
``step`` and running statistics are inputs; each leaves as an output with ``.next`` appended.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from onnx import ModelProto

from ...errors import GraphError, shorten

KEY = "convreg.step"
"""The entry of ``metadata_props``."""

NEXT = ".next"
VERSION = 1


@dataclass(frozen=True)
class StepRecord:
    """What the metadata of a step model holds.

    Attributes
    ----------
    model : str
        Hash of the forward graph without its weights: checkpoints name the model that they belong to.
    data : list of str
        Inputs of the forward model.
    target : str or None
        The input that the loss compares the output with.
    loss : str
        The output that is the loss.
    outputs : list of str
        Outputs of the forward model.
    learning_rate : str
        An input.
    loss_scale : str or None
        An input, where gradients are scaled.
    parameters : list of str
        Inputs that are trained.
    statistics : list of str
        Inputs that are running statistics.
    state : dict
        Every input that is carried from step to step, with the output that it is next.
    count : str or None
        The input, one of `state`, that counts the steps.
    settings : dict
        Loss, optimizer, its constants, formats: what the step was made with.
    """

    model: str
    data: list[str]
    target: str | None
    loss: str
    outputs: list[str]
    learning_rate: str
    loss_scale: str | None
    parameters: list[str]
    statistics: list[str]
    state: dict[str, str]
    count: str | None
    settings: dict[str, Any]

    def batched(self, feeds: Mapping[str, Any]) -> str | None:
        """Return the input whose axis 0 is the batch: the target, or the first one of the data that has axes."""
        names = [name for name in (self.target, *self.data) if name is not None]
        return next((name for name in names if np.ndim(feeds[name])), None)

    def write(self, model: ModelProto) -> None:
        """Put the record into a model's metadata."""
        text = json.dumps({"version": VERSION, **asdict(self)}, separators=(",", ":"))
        set_metadata(model, KEY, text)

    @classmethod
    def of(cls, model: ModelProto) -> StepRecord:
        """Read the record of a step model.

        Raises
        ------
        GraphError
            If the model has none, or one that contradicts the graph.
        """
        text = metadata(model).get(KEY)
        if text is None:
            raise GraphError(f"the model has no metadata {KEY!r}; a step model is what convreg.onnx.training_step "
                             "returns")
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise GraphError(f"the model's metadata {KEY!r} is not JSON: {error}") from None
        if not isinstance(content, dict) or content.pop("version", None) != VERSION:
            raise GraphError(f"the model's metadata {KEY!r} is of another version; allowed: {VERSION}")
        for field in fields(cls):
            if not _fits(content.get(field.name), str(field.type)):
                raise GraphError(f"the model's metadata {KEY!r} has {field.name}="
                                 f"{shorten(content.get(field.name))}; allowed: {field.type}")
        record = cls(**{field.name: content[field.name] for field in fields(cls)})
        record._check(model)
        return record

    def _check(self, model: ModelProto) -> None:
        inputs = {value.name for value in model.graph.input}
        outputs = {value.name for value in model.graph.output}
        read = [*self.data, *self.parameters, *self.statistics, *self.state, self.learning_rate,
                *(name for name in (self.target, self.loss_scale, self.count) if name is not None)]
        for names, known, what in ((read, inputs, "input"), ([self.loss, *self.state.values(), *self.outputs], outputs,
                                                             "output")):
            for name in names:
                if name not in known:
                    raise GraphError(f"the model's metadata {KEY!r} names the {what} {name!r}, which the graph does "
                                     "not have")
        for name in (*self.parameters, *self.statistics):
            if name not in self.state:
                raise GraphError(f"the model's metadata {KEY!r} does not say what {name!r} is next")


def _fits(value: Any, kind: str) -> bool:
    if kind.endswith(" | None"):
        return value is None or _fits(value, kind.removesuffix(" | None"))
    if kind == "str":
        return isinstance(value, str)
    if kind == "list[str]":
        return isinstance(value, list) and all(isinstance(entry, str) for entry in value)
    strings = kind == "dict[str, str]"
    return isinstance(value, dict) and (not strings or all(isinstance(entry, str) for entry in value.values()))


def metadata(model: ModelProto) -> Mapping[str, str]:
    """Return a model's metadata."""
    return {entry.key: entry.value for entry in model.metadata_props}


def set_metadata(model: ModelProto, key: str, value: str) -> None:
    """Write an entry of a model's metadata in place of an older one."""
    kept = [(entry.key, entry.value) for entry in model.metadata_props if entry.key != key]
    del model.metadata_props[:]
    for name, text in (*kept, (key, value)):
        model.metadata_props.add(key=name, value=text)
