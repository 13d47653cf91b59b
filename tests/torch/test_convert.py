"""`convert`: what is converted, shared, skipped and named, and what torch does with modules otherwise."""

import copy
import io
import pickle
import threading

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch_layers import emulated_layers, modules  # noqa: E402

import convreg.torch  # noqa: E402
from convreg.errors import OpError, OpTypeError, UnknownOp  # noqa: E402
from convreg.torch.modules import NotConverted  # noqa: E402


def names(module):
    return [name for name, _ in emulated_layers(module)]


def gradients(module, x):
    module.zero_grad()
    module(x).square().sum().backward()
    return [parameter.grad.clone() for parameter in module.parameters() if parameter.grad is not None]


def equal(ones, others):
    return len(ones) == len(others) > 0 and all(map(torch.equal, ones, others))


@pytest.mark.parametrize("name", modules())
def test_structure_state_and_parameters_are_those_of_the_module(name):
    module, _ = modules()[name]
    state = copy.deepcopy(module.state_dict())
    converted = convreg.torch.convert(module, "hifloat8")
    assert list(converted.state_dict()) == list(state)
    assert [name for name, _ in converted.named_modules()] == [name for name, _ in module.named_modules()]
    assert all(one is other for one, other in zip(converted.parameters(), module.parameters(), strict=True))
    assert all(one is other for one, other in zip(converted.buffers(), module.buffers(), strict=True))
    assert not names(module)
    assert names(converted)
    for one, other in zip(converted.modules(), module.modules(), strict=True):
        assert isinstance(one, type(other))
    module.load_state_dict(converted.state_dict())
    converted.load_state_dict(state)


def test_layers_print_their_recipe():
    assert "hifloat8" in repr(convreg.torch.convert(nn.Conv2d(1, 1, 1), "hifloat8"))


@pytest.mark.parametrize(("skip", "left"), [
    (["0"], ["1.0", "1.1", "2"]), ("1", ["0", "2"]), (["1.1", "2"], ["0", "1.0"]), ("", []),
    (lambda name, layer: isinstance(layer, nn.Linear), ["0", "1.0", "1.1"]),
    (lambda name, layer: name.endswith("0"), ["1.1", "2"])])
def test_skip(skip, left):
    module = nn.Sequential(nn.Conv1d(2, 2, 1), nn.Sequential(nn.Conv1d(2, 2, 1), nn.Conv1d(2, 2, 1)), nn.Linear(3, 3))
    assert names(convreg.torch.convert(module, "hifloat8", skip=skip)) == left
    assert convreg.torch.first_and_last(module) == ("0", "2")
    assert names(convreg.torch.convert(module, "hifloat8", skip=convreg.torch.first_and_last(module))) == ["1.0", "1.1"]


@pytest.mark.parametrize(("arguments", "error", "said"), [
    ((nn.Linear(1, 1), "hifloat9"), UnknownOp, "hifloat8"), ((nn.Linear(1, 1), 3), OpTypeError, "fp8_hybrid"),
    ((nn.Linear(1, 1), None), OpTypeError, "recipe=None.*Recipe"),
    (("module", "hifloat8"), OpTypeError, "nn.Module"), ((), OpTypeError, "module"),
    ((torch.jit.ScriptModule, "hifloat8"), OpTypeError, "nn.Module")])
def test_wrong_arguments_are_named(arguments, error, said):
    with pytest.raises(error, match=said):
        convreg.torch.convert(*arguments)


def test_names_to_skip_must_exist():
    module = nn.Sequential()
    module.add_module("stem", nn.Conv1d(2, 2, 1))
    with pytest.raises(OpError, match="did you mean stem"):
        convreg.torch.convert(module, "hifloat8", skip=["stm"])
    for skip in (3, [1]):
        with pytest.raises(OpTypeError, match="skip"):
            convreg.torch.convert(module, "hifloat8", skip=skip)


def test_what_is_left_to_torch_is_named_once():
    class Own(nn.Conv2d):
        def forward(self, input):
            return super().forward(2 * input)

    module = nn.ModuleDict({"own": Own(1, 1, 1), "heads": nn.MultiheadAttention(4, 2), "lstm": nn.LSTM(2, 2),
                            "lazy": nn.LazyConv2d(2, 1), "plain": nn.Conv2d(1, 1, 1), "pair": nn.Bilinear(2, 2, 2)})
    with pytest.warns(NotConverted) as caught:
        converted = convreg.torch.convert(module, "hifloat8")
    assert len(caught) == 1
    for said in ("own (Own", "heads (MultiheadAttention", "lstm (LSTM", "lazy (LazyConv2d", "pair (Bilinear"):
        assert said in str(caught[0].message)
    assert "out_proj" not in str(caught[0].message)
    assert names(converted) == ["plain"]
    convreg.torch.convert(module, "hifloat8", skip=["own", "heads", "lstm", "lazy", "pair"])
    with pytest.warns(NotConverted, match="no convolution"):
        convreg.torch.convert(nn.ReLU(), "hifloat8")


