"""`emulate`: functions of torch.nn.functional inside a with block, and what it cannot see."""

import threading
from contextlib import nullcontext

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402
from torch_layers import modules  # noqa: E402

import convreg.torch  # noqa: E402
from convreg.errors import OpError, OpTypeError, UnknownOp  # noqa: E402
from convreg.torch.modules import NotConverted  # noqa: E402


def gradients(output, module):
    return torch.autograd.grad(output.square().sum(), list(module.parameters()))


@pytest.mark.parametrize("recipe", ["hifloat8", "fp8_hybrid"])
@pytest.mark.parametrize("name", [name for name in modules() if name not in ("residual", "channels_last")])
def test_gradients_are_those_of_convert_inside_and_outside_of_the_block(name, recipe):
    module, x = modules()[name]
    truth = gradients(convreg.torch.convert(module, recipe)(x), module)
    with convreg.torch.emulate(recipe):
        inside = gradients(module(x), module)
        output = module(x)
    outside = gradients(output, module)
    for one, *others in zip(truth, inside, outside, strict=True):
        assert all(torch.equal(one, other) for other in others)


def test_backward_in_another_thread_is_the_recipes():
    module, x = modules()["unet"]
    truth = gradients(convreg.torch.convert(module, "hifloat8")(x), module)
    with convreg.torch.emulate("hifloat8"):
        output = module(x)
    found = []
    thread = threading.Thread(target=lambda: found.extend(gradients(output, module)))
    thread.start()
    thread.join()
    assert all(map(torch.equal, found, truth))


def test_functions_are_replaced_in_every_spelling():
    x, w, bias = torch.randn(2, 4, 6, 6), torch.randn(4, 2, 3, 3), torch.randn(4)
    calls = [
        lambda: F.conv2d(x, w, bias, 2, 1, groups=2), lambda: F.conv2d(weight=w, input=x, groups=2, padding="same"),
        lambda: F.conv2d(x, w, None, [1, 2], (1, 0), 2, 2), lambda: torch.conv2d(x[0], w, bias, groups=2),
        lambda: F.conv_transpose2d(x, w, None, 2, 1, 1, 2),
        lambda: F.conv1d(x[..., 0], w[..., 0], groups=2, padding="valid"),
        lambda: torch.convolution(x, w, bias, [1, 1], [0, 0], [1, 1], False, [0, 0], 2),
        lambda: torch.convolution(x, w, None, [1, 1], [0, 0], [1, 1], True, [0, 0], 2),
        lambda: F.conv3d(x[None], torch.ones(3, 2, 1, 3, 2), padding=(1, 0, 0)),
        lambda: F.conv2d(x, w, bias, np.int64(2), [np.int64(1)], torch.tensor(1), np.int64(2)),
        lambda: F.conv2d(x, w, padding="same", dilation=np.int64(3), groups=2),
        lambda: F.conv_transpose2d(x, w, None, np.int64(2), np.int64(1), np.int64(1), 2),
        lambda: F.linear(x, torch.ones(3, 6), None), lambda: F.linear(input=x[0, 0, 0], weight=torch.ones(3, 6)),
        lambda: F.linear(x, torch.ones(3, 6), torch.ones(1)), lambda: F.linear(x, torch.ones(3, 6), torch.ones(())),
        lambda: F.linear(x, torch.ones(6), torch.ones(())), lambda: F.linear(x[0, 0, 0], torch.ones(6))]
    for call in calls:
        truth = call()
        with convreg.torch.emulate("float32"):
            torch.testing.assert_close(call(), truth, rtol=1e-5, atol=1e-5)
        with convreg.torch.emulate("hifloat8"):
            assert not torch.equal(call(), truth)


@pytest.mark.parametrize("name", ["conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
                                  "conv_transpose3d"])
def test_functions_take_weights_of_their_own_number_of_axes(name):
    for axes in {1, 2, 3} - {int(name[-2])}:
        tensors = torch.ones(1, 2, *[3] * axes), torch.ones(2, 2, *[2] * axes)
        for x, w in (tensors, (tensors[0][0], tensors[1])):
            with pytest.raises(RuntimeError):
                getattr(F, name)(x, w)
            with convreg.torch.emulate("float32"), pytest.raises(OpError, match="axes") as caught:
                getattr(F, name)(x, w)
            assert caught.value.argument == "weight"


def test_converted_layers_keep_their_own_recipe():
    layer, x = nn.Conv2d(2, 3, 3), torch.randn(1, 2, 5, 5)
    converted = convreg.torch.convert(layer, "float32")
    with convreg.torch.emulate("hifloat8"):
        assert torch.equal(converted(x), converted(x))
        assert not torch.equal(layer(x), converted(x))
        with convreg.torch.emulate("float32"):
            assert torch.equal(layer(x), converted(x))


@pytest.mark.filterwarnings("ignore:.*retain_grad.*")
def test_what_torch_computes_as_a_whole_is_named_once():
    heads, x = nn.MultiheadAttention(4, 2), torch.randn(3, 1, 4)
    mode = convreg.torch.emulate("hifloat8")
    with mode, pytest.warns(NotConverted, match="multi_head_attention_forward"):
        heads(x, x, x)
    with mode:
        heads(x, x, x)
    with pytest.warns(NotConverted, match="lstm"), convreg.torch.emulate("hifloat8"):
        nn.LSTM(2, 2)(torch.randn(3, 1, 2))
    with pytest.warns(NotConverted, match="conv_tbc"), convreg.torch.emulate("hifloat8"):
        torch.conv_tbc(torch.randn(5, 1, 2), torch.randn(3, 2, 4), torch.randn(4))


def test_checkpoints_see_the_mode_or_are_refused():
    layer = nn.Sequential(nn.ReLU(), nn.Conv2d(2, 3, 3))
    x = torch.randn(1, 2, 5, 5, requires_grad=True)
    truth = gradients(convreg.torch.convert(layer, "hifloat8")(x), layer)
    mode = convreg.torch.emulate("hifloat8")
    with mode:
        output = checkpoint(layer, x, use_reentrant=False, context_fn=lambda: (nullcontext(), mode))
        output.square().sum().backward()
    assert torch.equal(layer[1].weight.grad, truth[0])
    with mode:
        output = checkpoint(layer, x, use_reentrant=False, context_fn=lambda: (nullcontext(), mode))
    assert torch.equal(gradients(output, layer)[0], truth[0])
    with mode, torch.no_grad():
        layer(x)
    with mode, pytest.raises(OpError, match="use_reentrant"):
        checkpoint(layer, x, use_reentrant=True)


def test_wrong_recipes_and_tensors_are_refused():
    with pytest.raises(UnknownOp, match="hifloat8"):
        convreg.torch.emulate("hifloat9")
    with pytest.raises(OpTypeError, match="recipe"):
        convreg.torch.emulate(8)
    with convreg.torch.emulate("hifloat8"), pytest.raises(OpTypeError, match="float64"):
        F.linear(torch.zeros(1, 1, dtype=torch.float64), torch.zeros(1, 1, dtype=torch.float64))
