"""Kernels in TTK's tables: the data gradient and the weights gradient that the interface's gradients consist of.

A kernel is a case of the interface: the data gradient with only gradInput requested, and the weights gradient, whose
result is float32, under emulation where its operands are narrower. The operand that such a kernel lacks is all zeros
there. What the interface cannot state, pads that differ or channels last, is a case of oneDNN Graph's operator, which
computes the same sums. `kernel_inputs` returns the inputs of either in TTK's order, and `arguments_of` the other way.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ...errors import GraphError, shorten
from ...formats import FORMATS
from ...memory import Array
from ..record import Case, Golden, Operand
from .ascend import backward, format_named, shape_of
from .rows import Row, attributes_cell, operands_of, product_of, shapes_cell

KERNEL = re.compile(r"conv([23])d_backprop_(input|filter)(_v2)?")
HF32 = 64
"""The bit of ``_op_impl_mode_enum`` that lets a kernel round float32 to HF32."""
DATA = {"NCHW": "NCX", "NCDHW": "NCX", "NHWC": "NXC", "NDHWC": "NXC"}
WEIGHTS = {"NCHW": "OIX", "NCDHW": "OIX", "HWCN": "XIO", "DHWCN": "XIO"}


def kernel_case(row: Row) -> Case:
    """Return the case of a kernel's row."""
    op = row.text("op_name")
    found = KERNEL.fullmatch(op)
    if found is None:
        raise GraphError(f"{row.where('op_name')}: no operator here computes {shorten(op)}; needed: "
                         "conv3d_backprop_input_v2 or conv3d_backprop_filter_v2, or those of 2-D convolutions")
    row.refuse_given("manual_input_binaries", "manual_golden_binaries", "output_inplace_indexes")
    axes, of_data = int(found[1]), found[2] == "input"
    stated = 0 if of_data else 1  # the place of the input that states a shape
    shapes, results = _stored_shapes(row, "input", 3), _stored_shapes(row, "output", 1)
    dtypes = row.entries("input_dtypes", 3)
    formats = ["int32" if place == stated else format_named(dtype, row.where("input_dtypes"))
               for place, dtype in enumerate(dtypes)]
    result = format_named(row.entries("output_dtypes", 1)[0], row.where("output_dtypes"))
    given = attributes_cell(row)
    size_name = "input_size" if of_data else "filter_size"
    size = shape_of(given.pop(size_name, None), f"{row.where('attributes')}, {size_name!r}")
    if dtypes[stated] not in ("int32", "int64") or shapes[stated] != (len(size),):
        raise GraphError(f"{row.where('input_shapes')}: {size_name} is {shorten(dtypes[stated])} of shape "
                         f"{list(shapes[stated])}; needed: int32 of shape [{len(size)}]")
    if results[0] != size or any(len(shape) != axes + 2 for place, shape in enumerate(shapes) if place != stated) or (
            len(size) != axes + 2):
        raise GraphError(f"{row.where('output_shapes')}: {shorten(results[0])} beside {size_name} {list(size)}; "
                         f"needed: equal shapes, all tensors of rank {axes + 2}")
    operands = operands_of(row, shapes, formats, 3)
    orders = _orders(row, stated)
    call = _kernel_call(row, given, axes, orders[0])
    if orders == ("NCX", "OIX") and call.begin == call.end:
        return _by_interface(row, operands, of_data, size, result, call)
    if call.hf32 and formats[2] == "float32":
        raise GraphError(f"{row.where('attributes')}: no operator here has HF32 with pads that differ or with channels "
                         "last; needed: equal pads on both sides and channels before space")
    return _by_onednn(row, operands, of_data, size, result, call, orders)


class _KernelCall(NamedTuple):
    """Attributes of a kernel, one entry per spatial axis."""

    strides: list[int]
    dilations: list[int]
    begin: list[int]
    end: list[int]
    groups: int
    hf32: bool


