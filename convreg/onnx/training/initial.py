"""The values that a training begins with: defaults of a step model's inputs, or apart from them."""

from __future__ import annotations

from onnx import ModelProto, TensorProto, helper, numpy_helper

from ...guard import guarded
from ...memory import Array
from ..model.files import Source, opened
from .record import StepRecord


def put_apart(step: ModelProto) -> None:
    """Move the defaults of a step model's inputs to its initialization graph, in place.

    That is ONNX's own place for them (``training_info``), which runtimes for inference do not read.
    """
    given = {value.name: value for value in step.graph.input}
    tensors = [tensor for tensor in step.graph.initializer if tensor.name in given]
    kept = [tensor for tensor in step.graph.initializer if tensor.name not in given]
    graph = helper.make_graph([], "initial_values", [], [given[tensor.name] for tensor in tensors], tensors)
    del step.graph.initializer[:]
    step.graph.initializer.extend(kept)
    del step.training_info[:]
    step.training_info.add().initialization.CopyFrom(graph)


@guarded("convreg::onnx::initial_values")
def initial_values(step_model: Source) -> dict[str, Array]:
    """Return what the inputs of a step model begin with.

    Parameters
    ----------
    step_model : onnx.ModelProto or path
        What `training_step` returned.

    Returns
    -------
    dict of str to array
        Parameters, states of the optimizer, running statistics, learning rate and loss scale by the input's name.

    Raises
    ------
    GraphError
        If the model is no step model.
    """
    model = opened(step_model)
    StepRecord.of(model)
    return values_of(model)


def values_of(model: ModelProto) -> dict[str, Array]:
    """Return the defaults of a model's inputs, and what its initialization graph holds."""
    given = {value.name for value in model.graph.input}
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in initial_tensors(model) if tensor.name in given}


def initial_tensors(model: ModelProto) -> list[TensorProto]:
    """Return the tensors of a model's initialization graph and its initializers."""
    apart = [tensor for entry in model.training_info for tensor in entry.initialization.initializer]
    return [*apart, *model.graph.initializer]
