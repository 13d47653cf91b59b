"""Model files that nobody vouches for: external data stays inside the folder, damage is one sentence."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from drawn import dyadic
from graphs import data_gradient, model, value
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

import convreg.onnx
from convreg import GraphError

WEIGHTS = dyadic(np.random.default_rng(0), (4, 3, 3, 3))
DY = np.ones((1, 4, 8, 8), np.float32)


def external(folder: Path, location: str, **entries) -> Path:
    """A model in `folder` whose weights are said to be at `location`."""
    made = model([data_gradient(["dy", "w"], dst_shape=[1, 3, 8, 8])], [value("dy", DY.shape)],
                 [value("dx", [1, 3, 8, 8])])
    tensor = made.graph.initializer.add(name="w", data_type=TensorProto.FLOAT, dims=entries.pop("dims", WEIGHTS.shape))
    tensor.data_location = TensorProto.EXTERNAL
    for key, entry in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=str(entry))
    path = folder / "model.onnx"
    path.write_bytes(made.SerializeToString())
    return path


@pytest.fixture
def folder(tmp_path):
    inside = tmp_path / "model"
    inside.mkdir()
    (inside / "w.bin").write_bytes(b"\0" * 16 + WEIGHTS.tobytes())
    (tmp_path / "secret.bin").write_bytes(WEIGHTS.tobytes())
    return inside


def test_external_data_inside_the_folder(folder):
    path = external(folder, "w.bin", offset=16, length=WEIGHTS.nbytes)
    loaded = convreg.onnx.load(path)
    assert not loaded.graph.initializer[0].external_data
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(loaded.graph.initializer[0]), WEIGHTS)
    convreg.onnx.check(path)
    whole = model([data_gradient(["dy", "w"], dst_shape=[1, 3, 8, 8])], [value("dy", DY.shape)],
                  [value("dx", [1, 3, 8, 8])], {"w": WEIGHTS})
    for source in (path, str(path), loaded):
        result = convreg.onnx.run(source, {"dy": DY})["dx"]
        np.testing.assert_array_equal(result, convreg.onnx.run(whole, {"dy": DY})["dx"])


def test_links_inside_the_folder(folder):
    (folder / "link.bin").symlink_to("w.bin")
    convreg.onnx.load(external(folder, "link.bin", offset=16))


@pytest.mark.parametrize("location", [
    "../secret.bin", "sub/../../secret.bin", "..", "", ".", "/etc/hostname", "\\\\host\\share", "..\\secret.bin",
    "link.bin", "out/secret.bin", "missing.bin",
])
def test_external_data_outside_the_folder(folder, location):
    (folder / "link.bin").symlink_to("../secret.bin")
    (folder / "out").symlink_to("..")
    with pytest.raises(GraphError, match="external data") as caught:
        convreg.onnx.load(external(folder, location))
    assert "\n" not in str(caught.value)


def test_absolute_path_to_the_right_file_is_refused(folder):
    with pytest.raises(GraphError, match="relative path"):
        convreg.onnx.load(external(folder, str(folder / "w.bin"), offset=16))


@pytest.mark.parametrize(("entries", "message"), [
    ({"offset": 17}, "has 448 bytes; the tensor ends at 449"),
    ({"offset": 2**62}, "has 448 bytes"),
    ({"offset": -1}, "offset='-1'"),
    ({"offset": "0x10"}, "offset='0x10'"),
    ({"length": 431}, "claims 431 bytes; a tensor of .* has 432"),
    ({"length": 10**30}, "claims 1000000000000000000000000000000 bytes"),
    ({"dims": (2**40, 2**40)}, "the tensor ends at"),
    ({"dims": (4, -3)}, "negative"),
])
def test_sizes_of_external_data(folder, entries, message):
    with pytest.raises(GraphError, match=message):
        convreg.onnx.load(external(folder, "w.bin", **entries))


@pytest.mark.parametrize("data_type", [0, 200, TensorProto.STRING])
def test_types_of_external_data(folder, data_type):
    path = external(folder, "w.bin")
    made = onnx.load(path, load_external_data=False)
    made.graph.initializer[0].data_type = data_type
    path.write_bytes(made.SerializeToString())
    with pytest.raises(GraphError, match="external data"):
        convreg.onnx.load(path)


def test_packed_formats(folder):
    """Two 4-bit values share a byte."""
    path = external(folder, "w.bin")
    made = onnx.load(path, load_external_data=False)
    tensor = made.graph.initializer[0]
    tensor.data_type = TensorProto.INT4
    tensor.dims[:] = [895]
    path.write_bytes(made.SerializeToString())
    assert len(convreg.onnx.load(path).graph.initializer[0].raw_data) == 448
    tensor.dims[:] = [897]
    path.write_bytes(made.SerializeToString())
    with pytest.raises(GraphError, match="ends at 449"):
        convreg.onnx.load(path)


def test_external_data_of_subgraphs_and_functions(folder):
    """Tensors hide in attributes of nodes in bodies of nodes."""
    def hidden() -> onnx.NodeProto:
        tensor = TensorProto(name="hidden", data_type=TensorProto.FLOAT, dims=[1], data_location=TensorProto.EXTERNAL)
        tensor.external_data.add(key="location", value="../secret.bin")
        return helper.make_node("Constant", [], ["k"], value=tensor)

    body = helper.make_graph([hidden()], "body", [], [value("k", [1])])
    choice = helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body)
    nested = model([choice], [value("c", [], np.bool_)], [value("y", [1])])
    function = helper.make_function("local", "F", [], ["k"], [hidden()], [helper.make_opsetid("", 22)])
    functional = model([helper.make_node("F", [], ["y"], domain="local")], [], [value("y", [1])], functions=[function])
    for made in (nested, functional):
        path = folder / "nested.onnx"
        path.write_bytes(made.SerializeToString())
        with pytest.raises(GraphError, match="'hidden'"):
            convreg.onnx.load(path)
        with pytest.raises(GraphError, match=r"not loaded; convreg\.onnx\.load"):
            convreg.onnx.run(made, {})


def test_model_with_unloaded_data_is_not_run(folder):
    with pytest.raises(GraphError, match=r"'w' has external data that is not loaded"):
        convreg.onnx.Session(onnx.load(external(folder, "w.bin", offset=16), load_external_data=False))


@pytest.mark.parametrize("content", [b"", b"\0", b"not a model", b"\x08\x0a", b"\xff" * 100, b"{}"])
def test_files_that_are_no_models(tmp_path, content):
    for name in ("bad.onnx", "bad.json", "bad.textproto", "bad"):
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(GraphError, match=name) as caught:
            convreg.onnx.load(path)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", ['[{"a": 1}]', '["a"]', "3", "null", '"text"'])
def test_json_that_is_no_object(tmp_path, content):
    path = tmp_path / "list.json"
    path.write_text(f" {content}")
    with pytest.raises(GraphError, match=r"not a readable ONNX model .*which is an object with irVersion"):
        convreg.onnx.load(path)


@pytest.mark.parametrize(("name", "content", "told"), [
    ("model.xml", '<?xml version="1.0"?>\n<net name="a" version="11"/>', "reads models of OpenVINO"),
    ("model.onnx", "\n<net/>", "reads models of OpenVINO"),
    ("graph.json", '{"version": "3.13.0", "engine_kind": "cpu", "graph": []}', "reads graphs of oneDNN")])
def test_files_that_the_importers_read(tmp_path, name, content, told):
    (tmp_path / name).write_text(content)
    with pytest.raises(GraphError, match=f"{name}: not a readable ONNX model .*`convreg import` {told}"):
        convreg.onnx.load(tmp_path / name)


def test_missing_file_and_folder(tmp_path):
    for path in (tmp_path / "none.onnx", tmp_path):
        with pytest.raises(GraphError, match=r"no such file|not a regular file"):
            convreg.onnx.load(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_unreadable_file(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(b"x")
    path.chmod(0)
    with pytest.raises(GraphError, match="not a readable ONNX model"):
        convreg.onnx.load(path)


INTACT = model([data_gradient(["dy", "w"], dst_shape=[1, 3, 8, 8])], [value("dy", DY.shape)],
               [value("dx", [1, 3, 8, 8])], {"w": WEIGHTS}).SerializeToString()


@given(st.integers(0, len(INTACT) - 1), st.integers(0, 255), st.booleans())
def test_damaged_files_give_an_error_or_a_result(tmp_path_factory, position, byte, cut):
    """One byte changed or the rest missing: whatever happens it is ours, never a crash."""
    damaged = INTACT[:position] if cut else INTACT[:position] + bytes([byte]) + INTACT[position + 1:]
    path = tmp_path_factory.getbasetemp() / "damaged.onnx"
    path.write_bytes(damaged)
    for use in (convreg.onnx.check, lambda path: convreg.onnx.run(path, {"dy": DY})):
        with contextlib.suppress(GraphError, convreg.OpError):
            use(path)


@pytest.mark.parametrize(("held", "dims"), [(4, [5]), (4, [2**40, 2**40]), (4, [-4]), (4, [2**62])])
def test_initializers_whose_size_lies(held, dims):
    made = model([helper.make_node("Relu", ["k"], ["y"])], [], [value("y", None)], {"k": np.ones(held, np.float32)})
    made.graph.initializer[0].dims[:] = dims
    with pytest.raises(GraphError):
        convreg.onnx.run(made, {})
    with pytest.raises(GraphError):
        convreg.onnx.check(made)
