"""Transposed convolutions beside a shape of the run, and filters with groups, on the way to OpenVINO IR and back."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from convreg.tools.onnx_io import export_ir, import_ir
from drawn import dyadic
from graphs import model, value
from ir_files import check_again, layers
from model_files import IR
from onnx import helper

from convreg import GraphError

RNG = np.random.default_rng(11)


def with_shape_input(tmp_path, **attributes) -> onnx.ModelProto:
    """A transposed convolution whose spatial extents are an input of the model."""
    ir = IR()
    x, extents = ir.parameter("x", "1,2,3"), ir.parameter("extents", "1", "i64")
    taps = ir.constant(np.arange(6, dtype=np.float32).reshape(2, 1, 3))
    ir.result(ir.layer("ConvolutionBackpropData", [x, taps, extents], name="up", names="y", strides="2", **attributes))
    return import_ir(ir.write(tmp_path))


@pytest.mark.parametrize("attributes", [{}, {"pads_begin": "1", "pads_end": "2", "output_padding": "1"}])
def test_valid_beside_a_shape_of_the_run(tmp_path, attributes):
    """The pads that "valid" leaves unread are written as the zeros that it means."""
    source = with_shape_input(tmp_path, auto_pad="valid", **attributes)
    path = tmp_path / "valid.xml"
    for extent in (5, 7, 9):
        feeds = {"x": dyadic(RNG, (1, 2, 3)), "extents": np.array([extent])}
        check_again(path, source, feeds)
    written = layers(path, "ConvolutionBackpropData")[0]
    assert {written.find("data").get(name) for name in ("pads_begin", "pads_end")} == {"0"}
    assert len(written.find("input")) == 3


def test_same_beside_a_shape_of_the_run_is_refused(tmp_path):
    source = with_shape_input(tmp_path, auto_pad="same_upper")
    with pytest.raises(GraphError, match="every extent of output_shape") as caught:
        export_ir(source, tmp_path / "same.xml")
    assert str(caught.value).count("node 'up'") == 1


@pytest.mark.parametrize("mode", ["same_upper", "same_lower"])
def test_same_of_open_extents_without_a_stated_shape(tmp_path, mode):
    """Nothing is padded then, so the extents need not be known: only a stated shape makes pads of them."""
    ir = IR()
    x, taps = ir.parameter("x", "?,2,?"), ir.constant(np.arange(6, dtype=np.float32).reshape(2, 1, 3))
    ir.result(ir.layer("ConvolutionBackpropData", [x, taps], names="y", strides="2", auto_pad=mode, pads_begin="1",
                       pads_end="2", output_padding="1"))
    source, path = import_ir(ir.write(tmp_path)), tmp_path / "again.xml"
    for extent in (1, 3, 4):
        check_again(path, source, {"x": dyadic(RNG, (2, 2, extent))})
    written = layers(path, "ConvolutionBackpropData")[0].find("data")
    assert [written.get(name) for name in ("auto_pad", "pads_begin", "pads_end", "output_padding")] == [
        "explicit", "0", "0", "1"]


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_grouped_convolutions_stay_as_they_are(tmp_path, dtype):
    """The filter keeps its axis of groups on the way to a file and back, also a filter that is converted."""
    ir = IR()
    x, filter_ = ir.parameter("x", "1,4,5,6"), ir.constant(RNG.integers(-3, 4, (2, 3, 2, 3, 3)).astype(dtype))
    if dtype != np.float32:
        filter_ = ir.layer("Convert", [filter_], destination_type="f32")
    for name, stride in (("first", "1,1"), ("second", "2,2")):
        ir.result(ir.layer("GroupConvolution", [x, filter_], name=name, strides=stride))
    source = import_ir(ir.write(tmp_path))
    path = tmp_path / "again.xml"
    check_again(path, source, {"x": dyadic(RNG, (1, 4, 5, 6))})
    assert import_ir(path).graph.node == source.graph.node
    assert not layers(path, "Reshape")


def test_a_filter_of_an_open_extent_stays_as_it_is(tmp_path):
    """As the incoming gradient is in a weights gradient, where the filter's channels are the batch."""
    ir = IR()
    x, filter_ = ir.parameter("x", "1,?,5"), ir.parameter("w", "2,3,?,3")
    ir.result(ir.layer("GroupConvolution", [x, filter_], name="conv", strides="1"))
    source = import_ir(ir.write(tmp_path))
    path = tmp_path / "again.xml"
    check_again(path, source, {"x": dyadic(RNG, (1, 4, 5)), "w": dyadic(RNG, (2, 3, 2, 3))})
    assert import_ir(path).graph.node == source.graph.node
    assert not layers(path, "Reshape")


def test_a_folded_filter_that_others_read_is_written(tmp_path):
    source = model([helper.make_node("Reshape", ["w", "shape"], ["v"]),
                    helper.make_node("Conv", ["x", "v"], ["y"], group=2), helper.make_node("Abs", ["v"], ["z"])],
                   [value("x", (1, 4, 5)), value("w", (2, 3, 2, 3))], [value("y", (1, 6, 3)), value("z", (6, 2, 3))],
                   {"shape": np.array([6, 2, 3])})
    check_again(tmp_path / "m.xml", source, {"x": dyadic(RNG, (1, 4, 5)), "w": dyadic(RNG, (2, 3, 2, 3))})
    assert len(layers(tmp_path / "m.xml", "Reshape")) == 1
