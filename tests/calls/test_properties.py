"""Properties over drawn geometry: adjoint identities, layouts, dialects, agreement with onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from drawn import Drawn, convolutions, dyadic, normal, to_layout
from gradient_calls import forward, single, together
from hypothesis import given, settings
from hypothesis import strategies as st
from valid_calls import several

import convreg

SEEDS = st.integers(0, 2**32 - 1)
NCX = {"data_format": "NCX", "weights_format": "OIX"}
IOX = {"data_format": "NCX", "weights_format": "IOX"}


def tensors(case: Drawn, seed: int, make=dyadic, dtype=np.float32) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return make(rng, case.large, dtype), make(rng, case.weights, dtype), make(rng, case.small, dtype)


@given(convolutions(symmetric=True), SEEDS, st.booleans())
def test_gradients_are_adjoint_in_float64(case, seed, transposed):
    x, w, dy = tensors(case, seed, normal, np.float64)
    spec = convreg.onednn.convolution.spec
    y = _forward64(case, x, w)
    data, grad = (dy, x) if transposed else (x, dy)
    dx, dw, db = convreg.aten.convolution_backward(
        grad, data, w, None, case.stride, case.begin, case.dilation, transposed, _slack(case, transposed), case.groups,
        (True, True, True))
    product = np.vdot(y, dy)
    scale = np.vdot(np.abs(_forward64(case, np.abs(x), np.abs(w))), np.abs(dy)) + 1
    assert spec.name == "Convolution"
    assert abs(np.vdot(data, dx) - product) <= 1e-13 * scale
    assert abs(np.vdot(w, dw) - product) <= 1e-13 * scale
    np.testing.assert_allclose(db, grad.sum(axis=(0, *range(2, grad.ndim))), rtol=1e-12, atol=1e-12)


def _slack(case: Drawn, transposed: bool) -> tuple[int, ...]:
    if not transposed:
        return (0,) * len(case.stride)
    axes = zip(case.large[2:], case.small[2:], case.weights[2:], case.stride, case.dilation, case.begin, case.end,
               strict=True)
    return tuple(x - (s * (y - 1) + (k - 1) * d + 1 - pb - pe) for x, y, k, s, d, pb, pe in axes)


def _forward64(case: Drawn, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Convolution written from the relation, tap by tap."""
    count = len(case.stride)
    y = np.zeros(case.small)
    pads = [(0, 0), (0, 0), *zip(case.begin, [e + 64 for e in case.end], strict=True)]
    padded = np.pad(x, pads)
    groups, small = case.groups, case.small[1] // case.groups
    for taps in np.ndindex(*case.weights[2:]):
        window = tuple(slice(t * d, t * d + (n - 1) * s + 1, s) for t, d, n, s in
                       zip(taps, case.dilation, case.small[2:], case.stride, strict=True))
        part = padded[(slice(None), slice(None), *window)]
        for g in range(groups):
            channels = slice(g * case.weights[1], (g + 1) * case.weights[1])
            kernels = w[(slice(g * small, (g + 1) * small), slice(None), *taps)]
            y[:, g * small:(g + 1) * small] += np.moveaxis(np.tensordot(part[:, channels], kernels, ([1], [1])), -1, 1)
    assert y.ndim == count + 2
    return y


@given(convolutions(), SEEDS)
def test_forward_equals_the_relation(case, seed):
    x, w, _ = tensors(case, seed)
    y = convreg.onednn.convolution(x, w, **case.attributes, groups=case.groups, **NCX)
    np.testing.assert_array_equal(y, _forward64(case, x.astype(np.float64), w.astype(np.float64)))


@given(convolutions(), SEEDS, st.sampled_from(["float32", "float16", "bfloat16"]))
def test_dialects_agree(case, seed, name):
    """oneDNN, its transposed siblings, OpenVINO, ATen and Ascend compute the same gradients of the same convolution."""
    from convreg.formats import FORMATS

    x, w, dy = tensors(case, seed, dtype=FORMATS[name].dtype)
    common = {**case.attributes, "groups": case.groups}
    dx = convreg.onednn.convolution_backward_data(dy, w, case.large, **common, **NCX)
    dw = convreg.onednn.convolution_backward_weights(x, dy, case.weights, **common, **NCX)
    y = convreg.onednn.convolution(x, w, **common, **NCX)
    np.testing.assert_array_equal(convreg.onednn.conv_transpose_backward_data(x, w, **common, **IOX), y)
    np.testing.assert_array_equal(
        convreg.onednn.conv_transpose_backward_weights(dy, x, case.weights, **common, **IOX), dw)
    windows = {"conformance": "openvino", "data_format": "NCX", "filter_format": "OIX"}
    np.testing.assert_array_equal(
        convreg.openvino.convolution_backprop_data(dy, w, case.large[2:], **common, **windows), dx)
    grouped = w.reshape(case.groups, -1, *w.shape[1:])
    np.testing.assert_array_equal(
        convreg.openvino.group_convolution_backprop_data(dy, grouped, case.large[2:], **case.attributes), dx)
    pads = [*case.begin, *case.end]
    results = convreg.microsoft.conv_grad(dy, x, w, group=case.groups, strides=case.stride, dilations=case.dilation,
                                          pads=pads)
    np.testing.assert_array_equal(results[0], dx)
    np.testing.assert_array_equal(results[1], dw)
    if case.begin == case.end:
        results = convreg.ascend.convolution_backward(
            dy, x, w, bias_sizes=[dy.shape[1]], stride=case.stride, padding=case.begin, dilation=case.dilation,
            groups=case.groups)
        np.testing.assert_array_equal(results[0], dx)
        np.testing.assert_array_equal(results[1], dw)