class Named(nn.Conv2d):
    """A subclass that keeps torch's forward pass."""

    def __init__(self, channels):
        super().__init__(channels, channels, 3)
        self.note = "kept"


def test_subclasses_that_keep_the_forward_pass_are_converted():
    converted = convreg.torch.convert(nn.Sequential(Named(2)), "hifloat8")
    assert names(converted) == ["0"]
    assert isinstance(converted[0], Named)
    x = torch.randn(1, 2, 5, 5)
    truth = gradients(convreg.torch.convert(nn.Sequential(converted[0]), "hifloat8"), x)
    for copied in (copy.deepcopy(converted), pickle.loads(pickle.dumps(converted))):
        assert copied[0].note == "kept"
        assert isinstance(copied[0], Named)
        assert copied[0].weight is not converted[0].weight
        assert equal(gradients(copied, x), truth)


def test_subclasses_are_pickled_and_copied_as_torch_does_it():
    layer = convreg.torch.convert(Named(2), "hifloat8")
    layer.compile(backend="eager")
    x = torch.randn(1, 2, 5, 5)
    for copied in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert copied._compiled_call_impl is None  # torch leaves compiled code out of the state of a module
        assert equal(gradients(copied, x), gradients(layer, x))
    parametrized = convreg.torch.convert(nn.utils.parametrizations.weight_norm(Named(2)), "hifloat8")
    with pytest.raises(RuntimeError, match="parametrized modules"):
        pickle.dumps(parametrized)


def test_a_converted_module_can_be_converted_to_another_recipe():
    module, x = nn.Sequential(nn.Conv2d(2, 3, 3)), torch.randn(1, 2, 6, 6)
    first = convreg.torch.convert(module, "hifloat8")
    second = convreg.torch.convert(first, "float32")
    assert equal(gradients(second, x), gradients(convreg.torch.convert(module, "float32"), x))
    assert not equal(gradients(second, x), gradients(first, x))
    assert first[0].convreg_recipe == convreg.torch.recipe("hifloat8")


@pytest.mark.parametrize("norm", ["weight", "spectral"])
def test_parametrized_layers_are_converted(norm):
    wrap = getattr(nn.utils.parametrizations, f"{norm}_norm")
    torch.manual_seed(0)
    module = nn.Sequential(wrap(nn.Conv2d(2, 3, 3)), nn.ReLU(), wrap(nn.Linear(4, 2))).eval()
    x = torch.randn(1, 2, 6, 6)
    converted = convreg.torch.convert(module, "hifloat8")
    assert names(converted) == ["0", "2"]
    assert list(converted.state_dict()) == list(module.state_dict())
    y = converted(x)
    assert torch.equal(y, convreg.torch.convert(nn.Sequential(*map(bare, module)), "hifloat8")(x))
    close = convreg.torch.convert(module, "float32")
    for one, other in zip(gradients(close, x), gradients(module, x), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    nn.utils.parametrize.remove_parametrizations(converted[0], "weight")
    assert names(converted) == ["0", "2"]
    assert isinstance(converted[0], convreg.torch.modules.ConvregConv2d)
    assert torch.equal(converted(x), y)
    later = convreg.torch.convert(nn.Sequential(nn.Conv2d(2, 3, 3)), "hifloat8")
    wrap(later[0])
    assert names(later) == ["0"]
    assert names(convreg.torch.convert(later, "float32")) == ["0"]
    gradients(later, x)


def bare(layer):
    if isinstance(layer, nn.ReLU):
        return layer
    plain = nn.Conv2d(2, 3, 3) if isinstance(layer, nn.Conv2d) else nn.Linear(4, 2)
    plain.load_state_dict({"weight": layer.weight, "bias": layer.bias})
    return plain


@pytest.mark.filterwarnings("ignore:.*weight_norm.*deprecated.*")
def test_pruned_layers_and_the_older_weight_norm_are_converted():
    import torch.nn.utils.prune as prune

    x = torch.randn(1, 2, 6, 6)
    pruned = nn.Sequential(nn.Conv2d(2, 3, 3))
    prune.random_unstructured(pruned[0], "weight", 0.5)
    converted = convreg.torch.convert(pruned, "float32")
    assert converted[0].weight_orig is pruned[0].weight_orig
    for one, other in zip(gradients(converted, x), gradients(pruned, x), strict=True):
        torch.testing.assert_close(one, other)
    prune.remove(converted[0], "weight")
    assert (converted[0].weight == 0).sum() == 27
    normed = nn.Sequential(nn.utils.weight_norm(nn.Conv2d(2, 3, 3)))
    converted = convreg.torch.convert(normed, "float32")
    for one, other in zip(gradients(converted, x), gradients(normed, x), strict=True):
        torch.testing.assert_close(one, other)


def test_copies_files_and_averages_of_converted_modules():
    module, x = modules()["unet"]
    converted = convreg.torch.convert(module, convreg.torch.recipe("hifloat8", rounding="stochastic", seed=5))
    file = io.BytesIO()
    torch.save(converted, file)
    file.seek(0)
    copies = [copy.deepcopy(converted), pickle.loads(pickle.dumps(converted)), torch.load(file, weights_only=False)]
    truth = gradients(converted, x)
    for copied in copies:
        assert equal(gradients(copied, x), truth)  # the counters of the seeds were copied too
    average = torch.optim.swa_utils.AveragedModel(converted)
    average.update_parameters(converted)
    assert torch.isfinite(average(x)).all()
    assert all("_convreg" not in name for name in converted.state_dict())


def test_transformer_layers_call_their_linear_layers_in_inference_too(monkeypatch):
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    with pytest.warns(NotConverted, match="self_attn"):
        converted = convreg.torch.convert(layer, "hifloat8")
    called = []
    linear = convreg.torch.functional.linear
    monkeypatch.setattr(convreg.torch.functional, "linear",
                        lambda *arguments: (called.append(arguments[3].layer), linear(*arguments))[1])
    with torch.no_grad():
        converted(torch.randn(2, 3, 8))
    assert called == ["linear1", "linear2"]


def test_traces_of_fx_are_converted_and_converted_layers_are_not_traced():
    module, x = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(36, 2)), torch.randn(2, 3, 5, 5)
    converted = convreg.torch.convert(module, "hifloat8")
    with pytest.raises(OpTypeError, match="Proxy"):
        torch.fx.symbolic_trace(converted)
    traced = convreg.torch.convert(torch.fx.symbolic_trace(module), "hifloat8")
    assert names(traced) == names(converted)
    truth = gradients(converted, x)
    assert equal(gradients(traced, x), truth)


