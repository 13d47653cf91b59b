"""Folders of golden vectors: the manifest, one case at a time, nothing half written, damaged folders."""

from __future__ import annotations

import hashlib
import json
import os
import weakref

import numpy as np
import pytest
from golden_cases import ascend_case, data_case, files_of, same_arrays, weights_case

from convreg import GraphError, OpTypeError
from convreg.golden import layouts, manifest
from convreg.golden.layouts import base

CASES = [data_case("a b", "bfloat16"), data_case("c"), ascend_case("d", mask=(True, True, False))]


def goldens(cases=CASES, **options):
    return (case.make(**options) for case in cases)


@pytest.fixture(params=["npz", "bin", "onnx", "hipdnn"])
def filled(request, tmp_path):
    root = tmp_path / "root"
    layouts.write(request.param, root, goldens(), seed=0, fill="normal", command="convreg golden cases.csv")
    return root


def test_what_is_written_is_read_back(filled):
    for case in CASES:
        assert same_arrays(layouts.load_case(filled, case.name), case.make())


def test_every_file_is_in_the_manifest(filled):
    """With its SHA-256; the manifest says how all was made."""
    files = files_of(filled)
    about = json.loads(files.pop("manifest.json"))
    told = {**about["files"]}
    for case in about["cases"]:
        told |= case["files"]
    assert told == {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    assert (about["seed"], about["fill"], about["command"]) == (0, "normal", "convreg golden cases.csv")
    assert set(about["versions"]) == {"convreg", "numpy", "ml_dtypes"}
    assert str(filled) not in json.dumps(about)
    first = about["cases"][0]
    assert first["inputs"]["diff_dst"]["format"] == "bfloat16"
    assert first["inputs"]["diff_dst"]["shape"] == [2, 4, 5, 6]


def test_equal_vectors_make_equal_folders(filled, tmp_path):
    layout = manifest.read(filled).layout
    layouts.write(layout, tmp_path / "again", goldens(), seed=0, fill="normal", command="convreg golden cases.csv")
    assert files_of(filled) == files_of(tmp_path / "again")


@pytest.mark.parametrize("layout", layouts.LAYOUTS)
def test_one_case_at_a_time(tmp_path, layout):
    """When a case is made, the one before is gone."""
    alive = []

    def made():
        for index in range(4):
            assert not any(reference() for reference in alive)
            golden = ascend_case(f"c{index}", "float32", (True, True, False)).make()
            alive.append(weakref.ref(golden.inputs["weight"]))
            yield golden
            del golden

    layouts.write(layout, tmp_path / "root", made())
    assert len(alive) == 4


@pytest.mark.parametrize("layout", layouts.LAYOUTS)
@pytest.mark.parametrize("made_before", [False, True])
def test_nothing_stays_after_a_failure(tmp_path, layout, made_before, monkeypatch):
    """Wherever it happens: in the second case, in a write, in the manifest, when files are moved, by a key press."""
    root = tmp_path / "deep" / "root"
    if made_before:
        root.mkdir(parents=True)

    def run(error):
        with pytest.raises(error) as caught:
            layouts.write(layout, root, goldens([ascend_case(name, "float32", (True, False, False)) for name in "abc"]))
        assert list(tmp_path.rglob("*")) == ([tmp_path / "deep", root] if made_before else [])
        return str(caught.value)

    def failing(count, error):
        def fail(*args, **kwargs):
            nonlocal count
            count -= 1
            if count < 0:
                raise error
            return kept(*args, **kwargs)
        return fail

    full = OSError(28, "No space left on device")
    for owner, name, count in ((layouts, "_entry", 1), (manifest, "written", 0)):
        for error in (KeyboardInterrupt(), MemoryError()):
            kept = getattr(owner, name)
            monkeypatch.setattr(owner, name, failing(count, error))
            run((KeyboardInterrupt, Exception))
            monkeypatch.undo()
    kept = os.rename
    for count in (0, 1):
        monkeypatch.setattr(os, "rename", failing(count, full))
        assert "No space left" in run(GraphError)
        monkeypatch.undo()
    if layout not in ("npz",):
        for count in (0, 1, 5):
            kept = base.writing
            monkeypatch.setattr(base, "writing", failing(count, GraphError("No space left")))
            assert "No space left" in run(GraphError)
            monkeypatch.undo()


def test_folders_that_hold_something_are_refused(filled):
    before = files_of(filled)
    with pytest.raises(GraphError, match="needed: a new or empty folder"):
        layouts.write("bin", filled, goldens())
    assert files_of(filled) == before
    with pytest.raises(GraphError, match=r"manifest.json: cannot be"):
        layouts.write("bin", filled / "manifest.json", goldens())


@pytest.mark.parametrize(("cases", "message"), [
    ([data_case("x"), data_case("x")], "case 'x'"),
    ([data_case("manifest.json"), data_case("y")], "the file manifest.json"),
])
def test_equal_names_are_refused(tmp_path, cases, message):
    with pytest.raises(GraphError, match=message):
        layouts.write("bin", tmp_path / "root", goldens(cases))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("argument", "value"), [
    ("goldens", None), ("goldens", [data_case()]), ("seed", "a"), ("fill", []), ("command", None)])