def _kernel_call(row: Row, given: dict[str, Any], axes: int, layout: str) -> _KernelCall:
    """Read attributes; strides and dilations have the data's order of axes, whatever data_format says."""
    where = row.where("attributes")
    mode = given.pop("@_op_impl_mode_enum", given.pop("_op_impl_mode_enum", 0))
    hf32 = given.pop("enable_hf32", False)
    pads, groups = given.pop("pads", None), given.pop("groups", 1)
    lists = {name: given.pop(name, [1] * (axes + 2)) for name in ("strides", "dilations")}
    space = {}
    last = layout == "NXC"
    for name, value in lists.items():
        neutral = (value[0], value[-1 if last else 1]) if _integers(value, axes + 2, 1) else ()
        if neutral != (1, 1):
            raise GraphError(f"{where}: {name!r} is {shorten(value)}; needed: {axes + 2} integers, those of batch and "
                             "channels 1")
        space[name] = list(value[1:-1] if last else value[2:])
    if not _integers(pads, 2 * axes, 0):
        raise GraphError(f"{where}: 'pads' is {shorten(pads)}; needed: {2 * axes} integers, two per spatial axis")
    if type(groups) is not int or groups < 1 or type(mode) is not int or not isinstance(hf32, bool | int):
        raise GraphError(f"{where}: groups {shorten(groups)}, implementation mode {shorten(mode)} or enable_hf32 "
                         f"{shorten(hf32)} is refused; needed: a positive integer, an integer and a truth value")
    if given.pop("data_format", "NCDHW") not in DATA or given.pop("offset_x", 0) != 0 or given.pop(
            "pad_mode", "SPECIFIC") != "SPECIFIC" or given.pop("padding", "") != "":
        raise GraphError(f"{where}: data_format, offset_x, pad_mode or padding is refused; needed: {', '.join(DATA)}, "
                         "0, 'SPECIFIC' and ''")
    unknown = [name for name in given if not name.startswith("@")]
    if unknown:
        raise GraphError(f"{where}: attribute {shorten(unknown[0])} is refused; needed: the size, strides, pads, "
                         "dilations, groups, data_format and enable_hf32")
    return _KernelCall(space["strides"], space["dilations"], list(pads[::2]), list(pads[1::2]), groups,
                       bool(hf32) or bool(mode & HF32))


def _by_interface(row: Row, operands: Sequence[Operand], of_data: bool, size: tuple[int, ...], result: str,
                  call: _KernelCall) -> Case:
    """Return the case of aclnnConvolutionBackward that calls the kernel; the operand that it lacks is zeros."""
    format = operands[2].format
    absent = Operand(size, format, 0.0, 0.0)
    data, weight = (absent, operands[1]) if of_data else (operands[0], absent)
    attributes = {"stride": call.strides, "padding": call.begin, "dilation": call.dilations, "groups": call.groups,
                  "output_mask": [of_data, not of_data, False], "cube_math_type": 3 if call.hf32 else 0}
    made = (result, None, None) if of_data else (None, result, None)
    case = backward(row.name, (operands[2], data, weight), attributes, made, row.fields, product_of(row))
    # The interface's rules about formats of gradients (E08, E55) do not hold for the kernel below it.
    return replace(case, conformance="emulation") if "output_formats" in case.attributes else case


def _by_onednn(row: Row, operands: Sequence[Operand], of_data: bool, size: tuple[int, ...], result: str,
               call: _KernelCall, orders: tuple[str, str]) -> Case:
    """Return the case of oneDNN Graph's operator, which has pads on each side and channels last."""
    attributes: dict[str, Any] = {
        "strides": call.strides, "pads_begin": call.begin, "pads_end": call.end, "dilations": call.dilations,
        "groups": call.groups, "data_format": orders[0], "weights_format": orders[1],
        "dst_shape" if of_data else "weights_shape": list(size)}
    first, second = (operands[2], operands[1]) if of_data else (operands[0], operands[2])
    emulated = {first.format, second.format, result} not in ({"float32"}, {"float16"}, {"bfloat16"})
    if emulated:
        attributes["output_format"] = result
    op, names = ("ConvolutionBackwardData", ("diff_dst", "weights")) if of_data else (
        "ConvolutionBackwardWeights", ("src", "diff_dst"))
    return Case(row.name, f"onednn::{op}", dict(zip(names, (first, second), strict=True)), attributes,
                "emulation" if emulated else None, dict(row.fields))


