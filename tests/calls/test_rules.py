"""Every numbered bad-input rule of oneDNN (R1 to R35) and OpenVINO (1 to 26), and where conformances differ."""

from __future__ import annotations

import re

import numpy as np
import pytest

import convreg

onednn, openvino = convreg.onednn, convreg.openvino
F = np.float32
BD, BW, TD, TW = (onednn.convolution_backward_data, onednn.convolution_backward_weights,
                  onednn.conv_transpose_backward_data, onednn.conv_transpose_backward_weights)
BASE = {"strides": [1, 1], "pads_begin": [0, 0], "pads_end": [0, 0], "dilations": [1, 1], "data_format": "NCX"}
# Legal arguments of each gradient: large side (1, 4, 6, 6), small side (1, 8, 4, 4), 3x3 taps.
LARGE, SMALL, WEIGHTS = np.ones((1, 4, 6, 6), F), np.ones((1, 8, 4, 4), F), np.ones((8, 4, 3, 3), F)
LEGAL = {
    BD: ((SMALL, WEIGHTS), {**BASE, "weights_format": "OIX", "dst_shape": [1, 4, 6, 6]}),
    BW: ((LARGE, SMALL), {**BASE, "weights_format": "OIX", "weights_shape": [8, 4, 3, 3]}),
    TD: ((LARGE, WEIGHTS), {**BASE, "weights_format": "IOX"}),
    TW: ((SMALL, LARGE), {**BASE, "weights_format": "IOX", "weights_shape": [8, 4, 3, 3]}),
}
SHAPE = {BD: "dst_shape", BW: "weights_shape", TW: "weights_shape"}
GRADIENTS = [pytest.param(function, id=function.__name__) for function in LEGAL]


def refusal(function, args, kwargs, conformance="library") -> convreg.OpError:
    if conformance in function.spec.conformances:
        kwargs = {"conformance": conformance, **kwargs}
    with pytest.raises(convreg.OpError) as caught:
        function(*args, **kwargs)
    return caught.value


def changed(function, drop=(), **changes):
    args, kwargs = LEGAL[function]
    return args, {name: value for name, value in {**kwargs, **changes}.items() if name not in drop}


@pytest.mark.parametrize("function", GRADIENTS)
@pytest.mark.parametrize("conformance", ["document", "library"])
def test_the_legal_calls_pass(function, conformance):
    args, kwargs = LEGAL[function]
    extra = {"conformance": conformance} if conformance in function.spec.conformances else {}
    assert function(*args, **kwargs, **extra).dtype == F


ATTRIBUTE_RULES = [
    ("R2", {"strides": [1.0, 1.0]}), ("R2", {"groups": [1]}), ("R2", {"auto_pad": 1}),
    ("R3", {"unknown": 1}), ("R3", {"filter_format": "OIX"}),
    ("R4", {"auto_pad": "SAME"}), ("R5", {"data_format": "NCHW"}), ("R5", {"data_format": "ncx"}),
    ("R6", {"weights_format": "oix"}), ("R7", {"pads_begin": [-1, 0]}), ("R7", {"pads_end": [0, -1]}),
    ("R7", {"pads_end": [0, -1], "auto_pad": "VALID"}),
    ("R14", {"strides": [1]}), ("R14", {"dilations": [1, 1, 1]}), ("R14", {"pads_begin": [0]}),
    ("R14", {"pads_end": [0, 0, 0]}), ("R34", {"pads_begin": []}), ("R34", {"pads_end": []}),
    ("R25", {"pads_end": [1, 1]}), ("R26", {"dilations": [6, 6]}), ("R29", {"strides": [0, 1]}),
    ("R29", {"strides": [-1, 1]}), ("R30", {"dilations": [0, 1]}), ("R31", {"groups": 0}), ("R31", {"groups": -1}),
    ("R33", {"auto_pad": ""}), ("R33", {"data_format": ""}),
]


@pytest.mark.parametrize("conformance", ["document", "library"])
@pytest.mark.parametrize(("rule", "changes"), ATTRIBUTE_RULES, ids=lambda v: str(v).replace(" ", ""))
@pytest.mark.parametrize("function", GRADIENTS)
def test_attribute_rules(function, rule, changes, conformance):
    if rule == "R25" and function is TD:
        pytest.skip("the small side is inferred: any pads fit")
    assert refusal(function, *changed(function, **changes), conformance).rule == rule


