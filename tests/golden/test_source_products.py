"""Rows of the Ascend kit for one product: its rules hold, also where outputs have other formats than operands."""

from __future__ import annotations

import ast
import csv

import numpy as np
import pytest
import vendor_tables as tables
from golden_cases import ascend_case

import convreg
from convreg.golden import cases, layouts
from convreg.golden.plugins import exchange

HALVES = ("float32", "float32", "float32", "float16", "float16", "float32")


def row(product, mode, dtypes=HALVES):
    plain = tables.aclnn_rows()[1]
    return {**plain, "tensor_dtypes": dtypes, "soc_series": (product,) if product else "",
            "attributes": {**plain["attributes"], "cubeMathType": mode}}


def case_of(folder, *stated):
    path = folder / "cases.csv"
    path.write_text(tables.table(tables.ACLNN_COLUMNS, [row(*stated)]), encoding="utf-8")
    (case,) = cases(path)
    return case


def test_operands_are_rounded_as_the_product_of_the_row_rounds_them(tmp_path):
    """Atlas 910 multiplies float16: cubeMathType 1 rounds float32 operands to it, and not to HF32."""
    golden = case_of(tmp_path, "Ascend910", 1).make()
    assert (golden.conformance, golden.attributes["output_formats"]) == ("atlas-910", ["float16", "float16", ""])
    operands = [array.astype(np.float16) for array in golden.inputs.values()]
    call = {name: value for name, value in golden.attributes.items() if name not in ("output_formats", "bias_sizes")}
    exact = convreg.ascend.convolution_backward(*operands, **{**call, "cube_math_type": 0}, conformance="emulation",
                                                output_formats=["float16", "float16", "float32"])
    assert golden.outputs["gradInput"].tobytes() == exact[0].tobytes()
    assert golden.outputs["gradWeight"].tobytes() == exact[1].tobytes()


@pytest.mark.parametrize(("product", "mode", "rule"), [("Ascend910", 0, "E27"), ("Ascend910", 3, "E27"),
                                                       ("Ascend950", 0, "E07")])
def test_what_the_product_refuses_has_no_golden_vectors(tmp_path, product, mode, rule):
    case = case_of(tmp_path, product, mode)
    with pytest.raises(convreg.OpError) as caught:
        case.make()
    assert caught.value.rule == rule


@pytest.mark.parametrize("product", ["Ascend950", "Ascend910B", ""])
@pytest.mark.parametrize("groups", [1, 2])
def test_a_kernel_writes_float32_on_every_product(tmp_path, product, groups):
    """The interface refuses this format of gradWeight (E08, E55); the kernel below it has no other."""
    sizes = tables.Sizes((1, 4, 3, 3, 3), (4, 4 // groups, 1, 2, 1), (1, 4, 3, 2, 3), (1,) * 3, (0,) * 3, (1,) * 3,
                         groups)
    written = tables.kernel_row("kernel", "filter", sizes, "bfloat16", soc_series=(product,) if product else "")
    path = tmp_path / "cases.csv"
    path.write_text(tables.table(tables.KERNEL_COLUMNS, [written]), encoding="utf-8")
    (case,) = cases(path)
    assert {name: array.dtype for name, array in case.make().outputs.items()} == {"gradWeight": np.float32}


@pytest.mark.parametrize(("stated", "running", "mode", "error"), [
    ("", "atlas-910", 0, "E27"), ("", "ascend950", 0, "E07"), ("", None, 0, None), ("", "atlas-a2", 0, None),
    ("Ascend910B", "atlas-910", 0, None),
])
def test_the_product_that_runs_decides_for_rows_of_no_product(stated, running, mode, error):
    cells = {name: str(value) for name, value in row(stated, mode).items()}
    arrays = [np.ones(shape, np.float32) for shape in tables.aclnn_rows()[1]["tensor_view_shapes"][:3]]
    held = [{"format": "float32", "shape": list(array.shape)} for array in arrays]
    message = {"do": "golden", "cells": cells, "arrays": held, "conformance": running}
    answer, _ = exchange.answer(message, [array.view(np.uint8) for array in arrays])
    assert (error is None) == ("error" not in answer)
    if error:
        assert f"[rule {error}" in answer["error"]


def test_the_table_has_the_shape_of_the_bias_gradient_whatever_bias_sizes_state(tmp_path):
    """Products do not read biasSizes unless a tensor is empty."""
    case = ascend_case("bias", "float32", conformance="atlas-a2")
    golden = convreg.golden.make(case.op, list(case.make().inputs.values()), name=case.name, conformance="atlas-a2",
                                 **case.attributes, bias_sizes=[1])
    layouts.write("ttk", tmp_path / "kit", [golden])
    with (tmp_path / "kit" / "cases.csv").open(newline="", encoding="utf-8") as file:
        (written,) = csv.DictReader(file)
    assert ast.literal_eval(written["tensor_view_shapes"])[5] == golden.outputs["gradBias"].shape == (4,)
    (again,) = cases(tmp_path / "kit" / "cases.csv")
    assert again.attributes["bias_sizes"] == [1]


@pytest.mark.parametrize(("conformance", "series"), [
    ("ascend950", "('Ascend950',)"), ("atlas-a2", "('Ascend910B', 'Ascend910_93')"),
    ("atlas-910", "('Ascend910A', 'Ascend310P')"), ("document", ""), (None, "")])
def test_the_table_names_the_product_of_a_case(tmp_path, conformance, series):
    """A kit that is read again has the same results: cubeMathType 1 depends on the product."""
    case = ascend_case("product", "float32")
    arrays = [np.full(operand.shape, 1 / 3, np.float32) for operand in case.inputs.values()]
    golden = convreg.golden.make(case.op, arrays, name=case.name, conformance=conformance, **case.attributes,
                                 cube_math_type=1)
    layouts.write("ttk", tmp_path / "kit", [golden])
    with (tmp_path / "kit" / "cases.csv").open(newline="", encoding="utf-8") as file:
        (written,) = csv.DictReader(file)
    assert written["soc_series"] == series
    (again,) = cases(tmp_path / "kit" / "cases.csv")
    assert again.conformance == (conformance if series else None)
    repeated = convreg.golden.make(again.op, arrays, conformance=again.conformance, **again.attributes)
    assert {name: array.tobytes() for name, array in repeated.outputs.items()} == {
        name: array.tobytes() for name, array in golden.outputs.items()}
