"""Tables of TTK, which are CSV files, as cases.

Calls of aclnnConvolutionBackward are cases of that operator. The two kernels below it are cases of it too: the data
gradient with only gradInput requested, and the weights gradient, whose result is float32, under emulation where its
operands are narrower. The operand that such a kernel lacks is all zeros there. What the interface cannot state, pads
that differ or channels last, is a case of oneDNN Graph's operator, which computes the same sums. `kernel_inputs`
returns the inputs of a kernel's golden vectors in TTK's order for either.

Source: TTK 2.8, docs/Test_Case_Generation.md and the guides to writing cases; tables of ops-nn.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ...errors import GraphError, shorten
from ...memory import Array
from ..record import Case, Golden, Operand
from .ascend import attributes_of, backward, check_data_formats, format_named, ranged, shape_of
from .literals import literal

API = "aclnnConvolutionBackward"
NAMES = ("testcase_name", "api_name", "op_name")
"""Columns whose cells are text; a table has the first and one of the others."""
KERNEL = re.compile(r"conv([23])d_backprop_(input|filter)(_v2)?")
HF32 = 64
"""The bit of ``_op_impl_mode_enum`` that lets a kernel round float32 to HF32."""
PRODUCTS = {"ascend950": "ascend950", "ascend910b": "atlas-a2", "ascend910_93": "atlas-a2", "ascend910": "atlas-910",
            "ascend910a": "atlas-910", "ascend310p": "atlas-910"}
"""Conformances by the beginning of the products' names."""
DATA = {"NCHW": "NCX", "NCDHW": "NCX", "NHWC": "NXC", "NDHWC": "NXC"}
WEIGHTS = {"NCHW": "OIX", "NCDHW": "OIX", "HWCN": "XIO", "DHWCN": "XIO"}


def is_table(content: bytes) -> bool:
    """Whether a file's first line is the header of a table."""
    header = content.removeprefix(b"\xef\xbb\xbf").splitlines()[0].decode("utf-8", "replace")
    return bool({name.strip().strip('"') for name in header.split(",")} & set(NAMES))


def of_table(content: bytes, file: str) -> Iterator[Case]:
    """Yield the cases of a table's rows, except those that are not enabled."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise GraphError(f"{file}: the byte at {error.start} is not UTF-8 text; needed: a CSV table of TTK") from None
    rows = _rows(text, file)
    header = [cell.strip() for cell in next(rows, [])]
    repeated = {name for name in header if header.count(name) > 1 and name}
    if repeated:
        raise GraphError(f"{file}: the header names {' and '.join(map(repr, sorted(repeated)))} twice; needed: every "
                         "column once")
    kind = next((name for name in ("api_name", "op_name") if name in header), None)
    if kind is None:
        raise GraphError(f"{file}: the header has neither 'api_name' nor 'op_name'; needed: one of the two columns")
    for number, cells in enumerate(rows, 2):
        if not any(cell.strip() for cell in cells):
            continue
        if len(cells) > len(header):
            raise GraphError(f"{file}, row {number} has {len(cells)} cells; needed: at most the {len(header)} of the "
                             "header")
        fields = dict(zip(header, cells, strict=False))
        row = _Row(fields, f"{file}, row {number}")
        if row.value("is_enabled", True) in (True, 1):
            yield _aclnn(row) if kind == "api_name" else _kernel(row)


def _rows(text: str, file: str) -> Iterator[list[str]]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        yield from reader
    except csv.Error as error:
        raise GraphError(f"{file}, line {reader.line_num}: {error}; needed: a CSV table of TTK") from None


class _Row(NamedTuple):
    """A row's cells by column, and where it stands."""

    fields: Mapping[str, str]
    place: str

    @property
    def name(self) -> str:
        """Name of the case."""
        return self.fields.get("testcase_name", "").strip() or f"auto_testcase_name_{self.place.rpartition(' ')[2]}"

    def where(self, column: str = "") -> str:
        """Words that find a cell."""
        return f"{self.place} ({shorten(self.name)})" + (f", column {column!r}" if column else "")

    def text(self, column: str) -> str:
        """The text of a cell."""
        return self.fields.get(column, "").strip()

    def value(self, column: str, default: Any = None) -> Any:
        """The value of a cell, the default for an empty or missing one."""
        text = self.text(column)
        if not text:
            return default
        try:
            return literal(text)
        except ValueError as error:
            raise GraphError(f"{self.where(column)}: {error}; needed: a Python literal") from None

    def entries(self, column: str, count: int, default: Any = None) -> list[Any]:
        """A cell's tuple with one entry per tensor; a single entry stands for all."""
        value = self.value(column)
        value = (default,) if value is None or value == () else value
        if not isinstance(value, tuple | list) or len(value) not in (1, count):
            raise GraphError(f"{self.where(column)}: {shorten(value)} is refused; needed: a tuple of {count}")
        return [*value] * (count if len(value) == 1 else 1)

    def refuse_given(self, *columns: str) -> None:
        """Refuse cells that would change what the case is."""
        for column in columns:
            value = self.value(column, ())
            if value not in ((), None, [], {}):
                raise GraphError(f"{self.where(column)}: {shorten(value)} is refused, because the values or the place "
                                 "of tensors would come from elsewhere; needed: an empty cell")