def test_arguments_of_other_types_are_refused(tmp_path, argument, value):
    given = {"goldens": list(goldens()), argument: value}
    with pytest.raises(OpTypeError, match=f"convreg::golden: {argument}="):
        layouts.write("bin", tmp_path / "root", **given)
    assert not list(tmp_path.iterdir())


def test_results_of_no_golden_vectors(filled):
    with pytest.raises(OpTypeError, match="convreg::golden: golden=None"):
        layouts.read_results(None, filled)


def test_other_arguments_are_refused(tmp_path):
    with pytest.raises(GraphError, match="layout 'zip' is refused; allowed: npz, bin, onnx, ttk, hipdnn"):
        layouts.write("zip", tmp_path / "root", goldens())
    for junk in (None, 3, "", "a\0b"):
        with pytest.raises(GraphError):
            layouts.write("bin", junk, goldens())
        with pytest.raises(GraphError):
            layouts.load_case(junk, "a")


@pytest.mark.parametrize(("name", "expected"), [
    ("conv_1.a-B", "conv_1.a-B"), ("x" * 120, "x" * 120), ("a b", "a_b-c8687a08aa5d"), ("é", "case-4a99557e4033"),
    ("", "case-e3b0c44298fc"), ("..", "case-5ec1f7e700f3"), ("_a", "a-"), ("a.", "a-"), ("x" * 121, "x" * 96 + "-"),
    ("a/../b", "a_.._b-"), ("a\nb\0", "a_b-"), ("\ud800", "case-")])
def test_names_of_folders(name, expected):
    """The rule of the Ascend operator test kit, by its documents; hashes are those of `sha256sum`."""
    found = base.safe_name(name)
    hashed = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    assert found == (expected + hashed if expected.endswith("-") else expected)


def edited(root, change):
    path = root / "manifest.json"
    about = json.loads(path.read_bytes())
    change(about)
    path.write_text(json.dumps(about))


