"""torch.ops.convreg: torch's own checks of operators, dtypes, memory orders, and what is refused."""

import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import convreg.torch  # noqa: E402
from convreg.errors import OpError, OpTypeError, UnknownOp  # noqa: E402
from convreg.torch.bridge import DTYPES  # noqa: E402
from convreg.torch.vanishing import VanishedGradients, _warned  # noqa: E402

convolution = torch.ops.convreg.convolution
backward = torch.ops.convreg.convolution_backward
GEOMETRY = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
TRANSPOSED = ([2, 2], [1, 1], [1, 1], True, [1, 1], 2)

pytestmark = pytest.mark.filterwarnings("ignore:.*VariableFunctionsClass.*")


def operands(*, gradients=False, transposed=False):
    torch.manual_seed(0)
    x = torch.randn(2, 4, 5, 5, requires_grad=gradients)
    w = torch.randn(*((4, 3, 3, 3) if transposed else (6, 4, 3, 3)), requires_grad=gradients)
    return x, w, torch.randn(6, requires_grad=gradients)


def gradient(transposed=False):
    return torch.randn(2, 6, *((10, 10) if transposed else (5, 5)))


STOCHASTIC = convreg.torch.recipe("hifloat8", rounding="stochastic").text


@pytest.mark.parametrize("layout", ["contiguous", "channels_last"])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("recipe", ["float32", "hifloat8", "fp8_hybrid", "channel"])
def test_operators_pass_torchs_checks(recipe, transposed, layout):
    x, w, bias = operands(gradients=True, transposed=transposed)
    if layout == "channels_last":
        x = x.detach().to(memory_format=torch.channels_last).requires_grad_()
    text = convreg.torch.recipe("hifloat8", scaling="channel").text if recipe == "channel" else recipe
    geometry = TRANSPOSED if transposed else GEOMETRY
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.library.opcheck(convolution, (x, w, bias, *geometry), {"recipe": text})
        x, w, bias = (tensor.detach() for tensor in (x, w, bias))
        torch.library.opcheck(
            backward, (gradient(transposed), x, w, [6], *geometry, [True, True, True]), {"recipe": text})
        torch.library.opcheck(
            backward, (gradient(transposed), x, w, None, *geometry, [False, True, False]), {"recipe": text})
        if recipe != "fp8_hybrid":  # torch's comparison lacks float8
            torch.library.opcheck(
                torch.ops.convreg.convolution_saving, (x, w, bias, *geometry), {"recipe": text, "keep": [True, True]})


def test_codes_are_taken_as_they_are():
    x, w, _ = operands()
    dy = gradient()
    for format, torch_dtype in (("float8_e4m3fn", torch.float8_e4m3fn), ("float8_e5m2", torch.float8_e5m2),
                                ("hifloat8", torch.uint8), ("bfloat16", torch.bfloat16)):
        arrays = [convreg.quantize(tensor.numpy(), format) for tensor in (dy, x, w)]
        codes = [torch.from_numpy(array.view(f"u{array.itemsize}").view(f"i{array.itemsize}")
                                  if array.itemsize == 2 else array.view(np.uint8)).view(torch_dtype)
                 for array in arrays]
        truth = convreg.aten.convolution_backward(*arrays, None, *GEOMETRY, [True, True, True],
                                                  conformance="emulation", output_formats=["float32"] * 3)
        recipe = convreg.torch.Recipe(input=format, weight=format, grad_output=format).text
        ours = backward(*codes, None, *GEOMETRY, [True, True, True], recipe=recipe, input_dtype=torch.float32,
                        weight_dtype=torch.float32)
        for mine, other in zip(ours, truth, strict=True):
            assert np.array_equal(mine.numpy(), other)
        plain = backward(*codes, None, *GEOMETRY, [True, False, False], input_dtype=torch.float32)
        assert torch.equal(plain[0], ours[0])
        assert plain[1:] == (None, None)
        y = convolution(codes[1], codes[2], None, *GEOMETRY, recipe=recipe)
        assert y.dtype == (torch.float32 if y.dtype.itemsize != 2 else torch.bfloat16)