@pytest.mark.parametrize("name", ["strides", "pads_begin", "pads_end", "dilations"])
@pytest.mark.parametrize("function", GRADIENTS)
def test_required_attributes_r1(function, name):
    error = refusal(function, *changed(function, drop=[name]))
    assert (error.rule, error.argument) == ("R1", name)
    assert isinstance(error, convreg.OpTypeError)


def test_attributes_of_other_operators_r3():
    for function, name in ((BW, "output_padding"), (BW, "dst_shape"), (TD, "dst_shape"), (TD, "weights_shape"),
                           (TW, "output_padding"), (TW, "dst_shape"), (BD, "weights_shape"), (TD, "output_padding")):
        assert refusal(function, *changed(function, **{name: [0, 0]})).rule == "R3"


@pytest.mark.parametrize("spelling", ["same_upper", "NONE", "none", "explicit", "valid", "Same_Upper"])
def test_library_takes_exact_spellings_only_r4(spelling):
    for function in (BD, BW, TD, TW):
        assert refusal(function, *changed(function, auto_pad=spelling)).rule == "R4"


@pytest.mark.parametrize("spelling", ["None", "none", "NONE", "explicit", "EXPLICIT", "VALID", "valid", "Valid"])
def test_document_takes_any_letter_case(spelling):
    for function in (BD, BW, TD):
        args, kwargs = changed(function, auto_pad=spelling)
        np.testing.assert_array_equal(function(*args, **kwargs), function(*LEGAL[function][0], **LEGAL[function][1]))


def test_weights_formats_of_the_other_family_r6():
    for function, other in ((BD, "IOX"), (BW, "XOI"), (TD, "OIX"), (TW, "XIO")):
        assert refusal(function, *changed(function, weights_format=other)).rule == "R6"


@pytest.mark.parametrize("function", GRADIENTS)
def test_arity_and_formats_r8_to_r13(function):
    args, kwargs = LEGAL[function]
    assert refusal(function, args[:1], kwargs).rule == "R8"
    plain = {name: value for name, value in kwargs.items() if not name.endswith("_shape")}
    assert refusal(function, (*args, None, None), plain).rule == "R8"
    assert refusal(function, args, {**kwargs, "out": (np.zeros(1), np.zeros(1))}).rule == "R9"
    assert refusal(function, [a.astype(np.float64) for a in args], kwargs).rule == "R10"
    assert refusal(function, [a.astype(np.int8) for a in args], kwargs).rule == "R10"
    assert refusal(function, [args[0], args[1].astype(np.float16)], kwargs).rule == "R11"
    shape = function(*args, **kwargs).shape
    assert refusal(function, args, {**kwargs, "out": np.zeros(shape, np.float16)}).rule == "R12"
    if function in SHAPE:
        assert refusal(function, args, {**kwargs, SHAPE[function]: np.array(shape, F)}).rule == "R13"
        assert refusal(function, args, {**kwargs, SHAPE[function]: np.array(shape, np.int64)}).rule == "R13"
        if "document" in function.spec.conformances:
            stated = np.array(shape, np.int64)
            assert function(*args, **{**kwargs, SHAPE[function]: stated}).shape == shape


@pytest.mark.parametrize("conformance", ["document", "library"])
@pytest.mark.parametrize("function", [BD, BW, TW], ids=lambda f: f.__name__)
def test_stated_shapes_r17_to_r20(function, conformance):
    _, kwargs = LEGAL[function]
    name, shape = SHAPE[function], kwargs[SHAPE[function]]
    assert refusal(function, *changed(function, drop=[name]), conformance).rule == "R17"
    assert refusal(function, *changed(function, **{name: [0] * 12}), conformance).rule == "R17"
    assert refusal(function, *changed(function, **{name: shape[:3]}), conformance).rule == "R18"
    assert refusal(function, *changed(function, **{name: [*shape[:3], -6]}), conformance).rule == "R19"
    out = np.zeros([*shape[:3], shape[3] + 1], F)
    assert refusal(function, *changed(function, out=out), conformance).rule == "R20"


def test_twelve_zeros_beside_a_given_output():
    for function in (BD, BW, TW):
        args, kwargs = LEGAL[function]
        expected = function(*args, **kwargs)
        out = np.zeros_like(expected)
        zeros = {**kwargs, SHAPE[function]: [0] * 12}
        np.testing.assert_array_equal(function(*args, **zeros, out=out), expected)


