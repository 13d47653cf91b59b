"""The Ascend operator test kit (TTK): prepared data that it replays, and the table of the cases.

``ROOT/CASE/`` holds ``input_I_DTYPE.bin`` and ``golden_I_DTYPE__shape_AxB.bin``, and nothing else, because the kit
refuses a folder with any other file. A gradient that outputMask leaves out has an empty ``golden_I_none.bin``, which
suppresses its comparison. ``ROOT/cases.csv`` has a row per case. The kit runs the device on them with
``python3 -m ttk aclnn -i ROOT/cases.csv --manual-data-dirs ROOT -o result.csv``.

A case that was read from a row of a kernel is written as one: ``ROOT/kernel_cases.csv`` has its row, the folder the
inputs of the kernel, the shape that is one of them as int32, and one golden.

Source: hicann/ops-test-kit 2.8, Manual_Data_Prepare_and_Replay.md and ACLNN_Case_Writing.md.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...calls.binding import Bound
from ...calls.signature import SCALES
from ...formats import format_of
from ...memory import Array
from ..calling import bound_of
from ..data import format_name
from ..manifest import Entry
from ..sources.kernels import KERNEL, kernel_inputs
from ..sources.rows import series_of
from .base import Arrays, Files, Layout, Row, refuse, write_array, write_bytes

if TYPE_CHECKING:
    from ..record import Golden

OPERATOR, API = "ascend::ConvolutionBackward", "aclnnConvolutionBackward"
INPUTS = ("grad_output", "input", "weight")
OUTPUTS = ("gradInput", "gradWeight", "gradBias")
ATTRIBUTES = ("biasSizes", "stride", "padding", "dilation", "transposed", "outputPadding", "groups", "outputMask",
              "cubeMathType")
"""Arguments of the interface that are no tensors, in its order."""
TABLE, KERNEL_TABLE = "cases.csv", "kernel_cases.csv"
COLUMNS = (
    "testcase_name", "network_name", "api_name", "tensor_view_shapes", "tensor_formats", "tensor_dtypes",
    "tensor_storage_shapes", "tensor_view_offsets", "tensor_view_strides", "output_tensor_indexes",
    "output_inplace_indexes", "attributes", "scalar_dtypes", "input_data_ranges", "precision_tolerances",
    "absolute_precision", "scalar_data_ranges", "is_enabled", "remark", "soc_series", "priority", "dump_file_prefix",
    "manual_tensor_binaries", "manual_golden_binaries")
KERNEL_COLUMNS = (
    "testcase_name", "op_name", "input_dtypes", "input_ori_shapes", "output_ori_shapes", "input_ori_formats",
    "output_ori_formats", "attributes", "input_shapes", "output_dtypes", "output_shapes", "input_formats",
    "output_formats", "input_data_ranges", "precision_tolerances", "absolute_precision", "soc_series", "remark")
KEPT = ("network_name", "input_data_ranges", "precision_tolerances", "absolute_precision", "remark", "soc_series",
        "priority", "dump_file_prefix")
"""Columns of a row that the case was read from which still hold; arrays lie densely here, whatever the row said."""
DATA_FORMATS = {3: "NCL", 4: "NCHW", 5: "NCDHW"}


class Ttk(Layout):
    """Folders for replay, and the tables."""

    name = "ttk"
    raw = True
    root_files = (TABLE, KERNEL_TABLE)

    def write(self, golden: Golden, name: str, root: Path) -> Files:
        """Write the arrays of a case."""
        if is_kernel(golden):
            return self._kernel(golden, name, root)
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
        return Files([name], inputs, outputs, absent, [(TABLE, row)])

    def _kernel(self, golden: Golden, name: str, root: Path) -> Files:
        """Write the arrays of a kernel's case as its row has them."""
        op = golden.fields["op_name"].strip()
        arrays = kernel_inputs(golden, op)
        files = [f"{name}/input_{index}_{format_name(array)}.bin" for index, array in enumerate(arrays)]
        for array, file in zip(arrays, files, strict=True):
            write_array(array, root / file)
        inputs = {argument: file for array, file in zip(arrays, files, strict=True)
                  for argument, given in golden.inputs.items() if given is array}
        ((port, result),) = golden.outputs.items()
        outputs = {port: f"{name}/golden_0_{_golden_type(result)}.bin"}
        write_array(result, root / outputs[port])
        row = {**{column: golden.fields.get(column, "") for column in KERNEL_COLUMNS}, "testcase_name": golden.name,
               "op_name": op}
        return Files([name], inputs, outputs, [file for file in files if file not in inputs.values()],
                     [(KERNEL_TABLE, row)])

    def close(self, rows: Sequence[Row], root: Path) -> None:
        """Write the tables that have rows."""
        plain, kernels = ([row for table, row in rows if table == name] for name in (TABLE, KERNEL_TABLE))
        if plain or not kernels:
            _write_table(COLUMNS, plain, root / TABLE)
        if kernels:
            _write_table(KERNEL_COLUMNS, kernels, root / KERNEL_TABLE)

    def read(self, root: Path, case: Entry) -> Arrays:
        """Return the arrays of a case; the operand that a kernel lacks is all zeros."""
        held = super().read(root, case)
        if case.op != OPERATOR or len(held.inputs) == len(INPUTS) or not held.outputs:
            return held
        (result,) = held.outputs.values()
        absent = np.zeros(result.shape, held.inputs["grad_output"].dtype)
        return held._replace(inputs={name: held.inputs.get(name, absent) for name in INPUTS})

    def _row(self, golden: Golden) -> dict[str, str]:
        if golden.op != OPERATOR:
            raise refuse(golden, self.name, f"the operator is {golden.op}", OPERATOR)
        other = next((name for name in (SCALES, "rounding", "saturate") if golden.attributes.get(name)), None)
        if other is not None:
            raise refuse(golden, self.name, f"{other} is given", f"a call that {API} can state, without {other}")
        bound = bound_of(golden)
        shapes = [golden.inputs[key].shape for key in INPUTS]
        grad_bias = golden.outputs.get(OUTPUTS[2])  # biasSizes may state anything where no tensor is empty
        channels = _channels(bound) if grad_bias is None else grad_bias.shape
        formats = [format_name(golden.inputs[key]) for key in INPUTS]
        formats += [format_name(golden.outputs[port]) if port in golden.outputs else own
                    for port, own in zip(OUTPUTS, (formats[1], formats[2], formats[0]), strict=True)]
        layouts = [DATA_FORMATS.get(len(shape), "ND") for shape in (*shapes, *shapes[1:])]
        return {
            **{column: golden.fields[column] for column in KEPT if column in golden.fields},
            "testcase_name": golden.name, "api_name": API, "is_enabled": "True",
            "soc_series": golden.fields.get("soc_series") or series_of(golden.conformance),
            "tensor_view_shapes": repr((*shapes, *shapes[1:], tuple(channels))),
            "tensor_formats": repr((*layouts, "ND")), "tensor_dtypes": repr(tuple(formats)),
            "output_tensor_indexes": "(3, 4, 5)",
            "attributes": repr({name: _stated(bound, name) for name in ATTRIBUTES})}

    def results(self, golden: Golden, name: str, output: str) -> list[str]:
        """``output_I`` in the folder of the case: raw bytes with or without the dtype, or ``.npy``."""
        return [f"output_{_index(golden, output)}{suffix}"
                for suffix in (f"_{format_name(golden.outputs[output])}.bin", ".bin", ".npy")]

    def results_of_many(self, golden: Golden, name: str, output: str) -> list[str]:
        """What the kit dumps: ``CASE_output_I`` of all cases in one folder; ``CASE_fail_output_I`` of failed ones."""
        dumped = [f"{case}_{phase}_{_index(golden, output)}{suffix}"
                  for case in dict.fromkeys((golden.name, name)) for phase in ("output", "fail_output")
                  for suffix in (".bin", ".npy")]
        return [*super().results_of_many(golden, name, output), *dumped]


def is_kernel(golden: Golden) -> bool:
    """Whether golden vectors were read from a kernel's row and have its one output."""
    found = KERNEL.fullmatch(golden.fields.get("op_name", "").strip())
    return found is not None and not golden.fields.get("api_name") and len(golden.outputs) == 1


def _index(golden: Golden, output: str) -> int:
    """Return the number of an output: its place among the three, and 0 for the only one of a kernel."""
    return 0 if is_kernel(golden) or output not in OUTPUTS else OUTPUTS.index(output)


def _write_table(columns: tuple[str, ...], rows: list[dict[str, str]], path: Path) -> None:
    text = io.StringIO()
    table = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    write_bytes(text.getvalue().encode(), path)


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
