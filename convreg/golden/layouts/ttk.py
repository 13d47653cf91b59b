"""The Ascend operator test kit (TTK): prepared data that it replays, and the table of the cases.

``ROOT/CASE/`` holds ``input_I_DTYPE.bin`` and ``golden_I_DTYPE__shape_AxB.bin``, and nothing else, because the kit
refuses a folder with any other file. A gradient that outputMask leaves out has an empty ``golden_I_none.bin``, which
suppresses its comparison. ``ROOT/cases.csv`` has a row per case. The kit runs the device on them with
``python3 -m ttk aclnn -i ROOT/cases.csv --manual-data-dirs ROOT -o result.csv``.

A case that was read from a kernel's row (``conv3d_backprop_input_v2`` and the like) is written as that kernel's again:
its three inputs, one of them the int32 shape, its one result, and its row.

Source: hicann/ops-test-kit 2.8, Manual_Data_Prepare_and_Replay.md and ACLNN_Case_Writing.md.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...calls.binding import Bound
from ...calls.signature import SCALES
from ...formats import format_of
from ...memory import Array
from ...registry import get
from ..calling import bound_call
from ..data import format_name
from ..sources.kernels import kernel_inputs, of_kernel
from .base import Files, Layout, refuse, write_array, write_bytes

if TYPE_CHECKING:
    from ..record import Golden

OPERATOR, API = "ascend::ConvolutionBackward", "aclnnConvolutionBackward"
INPUTS = ("grad_output", "input", "weight")
OUTPUTS = ("gradInput", "gradWeight", "gradBias")
ATTRIBUTES = ("biasSizes", "stride", "padding", "dilation", "transposed", "outputPadding", "groups", "outputMask",
              "cubeMathType")
"""Arguments of the interface that are no tensors, in its order."""
TABLE = "cases.csv"
COLUMNS = (
    "testcase_name", "network_name", "api_name", "tensor_view_shapes", "tensor_formats", "tensor_dtypes",
    "tensor_storage_shapes", "tensor_view_offsets", "tensor_view_strides", "output_tensor_indexes",
    "output_inplace_indexes", "attributes", "scalar_dtypes", "input_data_ranges", "precision_tolerances",
    "absolute_precision", "scalar_data_ranges", "is_enabled", "remark", "soc_series", "priority", "dump_file_prefix",
    "manual_tensor_binaries", "manual_golden_binaries")
KEPT = ("network_name", "input_data_ranges", "precision_tolerances", "absolute_precision", "remark", "soc_series",
        "priority", "dump_file_prefix")
"""Columns of a row that the case was read from which still hold; arrays lie densely here, whatever the row said."""
DATA_FORMATS = {3: "NCL", 4: "NCHW", 5: "NCDHW"}


class Ttk(Layout):
    """Folders for replay, and the table."""

    name = "ttk"
    raw = True
    root_files = (TABLE,)

    def __init__(self) -> None:
        self._rows: list[dict[str, str]] = []
        self._columns: dict[str, None] = {}

    def write(self, golden: Golden, name: str, root: Path) -> Files:
        """Write the arrays of a case and keep its row."""
        if self._rows and of_kernel(golden) != bool(self._columns):
            raise refuse(golden, self.name, "cases of kernels and of the interface would be in one table",
                         "a folder for either")
        if of_kernel(golden):
            return self._write_kernel(golden, name, root)
        row = self._row(golden)
        inputs = {key: f"{name}/input_{index}_{format_name(golden.inputs[key])}.bin"
                  for index, key in enumerate(INPUTS)}
        outputs = {port: f"{name}/golden_{index}_{_golden_type(golden.outputs[port])}.bin"
                   for index, port in enumerate(OUTPUTS) if port in golden.outputs}
        absent = [f"{name}/golden_{index}_none.bin" for index, port in enumerate(OUTPUTS) if port not in outputs]
        for key, file in inputs.items():
            write_array(golden.inputs[key], root / file)
        for port, file in outputs.items():
            write_array(golden.outputs[port], root / file)
        for file in absent:
            write_bytes(b"", root / file)
        self._rows.append(row)
        return Files([name], inputs, outputs, absent)

    def _write_kernel(self, golden: Golden, name: str, root: Path) -> Files:
        """Write the inputs and the result of a kernel."""
        inputs, shapes = {}, []
        arrays = kernel_inputs(golden, golden.fields["op_name"])
        for index, array in enumerate(arrays):
            file = f"{name}/input_{index}_{format_name(array)}.bin"
            write_array(array, root / file)
            key = next((key for key, own in golden.inputs.items() if own is array), None)
            if key is None:
                shapes.append(file)
            else:
                inputs[key] = file
        (output, result), = golden.outputs.items()
        file = f"{name}/golden_0_{_golden_type(result)}.bin"
        write_array(result, root / file)
        row = {**golden.fields, "testcase_name": golden.name, "is_enabled": "True",
               "input_dtypes": repr(tuple(map(format_name, arrays))), "output_dtypes": repr((format_name(result),))}
        self._columns.update(dict.fromkeys(row))
        self._rows.append(row)
        return Files([name], inputs, {output: file}, shapes)

    def close(self, root: Path) -> None:
        """Write the table."""
        text = io.StringIO()
        table = csv.DictWriter(text, list(self._columns) or COLUMNS, restval="", lineterminator="\n")
        table.writeheader()
        table.writerows(self._rows)
        write_bytes(text.getvalue().encode(), root / TABLE)

    def _row(self, golden: Golden) -> dict[str, str]:
        if golden.op != OPERATOR:
            raise refuse(golden, self.name, f"the operator is {golden.op}", OPERATOR)
        other = next((name for name in (SCALES, "rounding", "saturate", "output_formats")
                      if golden.attributes.get(name)), None)
        if other is not None:
            raise refuse(golden, self.name, f"{other} is given", f"a call that {API} can state, without {other}")
        bound = bound_call(get(OPERATOR).spec, {**golden.inputs, **golden.attributes}, golden.conformance)
        shapes = [golden.inputs[key].shape for key in INPUTS]
        channels = (bound.call["biasSizes"] or _channels(bound))[:1]
        formats = [format_name(golden.inputs[key]) for key in INPUTS]
        formats += [format_name(golden.outputs[port]) if port in golden.outputs else own
                    for port, own in zip(OUTPUTS, (formats[1], formats[2], formats[0]), strict=True)]
        layouts = [DATA_FORMATS.get(len(shape), "ND") for shape in (*shapes, *shapes[1:])]
        return {
            **{column: golden.fields[column] for column in KEPT if column in golden.fields},
            "testcase_name": golden.name, "api_name": API, "is_enabled": "True",
            "tensor_view_shapes": repr((*shapes, *shapes[1:], tuple(channels))),
            "tensor_formats": repr((*layouts, "ND")), "tensor_dtypes": repr(tuple(formats)),
            "output_tensor_indexes": "(3, 4, 5)",
            "attributes": repr({name: _stated(bound, name) for name in ATTRIBUTES})}

    def results(self, golden: Golden, name: str, output: str) -> list[str]:
        """``output_I`` in the folder of the case: raw bytes with or without the dtype, or ``.npy``."""
        stem = f"output_{_index(golden, output)}"
        return [f"{stem}_{format_name(golden.outputs[output])}.bin", f"{stem}.bin", f"{stem}.npy"]

    def results_of_many(self, golden: Golden, name: str, output: str) -> list[str]:
        """What the kit dumps: ``CASE_output_I`` of all cases in one folder; ``CASE_fail_output_I`` of failed ones."""
        index = _index(golden, output)
        dumped = [f"{case}_{phase}_{index}{suffix}" for case in dict.fromkeys((golden.name, name))
                  for phase in ("output", "fail_output") for suffix in (".bin", ".npy")]
        return [*super().results_of_many(golden, name, output), *dumped]


def _index(golden: Golden, output: str) -> int:
    """Return the number of an output; a kernel has one."""
    return 0 if of_kernel(golden) or output not in OUTPUTS else OUTPUTS.index(output)


def _channels(bound: Bound) -> tuple[int, ...]:
    """Return the extent of the bias: the channels of gradOutput."""
    return bound.call.shape("gradOutput")[1:2]


def _stated(bound: Bound, name: str) -> Any:
    value = bound.call[name]
    if value is None:
        value = _channels(bound) if name == "biasSizes" else (0,) * len(bound.call["stride"])
    return list(value) if isinstance(value, tuple) else value


def _golden_type(array: Array) -> str:
    assert format_of(array.dtype) is not None
    return f"{format_name(array)}__shape_{'x'.join(map(str, array.shape)) or 'scalar'}"
