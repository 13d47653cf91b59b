"""Windows of OpenVINO's layers, with pads and rounding as its runtime has them, and bounds of its slices.

The expected values are those of a plain model of the runtime, which agrees with OpenVINO 2026.4.1 on thousands of drawn
layers; where the package is installed, it is asked itself.
"""

from __future__ import annotations

import random
from itertools import product

import numpy as np
import pytest
from convreg.tools.onnx_io import import_ir
from model_files import IR
from releases import not_before

import convreg.onnx
from convreg import GraphError

onnxruntime = pytest.importorskip("onnxruntime")


def text(values) -> str:
    return ",".join(map(str, values))


def run(folder, ir: IR, **feeds):
    path = ir.write(folder)
    (result,) = convreg.onnx.run(import_ir(path), feeds, engine="onnxruntime").values()
    return result


def layer(folder, kind, x, *constants, outputs=1, opset="opset1", element="f32", **attributes):
    ir = IR()
    operands = [ir.parameter("x", text(x.shape), element), *(ir.constant(value) for value in constants)]
    made = ir.layer(kind, operands, outputs, opset=opset, **attributes)
    ir.result(made if outputs == 1 else made[0])
    return run(folder, ir, x=x)


# ---------------------------------------------------------------------------------------------------------------------
# Poolings