@given(convolutions(), SEEDS, st.sampled_from(["NCX", "NXC"]), st.sampled_from(["OIX", "XIO"]))
def test_layouts_are_the_same_numbers(case, seed, data_format, weights_format):
    x, w, dy = tensors(case, seed, normal)
    common = {**case.attributes, "groups": case.groups}
    layout = {"data_format": data_format, "weights_format": weights_format}
    turned = {"data_format": data_format, "weights_format": weights_format.replace("XIO", "XOI").replace("OIX", "IOX")}
    x_, dy_, w_ = to_layout(x, data_format), to_layout(dy, data_format), to_layout(w, weights_format)
    dx = convreg.onednn.convolution_backward_data(dy, w, case.large, **common, **NCX)
    np.testing.assert_array_equal(
        convreg.onednn.convolution_backward_data(dy_, w_, x_.shape, **common, **layout), to_layout(dx, data_format))
    dw = convreg.onednn.convolution_backward_weights(x, dy, case.weights, **common, **NCX)
    np.testing.assert_array_equal(convreg.onednn.convolution_backward_weights(x_, dy_, w_.shape, **common, **layout),
                                  to_layout(dw, weights_format))
    y = convreg.onednn.convolution(x, w, **common, **NCX)
    np.testing.assert_array_equal(
        convreg.onednn.conv_transpose_backward_data(x_, w_, **common, **turned), to_layout(y, data_format))


@given(convolutions(), SEEDS)
def test_page_order_of_grouped_transposed_weights(case, seed):
    """The page prints (IC/groups, OC): the same numbers with the group axis moved to the other channel."""
    x, w, _ = tensors(case, seed)
    g = case.groups
    blocks = w.reshape(g, -1, *w.shape[1:])
    page = np.concatenate(list(blocks), axis=1)
    common = {**case.attributes, "groups": g, **IOX}
    expected = convreg.onednn.conv_transpose_backward_data(x, w, **common)
    np.testing.assert_array_equal(convreg.onednn.conv_transpose_backward_data(x, page, **common), expected)
    turned = {**common, "weights_format": "XOI"}
    np.testing.assert_array_equal(
        convreg.onednn.conv_transpose_backward_data(x, to_layout(page, "XOI"), **turned), expected)


@given(convolutions(), SEEDS, st.sampled_from(["float32", "float16", "bfloat16"]))
def test_results_are_the_rounded_float64_reference(case, seed, name):
    from convreg.formats import FORMATS

    x, w, dy = tensors(case, seed, normal, FORMATS[name].dtype)
    common = {**case.attributes, "groups": case.groups, **NCX}
    for function, arguments, shape in (
        (convreg.onednn.convolution_backward_data, (dy, w), case.large),
        (convreg.onednn.convolution_backward_weights, (x, dy), case.weights),
    ):
        exact = function.reference(*arguments, shape, **common)
        got = function(*arguments, shape, **common)
        magnitude = function.reference(*map(np.abs, arguments), shape, **common)
        terms = max(np.prod(case.weights), np.prod(case.small))
        bound = 2.0**-23 * (4 + np.sqrt(terms)) * magnitude + np.abs(np.spacing(exact.astype(got.dtype))).astype(float)
        assert (np.abs(got.astype(np.float64) - exact) <= bound).all()


@pytest.mark.parametrize("op_type", ["Conv", "ConvTranspose"])
def test_forward_agrees_with_onnxruntime(op_type):
    onnxruntime = pytest.importorskip("onnxruntime")

    @settings(max_examples=40)
    @given(convolutions(), SEEDS)
    def check(case, seed):
        x, w, dy = tensors(case, seed)
        data, ours = ((x, convreg.onednn.convolution(x, w, **case.attributes, groups=case.groups, **NCX))
                      if op_type == "Conv" else
                      (dy, convreg.onednn.convolution_backward_data(dy, w, case.large, **case.attributes,
                                                                    groups=case.groups, **NCX)))
        extra = {} if op_type == "Conv" else {"output_padding": _slack(case, True)}
        node = onnx.helper.make_node(op_type, ["x", "w"], ["y"], strides=case.stride, dilations=case.dilation,
                                     pads=[*case.begin, *case.end], group=case.groups, **extra)
        infos = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
                 for name, shape in (("x", data.shape), ("w", w.shape), ("y", None))]
        model = onnx.helper.make_model(onnx.helper.make_graph([node], "one", infos[:2], infos[2:]), ir_version=10,
                                       opset_imports=[onnx.helper.make_opsetid("", 22)])
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        (theirs,) = session.run(None, {"x": data, "w": w})
        np.testing.assert_array_equal(ours, theirs)

    check()


def _wild(seed: int):
    """Numbers of many magnitudes, now and then one that is infinite or NaN."""
    rng = np.random.default_rng(seed)

    def make(shape):
        values = rng.standard_normal(shape) * 2.0 ** rng.integers(-60, 60, shape)
        odd = rng.random(shape) < rng.choice([0, 0, 0.02])
        return np.where(odd, rng.choice([np.inf, np.nan], shape), values).astype(np.float32)

    return make


@given(convolutions(symmetric=True), SEEDS, st.booleans())
def test_references_have_the_bits_of_the_plain_loops(case, seed, transposed):
    make = _wild(seed)
    for call in [*single(case, make), *forward(case, make), *together(case, make, (True, True, True), transposed)]:
        operator = convreg.get(call.name)
        with np.errstate(all="ignore"):
            got = several(operator.reference(*call.tensors, **call.arguments))
            with convreg.force_algorithm("reference"):
                expected = several(operator.reference(*call.tensors, **call.arguments))
        for found, plain in zip(got, expected, strict=True):
            assert found.dtype == np.float64
            same = found.view(np.uint64) == plain.view(np.uint64)
            assert (same | (np.isnan(found) & np.isnan(plain))).all(), call.name