def test_operands_need_no_particular_strides():
    x, w, bias = operands()
    plain = convolution(x, w, bias, *GEOMETRY, recipe="hifloat8")
    strange = torch.randn(2, 10, 5, 4)[..., ::2].expand(2, 10, 5, 2)[:, :4, :, :1].expand(2, 4, 5, 5)
    assert torch.equal(convolution(strange, w, bias, *GEOMETRY, recipe="hifloat8"),
                       convolution(strange.contiguous(), w, bias, *GEOMETRY, recipe="hifloat8"))
    turned = x.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0)
    assert torch.equal(convolution(turned, w, bias, *GEOMETRY, recipe="hifloat8"), plain)


def test_mixed_dtypes_give_results_in_the_dtype_of_the_input():
    x, w, bias = operands(gradients=True)
    y = convolution(x.bfloat16(), w, bias, *GEOMETRY, recipe="hifloat8")
    assert y.dtype is torch.bfloat16
    y.float().sum().backward()
    assert x.grad.dtype is torch.float32
    assert w.grad.dtype is torch.float32


@pytest.mark.parametrize(("change", "said"), [
    ({"dtype": torch.complex64}, "complex64"), ({"dtype": torch.int32}, "int32"), ({"dtype": torch.float64}, "float64"),
    ({"device": "meta"}, "meta"), ("sparse", "sparse"), ("quantised", "quint8"), ("mkldnn", "mkldnn")])
@pytest.mark.parametrize("where", [0, 1])
def test_tensors_without_a_rule_are_named(change, said, where):
    tensors = list(operands())
    if change == "sparse":
        tensors[where] = tensors[where].to_sparse()
    elif change == "quantised":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tensors[where] = torch.quantize_per_tensor(tensors[where], 0.1, 0, torch.quint8)
    elif change == "mkldnn":
        tensors[where] = tensors[where].to_mkldnn()
    else:
        tensors[where] = tensors[where].to(**change)
    with pytest.raises(OpTypeError) as caught:
        convolution(*tensors, *GEOMETRY, recipe="hifloat8", layer="stem.conv")
    assert said in str(caught.value)
    assert "'stem.conv'" in str(caught.value)
    assert caught.value.argument == ("input", "weight")[where]
    assert "CPU" in caught.value.allowed or "float32" in caught.value.allowed
    with pytest.raises(OpTypeError):
        backward(gradient(), *tensors[:2], None, *GEOMETRY, [True, True, True], recipe="hifloat8")


@pytest.mark.parametrize(("at", "value", "argument"), [
    (0, torch.randn((), requires_grad=True) * 1, "input"),
    (0, torch.randn(2, 3, 5, 5), "input"), (0, torch.randn(2, 5), "input"), (0, torch.randn(2, 4, 5), "input"),
    (2, torch.randn(5), "bias"), (3, [0, 1], "stride"), (4, [-1, 1], "padding"), (5, [0, 1], "dilation"),
    (5, [9, 9], "input"), (3, [1, 1, 1], "stride"), (8, 4, "input"), (8, 0, "groups")])
def test_impossible_geometry_is_refused(at, value, argument):
    arguments = [*operands(), *GEOMETRY]
    arguments[at] = value
    with pytest.raises(OpError) as caught:
        convolution(*arguments, recipe="hifloat8")
    assert caught.value.argument == argument


@pytest.mark.parametrize(("at", "argument"), [(0, "stride"), (1, "padding"), (2, "dilation"), (4, "output_padding")])
def test_a_linear_layer_has_no_lists(at, argument):
    x, w, geometry = torch.ones(2, 3), torch.ones(4, 3), [[], [], [], False, [], 1]
    assert convolution(x, w, None, *geometry).shape == (2, 4)
    geometry[at] = [1]
    for refused in (lambda: convolution(x, w, None, *geometry),
                    lambda: backward(torch.ones(2, 4), x, w, None, *geometry, [True] * 3)):
        with pytest.raises(OpError, match=rf"{argument}=\[1\] is refused; allowed: \[\] with a weight"):
            refused()