def test_shapes_r15_r16_r21_to_r28():
    assert refusal(BD, (SMALL, WEIGHTS[0]), LEGAL[BD][1]).rule == "R15"
    assert refusal(BW, (LARGE[..., 0], SMALL), LEGAL[BW][1]).rule == "R15"
    flat = {**LEGAL[BD][1], "dst_shape": [1, 4], "strides": [], "dilations": [], "pads_begin": [], "pads_end": []}
    assert refusal(BD, (SMALL[..., 0, 0], WEIGHTS[..., 0, 0]), flat).rule == "R16"
    four = {**LEGAL[TD][1], **{name: [value] * 4 for name, value in
                               (("strides", 1), ("dilations", 1), ("pads_begin", 0), ("pads_end", 0))}}
    assert refusal(TD, (np.ones((1, 4, 3, 3, 3, 3), F), np.ones((8, 4, 1, 1, 1, 1), F)), four).rule == "R16"
    two = np.ones((2, 8, 4, 4), F)
    assert refusal(BD, (two, WEIGHTS), LEGAL[BD][1]).rule == "R21"
    assert refusal(BW, (LARGE, two), LEGAL[BW][1]).rule == "R21"
    assert refusal(BD, (SMALL[:, :7], WEIGHTS), LEGAL[BD][1]).rule == "R22"
    assert refusal(*(BD, *changed(BD, dst_shape=[1, 5, 6, 6]))).rule == "R22"
    assert refusal(TD, (LARGE[:, :3], WEIGHTS), LEGAL[TD][1]).rule == "R22"
    nine = {**LEGAL[BW][1], "groups": 2, "weights_shape": [7, 2, 3, 3]}
    assert refusal(BW, (LARGE, np.ones((1, 7, 4, 4), F)), nine).rule == "R23"
    page = np.ones((4, 4, 3, 3), F)
    assert refusal(TD, (LARGE, page), {**LEGAL[TD][1], "groups": 2}).rule == "R24"
    assert refusal(TD, (LARGE, page), {**LEGAL[TD][1], "groups": 2}).accepted_by == ("document",)
    assert refusal(BD, *changed(BD, dst_shape=[1, 4, 7, 6])).rule == "R25"
    assert refusal(TD, (np.ones((1, 4, 2, 6), F), WEIGHTS), LEGAL[TD][1]).rule == "R26"
    assert refusal(BD, *changed(BD, drop=["data_format"])).rule == "R27"
    assert refusal(BD, (SMALL, WEIGHTS[:, :, :0]), LEGAL[BD][1]).rule == "R28"
    assert refusal(BW, *changed(BW, weights_shape=[8, 4, 3, 0])).rule == "R28"


ODD = {"strides": [1], "pads_begin": [0], "pads_end": [0], "dilations": [1], "data_format": "NCX"}


@pytest.mark.parametrize("conformance", ["document", "library"])
@pytest.mark.parametrize("kernel", [{"taps": 3, "large": 2}, {"taps": 1, "large": 0},
                                    {"taps": 2, "large": 2, "dilations": [3], "strides": [2]}], ids=str)
def test_a_kernel_without_a_position_r26(kernel, conformance):
    """The small side that fits is empty; that a caller states an empty one makes no call of it."""
    line = {**ODD, **{name: value for name, value in kernel.items() if name in ODD}}
    large, small = np.ones((1, 1, kernel["large"]), F), np.ones((1, 2, 0), F)
    weights = np.ones((2, 1, kernel["taps"]), F)
    oix, iox = {**line, "weights_format": "OIX"}, {**line, "weights_format": "IOX"}
    for function, args, kwargs in (
            (BD, (small, weights, large.shape), oix), (BW, (large, small, weights.shape), oix),
            (TD, (large, weights), iox), (TW, (small, large, weights.shape), iox),
            (onednn.convolution, (large, weights), oix), (onednn.conv_transpose, (small, weights), iox)):
        assert refusal(function, args, kwargs, conformance).rule == "R26"


def test_an_empty_batch_has_positions():
    weights = np.ones((2, 1, 3), F)
    oix = {**ODD, "weights_format": "OIX"}
    assert BD(np.ones((0, 2, 3), F), weights, (0, 1, 5), **oix).shape == (0, 1, 5)
    assert not BW(np.ones((0, 1, 5), F), np.ones((0, 2, 3), F), weights.shape, **oix).any()


