"""Graphs that mix standard nodes with ours, run once or step after step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, inliner

from .. import registry
from ..errors import GraphError, OpError
from .execution import STANDARD, Evaluator, shortened
from .models import Source, opened

Array = np.ndarray[Any, np.dtype[Any]]


class Session:
    """A model made ready to run any number of times.

    Parameters
    ----------
    source : onnx.ModelProto or path
        Nodes of convreg's domains and standard Conv and ConvTranspose run on convreg's kernels, all other standard
        nodes on onnx's reference implementations.

    Attributes
    ----------
    inputs : dict
        Name -> onnx.TypeProto of every value that `run` needs.
    outputs : list of str

    Raises
    ------
    GraphError
        If the model cannot be read or has a node that nothing here computes.
    """

    def __init__(self, source: Source) -> None:
        model = _flat(opened(source))
        given = {tensor.name for tensor in model.graph.initializer}
        given |= {sparse.values.name for sparse in model.graph.sparse_initializer}
        self.inputs = {value.name: value.type for value in model.graph.input if value.name not in given}
        self.outputs = [value.name for value in model.graph.output]
        self._optional = {value.name: value.type for value in model.graph.input if value.name in given}
        try:
            self._evaluator = Evaluator(model)
        except OpError:
            raise
        except Exception as error:  # onnx raises whatever its constructors meet
            if isinstance(error, GraphError):
                raise
            raise GraphError(shortened(" ".join(str(error).split()))) from error

    def run(self, inputs: Mapping[str, Any] | None = None) -> dict[str, Array]:
        """Run the model once.

        Parameters
        ----------
        inputs : mapping
            Input name -> array of the declared element type and shape, or lists and numbers, which take that type.
            An input with an initializer may be left out.

        Returns
        -------
        dict
            Output name -> array.

        Raises
        ------
        GraphError
            If an input is missing, unknown or not as declared, or a standard node fails.
        OpError
            If one of our nodes refuses its inputs; the exception's note names the node.
        """
        feeds = self._feeds({} if inputs is None else inputs)
        return dict(zip(self.outputs, self._evaluator.run(None, feeds), strict=True))

    def _feeds(self, inputs: Any) -> dict[str, Any]:
        if not isinstance(inputs, Mapping):
            raise GraphError(f"inputs are a mapping from name to array, not {type(inputs).__name__}")
        known = {**self.inputs, **self._optional}
        expected = ", ".join(f"{name}: {described(proto)}" for name, proto in self.inputs.items()) or "no inputs"
        for name in inputs:
            if name not in known:
                raise GraphError(f"unknown input {name!r}; the model takes {expected}")
        for name in self.inputs:
            if name not in inputs:
                raise GraphError(f"missing input {name!r}; the model takes {expected}")
        extents: dict[str, int] = {}
        return {name: fed(name, value, known[name], extents) for name, value in inputs.items()}


def run(source: Source, inputs: Mapping[str, Any] | None = None) -> dict[str, Array]:
    """Run a model once; see `Session`, which is faster for repeated steps.

    Parameters
    ----------
    source : onnx.ModelProto or path
    inputs : mapping
        Input name -> array.

    Returns
    -------
    dict
        Output name -> array.
    """
    return Session(source).run(inputs)


def _flat(model: ModelProto) -> ModelProto:
    """Inline local functions, which the evaluator knows less of than the inliner; a function we execute stays a node."""
    if not model.functions:
        return model
    ours = {*STANDARD, *((spec.onnx_domain, spec.name) for spec in registry.specs())}
    named = [(function.domain, function.name) for function in model.functions]
    return inliner.inline_selected_functions(model, [key for key in named if key not in ours])


def fed(name: str, value: Any, proto: Any, extents: dict[str, int]) -> Any:
    """Return an input as the evaluator takes it, refused where type or shape differ from the declared ones."""
    tensor = proto.tensor_type
    if not proto.HasField("tensor_type") or not tensor.elem_type:
        return value
    wanted = f"input {name!r} is {described(proto)}"
    try:
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        array = np.asarray(value) if hasattr(value, "dtype") else np.asarray(value, dtype)
    except Exception as error:  # __array__ of foreign objects may raise anything
        raise GraphError(f"{wanted}, not {type(value).__name__} ({error})") from error
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if array.dtype != dtype and not (tensor.elem_type == TensorProto.STRING and array.dtype.kind in "OSU"):
        raise GraphError(f"{wanted}, not {array.dtype}")
    if tensor.HasField("shape"):
        dims = tensor.shape.dim
        if len(dims) != array.ndim:
            raise GraphError(f"{wanted}, not of shape {list(array.shape)}")
        for dim, extent in zip(dims, array.shape, strict=True):
            declared = dim.dim_value if dim.HasField("dim_value") else extents.setdefault(dim.dim_param, extent) \
                if dim.dim_param else extent
            if declared != extent:
                known = f" with {dim.dim_param}={declared}" if dim.dim_param else ""
                raise GraphError(f"{wanted}{known}, not of shape {list(array.shape)}")
    return array


def described(proto: Any) -> str:
    """Return a declared type in words, such as ``float32 of shape [N, 3]``."""
    tensor = proto.tensor_type
    if not proto.HasField("tensor_type") or not tensor.elem_type:
        return "a value"
    text = str(helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    if not tensor.HasField("shape"):
        return text
    dims = (str(dim.dim_value) if dim.HasField("dim_value") else dim.dim_param or "?" for dim in tensor.shape.dim)
    return f"{text} of shape [{', '.join(dims)}]"
