"""The .npz file of golden vectors: equal bytes, round trips, and files that are refused."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from golden_cases import ascend_case, data_case, same_arrays, sha256
from hypothesis import given, settings
from hypothesis import strategies as st
from model_files import arrays_of

import convreg
from convreg import GraphError
from convreg.archives import archive_of
from convreg.files import write_atomically
from convreg.golden import load, make


def changed(path, change):
    """Write an archive again with its arrays and its description changed."""
    arrays = arrays_of(path)
    about = json.loads(str(arrays["description"]))
    change(about, arrays)
    arrays["description"] = np.array(json.dumps(about))
    write_atomically(path, archive_of(arrays))


def rehashed(about, name, array):
    about["arrays"][name].update(sha256=sha256(array), shape=list(array.shape))


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "golden.npz"
    data_case().make().save(path)
    return path


@pytest.mark.parametrize("case", [
    data_case(), data_case(format="bfloat16"), ascend_case(format="hifloat8", conformance="emulation"),
    ascend_case(mask=(False, True, False)), data_case(scales=[[1.0, 0.1, 3, 4], None], output_format="float8_e4m3fn")])
def test_round_trip(tmp_path, case):
    case = replace(case, conformance="emulation") if "scales" in case.attributes else case
    golden = case.make(fill="special")
    golden.save(tmp_path / "one.npz")
    again = load(tmp_path / "one.npz")
    assert same_arrays(golden, again)
    assert again.name == case.name
    again.save(tmp_path / "two.npz")
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()
    for kind in ("reference", "bound"):
        for name, array in getattr(golden, kind).items():
            np.testing.assert_array_equal(getattr(again, kind)[name], array)


def test_two_saves_are_equal_whatever_the_order_of_the_attributes(tmp_path):
    golden = data_case().make()
    turned = replace(golden, attributes=dict(reversed(golden.attributes.items())))
    golden.save(tmp_path / "one.npz")
    turned.save(tmp_path / "two.npz")
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()


def test_numpy_reads_it_alone(tmp_path):
    """The reference is the unrounded result; codes are read with the format that the description names."""
    golden = data_case(format="bfloat16").make()
    golden.save(tmp_path / "g.npz")
    arrays = arrays_of(tmp_path / "g.npz")
    assert sorted(arrays) == ["bound.diff_src", "description", "input.diff_dst", "input.weights", "output.diff_src",
                              "reference.diff_src"]
    about = json.loads(str(arrays["description"]))
    assert about["op"] == "onednn::ConvolutionBackwardData"
    assert about["attributes"]["dst_shape"] == [2, 6, 10, 8]
    assert about["arrays"]["output.diff_src"]["format"] == "bfloat16"
    assert about["arrays"]["output.diff_src"]["sha256"] == sha256(arrays["output.diff_src"])
    result = arrays["output.diff_src"].view(ml_dtypes.bfloat16)
    exact = arrays["reference.diff_src"]
    assert exact.dtype == arrays["bound.diff_src"].dtype == np.float64
    np.testing.assert_array_equal(exact.astype(np.float32).astype(ml_dtypes.bfloat16), result)
    assert (abs(result.astype(np.float64) - exact) <= arrays["bound.diff_src"]).all()


def test_a_conversion_has_no_bound(tmp_path):
    make("nodes::Quantize", [np.float32([1, 2.5])], format="hifloat8").save(tmp_path / "q.npz")
    assert sorted(arrays_of(tmp_path / "q.npz")) == ["description", "input.x", "output.y"]
    assert convreg.dequantize(load(tmp_path / "q.npz").outputs["y"]).tolist() == [1, 2.5]


def test_the_source_s_own_record_is_kept(tmp_path):
    golden = ascend_case(fields={"remark": "a, b"}).make()
    golden.save(tmp_path / "g.npz")
    assert load(tmp_path / "g.npz").fields == {"remark": "a, b"}


CHANGES = {
    "no such file's": (lambda about, arrays: about.update(kind="numpy"), "needed: 'convreg golden' version 1"),
    "a later version": (lambda about, arrays: about.update(version=2), "version 2"),
    "no operator": (lambda about, arrays: about.pop("op"), "has no 'op'"),
    "an operator of a number": (lambda about, arrays: about.update(op=7), "'op' of the description is a int"),
    "an unknown operator": (lambda about, arrays: about.update(op="onednn::Pool"), "no operator named 'onednn::Pool'"),
    "an unknown attribute": (lambda about, arrays: about["attributes"].update(color=1), "color="),
    "threads": (lambda about, arrays: about["attributes"].update(threads=1), "threads="),
    "a wrong attribute": (lambda about, arrays: about["attributes"].update(strides=[1, 1]), "refused"),
    "an unknown format": (lambda about, arrays: about["arrays"]["input.weights"].update(format="int3"), "'int3'"),
    "another format": (lambda about, arrays: about["arrays"]["input.weights"].update(format="float16"),
                       "'input.weights': dtype float32; needed: float16"),
    "a wrong shape": (lambda about, arrays: about["arrays"]["input.weights"].update(shape=[1]), "shape [4, 3, 3, 3]"),
    "a wrong hash": (lambda about, arrays: about["arrays"]["output.diff_src"].update(sha256="0" * 64), "SHA-256"),
    "a changed value": (lambda about, arrays: arrays["reference.diff_src"].reshape(-1).__setitem__(0, 1e9), "SHA-256"),
    "a missing entry": (lambda about, arrays: arrays.pop("input.weights"), "only in the description"),
    "another entry": (lambda about, arrays: arrays.update(more=np.zeros(1)), "'more' is only in the archive"),
    "no output": (lambda about, arrays: (arrays.pop("output.diff_src"), about["arrays"].pop("output.diff_src")),
                  "output 'diff_src' is absent; needed: float32 of shape [2, 6, 10, 8]"),
    "another input": (lambda about, arrays: (arrays.update({"input.src": np.zeros(1)}), about["arrays"].update(
        {"input.src": {"format": "float64", "shape": [1], "sha256": sha256(np.zeros(1))}})), "inputs='src'"),
    "NaN": (lambda about, arrays: about["attributes"].update(x=float("nan")), "NaN is not a JSON number"),
}


@pytest.mark.parametrize("damage", CHANGES)
def test_changed_files_are_refused(saved, damage):
    change, message = CHANGES[damage]
    changed(saved, change)
    with pytest.raises(GraphError) as caught:
        load(saved)
    assert message in str(caught.value)
    assert str(caught.value).startswith(str(saved))
    assert "\n" not in str(caught.value)


def test_an_output_of_another_shape_is_refused(saved):
    def cut(about, arrays):
        arrays["output.diff_src"] = arrays["output.diff_src"][:1]
        rehashed(about, "output.diff_src", arrays["output.diff_src"])

    changed(saved, cut)
    with pytest.raises(GraphError, match=r"float32 of shape \[1, 6, 10, 8\]; needed: float32 of shape \[2, 6, 10, 8\]"):
        load(saved)


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_flipped_and_lost_bytes(tmp_path_factory, data):
    """A damaged file is refused in one sentence, or holds the same arrays: no byte that matters is unprotected."""
    path = tmp_path_factory.getbasetemp() / "flipped.npz"
    golden = data_case().make()
    golden.save(path)
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content[place] ^= 1 << data.draw(st.integers(0, 7))
    else:
        del content[place:]
    path.write_bytes(content)
    with contextlib.suppress(GraphError):
        assert same_arrays(load(path), golden)


def test_other_files_are_refused(tmp_path):
    np.savez(tmp_path / "foreign.npz", x=np.zeros(3))
    np.savez(tmp_path / "described.npz", description=np.zeros(3))
    np.savez(tmp_path / "text.npz", description=np.array("not JSON"))
    np.savez(tmp_path / "list.npz", description=np.array("[]"))
    (tmp_path / "empty.npz").write_bytes(b"")
    for name, message in (("foreign", "no golden vectors"), ("described", "no golden vectors"), ("text", "text.npz"),
                          ("list", "is a list; needed: a JSON object"), ("empty", "not an archive"),
                          ("missing", "cannot be read")):
        with pytest.raises(GraphError, match=message):
            load(tmp_path / f"{name}.npz")
    for path in (None, 3, "", b"x", "a\0b", tmp_path):
        with pytest.raises(GraphError):
            load(path)


@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="this system tells the mask only when it is set")
@pytest.mark.parametrize("mask", [0o077, 0o002])
def test_the_process_s_mask_is_obeyed_and_left_alone(tmp_path, monkeypatch, mask):
    """To set it even for a moment would change the files that other threads make then."""
    golden, before = data_case().make(), os.umask(mask)
    try:
        with monkeypatch.context() as patched:
            patched.setattr(os, "umask", lambda new: pytest.fail("the mask is set"))
            golden.save(tmp_path / "g.npz")
    finally:
        os.umask(before)
    assert (tmp_path / "g.npz").stat().st_mode & 0o777 == 0o666 & ~mask


def test_a_failed_save_leaves_nothing(tmp_path, monkeypatch):
    golden, path = data_case().make(), tmp_path / "g.npz"
    path.write_bytes(b"before")

    def fail(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np.lib.format, "write_array", fail)
    with pytest.raises(GraphError, match="No space left"):
        golden.save(path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["g.npz"]
    assert path.read_bytes() == b"before"
