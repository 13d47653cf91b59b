"""What `convreg bench` times: descriptors, shape files and models as layers, and one message for what is none."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from bench_layers import CAUSAL, UP, shapes_file, write_model
from convreg.tools.bench import timing as bench_timing
from convreg.tools.bench.machine import Machine
from convreg.tools.bench.models import read_model
from convreg.tools.bench.nodes import differences, results_of
from convreg.tools.bench.problems import Node, problem_of, read_shapes, shipped_shapes
from convreg.tools.cli import main
from graphs import data_gradient, value
from ml_dtypes import bfloat16, float8_e5m2
from onnx import helper

from convreg.geometry import Axis, Geometry
from convreg.layers import DIRECTIONS, inside

# ---------------------------------------------------------------------------------------------------------------------
# Descriptors


def square(large, small, taps, stride=1, dilation=1, begin=0, axes=2):
    return (Axis(large, small, taps, stride, dilation, begin),) * axes


@pytest.mark.parametrize(("text", "batch", "groups", "channels", "axes"), [
    ("mb8_ic64ih56oc64oh56kh3ph1", 8, 1, (64, 64), square(56, 56, 3, begin=1)),
    ("mb8ic64ih56oc64oh56kh3ph1", 8, 1, (64, 64), square(56, 56, 3, begin=1)),
    ("ic64ih56oc32oh56kh3", 2, 1, (64, 32), square(56, 56, 3, begin=1)),
    ("ic64ih56oc32kh3", 2, 1, (64, 32), square(56, 54, 3)),
    ("g32mb1ic32ih112oc32oh56kh3sh2ph1", 1, 32, (1, 1), square(112, 56, 3, stride=2, begin=1)),
    ("g1mb1ic3ih224oc64oh112kh7sh2ph3", 1, 1, (3, 64), square(224, 112, 7, stride=2, begin=3)),
    ("ic3iw16oc4kw3pw1", 2, 1, (3, 4), square(16, 16, 3, begin=1, axes=1)),
    ("mb1ic16id8oc4kd3pd1", 1, 1, (16, 4), square(8, 8, 3, begin=1, axes=3)),
    ("mb1ic16id8ih9iw10oc4od8oh9ow10kd1kh3kw5pd0ph1pw2", 1, 1, (16, 4),
     (Axis(8, 8, 1, 1, 1, 0), Axis(9, 9, 3, 1, 1, 1), Axis(10, 10, 5, 1, 1, 2))),
    ("mb1ic16id8ih9oc4kd1kh3ph1", 1, 1, (16, 4), (Axis(8, 8, 1, 1, 1, 0), *square(9, 9, 3, begin=1))),
    ("ic1ih161iw700oc32kh5kw20sh2sw2", 2, 1, (1, 32), (Axis(161, 79, 5, 2, 1, 0), Axis(700, 341, 20, 2, 1, 0))),
    ("ic4ih33oc4oh33kh3ph6dh5", 2, 1, (4, 4), square(33, 33, 3, dilation=6, begin=6)),
    ("ic4_ih8_oc4_kh1__", 2, 1, (4, 4), square(8, 8, 1)),
    ("mb1_ic16oc16_ih4_oh1_kh2_sh5_ph2", 1, 1, (16, 16), square(4, 1, 2, stride=5, begin=2)),
    ("mb1_ic8oc4_iw3_ow1_kw1_sw7_pw4", 1, 1, (8, 4), square(3, 1, 1, stride=7, begin=4, axes=1)),
])
def test_descriptor(text, batch, groups, channels, axes):
    problem = problem_of(text)
    g = problem.geometry
    assert (g.batch, g.groups, (g.large_channels, g.small_channels), g.axes) == (batch, groups, channels, axes)
    assert (problem.name, problem.transposed) == (text, False)


@pytest.mark.parametrize(("text", "axes"), [
    ("ic16ih4oc8kh4sh2ph1", square(8, 4, 4, stride=2, begin=1)),
    ("ic16ih4oc8oh8kh4sh2", square(8, 4, 4, stride=2, begin=1)),
    ("ic16ih4oc8oh9kh4sh2ph1", square(9, 4, 4, stride=2, begin=1)),
    ("ic16iw70oc8kw16sw8", square(568, 70, 16, stride=8, axes=1)),
])
def test_descriptor_of_a_deconvolution(text, axes):
    problem = problem_of(text, transposed=True)
    assert problem.geometry.axes == axes
    assert (problem.geometry.small_channels, problem.geometry.large_channels) == (16, 8)


@pytest.mark.parametrize(("text", "options"), [
    ("mb1_ic16oc16_ih4_oh1_kh2_sh5_ph2", []), ("mb2_ic4oc2_iw3_ow1_kw1_sw7_pw4", []),
    ("mb1_ic4oc4_ih4_iw9_oh1_ow9_kh2_kw3_sh5_sw1_ph2_pw1", []), ("g2mb1_ic4oc4_id2_od1_kd1_sd5_pd3", []),
    ("mb1_ic16oc16_ih1_oh4_kh2_sh5_ph2", ["--deconv"]),
])
def test_windows_that_see_only_padding(text, options, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(bench_timing, "measure_machine", lambda *_: Machine("", 1, "", {"f32": (1.0, "")}, 1.0))
    path = tmp_path / "figures.json"
    assert main(["bench", text, *options, "--peers", "none", "--dir", "fwd,bwd_d,bwd_w", "--repeat", "1",
                 "--seconds", "0", "--json", str(path)]) == 0
    results = json.loads(path.read_text())["results"]
    assert [entry["direction"] for entry in results] == ["forward", "data", "weights"]
    assert not any(entry["wrong"] or entry["unsupported"] for entry in results)
    assert main(["bench", re.sub("_p([dhw])", r"_p\g<1>9", text), *options, "--peers", "none"]) == 1
    assert "contradict each other" in capsys.readouterr().err


@pytest.mark.parametrize("suffix", ['nres2:conv"1"', 'n"res2:conv1"', "_nres2:conv1"])
def test_descriptor_ends_with_a_name(suffix):
    name = problem_of("ic3ih8oc4kh3" + suffix).name
    assert name.replace('"', "") == "res2:conv1"


@pytest.mark.parametrize(("text", "words"), [
    ("", "no ic and no oc"), ("ic3ih5kh3", "no oc"), ("ic3oc4", "no spatial axis"), ("ic3oc4ih5", "no kh"),
    ("ic3oc4kh3", "no ih"), ("ic3oc4ih5kh9", "make it -3"), ("ic3oc4id5kd3iw4kw3", "between 'd' and 'w'"),
    ("g2ic3oc4ih5kh3", "2 groups do not divide"), ("ic3ic3oc4ih5kh3", "'ic' twice"), ("foo", "from 'foo' on"),
    ("ic3oc4ih5kh3x", "from 'x' on"), ("icoc4ih5kh3", "from 'icoc4"), ("ic3oc4ih5kh3sh0", "zero among"),
    ("mb0ic3oc4ih5kh3", "zero among"), ("g0ic3oc4ih5kh3", "zero among"), ("ic3oc4ih9oh3kh3sh2", "contradict"),
    ("ic3oc4ih5oh4kh3ph9", "contradict"), ("ic-3oc4ih5kh3", "from 'ic-3"), ("ic9999999999oc4ih5kh3", "above"),
    ("ic0oc4ih5kh3", "no ic"), ("ic4oc4ih5kh3sw2", "no iw and no kw, or 0; sw names the axis w, so iw and kw are"),
    ("ic4oc4ih5kh3iw0sw1dw1", "dw names the axis w, so iw and kw are needed"), ("ic3oc4ih5kh0", "kh is needed"),
])
def test_bad_descriptor(text, words, capsys):
    assert main(["bench", text]) == 1
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


# ---------------------------------------------------------------------------------------------------------------------
# Shape files and models


def test_shipped_shapes():
    layers = shipped_shapes()
    assert len(layers) == len({layer.name for layer in layers}) == 38
    by_name = {layer.name: layer for layer in layers}
    assert by_name["resnet50_res2a_2b"] == problem_of("mb8_ic64ih56oc64oh56kh3ph1nresnet50_res2a_2b")
    assert by_name["resnet50_res2a_2b"].gflop == pytest.approx(1.8497, rel=1e-4)
    assert by_name["dcgan_g2"].transposed
    assert {layer.name for layer in layers if len(layer.geometry.axes) == 3} == {
        "unet3d_conv1", "unet3d_conv7", "unet3d_deconv8"}
    assert by_name["deeplabv3_aspp18"].gflop_inside < 0.5 * by_name["deeplabv3_aspp18"].gflop


def test_shapes_that_are_derived(tmp_path):
    causal, up = read_shapes(shapes_file(tmp_path, CAUSAL, UP))
    assert causal.shapes == ((2, 4, 30), (2, 6, 30), (6, 4, 2))
    assert (causal.geometry.pads_end, causal.geometry.output_padding) == ([0], [0])
    assert [causal.kernel(direction) for direction in DIRECTIONS] == ["backward_data", "backward_weights", "forward"]
    assert up.shapes == ((1, 6, 10, 8), (1, 4, 5, 4), (4, 3, 3, 3))
    assert (up.geometry.pads_end, up.geometry.output_padding) == ([0, 0], [0, 0])
    assert [up.kernel(direction) for direction in DIRECTIONS] == ["forward", "backward_weights", "backward_data"]


def test_pads_behind_and_elements_that_no_window_reaches():
    geometry = Geometry(1, 1, 1, 1, (Axis(14, 5, 3, 2, 2, 1), Axis(4, 3, 3, 1, 2, 2)))
    assert [(axis.reach, axis.end) for axis in geometry.axes] == [(13, -2), (7, 1)]
    assert geometry.output_padding == [2, 0]
    assert geometry.explicit == {"strides": [2, 1], "pads_begin": [1, 2], "pads_end": [0, 1], "dilations": [2, 2]}


@pytest.mark.parametrize("axis", [Axis(9, 5, 3, 2, 1, 1), Axis(7, 4, 2, 2, 3, 2), Axis(3, 3, 3, 1, 18, 18),
                                  Axis(5, 2, 1, 3, 1, 0), Axis(4, 6, 2, 1, 1, 9)])
def test_inside(axis):
    for tap in range(axis.taps):
        assert [*inside(axis, tap)] == [
            y for y in range(axis.small) if 0 <= y * axis.stride - axis.begin + tap * axis.dilation < axis.large]


@pytest.mark.parametrize(("change", "words"), [
    ({"name": None}, "no name"), ({"N": 0}, "'N' is 0"), ({"N": True}, "'N' is True"), ({"C_in": "3"}, "'C_in'"),
    ({"kernel": []}, "'kernel'"), ({"kernel": [1, 1, 1, 1]}, "4 spatial axes"), ({"kernel": [2, 2]}, "has 1 entries"),
    ({"stride": [0]}, "'stride'"), ({"groups": 5}, "5 groups do not divide"), ({"transposed": "no"}, "'transposed'"),
    ({"spatial_out": [29]}, "contradict"), ({"pad_begin": [-1]}, "'pad_begin'"),
    ({"group": 32}, "key 'group' is refused; allowed: name, N, C_in, C_out"), ({"group": 32}, "did you mean 'groups'?"),
    ({"Groups": 2}, "did you mean 'groups'?"), ({"strides": [2]}, "did you mean 'stride'?"),
    ({"dilations": [2]}, "did you mean 'dilation'?"), ({"pad": [1]}, "key 'pad' is refused"), ({"": 1}, "key '' is"),
    ({"bias": True}, "key 'bias' is refused"), ({"dtype": "bf16"}, "key 'dtype' is refused"),
])
def test_bad_shape(tmp_path, capsys, change, words):
    path = shapes_file(tmp_path, {**CAUSAL, "stride": [1], **change})
    assert main(["bench", "--shapes", str(path)]) == 1
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("key", ["N", "C_in", "C_out", "kernel", "spatial_in", "spatial_out"])
def test_a_key_that_is_missing(tmp_path, capsys, key):
    path = shapes_file(tmp_path, {name: value for name, value in CAUSAL.items() if name != key})
    assert main(["bench", "--shapes", str(path)]) == 1
    assert f"shape 0 ({CAUSAL['name']}): key '{key}' is missing" in capsys.readouterr().err


def test_a_key_that_occurs_twice(tmp_path, capsys):
    path = tmp_path / "shapes.json"
    path.write_text(json.dumps([CAUSAL]).replace('"N": 2', '"N": 2, "groups": 2, "groups": 1'))
    assert main(["bench", "--shapes", str(path)]) == 1
    assert "shapes.json: not a JSON file (key 'groups' occurs twice in one object)" in capsys.readouterr().err


def test_remarks_are_allowed(tmp_path):
    remarks = {"network": "a network", "origin": "a page", "note": "x", "gflop_per_pass": 1.0}
    assert read_shapes(shapes_file(tmp_path, {**CAUSAL, **remarks})) == read_shapes(shapes_file(tmp_path, CAUSAL))


@pytest.mark.parametrize("content", ["", "[", "{}", "[]", "[3]", "[" * 100_000])
def test_bad_shapes_file(tmp_path, capsys, content):
    path = tmp_path / "shapes.json"
    path.write_text(content)
    assert main(["bench", "--shapes", str(path)]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_layers_of_a_model(tmp_path):
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["y"], name="forward", strides=[2, 2], pads=[1, 1, 1, 1]),
        data_gradient(["dy", "v"], "dx", name="gradient", dst_shape=[2, 3, 9, 8]),
        helper.make_node("convolution_backward", ["dy", "x3", "v"], ["gx", "gw", ""], domain="convreg.aten",
                         name="both", stride=[1, 1], padding=[1, 1], dilation=[1, 1], transposed=0,
                         output_padding=[0, 0], groups=1, output_mask=[1, 1, 0]),
        helper.make_node("Conv", ["loose", "w"], ["z"], name="loose"),
        helper.make_node("Sum", ["gx", "dx"], ["out"]),
    ]
    path = write_model(tmp_path / "net.onnx", nodes, [
        value("x", [2, 3, 9, 8]), value("w", [4, 3, 3, 3]), value("dy", [2, 6, 9, 8]), value("v", [6, 3, 3, 3]),
        value("x3", [2, 3, 9, 8]), value("loose", ["N", 3, 9, 9])])
    layers, notes = read_model(path)
    assert [(layer.name, layer.directions) for layer in layers] == [
        ("forward", ("forward",)), ("gradient", ("data",)), ("both", ("data",)), ("both", ("weights",))]
    assert layers[0].shapes == ((2, 3, 9, 8), (2, 4, 5, 4), (4, 3, 3, 3))
    assert layers[0].geometry.axes == (Axis(9, 5, 3, 2, 1, 1), Axis(8, 4, 3, 2, 1, 1))
    assert layers[1].geometry == layers[2].geometry == layers[3].geometry
    assert len(notes) == 1
    assert "'loose'" in notes[0]


EMULATED = {"conformance": "emulation", "dst_shape": [1, 3, 5, 5]}


def gradient_model(tmp_path, dtype, shapes=((1, 2, 5, 5), (2, 3, 3, 3)), scales=(), **attributes):
    """One data gradient with operands of that type."""
    names = ("dy", "w", *["", "dy_scale", "w_scale"][:3 if scales else 0])
    inputs = [*map(partial(value, dtype=dtype), names, shapes), *map(value, names[3:], scales)]
    nodes = [data_gradient(names, **attributes), helper.make_node("Cast", ["dx"], ["out"], to=1)]
    return write_model(tmp_path / "net.onnx", nodes, inputs)


@pytest.mark.parametrize(("dtype", "attributes", "timed", "node"), [
    (np.float32, {"dst_shape": [1, 3, 5, 5]}, "f32", Node(("float32",), "float32", ("NCX", "OIX"))),
    (np.float16, {"dst_shape": [1, 3, 5, 5]}, "f16", Node(("float16",), "float16", ("NCX", "OIX"))),
    (bfloat16, {"dst_shape": [1, 5, 5, 3], "data_format": "NXC", "weights_format": "XIO",
                "shapes": ((1, 5, 5, 2), (3, 3, 3, 2))}, "bf16", Node(("bfloat16",), "bfloat16", ("NXC", "XIO"))),
    (float8_e5m2, EMULATED, "e5m2", Node(("float8_e5m2",), "float8_e5m2", ("NCX", "OIX"))),
    (np.uint8, {**EMULATED, "operand_types": ["hifloat8", "hifloat8"], "output_format": "float32"}, "hifloat8",
     Node(("hifloat8",), "float32", ("NCX", "OIX"))),
    (float8_e5m2, {**EMULATED, "rounding": "toward_zero"}, "e5m2",
     Node(("float8_e5m2",), "float32", ("NCX", "OIX"), ("roundings of its own",))),
    (float8_e5m2, {**EMULATED, "output_format": "float32", "scales": ((), ())}, "e5m2",
     Node(("float8_e5m2",), "float32", ("NCX", "OIX"), ("scales",))),
])
def test_what_a_node_of_a_model_is_in(tmp_path, dtype, attributes, timed, node):
    (layer,), notes = read_model(gradient_model(tmp_path, dtype, **attributes))
    assert (layer.dtype, layer.node, notes) == (timed, node, [])


def test_biases_and_wide_formats_of_a_model(tmp_path):
    wide = partial(value, dtype=np.float64)
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["y"], name="wide"),
             helper.make_node("ConvGrad", ["dy", "x", "w"], ["dx", "", "db"], name="both", domain="com.microsoft"),
             helper.make_node("ConvGrad", ["dy", "x", "w"], ["", "", "sums"], name="sum", domain="com.microsoft"),
             helper.make_node("Cast", ["sums"], ["out"], to=1)]
    inputs = [wide("x", [1, 3, 5, 5]), wide("w", [2, 3, 3, 3]), wide("b", [2]), wide("dy", [1, 2, 3, 3])]
    layers, notes = read_model(write_model(tmp_path / "net.onnx", nodes, inputs))
    plain = Node(("float64",), "float64", ("NCX", "OIX"))
    assert [(layer.name, layer.dtype, layer.node) for layer in layers] == [
        ("wide", None, replace(plain, extras=("a bias",))), ("both", None, replace(plain, extras=("a bias gradient",)))]
    assert notes == ["com.microsoft::ConvGrad node 'sum' is left out: it computes no convolution"]
    assert differences(layers, None, ["ncx"]) == [
        "the model computes in float64, timed in f32, because that format cannot be timed: wide, both",
        "the model has a bias; the timed call has none: wide",
        "the model has a bias gradient; the timed call has none: both"]


def test_differences_between_a_model_and_what_is_timed():
    layer = problem_of("mb1ic3ih5oc4kh3ph1nlayer")
    plain = Node(("bfloat16",), "bfloat16", ("NXC", "XIO"))

    def found(node, dtypes, layouts, dtype="bf16"):
        return differences([layer, replace(layer, node=node, dtype=dtype)], dtypes, layouts)

    assert found(plain, None, ["nxc"]) == found(plain, ["f32", "bf16"], ["ncx", "nxc"]) == []
    assert found(plain, ["f32", "f16"], ["nxc"]) == ["the model computes in bfloat16, timed in f32, f16: layer"]
    assert found(plain, None, ["ncx"]) == ["the model has data in NXC and weights in XIO, timed in layout ncx: layer"]
    assert found(replace(plain, layouts=("NXC", "OIX")), None, ["ncx", "nxc"]) == [
        "the model has data in NXC and weights in OIX, timed in layout ncx, nxc: layer"]
    assert found(replace(plain, operands=("float32", "bfloat16")), None, ["nxc"], None) == [
        "the model computes in float32 and bfloat16, timed in f32, because that format cannot be timed: layer"]
    eight = replace(plain, operands=("float8_e4m3fn",), result="float8_e4m3fn")
    assert found(eight, None, ["nxc"], "e4m3fn") == []
    assert found(replace(eight, result="float32"), None, ["nxc"], "e4m3fn") == []
    assert found(replace(eight, result="bfloat16"), None, ["nxc"], "e4m3fn") == [
        "the model has results in bfloat16, timed with results in e4m3fn and in f32: layer"]
    for result, timed in (("float8_e4m3fn", ("e4m3fn",)), ("float32", ("f32",)), ("bfloat16", ("e4m3fn", "f32"))):
        assert results_of(replace(layer, node=replace(eight, result=result)), "e4m3fn") == timed
    many = [replace(layer, name=f"layer{index}", node=replace(plain, extras=("a bias",)), dtype="bf16")
            for index in range(8)]
    assert differences(many, None, ["nxc"]) == [
        "the model has a bias; the timed call has none: layer0, layer1, layer2, layer3, layer4 and 3 more"]


def test_model_without_layers(tmp_path, capsys):
    path = write_model(tmp_path / "net.onnx", [helper.make_node("Relu", ["x"], ["out"])], [value("x", [2])])
    assert main(["bench", "--model", str(path)]) == 1
    assert "no convolution" in capsys.readouterr().err