def kernel_inputs(golden: Golden, op_name: str) -> list[Array]:
    """Return the inputs of a kernel in TTK's order, the shape that is one of them as int32.

    Parameters
    ----------
    golden : Golden
        Of a case that `of_table` made from a kernel's row.
    op_name : str
        The row's `op_name`.
    """
    of_data = "backprop_input" in op_name
    if golden.op.startswith("onednn::"):
        size = golden.attributes["dst_shape" if of_data else "weights_shape"]
        arrays = [golden.inputs[name] for name in (("weights", "diff_dst") if of_data else ("src", "diff_dst"))]
    else:
        size = golden.inputs["input" if of_data else "weight"].shape
        arrays = [golden.inputs["weight" if of_data else "input"], golden.inputs["grad_output"]]
    arrays.insert(0 if of_data else 1, np.array(size, np.int32))
    return arrays


def arguments_of(case: Case, name: str, arrays: Sequence[Array]) -> dict[str, Array]:
    """Return the inputs of a case from arrays in TTK's order, the inverse of `kernel_inputs` for a kernel.

    Raises
    ------
    GraphError
        If an array has another shape than the case says.
    """
    if case.op.startswith("ascend::") and KERNEL.fullmatch(name) is None:
        found = dict(zip(case.inputs, arrays, strict=True))
    else:
        of_data = "backprop_input" in name
        first, second = arrays[1 if of_data else 0], arrays[2]
        names = (("weight", "grad_output") if of_data else ("input", "grad_output"))
        if case.op.startswith("onednn::"):
            names = ("weights", "diff_dst") if of_data else ("src", "diff_dst")
        found = dict(zip(names, (first, second), strict=True))
        for argument, operand in case.inputs.items():  # what the kernel lacks
            if argument not in found:
                found[argument] = np.zeros(operand.shape, FORMATS[operand.format].dtype)
    for argument, operand in case.inputs.items():
        if found[argument].shape != operand.shape:
            raise GraphError(f"{argument} has the shape {list(found[argument].shape)}; needed: {list(operand.shape)}")
    return {argument: found[argument] for argument in case.inputs}


def _integers(value: Any, count: int, least: int) -> bool:
    return isinstance(value, tuple | list) and len(value) == count and all(
        type(entry) is int and least <= entry < 2**31 for entry in value)


def _stored_shapes(row: Row, which: str, count: int) -> list[tuple[int, ...]]:
    """Return the shapes of a kernel's tensors, which the original shapes may only repeat."""
    shapes = shapes_cell(row, f"{which}_shapes", count)
    original = f"{which}_ori_shapes"
    if row.text(original) and shapes_cell(row, original, count) != shapes:
        raise GraphError(f"{row.where(original)}: {row.text(original)[:100]} differs from {which}_shapes; needed: "
                         "tensors that are stored as they are stated")
    return shapes


def _orders(row: Row, stated: int) -> tuple[str, str]:
    """Return the orders of axes of data and weights, of a kernel's inputs and its output."""
    stored = [*row.entries("input_formats", 3, "ND"), *row.entries("output_formats", 1, "ND")]
    for column, part in (("input_ori_formats", slice(0, 3)), ("output_ori_formats", slice(3, 4))):
        given = row.entries(column, len(stored[part])) if row.text(column) else stored[part]
        if given != stored[part]:
            raise GraphError(f"{row.where(column)}: {shorten(given)} differs from the stored formats "
                             f"{shorten(stored[part])}; needed: tensors that are stored as they are stated")
    weights = stored[1] if stated == 0 else stored[3]
    data = [stored[2], stored[3] if stated == 0 else stored[0]]
    if any(name not in DATA for name in data) or data[0] != data[1] or weights not in WEIGHTS:
        raise GraphError(f"{row.where('input_formats')}: data in {shorten(data)} with weights in {shorten(weights)} is "
                         f"refused; needed: equal data formats of {', '.join(DATA)}, and weights in "
                         f"{', '.join(WEIGHTS)}")
    return DATA[data[0]], WEIGHTS[weights]
