"""Results of devices in .npz, .npy and raw files, and the layouts npz and bin."""

from __future__ import annotations

import os

import numpy as np
import pytest
from golden_cases import ascend_case, data_case, files_of

from convreg import GraphError
from convreg.archives import archive_of
from convreg.files import write_atomically
from convreg.golden import layouts, load

GOLDEN = data_case("one", "bfloat16").make()
(OUTPUT,) = GOLDEN.outputs.values()
THREE = ascend_case("three", "float32").make()


def same(found, golden=GOLDEN):
    assert list(found) == list(golden.outputs)
    for name, array in golden.outputs.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


def test_npz(tmp_path):
    """A file per case, the same as `save` writes."""
    layouts.write("npz", tmp_path / "root", [GOLDEN, THREE])
    GOLDEN.save(tmp_path / "one.npz")
    files = files_of(tmp_path / "root")
    assert sorted(files) == ["manifest.json", "one.npz", "three.npz"]
    assert files["one.npz"] == (tmp_path / "one.npz").read_bytes()
    assert load(tmp_path / "root" / "three.npz").name == "three"


def test_bin(tmp_path):
    """Raw bytes in C order."""
    layouts.write("bin", tmp_path / "root", [GOLDEN])
    files = files_of(tmp_path / "root")
    assert files["one/output_diff_src.bin"] == OUTPUT.tobytes()
    assert files["one/input_diff_dst.bin"] == GOLDEN.inputs["diff_dst"].tobytes()
    assert sorted(files) == ["manifest.json", "one/input_diff_dst.bin", "one/input_weights.bin",
                             "one/output_diff_src.bin"]


def test_arrays_of_any_strides_are_written_in_c_order(tmp_path):
    from dataclasses import replace

    turned = {name: np.asfortranarray(array) for name, array in THREE.inputs.items()}
    for layout in ("npz", "bin", "onnx", "ttk"):
        layouts.write(layout, tmp_path / layout, [THREE])
        layouts.write(layout, tmp_path / f"{layout} turned", [replace(THREE, inputs=turned)])
        assert files_of(tmp_path / layout) == files_of(tmp_path / f"{layout} turned")


def test_results_in_one_file(tmp_path):
    """Formats that NumPy cannot name come as void or unsigned codes."""
    for suffix, array in ((".npy", OUTPUT), ("u.npy", OUTPUT.view(np.uint16))):
        np.save(tmp_path / f"r{suffix}", array)
        same(layouts.read_results(GOLDEN, tmp_path / f"r{suffix}"))
    (tmp_path / "r.bin").write_bytes(OUTPUT.tobytes())
    same(layouts.read_results(GOLDEN, tmp_path / "r.bin"))
    np.savez(tmp_path / "r.npz", **THREE.outputs)
    same(layouts.read_results(THREE, tmp_path / "r.npz"), THREE)
    np.savez_compressed(tmp_path / "c.npz", diff_src=OUTPUT.view(np.uint16))
    same(layouts.read_results(GOLDEN, tmp_path / "c.npz"))


def test_codes_of_float16_are_results_too(tmp_path):
    half = data_case("half", "float16").make()
    codes = half.outputs["diff_src"].view(np.uint16)
    for array in (codes, codes.astype(">u2")):
        np.save(tmp_path / "half.npy", array)
        same(layouts.read_results(half, tmp_path / "half.npy"), half)


def test_results_in_folders(tmp_path):
    """Of one case, and of many cases side by side."""
    for folder, many in (("one case", False), ("many", True)):
        inside = tmp_path / folder / ("three" if many else "")
        inside.mkdir(parents=True)
        for index, (name, array) in enumerate(THREE.outputs.items()):
            if index % 2:
                np.save(inside / f"{name}.npy", array)
            else:
                (inside / f"output_{name}.bin").write_bytes(array.tobytes())
        for layout in ("bin", None):
            same(layouts.read_results(THREE, tmp_path / folder, layout, many=many), THREE)
    np.savez(tmp_path / "many" / "one.npz", diff_src=OUTPUT)
    same(layouts.read_results(GOLDEN, tmp_path / "many", "npz", many=True))
    np.save(tmp_path / "many" / "one.npy", OUTPUT)
    (tmp_path / "many" / "one.npz").unlink()
    same(layouts.read_results(GOLDEN, tmp_path / "many", "npz", many=True))


def test_golden_vectors_are_results(tmp_path):
    """Those of another machine, if the call and the inputs are the same."""
    GOLDEN.save(tmp_path / "g.npz")
    same(layouts.read_results(GOLDEN, tmp_path / "g.npz"))
    layouts.write("bin", tmp_path / "root", [GOLDEN, THREE])
    same(layouts.read_results(THREE, tmp_path / "root", many=True), THREE)
    for other in (data_case("one", "bfloat16").make(seed=1), data_case("one").make(),
                  data_case("one", "bfloat16", auto_pad="None").make()):
        other.save(tmp_path / "other.npz")
        with pytest.raises(GraphError, match=r"other\.npz: holds case 'one' with another call or other inputs"):
            layouts.read_results(GOLDEN, tmp_path / "other.npz")
    with pytest.raises(GraphError, match="no case 'two'"):
        layouts.read_results(data_case("two").make(), tmp_path / "root")


