"""Each layer of converted modules against convreg's operators on rounded operands, bit for bit, and against torch."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch_layers import array_of, expected, modules, record, tensor_of  # noqa: E402

import convreg.torch  # noqa: E402

RECIPES = {
    "float32": ((None, None, None), False, False),
    "bfloat16": (("bfloat16",) * 3, False, False),
    "hifloat8": (("hifloat8",) * 3, False, False),
    "fp8_hybrid": (("float8_e4m3fn", "float8_e4m3fn", "float8_e5m2"), True, True),
    "fp8_e4m3": (("float8_e4m3fn",) * 3, True, True),
}
"""By recipe: the formats of input, weight and output gradient, whether it scales, whether it saturates."""

MODULES = list(modules())


@pytest.fixture(params=[1, 2])
def threads(request):
    """Torch's number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("name", MODULES)
def test_every_layer_gives_the_bits_of_convregs_operators_on_rounded_operands(name, recipe, threads):
    module, x = modules()[name]
    formats, scaled, saturate = RECIPES[recipe]
    calls = record(convreg.torch.convert(module, recipe), x)
    assert calls
    sums = {}
    for call in reversed(calls):  # the order in which autograd adds gradients of one parameter
        truth = expected(call, formats, scaled=scaled, saturate=saturate, threads=threads)
        assert array_of(call.output).tobytes() == truth.output.tobytes(), call.name
        assert array_of(call.input.grad).tobytes() == truth.input.tobytes(), call.name
        for parameter, gradient in ((call.layer.weight, truth.weight), (call.layer.bias, truth.bias)):
            if parameter is not None:
                more = tensor_of(gradient)
                sums[parameter] = sums[parameter] + more if parameter in sums else more
    for parameter, gradient in sums.items():
        assert torch.equal(parameter.grad, gradient)
    assert {*module.parameters()} >= {*sums}


@pytest.mark.filterwarnings("ignore:Using padding='same'")  # torch's own, about its speed
@pytest.mark.parametrize("name", [name for name in MODULES if name != "bfloat16"])
def test_without_rounding_gradients_are_those_of_torch(name):
    module, x = modules()[name]
    output = convreg.torch.convert(module, "float32")(x)
    ours = torch.autograd.grad(output.square().sum(), list(module.parameters()))
    if name in ("residual", "channels_last"):  # the running averages took part in one call only
        module, x = modules()[name]
    theirs = torch.autograd.grad(module(x).square().sum(), list(module.parameters()))
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-5 * float(other.abs().max()))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("scaling", ["tensor", "channel"])
def test_torchs_default_dtype_changes_no_bit(scaling, dtype):
    """Scales of 2**-126 to 2**126 are float32 always."""
    layer = torch.nn.Conv2d(2, 3, 3)
    with torch.no_grad():
        layer.weight.mul_(2.0**-20)
    layer = convreg.torch.convert(layer, convreg.torch.recipe("fp8_hybrid", scaling=scaling))
    x, found = torch.randn(1, 2, 5, 5), []
    for default in (torch.float32, dtype):
        torch.set_default_dtype(default)
        try:
            numbers = x.clone().requires_grad_()
            output = layer(numbers)
            found.append((output, *torch.autograd.grad(output.square().sum(), [numbers, layer.weight, layer.bias])))
        finally:
            torch.set_default_dtype(torch.float32)
    assert all(map(torch.equal, *found))


def test_float64_gradients_are_those_of_finite_differences():
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Conv2d(2, 3, 3, stride=2), torch.nn.Tanh(),
                                 torch.nn.ConvTranspose2d(3, 2, 2)).double()
    module = convreg.torch.convert(module, "float64")
    assert torch.autograd.gradcheck(module, torch.randn(1, 2, 5, 5, dtype=torch.float64, requires_grad=True))


@pytest.mark.parametrize("recipe", ["hifloat8", "fp8_e4m3"])
def test_channels_last_gives_the_same_bits_and_keeps_the_layout(recipe):
    module, x = modules()["residual"]
    ours = record(convreg.torch.convert(module, recipe).eval(), x)
    grads = [call.layer.weight.grad.clone() for call in ours]
    module.zero_grad()
    module = module.to(memory_format=torch.channels_last)
    last = record(convreg.torch.convert(module, recipe).eval(), x.to(memory_format=torch.channels_last))
    for one, other in zip(ours, last, strict=True):
        assert other.output.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(one.output, other.output)
        assert torch.equal(one.input.grad, other.input.grad)
    for gradient, call in zip(grads, last, strict=True):
        assert torch.equal(gradient, call.layer.weight.grad)
        assert call.layer.weight.grad.stride() == call.layer.weight.stride()


def test_output_padding_may_reach_the_stride_if_the_dilation_is_larger():
    layer = torch.nn.ConvTranspose1d(2, 3, 2, stride=2, dilation=3, output_padding=2)
    converted, x = convreg.torch.convert(layer, "float32"), torch.randn(1, 2, 4)
    torch.testing.assert_close(converted(x), layer(x))
    for one, other in zip(*(torch.autograd.grad(module(x).sin().sum(), list(layer.parameters()))
                            for module in (converted, layer)), strict=True):
        torch.testing.assert_close(one, other)


