"""Graphs that mix standard nodes with ours, run once or step after step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ...errors import GraphError
from ...guard import guarded
from ...memory import Array, array_of
from .. import payload
from ..graph import Declared, flattened, sentence
from ..model.checks import check_made_once
from ..model.files import Source, opened
from .engines import choose, reference
from .evaluator import Observer


class Results(dict[str, Array]):
    """The outputs of one run by name.

    Attributes
    ----------
    engine : str
        ``"onnxruntime"`` or ``"reference"``: what computed them.
    """

    def __init__(self, values: Iterable[tuple[str, Array]], engine: str) -> None:
        super().__init__(values)
        self.engine = engine


class Session:
    """A model made ready to run any number of times.

    Parameters
    ----------
    source : onnx.ModelProto or path
    engine : str, optional
        What runs the graph. Under ``"reference"`` nodes of convreg's domains and standard Conv and ConvTranspose run
        on convreg's kernels, and all other standard nodes run on onnx's reference implementations. Under
        ``"onnxruntime"`` all nodes run in onnxruntime, convreg's nodes on convreg's kernels. Nodes that onnxruntime
        has no kernel for, such as Conv in bfloat16, run as under ``"reference"``. The default is ``"onnxruntime"`` if
        it is installed and runs the model, else ``"reference"``. Under the default the reference engine repeats a run
        that onnxruntime refuses.
    observer : callable, optional
        Called with an `ObservedCall` whenever a node of convreg's domains, a standard Conv or ConvTranspose is about to
        run, except in a local function that cannot be inlined. The engine is then ``"reference"``.

    Attributes
    ----------
    inputs, outputs : list of str
        Names of the values that `run` needs, and of those it returns.
    engine : str
        ``"onnxruntime"`` if that runs the graph or parts of it, else ``"reference"``.
    engine_note : str
        Which nodes the reference engine runs, or why onnxruntime does not run the graph; empty if neither applies.

    Raises
    ------
    GraphError
        If the model cannot be read or has a node that nothing here computes, if there is no such engine, or if
        onnxruntime is not installed or does not support the model's operator sets.
    """

    @guarded("convreg::onnx")
    def __init__(self, source: Source, *, engine: str | None = None, observer: Observer | None = None) -> None:
        model = flattened(opened(source))
        check_made_once(model.graph)
        given = {tensor.name for tensor in model.graph.initializer}
        self._known = {value.name: Declared.of(value) for value in model.graph.input}
        self.inputs = [name for name in self._known if name not in given]
        self.outputs = [value.name for value in model.graph.output]
        self._mirrors = payload.mirrors(model.graph.output)
        try:
            self._runner, self.engine, self.engine_note = choose(model, engine, observer)
        except GraphError:
            raise
        except Exception as error:  # onnx raises whatever its constructors meet
            raise GraphError(sentence(error)) from error
        self._other = model if engine is None and self.engine == "onnxruntime" else None

    @guarded("convreg::onnx")
    def run(self, inputs: Mapping[str, Any] | None = None) -> Results:
        """Run the model once.

        Parameters
        ----------
        inputs : mapping
            Input name -> array of the declared element type and shape, or lists and numbers, which take that type.
            An input with an initializer may be left out.

        Returns
        -------
        Results
            Output name -> array: a dict with an attribute `engine`, which names the engine that ran.

        Raises
        ------
        GraphError
            If an input is missing, unknown or not as declared, or a standard node fails.
        OpError
            If one of convreg's nodes refuses its inputs. The exception's note names the node.
        """
        feeds = self._feeds({} if inputs is None else inputs)
        engine = self.engine
        try:
            values = self._runner.run(None, feeds)
        except Exception:
            if self._other is None:
                raise
            try:
                other = reference(self._other)
            except Exception:  # it has no such node: what onnxruntime says is all there is to say
                other = None
            if other is None:
                raise
            values, engine = other.run(None, feeds), "reference"
        results = Results(zip(self.outputs, values, strict=True), engine)
        for name, said in self._mirrors.items():
            results[name] = payload.revealed(results[name], said)
        return results

    def _feeds(self, inputs: Any) -> dict[str, Any]:
        if not isinstance(inputs, Mapping):
            raise GraphError(f"inputs are a mapping from name to array, not {type(inputs).__name__}")
        for name in inputs:
            if name not in self._known:
                raise GraphError(f"unknown input {name!r}; {self._takes()}")
        for name in self.inputs:
            if name not in inputs:
                raise GraphError(f"missing input {name!r}; {self._takes()}")
        extents: dict[str, int] = {}
        return {name: taken(self._known[name], value, extents) for name, value in inputs.items()}

    def _takes(self) -> str:
        return "the model takes " + (", ".join(str(self._known[name]) for name in self.inputs) or "no inputs")


@guarded("convreg::onnx")
def run(
    source: Source, inputs: Mapping[str, Any] | None = None, *, engine: str | None = None
) -> Results:
    """Run a model once; see `Session`, which is faster for repeated steps.

    Parameters
    ----------
    source : onnx.ModelProto or path
    inputs : mapping
        Input name -> array.
    engine : str, optional
        As in `Session`.

    Returns
    -------
    Results
        Output name -> array: a dict with an attribute `engine`, which names the engine that ran.

    Raises
    ------
    GraphError, OpError
        As `Session` and `Session.run`.
    """
    return Session(source, engine=engine).run(inputs)


def taken(declared: Declared, value: Any, extents: dict[str, int]) -> Any:
    """Return a value as the evaluator takes it; `extents` holds what symbols stand for so far."""
    if declared.dtype is None:
        return value
    try:
        array = array_of(value) if hasattr(value, "dtype") else np.asarray(value, declared.dtype)
    except Exception as error:  # __array__ of foreign objects may raise anything
        raise GraphError(f"input {declared}, not {type(value).__name__} ({error})") from error
    if declared.dtype == payload.CARRIER:
        array = payload.written(array)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if array.dtype != declared.dtype and not (declared.dtype == object and array.dtype.kind in "SU"):
        raise GraphError(f"input {declared}, not {array.dtype}")
    if declared.shape is None:
        return array
    fits = len(declared.shape) == array.ndim
    for stated, extent in zip(declared.shape, array.shape, strict=False):
        known = extents.setdefault(stated, extent) if isinstance(stated, str) else stated
        fits = fits and known in (None, extent)
    if not fits:
        bound = [f"{name}={extents[name]}" for name in declared.shape if isinstance(name, str) and name in extents]
        where = f" with {', '.join(bound)}" if bound else ""
        raise GraphError(f"input {declared}{where}, not of shape {list(array.shape)}")
    return array