@pytest.mark.parametrize("name", ["input_scale", "weight_scale"])
@pytest.mark.parametrize(("scale", "said"), [
    (torch.ones(7), "shape"), (torch.ones(1), "shape"), (torch.tensor(2), "float32"),
    (torch.tensor(1.0, dtype=torch.float64), "float32"), (torch.tensor(0.0), "above zero"),
    (torch.tensor(-2.0), "above zero"), (torch.tensor(np.inf), "finite"), (torch.tensor(np.nan), "finite")])
def test_scales_must_fit(name, scale, said):
    x, w, _ = operands()
    codes = torch.zeros(x.shape, dtype=torch.uint8), torch.zeros(w.shape, dtype=torch.uint8)
    with pytest.raises(OpError, match=said) as caught:
        backward(gradient(), *codes, None, *GEOMETRY, [True, True, True], recipe="hifloat8", **{name: scale})
    assert caught.value.argument == name


@pytest.mark.parametrize("format", ["hifloat8", "float8_e4m3fn", "float8_e5m2", "bfloat16"])
@pytest.mark.parametrize("scales", [(3.0, 1.0), (1.0, 0.7), (2.0, 5.0), (0.1, 0.3), ([1.0, 3.0, 0.7, 2.0], 3.0)])
def test_scales_need_not_be_powers_of_two(scales, format):
    x, w, _ = operands()
    dy = convreg.quantize(gradient().numpy(), "hifloat8")
    arrays = [convreg.quantize(tensor.numpy(), format) for tensor in (x, w)]
    codes = [torch.from_numpy(array.view("i2" if array.itemsize == 2 else "u1")).view(DTYPES[format])
             for array in arrays]
    numbers = [np.asarray(scale, np.float32) for scale in scales]
    truth = convreg.aten.convolution_backward(
        dy, *arrays, None, *GEOMETRY, [True, True, True], conformance="emulation", output_formats=["float32"] * 3,
        scales=(np.asarray(np.float32(1)), *numbers))
    ours = backward(torch.from_numpy(dy.view(np.uint8)), *codes, None, *GEOMETRY, [True, True, True],
                    input_scale=torch.from_numpy(numbers[0]), weight_scale=torch.from_numpy(numbers[1]),
                    input_dtype=torch.float32, weight_dtype=torch.float32)
    for mine, other in zip(ours, truth, strict=True):
        assert np.array_equal(mine.numpy(), other)


@pytest.mark.parametrize("format", ["hifloat8", "float8_e4m3fn", "float8_e5m2"])
def test_codes_of_a_bias_are_taken_as_its_numbers(format):
    x, w, bias = operands()
    codes = convreg.quantize(bias.numpy(), format)
    numbers = torch.from_numpy(convreg.dequantize(codes, format))
    given = torch.from_numpy(codes.view(np.uint8)).view(DTYPES[format])
    assert torch.equal(convolution(x, w, given, *GEOMETRY), convolution(x, w, numbers, *GEOMETRY))


def test_unknown_recipes_are_refused():
    for text in ("hifloat", "{", '{"input":"float9"}', '{"color":1}', "[]"):
        with pytest.raises(UnknownOp):
            convolution(*operands(), *GEOMETRY, recipe=text)


def test_stochastic_recipes_need_a_seed():
    for seed in (None, torch.zeros(2, dtype=torch.int64), torch.zeros(())):
        with pytest.raises(OpTypeError, match="seed"):
            convolution(*operands(), *GEOMETRY, recipe=STOCHASTIC, seed=seed)


def test_a_second_differentiation_is_refused():
    x, w, bias = operands(gradients=True)
    y = convolution(x, w, bias, *GEOMETRY, recipe="hifloat8", layer="deep")
    [dx] = torch.autograd.grad(y.square().sum(), x, create_graph=True)
    with pytest.raises(OpError, match=r"'deep'.*create_graph"):
        dx.sum().backward()


@pytest.mark.parametrize("recipe", ["hifloat8", "bfloat16", "float32"])
@pytest.mark.parametrize("of", ["x", "w", "h"])
def test_a_second_differentiation_is_refused_whatever_the_codes_depend_on(recipe, of):
    """The gradient of a sum needs no gradient itself, and codes have none: autograd would take both for constants."""
    x, w, _ = operands(gradients=True)
    h = x * 2
    y = convolution(h, w, None, *GEOMETRY, recipe=recipe)
    gradients = torch.autograd.grad(y.sum(), [h, w], create_graph=True)
    penalty = sum(gradient.square().sum() for gradient in gradients)
    with pytest.raises(OpError, match="create_graph"):
        torch.autograd.grad(penalty, {"x": x, "w": w, "h": h}[of])