def test_output_padding_r32():
    for extra in ([-1, 0], [0], [0, 0, 0]):
        for conformance in ("document", "library"):
            assert refusal(BD, *changed(BD, output_padding=extra), conformance).rule == "R32"
    args, kwargs = changed(BD, output_padding=[0] * 12)
    np.testing.assert_array_equal(BD(*args, **kwargs), BD(*LEGAL[BD][0], **LEGAL[BD][1]))
    slack = {**LEGAL[TD][1], "strides": [2, 2]}
    for extra in ([1, 1], [0] * 12, None):
        TD(*LEGAL[TD][0], **slack, output_padding=extra)
    for extra in ([0, 0], [2, 2], [1], [-1, 1]):
        assert refusal(TD, LEGAL[TD][0], {**slack, "output_padding": extra}, "document").rule == "R32"
    overhang = {**slack, "strides": [2, 7], "dilations": [1, 4], "output_padding": [1, 0]}  # 9 elements over 6
    error = refusal(TD, LEGAL[TD][0], overhang, "document")
    assert (error.rule, error.allowed) == (
        "R32", "none, because the kernel exceeds the padded diff_dst by 3 on spatial axis 1")
    TD(*LEGAL[TD][0], **{**overhang, "output_padding": None})
    forward = {**LEGAL[TD][1], "strides": [2, 2]}
    assert onednn.conv_transpose(SMALL, WEIGHTS, **forward, output_padding=[1, 0]).shape == (1, 4, 10, 9)
    for extra in ([2, 0], [0, 3], [-1, 0]):
        assert refusal(onednn.conv_transpose, (SMALL, WEIGHTS), {**forward, "output_padding": extra}).rule == "R32"


def test_a_third_input_is_supported_r35():
    stated = np.array([1, 4, 6, 6], np.int32)
    args, kwargs = changed(BD, drop=["dst_shape"])
    for conformance in ("document", "library"):
        assert BD(*args, stated, **kwargs, conformance=conformance).shape == (1, 4, 6, 6)
    assert refusal(BD, (*args, stated[None]), kwargs).rule == "R18"


@pytest.mark.parametrize(("mode", "page", "library"), [("same_upper", 2, 1), ("same_lower", 1, 2)])
def test_the_odd_element_of_same_goes_where_the_conformance_says(mode, page, library):
    dy, w = np.float32([[[1, 2, 3, 4, 5, 6]]]), np.float32([[[1, 10, 100, 1000]]])

    def explicit(begin):
        pads = {"pads_begin": [begin], "pads_end": [3 - begin]}
        return BD(dy, w, [1, 1, 6], **{**ODD, **pads}, weights_format="OIX")

    same = {**ODD, "weights_format": "OIX"}
    np.testing.assert_array_equal(BD(dy, w, [1, 1, 6], **same, auto_pad=mode), explicit(page))
    np.testing.assert_array_equal(
        BD(dy, w, [1, 1, 6], **same, auto_pad=mode.upper(), conformance="library"), explicit(library))


def test_output_padding_counts_in_the_total_of_the_page():
    dy, w = np.float32([[[1, 2, 3]]]), np.float32([[[1, 10, 100]]])
    call = {**ODD, "strides": [2], "weights_format": "OIX", "auto_pad": "same_lower"}
    # total = 2*2 + 3 - 6 + output_padding: 1 without, 2 with one element of padding
    assert BD(dy, w, [1, 1, 6], **call).tolist() == [[[1, 10, 102, 20, 203, 30]]]
    assert BD(dy, w, [1, 1, 6], **call, output_padding=[1]).tolist() == [[[10, 102, 20, 203, 30, 300]]]


