"""The plug-in for the Ascend test kit, called as the kit calls it: with other objects in place of its own."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import vendor_tables as tables
from ml_dtypes import bfloat16
from places import ROOT

import convreg
from convreg.golden import cases
from convreg.golden.plugins import exchange, ttk_plugin
from convreg.golden.sources.kernels import kernel_inputs

DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": bfloat16}
SIZES = tables.Sizes((2, 4, 5, 6, 4), (6, 2, 2, 3, 1), (2, 6, 3, 6, 2), (2, 1, 2), (1, 2, 0), (1, 2, 1), 2)
API = "aclnnConvolutionBackward"


@dataclass
class Context:
    """What the kit tells a comparison."""

    api_name: str
    testcase_name: str
    input_tensors: Any
    attributes: dict[str, Any]
    csv_fields: dict[str, Any] = field(default_factory=dict)
    input_scalars: tuple = ()


class Tensor:
    """As much of torch's tensors as the plug-in touches."""

    def __init__(self, array):
        self.array, self.shape = array, array.shape
        self.dtype = f"torch.{array.dtype.name}"

    def detach(self):
        return self

    cpu = contiguous = detach

    def reshape(self, shape):
        return Tensor(self.array.reshape(shape))

    def element_size(self):
        return self.array.itemsize

    def view(self, dtype):
        return Tensor(self.array.view(np.uint8))

    def numpy(self):
        return self.array


def loaded():
    """The file as the kit finds and runs it: classes by the names that it states."""
    tree = ast.parse(ttk_plugin().read_text("utf-8"))
    stated = next(ast.literal_eval(node.value) for node in tree.body if isinstance(node, ast.Assign)
                  and node.targets[0].id == "__spec__")
    assert not ttk_plugin().name.startswith("_")
    spec = importlib.util.spec_from_file_location("kit_plugin", ttk_plugin())
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module, {key: getattr(module, name) for key, name in stated.items()}


