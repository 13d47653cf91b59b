"""What every rule makes of the same attributes, from Python and from the command line."""

from __future__ import annotations

from functools import partial

import numpy as np
import onnx
import pytest
from convreg.tools.cli import main
from drawn import convolutions
from graphs import data_gradient, model, value
from hypothesis import given, settings
from hypothesis import strategies as st

import convreg
import convreg.onnx
from convreg import GraphError, OpError, OpTypeError, UnknownOp

ONE = {"strides": [1], "pads_begin": [0], "pads_end": [0], "dilations": [1], "data_format": "NCX"}
EVEN = ((1, 2, 6), (2, 3, 4), (1, 3, 6))


def same(mode: str, **arguments):
    return convreg.explain("onednn::ConvolutionBackwardData", *EVEN, **{**ONE, "weights_format": "OIX",
                                                                       "auto_pad": mode, **arguments})


@pytest.mark.parametrize(("mode", "page", "library"), [("SAME_UPPER", (2, 1), (1, 2)), ("SAME_LOWER", (1, 2), (2, 1))])
def test_the_worked_table_of_the_vendors_split(mode, page, library):
    told = same(mode)
    assert [told["document"].begin, told["document"].end] == [(page[0],), (page[1],)]
    assert [told["library"].begin, told["library"].end] == [(library[0],), (library[1],)]
    begins = {(reading.operator, reading.conformance): reading.begin[0] for reading in told.neighbours}
    assert begins == {("openvino::ConvolutionBackpropData", "document"): page[0],
                      ("openvino::ConvolutionBackpropData", "openvino"): page[0],
                      ("microsoft::ConvGrad", "onnxruntime"): library[0],
                      ("onnx::ConvTranspose", "with output_shape"): library[0]}


def test_a_refusal_names_its_rule():
    told = same("same_upper")
    assert told["document"].accepted
    assert not told["library"].accepted
    assert told["library"].rule == "R4"
    assert told["library"].axes == ()
    assert "did you mean 'SAME_UPPER'" in str(told)
    with pytest.raises(KeyError):
        told["openvino"]


def test_the_table():
    lines = str(same("SAME_UPPER")).splitlines()
    assert lines[0].split() == ["rule", "verdict", "results", "pad", "before", "pad", "after", "large", "side", "small",
                                "side", "kernel"]
    assert lines[1].split() == ["onednn::ConvolutionBackwardData", "document", "accepted", "1,3,6", "2", "1", "6", "6",
                                "4"]
    assert lines[3] == "neighbours:"
    assert len(lines) == 8


def test_arrays_stand_for_their_shapes():
    arrays = [np.zeros(shape, np.float16) for shape in EVEN[:2]]
    told = convreg.explain("onednn::ConvolutionBackwardData", *arrays, dst_shape=EVEN[2], **ONE, weights_format="OIX",
                           auto_pad="VALID")
    assert told["document"].rule == told["library"].rule == "R25"
    told = convreg.explain("onednn::ConvolutionBackwardWeights", *[np.zeros((1, 2, 6), np.float16)] * 2, [2, 2, 1],
                           **ONE, weights_format="OIX")
    assert told["library"].outputs[0].format == "float16"


def test_ascend_products_side_by_side():
    told = convreg.explain("ascend::ConvolutionBackward", (1, 3, 3), (1, 3, 5), (3, 3, 3), stride=[1], padding=[0],
                           dilation=[1], dtypes={"weight": "bfloat16"})
    assert [reading.conformance for reading in told.readings] == list(
        convreg.ascend.convolution_backward.spec.conformances)
    assert told["atlas-910"].rule == "E05"
    assert told["atlas-910"].refusal.status == 161002
    assert told["atlas-a2"].outputs[1].format == "bfloat16"
    assert told.neighbours == ()