WINDOW = {**BASE, "filter_format": "OIX", "conformance": "openvino"}
CBD, GROUP = openvino.convolution_backprop_data, openvino.group_convolution_backprop_data
DATA, FILTER = np.ones((1, 4, 3, 3), F), np.ones((4, 2, 3, 3), F)
OPENVINO_RULES = {
    "1": ((DATA[:, :2], FILTER), {}), "2": ((DATA, FILTER[0]), {}),
    "3": ((DATA[..., 0, 0], FILTER[..., 0, 0]), {}),
    "4": ((np.ones((1, 4, 1, 1, 1, 1), F), np.ones((4, 2, 1, 1, 1, 1), F)), {}),
    "5": ((DATA, FILTER), {"strides": [1]}), "6": ((DATA, FILTER), {"dilations": [1, 1, 1]}),
    "7": ((DATA, FILTER), {"pads_end": [0]}), "8": ((DATA, FILTER), {"output_padding": [0]}),
    "9": ((DATA, FILTER), {"strides": [0, 1]}), "10": ((DATA, FILTER), {"dilations": [1, 0]}),
    "11": ((DATA, FILTER), {"strides": [-1, 1]}), "12": ((DATA, FILTER), {"pads_begin": [-1, 0]}),
    "13": ((DATA, FILTER), {"pads_begin": [3, 3], "pads_end": [3, 0]}),
    "14": ((DATA, FILTER, np.array([5.0, 5.0])), {}), "15": ((DATA, FILTER, [1, 2, 5, 5]), {}),
    "16": ((DATA, FILTER, np.array([[5, 5]])), {}), "17": ((DATA, FILTER, [-1, 5]), {}),
    "18": ((DATA, FILTER), {"auto_pad": "notset"}), "19": ((DATA > 0, FILTER > 0), {}),
    "20": ((DATA, FILTER.astype(np.float16)), {}), "26": ((DATA, FILTER[:, :, :0]), {}),
}


@pytest.mark.parametrize("rule", OPENVINO_RULES)
def test_openvino_rules(rule):
    args, changes = OPENVINO_RULES[rule]
    assert refusal(CBD, args, {**WINDOW, **changes}).rule == rule


@pytest.mark.parametrize(("name", "where"), [
    ("pads_begin", "at least 0 under 'document'"), ("pads_end", "at least 0 under 'document'"),
    ("output_padding", "at least 0 under 'document'"), ("strides", "at least 1"), ("dilations", "at least 1")])
def test_the_texts_say_under_which_rule_a_bound_holds(name, where):
    def allowed(function):
        entry = re.search(rf"^{name} : .*\n((?:    .*\n)+)", function.__doc__, re.MULTILINE)[1]
        return " ".join(entry.split()).partition(" Allowed: ")[2].removesuffix(".")

    assert allowed(CBD) == where
    assert allowed(GROUP) == (where if "under" not in where else "")  # it has the runtime's rule only


@pytest.mark.parametrize("spelling", ["none", "NONE", "same", ""])
def test_openvino_spellings_18(spelling):
    assert refusal(CBD, (DATA, FILTER), {**WINDOW, "auto_pad": spelling}).rule == "18"
    CBD(DATA, FILTER, **{**WINDOW, "auto_pad": "Explicit"})


def test_openvino_grouped_rules_21_and_22():
    lists = {name: BASE[name] for name in ("strides", "pads_begin", "pads_end", "dilations")}
    grouped = FILTER.reshape(2, 2, 2, 3, 3)
    assert GROUP(DATA, grouped, **lists).shape == (1, 4, 5, 5)
    assert refusal(GROUP, (DATA, FILTER), lists).rule == "21"
    assert refusal(GROUP, (DATA[:, :3], grouped), lists).rule == "22"


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "int4", "uint4"])
def test_openvino_types_that_the_runtime_refuses_23_24(name):
    import ml_dtypes

    dtype = getattr(ml_dtypes, name)
    error = refusal(CBD, (DATA.astype(dtype), FILTER.astype(dtype)), WINDOW)
    assert isinstance(error, convreg.OpTypeError)
    assert error.rule == ("23" if name.startswith("float8") else "24")


def test_openvino_accepts_what_the_runtime_accepts():
    def extent(**changes):
        return CBD(DATA, FILTER, **{**WINDOW, **changes}).shape[2:]

    assert extent() == (5, 5)
    assert extent(pads_end=[-2, 0]) == (7, 5)
    assert extent(pads_begin=[4, 0]) == (1, 5)
    assert extent(pads_begin=[3, 0], pads_end=[2, 0]) == (0, 5)
    assert extent(output_padding=[5, -1]) == (10, 4)
    assert extent(pads_begin=[-1, 2], auto_pad="valid") == (5, 5)  # the pads that are not read may be negative
    assert extent(pads_begin=[-1, 0], auto_pad="same_upper", output_shape=[4, 4]) == (4, 4)
    assert extent(output_shape=[0, 99]) == (0, 99)
    assert extent(strides=[], dilations=[], pads_begin=[], pads_end=[]) == (5, 5)
    far = CBD(DATA, FILTER, [99, 5], **WINDOW)
    assert not far[:, :, 5:].any()
    empty = CBD(DATA[:0], FILTER, **WINDOW)
    assert empty.shape == (0, 2, 5, 5)


