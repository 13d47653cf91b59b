"""The command line as a user meets it: by subprocess end to end, and verb by verb in process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from shutil import rmtree

import ml_dtypes
import numpy as np
import onnx
import pytest
from convreg.tools.cli import main
from convreg.tools.operators import TABLE_END, TABLE_START
from model_files import arrays_of, graph, operation, tensor, write_graph
from onnx import TensorProto, helper
from places import DATA, ROOT

import convreg

CASES = DATA / "openvino_ir"


def command(*arguments, cwd, module="convreg.tools"):
    return subprocess.run([sys.executable, "-m", module, *map(str, arguments)], cwd=cwd, capture_output=True, text=True,
                          timeout=120)


def failed(capsys, *arguments) -> str:
    """Run a verb that must fail; return its one message."""
    assert main([str(argument) for argument in arguments]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("convreg: ")
    assert captured.err.count("\n") == 1
    return captured.err


def test_import_check_and_run_end_to_end(tmp_path):
    for suffix in (".xml", ".bin", ".npz"):
        (tmp_path / f"net{suffix}").write_bytes((CASES / f"auto_pad{suffix}").read_bytes())
    arrays = arrays_of(tmp_path / "net.npz")
    np.save(tmp_path / "x.npy", arrays["in_x"])
    done = command("import", "net.xml", "-o", "net.onnx", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == ("net.onnx: ok, 3 nodes, 3 of them outside standard ONNX; inputs x; "
                           "outputs upper, lower, free\n")
    done = command("check", "net.onnx", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    done = command("run", "net.onnx", "--input", "x=x.npy", "-o", "out.npz", "--output-dir", "out", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    upper = arrays["out_upper"].astype(np.float64)
    assert done.stdout.splitlines()[0] == (f"upper [1, 2, 8, 9] float32 min {upper.min():.6g} max {upper.max():.6g} "
                                           f"mean {upper.mean():.6g}")
    written = arrays_of(tmp_path / "out.npz")
    for name in ("upper", "lower", "free"):
        np.testing.assert_array_equal(written[name], arrays[f"out_{name}"])
        np.testing.assert_array_equal(np.load(tmp_path / "out" / f"{name}.npy"), arrays[f"out_{name}"])


def test_a_checkout_runs_the_verbs_as_tools():
    if not (ROOT / "tools" / "__main__.py").is_file():
        pytest.skip("not in a checkout")
    done = command("list", cwd=ROOT, module="tools")
    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.splitlines()] == convreg.names()


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\x08\x01", b"<net version='11'>", b'{"graph": []}', bytes(range(193, 256))])
def test_a_bad_file_leaves_nothing_behind(tmp_path, monkeypatch, capfd, content):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad").write_bytes(content)
    assert failed(capfd, "import", "bad", "-o", "out.onnx").startswith("convreg: bad: ")  # C++ writes nothing either
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad"]


def test_a_failed_import_keeps_the_old_model(tmp_path, capsys):
    (tmp_path / "bad.json").write_text("{}")
    (tmp_path / "out.onnx").write_bytes(b"old")
    failed(capsys, "import", tmp_path / "bad.json", "-o", tmp_path / "out.onnx")
    assert (tmp_path / "out.onnx").read_bytes() == b"old"
    assert main(["import", str(CASES / "one_d.xml"), "-o", str(tmp_path / "out.onnx")]) == 0
    assert onnx.load(tmp_path / "out.onnx").graph.input[0].name == "signal"


def test_what_cannot_be_written(tmp_path, capsys):
    source = CASES / "one_d.xml"
    assert "cannot be written" in failed(capsys, "import", source, "-o", tmp_path / "absent" / "out.onnx")
    assert "cannot be written" in failed(capsys, "import", source, "-o", tmp_path)
    assert list(tmp_path.iterdir()) == []
    if os.path.exists("/dev/null"):
        assert "not a regular file" in failed(capsys, "import", source, "-o", "/dev/null")
        assert not os.path.isfile("/dev/null")


def test_paths_that_are_no_files(tmp_path, capsys):
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    assert "cannot be written" in failed(capsys, "import", CASES / "one_d.xml", "-o", tmp_path / "circle")
    assert "is refused" in failed(capsys, "bench", "--json", tmp_path / "circle")
    for arguments in (["check", ""], ["import", "", "-o", "x.onnx"], ["import", CASES / "one_d.xml", "-o", ""]):
        assert "the path '' is empty" in failed(capsys, *arguments)
    assert "not a regular file" in failed(capsys, "check", tmp_path)
    (tmp_path / "README.md").write_bytes(b"\xff")
    assert "not text in UTF-8" in failed(capsys, "docs", "--root", tmp_path)


def copying(folder, *outputs: str) -> Path:
    """A model that copies its input to outputs of these names."""
    made = [helper.make_node("Identity", ["x"], [name], f"copy {index}") for index, name in enumerate(outputs)]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in ("x", *outputs)]
    graph = helper.make_graph(made, "copies", values[:1], values[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10), folder / "m.onnx")
    return folder / "m.onnx"


def test_outputs_of_any_name_are_archived(tmp_path, capsys):
    names = ["file", "allow_pickle", "args", "a/b", "y", "y.npy"]
    path = copying(tmp_path, *names)
    assert main(["run", str(path), "--random", "-o", str(tmp_path / "out.npz")]) == 0
    assert list(arrays_of(tmp_path / "out.npz")) == names


@pytest.mark.parametrize("name", ["a\0b", "z" * 70_000])
def test_outputs_that_no_archive_holds(tmp_path, capsys, name):
    path = copying(tmp_path, name)
    assert "no place for the name" in failed(capsys, "run", path, "--random", "-o", tmp_path / "out.npz")
    assert list(tmp_path.iterdir()) == [path]


def test_outputs_are_written_all_or_none(tmp_path, capsys):
    path = copying(tmp_path, "a", "z" * 300)
    together = ["-o", tmp_path / "out.npz"]
    for folder in (tmp_path / "made" / "deep", path):
        failed(capsys, "run", path, "--random", *together, "--output-dir", folder)
        assert list(tmp_path.iterdir()) == [path]
    assert "is empty" in failed(capsys, "run", path, "--random", "-o", "")


def test_outputs_without_a_folder_are_refused_before_the_run(tmp_path, capsys):
    path, folder = copying(tmp_path, "y"), tmp_path / "made" / "deep"
    for more in ([], ["--output-dir", folder]):  # without --random the run would ask for the input
        output = tmp_path / "other" / "out.npz"
        said = failed(capsys, "run", path, "-o", output, *more)
        assert f"--output={str(output)!r} is refused: No such file or directory" in said
    for place in (folder, folder.parent):
        assert main(["run", str(path), "--random", "-o", f"{place}/out.npz", "--output-dir", str(folder)]) == 0
        assert [*arrays_of(place / "out.npz")] == ["y"]
        rmtree(folder.parent)


def test_names_are_printed_on_one_line(tmp_path, capsys):
    path = copying(tmp_path, "a\n\x1b[31mb")
    assert main(["check", str(path)]) == 0
    assert main(["run", str(path), "--random"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize("environment", [{"PYTHONIOENCODING": "ascii"}, {}])
def test_outputs_that_take_no_text(tmp_path, environment):
    """An encoding without the characters of a name, and an output that the caller closed."""
    path = copying(tmp_path, "\xe9")
    closed = "" if environment else ">&-"
    done = subprocess.run(f"'{sys.executable}' -m convreg.tools check {path} {closed}", shell=True, cwd=tmp_path,
                          capture_output=True, text=True, timeout=60, env={**os.environ, **environment})
    assert (done.returncode, done.stderr) == (0, "")
    assert closed or done.stdout.endswith("outputs \\xe9\n")


def test_a_link_keeps_pointing_to_its_file(tmp_path, capsys):
    (tmp_path / "link.onnx").symlink_to(tmp_path / "real.onnx")
    assert main(["import", str(CASES / "one_d.xml"), "-o", str(tmp_path / "link.onnx")]) == 0
    assert (tmp_path / "link.onnx").is_symlink()
    assert onnx.load(tmp_path / "real.onnx").graph.input[0].name == "signal"


def test_bin_elsewhere_and_lenient(tmp_path, capsys):
    (tmp_path / "net.xml").write_bytes((CASES / "one_d.xml").read_bytes())
    assert "cannot be read" in failed(capsys, "import", tmp_path / "net.xml", "-o", tmp_path / "m.onnx")
    constants = ["--bin", str(CASES / "one_d.bin")]
    assert main(["import", str(tmp_path / "net.xml"), *constants, "-o", str(tmp_path / "m.onnx")]) == 0
    document = graph(operation(1, "ConvolutionBackwardData", [tensor(0, (1, 1, 3)), tensor(1, (1, 1, 1))],
                               [tensor(2, (1, 1, 6))], strides=[2], pads_begin=[0], pads_end=[-1], dilations=[1],
                               data_format="NCX", weights_format="OIX"))
    source = write_graph(tmp_path, document)
    assert "R7" in capsys.readouterr().err + failed(capsys, "import", source, "-o", tmp_path / "m.onnx")
    assert main(["import", str(source), "--lenient", "-o", str(tmp_path / "m.onnx")]) == 0


@pytest.fixture
def model(tmp_path, capsys):
    assert main(["import", str(CASES / "dynamic_data_const_output_shape.xml"), "-o", str(tmp_path / "m.onnx")]) == 0
    capsys.readouterr()
    return tmp_path / "m.onnx"


def test_random_inputs_are_the_seeds(model, capsys):
    lines = []
    for seed in (1, 1, 2):
        assert main(["run", str(model), "-i", "x=random:2,3,3,3", "--seed", str(seed)]) == 0
        lines.append(capsys.readouterr().out)
    assert lines[0] == lines[1] != lines[2]
    assert lines[0].startswith("y [2, 2, 7, 6] float32 min ")


@pytest.mark.parametrize("engine", ["reference", "onnxruntime", None])
def test_a_run_names_its_engine(model, capsys, monkeypatch, engine):
    arguments = ["run", str(model), "-i", "x=random:2,3,3,3", *(["--engine", engine] if engine else [])]
    if engine != "reference":
        pytest.importorskip("onnxruntime")
    assert main(arguments) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"engine: {engine or 'onnxruntime'}"
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    if engine == "onnxruntime":
        assert "needs the onnxruntime package" in failed(capsys, *arguments)
        return
    assert main(arguments) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.startswith("engine: reference")
    assert ("pip install onnxruntime" in line) == (engine is None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "missing input 'x'"),
        (["-i", "x=random"], "unknown extents"),
        (["-i", "x=random:2,a"], "not of the form 2,3,4"),
        (["-i", "x=random:99999999999,3,99999999999,1"], "too large"),
        (["-i", "x"], "not of the form NAME="),
        (["-i", "z=random"], "no input 'z'; it has x"),
        (["-i", "x=random:1,3,2,2", "-i", "x=random"], "given twice"),
        (["-i", "x=absent.npy"], "cannot be read"),
        (["-i", f"x={__file__}"], "not a NumPy array file"),
        (["-i", f"x={CASES / 'one_d.npz'}"], "several arrays"),
        (["-i", "x=random:1,4,2,2"], "differ from those that the model declares"),
        (["-i", "x=random:1,3,2"], "differ from those that the model declares"),
        (["-i", "x=random:1,3,2,2", "--seed", "-1"], "seed -1 is negative; allowed: 0 and above"),
    ],
)
def test_bad_inputs(model, capsys, arguments, message):
    assert message in failed(capsys, "run", model, *arguments)


def test_pickles_are_never_loaded(model, tmp_path, capsys):
    np.save(tmp_path / "x.npy", np.array([{"a": 1}], object), allow_pickle=True)
    assert "not a NumPy array file" in failed(capsys, "run", model, "-i", f"x={tmp_path / 'x.npy'}")


def test_bfloat16_files_hold_bits(tmp_path, capsys):
    document = graph(operation(1, "ReLU", [tensor(0, (3,), "bf16")], [tensor(1, (3,), "bf16")]))
    assert main(["import", str(write_graph(tmp_path, document)), "-o", str(tmp_path / "m.onnx")]) == 0
    x = np.array([-1.5, 2.5, 3], ml_dtypes.bfloat16)
    np.save(tmp_path / "void.npy", x)
    np.save(tmp_path / "bits.npy", x.view(np.uint16))
    for name in ("void", "bits"):
        capsys.readouterr()
        given = ["-i", f"0={tmp_path / name}.npy", "--output-dir", str(tmp_path)]
        assert main(["run", str(tmp_path / "m.onnx"), *given]) == 0
        assert capsys.readouterr().out.splitlines()[0] == "1 [3] bfloat16 min 0 max 3 mean 1.83333"
        np.testing.assert_array_equal(np.load(tmp_path / "1.npy").view(ml_dtypes.bfloat16), np.maximum(x, 0))


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "s32", "u8", "boolean"])
def test_random_values_of_every_type(tmp_path, capsys, dtype):
    document = graph(operation(1, "StaticReshape", [tensor(0, (2, 3), dtype)], [tensor(1, (6,), dtype)], shape=[6],
                               special_zero=False))
    assert main(["import", str(write_graph(tmp_path, document)), "-o", str(tmp_path / "m.onnx")]) == 0
    assert main(["run", str(tmp_path / "m.onnx"), "--random"]) == 0
    assert "min" in capsys.readouterr().out.splitlines()[-2]


def test_checks_say_what_is_wrong(tmp_path, capsys, model):
    broken = onnx.load(model)
    broken.graph.node[0].attribute.append(onnx.helper.make_attribute("stride", 2))
    onnx.save(broken, tmp_path / "broken.onnx")
    assert "stride" in failed(capsys, "check", tmp_path / "broken.onnx")
    failed(capsys, "check", __file__)
    failed(capsys, "run", tmp_path / "absent.onnx")


def test_list_show_and_capabilities(capsys):
    assert main(["list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == convreg.names()
    assert main(["show", "GroupConvolutionBackpropData"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("convreg.openvino.group_convolution_backprop_data(data, filter, ")
    assert convreg.openvino.group_convolution_backprop_data.__doc__ in shown
    assert "did you mean" in failed(capsys, "show", "ConvolutionBackwardDate")
    assert main(["capabilities"]) == 0
    shown = dict(line.split(": ", 1) for line in capsys.readouterr().out.splitlines())
    have = convreg.capabilities()
    assert shown.keys() == have.keys()
    assert shown["rates"] == ", ".join(f"{name} {value:.4g}" for name, value in have["rates"].items())
    assert shown["usable"].split(", ") == have["usable"]


def test_docs_are_written_and_checked(tmp_path, capsys):
    readme = tmp_path / "README.md"
    (tmp_path / "docs").mkdir()
    readme.write_text(f"# Title\n\n{TABLE_START}\nold\n{TABLE_END}\n\nrest\n")
    assert "differ from the declarations" in failed(capsys, "docs", "--root", tmp_path, "--check")
    assert "old" in readme.read_text()
    assert main(["docs", "--root", str(tmp_path)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    text = readme.read_text()
    assert text.startswith("# Title\n")
    assert text.endswith(f"\n{TABLE_END}\n\nrest\n")
    assert "old" not in text
    page = (tmp_path / "docs" / "operators.md").read_text()
    for name in convreg.names():
        assert f"## {name}\n" in page
        assert f"| {name} |" in text
    assert main(["docs", "--root", str(tmp_path), "--check"]) == 0
    readme.write_text("no markers")
    assert "which enclose the table" in failed(capsys, "docs", "--root", tmp_path)
    failed(capsys, "docs", "--root", tmp_path / "absent")


CALL = ("algorithm", "ConvolutionBackwardData", *(part for option, texts in (
    ("--shape", ("diff_dst=1,4,6,6", "weights=4,3,3,3")),
    ("--set", ("dst_shape=1,3,6,6", "strides=1,1", "pads_begin=1,1", "pads_end=1,1", "dilations=1,1",
               "data_format=NCX", "weights_format=OIX"))) for text in texts for part in (option, text)))


@pytest.mark.parametrize(("format", "more"), [
    ("float32", {}), ("bfloat16", {}), ("hifloat8", {"conformance": "emulation"})])
def test_algorithm_shows_the_choice(capsys, format, more):
    assert main([*CALL, "--threads", "1", "--dtype", format,
                 *(part for name, value in more.items() for part in ("--set", f"{name}={value}"))]) == 0
    dtype = convreg.formats()[format].dtype
    (choice,) = convreg.algorithm(
        "ConvolutionBackwardData", np.zeros((1, 4, 6, 6), dtype), np.zeros((4, 3, 3, 3), dtype), (1, 3, 6, 6),
        strides=[1, 1], pads_begin=[1, 1], pads_end=[1, 1], dilations=[1, 1], data_format="NCX",
        weights_format="OIX", threads=1, **more)
    assert capsys.readouterr().out == f"{choice}\n"


def test_algorithm_shows_every_kernel_or_none(capsys):
    call = ["algorithm", "ascend::ConvolutionBackward", *(part for name, text in (
        ("--shape", "gradOutput=1,3,3"), ("--shape", "weight=3,3,3"), ("--set", "stride=1"), ("--set", "padding=0"),
        ("--set", "dilation=1"), ("--set", "transposed=false"), ("--set", "groups=1")) for part in (name, text))]
    assert main([*call, "--shape", "input=1,3,5", "--set", "outputMask=1,1,1"]) == 0
    kernels = [line.partition(":")[0] for line in capsys.readouterr().out.splitlines() if "threads:" in line]
    assert kernels == ["backward_data", "backward_weights", "bias_sum"]
    assert main([*call, "--shape", "input=1,3,5", "--set", "outputMask=0,0,0"]) == 0
    assert capsys.readouterr().out == "no algorithm: the call has no sums to compute\n"
    assert main(["algorithm", "Quantize", "--shape", "x=3", "--set", "format=hifloat8"]) == 0
    assert capsys.readouterr().out == "no algorithm: the call has no sums to compute\n"


@pytest.mark.parametrize(("arguments", "message"), [
    (["Convolutoin"], "did you mean"), (["ConvolutionBackwardData"], "a tensor"),
    ([*CALL[1:], "--threads", "0"], "threads=0 is refused"),
    ([*CALL[1:], "--set", "groups=2"], "[rule R2"),
    *((["ConvolutionBackwardData", "--shape", f"diff_dst={shape}"], f"--shape diff_dst={shape}: allowed: the shape of")
      for shape in ("-1,2", "99999999999,99999999999", "0,99999999999999999999", ",".join("1" * 80)))])
def test_calls_without_an_algorithm(capsys, arguments, message):
    assert message in failed(capsys, "algorithm", *arguments)


def test_usage_errors_are_status_2(capsys):
    for arguments in ([], ["frobnicate"], ["import", "x"], ["run"],
                      ["algorithm", *CALL[1:], "--dtype", "float7"]):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 2
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0


def test_a_closed_pipe_is_no_error(tmp_path):
    done = subprocess.run(f"'{sys.executable}' -m convreg.tools show ConvolutionBackwardData | head -1", shell=True,
                          cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    assert done.stdout.startswith("convreg.onednn.convolution_backward_data(")
