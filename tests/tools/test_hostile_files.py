"""Files that nobody vouches for: links, devices, archives and documents that grow; on the command line one message."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
from convreg.tools.cli import main
from convreg.tools.onnx_io import import_ir
from convreg.tools.tensors import archived, load_together, needed
from graphs import model, value
from model_files import IR
from onnx import ModelProto, TensorProto, helper

import convreg.onnx
from convreg import GraphError
from convreg.archives import INFLATED_BYTES
from convreg.files import read_bytes
from convreg.onnx import limits

RELU = model([helper.make_node("Relu", ["x"], ["y"])], [value("x", [4])], [value("y", [4])])


def external(folder: Path, location: str, *, count: int = 1, extent: int = 4) -> Path:
    """A model whose constants are said to be at `location`."""
    made = model([helper.make_node("Relu", ["w0"], ["y"])], [], [value("y", [extent])])
    for number in range(count):
        tensor = made.graph.initializer.add(name=f"w{number}", data_type=TensorProto.FLOAT, dims=[extent])
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=location)
    path = folder / "model.onnx"
    path.write_bytes(made.SerializeToString())
    return path


def sparse_file(path: Path, size: int) -> Path:
    """A file that takes no room on the disk."""
    with path.open("wb") as file:
        file.truncate(size)
    return path


@pytest.mark.parametrize("location", ["a\0b", "a" * 5000, "a/" * 3000, "loop", "pipe", "folder", "device",
                                      "*/_ORT_MEM_ADDR_/*"])
def test_locations_that_are_no_files(tmp_path, location):
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "device").symlink_to("/dev/zero")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(GraphError, match="external data") as caught:
        convreg.onnx.load(external(tmp_path, location))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 700


def test_the_last_of_two_locations_is_judged(tmp_path):
    (tmp_path / "w").write_bytes(b"\0" * 16)
    made = ModelProto.FromString(external(tmp_path, "w").read_bytes())
    made.graph.initializer[0].external_data.add(key="location", value="../w")
    (tmp_path / "model.onnx").write_bytes(made.SerializeToString())
    with pytest.raises(GraphError, match="is refused"):
        convreg.onnx.load(tmp_path / "model.onnx")


def test_tensors_may_share_bytes_but_not_multiply_them(tmp_path):
    extent = 2**20
    (tmp_path / "w").write_bytes(b"\0" * 4 * extent)
    tied = convreg.onnx.load(external(tmp_path, "w", count=3, extent=extent))
    assert [len(tensor.raw_data) for tensor in tied.graph.initializer] == [4 * extent] * 3
    with pytest.raises(GraphError, match=f"allowed: {limits.SHARED_BYTES} bytes"):
        convreg.onnx.load(external(tmp_path, "w", count=1000, extent=extent))


def test_files_without_end(tmp_path):
    """They have no blocks on the disk, but would fill the memory."""
    sparse_file(tmp_path / "w", 2**43)
    with pytest.raises(GraphError, match="the tensors so far take"):
        convreg.onnx.load(external(tmp_path, "w", extent=2**40))
    for name in ("m.onnx", "m.json", "m.textproto"):
        with pytest.raises(GraphError, match="an ONNX file has at most"):
            convreg.onnx.load(sparse_file(tmp_path / name, 2**43))
    with pytest.raises(GraphError, match="more than the memory holds"):
        read_bytes(sparse_file(tmp_path / "m.xml", 2**43))


def test_onnx_text_is_not_parsed(tmp_path):
    """The parser recurses without a limit."""
    path = tmp_path / "m.onnxtxt"
    path.write_text('<ir_version: 8, opset_import: ["":18]> a (bool c) => (float[1] y) { y = '
                    + "If (c) <then_branch = g () => (float[1] y) { y = " * 20_000)
    with pytest.raises(GraphError, match="text format is refused"):
        convreg.onnx.load(path)


@pytest.mark.parametrize("name", ["m.json", "m.textproto"])
def test_deep_documents(tmp_path, name):
    path = tmp_path / name
    path.write_text('{"graph":' * 50_000 if name == "m.json" else "graph { " + "node { attribute { g { " * 5000)
    with pytest.raises(GraphError, match="not a readable ONNX model"):
        convreg.onnx.load(path)


# OpenVINO


def constants(folder: Path, *arrays) -> Path:
    made = IR()
    for array in arrays:
        made.result(made.layer("Relu", [made.constant(array)]))
    return made.write(folder)


def test_bin_that_leads_out_of_the_folder(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    path = constants(folder, np.ones(4, np.float32))
    bin_path = path.with_suffix(".bin")
    bin_path.rename(folder / "inside")
    bin_path.symlink_to("inside")
    import_ir(path)
    (folder / "inside").rename(tmp_path / "outside")
    bin_path.unlink()
    bin_path.symlink_to("../outside")
    with pytest.raises(GraphError, match="a link that leads out of the model's folder"):
        import_ir(path)
    import_ir(path, tmp_path / "outside")  # whom the caller names
    import_ir(path, bin_path)
    bin_path.unlink()
    bin_path.symlink_to(bin_path.name)
    with pytest.raises(GraphError, match="cannot be read"):
        import_ir(path)


def test_bin_that_is_a_pipe(tmp_path):
    path = constants(tmp_path, np.ones(4, np.float32))
    path.with_suffix(".bin").unlink()
    os.mkfifo(path.with_suffix(".bin"))
    with pytest.raises(GraphError, match="not a regular file"):
        import_ir(path)


def test_slices_that_overlap(tmp_path):
    """4 MB of files would become 4 GB."""
    made = IR()
    made.blob = b"\0" * 2**22
    layers = [made.layer("Const", [], element_type="f32", shape=2**20 - index, offset=0, size=4 * (2**20 - index))
              for index in range(1000)]
    for layer in layers:
        made.result(made.layer("Relu", [layer]))
    with pytest.raises(GraphError, match=r"the tensors so far take .* out of files of 4194304 bytes"):
        import_ir(made.write(tmp_path))


def test_only_named_bytes_of_a_bin_are_read(tmp_path):
    path = constants(tmp_path, np.ones(4, np.float32))
    with path.with_suffix(".bin").open("r+b") as file:
        file.truncate(2**43)
    assert convreg.onnx.run(import_ir(path))["Relu_1"].tolist() == [1] * 4


def test_thousands_of_layers_of_one_name(tmp_path):
    """The search for a free name does not start over each time."""
    made = IR()
    last = made.parameter("x", "1,4")
    for _ in range(1500):
        last = made.layer("Relu", [last], name="same")
    made.result(last)
    assert len(import_ir(made.write(tmp_path)).graph.node) == 1500


# Archives


def archive(path: Path, entries: dict[str, int]) -> Path:
    """An .npz file whose entries are vectors of that many float32 zeros, compressed a thousandfold."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        for name, extent in entries.items():
            header = {"descr": "<f4", "fortran_order": False, "shape": (extent,)}
            with file.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array_header_1_0(entry, header)
                for start in range(0, 4 * extent, 2**24):
                    entry.write(bytes(min(2**24, 4 * extent - start)))
    return path


