"""Tables of TTK, which are CSV files, as cases: calls of aclnnConvolutionBackward, and of the kernels below it.

Source: TTK 2.8, docs/Test_Case_Generation.md and the guides to writing cases; tables of ops-nn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import prod

from ...errors import GraphError, shorten
from ..record import Case
from .ascend import attributes_of, backward, check_data_formats, format_named
from .kernels import kernel_case
from .rows import Row, attributes_cell, operands_of, product_of, rows, shapes_cell

API = "aclnnConvolutionBackward"
NAMES = ("testcase_name", "api_name", "op_name")
"""Columns whose cells are text; a table has the first and one of the others."""


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
    lines = rows(text, file)
    header = [cell.strip() for cell in next(lines, [])]
    repeated = {name for name, count in Counter(header).items() if count > 1 and name}
    if repeated:
        raise GraphError(f"{file}: the header names {' and '.join(map(repr, sorted(repeated)))} twice; needed: every "
                         "column once")
    kind = next((name for name in ("api_name", "op_name") if name in header), None)
    if kind is None:
        raise GraphError(f"{file}: the header has neither 'api_name' nor 'op_name'; needed: one of the two columns")
    for number, cells in enumerate(lines, 2):
        if not any(cell.strip() for cell in cells):
            continue
        if len(cells) > len(header):
            raise GraphError(f"{file}, row {number} has {len(cells)} cells; needed: at most the {len(header)} of the "
                             "header")
        fields = dict(zip(header, cells, strict=False))
        row = Row(fields, f"{file}, row {number}")
        if row.value("is_enabled", True) in (True, 1):
            yield _aclnn(row) if kind == "api_name" else kernel_case(row)


def of_cells(cells: Mapping[str, str]) -> tuple[str, Case]:
    """Return what a row of these cells calls, and its case."""
    row = Row(cells, "the call")
    if row.text("api_name"):
        return row.text("api_name"), _aclnn(row)
    return row.text("op_name"), kernel_case(row)


def _aclnn(row: Row) -> Case:
    api = row.text("api_name")
    if api != API:
        raise GraphError(f"{row.where('api_name')}: no operator here computes {shorten(api)}; needed: {API}")
    row.refuse_given("output_inplace_indexes", "scalar_dtypes", "manual_tensor_binaries", "manual_golden_binaries")
    shapes = shapes_cell(row, "tensor_view_shapes", 6)
    dtypes = row.entries("tensor_dtypes", 6)
    _check_contiguous(row, shapes)
    indexes = row.value("output_tensor_indexes")
    if indexes not in (None, (), (3, 4, 5), [3, 4, 5]):
        raise GraphError(f"{row.where('output_tensor_indexes')}: {shorten(indexes)} is refused; needed: (3, 4, 5)")
    check_data_formats(row.entries("tensor_formats", 6, "ND")[:5], shapes[:5], row.where("tensor_formats"))
    formats = [format_named(dtype, row.where("tensor_dtypes")) for dtype in dtypes]
    operands = operands_of(row, shapes[:3], formats[:3], 6)
    attributes = attributes_of(attributes_cell(row), row.where("attributes"))
    bias = (shapes[0][1],) if len(shapes[0]) > 1 else ()
    for index, wanted in ((3, shapes[1]), (4, shapes[2]), (5, bias)):
        if shapes[index] != wanted:
            raise GraphError(f"{row.where('tensor_view_shapes')}: output {index} has the shape {list(shapes[index])}; "
                             f"needed: {list(wanted)}")
    return backward(row.name, operands, attributes, formats[3:], row.fields, product_of(row))


def _check_contiguous(row: Row, shapes: Sequence[tuple[int, ...]]) -> None:
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
