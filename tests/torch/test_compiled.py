"""Converted modules and `emulate` under torch.compile, torch.export, make_fx and torch.jit.trace."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch_layers import modules  # noqa: E402

import convreg.torch  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # the compilers' own

STOCHASTIC = convreg.torch.recipe("hifloat8", rounding="stochastic", seed=7)


@pytest.fixture(autouse=True)
def fresh():
    """No code compiled by earlier tests."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()


def gradients(module, x, parameters):
    for parameter in parameters:
        parameter.grad = None
    module(x).square().sum().backward()
    return [parameter.grad.clone() for parameter in parameters]


def chain():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(2, 4, 3), nn.Conv2d(4, 4, 3, padding=1, groups=2), nn.ConvTranspose2d(4, 3, 2, 2),
                         nn.Flatten(), nn.Linear(432, 5))


@pytest.mark.parametrize("recipe", ["hifloat8", "fp8_hybrid", STOCHASTIC], ids=["hifloat8", "fp8_hybrid", "stochastic"])
def test_whole_graphs_give_equal_bits(recipe):
    module, x = chain(), torch.randn(2, 2, 8, 8)
    parameters = list(module.parameters())
    eager, converted = convreg.torch.convert(module, recipe), convreg.torch.convert(module, recipe)
    compiled = torch.compile(converted, fullgraph=True, backend="aot_eager")
    for _ in range(3):
        for one, other in zip(gradients(eager, x, parameters), gradients(compiled, x, parameters), strict=True):
            assert torch.equal(one, other)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["float32", "hifloat8", "fp8_hybrid", "fp8_e4m3", "bfloat16", STOCHASTIC],
                         ids=str)
def test_inductor_gives_equal_bits_on_convolutions(recipe):
    module, x = chain(), torch.randn(2, 2, 8, 8)
    parameters = list(module.parameters())
    truth = gradients(convreg.torch.convert(module, recipe), x, parameters)
    compiled = torch.compile(convreg.torch.convert(module, recipe), fullgraph=True)
    for one, other in zip(truth, gradients(compiled, x, parameters), strict=True):
        assert torch.equal(one, other)


@pytest.mark.slow
@pytest.mark.parametrize("name", modules())
def test_modules_of_all_kinds_compile(name):
    module, x = modules()[name]
    parameters = list(module.parameters())
    truth = gradients(convreg.torch.convert(module, "float32"), x, parameters)
    compiled = torch.compile(convreg.torch.convert(module, "float32"), fullgraph=True)
    for one, other in zip(truth, gradients(compiled, x, parameters), strict=True):
        torch.testing.assert_close(one, other, rtol=2e-2 if one.dtype is torch.bfloat16 else 1e-4, atol=1e-3)


@pytest.mark.slow
def test_shapes_may_be_symbolic():
    module = nn.Sequential(nn.Conv2d(2, 4, 3), nn.ConvTranspose2d(4, 3, 2, 2))
    parameters = list(module.parameters())
    converted = convreg.torch.convert(module, "hifloat8")
    compiled = torch.compile(converted, fullgraph=True, dynamic=True, backend="aot_eager")
    for shape in ((2, 2, 8, 8), (3, 2, 9, 7), (5, 2, 12, 6)):
        x = torch.randn(shape)
        for one, other in zip(gradients(converted, x, parameters), gradients(compiled, x, parameters), strict=True):
            assert torch.equal(one, other)


@pytest.mark.slow
def test_emulate_compiles_inside_of_a_function():
    module, x = chain(), torch.randn(2, 2, 8, 8)
    parameters = list(module.parameters())
    truth = gradients(convreg.torch.convert(module, "hifloat8"), x, parameters)
    mode = convreg.torch.emulate("hifloat8")

    def step(x):
        return module(x)

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")

    def run(x):
        with mode:
            return compiled(x)

    for one, other in zip(truth, gradients(run, x, parameters), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("recipe", ["hifloat8", STOCHASTIC], ids=["hifloat8", "stochastic"])
def test_a_mode_from_outside_is_entered_in_a_whole_graph(recipe):
    """As the documentation says; `emulate` itself is not called in the compiled function."""
    module, x = chain(), torch.randn(2, 2, 8, 8)
    parameters = list(module.parameters())

    def step_under(mode):
        def step(x):
            with mode:
                return module(x)
        return step

    eager = step_under(convreg.torch.emulate(recipe))
    compiled = torch.compile(step_under(convreg.torch.emulate(recipe)), fullgraph=True, backend="aot_eager")
    for _ in range(2):
        for one, other in zip(gradients(eager, x, parameters), gradients(compiled, x, parameters), strict=True):
            assert torch.equal(one, other)


@pytest.mark.parametrize("strict", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_exported_programs_keep_the_operators(strict):
    converted, x = convreg.torch.convert(chain(), "fp8_hybrid").eval(), torch.randn(2, 2, 8, 8)
    program = torch.export.export(converted, (x,), strict=strict)
    assert torch.equal(program.module()(x), converted(x))
    assert "convreg.convolution.default" in str(program.graph)
    assert torch.equal(program.run_decompositions().module()(x), converted(x))


@pytest.mark.slow
def test_exported_programs_are_saved_and_loaded(tmp_path):
    converted, x = convreg.torch.convert(chain(), "hifloat8").eval(), torch.randn(2, 2, 8, 8)
    torch.export.save(torch.export.export(converted, (x,)), tmp_path / "program.pt2")
    assert torch.equal(torch.export.load(tmp_path / "program.pt2").module()(x), converted(x))


def test_traces_keep_the_operators():
    from torch.fx.experimental.proxy_tensor import make_fx

    converted, x = convreg.torch.convert(chain(), "hifloat8").eval(), torch.randn(2, 2, 8, 8)
    with torch.no_grad():
        traced = make_fx(converted)(x)
        assert "convreg.convolution" in str(traced.graph)
        assert torch.equal(traced(2 * x), converted(2 * x))
        traced = torch.jit.trace(converted, (x,), check_trace=False)
        assert torch.equal(traced(2 * x), converted(2 * x))


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["hifloat8", STOCHASTIC], ids=["hifloat8", "stochastic"])
def test_checkpoints_compile(recipe):
    from torch.utils.checkpoint import checkpoint

    module, x = chain(), torch.randn(2, 2, 8, 8)
    parameters = list(module.parameters())
    truth = gradients(convreg.torch.convert(module, recipe), x, parameters)
    converted = convreg.torch.convert(module, recipe)

    def run(x):
        return checkpoint(converted[2:], checkpoint(converted[:2], x, use_reentrant=False), use_reentrant=False)

    compiled = torch.compile(run, backend="aot_eager")
    for one, other in zip(truth, gradients(compiled, x, parameters), strict=True):
        assert torch.equal(one, other)
