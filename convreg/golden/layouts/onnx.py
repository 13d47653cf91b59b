"""The folders of onnx's backend tests: ``NAME/model.onnx`` and ``NAME/test_data_set_0/{input,output}_I.pb``.

The model is one node of convreg's domain (``convreg.onednn`` and so on), so a backend needs that operator, or the
standard nodes that `convreg.onnx.lower` makes of it. Every tensor is an input of the graph. HiFloat8, for which ONNX
has no element type, is uint8 in the files, and the node names the format.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...calls.signature import SCALES
from ...errors import GraphError
from ...files import read_bytes, reason
from ...memory import Array
from ...registry import get
from ...spec import snake_case
from ..data import named
from ..manifest import Entry
from .base import Arrays, Files, Layout, refuse, write_bytes

if TYPE_CHECKING:
    from ..record import Golden

FOLDER = "test_data_set_0"
LIMIT = 2**31 - 2**16
"""Bytes of a tensor that a file holds; protobuf reads at most 2 GiB."""


class Onnx(Layout):
    """A backend test per case."""

    name = "onnx"

    def write(self, golden: Golden, name: str, root: Path) -> Files:
        """Write the model and the tensors in the order of the graph's inputs and outputs."""
        from ...onnx import node_model

        for array in (*golden.inputs.values(), *golden.outputs.values()):
            if array.nbytes > LIMIT:
                raise refuse(golden, self.name, f"a tensor has {array.nbytes} bytes", f"at most {LIMIT}")
        choice = {} if golden.conformance is None else {"conformance": golden.conformance}
        model = node_model(golden.op, **golden.inputs, **golden.attributes, **choice, as_inputs=True)
        spec = get(golden.op).spec
        scales = dict(zip((port.name for port in spec.scale_ports), golden.attributes.get(SCALES) or (), strict=False))
        files = Files([name], {}, {}, [f"{name}/model.onnx"])
        write_bytes(model.SerializeToString(deterministic=True), root / files.others[0])
        for index, value in enumerate(model.graph.input):
            file, key = f"{name}/{FOLDER}/input_{index}.pb", snake_case(value.name)
            scale = value.name in scales
            _write(_scale(scales[value.name]) if scale else golden.inputs[key], value.name, root / file)
            if scale:
                files.others.append(file)
            else:
                files.inputs[key] = file
        for index, value in enumerate(model.graph.output):
            files.outputs[value.name] = f"{name}/{FOLDER}/output_{index}.pb"
            _write(golden.outputs[value.name], value.name, root / files.outputs[value.name])
        return files

    def read(self, root: Path, case: Entry) -> Arrays:
        """Return the tensors of the files."""
        inputs, outputs = ({name: read_tensor(root / array.file, array.format) for name, array in held.items()}
                           for held in (case.inputs, case.outputs))
        return Arrays(inputs, outputs)

    def results(self, golden: Golden, name: str, output: str) -> list[str]:
        """``output_I.pb``, I counting the outputs that the case has."""
        index = list(golden.outputs).index(output)
        return [f"{FOLDER}/output_{index}.pb", f"output_{index}.pb"]


def _scale(value: Any) -> Array:
    return np.asarray(value, np.float32)


def _write(array: Array, name: str, path: Path) -> None:
    from onnx import numpy_helper

    from ...onnx.payload import written

    write_bytes(numpy_helper.from_array(written(array), name).SerializeToString(deterministic=True), path)


def read_tensor(path: Path, format: str) -> Array:
    """Return the array of a TensorProto in a file.

    Raises
    ------
    GraphError
    """
    from onnx import TensorProto

    from ...onnx.model.tensor_data import array_of

    tensor = TensorProto()
    try:
        tensor.ParseFromString(read_bytes(path))
        if tensor.data_location == TensorProto.EXTERNAL:
            raise GraphError("its data is in another file; needed: a tensor that holds its data")
        return named(array_of(tensor), format)
    except GraphError as error:
        raise GraphError(f"{path}: {error}" if str(path) not in str(error) else str(error)) from None
    except Exception as error:  # protobuf raises classes of its own
        raise GraphError(f"{path}: not a tensor of ONNX: {reason(error)}") from None