def pads_and_count(extent, kernel, stride, dilation, mode, begin, end, rounding):
    """The pads and the number of windows of one axis."""
    reach = (kernel - 1) * dilation + 1
    if mode == "valid":
        begin = end = 0
    elif mode != "explicit":
        total = max((-(-extent // stride) - 1) * stride + reach - extent, 0)
        begin, end = total // 2, total - total // 2
        if mode == "same_lower":
            begin, end = end, begin
    room = extent + begin + end - reach
    if room < 0:
        return begin, end, None
    if rounding == "floor":
        return begin, end, room // stride + 1
    count = -(-room // stride) + 1
    if rounding == "ceil_torch" and (count - 1) * stride >= extent + begin:
        count -= 1
    return begin, end, count


def pooled(x, kernel, stride, dilation, mode, begin, end, rounding, excluded):
    """What the runtime makes of a pooling, None where it refuses; `excluded` None is MaxPool."""
    axes = [pads_and_count(*entry, rounding) for entry in zip(
        x.shape[2:], kernel, stride, dilation, [mode] * len(kernel), begin, end, strict=True)]
    if any(count is None for *_, count in axes):
        return None
    if excluded is False and not any(first or last for first, last, _ in axes):
        excluded = True
    elif excluded and any(max(first, last) >= size for (first, last, _), size in zip(axes, kernel, strict=True)):
        return None
    result = np.full((*x.shape[:2], *(count for *_, count in axes)), np.finfo(np.float32).min, np.float64)
    for place in product(*(range(count) for *_, count in axes)):
        seen = [[position for tap in range(size) if 0 <= (position := index * step - first + tap * apart) < extent]
                for index, (first, _, _), size, step, apart, extent in zip(
                    place, axes, kernel, stride, dilation, x.shape[2:], strict=True)]
        values = x[(slice(None), slice(None), *np.ix_(*seen))].reshape(*x.shape[:2], -1)
        if excluded is None:
            result[(..., *place)] = values.max(-1, initial=np.finfo(np.float32).min)
        elif excluded and not values.shape[-1]:
            return None  # no mean; the runtime gives 0 or NaN
        else:
            result[(..., *place)] = values.sum(-1) / (values.shape[-1] if excluded else np.prod(kernel))
    return result


def drawn_poolings(kind: str, count: int):
    rng = random.Random(f"{kind} 5")
    for _ in range(count):
        axes = rng.choice([1, 1, 2, 2, 3])
        lists = {name: [rng.randint(1, 4) for _ in range(axes)] for name in ("kernel", "strides")}
        for name in ("pads_begin", "pads_end"):
            lists[name] = [rng.choice([0, 0, 1, 2]) for _ in range(axes)]
        dilated = kind == "MaxPool" and rng.random() < 0.4
        lists["dilations"] = [rng.choice([1, 2, 3]) if dilated else 1 for _ in range(axes)]
        mode = rng.choice(["explicit", "valid", "same_upper", "same_lower"])
        yield ((rng.randint(1, 2), rng.randint(1, 3), *(rng.randint(1, 9) for _ in range(axes))), lists, mode,
               rng.choice(["floor", "ceil", "ceil_torch"]), None if kind == "MaxPool" else rng.choice([True, False]))


@pytest.mark.parametrize("kind", ["MaxPool", pytest.param("AvgPool", marks=not_before(
    "onnxruntime", (1, 32), "divides averages by other counts where pads are automatic"))])
def test_drawn_poolings(tmp_path, kind):
    values = np.random.default_rng(3)
    refused = done = 0
    for shape, lists, mode, rounding, excluded in drawn_poolings(kind, 120):
        x = values.integers(-12, 5, shape).astype(np.float32)
        attributes = {name: text(entries) for name, entries in lists.items() if name != "dilations"}
        expected = pooled(x, lists["kernel"], lists["strides"], lists["dilations"], mode, lists["pads_begin"],
                          lists["pads_end"], rounding, excluded)
        settings = {"auto_pad": mode, "rounding_type": rounding, **attributes}
        if kind == "MaxPool":
            settings |= {"dilations": text(lists["dilations"]), "index_element_type": "i64", "axis": "0"}
        else:
            settings["exclude_pad"] = str(excluded).lower()
        where = f"{shape} {settings}"
        outputs, opset = (2, "opset14") if kind == "MaxPool" else (1, "opset14")
        if expected is None:
            with pytest.raises(GraphError, match=r"the kernel covers|a window lies in the pads"):
                layer(tmp_path, kind, x, outputs=outputs, opset=opset, **settings)
            refused += 1
        else:
            got = layer(tmp_path, kind, x, outputs=outputs, opset=opset, **settings)
            assert got.shape == expected.shape, where
            np.testing.assert_allclose(got, expected, rtol=1e-6, err_msg=where)
            done += 1
    assert min(done, refused) > 10


def test_rounding_up_without_pads(tmp_path):
    """Two windows, of which the second has one element: the runtime gives as many."""
    x = np.array([[[1, 2, 3, 4], [8, 7, 6, 5]]], np.float32)
    for mode in ("valid", "explicit"):
        settings = {"kernel": "3", "strides": "2", "pads_begin": "0", "pads_end": "0", "auto_pad": mode,
                    "rounding_type": "ceil"}
        np.testing.assert_array_equal(layer(tmp_path, "MaxPool", x, **settings), [[[3, 4], [8, 6]]])
        for excluded in ("true", "false"):
            got = layer(tmp_path, "AvgPool", x, exclude_pad=excluded, **settings)
            np.testing.assert_array_equal(got, [[[2, 3.5], [7, 5.5]]])


@pytest.mark.parametrize("mode", ["same_upper", "same_lower"])
def test_automatic_pads_are_written_out(tmp_path, mode):
    ir = IR()
    x = ir.parameter("x", "1,2,4,5")
    taps = ir.constant(np.ones((3, 2, 2, 3), np.float32))
    grouped = ir.constant(np.ones((2, 1, 1, 2, 3), np.float32))
    window = {"strides": "1,2", "pads_begin": "7,7", "pads_end": "7,7", "auto_pad": mode}
    ir.result(ir.layer("Convolution", [x, taps], dilations="2,1", **window))
    ir.result(ir.layer("GroupConvolution", [x, grouped], dilations="2,1", **window))
    ir.result(ir.layer("MaxPool", [x], kernel="3,3", **window))
    ir.result(ir.layer("AvgPool", [x], kernel="3,3", exclude_pad="true", **window))
    made = import_ir(ir.write(tmp_path))
    nodes = [node for node in made.graph.node if node.op_type in ("Conv", "MaxPool", "AveragePool")]
    assert len(nodes) == 4
    for node in nodes:
        stated = {attribute.name: list(attribute.ints) for attribute in node.attribute}
        assert "auto_pad" not in stated
        assert stated["pads"] == [1, 1, 1, 1]


def test_extents_that_are_not_known(tmp_path):
    def imported(kind, **attributes):
        ir = IR()
        x = ir.parameter("x", "1,2,?,?")
        if kind == "Convolution":
            taps = ir.constant(np.ones((3, 2, 3, 3), np.float32))
            ir.result(ir.layer(kind, [x, taps], dilations="1,1", **attributes))
        else:
            ir.result(ir.layer(kind, [x], kernel="3,3", **attributes))
        return import_ir(ir.write(tmp_path))

    window = {"strides": "2,2", "pads_begin": "1,1", "pads_end": "1,1"}
    x = np.random.default_rng(0).integers(-9, 9, (1, 2, 7, 6)).astype(np.float32)
    for mode in ("explicit", "valid", "same_upper", "same_lower"):
        expected = pooled(x, [3, 3], [2, 2], [1, 1], mode, [1, 1], [1, 1], "floor", None)
        made = imported("MaxPool", auto_pad=mode, **window)
        (got,) = convreg.onnx.run(made, {"x": x}, engine="onnxruntime").values()
        np.testing.assert_array_equal(got, expected)
        imported("Convolution", auto_pad=mode, **window)
    for stride in ("4,4", "2,4"):
        with pytest.raises(GraphError, match="auto_pad is 'same_upper', and the extents of the data are not known"):
            imported("MaxPool", auto_pad="same_upper", **{**window, "strides": stride})
    with pytest.raises(GraphError, match="rounding_type is 'ceil', and the extents of the data are not known"):
        imported("MaxPool", auto_pad="explicit", rounding_type="ceil", **window)
    unit = {**window, "strides": "1,1"}
    expected = pooled(x, [3, 3], [1, 1], [1, 1], "same_lower", [0, 0], [0, 0], "ceil", None)
    (got,) = convreg.onnx.run(imported("MaxPool", auto_pad="same_lower", rounding_type="ceil", **unit), {"x": x},
                              engine="onnxruntime").values()
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(("changed", "words"), [
    ({"strides": "1,0"}, r"strides \[1, 0\] are not positive"), ({"kernel": "0,2"}, "are not positive"),
    ({"pads_end": "0,-1"}, r"pads \[0, 0\], \[0, -1\] are negative"),
    ({"kernel": "9,2"}, "the kernel covers 9 elements"),
    ({"rounding_type": "round"}, "rounding_type is 'round'"), ({"auto_pad": "same"}, "auto_pad is 'same'"),
    ({"pads_begin": "0"}, "do not have an entry per spatial axis"), ({"kernel": ""}, "do not have an entry"),
    ({"pads_end": "2,0", "exclude_pad": "true"}, "a window lies in the pads as a whole, and pads do not count"),
])
def test_poolings_that_are_refused(tmp_path, changed, words):
    settings = {"kernel": "2,2", "strides": "1,1", "pads_begin": "0,0", "pads_end": "0,0", "exclude_pad": "false"}
    with pytest.raises(GraphError, match=words):
        layer(tmp_path, "AvgPool", np.ones((1, 2, 5, 6), np.float32), **{**settings, **changed})


# ---------------------------------------------------------------------------------------------------------------------
# Slices


X = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
MOST = np.iinfo(np.int32).max


@pytest.mark.parametrize(("begin", "end", "strides", "masks", "expected"), [
    ([2], [3], [1], {"begin_mask": "1", "shrink_axis_mask": "1"}, X[0]),
    ([-1], [0], [2], {"begin_mask": "1", "end_mask": "1", "shrink_axis_mask": "1"}, X[0]),
    ([1, -1], [0, 0], [1, 1], {"begin_mask": "0,1", "shrink_axis_mask": "1,1"}, X[1, 0]),
    ([-1, 1], [0, 3], [1, 1], {"shrink_axis_mask": "1,0"}, X[2, 1:3]),
    ([-9], [-9], [-1], {}, X[:1]),
    ([-9], [MOST], [-1], {}, X[:0]),
    ([7], [MOST], [-1], {}, X[:0]),
    ([9, 0], [-9, 9], [-2, 3], {}, X[::-2, ::3]),
    ([0, 5], [0, -9], [1, -1], {"end_mask": "1,0"}, X[:, ::-1]),
    ([0, 0], [0, 0], [-1, 1], {"begin_mask": "1,1", "end_mask": "1,1"}, X[::-1]),
    ([0, 1], [0, 3], [1, 1], {"new_axis_mask": "1,0"}, X[None, 1:3]),
    ([-2, 7], [5, 9], [1, 1], {}, X[1:, :0]),
])
def test_strided_slices(tmp_path, begin, end, strides, masks, expected):
    masks = {"begin_mask": text([0] * len(begin)), "end_mask": text([0] * len(begin)), **masks}
    for integer in (np.int64, np.int32):
        bounds = [np.array(entries, integer) for entries in (begin, end, strides)]
        got = layer(tmp_path, "StridedSlice", X, *bounds, **masks)
        np.testing.assert_array_equal(got, expected, strict=True)
        plain = convreg.onnx.run(import_ir(tmp_path / "model.xml"), {"x": X}, engine="reference")
        np.testing.assert_array_equal(next(iter(plain.values())), expected, strict=True)


@pytest.mark.parametrize(("begin", "masks", "words"), [
    ([7], {"shrink_axis_mask": "1"}, "begin is 7 on axis 0 of 3 elements, which is dropped"),
    ([-4], {"shrink_axis_mask": "1", "begin_mask": "1"}, "begin is -4 on axis 0 of 3 elements"),
    ([1], {"shrink_axis_mask": "0,1"}, r"shrink_axis_mask \[0, 1\] is set beyond the 1 entries of begin"),
    ([1], {"new_axis_mask": "0,1"}, r"new_axis_mask \[0, 1\] is set beyond"),
    ([1], {"ellipsis_mask": "1"}, "ellipsis_mask is not known"),
])
def test_strided_slices_that_are_refused(tmp_path, begin, masks, words):
    one = np.array([1])
    with pytest.raises(GraphError, match=words):
        layer(tmp_path, "StridedSlice", X, np.array(begin), one, one, **{"begin_mask": "0", "end_mask": "0", **masks})


@pytest.mark.parametrize(("bounds", "expected"), [
    (([-9], [-MOST], [-2]), X[:1]), (([7], [MOST], [-1]), X[:0]), (([1], [MOST], [1], [-1]), X[:, :, 1:]),
    (([9, 1], [-9, 9], [-1, 2], [2, 0]), X[1::2, :, ::-1]), (([-1, -9], [3, -9], [1, -2], [0, 1]), X[2:3, :1]),
])
def test_slices(tmp_path, bounds, expected):
    got = layer(tmp_path, "Slice", X, *map(np.array, bounds), opset="opset8")
    np.testing.assert_array_equal(got, expected, strict=True)


def test_slices_that_are_refused(tmp_path):
    for bounds, words in ((([0], [1], [1], [3]), "axes"), (([0, 1], [1], [1]), "not of one length")):
        with pytest.raises(GraphError, match=words):
            layer(tmp_path, "Slice", X, *map(np.array, bounds), opset="opset8")


# ---------------------------------------------------------------------------------------------------------------------
# Other layers that looked right and were not


def test_negative_pads_take_away_what_positive_ones_made(tmp_path):
    x = np.array([1, 2, 3, 4], np.float32)
    got = layer(tmp_path, "Pad", x, np.array([-2]), np.array([2]), opset="opset12", pad_mode="reflect")
    np.testing.assert_array_equal(got, [3, 4, 3, 2])
    got = layer(tmp_path, "Pad", x, np.array([-5]), np.array([3]), np.array(9, np.float32), opset="opset12",
                pad_mode="constant")
    np.testing.assert_array_equal(got, [9, 9])
    with pytest.raises(GraphError, match="a reflecting pad is 4 on an axis of 4 elements"):
        layer(tmp_path, "Pad", x, np.array([0]), np.array([4]), pad_mode="reflect")


def test_no_axes_squeeze_all_of_one(tmp_path):
    x = np.ones((1, 3, 1), np.float32)
    assert layer(tmp_path, "Squeeze", x, np.array([], np.int64)).shape == (3,)
    assert layer(tmp_path, "Squeeze", x).shape == (3,)


def test_axes_named_twice_are_reduced_once(tmp_path):
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    got = layer(tmp_path, "ReduceSum", x, np.array([1, -1, 1]), keep_dims="true")
    np.testing.assert_array_equal(got, [[3], [12]])


def test_slopes_of_the_last_axis(tmp_path):
    x = -np.ones((2, 4, 3), np.float32)
    slopes = np.array([1, 2, 3], np.float32)
    np.testing.assert_array_equal(layer(tmp_path, "PReLU", x, slopes), x * slopes)
    slopes = np.array([1, 2, 3, 4], np.float32)
    np.testing.assert_array_equal(layer(tmp_path, "PReLU", x, slopes), x * slopes[:, None])


@pytest.mark.parametrize("element", [np.uint8, np.int8])
def test_8_bit_sums_saturate(tmp_path, element):
    name, limits = ("u8" if element == np.uint8 else "i8"), np.iinfo(element)
    x = np.array([1, 100, 120], element)
    other = np.array([2, 100, 120], element)
    for kind, function in (("Add", np.add), ("Subtract", np.subtract), ("Multiply", np.multiply)):
        ir = IR()
        ir.result(ir.layer(kind, [ir.parameter("x", "3", name), ir.constant(other, name)], auto_broadcast="numpy"))
        expected = np.clip(function(x.astype(np.int64), other), limits.min, limits.max).astype(element)
        np.testing.assert_array_equal(run(tmp_path, ir, x=x), expected, strict=True)


def test_a_vector_times_transposed_matrices(tmp_path):
    rng = np.random.default_rng(1)
    matrices = rng.integers(-4, 5, (3, 4, 2)).astype(np.float32)
    vector = rng.integers(-4, 5, 4).astype(np.float32)
    got = layer(tmp_path, "MatMul", matrices, vector, transpose_a="true", transpose_b="true")
    np.testing.assert_array_equal(got, matrices.swapaxes(1, 2) @ vector)
    got = layer(tmp_path, "MatMul", rng.integers(-4, 5, 2).astype(np.float32) * 0 + 1, matrices, transpose_a="true",
                transpose_b="true")
    np.testing.assert_array_equal(got, matrices.sum(-1))


@pytest.mark.parametrize(("kind", "constants", "settings", "words"), [
    ("VariadicSplit", (np.array(0), np.array([-1, 4])), {}, "lengths .* do not fit the axis"),
    ("VariadicSplit", (np.array(0), np.array([-1, -1])), {}, "lengths .* do not fit the axis"),
    ("Gather", (np.array([0, -1]), np.array(0)), {"opset": "opset7"}, "an index is -1; allowed: at least 0"),
    ("SoftMax", (), {}, "attribute 'axis' is missing"),
    ("SoftMax", (), {"axis": "-1"}, "axis is -1; allowed: at least 0, negative ones from opset8 on"),
    ("Add", (np.ones((3, 1), np.float32),), {"auto_broadcast": "none"}, "differ with auto_broadcast 'none'"),
    ("Less", (np.ones(3, np.float32),), {"auto_broadcast": "none"}, "differ with auto_broadcast 'none'"),
    ("FakeQuantize", tuple(np.array(bound, np.float32) for bound in (1, -1, 0, 1)), {"levels": "4"},
     "an input_low is above its input_high"),
])
def test_what_is_refused_by_name(tmp_path, kind, constants, settings, words):
    outputs = 2 if kind == "VariadicSplit" else 1
    with pytest.raises(GraphError, match=words):
        layer(tmp_path, kind, np.ones((3, 3), np.float32), *constants, outputs=outputs, **settings)


def test_bounds_of_8_bit_clamps_are_whole(tmp_path):
    x = np.array([0, 3, 9], np.uint8)
    np.testing.assert_array_equal(layer(tmp_path, "Clamp", x, element="u8", min="1", max="4"), [1, 3, 4])
    with pytest.raises(GraphError, match="allowed for 8-bit integers: whole numbers"):
        layer(tmp_path, "Clamp", x, element="u8", min="0.25", max="4")


@pytest.mark.parametrize("kind", ["MaxPool", "AvgPool"])
def test_the_runtime_itself(tmp_path, kind):
    openvino = pytest.importorskip("openvino")
    core, values = openvino.Core(), np.random.default_rng(4)
    for shape, lists, mode, rounding, excluded in drawn_poolings(kind, 40):
        x = values.integers(-12, 5, shape).astype(np.float32)
        expected = pooled(x, lists["kernel"], lists["strides"], lists["dilations"], mode, lists["pads_begin"],
                          lists["pads_end"], rounding, excluded)
        if expected is None:
            continue
        settings = {name: text(entries) for name, entries in lists.items() if name != "dilations"}
        settings |= ({"dilations": text(lists["dilations"]), "index_element_type": "i64", "axis": "0"}
                     if kind == "MaxPool" else {"exclude_pad": str(excluded).lower()})
        ir = IR()
        made = ir.layer(kind, [ir.parameter("x", text(shape))], 1 + (kind == "MaxPool"), opset="opset14", auto_pad=mode,
                        rounding_type=rounding, **settings)
        ir.result(made if kind == "AvgPool" else made[0])
        compiled = core.compile_model(ir.write(tmp_path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        np.testing.assert_allclose(compiled([x])[0], expected, rtol=1e-6)