def _aclnn(row: _Row) -> Case:
    api = row.text("api_name")
    if api != API:
        raise GraphError(f"{row.where('api_name')}: no operator here computes {shorten(api)}; needed: {API}")
    row.refuse_given("output_inplace_indexes", "scalar_dtypes", "manual_tensor_binaries", "manual_golden_binaries")
    shapes = _shapes(row, "tensor_view_shapes", 6)
    dtypes = row.entries("tensor_dtypes", 6)
    _check_contiguous(row, shapes)
    indexes = row.value("output_tensor_indexes")
    if indexes not in (None, (), (3, 4, 5), [3, 4, 5]):
        raise GraphError(f"{row.where('output_tensor_indexes')}: {shorten(indexes)} is refused; needed: (3, 4, 5)")
    check_data_formats(row.entries("tensor_formats", 6, "ND")[:5], shapes[:5], row.where("tensor_formats"))
    formats = [format_named(dtype, row.where("tensor_dtypes")) for dtype in dtypes]
    operands = _operands(row, shapes[:3], formats[:3], 6)
    attributes = attributes_of(_dictionary(row), row.where("attributes"))
    bias = (shapes[0][1],) if len(shapes[0]) > 1 else ()
    for index, wanted in ((3, shapes[1]), (4, shapes[2]), (5, bias)):
        if shapes[index] != wanted:
            raise GraphError(f"{row.where('tensor_view_shapes')}: output {index} has the shape {list(shapes[index])}; "
                             f"needed: {list(wanted)}")
    return backward(row.name, operands, attributes, formats[3:], row.fields, _product(row))


def _kernel(row: _Row) -> Case:
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
    given = _dictionary(row)
    size_name = "input_size" if of_data else "filter_size"
    size = shape_of(given.pop(size_name, None), f"{row.where('attributes')}, {size_name!r}")
    if dtypes[stated] not in ("int32", "int64") or shapes[stated] != (len(size),):
        raise GraphError(f"{row.where('input_shapes')}: {size_name} is {shorten(dtypes[stated])} of shape "
                         f"{list(shapes[stated])}; needed: int32 of shape [{len(size)}]")
    if results[0] != size or any(len(shape) != axes + 2 for place, shape in enumerate(shapes) if place != stated) or (
            len(size) != axes + 2):
        raise GraphError(f"{row.where('output_shapes')}: {shorten(results[0])} beside {size_name} {list(size)}; "
                         f"needed: equal shapes, all tensors of rank {axes + 2}")
    operands = _operands(row, shapes, formats, 3)
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


def _kernel_call(row: _Row, given: dict[str, Any], axes: int, layout: str) -> _KernelCall:
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


def _by_interface(row: _Row, operands: Sequence[Operand], of_data: bool, size: tuple[int, ...], result: str,
                  call: _KernelCall) -> Case:
    """Return the case of aclnnConvolutionBackward that calls the kernel; the operand that it lacks is zeros."""
    format = operands[2].format
    absent = Operand(size, format, 0.0, 0.0)
    data, weight = (absent, operands[1]) if of_data else (operands[0], absent)
    attributes = {"stride": call.strides, "padding": call.begin, "dilation": call.dilations, "groups": call.groups,
                  "output_mask": [of_data, not of_data, False], "cube_math_type": 3 if call.hf32 else 0}
    made = (result, None, None) if of_data else (None, result, None)
    return backward(row.name, (operands[2], data, weight), attributes, made, row.fields, _product(row))


