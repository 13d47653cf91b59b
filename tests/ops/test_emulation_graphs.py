"""Conformance "emulation" and scales in ONNX graphs, files and recorded calls."""

from __future__ import annotations

import itertools

import numpy as np
import onnx.inliner
import pytest
from drawn_scales import drawn_scales
from emulated_calls import CASE, EMULATED, calls, formats_argument, line, run, same, several

import convreg
import convreg.onnx
from convreg.errors import GraphError, OpError


def model_of(call, **more):
    return convreg.onnx.node_model(call.name, *call.tensors, **{**call.arguments, **more}, as_inputs=True)


@pytest.mark.parametrize("engine", ["reference", "onnxruntime"])
@pytest.mark.parametrize("formats", [("hifloat8",) * 3, ("float8_e5m2", "float8_e4m3fn", "float32"),
                                     ("bfloat16", "hifloat8", "float16")])
@pytest.mark.parametrize("name", EMULATED)
def test_nodes_equal_calls(name, formats, engine):
    """Types follow from the rules, and scales are the node's last inputs."""
    if engine == "onnxruntime":
        pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(12)
    call = line(name, formats, rng.standard_normal)
    spec = convreg.get(name).spec
    scales = (None, rng.uniform(1, 2, ()).astype(np.float32), *[None] * (len(spec.scale_ports) - 2))
    for more in ({}, {"scales": scales}, {"scales": scales, **formats_argument(name, "float32")}):
        model = model_of(call, **more)
        convreg.onnx.check(model)
        expected = run(call, **more)
        held = {value.name: value.type.tensor_type.elem_type for value in model.graph.output}
        inferred = convreg.onnx.infer_shapes(model).graph.output
        assert {value.name: value.type.tensor_type.elem_type for value in inferred} == held
        feeds = call.feeds | {port.name: scale for port, scale in zip(spec.scale_ports, scales, strict=True)
                              if scale is not None and "scales" in more}
        assert {value.name for value in model.graph.input} == set(feeds)
        results = convreg.onnx.run(model, feeds, engine=engine)
        for result, plain in zip(results.values(), expected, strict=True):
            same(result, plain)
        again = convreg.onnx.call_of(model, feeds)
        for result, plain in zip(several(again.operator(*again.inputs, **again.attributes)), expected, strict=True):
            same(result, plain)


@pytest.mark.parametrize("engine", ["reference", "onnxruntime"])
def test_nodes_judge_scales_when_they_run(engine):
    if engine == "onnxruntime":
        pytest.importorskip("onnxruntime")
    call = line("onednn::ConvolutionBackwardData", ("float8_e5m2", "hifloat8"))
    session = convreg.onnx.Session(model_of(call, scales=(np.ones(6, np.float32), None)), engine=engine)
    plain = run(call)[0]
    for _ in range(2):
        same(session.run({**call.feeds, "diff_dst_scale": np.ones(6, np.float32)})["diff_src"], plain)
        with pytest.raises(OpError, match=r"diff_dst_scale=0\.0 is refused; allowed: finite numbers above zero"):
            session.run({**call.feeds, "diff_dst_scale": np.zeros(6, np.float32)})


def test_scales_of_the_wrong_length_are_refused_before_a_graph_runs():
    call = line("onednn::ConvolutionBackwardWeights", ("float8_e5m2", "hifloat8"))
    model = model_of(call, scales=(np.ones(4, np.float32), None))
    model.graph.input[2].type.tensor_type.shape.dim[0].dim_value = 5
    with pytest.raises(GraphError, match="src_scale"):
        convreg.onnx.check(model)
    model.graph.node[0].attribute.remove(next(a for a in model.graph.node[0].attribute if a.name == "conformance"))
    with pytest.raises(GraphError):
        convreg.onnx.check(model)


def standard_forms(model):
    """A model in standard nodes, with functions for its nodes, and in another dialect's nodes."""
    yield convreg.onnx.lower(model)
    functions = convreg.onnx.attach_functions(model)
    yield onnx.inliner.inline_local_functions(functions)
    yield convreg.onnx.translate(model, "aten", rest="lower")


