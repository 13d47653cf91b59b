"""The Ascend operator test kit: folders for replay, the table, and results that it dumps."""

from __future__ import annotations

import ast
import csv
import io
import re
from dataclasses import replace

import numpy as np
import pytest
import vendor_tables as tables
from golden_cases import ascend_case, data_case, files_of

from convreg import GraphError
from convreg.golden import cases, layouts

PROTOCOL = re.compile(r"(input|golden)_(0|[1-9]\d*)_([a-z0-9_]+?)(__shape_(\d+(?:x\d+)*|scalar))?\.bin")
"""The kit's names of files, from its document of prepared data."""

LONG = "Conv2DBackprop [fp16] " + "x" * 120
FIELDS = {"testcase_name": "old", "network_name": "resnet", "input_data_ranges": "((-1, 1),)",
          "tensor_view_strides": "((1,),)", "soc_series": "('Ascend950',)", "precision_tolerances": "((0.001, 0.001),)",
          "op_name": "conv3d_backprop_input_v2", "is_enabled": "False"}


@pytest.fixture
def root(tmp_path):
    cases = [ascend_case("conv_001", "float16", (True, True, False)), ascend_case(LONG, "bfloat16", fields=FIELDS),
             ascend_case("hif", "hifloat8", (True, False, False))]
    layouts.write("ttk", tmp_path / "root", (case.make() for case in cases))
    return tmp_path / "root"


