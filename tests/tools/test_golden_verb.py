"""`convreg golden` and `convreg compare`: what they write, print and return. Sources and verdicts are stand-ins."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from convreg.tools.cli import main
from golden_cases import ascend_case, data_case, same_arrays

from convreg import GraphError, OpError, golden
from convreg.golden import Operand, layouts, manifest

CASES = {"a": data_case("a"), "b": data_case("b", "bfloat16"), "c d": ascend_case("c d", "float32")}


def cases(source, **options):
    """A source's cases: the file names them."""
    if options:
        raise GraphError(f"{source}: {options} are refused")
    names = [source] if source in CASES else Path(source).read_text("utf-8").split(",")
    if not all(name in CASES for name in names):
        raise GraphError(f"{source}: no cases; needed: a, b or c d")
    yield from (CASES[name] for name in names)


def compare(case, results, standard, **options):
    """Bytes have to be equal."""
    if standard == ["none"]:
        raise OpError("convreg::golden", "standard", "none", "bound")
    wrong = [name for name, array in case.outputs.items() if array.tobytes() != results[name].tobytes()]
    verdict = f"{'FAIL' if wrong else 'PASS'}  {case.name}: {', '.join(wrong)}"
    told = {name: value for name, value in options.items() if value not in (None, False, "both")}
    return Report(not wrong, verdict, {"passed": not wrong, "standard": standard, "options": told})


class Report(SimpleNamespace):
    def __init__(self, passed, verdict, about):
        super().__init__(passed=passed, verdict=verdict, about=about)

    def __str__(self):
        return f"{self.verdict}\ndetails"

    def to_dict(self):
        return self.about


@pytest.fixture(autouse=True)
def work(tmp_path, monkeypatch):
    monkeypatch.setattr(golden, "cases", cases, raising=False)
    monkeypatch.setattr(golden, "compare", compare, raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "all.csv").write_text("a,b,c d")
    return tmp_path


def run(capsys, *arguments):
    status = main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return status, out, err


def test_golden_writes_the_cases_of_a_source(work, capsys):
    status, out, err = run(capsys, "golden", work / "all.csv", "-o", "root", "--layout", "bin", "--seed", 5, "--fill",
                           "integers")
    assert (status, out) == (0, "root: 3 cases, layout bin\n")
    assert err.splitlines() == ["0/3 a", "1/3 b", "2/3 c d"]
    known = manifest.read("root")
    assert (known.layout, known.seed, known.fill) == ("bin", 5, "integers")
    assert known.command == "convreg golden all.csv --layout bin --seed 5 --fill integers"
    for name, case in CASES.items():
        assert same_arrays(layouts.load_case("root", name), case.make(seed=5, fill="integers"))


def test_the_choices_of_golden(capsys):
    """A conformance, formats of all operands or of each, and the cases whose names match."""
    assert run(capsys, "golden", "all.csv", "-o", "one", "--only", "[ab]", "--dtype", "float16")[0] == 0
    known = manifest.read("one")
    assert list(known.cases) == ["a", "b"]
    assert {array.format for case in known.cases.values() for array in case.inputs.values()} == {"float16"}
    formats = "hifloat8,float8_e5m2"
    assert run(capsys, "golden", "a", "-o", "two", "--dtype", formats, "--conformance", "emulation")[0] == 0
    case = manifest.read("two").cases["a"]
    assert (case.inputs["diff_dst"].format, case.inputs["weights"].format) == ("hifloat8", "float8_e5m2")
    assert case.conformance == "emulation"
    assert manifest.read("two").command == ("convreg golden a --layout npz --seed 0 --fill normal --conformance "
                                            "emulation --dtype hifloat8,float8_e5m2")


def test_given_shapes_keep_their_format(capsys, monkeypatch):
    case = data_case("a")
    attributes = {name: value for name, value in case.attributes.items() if name != "dst_shape"}
    shape = Operand((4,), "int32", values=np.int32([2, 6, 10, 8]))
    monkeypatch.setitem(CASES, "a", replace(case, attributes=attributes, inputs={**case.inputs, "dst_shape": shape}))
    assert run(capsys, "golden", "a", "-o", "root", "--dtype", "float16,float16")[0] == 0
    assert [array.format for array in manifest.read("root").cases["a"].inputs.values()] == [
        "float16", "float16", "int32"]


