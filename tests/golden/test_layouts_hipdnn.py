"""hipDNN's bundles: graphs, sizes, and a second computation from nothing but the files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from golden_cases import ascend_case, data_case, files_of, weights_case

from convreg import GraphError
from convreg.golden import Case, Operand, layouts

GROUPED = Case("grouped", "openvino::GroupConvolutionBackpropData", {
    "data": Operand((1, 4, 5, 4), "float32"), "filter": Operand((2, 2, 3, 3, 2), "float32")}, {
    "strides": [2, 1], "pads_begin": [1, 0], "pads_end": [1, 0], "dilations": [1, 1]})
CONV = Case("forward", "onednn::Convolution", {
    "src": Operand((2, 7, 8, 6), "float32"), "weights": Operand((3, 2, 3, 4), "float32")}, {
    "strides": [1, 2], "pads_begin": [1, 0], "pads_end": [1, 1], "dilations": [1, 1], "groups": 2})
LINE = Case("line", "aten::convolution_backward", {
    "grad_output": Operand((2, 4, 7), "float16"), "input": Operand((2, 6, 7), "float16"),
    "weight": Operand((4, 6, 3), "float16")}, {
    "bias_sizes": None, "stride": [1], "padding": [1], "dilation": [1], "transposed": False, "output_padding": [0],
    "groups": 1, "output_mask": [True, True, False]})


def bundles(root: Path) -> dict[Path, dict]:
    return {path.parent: json.loads(path.read_bytes()) for path in root.glob("quick/*/*/*/*/*.json")
            if not path.name.endswith(".meta.json")}


def arrays(folder: Path, graph: dict) -> dict[int, np.ndarray]:
    """The tensors of a bundle as its graph describes them, in float64."""
    types = {"float": np.float32, "half": np.float16, "double": np.float64}
    found = {}
    for tensor in graph["tensors"]:
        content = (folder / f"{folder.name}.tensor{tensor['uid']}.bin").read_bytes()
        dtype = np.dtype(types[tensor["data_type"]])
        span = 1 + sum((extent - 1) * stride for extent, stride in zip(tensor["dims"], tensor["strides"], strict=True))
        assert len(content) == span * dtype.itemsize  # what hipDNN's verifier demands
        strides = [stride * dtype.itemsize for stride in tensor["strides"]]
        found[tensor["uid"]] = np.lib.stride_tricks.as_strided(
            np.frombuffer(content, dtype), tensor["dims"], strides).astype(np.float64)
    return found


def computed(node: dict, held: dict[int, np.ndarray]) -> np.ndarray:
    """The result of a node from its operands, by its definition: y = sum of x and w, and its two gradients."""
    uids = {name.removesuffix("_tensor_uid"): uid for name, uid in {**node["inputs"], **node["outputs"]}.items()}
    large, small, weights = (held[next(uids[name] for name in names if name in uids)]
                             for names in (("x", "dx"), ("dy", "y"), ("w", "dw")))
    result = next(iter(node["outputs"])).removesuffix("_tensor_uid")
    made = np.zeros_like(held[uids[result]])
    groups = large.shape[1] // weights.shape[1]
    parameters = node["parameters"]
    assert parameters["conv_mode"] == "CROSS_CORRELATION"
    per_group = small.shape[1] // groups
    for out in range(small.shape[1]):
        first = out // per_group * weights.shape[1]
        for y in np.ndindex(small.shape[2:]):
            for tap in np.ndindex(weights.shape[2:]):
                x = tuple(position * stride - pad + t * dilation for position, stride, pad, t, dilation in zip(
                    y, parameters["stride"], parameters["pre_padding"], tap, parameters["dilation"], strict=True))
                if all(0 <= place < extent for place, extent in zip(x, large.shape[2:], strict=True)):
                    channels = slice(first, first + weights.shape[1])
                    here, there, window = (slice(None), out, *y), (slice(None), channels, *x), (out, slice(None), *tap)
                    if result == "dx":
                        made[there] += small[here][:, None] * weights[window]
                    elif result == "y":
                        made[here] += large[there] @ weights[window]
                    else:
                        made[window] += small[here] @ large[there]
    return made


@pytest.mark.parametrize("case", [
    data_case(), weights_case(), weights_case(layout="NCX"), GROUPED, CONV, LINE,
    ascend_case("two", "float32", (True, True, False))], ids=lambda case: case.name)
def test_bundles_state_the_computation(tmp_path, case):
    golden = case.make(fill="integers")
    layouts.write("hipdnn", tmp_path / "root", [golden])
    found = bundles(tmp_path / "root")
    assert len(found) == len(golden.outputs)
    for folder, graph in found.items():
        (node,) = graph["nodes"]
        held = arrays(folder, graph)
        (uid,) = node["outputs"].values()
        np.testing.assert_array_equal(computed(node, held), held[uid])
        for axis, after in enumerate(node["parameters"]["post_padding"]):  # what hipDNN infers of the small side
            large, small, weights = (held[next(each["uid"] for each in graph["tensors"] if each["name"] in names)]
                                     for names in (("x", "dx"), ("dy", "y"), ("w", "dw")))
            whole = large.shape[2 + axis] + node["parameters"]["pre_padding"][axis] + after
            window = (weights.shape[2 + axis] - 1) * node["parameters"]["dilation"][axis] + 1
            assert (whole - window) // node["parameters"]["stride"][axis] + 1 == small.shape[2 + axis]


def test_folders_and_metadata(tmp_path):
    golden = weights_case("res net-50").make()
    layouts.write("hipdnn", tmp_path / "root", [golden, data_case("d", "bfloat16").make()])
    files = files_of(tmp_path / "root")
    (folder,) = (tmp_path / "root" / "quick" / "ConvolutionWrw" / "nhwc" / "fp32").iterdir()
    assert set(folder.name) <= set("abcdefghijklmnopqrstuvwxyz0123456789_")
    assert any(name.startswith("quick/ConvolutionBwd/nchw/bfp16/d/d.tensor2.bin") for name in files)
    meta = json.loads((folder / f"{folder.name}.meta.json").read_bytes())
    assert meta["format_version"] == 1
    assert {"generator", "reference_source", "reference_strategy", "forward_source"} <= meta.keys()
    assert "gpu_architecture" not in meta
    result, exact = golden.outputs["diff_weights"], golden.reference["diff_weights"]
    assert meta["tolerance"]["absolute"] >= abs(result - exact).max()


def test_results(tmp_path):
    golden = ascend_case("two", "float32", (True, True, False)).make()
    layouts.write("hipdnn", tmp_path / "root", [golden])
    (tmp_path / "root" / "manifest.json").unlink()
    found = layouts.read_results(golden, tmp_path / "root", "hipdnn", many=True)
    for name, array in golden.outputs.items():
        np.testing.assert_array_equal(found[name], array, strict=True)
    one = data_case("one").make()
    (tmp_path / "one.tensor2.bin").write_bytes(one.outputs["diff_src"].tobytes())
    np.testing.assert_array_equal(layouts.read_results(one, tmp_path, "hipdnn")["diff_src"], one.outputs["diff_src"])


BIASED = replace(CONV, inputs={**CONV.inputs, "bias": Operand((4,), "float32")})


@pytest.mark.parametrize(("case", "options", "message"), [
    (ascend_case("b", "float32"), {}, "it has a bias"), (BIASED, {}, "it has a bias"),
    (ascend_case("h", "hifloat8", (True, False, False)), {}, "is in hifloat8"),
    (ascend_case("s", "float16", (True, False, False)), {"fill": "special"}, "holds NaN or infinity"),
    (replace(ascend_case("c", "float32", (True, False, False)), attributes={
        **ascend_case(mask=(True, False, False)).attributes, "cube_math_type": 1}), {}, "cubeMathType"),
    (replace(data_case("e", output_format="float16", saturate=True), conformance="emulation"), {}, "saturate is given"),
    (Case("q", "nodes::Quantize", {"x": Operand((3,), "float32")}, {}), {}, "is no convolution"),
    (replace(GROUPED, attributes={**GROUPED.attributes, "output_padding": [4, 0]}), {}, "the extents of its tensors"),
])
def test_what_hipdnn_cannot_state(tmp_path, case, options, message):
    golden = case.make(**options)
    with pytest.raises(GraphError) as caught:
        layouts.write("hipdnn", tmp_path / "root", [golden])
    assert f"case {case.name!r} cannot be written as hipdnn" in str(caught.value)
    assert message in str(caught.value)
    assert not list(tmp_path.iterdir())