def rows(root):
    with (root / "cases.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_folders_follow_the_protocol(root):
    """Contiguous indexes, three inputs, a golden per output of the table, nothing else, empty markers."""
    folders = {path.name: sorted(file.name for file in path.iterdir()) for path in root.iterdir() if path.is_dir()}
    assert folders["conv_001"] == [
        "golden_0_float16__shape_2x3x6x6.bin", "golden_1_float16__shape_4x3x3x3.bin", "golden_2_none.bin",
        "input_0_float16.bin", "input_1_float16.bin", "input_2_float16.bin"]
    assert len(folders) == 3
    for row in rows(root):
        name = row["testcase_name"]
        folder = root / (name if name in folders else next(each for each in folders if each.startswith("Conv2D")))
        types = ast.literal_eval(row["tensor_dtypes"])
        shapes = ast.literal_eval(row["tensor_view_shapes"])
        outputs = ast.literal_eval(row["output_tensor_indexes"])
        for role, slots in (("input", [0, 1, 2]), ("golden", outputs)):
            files = [PROTOCOL.fullmatch(file) for file in folders[folder.name] if file.startswith(role)]
            assert [int(file[2]) for file in files] == list(range(3))
            for file, slot in zip(files, slots, strict=True):
                content = (folder / file[0]).read_bytes()
                size = {"float16": 2, "bfloat16": 2, "hifloat8": 1}[types[slot]] * int(np.prod(shapes[slot]))
                if file[3] == "none":
                    assert content == b""
                    assert not ast.literal_eval(row["attributes"])["outputMask"][slot - 3]
                    continue
                assert file[3] == types[slot]
                assert len(content) == size
                assert (file[5] is not None) == (role == "golden")
                if file[5]:
                    assert tuple(map(int, file[5].split("x"))) == shapes[slot]


def test_the_content_of_the_files(root):
    golden = ascend_case("conv_001", "float16", (True, True, False)).make()
    files = files_of(root / "conv_001")
    assert files["input_0_float16.bin"] == golden.inputs["grad_output"].tobytes()
    assert files["input_2_float16.bin"] == golden.inputs["weight"].tobytes()
    assert files["golden_1_float16__shape_4x3x3x3.bin"] == golden.outputs["gradWeight"].tobytes()


def test_the_table(root):
    """Python literals by the names of columns; a row that was read keeps what still holds."""
    first, second, third = rows(root)
    assert ast.literal_eval(first["tensor_view_shapes"]) == (
        (2, 4, 6, 6), (2, 3, 6, 6), (4, 3, 3, 3), (2, 3, 6, 6), (4, 3, 3, 3), (4,))
    assert ast.literal_eval(first["tensor_formats"]) == (*["NCHW"] * 5, "ND")
    assert ast.literal_eval(first["attributes"]) == {
        "biasSizes": [4], "stride": [1, 1], "padding": [1, 1], "dilation": [1, 1], "transposed": False,
        "outputPadding": [0, 0], "groups": 1, "outputMask": [True, True, False], "cubeMathType": 0}
    assert ast.literal_eval(third["tensor_dtypes"]) == ("hifloat8",) * 6
    assert (first["api_name"], first["is_enabled"], first["soc_series"]) == ("aclnnConvolutionBackward", "True", "")
    assert second["testcase_name"] == LONG
    assert [second[name] for name in ("network_name", "input_data_ranges", "soc_series", "precision_tolerances")] == [
        "resnet", "((-1, 1),)", "('Ascend950',)", "((0.001, 0.001),)"]
    assert second["tensor_view_strides"] == ""
    assert second["is_enabled"] == "True"


def test_a_transposed_case_has_the_bias_of_gradoutput(tmp_path):
    case = ascend_case("t", "float32")
    case = replace(case, attributes={**case.attributes, "transposed": True, "bias_sizes": [3]}, inputs={
        "grad_output": replace(case.inputs["grad_output"], shape=(2, 3, 6, 6)),
        "input": replace(case.inputs["input"], shape=(2, 4, 6, 6)), "weight": case.inputs["weight"]})
    layouts.write("ttk", tmp_path / "root", [case.make()])
    (row,) = rows(tmp_path / "root")
    assert ast.literal_eval(row["tensor_view_shapes"])[5] == (3,)
    assert "golden_2_float32__shape_3.bin" in files_of(tmp_path / "root" / "t")


@pytest.mark.parametrize(("golden", "message"), [
    (data_case("other"), "case 'other' cannot be written as ttk: the operator is onednn::ConvolutionBackwardData"),
    (ascend_case("s", "float32", conformance="emulation"), None)])
def test_what_the_kit_cannot_state(tmp_path, golden, message):
    if message is None:
        golden = replace(golden, attributes={**golden.attributes, "saturate": True})
        message = "saturate is given"
    with pytest.raises(GraphError, match=re.escape(message)):
        layouts.write("ttk", tmp_path / "root", [golden.make()])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("names", [
    lambda name, index: f"{name}/output_{index}_float32.bin", lambda name, index: f"{name}/output_{index}.npy",
    lambda name, index: f"{name}_output_{index}.bin", lambda name, index: f"{name}_fail_output_{index}.npy"])
def test_results(tmp_path, names):
    """What the kit dumps: in the folder of the case, or all cases in one folder; indexes count all three gradients."""
    golden = ascend_case("conv", "float32", (True, False, True)).make()
    for index, output in ((0, "gradInput"), (2, "gradBias")):
        path = tmp_path / names("conv", index)
        path.parent.mkdir(exist_ok=True)
        if path.suffix == ".npy":
            np.save(path, golden.outputs[output])
        else:
            path.write_bytes(golden.outputs[output].tobytes())
    found = layouts.read_results(golden, tmp_path, "ttk", many=True)
    assert {name: array.tobytes() for name, array in found.items()} == {
        name: array.tobytes() for name, array in golden.outputs.items()}
    path.unlink()
    with pytest.raises(GraphError, match="no file for output 'gradBias' of case 'conv'"):
        layouts.read_results(golden, tmp_path, "ttk", many=True)


def test_a_case_without_any_gradient_has_three_markers(tmp_path):
    layouts.write("ttk", tmp_path / "root", [ascend_case("none", "float32", (False, False, False)).make()])
    assert sorted(files_of(tmp_path / "root" / "none"))[:3] == [f"golden_{index}_none.bin" for index in range(3)]
    assert layouts.load_case(tmp_path / "root", "none").outputs == {}


def test_formats_of_results_are_in_the_table(tmp_path):
    case = ascend_case("f", "float16", conformance="emulation")
    case = replace(case, attributes={**case.attributes, "output_formats": ["float32", "", "bfloat16"]})
    layouts.write("ttk", tmp_path / "root", [case.make()])
    (row,) = rows(tmp_path / "root")
    assert ast.literal_eval(row["tensor_dtypes"])[3:] == ("float32", "float16", "bfloat16")
    (back,) = cases(tmp_path / "root" / "cases.csv")
    assert back.attributes["output_formats"] == ["float32", "", "bfloat16"]


def test_all_253_cases_of_the_vendor_become_folders(tmp_path):
    """Every file follows the protocol, has the size that its row states, and holds what the case has."""
    texts = {**tables.ttk_tables(), "atk.json": tables.atk_table()}
    for file, text in texts.items():
        (tmp_path / file).write_text(text)
    goldens = [case.make() for file in texts for case in cases(tmp_path / file)]
    layouts.write("ttk", tmp_path / "root", goldens)
    by_row = {row["testcase_name"]: row for table in ("cases.csv", "kernel_cases.csv")
              for row in csv.DictReader(io.StringIO((tmp_path / "root" / table).read_text()))}
    assert len(by_row) == 253
    again = {case.name: case for table in ("cases.csv", "kernel_cases.csv")
             for case in cases(tmp_path / "root" / table)}
    for golden in goldens:
        row, files = by_row[golden.name], files_of(tmp_path / "root" / golden.name)
        kernel = "op_name" in row
        stated = ("input_dtypes", "input_shapes") if kernel else ("tensor_dtypes", "tensor_view_shapes")
        types, shapes = (ast.literal_eval(row[column]) for column in stated)
        inputs = [PROTOCOL.fullmatch(name) for name in sorted(files) if name.startswith("input")]
        assert [int(found[2]) for found in inputs] == [0, 1, 2]
        for found in inputs:
            slot = int(found[2])
            assert found[3] == types[slot]
            size = {"float16": 2, "bfloat16": 2, "float32": 4, "int32": 4}[types[slot]]
            assert len(files[found[0]]) == size * int(np.prod(shapes[slot]))
        assert sum(name.startswith("golden") for name in files) == (1 if kernel else 3)
        back = layouts.load_case(tmp_path / "root", golden.name)
        assert list(back.inputs) == list(golden.inputs)
        for held, own in ((back.inputs, golden.inputs), (back.outputs, golden.outputs)):
            assert {name: array.tobytes() for name, array in held.items()} == {
                name: array.tobytes() for name, array in own.items()}
        case = again[golden.name]
        assert (case.op, case.conformance) == (golden.op, golden.conformance)
        assert {name: operand.shape for name, operand in case.inputs.items()} == {
            name: array.shape for name, array in golden.inputs.items()}
    kernel = tmp_path / "root" / "input_000"
    assert np.frombuffer((kernel / "input_0_int32.bin").read_bytes(), np.int32).tolist() == list(
        ast.literal_eval(by_row["input_000"]["attributes"])["input_size"])


@pytest.mark.parametrize("which", ["input", "filter"])
def test_results_of_kernels(tmp_path, which):
    """A kernel has one output, whatever place its gradient has among the three of the interface."""
    (tmp_path / "cases.csv").write_text(tables.table(tables.KERNEL_COLUMNS, tables.kernel_rows(which, 1)))
    (case,) = cases(tmp_path / "cases.csv")
    golden = case.make()
    layouts.write("ttk", tmp_path / "root", [golden])
    (output,) = golden.outputs
    (tmp_path / "dumped").mkdir()
    (tmp_path / "dumped" / f"{which}_000_output_0.bin").write_bytes(golden.outputs[output].tobytes())
    for held in (golden, layouts.load_case(tmp_path / "root", golden.name)):
        found = layouts.read_results(held, tmp_path / "dumped", "ttk", many=True)
        assert found[output].tobytes() == golden.outputs[output].tobytes()


def test_tables_are_read_by_other_readers(root):
    """No row has a line break or an unquoted comma in a cell."""
    text = (root / "cases.csv").read_text()
    assert len(text.splitlines()) == 4
    assert all(len(row) == 24 for row in csv.reader(io.StringIO(text)))