def test_without_a_stated_shape():
    told = convreg.explain("openvino::GroupConvolutionBackpropData", (1, 2, 3), (2, 1, 1, 3), strides=[2],
                           pads_begin=[0], pads_end=[0], dilations=[1], auto_pad="same_upper")
    assert told["openvino"].outputs[0].shape == (1, 2, 7)
    shapes = {reading.operator: reading.outputs[0].shape for reading in told.neighbours}
    assert shapes == {"openvino::ConvolutionBackpropData": (1, 2, 7), "onnx::ConvTranspose": (1, 2, 6)}


@pytest.mark.parametrize(("stated", "changes", "argument"), [
    (None, {"output_padding": [1]}, "output_padding"),
    (None, {"output_padding": [-1]}, "output_padding"),
    ([5], {"output_padding": [5], "auto_pad": "same_upper"}, "output_padding"),
    (None, {"pads_begin": [3], "pads_end": [2]}, "X"),
    (None, {"pads_end": [-2]}, "pads"),
    ([0], {"auto_pad": "same_upper"}, "X"),
], ids=str)
def test_what_conv_transpose_refuses(stated, changes, argument):
    """OpenVINO accepts the calls; onnx's inference refuses the negative pads, and onnxruntime all of them."""
    window = {"strides": [1], "pads_begin": [0], "pads_end": [0], "dilations": [1], "data_format": "NCX",
              "filter_format": "OIX", **changes}
    told = convreg.explain("openvino::ConvolutionBackpropData", (1, 1, 3), (1, 1, 3), stated, **window)
    assert told["openvino"].accepted
    refused = told.neighbours[-1]
    assert refused.operator == "onnx::ConvTranspose"
    assert refused.refusal.argument == argument
    assert f"{refused.conformance}: {refused.refusal}" in str(told)


@settings(max_examples=40)
@given(convolutions(), st.sampled_from(["None", "SAME_UPPER", "SAME_LOWER", "VALID"]))
def test_verdicts_are_the_operators(case, mode):
    """Accepted or refused exactly as the call itself, with the same rule and shape."""
    dy, w = np.zeros(case.small, np.float32), np.zeros(case.weights, np.float32)
    arguments = {**case.attributes, "groups": case.groups, "auto_pad": mode, "data_format": "NCX",
                 "weights_format": "OIX"}
    told = convreg.explain("ConvolutionBackwardData", case.small, case.weights, case.large, **arguments)
    for reading in told.readings:
        call = partial(convreg.onednn.convolution_backward_data, dy, w, case.large, **arguments,
                       conformance=reading.conformance)
        if reading.accepted:
            assert reading.outputs[0].shape == call().shape
            assert len(reading.axes) == len(case.stride)
        else:
            with pytest.raises(OpError) as caught:
                call()
            assert caught.value.rule == reading.rule


@pytest.mark.parametrize(("format", "accepted"), [
    ("float32", True), ("bfloat16", True), ("hifloat8", False), ("float8_e4m3fn", False)])
def test_conv_transpose_has_four_formats(format, accepted):
    told = convreg.explain(
        "onednn::ConvolutionBackwardData", (1, 2, 6), (2, 3, 4), (1, 3, 9), dtypes=format, strides=[1], pads_begin=[0],
        pads_end=[0], dilations=[1], data_format="NCX", weights_format="OIX")
    found = next(reading for reading in told.neighbours if reading.operator == "onnx::ConvTranspose")
    assert (found.refusal is None) == accepted
    assert accepted or f"X='{format}' is refused; allowed: float32 or float64" in str(told)


def test_what_is_no_call():
    with pytest.raises(UnknownOp):
        convreg.explain("Convolute")
    with pytest.raises(OpTypeError, match="padding"):
        convreg.explain("onednn::ConvolutionBackwardData", *EVEN, padding=[1])
    with pytest.raises(OpTypeError):
        convreg.explain("onednn::ConvolutionBackwardData", "1,2,6", *EVEN[1:], **ONE)
    missing = convreg.explain("onednn::ConvolutionBackwardData", EVEN[0], **ONE)
    assert {reading.rule for reading in missing.readings} == {"R8"}


