"""benchdnn's descriptors and batch files: the problems that they state, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from plain_gradients import Windows, filled, outcome, wide

import convreg
from convreg import GraphError
from convreg.golden import cases

CONV = "g2mb3_ic4ih7iw6_oc6oh4ow6_kh3kw2_sh2sw1_ph1pw1_dh0dw1_nlayer"
WINDOWS = Windows((2, 1), (1, 1), (1, 2), 2)
LARGE, SMALL, TAPS = (3, 4, 7, 6), (3, 6, 4, 6), (6, 2, 3, 2)


@pytest.fixture
def batch(tmp_path):
    """Write a batch file and return its path."""
    def write(text, name="batch"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def words(source, **options):
    return [case.name for case in cases(source, **options)]


def test_descriptor_alone_stands_for_both_gradients():
    data, weights = cases(CONV)
    assert (data.op, weights.op) == ("onednn::ConvolutionBackwardData", "onednn::ConvolutionBackwardWeights")
    assert data.attributes["data_format"] == "NCX"
    assert data.attributes["weights_format"] == "OIX"
    assert [(name, operand.shape, operand.format) for name, operand in data.inputs.items()] == [
        ("diff_dst", SMALL, "float32"), ("weights", TAPS, "float32")]
    operands = filled(data)
    expected = WINDOWS.data(operands["diff_dst"], operands["weights"], LARGE)
    assert np.array_equal(outcome(data, operands)["diff_src"], expected)
    operands = filled(weights)
    expected = WINDOWS.weight(operands["src"], operands["diff_dst"], TAPS)
    assert np.array_equal(outcome(weights, operands)["diff_weights"], expected)


@pytest.mark.parametrize("dt", ["f32", "bf16", "bf16:bf16:f32", "f32:bf16:bf16", "f8_e4m3", "f16:f16:f8_e5m2"])
def test_forward_with_bias_rounds_once_to_the_format_of_the_destination(dt):
    (case,) = cases(f"--dir=FWD_B --dt={dt} {CONV}")
    operands = filled(case)
    names = {"f32": "float32", "bf16": "bfloat16", "f16": "float16", "f8_e4m3": "float8_e4m3fn",
             "f8_e5m2": "float8_e5m2"}
    source, weights, destination = (names[part] for part in (dt.split(":") * 3 if ":" not in dt else dt.split(":"))[:3])
    assert [case.inputs[name].format for name in ("src", "weights", "bias")] == [source, weights, "float32"]
    exact = WINDOWS.forward(wide(operands["src"]), wide(operands["weights"]), SMALL)
    exact += wide(operands["bias"])[:, None, None]
    result = outcome(case, operands)["dst"]
    assert np.array_equal(wide(result), wide(convreg.quantize(exact.astype(np.float32), destination)))


@pytest.mark.parametrize("dt", ["f32", "bf16"])
def test_weights_with_bias_gradient(dt):
    (case,) = cases(f"--dir=bwd_wb --dt={dt} {CONV}")
    operands = filled(case)
    result = outcome(case, operands)
    data, gradient = wide(operands["input"]), wide(operands["grad_output"])
    assert sorted(result) == ["grad_bias", "grad_weight"]
    assert result["grad_bias"].dtype == np.float32
    assert np.array_equal(result["grad_bias"], gradient.sum((0, 2, 3)))
    exact = WINDOWS.weight(data, gradient, TAPS)
    assert np.array_equal(wide(result["grad_weight"]), exact if dt == "f32" else wide(exact.astype(
        operands["input"].dtype)))


def test_deconvolution_exchanges_the_sides():
    text = "mb2_ic6ih4oc4kh4sh2ph1_n\"up\""  # the small side has 6 channels
    windows = Windows((2, 2), (1, 1), (1, 1))
    forward, data, weights = cases(f"--deconv --dir=FWD_D,BWD_D,BWD_W {text}")
    assert [case.name for case in (forward, data, weights)] == [
        f"up-{dir}-f32-deconv" for dir in ("FWD_D", "BWD_D", "BWD_W")]
    operands = filled(forward)
    assert np.array_equal(outcome(forward, operands)["dst"], windows.data(
        operands["src"], operands["weights"], (2, 4, 8, 8)))
    operands = filled(data)
    assert np.array_equal(outcome(data, operands)["diff_src"], windows.forward(
        operands["diff_dst"], operands["weights"], (2, 6, 4, 4)))
    operands = filled(weights)
    assert np.array_equal(outcome(weights, operands)["diff_weights"], windows.weight(
        operands["diff_dst"], operands["src"], (6, 4, 4, 4)))
    assert words(f"--dir=FWD_D {text}", deconv=True) == ["up-FWD_D-f32-deconv"]


def test_channels_last():
    (case,) = cases(f"--dir=BWD_D --stag=axb --wtag=xba --dtag=axb {CONV}")
    assert (case.attributes["data_format"], case.attributes["weights_format"]) == ("NXC", "XIO")
    operands = filled(case)
    dy, w = np.moveaxis(operands["diff_dst"], -1, 1), np.moveaxis(operands["weights"], (-1, -2), (0, 1))
    assert np.array_equal(np.moveaxis(outcome(case, operands)["diff_src"], -1, 1), WINDOWS.data(dy, w, LARGE))


def test_lists_are_products_and_options_persist(batch):
    path = batch("""\
        --dir=BWD_D,bwd_w   # a comment
        --dt=f32,bf16 --skip-impl=ref -v5 --alg=AUTO
        mb1_ic2ih4oc2kh3_na   mb1_ic2ih4oc2kh3_nb
        --mb=0,3
        # mb1_ic2ih4oc2kh3_nnot_this
        --dt=f16 mb1_ic2ih4oc2kh3_nc
        --reset
        mb1_ic2ih4oc2kh3_nd
        """)
    both = [f"{name}-{dir}-{dt}" for name in "ab" for dir in ("BWD_D", "BWD_W") for dt in ("f32", "bf16")]
    assert words(path) == [*both, "c-BWD_D-f16", "c-mb3-BWD_D-f16", "c-BWD_W-f16", "c-mb3-BWD_W-f16", "d-FWD_B-f32"]
    found = {case.name: case.inputs for case in cases(path)}
    assert found["c-mb3-BWD_D-f16"]["diff_dst"].shape[0] == 3
    assert found["c-BWD_D-f16"]["diff_dst"].shape[0] == 1


def test_a_backslash_joins_words(batch):
    assert words(batch("--dir=BWD_\\\nD \\\nmb1_ic2ih4oc2kh3_\\\nna\n")) == ["a-BWD_D-f32"]


def test_files_nest_beside_each_other(batch, tmp_path):
    (tmp_path / "inner").mkdir()
    batch("mb1_ic2ih4oc2kh3_ninner --dir=BWD_W --batch=deep", "inner/shapes")
    batch("mb1_ic2ih4oc2kh3_ndeep", "inner/deep")
    outer = batch("--dir=BWD_D --batch=inner/shapes mb1_ic2ih4oc2kh3_nafter --batch=inner/deep")
    assert words(outer) == ["inner-BWD_D-f32", "deep-BWD_W-f32", "after-BWD_W-f32", "deep-BWD_W-f32"]


def test_cases_are_read_when_they_are_asked_for(batch):
    found = cases(batch("--mb=" + ",".join("123456789") * 20 + "\n--dt=f32,f16\nmb1_ic2ih4oc2kh3\nbroken"))
    assert next(found).name == "mb1_ic2ih4oc2kh3-mb1-FWD_B-f32"


@pytest.mark.parametrize(("text", "words"), [
    ("--dir=BWD", "'BWD' of '--dir=BWD' is refused, because it is no direction; needed: FWD_B or FWD_D"),
    ("--dt=s8", "'s8' of '--dt=s8' is refused, because no operator here has that format; needed: f32 or bf16"),
    ("--dt=f64", "'f64'"), ("--dt=f32:f32", "2 formats"), ("--mb=-1", "a batch size"), ("--mb=x", "a batch size"),
    ("--bia-dt=s32", "'s32'"), ("--stag=aBx16b", "'aBx16b'"), ("--stag=axb --wtag=abx mb1_ic2ih4oc2kh3", "different"),
    ("--stag=axb --dtag=abx mb1_ic2ih4oc2kh3", "different orders"),
    ("--attr-post-ops=relu", "because it changes the values"), ("--attr-fpmath=bf16", "strict"),
    ("--attr-scales=src:common:2", "changes the values"), ("--strides=2x1::", "changes"), ("--start=5", "needed: 0"),
    ("--cfg=f32", "'--cfg=f32' is not understood"), ("--drr=BWD_D", "did you mean '--dir'?"),
    ("--dir", "is not understood"), ("--dir=", "is not understood"), ("--ip", "is not understood"),
    ("--match=.*kh3.*", "changes"), ("--skip-impl", "is not understood"),
    ("mb1_ic2ih4oc2", "gives no kh"), ("g3mb1_ic2ih4oc2kh3", "3 groups do not divide"), ("mb1", "no ic and no oc"),
    ("--batch=none", "names no file beside it"), ("--batch=", "names no file"), ("--batch=.", "cannot be read"),
    ("--batch=batch", "is being read already"), ("--dir=BWD_WB --stag=axb --dtag=axb mb1_ic2ih4oc2kh3",
                                                  "channels last"),
    ("--dir=BWD_WB mb1_ic2ih4oc2oh4kh4sh1ph1", "pads that differ"), ("--batch=" + "a" * 5000, "names no file"),
    (f"--mb={'1,' * 999}1 --dt={'f32,' * 999}f32 mb1_ic2ih4oc2kh3", "makes 1000000 cases so far; needed: at most"),
])
def test_refusals_name_file_and_line(batch, text, words):
    path = batch("# one\n" + text)
    with pytest.raises(GraphError) as error:
        list(cases(path))
    message = str(error.value)
    assert words in message
    assert f"{path}, line 2: " in message
    assert "\n" not in message


def test_circle_of_files_is_refused(batch):
    batch("--batch=second", "first")
    batch("--batch=first", "second")
    with pytest.raises(GraphError, match="is being read already; needed: batch files that end"):
        list(cases(batch("--batch=first")))


def test_files_of_other_folders_are_refused(batch, tmp_path):
    """Messages repeat words of the files that they name: a batch file from elsewhere must not name others."""
    secret = tmp_path / "secret"
    secret.write_text("word")
    (tmp_path / "inner").mkdir()
    batch("--batch=../top", "inner/back")
    batch("mb1_ic2ih4oc2kh3", "top")
    (tmp_path / "inner" / "link").symlink_to(secret)
    for text in ("../secret", str(secret), "link", "../inner/../secret"):
        with pytest.raises(GraphError, match="leads out of the folder") as error:
            list(cases(batch(f"--batch={text}", "inner/first")))
        assert "'word'" not in str(error.value)
    assert len(list(cases(batch("--batch=inner/back")))) == 1
    assert len(list(cases(f"--batch={tmp_path / 'inner' / '..' / 'top'}"))) == 2


def test_files_that_fan_out_are_refused(batch):
    for number in range(12):
        batch(f"--batch=fan{number + 1}\n" * 10, f"fan{number}")
    batch("", "fan12")
    with pytest.raises(GraphError, match="is nested file 1001; needed: at most 1000"):
        list(cases(batch("--batch=fan0")))


def test_long_chain_of_files_is_refused(batch):
    for number in range(40):
        batch(f"--batch=file{number + 1}", f"file{number}")
    batch("mb1_ic2ih4oc2kh3", "file40")
    with pytest.raises(GraphError, match="16 files deep"):
        list(cases(batch("--batch=file0")))


def test_binary_content_is_refused(batch, tmp_path):
    path = tmp_path / "binary"
    path.write_bytes(b"--dir=BWD_D \xff\xfe")
    with pytest.raises(GraphError, match="the byte at 12 is not UTF-8 text"):
        list(cases(path))