EDITS = {
    "kind": (lambda about: about.update(kind="x"), "needed: 'convreg golden manifest' version 1"),
    "layout": (lambda about: about.update(layout="zip"), "layout 'zip'"),
    "no cases": (lambda about: about.pop("cases"), "has no 'cases'"),
    "a case without paths": (lambda about: about["cases"][1].update(paths=[]), "case 'c' has no paths"),
    "a case twice": (lambda about: about["cases"].append(about["cases"][1]), "case 'c' occurs twice"),
    "a case of text": (lambda about: about.update(cases=["a"]), "a case is a str"),
    "hash": (lambda about: about["cases"][1]["inputs"]["weights"].update(sha256="0"), "SHA-256"),
    "output hash": (lambda about: about["cases"][1]["outputs"]["diff_src"].update(sha256="0"), "SHA-256"),
    "format": (lambda about: about["cases"][1]["inputs"]["weights"].update(format="float16"), "needed"),
    "unknown format": (lambda about: about["cases"][1]["inputs"]["weights"].update(format="int3"), "'int3'"),
    "shape": (lambda about: about["cases"][1]["inputs"]["weights"].update(shape=[2]), "needed"),
    "huge shape": (lambda about: about["cases"][1]["inputs"]["weights"].update(shape=[2**62]), "32 integers"),
    "empty and giant": (lambda about: about["cases"][1]["outputs"]["diff_src"].update(shape=[0, 2**61, 4]), "2**63"),
    "boolean in a shape": (lambda about: about["cases"][1]["inputs"]["weights"].update(shape=[True, 3]), "integers"),
    "file": (lambda about: about["cases"][1]["inputs"]["weights"].update(file="../x"), "a path inside it"),
    "absolute file": (lambda about: about["cases"][1]["inputs"]["weights"].update(file="/etc/passwd"), "inside it"),
    "path of no text": (lambda about: about["cases"][1].update(paths=["\ud800"]), "\\ud800: cannot be read"),
    "file of no text": (lambda about: about["cases"][1]["inputs"]["weights"].update(file="\ud800"), "cannot be read"),
    "conformance twice": (lambda about: about["cases"][1]["attributes"].update(conformance="library"),
                          "conformance='given' is refused"),
    "operator": (lambda about: about["cases"][1].update(op="onednn::Pool"), "no operator named"),
    "attribute": (lambda about: about["cases"][1]["attributes"].update(groups=1), "refused"),
    "other case": (lambda about: about["cases"][1].update(name="e"), "no case 'c'; the manifest has 'a b', 'e', 'd'"),
}


@pytest.mark.parametrize("damage", EDITS)
def test_damaged_manifests(tmp_path, damage):
    layouts.write("bin", tmp_path / "root", goldens())
    change, message = EDITS[damage]
    edited(tmp_path / "root", change)
    with pytest.raises(GraphError) as caught:
        layouts.load_case(tmp_path / "root", "c")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_fields_that_are_no_text(tmp_path):
    """They are text in every case that is read, as layouts expect."""
    layouts.write("ttk", tmp_path / "root", goldens([ascend_case("c")]))
    edited(tmp_path / "root", lambda about: about["cases"][0].update(fields={"op_name": 3}))
    found = layouts.load_case(tmp_path / "root", "c")
    assert found.fields == {"op_name": "3"}
    assert layouts.read_results(found, tmp_path / "root").keys() == found.outputs.keys()


def test_a_manifest_is_checked_once_for_all_of_its_cases(tmp_path, monkeypatch):
    """For each case that is loaded only the case itself; other content is checked again."""
    root, checked = tmp_path / "root", []
    layouts.write("bin", root, goldens())
    kept = manifest.entry_of
    monkeypatch.setattr(manifest, "entry_of", lambda held: checked.append(held["name"]) or kept(held))
    for case in CASES:
        found = layouts.load_case(root, case.name)
        assert same_arrays(layouts.load_case(root, case.name), found)
        found.attributes.clear()
        assert same_arrays(layouts.load_case(root, case.name), case.make())
        assert layouts.read_results(case.make(), root).keys() == found.outputs.keys()
    assert checked == [case.name for case in CASES]
    edited(root, lambda about: about["cases"].pop())
    with pytest.raises(GraphError, match="no case 'd'"):
        layouts.load_case(root, "d")


@pytest.mark.parametrize("name", [None, [], "x" * 1000])
def test_names_that_no_case_has(filled, name):
    with pytest.raises(GraphError, match=r"no case .* the manifest has 'a b', 'c', 'd'"):
        layouts.load_case(filled, name)