def test_archives_are_not_inflated_for_nothing(tmp_path, monkeypatch):
    inputs = needed(RELU)
    assert archived(inputs, archive(tmp_path / "good.npz", {"x": 4}))["x"].tolist() == [0] * 4
    monkeypatch.setattr(np, "load", lambda *_, **__: pytest.fail("inflated"))
    with pytest.raises(GraphError, match="the entry 'z' is none of x"):
        archived(inputs, archive(tmp_path / "more.npz", {"x": 4, "z": 2**22}))
    with pytest.raises(GraphError, match=f"when they are inflated; allowed: {INFLATED_BYTES}"):
        archived(inputs, archive(tmp_path / "bomb.npz", {"x": INFLATED_BYTES // 4}))


def test_entries_of_one_name_are_all_counted(tmp_path, monkeypatch):
    path = archive(tmp_path / "two.npz", {"x": INFLATED_BYTES // 4})
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("x", b"")
    monkeypatch.setattr(np, "load", lambda *_, **__: pytest.fail("inflated"))
    with pytest.raises(GraphError, match="when they are inflated"):
        load_together(path, ["x"])


def test_archives_that_lie(tmp_path):
    path = tmp_path / "x.npz"
    for shape in ((2**50,), (-5,), (2**62, 2**62), (5,)):
        content = io.BytesIO()
        np.lib.format.write_array_header_1_0(content, {"descr": "<f4", "fortran_order": False, "shape": shape})
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("x.npy", content.getvalue() + bytes(16))
        with pytest.raises(GraphError, match="not an archive"):
            load_together(path, ["x"])
    np.savez(path, x=np.array([{}], object))
    with pytest.raises(GraphError, match="not an archive"):
        load_together(path, ["x"])
    path.write_bytes(b"text")
    with pytest.raises(GraphError, match="not an archive"):
        load_together(path, ["x"])
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(GraphError, match="cannot be read: not a regular file"):
        load_together(path, ["x"])


@pytest.mark.parametrize("arguments", [
    ["check"], ["run", "-o", "out.npz"], ["lower", "-o", "out.onnx"], ["functions", "-o", "out.onnx"],
    ["translate", "--to", "onednn", "-o", "out.onnx"], ["export", "-o", "out.xml"], ["export", "-o", "out.json"],
    ["import", "-o", "out.onnx"], ["explain"], ["numerics", "--random"],
], ids=" ".join)
@pytest.mark.parametrize("hostile", ["secret", "recursion", "cut", "pipe"])
def test_verbs_say_one_sentence_and_leave_nothing(tmp_path, monkeypatch, capsys, arguments, hostile):
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    path = tmp_path / "model.onnx"
    if hostile == "secret":
        external(tmp_path, "/etc/hostname")
    elif hostile == "recursion":
        body = [helper.make_node("F", ["x"], ["y"], domain="local")]
        whole = model(body, [value("x", [4])], [value("y", [4])], functions=[
            helper.make_function("local", "F", ["x"], ["y"], body, [helper.make_opsetid("local", 1)])])
        path.write_bytes(whole.SerializeToString())
    elif hostile == "cut":
        path.write_bytes(RELU.SerializeToString()[:-5])
    else:
        os.mkfifo(path)
    assert main([arguments[0], str(path), *arguments[1:]]) == 1
    out, error = capsys.readouterr()
    assert out == ""
    assert error.startswith("convreg: ")
    assert error.count("\n") == 1
    assert not list(work.iterdir())