@pytest.mark.parametrize("name", EMULATED)
@pytest.mark.parametrize("transposed", [False, True])
def test_standard_forms_take_8_bit_floats_and_scales(name, transposed):
    """Sums of theirs are float32 as ours; scales multiply their operands there."""
    rng = np.random.default_rng(13)
    formats = itertools.cycle(("float8_e5m2", "float8_e4m3fn", "bfloat16"))
    call = calls(CASE, lambda shape: convreg.quantize(rng.standard_normal(shape), next(formats)),
                 transposed=transposed)[name]
    scales, _ = drawn_scales(call, rng, lambda port: "tensor" if port == "input" else "channel")
    chosen = {"scales": scales, **formats_argument(name, "float32")}
    model, expected = model_of(call, **chosen), run(call, **chosen)
    ports = convreg.get(name).spec.scale_ports
    feeds = call.feeds | {port.name: scale for port, scale in zip(ports, scales, strict=True)}
    for made in standard_forms(model):
        for result, exact in zip(convreg.onnx.run(made, feeds).values(), expected, strict=True):
            assert result.dtype == np.float32
            np.testing.assert_allclose(result, exact, rtol=1e-5, atol=1e-4)


def test_no_standard_form_of_chosen_roundings():
    call = line("onednn::ConvolutionBackwardData", ("float8_e5m2", "float8_e4m3fn"))
    with pytest.raises(GraphError, match="rounding"):
        convreg.onnx.lower(model_of(call, rounding="toward_zero"))


def test_explanations_show_the_conformance_where_it_differs():
    shapes = (CASE.small, CASE.weights, CASE.large)
    lists = {**CASE.attributes, "groups": 2, "data_format": "NCX", "weights_format": "OIX"}
    alike = convreg.explain("ConvolutionBackwardData", *shapes, **lists)
    assert [reading.conformance for reading in alike.readings] == ["document", "library"]
    assert alike["emulation"] is alike["document"]
    with pytest.raises(convreg.UnknownOp, match="nowhere"):
        alike["nowhere"]
    (told,) = convreg.onnx.explain_nodes(model_of(line("onednn::ConvolutionBackwardData"), scales=(
        np.ones(6, np.float32), np.float32(2)))).values()
    assert [reading.accepted for reading in told.readings] == [False, False, True]
    narrow = convreg.explain("ConvolutionBackwardData", *shapes, **lists, dtypes="hifloat8")
    assert [reading.accepted for reading in narrow.readings] == [False, False, True]
    assert narrow["emulation"].outputs[0].format == "hifloat8"


def test_files_of_vendors_have_no_such_conformance(tmp_path):
    exporting = pytest.importorskip("convreg.tools.onnx_io")
    for name, suffix, more in (("onednn::ConvolutionBackwardData", ".json", {"output_format": "bfloat16"}),
                               ("openvino::GroupConvolutionBackpropData", ".xml", {"output_format": "bfloat16"})):
        path = tmp_path / f"model{suffix}"
        with pytest.raises(GraphError, match="'emulation'"):
            exporting.export_model(model_of(line(name), **more), path)
        assert not path.exists()


def test_calls_recorded_from_a_model_keep_their_scales():
    """Measured as any other: the scale belongs to the call, the formats are those asked for."""
    rng = np.random.default_rng(14)
    call = line("aten::convolution_backward", ("float32",) * 3, rng.standard_normal)
    scales = (rng.uniform(1, 2, 6).astype(np.float32), None, None)
    feeds = call.feeds | {"grad_output_scale": scales[0]}
    (found,) = convreg.onnx.gradient_calls(model_of(call, scales=scales), feeds).values()
    for result, plain in zip(found.operator(*found.inputs, **found.attributes), run(call, scales=scales), strict=True):
        same(result, plain)
    told = convreg.numerics.compare(found.operator, found.inputs, found.attributes, formats=["float32"], scaled=False)
    assert told.operator == call.name
    assert all(row.error.snr_db > 120 for row in told.rows)
    assert list(told.shapes) == ["grad_output", "input", "weight"]
