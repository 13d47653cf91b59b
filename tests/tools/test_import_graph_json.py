"""Serialized oneDNN graphs: the vendor's files where present, unknown extents, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
from convreg.tools.onnx_io import export_graph_json, import_graph_json, import_model
from model_files import NCX, TWELVE, graph, operation, run_graph, tensor, write_graph
from onnx import helper
from places import ROOT

import convreg
from convreg import GraphError

VENDOR = ROOT.parent / "shared" / "cases" / "onednn_graph_json"
FILES = sorted(VENDOR.rglob("*.json"))
NEGATIVE_PADS = "conv_2d_bwd_d.json"
SLOW = ("conv_bwd_d_3d.json", "convbackpropdata.json")
SINGLE = [pytest.param(path, marks=[pytest.mark.slow] if path.name in SLOW else []) for path in FILES
          if "rn50" not in path.name]
RNG = np.random.default_rng(11)
DY = np.array([[[1, 2, 3]]], np.float32)


def test_vendor_files_are_complete():
    if not VENDOR.is_dir():
        pytest.skip("the vendor's files are not present")
    assert len(FILES) == 12


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_vendor_files_import(path):
    if path.name == NEGATIVE_PADS:
        with pytest.raises(GraphError, match=r"pads_end=\[-1, -1\] is refused.*rule R7"):
            import_model(path)
    model = import_model(path, lenient=path.name == NEGATIVE_PADS)
    convreg.onnx.check(model)


def reference(node, arrays):
    """Value of a convolution node by PyTorch in float64: an implementation with which ours shares nothing."""
    torch = pytest.importorskip("torch")
    given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    given = {name: value.decode() if isinstance(value, bytes) else list(value) if hasattr(value, "__len__") else value
             for name, value in given.items()}
    first, second = (torch.from_numpy(array.astype(np.float64)) for array in arrays[:2])
    channel_last = given["data_format"] == "NXC"
    if channel_last:
        first = first.movedim(-1, 1)
    if given.get("weights_format", given.get("filter_format")) in ("XIO", "XOI"):
        second = second.movedim((-1, -2), (0, 1))
    stride, dilation, groups = given["strides"], given["dilations"], given["groups"]
    count = len(stride)
    begin, end = given["pads_begin"], given["pads_end"]

    def padded(x):
        sides = [side for axis in reversed(range(count)) for side in (begin[axis], end[axis])]
        return torch.nn.functional.pad(x, sides)

    def conv(x, w):
        return getattr(torch.nn.functional, f"conv{count}d")(padded(x), w, None, stride, 0, dilation, groups)

    def gradient(of, shape, other, upstream):
        variable = torch.zeros(shape, dtype=torch.float64, requires_grad=True)
        result = conv(variable, other) if of == "data" else conv(other, variable)
        return torch.autograd.grad(result, variable, upstream)[0]

    match node.op_type:
        case "Convolution" | "ConvTransposeBackwardData":
            result = conv(first, second)
        case "ConvolutionBackwardWeights":
            result = gradient("weights", given["weights_shape"], first, second)
        case "ConvTransposeBackwardWeights":
            result = gradient("weights", given["weights_shape"], second, first)
        case "ConvTranspose":
            extents = [s * (y - 1) + (k - 1) * d + 1 - b - e for s, y, k, d, b, e in
                       zip(stride, first.shape[2:], second.shape[2:], dilation, begin, end, strict=True)]
            result = gradient("data", (first.shape[0], second.shape[1] * groups, *extents), second, first)
        case _:
            shape = given.get("dst_shape", given.get("output_shape"))
            shape = [shape[0], shape[-1], *shape[1:-1]] if channel_last else shape
            result = gradient("data", shape, second, first)
            result = result.movedim(1, -1) if channel_last else result
    return result.numpy()


@pytest.mark.parametrize("path", SINGLE, ids=lambda path: path.name)
def test_vendor_files_run(path):
    model = import_model(path, lenient=path.name == NEGATIVE_PADS)
    feeds = {}
    for value in model.graph.input:
        dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        # A bf16 result must hold every sum exactly: sparse ones keep the sums below 256.
        integers = RNG.integers(-4, 5, shape) if dtype == np.float32 else RNG.integers(0, 33, shape) // 32
        feeds[value.name] = integers.astype(dtype)
    (result,) = convreg.onnx.run(model, feeds).values()
    (node,) = model.graph.node
    np.testing.assert_array_equal(result.astype(np.float64), reference(node, [feeds[name] for name in node.input]))


def shrunk(document, batch, divisor):
    """The same graph on smaller tensors: fewer images, fewer channels."""
    channels = {256: 256 // divisor, 128: 128 // divisor, 512: 512 // divisor}
    for entry in document["graph"]:
        for listed in entry["inputs"] + entry["outputs"]:
            shape = listed["shape"]
            data = shape[0] == 64 and len(shape) == 4 and shape[2] > 3
            listed["shape"] = [batch if data and axis == 0 else channels.get(extent, extent)
                               for axis, extent in enumerate(shape)]
    return document


@pytest.mark.skipif(not FILES, reason="the vendor's files are not present")
def test_vendor_residual_network_runs_on_small_tensors(tmp_path):
    """Convolution, ReLU and Add by PyTorch, layer by layer, exact in float32 because the data are small integers."""
    torch = pytest.importorskip("torch")
    (path,) = [path for path in FILES if "rn50" in path.name]
    document = shrunk(json.loads(path.read_text()), 1, 64)
    model = import_graph_json(write_graph(tmp_path, document))
    assert [node.op_type for node in model.graph.node].count("Convolution") == 13
    feeds = {}
    for value in model.graph.input:
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        feeds[value.name] = (RNG.integers(0, 8, shape) == 0).astype(np.float32)
    values = {name: torch.from_numpy(array.astype(np.float64)) for name, array in feeds.items()}
    for node in model.graph.node:
        operands = [values[name] for name in node.input]
        if node.op_type == "Convolution":
            given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
            pads = [side for axis in (1, 0) for side in (given["pads_begin"][axis], given["pads_end"][axis])]
            assert (given["data_format"], given["auto_pad"]) == (b"NCX", b"None")
            x = torch.nn.functional.pad(operands[0], pads)
            weights = operands[1] if given["weights_format"] == b"OIX" else operands[1].permute(3, 2, 0, 1)
            values[node.output[0]] = torch.nn.functional.conv2d(
                x, weights, *operands[2:], stride=list(given["strides"]), dilation=list(given["dilations"]))
        else:
            values[node.output[0]] = torch.relu(*operands) if node.op_type == "Relu" else operands[0] + operands[1]
    for name, result in convreg.onnx.run(model, feeds).items():
        expected = values[name].numpy()
        assert np.abs(expected).max() < 2**24
        np.testing.assert_array_equal(result, expected)


def test_minimal_example(tmp_path):
    """The library's worked example: a data gradient with stride 2, then ReLU."""
    document = graph(
        operation(2, "ReLU", [tensor(12, (1, 1, 8))], [tensor(13, (1, 1, 8))]),  # not in topological order
        operation(1, "ConvolutionBackwardData", [tensor(10, (1, 1, 3)), tensor(11, (1, 1, 3))], [tensor(12, (1, 1, 8))],
                  **{**NCX, "strides": [2]}, auto_pad="None", weights_format="OIX", dst_shape=[1, 1, 8]),
        input_ports=[11, 10, 99], output_ports=[12, 77])
    model = import_graph_json(write_graph(tmp_path, document))
    assert [value.name for value in model.graph.input] == ["11", "10"]
    assert [value.name for value in model.graph.output] == ["12", "13"]
    results = convreg.onnx.run(model, {"10": np.array([[[1, 2, 3]]], np.float32),
                                       "11": np.array([[[1, 10, -100]]], np.float32)})
    assert results["12"].tolist() == [[[1, 10, -98, 20, -197, 30, -300, 0]]]
    assert results["13"].tolist() == [[[1, 10, 0, 20, 0, 30, 0, 0]]]