def saved(tmp_path, **attributes):
    made = model([data_gradient(["dy", "w"], dst_shape=[1, 3, 8, 8], **{"auto_pad": "SAME_UPPER", **attributes}),
                  data_gradient(["dx", "v"], "dz", "second", dst_shape=[1, 2, 8, 8])],
                 [value("dy", ["N", 4, 8, 8]), value("w", [4, 3, 4, 4]), value("v", [3, 2, 3, 3])],
                 [value("dz", [1, 2, 8, 8])])
    made.graph.value_info.append(value("dx", [1, 3, 8, 8]))
    path = tmp_path / "model.onnx"
    onnx.save(made, path)
    return path


def test_nodes_of_a_model(tmp_path):
    told = convreg.onnx.explain_nodes(saved(tmp_path))
    first, second = told
    assert first == "convreg.onednn::ConvolutionBackwardData node 'gradient'"
    assert told[first]["document"].begin == (2, 2)
    assert told[second]["document"].begin == (1, 1)
    assert list(convreg.onnx.explain_nodes(saved(tmp_path), "dz")) == [second]
    with pytest.raises(GraphError, match="no convreg node called 'third'"):
        convreg.onnx.explain_nodes(saved(tmp_path), "third")
    with pytest.raises(GraphError, match="name=array"):
        convreg.onnx.explain_nodes(saved(tmp_path), np.array(["dz", "dx"]))


def test_a_refused_node_is_explained_all_the_same(tmp_path):
    told = convreg.onnx.explain_nodes(saved(tmp_path, auto_pad="VALID"), "gradient")
    (reading,) = told.values()
    assert [entry.rule for entry in reading.readings] == ["R25", "R25"]


def test_command_line_explains_a_call(capsys):
    assert main(["explain", "ConvolutionBackwardData", "--shape", "diff_dst=1,2,6", "--shape", "weights=2,3,4",
                 *(part for text in ("dst_shape=1,3,6", "strides=1", "pads_begin=0", "pads_end=0", "dilations=1",
                                     "auto_pad=SAME_UPPER", "data_format=NCX", "weights_format=OIX")
                   for part in ("--set", text))]) == 0
    assert capsys.readouterr().out == f"{same('SAME_UPPER')}\n"


def test_command_line_reads_every_kind(capsys):
    assert main(["explain", "ascend::ConvolutionBackward", "--shape", "gradOutput=1,3,3", "--shape", "input=1,3,5",
                 "--shape", "weight=3,3,3", "--dtype", "float16", "--dtype", "weight=bfloat16",
                 *(part for text in ("stride=1", "padding=0", "dilation=1", "transposed=false", "groups=1",
                                     "outputMask=1,true,0") for part in ("--set", text))]) == 0
    out = capsys.readouterr().out
    assert "ascend::ConvolutionBackward document   accepted" in out
    assert "weight='bfloat16'" in out


ASCEND = ("ascend::ConvolutionBackward", *(part for text in ("stride=1", "padding=0", "dilation=1", "outputMask=1,0,0")
                                           for part in ("--set", text)),
          "--shape", "input=1,1,5", "--shape", "weight=2,1,3")


@pytest.mark.parametrize("shape", ["gradOutput", "grad_output"])
@pytest.mark.parametrize("dtype", ["gradOutput", "grad_output"])
def test_command_line_takes_both_spellings(shape, dtype, capsys):
    call = [*ASCEND, "--shape", f"{shape}=1,2,3", "--dtype", f"{dtype}=hifloat8"]
    assert main(["explain", *call]) == 0
    told = convreg.explain("ascend::ConvolutionBackward", (1, 2, 3), (1, 1, 5), (2, 1, 3), stride=[1], padding=[0],
                           dilation=[1], output_mask=[True, False, False], dtypes={dtype: "hifloat8"})
    assert [told[name].rule for name in ("document", "ascend950", "atlas-a2")] == [None, "E11", "E05"]
    assert capsys.readouterr().out == f"{told}\n"
    assert main(["algorithm", *call]) == 0
    assert capsys.readouterr().out.startswith("backward_data: ")


