"""Tables of test cases in the forms of the vendors' own: the kinds and counts of ops-nn's, with other numbers.

38 rows of TTK (2 of the interface, one of them with batch 0; 16 of the data gradient's kernel; 20 of the weights
gradient's) and 215 calls of ATK: dtypes in turn, ranks 4 and 5, two transposed ones, cubeMathType 0 to 3.
"""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Iterable
from typing import Any, NamedTuple

ACLNN_COLUMNS = (
    "testcase_name", "network_name", "api_name", "tensor_view_shapes", "tensor_formats", "tensor_dtypes",
    "tensor_storage_shapes", "tensor_view_offsets", "tensor_view_strides", "output_tensor_indexes",
    "output_inplace_indexes", "attributes", "scalar_dtypes", "input_data_ranges", "precision_tolerances",
    "absolute_precision", "scalar_data_ranges", "is_enabled", "remark", "soc_series", "priority", "dump_file_prefix",
    "manual_tensor_binaries", "manual_golden_binaries")
KERNEL_COLUMNS = (
    "testcase_name", "op_name", "input_dtypes", "input_ori_shapes", "output_ori_shapes", "input_ori_formats",
    "output_ori_formats", "attributes", "input_shapes", "output_dtypes", "output_shapes", "input_formats",
    "output_formats", "input_data_ranges", "precision_tolerances", "absolute_precision", "soc_series")
DTYPES = ("float16", "bfloat16", "float32")
SHORT = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32"}


class Sizes(NamedTuple):
    """The extents of a convolution, one entry per spatial axis."""

    data: tuple[int, ...]
    weight: tuple[int, ...]
    result: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int