def archive(path, **arrays):
    write_atomically(path, archive_of(arrays))


@pytest.mark.parametrize(("name", "write", "message"), [
    ("r.npz", lambda path: archive(path, x=OUTPUT.view("u2")), "r.npz: '"),
    ("r.npz", lambda path: archive(path), "'diff_src' is missing of case 'one'; needed: diff_src"),
    ("r.npz", lambda path: archive(path, diff_src=OUTPUT.view("u2"), more=OUTPUT.view("u2")), "'more' is no output"),
    ("r.npz", lambda path: archive(path, diff_src=OUTPUT.view("u2")[:1]), "shape [1, 6, 10, 8]; needed: [2, 6, 10, 8]"),
    ("r.npz", lambda path: archive(path, diff_src=OUTPUT.astype("f4")), "dtype float32; needed: bfloat16"),
    ("r.npz", lambda path: archive(path, diff_src=OUTPUT.astype("f4").astype("f2")), "dtype float16; needed: bfloat16"),
    ("r.npz", lambda path: path.write_bytes(b"PK"), "not an archive"),
    ("r.npy", lambda path: path.write_bytes(b"\x93NUMPY"), "not a NumPy array file"),
    ("r.npy", lambda path: np.save(path, np.zeros(3)), "shape [3]; needed"),
    ("r.bin", lambda path: path.write_bytes(bytes(7)), "7 bytes; needed: 1920, bfloat16 of shape [2, 6, 10, 8]"),
    ("r.txt", lambda path: path.write_text("1"), "needed: .npz, .npy, .bin or .pb"),
    ("r.pb", lambda path: path.write_bytes(b"\xff"), "not a tensor of ONNX"),
    ("r.npy", lambda path: None, "cannot be read: No such file"),
    ("r.bin", os.mkfifo, "not a regular file"),
    ("r", lambda path: path.mkdir(), "no file for output 'diff_src' of case 'one'; needed: one of "),
])
def test_results_that_do_not_fit(tmp_path, name, write, message):
    write(tmp_path / name)
    with pytest.raises(GraphError) as caught:
        layouts.read_results(GOLDEN, tmp_path / name)
    assert message in str(caught.value)
    assert str(tmp_path / name) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("other", ["one/diff_src.bin", "diff_src.npy", "one.npz", "one.npy"])
def test_an_output_in_two_files_is_refused(tmp_path, other):
    """A device's result is not passed over because golden vectors, or older results, lie beside it."""
    layouts.write("bin", tmp_path / "root", [GOLDEN])
    same(layouts.read_results(GOLDEN, tmp_path / "root"))
    wrong = tmp_path / "root" / other
    if other.endswith(".npz"):
        np.savez(wrong, diff_src=np.zeros_like(OUTPUT).view(np.uint16))
    elif other.endswith(".npy"):
        np.save(wrong, np.zeros_like(OUTPUT).view(np.uint16))
    else:
        wrong.write_bytes(bytes(OUTPUT.nbytes))
    with pytest.raises(GraphError, match=f"'diff_src' of case 'one' is in manifest.json and in {other}; needed: one"):
        layouts.read_results(GOLDEN, tmp_path / "root")
    (tmp_path / "root" / "manifest.json").unlink()
    with pytest.raises(GraphError, match=r"'diff_src' of case 'one' is in \S+ and in \S+; needed: one of them"):
        layouts.read_results(GOLDEN, tmp_path / "root")
    (tmp_path / "root" / "one" / "output_diff_src.bin").unlink()
    assert not layouts.read_results(GOLDEN, tmp_path / "root")["diff_src"].view(np.uint16).any()


def test_bytes_after_an_array_are_refused(tmp_path):
    """Arrays that a device appended to an older file would never be read."""
    with (tmp_path / "r.npy").open("wb") as file:
        np.save(file, OUTPUT.view(np.uint16))
        file.flush()
        same(layouts.read_results(GOLDEN, tmp_path / "r.npy"))
        np.save(file, np.zeros_like(OUTPUT).view(np.uint16))
    with pytest.raises(GraphError, match=r"r.npy: \d+ bytes after the array; needed: one array and nothing else"):
        layouts.read_results(GOLDEN, tmp_path / "r.npy")


def test_one_array_for_several_outputs(tmp_path):
    np.save(tmp_path / "r.npy", THREE.outputs["gradInput"])
    with pytest.raises(GraphError, match="needed: results for gradInput, gradWeight, gradBias"):
        layouts.read_results(THREE, tmp_path / "r.npy")


def test_junk(tmp_path):
    for junk in (None, 3, "", "a\0b", b"x", "x" * 5000):
        with pytest.raises(GraphError):
            layouts.read_results(GOLDEN, junk)
    with pytest.raises(GraphError, match="layout 'zip'"):
        layouts.read_results(GOLDEN, tmp_path, "zip")