@pytest.fixture
def plugin(monkeypatch):
    """The plug-in, asked in this process; torch is not there."""
    for name in ("CONVREG_PYTHON", "CONVREG_CONFORMANCE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setitem(sys.modules, "torch", type(sys)("torch"))
    sys.modules["torch"].uint8 = "uint8"
    return loaded()[1]


@pytest.fixture(params=["here", "other"])
def anywhere(request, plugin, monkeypatch):
    """In this process, or through another interpreter."""
    if request.param == "other":
        monkeypatch.setenv("CONVREG_PYTHON", sys.executable)
        monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return plugin


def interface(dtype="float32", **attributes):
    """A call of the interface: tensors, attributes and what the kit calls its table's columns."""
    rng = np.random.default_rng(0)
    shapes = (2, 6, 5, 4), (2, 4, 9, 8), (6, 2, 3, 3)
    tensors = [rng.standard_normal(shape).astype(DTYPES[dtype]) for shape in shapes]
    return tensors, {**tables.aclnn_rows()[1]["attributes"], **attributes}


def expected(tensors, attributes, **options):
    """The gradients by the operator itself."""
    names = {name: convreg.spec.snake_case(name) for name in attributes}
    return convreg.ascend.convolution_backward(*tensors, **{names[name]: value for name, value in attributes.items()},
                                               **options)


def test_nothing_heavy_is_imported():
    """The kit runs the file under an interpreter without convreg, ml_dtypes and torch."""
    code = (f"import importlib.util as u, sys\nsys.path = [p for p in sys.path if {str(ROOT)!r} != p and p]\n"
            f"s = u.spec_from_file_location('p', {str(ttk_plugin())!r})\nm = u.module_from_spec(s)\n"
            "s.loader.exec_module(m)\n"
            "assert not {'convreg', 'torch', 'ml_dtypes', 'onnx'} & set(sys.modules)")
    subprocess.run([sys.executable, "-c", code], check=True, cwd="/")


def test_the_path_is_printed():
    made = subprocess.run([sys.executable, "-m", "convreg.golden.plugins"], check=True, capture_output=True, text=True,
                          cwd=ROOT)
    assert made.stdout.strip() == str(ttk_plugin())


@pytest.mark.parametrize("dtype", DTYPES)
def test_golden_of_the_interface(anywhere, dtype):
    tensors, attributes = interface(dtype, outputMask=[True, False, True])
    made = anywhere[API].golden(*map(Tensor, tensors), **attributes, tensor_dtypes=(dtype,) * 6, testcase_name="one",
                                tensor_formats=("NCHW",) * 6, scalar_dtypes=(), short_soc_version="Ascend950")
    direct = expected(tensors, attributes)
    assert made[1] is None
    for first, second in ((made[0], direct[0]), (made[2], direct[2])):
        assert first.dtype == second.dtype
        assert first.tobytes() == second.tobytes()


def test_compare_of_the_interface(anywhere):
    tensors, attributes = interface(outputMask=[True, True, False])
    goldens = anywhere[API].golden(*map(Tensor, tensors), **attributes, testcase_name="one")
    context = Context(API, "one", [*map(Tensor, tensors), None, None, None], attributes)
    outputs = [goldens[0].copy(), goldens[1].copy(), np.zeros(6, np.float32)]
    verdicts = anywhere[API].compare(*outputs, *goldens, compare_context=context)
    assert [verdict["pass"] for verdict in verdicts] == [True, True, True]
    assert [verdict["precision"] for verdict in verdicts] == [100, 100, "masked off"]
    outputs[0][1, 2, 3, 4] *= 1.01
    verdicts = anywhere[API].compare(*outputs, *goldens, compare_context=context)
    assert [verdict["pass"] for verdict in verdicts] == [False, True, True]
    assert "[1, 2, 3, 4]: expected" in verdicts[0]["error_info"]
    assert 99 < verdicts[0]["precision"] < 100


def test_the_kit_can_read_the_signatures(plugin):
    """The kit passes the context only to a parameter of that name, and attributes by keyword."""
    for kind in plugin.values():
        parameters = inspect.signature(kind.compare).parameters
        assert parameters["compare_context"].kind is inspect.Parameter.KEYWORD_ONLY
        assert any(p.kind is p.VAR_KEYWORD for p in inspect.signature(kind.golden).parameters.values())
    assert list(inspect.signature(plugin[API].golden).parameters)[:12] == [
        "gradOutput", "input", "weight", *("biasSizes", "stride", "padding", "dilation", "transposed", "outputPadding",
                                           "groups", "outputMask", "cubeMathType")]


def test_hf32_follows_the_product(plugin, monkeypatch):
    tensors, attributes = interface(cubeMathType=3, outputMask=[True, False, False])
    by_product = {product: expected(tensors, attributes, conformance=product)[0] for product in
                  ("ascend950", "atlas-a2")}
    assert by_product["ascend950"].tobytes() != by_product["atlas-a2"].tobytes()
    for version, product in (("Ascend950", "ascend950"), ("Ascend910B", "atlas-a2")):
        made = plugin[API].golden(*tensors, **attributes, testcase_name=version, short_soc_version=version)
        assert made[0].tobytes() == by_product[product].tobytes()
        context = Context(API, version, tensors, attributes)
        verdicts = plugin[API].compare(made[0], None, None, made[0], None, None, compare_context=context)
        assert verdicts[0]["pass"]
    monkeypatch.setenv("CONVREG_CONFORMANCE", "atlas-a2")
    made = plugin[API].golden(*tensors, **attributes, testcase_name="x", short_soc_version="Ascend950")
    assert made[0].tobytes() == by_product["atlas-a2"].tobytes()


def test_formats_of_the_table(plugin):
    """Outputs in other formats than the operands, and bfloat16 as bytes that NumPy does not name."""
    tensors, attributes = interface("float16")
    dtypes = ("float16", "float16", "float16", "float32", "float32", "float32")
    made = plugin[API].golden(*tensors, **attributes, tensor_dtypes=dtypes)
    assert {array.dtype.name for array in made} == {"float32"}
    context = Context(API, "one", tensors, attributes, {"tensor_dtypes": repr(dtypes)})
    assert all(verdict["pass"] for verdict in plugin[API].compare(*made, *made, compare_context=context))
    tensors, attributes = interface("bfloat16")
    made = plugin[API].golden(*(array.view("V2") for array in tensors), **attributes, tensor_dtypes=("bfloat16",) * 6)
    context = Context(API, "one", [array.view("V2") for array in tensors], attributes,
                      {"tensor_dtypes": ("bfloat16",) * 6})
    bits = [array.view(np.uint16) for array in made]
    assert all(verdict["pass"] for verdict in plugin[API].compare(*bits, *made, compare_context=context))


@pytest.mark.parametrize("which", ["input", "filter"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_kernels(plugin, tmp_path, which, dtype):
    row = tables.kernel_row("row", which, SIZES, dtype, dtype == "float32")
    (tmp_path / "cases.csv").write_text(tables.table(tables.KERNEL_COLUMNS, [row]))
    (case,) = cases(tmp_path / "cases.csv")
    golden = case.make()
    op = row["op_name"]
    tensors = kernel_inputs(golden, op)
    attributes = {name.lstrip("@"): value for name, value in row["attributes"].items()
                  if name not in ("input_size", "filter_size")}
    (made,) = plugin[op].golden(*tensors, **attributes, input_dtypes=row["input_dtypes"],
                                output_dtypes=row["output_dtypes"], input_formats=row["input_formats"])
    (direct,) = golden.outputs.values()
    assert made.tobytes() == direct.tobytes()
    context = Context(op, "row", tensors, row["attributes"], {name: str(value) for name, value in row.items()})
    (verdict,) = plugin[op].compare(made, made, compare_context=context)
    assert verdict == {"pass": True, "precision": 100.0, "error_info": ""}
    (verdict,) = plugin[op].compare(-made, made, compare_context=context)
    assert not verdict["pass"]


def test_refusals_are_sentences(anywhere):
    tensors, attributes = interface(groups=7)
    with pytest.raises(ValueError, match=r"ascend::ConvolutionBackward: groups=7 is refused"):
        anywhere[API].golden(*tensors, **attributes)
    with pytest.raises(ValueError, match="number format 'int8' is refused"):
        anywhere[API].golden(*(array.astype(np.int8) for array in tensors), **interface()[1])


def test_an_interpreter_without_convreg(plugin, monkeypatch, tmp_path):
    tensors, attributes = interface()
    monkeypatch.setenv("CONVREG_PYTHON", str(tmp_path / "none"))
    with pytest.raises(RuntimeError, match=r"CONVREG_PYTHON=.* cannot be run .*; needed: an interpreter"):
        plugin[API].golden(*tensors, **attributes)
    other = tmp_path / "python"
    other.write_text("#!/bin/sh\necho no module named convreg >&2\nexit 1\n")
    other.chmod(0o755)
    monkeypatch.setenv("CONVREG_PYTHON", str(other))
    with pytest.raises(RuntimeError, match=r"ended with status 1 \(no module named convreg\)"):
        plugin[API].golden(*tensors, **attributes)
    monkeypatch.delenv("CONVREG_PYTHON")
    monkeypatch.setitem(sys.modules, "convreg.golden.plugins.exchange", None)
    with pytest.raises(RuntimeError, match=r"convreg cannot be imported .*; needed: convreg here, or CONVREG_PYTHON"):
        plugin[API].golden(*tensors, **attributes)


def test_files_that_are_no_requests(tmp_path, capsys):
    assert exchange.main([]) == 2
    assert "two files are needed" in capsys.readouterr().err
    (tmp_path / "request").write_bytes(b"x")
    assert exchange.main([str(tmp_path / "request"), str(tmp_path / "reply")]) == 2
    assert "no request" in capsys.readouterr().err
    assert not (tmp_path / "reply").exists()


def test_bytes_that_do_not_fit(plugin):
    shapes = ((1, 1, 1), (1, 1, 1), (1, 1, 1), (1, 1, 1), (1, 1, 1), (1,))
    message = {"do": "golden", "cells": {
        "testcase_name": "x", "api_name": API, "attributes": "{'stride': [1], 'padding': [0], 'dilation': [1]}",
        "tensor_view_shapes": repr(shapes), "tensor_dtypes": "('float32',)"},
               "arrays": [{"shape": [1, 1, 1], "format": "float32", "itemsize": 4}] * 3}
    reply, _ = exchange.answer(message, [np.zeros(3, np.uint8)] * 3)
    assert "came with 3 bytes" in reply["error"]
