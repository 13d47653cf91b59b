"""Bundles of hipDNN's integration tests, one for each gradient.

``quick/OPERATION/LAYOUT/DTYPE/NAME/`` holds ``NAME.json`` (the graph), ``NAME.tensorUID.bin`` of every tensor, outputs
too, and ``NAME.meta.json``. Dims are always (N, C, space) and (K, C/groups, space); the order in memory is in the
strides. The kind of a node follows from the sides that it reads: a data gradient of a transposed convolution is a
forward convolution.

``meta.json`` states how far a result may be from the golden one as `absolute`: the largest bound of an element plus the
distance of its golden result from the reference. Times are constants, so that equal vectors make equal bundles.

Source: ROCm/rocm-libraries, projects/hipdnn/docs/rfcs/0011_GoldenReferenceValidation.md.
"""

from __future__ import annotations

import json
import re
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ... import __version__
from ...calls.binding import Bound
from ...calls.signature import SCALES
from ...conversion import dequantize
from ...geometry import Axis
from ...memory import Array
from ...registry import get
from ...spec import OpSpec, snake_case
from ..calling import bound_of
from ..data import format_name
from .base import Files, Layout, refuse, safe_name, write_array, write_bytes

if TYPE_CHECKING:
    from ..record import Golden

TYPES = {"float32": ("float", "fp32"), "float16": ("half", "fp16"), "bfloat16": ("bfloat16", "bfp16"),
         "float64": ("double", "fp64"), "float8_e4m3fn": ("fp8_e4m3", "fp8_e4m3"),
         "float8_e5m2": ("fp8_e5m2", "fp8_e5m2")}
"""Format -> hipDNN's name in graphs, and in folders."""

TIME = "1980-01-01T00:00:00Z"
SPACE = {1: "w", 2: "hw", 3: "dhw"}


class Kind(NamedTuple):
    """A kind of convolution: the folder, the node's type and name, and its tensors; the last one is the result."""

    operation: str
    type: str
    node: str
    tensors: tuple[str, str, str]


BACKWARD = Kind("ConvolutionBwd", "ConvolutionBwdAttributes", "ConvolutionDgrad_0", ("dy", "w", "dx"))
WEIGHTS = Kind("ConvolutionWrw", "ConvolutionWrwAttributes", "ConvolutionWgrad_0", ("x", "dy", "dw"))
FORWARD = Kind("ConvolutionFwd", "ConvolutionFwdAttributes", "ConvolutionFprop_0", ("x", "w", "y"))
RESULT = 2
"""The uid of the result."""


class Tensor(NamedTuple):
    """A tensor of a graph: its array, whose bytes the file holds, and its extents and strides in elements."""

    array: Array
    dims: list[int]
    strides: list[int]


class Bundle(NamedTuple):
    """A gradient as a graph of one node."""

    kind: Kind
    tensors: tuple[Tensor, ...]
    layout: str
    parameters: dict[str, Any]

    @property
    def folder(self) -> str:
        """The folders above the bundle's own."""
        return f"quick/{self.kind.operation}/{self.layout}/{TYPES[format_name(self.tensors[0].array)][1]}"