@pytest.mark.parametrize(("arguments", "message"), [
    (["none.csv", "-o", "root"], "none.csv"),
    (["a", "-o", "root", "--dtype", "fp16"], "--dtype 'fp16' is no number format; allowed: float64, float32"),
    (["a", "-o", "root", "--dtype", "float16,float16,float16"], "needed for case 'a': one, or 2 for diff_dst, weights"),
    (["a", "-o", "root", "--only", "x*"], "no case matches 'x*'; needed: one or more of 'a'"),
    (["a", "-o", "root", "--seed", "-1"], "seed=-1"),
    (["a", "-o", "root", "--conformance", "none"], "conformance='none'"),
    (["a", "-o", "root", "--deconv"], "'deconv': True"),
    (["a", "-o", "root", "-i", "x=random"], "--input x=random is refused: 'a' is no file; needed: an ONNX model"),
    (["a", "-o", "all.csv"], "all.csv: cannot be"),
    (["all.csv", "-o", "root", "--layout", "ttk"], "case 'a' cannot be written as ttk"),
    (["a", "-o", "."], "holds 'all.csv'; needed: a new or empty folder"),
    (["a", "-o", ""], "the path '' is empty"),
    (["b", "-o", "root", "--dtype", "hifloat8"], "refused"),
])
def test_what_golden_refuses(work, capsys, arguments, message):
    status, out, err = run(capsys, "golden", *arguments)
    assert (status, out) == (1, "")
    assert message in err
    assert len([line for line in err.splitlines() if line.startswith("convreg: ")]) == 1
    assert [path.name for path in work.iterdir()] == ["all.csv"]


@pytest.fixture
def root(work, capsys):
    run(capsys, "golden", "all.csv", "-o", "root", "--layout", "bin")
    return work / "root"


def test_compare_one_file(work, capsys):
    """Exit status 0 or 1, the first line is the verdict."""
    case = CASES["b"].make()
    case.save("b.npz")
    np.save("good.npy", case.outputs["diff_src"])
    np.save("bad.npy", np.negative(case.outputs["diff_src"]))
    assert run(capsys, "compare", "b.npz", "good.npy") == (0, "PASS  b: \ndetails\n", "")
    assert run(capsys, "compare", "b.npz", "bad.npy") == (1, "FAIL  b: diff_src\ndetails\n", "")
    status, out, _ = run(capsys, "compare", "b.npz", "bad.npy", "--json", "--standard", "close,bound", "--accumulator",
                         "bfloat16", "--parts", "float16:8", "--operands", "hf32", "--flush-to-zero", "--ties", "rule")
    assert status == 1
    assert json.loads(out) == {"passed": False, "standard": ["close", "bound"], "options": {
        "accumulator": "bfloat16", "parts": ["float16", 8], "operands": "hf32", "flush_to_zero": True, "ties": "rule"}}
    assert run(capsys, "compare", "b.npz", "good.npy", "--other", "bad.npy")[0] == 0


def test_compare_folders(root, capsys):
    """All cases of a folder, one of them by its name or its path; failures are listed, the first one in full."""
    for name in CASES:
        case = layouts.load_case(root, name)
        layouts.write("bin", f"made {name}", [case])
    shutil.copytree(root, "results")
    (root.parent / "results" / "manifest.json").unlink()
    assert run(capsys, "compare", root, "results")[:2] == (0, "PASS  3 cases\n")
    known = manifest.read(root)
    place = root.parent / "results" / known.cases["c d"].outputs["gradBias"].file
    place.write_bytes(bytes(len(place.read_bytes())))
    status, out, _ = run(capsys, "compare", root, "results")
    assert status == 1
    assert out.splitlines() == ["FAIL  1 of 3 cases", "FAIL  c d: gradBias", "details"]
    status, out, _ = run(capsys, "compare", root, "results", "--json")  # nothing but JSON
    assert status == 1
    assert {name: about["passed"] for name, about in json.loads(out)["cases"].items()} == {
        "a": True, "b": True, "c d": False}
    assert run(capsys, "compare", root, "results", "--case", "a")[0] == 0
    assert run(capsys, "compare", root / known.cases["c d"].paths[0], "results")[0] == 1
    assert run(capsys, "compare", root, place.parent, "--case", "c d")[0] == 1
    assert run(capsys, "compare", root, root)[0] == 0


