"""The safetensors format: what is written is read back; damaged and hostile files are one sentence each."""

from __future__ import annotations

import io
import json

import ml_dtypes
import numpy as np
import pytest

from convreg.errors import GraphError
from convreg.onnx.training.safetensors import DTYPES, read, written


def content(header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def entry(dtype="F32", shape=(1,), offsets=(0, 4)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def test_arrays_of_every_type_come_back(tmp_path):
    arrays = {name: np.arange(6).reshape(2, 3).astype(dtype) for name, dtype in DTYPES.items()}
    arrays |= {"scalar": np.array(3, np.int64), "empty": np.empty((0, 4), np.float32), "strided": np.arange(8.0)[::2],
               "Ø \n": np.ones(1, ml_dtypes.bfloat16)}
    file = io.BytesIO()
    written(arrays, {"a": "b", "": "é"})(file)
    (tmp_path / "f").write_bytes(file.getvalue())
    found, metadata = read(tmp_path / "f")
    assert metadata == {"a": "b", "": "é"}
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        assert found[name].shape == array.shape
        assert found[name].tobytes() == array.tobytes()
        assert found[name].flags.writeable
    assert int.from_bytes(file.getvalue()[:8], "little") % 8 == 0


HOSTILE = {
    "empty": b"", "short": b"\1\0\0", "no header": bytes(8), "length": content({}, length=2**63),
    "longer than the file": content({}, length=3), "no json": content(b"{"), "no object": content([]),
    "deep": content(b"[" * 100_000), "twice": content(b'{"a":1,"a":2}'), "nan": content(b'{"a":NaN}'),
    "not text": content(b"\xff\xfe{}"), "metadata": content({"__metadata__": {"a": 1}}),
    "metadata list": content({"__metadata__": []}), "entry": content({"a": 3}),
    "keys": content({"a": {"dtype": "F32"}}),
    "more keys": content({"a": {**entry(), "x": 1}}, bytes(4)), "dtype": content({"a": entry("F31")}, bytes(4)),
    "dtype list": content({"a": entry(["F32"])}, bytes(4)),
    "negative": content({"a": entry(shape=[-1], offsets=[0, -4])}),
    "bool": content({"a": entry(shape=[True])}, bytes(4)), "float": content({"a": entry(shape=[1.0])}, bytes(4)),
    "text": content({"a": {**entry(), "shape": "1"}}, bytes(4)), "product": content({"a": entry(shape=[2])}, bytes(4)),
    "overflow": content({"a": entry(shape=[2**32, 2**32], offsets=[0, 0])}),
    "huge and empty": content({"a": entry(shape=[2**61, 2**61, 0], offsets=[0, 0])}),
    "axes": content({"a": entry(shape=[1] * 100)}, bytes(4)),
    "offsets": content({"a": entry(offsets=[0, 4, 4])}, bytes(4)),
    "backwards": content({"a": entry(offsets=[4, 0])}, bytes(4)), "beyond": content({"a": entry()}, bytes(3)),
    "far": content({"a": entry(offsets=[2**40, 2**40 + 4])}, bytes(4)), "left over": content({"a": entry()}, bytes(5)),
    "overlap": content({"a": entry(), "b": entry()}, bytes(4)),
    "gap": content({"a": entry(), "b": entry(offsets=[8, 12])}, bytes(12)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files(tmp_path, name):
    (tmp_path / "f").write_bytes(HOSTILE[name])
    with pytest.raises(GraphError) as caught:
        read(tmp_path / "f")
    assert "\n" not in str(caught.value)
    assert str(tmp_path / "f") in str(caught.value)


def test_files_that_are_none(tmp_path):
    for path in (tmp_path, tmp_path / "none", "", "a\0b", "/dev/zero"):
        with pytest.raises(GraphError):
            read(path)


def test_arrays_that_no_file_holds():
    with pytest.raises(GraphError, match="complex128"):
        written({"a": np.ones(1, complex)}, {})
    with pytest.raises(GraphError, match="__metadata__"):
        written({"__metadata__": np.ones(1)}, {})