@pytest.mark.parametrize("kind", ["Convolution", "ConvTranspose"])
def test_bias(tmp_path, kind):
    x, w, b = (RNG.integers(-3, 4, shape).astype(np.float32) for shape in ((1, 2, 4), (2, 2, 2), (2,)))
    weights_format = "OIX" if kind == "Convolution" else "IOX"
    extent = 3 if kind == "Convolution" else 5
    document = graph(operation(1, kind, [tensor(0, x.shape), tensor(1, w.shape), tensor(2, b.shape)],
                               [tensor(3, (1, 2, extent))], **NCX, weights_format=weights_format))
    function = convreg.onednn.convolution if kind == "Convolution" else convreg.onednn.conv_transpose
    np.testing.assert_array_equal(run_graph(tmp_path, document, {"0": x, "1": w, "2": b})["3"],
                                  function(x, w, b, **NCX, weights_format=weights_format))


def test_unknown_extents_become_symbols(tmp_path):
    document = graph(operation(1, "ReLU", [tensor(0, (-1, -(2**63), 3))], [tensor(1, (-1, -1, 3))]))
    model = import_graph_json(write_graph(tmp_path, document))
    for value in (model.graph.input[0], model.graph.output[0]):
        dims = [dim.dim_value or dim.dim_param for dim in value.type.tensor_type.shape.dim]
        assert dims == ["d0_0", "d0_1", 3]
    assert convreg.onnx.run(model, {"0": np.full((2, 5, 3), -1, np.float32)})["1"].shape == (2, 5, 3)


