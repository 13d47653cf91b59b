"""The values of a model that are bytes of HiFloat8: found behind convreg's nodes and nodes that move elements."""

from __future__ import annotations

import numpy as np
from convreg.tools.formats.carried import code_names
from convreg.tools.tensors import needed
from drawn import normal
from graphs import model, value
from onnx import helper

import convreg
import convreg.onnx

RNG = np.random.default_rng(9)


def test_bytes_around_nodes_that_move_them():
    """Quantize, Concat of bytes with a constant and an input, Pad, Dequantize."""
    constant = convreg.quantize(normal(RNG, (2, 2)), "hifloat8").view(np.uint8)
    nodes = [helper.make_node("Quantize", ["x"], ["a"], domain="convreg", rounding="toward_zero"),
             helper.make_node("Concat", ["a", "c", "given"], ["b"], axis=1),
             helper.make_node("Pad", ["b", "pads"], ["moved"]),
             helper.make_node("Dequantize", ["moved"], ["y"], domain="convreg", operand_types=["hifloat8"])]
    source = model(nodes, [value("x", (2, 3)), value("given", (2, 1), np.uint8)], [value("y", (2, 7))], {
        "c": constant, "pads": np.array([0, 0, 0, 1])})
    source.opset_import.add(domain="convreg", version=1)
    assert code_names(source) == {"a", "b", "c", "given", "moved"}
    assert {name: wanted.format for name, wanted in needed(source).items()} == {"x": "", "given": "hifloat8"}


def test_bytes_that_only_a_node_names():
    """Without any metadata the node alone says what its inputs and outputs are."""
    arrays = [convreg.quantize(normal(RNG, shape), "hifloat8") for shape in ((1, 2, 5, 5), (1, 3, 5, 5), (2, 3, 3, 3))]
    source = convreg.onnx.node_model("ascend::ConvolutionBackward", *arrays, stride=[1, 1], padding=[1, 1],
                                     dilation=[1, 1], output_mask=[True, False, False], as_inputs=True)
    for entry in (*source.graph.input, *source.graph.output):
        del entry.metadata_props[:]
    assert code_names(source) == {"gradOutput", "input", "weight", "gradInput"}