def test_cases_without_results_keep_no_verdict_from_the_others(root, capsys):
    """Results that are missing or damaged are listed; wrong ones among the others decide the exit status."""
    results = root.parent / "results"
    shutil.copytree(root, results)
    (results / "manifest.json").unlink()
    damaged = results / "b" / "output_diff_src.bin"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    status, out, err = run(capsys, "compare", root, "results")
    assert status == 2
    first, second = out.splitlines()
    assert first == "NONE  no verdict on 1 of 3 cases, all others pass"
    assert second.startswith("'b': results/b/output_diff_src.bin: ")
    assert "convreg: " not in err
    shutil.rmtree(results / "a")
    status, out, _ = run(capsys, "compare", root, "results", "--json")
    assert status == 2
    told = json.loads(out)
    assert (told["passed"], list(told["cases"]), list(told["without_verdict"])) == (False, ["c d"], ["a", "b"])
    place = results / manifest.read(root).cases["c d"].outputs["gradBias"].file
    place.write_bytes(bytes(len(place.read_bytes())))
    status, out, _ = run(capsys, "compare", root, "results")
    assert status == 1
    lines = out.splitlines()
    assert lines[:4] == ["FAIL  1 of 3 cases", "FAIL  c d: gradBias", "details", "NONE  no verdict on 2 of 3 cases"]
    assert [line[:4] for line in lines[4:]] == ["'a':", "'b':"]


@pytest.mark.parametrize(("arguments", "message"), [
    (["root", "nowhere"], "nowhere: cannot be read"),
    (["nowhere", "root"], "nowhere: cannot be read"),
    (["root", "all.csv"], "needed: a folder with the results of 3 cases, or --case"),
    (["all.csv", "root"], "all.csv: not an archive"),
    ([".", "root"], "has no manifest.json"),
    (["root", "root", "--case", "x"], "no case 'x'"),
    (["root/a", "root", "--case", "b"], "case 'a'; needed: --case 'a'"),
    (["all.csv", "root", "--case", "b"], "refused for a file"),
    (["root", ".", "--case", "a"], "no file for output 'diff_src' of case 'a'"),
    (["root", "root", "--standard", "none"], "standard='none'"),
    (["root", "root", "--parts", "float32"], "needed: FORMAT:COUNT"),
])
def test_no_verdict(root, capsys, arguments, message):
    """Status 2 and one sentence; nothing on the standard output."""
    status, out, err = run(capsys, "compare", *arguments)
    assert (status, out) == (2, "")
    assert message in err
    assert len([line for line in err.splitlines() if line.startswith("convreg: ")]) == 1


def test_a_damaged_case_gives_no_verdict(root, capsys):
    path = root / "a" / "input_weights.bin"
    path.write_bytes(path.read_bytes()[:-1])
    status, out, err = run(capsys, "compare", root, root)
    assert (status, out) == (2, "")
    assert "input_weights.bin" in err
    assert "needed" in err


def test_usage(capsys):
    for arguments in (["compare"], ["compare", "a"], ["golden", "a"], ["golden", "a", "-o", "x", "--layout", "zip"]):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 2
    capsys.readouterr()


def test_several_failures(root, capsys, monkeypatch):
    """The first in full, the others by their verdicts, no more than a screen."""
    monkeypatch.setattr(golden, "compare", lambda case, *rest, **more: Report(False, f"FAIL  {case.name}", {}))
    assert run(capsys, "compare", root, root)[1].splitlines() == [
        "FAIL  3 of 3 cases", "FAIL  a", "details", "FAIL  b", "FAIL  c d"]
