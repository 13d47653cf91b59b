"""Steps of training, one after the other: the state is carried, saved, loaded, and exported as a forward model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Literal

import numpy as np
from onnx import ModelProto

from ...errors import Asking, GraphError, shorten
from ...files import PathLike, write_atomically
from ...guard import guarded, thread_count
from ...memory import Array, array_of
from ..execution.engines import choose
from ..execution.evaluator import Runner
from ..execution.session import taken
from ..graph import Declared, flattened
from ..model.files import Source, opened
from ..rewrite.builder import Names
from ..team import threads_of_nodes
from . import safetensors
from .carried_values import CarriedValues
from .forward import deployed
from .initial import values_of
from .optimizers import LEARNING_RATE, number
from .record import StepRecord
from .sharded.report import StepReport
from .sharded.steps import divided_steps

OP = "convreg::onnx::Trainer"
MODEL, STEPS, OPTIMIZER = "convreg.model", "convreg.steps", "convreg.optimizer"
"""Entries of a checkpoint's metadata."""


class Trainer:
    """A step model with its state, made ready to run step after step.

    Parameters
    ----------
    step_model : onnx.ModelProto or path
        What `convreg.onnx.training_step` returned, in any dialect.
    engine : {"onnxruntime", "reference"}, optional
        As in `convreg.onnx.Session`. In onnxruntime the state stays in its memory from step to step.
    threads : int, optional
        Of the engine and of convreg's kernels; the default is that of the kernels. On a cluster the workers' own
        threads are those of the tasks.
    client : distributed.Client or str, optional
        A cluster that makes the steps: a client of Dask, the address of a scheduler, or ``"local:N"`` for N processes
        on this machine. The state stays in this process.
    shards : int, optional
        The number of parts that each batch is divided into. The default is 8 with a client and no division without
        one. Smaller batches have fewer shards. The shards decide the bits, the workers do not: the same number gives
        the same parameters on any cluster and, without a client, in this process.
    statistics : {"synchronous", "whole", "per_shard"}, optional
        How a divided step takes means and sums over samples and space, such as those of batch normalisation.
        "synchronous", the default, adds them over all shards in the order of convreg's trees. "whole" gathers the
        operands and takes them as a step that is not divided. "per_shard" makes the whole step up to the gradients
        from each shard alone and averages gradients, running statistics and losses over the samples.

    Attributes
    ----------
    engine : str
        What runs the steps.
    engine_note : str
        As in `convreg.onnx.Session`.
    record : StepRecord
        The names of the step's inputs and outputs.
    steps : int
        How many steps were made, those of a loaded checkpoint included.

    Raises
    ------
    GraphError
        If the model is no step model, or the engine cannot run it.
    OpError
        If `threads` or `shards` is no positive integer, `statistics` is none of these or given without shards or a
        client, or the cluster does not answer.

    Examples
    --------
    >>> import onnx.parser
    >>> model = onnx.parser.parse_model('''
    ...     <ir_version: 10, opset_import: ["": 20]>
    ...     line (float[N, 2] x) => (float[N, 1] y) <float[2, 1] w = {1, 2}> { y = MatMul(x, w) }''')
    >>> import convreg.onnx
    >>> step = convreg.onnx.training_step(model, loss="mse", optimizer="sgd", learning_rate=0.5)
    >>> trainer = convreg.onnx.Trainer(step, engine="reference")
    >>> trainer.step({"x": [[1.0, 0.0]], "target": [[0.0]]})["loss"]
    np.float32(1.0)
    >>> trainer.parameters["w"].tolist()
    [[0.0], [2.0]]
    """

    @guarded(OP)
    def __init__(
        self, step_model: Source, engine: str | None = None, threads: int | None = None, *, client: Any = None,
        shards: int | None = None, statistics: Literal["synchronous", "whole", "per_shard"] | None = None,
    ) -> None:
        self._threads = thread_count(Asking(OP), threads)
        self._model = opened(step_model)
        self.record = StepRecord.of(self._model)
        self.steps = 0
        self._known = {value.name: Declared.of(value) for value in self._model.graph.input}
        self._defaults = values_of(self._model)
        for name in self.record.state:
            if name not in self._defaults:
                raise GraphError(f"the step model has no initial value of {name!r}")
        values = {name: self._defaults.pop(name) for name in self.record.state}
        self._defaults.setdefault(self.record.learning_rate, np.array(LEARNING_RATE, np.float32))
        self._free = [name for name in self._known if name not in self.record.state]
        self._needed = [name for name in self._free if name not in self._defaults]
        self._classes = _classes(self._model, str(self.record.settings.get("output")))
        self._forward_loss = Names.of(self._model).fresh("forward_loss")
        self._others = [self.record.loss, *(name for name in self.record.outputs if name != self.record.loss)]
        with threads_of_nodes(self._threads):
            runner, self.engine, self.engine_note = choose(flattened(self._model), engine, None)
        self._divided = divided_steps(
            self._model, self.record, values, self._others, engine=self.engine, threads=self._threads, client=client,
            shards=shards, statistics=statistics, ask=Asking(OP))
        names = [value.name for value in self._model.graph.output]
        self._carried = self._divided or _carried(runner, names, self.record.state, values, self._others)

    @guarded(OP)
    def step(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Make one step.

        Parameters
        ----------
        inputs : mapping
            Name -> array, as in `convreg.onnx.Session.run`: the inputs of the forward model and the target. Class
            labels may be of any integer type. The learning rate and the loss scale keep their defaults where they are
            left out.

        Returns
        -------
        dict
            ``"loss"`` -> the loss before the step, as a scalar, and the outputs of the forward model by name. A loss
            that has another name in the model is ``"loss"`` here. An output of the forward model that is named ``loss``
            and is not this loss is ``"forward_loss"`` here, with a number if the step model has that name already.

        Raises
        ------
        GraphError
            If an input is missing, unknown or not as declared, the batch has no samples, the learning rate is not
            finite or negative, the loss scale is not finite or not above 0, the target does not fit, or the loss is
            not finite. The state is then what it was before the step.
        """
        feeds = {**self._defaults, **self._feeds(inputs)}
        self._check_scalars(feeds)
        batched = self.record.batched(feeds)
        if batched is not None and not len(feeds[batched]):
            raise GraphError(f"the input {batched!r} has the shape {list(np.shape(feeds[batched]))}; allowed: a batch "
                             "of at least one sample")
        with threads_of_nodes(self._threads):
            made = self._carried.run(feeds)
        loss = made.pop(self.record.loss)
        self._check_target(feeds, made)
        if not np.isfinite(loss).all():
            raise GraphError(f"step {self.steps + 1}: the loss is {loss.reshape(-1)[0]}; training stops, and the state "
                             f"stays that after step {self.steps}")
        self._carried.advance()
        self.steps += 1
        if "loss" in made:  # the forward model's own output, beside a loss of another name
            made[self._forward_loss] = made.pop("loss")
        return {"loss": loss.reshape(-1)[0], **made}

    @property
    def parameters(self) -> dict[str, Array]:
        """Copies of the trained parameters by name."""
        return {name: self._carried.read(name) for name in self.record.parameters}

    @property
    def state(self) -> dict[str, Array]:
        """Copies of everything that is carried: parameters, states of the optimizer, running statistics."""
        return {name: self._carried.read(name) for name in self.record.state}

    @guarded(OP)
    def save(self, path: PathLike, notes: Mapping[str, str] | None = None) -> None:
        """Write a checkpoint in the safetensors format, completely or not at all.

        Parameters
        ----------
        path : path-like
        notes : mapping of str to str, optional
            Further metadata, which `load` returns.

        Raises
        ------
        GraphError
            If a parameter has become infinite or NaN, so that a good checkpoint is never replaced by a bad one, or the
            file cannot be written.
        """
        state = self.state
        for name in self.record.parameters:
            if not np.isfinite(state[name]).all():
                raise GraphError(f"step {self.steps}: the parameter {name!r} has numbers that are not finite; nothing "
                                 "is written")
        notes = {} if notes is None else notes
        if not isinstance(notes, Mapping) or not all(isinstance(text, str) for pair in notes.items() for text in pair):
            raise GraphError(f"notes={shorten(notes)} is refused; allowed: a mapping of str to str")
        metadata = {"format": "convreg", MODEL: self.record.model, STEPS: str(self.steps),
                    OPTIMIZER: str(self.record.settings.get("optimizer")), **notes}
        write_atomically(path, safetensors.written(state, metadata))

    @guarded(OP)
    def load(self, path: PathLike) -> dict[str, str]:
        """Continue from a checkpoint.

        Parameters
        ----------
        path : path-like
            What `save` wrote, for the same forward model and the same optimizer.

        Returns
        -------
        dict
            The notes.

        Raises
        ------
        GraphError
            If the file is no checkpoint or one of another model. The state is then what it was.
        """
        arrays, metadata = safetensors.read(path)
        self._check_checkpoint(path, arrays, metadata)
        self._carried.write(arrays)
        self.steps = int(metadata[STEPS])
        return {key: value for key, value in metadata.items() if key not in ("format", MODEL, STEPS, OPTIMIZER)}

    def shape_of(self, name: str) -> tuple[int | str | None, ...]:
        """Return the declared shape of an input, empty where any rank is allowed."""
        return self._known[name].shape or ()

    @property
    def learning_rate(self) -> float:
        """The step model's default."""
        return float(self._defaults[self.record.learning_rate])

    @property
    def last_step(self) -> StepReport | None:
        """What the last divided step took, stage by stage; None before it and for steps that are not divided."""
        return None if self._divided is None else self._divided.report()

    @property
    def dashboard(self) -> str | None:
        """The address of Dask's page about the cluster, None where there is none."""
        return None if self._divided is None else self._divided.dashboard

    def close(self) -> None:
        """End the workers that were started for this trainer; a client that was given stays open."""
        if self._divided is not None:
            self._divided.close()

    def __enter__(self) -> Trainer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def export(self) -> ModelProto:
        """Return the forward model with the trained weights, in the form for inference.

        Returns
        -------
        onnx.ModelProto
            The model that the step was made of. Batch normalisation uses the running statistics, Dropout passes its
            input, and random masks are their expected values.

        Raises
        ------
        GraphError
            If the step model does not hold its forward graph.
        """
        return deployed(self._model, {name: self._carried.read(name) for name in
                                      (*self.record.parameters, *self.record.statistics)})

    def _feeds(self, inputs: Any) -> dict[str, Any]:
        if not isinstance(inputs, Mapping):
            raise GraphError(f"inputs are a mapping from name to array, not {type(inputs).__name__}")
        takes = f"a step takes {', '.join(str(self._known[name]) for name in self._free)}"
        for name in inputs:
            if name not in self._free:
                raise GraphError(f"unknown input {shorten(name)}; {takes}")
        for name in self._needed:
            if name not in inputs:
                raise GraphError(f"missing input {name!r}; {takes}")
        extents: dict[str, int] = {}
        return {name: taken(self._known[name], self._labels(name, value), extents) for name, value in inputs.items()}

    def _labels(self, name: str, value: Any) -> Any:
        """Class labels as int64, whatever integers they are; everything else as it is."""
        if name != self.record.target or self.record.settings.get("loss") != "softmax_cross_entropy":
            return value
        try:
            array = array_of(value)
        except Exception:  # __array__ of foreign objects may raise anything; `taken` names the input
            return value
        if array.dtype.kind not in "iu":
            return value
        if self._classes is not None and array.size and not (array.min() >= 0 and array.max() < self._classes):
            wrong = array[(array < 0) | (array >= self._classes)]
            raise GraphError(f"the target {name!r} has the label {wrong[0]}; the output has {self._classes} classes; "
                             f"allowed: 0 to {self._classes - 1}")
        return array.astype(np.int64)

    def _check_scalars(self, feeds: Mapping[str, Any]) -> None:
        """Refuse learning rates and loss scales that would destroy the state while the loss stays finite."""
        for name, positive in ((self.record.learning_rate, False), (self.record.loss_scale, True)):
            if name is not None:
                for value in np.ravel(feeds[name]).tolist():
                    number(name, value, positive=positive)

    def _check_target(self, feeds: Mapping[str, Array], made: Mapping[str, Array]) -> None:
        """Refuse targets that runtimes take although they do not fit the output: the step does not count then."""
        target, output = self.record.target, made.get(str(self.record.settings.get("output")))
        if target is None or output is None:
            return
        if self.record.settings.get("loss") == "mse":
            if feeds[target].shape != output.shape:
                raise GraphError(f"the target {target!r} has the shape {list(feeds[target].shape)}; the output has "
                                 f"{list(output.shape)}")
            return
        if feeds[target].shape != output.shape[:1] + output.shape[2:]:
            raise GraphError(f"the target {target!r} has the shape {list(feeds[target].shape)}; the output, of shape "
                             f"{list(output.shape)}, needs {list(output.shape[:1] + output.shape[2:])}")

    def _check_checkpoint(self, path: PathLike, arrays: Mapping[str, Array], metadata: Mapping[str, str]) -> None:
        """Refuse what does not belong to this step."""
        if MODEL not in metadata or not metadata.get(STEPS, "").isdecimal() or len(metadata[STEPS]) > 18:
            raise GraphError(f"{path}: not a checkpoint: its metadata lacks {MODEL!r} or {STEPS!r}")
        missing = [name for name in self.record.state if name not in arrays]
        beyond = [name for name in arrays if name not in self.record.state]
        if missing or beyond:
            what = f"lacks {missing[0]!r}" if missing else f"has {beyond[0]!r}, which this step does not have"
            raise GraphError(f"{path}: a checkpoint of another model or optimizer: it {what}")
        for name, array in arrays.items():
            declared = self._known[name]
            if array.dtype != declared.dtype or array.shape != declared.shape:
                raise GraphError(f"{path}: a checkpoint of another model: {name!r} is {array.dtype} of shape "
                                 f"{list(array.shape)}; this step has {declared}")
        optimizer = str(self.record.settings.get("optimizer"))
        if metadata.get(OPTIMIZER) != optimizer:
            raise GraphError(f"{path}: a checkpoint of optimizer {shorten(metadata.get(OPTIMIZER))}; this step has "
                             f"{optimizer!r}")
        if metadata[MODEL] != self.record.model:
            raise GraphError(f"{path}: a checkpoint of another model: the names and shapes are equal, but the forward "
                             "graph is another one")


def _classes(model: ModelProto, output: str) -> int | None:
    """The extent of an output along axis 1, where it is declared."""
    shape = next((Declared.of(value).shape for value in model.graph.output if value.name == output), None)
    extent = shape[1] if shape is not None and len(shape) > 1 else None
    return extent if isinstance(extent, int) else None


class _Arrays(CarriedValues):
    """Runs of any engine that takes arrays and returns arrays."""

    def __init__(
        self, run: Callable[[Any, dict[str, Any]], list[Any]], names: list[str], state: Mapping[str, str],
        values: Mapping[str, Array], others: list[str],
    ) -> None:
        super().__init__(values)
        self._run, self._names, self._state, self._others = run, names, state, others

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Run once and return the outputs that are not carried."""
        made = dict(zip(self._names, self._run(None, {**feeds, **self._values}), strict=True))
        self._next = {name: np.asarray(made[following]) for name, following in self._state.items()}
        return {name: np.asarray(made[name]) for name in self._others}


def _carried(
    runner: Runner, names: list[str], state: Mapping[str, str], values: Mapping[str, Array], others: list[str]
) -> Any:
    """Return what runs steps: in onnxruntime's memory where it runs the whole graph on arrays."""
    parts: list[Any] = getattr(runner, "parts", [])
    if len(parts) == 1:
        from ..runtime_ort.session import OnOrt  # onnxruntime may be absent

        if isinstance(parts[0].runner, OnOrt) and parts[0].runner.takes_arrays:
            from ..runtime_ort.carried import CarriedOnOrt

            return CarriedOnOrt(parts[0].runner, state, values, others)
    return _Arrays(runner.run, names, state, values, others)