def test_unknown_extents_of_convolutions(tmp_path):
    """The batch stays open through every node; a stated shape closes it, and without one a gradient is refused."""
    unknown = operation(1, "Convolution", [tensor(0, (-1, 2, 5)), tensor(1, (4, 2, 3))], [tensor(2, (-1, 4, -1))],
                        **GRADIENT)
    up = operation(2, "ConvolutionBackpropData", [tensor(2, (-1, 4, 3)), tensor(3, (4, 2, 3))],
                   [tensor(4, (-1, -1, -1))], **NCX, filter_format="OIX")
    model = import_graph_json(write_graph(tmp_path, graph(unknown, up)))
    dims = [dim.dim_value or dim.dim_param for dim in model.graph.output[0].type.tensor_type.shape.dim]
    assert dims == ["d0_0", 2, 5]
    feeds = {name: np.ones(shape, np.float32) for name, shape in (("0", (3, 2, 5)), ("1", (4, 2, 3)), ("3", (4, 2, 3)))}
    assert convreg.onnx.run(model, feeds)["4"].tolist() == [[[24, 48, 72, 48, 24]] * 2] * 3
    lost = operation(1, "ConvolutionBackwardData", [tensor(0, (1, 2, 3)), tensor(1, (2, 4, 3))],
                     [tensor(2, (1, 4, -1))], **GRADIENT, dst_shape=TWELVE)
    with pytest.raises(GraphError, match="rule R17"):
        run_graph(tmp_path, graph(lost), {})


GRADIENT = {**NCX, "weights_format": "OIX"}