def test_saved_activations_take_one_byte_per_number():
    sizes = []

    def pack(tensor):
        sizes.append(tensor.untyped_storage().nbytes())
        return tensor

    layer = convreg.torch.convert(torch.nn.Conv2d(4, 4, 3), "hifloat8")
    x = torch.randn(2, 4, 32, 32, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        layer(x)
    assert sorted(sizes)[-1] == x.numel()


def test_frozen_parameters_and_inputs_get_no_gradients_and_keep_nothing():
    layer = convreg.torch.convert(torch.nn.Conv2d(4, 4, 3), "hifloat8")
    layer.weight.requires_grad_(False)
    sizes = []
    x = torch.randn(2, 4, 32, 32, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(
            lambda tensor: (sizes.append(tensor.untyped_storage().nbytes()), tensor)[1], lambda tensor: tensor):
        y = layer(x)
    assert max(sizes) == layer.weight.numel()
    y.sum().backward()
    assert layer.weight.grad is None
    assert x.grad is not None
    layer.weight.requires_grad_(True)
    layer(torch.randn(2, 4, 8, 8)).sum().backward()
    assert layer.weight.grad is not None


def test_empty_batches_work_as_in_torch():
    layer = torch.nn.Conv2d(2, 3, 3)
    converted = convreg.torch.convert(layer, "fp8_e4m3")
    x = torch.randn(0, 2, 5, 5, requires_grad=True)
    converted(x).sum().backward()
    assert x.grad.shape == x.shape
    assert not layer.weight.grad.any()
    assert convreg.torch.convert(torch.nn.Linear(4, 2), "hifloat8")(torch.randn(0, 4)).shape == (0, 2)


def test_each_product_can_have_its_own_formats():
    recipe = convreg.torch.Recipe(
        input={"forward": "hifloat8", "grad_weight": None}, weight={"forward": "float8_e5m2", "grad_input": "bfloat16"},
        grad_output={"grad_input": "float8_e4m3fn", "grad_weight": "float16"})
    layer = torch.nn.Conv2d(3, 4, 3, padding=1)
    [call] = record(convreg.torch.convert(layer, recipe), torch.randn(2, 3, 6, 6))
    forward = expected(call, ("hifloat8", "float8_e5m2", None))
    data = expected(call, (None, "bfloat16", "float8_e4m3fn"))
    weights = expected(call, (None, None, "float16"))
    assert np.array_equal(array_of(call.output), forward.output)
    assert np.array_equal(array_of(call.input.grad), data.input)
    assert np.array_equal(array_of(layer.weight.grad), weights.weight)
    assert np.array_equal(array_of(layer.bias.grad), weights.bias)


@pytest.mark.parametrize("result", ["bfloat16", "float8_e5m2", "hifloat8"])
def test_gradients_are_rounded_to_their_formats(result):
    recipe = convreg.torch.recipe("hifloat8", grad_input=result, grad_weight=result)
    layer = torch.nn.Conv2d(3, 4, 3, padding=1, bias=False)
    [call] = record(convreg.torch.convert(layer, recipe), torch.randn(2, 3, 6, 6))
    truth = expected(call, ("hifloat8",) * 3)
    for gradient, sums in ((call.input.grad, truth.input), (layer.weight.grad, truth.weight)):
        assert np.array_equal(array_of(gradient), convreg.quantize(sums, result).astype(np.float32))


def test_a_scale_makes_the_most_of_a_results_format():
    tiny = torch.nn.Conv2d(3, 4, 3, bias=False)
    x = torch.randn(2, 3, 6, 6)
    errors = []
    for scaling in ("none", "tensor", "channel"):
        recipe = convreg.torch.Recipe(grad_weight="float8_e4m3fn", scaling={"grad_weight": scaling}, saturate=True)
        tiny.zero_grad()
        (1e-3 * convreg.torch.convert(tiny, recipe)(x).sin()).sum().backward()
        rounded = tiny.weight.grad
        tiny.zero_grad()
        (1e-3 * tiny(x).sin()).sum().backward()
        errors.append(float((rounded - tiny.weight.grad).norm() / tiny.weight.grad.norm()))
    assert errors[0] > 2 * errors[1]
    assert errors[2] < 0.04


def test_one_channel_is_scaled_as_a_whole_tensor_is():
    """As in convreg's operators, where one scale belongs to the whole tensor; it shows where sums overflow."""
    torch.manual_seed(0)
    layer = torch.nn.ConvTranspose1d(4, 1, 1, bias=False)
    layer.weight.data *= 2.0**-8
    x, dy = torch.randn(2, 4, 5), torch.full((2, 1, 5), 3e37)
    made = []
    for scaling in ("tensor", "channel"):
        recipe = convreg.torch.Recipe(weight="float8_e4m3fn", scaling=scaling)
        [call] = record(convreg.torch.convert(layer, recipe), x, dy)
        made.append(call.input.grad)
    assert torch.equal(*made)
    assert made[0].isinf().any()
