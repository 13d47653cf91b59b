"""Golden vectors: what a model or a call gets, makes, and would make without rounding, in one file that NumPy reads.

An archive holds ``in_NAME``, ``const_NAME``, ``out_NAME`` and ``f64_NAME`` arrays and ``description``, a JSON text.
Number formats that NumPy lacks are stored as their bits, uint16 or uint8; the description names every array's format.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

import convreg
import convreg.onnx
from convreg import GraphError
from convreg.archives import save_together
from convreg.calls.signature import SCALES
from convreg.files import PathLike
from convreg.formats import format_of
from convreg.guard import guarded
from convreg.memory import Array
from convreg.onnx import NodeCall
from convreg.onnx.export import given_values
from convreg.onnx.graph import nodes_of, tensors_of
from convreg.onnx.model.files import Source, opened
from convreg.onnx.model.tensor_data import array_of
from convreg.onnx.payload import revealed
from convreg.onnx.rewrite.lower import rewrite, write_wide

from .carried import code_names
from .view import attributes_of

FLOATS = {TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.FLOAT8E4M3FN,
          TensorProto.FLOAT8E5M2}
"""What the reference computes in float64 instead."""


@guarded("convreg::onnx_io")
def golden(subject: Source | NodeCall, inputs: Mapping[str, Any] | None = None) -> dict[str, Array]:
    """Return the golden vectors of a model, or of one call.

    Parameters
    ----------
    subject : onnx.ModelProto, path or NodeCall
        A call holds its own inputs; they are named as the operator's ports.
    inputs : mapping
        Input name -> array, for a model.

    Returns
    -------
    dict
        Name -> array, as the module says. ``out_`` are convreg's results, ``f64_`` those of the same graph in standard
        operators with every floating-point tensor in float64, so that nothing is rounded to a narrower format.

    Raises
    ------
    GraphError
        If the model does not run on the inputs, or `convreg.onnx.lower` cannot rewrite its nodes for another reason
        than their number formats.
    """
    if isinstance(subject, NodeCall):
        subject, inputs = _as_model(subject, inputs)
    model = opened(subject)
    codes = code_names(model)

    def read(name: str, array: Array) -> Array:
        return revealed(array, "hifloat8") if name in codes else array

    given = {name: read(name, np.asarray(array)) for name, array in given_values(inputs).items()}
    results = {name: read(name, array) for name, array in convreg.onnx.run(model, given, engine="reference").items()}
    exact = convreg.onnx.run(_wide(model, codes), {name: _widened(array) for name, array in given.items()},
                             engine="reference")
    constants = {tensor.name: read(tensor.name, array_of(tensor)) for tensor in model.graph.initializer
                 if tensor.name not in given}
    parts = {"in": given, "const": constants, "out": results, "f64": exact}
    arrays = {f"{part}_{name}": array for part, group in parts.items() for name, array in group.items()}
    description = {
        "producer": f"convreg {convreg.__version__}",
        "formats": {name: _format(array) for name, array in arrays.items()},
        "nodes": [_described(node) for node in model.graph.node],
    }
    stored = {name: _stored(array) for name, array in arrays.items()}
    return {**stored, "description": np.array(json.dumps(description))}


@guarded("convreg::onnx_io")
def export_golden(subject: Source | NodeCall, path: PathLike, inputs: Mapping[str, Any] | None = None) -> None:
    """Write the golden vectors of a model or a call to an .npz file.

    Parameters
    ----------
    subject, inputs
        As for `golden`.
    path : path-like
        The .npz file.

    Raises
    ------
    GraphError
        As `golden`, or if the file cannot be written. Nothing is written then.
    """
    save_together(golden(subject, inputs), path)


def _as_model(call: NodeCall, inputs: Mapping[str, Any] | None) -> tuple[ModelProto, dict[str, Any]]:
    """The model of a call whose tensors are inputs; extents stated as lists stay attributes."""
    if inputs is not None:
        raise GraphError("a call has its own inputs; allowed: no other inputs")
    model = convreg.onnx.node_model(call.operator, *call.inputs, **call.attributes, as_inputs=True)
    spec = call.operator.spec
    given = [*zip(spec.vendor_inputs, call.inputs, strict=False),
             *zip(spec.scale_ports, call.attributes.get(SCALES, ()), strict=False)]
    taken = {value.name for value in model.graph.input}
    return model, {port.name: value for port, value in given if port.name in taken}


def _wide(model: ModelProto, codes: set[str]) -> ModelProto:
    """The model in standard operators and float64; `codes` are bytes of HiFloat8."""
    lowered = rewrite(model, write_wide)
    graph = lowered.graph
    del graph.value_info[:]
    for value in (*graph.input, *graph.output):
        del value.metadata_props[:]
        if value.name in codes or value.type.tensor_type.elem_type in FLOATS:
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
    for tensor in tensors_of(lowered):
        if tensor.name in codes or tensor.data_type in FLOATS:
            array = array_of(tensor)
            array = _widened(revealed(array, "hifloat8") if tensor.name in codes else array)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    for node in nodes_of(lowered):
        _widen(node)
    return lowered


def _widen(node: NodeProto) -> None:
    """Let a node that says in an attribute what it makes make float64."""
    made = helper.make_attribute
    for attribute in list(node.attribute):
        if attribute.name in ("to", "dtype", "output_dtype") and attribute.i in FLOATS:
            attribute.i = TensorProto.DOUBLE
        elif node.op_type == "Constant" and attribute.name in ("value_float", "value_floats"):
            values = np.array(attributes_of(node)[attribute.name], np.float64)
            attribute.CopyFrom(made("value", numpy_helper.from_array(values)))
    if node.op_type == "ConstantOfShape" and not node.attribute:
        node.attribute.append(made("value", numpy_helper.from_array(np.zeros(1))))


def _widened(array: Array) -> Array:
    known = format_of(array.dtype)
    return array if known is None else convreg.dequantize(array, dtype=np.float64)


def _format(array: Array) -> str:
    known = format_of(array.dtype)
    return known.name if known else str(array.dtype)


def _stored(array: Array) -> Array:
    """An array as any NumPy reads it."""
    return array if array.dtype.isbuiltin == 1 else array.view(f"u{array.dtype.itemsize}")


def _described(node: NodeProto) -> dict[str, Any]:
    attributes = {name: _plain(value) for name, value in attributes_of(node).items()}
    return {"domain": node.domain, "op_type": node.op_type, "name": node.name, "inputs": list(node.input),
            "outputs": list(node.output), "attributes": attributes}


def _plain(value: Any) -> Any:
    """An attribute as JSON has it; tensors as nested lists, graphs by their names."""
    if isinstance(value, TensorProto):
        return array_of(value).astype(np.float64).tolist()
    if isinstance(value, str | int | float):
        return value
    return [_plain(entry) for entry in value] if isinstance(value, list | tuple) else getattr(value, "name", str(value))