class Hipdnn(Layout):
    """Bundles of single graphs."""

    name = "hipdnn"
    raw = True

    def folder(self, name: str) -> str:
        """Return the name of a case in letters, digits and ``_``."""
        return re.sub(r"[^A-Za-z0-9_]", "_", safe_name(name))

    def write(self, golden: Golden, name: str, root: Path) -> Files:
        """Write a bundle for each output."""
        files = Files([], {}, {}, [])
        bundles = bundles_of(golden)
        names = {id(array): key for key, array in golden.inputs.items()}
        for port, bundle in bundles.items():
            folder = f"{bundle.folder}/{name}"
            files.paths.append(folder)
            for uid, tensor in enumerate(bundle.tensors):
                file = f"{folder}/{name}.tensor{uid}.bin"
                write_array(tensor.array, root / file)
                if uid == RESULT:
                    files.outputs[port] = file
                elif names[id(tensor.array)] in files.inputs:
                    files.others.append(file)
                else:
                    files.inputs[names[id(tensor.array)]] = file
            for suffix, content in (("json", _graph(bundle)), ("meta.json", _meta(golden, port, bundle))):
                files.others.append(f"{folder}/{name}.{suffix}")
                text = json.dumps(content, indent=2, sort_keys=True, allow_nan=False) + "\n"
                write_bytes(text.encode(), root / files.others[-1])
        for key, array in golden.inputs.items():
            if key not in files.inputs:  # an operand that no result needs, or a shape
                files.inputs[key] = f"unused/{name}/input_{key}.bin"
                write_array(array, root / files.inputs[key])
                files.paths.append(f"unused/{name}")
        return files._replace(paths=list(dict.fromkeys(files.paths)))

    def results(self, golden: Golden, name: str, output: str) -> list[str]:
        """``NAME.tensor2.bin``."""
        return [f"{name}.tensor{RESULT}.bin"]

    def results_of_many(self, golden: Golden, name: str, output: str) -> list[str]:
        """The same in the folders of bundles."""
        bundle = bundles_of(golden)[output]
        inside = f"{name}/{name}.tensor{RESULT}.bin"
        return [f"{bundle.folder}/{inside}", f"{bundle.kind.operation}/{inside}",
                *(super().results_of_many(golden, name, output) if len(golden.outputs) == 1 else [])]


def bundles_of(golden: Golden) -> dict[str, Bundle]:
    """Return the bundle of each output.

    Raises
    ------
    GraphError
        If hipDNN's graphs cannot express the call.
    """
    spec = get(golden.op).spec
    bound = bound_of(golden)
    _check(golden, spec, bound)
    roles, call, geometry = spec.roles, bound.call, bound.plan.integers
    ports = {role: name for role, name in roles.items() if role in ("grad_output", "data", "weight")}
    operands = {role: golden.inputs[snake_case(port)] for role, port in ports.items()
                if snake_case(port) in golden.inputs}
    transposed = spec.convolution.is_transposed(call)
    layout, weights = spec.convolution.data_layout_of(call), spec.convolution.weight_layout_of(call)
    parameters = {
        "conv_mode": "CROSS_CORRELATION", "pre_padding": [axis.begin for axis in geometry.axes],
        "post_padding": geometry.pads_end, "stride": [axis.stride for axis in geometry.axes],
        "dilation": [axis.dilation for axis in geometry.axes]}
    space = SPACE[len(geometry.axes)]
    bundles = {}
    for port in spec.outputs:
        if port.name not in golden.outputs:
            continue
        result = golden.outputs[port.name]
        if port.role == "grad_weight":
            large, small = operands["data"], operands["grad_output"]
            large, small = (small, large) if transposed else (large, small)
            tensors = (_data(large, layout), _data(small, layout), _weights(result, weights))
            kind = WEIGHTS
        else:
            kind = FORWARD if transposed else BACKWARD
            tensors = (_data(operands["grad_output"], layout), _weights(operands["weight"], weights),
                       _data(result, layout))
        bundles[port.name] = Bundle(kind, tensors, f"nc{space}" if layout == "NCX" else f"n{space}c", parameters)
    return bundles