def sizes(draw: random.Random, axes: int) -> Sizes:
    """Small extents that fit together."""
    groups = draw.choice((1, 1, 1, 2, 3))
    channels, filters = groups * draw.randint(1, 3), groups * draw.randint(1, 4)
    stride, dilation, padding = (tuple(draw.choice(values) for _ in range(axes))
                                 for values in ((1, 1, 2, 3), (1, 1, 2), (0, 1, 2)))
    taps = tuple(draw.randint(1, 3) for _ in range(axes))
    extents = tuple((k - 1) * d + 1 + draw.randint(0, 4) for k, d in zip(taps, dilation, strict=True))
    small = tuple((x + 2 * p - d * (k - 1) - 1) // s + 1
                  for x, p, d, k, s in zip(extents, padding, dilation, taps, stride, strict=True))
    batch = draw.randint(1, 3)
    return Sizes((batch, channels, *extents), (filters, channels // groups, *taps), (batch, filters, *small), stride,
                 padding, dilation, groups)


def aclnn_rows() -> list[dict[str, Any]]:
    """The two rows of the interface."""
    empty = ((0, 2, 3), (0, 2, 3), (2, 2, 1), (0, 2, 3), (2, 2, 1), (2,))
    full = ((2, 6, 5, 4), (2, 4, 9, 8), (6, 2, 3, 3), (2, 4, 9, 8), (6, 2, 3, 3), (6,))
    return [
        aclnn_row("interface_empty_batch", empty, "float16", {
            "biasSizes": [2], "stride": [1], "dilation": [1], "padding": [0], "transposed": True, "outputPadding": [0],
            "groups": 1, "outputMask": [True, True, True], "cubeMathType": 0}),
        aclnn_row("interface_grouped", full, "float32", {
            "biasSizes": [6], "stride": [2, 2], "dilation": [1, 1], "padding": [1, 1], "transposed": False,
            "outputPadding": [0, 0], "groups": 2, "outputMask": [True, True, True], "cubeMathType": 0})]


def aclnn_row(name: str, shapes: tuple, dtype: str, attributes: dict[str, Any], **cells: Any) -> dict[str, Any]:
    """A row of the interface; `cells` replaces some."""
    layout = {3: "NCL", 4: "NCHW", 5: "NCDHW"}[len(shapes[0])]
    return {
        "testcase_name": name, "network_name": "", "api_name": "aclnnConvolutionBackward", "tensor_view_shapes": shapes,
        "tensor_formats": (*[layout] * 5, "ND"), "tensor_dtypes": (dtype,) * 6, "tensor_storage_shapes": (),
        "tensor_view_offsets": (), "tensor_view_strides": (), "output_tensor_indexes": (3, 4, 5),
        "output_inplace_indexes": (), "attributes": attributes, "scalar_dtypes": (),
        "input_data_ranges": ((None, None),) * 6, "precision_tolerances": ((0.001, 0.001),) * 3,
        "absolute_precision": (1e-08,) * 3, "scalar_data_ranges": ((None, None),), "is_enabled": True, "remark": "",
        "soc_series": "", "priority": 0, "dump_file_prefix": "", "manual_tensor_binaries": (),
        "manual_golden_binaries": (), **cells}


def kernel_row(name: str, kernel: str, found: Sizes, dtype: str, hf32: bool = False, **cells: Any) -> dict[str, Any]:
    """A row of a kernel, ``input`` or ``filter``; `cells` replaces some."""
    of_data = kernel == "input"
    size = found.data if of_data else found.weight
    shapes = ((5,), found.weight, found.result) if of_data else (found.data, (5,), found.result)
    dtypes = ("int32", dtype, dtype) if of_data else (dtype, "int32", dtype)
    formats = ("ND", "NCDHW", "NCDHW") if of_data else ("NCDHW", "ND", "NCDHW")
    attributes = {
        f"{kernel}_size": list(size), "strides": [1, 1, *found.stride],
        "pads": [pad for pad in found.padding for _ in range(2)], "dilations": [1, 1, *found.dilation],
        "groups": found.groups, "data_format": "NCDHW"}
    if hf32:
        attributes |= {"@padding": "", "@_op_impl_mode_enum": 64, "enable_hf32": True}
    return {
        "testcase_name": name, "op_name": f"conv3d_backprop_{kernel}_v2", "input_dtypes": dtypes,
        "input_ori_shapes": "", "output_ori_shapes": (size,), "input_ori_formats": formats,
        "output_ori_formats": ("NCDHW",), "attributes": attributes, "input_shapes": shapes,
        "output_dtypes": (dtype if of_data else "float32",), "output_shapes": (size,), "input_formats": formats,
        "output_formats": ("NCDHW",), "input_data_ranges": ((-1, 1),), "precision_tolerances": ((0.001, 0.001),),
        "absolute_precision": 1e-08, "soc_series": "", **cells}


def kernel_rows(kernel: str, count: int) -> list[dict[str, Any]]:
    """Rows of a kernel in all dtypes; every fifth in HF32, some with other ranges."""
    draw = random.Random(kernel)
    ranges = (((-1, 1),), ((0, 1), (0, 1), (0, 1)), ((-3.5, -0.25),), ((-2, 2, 0.5),), ((0.375, 0.375),))
    return [kernel_row(f"{kernel}_{number:03}", kernel, sizes(draw, 3),
                       "float32" if number % 5 == 4 else DTYPES[number % 3], number % 5 == 4,
                       input_data_ranges=ranges[number % len(ranges)]) for number in range(count)]


def table(columns: Iterable[str], rows: Iterable[dict[str, Any]]) -> str:
    """The text of a CSV file; cells are Python's."""
    file = io.StringIO()
    writer = csv.DictWriter(file, list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def ttk_tables() -> dict[str, str]:
    """The three tables by the names of their files."""
    return {"ttk_aclnn.csv": table(ACLNN_COLUMNS, aclnn_rows()),
            "ttk_kernel_input.csv": table(KERNEL_COLUMNS, kernel_rows("input", 16)),
            "ttk_kernel_filter.csv": table(KERNEL_COLUMNS, kernel_rows("filter", 20))}


def atk_object(name: str, kind: str, dtype: str, value: Any, shape: Any = None) -> dict[str, Any]:
    """An argument, or an element of one."""
    return {"name": name, "type": kind, "required": name != "format", "dtype": dtype, "shape": shape,
            "range_values": value, "backward": kind == "tensor", "align_32B": None, "outlier_values": None}


def atk_call(number: int, found: Sizes, dtypes: tuple[str, str, str], transposed: bool, mask: list[bool],
             mode: int) -> dict[str, Any]:
    """A call of aclnnConvolutionBackward."""
    axes = len(found.stride)
    data, result = (found.result, found.data) if transposed else (found.data, found.result)
    extra = [x + 2 * p - d * (k - 1) - 1 - s * (y - 1) if transposed else 0 for x, y, k, s, p, d in
             zip(found.data[2:], found.result[2:], found.weight[2:], found.stride, found.padding, found.dilation,
                 strict=True)]
    tensors = [atk_object(name, "tensor", SHORT[dtype], [-0.1, 0.1], list(shape)) for name, dtype, shape in
               zip(("gradOutput", "input", "weight"), dtypes, (result, data, found.weight), strict=True)]
    lists = {"biasSizes": [result[1]], "stride": found.stride, "padding": found.padding, "dilation": found.dilation}
    arrays = [[atk_object(name, "attrs", "int", value) for value in values] for name, values in lists.items()]
    return {
        "id": number, "name": "torch.nn.functional.convbackward", "aclnn_name": "ConvolutionBackward",
        "api_type": "golden_conv_backward", "aclnn_api_type": "aclnn_conv_backward",
        "standard": {"acc": "default", "perf": "not_key"},
        "inputs": [*tensors, *arrays, atk_object("transposed", "attr", "bool", transposed),
                   [atk_object("outputPadding", "attrs", "int", value) for value in extra],
                   atk_object("groups", "attr", "int", found.groups),
                   [atk_object("outputMask", "attrs", "bool", value) for value in mask],
                   atk_object("cubeMathType", "attr", "int", mode),
                   atk_object("format", "attr", "non_param", {1: "NCL", 2: "NCHW", 3: "NCDHW"}[axes])]}


def atk_calls(count: int = 215) -> list[dict[str, Any]]:
    """Calls in all dtypes, ranks 4 and 5, with all masks and modes; two are transposed."""
    draw = random.Random(215)
    calls = []
    for number in range(count):
        axes = 2 if number % 25 < 13 else 3
        mask = [bool((number + 1) % 8 >> bit & 1) for bit in range(3)]
        calls.append(atk_call(number, sizes(draw, axes), (DTYPES[number % 3],) * 3, number in (7, 100), mask,
                              number % 4))
    return calls


def atk_table() -> str:
    """The JSON text of all calls."""
    return json.dumps(atk_calls())
