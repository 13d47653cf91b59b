"""Training over epochs: batches in an order that the seed decides, checkpoints, and exact continuation."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from ...errors import Asking, GraphError, shorten
from ...files import PathLike, json_of, refuse_unwritable
from ...guard import guarded
from ...memory import Array, array_of
from ...progress import Progress
from .optimizers import flag, number
from .trainer import Trainer

OP = "convreg::onnx::training::fit"
NOTE = "convreg.fit"
"""The entry of a checkpoint's metadata."""

Schedule = Callable[[int, int], float]
"""Takes the number of a step, from 0 on, and of all steps; returns what the learning rate is multiplied by."""

SCHEDULES: dict[str, Schedule] = {
    "constant": lambda step, steps: 1.0,
    "cosine": lambda step, steps: 0.5 * (1 + math.cos(math.pi * step / steps)),
}


@dataclass
class History:
    """The losses of a training.

    Attributes
    ----------
    epochs : list of float
        The mean loss of every epoch that is done.
    losses : list of float
        The losses of the steps of the epoch that is not.
    """

    epochs: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)


@guarded(OP)
def fit(
    trainer: Trainer, data: Mapping[str, Array], *, epochs: int, batch: int = 32, learning_rate: float | None = None,
    schedule: Literal["constant", "cosine"] = "constant", seed: int = 0, shuffle: bool = True,
    checkpoint: PathLike | None = None, every: int | None = None, resume: bool = False,
    progress: Progress | None = None,
) -> History:
    """Train over epochs.

    Parameters
    ----------
    trainer : Trainer
    data : mapping of str to array
        An array for every input of the forward model and the target; the first axis is that of the samples.
    epochs : int
        Number of epochs in all. Epochs before a resumed checkpoint count.
    batch : int
        Number of samples of a step. The last batch of an epoch may be smaller. If the model has a fixed batch, a
        smaller last batch is left out.
    learning_rate : float, optional
        Learning rate of the first step. The default is that of the step model.
    schedule : {"constant", "cosine"}
        "constant" keeps the learning rate. "cosine" lets it fall along half a cosine, to 0 after the last step.
    seed : int
        Seed of the order of the samples. Every epoch has another order.
    shuffle : bool
        Whether the samples are shuffled. Otherwise every epoch has the order of the data.
    checkpoint : path-like, optional
        A safetensors file that is replaced after every epoch.
    every : int, optional
        Number of steps after which the checkpoint is replaced, in addition to the end of every epoch.
    resume : bool
        Whether to continue from the checkpoint. The result has the bits of a training without interruption, unless
        the model has masks of Dropout.
    progress : callable, optional
        Called with the number of steps done, of all steps, and a text; `convreg.progress.reporter` gives a bar.

    Returns
    -------
    History

    Raises
    ------
    GraphError
        If the data does not fit the model or an argument is wrong, the checkpoint is of another model or training, or a
        loss is not finite. The checkpoint is then the last good one.
    """
    if not isinstance(trainer, Trainer):
        raise GraphError(f"trainer={shorten(trainer)} is refused; allowed: a convreg.onnx.Trainer")
    run = _Run(trainer, data, epochs, batch, learning_rate, schedule, seed, shuffle)
    flag("resume", resume)
    if progress is not None and not callable(progress):
        raise GraphError(f"progress={shorten(progress)} is refused; allowed: a callable, or None")
    if every is not None:
        run.count("every", every, 1)
    if checkpoint is None and (resume or every is not None):
        raise GraphError(f"{'resume' if resume else 'every'} is refused without a checkpoint; allowed: a file")
    if checkpoint is not None:
        refuse_unwritable("checkpoint", checkpoint)
    if resume:
        assert checkpoint is not None
        run.continued(trainer.load(checkpoint), checkpoint)
    elif trainer.steps:
        raise GraphError(f"the trainer has made {trainer.steps} steps already; allowed: a new one, or resume=True")
    for feeds, is_last in run.batches():
        if progress is not None:
            progress(trainer.steps, run.steps, run.text())
        try:
            run.note(float(trainer.step(feeds)["loss"]), is_last)
        except GraphError as error:
            raise GraphError(f"{error}{run.left(checkpoint)}") from error
        if checkpoint is not None and (is_last or (every is not None and trainer.steps % every == 0)):
            try:
                trainer.save(checkpoint, {NOTE: run.notes()})
                run.saved = trainer.steps
            except GraphError as error:
                raise GraphError(f"{error}{run.left(checkpoint)}") from error
    if progress is not None:
        progress(run.steps, run.steps, run.text())
    return run.history