@pytest.mark.parametrize("verb", ["explain", "algorithm"])
@pytest.mark.parametrize(("arguments", "message"), [
    (["--dtype", "nonsense=bfloat16"], "--dtype nonsense=bfloat16: allowed: FORMAT, or PORT=FORMAT with one of "
     "grad_output, input, weight"),
    (["--dtype", "gradoutput=bfloat16"], "(did you mean 'grad_output'?)"),
    (["--dtype", "=bfloat16"], "allowed: FORMAT"),
    (["--set", "threads=2"], "--set threads=2: allowed: one of grad_output, input, weight,"),
    (["--set", "dtypes=float16"], "--set dtypes=float16: allowed: one of"),
    (["--set", "out=1"], "--set out=1: allowed: one of"),
    (["--set", "strid=1"], "(did you mean 'stride'?)"),
    (["--set", "conformance=nope"], "conformance='nope' is refused; allowed: 'document' or 'ascend950'"),
    (["--dtype", "input=float16", "--dtype", "input=float32"], "the format of input is given twice"),
    (["--dtype", "float16", "--dtype", "float32"], "the format of all inputs is given twice"),
    (["--shape", "gradOutput=1,2,3", "--shape", "grad_output=1,2,4"], "--shape grad_output=1,2,4: grad_output is given "
     "twice"),
    (["--set", "output_mask=1,1,1"], "--set output_mask=1,1,1: output_mask is given twice"),
    (["--set", "input=1"], "input is given twice"),
    *((["--shape", f"gradOutput={text}"], f"--shape gradOutput={text}: allowed: integers with commas")
      for text in ("1,,3", "1,2,3,", ",1,2,3", "1_0,2,3", "\u0661,2,3")),
    (["--set", "biasSizes=1,"], "--set biasSizes=1,: allowed: integers with commas"),
    (["--shape", "gradOutput=1,2,-3"], "without an extent below 0")])
def test_command_line_refuses_what_it_cannot_mean(verb, arguments, message, capsys):
    assert main([verb, *ASCEND, *arguments]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["explain", "algorithm"])
@pytest.mark.parametrize("text", ["nope", "input=nope", "", "hf32", "int8", "f32"])
def test_command_line_knows_the_formats(verb, text, capsys):
    with pytest.raises(SystemExit) as caught:
        main([verb, *ASCEND, "--shape", "gradOutput=1,2,3", "--dtype", text])
    assert caught.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    format = text.rpartition("=")[2]
    assert f"argument --dtype: no number format named {format!r}; allowed: float64, float32, " in captured.err


def test_formats_that_exist():
    for dtypes in ("nope", {"weights": "nope"}, "f4", ""):
        with pytest.raises(OpError, match=r"dtypes='\w*' is refused; allowed: float64 or float32 or .* or hifloat8"):
            same("VALID", dtypes=dtypes)
    for name in ("int8", "uint4", "float8_e4m3fnuz", "object", "hifloat8"):  # dtypes of arrays, which a rule refuses
        assert {reading.rule for reading in same("VALID", dtypes=name).readings} == {"R10"}


def test_options_of_a_call_are_checked():
    assert str(same("VALID", conformance="library", threads=2)) == str(same("VALID"))
    for options, message in (({"conformance": "nope"}, "conformance='nope' is refused; allowed: 'document'"),
                             ({"threads": 0}, "threads=0 is refused"), ({"threads": "2"}, "threads='2' is refused"),
                             ({"out": np.zeros((1, 3, 6), np.float32)}, "out='given' is refused; allowed: None")):
        with pytest.raises(OpError, match=message):
            same("VALID", **options)