def _check(golden: Golden, spec: OpSpec, bound: Bound) -> None:
    def refused(has: str, needed: str) -> Exception:
        return refuse(golden, "hipdnn", has, needed)

    geometry = bound.plan.geometry
    if not spec.convolves:
        raise refused(f"{golden.op} is no convolution", "a convolution or a gradient of one")
    if geometry is None or any(array.size == 0 for array in (*golden.inputs.values(), *golden.outputs.values())):
        raise refused("a tensor is empty", "extents above 0")
    bias = spec.roles.get("bias"), spec.roles.get("grad_bias")
    if (bias[0] is not None and snake_case(bias[0]) in golden.inputs) or bias[1] in golden.outputs:
        raise refused("it has a bias", "no bias and no gradient of one: a node of hipDNN has none")
    for name in (SCALES, "rounding", "saturate"):
        if golden.attributes.get(name):
            raise refused(f"{name} is given", f"no {name}")
    if bound.plan.precision.operands is not None:
        raise refused(f"{bound.plan.precision.cause} rounds the operands", str(bound.plan.precision.allowed))
    if bound.plan.divided_small and geometry.groups > 1:
        raise refused("the groups divide the small side of the weights", "groups that divide the large side")
    if any(axis.begin < 0 or _left(axis) for axis in geometry.axes):
        raise refused("its padding and strides do not give the extents of its tensors",
                      "paddings not below 0, and fewer elements than a stride behind the last window")
    for name, array in (*golden.inputs.items(), *golden.outputs.items()):
        format = format_name(array)
        if format not in TYPES and array.dtype.kind not in "iu":
            raise refused(f"{name} is in {format}", ", ".join(TYPES))
    for name, array in golden.outputs.items():
        if not np.isfinite(dequantize(array, dtype=np.float64)).all():
            raise refused(f"{name} holds NaN or infinity", "finite results, which hipDNN's verifier demands")


def _left(axis: Axis) -> bool:
    """Whether another window would fit behind the last one."""
    return max(-axis.end, 0) >= axis.stride


def _data(array: Array, layout: str) -> Tensor:
    return _tensor(array, range(array.ndim) if layout == "NCX" else (0, array.ndim - 1, *range(1, array.ndim - 1)))


def _weights(array: Array, layout: str) -> Tensor:
    if layout == "GOIX":
        return _tensor(array, range(array.ndim - 1), (array.shape[0] * array.shape[1], *array.shape[2:]))
    last = array.ndim - 1
    return _tensor(array, range(array.ndim) if layout == "OIX" else (last, last - 1, *range(last - 1)))


def _tensor(array: Array, axes: Any, shape: tuple[int, ...] | None = None) -> Tensor:
    """Return a tensor whose extents are those of the array's axes in another order; the bytes stay as they are."""
    shape = array.shape if shape is None else shape
    strides = [1]
    for extent in reversed(shape[1:]):
        strides.insert(0, strides[0] * extent)
    return Tensor(array, [shape[axis] for axis in axes], [strides[axis] for axis in axes])


def _graph(bundle: Bundle) -> dict[str, Any]:
    kind = bundle.kind
    io = TYPES[format_name(bundle.tensors[0].array)][0]
    compute = "double" if io == "double" else "float"
    uids = {f"{name}_tensor_uid": uid for uid, name in enumerate(kind.tensors)}
    result = f"{kind.tensors[RESULT]}_tensor_uid"
    return {
        "name": kind.operation, "io_data_type": io, "compute_data_type": compute, "intermediate_data_type": io,
        "is_override_shape_enabled": False,
        "nodes": [{"type": kind.type, "name": kind.node, "compute_data_type": compute,
                   "inputs": {name: uid for name, uid in uids.items() if name != result},
                   "outputs": {result: uids[result]}, "parameters": bundle.parameters}],
        "tensors": [{"uid": uid, "name": name, "dims": tensor.dims, "strides": tensor.strides,
                     "data_type": TYPES[format_name(tensor.array)][0], "virtual": False}
                    for uid, (name, tensor) in enumerate(zip(kind.tensors, bundle.tensors, strict=True))]}


def _meta(golden: Golden, port: str, bundle: Bundle) -> dict[str, Any]:
    exact = golden.reference[port]
    distance = np.abs(dequantize(golden.outputs[port], dtype=np.float64) - exact) + golden.bound[port]
    allowed = float(distance.max())
    source = f"convreg {__version__}"
    meta: dict[str, Any] = {
        "format_version": 1, "generator": "convreg golden", "generator_version": __version__,
        "reference_source": source, "reference_strategy": "precision_uplift",
        "notes": f"{golden.op}, case {golden.name}"}
    if isfinite(allowed):
        meta["tolerance"] = {"absolute": allowed, "relative": 0.0, "deterministic": False,
                             "calibration": {"method": "rounding_error_bound"}}
    if bundle.kind is not FORWARD:
        meta["forward_source"] = {"method": "convreg", "version": __version__, "generated_at": TIME}
    return meta