class _Run:
    """One training: its data, its order, and what happened so far."""

    def __init__(
        self, trainer: Trainer, data: Mapping[str, Array], epochs: int, batch: int, learning_rate: float | None,
        schedule: str, seed: int, shuffle: bool,
    ) -> None:
        self.trainer, self.shuffle = trainer, flag("shuffle", shuffle)
        self.epochs = self.count("epochs", epochs, 1)
        self.batch = self.count("batch", batch, 1)
        self.seed = self.count("seed", seed, 0)
        self.rate = None if learning_rate is None else number("learning_rate", learning_rate)
        if not isinstance(schedule, str) or schedule not in SCHEDULES:
            raise GraphError(f"schedule={shorten(schedule)} is refused; allowed: {', '.join(map(repr, SCHEDULES))}")
        self.schedule = schedule
        self.data = self._checked(data)
        self.samples = len(next(iter(self.data.values())))
        fixed = self._fixed_batch()
        if fixed is not None and fixed != self.batch:
            raise GraphError(f"batch={self.batch} is refused: the model has batches of {fixed}; allowed: {fixed}")
        self.whole = self.samples // self.batch if fixed is not None else -(-self.samples // self.batch)
        if not self.whole:
            raise GraphError(f"the data has {self.samples} samples; needed: {self.batch} at least")
        self.steps = self.epochs * self.whole
        self.history = History()
        self.saved: int | None = None

    @staticmethod
    def count(name: str, value: Any, least: int) -> int:
        """Return an integer."""
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value < 2**62:
            raise Asking(OP).refuse(name, value, f"an integer, {least} or more")
        return int(value)

    def _checked(self, data: Any) -> dict[str, Array]:
        record = self.trainer.record
        wanted = [*record.data, *([record.target] if record.target is not None else [])]
        if not isinstance(data, Mapping):
            raise GraphError(f"data is a mapping from name to array, not {type(data).__name__}")
        for name in data:
            if name not in wanted:
                raise GraphError(f"the data has {shorten(name)}, which is no input of the step; allowed: "
                                 f"{', '.join(wanted)}")
        arrays = {}
        for name in wanted:
            if name not in data:
                raise GraphError(f"the data lacks {name!r}; needed: {', '.join(wanted)}")
            try:
                arrays[name] = array_of(data[name])
            except Exception as error:  # __array__ of foreign objects may raise anything
                raise GraphError(f"the data has {name!r} as {type(data[name]).__name__} ({error})") from error
            if not arrays[name].ndim:
                raise GraphError(f"the data has {name!r} as a single number; needed: an axis of samples")
        if not arrays:
            raise GraphError("the step has no input that takes samples")
        counts = {name: len(array) for name, array in arrays.items()}
        if len(set(counts.values())) > 1:
            raise GraphError("the arrays have different numbers of samples: "
                             f"{', '.join(f'{name} {found}' for name, found in counts.items())}")
        if not next(iter(counts.values())):
            raise GraphError("the data has no samples")
        return arrays

    def _fixed_batch(self) -> int | None:
        extents = [self.trainer.shape_of(name)[:1] for name in self.data]
        return next((extent[0] for extent in extents if extent and isinstance(extent[0], int)), None)

    def batches(self) -> Iterator[tuple[dict[str, Any], bool]]:
        """Yield what the steps that are left take, and whether a step is the last one of its epoch."""
        order: Array = np.arange(self.samples)
        known = -1
        while self.trainer.steps < self.steps:
            epoch, place = divmod(self.trainer.steps, self.whole)
            if self.shuffle and epoch != known:
                order, known = np.random.default_rng([self.seed, epoch]).permutation(self.samples), epoch
            rows = order[place * self.batch:][:self.batch]
            feeds: dict[str, Any] = {name: array[rows] for name, array in self.data.items()}
            factor = SCHEDULES[self.schedule](self.trainer.steps, self.steps)
            rate = self.trainer.learning_rate if self.rate is None else self.rate
            feeds[self.trainer.record.learning_rate] = np.array(rate * factor, np.float32)
            yield feeds, place == self.whole - 1

    def note(self, loss: float, is_last: bool) -> None:
        """Note the loss of a step."""
        self.history.losses.append(loss)
        if is_last:
            self.history.epochs.append(float(np.mean(self.history.losses)))
            self.history.losses = []

    def text(self) -> str:
        """Say where the training is."""
        epoch = min(self.trainer.steps // self.whole + 1, self.epochs)
        recent = self.history.losses or self.history.epochs[-1:]
        return f"epoch {epoch} of {self.epochs}" + (f", loss {np.mean(recent):.4g}" if recent else "")

    def left(self, checkpoint: PathLike | None) -> str:
        """Say what an end leaves behind."""
        if checkpoint is None or self.saved is None:
            return ""
        return f"; {checkpoint} holds the state after step {self.saved}"

    def _settings(self) -> dict[str, Any]:
        """What a resumed training must have in common with the one before."""
        return {"batch": self.batch, "samples": self.samples, "seed": self.seed, "shuffle": self.shuffle,
                "learning_rate": self.rate, "schedule": self.schedule,
                **({"epochs": self.epochs} if self.schedule != "constant" else {})}

    def notes(self) -> str:
        """What a checkpoint holds besides the state."""
        return json.dumps({**self._settings(), "means": self.history.epochs, "losses": self.history.losses})

    def continued(self, notes: Mapping[str, str], path: PathLike) -> None:
        """Take over what a checkpoint says.

        Raises
        ------
        GraphError
            If it is of a training with other settings.
        """
        try:
            found = json_of(notes[NOTE].encode())
            means, losses = ([float(loss) for loss in found[key]] for key in ("means", "losses"))
        except (KeyError, TypeError, ValueError) as error:
            raise GraphError(f"{path}: holds no training over epochs to continue") from error
        for name, value in self._settings().items():
            if found.get(name) != value:
                raise GraphError(f"{path}: the training before had {name}={shorten(found.get(name))}; resuming it with "
                                 f"{name}={shorten(value)} is refused")
        self.history = History(means, losses)
        self.saved = self.trainer.steps
        if self.trainer.steps > self.steps:
            raise GraphError(f"{path}: the training has made {self.trainer.steps} steps; epochs={self.epochs} are "
                             f"{self.steps}; allowed: more epochs")