def gradient(**changes):
    attributes = {name: value for name, value in {**GRADIENT, **changes}.items() if value is not None}
    return operation(1, "ConvolutionBackwardData", [tensor(0, (1, 2, 3)), tensor(1, (2, 4, 3))], [tensor(2, (1, 4, 5))],
                     **attributes)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (operation(1, "SoftPlus", [tensor(0, (2,))], [tensor(1, (2,))]), "operation 1 .SoftPlus. 'op1': this kind"),
        (operation(1, "ReLU", [tensor(0, (2,))], [tensor(1, (2,))], negative_slope=0.5), "attribute 'negative_slope'"),
        (operation(1, "LeakyReLU", [tensor(0, (2,))], [tensor(1, (2,))]), "attribute 'alpha' is missing"),
        (operation(1, "LeakyReLU", [tensor(0, (2,))], [tensor(1, (2,))], alpha="0"), "'alpha' is of type string"),
        (operation(1, "Add", [tensor(0, (2,))], [tensor(1, (2,))]), "1 inputs and 1 outputs"),
        (operation(1, "Add", [tensor(0, (2,)), tensor(1, (3,))], [tensor(2, (2,))]), "Incompatible|differ"),
        (operation(1, "Add", [tensor(0, (2,), "s32"), tensor(1, (2,), "s32")], [tensor(2, (2,), "s32")]), "is s32"),
        (operation(1, "ReLU", [tensor(0, (2,))], [tensor(1, (2,), "f16")]), "FLOAT.* the file says FLOAT16"),
        (operation(1, "ReLU", [tensor(0, (2,))], [tensor(1, (3,))]), r"shape \[2\], the file says \[3\]"),
        (operation(1, "ReLU", [tensor(0, (2,), "undef")], [tensor(1, (2,))]), "dtype 'undef'"),
        (operation(1, "Quantize", [tensor(0, (2,))], [tensor(1, (2,), "s8")], scales=[1.0, 2.0]), "2 scales"),
        (operation(1, "Quantize", [tensor(0, (2,))], [tensor(1, (2,), "s8")], scales=[1.0], zps=[200]), "zero points"),
        (operation(1, "StaticReshape", [tensor(0, (2,))], [tensor(1, (3,))], shape=[3], special_zero=False), "."),
        (gradient(pads_begin=[-1]), "rule R7"),
        (gradient(auto_pad="same_upper"), "rule R4"),
        (gradient(strides=None), "rule R1"),
        (gradient(strides=[1.0]), "rule R2"),
        (gradient(groups=[1]), "rule R2"),
        (gradient(filter_shape=[2, 4, 3]), "rule R3"),
        (gradient(strides=[1, 1]), "rule R14"),
        (gradient(dst_shape=[1, 4, 9]), "rule R25"),
        (gradient(strides=[2**62]), "rule"),
        (gradient(filter_format="OIX"), "given twice"),
        (gradient(data_format="NXC"), "rule R22"),
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) else value,
)
def test_what_the_operators_refuse(tmp_path, changed, message):
    with pytest.raises(GraphError, match=message) as caught:
        run_graph(tmp_path, graph(changed), {})
    assert "\n" not in str(caught.value)


def test_lenient_reading_of_negative_pads(tmp_path):
    """The end pad never affects a data gradient of stated shape; the begin pad does."""
    document = graph(operation(1, "ConvolutionBackpropData", [tensor(0, (1, 1, 3)), tensor(1, (1, 1, 1))],
                               [tensor(2, (1, 1, 6))], filter_format="OIX",
                               **{**NCX, "strides": [2], "pads_end": [-1]}))
    with pytest.raises(GraphError, match=r"pads_end=\[-1\] is refused.*rule R7.*`convreg import --lenient`"):
        run_graph(tmp_path, document, {})
    got = run_graph(tmp_path, document, {"0": DY, "1": np.ones((1, 1, 1), np.float32)}, lenient=True)["2"]
    assert got.tolist() == [[[1, 0, 2, 0, 3, 0]]]
    document["graph"][0]["attrs"]["pads_begin"]["value"] = [-1]
    with pytest.raises(GraphError, match="rule R7"):
        run_graph(tmp_path, document, {}, lenient=True)


def test_names_of_operations_stay(tmp_path):
    """Names are those of the file, numbered where two are equal, and made of kind and id where there is none."""
    shapes = [tensor(number, (2, 3)) for number in range(6)]
    document = graph(*(operation(number, kind, [shapes[number]], [shapes[number + 1]])
                       for number, kind in enumerate(("ReLU", "Exp", "Abs", "Exp", "Abs"))))
    for entry, name in zip(document["graph"], ("n", "n", "", "", "Exp_3"), strict=True):
        entry["name"] = name
    source = import_graph_json(write_graph(tmp_path, document))
    assert [node.name for node in source.graph.node] == ["n", "n_2", "Abs_2", "Exp_3_2", "Exp_3"]
    export_graph_json(source, tmp_path / "again.json")
    assert import_graph_json(tmp_path / "again.json").graph.node == source.graph.node


def test_an_empty_small_side_is_refused_as_in_a_call(tmp_path):
    document = graph(operation(0, "ConvolutionBackwardData", [tensor(0, (1, 2, 0)), tensor(1, (2, 1, 3))],
                               [tensor(2, (1, 1, 2))], **NCX, weights_format="OIX", dst_shape=[1, 1, 2]))
    with pytest.raises(GraphError, match="rule R26"):
        import_graph_json(write_graph(tmp_path, document))