def _by_onednn(row: _Row, operands: Sequence[Operand], of_data: bool, size: tuple[int, ...], result: str,
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


def of_kernel(golden: Golden) -> bool:
    """Whether golden vectors are those of a kernel's row."""
    return len(golden.outputs) == 1 and KERNEL.fullmatch(golden.fields.get("op_name", "").strip()) is not None


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


def _integers(value: Any, count: int, least: int) -> bool:
    return isinstance(value, tuple | list) and len(value) == count and all(
        type(entry) is int and least <= entry < 2**31 for entry in value)


def _dictionary(row: _Row) -> dict[str, Any]:
    value = row.value("attributes", {})
    if not isinstance(value, dict):
        raise GraphError(f"{row.where('attributes')}: {shorten(value)} is refused; needed: a dictionary")
    return dict(value)


def _shapes(row: _Row, column: str, count: int) -> list[tuple[int, ...]]:
    value = row.value(column, ())
    if not isinstance(value, tuple | list) or len(value) != count:
        raise GraphError(f"{row.where(column)}: {shorten(value)} is refused; needed: a tuple of {count} shapes")
    return [shape_of(entry, row.where(column)) for entry in value]


def _stored_shapes(row: _Row, which: str, count: int) -> list[tuple[int, ...]]:
    """Return the shapes of a kernel's tensors, which the original shapes may only repeat."""
    shapes = _shapes(row, f"{which}_shapes", count)
    original = f"{which}_ori_shapes"
    if row.text(original) and _shapes(row, original, count) != shapes:
        raise GraphError(f"{row.where(original)}: {row.text(original)[:100]} differs from {which}_shapes; needed: "
                         "tensors that are stored as they are stated")
    return shapes


def _orders(row: _Row, stated: int) -> tuple[str, str]:
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


def _check_contiguous(row: _Row, shapes: Sequence[tuple[int, ...]]) -> None:
    """Refuse views with gaps: files of data hold what is stored, and it is not documented what lies in the gaps."""
    for column, contiguous in (
            ("tensor_storage_shapes", lambda shape: shape), ("tensor_view_offsets", lambda shape: 0),
            ("tensor_view_strides", lambda shape: tuple(prod(shape[axis + 1:]) for axis in range(len(shape))))):
        value = row.value(column, ())
        if value in ((), None, []):
            continue
        entries = row.entries(column, len(shapes))
        for entry, shape in zip(entries, shapes, strict=True):
            if entry not in (None, (), []) and (tuple(entry) if isinstance(entry, list) else entry) != (
                    contiguous(shape)):
                raise GraphError(f"{row.where(column)}: {shorten(entry)} for a tensor of shape {list(shape)} is "
                                 "refused; needed: contiguous tensors")


def _operands(row: _Row, shapes: Sequence[tuple[int, ...]], formats: Sequence[str], tensors: int) -> list[Operand]:
    """Return operands with their ranges; one range serves all, and outputs may have some too."""
    where = row.where("input_data_ranges")
    ranges = row.value("input_data_ranges", ())
    if not isinstance(ranges, tuple | list) or len(ranges) not in (0, 1, len(shapes), tensors):
        raise GraphError(f"{where}: {shorten(ranges)} is refused; needed: one range, or {len(shapes)}")
    ranges = [*ranges] * len(shapes) if len(ranges) == 1 else [*ranges] or [None] * len(shapes)
    return [ranged(shape, format, entry, where)
            for shape, format, entry in zip(shapes, formats, ranges, strict=False)]


def _product(row: _Row) -> str | None:
    """Return the conformance of the product that a row is for, None where it is for several or states none."""
    names = row.value("soc_series", ())
    names = (names,) if isinstance(names, str) else names or ()
    if not isinstance(names, tuple | list) or not all(isinstance(name, str) for name in names):
        raise GraphError(f"{row.where('soc_series')}: {shorten(names)} is refused; needed: names of products")
    found = {_conformance(name) for name in names if not name.startswith("-")}
    return found.pop() if len(found) == 1 else None


def _conformance(name: str) -> str | None:
    """Return the conformance of one product by the longest beginning of its name."""
    begins = [known for known in PRODUCTS if name.lower().startswith(known)]
    return PRODUCTS[max(begins, key=len)] if begins else None