@pytest.mark.parametrize("into", ["a file outside", "a folder outside", "the folder", "itself"])
def test_links(filled, tmp_path, into):
    """A folder from elsewhere reads none of the reader's other files."""
    entry = manifest.read(filled).case("c")
    file = filled / entry.inputs["weights"].file
    if into == "a folder outside" and file.parent != filled:
        (filled / entry.paths[0]).rename(tmp_path / "moved")
        (filled / entry.paths[0]).symlink_to(tmp_path / "moved")
    else:
        target = filled / "moved" if into == "the folder" else tmp_path / "moved"
        file.rename(target)
        file.symlink_to(file if into == "itself" else target)
    if into == "the folder":
        assert same_arrays(layouts.load_case(filled, "c"), data_case("c").make())
        return
    message = "cannot be read" if into == "itself" else "a link that leads out of the folder"
    with pytest.raises(GraphError, match=message):
        layouts.load_case(filled, "c")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'{"kind": 1, "kind": 2}'])
def test_other_manifests(tmp_path, content):
    (tmp_path / "manifest.json").write_bytes(content)
    with pytest.raises(GraphError, match=r"manifest\.json"):
        layouts.load_case(tmp_path, "c")


@pytest.mark.parametrize("how", ["flip", "cut", "longer", "gone"])
def test_damaged_files(filled, how):
    """Of every array of a case."""
    known = manifest.read(filled).cases["d"]
    for file in {array.file for array in (*known.inputs.values(), *known.outputs.values())}:
        path = filled / file
        content = path.read_bytes()
        damaged = bytearray(content)
        damaged[-5 if path.suffix != ".npz" else len(content) // 2] ^= 1
        if how == "gone":
            path.unlink()
        else:
            path.write_bytes({"flip": bytes(damaged), "cut": content[:-1], "longer": content + b"0"}[how])
        if how == "longer" and path.suffix == ".npz":
            continue  # archives may have a comment behind them; every array is checked all the same
        with pytest.raises(GraphError) as caught:
            layouts.load_case(filled, "d")
        assert path.name in str(caught.value)
        assert "\n" not in str(caught.value)
        path.write_bytes(content)
    assert same_arrays(layouts.load_case(filled, "d"), CASES[2].make())


def test_the_case_at_a_path(filled):
    known = manifest.read(filled)
    for case in known.cases.values():
        for path in case.paths:
            assert manifest.root_of(filled / path) == (filled.resolve(), case.name)
    assert manifest.root_of(filled) == (filled.resolve(), None)
    assert manifest.root_of(filled.parent) is None


def test_empty_arrays(tmp_path):
    """A batch of 0 leaves empty tensors and zeros."""
    from dataclasses import replace

    case = ascend_case("empty", "float32", (True, True, False))
    case = replace(case, inputs={name: replace(operand, shape=(0, *operand.shape[1:]) if name != "weight" else
                                               operand.shape) for name, operand in case.inputs.items()})
    for layout in ("npz", "bin", "onnx", "ttk"):
        layouts.write(layout, tmp_path / layout, [case.make()])
        found = layouts.load_case(tmp_path / layout, "empty")
        assert same_arrays(found, case.make())
        assert found.outputs["gradInput"].shape == (0, 3, 6, 6)
        assert not np.any(found.outputs["gradWeight"])
    with pytest.raises(GraphError, match="a tensor is empty"):
        layouts.write("hipdnn", tmp_path / "hipdnn", [case.make()])


def test_a_weights_gradient_with_channels_last(tmp_path):
    for layout in ("npz", "bin", "onnx", "hipdnn"):
        layouts.write(layout, tmp_path / layout, [weights_case().make()])
        assert same_arrays(layouts.load_case(tmp_path / layout, "weights"), weights_case().make())