@pytest.mark.parametrize("held", [threading.Lock(), [torch.ones(2, requires_grad=True) * 2]])
def test_modules_that_cannot_be_copied_are_refused(held):
    module = nn.Sequential(nn.Linear(2, 2))
    module.held = held
    with pytest.raises(OpTypeError, match="deepcopy") as caught:
        convreg.torch.convert(module, "hifloat8")
    assert caught.value.argument == "module"


def test_wrapped_modules_are_refused():
    with pytest.raises(OpTypeError, match="wrapped"):
        convreg.torch.convert(nn.DataParallel(nn.Linear(1, 1)), "hifloat8")


def test_sharded_modules_are_refused():
    from torch import distributed

    shard = getattr(pytest.importorskip("torch.distributed.fsdp"), "fully_shard", None)
    if shard is None:
        pytest.skip("this PyTorch has no fully_shard")
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        mesh = distributed.device_mesh.init_device_mesh("cpu", (1,))
        module = nn.Sequential(nn.Sequential(nn.Linear(2, 2)))
        shard(module[0], mesh=mesh)
        with pytest.raises(OpTypeError, match=r"0, a FSDPSequential.*wrapped"):
            convreg.torch.convert(module, "hifloat8")
    finally:
        distributed.destroy_process_group()


@pytest.mark.parametrize("layer", [nn.Conv2d(2, 3, 3), nn.ConvTranspose2d(2, 3, 3), nn.Linear(5, 2)])
def test_layers_take_what_torchs_take(layer):
    converted = convreg.torch.convert(layer, "float32")
    torch.manual_seed(0)
    for x in (torch.randn(2, 5, 5), torch.randn(4, 2, 5, 5)):
        torch.testing.assert_close(converted(x), layer(x))
    if isinstance(layer, nn.ConvTranspose2d):
        torch.testing.assert_close(converted(x, output_size=(7, 7)), layer(x, output_size=(7, 7)))
    for wrong in (torch.zeros(2, 5, 5, dtype=torch.uint8), torch.zeros(2, 5, 5, device="meta"),
                  torch.zeros(2, 5, 5, dtype=torch.float64)):
        with pytest.raises(OpTypeError):
            converted(wrong)
    named = convreg.torch.convert(nn.Sequential(layer), "float32")
    with pytest.raises(OpTypeError, match="layer '0'"):
        named(torch.zeros(2, 5, 5, dtype=torch.complex64))


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_padding_modes(mode):
    layer = nn.Conv2d(2, 3, 3, padding=(2, 1), padding_mode=mode)
    x = torch.randn(1, 2, 6, 5)
    torch.testing.assert_close(convreg.torch.convert(layer, "float32")(x), layer(x))


def test_same_padding_of_even_kernels_ends_with_the_odd_element():
    layer = nn.Conv2d(2, 3, (4, 3), padding="same", dilation=(1, 2))
    x = torch.randn(1, 2, 6, 5)
    truth = nn.functional.conv2d(nn.functional.pad(x, [2, 2, 1, 2]), layer.weight, layer.bias, dilation=(1, 2))
    torch.testing.assert_close(convreg.torch.convert(layer, "float32")(x), truth)
    with pytest.raises(OpError, match="same"), convreg.torch.emulate("float32"):
        nn.functional.conv2d(x, layer.weight, padding="same", stride=2)