def test_names_of_tensors_in_dtypes():
    for dtypes, message in (({"nonsense": "float16"}, "dtypes={'nonsense': 'float16'} is refused; allowed: a mapping"),
                            ({"dst_shape": "float16"}, "names of diff_dst, weights,"),
                            ({"weights": 16}, "the name of a format"), (16, "the name of a format")):
        with pytest.raises(OpTypeError, match=message):
            same("VALID", dtypes=dtypes)
    with pytest.raises(OpTypeError, match="one format for grad_output"):
        convreg.explain("ascend::ConvolutionBackward", dtypes={"gradOutput": "float16", "grad_output": "float32"})
    with pytest.raises(OpError, match=r"src=\[-1, 1, 5\] is refused; allowed: .* without an extent below 0"):
        convreg.explain("onednn::Convolution", (-1, 1, 5), (2, 1, 3), **ONE, weights_format="OIX")


@pytest.mark.parametrize("name", ["step.pb", "step", "ConvolutionBackwardData.json"])
def test_command_line_reads_a_model_of_any_name(name, tmp_path, capsys):
    path = tmp_path / name
    onnx.save(onnx.load(saved(tmp_path)), path)
    assert main(["explain", str(path), "--node", "second"]) == 0
    assert "second" in capsys.readouterr().out
    path.write_text("# words")
    assert main(["explain", str(path)]) == 1
    assert "not a readable ONNX model" in capsys.readouterr().err


def test_command_line_explains_a_model(tmp_path, capsys):
    assert main(["explain", str(saved(tmp_path)), "--node", "second"]) == 0
    assert capsys.readouterr().out.startswith("convreg.onednn::ConvolutionBackwardData node 'second'\nrule ")


@pytest.mark.parametrize(("arguments", "message"), [
    (["ConvolutionBackwardData", "--shape", "diff_dst"], "--shape diff_dst: allowed: NAME=VALUE"),
    (["ConvolutionBackwardData", "--shape", "diff_dst=a,b"], "allowed: integers with commas"),
    (["ConvolutionBackwardData", "--set", "groups=1,2"], "--set groups=1,2: allowed: an integer"),
    (["ascend::ConvolutionBackward", "--set", "transposed=maybe"], "allowed: true or false"),
    (["ConvolutionBackwardData", "--set", "colour=red"], "colour"),
    (["ConvGrad", "--node", "y"], "--node names a node of a model"),
    (["no.onnx"], "no such file"), (["no.onnx", "--set", "groups=1"], "describe a call")])
def test_command_line_refuses(arguments, message, capsys):
    assert main(["explain", *arguments]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(("verb", "domains"), [
    (["lower"], {""}), (["functions"], {"convreg.onednn"}), (["translate", "--to", "ascend"], {"", "convreg.ascend"}),
    (["translate", "--to", "onednn"], {"convreg.onednn"}), (["translate", "--to", "aten", "--lower-rest"],
                                                           {"", "convreg.aten"})])
def test_command_line_rewrites(verb, domains, tmp_path, capsys):
    target = tmp_path / "out.onnx"
    assert main([*verb, str(saved(tmp_path)), "-o", str(target)]) == 0
    assert capsys.readouterr().out.startswith(f"{target}: ")
    made = onnx.load(target)
    onnx.checker.check_model(made, full_check=True)
    assert {node.domain for node in made.graph.node} == domains
    assert len(made.functions) == (2 if verb == ["functions"] else 0)


def test_command_line_leaves_no_file_where_it_fails(tmp_path, capsys):
    assert main(["lower", str(saved(tmp_path, auto_pad="VALID")), "-o", str(tmp_path / "out.onnx")]) == 1
    assert "R25" in capsys.readouterr().err
    assert main(["translate", "--to", "cudnn", str(saved(tmp_path)), "-o", str(tmp_path / "out.onnx")]) == 1
    assert not (tmp_path / "out.onnx").exists()


def test_refusals_are_a_result_of_the_command(capsys):
    call = ["ConvolutionBackwardData", "--shape", "diff_dst=1,2,6", "--shape", "weights=2,3,4", "--shape",
            "dst_shape=1,4,6", "--set", "strides=1", "--set", "pads_begin=0", "--set", "pads_end=0", "--set",
            "dilations=1", "--set", "data_format=NCX", "--set", "weights_format=OIX"]
    assert main(["explain", *call]) == 0
    assert "accepted" not in capsys.readouterr().out.split("neighbours")[0]
