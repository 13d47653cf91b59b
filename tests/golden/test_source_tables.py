"""Tables of TTK and ATK: the calls that they state, and what is refused."""

from __future__ import annotations

import copy
import json
import random
from collections import Counter

import numpy as np
import pytest
import vendor_tables as tables
from plain_gradients import Windows, filled, outcome, wide

import convreg
from convreg import GraphError
from convreg.golden import Golden, cases
from convreg.golden.sources.kernels import arguments_of, kernel_inputs
from convreg.golden.sources.literals import literal

SIZES = tables.Sizes((2, 4, 5, 6, 4), (6, 2, 2, 3, 1), (2, 6, 3, 6, 2), (2, 1, 2), (1, 2, 0), (1, 2, 1), 2)
WINDOWS = Windows(SIZES.stride, SIZES.padding, SIZES.dilation, 2)
OPERANDS = {"gradOutput": (2, 6, 5, 4), "input": (2, 4, 9, 8), "weight": (6, 2, 3, 3)}


@pytest.fixture
def read(tmp_path):
    """Read a table from a file."""
    def cases_of(content, name="cases.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return list(cases(path))

    return cases_of


def aclnn(**cells):
    """The text of a table with the grouped row, some cells replaced; None removes a column."""
    row = {**tables.aclnn_rows()[1], **cells}
    columns = [name for name in row if row[name] is not None]
    return tables.table(columns, [{name: row[name] for name in columns}])


def kernel(which, dtype="float32", hf32=False, attributes=None, **cells):
    """The text of a table with one row of a kernel."""
    row = tables.kernel_row("row", which, SIZES, dtype, hf32, **cells)
    if attributes is not None:
        row["attributes"] = {**row["attributes"], **attributes}
    return tables.table(tables.KERNEL_COLUMNS, [row])


def test_all_253_cases_run(read):
    """The operator accepts every row; what it computes is tested below, and shapes follow from the rows."""
    counted = Counter()
    texts = {**tables.ttk_tables(), "atk.json": tables.atk_table()}
    for file, text in texts.items():
        for case in read(text, file):
            results = outcome(case, filled(case))
            counted[file] += 1
            mask = case.attributes.get("output_mask", [True] * 3)
            assert list(results) == [name for name, asked in
                                     zip(("gradInput", "gradWeight", "gradBias"), mask, strict=True) if asked]
            for name, of in (("gradInput", "input"), ("gradWeight", "weight")):
                assert name not in results or results[name].shape == case.inputs[of].shape
    assert counted == {"ttk_aclnn.csv": 2, "ttk_kernel_input.csv": 16, "ttk_kernel_filter.csv": 20, "atk.json": 215}


# ---------------------------------------------------------------------------------------------------------------------
# TTK, the interface


def test_interface_row(read):
    (case,) = read(aclnn())
    assert (case.name, case.op, case.conformance) == ("interface_grouped", "ascend::ConvolutionBackward", None)
    assert case.fields["tensor_view_shapes"] == repr(tables.aclnn_rows()[1]["tensor_view_shapes"])
    assert {operand.low for operand in case.inputs.values()} == {-2.0}
    assert {operand.high for operand in case.inputs.values()} == {2.0}
    operands = filled(case)
    results = outcome(case, operands)
    windows = Windows((2, 2), (1, 1), (1, 1), 2)
    dy, x, w = (operands[name] for name in ("grad_output", "input", "weight"))
    assert np.array_equal(results["gradInput"], windows.data(dy, w, x.shape))
    assert np.array_equal(results["gradWeight"], windows.weight(x, dy, w.shape))
    assert np.array_equal(results["gradBias"], dy.sum((0, 2, 3)))


def test_empty_batch(read):
    (case,) = read(tables.table(tables.ACLNN_COLUMNS, tables.aclnn_rows()[:1]))
    results = outcome(case, filled(case))
    assert results["gradInput"].shape == (0, 2, 3)
    assert not results["gradWeight"].any()
    assert not results["gradBias"].any()


def test_columns_in_any_order_with_defaults(read):
    row = tables.aclnn_rows()[1]
    names = ["attributes", "tensor_dtypes", "tensor_view_shapes", "api_name", "testcase_name"]
    (case,) = read(tables.table(names, [{name: row[name] for name in names}]))
    assert [operand.shape for operand in case.inputs.values()] == list(OPERANDS.values())
    (case,) = read(aclnn(testcase_name=""))
    assert case.name == "auto_testcase_name_2"
    (case,) = read(aclnn(tensor_dtypes=("bf16",)))
    assert {operand.format for operand in case.inputs.values()} == {"bfloat16"}


def test_rows_that_are_not_enabled_and_blank_rows_are_passed_over(read):
    rows = [{**tables.aclnn_rows()[1], "testcase_name": f"row{number}", "is_enabled": enabled}
            for number, enabled in enumerate((True, False, "", 0, 1))]
    text = tables.table(tables.ACLNN_COLUMNS, rows).replace("\n", "\n,,\n\n", 1)
    assert [case.name for case in read("\ufeff" + text)] == ["row0", "row2", "row4"]


@pytest.mark.parametrize(("cell", "ranges"), [
    (((-1, 1),), [(-1, 1, ())] * 3),
    (((0, 1, 0.5, float("inf")), (None, 3), (2, 2)), [(0, 1, (0.5, np.inf)), (-2, 3, ()), (2, 2, ())]),
    ("", [(-2, 2, ())] * 3),
    ("((-inf, float('inf'), nan), None, [1, 2])", [(-np.inf, np.inf, (np.nan,)), (-2, 2, ()), (1, 2, ())]),
    (((0, 1),) * 6, [(0, 1, ())] * 3),
])
def test_ranges(read, cell, ranges):
    (case,) = read(aclnn(input_data_ranges=cell))
    assert str([(operand.low, operand.high, operand.occurring) for operand in case.inputs.values()]) == str(
        [(float(low), float(high), occurring) for low, high, occurring in ranges])


def test_other_formats_of_results_are_emulated(read):
    dtypes = ("float16", "float16", "float16", "float32", "float16", "float32")
    (case,) = read(aclnn(tensor_dtypes=dtypes))
    assert (case.conformance, case.attributes["output_formats"]) == ("emulation", ["float32", "", "float32"])
    assert {name: array.dtype for name, array in outcome(case, filled(case)).items()} == {
        "gradInput": np.float32, "gradWeight": np.float16, "gradBias": np.float32}
    masked = {**tables.aclnn_rows()[1]["attributes"], "outputMask": [False, True, False]}
    (case,) = read(aclnn(tensor_dtypes=dtypes, attributes=masked))
    assert (case.conformance, "output_formats" in case.attributes) == (None, False)


@pytest.mark.parametrize(("cell", "conformance"), [
    ("('Ascend950',)", "ascend950"), ("('Ascend910B', '-Ascend950')", "atlas-a2"), ("('Ascend910A',)", "atlas-910"),
    ("('Ascend910_93', 'Ascend910B')", "atlas-a2"), ("('Ascend950', 'Ascend910B')", None), ("('other',)", None),
    ("('-Ascend950',)", None),
])
def test_product_of_a_row_is_its_conformance(read, cell, conformance):
    (case,) = read(aclnn(soc_series=cell))
    assert case.conformance == conformance


def test_contiguous_views_are_taken(read):
    strides = ((120, 20, 4, 1), (288, 72, 8, 1), (18, 9, 3, 1), (288, 72, 8, 1), (18, 9, 3, 1), (1,))
    shapes = tables.aclnn_rows()[1]["tensor_view_shapes"]
    cells = {"tensor_view_strides": strides, "tensor_storage_shapes": shapes, "tensor_view_offsets": (0,) * 6}
    assert len(read(aclnn(**cells))) == 1


ATTRIBUTES = tables.aclnn_rows()[1]["attributes"]
SHAPES = tables.aclnn_rows()[1]["tensor_view_shapes"]


@pytest.mark.parametrize(("cells", "words"), [
    ({"api_name": "aclnnAdd"}, "no operator here computes 'aclnnAdd'; needed: aclnnConvolutionBackward"),
    ({"tensor_view_shapes": SHAPES[:3]}, "needed: a tuple of 6 shapes"),
    ({"tensor_view_shapes": ""}, "needed: a tuple of 6 shapes"),
    ({"tensor_view_shapes": (*SHAPES[:3], (1,), *SHAPES[4:])}, "output 3 has the shape [1]; needed: [2, 4, 9, 8]"),
    ({"tensor_view_shapes": ((-1,), *SHAPES[1:])}, "is no shape"),
    ({"tensor_view_shapes": "__import__('os').system('false')"}, "is no number, string, tuple, list or dictionary"),
    ({"tensor_view_shapes": "((1, 2"}, "is no Python literal"), ({"tensor_view_shapes": "(" * 1000}, "nested"),
    ({"tensor_view_shapes": "9**9**9"}, "is no number"), ({"tensor_view_shapes": "x" * 100_001}, "characters"),
    ({"tensor_dtypes": ("int8",) * 6}, "number format 'int8' is refused; needed: float32"),
    ({"tensor_dtypes": ("float16",) * 5}, "needed: a tuple of 6"),
    ({"tensor_dtypes": ""}, "number format None"),
    ({"tensor_formats": ("NHWC",) * 6}, "a tensor of rank 4 has the format 'NHWC'; needed: NCHW"),
    ({"tensor_view_strides": ((1, 2, 3, 4),) * 6}, "needed: contiguous tensors"),
    ({"tensor_view_offsets": (0, 1, 0, 0, 0, 0)}, "1 for a tensor of shape [2, 4, 9, 8] is refused"),
    ({"tensor_storage_shapes": ((240,), *SHAPES[1:])}, "needed: contiguous tensors"),
    ({"output_tensor_indexes": (0,)}, "needed: (3, 4, 5)"),
    ({"output_inplace_indexes": (0,)}, "needed: an empty cell"), ({"scalar_dtypes": ("int64",)}, "an empty cell"),
    ({"manual_tensor_binaries": ("a.bin",)}, "an empty cell"),
    ({"attributes": {**ATTRIBUTES, "strides": [1, 1]}}, "'strides' (did you mean 'stride'?)"),
    ({"attributes": {"stride": [1, 1]}}, "padding and dilation are missing"), ({"attributes": (1,)}, "a dictionary"),
    ({"attributes": "{1: 2}"}, "a key that is no string"),
    ({"input_data_ranges": ((1, 0),)}, "holds no value"), ({"input_data_ranges": ((1,),)}, "the range (1,)"),
    ({"input_data_ranges": (("a", 1),)}, "the range"), ({"input_data_ranges": ((0, 1),) * 4}, "one range, or 3"),
    ({"input_data_ranges": "((nan, 1),)"}, "holds no value"), ({"input_data_ranges": "((0, 1, None),)"}, "the range"),
    ({"input_data_ranges": f"((0, 1{'0' * 400}),)"}, "the range"),
    ({"soc_series": "(1,)"}, "needed: names of products"), ({"is_enabled": "perhaps"}, "column 'is_enabled'"),
])
def test_refusals_of_interface_rows(read, cells, words):
    with pytest.raises(GraphError) as error:
        read(aclnn(**cells))
    message = str(error.value)
    assert words in message
    assert "cases.csv, row 2 ('interface_grouped'), column '" in message
    assert "\n" not in message


@pytest.mark.parametrize(("content", "words"), [
    ("testcase_name,api_name,testcase_name\n", "the header names 'testcase_name' twice"),
    ("testcase_name," + ",".join(map(str, range(200_000))), "neither 'api_name' nor 'op_name'"),
    ("testcase_name,attributes\nrow,{}\n", "neither 'api_name' nor 'op_name'"),
    ("testcase_name,api_name\nrow,x,y\n", "row 2 has 3 cells; needed: at most the 2"),
    ('testcase_name,api_name\n"row', "unexpected end of data; needed: a CSV table of TTK"),
    ('testcase_name,api_name\nrow,"' + "x" * 200_000 + '"\n', "field larger than field limit"),
    (b"testcase_name,api_name\nrow\xff,x\n", "the byte at 26 is not UTF-8 text"),
])
def test_damaged_tables(read, content, words):
    with pytest.raises(GraphError, match=r"cases.csv") as error:
        read(content)
    assert words in str(error.value)


# ---------------------------------------------------------------------------------------------------------------------
# TTK, kernels


@pytest.mark.parametrize("dtype", tables.DTYPES)
def test_kernel_of_the_data_gradient(read, dtype):
    (case,) = read(kernel("input", dtype))
    assert (case.op, case.conformance) == ("ascend::ConvolutionBackward", None)
    operands = filled(case)
    assert not wide(operands["input"]).any()
    (result,) = outcome(case, operands).values()
    expected = WINDOWS.data(wide(operands["grad_output"]), wide(operands["weight"]), SIZES.data)
    assert result.dtype == operands["weight"].dtype
    assert np.array_equal(wide(result), wide(expected.astype(np.float32).astype(result.dtype)))


@pytest.mark.parametrize("dtype", tables.DTYPES)
def test_kernel_of_the_weights_gradient_writes_float32(read, dtype):
    (case,) = read(kernel("filter", dtype))
    assert case.conformance == (None if dtype == "float32" else "emulation")
    operands = filled(case)
    (result,) = outcome(case, operands).values()
    assert result.dtype == np.float32
    assert np.array_equal(result, WINDOWS.weight(wide(operands["input"]), wide(operands["grad_output"]), SIZES.weight))


@pytest.mark.parametrize("attributes", [{"enable_hf32": True}, {"@_op_impl_mode_enum": 64}])
@pytest.mark.parametrize("which", ["input", "filter"])
def test_hf32_rounds_operands(read, which, attributes):
    (case,) = read(kernel(which, attributes=attributes))
    assert case.attributes["cube_math_type"] == 3
    exact = filled(case)
    operands = {name: np.where(array, array + np.float32(2.0**-20), array) for name, array in exact.items()}
    assert all(np.array_equal(first, second) for first, second in zip(
        outcome(case, operands).values(), outcome(case, exact).values(), strict=True))


@pytest.mark.parametrize("which", ["input", "filter"])
@pytest.mark.parametrize("dtype", tables.DTYPES)
def test_pads_that_differ_and_channels_last(read, which, dtype):
    """oneDNN Graph's operator computes what the interface cannot state."""
    sizes = tables.Sizes((2, 4, 6, 5), (6, 2, 3, 2), (2, 6, 3, 4), (2, 1), (1, 0), (1, 1), 2)
    windows = Windows(sizes.stride, sizes.padding, sizes.dilation, 2)
    of_data = which == "input"
    x, w, y = (2, 6, 5, 4), (3, 2, 2, 6), (2, 3, 4, 6)
    size = x if of_data else w
    shapes = ((4,), w, y) if of_data else (x, (4,), y)
    formats = ("ND", "HWCN", "NHWC") if of_data else ("NHWC", "ND", "NHWC")
    out = ("NHWC",) if of_data else ("HWCN",)
    row = tables.kernel_row("row", which, SIZES, dtype, op_name=f"conv2d_backprop_{which}", input_shapes=shapes,
                            output_shapes=(size,), output_ori_shapes="", input_formats=formats, output_formats=out,
                            input_ori_formats="", output_ori_formats="", attributes={
                                f"{which}_size": size, "strides": (1, 2, 1, 1), "pads": (1, 0, 0, 0),
                                "dilations": (1, 1, 1, 1), "groups": 2, "data_format": "NCHW"})
    (case,) = read(tables.table(tables.KERNEL_COLUMNS, [row]))
    assert case.op.startswith("onednn::")
    operands = filled(case)
    (result,) = outcome(case, operands).values()
    first = {name: wide(array) for name, array in operands.items()}
    for name, array in first.items():
        first[name] = np.moveaxis(array, (-1, -2), (0, 1)) if name == "weights" else np.moveaxis(array, -1, 1)
    if of_data:
        expected = np.moveaxis(windows.data(first["diff_dst"], first["weights"], sizes.data), 1, -1)
    else:
        expected = np.moveaxis(windows.weight(first["src"], first["diff_dst"], sizes.weight), (0, 1), (-1, -2))
    assert result.shape == size
    assert np.array_equal(wide(result), wide(expected.astype(np.float32).astype(result.dtype)))
    golden = Golden(case.name, case.op, case.attributes, case.conformance, operands, {})
    assert [array.shape for array in kernel_inputs(golden, row["op_name"])] == list(shapes)


@pytest.mark.parametrize("which", ["input", "filter"])
def test_inputs_of_kernels_in_their_order(read, which):
    (case,) = read(kernel(which))
    operands = filled(case)
    golden = Golden(case.name, case.op, case.attributes, case.conformance, operands, {})
    found = kernel_inputs(golden, f"conv3d_backprop_{which}_v2")
    shapes, size = ((5,), SIZES.weight, SIZES.result), SIZES.data
    if which == "filter":
        shapes, size = (SIZES.data, (5,), SIZES.result), SIZES.weight
    assert [array.shape for array in found] == list(shapes)
    stated = found[0 if which == "input" else 1]
    assert (stated.dtype, tuple(stated)) == (np.int32, size)
    assert found[2] is operands["grad_output"]
    back = arguments_of(case, f"conv3d_backprop_{which}_v2", found)
    assert list(back) == list(operands)
    assert all(np.array_equal(back[name], operands[name]) for name in operands)
    with pytest.raises(GraphError, match="grad_output has the shape"):
        arguments_of(case, f"conv3d_backprop_{which}_v2", [*found[:2], found[2][:1]])


@pytest.mark.parametrize(("cells", "words"), [
    ({"op_name": "conv3dv2"}, "no operator here computes 'conv3dv2'"),
    ({"op_name": "conv2d_backprop_input_v2"}, "all tensors of rank 4"),
    ({"input_shapes": ((4,), SIZES.weight, SIZES.result)}, "needed: int32 of shape [5]"),
    ({"input_dtypes": ("float32",) * 3}, "needed: int32 of shape [5]"),
    ({"input_dtypes": ("int32", "int8", "int8")}, "number format 'int8'"),
    ({"output_shapes": ((1, 2, 3, 4, 5),), "output_ori_shapes": ""}, "beside input_size [2, 4, 5, 6, 4]"),
    ({"output_ori_shapes": ((1, 2, 3, 4, 5),)}, "differs from output_shapes"),
    ({"input_formats": ("ND", "FRACTAL_Z_3D", "NCDHW")}, "differs from the stored formats"),
    ({"input_formats": ("ND", "FRACTAL_Z_3D", "NCDHW"), "input_ori_formats": ""}, "weights in 'FRACTAL_Z_3D'"),
    ({"input_formats": ("ND", "NCDHW", "NDHWC"), "input_ori_formats": ""}, "equal data formats"),
    ({"manual_golden_binaries": "('x',)"}, "an empty cell"),
    ({"attributes": {"input_size": None}}, "'input_size': None is no shape"),
    ({"attributes": {"strides": [1, 2, 1, 1, 1]}}, "those of batch and channels 1"),
    ({"attributes": {"strides": 1}}, "'strides' is 1"), ({"attributes": {"pads": [1, 1, 1]}}, "needed: 6 integers"),
    ({"attributes": {"pads": [-1] * 6}}, "needed: 6 integers"), ({"attributes": {"groups": 0}}, "groups 0"),
    ({"attributes": {"enable_hf32": "x"}}, "enable_hf32 'x'"), ({"attributes": {"pad_mode": "SAME"}}, "'SPECIFIC'"),
    ({"attributes": {"offset_x": 1}}, "offset_x"), ({"attributes": {"other": 1}}, "attribute 'other' is refused"),
    ({"attributes": {"pads": [0, 1] * 3, "enable_hf32": True}}, "no operator here has HF32 with pads that differ"),
])
def test_refusals_of_kernel_rows(read, cells, words):
    row = tables.kernel_row("row", "input", SIZES, "float32")
    cells = {**cells, **({"attributes": {**row["attributes"], **cells["attributes"]}} if "attributes" in cells else {})}
    with pytest.raises(GraphError, match=r"cases.csv, row 2 \('row'\)") as error:
        read(tables.table((*tables.KERNEL_COLUMNS, "manual_golden_binaries"), [{**row, **cells}]))
    assert words in str(error.value)


@pytest.mark.parametrize(("text", "value"), [
    ("1.00E-08", 1e-8), ("-1", -1), ("+2.5", 2.5), ("((1, 2), [3], {'a': None, \"b\": True})", ((1, 2), [3], {
        "a": None, "b": True})), ("'x'", "x"), ("()", ()), ("float('-inf')", -np.inf), (" ( - 1 , ) ", (-1,)),
])
def test_literals(text, value):
    assert literal(text) == value
    assert type(literal(text)) is type(value)


@pytest.mark.parametrize("text", [
    "", "a", "1 + 1", "[x for x in ()]", "lambda: 0", "b'x'", "1j", "{1}", "f'{1}'", "{**{}}", "-'a'", "-True", "~1",
    "float(x)", "float('x')", "float()", "float('1', 2)", "open('x')", "(1, *(2,))", "1;2", "-" * 500 + "1", "...",
    "9" * 5000, "1+" * 2000 + "1", "-\t" * 2000 + "1", "float(0x" + "f" * 500 + ")", "(" * 50 + ")" * 50,
    "\0", "'\ud800'",
])
def test_what_is_no_literal(text):
    with pytest.raises(ValueError, match=r"."):
        literal(text)


# ---------------------------------------------------------------------------------------------------------------------
# ATK


def test_call_of_atk(read):
    sizes = tables.sizes(random.Random(5), 2)
    windows = Windows(sizes.stride, sizes.padding, sizes.dilation, sizes.groups)
    direct = tables.atk_call(3, sizes, ("float32",) * 3, False, [True, True, True], 0)
    turned = tables.atk_call(4, sizes, ("float32",) * 3, True, [True, True, True], 0)
    first, second = read(json.dumps([direct, turned]), "cases.json")
    assert (first.name, first.fields["id"]) == ("aclnnConvolutionBackward-3", "3")
    assert {(operand.low, operand.high) for operand in first.inputs.values()} == {(-0.1, 0.1)}
    operands = filled(first)
    dy, x, w = (operands[name] for name in ("grad_output", "input", "weight"))
    results = outcome(first, operands)
    assert np.array_equal(results["gradInput"], windows.data(dy, w, sizes.data))
    assert np.array_equal(results["gradWeight"], windows.weight(x, dy, sizes.weight))
    operands = filled(second)
    dy, x, w = (operands[name] for name in ("grad_output", "input", "weight"))
    results = outcome(second, operands)
    assert np.array_equal(results["gradInput"], windows.forward(dy, w, sizes.result))
    assert np.array_equal(results["gradWeight"], windows.weight(dy, x, sizes.weight))
    assert np.array_equal(results["gradBias"], dy.sum((0, 2, 3)))


def test_mixed_dtypes_of_atk(read):
    dtypes = ("float16", "bfloat16", "float32")
    call = tables.atk_call(0, tables.sizes(random.Random(1), 3), dtypes, False, [True] * 3, 1)
    (case,) = read(json.dumps([call]), "cases.json")
    assert [operand.format for operand in case.inputs.values()] == ["float16", "bfloat16", "float32"]
    assert case.attributes["cube_math_type"] == 1
    outcome(case, filled(case))


def changed(change):
    call = copy.deepcopy(tables.atk_call(9, tables.sizes(random.Random(1), 2), ("float32",) * 3, False, [True] * 3, 0))
    change(call)
    return call


@pytest.mark.parametrize(("change", "words"), [
    (lambda call: call.update(aclnn_name="ConvTbcBackward"), "no operator here computes aclnn_name 'ConvTbcBackward'"),
    (lambda call: call.update(inputs={}), "'inputs' is {}"), (lambda call: call["inputs"].pop(2), "no tensor 'weight'"),
    (lambda call: call["inputs"].append(3), "input 13 is 3"), (lambda call: call["inputs"].append([]), "0 names"),
    (lambda call: call["inputs"].append(call["inputs"][0]), "'gradOutput' occurs twice"),
    (lambda call: call["inputs"][0].update(dtype="fp8"), "number format 'fp8'"),
    (lambda call: call["inputs"][0].update(shape=None), "None is no shape"),
    (lambda call: call["inputs"][0].update(range_values=[1]), "the range [1]"),
    (lambda call: call["inputs"][0].update(outlier_values=[1]), "outlier_values"),
    (lambda call: call["inputs"][0].update(type="scalar"), "has the type ['scalar']"),
    (lambda call: call["inputs"][-1].update(range_values="NHWC"), "the format 'NHWC'; needed: NCHW"),
    (lambda call: call["inputs"].append(tables.atk_object("other", "attr", "int", 1)), "is named 'other'"),
])
def test_refusals_of_atk(read, change, words):
    whole = changed(lambda call: None)
    with pytest.raises(GraphError, match=r"cases.json, case 1 \(id 9\)") as error:
        read(json.dumps([whole, changed(change)]), "cases.json")
    assert words in str(error.value)


def test_entries_that_are_no_objects(read):
    with pytest.raises(GraphError, match=r"case 1 is 5; needed: an object"):
        read(json.dumps([changed(lambda call: None), 5]), "cases.json")


def test_operator_refuses_what_contradicts_itself(read):
    """Geometry is checked by the operator, with its words, when the case is made."""
    (case,) = read(json.dumps([changed(lambda call: call["inputs"][0].update(shape=[1, 1, 1, 1]))]), "cases.json")
    with pytest.raises(convreg.OpError, match="ascend::ConvolutionBackward"):
        outcome(case, filled(case))