def test_the_page_of_backprop_data():
    data, weights = np.float32([[[1, 2, 3]]]), np.float32([[[1, 10, 100]]])
    call = {**ODD, "strides": [2], "filter_format": "OIX"}

    def values(*args, **changes):
        return CBD(data, weights, *args, **{**call, **changes}).ravel().tolist()

    full = [1, 10, 102, 20, 203, 30, 300]
    assert values() == full  # the natural size
    assert values([7]) == values([1, 1, 7]) == full  # spatial or full shape
    assert values([8]) == [*full, 0]  # slack below the stride
    assert values([9], output_padding=[2]) == [*full, 0, 0]  # or the output padding
    assert values([9], auto_pad="valid") == [*full, 0, 0]
    assert values([4], auto_pad="valid") == full[:4]
    assert values([6], auto_pad="same_upper") == full[1:]
    assert values([6], auto_pad="SAME_LOWER") == full[:6]
    assert refusal(CBD, (data, weights, [9]), call, "document").rule == "R25"
    assert refusal(CBD, (data, weights, [6]), call, "document").rule == "R25"
    assert refusal(CBD, (data, weights, [1, 2, 7]), call, "document").rule == "R22"
    assert refusal(CBD, (data, weights, [2, 1, 7]), call, "document").rule == "R21"
    assert refusal(CBD, (data, weights, [1, 7]), call, "document").rule == "R18"
    assert refusal(CBD, (data, weights), {**call, "pads_end": [-1]}, "document").rule == "R7"
    assert refusal(CBD, (data, weights, [9]), call, "document").accepted_by == ("openvino",)
    assert refusal(CBD, (np.ones((1, 4, 3), F), np.ones((5, 1, 1), F)), {**call, "groups": 2}, "document").rule == "R23"


@pytest.mark.parametrize("stated", [None, [8]])
def test_a_given_output_states_the_shape_to_the_page_of_backprop_data(stated):
    """Beside a stated shape it must agree; the runtime has the natural size instead."""
    data, weights = np.float32([[[1, 2, 3]]]), np.float32([[[1, 10, 100]]])
    call = {**ODD, "strides": [2], "filter_format": "OIX"}
    out = np.empty((1, 1, 8), F)
    assert CBD(data, weights, stated, **call, out=out) is out
    assert out.ravel().tolist() == [1, 10, 102, 20, 203, 30, 300, 0]
    longer = {**call, "out": np.empty((1, 1, 9 if stated is None else 7), F)}
    assert refusal(CBD, (data, weights, stated), longer, "document").rule == ("R25" if stated is None else "R20")
    assert refusal(CBD, (data, weights, stated), {**call, "out": np.empty((1, 2, 8), F)}, "document").rule == "R20"
    if stated is None:
        assert refusal(CBD, (data, weights), {**call, "out": out}, "openvino").rule == "R20"


def test_only_transposed_weights_have_an_order_r24():
    """Full channels in place of those of a group are a wrong number of channels elsewhere."""
    x, w, grouped = np.ones((1, 4, 3), F), np.ones((4, 4, 1), F), {**ODD, "groups": 2}
    assert refusal(BD, (x, w, [1, 4, 3]), {**grouped, "weights_format": "OIX"}).rule == "R22"
    assert refusal(TD, (x, w), {**grouped, "weights_format": "IOX"}).rule == "R24"


@pytest.mark.parametrize("stated", [True, False])
def test_a_given_output_of_another_rank_r15(stated):
    x, out = np.ones((1, 2, 3), F), np.empty((1, 2, 3, 1), F)
    shape = ([1, 2, 3],) if stated else ()
    assert refusal(BD, (x, np.ones((2, 2, 1), F), *shape), {**ODD, "weights_format": "OIX", "out": out}).rule == "R15"
    weights = ([2, 2, 1],) if stated else ()
    assert refusal(BW, (x, x, *weights), {**ODD, "weights_format": "OIX", "out": out}).rule == "R15"
    for function, order in ((convreg.onednn.convolution, "OIX"), (TD, "IOX")):
        assert refusal(function, (x, np.ones((2, 2, 1), F)), {**ODD, "weights_format": order, "out": out}).rule == "R15"
