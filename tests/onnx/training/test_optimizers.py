"""The optimizers' updates: against torch's definitions written out in NumPy in float64, and against torch."""

from __future__ import annotations

import numpy as np
import pytest
from exported_models import line

import convreg.onnx
from convreg.errors import GraphError

CASES = [
    ("sgd", {}), ("sgd", {"weight_decay": 0.1}), ("momentum", {}), ("momentum", {"momentum": 0.5, "nesterov": True}),
    ("momentum", {"weight_decay": 0.05}), ("adam", {}), ("adam", {"weight_decay": 0.1, "betas": (0.8, 0.99)}),
    ("adamw", {}), ("adamw", {"weight_decay": 0.2, "eps": 1e-3}),
]
RATE = 0.05


def updated(name, parameter, gradient, state, count, momentum=0.9, nesterov=False, betas=(0.9, 0.999), eps=1e-8,
            weight_decay=None):
    """One update as torch.optim's pages define it; `state` is changed in place."""
    decay = (0.01 if name == "adamw" else 0.0) if weight_decay is None else weight_decay
    if name == "adamw":
        parameter = parameter - RATE * decay * parameter
    else:
        gradient = gradient + decay * parameter
    if name == "sgd":
        return parameter - RATE * gradient
    if name == "momentum":
        state["b"] = momentum * state.get("b", 0) + gradient
        return parameter - RATE * (gradient + momentum * state["b"] if nesterov else state["b"])
    state["m"] = betas[0] * state.get("m", 0) + (1 - betas[0]) * gradient
    state["v"] = betas[1] * state.get("v", 0) + (1 - betas[1]) * gradient**2
    mean, square = state["m"] / (1 - betas[0] ** count), state["v"] / (1 - betas[1] ** count)
    return parameter - RATE * mean / (np.sqrt(square) + eps)


def batches(steps):
    rng = np.random.default_rng(4)
    return [(rng.standard_normal((6, 2)), rng.standard_normal((6, 3))) for _ in range(steps)]


def by_hand(name, constants, steps, clip=None):
    """Five steps of mean squared error on `line`, in float64."""
    values = {"w": np.arange(6.0).reshape(2, 3), "b": np.zeros(3)}
    states: dict[str, dict] = {"w": {}, "b": {}}
    losses = []
    for count, (x, target) in enumerate(batches(steps), 1):
        error = x @ values["w"] + values["b"] - target
        losses.append(np.mean(error**2))
        outgoing = 2 * error / error.size
        gradients = {"w": x.T @ outgoing, "b": outgoing.sum(0)}
        if clip is not None:
            norm = np.sqrt(sum(np.sum(gradient**2) for gradient in gradients.values()))
            gradients = {key: gradient * min(1, clip / (norm + 1e-6)) for key, gradient in gradients.items()}
        values = {key: updated(name, values[key], gradients[key], states[key], count, **constants) for key in values}
    return losses, values


@pytest.mark.parametrize(("name", "constants"), CASES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("clip", [None, 0.3])
def test_five_steps_equal_the_definition(name, constants, dtype, clip):
    step = convreg.onnx.training_step(line(dtype=dtype, outputs=3), loss="mse", optimizer=name, clip_norm=clip,
                                      learning_rate=RATE, **constants)
    trainer = convreg.onnx.Trainer(step, engine="reference")
    losses, values = by_hand(name, constants, 5, clip)
    found = [trainer.step({"x": x.astype(dtype), "target": target.astype(dtype)})["loss"] for x, target in batches(5)]
    tolerance = 2e-6 if dtype == np.float32 else 1e-7  # the learning rate is float32 in both
    np.testing.assert_allclose(found, losses, rtol=tolerance)
    for key, wanted in values.items():
        np.testing.assert_allclose(trainer.parameters[key], wanted, rtol=10 * tolerance, atol=tolerance)


@pytest.mark.parametrize(("name", "constants"), CASES)
def test_five_steps_equal_torch(name, constants):
    torch = pytest.importorskip("torch")
    made = {"sgd": torch.optim.SGD, "momentum": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    given = {"momentum": 0.9, **constants} if name == "momentum" else constants
    step = convreg.onnx.training_step(line(outputs=3), loss="mse", optimizer=name, learning_rate=RATE, **constants)
    trainer = convreg.onnx.Trainer(step, engine="reference")
    weight = torch.arange(6.0, dtype=torch.float64).reshape(2, 3).requires_grad_()
    bias = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    optimizer = made[name]([weight, bias], lr=RATE, **given)
    for x, target in batches(5):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(torch.tensor(x) @ weight + bias, torch.tensor(target))
        loss.backward()
        optimizer.step()
        found = trainer.step({"x": x.astype(np.float32), "target": target.astype(np.float32)})
        assert found["loss"] == pytest.approx(loss.item(), rel=1e-5)
    for key, wanted in (("w", weight), ("b", bias)):
        np.testing.assert_allclose(trainer.parameters[key], wanted.detach().numpy(), rtol=1e-5, atol=2e-6)


def test_a_power_of_two_as_loss_scale_changes_no_bit():
    x, target = (array.astype(np.float32) for array in batches(1)[0])
    results = []
    for scale in (None, 1024.0):
        step = convreg.onnx.training_step(line(outputs=3), loss="mse", optimizer="adam", loss_scale=scale)
        results.append(convreg.onnx.run(step, {"x": x, "target": target}, engine="reference"))
    assert all(np.array_equal(results[0][name], results[1][name]) for name in results[0])
    other = convreg.onnx.run(step, {"x": x, "target": target, "loss_scale": 2.0**-20}, engine="reference")
    assert all(np.array_equal(results[0][name], other[name]) for name in results[0])


@pytest.mark.parametrize(("arguments", "said"), [
    ({"optimizer": "rmsprop"}, "allowed: 'sgd', 'momentum', 'adam', 'adamw'"),
    ({"optimizer": None}, "optimizer=None is refused"),
    ({"betas": (0.9, 0.99)}, "optimizer='sgd' has no such constant"),
    ({"optimizer": "adam", "betas": (0.9, 1.0)}, "a number from 0 to below 1"),
    ({"optimizer": "adam", "betas": 0.9}, "two numbers"),
    ({"optimizer": "adam", "eps": -1e-8}, "eps=-1e-08 is refused"),
    ({"optimizer": "momentum", "momentum": float("nan")}, "momentum=nan"),
    ({"optimizer": "momentum", "nesterov": 1}, "True or False"),
    ({"weight_decay": "0.1"}, "weight_decay='0.1'"), ({"learning_rate": float("inf")}, "learning_rate=inf"),
    ({"learning_rate": True}, "learning_rate=True"), ({"clip_norm": 0}, "clip_norm=0"),
    ({"loss_scale": -2.0}, "loss_scale=-2.0"), ({"seed": -1}, "seed=-1"),
    ({"learning_rate": 10**5000}, "learning_rate="),
])
def test_wrong_constants_are_refused(arguments, said):
    with pytest.raises(GraphError) as caught:
        convreg.onnx.training_step(line(), loss="mse", **arguments)
    assert said in str(caught.value)