def test_gradients_that_keep_their_graph_are_the_same():
    x, w, bias = operands(gradients=True)
    y = convolution(x, w, bias, *GEOMETRY, recipe="hifloat8").square().sum()
    kept = torch.autograd.grad(y, [x, w, bias], create_graph=True)
    assert all(map(torch.equal, kept, torch.autograd.grad(y, [x, w, bias])))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, of its forward mode
@pytest.mark.parametrize("way", ["jvp", "dual"])
def test_forward_mode_is_refused(way):
    x, w, bias = operands()

    def function(x):
        return convolution(x, w, bias, *GEOMETRY, recipe="hifloat8")

    def dual():
        with torch.autograd.forward_ad.dual_level():
            return function(torch.autograd.forward_ad.make_dual(x, torch.ones_like(x)))

    run = dual if way == "dual" else lambda: torch.func.jvp(function, (x,), (torch.ones_like(x),))
    with pytest.raises(OpError, match="forward-mode"):
        run()


def test_vmap_is_refused():
    x, w, bias = operands()
    with pytest.raises(OpError, match="vmap"):
        torch.vmap(lambda x: convolution(x, w, bias, *GEOMETRY, recipe="hifloat8"))(x[None])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, of its forward mode
def test_transforms_of_functions_are_refused():
    x, w, bias = operands()
    for transform in (torch.func.grad, torch.func.jacrev, torch.func.hessian):
        with pytest.raises(OpError, match=r"torch\.func"):
            transform(lambda x: convolution(x, w, bias, *GEOMETRY, recipe="hifloat8").sum())(x)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_gradients_of_several_directions_are_those_of_each():
    x, w, bias = operands(gradients=True)
    y = convolution(x, w, bias, *GEOMETRY, recipe="fp8_hybrid")
    directions = torch.randn(3, *y.shape)
    [together] = torch.autograd.grad(y, x, directions, is_grads_batched=True, retain_graph=True)
    for direction, gradient in zip(directions, together, strict=True):
        assert torch.equal(torch.autograd.grad(y, x, direction, retain_graph=True)[0], gradient)


def test_gradients_that_vanish_are_named_once_with_the_scale_that_saves_them():
    _warned.clear()
    recipe = convreg.torch.Recipe(grad_output="float8_e4m3fn").text
    x, w, _ = operands()
    dy = gradient() * 1e-7
    with pytest.warns(VanishedGradients, match=r"'stem'.*float8_e4m3fn.*2\*\*(\d+)") as caught:
        grads = backward(dy, x, w, None, *GEOMETRY, [True, True, True], recipe=recipe, layer="stem")
    assert not grads[0].any()
    exponent = int(str(caught[0].message).split("A scale of 2**")[1].split(" ")[0])
    assert backward(dy * 2.0**exponent, x, w, None, *GEOMETRY, [True, True, True], recipe=recipe)[0].any()
    backward(dy, x, w, None, *GEOMETRY, [True, True, True], recipe=recipe, layer="stem")
    _warned.clear()
    backward(dy * 0, x, w, None, *GEOMETRY, [True, True, True], recipe=recipe)  # nothing was lost
    one = torch.zeros_like(dy)
    one[-1, -1, -1, -1] = 1
    backward(one, x, w, None, *GEOMETRY, [True, True, True], recipe=recipe)
    _warned.clear()


def test_operators_run_under_the_profiler_and_modes():
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Listening(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    layer = convreg.torch.convert(torch.nn.Conv2d(4, 6, 3), "hifloat8")
    x = operands()[0].requires_grad_()
    plain = layer(x)
    with Listening():
        y = layer(x)
        y.sum().backward()
    assert torch.equal(y, plain)
    assert {"convreg.convolution_saving.default", "convreg.convolution_backward.default"} <= {*seen}
